//! Ciphertexts, and the operations that need no secret key.
//!
//! Every operation takes slices and a number of threads. An operator or a method on one ciphertext is the
//! slice form with one element. Scalars and ciphertexts are public. Noise, and plaintexts that are added, are
//! secret.

use core::fmt;
use core::ops::{Add, AddAssign, Range};

use rand_core::CryptoRng;

use crate::arith::lanes::Lanes;
use crate::arith::modulus::Scratch;
use crate::arith::nat;
use crate::arith::pow;
use crate::arith::units::{Canonical, Group, Loose, Mont, N, N2, Number, OverR, Plain, Value};
use crate::{Blinding, BlindingPool, EncryptionKey, Error, Plaintext, SlotLayout, Threads};

/// An encrypted integer: a unit modulo `n^2`.
///
/// In memory, it is a base-`n` pair in the Montgomery form of the back end. [`EncryptionKey::encode`] and
/// [`EncryptionKey::to_integers`] convert it into portable forms.
#[derive(Clone, PartialEq, Eq)]
pub struct Ciphertext {
    key: EncryptionKey,
    digits: Number<N2, Mont, Canonical, Box<[u64]>>,
}

/// The digits of a ciphertext.
pub(crate) type Digits<'a> = Number<N2, Mont, Canonical, &'a [u64]>;

/// A group of ciphertexts.
pub(crate) type Pairs<F> = Group<N2, F, Loose, Lanes>;

impl Ciphertext {
    pub(crate) fn from_digits(key: &EncryptionKey, digits: Number<N2, Mont, Canonical, Box<[u64]>>) -> Self {
        Self { key: key.clone(), digits }
    }

    pub(crate) fn digits(&self) -> Digits<'_> {
        self.digits.view()
    }

    /// Returns the key that the ciphertext was made with.
    pub fn key(&self) -> &EncryptionKey {
        &self.key
    }

    /// Returns the same ciphertext for another key of the same modulus. The keys may draw noise in different ways.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`] for a key of another modulus.
    pub fn for_key(&self, key: &EncryptionKey) -> Result<Self, Error> {
        let (own, other) = (self.key.modulus(), key.modulus());
        // One process has one back end per length, so the digits mean the same.
        if own.backend() != other.backend() || nat::cmp_vartime(own.nat(), other.nat()).is_ne() {
            return Err(Error::KeyMismatch);
        }
        Ok(Self { key: key.clone(), digits: self.digits.clone() })
    }

    /// Returns whether the ciphertext has no noise: `c = 1` modulo `n`, so that anyone can read it.
    pub fn is_trivial(&self) -> bool {
        let [lower, _] = self.digits().halves();
        lower == self.key.modulus().one()
    }

    /// Returns the encryption of zero without noise, the neutral element of addition. It hides nothing.
    pub fn neutral(key: &EncryptionKey) -> Self {
        Self::from_digits(key, key.modulus().one().boxed())
    }
}

impl fmt::Debug for Ciphertext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ciphertext({}, {} bytes)", self.key.id(), self.key.ciphertext_bytes())
    }
}

/// # Panics
/// If the ciphertexts belong to different keys; [`EncryptionKey::add`] returns an error instead.
impl Add for &Ciphertext {
    type Output = Ciphertext;
    fn add(self, other: Self) -> Ciphertext {
        let mut sum = self.clone();
        sum += other;
        sum
    }
}

/// # Panics
/// As the addition of references.
impl Add for Ciphertext {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += &other;
        self
    }
}

/// # Panics
/// As [`Add`].
impl AddAssign<&Self> for Ciphertext {
    fn add_assign(&mut self, other: &Self) {
        let key = self.key.clone();
        let added = key.add_assign(core::slice::from_mut(self), core::slice::from_ref(other), Threads::ONE);
        assert!(added.is_ok(), "ciphertexts of different keys were added");
    }
}

/// Encryption.
impl EncryptionKey {
    /// Encrypts one plaintext.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`] if the plaintext was made for another key.
    pub fn encrypt(&self, plaintext: &Plaintext, rng: &mut impl CryptoRng) -> Result<Ciphertext, Error> {
        let all = self.encrypt_all(core::slice::from_ref(plaintext), rng, Threads::ONE)?;
        one(all)
    }

