//! Readers of the paper's data sets in their published layouts. Images must be feature files, as `dphe extract` writes
//! them.
//!
//! Every error names the file, the expected layout, and the section of docs/reproduction.md that explains how to
//! prepare the data.

mod caltech;
mod celeba;
mod detection;
mod example;
mod feature_file;
mod layout;
mod medical;
mod youtube8m;

pub use caltech::caltech;
pub use celeba::celeba;
pub use detection::{detection, lifelog};
pub use example::{Video, parse_video};
pub use medical::medical;
pub use youtube8m::{YouTube8m, youtube8m};

use dphe_learn::dataset::shares;
use dphe_learn::{Dataset, Seed};

use crate::Error;

/// A data set that the experiment splits.
#[derive(Clone, Debug)]
pub struct Unsplit {
    /// All samples.
    pub data: Dataset,
    /// The names of the classes or attributes.
    pub names: Vec<String>,
    /// A description of one line.
    pub description: String,
}

/// A data set with a published split.
#[derive(Clone, Debug)]
pub struct Presplit {
    /// The public samples, if the split has any.
    pub initial: Option<Dataset>,
    /// The users' samples.
    pub train: Dataset,
    /// The samples that are not used for training.
    pub held_out: Dataset,
    /// The names of the attributes.
    pub names: Vec<String>,
    /// A description of one line.
    pub description: String,
}

/// The smallest number of positive samples that a detector can be trained from.
const FEWEST_POSITIVE: usize = 5;
/// The number of draws after which the search for positive samples fails.
const MOST_DRAWS: u64 = 1000;

impl Presplit {
    /// Makes randomly drawn training samples public, unless the split already has public samples. If there is only one
    /// attribute, the draw is repeated until five public samples have it.
    ///
    /// # Errors
    /// Returns an error if users would have no samples, or if no draw has five positive samples.
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
            // a single share holds all samples in random order
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
