//! Standardisation of features to mean 0 and deviation 1, with statistics that all users share.

use crate::dataset::check_index;
use crate::{Error, Features, Real};

/// A transform that subtracts a mean, divides by a deviation, and clips.
///
/// It is fitted on the initial data and published with the initial weights, or fitted on moments summed over users.
/// All users must apply the same one, because weights for differently scaled features cannot be averaged.
#[derive(Clone, Debug, PartialEq)]
pub struct Standardizer {
    mean: Vec<f64>,
    deviation: Vec<f64>,
    clip: f64,
}

impl Standardizer {
    /// The default bound, in deviations. There is little initial data, so a feature that hardly varies there may
    /// become huge elsewhere. Six deviations bound it and change less than a thousandth of the values.
    pub const CLIP: f64 = 6.0;

    /// Fits means and population deviations. A constant feature gets deviation 1, so it becomes 0.
    pub fn fit<T: Real>(features: &Features<T>) -> Self {
        let (count, width) = (features.len() as f64, features.width());
        let mut mean = vec![0.0; width];
        for row in features.rows() {
            mean.iter_mut().zip(row).for_each(|(m, v)| *m += v.to_f64());
        }
        mean.iter_mut().for_each(|m| *m /= count);
        // two passes, with a first-order correction for the rounding of the mean
        let (mut squares, mut drift) = (vec![0.0; width], vec![0.0; width]);
        for row in features.rows() {
            for (((s, d), m), v) in squares.iter_mut().zip(&mut drift).zip(&mean).zip(row) {
                let away = v.to_f64() - m;
                *s += away * away;
                *d += away;
            }
        }
        let variance = squares.iter().zip(&drift).map(|(s, d)| (s - d * d / count) / count);
        Self { deviation: deviations(&mean, variance), mean, clip: Self::CLIP }
    }

    /// Fits means and deviations of all users to the sum of their [`moments`](Self::moments) around `self`.
    ///
    /// # Errors
    /// If the number of features differs, a moment is not finite, or there are no samples.
    pub fn refit(&self, sum: &Moments) -> Result<Self, Error> {
        self.check_width(sum.sums.len())?;
        let all = core::iter::once(&sum.count).chain(&sum.sums).chain(&sum.squares);
        if let Some(index) = all.clone().position(|v| !v.is_finite()) {
            return Err(Error::NotFinite { what: "moment", index });
        }
        if sum.count < 1.0 {
            return Err(Error::Empty { what: "samples" });
        }
        let shift: Vec<f64> = sum.sums.iter().map(|s| s / sum.count).collect();
        // fixed-point rounding of the sums can make a variance negative
        let variance =
            sum.squares.iter().zip(&shift).map(|(s, m)| (s / sum.count - m * m).max(0.0)).collect::<Vec<_>>();
        let mean: Vec<f64> = self.mean.iter().zip(&shift).map(|(m, s)| m + s).collect();
        Ok(Self { deviation: deviations(&mean, variance.into_iter()), mean, clip: self.clip })
    }

    /// Changes the bound. Infinity disables clipping.
    ///
    /// # Errors
    /// If the bound is not positive.
    pub fn with_clip(self, clip: f64) -> Result<Self, Error> {
        if clip > 0.0 {
            Ok(Self { clip, ..self })
        } else {
            Err(Error::Parameter { name: "clip", value: clip, remedy: "use a positive number, such as 6" })
        }
    }

    /// Creates a standardizer from published values.
    ///
    /// # Errors
    /// If the lengths differ, a value is not finite, or a deviation is not positive.
    pub fn from_parts(mean: Vec<f64>, deviation: Vec<f64>, clip: f64) -> Result<Self, Error> {
        if mean.is_empty() {
            return Err(Error::Empty { what: "features" });
        }
        if mean.len() != deviation.len() {
            return Err(Error::Shape { what: "deviations", expected: mean.len(), found: deviation.len() });
        }
        if let Some(index) = mean.iter().position(|m| !m.is_finite()) {
            return Err(Error::NotFinite { what: "mean", index });
        }
        if let Some(index) = deviation.iter().position(|d| !(d.is_finite() && *d > 0.0)) {
            return Err(Error::Parameter {
                name: "deviation",
                value: deviation[index],
                remedy: "use positive deviations, and 1 for a constant feature",
            });
        }
        Self { mean, deviation, clip: Self::CLIP }.with_clip(clip)
    }

    /// Returns the means.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// Returns the deviations, which are all positive.
    pub fn deviation(&self) -> &[f64] {
        &self.deviation
    }

    /// Returns the bound, in deviations.
    pub fn clip(&self) -> f64 {
        self.clip
    }

    /// Standardises features in place: the returned features use the same memory.
    ///
    /// # Errors
    /// If the number of features per sample is not the standardizer's.
    pub fn apply<T: Real>(&self, mut features: Features<T>) -> Result<Features<T>, Error> {
        self.check_width(features.width())?;
        for row in features.rows_mut() {
            for ((v, m), d) in row.iter_mut().zip(&self.mean).zip(&self.deviation) {
                *v = T::from_f64(((v.to_f64() - m) / d).clamp(-self.clip, self.clip));
            }
        }
        Ok(features)
    }

