//! Ciphertexts, and what can be done with them without the secret key.
//!
//! Every operation takes slices and a number of threads; an operator or a method on one ciphertext is
//! the slice form with one element. Scalars and the ciphertexts themselves are public; plaintexts that
//! are added, and all noise, are not.

use core::fmt;
use core::ops::{Add, AddAssign};

use rand_core::CryptoRng;

use crate::arith::lanes::Lanes;
use crate::arith::modulus::Scratch;
use crate::arith::nat;
use crate::arith::pow;
use crate::{Blinding, BlindingPool, EncryptionKey, Error, Plaintext, SlotLayout, Threads};

/// An encrypted integer: a unit modulo `n^2`, canonical.
///
/// Inside, it is a base-`n` pair in the Montgomery form of the back end; outside, see
/// [`EncryptionKey::encode`] and [`EncryptionKey::to_integers`].
#[derive(Clone, PartialEq, Eq)]
pub struct Ciphertext {
    key: EncryptionKey,
    digits: Box<[u64]>,
}

impl Ciphertext {
    pub(crate) fn from_digits(key: &EncryptionKey, digits: Box<[u64]>) -> Self {
        Self { key: key.clone(), digits }
    }

    pub(crate) fn digits(&self) -> &[u64] {
        &self.digits
    }

    /// The key it was made with.
    pub fn key(&self) -> &EncryptionKey {
        &self.key
    }

    /// Whether it has no noise: `c = 1` modulo `n`, so that anybody can read it.
    pub fn is_trivial(&self) -> bool {
        let n = self.key.modulus();
        self.digits[..n.residue_words()] == n.one()[..n.residue_words()]
    }

    /// The encryption of zero without noise: the neutral element of addition. It hides nothing.
    pub fn neutral(key: &EncryptionKey) -> Self {
        Self::from_digits(key, key.modulus().one().into())
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
/// As for references.
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

/// Encrypting.
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

    /// Encrypts a batch with blindings made ahead of time, each used up.
    ///
    /// # Errors
    /// [`Error::Length`] if there is not one blinding for each plaintext, [`Error::KeyMismatch`] if any of
    /// them belongs to another key.
    pub fn encrypt_with(
        &self,
        plaintexts: &[Plaintext],
        blindings: Vec<Blinding>,
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        same_length(plaintexts.len(), blindings.len())?;
        self.check_plaintexts(plaintexts)?;
        // the noise stays where it is wiped
        let noise = blindings.iter().map(|blinding| blinding.digits(self)).collect::<Result<Vec<_>, _>>()?;
        self.add_plain_digits(&noise, plaintexts, threads)
    }

    /// Encrypts a batch with blindings from a pool.
    ///
    /// # Errors
    /// [`Error::PoolEmpty`] if the pool does not hold enough, otherwise as
    /// [`EncryptionKey::encrypt_with`]; the pool then keeps what it has.
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

    /// Gives each ciphertext fresh noise: it decrypts to the same, and nobody can link the two.
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
        let blindings = self.blindings(ciphertexts.len(), rng, threads);
        let noise = blindings.iter().map(|blinding| blinding.digits(self)).collect::<Result<Vec<_>, _>>()?;
        let fresh = self.add_digits(&digits(ciphertexts), &noise, threads);
        ciphertexts.iter_mut().zip(fresh).for_each(|(old, new)| *old = new);
        Ok(())
    }
}

/// Computing with ciphertexts.
impl EncryptionKey {
    /// The sums `xs[i] + ys[i]`.
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

