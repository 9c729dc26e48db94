//! Decryption of few ciphertexts, which leave lanes of the back end free. The lanes compute modulo both factors at once
//! and check the result in the same pass, so that a single decryption costs half of what its two halves would cost one
//! after the other, and no second pass for the check of a batch ([`self_check`](super::self_check)).
//!
//! For each ciphertext `c` of `m`, another lane decrypts its counterpart `c^k E(t)`, with `k` and `t` that nobody can
//! predict. The results are accepted only if
//!
//! * the lower half of each power is 1: `c^(p-1) = 1` modulo `p` for every unit, and
//! * the joined plaintexts fulfil `m' = k m + t` modulo `n`.
//!
//! Why a fault is noticed: a fault that strikes one lane changes one side of the equation. A damaged constant, exponent
//! or prime strikes `c` and `c^k E(t)` alike. As long as the logarithms stay affine functions of the plaintexts modulo
//! one factor (`m` becomes `s m + u`), the equation is `s t + u = k u + t`, or `t (s - 1) = u (k - 1)`. It holds for
//! the right result (`s = 1`, `u = 0`). For every other `s` and `u`, at most one `t` modulo the factor fulfils it, and
//! `t` has 95 unpredictable bits. That includes exponents that became zero (`s = u = 0`) or another multiple of
//! `p - 1`, a logarithm or a scale that was multiplied (`s`), and a crossing that multiplies all ciphertexts by one
//! number (`u`). Any other damage makes `m` and `m'` unrelated, because `c^k E(t)` does not resemble `c`, so that they
//! would have to fulfil the equation by chance. The equation is checked on plaintexts that were joined from both
//! factors, so that it covers the join and its primes too. `c^k E(t)` is computed modulo `n`, before anything is
//! reduced modulo a factor.
//!
//! Like the check of a batch, this one finds faults in the computation with secrets. It does not defend against
//! somebody who skips the comparison itself.

use rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::half::Half;
use crate::arith::crossing::Crossing;
use crate::arith::lanes::Lanes;
use crate::arith::modulus::{Modulus, Scratch};
use crate::arith::nat::{self, Limbs};
use crate::arith::pow;
use crate::arith::units::{Canonical, Factors, Group, Loose, Mont, Number, P2, PQ, PQ2, Plain, Value};
use crate::ciphertext::Digits;
use crate::{Ciphertext, DecryptionKey, Error, Plaintext, Threads};

/// Both factors side by side: the constants of [`Half`] with those of `p` in the lower lanes and those of `q` in the
/// upper lanes.
pub(crate) struct Both {
    modulus: Modulus<Factors>,
    crossing: Crossing<Factors>,
    ones: Group<PQ2, Mont, Loose, Lanes>,
    scale: Group<PQ, Mont, Canonical, Lanes>,
}

/// The numbers of one check: `k`, between `2^32` and `2^33`, and `t`, between `2^95` and `2^96`.
struct Affine {
    factors: Vec<i64>,
    terms: Zeroizing<Vec<u128>>,
}

impl Both {
    /// Puts two factors side by side, unless their back end has no lanes.
    pub(crate) fn new(p: &Half, q: &Half) -> Option<Self> {
        let lanes = p.modulus.lanes();
        if lanes < 4 {
            return None;
        }
        let modulus = Modulus::beside(&p.modulus, &q.modulus);
        let [ones_p, ones_q] = [p, q].map(|half| half.modulus.ones::<P2, Mont>());
        Some(Self {
            crossing: Crossing::beside(&p.crossing, &q.crossing, lanes),
            ones: Value::claim(Lanes::side_by_side(ones_p.digits(), ones_q.digits(), lanes)),
            scale: Value::claim(Lanes::side_by_side(p.scale.digits(), q.scale.digits(), lanes)),
            modulus,
        })
    }

    /// Returns how many ciphertexts fit into one pass: each takes two lanes per factor.
    fn room(&self) -> usize {
        self.modulus.lanes() / 4
    }

