//! What an experiment is: runs that do not depend on each other, and what follows from all of them.

use std::collections::BTreeMap;

use dphe_federate::Stopwatch;
use serde::{Deserialize, Serialize};

use crate::{Error, Findings};

/// One part of an experiment, measured at a time: a method on one split of one data set, say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Run {
    /// What is measured, unique within the experiment among runs of one seed: `caltech101/PRR10`.
    pub what: String,
    /// Which repetition: everything random in it follows from this number.
    pub seed: u64,
}

/// Numbers that a run gave, by name. Names of times end in `_s`; everything else is a function of the run.
pub type Measurement = BTreeMap<String, f64>;

/// What was measured so far.
pub type Measured = BTreeMap<Run, Measurement>;

/// An experiment of the paper, or one about it.
pub trait Experiment {
    /// What it is called on the command line.
    fn name(&self) -> &'static str;

    /// Its settings, one line each, as `name = value`: two experiments that agree in these measure the same.
    fn settings(&self) -> Vec<(String, String)>;

    /// All its runs, in the order in which to measure them.
    fn runs(&self) -> Vec<Run>;

    /// About how long a run takes, compared with the others: for those who wait.
    fn weight(&self, _run: &Run) -> f64 {
        1.0
    }

    /// Measures one run.
    ///
    /// # Errors
    /// If the data do not allow it.
    fn measure(&self, run: &Run, stopwatch: &mut Stopwatch) -> Result<Measurement, Error>;

    /// What follows from the measurements, in the paper's form. Whatever is missing in them is left out.
    fn findings(&self, measured: &Measured) -> Findings;
}
