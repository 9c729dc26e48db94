//! Baselines without encryption: all data in one place, public samples only, and users who train alone.

use std::num::NonZeroUsize;

use dphe_federate::Scenario;
use dphe_learn::linear::{Penalty, Schedule, Sgd, SgdParams, Stable};
use dphe_learn::{Seed, Weights};

use crate::Error;

/// Returns a learner of classifiers with hinge loss.
pub(crate) fn sgd(
    schedule: Schedule,
    penalty: Penalty,
    epochs: usize,
    threads: NonZeroUsize,
) -> Result<Sgd, Error> {
    Ok(SgdParams { penalty, epochs, threads, ..SgdParams::new(schedule) }.check()?)
}

/// Returns stable steps, scaled by the public samples.
pub(crate) fn stable(scenario: &Scenario) -> Schedule {
    Schedule::Stable(Stable::for_features(scenario.initial.features()))
}

/// The steps of the learner that has all data in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PooledSteps {
    /// The defaults of scikit-learn: strength 0.0001 and `optimal` steps. The paper's `No-PP` is an SVM with L2 penalty
    /// that is trained by stochastic gradient descent.
    Optimal,
    /// This project's defaults: strength 0.001 and stable steps.
    Stable,
}

/// Trains on all data in one place, in ten passes. This is `No-PP` in the paper.
///
/// # Errors
/// Returns an error if the weights diverge.
pub fn pooled(
    scenario: &Scenario,
    steps: PooledSteps,
    seed: &Seed,
    threads: NonZeroUsize,
) -> Result<Weights, Error> {
    let learner = match steps {
        PooledSteps::Optimal => sgd(Schedule::Optimal, Penalty::l2(1e-4)?, 10, threads)?,
        PooledSteps::Stable => sgd(stable(scenario), Penalty::DEFAULT, 10, threads)?,
    };
    Ok(learner.fit(&scenario.pooled, seed)?)
}

/// Trains the classifier that rounds start from, on the public samples, in twenty passes.
///
/// # Errors
/// Returns an error if the weights diverge.
pub fn initial(scenario: &Scenario, seed: &Seed, threads: NonZeroUsize) -> Result<Weights, Error> {
    Ok(sgd(stable(scenario), Penalty::DEFAULT, 20, threads)?.fit(&scenario.initial, seed)?)
}

/// Returns a classifier that gives the most frequent answer for every sample, attribute by attribute.
///
/// # Errors
/// Returns no error for a valid scenario.
pub fn constant(scenario: &Scenario) -> Result<Weights, Error> {
    let (labels, half) = (scenario.pooled.labels(), scenario.pooled.len() / 2);
    let intercepts: Vec<f64> =
        labels.counts().into_iter().map(|count| if count > half { 1.0 } else { -1.0 }).collect();
    let width = scenario.pooled.features().width();
    Ok(Weights::new(width, vec![0.0; width * intercepts.len()], intercepts)?)
}

/// Returns the classifiers of users who each train alone, starting from the public classifier.
///
/// # Errors
/// Returns an error if the weights diverge.
pub fn alone(scenario: &Scenario, seed: &Seed, threads: NonZeroUsize) -> Result<Vec<Weights>, Error> {
    let start = initial(scenario, seed, threads)?;
    let learner = sgd(stable(scenario), Penalty::DEFAULT, 20, threads)?;
    let fit = |(user, data)| Ok(learner.fit_from(&start, data, &seed.derive("alone", user as u64))?);
    scenario.users.iter().enumerate().map(fit).collect()
}
