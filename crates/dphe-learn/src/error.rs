//! What can go wrong: every error says what happened and what to try.

use thiserror::Error;

/// An error of this crate.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing where something is needed.
    #[error("there are no {what}; at least one is needed")]
    Empty {
        /// What is missing.
        what: &'static str,
    },
    /// Two sizes that should be equal are not.
    #[error("{what}: expected {expected}, found {found}; check that both come from the same task")]
    Shape {
        /// What was counted.
        what: &'static str,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A feature that is NaN or infinite.
    #[error("feature {feature} of sample {sample} is not a finite number; repair or drop the sample")]
    FeatureNotFinite {
        /// The sample, counted from 0.
        sample: usize,
        /// The feature, counted from 0.
        feature: usize,
    },
    /// A weight, score or sum that is NaN or infinite.
    #[error("{what} {index} is not a finite number; the model it comes from is damaged, start from another")]
    NotFinite {
        /// What it is.
        what: &'static str,
        /// Which one, counted from 0.
        index: usize,
    },
    /// A label that names no class.
    #[error("label {label} of sample {sample} is out of range; there are {classes} classes, counted from 0")]
    LabelRange {
        /// The sample, counted from 0.
        sample: usize,
        /// Its label.
        label: usize,
        /// How many classes there are.
        classes: usize,
    },
    /// Two things that do not go together.
    #[error("{what} needs {needed}, not {found}")]
    Unsuited {
        /// What was asked for.
        what: &'static str,
        /// What it works with.
        needed: &'static str,
        /// What it was given.
        found: &'static str,
    },
    /// A parameter outside its range.
    #[error("{name} = {value} is not possible; {remedy}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// What it was set to.
        value: f64,
        /// What it may be.
        remedy: &'static str,
    },
    /// An index beyond the end.
    #[error("{what} {index} does not exist; there are {count}, counted from 0")]
    Index {
        /// What was looked up.
        what: &'static str,
        /// The index that was given.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// Too few samples to do what was asked.
    #[error("{what} needs at least {needed} samples and there are {found}; give more or ask for less")]
    TooFewSamples {
        /// What was asked for.
        what: &'static str,
        /// How many it needs.
        needed: usize,
        /// How many there are.
        found: usize,
    },
    /// A message with more non-zeros than it may carry.
    #[error(
        "the classifier has {nonzeros} non-zero weights and the message holds {capacity}; \
         raise the strength, raise the capacity, or let it be truncated"
    )]
    Capacity {
        /// Non-zero weights after training.
        nonzeros: usize,
        /// How many one message holds.
        capacity: usize,
    },
    /// Weights that stopped being finite while training.
    #[error("the weights of class {class} diverged in epoch {epoch}; {remedy}")]
    Diverged {
        /// The epoch, counted from 1.
        epoch: usize,
        /// The class, counted from 0.
        class: usize,
        /// What to try.
        remedy: &'static str,
    },
    /// No strength in the search range reaches the wanted sparsity.
    #[error(
        "no strength between {low} and {high} reaches a sparsity of {target}, the best was {reached}; \
         ask for less, or raise the share of L1"
    )]
    SparsityOutOfReach {
        /// The sparsity that was asked for.
        target: f64,
        /// The largest found.
        reached: f64,
        /// The weakest strength tried.
        low: f64,
        /// The strongest strength tried.
        high: f64,
    },
}
