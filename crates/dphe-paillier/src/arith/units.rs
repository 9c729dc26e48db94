//! Units of digits, checked by the compiler.
//!
//! All numbers are slices of digits. Four questions decide what may be done with a slice, and each is a type
//! parameter of [`Value`], which costs nothing at run time:
//!
//! * Layout: is it one number ([`One`]), a list of numbers ([`InARow`]), one number per lane
//!   ([`SideBySide`]), or one double-length number per lane ([`Wide`])?
//! * Ring: is it a residue modulo `N` ([`Mod`]) or a base-`N` pair modulo `N^2` ([`ModSquared`])? Is `N` the
//!   public modulus ([`Public`]), one of its factors ([`Factor`]), both ([`Factors`]) or a candidate of the prime
//!   search ([`Candidate`])?
//! * Form: by which power of Montgomery's `R` is it multiplied ([`Plain`], [`Mont`], ...)?
//! * Range: is each half below `N` ([`Canonical`]) or only below `2N` ([`Loose`])?
//!
//! A kernel that divides by `R` computes the form of its result by [`Times`] and [`Reduce`]. [`Value::claim`]
//! is the only way to give digits a unit, so every claim can be found by searching for that word.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// A layout: the digits of one number, least significant first.
pub enum One {}
/// A layout: numbers of equal length, one after the other.
pub enum InARow {}
/// A layout: one number per lane, equal digits of all lanes next to each other.
pub enum SideBySide {}
/// A layout: as [`SideBySide`], with twice the digits of the modulus per number.
pub enum Wide {}

/// Layouts in which the first half of a pair's digits is `x0`.
pub trait Halved {}
impl Halved for One {}
impl Halved for SideBySide {}

/// The public modulus `n`.
pub enum Public {}
/// A secret factor of the public modulus, `p` or `q`.
pub enum Factor {}
/// Both factors of the public modulus: the lower half of the lanes computes with `p`, the upper half with `q`.
pub enum Factors {}
/// A number that the search for primes tests.
pub enum Candidate {}

/// The residues modulo `N`, or modulo `N^2`.
pub trait Ring {
    /// Which number `N` is.
    type Modulus;
    /// Residues modulo `N` that make one element.
    const HALVES: usize;
}
/// The integers modulo `N`.
pub struct Mod<M>(PhantomData<M>);
/// The integers modulo `N^2`, as pairs `x0 + x1 N`.
pub struct ModSquared<M>(PhantomData<M>);

impl<M> Ring for Mod<M> {
    type Modulus = M;
    const HALVES: usize = 1;
}
impl<M> Ring for ModSquared<M> {
    type Modulus = M;
    const HALVES: usize = 2;
}

/// The integers modulo `n`.
pub type N = Mod<Public>;
/// The integers modulo `n^2`.
pub type N2 = ModSquared<Public>;
/// The integers modulo a factor `p` of `n`.
pub type P = Mod<Factor>;
/// The integers modulo `p^2`.
pub type P2 = ModSquared<Factor>;
/// The integers modulo `p` in the lower lanes, and modulo `q` in the upper ones.
pub type PQ = Mod<Factors>;
/// The integers modulo `p^2` in the lower lanes, and modulo `q^2` in the upper ones.
pub type PQ2 = ModSquared<Factors>;

/// A form: the number itself.
pub enum Plain {}
/// A form: the number times `R`, Montgomery form.
pub enum Mont {}
/// A form: the number times `R^2`.
pub enum RSquared {}
/// A form: the number divided by `R`.
pub enum OverR {}
/// A form: the number times a power of `R` that the owner of the value keeps count of.
pub enum Counted {}
/// A form: the number times the `R` of `n`, divided by the `R` of a factor.
pub enum Foreign {}
/// A form of constants: a multiplication by it turns [`Foreign`] into [`Mont`].
pub enum FromForeign {}

/// Forms that can be multiplied. Each product is divided by `R` once.
pub trait Times<Y> {
    /// The form of the product.
    type Product;
}
/// Forms that can be reduced, which divides by `R`.
pub trait Reduce {
    /// The form of the result.
    type Reduced;
}
/// Forms that products stay in.
pub trait Closed: Times<Self, Product = Self> + Sized {}

macro_rules! products {
    ($($x:ident * $y:ident = $z:ident),* $(,)?) => { $(impl Times<$y> for $x { type Product = $z; })* };
}
products! {
    Mont * Mont = Mont,
    Mont * Plain = Plain,
    Plain * RSquared = Mont,
    Mont * RSquared = RSquared,
    OverR * RSquared = Plain,
    Foreign * FromForeign = Mont,
    Counted * Counted = Counted,
}
impl Closed for Mont {}
impl Closed for Counted {}
impl Reduce for RSquared {
    type Reduced = Mont;
}
impl Reduce for Plain {
    type Reduced = OverR;
}

/// A range: each half is below `2N`. Kernels accept and return such values.
pub enum Loose {}
/// A range: each half is below `N`, so equal numbers have equal digits. Only such values may leave the
/// arithmetic.
pub enum Canonical {}

/// Words to read digits from.
pub trait Buffer: Deref<Target = [u64]> {}
impl<B: Deref<Target = [u64]>> Buffer for B {}
/// Words to write digits to.
pub trait BufferMut: DerefMut<Target = [u64]> {}
impl<B: DerefMut<Target = [u64]>> BufferMut for B {}

