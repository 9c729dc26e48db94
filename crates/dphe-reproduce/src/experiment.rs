//! What an experiment is: runs that do not depend on each other, and what follows from all of them.

use std::collections::BTreeMap;

use dphe_federate::Stopwatch;
use dphe_learn::Dataset;
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

/// Sizes and a checksum (FNV-1a, word by word). It tells data apart that nobody made to be mistaken for each other.
pub(crate) fn fingerprint(data: &Dataset) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |word: u64| hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
    data.features().values().iter().for_each(|value| add(value.to_bits().into()));
    let labels = data.labels();
    for sample in 0..labels.len() {
        (0..labels.class_count())
            .filter(|&class| labels.is_positive(sample, class))
            .for_each(|class| add(class as u64));
        // where the labels of a sample end
        add(u64::MAX);
    }
    format!("{} x {}, {hash:016x}", data.len(), data.features().width())
}

#[cfg(test)]
mod tests {
    use dphe_learn::{Features, Labels};

    use super::*;

    #[test]
    fn data_are_told_apart_by_what_is_in_them() {
        let of = |values: [f32; 4], labels: Labels| {
            fingerprint(&Dataset::new(Features::new(2, values.to_vec()).unwrap(), labels).unwrap())
        };
        let classes = |labels: [u32; 2]| Labels::classes(3, labels.to_vec()).unwrap();
        let first = of([1.0, 2.0, 3.0, 4.0], classes([0, 1]));
        assert!(first.starts_with("2 x 2, "), "{first}");
        assert_eq!(first, of([1.0, 2.0, 3.0, 4.0], classes([0, 1])));
        for other in [
            of([1.0, 2.0, 4.0, 3.0], classes([0, 1])),
            of([1.0, 2.0, 3.0, 4.0], classes([1, 0])),
            of([1.0, 2.0, 3.0, 4.0], Labels::attributes(2, vec![true, true, false, false]).unwrap()),
        ] {
            assert_ne!(first, other);
        }
    }
}
