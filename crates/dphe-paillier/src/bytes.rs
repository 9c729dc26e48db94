//! Ciphertexts as bytes and as integers.
//!
//! The wire form is the canonical base-`n` pair `c = c0 + c1 n`, written `c1 || c0` in fixed-width big-endian
//! bytes, so that neither side divides. The integer form is `c` itself, big-endian, as in python-paillier.
//!
//! Reading checks ciphertexts but leaves them in plain form. [`RunningSums`](crate::RunningSums) and
//! [`DecryptionKey::decrypt_small`](crate::DecryptionKey::decrypt_small) compute with plain ciphertexts,
//! which saves the multiplication that converts to Montgomery form.

use core::fmt;
use core::ops::Range;

use crate::arith::lanes::{Lanes, MAX_LANES};
use crate::arith::modulus::{Modulus, Scratch};
use crate::arith::nat::{self, Limbs};
use crate::arith::units::{Canonical, Counted, Group, Loose, Mont, N, N2, Number, Numbers, Plain, Public};
use crate::ciphertext::Pairs;
use crate::{Ciphertext, EncryptionKey, Error, Threads};

/// The digits of a ciphertext that came over the wire.
pub(crate) type PlainDigits<'a> = Number<N2, Plain, Canonical, &'a [u64]>;

/// Ciphertexts that were read from bytes: checked to be canonical units, and left in plain form.
#[derive(Clone, PartialEq, Eq)]
pub struct WireCiphertexts {
    key: EncryptionKey,
    digits: Numbers<N2, Plain, Canonical, Vec<u64>>,
}

impl WireCiphertexts {
    /// Returns the number of ciphertexts.
    pub fn len(&self) -> usize {
        self.key.modulus().count(&self.digits)
    }

    /// Returns whether there are no ciphertexts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the key that the ciphertexts were read with.
    pub fn key(&self) -> &EncryptionKey {
        &self.key
    }

    /// Returns whether ciphertext `i` has no noise: `c = 1` modulo `n`, so that anyone can read it.
    ///
    /// # Panics
    /// If there is no ciphertext `i`.
    pub fn is_trivial(&self, i: usize) -> bool {
        let [one, _] = self.key.modulus().plain_one().halves();
        self.lower(i) == one
    }

    /// Returns the low 128 bits of `c` modulo `n`. They are equal for two ciphertexts that share their noise.
    ///
    /// # Panics
    /// If there is no ciphertext `i`.
    pub fn fingerprint(&self, i: usize) -> u128 {
        let mut limbs = [0; 2];
        self.key.modulus().write_limbs(&mut limbs, &self.lower(i));
        u128::from(limbs[1]) << 64 | u128::from(limbs[0])
    }

    /// Converts the batch into the form for computing.
    pub fn to_ciphertexts(&self, threads: Threads) -> Vec<Ciphertext> {
        let n = self.key.modulus();
        let buffers = || n.pairs();
        self.key.by_group(self.len(), threads, buffers, |range, z, x, scratch| {
            n.gather(x, &self.range(range), n.plain_one());
            n.enter(z, x, scratch);
        })
    }

    /// Returns the digits of ciphertext `i`.
    pub(crate) fn digits(&self, i: usize) -> PlainDigits<'_> {
        self.key.modulus().nth(&self.digits, i)
    }

    /// Returns the digits of a range of ciphertexts.
    pub(crate) fn range(&self, range: Range<usize>) -> Vec<PlainDigits<'_>> {
        range.map(|i| self.digits(i)).collect()
    }

    /// Returns `c` modulo `n`.
    fn lower(&self, i: usize) -> Number<N, Plain, Canonical, &[u64]> {
        let [lower, _] = self.digits(i).halves();
        lower
    }
}

impl fmt::Debug for WireCiphertexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WireCiphertexts({}, {} ciphertexts)", self.key.id(), self.len())
    }
}

