//! Decryption with the factors of the modulus, in batches, checked before any result is returned.
//!
//! For a prime factor `p`, `c^(p-1)` modulo `p^2` is `1 + l p`, where `l` is proportional to the plaintext
//! modulo `p` ([`half`]). The results for both factors are joined by the Chinese remainder theorem. A single
//! wrong half would reveal a factor, so every batch is checked by an equation that is independent of the
//! constants used to decrypt it ([`self_check`]). Few ciphertexts leave lanes free, and are checked there
//! ([`few`]). Small numbers are packed before they are decrypted ([`packed`]).

mod few;
mod half;
mod packed;
mod self_check;

use rand_core::CryptoRng;

pub(crate) use few::Both;
pub(crate) use half::Half;

use crate::arith::nat::{self, Limbs};
use crate::{Ciphertext, DecryptionKey, Error, Plaintext, Threads, WireCiphertexts};

/// Ciphertexts that share one self-check.
const BATCH: usize = 1024;

impl DecryptionKey {
    /// Decrypts one ciphertext, after giving it fresh noise.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`] for a ciphertext of another key, [`Error::Decryption`] if the result fails the
    /// self-check.
    pub fn decrypt(&self, ciphertext: &Ciphertext, rng: &mut impl CryptoRng) -> Result<Plaintext, Error> {
        let mut all = self.decrypt_all(core::slice::from_ref(ciphertext), rng, Threads::ONE)?;
        all.pop().ok_or(Error::Decryption)
    }

    /// Decrypts a batch, after giving each ciphertext fresh noise, so that nobody can choose the numbers that
    /// the secret exponents are applied to.
    ///
    /// Every result has passed a self-check against hardware faults. If the check fails, nothing is returned.
    ///
    /// # Errors
    /// As [`DecryptionKey::decrypt`].
    pub fn decrypt_all(
        &self,
        ciphertexts: &[Ciphertext],
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Vec<Plaintext>, Error> {
        let key = self.encryption_key();
        let mut fresh = ciphertexts.to_vec();
        if self.for_few(fresh.len()).is_some() {
            key.check_ciphertexts(&fresh)?;
            key.blind(&mut fresh, &key.hiding_blindings(ciphertexts.len(), rng), Threads::ONE)?;
        } else {
            key.rerandomize(&mut fresh, rng, threads)?;
        }
        self.decrypt_unblinded(&fresh, threads)
    }

    /// Decrypts a batch that came over the wire. Otherwise the same as [`DecryptionKey::decrypt_all`].
    ///
    /// # Errors
    /// As [`DecryptionKey::decrypt`].
    pub fn decrypt_wire(
        &self,
        batch: &WireCiphertexts,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Vec<Plaintext>, Error> {
        let key = self.encryption_key();
        if batch.key() != key {
            return Err(Error::KeyMismatch);
        }
        let mut ciphertexts = batch.to_ciphertexts(threads);
        key.rerandomize(&mut ciphertexts, rng, threads)?;
        self.decrypt_unblinded(&ciphertexts, threads)
    }

    /// Decrypts a batch without giving it fresh noise. Use it only for ciphertexts that this process has made
    /// or re-randomised itself: the secret exponents are applied to exactly the numbers given.
    ///
    /// The self-check is the same as in [`DecryptionKey::decrypt_all`].
    ///
    /// # Errors
    /// As [`DecryptionKey::decrypt`].
    pub fn decrypt_unblinded(
        &self,
        ciphertexts: &[Ciphertext],
        threads: Threads,
    ) -> Result<Vec<Plaintext>, Error> {
        let key = self.encryption_key();
        key.check_ciphertexts(ciphertexts)?;
        let grain = key.modulus().lanes();
        let plaintexts = threads.map(ciphertexts.len(), grain, |range| {
            let decrypt = |batch: &[Ciphertext]| match self.for_few(batch.len()) {
                Some(both) => self.decrypt_few(both, batch),
                None => self.decrypt_batch(batch),
            };
            ciphertexts[range].chunks(BATCH).map(decrypt).collect()
        });
        let mut all = Vec::with_capacity(ciphertexts.len());
        for batch in plaintexts {
            all.extend(batch?);
        }
        Ok(all)
    }

    fn decrypt_batch(&self, ciphertexts: &[Ciphertext]) -> Result<Vec<Plaintext>, Error> {
        let n = self.encryption_key().modulus();
        // The primes are half as long, so the scratch memory of n suffices for both.
        let mut scratch = n.scratch();
        let mut plaintexts = Vec::with_capacity(ciphertexts.len());
        for group in ciphertexts.chunks(n.lanes()) {
            let digits: Vec<_> = group.iter().map(Ciphertext::digits).collect();
            let [mod_p, mod_q] = self.halves().map(|half| {
                let base = half.enter(n, &digits, &mut scratch);
                half.shares(&base, group.len(), &mut scratch)
            });
            plaintexts.extend(self.join_all(&mod_p, &mod_q));
        }
        if self.self_check(ciphertexts, &plaintexts) { Ok(plaintexts) } else { Err(Error::Decryption) }
    }

    fn halves(&self) -> [&Half; 2] {
        [&self.p, &self.q]
    }

    fn join_all(&self, mod_p: &[Limbs], mod_q: &[Limbs]) -> impl Iterator<Item = Plaintext> {
        let key = self.encryption_key();
        mod_p.iter().zip(mod_q).map(|(a, b)| Plaintext::from_residue(key, self.join(a, b)))
    }

    /// Returns `a q + b p` modulo `n`, for shares `a` below `p` and `b` below `q`.
    fn join(&self, a: &[u64], b: &[u64]) -> Limbs {
        let n = self.encryption_key().modulus();
        let a = nat::mul(&nat::from_limbs(a), self.q.prime());
        let b = nat::mul(&nat::from_limbs(b), self.p.prime());
        nat::subtract_once(&nat::limbs(&nat::add(&a, &b), n.limbs() + 1), &nat::limbs(n.nat(), n.limbs() + 1))
    }
}
