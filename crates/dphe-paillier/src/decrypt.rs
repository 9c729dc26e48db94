//! Decryption by the factors, in batches, checked before anything is let out.
//!
//! For a prime factor `p`, `c^(p-1)` modulo `p^2` is `1 + l p` with `l` proportional to the plaintext
//! modulo `p`. Both factors are used and the halves joined by the Chinese remainder theorem. A single
//! wrong half would give a factor away, so a batch is checked by an equation that is independent of the
//! constants used to decrypt it.

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::arith::lanes::Lanes;
use crate::arith::modulus::{Modulus, Ring, Scratch};
use crate::arith::multi_pow::multi_pow_vartime;
use crate::arith::nat::{self, Limbs, Nat};
use crate::arith::pow::{self, Exponent};
use crate::{Ciphertext, DecryptionKey, Error, Plaintext, Threads};

/// Ciphertexts that share one self-check.
const BATCH: usize = 1024;

/// What is known about one factor.
pub(crate) struct Half {
    modulus: Modulus,
    /// `p - 1`
    exponent: Exponent,
    /// Brings a ciphertext from the Montgomery form of `n` to that of `p`: a pair.
    enter: Lanes,
    /// `q R^2` modulo `p`: moves the upper half of a ciphertext from base `n` to base `p`.
    cofactor: Lanes,
    /// `(-q)^-1 q^-1 R` modulo `p`: from the logarithm to this factor's share of the plaintext.
    scale: Lanes,
    /// `q`, which joins the share to the other factor's.
    other: Nat,
}

impl Half {
    /// Prepares the prime `p` of `n = p q`; `None` if `q` has no inverse modulo `p`.
    pub(crate) fn new(p: &Nat, q: &Nat, n: &Modulus) -> Option<Self> {
        let modulus = Modulus::new(p, n.backend());
        let digit_bits = n.backend().digit_bits();
        let r = nat::power_of_two(digit_bits * modulus.residue_words() as u32);
        let r_n = nat::power_of_two(digit_bits * n.residue_words() as u32);
        let p_squared = nat::mul(p, p);
        let r_cubed = nat::mul(&nat::mul(&r, &r), &r);
        let enter = nat::mul(&nat::rem(&r_cubed, &p_squared), &nat::invert(&r_n, &p_squared)?);
        let cofactor = nat::rem(&nat::mul(q, &nat::mul(&r, &r)), p);
        // With g = 1 + n, the logarithm of g is -q modulo p.
        let inverse = nat::invert(q, p)?;
        let square = nat::rem(&nat::mul(&inverse, &inverse), p);
        let scale = nat::rem(&nat::mul(&nat::sub(p, &square), &r), p);
        let exponent = Exponent::new(&nat::sub(p, &nat::small(1)), modulus.bits());
        Some(Self {
            enter: modulus.pair_digits(&enter),
            cofactor: modulus.residue_digits(&cofactor),
            scale: modulus.residue_digits(&scale),
            exponent,
            modulus,
            other: q.clone(),
        })
    }

    /// The prime.
    pub(crate) fn prime(&self) -> &Nat {
        self.modulus.nat()
    }

    /// `c^(p-1)` modulo `p^2` for a group of ciphertexts: canonical pairs, not in Montgomery form.
    fn log(&self, n: &Modulus, group: &[&[u64]], scratch: &mut Scratch) -> Lanes {
        let p = &self.modulus;
        let wide = |from: usize| -> Lanes {
            // a half of each ciphertext, in twice the digits of p
            let mut padded: Vec<Lanes> = Vec::with_capacity(group.len());
            for c in group {
                let mut digits = Lanes::zeros(p.pair_words());
                digits[..n.residue_words()].copy_from_slice(&c[from..from + n.residue_words()]);
                padded.push(digits);
            }
            let mut lanes = p.pairs();
            p.gather(&mut lanes, &padded.iter().map(|d| &**d).collect::<Vec<_>>(), p.one());
            lanes
        };
        let half = p.residues().len();
        let (mut lower, mut upper) = (wide(0), wide(n.residue_words()));
        let mut z = p.pairs();
        // c = c0 + c1 q p: the upper half first, times q, modulo p
        let mut nothing = p.pairs();
        p.reduce_pair(&mut z, &mut upper, &mut nothing, scratch);
        let mut upper = p.pairs();
        p.mul(&mut upper[..half], &z[..half], &p.broadcast(&self.cofactor), scratch);
        p.reduce_pair(&mut z, &mut lower, &mut upper, scratch);
        let mut base = p.pairs();
        p.mul_pair(&mut base, &z, &p.broadcast(&self.enter), scratch);
        let power = pow::pow(p, Ring::ModNSquared, &base, &self.exponent, scratch);
        // multiplying by a plain one leaves Montgomery form
        let mut one = Lanes::zeros(p.pair_words());
        one[0] = 1;
        p.mul_pair(&mut z, &power, &p.broadcast(&one), scratch);
        p.canonical_pair(&mut z, scratch);
        z
    }

