//! The secret key.

use core::fmt;
use core::ops::ControlFlow;

use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::{EncryptionKey, KeyBits, NoiseMode};
use crate::arith::backend::Backend;
use crate::arith::nat::{self, Nat};
use crate::arith::prime::{self, Progress};
use crate::decrypt::{Both, Half};
use crate::{Error, Threads};

/// The factors of a key of `b` bits differ by at least `2^(b/2 - 100)`, in the spirit of FIPS 186-5, because
/// close factors can be found from their product. Keys for tests are too short for this rule.
const FACTOR_DISTANCE: u32 = 100;

/// A secret key: the factors of the modulus, and precomputed values for fast decryption.
///
/// It is wiped when dropped, prints nothing, cannot be cloned, and leaves memory only through
/// [`DecryptionKey::to_encrypted_bytes`].
pub struct DecryptionKey {
    encryption: EncryptionKey,
    pub(crate) p: Half,
    pub(crate) q: Half,
    /// Both factors side by side, on back ends with lanes.
    pub(crate) both: Option<Both>,
}

impl DecryptionKey {
    /// Generates a key. Both primes come from a search that is seeded by `rng`. They do not depend on the
    /// number of threads.
    ///
    /// # Errors
    /// None, given a working random generator.
    pub fn generate(
        bits: KeyBits,
        mode: NoiseMode,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Self, Error> {
        Self::generate_with_progress(bits, mode, rng, threads, &|_| ControlFlow::Continue(()))
    }

    /// Generates a key and reports the progress of the search. Otherwise the same as
    /// [`DecryptionKey::generate`]. `progress` is called many times per second, from all threads, and breaks the search
    /// off by its answer.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if `progress` breaks the search off.
    pub fn generate_with_progress(
        bits: KeyBits,
        mode: NoiseMode,
        rng: &mut impl CryptoRng,
        threads: Threads,
        progress: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
    ) -> Result<Self, Error> {
        let mut seed = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut seed[..]);
        // The primes are half as long, so a faster back end may support them.
        let backend = Backend::for_key(bits.get() / 2);
        let (p, q) = prime::two_safe_primes(bits.get() / 2, &seed, backend, threads.get(), progress)
            .ok_or(Error::Cancelled)?;
        Self::from_factors(&p, &q, bits, mode)
    }

    /// Creates the key with these factors, which are known to be safe primes.
    pub(crate) fn from_factors(p: &Nat, q: &Nat, bits: KeyBits, mode: NoiseMode) -> Result<Self, Error> {
        let n = nat::mul(p, q);
        let half = bits.get() / 2;
        let shape = [p, q].iter().all(|x| x.is_odd() && x.bits() == half) && n.bits() == bits.get();
        if !shape || nat::distance(p, q).bits() <= half.saturating_sub(FACTOR_DISTANCE) {
            return Err(Error::KeyFactors);
        }
        let encryption = EncryptionKey::unchecked(&n, bits, mode)?;
        let prepare = |p: &Nat, q: &Nat| Half::new(p, q, encryption.modulus()).ok_or(Error::KeyFactors);
        let (p, q) = (prepare(p, q)?, prepare(q, p)?);
        let both = Both::new(&p, &q);
        Ok(Self { encryption, p, q, both })
    }

    /// Returns the public key.
    pub fn encryption_key(&self) -> &EncryptionKey {
        &self.encryption
    }
}

impl fmt::Debug for DecryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DecryptionKey({}, <redacted>)", self.encryption.id())
    }
}
