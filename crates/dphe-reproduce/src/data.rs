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

use dphe_learn::dataset::shares;
use dphe_learn::{Dataset, Seed};

use crate::Error;

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

/// A detector needs some of what it is to detect.
const FEWEST_POSITIVE: usize = 5;
/// Draws that are made before they are given up.
const MOST_DRAWS: u64 = 1000;

impl Presplit {
    /// Makes some samples to learn from public, drawn at random, unless the data set sets some aside itself. Where
    /// there is one attribute, they are drawn again until five of them have it.
    ///
    /// # Errors
    /// If users would be left with nothing, or five positive samples are not drawn.
    pub fn with_initial(self, count: usize, seed: &Seed) -> Result<Self, Error> {
        if self.initial.is_some() {
            return Ok(self);
        }
        let found = self.train.len();
        if count == 0 || count >= found {
            let (what, needed) = ("a split into public and private samples", count.saturating_add(1));
            return Err(dphe_learn::Error::TooFewSamples { what, needed, found }.into());
        }
        let all: Vec<usize> = (0..found).collect();
        let mut most = 0;
        for draw in 0..MOST_DRAWS {
            // one share of all is all of them in random order
            let order = shares(&all, 1, &seed.derive("initial", draw))?.swap_remove(0);
            let (initial, rest) = order.split_at(count);
            let labels = self.train.labels();
            let positive = initial.iter().filter(|&&sample| labels.is_positive(sample, 0)).count();
            most = most.max(positive);
            if labels.class_count() > 1 || positive >= FEWEST_POSITIVE {
                let (initial, train) = (Some(self.train.select(initial)?), self.train.select(rest)?);
                return Ok(Self { initial, train, ..self });
            }
        }
        let (what, needed, found) = ("a public share with positive samples to detect", FEWEST_POSITIVE, most);
        Err(dphe_learn::Error::TooFewSamples { what, needed, found }.into())
    }
}
