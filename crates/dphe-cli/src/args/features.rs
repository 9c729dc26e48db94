//! The feature file that a command works on.

use std::path::PathBuf;

use clap::Args;
use dphe_features::{LabelColumn, ReadOptions};

use crate::digits;
use crate::samples::{Samples, SamplesError};

/// A feature file, and how to read it
#[derive(Args, Debug)]
pub(crate) struct FeatureArgs {
    /// Features with labels: a .npz, .npy, .csv, .svmlight or .parquet file, or a directory with features.npy and
    /// labels.npy [default: the bundled handwritten digits]
    #[arg(value_name = "FEATURES")]
    path: Option<PathBuf>,
    #[command(flatten)]
    read: ReadArgs,
}

/// How to read a feature file. The command has an argument `path`, which names the file
#[derive(Args, Debug)]
pub(crate) struct ReadArgs {
    /// The labels of a .npy file [default: labels.npy in the same directory]
    #[arg(long, value_name = "FILE", requires = "path")]
    labels: Option<PathBuf>,
    /// A JSON list of class names [default: classes.json in the same directory]
    #[arg(long, value_name = "FILE", requires = "path")]
    classes: Option<PathBuf>,
    /// The label column of a CSV or Parquet file: a name, or first, last or none
    #[arg(long, value_name = "COLUMN", requires = "path")]
    label_column: Option<String>,
    /// Read columns with this prefix as attributes (0 or 1) instead of one label
    #[arg(long, value_name = "PREFIX", requires = "path")]
    attributes: Option<String>,
}

impl FeatureArgs {
    /// Returns whether no file is given, so that the bundled digits are used.
    pub(crate) fn is_bundled(&self) -> bool {
        self.path.is_none()
    }

    /// Returns the name of the file for messages.
    pub(crate) fn name(&self) -> PathBuf {
        self.path.clone().unwrap_or_else(|| PathBuf::from("the digits"))
    }

    pub(crate) fn samples(&self) -> Result<Samples, SamplesError> {
        match &self.path {
            Some(path) => Samples::read(path, &self.read.options()),
            None => digits::samples(),
        }
    }
}

impl ReadArgs {
    pub(crate) fn options(&self) -> ReadOptions {
        let label_column = match self.label_column.as_deref() {
            None => LabelColumn::Auto,
            Some("first") => LabelColumn::First,
            Some("last") => LabelColumn::Last,
            Some("none") => LabelColumn::None,
            Some(name) => LabelColumn::Named(name.into()),
        };
        ReadOptions {
            labels: self.labels.clone(),
            classes: self.classes.clone(),
            label_column,
            attribute_prefix: self.attributes.clone(),
            ..ReadOptions::default()
        }
    }
}
