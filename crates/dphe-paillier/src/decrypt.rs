//! Decryption by the factors, in batches, checked before anything is let out.
//!
//! For a prime factor `p`, `c^(p-1)` modulo `p^2` is `1 + l p` with `l` proportional to the plaintext
//! modulo `p`. Both factors are used and the halves joined by the Chinese remainder theorem. A single
//! wrong half would give a factor away, so a batch is checked by an equation that is independent of the
//! constants used to decrypt it.
//!
//! Small numbers are packed first, modulo `p^2` and `q^2` where that costs half of what it does modulo `n^2`,
//! and one decryption opens a whole pack.

use core::ops::Range;

use rand_core::{CryptoRng, Rng, SeedableRng};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::arith::lanes::Lanes;
use crate::arith::modulus::{Modulus, Ring, Scratch};
use crate::arith::multi_pow::multi_pow_vartime;
use crate::arith::nat::{self, Limbs, Nat};
use crate::arith::pow::{self, Exponent};
use crate::{
    Blinding, Ciphertext, DecryptionKey, EncryptionKey, Error, Plaintext, SlotLayout, Threads,
    WireCiphertexts,
};

/// Ciphertexts that share one self-check.
const BATCH: usize = 1024;

/// The same for small numbers: enough for the check to take three multiplications each, and few enough for
/// both halves of all of them to stay in some twenty megabytes.
const SMALL_BATCH: usize = 16384;

