//! Ciphertexts between the wire and computing: read, checked, and kept as they came.
//!
//! Whoever only adds up ([`RunningSums`](crate::RunningSums)) or decrypts
//! ([`DecryptionKey::decrypt_small`](crate::DecryptionKey::decrypt_small)) needs no ciphertext in Montgomery
//! form, and saves the product that brings it there.

use core::fmt;
use core::ops::Range;

use crate::arith::lanes::Lanes;
use crate::arith::modulus::{Modulus, Ring, Scratch};
use crate::arith::nat::{self, Limbs};
use crate::ciphertext::Workspace;
use crate::{Ciphertext, EncryptionKey, Error, Threads};

/// Ciphertexts as they came over the wire: canonical, units, not yet brought into the form for computing.
#[derive(Clone, PartialEq, Eq)]
pub struct WireCiphertexts {
    key: EncryptionKey,
    /// One plain pair after the other.
    digits: Vec<u64>,
}

impl WireCiphertexts {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.digits.len() / self.key.modulus().pair_words()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.digits.is_empty()
    }

    /// The key they were read with.
    pub fn key(&self) -> &EncryptionKey {
        &self.key
    }

    /// Whether ciphertext `i` has no noise: `c = 1` modulo `n`, so that anybody can read it.
    ///
    /// # Panics
    /// If there is no ciphertext `i`.
    pub fn is_trivial(&self, i: usize) -> bool {
        let (first, rest) = (self.lower(i)[0], &self.lower(i)[1..]);
        first == 1 && rest.iter().all(|&digit| digit == 0)
    }

    /// The low 128 bits of `c` modulo `n`: equal for two ciphertexts that share their noise.
    ///
    /// # Panics
    /// If there is no ciphertext `i`.
    pub fn fingerprint(&self, i: usize) -> u128 {
        let mut limbs = [0; 2];
        nat::write_limbs(&mut limbs, self.lower(i), self.key.backend().digit_bits());
        u128::from(limbs[1]) << 64 | u128::from(limbs[0])
    }

    /// The same in the form for computing.
    pub fn to_ciphertexts(&self, threads: Threads) -> Vec<Ciphertext> {
        let n = self.key.modulus();
        let r_squared = n.broadcast(n.r_squared());
        self.key.by_group(self.len(), threads, |range, Workspace { z, x, scratch, .. }| {
            n.gather(x, &self.range(range), n.one());
            n.mul_pair(z, x, &r_squared, scratch);
        })
    }

    /// The plain pair of ciphertext `i`.
    pub(crate) fn digits(&self, i: usize) -> &[u64] {
        let words = self.key.modulus().pair_words();
        &self.digits[i * words..(i + 1) * words]
    }

    /// The plain pairs of some of them.
    pub(crate) fn range(&self, range: Range<usize>) -> Vec<&[u64]> {
        range.map(|i| self.digits(i)).collect()
    }

    /// `c` modulo `n`.
    fn lower(&self, i: usize) -> &[u64] {
        &self.digits(i)[..self.key.modulus().residue_words()]
    }
}

impl fmt::Debug for WireCiphertexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WireCiphertexts({}, {} ciphertexts)", self.key.id(), self.len())
    }
}

impl EncryptionKey {
    /// Reads a batch in wire form, checking that each is canonical and a unit.
    ///
    /// # Errors
    /// [`Error::CiphertextLength`], [`Error::CiphertextRange`] naming the first that is out of range, or
    /// [`Error::CiphertextUnit`] naming the first that is not a unit.
    pub fn read_wire(&self, bytes: &[u8], threads: Threads) -> Result<WireCiphertexts, Error> {
        let expected = self.ciphertext_bytes();
        if !bytes.len().is_multiple_of(expected) {
            return Err(Error::CiphertextLength { expected, found: bytes.len() });
        }
        self.read_halves(bytes.len() / expected, threads, |i, c0, c1| {
            let (upper, lower) = bytes[i * expected..][..expected].split_at(self.modulus_bytes());
            read_limbs(c0, lower);
            read_limbs(c1, upper);
        })
    }

