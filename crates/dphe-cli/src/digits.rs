//! The bundled data set: handwritten digits of the UCI repository (see data/README.md).

use std::path::PathBuf;

use dphe_federate::{Scenario, ScenarioParams};
use dphe_learn::{Dataset, Error, Features, Labels, Seed};
use dphe_service::model::LabelKind;
use dphe_service::samples::{Samples, SamplesError};

use crate::cli::CliError;

const BYTES: &[u8] = include_bytes!("../data/digits.bin");
const PIXELS: usize = 64;

/// Returns all 1,797 digits with grey values from 0 to 16.
pub(crate) fn digits() -> Result<Dataset, Error> {
    let (mut labels, mut values) = (Vec::new(), Vec::new());
    for sample in BYTES.chunks_exact(1 + PIXELS) {
        labels.push(sample[0].into());
        values.extend(sample[1..].iter().map(|&grey| f32::from(grey)));
    }
    Dataset::new(Features::new(PIXELS, values)?, Labels::classes(10, labels)?)
}

/// Returns the names of the classes.
pub(crate) fn names() -> Vec<String> {
    (0..10).map(|digit: u32| digit.to_string()).collect()
}

/// Returns the digits that a simulation with the default options holds out.
pub(crate) fn held_out() -> Result<Samples, CliError> {
    let data = digits()?;
    let scenario = Scenario::new(&data, &ScenarioParams::default(), &Seed::new(0))?;
    let data = data.select(&scenario.held_out_samples)?;
    Ok(Samples { data, classes: names(), kind: LabelKind::Classes, source: None })
}

/// Returns the digits with the names of their classes.
pub(crate) fn samples() -> Result<Samples, SamplesError> {
    let data =
        digits().map_err(|source| SamplesError::Learn { path: PathBuf::from("the digits"), source })?;
    Ok(Samples { data, classes: names(), kind: LabelKind::Classes, source: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundled_digits_equal_those_of_scikit_learn() {
        let data = digits().unwrap();
        assert_eq!(data.len(), 1797);
        assert_eq!(data.labels().counts(), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        // the sum of all grey values in scikit-learn's copy
        let sum: f64 = data.features().values().iter().map(|&v| f64::from(v)).sum();
        assert_eq!(sum, 561_718.0);
        assert_eq!(names().len(), 10);
    }
}
