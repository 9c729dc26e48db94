//! Reproducible randomness. Everything random is a function of a seed, and different uses never share a stream.

use chacha20::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

/// The start of a random stream. Derive a new seed for every use, user and round.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed([u8; 32]);

impl Seed {
    /// Creates the seed with this number.
    pub fn new(number: u64) -> Self {
        Self([0; 32]).derive("dphe-learn", number)
    }

    /// Creates a seed from random bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Derives the seed for one use: `SHA-256(seed || length of tag || tag || number)`.
    #[must_use]
    pub fn derive(&self, tag: &str, number: u64) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0);
        // the length separates ("ab", ..) from ("a", "b..")
        hash.update((tag.len() as u64).to_le_bytes());
        hash.update(tag.as_bytes());
        hash.update(number.to_le_bytes());
        Self(hash.finalize().into())
    }

    /// Returns the bytes, for example to seed another random generator.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Returns random signs: 1 or -1, equally likely.
    pub fn signs(&self, count: usize) -> Vec<f64> {
        let mut stream = self.stream();
        (0..count).map(|_| if stream.below(2) == 0 { -1.0 } else { 1.0 }).collect()
    }

    /// Returns the random stream of this seed.
    pub(crate) fn stream(&self) -> Stream {
        Stream(ChaCha20Rng::from_seed(self.0))
    }
}

impl core::fmt::Debug for Seed {
    /// Hides the seed, because it may be a user's secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// A reproducible stream of random numbers.
pub(crate) struct Stream(ChaCha20Rng);

impl Stream {
    /// Returns a uniformly distributed number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u64;
        debug_assert!(bound > 0);
        // Lemire's method: take the high half of a product, and reject the few values that would cause bias
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.0.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as usize;
            }
        }
    }

    /// Returns a number in `[0, 1)` with 53 random bits.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a number in `(0, 1]` with 53 random bits.
    fn positive_unit(&mut self) -> f64 {
        1.0 - self.unit()
    }

    /// Returns a normally distributed number with mean 0 and deviation 1 (Marsaglia's polar method).
    fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * square.ln() / square).sqrt();
            }
        }
    }

    /// Returns the natural logarithm of a gamma distributed number with this shape and scale 1 (Marsaglia and Tsang).
    /// The number itself may be too small for a float.
    pub(crate) fn log_gamma_variate(&mut self, shape: f64) -> f64 {
        // A smaller shape is reached from one that is larger by 1.
        let boost = if shape < 1.0 { self.positive_unit().ln() / shape } else { 0.0 };
        let shape = if shape < 1.0 { shape + 1.0 } else { shape };
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.positive_unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d.ln() + v.ln() + boost;
            }
        }
    }

    /// Shuffles `items` (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_tag_and_number_and_repeat() {
        let seed = Seed::new(7);
        assert_eq!(seed.derive("order", 1), seed.derive("order", 1));
        assert_ne!(seed.derive("order", 1), seed.derive("order", 2));
        assert_ne!(seed.derive("order", 1), seed.derive("split", 1));
        assert_eq!(format!("{seed:?}"), "Seed(..)");
        assert_eq!(Seed::from_bytes(seed.to_bytes()), seed);
    }

    #[test]
    fn every_permutation_of_three_is_equally_likely() {
        let mut counts = std::collections::BTreeMap::new();
        let mut stream = Seed::new(1).stream();
        for _ in 0..6000 {
            let mut items = [0, 1, 2];
            stream.shuffle(&mut items);
            *counts.entry(items).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        // five standard deviations of a binomial count
        assert!(counts.values().all(|c| (1000i32 - c).abs() < 5 * 29), "{counts:?}");
    }

    #[test]
    fn unit_numbers_lie_in_zero_to_one() {
        let mut stream = Seed::new(2).stream();
        let mean =
            (0..10_000).map(|_| stream.unit()).inspect(|u| assert!((0.0..1.0).contains(u))).sum::<f64>()
                / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn gamma_numbers_have_the_mean_and_variance_of_their_shape() {
        for shape in [0.3, 1.0, 4.5] {
            let mut stream = Seed::new(4).stream();
            let numbers: Vec<f64> = (0..20_000).map(|_| stream.log_gamma_variate(shape).exp()).collect();
            let mean = numbers.iter().sum::<f64>() / 20_000.0;
            let variance = numbers.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 20_000.0;
            // Both are equal to the shape.
            assert!((mean / shape - 1.0).abs() < 0.06, "{shape}: {mean}");
            assert!((variance / shape - 1.0).abs() < 0.15, "{shape}: {variance}");
        }
    }
}
