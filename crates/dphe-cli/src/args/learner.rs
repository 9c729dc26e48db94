//! The options that say how users learn and what they send.

use std::num::NonZeroUsize;

use clap::Args;
use dphe::Profile;
use dphe_federate::{LearnerSpec, Named as _, PayloadName, PayloadSize};
use dphe_learn::linear::{Loss, Sgd, SgdParams, Stable};
use dphe_learn::{Dataset, Error, Seed, Sparsity, StrengthController, Weights, find_strength};

use crate::args::one_of;

/// Epochs of the initial training on the few initial samples.
const INITIAL_EPOCHS: usize = 20;
/// The share of L1 in the penalty of `w-l1` and `d-l1`.
const L1_RATIO: f64 = 0.5;

#[derive(Args, Debug)]
pub(crate) struct LearnerArgs {
    /// What an update carries [default: rotate, or d-block for the profiles sparse and paper]
    #[arg(long, value_parser = one_of::<PayloadName>())]
    payload: Option<PayloadName>,
    /// The share of the model that an update carries [default: 0.1]
    #[arg(long, value_parser = share)]
    share: Option<f64>,
    /// How many weights an update carries (blocks for d-block, features for rotate), instead of a share
    #[arg(long, conflicts_with = "share")]
    capacity: Option<u32>,
    /// The variant of the protocol [default: depends on the payload]
    #[arg(long, value_parser = one_of::<Profile>())]
    profile: Option<Profile>,
    /// The loss that training minimizes
    #[arg(long, value_parser = one_of::<Loss>(), default_value = Loss::Hinge.as_str())]
    loss: Loss,
    /// The strength of the penalty; w-l1 and d-l1 find their own
    #[arg(long, default_value_t = 1e-3, value_parser = strength, allow_negative_numbers = true)]
    strength: f64,
    /// Passes over a user's samples per round
    #[arg(long, default_value_t = 5, value_parser = between(1, 10_000))]
    epochs: usize,
}

/// Parses a count with an upper bound, so that a typing error does not exhaust memory.
pub(crate) fn at_most(most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text| match text.parse::<usize>() {
        Ok(count) if count <= most => Ok(count),
        _ => Err(format!("it must be a whole number up to {most}")),
    }
}

/// Parses a count between two bounds.
pub(crate) fn between(
    least: usize,
    most: usize,
) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text| match text.parse::<usize>() {
        Ok(count) if (least..=most).contains(&count) => Ok(count),
        _ => Err(format!("it must be a whole number from {least} to {most}")),
    }
}

/// Parses the strength of a penalty.
fn strength(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(strength) if strength >= 0.0 && strength.is_finite() => Ok(strength),
        _ => Err("it must be 0 or more, such as 0.001".into()),
    }
}

pub(crate) fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("it must be above 0 and at most 1, such as 0.1".into()),
    }
}

/// Everything that follows from the public initial data.
pub(crate) struct Start {
    pub(crate) weights: Weights,
    /// How users learn in the rounds.
    pub(crate) spec: LearnerSpec,
    /// The learner of the rounds.
    pub(crate) learner: Sgd,
    /// Adjusts the strength from round to round if L1 decides how much is sent.
    pub(crate) controller: Option<StrengthController>,
}

impl LearnerArgs {
    pub(crate) fn payload(&self) -> PayloadName {
        self.payload.unwrap_or(match self.profile {
            None | Some(Profile::Full) => PayloadName::Rotate,
            Some(Profile::Sparse | Profile::Paper) => PayloadName::DBlock,
        })
    }

    pub(crate) fn profile(&self) -> Profile {
        self.profile.unwrap_or_else(|| self.payload().default_profile())
    }

    /// The learner with steps for these samples and L2.
    pub(crate) fn spec(&self, squared_radius: f64) -> LearnerSpec {
        LearnerSpec {
            payload: self.payload(),
            share: self.share,
            capacity: self.capacity,
            feedback: LearnerSpec::default_feedback(),
            loss: self.loss,
            strength: self.strength,
            l1_ratio: 0.0,
            epochs: self.epochs,
            squared_radius,
            step: 1.0,
            server_step: 1.0,
        }
    }

    /// The share of a model's weights that an update carries.
    pub(crate) fn share_of(&self, weights: usize) -> f64 {
        match self.capacity {
            Some(capacity) => (f64::from(capacity) / weights as f64).min(1.0),
            None => self.share.unwrap_or(PayloadSize::DEFAULT_SHARE),
        }
    }

    /// Trains the initial weights, and finds the strength of L1 if the payload needs it.
    pub(crate) fn start(
        &self,
        initial: &Dataset,
        seed: &Seed,
        threads: NonZeroUsize,
    ) -> Result<Start, Error> {
        let l2 = self.spec(Stable::for_features(initial.features()).squared_radius);
        let learner = |spec: &LearnerSpec, epochs| -> Result<Sgd, Error> {
            SgdParams { epochs, threads, ..spec.sgd()? }.check()
        };
        let fit = |spec: &LearnerSpec| learner(spec, INITIAL_EPOCHS)?.fit(initial, seed);
        if !self.payload().is_sparse_by_l1() {
            let (weights, learner) = (fit(&l2)?, learner(&l2, self.epochs)?);
            return Ok(Start { weights, spec: l2, learner, controller: None });
        }
        let dimension = initial.features().width() * initial.labels().class_count();
        let target = Sparsity::new(1.0 - self.share_of(dimension))?;
        let with = |strength| LearnerSpec { strength, l1_ratio: L1_RATIO, ..l2.clone() };
        let strength = find_strength(target, |strength| Ok(fit(&with(strength))?.sparsity()))?;
        let spec = with(strength);
        // With `d-l1` only the differences are sparse. The initial weights need not be.
        let weights = fit(if self.payload() == PayloadName::DL1 { &l2 } else { &spec })?;
        let learner = learner(&spec, self.epochs)?;
        Ok(Start { weights, spec, learner, controller: Some(StrengthController::new(strength, target)?) })
    }

    /// Trains on all data in one place, or on one user's, for comparison with rounds.
    pub(crate) fn alone(
        &self,
        initial: &Dataset,
        from: Option<&Weights>,
        data: &Dataset,
        seed: &Seed,
        threads: NonZeroUsize,
    ) -> Result<Weights, Error> {
        let spec = self.spec(Stable::for_features(initial.features()).squared_radius);
        let sgd = SgdParams { epochs: 2 * self.epochs, threads, ..spec.sgd()? }.check()?;
        match from {
            Some(weights) => sgd.fit_from(weights, data, seed),
            None => sgd.fit(data, seed),
        }
    }
}
