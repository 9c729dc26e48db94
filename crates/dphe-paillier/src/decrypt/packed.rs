//! Decryption of small numbers, many per plaintext.
//!
//! Ciphertexts are packed by Horner's rule modulo `p^2` and modulo `q^2`, which costs half of packing modulo
//! `n^2`. One decryption then yields a whole pack.
//!
//! Ciphertexts come in plain form. [`Crossing::reduce`](crate::arith::crossing::Crossing::reduce) turns `c`
//! into `c / R`, which is the Montgomery form of `c R^-2`. Products of such numbers are corrected by powers
//! of `R^2`.

use core::ops::Range;

use rand_core::{CryptoRng, Rng, SeedableRng};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::half::{Half, Pairs};
use crate::arith::lanes::{Lanes, MAX_LANES};
use crate::arith::modulus::{Modulus, Scratch};
use crate::arith::multi_pow::multi_pow_vartime;
use crate::arith::nat::{self, Nat};
use crate::arith::pow;
use crate::arith::units::{Counted, Loose, Mont, Number, Numbers, P2, Public};
use crate::bytes::PlainDigits;
use crate::ciphertext::Digits;
use crate::{Blinding, DecryptionKey, EncryptionKey, Error, Plaintext, SlotLayout, Threads, WireCiphertexts};

/// Small numbers that share one self-check: enough for the check to cost three multiplications per number,
/// and few enough for both halves of all of them to fit into about twenty megabytes.
const BATCH: usize = 16384;

/// Bits of the coefficients that check small numbers. They protect against random hardware faults. They are
/// too short to stop an adversary who can retry, and need not: every number is joined from both halves, so a
/// wrong number that passes reveals nothing about the factors.
const CHECK_BITS: u32 = 32;

/// Ciphertexts modulo `p^2`, as Montgomery forms of `c R^-2`.
type Reduced = Numbers<P2, Counted, Loose, Lanes>;
type Column<'a> = &'a [Number<P2, Counted, Loose, &'a [u64]>];

impl DecryptionKey {
    /// Decrypts ciphertexts of single small numbers: packs [`SlotLayout::slots`] of them at a time, gives the
    /// packs fresh noise, decrypts them and unpacks.
    ///
    /// Every result has passed a self-check against the ciphertexts given. If the check fails, nothing is
    /// returned.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`] for ciphertexts or a layout of another key, [`Error::Decryption`] if a number
    /// does not fit its slot or the result fails the self-check.
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
        let corrections =
            self.halves().map(|half| half.horner_correction(height, layout.slot_bits(), &mut scratch));
        let share = (BATCH / layout.slots()).max(1).next_multiple_of(lanes);
        let parts = threads.map(packs, lanes, |range| {
            let job = Job { secret: self, layout, height, corrections: &corrections, seed: &seed };
            let starts = range.clone().step_by(share);
            starts.map(|start| job.decrypt(batch, &blindings, start..range.end.min(start + share))).collect()
        });
        let mut all = Vec::with_capacity(batch.len());
        for part in parts {
            all.extend(part?);
        }
        Ok(all)
    }
}

/// The values that all parts of a batch share.
struct Job<'a> {
    secret: &'a DecryptionKey,
    layout: &'a SlotLayout,
    /// Rows of Horner's rule. Shorter columns are filled up.
    height: usize,
    /// See [`Half::horner_correction`], for `p` and `q`.
    corrections: &'a [Pairs<Counted>; 2],
    /// Unknown to those who made the ciphertexts.
    seed: &'a [u8; 32],
}

