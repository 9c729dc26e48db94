//! The options that say how users learn and what they send.

use std::num::NonZeroUsize;

use clap::Args;
use dphe::Profile;
use dphe_federate::{LearnerSpec, Named as _, PayloadName, StartingPoint};
use dphe_learn::linear::{Loss, SgdParams, Stable};
use dphe_learn::{Dataset, Error, Seed, Weights};

use crate::args::one_of;

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
    /// The loss that training minimises
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

impl LearnerArgs {
    pub(crate) fn share(&self) -> Option<f64> {
        self.share
    }

    pub(crate) fn has_capacity(&self) -> bool {
        self.capacity.is_some()
    }

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

    /// Trains the initial weights, and finds the strength of L1 if the payload needs it.
    pub(crate) fn start(
        &self,
        initial: &Dataset,
        seed: &Seed,
        threads: NonZeroUsize,
    ) -> Result<StartingPoint, dphe_federate::Error> {
        StartingPoint::train(
            self.spec(Stable::for_features(initial.features()).squared_radius),
            initial,
            seed,
            threads,
        )
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
