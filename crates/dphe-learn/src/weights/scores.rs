//! Scores of all classes for many samples, computed as a matrix product in panels of consecutive classes.

use std::num::NonZeroUsize;

use pulp::{Arch, NullaryFnOnce};

use super::Weights;
use crate::threads::parallel_map;
use crate::{Error, Features, Real};

/// The number of classes in a panel, which is a cache line of `f32`. Four samples times sixteen classes fill the
/// vector registers.
pub(crate) const LANES: usize = 16;

/// The weights of up to [`LANES`] consecutive classes with one row per feature, padded with zeros.
pub(crate) struct Panel<T> {
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) rows: Vec<[T; LANES]>,
    pub(crate) intercepts: [T; LANES],
}

/// Cuts feature-major weights into panels of classes.
pub(crate) fn panels<T: Real>(flat: &[f64], intercepts: &[f64]) -> Vec<Panel<T>> {
    let classes = intercepts.len();
    (0..classes)
        .step_by(LANES)
        .map(|first| {
            let count = LANES.min(classes - first);
            let lanes = |from: &[f64]| {
                let mut lanes = [T::ZERO; LANES];
                lanes.iter_mut().zip(&from[first..first + count]).for_each(|(l, &w)| *l = T::from_f64(w));
                lanes
            };
            let rows = flat.chunks_exact(classes).map(lanes).collect();
            Panel { first, count, rows, intercepts: lanes(intercepts) }
        })
        .collect()
}

/// A matrix of finite scores with one row per sample and one column per class.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores<T = f32> {
    values: Vec<T>,
    classes: usize,
}

impl<T: Real> Scores<T> {
    pub(super) fn of(
        weights: &Weights,
        features: &Features<T>,
        threads: NonZeroUsize,
    ) -> Result<Self, Error> {
        weights.check_shape(features.width(), weights.classes())?;
        let panels = panels::<T>(weights.flat(), weights.intercepts());
        let blocks = parallel_map(threads, panels, |_, panel| {
            let mut block = vec![[T::ZERO; LANES]; features.len()];
            let (rows, intercepts) = (&panel.rows, &panel.intercepts);
            Arch::new().dispatch(Multiply { features, rows, intercepts, out: &mut block });
            (panel.first, panel.count, block)
        });
        let classes = weights.classes();
        let mut values = vec![T::ZERO; features.len() * classes];
        for (first, count, block) in blocks {
            for (row, lanes) in values.chunks_exact_mut(classes).zip(&block) {
                row[first..first + count].copy_from_slice(&lanes[..count]);
            }
        }
        Self::new(classes, values)
    }

    /// Creates scores from rows of `classes` values each.
    ///
    /// # Errors
    /// If there are no scores, the last row is incomplete, or a score is not finite.
    pub fn new(classes: usize, values: Vec<T>) -> Result<Self, Error> {
        if classes == 0 || values.is_empty() {
            return Err(Error::Empty { what: "scores" });
        }
        if !values.len().is_multiple_of(classes) {
            return Err(Error::Shape {
                what: "scores of the last sample",
                expected: classes,
                found: values.len() % classes,
            });
        }
        match values.iter().position(|v| !v.is_finite()) {
            Some(index) => Err(Error::NotFinite { what: "score", index }),
            None => Ok(Self { values, classes }),
        }
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.values.len() / self.classes
    }

    /// Always returns false, because there is at least one sample.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the number of scores per sample.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Returns the scores of one sample.
    ///
    /// # Panics
    /// If the sample does not exist.
    pub fn row(&self, sample: usize) -> &[T] {
        &self.values[sample * self.classes..][..self.classes]
    }

