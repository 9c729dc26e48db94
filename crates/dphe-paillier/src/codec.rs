//! Ciphertexts as bytes and as integers.
//!
//! The wire form is the canonical base-`n` pair `c = c0 + c1 n`, written `c1 || c0` in fixed-width
//! big-endian bytes: neither side divides. The integer form `c` itself, big-endian, is what
//! python-paillier and others use.

use crate::arith::lanes::Lanes;
use crate::arith::modulus::{Modulus, Ring};
use crate::arith::nat::{self, Nat};
use crate::ciphertext::Workspace;
use crate::{Ciphertext, EncryptionKey, Error, Threads};

impl EncryptionKey {
    /// The wire form of a batch, one ciphertext of [`EncryptionKey::ciphertext_bytes`] after the other.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`].
    pub fn encode(&self, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Vec<u8>, Error> {
        let width = self.modulus_bytes();
        let mut bytes = Vec::with_capacity(ciphertexts.len() * self.ciphertext_bytes());
        for pair in self.plain_pairs(ciphertexts, threads)? {
            let (c0, c1) = pair.digits().split_at(self.modulus().residue_words());
            for half in [c1, c0] {
                let limbs = self.modulus().limbs_of(half);
                let all: Vec<u8> = limbs.iter().rev().flat_map(|limb| limb.to_be_bytes()).collect();
                bytes.extend_from_slice(&all[all.len() - width..]);
            }
        }
        Ok(bytes)
    }

    /// Reads a batch in wire form, checking that each is canonical and a unit.
    ///
    /// # Errors
    /// [`Error::CiphertextLength`], [`Error::CiphertextRange`] naming the first that is out of range, or
    /// [`Error::CiphertextUnit`] naming the first that is not a unit.
    pub fn decode(&self, bytes: &[u8], threads: Threads) -> Result<Vec<Ciphertext>, Error> {
        let expected = self.ciphertext_bytes();
        if !bytes.len().is_multiple_of(expected) {
            return Err(Error::CiphertextLength { expected, found: bytes.len() });
        }
        let halves: Vec<(Nat, Nat)> = bytes
            .chunks_exact(expected)
            .map(|bytes| {
                let (c1, c0) = bytes.split_at(self.modulus_bytes());
                Some((nat::from_be_bytes(c0, c0.len())?, nat::from_be_bytes(c1, c1.len())?))
            })
            .collect::<Option<_>>()
            .ok_or(Error::CiphertextLength { expected, found: bytes.len() })?;
        self.read_halves(&halves, threads)
    }

    /// The integers in `0..n^2`, big-endian: the form of python-paillier.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`].
    pub fn to_integers(&self, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Vec<Vec<u8>>, Error> {
        let n = self.modulus();
        let integers = self.plain_pairs(ciphertexts, threads)?.into_iter().map(|pair| {
            let (c0, c1) = pair.digits().split_at(n.residue_words());
            let (c0, c1) = (nat::from_limbs(&n.limbs_of(c0)), nat::from_limbs(&n.limbs_of(c1)));
            nat::to_be_bytes(&nat::add(&c0, &nat::mul(&c1, n.nat())), self.ciphertext_bytes()).to_vec()
        });
        Ok(integers.collect())
    }

    /// Reads integers in `0..n^2`, big-endian, leading zeros allowed.
    ///
    /// # Errors
    /// [`Error::CiphertextRange`] naming one that is too long, else the first that is out of range;
    /// [`Error::CiphertextUnit`] naming the first that is not a unit.
    pub fn from_integers(&self, integers: &[&[u8]], threads: Threads) -> Result<Vec<Ciphertext>, Error> {
        let mut halves = Vec::with_capacity(integers.len());
        for (index, integer) in integers.iter().enumerate() {
            let integer = nat::from_be_bytes(integer, self.ciphertext_bytes());
            let integer = integer.ok_or(Error::CiphertextRange { index })?;
            let (c1, c0) = nat::div_rem_vartime(&integer, self.modulus().nat());
            halves.push((c0, c1));
        }
        self.read_halves(&halves, threads)
    }

    /// Ciphertexts out of Montgomery form. They are of no use but to be written down.
    fn plain_pairs(&self, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Vec<Ciphertext>, Error> {
        self.check_ciphertexts(ciphertexts)?;
        let n = self.modulus();
        let mut one = Lanes::zeros(n.pair_words());
        one[0] = 1;
        let one = n.broadcast(&one);
        Ok(self.by_group(ciphertexts.len(), threads, |range, Workspace { z, x, scratch, .. }| {
            let sources: Vec<&[u64]> = ciphertexts[range].iter().map(Ciphertext::digits).collect();
            n.gather(x, &sources, n.one());
            n.mul_pair(z, x, &one, scratch);
        }))
    }

    /// Ciphertexts from their halves `(c0, c1)`, checked.
    fn read_halves(&self, halves: &[(Nat, Nat)], threads: Threads) -> Result<Vec<Ciphertext>, Error> {
        let n = self.modulus();
        for (index, (c0, c1)) in halves.iter().enumerate() {
            let below = |x: &Nat| nat::cmp_vartime(x, n.nat()).is_lt();
            let zero = c0.is_zero_vartime() && c1.is_zero_vartime();
            if zero || !below(c0) || !below(c1) {
                return Err(Error::CiphertextRange { index });
            }
            if c0.is_zero_vartime() {
                return Err(Error::CiphertextUnit { index });
            }
        }
        let residues: Vec<Lanes> = halves.iter().map(|(c0, _)| n.residue_digits(c0)).collect();
        if let Some(index) = first_non_unit(n, &residues) {
            return Err(Error::CiphertextUnit { index });
        }
        let r_squared = n.broadcast(n.r_squared());
        Ok(self.by_group(halves.len(), threads, |range, Workspace { z, x, scratch, .. }| {
            let pairs: Vec<Lanes> = range
                .map(|i| {
                    let mut pair = Lanes::zeros(n.pair_words());
                    let (lower, upper) = pair.split_at_mut(n.residue_words());
                    lower.copy_from_slice(&residues[i]);
                    upper.copy_from_slice(&n.residue_digits(&halves[i].1));
                    pair
                })
                .collect();
            n.gather(x, &pairs.iter().map(|pair| &**pair).collect::<Vec<_>>(), n.one());
            n.mul_pair(z, x, &r_squared, scratch);
        }))
    }
}

/// The first residue that is not a unit, by halving: one that is costs a few more products and inverses.
fn first_non_unit(n: &Modulus, residues: &[Lanes]) -> Option<usize> {
    if residues.is_empty() || all_units(n, residues) {
        return None;
    }
    let (mut from, mut to) = (0, residues.len());
    while to - from > 1 {
        let middle = from + (to - from) / 2;
        if all_units(n, &residues[from..middle]) {
            from = middle;
        } else {
            to = middle;
        }
    }
    Some(from)
}

/// Whether all residues are units: one product, one inverse. (Factors of Montgomery's `R` are units too.)
fn all_units(n: &Modulus, residues: &[Lanes]) -> bool {
    let mut scratch = n.scratch();
    let mut product = n.broadcast(n.one_in(Ring::ModN));
    let (mut x, mut next) = (n.residues(), n.residues());
    for group in residues.chunks(n.lanes()) {
        n.gather(&mut x, &group.iter().map(|r| &**r).collect::<Vec<_>>(), n.one_in(Ring::ModN));
        n.mul(&mut next, &product, &x, &mut scratch);
        core::mem::swap(&mut next, &mut product);
    }
    n.canonical(&mut product, &mut scratch);
    let mut lanes: Vec<Vec<u64>> = (0..n.lanes()).map(|_| vec![0; n.residue_words()]).collect();
    n.scatter(&mut lanes.iter_mut().map(|lane| &mut lane[..]).collect::<Vec<_>>(), &product);
    let total = lanes.iter().fold(nat::small(1), |total, lane| {
        nat::rem(&nat::mul(&total, &nat::from_limbs(&n.limbs_of(lane))), n.nat())
    });
    nat::invert_vartime(&total, n.nat()).is_some()
}