/// Bits of the coefficients that check small numbers. They guard against faults of the machine, which do not
/// try again, and not against an adversary: whatever a ciphertext holds, it is joined from both halves, so
/// a number that passes wrongly is wrong but tells nothing about the factors.
const SMALL_CHECK_BITS: u32 = 32;

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

    /// `c / R` modulo `p^2` for a group of pairs modulo `n^2`, loose.
    fn reduce(&self, n: &Modulus, z: &mut Lanes, group: &[&[u64]], scratch: &mut Scratch) {
        let p = &self.modulus;
        let (rows, half) = (n.residue_words() * n.lanes(), p.residues().len());
        let filler = Lanes::zeros(n.residue_words());
        // a half of each ciphertext, in twice the digits of p
        let wide = |out: &mut Lanes, from: usize| {
            let mut sources = [&filler[..]; 8];
            for (source, c) in sources.iter_mut().zip(group) {
                *source = &c[from..from + n.residue_words()];
            }
            p.gather(&mut out[..rows], &sources[..n.lanes()], &filler);
            out[rows..].fill(0);
        };
        let (mut lower, mut upper) = (p.pairs(), p.pairs());
        // c = c0 + c1 q p: the upper half first, times q, modulo p
        wide(&mut lower, n.residue_words());
        p.reduce_wide(&mut z[..half], &lower, scratch);
        p.mul(&mut upper[..half], &z[..half], &p.broadcast(&self.cofactor), scratch);
        wide(&mut lower, 0);
        p.reduce_pair(z, &mut lower, &mut upper, scratch);
    }

    /// A group of ciphertexts in Montgomery form modulo `p^2`, loose.
    fn enter(&self, n: &Modulus, group: &[&[u64]], scratch: &mut Scratch) -> Lanes {
        let p = &self.modulus;
        let (mut z, mut base) = (p.pairs(), p.pairs());
        self.reduce(n, &mut z, group, scratch);
        p.mul_pair(&mut base, &z, &p.broadcast(&self.enter), scratch);
        base
    }

    /// `c^(p-1)` modulo `p^2` for a group in Montgomery form: canonical pairs, not in Montgomery form.
    fn log(&self, base: &[u64], scratch: &mut Scratch) -> Lanes {
        let p = &self.modulus;
        let power = pow::pow(p, Ring::ModNSquared, base, &self.exponent, scratch);
        // multiplying by a plain one leaves Montgomery form
        let mut one = Lanes::zeros(p.pair_words());
        one[0] = 1;
        let mut z = p.pairs();
        p.mul_pair(&mut z, &power, &p.broadcast(&one), scratch);
        p.canonical_pair(&mut z, scratch);
        z
    }

    /// This factor's shares of the first `count` plaintexts of a group: `m q^-1` modulo `p`, as limbs.
    fn shares(&self, base: &[u64], count: usize, scratch: &mut Scratch) -> Vec<Limbs> {
        let p = &self.modulus;
        let power = self.log(base, scratch);
        let half = p.residues().len();
        let mut share = p.residues();
        p.mul(&mut share, &power[half..], &p.broadcast(&self.scale), scratch);
        p.canonical(&mut share, scratch);
        let mut shares: Vec<Lanes> = (0..count).map(|_| Lanes::zeros(p.residue_words())).collect();
        p.scatter(&mut shares.iter_mut().map(|s| &mut s[..]).collect::<Vec<_>>(), &share);
        shares.iter().map(|digits| p.limbs_of(digits)).collect()
    }

    /// Whether the first of a group in Montgomery form encrypts zero, as far as this factor can tell.
    fn encrypts_zero(&self, base: &[u64], scratch: &mut Scratch) -> bool {
        let power = self.log(base, scratch);
        let mut digits = Lanes::zeros(self.modulus.pair_words());
        self.modulus.scatter(&mut [&mut digits], &power);
        let rest = digits[1..].iter().fold(digits[0] ^ 1, |all, digit| all | digit);
        core::hint::black_box(rest) == 0
    }

    /// `c / R` modulo `p^2` for ciphertexts from the wire, one pair after the other. As a Montgomery form,
    /// that is of `c R^-2`: what is made of it is put right by a power of `R^2`, for which see
    /// [`Half::horner_factor`] and [`Half::checks`].
    fn reduce_all(&self, n: &Modulus, batch: &[&[u64]], scratch: &mut Scratch) -> Lanes {
        let p = &self.modulus;
        let (words, mut z) = (p.pair_words(), p.pairs());
        let mut all = Lanes::zeros(batch.len() * words);
        for (group, out) in batch.chunks(n.lanes()).zip(all.chunks_mut(n.lanes() * words)) {
            self.reduce(n, &mut z, group, scratch);
            p.scatter(&mut out.chunks_exact_mut(words).collect::<Vec<_>>(), &z);
        }
        all
    }

    /// Packs a group of columns by Horner's rule: the product of `x_j^(2^(slot_bits j))` over each column, of
    /// up to `height` elements. A column that is shorter goes on with `filler`.
    fn horner(
        &self,
        columns: &[&[u64]],
        filler: &[u64],
        height: usize,
        slot_bits: u32,
        scratch: &mut Scratch,
    ) -> Lanes {
        let p = &self.modulus;
        let words = p.pair_words();
        let (mut z, mut x, mut next) = (p.pairs(), p.pairs(), p.pairs());
        for j in (0..height).rev() {
            let mut sources = [filler; 8];
            for (source, column) in sources.iter_mut().zip(columns) {
                *source = column.get(j * words..(j + 1) * words).unwrap_or(filler);
            }
            p.gather(&mut x, &sources[..p.lanes()], filler);
            if j + 1 == height {
                core::mem::swap(&mut x, &mut z);
                continue;
            }
            for _ in 0..slot_bits {
                p.square_pair(&mut next, &z, scratch);
                core::mem::swap(&mut next, &mut z);
            }
            p.mul_pair(&mut next, &z, &x, scratch);
            core::mem::swap(&mut next, &mut z);
        }
        z
    }

    /// What turns packs of [`Half::reduce_all`]'s numbers into packs of ciphertexts: a pack of `R^2`.
    fn horner_factor(&self, height: usize, slot_bits: u32, scratch: &mut Scratch) -> Lanes {
        self.horner(&[], &self.r_squared(scratch), height, slot_bits, scratch)
    }

    /// `R^2` in Montgomery form.
    fn r_squared(&self, scratch: &mut Scratch) -> Lanes {
        let p = &self.modulus;
        let r = p.broadcast(p.r_squared());
        let (mut square, mut digits) = (p.pairs(), Lanes::zeros(p.pair_words()));
        p.square_pair(&mut square, &r, scratch);
        p.canonical_pair(&mut square, scratch);
        p.scatter(&mut [&mut digits], &square);
        digits
    }

    /// Whether the product of `x_i^rho_i`, for the numbers of [`Half::reduce_all`], is an encryption of
    /// minus `minus_total` as far as this factor can tell.
    fn checks(
        &self,
        reduced: &[u64],
        coefficients: &[u64],
        minus_total: &Nat,
        n: &Modulus,
        scratch: &mut Scratch,
    ) -> bool {
        let p = &self.modulus;
        let bases: Vec<&[u64]> = reduced.chunks_exact(p.pair_words()).collect();
        let product = multi_pow_vartime(p, &bases, coefficients, SMALL_CHECK_BITS);
        let sum: u64 = coefficients.iter().sum();
        let factor = p.broadcast(&self.r_squared(scratch));
        let factor = pow::pow_small_vartime(p, &factor, &[sum], scratch);
        // 1 + m n takes the plaintext away
        let plain = nat::add(&nat::small(1), &nat::mul(minus_total, n.nat()));
        let (mut once, mut twice) = (p.pairs(), p.pairs());
        p.mul_pair(&mut once, &p.broadcast(&p.pair_digits(&plain)), &p.broadcast(p.r_squared()), scratch);
        p.mul_pair(&mut twice, &once, &factor, scratch);
        p.mul_pair(&mut once, &twice, &p.broadcast(&product), scratch);
        self.encrypts_zero(&once, scratch)
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
            let [mod_p, mod_q] = [&self.p, &self.q].map(|half| {
                let base = half.enter(n, &digits, &mut scratch);
                half.shares(&base, group.len(), &mut scratch)
            });
            plaintexts.extend(self.join_all(&mod_p, &mod_q));
        }
        if self.self_check(ciphertexts, &plaintexts) { Ok(plaintexts) } else { Err(Error::Decryption) }
    }

    /// Decrypts ciphertexts as they came over the wire, with fresh noise, so that nobody can choose what the
    /// secret exponents are applied to. Otherwise as [`DecryptionKey::decrypt_all`].
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
        self.decrypt_all(&ciphertexts, threads)
    }

    /// Decrypts ciphertexts of single small numbers, many at a time: packs [`SlotLayout::slots`] of them by
    /// Horner's rule, gives the packs fresh noise, decrypts them and unpacks. Every result has passed a
    /// self-check against the ciphertexts given; if one fails, nothing is returned.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`] for ciphertexts or a layout of another key, [`Error::Decryption`] if a number does
    /// not fit its slot or the result does not pass the check.
    pub fn decrypt_small(
        &self,
        batch: &WireCiphertexts,
        layout: &SlotLayout,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Vec<i64>, Error> {
        let key = self.encryption_key();
        if batch.key() != key {
            return Err(Error::KeyMismatch);
        }
        layout.check_key(key)?;
        let packs = layout.plaintexts(batch.len());
        let blindings = key.blindings(packs, rng, threads);
        let mut seed = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut seed[..]);
        let lanes = key.modulus().lanes();
        let height = layout.slots().min(batch.len());
        let mut scratch = key.modulus().scratch();
        let factors =
            [&self.p, &self.q].map(|half| half.horner_factor(height, layout.slot_bits(), &mut scratch));
        let share = (SMALL_BATCH / layout.slots()).max(1).next_multiple_of(lanes);
        let parts = threads.map(packs, lanes, |range| {
            let job = Small { secret: self, layout, height, factors: &factors, seed: &seed };
            let starts = range.clone().step_by(share);
            starts.map(|start| job.decrypt(batch, &blindings, start..range.end.min(start + share))).collect()
        });
        let mut all = Vec::with_capacity(batch.len());
        for part in parts {
            all.extend(part?);
        }
        Ok(all)
    }

    fn join_all(&self, mod_p: &[Limbs], mod_q: &[Limbs]) -> impl Iterator<Item = Plaintext> {
        let key = self.encryption_key();
        mod_p.iter().zip(mod_q).map(|(a, b)| Plaintext::from_residue(key, self.join(a, b)))
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
        let mut rng = chacha20::ChaCha20Rng::from_seed(hash.finalize().into());
        let coefficients: Vec<u64> = ciphertexts.iter().map(|_| rng.next_u64()).collect();
        let bases: Vec<&[u64]> = ciphertexts.iter().map(Ciphertext::digits).collect();
        let product = multi_pow_vartime(n, &bases, &coefficients, 64);

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
            let [mod_p, mod_q] = [&self.p, &self.q].map(|half| {
                let base = half.enter(n, &[zero.digits()], &mut scratch);
                half.encrypts_zero(&base, &mut scratch)
            });
            mod_p & mod_q
        })
    }
}

