//! Attacks that the paper does not mention, run against our code: a kept permutation, sums that are one user's, a key
//! generator that decrypts whatever it is asked to.

mod experiment;
mod learned;
mod notes;
mod oracle;
mod permutation;
mod random;
mod singles;

pub use experiment::Attacks;
pub use notes::{MOST_ROUNDS, Notes, predicted_rounds, predicted_share};
pub use singles::{Singles, expected_singles};
