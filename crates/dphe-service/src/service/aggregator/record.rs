//! Records of rounds: participants, sizes, shares and times. They contain nothing of the updates themselves.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use dphe::wire::Ending;
use dphe::{Round, UserId, WeightSum};
use serde::{Deserialize, Serialize};

use super::spoilers::Users;
use crate::party::list_of_users;

/// The record of a round that ended. Some values are missing if the aggregator restarted during the round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundRecord {
    /// The round.
    pub round: u64,
    /// The ending. It is `Published` even if no new model could be made: the old one is published again.
    #[serde(with = "crate::names")]
    pub ending: Ending,
    /// Why the round has no new model, if known.
    #[serde(default)]
    pub reason: Option<String>,
    /// The time of the end, in seconds since 1970.
    pub ended_at: u64,
    /// The number of users in the sum.
    pub users: Option<usize>,
    /// The users whose uploads were accepted.
    #[serde(default)]
    pub participants: Vec<u32>,
    /// In a round that was aborted, the users who were asked for an upload and sent none, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<u32>,
    /// The total length of the uploads in bytes.
    pub upload_bytes: usize,
    /// The duration of the round.
    pub seconds: Option<f64>,
    /// The time from the start of the round until its participants were frozen.
    pub collect_seconds: Option<f64>,
    /// The time from then until the sum was open.
    #[serde(default)]
    pub open_seconds: Option<f64>,
    /// The time from then until the model was published.
    #[serde(default)]
    pub publish_seconds: Option<f64>,
    /// The fraction of zeros in the sum.
    pub sparsity: Option<f64>,
    /// The share of singles among the occupied positions, pads included.
    pub singles: Option<f64>,
    /// The accuracy of the new model on the aggregator's held-out data, if it has any.
    #[serde(default)]
    pub accuracy: Option<f64>,
}

impl RoundRecord {
    /// Returns the known values by name, for TensorBoard.
    pub fn scalars(&self) -> Vec<(&'static str, f64)> {
        let all = [
            ("accuracy", self.accuracy),
            ("privacy/singles", self.singles),
            ("privacy/users", self.users.map(|users| users as f64)),
            ("sum/sparsity", self.sparsity),
            ("upload/bytes", Some(self.upload_bytes as f64)),
            ("seconds/round", self.seconds),
            ("seconds/collect", self.collect_seconds),
            ("seconds/open", self.open_seconds),
            ("seconds/publish", self.publish_seconds),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// The record of the current round, while it grows.
#[derive(Debug, Default)]
pub(super) struct Recording {
    began: Option<Instant>,
    /// When the participants were frozen.
    frozen: Option<Instant>,
    opened: Option<Instant>,
    upload_bytes: usize,
    participants: Vec<u32>,
    users: Option<usize>,
    sparsity: Option<f64>,
    singles: Option<f64>,
    accuracy: Option<f64>,
    /// The norm of the average.
    norm: Option<f64>,
    reason: Option<String>,
}

/// Returns the norm of the average of a sum, in units of the task's fixed point.
pub(super) fn norm_of_average(sum: &WeightSum) -> f64 {
    let squares = |values: &[i64]| values.iter().map(|&value| (value as f64).powi(2)).sum::<f64>();
    (squares(sum.weights()) + squares(sum.dense())).sqrt() / sum.users().max(1) as f64
}

impl Recording {
    pub(super) fn begin() -> Self {
        Self { began: Some(Instant::now()), ..Self::default() }
    }

    pub(super) fn upload(&mut self, user: UserId, bytes: usize) {
        self.upload_bytes += bytes;
        self.participants.push(user.get());
    }

    pub(super) fn opened(&mut self, sum: &WeightSum, singles: Option<f64>) {
        let zeros = sum.weights().iter().filter(|&&weight| weight == 0).count();
        self.sparsity = Some(zeros as f64 / sum.weights().len().max(1) as f64);
        // with a public support every user occupies every position
        self.singles = singles.filter(|_| sum.support().is_none());
        self.users = Some(sum.users());
        self.norm = Some(norm_of_average(sum));
        self.opened = Some(Instant::now());
    }

    pub(super) fn made(&mut self, accuracy: Option<f64>) {
        self.accuracy = accuracy;
    }

    /// Returns the norm of the average, if the sum was opened.
    pub(super) fn norm(&self) -> Option<f64> {
        self.norm
    }

    /// Replaces the participants by those of the frozen sum. After a restart, the others are unknown.
    pub(super) fn frozen(&mut self, participants: Vec<u32>) {
        self.participants = participants;
        self.frozen = Some(Instant::now());
    }

    /// Returns the users who came.
    pub(super) fn participants(&self) -> &[u32] {
        &self.participants
    }

    /// Notes why there will be no new model. Only the first reason is kept.
    pub(super) fn problem(&mut self, reason: impl Into<String>) {
        self.reason.get_or_insert_with(|| reason.into());
    }

    /// Completes the record. `floor` is the smallest number of users of a sum, and `expected` are the users who were
    /// asked for an upload.
    pub(super) fn end(mut self, round: Round, ending: Ending, floor: usize, expected: &Users) -> RoundRecord {
        // an upload may be repeated
        self.participants.sort_unstable();
        self.participants.dedup();
        let came = self.participants.len();
        // after a restart, earlier uploads are unknown
        let mut missing = Vec::new();
        if ending == Ending::Aborted && came < floor && self.began.is_some() {
            missing = expected.iter().copied().filter(|user| !self.participants.contains(user)).collect();
            let names = list_of_users(&missing);
            self.problem(format!(
                "{came} of at least {floor} users uploaded before the deadline; missing: user {names}"
            ));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
        let between = |from: Option<Instant>, to: Option<Instant>| {
            from.zip(to).map(|(from, to)| to.saturating_duration_since(from).as_secs_f64())
        };
        let end = Some(Instant::now());
        RoundRecord {
            round: round.get(),
            ending,
            reason: self.reason,
            ended_at: now,
            users: self.users,
            participants: self.participants,
            missing,
            upload_bytes: self.upload_bytes,
            seconds: between(self.began, end),
            collect_seconds: between(self.began, self.frozen),
            open_seconds: between(self.frozen, self.opened),
            publish_seconds: between(self.opened, end),
            sparsity: self.sparsity,
            singles: self.singles,
            accuracy: self.accuracy,
        }
    }
}
