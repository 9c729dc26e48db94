//! Deterministic quality metrics in `f64`, equal to scikit-learn's functions of these names.

mod classification;
mod clustering;
mod ranking;

pub use classification::{ConfusionMatrix, accuracy, attribute_accuracy, mean_per_class_accuracy};
pub use clustering::{AdjustedMutualInformation, adjusted_mutual_information};
pub use ranking::{MeanAveragePrecision, area_under_roc, average_precision, mean_average_precision};

use crate::Error;

/// Checks that the two lengths are equal and not zero.
fn check_pairs(what: &'static str, expected: usize, found: usize) -> Result<(), Error> {
    if expected != found {
        return Err(Error::Shape { what, expected, found });
    }
    if expected == 0 {
        return Err(Error::Empty { what: "samples" });
    }
    Ok(())
}
