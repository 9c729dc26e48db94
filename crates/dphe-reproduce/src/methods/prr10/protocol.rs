//! The protocol by which PRR10 releases a mean with the noise of one user, without revealing which user.
//!
//! | step | here |
//! | --- | --- |
//! | a. find the user with the fewest samples | [`FewestSamples`], an ideal functionality in place of the protocol of blinded, permuted shares and secure comparisons |
//! | b. select noise under encryption | [`Prr10User::contribute`]: the encrypted indicator to the power of each number of the user's noise, with fresh randomness |
//! | c. aggregate | [`aggregate`] adds ciphertexts, [`open`] decrypts only the sum of all weights and the noise |
//!
//! Noise is never sparse, so every weight costs an encryption.

use dphe_learn::Seed;
use dphe_learn::dataset::shares;
use dphe_paillier::{Ciphertext, DecryptionKey, EncryptionKey, Plaintext, Threads};
use rand_core::CryptoRng;

use crate::Error;

/// An encoding of numbers as integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prr10FixedPoint {
    /// The number of fractional bits.
    pub bits: u8,
}

impl Prr10FixedPoint {
    fn scale(self) -> f64 {
        2f64.powi(self.bits.into())
    }

    /// Rounds to the nearest integers, ties to even.
    pub fn encode(self, values: &[f64]) -> Vec<i64> {
        values.iter().map(|v| (v * self.scale()).round_ties_even() as i64).collect()
    }

    /// Returns the mean over this many users from the sum.
    pub fn decode(self, sums: &[i64], users: usize) -> Vec<f64> {
        sums.iter().map(|&sum| sum as f64 / self.scale() / users as f64).collect()
    }
}

/// Step a as an ideal functionality. From the users' numbers of samples, it gives each user an encryption of 1 if it
/// has the fewest, and of 0 otherwise. Users cannot tell the two apart. Ties are broken by a random order of users.
#[derive(Clone, Debug)]
pub struct FewestSamples {
    owner: usize,
    users: usize,
}

impl FewestSamples {
    /// Finds the user. The order of users follows from the seed.
    ///
    /// # Errors
    /// Returns an error if there are no users.
    pub fn find(samples: &[usize], seed: &Seed) -> Result<Self, Error> {
        let users: Vec<usize> = (0..samples.len()).collect();
        // a single share holds all users in random order
        let order = shares(&users, 1, &seed.derive("order of users", 0))?.swap_remove(0);
        let owner = order.into_iter().min_by_key(|&user| samples[user]).unwrap_or(0);
        Ok(Self { owner, users: samples.len() })
    }

    /// Returns the encrypted indicators for the users.
    ///
    /// # Errors
    /// Returns no error for a valid key.
    pub fn indicators(
        &self,
        key: &EncryptionKey,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        let bits = (0..self.users).map(|user| Plaintext::new(key, i128::from(user == self.owner)));
        Ok(key.encrypt_all(&bits.collect::<Result<Vec<_>, _>>()?, rng, threads)?)
    }

    /// Returns the user with the fewest samples. This is for tests: no party of the protocol learns it.
    pub fn owner(&self) -> usize {
        self.owner
    }
}

/// A user with its secret weights and noise.
#[derive(Clone)]
pub struct Prr10User {
    /// The weights of its classifier.
    pub weights: Vec<i64>,
    /// Noise of the scale that its own number of samples needs.
    pub noise: Vec<i64>,
}

impl core::fmt::Debug for Prr10User {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Prr10User(..)")
    }
}

impl Prr10User {
    /// Step b: returns the encrypted weights, plus the noise if the indicator is 1. The user cannot tell whether it is.
    /// The running time depends on the noise, so this is not safe for real use.
    ///
    /// # Errors
    /// Returns [`Error::Paillier`] if the indicator belongs to another key.
    pub fn contribute(
        &self,
        indicator: &Ciphertext,
        users: usize,
        key: &EncryptionKey,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        // the mean divides by the number of users, which must not scale the noise
        let factors: Vec<i64> = self.noise.iter().map(|noise| noise.saturating_mul(users as i64)).collect();
        let noise = key.mul_small_vartime(&vec![indicator.clone(); factors.len()], &factors, threads)?;
        let weights =
            self.weights.iter().map(|&w| Plaintext::new(key, w.into())).collect::<Result<Vec<_>, _>>()?;
        let mut sums = key.add_plain(&noise, &weights, threads)?;
        key.rerandomize(&mut sums, rng, threads)?;
        Ok(sums)
    }
}

/// Step c, by the curator: adds all contributions.
///
/// # Errors
/// Returns [`Error::Paillier`] if the contributions differ in length or key.
pub fn aggregate(
    contributions: &[Vec<Ciphertext>],
    key: &EncryptionKey,
    threads: Threads,
) -> Result<Vec<Ciphertext>, Error> {
    let Some((first, rest)) = contributions.split_first() else { return Ok(Vec::new()) };
    let mut sums = first.clone();
    for contribution in rest {
        key.add_assign(&mut sums, contribution, threads)?;
    }
    Ok(sums)
}

/// Step c, by the holder of the key: decrypts the sum of all weights plus the noise times the number of users.
///
/// # Errors
/// Returns [`Error::Paillier`] for ciphertexts of another key, or if a sum does not fit 64 bits.
pub fn open(sums: &[Ciphertext], key: &DecryptionKey, threads: Threads) -> Result<Vec<i64>, Error> {
    let opened = key.decrypt_unblinded(sums, threads)?;
    let numbers = opened.iter().map(|sum| sum.to_i64().ok_or(dphe_paillier::Error::Decryption));
    Ok(numbers.collect::<Result<_, _>>()?)
}