    /// Encrypts a batch. The randomness is drawn from `rng` in order, so the result does not depend on the
    /// number of threads.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`] if a plaintext was made for another key.
    pub fn encrypt_all(
        &self,
        plaintexts: &[Plaintext],
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        self.check_plaintexts(plaintexts)?;
        let blindings = self.blindings(plaintexts.len(), rng, threads);
        self.encrypt_with(plaintexts, blindings, threads)
    }

    /// Encrypts a batch with blindings made ahead of time. Each is consumed.
    ///
    /// # Errors
    /// [`Error::Length`] if the number of blindings differs from the number of plaintexts,
    /// [`Error::KeyMismatch`] if any of them belongs to another key.
    pub fn encrypt_with(
        &self,
        plaintexts: &[Plaintext],
        blindings: Vec<Blinding>,
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        same_length(plaintexts.len(), blindings.len())?;
        self.check_plaintexts(plaintexts)?;
        // The noise is borrowed from the blindings, which wipe it.
        let noise = blindings.iter().map(|blinding| blinding.digits(self)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.add_plain_digits(&noise, plaintexts, threads))
    }

    /// Encrypts a batch with blindings from a pool.
    ///
    /// # Errors
    /// [`Error::PoolEmpty`] if the pool does not hold enough, otherwise as [`EncryptionKey::encrypt_with`].
    /// After an error, the pool keeps its blindings.
    pub fn encrypt_from_pool(
        &self,
        plaintexts: &[Plaintext],
        pool: &mut BlindingPool,
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        self.check_plaintexts(plaintexts)?;
        if pool.key() != self {
            return Err(Error::KeyMismatch);
        }
        let blindings = pool.take(plaintexts.len())?;
        self.encrypt_with(plaintexts, blindings, threads)
    }

    /// Gives each ciphertext fresh noise. It decrypts to the same plaintext, and nobody can link the two
    /// ciphertexts.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`] if a ciphertext belongs to another key.
    pub fn rerandomize(
        &self,
        ciphertexts: &mut [Ciphertext],
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<(), Error> {
        self.check_ciphertexts(ciphertexts)?;
        self.blind(ciphertexts, &self.blindings(ciphertexts.len(), rng, threads), threads)
    }

    /// Adds a blinding to each ciphertext.
    pub(crate) fn blind(
        &self,
        ciphertexts: &mut [Ciphertext],
        blindings: &[Blinding],
        threads: Threads,
    ) -> Result<(), Error> {
        let noise = blindings.iter().map(|blinding| blinding.digits(self)).collect::<Result<Vec<_>, _>>()?;
        let fresh = self.add_digits(&digits(ciphertexts), &noise, threads);
        ciphertexts.iter_mut().zip(fresh).for_each(|(old, new)| *old = new);
        Ok(())
    }
}

/// Arithmetic on ciphertexts.
impl EncryptionKey {
    /// Returns the sums `xs[i] + ys[i]`.
    ///
    /// # Errors
    /// [`Error::Length`] or [`Error::KeyMismatch`].
    pub fn add(
        &self,
        xs: &[Ciphertext],
        ys: &[Ciphertext],
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        same_length(xs.len(), ys.len())?;
        self.check_ciphertexts(xs)?;
        self.check_ciphertexts(ys)?;
        Ok(self.add_digits(&digits(xs), &digits(ys), threads))
    }

    /// Adds `ys[i]` to `xs[i]`.
    ///
    /// # Errors
    /// [`Error::Length`] or [`Error::KeyMismatch`]. After an error, `xs` is unchanged.
    pub fn add_assign(
        &self,
        xs: &mut [Ciphertext],
        ys: &[Ciphertext],
        threads: Threads,
    ) -> Result<(), Error> {
        same_length(xs.len(), ys.len())?;
        self.check_ciphertexts(xs)?;
        self.check_ciphertexts(ys)?;
        let n = self.modulus();
        // In place, because allocating new ciphertexts would cost a tenth of the time.
        threads.for_each(xs, n.lanes(), |start, xs| {
            let (mut z, mut x, mut y, mut scratch) = (n.pairs(), n.pairs(), n.pairs(), n.scratch());
            for (xs, ys) in xs.chunks_mut(n.lanes()).zip(ys[start..].chunks(n.lanes())) {
                n.gather(&mut x, &digits(xs), n.one());
                n.gather(&mut y, &digits(ys), n.one());
                n.mul(&mut z, &x, &y, &mut scratch);
                let mut targets: Vec<_> = xs.iter_mut().map(|x| x.digits.view_mut()).collect();
                n.scatter(&mut targets, &n.canonical(&mut z, &mut scratch));
            }
        });
        Ok(())
    }

