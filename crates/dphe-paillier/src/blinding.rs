//! Noise, made when there is time and used once.

use core::fmt;

use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::arith::nat::Limbs;
use crate::{EncryptionKey, Error, Threads};

/// The noise of one ciphertext, `h_s^r` for a fresh secret `r`. Using it consumes it; it cannot be
/// copied, stored or sent.
pub struct Blinding {
    key: EncryptionKey,
    /// A canonical pair in Montgomery form. Whoever knows it can read the ciphertext made with it.
    digits: Limbs,
}

impl Blinding {
    /// The noise itself, for the one encryption that consumes this.
    pub(crate) fn digits(&self, key: &EncryptionKey) -> Result<&[u64], Error> {
        if self.key == *key { Ok(&self.digits) } else { Err(Error::KeyMismatch) }
    }
}

impl fmt::Debug for Blinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blinding(<redacted>)")
    }
}

impl EncryptionKey {
    /// Makes `count` blindings. The exponents are drawn from `rng` in order, so the result does not depend
    /// on the number of threads.
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
            let mut results: Vec<Limbs> =
                range.clone().map(|_| Zeroizing::new(vec![0; n.pair_words()])).collect();
            noise.pow(n, &exponents[range], &mut results.iter_mut().map(|r| &mut r[..]).collect::<Vec<_>>());
            results.into_iter().map(|digits| Blinding { key: self.clone(), digits }).collect()
        })
    }
}

/// Blindings made ahead of time. They live in memory only; taking them moves them out.
pub struct BlindingPool {
    key: EncryptionKey,
    blindings: Vec<Blinding>,
}

impl BlindingPool {
    /// An empty pool.
    pub fn new(key: &EncryptionKey) -> Self {
        Self { key: key.clone(), blindings: Vec::new() }
    }

    /// Adds `count` fresh blindings.
    pub fn refill(&mut self, count: usize, rng: &mut impl CryptoRng, threads: Threads) {
        self.blindings.extend(self.key.blindings(count, rng, threads));
    }

    /// The key they are for.
    pub fn key(&self) -> &EncryptionKey {
        &self.key
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.blindings.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blindings.is_empty()
    }

    /// Takes `count` of them, all or none.
    ///
    /// # Errors
    /// [`Error::PoolEmpty`] if there are fewer; the pool keeps them.
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
