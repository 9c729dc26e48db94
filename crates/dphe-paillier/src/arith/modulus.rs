//! Montgomery arithmetic modulo an odd `N`, and modulo `N^2` on base-`N` pairs.
//!
//! A residue has `digits` digits. A pair `x0 + x1 N` consists of two residues, `x0` first. A *group* holds
//! one element per lane of the back end. [`units`](super::units) explains the types.
//!
//! Every function here is safe: it checks lengths, and it calls only kernels that this CPU can run.

mod buffers;
mod kernels;

use super::backend::Backend;
use super::lanes::Lanes;
use super::nat::{self, Limbs, Nat};
use super::units::{
    Buffer, BufferMut, Canonical, Factor, Factors, Group, Loose, Mod, ModSquared, Mont, Number, Plain,
    RSquared, Ring, Value,
};

/// An odd modulus `N`, prepared for one back end. The marker `M` says which number it is.
pub struct Modulus<M> {
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
    one: Number<ModSquared<M>, Mont, Canonical, Lanes>,
    plain_one: Number<ModSquared<M>, Plain, Canonical, Lanes>,
    /// `plain_one`, broadcast. A multiplication by it leaves Montgomery form.
    plain_ones: Group<ModSquared<M>, Plain, Canonical, Lanes>,
    /// One in the form of `R^2`, broadcast. A multiplication by it enters Montgomery form.
    r_squared: Group<ModSquared<M>, RSquared, Canonical, Lanes>,
}

/// Working memory of the kernels for one modulus. It may hold secrets and is wiped when dropped.
pub struct Scratch(Lanes);

/// Returns `-x^-1` modulo `2^64` for odd `x`, by Newton's iteration: each step doubles the correct bits.
pub(super) fn negated_inverse(x: u64) -> u64 {
    let mut inverse = x;
    for _ in 0..6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(x.wrapping_mul(inverse)));
    }
    inverse.wrapping_neg()
}

/// Constructors.
impl<M> Modulus<M> {
    /// Prepares the odd modulus `n > 1`.
    ///
    /// # Panics
    /// If the back end cannot run here or `n` is even. Callers check both.
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
            one: Value::claim(Lanes::zeros(0)),
            plain_one: Value::claim(Lanes::zeros(0)),
            plain_ones: Value::claim(Lanes::zeros(0)),
            r_squared: Value::claim(Lanes::zeros(0)),
        };
        modulus.one = modulus.pair(&r).claim_form();
        modulus.plain_one = modulus.pair(&nat::small(1));
        modulus.plain_ones = modulus.broadcast(&modulus.plain_one);
        modulus.r_squared = modulus.broadcast(&modulus.pair(&nat::power_of_two(2 * r_bits)).claim_form());
        modulus
    }

    /// Prepares a different odd modulus in each lane. The first has the most bits and also serves the
    /// remaining lanes. Such a modulus has residues only: there are no pairs and no constants.
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
            rows: Lanes::zeros(0),
            bias: Lanes::zeros(0),
            inverse: Lanes::zeros(0),
            one: Value::claim(Lanes::zeros(0)),
            plain_one: Value::claim(Lanes::zeros(0)),
            plain_ones: Value::claim(Lanes::zeros(0)),
            r_squared: Value::claim(Lanes::zeros(0)),
        };
        let mut all = Lanes::zeros(digits * backend.lanes());
        modulus.gather_rows(&mut all, digits, |lane| rows.get(lane).unwrap_or(&rows[0]));
        modulus.rows = all;
        let mut all = Lanes::zeros(backend.lanes());
        modulus.gather_rows(&mut all, 1, |lane| inverses.get(lane).unwrap_or(&inverses[0]));
        modulus.inverse = all;
        modulus
    }
}

impl Modulus<Factors> {
    /// Puts two factors of one length side by side. Such a modulus computes with groups only: it does not
    /// stand for a single number, and lacks single constants such as [`Modulus::one`].
    pub(crate) fn beside(p: &Modulus<Factor>, q: &Modulus<Factor>) -> Self {
        assert!(p.backend == q.backend && p.bits == q.bits && p.lanes() > 1, "factors of one length");
        let lanes = p.lanes();
        let both = |p: &[u64], q: &[u64]| Lanes::side_by_side(p, q, lanes);
        Self {
            backend: p.backend,
            bits: p.bits,
            digits: p.digits,
            n: nat::small(0),
            rows: both(&p.rows, &q.rows),
            bias: both(&p.bias, &q.bias),
            inverse: both(&p.inverse, &q.inverse),
            one: Value::claim(Lanes::zeros(0)),
            plain_one: Value::claim(Lanes::zeros(0)),
            plain_ones: Value::claim(both(p.plain_ones.digits(), q.plain_ones.digits())),
            r_squared: Value::claim(both(p.r_squared.digits(), q.r_squared.digits())),
        }
    }
}

/// The effects of hardware faults.
#[cfg(test)]
impl<M> Modulus<M> {
    /// Flips the lowest bit of the modulus of some lanes.
    pub(crate) fn damage_rows(&mut self, lanes: core::ops::Range<usize>) {
        self.rows[lanes].iter_mut().for_each(|digit| *digit ^= 1);
    }
    /// Flips the lowest bit of the constant by which numbers leave Montgomery form.
    pub(crate) fn damage_plain_ones(&mut self, lanes: core::ops::Range<usize>) {
        self.plain_ones.damage_lanes(lanes);
    }
    /// Flips the second lowest bit of the modulus as a number.
    pub(crate) fn damage_nat(&mut self) {
        let mut limbs = nat::limbs(&self.n, self.limbs());
        limbs[0] ^= 2;
        self.n = nat::from_limbs(&limbs);
    }
}

