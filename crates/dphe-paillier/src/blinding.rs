//! Noise that is made ahead of time and used once.

use core::fmt;

use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::arith::lanes::Lanes;
use crate::arith::nat::Limbs;
use crate::arith::units::{Canonical, Mont, N2, Number, Value};
use crate::ciphertext::Digits;
use crate::{EncryptionKey, Error, Threads};

/// The noise of one ciphertext, `h_s^r` for a fresh secret `r`. An encryption consumes it. It cannot be
/// copied, stored or sent.
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
        let bits = self.exponent_bits();
        let exponents: Vec<Limbs> = (0..count)
            .map(|_| {
                let mut limbs = Zeroizing::new(vec![0u64; (bits as usize).div_ceil(64)]);
                limbs.iter_mut().for_each(|limb| *limb = rng.next_u64());
                if let (Some(last), 1..) = (limbs.last_mut(), bits % 64) {
                    *last &= (1 << (bits % 64)) - 1;
                }
                limbs
            })
            .collect();
        let n = self.modulus();
        let noise = self.noise();
        threads.map(count, n.lanes(), |range| {
            let mut results: Vec<_> = range.clone().map(|_| n.number()).collect();
            noise.pow(n, &exponents[range], &mut results.iter_mut().map(Value::view_mut).collect::<Vec<_>>());
            results.into_iter().map(|digits| Blinding { key: self.clone(), digits }).collect()
        })
    }
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
