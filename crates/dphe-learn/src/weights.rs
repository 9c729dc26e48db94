//! The classifier: one linear function a class, in the flat order in which the protocol sums it.

mod scores;

pub use scores::Scores;
pub(crate) use scores::{LANES, Panel, accumulate, multiply, panels};

use crate::dataset::check_index;
use crate::metrics::{attribute_accuracy, mean_per_class_accuracy};
use crate::{Dataset, Error, Features, Real, Threads};

/// Weights and intercepts of one linear function a class.
///
/// The flat view is *feature-major*: `flat[feature * classes + class]`. All classes of a feature are neighbours,
/// which is what the learners' inner loops run over and what one packed ciphertext holds. Intercepts are kept
/// apart: they are not counted in the sparsity and always travel.
#[derive(Clone, PartialEq)]
pub struct Weights {
    // Invariant: flat.len() == features * intercepts.len(), both factors > 0, all finite.
    flat: Vec<f64>,
    intercepts: Vec<f64>,
    features: usize,
}

impl Weights {
    /// All zeros.
    ///
    /// # Errors
    /// If there are no features or no classes.
    pub fn zeros(features: usize, classes: usize) -> Result<Self, Error> {
        Self::new(features, vec![0.0; features.saturating_mul(classes)], vec![0.0; classes])
    }

    /// Weights in feature-major order and one intercept a class.
    ///
    /// # Errors
    /// If a size is zero or does not fit the others, or a number is not finite.
    pub fn new(features: usize, flat: Vec<f64>, intercepts: Vec<f64>) -> Result<Self, Error> {
        if features == 0 {
            return Err(Error::Empty { what: "features" });
        }
        if intercepts.is_empty() {
            return Err(Error::Empty { what: "classes" });
        }
        let expected = features * intercepts.len();
        if flat.len() != expected {
            return Err(Error::Shape { what: "weights", expected, found: flat.len() });
        }
        if let Some(index) = flat.iter().position(|w| !w.is_finite()) {
            return Err(Error::NotFinite { what: "weight", index });
        }
        if let Some(index) = intercepts.iter().position(|b| !b.is_finite()) {
            return Err(Error::NotFinite { what: "intercept", index });
        }
        Ok(Self { flat, intercepts, features })
    }

    /// How many features a sample has.
    pub fn features(&self) -> usize {
        self.features
    }

    /// How many classes there are.
    pub fn classes(&self) -> usize {
        self.intercepts.len()
    }

    /// How many weights there are, intercepts not counted.
    pub fn dimension(&self) -> usize {
        self.flat.len()
    }

    /// The weights, `feature * classes + class`.
    pub fn flat(&self) -> &[f64] {
        &self.flat
    }

    /// The weights of one feature, one a class: a block.
    ///
    /// # Panics
    /// If there is no such feature.
    pub fn block(&self, feature: usize) -> &[f64] {
        &self.flat[feature * self.classes()..][..self.classes()]
    }

    /// One intercept a class.
    pub fn intercepts(&self) -> &[f64] {
        &self.intercepts
    }

    /// The weights of one class, one a feature.
    pub fn class(&self, class: usize) -> impl Iterator<Item = f64> {
        self.flat.iter().skip(class).step_by(self.classes()).copied()
    }

    /// Weights that are not exactly zero.
    pub fn nonzeros(&self) -> usize {
        self.flat.iter().filter(|&&w| w != 0.0).count()
    }

    /// The fraction of weights that are exactly zero.
    pub fn sparsity(&self) -> f64 {
        1.0 - self.nonzeros() as f64 / self.flat.len() as f64
    }

    /// The Euclidean length of the flat weights.
    pub fn norm(&self) -> f64 {
        self.flat.iter().map(|w| w * w).sum::<f64>().sqrt()
    }

    /// `|self - other| / |other|`, the public signal that rounds have settled; infinite if `other` is zero.
    ///
    /// # Errors
    /// If the two are of different shape.
    pub fn relative_change(&self, other: &Self) -> Result<f64, Error> {
        self.check_like(other)?;
        let difference: f64 = self.flat.iter().zip(&other.flat).map(|(a, b)| (a - b) * (a - b)).sum();
        Ok(if difference == 0.0 { 0.0 } else { difference.sqrt() / other.norm() })
    }