impl EncryptionKey {
    /// Returns the wire form of a batch: each ciphertext takes [`EncryptionKey::ciphertext_bytes`].
    ///
    /// # Errors
    /// [`Error::KeyMismatch`].
    pub fn encode(&self, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Vec<u8>, Error> {
        self.check_ciphertexts(ciphertexts)?;
        let n = self.modulus();
        let buffers = || n.pairs();
        Ok(self.write_groups(ciphertexts.len(), threads, buffers, |range, z, x, scratch| {
            self.leave_montgomery_form(&ciphertexts[range], z, x, scratch);
        }))
    }

    /// Reads a batch in wire form, checks it as [`EncryptionKey::read_wire`] does, and converts it into the
    /// form for computing.
    ///
    /// # Errors
    /// As [`EncryptionKey::read_wire`].
    pub fn decode(&self, bytes: &[u8], threads: Threads) -> Result<Vec<Ciphertext>, Error> {
        Ok(self.read_wire(bytes, threads)?.to_ciphertexts(threads))
    }

    /// Returns the ciphertexts as integers in `0..n^2`, big-endian, which is the form of python-paillier.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`].
    pub fn to_integers(&self, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Vec<Vec<u8>>, Error> {
        let n = self.modulus();
        let each = self.ciphertext_bytes();
        let integer = |pair: &[u8]| {
            let (upper, lower) = pair.split_at(self.modulus_bytes());
            let [c1, c0] = [upper, lower].map(|half| nat::from_be_bytes(half, half.len()));
            let c = c1.zip(c0).map(|(c1, c0)| nat::add(&c0, &nat::mul(&c1, n.nat())));
            c.map_or_else(Vec::new, |c| nat::to_be_bytes(&c, each).to_vec())
        };
        Ok(self.encode(ciphertexts, threads)?.chunks_exact(each).map(integer).collect())
    }

    /// Reads integers in `0..n^2`, big-endian. Leading zeros are allowed.
    ///
    /// # Errors
    /// [`Error::CiphertextRange`] with the index of an integer that is too long, or of the first that is out
    /// of range, [`Error::CiphertextUnit`] with the index of the first that is not a unit.
    pub fn from_integers(&self, integers: &[&[u8]], threads: Threads) -> Result<Vec<Ciphertext>, Error> {
        let mut halves = Vec::with_capacity(integers.len());
        for (index, integer) in integers.iter().enumerate() {
            let integer = nat::from_be_bytes(integer, self.ciphertext_bytes());
            let integer = integer.ok_or(Error::CiphertextRange { index })?;
            let (c1, c0) = nat::div_rem_vartime(&integer, self.modulus().nat());
            halves.push((c0, c1));
        }
        let plain = self.read_halves(halves.len(), threads, |i, c0, c1| {
            c0.copy_from_slice(&nat::limbs(&halves[i].0, c0.len()));
            c1.copy_from_slice(&nat::limbs(&halves[i].1, c1.len()));
        })?;
        Ok(plain.to_ciphertexts(threads))
    }

    /// Reads a batch in wire form and checks that each ciphertext is canonical and a unit.
    ///
    /// # Errors
    /// [`Error::CiphertextLength`], [`Error::CiphertextRange`] with the index of the first ciphertext that is
    /// out of range, or [`Error::CiphertextUnit`] with the index of the first that is not a unit.
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

    /// Reads `count` ciphertexts and checks them. `halves` writes `c0` and `c1` of one ciphertext as limbs,
    /// one more than `n` has.
    fn read_halves(
        &self,
        count: usize,
        threads: Threads,
        halves: impl Fn(usize, &mut [u64], &mut [u64]) + Sync,
    ) -> Result<WireCiphertexts, Error> {
        let n = self.modulus();
        let words = n.pair_words();
        let modulus = nat::limbs(n.nat(), n.limbs() + 1);
        let mut digits = vec![0; count * words];
        // Each thread multiplies a group up while it is in the cache.
        let parts = threads.for_each(&mut digits, words * n.lanes(), |start, part| {
            let (mut c0, mut c1) = (vec![0; modulus.len()], vec![0; modulus.len()]);
            let mut product = UnitProduct::new(n);
            let mut index = start / words;
            for group in part.chunks_mut(words * n.lanes()) {
                let mut group = Numbers::<N2, Plain, Canonical, _>::claim(group);
                for mut pair in n.each_mut(&mut group) {
                    halves(index, &mut c0, &mut c1);
                    check_range(&c0, &c1, &modulus, index)?;
                    let [mut lower, mut upper] = pair.view_mut().halves_mut();
                    n.write_residue(&mut lower, &c0);
                    n.write_residue(&mut upper, &c1);
                    index += 1;
                }
                product.multiply(n.each(&group));
            }
            Ok(product.finish())
        });
        let products = parts.into_iter().collect::<Result<Vec<_>, Error>>()?;
        let batch = WireCiphertexts { key: self.clone(), digits: Numbers::claim(digits) };
        if !is_unit(n, products.iter().flatten())
            && let Some(index) = first_non_unit(n, &batch)
        {
            return Err(Error::CiphertextUnit { index });
        }
        Ok(batch)
    }

    fn leave_montgomery_form(
        &self,
        ciphertexts: &[Ciphertext],
        z: &mut Pairs<Plain>,
        x: &mut Pairs<Mont>,
        scratch: &mut Scratch,
    ) {
        let n = self.modulus();
        let sources: Vec<_> = ciphertexts.iter().map(Ciphertext::digits).collect();
        n.gather(x, &sources, n.one());
        n.leave(z, x, scratch);
    }

    /// Writes the wire form of groups of ciphertexts. `work` writes a group in plain form, with one set of
    /// `buffers` per thread.
    pub(crate) fn write_groups<B>(
        &self,
        count: usize,
        threads: Threads,
        buffers: impl Fn() -> B + Sync,
        work: impl Fn(Range<usize>, &mut Pairs<Plain>, &mut B, &mut Scratch) + Sync,
    ) -> Vec<u8> {
        let n = self.modulus();
        let (each, width) = (self.ciphertext_bytes(), self.modulus_bytes());
        let mut bytes = vec![0; count * each];
        threads.for_each(&mut bytes, each * n.lanes(), |start, part| {
            let (mut z, mut buffers, mut scratch) = (n.pairs(), buffers(), n.scratch());
            let mut pairs: Numbers<N2, Plain, Canonical, Vec<u64>> = n.numbers(n.lanes());
            let mut limbs = vec![0; n.limbs()];
            let mut first = start / each;
            for group in part.chunks_mut(each * n.lanes()) {
                let count = group.len() / each;
                work(first..first + count, &mut z, &mut buffers, &mut scratch);
                let mut targets: Vec<_> = n.each_mut(&mut pairs).collect();
                n.scatter(&mut targets, &n.canonical(&mut z, &mut scratch));
                for (bytes, pair) in group.chunks_exact_mut(each).zip(n.each(&pairs)) {
                    let [c0, c1] = pair.halves();
                    let (upper, lower) = bytes.split_at_mut(width);
                    for (bytes, half) in [(upper, c1), (lower, c0)] {
                        n.write_limbs(&mut limbs, &half);
                        write_bytes(bytes, &limbs);
                    }
                }
                first += count;
            }
        });
        bytes
    }
}

/// Reads limbs from big-endian bytes.
fn read_limbs(limbs: &mut [u64], bytes: &[u8]) {
    let (rest, words) = bytes.as_rchunks();
    let mut top = [0; 8];
    top[8 - rest.len()..].copy_from_slice(rest);
    let words = words.iter().rev().map(|&word| u64::from_be_bytes(word));
    let all = words.chain([u64::from_be_bytes(top)]).chain(core::iter::repeat(0));
    limbs.iter_mut().zip(all).for_each(|(limb, word)| *limb = word);
}

/// Writes as many low bytes of the limbs as there is room for, big-endian.
fn write_bytes(bytes: &mut [u8], limbs: &[u64]) {
    for (bytes, limb) in bytes.rchunks_mut(8).zip(limbs) {
        bytes.copy_from_slice(&limb.to_be_bytes()[8 - bytes.len()..]);
    }
}

/// Checks that both halves are below the modulus and that the lower half is not zero. A number with a zero
/// lower half is zero or a multiple of `n`, hence not a unit.
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

/// The product of residues, one per lane. All residues are units if and only if the product is a unit. Its
/// power of `R` does not matter, because `R` is a unit too.
struct UnitProduct<'a> {
    modulus: &'a Modulus<Public>,
    product: Group<N, Counted, Loose, Lanes>,
    x: Group<N, Counted, Loose, Lanes>,
    next: Group<N, Counted, Loose, Lanes>,
    scratch: Scratch,
    /// How many lanes have been multiplied. The others hold 1.
    used: usize,
}

impl<'a> UnitProduct<'a> {
    fn new(modulus: &'a Modulus<Public>) -> Self {
        Self {
            modulus,
            product: modulus.ones(),
            x: modulus.residues(),
            next: modulus.residues(),
            scratch: modulus.scratch(),
            used: 0,
        }
    }

