//! Which features a command works on.

use std::path::PathBuf;

use clap::Args;
use dphe_features::{LabelColumn, ReadOptions};

use crate::samples::{Samples, SamplesError};

/// A file of features and how to read it
#[derive(Args, Debug)]
pub(crate) struct Input {
    /// Features with labels: .npz, .npy, .csv, .svmlight, .parquet, or a folder with features.npy and labels.npy; the
    /// handwritten digits that come with the program, if not given
    #[arg(value_name = "FEATURES")]
    path: Option<PathBuf>,
    /// Labels of a .npy file, if not labels.npy beside it
    #[arg(long, value_name = "FILE", requires = "path")]
    labels: Option<PathBuf>,
    /// Names of the classes as a JSON list, if not classes.json beside the features
    #[arg(long, value_name = "FILE", requires = "path")]
    classes: Option<PathBuf>,
    /// The label's column in a CSV or Parquet file
    #[arg(long, value_name = "NAME", requires = "path")]
    label_column: Option<String>,
    /// Columns that begin so are attributes, 0 or 1 each, instead of one label
    #[arg(long, value_name = "PREFIX", requires = "path")]
    attributes: Option<String>,
}

impl Input {
    fn options(&self) -> ReadOptions {
        ReadOptions {
            labels: self.labels.clone(),
            classes: self.classes.clone(),
            label_column: self.label_column.clone().map_or(LabelColumn::Auto, LabelColumn::Named),
            attribute_prefix: self.attributes.clone(),
            ..ReadOptions::default()
        }
    }

    /// What it is called in messages.
    pub(crate) fn name(&self) -> PathBuf {
        self.path.clone().unwrap_or_else(|| PathBuf::from("the digits"))
    }

    pub(crate) fn samples(&self) -> Result<Samples, SamplesError> {
        match &self.path {
            Some(path) => Samples::read(path, &self.options()),
            None => Samples::digits(),
        }
    }
}
