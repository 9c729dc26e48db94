#![doc = include_str!("../README.md")]

// the task
mod roster;
mod task;

// what is added up: weights as integers, gathered into positions, split into values and indices
mod decompose;
mod fixed;
mod index;
mod permutation;
mod shard;
mod sparse;
mod support;

// who does it, and what goes from one to the other
mod aggregator;
mod fingerprints;
mod key_generator;
mod keys;
mod kit;
mod sealed;
mod sum;
mod user;

// the same as messages and states, for parties that do not trust the line, the disk, or each other's word
pub mod log;
pub mod message;
pub mod party;

mod error;
mod hash;
mod identity;

#[cfg(feature = "hazmat")]
pub mod hazmat;

#[cfg(test)]
mod vectors;

pub use aggregator::{Aggregator, Collecting, Overlap, StillCollecting};
pub use error::Error;
pub use hash::Digest;
pub use identity::{Identity, IdentityKey};
pub use index::{DoublyPermuted, Frame, IndexMatrix, Original, Permuted};
pub use key_generator::KeyGenerator;
pub use keys::{AggregatorKeys, UserKeys};
pub use message::Party;
pub use permutation::{UserAggregatorPermutation, UserAggregatorSeed, UserSharedPermutation, UserSharedSeed};
pub use roster::Roster;
pub use sealed::{SealedShard, SealedSum, SealedUpdate, SealedValues, max_body_bytes, max_ciphertexts};
pub use sparse::{LocalUpdate, SparseVector};
pub use sum::{Average, WeightSum};
pub use support::PublicSupport;
pub use task::{ClipRule, Profile, Round, TaskConfig, TaskId, TaskParams, UserId};
pub use user::User;

pub use dphe_paillier::{NoiseMode, Threads};