    /// Multiplies by up to a group of ciphertexts modulo `n`.
    fn multiply<'c>(&mut self, pairs: impl Iterator<Item = PlainDigits<'c>>) {
        let n = self.modulus;
        let one = n.one().counted();
        let mut sources = [one; MAX_LANES];
        let mut count = 0;
        for (source, pair) in sources.iter_mut().zip(pairs) {
            let [lower, _] = pair.halves();
            *source = lower.counted();
            count += 1;
        }
        self.used = self.used.max(count);
        n.gather(&mut self.x, &sources[..n.lanes()], one);
        n.mul(&mut self.next, &self.product, &self.x, &mut self.scratch);
        core::mem::swap(&mut self.next, &mut self.product);
    }

    /// Returns the products of the lanes in use.
    fn finish(mut self) -> Vec<Limbs> {
        let n = self.modulus;
        let products: Vec<Number<_, _, _, Lanes>> =
            n.take_apart(&n.canonical(&mut self.product, &mut self.scratch), self.used);
        products.iter().map(|product| n.representation(product)).collect()
    }
}

fn is_unit<'a>(n: &Modulus<Public>, factors: impl Iterator<Item = &'a Limbs>) -> bool {
    let product = factors.fold(nat::small(1), |product, factor| {
        nat::div_rem_vartime(&nat::mul(&product, &nat::from_limbs(factor)), n.nat()).1
    });
    nat::invert_vartime(&product, n.nat()).is_some()
}

/// Returns the index of the first ciphertext that is not a unit, by bisection.
fn first_non_unit(n: &Modulus<Public>, batch: &WireCiphertexts) -> Option<usize> {
    let all_units = |range: Range<usize>| {
        let mut product = UnitProduct::new(n);
        for start in range.clone().step_by(n.lanes()) {
            product.multiply((start..range.end.min(start + n.lanes())).map(|i| batch.digits(i)));
        }
        is_unit(n, product.finish().iter())
    };
    let (mut from, mut to) = (0, batch.len());
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
