//! A user's part of a round: train from the global weights, then choose what an update carries.
//!
//! An update carries the *difference* to the global weights, or the weights themselves, as far as its [`Payload`]
//! allows. Differences that it leaves out stay with the user in a [`Residual`] and are added to the next update.

mod custom;
mod payload;
mod residual;
mod step;
mod sum;

pub(crate) use custom::AnyLearner;
pub use custom::{CustomLearner, FitLocal};
pub use payload::{Overflow, Payload};
pub use residual::Residual;
pub use step::{LONGEST_CHANGE, UserNumbers, guarded_step};
pub use sum::UpdateSum;

use std::num::NonZeroUsize;

use crate::linear::{Fista, FistaParams, Penalty, Problem, Schedule, Sgd, SgdParams};
use crate::{Dataset, Error, Real, Seed, Weights};

/// The learner of a round.
#[derive(Clone, Debug, PartialEq)]
pub enum Learner {
    /// Stochastic gradient descent.
    Sgd(Sgd),
    /// Full-batch descent. It cannot fill [`Payload::SparseDifferences`] or [`Payload::Rotating`].
    Fista(Fista),
    /// A learner from outside this crate.
    Custom(CustomLearner),
}

impl Learner {
    /// Makes a learner of your own the learner of a round.
    pub fn custom(learner: impl FitLocal) -> Self {
        Self::Custom(CustomLearner::new(learner))
    }
}

impl From<Sgd> for Learner {
    fn from(sgd: Sgd) -> Self {
        Self::Sgd(sgd)
    }
}

impl From<Fista> for Learner {
    fn from(fista: Fista) -> Self {
        Self::Fista(fista)
    }
}

const NEEDS_SGD: Error =
    Error::Unsuited { what: "this payload", needed: "the stochastic learner", found: "the full-batch one" };

/// The public input of a round.
#[derive(Clone, Copy, Debug)]
pub struct RoundInput<'a> {
    /// The weights that every user starts from.
    pub global: &'a Weights,
    /// The features that every user trains. Only [`Payload::Rotating`] uses them.
    pub features: &'a [usize],
}

/// A learner with the payload that its updates carry.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalTrainer {
    learner: Learner,
    payload: Payload,
}

impl LocalTrainer {
    /// Combines a learner and a payload.
    ///
    /// # Errors
    /// If a number of the payload is out of range, or the learner cannot fill the payload.
    pub fn new(learner: impl Into<Learner>, payload: Payload) -> Result<Self, Error> {
        let learner = learner.into();
        payload.check()?;
        match (&learner, payload) {
            (Learner::Fista(_), Payload::SparseDifferences { .. } | Payload::Rotating) => Err(NEEDS_SGD),
            (Learner::Sgd(_) | Learner::Fista(_) | Learner::Custom(_), _) => Ok(Self { learner, payload }),
        }
    }

    /// Returns the payload.
    pub fn payload(&self) -> Payload {
        self.payload
    }

    /// Returns the learner.
    pub fn learner(&self) -> &Learner {
        &self.learner
    }

    /// Returns the same trainer with another strength of the penalty.
    ///
    /// # Errors
    /// If the strength is negative or not finite, or the learner is a custom one.
    pub fn with_strength(&self, strength: f64) -> Result<Self, Error> {
        let learner = match &self.learner {
            Learner::Sgd(sgd) => {
                let mut params = sgd.params().clone();
                params.penalty = params.penalty.with_strength(strength)?;
                Learner::Sgd(params.check()?)
            }
            Learner::Fista(fista) => {
                let mut params = *fista.params();
                params.penalty = params.penalty.with_strength(strength)?;
                Learner::Fista(params.check()?)
            }
            Learner::Custom(_) => {
                let (what, needed) = ("a strength", "a learner with a penalty");
                return Err(Error::Unsuited { what, needed, found: "a custom one" });
            }
        };
        Ok(Self { learner, payload: self.payload })
    }

    /// Returns the same trainer with this many threads. Results do not depend on it. A custom learner chooses its own.
    ///
    /// # Errors
    /// If a number of the learner is out of range, which [`SgdParams::check`] or [`FistaParams::check`] has ruled out.
    pub fn with_threads(&self, threads: NonZeroUsize) -> Result<Self, Error> {
        let learner = match &self.learner {
            Learner::Sgd(sgd) => SgdParams { threads, ..sgd.params().clone() }.check()?.into(),
            Learner::Fista(fista) => FistaParams { threads, ..*fista.params() }.check()?.into(),
            Learner::Custom(custom) => Learner::Custom(custom.clone()),
        };
        Ok(Self { learner, payload: self.payload })
    }

    /// Returns the penalty of the learner. A custom learner has none that is known.
    pub fn penalty(&self) -> Option<Penalty> {
        match &self.learner {
            Learner::Sgd(sgd) => Some(sgd.params().penalty),
            Learner::Fista(fista) => Some(fista.params().penalty),
            Learner::Custom(_) => None,
        }
    }

