//! What an update carries.

use super::{ModelUpdate, Residual, RoundInput, Support, UpdateKind};
use crate::{Error, Weights, select};

/// What an update carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Payload {
    /// The whole classifier, made sparse by L1 (`w-l1`), as in the paper.
    SparseWeights {
        /// How many weights an update, or a shard of it, has room for.
        weights: usize,
        /// What happens if L1 leaves more non-zeros.
        overflow: Overflow,
    },
    /// The largest weights of the whole classifier (`w-topk`).
    LargestWeights {
        /// How many weights.
        weights: usize,
    },
    /// The differences, made sparse by L1 (`d-l1`).
    SparseDifferences {
        /// How many weights an update, or a shard of it, has room for.
        weights: usize,
        /// What happens if L1 leaves more non-zeros.
        overflow: Overflow,
    },
    /// The largest differences, after adding the residual (`d-topk`).
    LargestDifferences {
        /// How many weights.
        weights: usize,
        /// The share of the remaining differences that the residual keeps, normally 0.9.
        feedback: f64,
    },
    /// The blocks of consecutive weights with the largest differences, after adding the residual (`d-block`).
    LargestBlocks {
        /// Weights per block. With the number of classes, a block is a feature.
        width: usize,
        /// How many blocks.
        blocks: usize,
        /// The share of the remaining differences that the residual keeps, normally 0.9.
        feedback: f64,
    },
    /// All differences of the features that every user trains in this round, and no others (`rotate`). The default.
    Rotating,
    /// All differences (`all`).
    All,
}

impl Payload {
    /// Returns whether it carries weights or differences.
    pub fn kind(self) -> UpdateKind {
        match self {
            Self::SparseWeights { .. } | Self::LargestWeights { .. } => UpdateKind::Weights,
            _ => UpdateKind::Difference,
        }
    }

    /// Returns whether L1 decides what it carries. The strength of the penalty then decides how much.
    pub fn is_sparse_by_l1(self) -> bool {
        matches!(self, Self::SparseWeights { .. } | Self::SparseDifferences { .. })
    }

    /// Fails on sizes of zero, and on feedback outside 0 to 1.
    pub(super) fn check(self) -> Result<(), Error> {
        let positive = |name, value: usize| match value {
            0 => Err(Error::Parameter { name, value: 0.0, remedy: "use at least 1" }),
            _ => Ok(()),
        };
        let share = |value: f64| match (0.0..=1.0).contains(&value) {
            true => Ok(()),
            false => Err(Error::Parameter {
                name: "feedback",
                value,
                remedy: "use a number from 0 (forget) to 1 (keep all), normally 0.9",
            }),
        };
        match self {
            Self::SparseWeights { weights, .. }
            | Self::LargestWeights { weights }
            | Self::SparseDifferences { weights, .. } => positive("weights", weights),
            Self::LargestDifferences { weights, feedback } => {
                positive("weights", weights)?;
                share(feedback)
            }
            Self::LargestBlocks { width, blocks, feedback } => {
                positive("width", width)?;
                positive("blocks", blocks)?;
                share(feedback)
            }
            Self::Rotating | Self::All => Ok(()),
        }
    }

    /// Makes the update of a user from its local weights, however they were trained. `residual` holds what the user's
    /// earlier updates left out. It is secret, and is kept through rounds that the user misses.
    ///
    /// # Errors
    /// If shapes differ, or L1 left more weights than a payload with [`Overflow::Refuse`] has room for.
    pub fn update(
        self,
        round: RoundInput<'_>,
        local: &Weights,
        residual: &mut Residual,
    ) -> Result<ModelUpdate, Error> {
        let RoundInput { global, features } = round;
        global.check_shape(local.features(), local.classes())?;
        let intercepts = difference(local.intercepts(), global.intercepts());
        let changes = || difference(local.flat(), global.flat());
        let (support, values, cut) = match self {
            Self::SparseWeights { weights, overflow } => limited(local.flat(), weights, overflow)?,
            Self::LargestWeights { weights } => limited(local.flat(), weights, Overflow::Truncate)?,
            Self::SparseDifferences { weights, overflow } => limited(&changes(), weights, overflow)?,
            Self::LargestDifferences { weights, feedback } => {
                let mut changes = changes();
                residual.add_to(&mut changes)?;
                let chosen = select::largest(&changes, weights);
                let values = chosen.iter().map(|&i| changes[i]).collect();
                chosen.iter().for_each(|&i| changes[i] = 0.0);
                residual.keep(changes, feedback);
                (Support::Weights(chosen), values, 0)
            }
            Self::LargestBlocks { width, blocks, feedback } => {
                let mut changes = changes();
                residual.add_to(&mut changes)?;
                let blocks = select::largest_blocks(&changes, width, blocks);
                let mut values = Vec::new();
                for &block in &blocks {
                    let end = changes.len().min((block + 1) * width);
                    let weights = &mut changes[block * width..end];
                    values.extend_from_slice(weights);
                    weights.fill(0.0);
                }
                residual.keep(changes, feedback);
                (Support::Blocks { width, blocks }, values, 0)
            }
            Self::Rotating => {
                let (new, old) = (local.select_features(features)?, global.select_features(features)?);
                let support = Support::Blocks { width: global.classes(), blocks: features.to_vec() };
                (support, difference(new.flat(), old.flat()), 0)
            }
            Self::All => (Support::All, changes(), 0),
        };
        Ok(ModelUpdate { kind: self.kind(), support, values, intercepts, cut })
    }
}

fn difference(new: &[f64], old: &[f64]) -> Vec<f64> {
    new.iter().zip(old).map(|(new, old)| new - old).collect()
}

/// Returns the non-zeros, at most `room` of them if that is the rule, and how many were left out.
fn limited(values: &[f64], room: usize, overflow: Overflow) -> Result<(Support, Vec<f64>, usize), Error> {
    let nonzeros = values.iter().filter(|&&v| v != 0.0).count();
    let chosen = match overflow {
        Overflow::Refuse if nonzeros > room => return Err(Error::Capacity { nonzeros, capacity: room }),
        Overflow::Truncate => select::largest(values, room),
        Overflow::Shard | Overflow::Refuse => select::largest(values, nonzeros),
    };
    let (sent, cut) = (chosen.iter().map(|&i| values[i]).collect(), nonzeros - chosen.len());
    Ok((Support::Weights(chosen), sent, cut))
}

/// What happens when L1 leaves more weights than an update has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The smallest weights are dropped, so that all updates have the same size.
    Truncate,
    /// All weights are sent, in several shards, as in the paper. The number of shards tells how many weights there are.
    Shard,
    /// The update is refused with an error.
    Refuse,
}
