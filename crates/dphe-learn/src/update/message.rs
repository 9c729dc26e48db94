//! What travels: the messages of a round.

use super::UpdateKind;

/// What a message carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Message {
    /// The whole classifier, made sparse by L1 (`w-l1`): the paper's message.
    SparseWeights {
        /// How many weights a message holds.
        capacity: usize,
        /// What happens to more non-zeros than that.
        overflow: Overflow,
    },
    /// The largest weights of the whole classifier (`w-topk`).
    LargestWeights {
        /// How many.
        capacity: usize,
    },
    /// The difference, made sparse by L1 (`d-l1`).
    SparseDifferences {
        /// How many weights a message holds.
        capacity: usize,
        /// What happens to more non-zeros than that.
        overflow: Overflow,
    },
    /// The largest differences, with what earlier messages left out (`d-topk`).
    LargestDifferences {
        /// How many.
        capacity: usize,
        /// The share of what is left out that is kept for later, normally 0.9.
        feedback: f64,
    },
    /// The blocks of consecutive weights with the largest differences, with what earlier messages left out
    /// (`d-block`).
    LargestBlocks {
        /// Weights in a block; the number of classes makes a block of every feature.
        width: usize,
        /// How many blocks.
        capacity: usize,
        /// The share of what is left out that is kept for later, normally 0.9.
        feedback: f64,
    },
    /// All differences of the features that everybody trains in this round, and no others (`rotate`): the default.
    Rotating,
    /// All differences.
    Full,
}

impl Message {
    /// Whether it carries weights or differences.
    pub fn kind(self) -> UpdateKind {
        match self {
            Self::SparseWeights { .. } | Self::LargestWeights { .. } => UpdateKind::Weights,
            _ => UpdateKind::Difference,
        }
    }

    /// Whether L1 decides what it carries, so that the strength of the penalty decides how much.
    pub fn is_sparse_by_l1(self) -> bool {
        matches!(self, Self::SparseWeights { .. } | Self::SparseDifferences { .. })
    }
}

/// What happens when L1 leaves more weights than a message holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The smallest are dropped, so that every message has the same size.
    Truncate,
    /// All are sent, in several messages: the paper's way. Their number tells how many weights there are.
    Shard,
    /// It is an error.
    Refuse,
}
