//! Reports of simulated rounds. They hold sizes, shares and times, and nothing about a single user, so they may be
//! shown to everyone who may see the global weights.

use dphe_learn::Verdict;
use serde::{Serialize, Serializer};

/// The cost of summing the updates of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Shards per update; in `paper`, of the longest update.
    pub shards: usize,
    /// Ciphertexts per update; in `paper`, of the longest update.
    pub ciphertexts: usize,
    /// Bytes per sealed update; in `paper`, of the longest update.
    pub bytes: usize,
    /// The share of occupied positions that only one user occupied, pads included, or `None` with a public support.
    pub singles: Option<f64>,
}

/// Seconds per step of a round, each summed over the parties that take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Seconds {
    /// Training by users.
    pub train: f64,
    /// Sealing by users.
    pub seal: f64,
    /// Checking and adding by the aggregator.
    pub aggregate: f64,
    /// Opening by the key generator.
    pub open: f64,
}

/// The report of one simulated round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundReport {
    /// The round, counted from 1.
    pub round: u64,
    /// How many users took part.
    pub users: usize,
    /// The accuracy on held-out data, if there are any: the average over classes or attributes.
    pub accuracy: Option<f64>,
    /// The accuracy on the initial data, if they are known.
    pub initial_accuracy: Option<f64>,
    /// The verdict of the guard, if the initial data are known.
    #[serde(serialize_with = "verdict_name")]
    pub verdict: Option<Verdict>,
    /// The change of the global weights relative to their length; infinite if they were zero.
    pub relative_change: f64,
    /// The fraction of zeros in an update, averaged over users.
    pub update_sparsity: f64,
    /// The fraction of zeros in the average.
    pub average_sparsity: f64,
    /// The strength of L1 in this round, if a controller adjusts it.
    pub strength: Option<f64>,
    /// The server step of this round; 1 for averages of whole classifiers.
    pub server_step: f64,
    /// How many values of all users were outside the task's range and were clipped, or `None` if values are not
    /// rounded. In a deployment, each user knows only its own number.
    pub clipped: Option<usize>,
    /// The cost of summing.
    #[serde(flatten)]
    pub cost: Cost,
    /// How long the steps took, if there is a clock.
    pub seconds: Option<Seconds>,
}

fn verdict_name<S: Serializer>(verdict: &Option<Verdict>, serializer: S) -> Result<S::Ok, S::Error> {
    verdict
        .map(|verdict| match verdict {
            Verdict::Continue => "continue",
            Verdict::Settled => "settled",
            Verdict::Diverging => "diverging",
        })
        .serialize(serializer)
}