/// The decryption of small numbers: what all parts of a batch share.
struct Small<'a> {
    secret: &'a DecryptionKey,
    layout: &'a SlotLayout,
    /// Rows of Horner's rule; columns that are shorter are filled up.
    height: usize,
    /// See [`Half::horner_factor`], for `p` and `q`.
    factors: &'a [Lanes; 2],
    /// Nobody who made the ciphertexts knows it.
    seed: &'a [u8; 32],
}

impl Small<'_> {
    /// Decrypts the packs of a range.
    fn decrypt(
        &self,
        batch: &WireCiphertexts,
        blindings: &[Blinding],
        packs: Range<usize>,
    ) -> Result<Vec<i64>, Error> {
        let (key, slots) = (self.key(), self.layout.slots());
        let n = key.modulus();
        let mut scratch = n.scratch();
        let ciphertexts = batch.range(packs.start * slots..batch.len().min(packs.end * slots));
        let halves = [&self.secret.p, &self.secret.q];
        // both the packs and the check are made of these: were one wrong in one half only, its plaintext would
        // be as long as n, and pass neither
        let reduced = halves.map(|half| half.reduce_all(n, &ciphertexts, &mut scratch));
        let mut plaintexts = Vec::with_capacity(packs.len());
        for group in packs.clone().step_by(n.lanes()) {
            let group = group..packs.end.min(group + n.lanes());
            let noise = blindings[group.clone()].iter().map(|blinding| blinding.digits(key));
            let noise = noise.collect::<Result<Vec<_>, _>>()?;
            let first = (group.start - packs.start) * slots;
            let [mod_p, mod_q] = [0, 1].map(|i| {
                let packed = self.pack(halves[i], &self.factors[i], &reduced[i], first, &noise, &mut scratch);
                halves[i].shares(&packed, group.len(), &mut scratch)
            });
            plaintexts.extend(self.secret.join_all(&mod_p, &mod_q));
        }
        let values = self.layout.unpack(&plaintexts, ciphertexts.len()).map_err(|_| Error::Decryption)?;
        if self.checks(&reduced, &values, packs.start) { Ok(values) } else { Err(Error::Decryption) }
    }

    fn key(&self) -> &EncryptionKey {
        self.secret.encryption_key()
    }

    /// A group of packs with fresh noise, modulo the square of one factor, in Montgomery form; the first of them
    /// begins with ciphertext `first`.
    fn pack(
        &self,
        half: &Half,
        factor: &[u64],
        reduced: &[u64],
        first: usize,
        noise: &[&[u64]],
        scratch: &mut Scratch,
    ) -> Lanes {
        let (n, p) = (self.key().modulus(), &half.modulus);
        let mut columns = [&[][..]; 8];
        let words = self.layout.slots() * p.pair_words();
        for (column, digits) in columns.iter_mut().zip(reduced[first * p.pair_words()..].chunks(words)) {
            *column = digits;
        }
        // a plain one, reduced as the ciphertexts are
        let mut one = Lanes::zeros(n.pair_words());
        one[0] = 1;
        let filler = half.reduce_all(n, &[&one], scratch);
        let lanes = &columns[..p.lanes()];
        let packed = half.horner(lanes, &filler, self.height, self.layout.slot_bits(), scratch);
        let (mut z, mut blinded) = (p.pairs(), p.pairs());
        p.mul_pair(&mut z, &packed, factor, scratch);
        p.mul_pair(&mut blinded, &z, &half.enter(n, noise, scratch), scratch);
        blinded
    }

    /// Checks `prod c_i^rho_i = Enc(sum rho_i m_i)` modulo the squares of both factors, as
    /// [`DecryptionKey::self_check`] does.
    fn checks(&self, reduced: &[Lanes; 2], values: &[i64], part: usize) -> bool {
        let mut hash = Sha256::new();
        hash.update(b"dphe/paillier/small-check/v1");
        hash.update(self.seed);
        hash.update((part as u64).to_be_bytes());
        let mut rng = chacha20::ChaCha20Rng::from_seed(hash.finalize().into());
        let coefficients: Vec<u64> = values.iter().map(|_| rng.next_u32().into()).collect();
        // 2^32 terms of 96 bits would fit
        let total: i128 =
            coefficients.iter().zip(values).map(|(&rho, &m)| i128::from(rho) * i128::from(m)).sum();
        let n = self.key().modulus();
        let Ok(minus_total) = Plaintext::new(self.key(), -total) else { return false };
        let minus_total = nat::from_limbs(minus_total.residue());
        let mut scratch = n.scratch();
        let [mod_p, mod_q] = [(&self.secret.p, &reduced[0]), (&self.secret.q, &reduced[1])]
            .map(|(half, reduced)| half.checks(reduced, &coefficients, &minus_total, n, &mut scratch));
        mod_p & mod_q
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

    #[test]
    fn faults_in_small_numbers_are_noticed() {
        let mut rng = chacha20::ChaCha20Rng::seed_from_u64(2);
        let bits = KeyBits::insecure(512).unwrap();
        let mut secret = DecryptionKey::generate(bits, NoiseMode::Secure, &mut rng, Threads::ONE).unwrap();
        let key = secret.encryption_key().clone();
        let values: Vec<i64> = (0..100).map(|m| m - 50).collect();
        let plaintexts: Vec<_> = values.iter().map(|&m| Plaintext::new(&key, m.into()).unwrap()).collect();
        let ciphertexts = key.encrypt_all(&plaintexts, &mut rng, Threads::ONE).unwrap();
        let bytes = key.encode(&ciphertexts, Threads::ONE).unwrap();
        let batch = key.read_wire(&bytes, Threads::ONE).unwrap();
        let layout = SlotLayout::new(&key, 8, 4).unwrap();

        // a wrong number, a wrong half of a ciphertext, two that compensate each other
        let n = key.modulus();
        let mut scratch = n.scratch();
        let mut reduced =
            [&secret.p, &secret.q].map(|half| half.reduce_all(n, &batch.range(0..100), &mut scratch));
        let factors = [n.pairs(), n.pairs()];
        let job = Small { secret: &secret, layout: &layout, height: 51, factors: &factors, seed: &[7; 32] };
        assert!(job.checks(&reduced, &values, 0));
        for wrong in [0, 50, 99] {
            let mut faulty = values.clone();
            faulty[wrong] += 1;
            assert!(!job.checks(&reduced, &faulty, 0), "number {wrong}");
            faulty[(wrong + 1) % 100] -= 1;
            assert!(!job.checks(&reduced, &faulty, 0), "numbers from {wrong} on");
        }
        for half in 0..2 {
            reduced[half][80] ^= 1;
            assert!(!job.checks(&reduced, &values, 0), "half {half}");
            reduced[half][80] ^= 1;
        }

        type Constant = fn(&mut Half) -> &mut Lanes;
        let constants: [Constant; 3] =
            [|half| &mut half.enter, |half| &mut half.cofactor, |half| &mut half.scale];
        for (i, constant) in constants.into_iter().enumerate() {
            constant(&mut secret.q)[0] ^= 1;
            let opened = secret.decrypt_small(&batch, &layout, &mut rng, Threads::ONE);
            assert_eq!(opened.unwrap_err(), Error::Decryption, "constant {i}");
            constant(&mut secret.q)[0] ^= 1;
        }
        assert_eq!(secret.decrypt_small(&batch, &layout, &mut rng, Threads::ONE).unwrap(), values);
    }
}
