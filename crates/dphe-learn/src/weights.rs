//! The weights of a linear classifier, in the order in which the protocol sums them.

mod scores;

pub use scores::Scores;
pub(crate) use scores::{LANES, Panel, accumulate, multiply, panels};

use std::num::NonZeroUsize;

use crate::dataset::check_index;
use crate::metrics::{attribute_accuracy, mean_per_class_accuracy};
use crate::{Dataset, Error, Features, Real};

/// The weights and intercepts of one linear function per class.
///
/// Weights are *feature-major*: `flat[feature * classes + class]`. The learners' inner loops run over the classes of
/// a feature, and one packed ciphertext holds them. Intercepts are separate. They do not count for the sparsity, and
/// every update carries them.
#[derive(Clone, PartialEq)]
pub struct Weights {
    // Invariant: flat.len() == features * intercepts.len(), both factors > 0, all finite.
    flat: Vec<f64>,
    intercepts: Vec<f64>,
    features: usize,
}

impl Weights {
    /// Creates weights that are all zero.
    ///
    /// # Errors
    /// If there are no features or no classes.
    pub fn zeros(features: usize, classes: usize) -> Result<Self, Error> {
        Self::new(features, vec![0.0; features.saturating_mul(classes)], vec![0.0; classes])
    }

    /// Creates weights from feature-major values and one intercept per class.
    ///
    /// # Errors
    /// If a size is zero or the sizes do not match, or a value is not finite.
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

    /// Returns the number of features per sample.
    pub fn features(&self) -> usize {
        self.features
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        self.intercepts.len()
    }

    /// Returns the number of weights without intercepts.
    pub fn dimension(&self) -> usize {
        self.flat.len()
    }

    /// Returns the weights, indexed by `feature * classes + class`.
    pub fn flat(&self) -> &[f64] {
        &self.flat
    }

    /// Returns the weights of one feature, one per class.
    ///
    /// # Panics
    /// If the feature does not exist.
    pub fn block(&self, feature: usize) -> &[f64] {
        &self.flat[feature * self.classes()..][..self.classes()]
    }

    /// Returns the intercepts, one per class.
    pub fn intercepts(&self) -> &[f64] {
        &self.intercepts
    }

    /// Iterates over the weights of one class, one per feature.
    pub fn class(&self, class: usize) -> impl Iterator<Item = f64> {
        self.flat.iter().skip(class).step_by(self.classes()).copied()
    }

    /// Returns the number of weights that are not exactly zero.
    pub fn nonzeros(&self) -> usize {
        self.flat.iter().filter(|&&w| w != 0.0).count()
    }

    /// Returns the fraction of weights that are exactly zero.
    pub fn sparsity(&self) -> f64 {
        1.0 - self.nonzeros() as f64 / self.flat.len() as f64
    }

    /// Returns the Euclidean norm of the weights.
    pub fn norm(&self) -> f64 {
        self.flat.iter().map(|w| w * w).sum::<f64>().sqrt()
    }

    /// Returns `|self - other| / |other|`, which shows whether rounds have converged. It is infinite if `other` is
    /// zero.
    ///
    /// # Errors
    /// If the shapes differ.
    pub fn relative_change(&self, other: &Self) -> Result<f64, Error> {
        self.check_like(other)?;
        let difference: f64 = self.flat.iter().zip(&other.flat).map(|(a, b)| (a - b) * (a - b)).sum();
        Ok(if difference == 0.0 { 0.0 } else { difference.sqrt() / other.norm() })
    }

    /// Copies the weights of only these features, in this order, with all intercepts.
    ///
    /// # Errors
    /// If the list is empty or a feature does not exist.
    pub fn select_features(&self, features: &[usize]) -> Result<Self, Error> {
        let mut flat = Vec::with_capacity(features.len() * self.classes());
        for &feature in features {
            check_index("feature", feature, self.features)?;
            flat.extend_from_slice(self.block(feature));
        }
        Self::new(features.len(), flat, self.intercepts.clone())
    }

    /// Computes the score of every class for every sample.
    ///
    /// # Errors
    /// If the number of features differs, or a score overflows.
    pub fn scores<T: Real>(&self, features: &Features<T>, threads: NonZeroUsize) -> Result<Scores<T>, Error> {
        Scores::of(self, features, threads)
    }

    /// Returns the mean per-class accuracy, or, if the labels are attributes, the fraction of correct predictions.
    ///
    /// # Errors
    /// If the numbers of features or classes differ, or a score overflows.
    pub fn accuracy<T: Real>(&self, data: &Dataset<T>, threads: NonZeroUsize) -> Result<f64, Error> {
        let scores = self.scores(data.features(), threads)?;
        match data.labels().as_classes("accuracy") {
            Ok(classes) => mean_per_class_accuracy(classes, &scores.best()),
            Err(_) => attribute_accuracy(data.labels(), &scores),
        }
    }

    /// Checks that both have the same numbers of features and classes.
    pub(crate) fn check_like(&self, other: &Self) -> Result<(), Error> {
        self.check_shape(other.features, other.classes())
    }

    /// Checks the numbers of features and classes.
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
    /// Shows the sizes only, because the values may be a user's secret.
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
    fn invalid_weights_are_refused() {
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
    fn relative_change_is_the_norm_of_the_difference() {
        let a = Weights::new(2, vec![3.0, 4.0], vec![0.0]).unwrap();
        let b = Weights::new(2, vec![3.0, 5.0], vec![9.0]).unwrap();
        assert!((b.relative_change(&a).unwrap() - 0.2).abs() < 1e-15);
        assert_eq!(a.relative_change(&a).unwrap(), 0.0);
        assert_eq!(a.relative_change(&Weights::zeros(2, 1).unwrap()).unwrap(), f64::INFINITY);
        assert!(a.relative_change(&Weights::zeros(1, 2).unwrap()).is_err());
    }
}
