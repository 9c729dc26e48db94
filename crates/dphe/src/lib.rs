#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | content |
//! | --- | --- |
//! | [`simple`] | secure sums in a few lines, behind the default feature `simple` |
//! | [`scheme`] | the paper's section 2: tasks, updates, permutations, sealing, summing, opening |
//! | [`wire`] | bytes: the codec, signed messages, the roster, identities, keys at rest |
//! | [`party`] | the three parties as state machines with logs and crash recovery |
//! | `hash` | [`Digest`] |
//! | `names` | enums with stable names |
//! | `error` | [`Error`], [`ErrorCode`] |
//! | `hazmat` | constructors for tests and for the paper's parameters, behind the feature `hazmat` |

mod error;
mod hash;
mod names;
pub mod party;
pub mod scheme;
#[cfg(feature = "simple")]
pub mod simple;
pub mod wire;

#[cfg(feature = "hazmat")]
pub mod hazmat;

#[cfg(test)]
mod vectors;

pub use error::{Error, ErrorCode};
pub use hash::Digest;
pub use scheme::{
    Aggregator, AggregatorKeys, Blinds, ClipRule, Collecting, KeyGenerator, KeyLengths, OpenedSum, Overlap,
    Profile, PublicSupport, Receipts, Round, SealedSum, SealedUpdate, SparseVector, TaskConfig, TaskId,
    TaskParams, Update, User, UserId, UserKeys, WeightSum,
};
pub use wire::{Identity, IdentityKey, PartyId, Roster};

pub use dphe_paillier::{NoiseMode, Threads};
