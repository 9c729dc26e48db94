//! How a simulated task begins: the weights and the learner that follow from the public initial data, and the task.

use core::num::NonZeroUsize;

use dphe::{TaskConfig, TaskId};
use dphe_learn::linear::{Sgd, SgdParams};
use dphe_learn::update::Payload;
use dphe_learn::{
    Dataset, Error as LearnError, Real, Seed, Sparsity, StrengthController, Weights, find_strength,
};

use crate::{EncryptionSpec, Error, LearnerSpec, ModelSize, PayloadName, Weighting};

/// Epochs of the initial training on the few initial samples.
const INITIAL_EPOCHS: usize = 20;
/// The share of L1 in the penalty of `w-l1` and `d-l1`.
const L1_RATIO: f64 = 0.5;

/// What the rounds of a simulation start from.
#[derive(Clone, Debug)]
pub struct StartingPoint {
    /// The initial weights.
    pub weights: Weights,
    /// How users learn in the rounds.
    pub spec: LearnerSpec,
    /// The learner of the rounds.
    pub learner: Sgd,
    /// Adjusts the strength from round to round if L1 decides how much is sent.
    pub controller: Option<StrengthController>,
}

impl StartingPoint {
    /// Trains the initial weights on the public initial data, and finds the strength of L1 if the payload needs it.
    ///
    /// # Errors
    /// If a number of the learner is out of range, the weights diverge, or no strength gives the payload its size.
    pub fn train<T: Real>(
        spec: LearnerSpec,
        initial: &Dataset<T>,
        seed: &Seed,
        threads: NonZeroUsize,
    ) -> Result<Self, Error> {
        let fit = |spec: &LearnerSpec| learner(spec, INITIAL_EPOCHS, threads)?.fit(initial, seed);
        if !spec.payload.is_sparse_by_l1() {
            return Self::from_weights(spec.clone(), fit(&spec)?, threads);
        }
        let dimension = initial.features().width() * initial.labels().class_count();
        let target = Sparsity::new(1.0 - spec.share_of(dimension))?;
        let with = |strength| LearnerSpec { strength, l1_ratio: L1_RATIO, ..spec.clone() };
        let strength = find_strength(target, |strength| Ok(fit(&with(strength))?.sparsity()))?;
        // With `d-l1` only the differences are sparse. The initial weights need not be.
        let sparse = with(strength);
        let weights = fit(if spec.payload == PayloadName::DL1 { &spec } else { &sparse })?;
        let learner = learner(&sparse, sparse.epochs, threads)?;
        let controller = Some(StrengthController::new(strength, target)?);
        Ok(Self { weights, spec: sparse, learner, controller })
    }

    /// Starts from weights that exist. The strength of the penalty is that of `spec`.
    ///
    /// # Errors
    /// If a number of the learner is out of range, or the payload needs initial data to find the strength of L1.
    pub fn from_weights(spec: LearnerSpec, weights: Weights, threads: NonZeroUsize) -> Result<Self, Error> {
        if spec.payload.is_sparse_by_l1() {
            return Err(Error::Learn(LearnError::Unsuited {
                what: "a payload that L1 makes sparse",
                needed: "initial data to find the strength",
                found: "weights alone",
            }));
        }
        let learner = learner(&spec, spec.epochs, threads)?;
        Ok(Self { weights, spec, learner, controller: None })
    }
}

impl LearnerSpec {
    /// Returns the task of a simulation with this many users, and the payload that fits it. The id of the task decides
    /// the public order of features, so it follows from the random seed like everything else.
    ///
    /// # Errors
    /// As [`LearnerSpec::propose`].
    pub fn simulated_task(
        &self,
        encryption: &EncryptionSpec,
        model: ModelSize,
        users: usize,
        weighting: Weighting,
        seed: u64,
    ) -> Result<(TaskId, TaskConfig, Payload), Error> {
        // The simulation itself refuses too few users, with a better explanation than the task's.
        let most = u32::try_from(users.max(3)).unwrap_or(u32::MAX);
        let (config, payload) = self.propose(encryption, model, 3..=most, weighting)?;
        Ok((simulated_id(seed), config, payload))
    }
}

/// Returns the id of a simulated task.
pub(crate) fn simulated_id(seed: u64) -> TaskId {
    let mut id = *b"simulate\0\0\0\0\0\0\0\0";
    id[8..].copy_from_slice(&seed.to_be_bytes());
    TaskId::from_bytes(id)
}

fn learner(spec: &LearnerSpec, epochs: usize, threads: NonZeroUsize) -> Result<Sgd, LearnError> {
    SgdParams { epochs, threads, ..spec.sgd()? }.check()
}
