//! Data sets: features and labels, checked once at construction.

mod labels;
mod split;

pub use labels::Labels;
pub use split::{Dealing, PerClassSplit, deal, shares, split_per_class};

use crate::{Error, Real, Seed, Standardizer};

/// A matrix of finite features with one row per sample.
#[derive(Clone, PartialEq)]
pub struct Features<T = f32> {
    // Invariant: values.len() == samples * width, samples > 0, width > 0, every value finite.
    values: Vec<T>,
    width: usize,
}

impl<T: Real> Features<T> {
    /// Creates features from rows of `width` values each. The values are moved, not copied.
    ///
    /// # Errors
    /// If there are no values, the last row is incomplete, or a value is not finite.
    pub fn new(width: usize, values: Vec<T>) -> Result<Self, Error> {
        if width == 0 {
            return Err(Error::Empty { what: "features" });
        }
        if values.is_empty() {
            return Err(Error::Empty { what: "samples" });
        }
        if !values.len().is_multiple_of(width) {
            return Err(Error::Shape {
                what: "features of the last sample",
                expected: width,
                found: values.len() % width,
            });
        }
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            return Err(Error::FeatureNotFinite { sample: at / width, feature: at % width });
        }
        Ok(Self { values, width })
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// Always returns false, because there is at least one sample.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the number of features per sample.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the features of one sample.
    ///
    /// # Panics
    /// If the sample does not exist.
    #[inline(always)]
    pub fn row(&self, sample: usize) -> &[T] {
        &self.values[sample * self.width..][..self.width]
    }

    /// Iterates over the samples.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[T]> {
        self.values.chunks_exact(self.width)
    }

    /// Iterates over the samples for a change that keeps every value finite.
    pub(crate) fn rows_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [T]> {
        self.values.chunks_exact_mut(self.width)
    }

    /// Returns all values, row after row.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Returns all values, row after row, without copying them.
    pub fn into_values(self) -> Vec<T> {
        self.values
    }

    /// Converts the features to another precision.
    pub fn convert<U: Real>(&self) -> Features<U> {
        Features { values: self.values.iter().map(|v| U::from_f64(v.to_f64())).collect(), width: self.width }
    }

    /// Copies the samples with these numbers, in this order.
    ///
    /// # Errors
    /// If the list is empty or a sample does not exist.
    pub fn select(&self, samples: &[usize]) -> Result<Self, Error> {
        let mut values = Vec::with_capacity(samples.len() * self.width);
        for &sample in samples {
            check_index("sample", sample, self.len())?;
            values.extend_from_slice(self.row(sample));
        }
        Self::new(self.width, values)
    }

    /// Copies this many samples, drawn at random with replacement.
    ///
    /// # Errors
    /// If no samples are asked for.
    pub fn sample(&self, count: usize, seed: &Seed) -> Result<Self, Error> {
        let mut stream = seed.derive("sample", 0).stream();
        let chosen: Vec<usize> = (0..count).map(|_| stream.below(self.len())).collect();
        self.select(&chosen)
    }

    /// Copies all samples with only these features, in this order.
    ///
    /// # Errors
    /// If the list is empty or a feature does not exist.
    pub fn select_features(&self, features: &[usize]) -> Result<Self, Error> {
        for &feature in features {
            check_index("feature", feature, self.width)?;
        }
        let values = self.rows().flat_map(|row| features.iter().map(|&j| row[j])).collect();
        Self::new(features.len(), values)
    }

    /// Returns `1 + mean |x|^2`, the squared radius that scales the steps of the stable schedule.
    pub fn squared_radius(&self) -> f64 {
        let sum: f64 = self.rows().map(|row| row.iter().map(|v| v.to_f64() * v.to_f64()).sum::<f64>()).sum();
        1.0 + sum / self.len() as f64
    }
}

impl<T> core::fmt::Debug for Features<T> {
    /// Shows the sizes only, because the values are private data.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Features")
            .field("samples", &(self.values.len() / self.width))
            .field("width", &self.width)
            .finish()
    }
}