/// Sizes and constants.
impl<M> Modulus<M> {
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
    /// Words of one element of the ring.
    fn words<R: Ring<Modulus = M>>(&self) -> usize {
        R::HALVES * self.digits
    }
    /// One in Montgomery form.
    pub(crate) fn one<R: Ring<Modulus = M>>(&self) -> Number<R, Mont, Canonical, &[u64]> {
        Value::claim(&self.one.digits()[..self.words::<R>()])
    }
    /// One in plain form.
    pub(crate) fn plain_one(&self) -> Number<ModSquared<M>, Plain, Canonical, &[u64]> {
        self.plain_one.view()
    }
    /// The number `R` in Montgomery form, broadcast.
    pub(crate) fn r_in_mont(&self) -> Group<ModSquared<M>, Mont, Canonical, &[u64]> {
        self.r_squared.view().claim_form()
    }
    /// One in the form of `R^2`, broadcast.
    pub(crate) fn r_squared<R: Ring<Modulus = M>>(&self) -> Group<R, RSquared, Canonical, &[u64]> {
        Value::claim(&self.r_squared.digits()[..self.words::<R>() * self.lanes()])
    }
}

/// Conversions.
impl<M> Modulus<M> {
    /// The residue `x < N`.
    pub(crate) fn residue(&self, x: &Nat) -> Number<Mod<M>, Plain, Canonical, Lanes> {
        self.residue_of_limbs(&nat::limbs(x, self.limbs()))
    }
    /// The residue with these limbs, which is below `N`.
    pub(crate) fn residue_of_limbs(&self, limbs: &[u64]) -> Number<Mod<M>, Plain, Canonical, Lanes> {
        let mut residue = self.number();
        self.write_residue(&mut residue, limbs);
        residue
    }
    /// Writes the residue with these limbs, which is below `N`.
    pub(crate) fn write_residue(
        &self,
        target: &mut Number<Mod<M>, Plain, Canonical, impl BufferMut>,
        limbs: &[u64],
    ) {
        nat::write_digits(target.digits_mut(), limbs, self.backend.digit_bits());
    }
    /// The pair of `x` modulo `N^2`.
    pub(crate) fn pair(&self, x: &Nat) -> Number<ModSquared<M>, Plain, Canonical, Lanes> {
        let (x1, x0) = nat::div_rem(&nat::rem(x, &nat::mul(self.nat(), self.nat())), self.nat());
        let mut pair = self.number::<ModSquared<M>, Plain, Canonical, Lanes>();
        for (mut half, x) in pair.view_mut().halves_mut().into_iter().zip([x0, x1]) {
            self.write_residue(&mut half, &nat::limbs(&x, self.limbs()));
        }
        pair
    }
    /// The limbs of a residue. Together with [`Modulus::write_limbs`], this is the only way out of the
    /// arithmetic.
    pub fn to_limbs(&self, x: &Number<Mod<M>, Plain, Canonical, impl Buffer>) -> Limbs {
        self.representation(x)
    }
    /// Writes the limbs of a residue.
    pub(crate) fn write_limbs(&self, limbs: &mut [u64], x: &Number<Mod<M>, Plain, Canonical, impl Buffer>) {
        nat::write_limbs(limbs, x.digits(), self.backend.digit_bits());
    }
    /// The digits of a residue in any form as an integer, to compute with the representation itself.
    pub(crate) fn representation<F>(&self, x: &Number<Mod<M>, F, Canonical, impl Buffer>) -> Limbs {
        nat::from_digits(x.digits(), self.backend.digit_bits(), self.limbs())
    }

    /// Returns `2 - x` for a public `x` that is 1 modulo `N`.
    pub(crate) fn two_minus(
        &self,
        x: &Number<ModSquared<M>, Mont, Canonical, Lanes>,
    ) -> Number<ModSquared<M>, Mont, Canonical, Lanes> {
        let [one, x] = [self.one.view(), x.view()].map(|number| {
            let [_, upper] = number.halves();
            nat::from_limbs(&self.representation(&upper))
        });
        // The lower halves of 1, of x and of the difference are equal, and the upper halves are residues.
        let sum = nat::add(&nat::add(&one, &one), &nat::sub(&self.n, &x));
        let upper = nat::div_rem_vartime(&sum, &self.n).1;
        let mut difference = self.one.clone();
        let [_, mut half] = difference.view_mut().halves_mut();
        nat::write_digits(half.digits_mut(), &nat::limbs(&upper, self.limbs()), self.backend.digit_bits());
        difference
    }

    /// Enters Montgomery form: `z = x R`.
    pub(crate) fn enter<R: Ring<Modulus = M>, S>(
        &self,
        z: &mut Group<R, Mont, Loose, impl BufferMut>,
        x: &Group<R, Plain, S, impl Buffer>,
        scratch: &mut Scratch,
    ) {
        self.mul(z, x, &self.r_squared(), scratch);
    }
    /// Leaves Montgomery form: `z = x / R`.
    pub(crate) fn leave<R: Ring<Modulus = M>, S>(
        &self,
        z: &mut Group<R, Plain, Loose, impl BufferMut>,
        x: &Group<R, Mont, S, impl Buffer>,
        scratch: &mut Scratch,
    ) {
        let one: Group<R, Plain, Canonical, _> =
            Value::claim(&self.plain_ones.digits()[..self.words::<R>() * self.lanes()]);
        self.mul(z, x, &one, scratch);
    }
}
