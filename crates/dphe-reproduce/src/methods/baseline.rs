//! What is possible without secrets, and without each other.

use dphe_federate::Scenario;
use dphe_learn::linear::{Penalty, Schedule, Sgd, SgdParams, Stable};
use dphe_learn::{Seed, Threads, Weights};

use super::accuracy;
use crate::Error;

/// A learner of L2-penalised hinge classifiers.
pub(crate) fn sgd(
    schedule: Schedule,
    penalty: Penalty,
    epochs: usize,
    threads: Threads,
) -> Result<Sgd, Error> {
    Ok(SgdParams { penalty, epochs, threads, ..SgdParams::new(schedule) }.check()?)
}

/// Steps measured by the public samples.
pub(crate) fn stable(scenario: &Scenario) -> Schedule {
    Schedule::Stable(Stable::for_features(scenario.initial.features()))
}

/// Which steps the learner of all data in one place takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// scikit-learn's defaults: strength 0.0001, `optimal` steps. The paper's `No-PP` is an L2-penalised SVM by
    /// stochastic gradients.
    Optimal,
    /// Ours: strength 0.001, stable steps.
    Stable,
}

/// No-PP: all data in one place, ten passes.
///
/// # Errors
/// If the weights diverge.
pub fn pooled(scenario: &Scenario, steps: Steps, seed: &Seed, threads: Threads) -> Result<Weights, Error> {
    let learner = match steps {
        Steps::Optimal => sgd(Schedule::Optimal, Penalty::l2(1e-4)?, 10, threads)?,
        Steps::Stable => sgd(stable(scenario), Penalty::DEFAULT, 10, threads)?,
    };
    Ok(learner.fit(&scenario.pooled, seed)?)
}

/// The classifier that rounds begin with: public samples alone, twenty passes.
///
/// # Errors
/// If the weights diverge.
pub fn initial(scenario: &Scenario, seed: &Seed, threads: Threads) -> Result<Weights, Error> {
    Ok(sgd(stable(scenario), Penalty::DEFAULT, 20, threads)?.fit(&scenario.initial, seed)?)
}

/// The mean accuracy, in per cent, of users who learn on from the public classifier, each alone.
///
/// # Errors
/// If the weights diverge.
pub fn alone(scenario: &Scenario, seed: &Seed, threads: Threads) -> Result<f64, Error> {
    let start = initial(scenario, seed, threads)?;
    let learner = sgd(stable(scenario), Penalty::DEFAULT, 20, threads)?;
    let mut sum = 0.0;
    for (user, data) in scenario.users.iter().enumerate() {
        let own = learner.fit_from(&start, data, &seed.derive("alone", user as u64))?;
        sum += accuracy(&own, &scenario.held_out, threads)?;
    }
    Ok(sum / scenario.users.len() as f64)
}
