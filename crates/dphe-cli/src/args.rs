//! Arguments that several commands share.

mod features;
mod kit;
mod learner;
mod storage;
mod tensors;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use dphe_federate::Named;

pub(crate) use self::features::{FeatureArgs, ReadArgs};
pub(crate) use self::kit::KitArgs;
pub(crate) use self::learner::{LearnerArgs, at_most, between, share};
#[cfg(not(feature = "postgres"))]
pub(crate) use self::storage::NO_DATABASE;
pub(crate) use self::storage::{DATABASE_VARIABLE, Database, Storage, StorageArgs};
pub(crate) use self::tensors::TensorArgs;

/// The output of commands that print tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// Tables for people
    Table,
    /// JSON for programs
    Json,
}

/// The output of commands that print lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextFormat {
    /// Lines for people
    Text,
    /// JSON for programs
    Json,
}

/// Parses the words of `T`, and shows them with their summaries in the help text.
pub(crate) fn one_of<T: Named>() -> impl TypedValueParser<Value = T> {
    let words = T::ALL.iter().map(|value| PossibleValue::new(value.as_str()).help(value.summary()));
    PossibleValuesParser::new(words).try_map(|word| T::from_name(&word))
}