    /// Returns the shares of the plaintexts modulo both factors, or `None` if the lower half of a power is not 1.
    fn shares(
        &self,
        secret: &DecryptionKey,
        group: &[Digits<'_>],
        scratch: &mut Scratch,
    ) -> Option<[Vec<Limbs>; 2]> {
        let (pq, n) = (&self.modulus, secret.encryption_key().modulus());
        let half = pq.lanes() / 2;
        let filler = n.one();
        let lanes: Vec<_> =
            (0..pq.lanes()).map(|lane| group.get(lane % half).copied().unwrap_or(filler)).collect();
        let base = self.crossing.enter(n, pq, &lanes, scratch);
        let exponents = [&secret.p.exponent, &secret.q.exponent];
        let power = pow::pow_of_factors(pq, &base, &self.ones, exponents, scratch);
        let mut plain = pq.pairs::<Plain>();
        pq.leave(&mut plain, &power, scratch);
        let [lower, logarithm] = pq.canonical(&mut plain, scratch).halves_mut();
        let (ones, rest) = lower.digits().split_at(pq.lanes());
        // No early exit, because the digits are secret.
        let difference =
            ones.iter().fold(0, |all, one| all | (one ^ 1)) | rest.iter().fold(0, |all, x| all | x);
        let mut share = pq.residues();
        // A plain number times one in Montgomery form is plain.
        pq.mul(&mut share, &self.scale, &logarithm, scratch);
        let shares: Vec<Number<PQ, _, _, Lanes>> =
            pq.take_apart(&pq.canonical(&mut share, scratch), pq.lanes());
        let of_factor = |first: usize| {
            shares[first..][..group.len()].iter().map(|share| pq.to_limbs(share)).collect::<Vec<_>>()
        };
        let all = [of_factor(0), of_factor(half)];
        if core::hint::black_box(difference) == 0 { Some(all) } else { None }
    }
}

impl DecryptionKey {
    /// Returns both factors side by side if a batch leaves enough lanes free to be checked in the same pass.
    pub(super) fn for_few(&self, count: usize) -> Option<&Both> {
        self.both.as_ref().filter(|both| (1..=2 * both.room()).contains(&count))
    }

    /// Decrypts a batch for which [`DecryptionKey::for_few`] has found room, and checks it.
    pub(super) fn decrypt_few(
        &self,
        both: &Both,
        ciphertexts: &[Ciphertext],
    ) -> Result<Vec<Plaintext>, Error> {
        let key = self.encryption_key();
        let n = key.modulus();
        // The primes are half as long, so the scratch memory of n suffices for both.
        let mut scratch = n.scratch();
        let mut all = Vec::with_capacity(ciphertexts.len());
        let check = self.affine(ciphertexts);
        let counterparts = key.mul_small_vartime(ciphertexts, &check.factors, Threads::ONE)?;
        let terms = check.terms.iter().map(|&term| Plaintext::from_residue(key, residue(term, n.limbs())));
        let counterparts = key.add_plain(&counterparts, &terms.collect::<Vec<_>>(), Threads::ONE)?;
        let checks = check.factors.chunks(both.room()).zip(check.terms.chunks(both.room()));
        let batches = ciphertexts.chunks(both.room()).zip(counterparts.chunks(both.room()));
        for ((batch, counterparts), (factors, terms)) in batches.zip(checks) {
            let digits: Vec<_> = batch.iter().chain(counterparts).map(Ciphertext::digits).collect();
            let [mod_p, mod_q] = both.shares(self, &digits, &mut scratch).ok_or(Error::Decryption)?;
            let mut plaintexts: Vec<_> = self.join_all(&mod_p, &mod_q).collect();
            let found = plaintexts.split_off(batch.len());
            if !are_counterparts(&plaintexts, &found, factors, terms) {
                return Err(Error::Decryption);
            }
            all.extend(plaintexts);
        }
        Ok(all)
    }

