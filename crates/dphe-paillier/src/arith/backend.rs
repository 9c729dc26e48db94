//! The choice of instructions for the arithmetic.

use core::fmt;
use std::sync::OnceLock;

/// An implementation of the arithmetic. All back ends compute the same results and differ only in speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// AVX-512 IFMA: eight numbers at a time, with 52-bit digits.
    Ifma,
    /// AVX2: four numbers at a time, with 28-bit digits.
    Avx2,
    /// Any CPU: one number at a time, with 64-bit digits.
    Portable,
    /// The vector kernel on plain arrays with the arithmetic of [`Backend::Ifma`], for tests.
    #[cfg(test)]
    Emulated,
}

/// The environment variable that overrides the choice. Its values are `ifma`, `avx2` and `portable`.
pub const BACKEND_VARIABLE: &str = "DPHE_BACKEND";

impl Backend {
    /// Returns the back end of this process: the one named by [`BACKEND_VARIABLE`] if this CPU can run it,
    /// otherwise the fastest that it can run. The choice is fixed at the first call.
    pub fn active() -> Self {
        static ACTIVE: OnceLock<Backend> = OnceLock::new();
        *ACTIVE.get_or_init(|| {
            let wanted = std::env::var(BACKEND_VARIABLE).ok().and_then(|name| Self::from_name(&name));
            let choice = wanted.filter(|backend| backend.available());
            choice.or_else(|| Self::all().find(|backend| backend.available())).unwrap_or(Self::Portable)
        })
    }

    /// Returns the back end for keys of `bits` bits: the active one unless its column sums would overflow.
    pub(crate) fn for_key(bits: u32) -> Self {
        match Self::active() {
            backend if !backend.holds(backend.digits(bits)) => Self::Portable,
            backend => backend,
        }
    }

    /// Returns all back ends, fastest first.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Ifma, Self::Avx2, Self::Portable].into_iter()
    }

    /// Returns whether this CPU can run the back end.
    pub fn available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Ifma => super::ifma::available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => super::avx2::available(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Ifma | Self::Avx2 => false,
            Self::Portable => true,
            #[cfg(test)]
            Self::Emulated => true,
        }
    }

    /// Returns the name used in reports and in [`BACKEND_VARIABLE`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Ifma => "ifma",
            Self::Avx2 => "avx2",
            Self::Portable => "portable",
            #[cfg(test)]
            Self::Emulated => "emulated",
        }
    }

    /// Returns the back end with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|backend| backend.name() == name)
    }

    /// Returns how many numbers are computed side by side.
    pub(crate) fn lanes(self) -> usize {
        self.shape().0
    }

    /// Returns the bits of one digit.
    pub(crate) fn digit_bits(self) -> u32 {
        self.shape().1
    }

    /// Returns a digit of all ones.
    pub(crate) fn digit_mask(self) -> u64 {
        u64::MAX >> (64 - self.digit_bits())
    }

    /// Returns whether column sums of that many digits fit 64 bits. For AVX2, two columns of 56-bit products
    /// fit up to 127 digits. The other back ends have room for any key.
    pub(crate) fn holds(self, digits: usize) -> bool {
        self != Self::Avx2 || 2 * digits < 256
    }

    /// Returns the digits of a modulus of `bits` bits. The vector kernels leave at least four spare bits, so
    /// that they need no subtraction between multiplications. The portable kernel needs no spare bits.
    pub(crate) fn digits(self, bits: u32) -> usize {
        let (_, digit, block, spare) = self.shape();
        ((bits + spare).div_ceil(digit) as usize).next_multiple_of(block)
    }

    /// Returns lanes, bits per digit, digits per block, and spare bits.
    fn shape(self) -> (usize, u32, usize, u32) {
        match self {
            Self::Ifma => (8, 52, 10, 4),
            Self::Avx2 => (4, 28, 5, 4),
            Self::Portable => (1, 64, 1, 0),
            #[cfg(test)]
            Self::Emulated => (8, 52, 10, 4),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