    /// Computes the moments of one user's raw samples around this standardizer's means, for a secure sum.
    ///
    /// Values are clipped to 64 deviations first, which bounds the sum over users.
    ///
    /// # Errors
    /// If the number of features per sample differs.
    pub fn moments<T: Real>(&self, features: &Features<T>) -> Result<Moments, Error> {
        self.check_width(features.width())?;
        let width = features.width();
        let mut moments =
            Moments { count: features.len() as f64, sums: vec![0.0; width], squares: vec![0.0; width] };
        for row in features.rows() {
            for (j, v) in row.iter().enumerate() {
                let bound = 64.0 * self.deviation[j];
                let away = (v.to_f64() - self.mean[j]).clamp(-bound, bound);
                moments.sums[j] += away;
                moments.squares[j] += away * away;
            }
        }
        Ok(moments)
    }

    /// Returns the standardizer of only these features.
    ///
    /// # Errors
    /// If the list is empty or a feature does not exist.
    pub fn select(&self, features: &[usize]) -> Result<Self, Error> {
        for &feature in features {
            check_index("feature", feature, self.mean.len())?;
        }
        let pick = |from: &[f64]| features.iter().map(|&j| from[j]).collect();
        Self::from_parts(pick(&self.mean), pick(&self.deviation), self.clip)
    }

    fn check_width(&self, found: usize) -> Result<(), Error> {
        if found == self.mean.len() {
            Ok(())
        } else {
            Err(Error::Shape { what: "features", expected: self.mean.len(), found })
        }
    }
}

/// The count, sums and sums of squares of a user's centred samples. Summed over users, they give a standardizer for
/// all data.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// The number of samples.
    pub count: f64,
    /// The sum per feature.
    pub sums: Vec<f64>,
    /// The sum of squares per feature.
    pub squares: Vec<f64>,
}

/// Returns the roots of variances, and 1 for features that are constant up to rounding.
fn deviations(mean: &[f64], variance: impl Iterator<Item = f64>) -> Vec<f64> {
    variance
        .zip(mean)
        .map(|(v, m)| {
            let deviation = v.max(0.0).sqrt();
            if deviation < 1e-6 * m.abs().max(1.0) { 1.0 } else { deviation }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dataset, Labels};

    fn features() -> Features<f64> {
        Features::new(3, vec![1.0, 5.0, 0.0, 3.0, 5.0, 10.0, 8.0, 5.0, -4.0]).unwrap()
    }

    #[test]
    fn means_become_zero_and_deviations_one() {
        let standardizer = Standardizer::fit(&features());
        assert_eq!(standardizer.mean(), [4.0, 5.0, 2.0]);
        assert!((standardizer.deviation()[0] - (26.0f64 / 3.0).sqrt()).abs() < 1e-15);
        assert_eq!(standardizer.deviation()[1], 1.0, "a constant feature");
        let out = standardizer.apply(features()).unwrap();
        assert!(out.rows().map(|r| r[0]).sum::<f64>().abs() < 1e-15);
        assert!(out.rows().all(|r| r[1] == 0.0));
        let clipped = standardizer.clone().with_clip(0.5).unwrap().apply(features()).unwrap();
        assert!(clipped.values().iter().all(|v| v.abs() <= 0.5));
        assert!(standardizer.with_clip(0.0).is_err());
    }

    #[test]
    fn apply_keeps_the_buffer() {
        let data = Dataset::new(features(), Labels::classes(2, vec![0, 1, 0]).unwrap()).unwrap();
        let (buffer, standardizer) = (data.features().values().as_ptr(), Standardizer::fit(data.features()));
        let data = data.standardized(&standardizer).unwrap();
        assert_eq!(data.features(), &standardizer.apply(features()).unwrap());
        let data = data.with_labels(Labels::classes(3, vec![2, 1, 0]).unwrap()).unwrap();
        assert_eq!(data.into_parts().0.values().as_ptr(), buffer);
    }

    #[test]
    fn summed_moments_equal_pooled_data() {
        let all = features();
        let initial = Standardizer::fit(&all.select(&[0, 1]).unwrap());
        let parts = [all.select(&[0]).unwrap(), all.select(&[1, 2]).unwrap()];
        let mut sum = initial.moments(&parts[0]).unwrap();
        let other = initial.moments(&parts[1]).unwrap();
        sum.count += other.count;
        sum.sums.iter_mut().zip(&other.sums).for_each(|(a, b)| *a += b);
        sum.squares.iter_mut().zip(&other.squares).for_each(|(a, b)| *a += b);
        let (pooled, direct) = (initial.refit(&sum).unwrap(), Standardizer::fit(&all));
        for (a, b) in pooled.mean().iter().zip(direct.mean()) {
            assert!((a - b).abs() < 1e-12);
        }
        for (a, b) in pooled.deviation().iter().zip(direct.deviation()) {
            assert!((a - b).abs() < 1e-12);
        }
    }

    #[test]
    fn invalid_statistics_are_refused() {
        let standardizer = Standardizer::fit(&features());
        let empty = Moments { count: 0.0, sums: vec![0.0; 3], squares: vec![0.0; 3] };
        assert_eq!(standardizer.refit(&empty), Err(Error::Empty { what: "samples" }));
        let nan = Moments { count: 1.0, sums: vec![0.0, f64::NAN, 0.0], squares: vec![0.0; 3] };
        assert_eq!(standardizer.refit(&nan), Err(Error::NotFinite { what: "moment", index: 2 }));
        assert!(Standardizer::from_parts(vec![0.0], vec![0.0], 6.0).is_err());
        assert!(Standardizer::from_parts(vec![0.0], vec![1.0, 1.0], 6.0).is_err());
        let narrow = Features::new(1, vec![1.0f32]).unwrap();
        assert!(standardizer.apply(narrow).is_err());
    }
}
