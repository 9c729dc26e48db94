//! What is told of a round: sizes, shares and times, nothing that is one user's.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use dphe::message::Ending;
use dphe::{Round, WeightSum};
use serde::Serialize;

/// A round that is over. After a restart in its midst some figures are missing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundRecord {
    /// The round.
    pub round: u64,
    /// `published`, `failed` or `aborted`.
    pub ending: &'static str,
    /// When it ended, in seconds since 1970.
    pub ended_at: u64,
    /// How many users are in the sum.
    pub users: Option<usize>,
    /// Bytes of their uploads.
    pub upload_bytes: usize,
    /// How long it took.
    pub seconds: Option<f64>,
    /// How long uploads were collected.
    pub collect_seconds: Option<f64>,
    /// The fraction of zeros in the sum.
    pub sparsity: Option<f64>,
    /// The share of occupied positions that one user alone occupied.
    pub singles: Option<f64>,
}

#[derive(Debug, Default)]
pub(super) struct Recording {
    began: Option<Instant>,
    last_upload: Option<Instant>,
    upload_bytes: usize,
    users: Option<usize>,
    sparsity: Option<f64>,
    singles: Option<f64>,
}

impl Recording {
    pub(super) fn begin() -> Self {
        Self { began: Some(Instant::now()), ..Self::default() }
    }

    pub(super) fn upload(&mut self, bytes: usize) {
        self.upload_bytes += bytes;
        self.last_upload = Some(Instant::now());
    }

    pub(super) fn opened(&mut self, sum: &WeightSum, singles: Option<f64>) {
        let zeros = sum.weights().iter().filter(|&&weight| weight == 0).count();
        self.sparsity = Some(zeros as f64 / sum.weights().len().max(1) as f64);
        // with public supports everybody is everywhere
        self.singles = singles.filter(|_| sum.support().is_none());
        self.users = Some(sum.users());
    }

    pub(super) fn end(self, round: Round, ending: Ending) -> RoundRecord {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
        let collecting = self.began.zip(self.last_upload);
        RoundRecord {
            round: round.get(),
            ending: match ending {
                Ending::Published => "published",
                Ending::Failed => "failed",
                Ending::Aborted => "aborted",
            },
            ended_at: now,
            users: self.users,
            upload_bytes: self.upload_bytes,
            seconds: self.began.map(|began| began.elapsed().as_secs_f64()),
            collect_seconds: collecting.map(|(began, last)| last.duration_since(began).as_secs_f64()),
            sparsity: self.sparsity,
            singles: self.singles,
        }
    }
}
