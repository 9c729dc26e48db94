//! Plain big integers for set-up and conversions. This is the only module that names the library.
//!
//! Some numbers are secret, so every number is wiped when dropped. The exception is copies that the library
//! makes during an inversion.

use core::cmp::Ordering;

use crypto_bigint::{BoxedUint, ConcatenatingMul, NonZero, Odd, Resize};
use zeroize::{Zeroize, Zeroizing};

/// A natural number. It may be secret, so it is wiped when dropped and never printed.
#[derive(Clone)]
pub(crate) struct Nat(BoxedUint);

/// Little-endian 64-bit limbs, wiped when dropped.
pub(crate) type Limbs = Zeroizing<Vec<u64>>;

impl Drop for Nat {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Nat {
    /// Returns the length in bits, in time that depends on the width only.
    pub(crate) fn bits(&self) -> u32 {
        self.0.bits()
    }

    /// Returns half of the number, rounded down.
    pub(crate) fn half(&self) -> Self {
        Self(self.0.shr(1))
    }

    pub(crate) fn is_odd(&self) -> bool {
        self.0.as_words().first().is_some_and(|word| word & 1 == 1)
    }

    pub(crate) fn is_zero_vartime(&self) -> bool {
        self.0.bits_vartime() == 0
    }

    /// Returns `(k, x)` such that the number is `2^k x` with odd `x`.
    pub(crate) fn split_twos_vartime(&self) -> (u32, Self) {
        let twos = self.0.trailing_zeros_vartime();
        (twos, Self(self.0.shr(twos)))
    }

    /// Returns the same number in as few limbs as possible. The width is public.
    pub(crate) fn shortened(&self) -> Self {
        Self((&self.0).resize_unchecked(self.0.bits().max(64)))
    }

    fn widened(&self, precision: u32) -> Self {
        Self((&self.0).resize_unchecked(precision))
    }

