//! Samples: a matrix of features and the labels that belong to it, checked once.

mod labels;
mod split;

pub use labels::Labels;
pub use split::{Dealing, PerClassSplit, deal, shares, split_per_class};

use crate::{Error, Real};

/// Features of samples: one row a sample, row after row, all finite.
#[derive(Clone, PartialEq)]
pub struct Features<T = f32> {
    // Invariant: values.len() == samples * width, samples > 0, width > 0, every value finite.
    values: Vec<T>,
    width: usize,
}

impl<T: Real> Features<T> {
    /// Takes rows of `width` features each.
    ///
    /// # Errors
    /// No values, a last row that is not whole, or a value that is not finite.
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

    /// Rows that are known to be whole and finite.
    pub(crate) fn trusted(width: usize, values: Vec<T>) -> Self {
        debug_assert!(width > 0 && !values.is_empty() && values.len().is_multiple_of(width));
        Self { values, width }
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// Never true: there is at least one sample.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// How many features a sample has.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The features of one sample.
    ///
    /// # Panics
    /// If there is no such sample.
    #[inline(always)]
    pub fn row(&self, sample: usize) -> &[T] {
        &self.values[sample * self.width..][..self.width]
    }

    /// The samples, one after the other.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[T]> {
        self.values.chunks_exact(self.width)
    }

    /// All values, row after row.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The same numbers in another precision.
    pub fn convert<U: Real>(&self) -> Features<U> {
        Features { values: self.values.iter().map(|v| U::from_f64(v.to_f64())).collect(), width: self.width }
    }

    /// The samples with these numbers, in this order.
    ///
    /// # Errors
    /// No sample, or one that does not exist.
    pub fn select(&self, samples: &[usize]) -> Result<Self, Error> {
        let mut values = Vec::with_capacity(samples.len() * self.width);
        for &sample in samples {
            check_index("sample", sample, self.len())?;
            values.extend_from_slice(self.row(sample));
        }
        Self::new(self.width, values)
    }

    /// All samples with only these features, in this order.
    ///
    /// # Errors
    /// No feature, or one that does not exist.
    pub fn select_features(&self, features: &[usize]) -> Result<Self, Error> {
        for &feature in features {
            check_index("feature", feature, self.width)?;
        }
        let values = self.rows().flat_map(|row| features.iter().map(|&j| row[j])).collect();
        Self::new(features.len(), values)
    }

    /// `1 + mean |x|^2`, the squared radius that the stable schedule measures its steps by.
    pub fn squared_radius(&self) -> f64 {
        let sum: f64 = self.rows().map(|row| row.iter().map(|v| v.to_f64() * v.to_f64()).sum::<f64>()).sum();
        1.0 + sum / self.len() as f64
    }
}

impl<T> core::fmt::Debug for Features<T> {
    /// The sizes only: the values are somebody's data.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Features")
            .field("samples", &(self.values.len() / self.width))
            .field("width", &self.width)
            .finish()
    }
}

/// Features with labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset<T = f32> {
    features: Features<T>,
    labels: Labels,
}

impl<T: Real> Dataset<T> {
    /// Puts features and labels together.
    ///
    /// # Errors
    /// If there are more of one than of the other.
    pub fn new(features: Features<T>, labels: Labels) -> Result<Self, Error> {
        if features.len() != labels.len() {
            return Err(Error::Shape { what: "labels", expected: features.len(), found: labels.len() });
        }
        Ok(Self { features, labels })
    }

    /// The features.
    pub fn features(&self) -> &Features<T> {
        &self.features
    }

    /// The labels.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Never true: there is at least one sample.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The samples with these numbers, in this order.
    ///
    /// # Errors
    /// No sample, or one that does not exist.
    pub fn select(&self, samples: &[usize]) -> Result<Self, Error> {
        Ok(Self { features: self.features.select(samples)?, labels: self.labels.select(samples)? })
    }

    /// The same labels with other features, for example standardised ones.
    ///
    /// # Errors
    /// If there are not as many samples.
    pub fn with_features<U: Real>(&self, features: Features<U>) -> Result<Dataset<U>, Error> {
        Dataset::new(features, self.labels.clone())
    }
}

/// Fails unless `index` is below `count`.
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
