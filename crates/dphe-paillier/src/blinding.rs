//! Noise that is made ahead of time and used once.

use core::fmt;

use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::arith::lanes::Lanes;
use crate::arith::nat::{self, Limbs};
use crate::arith::pow::{self, Exponent};
use crate::arith::units::{Canonical, Mont, N2, Number, Value};
use crate::ciphertext::Digits;
use crate::{EncryptionKey, Error, NoiseMode, Threads};

/// The noise of one ciphertext, `h_s^r` for a fresh secret `r` (or `r^n`, see [`NoiseMode`](crate::NoiseMode)). An
/// encryption consumes it. It cannot be copied, stored or sent.
pub struct Blinding {
    key: EncryptionKey,
    /// Secret: it decrypts the ciphertext that is made with it. Wiped when dropped.
    digits: Number<N2, Mont, Canonical, Lanes>,
}

impl Blinding {
    /// Returns the noise itself, for the one encryption that consumes this blinding.
    pub(crate) fn digits(&self, key: &EncryptionKey) -> Result<Digits<'_>, Error> {
        if self.key == *key { Ok(self.digits.view()) } else { Err(Error::KeyMismatch) }
    }
}

impl fmt::Debug for Blinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blinding(<redacted>)")
    }
}

impl EncryptionKey {
    /// Makes `count` blindings. The exponents are drawn from `rng` in order, so the result does not depend on
    /// the number of threads.
    pub fn blindings(&self, count: usize, rng: &mut impl CryptoRng, threads: Threads) -> Vec<Blinding> {
        self.blindings_of(self.exponent_bits(), count, rng, threads)
    }

    /// Makes blindings for ciphertexts that are decrypted at once and never leave the process, with exponents as short
    /// as those of [`NoiseMode::Fast`](crate::NoiseMode::Fast).
    ///
    /// The purpose of such a blinding is that nobody can choose or predict the number that the secret exponents are
    /// applied to. The powers of the noise base to such exponents are different modulo each factor, so a guess is right
    /// with a probability of at most 2^-224 (for keys of a supported length). The blinded number is never seen,
    /// so nobody can search for its exponent either. Such blindings must not be used to encrypt.
    pub(crate) fn hiding_blindings(&self, count: usize, rng: &mut impl CryptoRng) -> Vec<Blinding> {
        let bits = NoiseMode::Fast.exponent_bits(self.bits().get());
        self.blindings_of(bits.min(self.exponent_bits()), count, rng, Threads::ONE)
    }

    fn blindings_of(
        &self,
        bits: u32,
        count: usize,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Vec<Blinding> {
        let n = self.modulus();
        match self.noise() {
            Ok(powers) => {
                let exponents: Vec<Limbs> = (0..count).map(|_| random_bits(bits, rng)).collect();
                threads.map(count, n.lanes(), |range| {
                    let mut results: Vec<_> = range.clone().map(|_| n.number()).collect();
                    let mut targets: Vec<_> = results.iter_mut().map(Value::view_mut).collect();
                    powers.pow(n, &exponents[range], bits, &mut targets);
                    results.into_iter().map(|digits| Blinding { key: self.clone(), digits }).collect()
                })
            }
            Err(exponent) => {
                // With 128 bits more than the modulus, the remainders are uniform up to 2^-128.
                let bits = 64 * n.limbs() as u32 + 128;
                let roots: Vec<Limbs> = (0..count).map(|_| random_bits(bits, rng)).collect();
                threads.map(count, n.lanes(), |range| self.textbook_blindings(&roots[range], exponent))
            }
        }
    }

    /// Returns `r^n` modulo `n^2` for each of the numbers `r`. A random number is a unit unless it finds a factor of
    /// the modulus.
    fn textbook_blindings(&self, roots: &[Limbs], n_as_exponent: &Exponent) -> Vec<Blinding> {
        let n = self.modulus();
        let (mut plain, mut base, mut scratch) = (n.pairs(), n.pairs(), n.scratch());
        let mut all = Vec::with_capacity(roots.len());
        for roots in roots.chunks(n.lanes()) {
            let numbers: Vec<_> =
                roots.iter().map(|r| n.pair(&nat::rem(&nat::from_limbs(r), n.nat()))).collect();
            let views: Vec<_> = numbers.iter().map(Value::view).collect();
            n.gather(&mut plain, &views, n.plain_one());
            n.enter(&mut base, &plain, &mut scratch);
            let mut powers = pow::pow(n, &base, n_as_exponent, &mut scratch);
            let powers = n.take_apart(&n.canonical(&mut powers, &mut scratch), roots.len());
            all.extend(powers.into_iter().map(|digits| Blinding { key: self.clone(), digits }));
        }
        all
    }
}

/// Draws a random number of `bits` bits.
fn random_bits(bits: u32, rng: &mut impl CryptoRng) -> Limbs {
    let mut limbs = Zeroizing::new(vec![0u64; (bits as usize).div_ceil(64)]);
    limbs.iter_mut().for_each(|limb| *limb = rng.next_u64());
    if let (Some(last), 1..) = (limbs.last_mut(), bits % 64) {
        *last &= (1 << (bits % 64)) - 1;
    }
    limbs
}

/// Blindings made ahead of time. They exist in memory only.
pub struct BlindingPool {
    key: EncryptionKey,
    blindings: Vec<Blinding>,
}

impl BlindingPool {
    /// Creates an empty pool.
    pub fn new(key: &EncryptionKey) -> Self {
        Self { key: key.clone(), blindings: Vec::new() }
    }

    /// Adds `count` fresh blindings.
    pub fn refill(&mut self, count: usize, rng: &mut impl CryptoRng, threads: Threads) {
        self.blindings.extend(self.key.blindings(count, rng, threads));
    }

    /// Returns the key that the blindings are for.
    pub fn key(&self) -> &EncryptionKey {
        &self.key
    }

    /// Returns the number of blindings in the pool.
    pub fn len(&self) -> usize {
        self.blindings.len()
    }

    /// Returns whether the pool is empty.
    pub fn is_empty(&self) -> bool {
        self.blindings.is_empty()
    }

    /// Puts blindings that were made elsewhere into the pool.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`] if one of them is for another key. The pool then stays as it was.
    pub fn put(&mut self, blindings: Vec<Blinding>) -> Result<(), Error> {
        if blindings.iter().any(|blinding| blinding.key != self.key) {
            return Err(Error::KeyMismatch);
        }
        self.blindings.extend(blindings);
        Ok(())
    }

    /// Takes `count` blindings out of the pool.
    ///
    /// # Errors
    /// [`Error::PoolEmpty`] if there are fewer. The pool then keeps all of them.
    pub fn take(&mut self, count: usize) -> Result<Vec<Blinding>, Error> {
        match self.blindings.len().checked_sub(count) {
            Some(rest) => Ok(self.blindings.split_off(rest)),
            None => Err(Error::PoolEmpty { wanted: count, available: self.blindings.len() }),
        }
    }
}

impl fmt::Debug for BlindingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlindingPool({}, {} blindings)", self.key.id(), self.len())
    }
}
