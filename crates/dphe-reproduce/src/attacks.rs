//! Attacks that the paper does not mention, run against this project's code: an aggregator that submits other sums than
//! those of the listed users, a permutation that stays the same over rounds, entries of a sum that come from a single
//! user, and requests that abuse the key generator for decryption.

mod experiment;
mod lab;
mod learned;
mod notes;
mod oracle;
mod parties;
mod permutation;
mod random;
mod singles;
mod sums;

pub use experiment::Attacks;
pub use notes::{MOST_ROUNDS, Notes, predicted_rounds, predicted_share};
pub use singles::{Singles, expected_singles};
