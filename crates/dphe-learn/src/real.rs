//! The floating-point types of features, in which training also computes.

use core::fmt::Debug;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

/// A floating-point type: `f32` for training, or `f64` to compare with other libraries.
pub trait Real:
    private::Private
    + Copy
    + Debug
    + Default
    + PartialEq
    + PartialOrd
    + Send
    + Sync
    + Sum
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + SubAssign
    + Mul<Output = Self>
    + MulAssign
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// The number 0.
    const ZERO: Self;
    /// The number 1.
    const ONE: Self;
    /// Returns the number nearest to `value`.
    fn from_f64(value: f64) -> Self;
    /// Converts to double precision without rounding.
    fn to_f64(self) -> f64;
    /// Returns whether the number is neither NaN nor infinite.
    fn is_finite(self) -> bool;
    /// Returns the larger of two numbers, in a form that compiles to one vector instruction.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if self > other { self } else { other }
    }
    /// Returns the smaller of two numbers, in a form that compiles to one vector instruction.
    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        if self < other { self } else { other }
    }
}

mod private {
    use crate::update::{AnyLearner, RoundInput};
    use crate::{Dataset, Error, Seed, Weights};

    pub trait Private: Sized {
        /// Calls the method of a learner that takes features of this type.
        fn fit_any(
            learner: &dyn AnyLearner,
            round: RoundInput<'_>,
            data: &Dataset<Self>,
            seed: &Seed,
        ) -> Result<Weights, Error>;
    }

    impl Private for f32 {
        fn fit_any(
            learner: &dyn AnyLearner,
            round: RoundInput<'_>,
            data: &Dataset<Self>,
            seed: &Seed,
        ) -> Result<Weights, Error> {
            learner.fit_f32(round, data, seed)
        }
    }

    impl Private for f64 {
        fn fit_any(
            learner: &dyn AnyLearner,
            round: RoundInput<'_>,
            data: &Dataset<Self>,
            seed: &Seed,
        ) -> Result<Weights, Error> {
            learner.fit_f64(round, data, seed)
        }
    }
}

macro_rules! real {
    ($type:ty) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as Self
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                <$type>::is_finite(self)
            }
        }
    };
}
real!(f32);
real!(f64);
