//! The check that every batch of plaintexts passes before it is returned.

use rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::arith::multi_pow::multi_pow_vartime;
use crate::arith::nat;
use crate::{Ciphertext, DecryptionKey, Plaintext, Threads};

impl DecryptionKey {
    /// Checks `prod c_i^rho_i = Enc(sum rho_i m_i)` for 64-bit coefficients. A wrong plaintext passes with
    /// probability 2^-64.
    ///
    /// The coefficients depend on the whole batch and on the key, so using them in variable time reveals
    /// nothing. The right-hand side is never decrypted. Instead, the quotient is tested for being an
    /// encryption of zero, which involves none of the constants that turn logarithms into plaintexts.
    pub(super) fn self_check(&self, ciphertexts: &[Ciphertext], plaintexts: &[Plaintext]) -> bool {
        let key = self.encryption_key();
        let n = key.modulus();
        let mut hash = Sha256::new();
        hash.update(b"dphe/paillier/self-check/v1");
        hash.update(&*nat::to_be_bytes(self.p.prime(), key.modulus_bytes()));
        for (c, m) in ciphertexts.iter().zip(plaintexts) {
            c.digits().digits().iter().chain(m.residue()).for_each(|word| hash.update(word.to_be_bytes()));
        }
        let mut rng = chacha20::ChaCha20Rng::from_seed(hash.finalize().into());
        let coefficients: Vec<u64> = ciphertexts.iter().map(|_| rng.next_u64()).collect();
        let bases: Vec<_> = ciphertexts.iter().map(|c| c.digits().loose()).collect();
        let product = multi_pow_vartime(n, &bases, &coefficients, 64);

        // Every term is below 2^64 n. Two limbs more than n hold the sum of any batch.
        let mut total = Zeroizing::new(vec![0; n.limbs() + 2]);
        for (&rho, m) in coefficients.iter().zip(plaintexts) {
            nat::add_multiple(&mut total, rho, m.residue());
        }
        let total = nat::rem(&nat::from_limbs(&total), n.nat());
        let minus = nat::rem(&nat::sub(n.nat(), &total), n.nat());
        let minus = Plaintext::from_residue(key, nat::limbs(&minus, n.limbs()));
        let product = Ciphertext::from_digits(key, product.view().boxed());
        let Ok(zero) = key.add_plain(&[product], &[minus], Threads::ONE) else { return false };
        let mut scratch = n.scratch();
        zero.iter().all(|zero| {
            let [mod_p, mod_q] = self.halves().map(|half| {
                let base = half.enter(n, &[zero.digits()], &mut scratch);
                half.encrypts_zero(&base, &mut scratch)
            });
            mod_p & mod_q
        })
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;
    use crate::{Error, KeyBits, NoiseMode};

    /// A hardware fault can damage one half of one plaintext, or a constant that all decryptions use.
    #[test]
    fn decryption_faults_fail_the_self_check() {
        let mut rng = chacha20::ChaCha20Rng::seed_from_u64(1);
        let bits = KeyBits::insecure(512).unwrap();
        let mut secret = DecryptionKey::generate(bits, NoiseMode::Secure, &mut rng, Threads::ONE).unwrap();
        let key = secret.encryption_key().clone();
        let n = key.modulus();
        let plaintexts: Vec<_> = (0..20).map(|m| Plaintext::new(&key, m - 10).unwrap()).collect();
        let ciphertexts = key.encrypt_all(&plaintexts, &mut rng, Threads::ONE).unwrap();
        assert!(secret.self_check(&ciphertexts, &plaintexts));

        for wrong in [0, 7, 19] {
            // right modulo p, wrong modulo q: the difference would reveal p
            let mut faulty = plaintexts.clone();
            let shifted = nat::add(&nat::from_limbs(faulty[wrong].residue()), secret.p.prime());
            faulty[wrong] =
                Plaintext::from_residue(&key, nat::limbs(&nat::rem(&shifted, n.nat()), n.limbs()));
            assert!(!secret.self_check(&ciphertexts, &faulty), "plaintext {wrong}");
        }

        for i in 0..3 {
            secret.p.damage(i);
            let opened = secret.decrypt_unblinded(&ciphertexts, Threads::ONE);
            assert_eq!(opened.unwrap_err(), Error::Decryption, "constant {i}");
            secret.p.damage(i);
        }
        assert_eq!(secret.decrypt_unblinded(&ciphertexts, Threads::ONE).unwrap(), plaintexts);
    }
}