    /// The weights of only these features, in this order, with all intercepts.
    ///
    /// # Errors
    /// No feature, or one that does not exist.
    pub fn select_features(&self, features: &[usize]) -> Result<Self, Error> {
        let mut flat = Vec::with_capacity(features.len() * self.classes());
        for &feature in features {
            check_index("feature", feature, self.features)?;
            flat.extend_from_slice(self.block(feature));
        }
        Self::new(features.len(), flat, self.intercepts.clone())
    }

    /// The score of every class for every sample.
    ///
    /// # Errors
    /// If the samples have another number of features, or a score overflows.
    pub fn scores<T: Real>(&self, features: &Features<T>, threads: Threads) -> Result<Scores<T>, Error> {
        Scores::of(self, features, threads)
    }

    /// The mean per-class accuracy on samples of classes; on samples with attributes, the share of right answers.
    ///
    /// # Errors
    /// If the samples do not have the features and classes of the weights, or a score overflows.
    pub fn accuracy<T: Real>(&self, data: &Dataset<T>, threads: Threads) -> Result<f64, Error> {
        let scores = self.scores(data.features(), threads)?;
        match data.labels().as_classes("accuracy") {
            Ok(classes) => mean_per_class_accuracy(classes, &scores.best()),
            Err(_) => attribute_accuracy(data.labels(), &scores),
        }
    }

    /// Fails unless both have the same features and classes.
    pub(crate) fn check_like(&self, other: &Self) -> Result<(), Error> {
        self.check_shape(other.features, other.classes())
    }

    /// Fails unless these are the numbers of features and classes.
    pub(crate) fn check_shape(&self, features: usize, classes: usize) -> Result<(), Error> {
        if self.features != features {
            return Err(Error::Shape { what: "features", expected: self.features, found: features });
        }
        if self.classes() != classes {
            return Err(Error::Shape { what: "classes", expected: self.classes(), found: classes });
        }
        Ok(())
    }
}

impl core::fmt::Debug for Weights {
    /// The sizes only: there are too many numbers, and they may be a user's.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Weights")
            .field("features", &self.features)
            .field("classes", &self.classes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_feature_major() {
        let weights = Weights::new(3, vec![1.0, 2.0, 0.0, 4.0, 5.0, 0.0], vec![7.0, 8.0]).unwrap();
        assert_eq!(weights.block(1), [0.0, 4.0]);
        assert_eq!(weights.class(1).collect::<Vec<_>>(), [2.0, 4.0, 0.0]);
        assert_eq!((weights.nonzeros(), weights.dimension()), (4, 6));
        assert!((weights.sparsity() - 1.0 / 3.0).abs() < 1e-15);
        assert_eq!(weights.select_features(&[2, 0]).unwrap().flat(), [5.0, 0.0, 1.0, 2.0]);
        assert!(weights.select_features(&[3]).is_err());
    }

    #[test]
    fn bad_weights_are_refused() {
        assert!(Weights::zeros(0, 1).is_err() && Weights::zeros(1, 0).is_err());
        assert!(matches!(Weights::new(2, vec![0.0; 3], vec![0.0; 2]), Err(Error::Shape { .. })));
        assert_eq!(
            Weights::new(1, vec![0.0, f64::NAN], vec![0.0; 2]),
            Err(Error::NotFinite { what: "weight", index: 1 })
        );
        assert_eq!(
            Weights::new(1, vec![0.0; 2], vec![0.0, f64::INFINITY]),
            Err(Error::NotFinite { what: "intercept", index: 1 })
        );
    }

    #[test]
    fn relative_change_is_the_length_of_the_difference() {
        let a = Weights::new(2, vec![3.0, 4.0], vec![0.0]).unwrap();
        let b = Weights::new(2, vec![3.0, 5.0], vec![9.0]).unwrap();
        assert!((b.relative_change(&a).unwrap() - 0.2).abs() < 1e-15);
        assert_eq!(a.relative_change(&a).unwrap(), 0.0);
        assert_eq!(a.relative_change(&Weights::zeros(2, 1).unwrap()).unwrap(), f64::INFINITY);
        assert!(a.relative_change(&Weights::zeros(1, 2).unwrap()).is_err());
    }
}
