//! Decryption of few ciphertexts, which leave lanes of the back end free. The free lanes check the others in the same
//! pass, so that a single decryption costs half of a decryption and a separate check.
//!
//! For each ciphertext `c`, another lane holds `c^k` for an unpredictable `k`. Two equations must hold for each factor
//! `p`: the logarithm of `c^k` is `k` times that of `c`, and the logarithm of `c` is `-m q` modulo `p` for the
//! plaintext `m`. The first fails if a ciphertext was damaged on its way to the factor, because the damage is not multiplied by
//! `k`. The second fails if the plaintext was damaged on its way back. Both compare whole numbers, and neither uses the
//! constants that turn logarithms into plaintexts.

use rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::half::Half;
use crate::arith::nat::{self, Limbs};
use crate::{Ciphertext, DecryptionKey, Error, Plaintext, Threads};

/// The two halves of `c^(p-1)` for the ciphertexts of a group.
type Powers = Vec<[Limbs; 2]>;

impl DecryptionKey {
    /// Returns whether a batch leaves enough lanes free to be checked in the same pass.
    pub(super) fn is_few(&self, count: usize) -> bool {
        (1..=self.encryption_key().modulus().lanes() / 2).contains(&count)
    }

    /// Decrypts a batch that [`DecryptionKey::is_few`] accepts.
    pub(super) fn decrypt_few(&self, ciphertexts: &[Ciphertext]) -> Result<Vec<Plaintext>, Error> {
        let key = self.encryption_key();
        let (n, count) = (key.modulus(), ciphertexts.len());
        let factors = self.check_factors(ciphertexts);
        let multiples = key.mul_small_vartime(ciphertexts, &factors, Threads::ONE)?;
        let digits: Vec<_> = ciphertexts.iter().chain(&multiples).map(Ciphertext::digits).collect();
        // The primes are half as long, so the scratch memory of n suffices for both.
        let mut scratch = n.scratch();
        let [(mod_p, powers_p), (mod_q, powers_q)] = self.halves().map(|half| {
            let base = half.enter(n, &digits, &mut scratch);
            half.shares_and_powers(&base, count, &mut scratch)
        });
        let plaintexts: Vec<_> = self.join_all(&mod_p, &mod_q).collect();
        let right = check(&self.p, &self.q, &powers_p, &plaintexts, &factors)
            & check(&self.q, &self.p, &powers_q, &plaintexts, &factors);
        if right { Ok(plaintexts) } else { Err(Error::Decryption) }
    }

    /// Returns a factor between `2^32` and `2^33` for each ciphertext. They depend on the batch and on the key, so
    /// using them in variable time reveals nothing.
    fn check_factors(&self, ciphertexts: &[Ciphertext]) -> Vec<i64> {
        let mut hash = Sha256::new();
        hash.update(b"dphe/paillier/few-check/v1");
        hash.update(&*nat::to_be_bytes(self.p.prime(), self.encryption_key().modulus_bytes()));
        for c in ciphertexts {
            c.digits().digits().iter().for_each(|word| hash.update(word.to_be_bytes()));
        }
        let mut rng = chacha20::ChaCha20Rng::from_seed(hash.finalize().into());
        ciphertexts.iter().map(|_| (1 << 32) + i64::from(rng.next_u32())).collect()
    }
}

/// Checks the powers of one factor `p` of `n = p q` against plaintexts, and against the powers of multiples, which
/// follow those of the ciphertexts.
fn check(p: &Half, q: &Half, powers: &Powers, plaintexts: &[Plaintext], factors: &[i64]) -> bool {
    let (p, q) = (p.prime(), q.prime());
    let limbs = (p.bits() as usize).div_ceil(64);
    let mut one = Zeroizing::new(vec![0; limbs]);
    one[0] = 1;
    let modulo_p = |x: &nat::Nat| nat::limbs(&nat::rem(x, p), limbs);
    let (own, multiples) = powers.split_at(plaintexts.len());
    // No early exit, because the numbers are secret.
    let mut difference = 0;
    for (i, m) in plaintexts.iter().enumerate() {
        let [[lower, logarithm], [multiple_lower, multiple_logarithm]] = [&own[i], &multiples[i]];
        let times_q = modulo_p(&nat::mul(&nat::from_limbs(m.residue()), q));
        let sum = nat::add(&nat::from_limbs(&times_q), &nat::from_limbs(logarithm));
        let times_factor = nat::mul(&nat::from_limbs(logarithm), &nat::small(factors[i].unsigned_abs()));
        difference |= differs(&modulo_p(&sum), &vec![0; limbs]);
        difference |= differs(&modulo_p(&times_factor), multiple_logarithm);
        difference |= differs(lower, &one) | differs(multiple_lower, &one);
    }
    core::hint::black_box(difference) == 0
}

/// Returns 0 if two numbers of one length are equal.
fn differs(x: &[u64], y: &[u64]) -> u64 {
    x.iter().zip(y).fold((x.len() ^ y.len()) as u64, |all, (x, y)| all | (x ^ y))
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;
    use crate::arith::backend::Backend;
    use crate::{KeyBits, NoiseMode};

    /// Few ciphertexts decrypt to what many do, and every damaged constant fails the check.
    #[test]
    fn faults_in_few_decryptions_fail_the_check() {
        let mut rng = chacha20::ChaCha20Rng::seed_from_u64(3);
        let bits = KeyBits::insecure(512).unwrap();
        let mut secret = DecryptionKey::generate(bits, NoiseMode::Secure, &mut rng, Threads::ONE).unwrap();
        let key = secret.encryption_key().clone();
        let plaintexts: Vec<_> = [-7, 0, 1, i128::MAX].map(|m| Plaintext::new(&key, m).unwrap()).into();
        let ciphertexts = key.encrypt_all(&plaintexts, &mut rng, Threads::ONE).unwrap();
        if Backend::active().lanes() == 1 {
            assert!(!secret.is_few(1));
            return;
        }
        for count in 1..=key.modulus().lanes() / 2 {
            let count = count.min(ciphertexts.len());
            let few = secret.decrypt_few(&ciphertexts[..count]).unwrap();
            assert_eq!(few, secret.decrypt_batch(&ciphertexts[..count]).unwrap());
            assert_eq!(few, plaintexts[..count]);
            assert_eq!(secret.decrypt_all(&ciphertexts[..count], &mut rng, Threads::ONE).unwrap(), few);
        }
        for i in 0..3 {
            secret.p.damage(i);
            let opened = secret.decrypt_few(&ciphertexts[..1]);
            assert_eq!(opened.unwrap_err(), Error::Decryption, "constant {i} of p");
            secret.p.damage(i);
            secret.q.damage(i);
            let opened = secret.decrypt_few(&ciphertexts[..2]);
            assert_eq!(opened.unwrap_err(), Error::Decryption, "constant {i} of q");
            secret.q.damage(i);
        }
        assert_eq!(secret.decrypt_few(&ciphertexts[..2]).unwrap(), plaintexts[..2]);
    }
}