    /// Trains a user's local weights from the global ones.
    ///
    /// # Errors
    /// If shapes differ or the weights diverge.
    pub fn train<T: Real>(
        &self,
        round: RoundInput<'_>,
        data: &Dataset<T>,
        seed: &Seed,
    ) -> Result<Weights, Error> {
        let global = round.global;
        global.check_shape(data.features().width(), data.labels().class_count())?;
        let anchored = matches!(self.payload, Payload::SparseDifferences { .. });
        match &self.learner {
            Learner::Custom(custom) => custom.fit_local(round, data, seed),
            Learner::Sgd(_) | Learner::Fista(_) if self.payload == Payload::Rotating => {
                self.train_features(round, data, seed)
            }
            Learner::Sgd(sgd) => sgd.solve(global, &Problem { anchored, ..Problem::new(data) }, seed),
            Learner::Fista(fista) => fista.fit_from(global, data),
        }
    }

    /// Trains some features. The others keep their global weights, so they add a constant to every score.
    fn train_features<T: Real>(
        &self,
        round: RoundInput<'_>,
        data: &Dataset<T>,
        seed: &Seed,
    ) -> Result<Weights, Error> {
        let RoundInput { global, features } = round;
        let Learner::Sgd(sgd) = &self.learner else {
            return Err(NEEDS_SGD);
        };
        let classes = global.classes();
        let start = global.select_features(features)?;
        global.check_shape(data.features().width(), data.labels().class_count())?;
        let mut fixed = global.flat().to_vec();
        for &feature in features {
            fixed[feature * classes..][..classes].fill(0.0);
        }
        let fixed = Weights::new(global.features(), fixed, vec![0.0; classes])?;
        let offsets = fixed.scores(data.features(), sgd.params().threads)?;
        let part = data.features().select_features(features)?;
        let mut params = sgd.params().clone();
        if let Schedule::Stable(stable) = params.schedule {
            params.schedule =
                Schedule::Stable(stable.for_share(features.len() as f64 / global.features() as f64));
        }
        let problem = Problem {
            features: &part,
            labels: data.labels(),
            offsets: Some(offsets.values()),
            anchored: false,
        };
        let trained = params.check()?.solve(&start, &problem, seed)?;
        let mut flat = global.flat().to_vec();
        for (&feature, weights) in features.iter().zip(trained.flat().chunks(classes)) {
            flat[feature * classes..][..classes].copy_from_slice(weights);
        }
        Weights::new(global.features(), flat, trained.intercepts().to_vec())
    }

    /// Trains, and makes the update: [`LocalTrainer::train`], then [`Payload::update`]. Simulations and
    /// deployments of an encrypted task call these two themselves, because the local weights may also come from another
    /// learner.
    ///
    /// # Errors
    /// As these two.
    pub fn train_and_update<T: Real>(
        &self,
        round: RoundInput<'_>,
        data: &Dataset<T>,
        residual: &mut Residual,
        seed: &Seed,
    ) -> Result<ModelUpdate, Error> {
        self.payload.update(round, &self.train(round, data, seed)?, residual)
    }
}

/// Whether a sum replaces the global weights or is added to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    /// Whole classifiers. Their average is the next global weights.
    Weights,
    /// Differences. Their average is added to the global weights.
    Difference,
}

/// The weights that an update carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// Single weights, by ascending flat index.
    Weights(Vec<usize>),
    /// Blocks of `width` consecutive flat weights. Only the last block of a model may be shorter. For
    /// [`Payload::Rotating`], a block is a feature.
    Blocks {
        /// Weights per block.
        width: usize,
        /// The blocks, by ascending number.
        blocks: Vec<usize>,
    },
    /// All weights.
    All,
}

/// What a user adds to the sum of a round, before scaling and sealing. Secret.
#[derive(Clone, PartialEq)]
pub struct ModelUpdate {
    kind: UpdateKind,
    support: Support,
    values: Vec<f64>,
    intercepts: Vec<f64>,
    /// Non-zeros that training left but the payload had no room for.
    cut: usize,
}

impl ModelUpdate {
    /// Returns whether the values are weights or differences.
    pub fn kind(&self) -> UpdateKind {
        self.kind
    }

    /// Returns which weights the values belong to.
    pub fn support(&self) -> &Support {
        &self.support
    }

    /// Returns the values, in the order of the support.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Returns the differences of all intercepts. Every update carries them, always as differences.
    pub fn intercepts(&self) -> &[f64] {
        &self.intercepts
    }

    /// Returns the number of values that are not exactly zero.
    pub fn nonzeros(&self) -> usize {
        self.values.iter().filter(|&&v| v != 0.0).count()
    }

    /// Returns the number of non-zeros that training left, including those that the payload had no room for. A
    /// [`StrengthController`](crate::StrengthController) needs their average over users.
    pub fn learnt_nonzeros(&self) -> usize {
        self.nonzeros() + self.cut
    }

    /// Returns the flat index and the value of every weight that the update carries.
    pub fn entries(&self) -> Box<dyn Iterator<Item = (usize, f64)> + '_> {
        let values = self.values.iter().copied();
        match &self.support {
            Support::Weights(indices) => Box::new(indices.iter().copied().zip(values)),
            Support::Blocks { width, blocks } => {
                // Only the last block of a model can be shorter, and no other follows it.
                Box::new(blocks.iter().zip(self.values.chunks(*width)).flat_map(move |(block, values)| {
                    values.iter().enumerate().map(move |(i, &v)| (block * width + i, v))
                }))
            }
            Support::All => Box::new(values.enumerate()),
        }
    }
}

impl core::fmt::Debug for ModelUpdate {
    /// Shows neither values nor positions.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ModelUpdate").field("kind", &self.kind).finish_non_exhaustive()
    }
}
