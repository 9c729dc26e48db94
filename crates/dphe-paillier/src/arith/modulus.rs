//! Montgomery arithmetic modulo an odd `N`, and modulo `N^2` on base-`N` pairs.
//!
//! A residue is `digits` digits; a pair `x0 + x1 N` is two residues, `x0` first. A *group* holds as
//! many of either as the back end has lanes, side by side. Between multiplications a group may be
//! loose (each half below `2N`); what leaves this crate's arithmetic is canonical.
//!
//! Every function here is safe: lengths are checked, and only kernels that this CPU can run are called.

use super::backend::Backend;
#[cfg(test)]
use super::emulated;
use super::lanes::Lanes;
use super::nat::{self, Limbs, Nat};
use super::portable;
#[cfg(any(test, target_arch = "x86_64"))]
use super::simd;
#[cfg(target_arch = "x86_64")]
use super::{avx2, ifma};

/// An odd modulus, ready for one back end.
pub(crate) struct Modulus {
    backend: Backend,
    bits: u32,
    digits: usize,
    n: Nat,
    /// The modulus, broadcast.
    rows: Lanes,
    /// See `simd::Context::bias` and `portable::Context::bias`, broadcast.
    bias: Lanes,
    /// `-N^-1` modulo one digit, broadcast.
    inverse: Lanes,
    /// `R` modulo `N^2`, a pair: one in Montgomery form.
    one: Lanes,
    /// `R^2` modulo `N^2`, a pair: brings a number into Montgomery form.
    r_squared: Lanes,
}

/// Working memory of the kernels for one modulus. It may hold secrets: wiped when dropped.
pub(crate) struct Scratch(Lanes);

/// `-x^-1` modulo `2^64` for odd `x`, by Newton's iteration: each step doubles the correct bits.
pub(super) fn negated_inverse(x: u64) -> u64 {
    let mut inverse = x;
    for _ in 0..6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(x.wrapping_mul(inverse)));
    }
    inverse.wrapping_neg()
}

/// Which ring a group lives in: residues modulo `N`, or pairs modulo `N^2`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ring {
    ModN,
    ModNSquared,
}