    /// This factor's shares of the plaintexts: `m q^-1` modulo `p`, as limbs.
    fn shares(&self, n: &Modulus, group: &[&[u64]], scratch: &mut Scratch) -> Vec<Limbs> {
        let p = &self.modulus;
        let power = self.log(n, group, scratch);
        let half = p.residues().len();
        let mut share = p.residues();
        p.mul(&mut share, &power[half..], &p.broadcast(&self.scale), scratch);
        p.canonical(&mut share, scratch);
        let mut shares: Vec<Lanes> = group.iter().map(|_| Lanes::zeros(p.residue_words())).collect();
        p.scatter(&mut shares.iter_mut().map(|s| &mut s[..]).collect::<Vec<_>>(), &share);
        shares.iter().map(|digits| p.limbs_of(digits)).collect()
    }

    /// Whether a ciphertext encrypts zero, as far as this factor can tell.
    fn encrypts_zero(&self, n: &Modulus, c: &[u64], scratch: &mut Scratch) -> bool {
        let power = self.log(n, &[c], scratch);
        let mut digits = Lanes::zeros(self.modulus.pair_words());
        self.modulus.scatter(&mut [&mut digits], &power);
        let rest = digits[1..].iter().fold(digits[0] ^ 1, |all, digit| all | digit);
        core::hint::black_box(rest) == 0
    }
}

impl DecryptionKey {
    /// Decrypts one ciphertext.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`] for a ciphertext of another key, [`Error::Decryption`] if the result does
    /// not pass the check.
    pub fn decrypt(&self, ciphertext: &Ciphertext) -> Result<Plaintext, Error> {
        let mut all = self.decrypt_all(core::slice::from_ref(ciphertext), Threads::ONE)?;
        all.pop().ok_or(Error::Decryption)
    }

