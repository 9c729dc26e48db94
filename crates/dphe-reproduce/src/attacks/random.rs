//! Random supports.

use chacha20::ChaCha20Rng;
use dphe_learn::Seed;
use rand_core::{Rng as _, SeedableRng as _};

/// Draws subsets of `0..all`.
pub(super) struct Subsets {
    rng: ChaCha20Rng,
    items: Vec<u32>,
}

impl Subsets {
    pub(super) fn new(all: usize, seed: &Seed) -> Self {
        let items = (0..u32::try_from(all).unwrap_or(u32::MAX)).collect();
        Self { rng: ChaCha20Rng::from_seed(seed.to_bytes()), items }
    }

    /// Draws a uniform subset of this size. The order that earlier draws left behind does not matter.
    pub(super) fn draw(&mut self, size: usize) -> &[u32] {
        let size = size.min(self.items.len());
        for i in 0..size {
            let left = (self.items.len() - i) as u128;
            // the high half of the product has a bias below 2^-44
            let pick = ((u128::from(self.rng.next_u64()) * left) >> 64) as usize;
            self.items.swap(i, i + pick);
        }
        &self.items[..size]
    }

    /// Draws random bytes.
    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    /// Draws a nonzero number.
    pub(super) fn value(&mut self) -> f64 {
        f64::from(self.rng.next_u32() | 1) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_are_uniform_and_of_the_requested_size() {
        let mut subsets = Subsets::new(20, &Seed::new(1));
        let mut counts = [0i32; 20];
        for _ in 0..4000 {
            let mut drawn = subsets.draw(5).to_vec();
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), 5);
            drawn.iter().for_each(|&i| counts[i as usize] += 1);
        }
        // 1,000 are expected, with a tolerance of five standard deviations
        assert!(counts.iter().all(|c| (c - 1000).abs() < 5 * 28), "{counts:?}");
        assert_eq!(subsets.draw(99).len(), 20);
        assert!((0..100).all(|_| subsets.value() != 0.0));
    }
}