/// Calls the kernel of the back end in use.
macro_rules! dispatch {
    ($self:ident, $vector:ident($($v:expr),*), $portable:expr) => {
        match $self.backend {
            // SAFETY: a `Modulus` exists only for an available back end (checked in `new`), and the
            // caller has checked the lengths of all buffers.
            #[cfg(target_arch = "x86_64")]
            Backend::Ifma => unsafe { ifma::$vector($($v),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Backend::Avx2 => unsafe { avx2::$vector($($v),*) },
            #[cfg(test)]
            // SAFETY: as above.
            Backend::Emulated => unsafe { emulated::$vector($($v),*) },
            _ => $portable,
        }
    };
}

impl Modulus {
    /// Prepares the odd modulus `n > 1`.
    ///
    /// # Panics
    /// If the back end cannot run here or `n` is even: callers check both.
    pub(crate) fn new(n: &Nat, backend: Backend) -> Self {
        assert!(backend.available(), "the {backend} back end cannot run on this CPU");
        let bits = n.bits();
        let digits = backend.digits(bits);
        let (lanes, digit_bits) = (backend.lanes(), backend.digit_bits());
        assert!(backend.holds(digits), "column sums of the {backend} back end do not overflow");
        let limbs = (bits as usize).div_ceil(64);
        let n_limbs = nat::limbs(n, limbs);
        assert!(n_limbs[0] & 1 == 1 && bits > 1, "a Montgomery modulus is odd");
        let n_digits = nat::to_digits(&n_limbs, digit_bits, digits);

        let mask = backend.digit_mask();
        let inverse = negated_inverse(n_limbs[0]) & mask;

        let r_bits = digit_bits * digits as u32;
        let r = nat::power_of_two(r_bits);
        let minus_r_plus_one = nat::sub(n, &nat::rem(&nat::sub(&r, &nat::small(1)), n));
        let mut bias = nat::to_digits(&nat::limbs(&minus_r_plus_one, limbs), digit_bits, digits);
        if backend != Backend::Portable {
            bias.iter_mut().for_each(|b| *b += mask);
        }

        let mut modulus = Self {
            backend,
            bits,
            digits,
            n: n.clone(),
            rows: Lanes::broadcast(&n_digits, lanes),
            bias: Lanes::broadcast(&bias, lanes),
            inverse: Lanes::broadcast(&[inverse], lanes),
            one: Lanes::zeros(0),
            r_squared: Lanes::zeros(0),
        };
        modulus.one = modulus.pair_digits(&r);
        modulus.r_squared = modulus.pair_digits(&nat::power_of_two(2 * r_bits));
        modulus
    }

    /// Prepares a different odd modulus in each lane; the first has the most bits and serves the lanes
    /// left over. Only residues: there are no pairs, nor constants, of such a modulus.
    pub(crate) fn side_by_side(moduli: &[Nat], backend: Backend) -> Self {
        assert!(backend.available(), "the {backend} back end cannot run on this CPU");
        let bits = moduli[0].bits();
        let digits = backend.digits(bits);
        let limbs: Vec<Limbs> = moduli.iter().map(|n| nat::limbs(n, (bits as usize).div_ceil(64))).collect();
        let rows: Vec<_> = limbs.iter().map(|n| nat::to_digits(n, backend.digit_bits(), digits)).collect();
        let inverses: Vec<_> = limbs.iter().map(|n| [negated_inverse(n[0]) & backend.digit_mask()]).collect();
        let mut modulus = Self {
            backend,
            bits,
            digits,
            n: moduli[0].clone(),
            rows: Lanes::zeros(digits * backend.lanes()),
            bias: Lanes::zeros(0),
            inverse: Lanes::zeros(backend.lanes()),
            one: Lanes::zeros(0),
            r_squared: Lanes::zeros(0),
        };
        let mut group = modulus.residues();
        modulus.gather(&mut group, &rows.iter().map(|r| &r[..]).collect::<Vec<_>>(), &rows[0]);
        modulus.rows = group;
        let mut inverse = Lanes::zeros(backend.lanes());
        modulus.gather(&mut inverse, &inverses.iter().map(|i| &i[..]).collect::<Vec<_>>(), &inverses[0]);
        modulus.inverse = inverse;
        modulus
    }

    pub(crate) fn backend(&self) -> Backend {
        self.backend
    }
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }
    /// The modulus itself.
    pub(crate) fn nat(&self) -> &Nat {
        &self.n
    }
    pub(crate) fn lanes(&self) -> usize {
        self.backend.lanes()
    }
    /// 64-bit limbs of a number below the modulus.
    pub(crate) fn limbs(&self) -> usize {
        (self.bits as usize).div_ceil(64)
    }
    /// Words of one residue.
    pub(crate) fn residue_words(&self) -> usize {
        self.digits
    }
    /// Words of one pair.
    pub(crate) fn pair_words(&self) -> usize {
        2 * self.digits
    }
    /// One in Montgomery form, as a pair; its first half is one modulo `N`.
    pub(crate) fn one(&self) -> &[u64] {
        &self.one
    }
    /// `R^2` modulo `N^2`, as a pair; its first half is `R^2` modulo `N`.
    pub(crate) fn r_squared(&self) -> &[u64] {
        &self.r_squared
    }

    pub(crate) fn scratch(&self) -> Scratch {
        Scratch(Lanes::zeros(4 * self.digits * self.lanes()))
    }
    /// A group of residues.
    pub(crate) fn residues(&self) -> Lanes {
        Lanes::zeros(self.digits * self.lanes())
    }
    /// A group of pairs.
    pub(crate) fn pairs(&self) -> Lanes {
        Lanes::zeros(2 * self.digits * self.lanes())
    }
    /// A group of pairs, all equal to `pair`.
    pub(crate) fn broadcast(&self, digits: &[u64]) -> Lanes {
        Lanes::broadcast(digits, self.lanes())
    }

    /// The digits of `x < N`.
    pub(crate) fn residue_digits(&self, x: &Nat) -> Lanes {
        self.digits_of(&nat::limbs(x, self.limbs()), self.digits)
    }
    /// The digits of the pair of `x` modulo `N^2`.
    pub(crate) fn pair_digits(&self, x: &Nat) -> Lanes {
        let (x1, x0) = nat::div_rem(&nat::rem(x, &nat::mul(self.nat(), self.nat())), self.nat());
        let mut pair = Lanes::zeros(2 * self.digits);
        let (low, high) = pair.split_at_mut(self.digits);
        low.copy_from_slice(&self.residue_digits(&x0));
        high.copy_from_slice(&self.residue_digits(&x1));
        pair
    }
    /// `count` digits of a number given by limbs.
    pub(crate) fn digits_of(&self, limbs: &[u64], count: usize) -> Lanes {
        let digits = nat::to_digits(limbs, self.backend.digit_bits(), count);
        Lanes::broadcast(&digits, 1)
    }
    /// The limbs of a number below the modulus given by digits.
    pub(crate) fn limbs_of(&self, digits: &[u64]) -> Limbs {
        nat::from_digits(digits, self.backend.digit_bits(), self.limbs())
    }

    /// A group of the ring.
    pub(crate) fn group(&self, ring: Ring) -> Lanes {
        match ring {
            Ring::ModN => self.residues(),
            Ring::ModNSquared => self.pairs(),
        }
    }
    /// One of the ring, in Montgomery form.
    pub(crate) fn one_in(&self, ring: Ring) -> &[u64] {
        match ring {
            Ring::ModN => &self.one[..self.digits],
            Ring::ModNSquared => &self.one,
        }
    }
    /// `z = x y / R` in the ring.
    pub(crate) fn mul_in(&self, ring: Ring, z: &mut [u64], x: &[u64], y: &[u64], scratch: &mut Scratch) {
        match ring {
            Ring::ModN => self.mul(z, x, y, scratch),
            Ring::ModNSquared => self.mul_pair(z, x, y, scratch),
        }
    }
    /// `z = x^2 / R` in the ring.
    pub(crate) fn square_in(&self, ring: Ring, z: &mut [u64], x: &[u64], scratch: &mut Scratch) {
        match ring {
            Ring::ModN => self.square(z, x, scratch),
            Ring::ModNSquared => self.square_pair(z, x, scratch),
        }
    }

    /// `z = x y / R` modulo `N^2`.
    pub(crate) fn mul_pair(&self, z: &mut [u64], x: &[u64], y: &[u64], scratch: &mut Scratch) {
        self.check_pairs(scratch, [z.len(), x.len(), y.len()]);
        dispatch!(
            self,
            mul_pair(&self.context(), z.as_mut_ptr(), x.as_ptr(), y.as_ptr(), scratch.0.as_mut_ptr()),
            portable::mul_pair(self.portable(), z, x, y, &mut scratch.0)
        );
    }

    /// `z = x y / R` modulo `N^2` for residues `y`: pairs whose upper half is zero.
    pub(crate) fn scale_pair(&self, z: &mut [u64], x: &[u64], y: &[u64], scratch: &mut Scratch) {
        self.check_pairs(scratch, [z.len(), x.len(), 2 * y.len()]);
        dispatch!(
            self,
            scale_pair(&self.context(), z.as_mut_ptr(), x.as_ptr(), y.as_ptr(), scratch.0.as_mut_ptr()),
            portable::scale_pair(self.portable(), z, x, y, &mut scratch.0)
        );
    }

    /// `z = x^2 / R` modulo `N^2`.
    pub(crate) fn square_pair(&self, z: &mut [u64], x: &[u64], scratch: &mut Scratch) {
        self.check_pairs(scratch, [z.len(), x.len(), x.len()]);
        dispatch!(
            self,
            square_pair(&self.context(), z.as_mut_ptr(), x.as_ptr(), scratch.0.as_mut_ptr()),
            portable::square_pair(self.portable(), z, x, &mut scratch.0)
        );
    }

    /// `z = x y / R` modulo `N`.
    pub(crate) fn mul(&self, z: &mut [u64], x: &[u64], y: &[u64], scratch: &mut Scratch) {
        let words = self.digits * self.lanes();
        self.check(scratch, [z.len(), x.len(), y.len()], words);
        dispatch!(
            self,
            mul(&self.context(), z.as_mut_ptr(), x.as_ptr(), y.as_ptr(), scratch.0.as_mut_ptr()),
            portable::mul(self.portable(), z, x, y, &mut scratch.0)
        );
    }

    /// `z = x^2 / R` modulo `N`.
    pub(crate) fn square(&self, z: &mut [u64], x: &[u64], scratch: &mut Scratch) {
        let words = self.digits * self.lanes();
        self.check(scratch, [z.len(), x.len(), words], words);
        dispatch!(
            self,
            square(&self.context(), z.as_mut_ptr(), x.as_ptr(), scratch.0.as_mut_ptr()),
            portable::square(self.portable(), z, x, &mut scratch.0)
        );
    }

    /// As `check`, and that this modulus has pairs: one made by `side_by_side` has none.
    fn check_pairs(&self, scratch: &Scratch, lengths: [usize; 3]) {
        let residue = self.digits * self.lanes();
        assert!(self.bias.len() == residue, "a modulus with pairs");
        self.check(scratch, lengths, 2 * residue);
    }

    /// The pairs `(t0 + t1 N) / R`; `t0` and `t1` hold `2 * digits` digits a lane, each below `N R`,
    /// and are used up.
    pub(crate) fn reduce_pair(&self, z: &mut [u64], t0: &mut [u64], t1: &mut [u64], scratch: &mut Scratch) {
        self.check_pairs(scratch, [z.len(), t0.len(), t1.len()]);
        dispatch!(
            self,
            reduce_pair(
                &self.context(),
                z.as_mut_ptr(),
                t0.as_mut_ptr(),
                t1.as_mut_ptr(),
                scratch.0.as_mut_ptr()
            ),
            portable::reduce_pair(self.portable(), z, t0, t1, &mut scratch.0)
        );
    }

    /// `t += x` for residues `x`, without reducing; `t` holds `2 * digits` digits a lane. Vector back ends do
    /// not carry either: 28-bit and 52-bit digits leave room for more sums than any table has windows.
    pub(crate) fn add_wide(&self, t: &mut [u64], x: &[u64]) {
        assert!(x.len() == self.digits * self.lanes() && t.len() == 2 * x.len(), "a group of this modulus");
        if self.backend == Backend::Portable {
            return portable::add_wide(t, x);
        }
        t.iter_mut().zip(x).for_each(|(sum, digit)| *sum += digit);
    }

    /// The residues `t / R` modulo `N`; `t` holds `2 * digits` digits a lane and is below `N R`. (Vector
    /// back ends take sums of hundreds of digits in place of digits: columns need not be carried.)
    pub(crate) fn reduce_wide(&self, z: &mut [u64], t: &[u64], scratch: &mut Scratch) {
        let words = self.digits * self.lanes();
        self.check(scratch, [z.len(), t.len() / 2, t.len().div_ceil(2)], words);
        dispatch!(
            self,
            reduce_wide(&self.context(), z.as_mut_ptr(), t.as_ptr(), scratch.0.as_mut_ptr()),
            portable::reduce_wide(self.portable(), z, t, &mut scratch.0)
        );
    }

    /// `x = 2 x` modulo `N` in the lanes where `mask` is all ones. Loose: between two doublings there is a
    /// multiplication, which brings a residue below `4N` back below `2N` (`R` is at least `16N`).
    pub(crate) fn double(&self, x: &mut [u64], mask: &[u64]) {
        let lanes = self.lanes();
        assert!(x.len() == self.digits * lanes && mask.len() == lanes, "a group of this modulus");
        if self.backend == Backend::Portable {
            return portable::double(self.portable(), x, mask[0]);
        }
        let mut carry = [0; 8];
        for row in x.chunks_exact_mut(lanes) {
            for ((digit, carry), mask) in row.iter_mut().zip(&mut carry).zip(mask) {
                let sum = *digit + (*digit & mask) + *carry;
                *digit = sum & self.backend.digit_mask();
                *carry = sum >> self.backend.digit_bits();
            }
        }
    }

    /// `x = x + y` modulo `N`; canonical in and out.
    pub(crate) fn add(&self, x: &mut [u64], y: &[u64], scratch: &mut Scratch) {
        let (lanes, words) = (self.lanes(), self.digits * self.lanes());
        self.check(scratch, [x.len(), y.len(), words], words);
        if self.backend == Backend::Portable {
            return portable::add(self.portable(), x, y);
        }
        let mut carry = [0; 8];
        for (row, addend) in x.chunks_exact_mut(lanes).zip(y.chunks_exact(lanes)) {
            for ((digit, addend), carry) in row.iter_mut().zip(addend).zip(&mut carry) {
                let sum = *digit + addend + *carry;
                *digit = sum & self.backend.digit_mask();
                *carry = sum >> self.backend.digit_bits();
            }
        }
        self.canonical(x, scratch);
    }

    /// Brings loose residues into `0..N`.
    pub(crate) fn canonical(&self, x: &mut [u64], scratch: &mut Scratch) {
        let words = self.digits * self.lanes();
        self.check(scratch, [x.len(), words, words], words);
        dispatch!(self, canonical(&self.context(), x.as_mut_ptr(), scratch.0.as_mut_ptr()), ());
    }

    /// Brings loose pairs into canonical form.
    pub(crate) fn canonical_pair(&self, x: &mut [u64], scratch: &mut Scratch) {
        self.check_pairs(scratch, [x.len(); 3]);
        dispatch!(self, canonical_pair(&self.context(), x.as_mut_ptr(), scratch.0.as_mut_ptr()), ());
    }

    /// Puts numbers of equally many digits side by side; lanes without one get `filler`.
    pub(crate) fn gather(&self, out: &mut [u64], sources: &[&[u64]], filler: &[u64]) {
        let rows = filler.len();
        let source = |lane: usize| sources.get(lane).copied().unwrap_or(filler);
        assert!((0..self.lanes()).all(|lane| source(lane).len() == rows), "numbers of one length");
        assert!(out.len() == rows * self.lanes(), "a group of that many rows");
        match self.backend {
            // SAFETY: the back end is available; lengths were checked above.
            #[cfg(target_arch = "x86_64")]
            Backend::Ifma => unsafe {
                ifma::gather(out.as_mut_ptr(), &core::array::from_fn(|lane| source(lane).as_ptr()), rows);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Backend::Avx2 => unsafe {
                avx2::gather(out.as_mut_ptr(), &core::array::from_fn(|lane| source(lane).as_ptr()), rows);
            },
            _ => {
                for lane in 0..self.lanes() {
                    for (row, &digit) in out.chunks_exact_mut(self.lanes()).zip(source(lane)) {
                        row[lane] = digit;
                    }
                }
            }
        }
    }

    /// Takes the first numbers of a group apart again.
    pub(crate) fn scatter(&self, targets: &mut [&mut [u64]], input: &[u64]) {
        let rows = input.len() / self.lanes();
        assert!(targets.iter().all(|target| target.len() == rows), "numbers of one length");
        match self.backend {
            // SAFETY: the back end is available; there is a target for every lane, of `rows` words.
            #[cfg(target_arch = "x86_64")]
            Backend::Ifma if targets.len() == ifma::LANES => unsafe {
                let targets = core::array::from_fn(|lane| targets[lane].as_mut_ptr());
                ifma::scatter(&targets, input.as_ptr(), rows);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Backend::Avx2 if targets.len() == avx2::LANES => unsafe {
                let targets = core::array::from_fn(|lane| targets[lane].as_mut_ptr());
                avx2::scatter(&targets, input.as_ptr(), rows);
            },
            _ => {
                for (lane, target) in targets.iter_mut().enumerate() {
                    for (row, digit) in input.chunks_exact(self.lanes()).zip(target.iter_mut()) {
                        *digit = row[lane];
                    }
                }
            }
        }
    }

    /// Copies entry `index` of a table of equally long groups, touching all entries alike.
    pub(crate) fn select(&self, out: &mut [u64], table: &[u64], index: u64) {
        assert!(table.len().is_multiple_of(out.len()), "a table of groups");
        dispatch!(self, select(out, table, index), portable::lookup(out, table, index));
    }

    fn check(&self, scratch: &Scratch, lengths: [usize; 3], words: usize) {
        assert!(lengths == [words; 3], "a group of this modulus");
        assert!(scratch.0.len() >= 4 * self.digits * self.lanes(), "scratch of this modulus");
    }

    #[cfg(any(test, target_arch = "x86_64"))]
    fn context(&self) -> simd::Context {
        simd::Context {
            digits: self.digits,
            modulus: self.rows.as_ptr(),
            inverse: self.inverse.as_ptr(),
            bias: self.bias.as_ptr(),
        }
    }

    fn portable(&self) -> portable::Context<'_> {
        portable::Context { modulus: &self.rows, inverse: self.inverse[0], bias: &self.bias }
    }
}
