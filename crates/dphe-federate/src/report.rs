//! What a round was like. Sizes, shares and times: nothing that is one user's, so it may be shown to anybody who
//! may see the public weights.

use dphe_learn::Verdict;
use serde::{Serialize, Serializer};

/// What averaging cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Shards of a message; of the longest, in `paper`.
    pub shards: usize,
    /// Ciphertexts of a message; of the longest, in `paper`.
    pub ciphertexts: usize,
    /// Bytes of a message without its header; of the longest, in `paper`.
    pub bytes: usize,
    /// The share of occupied positions that one user alone occupied, pads included; none with public supports.
    pub singles: Option<f64>,
}

/// Seconds of a round's steps, each summed over those who take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Seconds {
    /// Users learn.
    pub train: f64,
    /// Users encode and encrypt.
    pub seal: f64,
    /// The aggregator checks and adds.
    pub aggregate: f64,
    /// The key generator decrypts.
    pub open: f64,
}

/// One round of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundReport {
    /// The round, from 1.
    pub round: u64,
    /// How many users took part.
    pub users: usize,
    /// Accuracy on held-out data, if there are any: the mean over classes, or over attributes.
    pub accuracy: Option<f64>,
    /// Accuracy on the initial data, if they are known.
    pub initial_accuracy: Option<f64>,
    /// What the guard thinks of the round, if it watches.
    #[serde(serialize_with = "verdict_name")]
    pub verdict: Option<Verdict>,
    /// How much the public weights changed, relative to their length; infinite if they were zero.
    pub relative_change: f64,
    /// The fraction of zeros in a message, the mean over users.
    pub message_sparsity: f64,
    /// The fraction of zeros in the average.
    pub average_sparsity: f64,
    /// The strength of L1 in this round, if a controller steers it.
    pub strength: Option<f64>,
    /// How many of all users' numbers were outside the task's range and were cut to it. A simulation knows, nobody in
    /// a deployment does: each user knows only its own. None where numbers are summed as they are.
    pub clipped: Option<usize>,
    /// What averaging cost.
    #[serde(flatten)]
    pub cost: Cost,
    /// How long the steps took, if there was a clock.
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
