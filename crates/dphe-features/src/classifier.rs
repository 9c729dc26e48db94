//! A linear classifier in the formats of others: arrays in .npz, a graph in ONNX.

use std::path::Path;

use crate::Error;
use crate::file::{read_classifier_npz, write_classifier_npz};

/// Scores are `clip((x - mean) / deviation) weights + intercepts`, one a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Classifier {
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Features x classes, feature after feature.
    pub weights: Vec<f64>,
    /// One a class.
    pub intercepts: Vec<f64>,
    /// One a feature.
    pub mean: Vec<f64>,
    /// One a feature, positive.
    pub deviation: Vec<f64>,
    /// Standardised features are cut off there, on both sides.
    pub clip: f64,
    /// Whether each class is there or not, instead of one of them.
    pub attributes: bool,
}

impl Classifier {
    /// Fails unless all sizes agree and all numbers are finite.
    ///
    /// # Errors
    /// Names what does not agree.
    pub fn check(&self) -> Result<(), Error> {
        let bad = |what: String| Err(Error::table(what, "a classifier with one weight a feature and class"));
        let (features, classes) = (self.mean.len(), self.classes.len());
        for (name, found, wanted) in [
            ("weights", self.weights.len(), features * classes),
            ("intercepts", self.intercepts.len(), classes),
            ("deviations", self.deviation.len(), features),
        ] {
            if found != wanted {
                return bad(format!("{found} {name} for {features} features and {classes} classes"));
            }
        }
        let numbers = [&self.weights, &self.intercepts, &self.mean, &self.deviation];
        if features == 0 || classes == 0 {
            return bad("no features or no classes".into());
        }
        if !numbers.into_iter().flatten().all(|v| v.is_finite()) {
            return bad("a number that is not finite".into());
        }
        if self.clip.is_nan() || self.clip <= 0.0 {
            return bad("a cut-off that is not positive".into());
        }
        if self.deviation.iter().any(|&deviation| deviation <= 0.0) {
            return bad("a deviation that is not positive".into());
        }
        Ok(())
    }

    /// Writes the arrays `weights` (features x classes), `intercepts`, `mean`, `deviation`, `clip` and `classes`.
    ///
    /// # Errors
    /// If it is not whole, or the file cannot be written; an older one is still there then.
    pub fn write_npz(&self, path: &Path) -> Result<(), Error> {
        self.check()?;
        write_classifier_npz(path, self)
    }

    /// Reads what [`write_npz`](Self::write_npz) writes, in single precision. Without `mean` and `deviation`, features are taken as they
    /// are; without `classes`, they have numbers.
    ///
    /// # Errors
    /// A file that is none, or whose arrays do not fit together.
    pub fn read_npz(path: &Path) -> Result<Self, Error> {
        let found = read_classifier_npz(path).map_err(|error| error.in_file(path))?;
        found.check().map_err(|error| error.in_file(path))?;
        Ok(found)
    }
}