    /// Returns the numbers of the check. They depend on the ciphertexts and on the key, so using them in variable time
    /// reveals nothing.
    fn affine(&self, ciphertexts: &[Ciphertext]) -> Affine {
        let mut hash = Sha256::new();
        hash.update(b"dphe/paillier/few-check/v1");
        hash.update(&*nat::to_be_bytes(self.p.prime(), self.encryption_key().modulus_bytes()));
        for c in ciphertexts {
            c.digits().digits().iter().for_each(|word| hash.update(word.to_be_bytes()));
        }
        let mut rng = chacha20::ChaCha20Rng::from_seed(hash.finalize().into());
        let factors = ciphertexts.iter().map(|_| (1 << 32) + i64::from(rng.next_u32())).collect();
        let mut term = || 1 << 95 | u128::from(rng.next_u64() >> 33) << 64 | u128::from(rng.next_u64());
        Affine { factors, terms: Zeroizing::new(ciphertexts.iter().map(|_| term()).collect()) }
    }
}

/// Returns a number as a residue. Every modulus is longer than 96 bits.
fn residue(term: u128, limbs: usize) -> Limbs {
    let mut residue = Zeroizing::new(vec![0; limbs]);
    residue[0] = term as u64;
    residue[1] = (term >> 64) as u64;
    residue
}

/// Returns whether each plaintext `m'` is `k m + t` modulo `n`.
fn are_counterparts(
    plaintexts: &[Plaintext],
    counterparts: &[Plaintext],
    factors: &[i64],
    terms: &[u128],
) -> bool {
    // No early exit, because the numbers are secret.
    let mut difference = (plaintexts.len() ^ counterparts.len()) as u64;
    for (((m, counterpart), &factor), &term) in plaintexts.iter().zip(counterparts).zip(factors).zip(terms) {
        let n = m.key().modulus();
        // k m + t is below 2^33 n + 2^96, and one limb more than n holds it.
        let mut expected = residue(term, n.limbs() + 1);
        nat::add_multiple(&mut expected, factor.unsigned_abs(), m.residue());
        let expected = nat::limbs(&nat::rem(&nat::from_limbs(&expected), n.nat()), n.limbs());
        let digits = expected.iter().zip(counterpart.residue());
        difference |= digits.fold(0, |all, (x, y)| all | (x ^ y));
    }
    core::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;
    use crate::arith::backend::Backend;
    use crate::{KeyBits, NoiseMode};

    type Damage = fn(&mut DecryptionKey, usize);

    /// Damages one value of one factor (0 for `p`, 1 for `q`), or repairs it, if called again.
    const TOGGLED: [(&str, Damage); 7] = [
        ("form of the crossing", |key, factor| {
            with_both(key, factor, |both, lanes| both.crossing.damage(0, lanes));
        }),
        ("cofactor of the crossing", |key, factor| {
            with_both(key, factor, |both, lanes| both.crossing.damage(1, lanes));
        }),
        ("scale of the logarithm", |key, factor| {
            with_both(key, factor, |both, lanes| both.scale.damage_lanes(lanes));
        }),
        ("one", |key, factor| with_both(key, factor, |both, lanes| both.ones.damage_lanes(lanes))),
        ("one that leaves Montgomery form", |key, factor| {
            with_both(key, factor, |both, lanes| both.modulus.damage_plain_ones(lanes));
        }),
        ("modulus of the lanes", |key, factor| {
            with_both(key, factor, |both, lanes| both.modulus.damage_rows(lanes));
        }),
        ("prime of the join", |key, factor| {
            let half = if factor == 0 { &mut key.p } else { &mut key.q };
            half.modulus.damage_nat();
        }),
    ];

    fn with_both(
        key: &mut DecryptionKey,
        factor: usize,
        damage: impl Fn(&mut Both, core::ops::Range<usize>),
    ) {
        let both = key.both.as_mut().unwrap();
        let half = both.modulus.lanes() / 2;
        damage(both, factor * half..(factor + 1) * half);
    }

    fn key() -> (DecryptionKey, Vec<Plaintext>, Vec<Ciphertext>, chacha20::ChaCha20Rng) {
        let mut rng = chacha20::ChaCha20Rng::seed_from_u64(3);
        let bits = KeyBits::insecure(512).unwrap();
        let secret = DecryptionKey::generate(bits, NoiseMode::Secure, &mut rng, Threads::ONE).unwrap();
        let key = secret.encryption_key();
        let plaintexts: Vec<_> = [-7, i128::MAX, 1, 0].map(|m| Plaintext::new(key, m).unwrap()).into();
        let ciphertexts = key.encrypt_all(&plaintexts, &mut rng, Threads::ONE).unwrap();
        (secret, plaintexts, ciphertexts, rng)
    }

    #[test]
    fn few_ciphertexts_decrypt_to_what_many_do() {
        let (secret, plaintexts, ciphertexts, mut rng) = key();
        let lanes = Backend::active().lanes();
        assert_eq!(secret.for_few(1).is_some(), lanes > 1);
        assert!(secret.for_few(0).is_none() && secret.for_few(lanes / 2 + 1).is_none());
        for count in 1..=lanes / 2 {
            let few = secret.decrypt_few(secret.for_few(count).unwrap(), &ciphertexts[..count]).unwrap();
            assert_eq!(few, plaintexts[..count]);
            assert_eq!(few, secret.decrypt_batch(&ciphertexts[..count]).unwrap());
            assert_eq!(few, secret.decrypt_all(&ciphertexts[..count], &mut rng, Threads::ONE).unwrap());
        }
    }

    /// A fault in a constant strikes the ciphertext and its check alike, and is noticed all the same.
    #[test]
    fn faults_in_few_decryptions_fail_the_check() {
        let (mut secret, plaintexts, ciphertexts, mut rng) = key();
        if secret.both.is_none() {
            return;
        }
        let mut fails = |secret: &DecryptionKey, what: &str, factor: usize| {
            for count in [1, 2] {
                let opened = secret.decrypt_all(&ciphertexts[..count], &mut rng, Threads::ONE);
                assert_eq!(
                    opened.map(|_| ()),
                    Err(Error::Decryption),
                    "{what} of factor {factor}, {count} numbers"
                );
            }
        };
        for (what, damage) in TOGGLED {
            for factor in [0, 1] {
                damage(&mut secret, factor);
                fails(&secret, what, factor);
                damage(&mut secret, factor);
            }
        }
        // Multiples of an exponent keep the lower half at 1 and scale all logarithms of a factor.
        for factor in [0, 1] {
            for multiple in [0, 2, 3] {
                let (mut secret, ..) = key();
                secret.p.exponent.multiply(if factor == 0 { multiple } else { 1 });
                secret.q.exponent.multiply(if factor == 1 { multiple } else { 1 });
                fails(&secret, "exponent", factor);
            }
            let (mut secret, ..) = key();
            let [p, q] = [(0, &secret.p), (1, &secret.q)].map(|(i, half)| {
                let mut scale = half.scale.clone();
                if i == factor {
                    half.modulus.add(&mut scale, &half.scale, &mut half.modulus.scratch());
                }
                scale
            });
            let both = secret.both.as_mut().unwrap();
            let lanes = both.modulus.lanes();
            both.scale = Value::claim(Lanes::side_by_side(p.digits(), q.digits(), lanes));
            fails(&secret, "doubled scale", factor);
        }
        // Both exponents became zero: every logarithm is zero, and so would be every plaintext.
        let (mut zero, ..) = key();
        zero.p.exponent.multiply(0);
        zero.q.exponent.multiply(0);
        fails(&zero, "both exponents", 0);
        assert_eq!(secret.decrypt_all(&ciphertexts, &mut rng, Threads::ONE).unwrap(), plaintexts);
    }
}
