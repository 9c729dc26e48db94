//! The crate's error type. Every error says what happened and what to do about it.

use thiserror::Error;

/// An error in data, parameters or training.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// Something required is missing.
    #[error("there are no {what}; at least one is needed")]
    Empty {
        /// The missing things, in the plural.
        what: &'static str,
    },
    /// Two sizes differ that must be equal.
    #[error("{what}: expected {expected}, found {found}; check that both come from the same task")]
    Shape {
        /// The things that were counted.
        what: &'static str,
        /// The expected number.
        expected: usize,
        /// The actual number.
        found: usize,
    },
    /// A feature is NaN or infinite.
    #[error("feature {feature} of sample {sample} is not a finite number; repair or drop the sample")]
    FeatureNotFinite {
        /// The sample's number, from 0.
        sample: usize,
        /// The feature's number, from 0.
        feature: usize,
    },
    /// A weight, score or sum is NaN or infinite.
    #[error("{what} {index} is not a finite number; the model is damaged, so start from another model")]
    NotFinite {
        /// The kind of number.
        what: &'static str,
        /// Its index, from 0.
        index: usize,
    },
    /// A label does not name a class.
    #[error("label {label} of sample {sample} is out of range; there are {classes} classes, numbered from 0")]
    LabelRange {
        /// The sample's number, from 0.
        sample: usize,
        /// The label.
        label: usize,
        /// The number of classes.
        classes: usize,
    },
    /// An operation does not support its input.
    #[error("{what} needs {needed}, not {found}")]
    Unsuited {
        /// The operation.
        what: &'static str,
        /// The input it supports.
        needed: &'static str,
        /// The input it was given.
        found: &'static str,
    },
    /// A parameter is outside its range.
    #[error("{name} = {value} is out of range; {remedy}")]
    Parameter {
        /// The parameter's name.
        name: &'static str,
        /// The given value.
        value: f64,
        /// The allowed values, as an instruction.
        remedy: &'static str,
    },
    /// An index is out of range.
    #[error("{what} {index} does not exist; there are {count}, numbered from 0")]
    Index {
        /// The kind of thing that was looked up.
        what: &'static str,
        /// The given index.
        index: usize,
        /// The number of things.
        count: usize,
    },
    /// There are too few samples for an operation.
    #[error(
        "{what} needs at least {needed} samples, but there are {found}; provide more samples or request fewer"
    )]
    TooFewSamples {
        /// The operation.
        what: &'static str,
        /// The number of samples it needs.
        needed: usize,
        /// The actual number.
        found: usize,
    },
    /// An update has more non-zeros than its payload may carry.
    #[error(
        "the classifier has {nonzeros} non-zero weights, but the payload carries at most {capacity}; \
         raise the strength or the capacity, or allow truncation"
    )]
    Capacity {
        /// The number of non-zero weights after training.
        nonzeros: usize,
        /// The number of weights that the payload carries.
        capacity: usize,
    },
    /// A learner from outside this crate failed.
    #[error("the learner failed: {reason}")]
    Custom {
        /// The reason, as the learner gives it.
        reason: String,
    },
    /// Weights became NaN or infinite during training.
    #[error("the weights of class {class} diverged in epoch {epoch}; {remedy}")]
    Diverged {
        /// The epoch, from 1.
        epoch: usize,
        /// The class, from 0.
        class: usize,
        /// What to do about it.
        remedy: &'static str,
    },
    /// No strength in the search range reaches the requested sparsity.
    #[error(
        "no strength between {low} and {high} reaches a sparsity of {target} (the best was {reached}); \
         request less sparsity or raise the L1 ratio"
    )]
    SparsityOutOfReach {
        /// The requested sparsity.
        target: f64,
        /// The highest sparsity found.
        reached: f64,
        /// The lowest strength tried.
        low: f64,
        /// The highest strength tried.
        high: f64,
    },
}

impl Error {
    /// Creates the error of a learner from outside this crate, usually from the learner's own error.
    pub fn custom(reason: impl core::fmt::Display) -> Self {
        Self::Custom { reason: reason.to_string() }
    }
}