    /// Iterates over the samples.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[T]> {
        self.values.chunks_exact(self.classes)
    }

    /// Returns all scores, row after row.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Iterates over the scores of one class.
    pub fn class(&self, class: usize) -> impl Iterator<Item = T> {
        self.values.iter().skip(class).step_by(self.classes).copied()
    }

    /// Returns the class with the highest score for every sample, or the first of several.
    pub fn best(&self) -> Vec<u32> {
        self.rows()
            .map(|row| {
                let mut best = 0;
                for (class, score) in row.iter().enumerate() {
                    if *score > row[best] {
                        best = class;
                    }
                }
                best as u32
            })
            .collect()
    }

    /// Returns the predicted attributes, which are those with a score above zero.
    pub fn above_zero(&self) -> Vec<bool> {
        self.values.iter().map(|&score| score > T::ZERO).collect()
    }
}

/// Runs [`multiply`] with the best instruction set of the CPU.
struct Multiply<'a, T> {
    features: &'a Features<T>,
    rows: &'a [[T; LANES]],
    intercepts: &'a [T; LANES],
    out: &'a mut [[T; LANES]],
}

impl<T: Real> NullaryFnOnce for Multiply<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        multiply(self.features, self.rows, self.intercepts, self.out);
    }
}

/// Computes `out = features * rows + intercepts`. Each sum runs over the features in order, independent of the
/// tiling, so a score depends on its sample only.
#[inline(always)]
pub(crate) fn multiply<T: Real>(
    features: &Features<T>,
    rows: &[[T; LANES]],
    intercepts: &[T; LANES],
    out: &mut [[T; LANES]],
) {
    let width = rows.len();
    let mut tiles = out.chunks_exact_mut(4);
    let mut first = 0;
    for tile in &mut tiles {
        let x = [0, 1, 2, 3].map(|i| &features.row(first + i)[..width]);
        let mut sums = [[T::ZERO; LANES]; 4];
        for j in 0..width {
            for i in 0..4 {
                accumulate(&mut sums[i], x[i][j], &rows[j]);
            }
        }
        for i in 0..4 {
            tile[i] = sums[i];
            accumulate(&mut tile[i], T::ONE, intercepts);
        }
        first += 4;
    }
    for lanes in tiles.into_remainder() {
        let mut sums = [T::ZERO; LANES];
        for (row, &x) in rows.iter().zip(features.row(first)) {
            accumulate(&mut sums, x, row);
        }
        accumulate(&mut sums, T::ONE, intercepts);
        *lanes = sums;
        first += 1;
    }
}

/// Computes `sums += factor * row`.
#[inline(always)]
pub(crate) fn accumulate<T: Real, const L: usize>(sums: &mut [T; L], factor: T, row: &[T; L]) {
    for l in 0..L {
        sums[l] += factor * row[l];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    #[test]
    fn scores_equal_naive_sums() {
        let mut stream = Seed::new(5).stream();
        for (samples, width, classes) in [(1, 1, 1), (5, 7, 3), (9, 4, 16), (6, 3, 33)] {
            let mut random = |count: usize| -> Vec<f64> { (0..count).map(|_| stream.unit() - 0.5).collect() };
            let features = Features::new(width, random(samples * width)).unwrap();
            let weights = Weights::new(width, random(width * classes), random(classes)).unwrap();
            let scores = weights.scores(&features, NonZeroUsize::MIN).unwrap();
            assert_eq!(scores, weights.scores(&features, NonZeroUsize::new(3).unwrap()).unwrap());
            for (i, row) in scores.rows().enumerate() {
                for (class, score) in row.iter().enumerate() {
                    let mut sum = 0.0;
                    for (x, w) in features.row(i).iter().zip(weights.class(class)) {
                        sum += x * w;
                    }
                    assert_eq!(*score, sum + weights.intercepts()[class]);
                }
            }
        }
    }

    #[test]
    fn equal_scores_predict_the_first_class() {
        let scores = Scores::new(3, vec![1.0f32, 2.0, 2.0, 0.0, 0.0, -1.0]).unwrap();
        assert_eq!(scores.best(), [1, 0]);
        assert_eq!(scores.above_zero(), [true, true, true, false, false, false]);
        assert_eq!(Scores::new(1, vec![f32::NAN]), Err(Error::NotFinite { what: "score", index: 0 }));
    }
}
