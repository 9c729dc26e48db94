//! Features with mean 0 and deviation 1, by statistics that everybody shares.

use crate::dataset::check_index;
use crate::{Error, Features, Real};

/// Subtracts a mean, divides by a deviation, and clips.
///
/// Fitted on initial data and published with the initial weights, or on moments summed over users. Never
/// let every user fit their own: the weights would live in different coordinates and their mean in none.
#[derive(Clone, Debug, PartialEq)]
pub struct Standardizer {
    mean: Vec<f64>,
    deviation: Vec<f64>,
    clip: f64,
}

impl Standardizer {
    /// Deviations beyond which a value is clipped. Initial data are few, so a feature that hardly varies there
    /// may explode elsewhere; six bounds it without touching more than a thousandth of the values.
    pub const CLIP: f64 = 6.0;

    /// Means and population deviations of initial data. A constant feature gets deviation 1, so it becomes 0.
    pub fn fit<T: Real>(features: &Features<T>) -> Self {
        let (count, width) = (features.len() as f64, features.width());
        let mut mean = vec![0.0; width];
        for row in features.rows() {
            mean.iter_mut().zip(row).for_each(|(m, v)| *m += v.to_f64());
        }
        mean.iter_mut().for_each(|m| *m /= count);
        // two passes, and the first-order correction for the rounding of the mean
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

    /// Means and deviations of all users from the sum of their [`Moments`], which were taken around `self`.
    ///
    /// # Errors
    /// If the moments are of another width, not finite, or of no samples.
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
        // sums that travelled as rounded numbers can leave a variance below zero
        let variance =
            sum.squares.iter().zip(&shift).map(|(s, m)| (s / sum.count - m * m).max(0.0)).collect::<Vec<_>>();
        let mean: Vec<f64> = self.mean.iter().zip(&shift).map(|(m, s)| m + s).collect();
        Ok(Self { deviation: deviations(&mean, variance.into_iter()), mean, clip: self.clip })
    }

    /// The standardizer with another bound.
    ///
    /// # Errors
    /// If the bound is not positive. Infinity clips nothing.
    pub fn with_clip(self, clip: f64) -> Result<Self, Error> {
        if clip > 0.0 {
            Ok(Self { clip, ..self })
        } else {
            Err(Error::Parameter { name: "clip", value: clip, remedy: "use a positive number, such as 6" })
        }
    }

    /// A published standardizer.
    ///
    /// # Errors
    /// If the lengths differ, a number is not finite, or a deviation is not positive.
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
                remedy: "deviations must be positive; a constant feature has 1",
            });
        }
        Self { mean, deviation, clip: Self::CLIP }.with_clip(clip)
    }

    /// The means.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// The deviations, all positive.
    pub fn deviation(&self) -> &[f64] {
        &self.deviation
    }

    /// The bound, in deviations.
    pub fn clip(&self) -> f64 {
        self.clip
    }

    /// Standardised copies of the samples, in the precision `U`.
    ///
    /// # Errors
    /// If the samples have another width.
    pub fn apply<T: Real, U: Real>(&self, features: &Features<T>) -> Result<Features<U>, Error> {
        self.check_width(features.width())?;
        let mut values = Vec::with_capacity(features.values().len());
        for row in features.rows() {
            values.extend(
                row.iter()
                    .zip(&self.mean)
                    .zip(&self.deviation)
                    .map(|((v, m), d)| U::from_f64(((v.to_f64() - m) / d).clamp(-self.clip, self.clip))),
            );
        }
        Ok(Features::trusted(features.width(), values))
    }

    /// The moments of one user's raw samples around this standardizer's means, for a secure sum.
    ///
    /// Values are first clipped to 64 deviations, which bounds what a sum over users must hold.
    ///
    /// # Errors
    /// If the samples have another width.
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

    /// The standardizer of only these features.
    ///
    /// # Errors
    /// No feature, or one that does not exist.
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

/// Count, sums and sums of squares of centred samples: what users add up to standardise by everybody's data.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// How many samples.
    pub count: f64,
    /// The sum of every feature.
    pub sums: Vec<f64>,
    /// The sum of every feature's square.
    pub squares: Vec<f64>,
}

/// Roots of variances, with 1 in place of what is constant up to rounding.
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

    fn features() -> Features<f64> {
        Features::new(3, vec![1.0, 5.0, 0.0, 3.0, 5.0, 10.0, 8.0, 5.0, -4.0]).unwrap()
    }

    #[test]
    fn means_become_zero_and_deviations_one() {
        let standardizer = Standardizer::fit(&features());
        assert_eq!(standardizer.mean(), [4.0, 5.0, 2.0]);
        assert!((standardizer.deviation()[0] - (26.0f64 / 3.0).sqrt()).abs() < 1e-15);
        assert_eq!(standardizer.deviation()[1], 1.0, "a constant feature");
        let out: Features<f64> = standardizer.apply(&features()).unwrap();
        assert!(out.rows().map(|r| r[0]).sum::<f64>().abs() < 1e-15);
        assert!(out.rows().all(|r| r[1] == 0.0));
        let clipped: Features<f64> = standardizer.clone().with_clip(0.5).unwrap().apply(&features()).unwrap();
        assert!(clipped.values().iter().all(|v| v.abs() <= 0.5));
        assert!(standardizer.with_clip(0.0).is_err());
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
    fn bad_statistics_are_refused() {
        let standardizer = Standardizer::fit(&features());
        let empty = Moments { count: 0.0, sums: vec![0.0; 3], squares: vec![0.0; 3] };
        assert_eq!(standardizer.refit(&empty), Err(Error::Empty { what: "samples" }));
        let nan = Moments { count: 1.0, sums: vec![0.0, f64::NAN, 0.0], squares: vec![0.0; 3] };
        assert_eq!(standardizer.refit(&nan), Err(Error::NotFinite { what: "moment", index: 2 }));
        assert!(Standardizer::from_parts(vec![0.0], vec![0.0], 6.0).is_err());
        assert!(Standardizer::from_parts(vec![0.0], vec![1.0, 1.0], 6.0).is_err());
        let narrow = Features::new(1, vec![1.0f32]).unwrap();
        assert!(standardizer.apply::<f32, f32>(&narrow).is_err());
    }
}
