//! Real data sets, in the layouts they are published in. Pictures come as features, made by `dphe extract`.
//!
//! Every error names the file, what was expected of it, and the section of docs/reproduction.md that says how to get
//! it there.

mod caltech;
mod celeba;
mod checksum;
mod detection;
mod example;
mod layout;
mod samples;
mod tfrecord;
mod youtube8m;

pub use caltech::caltech;
pub use celeba::celeba;
pub use detection::{detection, lifelog};
pub use example::{Video, parse_video};
pub use tfrecord::{RecordError, Records, write_record};
pub use youtube8m::{YouTube8m, youtube8m};

use dphe_learn::Dataset;

/// A data set that is split by the experiment.
#[derive(Clone, Debug)]
pub struct Unsplit {
    /// All samples.
    pub data: Dataset,
    /// What the classes or attributes are called.
    pub names: Vec<String>,
    /// What it is, in a line.
    pub description: String,
}

/// A data set that comes split.
#[derive(Clone, Debug)]
pub struct Presplit {
    /// Public samples to begin with, where the data set sets some aside.
    pub initial: Option<Dataset>,
    /// What users have.
    pub train: Dataset,
    /// What nobody learns from.
    pub held_out: Dataset,
    /// What the attributes are called.
    pub names: Vec<String>,
    /// What it is, in a line.
    pub description: String,
}