    /// Borrows rather than copies, because the library would not wipe a copy. Whether a number is zero is
    /// public.
    fn nonzero(&self) -> Option<&NonZero<BoxedUint>> {
        self.0.as_nz_vartime()
    }
}

/// Returns the number with these little-endian 64-bit limbs.
pub(crate) fn from_limbs(limbs: &[u64]) -> Nat {
    let bytes = Zeroizing::new(limbs.iter().flat_map(|l| l.to_le_bytes()).collect::<Vec<u8>>());
    Nat(BoxedUint::from_le_slice_truncated(&bytes, 64 * (limbs.len() as u32).max(1)))
}

/// Returns the low `count` 64-bit limbs of `x`, little-endian.
pub(crate) fn limbs(x: &Nat, count: usize) -> Limbs {
    let mut limbs = Zeroizing::new(vec![0u64; count]);
    let word_bits = crypto_bigint::Word::BITS as usize;
    for (i, &word) in x.0.as_words().iter().enumerate() {
        let bit = i * word_bits;
        if let Some(limb) = limbs.get_mut(bit / 64) {
            #[allow(clippy::useless_conversion, reason = "a word has 32 bits on 32-bit machines")]
            let word = u64::from(word);
            *limb |= word << (bit % 64);
        }
    }
    limbs
}

/// Returns a small number.
pub(crate) fn small(x: u64) -> Nat {
    from_limbs(&[x])
}

/// Returns `2^k`.
pub(crate) fn power_of_two(k: u32) -> Nat {
    let mut limbs = vec![0; k as usize / 64 + 1];
    limbs[k as usize / 64] = 1 << (k % 64);
    from_limbs(&limbs)
}

/// Reads big-endian bytes, or returns `None` if more than `most` bytes follow the leading zeros.
pub(crate) fn from_be_bytes(bytes: &[u8], most: usize) -> Option<Nat> {
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
    let significant = &bytes[zeros..];
    if significant.len() > most {
        return None;
    }
    Some(Nat(BoxedUint::from_be_slice_truncated(significant, (8 * significant.len() as u32).max(64))))
}

/// Returns `x` as big-endian bytes of fixed width. `x` must fit.
pub(crate) fn to_be_bytes(x: &Nat, width: usize) -> Zeroizing<Vec<u8>> {
    let all = Zeroizing::new(x.0.to_be_bytes().into_vec());
    let mut bytes = Zeroizing::new(vec![0; width]);
    let common = width.min(all.len());
    bytes[width - common..].copy_from_slice(&all[all.len() - common..]);
    bytes
}

/// Returns `a + b`. It never overflows.
pub(crate) fn add(a: &Nat, b: &Nat) -> Nat {
    let precision = a.0.bits_precision().max(b.0.bits_precision()) + 64;
    Nat(a.widened(precision).0.wrapping_add(&b.widened(precision).0))
}

/// Returns `a - b` for `a >= b`.
pub(crate) fn sub(a: &Nat, b: &Nat) -> Nat {
    let precision = a.0.bits_precision().max(b.0.bits_precision());
    Nat(a.widened(precision).0.wrapping_sub(&b.widened(precision).0))
}

/// Returns `a * b`. It never overflows.
pub(crate) fn mul(a: &Nat, b: &Nat) -> Nat {
    Nat(a.0.concatenating_mul(&b.0))
}

/// Returns quotient and remainder, in time that depends on the widths only. A zero divisor gives `(0, 0)`.
pub(crate) fn div_rem(a: &Nat, b: &Nat) -> (Nat, Nat) {
    match b.nonzero() {
        Some(b) => {
            let (quotient, remainder) = a.0.div_rem(b);
            (Nat(quotient), Nat(remainder))
        }
        None => (small(0), small(0)),
    }
}

/// Returns quotient and remainder of public numbers. A zero divisor gives `(0, 0)`.
pub(crate) fn div_rem_vartime(a: &Nat, b: &Nat) -> (Nat, Nat) {
    match b.0.as_nz_vartime() {
        Some(b) => {
            let (quotient, remainder) = a.0.div_rem_vartime(b);
            (Nat(quotient), Nat(remainder))
        }
        None => (small(0), small(0)),
    }
}

/// Returns the remainder, in time that depends on the widths only. A zero divisor gives 0.
pub(crate) fn rem(a: &Nat, b: &Nat) -> Nat {
    // The library's own function would leave the quotient in memory.
    div_rem(a, b).1
}

/// Returns the inverse of `a` modulo the odd number `m`, if there is one.
pub(crate) fn invert(a: &Nat, m: &Nat) -> Option<Nat> {
    let reduced = rem(a, m).widened(m.0.bits_precision());
    let m: &Odd<BoxedUint> = m.0.as_odd_vartime()?;
    Option::from(reduced.0.invert_odd_mod(m)).map(Nat)
}

/// Returns the inverse of the public `a` modulo the public odd number `m`, if there is one.
pub(crate) fn invert_vartime(a: &Nat, m: &Nat) -> Option<Nat> {
    let count = m.0.bits_precision().div_ceil(64) as usize;
    let inverse = super::euclid::invert_vartime(&limbs(&div_rem_vartime(a, m).1, count), &limbs(m, count))?;
    Some(from_limbs(&inverse))
}

/// Compares public numbers of any widths.
pub(crate) fn cmp_vartime(a: &Nat, b: &Nat) -> Ordering {
    let precision = a.0.bits_precision().max(b.0.bits_precision());
    a.widened(precision).0.cmp_vartime(&b.widened(precision).0)
}

/// Returns `|a - b|` for numbers of equal length. Its time reveals which one is larger.
pub(crate) fn distance(a: &Nat, b: &Nat) -> Nat {
    let precision = a.0.bits_precision().max(b.0.bits_precision());
    let (a, b) = (a.widened(precision), b.widened(precision));
    let (up, down) = (Nat(a.0.wrapping_sub(&b.0)), Nat(b.0.wrapping_sub(&a.0)));
    // The wrong difference wraps around to a large number.
    if up.bits() < down.bits() { up } else { down }
}

/// Returns `x` modulo a small public number.
pub(crate) fn rem_small(x: &Nat, m: u32) -> u32 {
    limbs(x, x.0.bits_precision().div_ceil(64) as usize).iter().rev().fold(0u64, |r, &limb| {
        let high = ((r << 32) | (limb >> 32)) % u64::from(m);
        ((high << 32) | (limb & 0xffff_ffff)) % u64::from(m)
    }) as u32
}

/// Regroups 64-bit limbs into `count` digits of `bits` bits.
pub(crate) fn to_digits(limbs: &[u64], bits: u32, count: usize) -> Limbs {
    let mut digits = Zeroizing::new(vec![0; count]);
    write_digits(&mut digits, limbs, bits);
    digits
}

/// Regroups digits of `bits` bits into `count` 64-bit limbs.
pub(crate) fn from_digits(digits: &[u64], bits: u32, count: usize) -> Limbs {
    let mut limbs = Zeroizing::new(vec![0; count]);
    write_limbs(&mut limbs, digits, bits);
    limbs
}

/// Regroups 64-bit limbs into the given digits of `bits` bits.
pub(crate) fn write_digits(digits: &mut [u64], limbs: &[u64], bits: u32) {
    let mask = u64::MAX >> (64 - bits);
    let mut at = 0;
    for digit in digits {
        let (limb, shift) = (at / 64, at % 64);
        let low = limbs.get(limb).copied().unwrap_or(0) >> shift;
        // Two shifts, because a shift by 64 is not defined.
        let high = limbs.get(limb + 1).copied().unwrap_or(0) << 1 << (63 - shift);
        *digit = (low | high) & mask;
        at += bits as usize;
    }
}

/// Regroups digits of `bits` bits into the given 64-bit limbs.
pub(crate) fn write_limbs(limbs: &mut [u64], digits: &[u64], bits: u32) {
    let (mut buffer, mut filled, mut digits) = (0u128, 0u32, digits.iter());
    for limb in limbs {
        while filled < 64 {
            buffer |= u128::from(digits.next().copied().unwrap_or(0)) << filled;
            filled += bits;
        }
        *limb = buffer as u64;
        buffer >>= 64;
        filled -= 64;
    }
}

/// Returns `x - m` if that is not negative and `x` otherwise, without branches, for limbs of equal length.
/// The last limb of the result is zero and is dropped.
pub(crate) fn subtract_once(x: &[u64], m: &[u64]) -> Limbs {
    let mut borrow = false;
    let mut difference = Zeroizing::new(x.to_vec());
    for (d, &m) in difference.iter_mut().zip(m) {
        let (low, b1) = d.overflowing_sub(m);
        let (low, b2) = low.overflowing_sub(u64::from(borrow));
        borrow = b1 | b2;
        *d = low;
    }
    let keep = 0u64.wrapping_sub(u64::from(borrow));
    difference.iter_mut().zip(x).for_each(|(d, &x)| *d = (*d & !keep) | (x & keep));
    difference.pop();
    difference
}

/// Computes `sum += factor * x`. The sum must be long enough.
pub(crate) fn add_multiple(sum: &mut [u64], factor: u64, x: &[u64]) {
    let mut carry = 0u128;
    for (i, digit) in sum.iter_mut().enumerate() {
        let product = u128::from(factor) * u128::from(x.get(i).copied().unwrap_or(0));
        carry += product + u128::from(*digit);
        *digit = carry as u64;
        carry >>= 64;
    }
}