    /// Returns the sum of all ciphertexts. The empty sum is the neutral element.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`].
    pub fn sum(&self, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Ciphertext, Error> {
        self.check_ciphertexts(ciphertexts)?;
        let n = self.modulus();
        // Each lane sums its share. Then the lanes are added up.
        let partial: Vec<Ciphertext> = threads.map(ciphertexts.len(), n.lanes(), |range| {
            let mut scratch = n.scratch();
            let mut sum = n.ones();
            let (mut x, mut next) = (n.pairs(), n.pairs());
            for group in ciphertexts[range].chunks(n.lanes()) {
                n.gather(&mut x, &digits(group), n.one());
                n.mul(&mut next, &sum, &x, &mut scratch);
                core::mem::swap(&mut next, &mut sum);
            }
            self.take_apart(&mut sum, n.lanes(), &mut scratch)
        });
        let mut all = partial;
        while all.len() > 1 {
            let upper = all.split_off(all.len().div_ceil(2));
            let (paired, _) = all.split_at_mut(upper.len());
            self.add_assign(paired, &upper, Threads::ONE)?;
        }
        Ok(all.pop().unwrap_or_else(|| Ciphertext::neutral(self)))
    }

    /// Returns the sums `xs[i] + ms[i]` of ciphertexts and plaintexts. The noise stays the same.
    ///
    /// # Errors
    /// [`Error::Length`] or [`Error::KeyMismatch`].
    pub fn add_plain(
        &self,
        xs: &[Ciphertext],
        ms: &[Plaintext],
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        same_length(xs.len(), ms.len())?;
        self.check_ciphertexts(xs)?;
        self.check_plaintexts(ms)?;
        Ok(self.add_plain_digits(&digits(xs), ms, threads))
    }

    /// Returns the products `ks[i] * xs[i]` with small public integers. The time depends on the integers. A
    /// product by zero is the neutral element, which has no noise.
    ///
    /// # Errors
    /// [`Error::Length`] or [`Error::KeyMismatch`].
    pub fn mul_small_vartime(
        &self,
        xs: &[Ciphertext],
        ks: &[i64],
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        same_length(xs.len(), ks.len())?;
        self.check_ciphertexts(xs)?;
        let magnitudes: Vec<[u64; 1]> = ks.iter().map(|k| [k.unsigned_abs()]).collect();
        let magnitudes: Vec<&[u64]> = magnitudes.iter().map(|k| &k[..]).collect();
        let products = self.powers_vartime(xs, &magnitudes, threads);
        self.negate_some_vartime(products, |i| ks[i] < 0, threads)
    }

    /// Returns the products of ciphertexts with public integers of any size, each given by whether it is negative and
    /// by its magnitude (big-endian). The time depends on the integers. A product by zero is the neutral element,
    /// which has no noise.
    ///
    /// # Errors
    /// [`Error::Length`] or [`Error::KeyMismatch`], [`Error::PlaintextRange`] for a magnitude with more bytes than the
    /// modulus has.
    pub fn mul_vartime(
        &self,
        xs: &[Ciphertext],
        ks: &[(bool, &[u8])],
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        same_length(xs.len(), ks.len())?;
        self.check_ciphertexts(xs)?;
        let magnitude = |&(_, bytes): &(bool, &[u8])| {
            let k = nat::from_be_bytes(bytes, self.modulus_bytes()).ok_or(Error::PlaintextRange)?;
            Ok(nat::limbs(&k, self.modulus().limbs()))
        };
        let magnitudes = ks.iter().map(magnitude).collect::<Result<Vec<_>, Error>>()?;
        let magnitudes: Vec<&[u64]> = magnitudes.iter().map(|k| &k[..]).collect();
        let products = self.powers_vartime(xs, &magnitudes, threads);
        self.negate_some_vartime(products, |i| ks[i].0, threads)
    }

    /// Returns the negated ciphertexts: they decrypt to the plaintexts with the other sign. Ciphertexts are public,
    /// and the time depends on them.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`].
    pub fn negate_vartime(&self, xs: &[Ciphertext], threads: Threads) -> Result<Vec<Ciphertext>, Error> {
        self.check_ciphertexts(xs)?;
        self.negate_some_vartime(xs.to_vec(), |_| true, threads)
    }

    /// Returns `xs[i]` to the public power `ks[i]`, a little-endian number.
    fn powers_vartime(&self, xs: &[Ciphertext], ks: &[&[u64]], threads: Threads) -> Vec<Ciphertext> {
        let n = self.modulus();
        let buffers = || n.pairs();
        self.by_group(xs.len(), threads, buffers, |range, z, x, scratch| {
            n.gather(x, &digits(&xs[range.clone()]), n.one());
            *z = pow::pow_vartime(n, x, &ks[range], scratch);
        })
    }

    /// Negates the ciphertexts whose index `chosen` accepts.
    fn negate_some_vartime(
        &self,
        mut xs: Vec<Ciphertext>,
        chosen: impl Fn(usize) -> bool + Sync,
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        let results = threads.for_each(&mut xs, 1, |start, xs| {
            for (i, x) in xs.iter_mut().enumerate() {
                if chosen(start + i) {
                    *x = self.negated_vartime(x)?;
                }
            }
            Ok(())
        });
        results.into_iter().collect::<Result<(), Error>>()?;
        Ok(xs)
    }

    /// Returns `-x`, by the inverse of a pair: `(c0 + c1 n)^-1 = c0^-1 (1 - c1 c0^-1 n)`.
    fn negated_vartime(&self, x: &Ciphertext) -> Result<Ciphertext, Error> {
        let n = self.modulus();
        let [lower, _] = x.digits().halves();
        let inverse = nat::invert_vartime(&nat::from_limbs(&n.representation(&lower)), n.nat())
            .ok_or(Error::CiphertextUnit { index: 0 })?;
        let mut scratch = n.scratch();
        // The inverse of c R is c^-1 / R. It is right modulo n.
        let over_r = n.broadcast(&n.residue(&inverse).claim_form::<OverR>());
        let (mut plain, mut inverse) = (n.residues(), n.residues());
        n.mul(&mut plain, &over_r, &n.r_squared(), &mut scratch);
        n.enter(&mut inverse, &plain, &mut scratch);
        // With i for the inverse modulo n, c i = 1 + e n, so that i (1 - e n) is the inverse modulo n^2.
        let (mut product, mut negated) = (n.pairs(), n.pairs());
        let c = n.broadcast(&x.digits());
        n.scale(&mut product, &c, &inverse, &mut scratch);
        let correction = n.two_minus(&n.lane(&n.canonical(&mut product, &mut scratch), 0));
        n.scale(&mut negated, &n.broadcast(&correction), &inverse, &mut scratch);
        one(self.take_apart(&mut negated, 1, &mut scratch))
    }

    /// Packs ciphertexts by Horner's rule. Each `columns[i]` becomes one ciphertext whose slot `j` is
    /// `columns[i][j]`. It is decrypted at once and unpacked by the same layout.
    ///
    /// # Errors
    /// [`Error::Length`] for a column that is longer than a plaintext has slots, [`Error::KeyMismatch`].
    pub fn pack(
        &self,
        columns: &[&[Ciphertext]],
        layout: &SlotLayout,
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        layout.check_key(self)?;
        columns.iter().try_for_each(|column| self.check_ciphertexts(column))?;
        if let Some(column) = columns.iter().find(|column| column.len() > layout.slots()) {
            return Err(Error::Length { expected: layout.slots(), found: column.len() });
        }
        let n = self.modulus();
        let buffers = || (n.pairs(), n.pairs());
        Ok(self.by_group(columns.len(), threads, buffers, |range, z, (x, y), scratch| {
            let columns = &columns[range];
            let height = columns.iter().map(|column| column.len()).max().unwrap_or(0);
            *z = n.ones();
            for j in (0..height).rev() {
                if j + 1 < height {
                    for _ in 0..layout.slot_bits() {
                        n.square(y, z, scratch);
                        core::mem::swap(y, z);
                    }
                }
                let row: Vec<_> =
                    columns.iter().map(|column| column.get(j).map_or(n.one(), Ciphertext::digits)).collect();
                n.gather(x, &row, n.one());
                n.mul(y, z, x, scratch);
                core::mem::swap(y, z);
            }
        }))
    }

    fn add_digits(&self, xs: &[Digits<'_>], ys: &[Digits<'_>], threads: Threads) -> Vec<Ciphertext> {
        let n = self.modulus();
        let buffers = || (n.pairs(), n.pairs());
        self.by_group(xs.len(), threads, buffers, |range, z, (x, y), scratch| {
            n.gather(x, &xs[range.clone()], n.one());
            n.gather(y, &ys[range], n.one());
            n.mul(z, x, y, scratch);
        })
    }

    /// Returns `c (1 + m n) = c0 + (c1 + m c0) n`: one product modulo `n`, and one to enter Montgomery form.
    fn add_plain_digits(&self, xs: &[Digits<'_>], ms: &[Plaintext], threads: Threads) -> Vec<Ciphertext> {
        let n = self.modulus();
        let zero: Number<N, Plain, Canonical, _> = n.residue(&nat::small(0));
        let buffers = || (n.residues(), n.residues(), n.residues());
        self.by_group(xs.len(), threads, buffers, |range, z, (plain, m, product), scratch| {
            let residues: Vec<_> =
                ms[range.clone()].iter().map(|m| n.residue_of_limbs(m.residue())).collect();
            n.gather(plain, &residues.iter().map(Value::view).collect::<Vec<_>>(), zero.view());
            n.enter(m, plain, scratch);
            let [lower, mut upper] = n.gather(z, &xs[range], n.one()).halves_mut();
            n.mul(product, m, &lower, scratch);
            n.add(&mut upper, &n.canonical(product, scratch), scratch);
        })
    }

    /// Runs `work` on groups of as many ciphertexts as there are lanes, with one set of `buffers` per thread.
    /// `work` writes its result to the group it is given.
    pub(crate) fn by_group<B>(
        &self,
        count: usize,
        threads: Threads,
        buffers: impl Fn() -> B + Sync,
        work: impl Fn(Range<usize>, &mut Pairs<Mont>, &mut B, &mut Scratch) + Sync,
    ) -> Vec<Ciphertext> {
        let n = self.modulus();
        threads.map(count, n.lanes(), |range| {
            let (mut z, mut buffers, mut scratch) = (n.pairs(), buffers(), n.scratch());
            let mut results = Vec::with_capacity(range.len());
            for start in range.clone().step_by(n.lanes()) {
                let end = range.end.min(start + n.lanes());
                work(start..end, &mut z, &mut buffers, &mut scratch);
                results.extend(self.take_apart(&mut z, end - start, &mut scratch));
            }
            results
        })
    }

    /// Returns the first `count` ciphertexts of a group.
    pub(crate) fn take_apart(
        &self,
        group: &mut Pairs<Mont>,
        count: usize,
        scratch: &mut Scratch,
    ) -> Vec<Ciphertext> {
        let n = self.modulus();
        let all = n.take_apart(&n.canonical(group, scratch), count);
        all.into_iter().map(|digits| Ciphertext::from_digits(self, digits)).collect()
    }

    pub(crate) fn check_ciphertexts(&self, ciphertexts: &[Ciphertext]) -> Result<(), Error> {
        if ciphertexts.iter().all(|c| c.key() == self) { Ok(()) } else { Err(Error::KeyMismatch) }
    }

    fn check_plaintexts(&self, plaintexts: &[Plaintext]) -> Result<(), Error> {
        if plaintexts.iter().all(|m| m.key() == self) { Ok(()) } else { Err(Error::KeyMismatch) }
    }
}

fn digits(ciphertexts: &[Ciphertext]) -> Vec<Digits<'_>> {
    ciphertexts.iter().map(Ciphertext::digits).collect()
}

fn same_length(expected: usize, found: usize) -> Result<(), Error> {
    if expected == found { Ok(()) } else { Err(Error::Length { expected, found }) }
}

/// Returns the only element of a batch of one.
fn one(mut all: Vec<Ciphertext>) -> Result<Ciphertext, Error> {
    let found = all.len();
    all.pop().ok_or(Error::Length { expected: 1, found })
}
