//! A pool of keys. Finding safe primes takes seconds, and experiments need the same key many times.

use std::sync::{Mutex, PoisonError};

use chacha20::ChaCha20Rng;
use dphe_learn::Seed;
use dphe_paillier::{DecryptionKey, KeyBits, NoiseMode, Threads};
use rand_core::SeedableRng;

use crate::Error;

/// The keys that are not in use. They are derived from a fixed seed, so they protect nothing.
#[derive(Default)]
pub struct Keys(Mutex<Vec<DecryptionKey>>);

impl Keys {
    /// Takes a key of this length and mode, or generates one.
    ///
    /// # Errors
    /// Returns an error if no key can be generated.
    pub fn take(&self, bits: KeyBits, mode: NoiseMode, threads: Threads) -> Result<DecryptionKey, Error> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits =
            |key: &DecryptionKey| key.encryption_key().bits() == bits && key.encryption_key().mode() == mode;
        if let Some(found) = free.iter().position(fits) {
            return Ok(free.swap_remove(found));
        }
        drop(free);
        let seed = Seed::new(0).derive("key of an experiment", bits.get().into());
        let mut rng = ChaCha20Rng::from_seed(seed.to_bytes());
        Ok(DecryptionKey::generate(bits, mode, &mut rng, threads)?)
    }

    /// Returns a key to the pool.
    pub fn put(&self, key: DecryptionKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(key);
    }
}

impl core::fmt::Debug for Keys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Keys(..)")
    }
}