impl Job<'_> {
    /// Decrypts a range of packs.
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
        let halves = self.secret.halves();
        // Both the packs and the check are made of these numbers. If one were wrong in one half only, its
        // plaintext would be as long as n, and would not fit its slot.
        let reduced = halves.map(|half| half.reduce_all(n, &ciphertexts, &mut scratch));
        let mut plaintexts = Vec::with_capacity(packs.len());
        for group in packs.clone().step_by(n.lanes()) {
            let group = group..packs.end.min(group + n.lanes());
            let noise = blindings[group.clone()].iter().map(|blinding| blinding.digits(key));
            let noise = noise.collect::<Result<Vec<_>, _>>()?;
            let first = (group.start - packs.start) * slots;
            let [mod_p, mod_q] = [0, 1].map(|i| {
                let packed =
                    self.pack(halves[i], &self.corrections[i], &reduced[i], first, &noise, &mut scratch);
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

    /// Returns a group of packs with fresh noise, modulo the square of one factor. The first pack begins with
    /// ciphertext `first`.
    fn pack(
        &self,
        half: &Half,
        correction: &Pairs<Counted>,
        reduced: &Reduced,
        first: usize,
        noise: &[Digits<'_>],
        scratch: &mut Scratch,
    ) -> Pairs<Mont> {
        let (n, p) = (self.key().modulus(), &half.modulus);
        let numbers: Vec<_> = p.each(reduced).skip(first).take(self.layout.slots() * p.lanes()).collect();
        let columns: Vec<Column<'_>> = numbers.chunks(self.layout.slots()).collect();
        let filler = half.reduce_all(n, &[n.plain_one()], scratch);
        let filler = p.nth(&filler, 0);
        let packed = half.horner(&columns, filler, self.height, self.layout.slot_bits(), scratch);
        let (mut corrected, mut blinded) = (p.pairs::<Counted>(), p.pairs());
        p.mul(&mut corrected, &packed, correction, scratch);
        let corrected = corrected.claim_form::<Mont>();
        p.mul(&mut blinded, &corrected, &half.enter(n, noise, scratch), scratch);
        blinded
    }

    /// Checks `prod c_i^rho_i = Enc(sum rho_i m_i)` modulo the squares of both factors, as the self-check of
    /// a batch of plaintexts does.
    fn checks(&self, reduced: &[Reduced; 2], values: &[i64], part: usize) -> bool {
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

impl Half {
    /// Returns `c / R` modulo `p^2` for ciphertexts in plain form.
    fn reduce_all(&self, n: &Modulus<Public>, batch: &[PlainDigits<'_>], scratch: &mut Scratch) -> Reduced {
        let (p, mut z) = (&self.modulus, self.modulus.pairs());
        let mut all = p.numbers(batch.len());
        let mut targets: Vec<_> = p.each_mut(&mut all).collect();
        for (group, targets) in batch.chunks(n.lanes()).zip(targets.chunks_mut(n.lanes())) {
            self.crossing.reduce(n, p, &mut z, group, scratch);
            p.scatter(targets, &z);
        }
        drop(targets);
        all.counted()
    }

    /// Packs a group of columns by Horner's rule: the product of `x_j^(2^(slot_bits j))` over each column of
    /// up to `height` numbers. Shorter columns, and missing ones, continue with `filler`.
    fn horner(
        &self,
        columns: &[Column<'_>],
        filler: Number<P2, Counted, Loose, &[u64]>,
        height: usize,
        slot_bits: u32,
        scratch: &mut Scratch,
    ) -> Pairs<Counted> {
        let p = &self.modulus;
        let (mut z, mut x, mut next) = (p.pairs(), p.pairs(), p.pairs());
        for j in (0..height).rev() {
            let mut sources = [filler; MAX_LANES];
            for (source, column) in sources.iter_mut().zip(columns) {
                *source = column.get(j).copied().unwrap_or(filler);
            }
            p.gather(&mut x, &sources[..p.lanes()], filler);
            if j + 1 == height {
                core::mem::swap(&mut x, &mut z);
                continue;
            }
            for _ in 0..slot_bits {
                p.square(&mut next, &z, scratch);
                core::mem::swap(&mut next, &mut z);
            }
            p.mul(&mut next, &z, &x, scratch);
            core::mem::swap(&mut next, &mut z);
        }
        z
    }

    /// Returns the factor that turns packs of [`Half::reduce_all`]'s numbers into packs of ciphertexts: a
    /// pack of `R^2`.
    fn horner_correction(&self, height: usize, slot_bits: u32, scratch: &mut Scratch) -> Pairs<Counted> {
        self.horner(&[], self.r_squared(scratch).view(), height, slot_bits, scratch)
    }

    /// Returns whether the product of `c_i^rho_i`, for the numbers of [`Half::reduce_all`], is an encryption
    /// of `-minus_total` modulo this factor.
    fn checks(
        &self,
        reduced: &Reduced,
        coefficients: &[u64],
        minus_total: &Nat,
        n: &Modulus<Public>,
        scratch: &mut Scratch,
    ) -> bool {
        let p = &self.modulus;
        let bases: Vec<_> = p.each(reduced).collect();
        let product = multi_pow_vartime(p, &bases, coefficients, CHECK_BITS);
        let sum: u64 = coefficients.iter().sum();
        let r_squared = p.broadcast(&self.r_squared(scratch));
        let correction = pow::pow_small_vartime(p, &r_squared, &[sum], scratch);
        let mut corrected = p.pairs::<Counted>();
        p.mul(&mut corrected, &correction, &p.broadcast(&product), scratch);
        // 1 + m n takes the plaintext away.
        let plain = nat::add(&nat::small(1), &nat::mul(minus_total, n.nat()));
        let (mut factor, mut zero) = (p.pairs(), p.pairs());
        p.enter(&mut factor, &p.broadcast(&p.pair(&plain)), scratch);
        p.mul(&mut zero, &factor, &corrected.claim_form::<Mont>(), scratch);
        self.encrypts_zero(&zero, scratch)
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;
    use crate::{KeyBits, NoiseMode};

    #[test]
    fn faults_in_small_numbers_fail_the_self_check() {
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
        let corrections = [secret.p.modulus.pairs(), secret.q.modulus.pairs()];
        let job =
            Job { secret: &secret, layout: &layout, height: 51, corrections: &corrections, seed: &[7; 32] };
        assert!(job.checks(&reduced, &values, 0));
        for wrong in [0, 50, 99] {
            let mut faulty = values.clone();
            faulty[wrong] += 1;
            assert!(!job.checks(&reduced, &faulty, 0), "number {wrong}");
            faulty[(wrong + 1) % 100] -= 1;
            assert!(!job.checks(&reduced, &faulty, 0), "numbers from {wrong} on");
        }
        for half in 0..2 {
            reduced[half].damage(80);
            assert!(!job.checks(&reduced, &values, 0), "half {half}");
            reduced[half].damage(80);
        }

        for i in 0..3 {
            secret.q.damage(i);
            let opened = secret.decrypt_small(&batch, &layout, &mut rng, Threads::ONE);
            assert_eq!(opened.unwrap_err(), Error::Decryption, "constant {i}");
            secret.q.damage(i);
        }
        assert_eq!(secret.decrypt_small(&batch, &layout, &mut rng, Threads::ONE).unwrap(), values);
    }
}