/// Words that can be allocated.
pub trait Storage: BufferMut {
    /// Allocates zeros.
    fn zeros(words: usize) -> Self;
}
impl Storage for Vec<u64> {
    fn zeros(words: usize) -> Self {
        vec![0; words]
    }
}
impl Storage for Box<[u64]> {
    fn zeros(words: usize) -> Self {
        vec![0; words].into()
    }
}

/// A unit. As the result of a function, it does not affect what may be sent to other threads.
type Unit<L, R, F, S> = fn() -> (L, R, F, S);
/// The two halves of a pair.
type Halves<L, M, F, S, B> = [Value<L, Mod<M>, F, S, B>; 2];

/// Digits with a unit: layout `L`, ring `R`, form `F` and range `S`, stored in `B`.
pub struct Value<L, R, F, S, B> {
    digits: B,
    unit: PhantomData<Unit<L, R, F, S>>,
}
/// One number.
pub type Number<R, F, S, B> = Value<One, R, F, S, B>;
/// A list of numbers.
pub type Numbers<R, F, S, B> = Value<InARow, R, F, S, B>;
/// One number per lane.
pub type Group<R, F, S, B> = Value<SideBySide, R, F, S, B>;
/// One double-length number per lane.
pub type WideGroup<R, F, B> = Value<Wide, R, F, Loose, B>;

impl<L, R, F, S, B> Value<L, R, F, S, B> {
    /// Gives digits a unit. The caller must make sure that it is the right one.
    pub(crate) fn claim(digits: B) -> Self {
        Self { digits, unit: PhantomData }
    }
    /// Forgets the range.
    pub(crate) fn loose(self) -> Value<L, R, F, Loose, B> {
        Value::claim(self.digits)
    }
    /// Forgets the form. The owner of the value keeps count of its powers of `R` from now on.
    pub(crate) fn counted(self) -> Value<L, R, Counted, S, B> {
        Value::claim(self.digits)
    }
    /// Interprets the digits in another form: the same digits stand for the number times a power of `R`.
    pub(crate) fn claim_form<G>(self) -> Value<L, R, G, S, B> {
        Value::claim(self.digits)
    }
}

impl<L, R, F, S, B: Buffer> Value<L, R, F, S, B> {
    /// The digits, for code that does not depend on their unit.
    pub(crate) fn digits(&self) -> &[u64] {
        &self.digits
    }
    /// The same value, borrowed.
    pub(crate) fn view(&self) -> Value<L, R, F, S, &[u64]> {
        Value::claim(&self.digits)
    }
}

impl<L, R, F, S, B: BufferMut> Value<L, R, F, S, B> {
    /// The digits, for code that keeps or establishes their unit.
    pub(super) fn digits_mut(&mut self) -> &mut [u64] {
        &mut self.digits
    }
    /// The same value, borrowed.
    pub(crate) fn view_mut(&mut self) -> Value<L, R, F, S, &mut [u64]> {
        Value::claim(&mut self.digits)
    }
}

/// The effect of a hardware fault.
#[cfg(test)]
impl<L, R, F, S, B: BufferMut> Value<L, R, F, S, B> {
    /// Flips the lowest bit of digit `at`.
    pub(crate) fn damage(&mut self, at: usize) {
        self.digits[at] ^= 1;
    }
    /// Flips the lowest bit of the digits `range`: of the lowest digits of these lanes.
    pub(crate) fn damage_lanes(&mut self, range: core::ops::Range<usize>) {
        range.for_each(|lane| self.damage(lane));
    }
}

impl<'a, L, R, F, S> Value<L, R, F, S, &'a [u64]> {
    /// The same value, copied.
    pub(crate) fn boxed(self) -> Value<L, R, F, S, Box<[u64]>> {
        Value::claim(self.digits.into())
    }
    /// The digits, for as long as they are borrowed.
    pub(super) fn into_digits(self) -> &'a [u64] {
        self.digits
    }
}

impl<'a, L: Halved, M, F, S> Value<L, ModSquared<M>, F, S, &'a [u64]> {
    /// The residues `x0` and `x1` of pairs `x0 + x1 N`.
    pub(crate) fn halves(self) -> Halves<L, M, F, S, &'a [u64]> {
        let (lower, upper) = self.digits.split_at(self.digits.len() / 2);
        [Value::claim(lower), Value::claim(upper)]
    }
}

impl<'a, L: Halved, M, F, S> Value<L, ModSquared<M>, F, S, &'a mut [u64]> {
    /// The residues `x0` and `x1` of pairs `x0 + x1 N`.
    pub(crate) fn halves_mut(self) -> Halves<L, M, F, S, &'a mut [u64]> {
        let (lower, upper) = self.digits.split_at_mut(self.digits.len() / 2);
        [Value::claim(lower), Value::claim(upper)]
    }
}

// Not derived: derived implementations would ask the markers for the same traits.
impl<L, R, F, S, B: Clone> Clone for Value<L, R, F, S, B> {
    fn clone(&self) -> Self {
        Self::claim(self.digits.clone())
    }
}
impl<L, R, F, S, B: Copy> Copy for Value<L, R, F, S, B> {}

/// Equal digits are equal numbers only where there is one way to write each number.
impl<L, R, F, B: Buffer, C: Buffer> PartialEq<Value<L, R, F, Canonical, C>> for Value<L, R, F, Canonical, B> {
    fn eq(&self, other: &Value<L, R, F, Canonical, C>) -> bool {
        self.digits() == other.digits()
    }
}
impl<L, R, F, B: Buffer> Eq for Value<L, R, F, Canonical, B> {}