    /// `xs[i] += ys[i]`.
    ///
    /// # Errors
    /// [`Error::Length`] or [`Error::KeyMismatch`]; nothing has been added then.
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
        // in place: where sums run on, making new ciphertexts would cost a tenth of the time
        threads.for_each(xs, n.lanes(), |start, xs| {
            let Workspace { mut z, mut x, mut y, mut scratch } = Workspace::new(self);
            for (xs, ys) in xs.chunks_mut(n.lanes()).zip(ys[start..].chunks(n.lanes())) {
                n.gather(&mut x, &digits(xs), n.one());
                n.gather(&mut y, &digits(ys), n.one());
                n.mul_pair(&mut z, &x, &y, &mut scratch);
                n.canonical_pair(&mut z, &mut scratch);
                n.scatter(&mut xs.iter_mut().map(|x| &mut x.digits[..]).collect::<Vec<_>>(), &z);
            }
        });
        Ok(())
    }

    /// The sum of all of them; of none, the neutral element.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`].
    pub fn sum(&self, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Ciphertext, Error> {
        self.check_ciphertexts(ciphertexts)?;
        let n = self.modulus();
        // each lane sums its share, then the lanes are added up
        let partial: Vec<Ciphertext> = threads.map(ciphertexts.len(), n.lanes(), |range| {
            let mut scratch = n.scratch();
            let mut sum = n.broadcast(n.one());
            let (mut x, mut next) = (n.pairs(), n.pairs());
            for group in ciphertexts[range].chunks(n.lanes()) {
                n.gather(&mut x, &digits(group), n.one());
                n.mul_pair(&mut next, &sum, &x, &mut scratch);
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

    /// The sums `xs[i] + ms[i]` of ciphertexts and plaintexts. The noise stays the same.
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
        self.add_plain_digits(&digits(xs), ms, threads)
    }

    /// The products `ks[i] * xs[i]` with small public integers. Takes longer for larger ones; zero gives the
    /// neutral element, which has no noise.
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
        let n = self.modulus();
        let products = self.by_group(xs.len(), threads, |range, Workspace { z, x, scratch, .. }| {
            n.gather(x, &digits(&xs[range.clone()]), n.one());
            let exponents: Vec<u64> = ks[range].iter().map(|k| k.unsigned_abs()).collect();
            *z = pow::pow_small_vartime(n, x, &exponents, scratch);
        });
        products
            .into_iter()
            .zip(ks)
            .map(|(x, &k)| if k < 0 { self.negate_vartime(&x) } else { Ok(x) })
            .collect()
    }

    /// `-x`, by the inverse of a pair: `(c0 + c1 n)^-1 = c0^-1 (1 - c1 c0^-1 n)`.
    fn negate_vartime(&self, x: &Ciphertext) -> Result<Ciphertext, Error> {
        let n = self.modulus();
        let (c0, c1) = x.digits.split_at(n.residue_words());
        let (c0, c1) = (nat::from_limbs(&n.limbs_of(c0)), nat::from_limbs(&n.limbs_of(c1)));
        // x is in Montgomery form c R; its inverse in that form is (c R)^-1 R^2
        let inverse = nat::invert_vartime(&c0, n.nat()).ok_or(Error::CiphertextUnit { index: 0 })?;
        let n_squared = nat::mul(n.nat(), n.nat());
        let whole = nat::add(&c0, &nat::mul(&c1, n.nat()));
        // one Newton step lifts an inverse modulo n to one modulo n^2
        let product = nat::rem(&nat::mul(&whole, &inverse), &n_squared);
        let correction = nat::sub(&nat::add(&n_squared, &nat::small(2)), &product);
        let lifted = nat::rem(&nat::mul(&inverse, &correction), &n_squared);
        let mut scratch = n.scratch();
        let group = n.broadcast(&n.pair_digits(&lifted));
        let r_squared = n.broadcast(n.r_squared());
        let (mut once, mut twice) = (n.pairs(), n.pairs());
        // each multiplication by R^2 brings one factor R
        n.mul_pair(&mut once, &group, &r_squared, &mut scratch);
        n.mul_pair(&mut twice, &once, &r_squared, &mut scratch);
        one(self.take_apart(&mut twice, 1, &mut scratch))
    }

    /// Packs ciphertexts by Horner's rule: each `columns[i]` becomes one ciphertext whose slot `j` is
    /// `columns[i][j]`, to be decrypted at once and unpacked by the same layout.
    ///
    /// # Errors
    /// [`Error::Length`] for a column longer than a plaintext has slots, [`Error::KeyMismatch`].
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
        Ok(self.by_group(columns.len(), threads, |range, Workspace { z, x, y, scratch }| {
            let columns = &columns[range];
            let height = columns.iter().map(|column| column.len()).max().unwrap_or(0);
            *z = n.broadcast(n.one());
            for j in (0..height).rev() {
                if j + 1 < height {
                    for _ in 0..layout.slot_bits() {
                        n.square_pair(y, z, scratch);
                        core::mem::swap(y, z);
                    }
                }
                let row: Vec<&[u64]> =
                    columns.iter().map(|column| column.get(j).map_or(n.one(), Ciphertext::digits)).collect();
                n.gather(x, &row, n.one());
                n.mul_pair(y, z, x, scratch);
                core::mem::swap(y, z);
            }
        }))
    }

    fn add_digits(&self, xs: &[&[u64]], ys: &[&[u64]], threads: Threads) -> Vec<Ciphertext> {
        let n = self.modulus();
        self.by_group(xs.len(), threads, |range, Workspace { z, x, y, scratch }| {
            n.gather(x, &xs[range.clone()], n.one());
            n.gather(y, &ys[range], n.one());
            n.mul_pair(z, x, y, scratch);
        })
    }

    /// `c (1 + m n) = c0 + (c1 + m c0) n`: one product modulo `n`, and one to bring `m` into form.
    fn add_plain_digits(
        &self,
        xs: &[&[u64]],
        ms: &[Plaintext],
        threads: Threads,
    ) -> Result<Vec<Ciphertext>, Error> {
        let n = self.modulus();
        let half = n.residues().len();
        let r_squared = n.broadcast(&n.r_squared()[..n.residue_words()]);
        let zero = Lanes::zeros(n.residue_words());
        Ok(self.by_group(xs.len(), threads, |range, Workspace { z, x, y, scratch }| {
            let plain: Vec<Lanes> =
                ms[range.clone()].iter().map(|m| n.digits_of(m.residue(), n.residue_words())).collect();
            let (m, factor) = x.split_at_mut(half);
            n.gather(m, &plain.iter().map(|m| &**m).collect::<Vec<_>>(), &zero);
            n.gather(z, &xs[range], n.one());
            let (lower, upper) = z.split_at_mut(half);
            n.mul(factor, m, &r_squared, scratch);
            let product = &mut y[..half];
            n.mul(product, factor, lower, scratch);
            n.canonical(product, scratch);
            n.add(upper, product, scratch);
        }))
    }

    /// Runs `work` on groups of as many ciphertexts as there are lanes; it leaves the results in `z`.
    pub(crate) fn by_group(
        &self,
        count: usize,
        threads: Threads,
        work: impl Fn(core::ops::Range<usize>, &mut Workspace) + Sync,
    ) -> Vec<Ciphertext> {
        let n = self.modulus();
        threads.map(count, n.lanes(), |range| {
            let mut workspace = Workspace::new(self);
            let mut results = Vec::with_capacity(range.len());
            for start in range.clone().step_by(n.lanes()) {
                let end = range.end.min(start + n.lanes());
                work(start..end, &mut workspace);
                results.extend(self.take_apart(&mut workspace.z, end - start, &mut workspace.scratch));
            }
            results
        })
    }

    /// The first `count` ciphertexts of a group, made canonical.
    pub(crate) fn take_apart(
        &self,
        group: &mut [u64],
        count: usize,
        scratch: &mut Scratch,
    ) -> Vec<Ciphertext> {
        let n = self.modulus();
        n.canonical_pair(group, scratch);
        let mut all: Vec<Box<[u64]>> = (0..count).map(|_| vec![0; n.pair_words()].into()).collect();
        n.scatter(&mut all.iter_mut().map(|digits| &mut digits[..]).collect::<Vec<_>>(), group);
        all.into_iter().map(|digits| Ciphertext::from_digits(self, digits)).collect()
    }

    pub(crate) fn check_ciphertexts(&self, ciphertexts: &[Ciphertext]) -> Result<(), Error> {
        if ciphertexts.iter().all(|c| c.key() == self) { Ok(()) } else { Err(Error::KeyMismatch) }
    }

    fn check_plaintexts(&self, plaintexts: &[Plaintext]) -> Result<(), Error> {
        if plaintexts.iter().all(|m| m.key() == self) { Ok(()) } else { Err(Error::KeyMismatch) }
    }
}

/// Groups of pairs to work in, made once a thread; the result goes into `z`.
pub(crate) struct Workspace {
    pub(crate) z: Lanes,
    pub(crate) x: Lanes,
    pub(crate) y: Lanes,
    pub(crate) scratch: Scratch,
}

impl Workspace {
    pub(crate) fn new(key: &EncryptionKey) -> Self {
        let n = key.modulus();
        Self { z: n.pairs(), x: n.pairs(), y: n.pairs(), scratch: n.scratch() }
    }
}

fn digits(ciphertexts: &[Ciphertext]) -> Vec<&[u64]> {
    ciphertexts.iter().map(Ciphertext::digits).collect()
}

fn same_length(expected: usize, found: usize) -> Result<(), Error> {
    if expected == found { Ok(()) } else { Err(Error::Length { expected, found }) }
}

/// The only element of a batch of one.
fn one(mut all: Vec<Ciphertext>) -> Result<Ciphertext, Error> {
    let found = all.len();
    all.pop().ok_or(Error::Length { expected: 1, found })
}