/// Features with their labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset<T = f32> {
    features: Features<T>,
    labels: Labels,
}

impl<T: Real> Dataset<T> {
    /// Combines features and labels without copying them.
    ///
    /// # Errors
    /// If the number of samples differs.
    pub fn new(features: Features<T>, labels: Labels) -> Result<Self, Error> {
        if features.len() != labels.len() {
            return Err(Error::Shape { what: "labels", expected: features.len(), found: labels.len() });
        }
        Ok(Self { features, labels })
    }

    /// Returns the features.
    pub fn features(&self) -> &Features<T> {
        &self.features
    }

    /// Returns the labels.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Always returns false, because there is at least one sample.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Copies the samples with these numbers, in this order.
    ///
    /// # Errors
    /// If the list is empty or a sample does not exist.
    pub fn select(&self, samples: &[usize]) -> Result<Self, Error> {
        Ok(Self { features: self.features.select(samples)?, labels: self.labels.select(samples)? })
    }

    /// Returns a data set with the same labels and other features.
    ///
    /// # Errors
    /// If the number of samples differs.
    pub fn with_features<U: Real>(&self, features: Features<U>) -> Result<Dataset<U>, Error> {
        Dataset::new(features, self.labels.clone())
    }

    /// Replaces the labels. The features are moved, not copied.
    ///
    /// # Errors
    /// If the number of samples differs.
    pub fn with_labels(self, labels: Labels) -> Result<Self, Error> {
        Self::new(self.features, labels)
    }

    /// Standardises the features in place.
    ///
    /// # Errors
    /// If the number of features per sample is not the standardizer's.
    pub fn standardized(self, standardizer: &Standardizer) -> Result<Self, Error> {
        Ok(Self { features: standardizer.apply(self.features)?, labels: self.labels })
    }

    /// Takes the data set apart without copying it.
    pub fn into_parts(self) -> (Features<T>, Labels) {
        (self.features, self.labels)
    }
}

/// Checks that `index` is below `count`.
pub(crate) fn check_index(what: &'static str, index: usize, count: usize) -> Result<(), Error> {
    if index < count { Ok(()) } else { Err(Error::Index { what, index, count }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_features_are_refused_with_their_place() {
        assert_eq!(Features::<f32>::new(0, vec![]), Err(Error::Empty { what: "features" }));
        assert_eq!(Features::<f32>::new(2, vec![]), Err(Error::Empty { what: "samples" }));
        assert!(matches!(Features::new(2, vec![1.0f32; 3]), Err(Error::Shape { expected: 2, found: 1, .. })));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(
                Features::new(2, vec![0.0, 1.0, 2.0, bad]),
                Err(Error::FeatureNotFinite { sample: 1, feature: 1 })
            );
        }
    }

    #[test]
    fn selections_keep_order_and_check_bounds() {
        let features = Features::new(2, vec![0.0f64, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(features.select(&[2, 0]).unwrap().values(), [4.0, 5.0, 0.0, 1.0]);
        assert_eq!(features.select_features(&[1]).unwrap().values(), [1.0, 3.0, 5.0]);
        assert_eq!(features.select(&[3]), Err(Error::Index { what: "sample", index: 3, count: 3 }));
        assert_eq!(features.select(&[]), Err(Error::Empty { what: "samples" }));
        assert_eq!(features.squared_radius(), 1.0 + 55.0 / 3.0);
        assert_eq!(format!("{features:?}"), "Features { samples: 3, width: 2 }");
        assert_eq!(features.convert::<f32>().row(1), [2.0, 3.0]);
    }

    #[test]
    fn features_and_labels_must_match() {
        let features = Features::new(1, vec![0.0f32, 1.0]).unwrap();
        let labels = Labels::classes(2, vec![0]).unwrap();
        assert_eq!(
            Dataset::new(features, labels),
            Err(Error::Shape { what: "labels", expected: 2, found: 1 })
        );
    }
}
