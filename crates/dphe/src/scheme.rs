//! The scheme of the paper, section 2: what users, the aggregator and the key generator compute. No bytes, no messages.
//!
//! | step | module |
//! | --- | --- |
//! | what is summed | [`TaskParams`], [`Update`], `fixed_point`, [`PublicSupport`] |
//! | `w = K v` | `shard`, `decompose`, [`IndexMatrix`] |
//! | both permutations | [`UserSharedPermutation`], [`UserAggregatorPermutation`] |
//! | masks and the check (beyond the paper) | `mask`, [`MaskSeed`] |
//! | the three roles | [`User`], [`Aggregator`], [`KeyGenerator`] |
//! | what passes between them | [`SealedUpdate`], [`SealedSum`], [`OpenedSum`], [`UncheckedSum`], [`WeightSum`] |

mod aggregator;
mod decompose;
mod fingerprints;
pub(crate) mod fixed_point;
mod ids;
pub(crate) mod index;
mod key_generator;
mod key_lengths;
mod keys;
pub(crate) mod mask;
pub(crate) mod permutation;
mod public_support;
pub(crate) mod round_params;
pub(crate) mod sealed;
mod sealing;
mod shard;
mod sparse;
mod sum;
mod task;
mod user;

pub use aggregator::{Aggregator, Collecting, Overlap, StillCollecting};
pub use ids::{Round, TaskId, UserId};
pub use index::{DoublyPermuted, Frame, IndexMatrix, OncePermuted, Original};
pub use key_generator::KeyGenerator;
pub use key_lengths::KeyLengths;
pub use keys::{AggregatorKeys, UserKeys};
pub use permutation::{
    MaskSeed, UserAggregatorPermutation, UserAggregatorSeed, UserSharedPermutation, UserSharedSeed,
};
pub use public_support::PublicSupport;
pub use round_params::RoundParams;
pub use sealed::{Blinds, SealedShard, SealedSum, SealedUpdate, SealedValues, max_ciphertexts};
pub use sealing::Sealing;
pub use sparse::{SparseVector, Update};
pub use sum::{MaskedSum, OpenedSum, UncheckedSum, WeightSum};
pub use task::{ClipRule, Profile, Receipts, TaskConfig, TaskParams};
pub use user::User;
