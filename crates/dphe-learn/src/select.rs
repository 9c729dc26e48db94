//! Selection of the largest numbers of a vector, or of its largest blocks. Ties go to the first. Payloads select with
//! these functions what an update carries.

use core::cmp::Ordering;

/// Returns the indices of the `count` values of largest magnitude, ascending. Zeros are never chosen.
pub fn largest(values: &[f64], count: usize) -> Vec<usize> {
    let candidates = (0..values.len()).filter(|&i| values[i] != 0.0).collect();
    first_by(candidates, count, |i| values[i].abs())
}

/// Returns the numbers of the `count` blocks of largest Euclidean length, ascending. A block has `width` values, at
/// least one, and the last block may be shorter. Zero blocks are never chosen.
pub fn largest_blocks(values: &[f64], width: usize, count: usize) -> Vec<usize> {
    let lengths: Vec<f64> =
        values.chunks(width.max(1)).map(|block| block.iter().map(|v| v * v).sum()).collect();
    let candidates = (0..lengths.len()).filter(|&i| lengths[i] != 0.0).collect();
    first_by(candidates, count, |i| lengths[i])
}

/// Returns the `count` candidates of largest size, ascending.
fn first_by(mut candidates: Vec<usize>, count: usize, size: impl Fn(usize) -> f64) -> Vec<usize> {
    let before = |a: &usize, b: &usize| -> Ordering { size(*b).total_cmp(&size(*a)).then(a.cmp(b)) };
    if count < candidates.len() {
        candidates.select_nth_unstable_by(count, before);
        candidates.truncate(count);
    }
    candidates.sort_unstable();
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magnitude_counts_and_ties_go_to_the_first() {
        let values = [1.0, -3.0, 0.0, 3.0, 2.0, -3.0];
        assert_eq!(largest(&values, 2), [1, 3]);
        assert_eq!(largest(&values, 4), [1, 3, 4, 5]);
        assert_eq!(largest(&values, 99), [0, 1, 3, 4, 5]);
        assert_eq!(largest(&values, 0), [0usize; 0]);
        assert_eq!(largest_blocks(&values, 4, 1), [0]);
        assert_eq!(largest_blocks(&values, 2, 2), [0, 2]);
        assert_eq!(largest_blocks(&[0.0; 4], 2, 2), [0usize; 0]);
    }
}
