//! How PRR10 releases a mean with noise without anybody learning whose noise it is.
//!
//! | step | here |
//! | --- | --- |
//! | a. who has the fewest samples | [`Smallest`], an ideal functionality: it answers as the protocol of blinded, permuted shares and secure comparisons would, and stands in for it |
//! | b. noise under encryption | [`User::contribute`]: the encrypted indicator to the power of each number of the user's noise, with fresh randomness |
//! | c. aggregation | [`aggregate`] adds up; [`open`] decrypts the sum of all weights and of the noise, and nothing else |
//!
//! Every weight costs an encryption, whatever its value: noise is never sparse.

use dphe_learn::Seed;
use dphe_learn::dataset::shares;
use dphe_paillier::{Ciphertext, DecryptionKey, EncryptionKey, Plaintext, Threads};
use rand_core::CryptoRng;

use crate::Error;

/// Numbers as integers: so many of them to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedPoint {
    /// Fractional bits.
    pub bits: u8,
}

impl FixedPoint {
    fn scale(self) -> f64 {
        2f64.powi(self.bits.into())
    }

    /// The nearest integers, of equals the even one.
    pub fn encode(self, values: &[f64]) -> Vec<i64> {
        values.iter().map(|v| (v * self.scale()).round_ties_even() as i64).collect()
    }

    /// The mean of this many users, from the sum.
    pub fn decode(self, sums: &[i64], users: usize) -> Vec<f64> {
        sums.iter().map(|&sum| sum as f64 / self.scale() / users as f64).collect()
    }
}

/// Step a, done by somebody whom everybody trusts. In: how many samples each user has. Out: to each user an encryption
/// of 1, if it has the fewest, or of 0; nobody can tell which it got. Users come in random order, and of equals the
/// first in that order is taken.
#[derive(Clone, Debug)]
pub struct Smallest {
    owner: usize,
    users: usize,
}

impl Smallest {
    /// Finds the user. The order follows from the seed.
    ///
    /// # Errors
    /// If there are no users.
    pub fn find(samples: &[usize], seed: &Seed) -> Result<Self, Error> {
        let users: Vec<usize> = (0..samples.len()).collect();
        // one share of all is all of them in random order
        let order = shares(&users, 1, &seed.derive("order of users", 0))?.swap_remove(0);
        let owner = order.into_iter().min_by_key(|&user| samples[user]).unwrap_or(0);
        Ok(Self { owner, users: samples.len() })
    }

    /// What it tells the users.
    ///
    /// # Errors
    /// None for a key.
    pub fn indicators(
        &self,
        key: &EncryptionKey,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        let bits = (0..self.users).map(|user| Plaintext::new(key, i128::from(user == self.owner)));
        Ok(key.encrypt_all(&bits.collect::<Result<Vec<_>, _>>()?, rng, threads)?)
    }

    /// Who it is: for tests, in the protocol nobody knows.
    pub fn owner(&self) -> usize {
        self.owner
    }
}

/// A user with its secrets.
#[derive(Clone)]
pub struct User {
    /// Its classifier.
    pub weights: Vec<i64>,
    /// Noise of the size that its own number of samples asks for.
    pub noise: Vec<i64>,
}

impl core::fmt::Debug for User {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("User(..)")
    }
}

impl User {
    /// Step b: weights, and noise if this is the user to give it; which the user does not know. Times depend on the
    /// noise, so this is not for use in earnest.
    ///
    /// # Errors
    /// [`Error::Paillier`] if the indicator is of another key.
    pub fn contribute(
        &self,
        indicator: &Ciphertext,
        users: usize,
        key: &EncryptionKey,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        // the mean divides by the number of users; noise is to stay as it is
        let factors: Vec<i64> = self.noise.iter().map(|noise| noise.saturating_mul(users as i64)).collect();
        let noise = key.mul_small_vartime(&vec![indicator.clone(); factors.len()], &factors, threads)?;
        let weights =
            self.weights.iter().map(|&w| Plaintext::new(key, w.into())).collect::<Result<Vec<_>, _>>()?;
        let mut sums = key.add_plain(&noise, &weights, threads)?;
        key.rerandomize(&mut sums, rng, threads)?;
        Ok(sums)
    }
}

/// Step c, at the curator: the sum of all contributions.
///
/// # Errors
/// [`Error::Paillier`] if they are of different lengths or keys.
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

/// Step c, at whoever has the key: the sum of all weights, plus the noise as many times as there are users.
///
/// # Errors
/// [`Error::Paillier`] for ciphertexts of another key, or if a sum is beyond 64 bits.
pub fn open(sums: &[Ciphertext], key: &DecryptionKey, threads: Threads) -> Result<Vec<i64>, Error> {
    let opened = key.decrypt_all(sums, threads)?;
    let numbers = opened.iter().map(|sum| sum.to_i64().ok_or(dphe_paillier::Error::Decryption));
    Ok(numbers.collect::<Result<_, _>>()?)
}
