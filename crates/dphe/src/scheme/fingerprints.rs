//! Detects repeated noise in a round by eight bytes per ciphertext. No user knows the noise of another, so no user can
//! cause a false alarm on purpose. By chance, n ciphertexts cause one with probability n² / 2^65.

/// A set of numbers that grows by batches. It consists of sorted runs, each at least twice as long as the next, so that
/// a batch costs a few binary searches per element and no memory besides the numbers. Runs stop growing at a sixteenth
/// of the set, because merging two runs needs as much memory again as both have.
#[derive(Debug, Default)]
pub(crate) struct Fingerprints(Vec<Vec<u64>>);

/// Runs of up to a quarter of a megabyte are always merged.
const SMALL: usize = 1 << 15;

impl Fingerprints {
    /// Adds a batch and returns true, unless the batch repeats a number of its own or of the set.
    pub(crate) fn insert(&mut self, mut batch: Vec<u64>) -> bool {
        batch.sort_unstable();
        if batch.is_empty() {
            return true;
        }
        let twice = batch.windows(2).any(|pair| pair[0] == pair[1]);
        if twice || self.0.iter().any(|run| intersect(run, &batch)) {
            return false;
        }
        let largest = (self.0.iter().map(Vec::len).sum::<usize>() / 16).max(SMALL);
        while let Some(mut last) =
            self.0.pop_if(|last| last.len() < 2 * batch.len() && last.len() + batch.len() <= largest)
        {
            merge_into(&mut last, &batch);
            batch = last;
        }
        self.0.push(batch);
        true
    }

    /// Returns all numbers, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flatten().copied()
    }

    /// Adds all numbers of another set and returns true, unless the sets have a number in common.
    pub(crate) fn merge(&mut self, other: Self) -> bool {
        if other.0.iter().any(|batch| self.0.iter().any(|run| intersect(run, batch))) {
            return false;
        }
        other.0.into_iter().all(|batch| self.insert(batch))
    }
}

/// Merges a sorted batch into a sorted run, in place and from the largest number down.
fn merge_into(run: &mut Vec<u64>, batch: &[u64]) {
    let (mut from, mut left) = (run.len(), batch.len());
    run.reserve_exact(left);
    run.resize(from + left, 0);
    while left > 0 {
        let next = if from > 0 && run[from - 1] > batch[left - 1] {
            from -= 1;
            run[from]
        } else {
            left -= 1;
            batch[left]
        };
        run[from + left] = next;
    }
}

/// Returns whether two sorted runs have a number in common.
fn intersect(run: &[u64], batch: &[u64]) -> bool {
    let (short, long) = if run.len() < batch.len() { (run, batch) } else { (batch, run) };
    let mut rest = long;
    short.iter().any(|x| {
        rest = &rest[rest.partition_point(|y| y < x)..];
        rest.first() == Some(x)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_fingerprint_is_detected_in_any_run() {
        let mut set = Fingerprints::default();
        for batch in 0..50u64 {
            assert!(set.insert((0..10).map(|i| (i * 7919 + batch * 104_729) << 32).collect()));
        }
        assert!(set.0.len() <= 8, "{} runs", set.0.len());
        assert!(set.0.iter().all(|run| run.is_sorted_by(|a, b| a < b)));
        assert_eq!(set.0.iter().map(Vec::len).sum::<usize>(), 500);
        assert!(!set.insert(vec![5, 5]));
        assert!(!set.insert(vec![1, (3 * 7919 + 17 * 104_729) << 32]));
        // a refused batch leaves nothing behind
        assert!(set.insert(vec![1, 5]));
        let mut other = Fingerprints::default();
        assert!(other.insert(vec![2, 3]));
        assert!(set.merge(other));
        let mut other = Fingerprints::default();
        assert!(other.insert(vec![9, 5]));
        assert!(!set.merge(other));
        assert!(set.insert(vec![9]));
    }
}
