//! Passes over the rows of a panel. All operands are indexed alike, so that the compiler vectorises the loops.
#![allow(clippy::needless_range_loop, reason = "indexed loops over fixed widths become vector instructions")]

use crate::Real;
use crate::weights::accumulate;

/// Computes `rows . x` in four independent sums, which hide the latency of additions.
#[inline(always)]
pub(super) fn resting_pass<T: Real, const L: usize>(rows: &[[T; L]], x: &[T]) -> [T; L] {
    let mut sums = [[T::ZERO; L]; 4];
    let mut quads = rows.chunks_exact(4);
    let mut x_quads = x.chunks_exact(4);
    for (rows, x) in (&mut quads).zip(&mut x_quads) {
        for i in 0..4 {
            accumulate(&mut sums[i], x[i], &rows[i]);
        }
    }
    for (row, &x) in quads.remainder().iter().zip(x_quads.remainder()) {
        accumulate(&mut sums[0], x, row);
    }
    fold(&sums)
}

/// Computes `rows += before * factors`, then `rows . x`.
#[inline(always)]
pub(super) fn moving_pass<T: Real, const L: usize>(
    rows: &mut [[T; L]],
    factors: &[T; L],
    before: &[T],
    x: &[T],
) -> [T; L] {
    let mut sums = [[T::ZERO; L]; 4];
    let mut quads = rows.chunks_exact_mut(4);
    let mut before_quads = before.chunks_exact(4);
    let mut x_quads = x.chunks_exact(4);
    for ((rows, before), x) in (&mut quads).zip(&mut before_quads).zip(&mut x_quads) {
        for i in 0..4 {
            accumulate(&mut rows[i], before[i], factors);
            accumulate(&mut sums[i], x[i], &rows[i]);
        }
    }
    let rest = before_quads.remainder().iter().zip(x_quads.remainder());
    for (row, (&before, &x)) in quads.into_remainder().iter_mut().zip(rest) {
        accumulate(row, before, factors);
        accumulate(&mut sums[0], x, row);
    }
    fold(&sums)
}

#[inline(always)]
fn fold<T: Real, const L: usize>(sums: &[[T; L]; 4]) -> [T; L] {
    let mut total = [T::ZERO; L];
    for l in 0..L {
        total[l] = (sums[0][l] + sums[1][l]) + (sums[2][l] + sums[3][l]);
    }
    total
}

/// The change that [`sparse_pass`] makes to the rows.
pub(super) struct Terms<T, const L: usize> {
    /// The factors of the previous sample's features.
    pub(super) factors: [T; L],
    /// The fraction of every weight that L2 removes.
    pub(super) decay: f64,
    /// The penalty before the change.
    pub(super) due: f64,
    /// The penalty after the change.
    pub(super) due_now: f64,
}

/// Computes `rows += before * factors - decay * weights`, then `weights . x`. See [`Debt`](super::debt::Debt).
#[inline(always)]
pub(super) fn sparse_pass<T: Real, const L: usize, const ANCHORED: bool>(
    rows: &mut [[T; L]],
    anchors: &[[T; L]],
    terms: &Terms<T, L>,
    before: &[T],
    x: &[T],
) -> [T; L] {
    let mut sums = [T::ZERO; L];
    let width = rows.len();
    let (before, x) = (&before[..width], &x[..width]);
    let anchors = if ANCHORED { &anchors[..width] } else { anchors };
    let anchor = |j: usize, l: usize| if ANCHORED { anchors[j][l] } else { T::ZERO };
    let (decay, due, due_now) =
        (T::from_f64(terms.decay), T::from_f64(terms.due), T::from_f64(terms.due_now));
    for j in 0..width {
        let mut row = rows[j];
        for l in 0..L {
            let w = if ANCHORED { anchor(j, l) + soft(row[l], due) } else { soft(row[l], due) };
            row[l] += before[j] * terms.factors[l] - decay * w;
        }
        rows[j] = row;
        for l in 0..L {
            let w = if ANCHORED { anchor(j, l) + soft(row[l], due_now) } else { soft(row[l], due_now) };
            sums[l] += x[j] * w;
        }
    }
    sums
}

/// Computes `soft(rows, due) . x`.
#[inline(always)]
pub(super) fn resting_sparse_pass<T: Real, const L: usize>(rows: &[[T; L]], x: &[T], due: T) -> [T; L] {
    let mut sums = [T::ZERO; L];
    let x = &x[..rows.len()];
    for j in 0..rows.len() {
        let mut w = rows[j];
        for l in 0..L {
            w[l] = soft(w[l], due);
        }
        accumulate(&mut sums, x[j], &w);
    }
    sums
}

/// Returns `sign(value) max(|value| - threshold, 0)`.
#[inline(always)]
pub(super) fn soft<T: Real>(value: T, threshold: T) -> T {
    value - value.smaller(threshold).larger(-threshold)
}