    /// Decrypts a batch. Whoever decrypts for others should give each ciphertext fresh noise first
    /// ([`EncryptionKey::rerandomize`](crate::EncryptionKey::rerandomize)), so that nobody can choose what
    /// the secret exponents are applied to. Every result has passed a self-check against faults of the machine; if one
    /// fails, nothing is returned.
    ///
    /// # Errors
    /// As [`DecryptionKey::decrypt`].
    pub fn decrypt_all(&self, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Vec<Plaintext>, Error> {
        let key = self.encryption_key();
        if ciphertexts.iter().any(|c| c.key() != key) {
            return Err(Error::KeyMismatch);
        }
        let grain = key.modulus().lanes();
        let plaintexts = threads.map(ciphertexts.len(), grain, |range| {
            ciphertexts[range].chunks(BATCH).map(|batch| self.decrypt_batch(batch)).collect()
        });
        let mut all = Vec::with_capacity(ciphertexts.len());
        for batch in plaintexts {
            all.extend(batch?);
        }
        Ok(all)
    }

    fn decrypt_batch(&self, ciphertexts: &[Ciphertext]) -> Result<Vec<Plaintext>, Error> {
        let key = self.encryption_key();
        let n = key.modulus();
        // the primes are half as long: what is enough for n serves both
        let mut scratch = n.scratch();
        let mut plaintexts = Vec::with_capacity(ciphertexts.len());
        for group in ciphertexts.chunks(n.lanes()) {
            let digits: Vec<&[u64]> = group.iter().map(Ciphertext::digits).collect();
            let mod_p = self.p.shares(n, &digits, &mut scratch);
            let mod_q = self.q.shares(n, &digits, &mut scratch);
            for (a, b) in mod_p.iter().zip(&mod_q) {
                plaintexts.push(Plaintext::from_residue(key, self.join(a, b)));
            }
        }
        if self.self_check(ciphertexts, &plaintexts) { Ok(plaintexts) } else { Err(Error::Decryption) }
    }

    /// `a q + b p` modulo `n`, for shares `a` below `p` and `b` below `q`.
    fn join(&self, a: &[u64], b: &[u64]) -> Limbs {
        let n = self.encryption_key().modulus();
        let a = nat::mul(&nat::from_limbs(a), &self.p.other);
        let b = nat::mul(&nat::from_limbs(b), &self.q.other);
        nat::subtract_once(&nat::limbs(&nat::add(&a, &b), n.limbs() + 1), &nat::limbs(n.nat(), n.limbs() + 1))
    }

    /// Checks `prod c_i^rho_i = Enc(sum rho_i m_i)` for 64-bit coefficients that depend on all of it and on
    /// the key, so that their being used in variable time tells nothing: a wrong plaintext passes with
    /// probability 2^-64. The right-hand side is never
    /// decrypted; what is tested is that the quotient is an encryption of zero, which involves none of
    /// the constants that turned logarithms into plaintexts.
    fn self_check(&self, ciphertexts: &[Ciphertext], plaintexts: &[Plaintext]) -> bool {
        let key = self.encryption_key();
        let n = key.modulus();
        let mut hash = Sha256::new();
        hash.update(b"dphe/paillier/self-check/v1");
        hash.update(&*nat::to_be_bytes(self.p.prime(), key.modulus_bytes()));
        for (c, m) in ciphertexts.iter().zip(plaintexts) {
            c.digits().iter().chain(m.residue()).for_each(|word| hash.update(word.to_be_bytes()));
        }
        let mut rng: chacha20::ChaCha20Rng = rand_core::SeedableRng::from_seed(hash.finalize().into());
        let coefficients: Vec<u64> = ciphertexts.iter().map(|_| rand_core::Rng::next_u64(&mut rng)).collect();
        let exponents: Vec<u128> = coefficients.iter().map(|&rho| rho.into()).collect();
        let bases: Vec<&[u64]> = ciphertexts.iter().map(Ciphertext::digits).collect();
        let product = multi_pow_vartime(n, &bases, &exponents, 64);

        // every term is below 2^64 n: two limbs more than n hold the sum of any batch
        let mut total = Zeroizing::new(vec![0; n.limbs() + 2]);
        for (&rho, m) in coefficients.iter().zip(plaintexts) {
            nat::add_multiple(&mut total, rho, m.residue());
        }
        let total = nat::rem(&nat::from_limbs(&total), n.nat());
        let minus = nat::rem(&nat::sub(n.nat(), &total), n.nat());
        let minus = Plaintext::from_residue(key, nat::limbs(&minus, n.limbs()));
        let product = Ciphertext::from_digits(key, product.to_vec().into());
        let Ok(zero) = key.add_plain(&[product], &[minus], Threads::ONE) else { return false };
        let mut scratch = n.scratch();
        zero.iter().all(|zero| {
            self.p.encrypts_zero(n, zero.digits(), &mut scratch)
                & self.q.encrypts_zero(n, zero.digits(), &mut scratch)
        })
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;
    use crate::{KeyBits, NoiseMode};

    /// What a machine can get wrong: one half of one plaintext, or a constant that is used for all.
    #[test]
    fn faults_are_noticed_and_nothing_is_let_out() {
        let mut rng = chacha20::ChaCha20Rng::seed_from_u64(1);
        let bits = KeyBits::insecure(512).unwrap();
        let mut secret = DecryptionKey::generate(bits, NoiseMode::Secure, &mut rng, Threads::ONE).unwrap();
        let key = secret.encryption_key().clone();
        let n = key.modulus();
        let plaintexts: Vec<_> = (0..20).map(|m| Plaintext::new(&key, m - 10).unwrap()).collect();
        let ciphertexts = key.encrypt_all(&plaintexts, &mut rng, Threads::ONE).unwrap();
        assert!(secret.self_check(&ciphertexts, &plaintexts));

        for wrong in [0, 7, 19] {
            // right modulo p, wrong modulo q: the difference would give p away
            let mut faulty = plaintexts.clone();
            let shifted = nat::add(&nat::from_limbs(faulty[wrong].residue()), secret.p.prime());
            faulty[wrong] =
                Plaintext::from_residue(&key, nat::limbs(&nat::rem(&shifted, n.nat()), n.limbs()));
            assert!(!secret.self_check(&ciphertexts, &faulty), "plaintext {wrong}");
        }

        type Constant = fn(&mut Half) -> &mut Lanes;
        let constants: [Constant; 3] =
            [|half| &mut half.enter, |half| &mut half.cofactor, |half| &mut half.scale];
        for (i, constant) in constants.into_iter().enumerate() {
            constant(&mut secret.p)[0] ^= 1;
            let opened = secret.decrypt_all(&ciphertexts, Threads::ONE);
            assert_eq!(opened.unwrap_err(), Error::Decryption, "constant {i}");
            constant(&mut secret.p)[0] ^= 1;
        }
        assert_eq!(secret.decrypt_all(&ciphertexts, Threads::ONE).unwrap(), plaintexts);
    }
}