    /// Reads `count` ciphertexts and checks them. `halves` writes `c0` and `c1` of one of them as limbs, one
    /// more than `n` has.
    pub(crate) fn read_halves(
        &self,
        count: usize,
        threads: Threads,
        halves: impl Fn(usize, &mut [u64], &mut [u64]) + Sync,
    ) -> Result<WireCiphertexts, Error> {
        let n = self.modulus();
        let (words, digit_bits) = (n.pair_words(), self.backend().digit_bits());
        let modulus = nat::limbs(n.nat(), n.limbs() + 1);
        let mut digits = vec![0; count * words];
        // each thread reads its part and multiplies it up while it is in the cache
        let parts = threads.for_each(&mut digits, words * n.lanes(), |start, part| {
            let (mut c0, mut c1) = (vec![0; modulus.len()], vec![0; modulus.len()]);
            let mut product = UnitProduct::new(n);
            let mut index = start / words;
            for group in part.chunks_mut(words * n.lanes()) {
                for pair in group.chunks_exact_mut(words) {
                    halves(index, &mut c0, &mut c1);
                    check_range(&c0, &c1, &modulus, index)?;
                    let (lower, upper) = pair.split_at_mut(n.residue_words());
                    nat::write_digits(lower, &c0, digit_bits);
                    nat::write_digits(upper, &c1, digit_bits);
                    index += 1;
                }
                product.multiply(group);
            }
            Ok(product.finish())
        });
        let products = parts.into_iter().collect::<Result<Vec<_>, Error>>()?;
        if !is_unit(n, products.iter().flatten())
            && let Some(index) = first_non_unit(n, &digits)
        {
            return Err(Error::CiphertextUnit { index });
        }
        Ok(WireCiphertexts { key: self.clone(), digits })
    }

    /// The wire form of groups of plain canonical pairs, which `work` leaves in `z`.
    pub(crate) fn write_groups(
        &self,
        count: usize,
        threads: Threads,
        work: impl Fn(Range<usize>, &mut Workspace) + Sync,
    ) -> Vec<u8> {
        let n = self.modulus();
        let (each, width, digit_bits) =
            (self.ciphertext_bytes(), self.modulus_bytes(), self.backend().digit_bits());
        let mut bytes = vec![0; count * each];
        threads.for_each(&mut bytes, each * n.lanes(), |start, part| {
            let mut workspace = Workspace::new(self);
            let mut pairs = vec![0; n.pair_words() * n.lanes()];
            let mut limbs = vec![0; n.limbs()];
            let mut first = start / each;
            for group in part.chunks_mut(each * n.lanes()) {
                let count = group.len() / each;
                work(first..first + count, &mut workspace);
                n.canonical_pair(&mut workspace.z, &mut workspace.scratch);
                let mut targets: Vec<&mut [u64]> = pairs.chunks_exact_mut(n.pair_words()).collect();
                n.scatter(&mut targets, &workspace.z);
                for (bytes, pair) in group.chunks_exact_mut(each).zip(pairs.chunks_exact(n.pair_words())) {
                    let (c0, c1) = pair.split_at(n.residue_words());
                    let (upper, lower) = bytes.split_at_mut(width);
                    for (bytes, half) in [(upper, c1), (lower, c0)] {
                        nat::write_limbs(&mut limbs, half, digit_bits);
                        write_bytes(bytes, &limbs);
                    }
                }
                first += count;
            }
        });
        bytes
    }
}

/// Big-endian bytes into limbs.
fn read_limbs(limbs: &mut [u64], bytes: &[u8]) {
    let (rest, words) = bytes.as_rchunks();
    let mut top = [0; 8];
    top[8 - rest.len()..].copy_from_slice(rest);
    let words = words.iter().rev().map(|&word| u64::from_be_bytes(word));
    let all = words.chain([u64::from_be_bytes(top)]).chain(core::iter::repeat(0));
    limbs.iter_mut().zip(all).for_each(|(limb, word)| *limb = word);
}

