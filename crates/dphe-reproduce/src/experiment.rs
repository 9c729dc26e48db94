//! The interface of experiments: independent runs, and findings that follow from all of them.

use std::collections::BTreeMap;

use dphe_federate::Stopwatch;
use dphe_learn::Dataset;
use serde::{Deserialize, Serialize};

use crate::{Error, Findings};

/// The identifier of a run, such as one method on one split of a data set. Runs are measured one at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId {
    /// What is measured, such as `caltech101/PRR10`. It is unique among the runs of an experiment with the same seed.
    pub what: String,
    /// The number of the repetition. All randomness of the run follows from it.
    pub seed: u64,
}

/// The numbers that a run measured, by name. The names of times end in `_s`. All other numbers are a function of the
/// run.
pub type Measurement = BTreeMap<String, f64>;

/// The measurements so far.
pub type Measured = BTreeMap<RunId, Measurement>;

/// An experiment of the paper, or about it.
pub trait Experiment {
    /// Returns the name on the command line.
    fn name(&self) -> &'static str;

    /// Returns the settings as names and values. Experiments with equal settings have equal measurements.
    fn settings(&self) -> Vec<(String, String)>;

    /// Returns all runs, in the order in which they should be measured.
    fn runs(&self) -> Vec<RunId>;

    /// Returns the approximate time of a run relative to other runs, for progress bars.
    fn weight(&self, _run: &RunId) -> f64 {
        1.0
    }

    /// Measures one run.
    ///
    /// # Errors
    /// Returns an error if the run is unknown or the data do not fit it.
    fn measure(&self, run: &RunId, stopwatch: &mut Stopwatch) -> Result<Measurement, Error>;

    /// Derives the findings from the measurements. Rows and claims without measurements are left out.
    fn findings(&self, measured: &Measured) -> Findings;
}

/// Returns the size of a data set and a checksum (FNV-1a over words). The checksum is not collision resistant.
pub(crate) fn fingerprint(data: &Dataset) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |word: u64| hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
    data.features().values().iter().for_each(|value| add(value.to_bits().into()));
    let labels = data.labels();
    for sample in 0..labels.len() {
        (0..labels.class_count())
            .filter(|&class| labels.is_positive(sample, class))
            .for_each(|class| add(class as u64));
        // marks the end of the labels of a sample
        add(u64::MAX);
    }
    format!("{} x {}, {hash:016x}", data.len(), data.features().width())
}

#[cfg(test)]
mod tests {
    use dphe_learn::{Features, Labels};

    use super::*;

    #[test]
    fn fingerprint_depends_on_values_and_labels() {
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
