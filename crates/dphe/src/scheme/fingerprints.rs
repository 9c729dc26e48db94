//! Detects repeated noise in a round by twelve bytes per ciphertext. No user knows the noise of another, so no user can
//! cause a false alarm on purpose. By chance, n ciphertexts cause one with probability n² / 2^97, which is 10^-11 for
//! the largest round that a policy allows.

/// The low 96 bits of `c` modulo `n`, in three words, which take no more memory than twelve bytes.
pub(crate) type Fingerprint = [u32; 3];

/// The length of a fingerprint in bytes.
pub(crate) const FINGERPRINT_BYTES: usize = 12;

/// Returns the fingerprint of a ciphertext, given the low bits of `c` modulo `n`.
pub(crate) fn fingerprint(bits: u128) -> Fingerprint {
    [(bits >> 64) as u32, (bits >> 32) as u32, bits as u32]
}

/// Returns a fingerprint as bytes.
pub(crate) fn to_bytes(fingerprint: Fingerprint) -> [u8; FINGERPRINT_BYTES] {
    let mut bytes = [0; FINGERPRINT_BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(4).zip(fingerprint) {
        chunk.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// Reads a fingerprint from bytes.
pub(crate) fn from_bytes(bytes: &[u8; FINGERPRINT_BYTES]) -> Fingerprint {
    let (words, _) = bytes.as_chunks();
    [0, 1, 2].map(|i| words.get(i).map_or(0, |word| u32::from_be_bytes(*word)))
}

/// A set of fingerprints that grows by batches. It consists of sorted runs, each at least twice as long as the next, so
/// that a batch costs a few binary searches per element and no memory besides the fingerprints. Runs stop growing at a
/// sixteenth of the set, because merging two runs needs as much memory again as both have.
#[derive(Debug, Default)]
pub(crate) struct Fingerprints(Vec<Vec<Fingerprint>>);

/// Runs of up to 384 kB are always merged.
const SMALL: usize = 1 << 15;

impl Fingerprints {
    /// Adds a batch and returns true, unless the batch repeats a fingerprint of its own or of the set.
    pub(crate) fn insert(&mut self, mut batch: Vec<Fingerprint>) -> bool {
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

    /// Returns all fingerprints, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Fingerprint> {
        self.0.iter().flatten().copied()
    }

    /// Adds all fingerprints of another set and returns true, unless the sets have one in common.
    pub(crate) fn merge(&mut self, other: Self) -> bool {
        if other.0.iter().any(|batch| self.0.iter().any(|run| intersect(run, batch))) {
            return false;
        }
        other.0.into_iter().all(|batch| self.insert(batch))
    }
}

/// Merges a sorted batch into a sorted run, in place and from the largest fingerprint down.
fn merge_into(run: &mut Vec<Fingerprint>, batch: &[Fingerprint]) {
    let (mut from, mut left) = (run.len(), batch.len());
    run.reserve_exact(left);
    run.resize(from + left, [0; 3]);
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

/// Returns whether two sorted runs have a fingerprint in common.
fn intersect(run: &[Fingerprint], batch: &[Fingerprint]) -> bool {
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

    fn all(numbers: impl IntoIterator<Item = u64>) -> Vec<Fingerprint> {
        numbers.into_iter().map(|number| fingerprint(number.into())).collect()
    }

    #[test]
    fn fingerprint_has_96_bits() {
        let bits = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff;
        assert_eq!(from_bytes(&to_bytes(fingerprint(bits))), fingerprint(bits));
        assert_eq!(to_bytes(fingerprint(bits)), bits.to_be_bytes()[4..]);
        // two ciphertexts that agree in 64 bits only are different
        let mut set = Fingerprints::default();
        assert!(set.insert(vec![fingerprint(bits)]) && set.insert(vec![fingerprint(bits ^ 1 << 64)]));
        assert!(
            set.insert(vec![fingerprint(bits ^ 1 << 95)]) && !set.insert(vec![fingerprint(bits ^ 1 << 96)])
        );
    }

    #[test]
    fn repeated_fingerprint_is_detected_in_any_run() {
        let mut set = Fingerprints::default();
        for batch in 0..50u64 {
            assert!(set.insert(all((0..10).map(|i| (i * 7919 + batch * 104_729) << 32))));
        }
        assert!(set.0.len() <= 8, "{} runs", set.0.len());
        assert!(set.0.iter().all(|run| run.is_sorted_by(|a, b| a < b)));
        assert_eq!(set.0.iter().map(Vec::len).sum::<usize>(), 500);
        assert!(!set.insert(all([5, 5])));
        assert!(!set.insert(all([1, (3 * 7919 + 17 * 104_729) << 32])));
        // a refused batch leaves nothing behind
        assert!(set.insert(all([1, 5])));
        let mut other = Fingerprints::default();
        assert!(other.insert(all([2, 3])));
        assert!(set.merge(other));
        let mut other = Fingerprints::default();
        assert!(other.insert(all([9, 5])));
        assert!(!set.merge(other));
        assert!(set.insert(all([9])));
    }
}