/// Limbs into big-endian bytes, as many as there is room for.
fn write_bytes(bytes: &mut [u8], limbs: &[u64]) {
    for (bytes, limb) in bytes.rchunks_mut(8).zip(limbs) {
        bytes.copy_from_slice(&limb.to_be_bytes()[8 - bytes.len()..]);
    }
}

/// Both halves are below the modulus, and the lower one is not zero: that is no unit, nor is zero a
/// ciphertext.
fn check_range(c0: &[u64], c1: &[u64], modulus: &[u64], index: usize) -> Result<(), Error> {
    let below = |x: &[u64]| x.iter().rev().lt(modulus.iter().rev());
    let zero = |x: &[u64]| x.iter().all(|&limb| limb == 0);
    if !below(c0) || !below(c1) {
        return Err(Error::CiphertextRange { index });
    }
    match (zero(c0), zero(c1)) {
        (true, true) => Err(Error::CiphertextRange { index }),
        (true, false) => Err(Error::CiphertextUnit { index }),
        (false, _) => Ok(()),
    }
}

/// The product of residues, one in each lane: units if and only if it is one. (Factors of Montgomery's `R`
/// are units too.)
struct UnitProduct<'a> {
    modulus: &'a Modulus,
    workspace: [Lanes; 3],
    scratch: Scratch,
}

impl<'a> UnitProduct<'a> {
    fn new(modulus: &'a Modulus) -> Self {
        let one = modulus.broadcast(modulus.one_in(Ring::ModN));
        let workspace = [one, modulus.residues(), modulus.residues()];
        Self { modulus, workspace, scratch: modulus.scratch() }
    }

    /// Takes in up to a group of pairs, one after the other.
    fn multiply(&mut self, pairs: &[u64]) {
        let n = self.modulus;
        let [product, x, next] = &mut self.workspace;
        let one = n.one_in(Ring::ModN);
        let mut sources = [one; 8];
        for (source, pair) in sources.iter_mut().zip(pairs.chunks_exact(n.pair_words())) {
            *source = &pair[..n.residue_words()];
        }
        n.gather(x, &sources[..n.lanes()], one);
        n.mul(next, product, x, &mut self.scratch);
        core::mem::swap(next, product);
    }

    /// The products of the lanes.
    fn finish(mut self) -> Vec<Limbs> {
        let (n, product) = (self.modulus, &mut self.workspace[0]);
        n.canonical(product, &mut self.scratch);
        let mut lanes: Vec<Vec<u64>> = vec![vec![0; n.residue_words()]; n.lanes()];
        n.scatter(&mut lanes.iter_mut().map(|lane| &mut lane[..]).collect::<Vec<_>>(), product);
        lanes.iter().map(|lane| n.limbs_of(lane)).collect()
    }
}

fn is_unit<'a>(n: &Modulus, factors: impl Iterator<Item = &'a Limbs>) -> bool {
    let product = factors.fold(nat::small(1), |product, factor| {
        nat::div_rem_vartime(&nat::mul(&product, &nat::from_limbs(factor)), n.nat()).1
    });
    nat::invert_vartime(&product, n.nat()).is_some()
}

/// The first of the pairs that is not a unit, by halving: where all but one are, that costs a few more
/// products and inverses.
fn first_non_unit(n: &Modulus, digits: &[u64]) -> Option<usize> {
    let words = n.pair_words();
    let all_units = |range: Range<usize>| {
        let mut product = UnitProduct::new(n);
        digits[range.start * words..range.end * words]
            .chunks(words * n.lanes())
            .for_each(|group| product.multiply(group));
        is_unit(n, product.finish().iter())
    };
    let (mut from, mut to) = (0, digits.len() / words);
    if all_units(from..to) {
        return None;
    }
    while to - from > 1 {
        let middle = from + (to - from) / 2;
        if all_units(from..middle) {
            from = middle;
        } else {
            to = middle;
        }
    }
    Some(from)
}
