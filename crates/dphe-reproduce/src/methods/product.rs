//! Products of the matrix of samples, or its transpose, with matrices that have one column per class.

use std::num::NonZeroUsize;

use dphe_learn::{Features, Real, Weights};

use crate::Error;

/// Multiplies rows by numbers: from `numbers[column * classes + class]` to `out[row * classes + class]`.
pub(crate) fn times<T: Real>(
    rows: &Features<T>,
    classes: usize,
    numbers: Vec<f64>,
    threads: NonZeroUsize,
) -> Result<Vec<f64>, Error> {
    let weights = Weights::new(rows.width(), numbers, vec![0.0; classes])?;
    Ok(weights.scores(rows, threads)?.values().iter().map(|v| v.to_f64()).collect())
}

/// Returns the transpose.
pub(crate) fn transposed<T: Real>(rows: &Features<T>) -> Result<Features<T>, Error> {
    let (count, width) = (rows.len(), rows.width());
    let mut values = vec![T::ZERO; count * width];
    // tiles keep both matrices in the cache
    const TILE: usize = 32;
    for first_row in (0..count).step_by(TILE) {
        for first in (0..width).step_by(TILE) {
            for row in first_row..count.min(first_row + TILE) {
                for column in first..width.min(first + TILE) {
                    values[column * count + row] = rows.row(row)[column];
                }
            }
        }
    }
    Ok(Features::new(count, values)?)
}

/// Returns the Gram matrix: the inner products of all pairs of samples.
pub(crate) fn gram(rows: &Features, threads: NonZeroUsize) -> Result<Features<f64>, Error> {
    let count = rows.len();
    let columns = transposed(rows)?;
    let numbers = columns.values().iter().map(|&v| f64::from(v)).collect();
    Ok(Features::new(count, times(&rows.convert::<f64>(), count, numbers, threads)?)?)
}

/// Estimates the largest eigenvalue of `X^T X / n` by this many steps of the power method, starting from ones.
pub(crate) fn largest_eigenvalue(rows: &Features, steps: usize) -> f64 {
    let mut vector = vec![1.0f64; rows.width()];
    let mut value = 0.0;
    for _ in 0..steps {
        let length = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
        if length == 0.0 {
            return 0.0;
        }
        vector.iter_mut().for_each(|v| *v /= length);
        let mut next = vec![0.0; rows.width()];
        for row in rows.rows() {
            let dot: f64 = row.iter().zip(&vector).map(|(&x, v)| f64::from(x) * v).sum();
            next.iter_mut().zip(row).for_each(|(n, &x)| *n += dot * f64::from(x));
        }
        next.iter_mut().for_each(|n| *n /= rows.len() as f64);
        value = next.iter().zip(&vector).map(|(n, v)| n * v).sum();
        vector = next;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_match_hand_computed_ones() {
        let rows = Features::new(3, vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let columns = transposed(&rows).unwrap();
        assert_eq!(columns.values(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let numbers = vec![1.0, 0.0, 0.0, 1.0, 1.0, -1.0];
        assert_eq!(times(&rows, 2, numbers, NonZeroUsize::MIN).unwrap(), [4.0, -1.0, 10.0, -1.0]);
        assert_eq!(gram(&rows, NonZeroUsize::MIN).unwrap().values(), [14.0, 32.0, 32.0, 77.0]);
        // the larger eigenvalue of half the Gram matrix is (91 + sqrt(91^2 - 4 54)) / 4
        let exact = (91.0 + f64::sqrt(91.0 * 91.0 - 4.0 * 54.0)) / 4.0;
        assert!((largest_eigenvalue(&rows, 30) - exact).abs() < 1e-9);
    }
}
