//! Plain big integers, for set-up and conversions; the only module that names the library.
//!
//! `Nat` is the library's type; it is wiped when dropped by whoever holds it in a [`Secret`].

use core::cmp::Ordering;

pub(crate) use crypto_bigint::BoxedUint as Nat;
use crypto_bigint::{ConcatenatingMul, NonZero, Odd, Resize};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A number that is wiped when dropped and never shown.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) Nat);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Secret {}

/// The number with these little-endian 64-bit limbs.
pub(crate) fn from_limbs(limbs: &[u64]) -> Nat {
    let bytes = zeroize::Zeroizing::new(limbs.iter().flat_map(|l| l.to_le_bytes()).collect::<Vec<u8>>());
    Nat::from_le_slice_truncated(&bytes, 64 * (limbs.len() as u32).max(1))
}

/// The low `count` 64-bit limbs of `x`, little-endian.
pub(crate) fn limbs(x: &Nat, count: usize) -> Vec<u64> {
    let mut limbs = vec![0u64; count];
    let word_bits = crypto_bigint::Word::BITS as usize;
    for (i, &word) in x.as_words().iter().enumerate() {
        let bit = i * word_bits;
        if let Some(limb) = limbs.get_mut(bit / 64) {
            // a word is 32 bits on 32-bit machines
            #[allow(clippy::useless_conversion)]
            let word = u64::from(word);
            *limb |= word << (bit % 64);
        }
    }
    limbs
}

/// A small number.
pub(crate) fn small(x: u64) -> Nat {
    from_limbs(&[x])
}

/// `2^k`.
pub(crate) fn power_of_two(k: u32) -> Nat {
    let mut limbs = vec![0; k as usize / 64 + 1];
    limbs[k as usize / 64] = 1 << (k % 64);
    from_limbs(&limbs)
}

/// Big-endian bytes, leading zeros allowed.
pub(crate) fn from_be_bytes(bytes: &[u8]) -> Nat {
    Nat::from_be_slice_truncated(bytes, (8 * bytes.len() as u32).max(64))
}

/// Big-endian bytes of fixed width; `x` must fit.
pub(crate) fn to_be_bytes(x: &Nat, width: usize) -> Vec<u8> {
    let all = x.to_be_bytes();
    let mut bytes = vec![0; width];
    let common = width.min(all.len());
    bytes[width - common..].copy_from_slice(&all[all.len() - common..]);
    bytes
}

/// `a + b`, never overflowing.
pub(crate) fn add(a: &Nat, b: &Nat) -> Nat {
    let precision = a.bits_precision().max(b.bits_precision()) + 64;
    a.resize_unchecked(precision).wrapping_add(b.resize_unchecked(precision))
}

/// `a - b` for `a >= b`, at the width of `a`.
pub(crate) fn sub(a: &Nat, b: &Nat) -> Nat {
    let precision = a.bits_precision().max(b.bits_precision());
    a.resize_unchecked(precision).wrapping_sub(b.resize_unchecked(precision))
}

/// `a * b`, never overflowing.
pub(crate) fn mul(a: &Nat, b: &Nat) -> Nat {
    a.concatenating_mul(b)
}

/// Quotient and remainder of public numbers. A zero divisor gives `(0, 0)`.
pub(crate) fn div_rem_vartime(a: &Nat, b: &Nat) -> (Nat, Nat) {
    match b.as_nz_vartime() {
        Some(b) => a.div_rem_vartime(b),
        None => (small(0), small(0)),
    }
}

/// Quotient and remainder, in time that depends on the sizes only. A zero divisor gives `(0, 0)`.
pub(crate) fn div_rem(a: &Nat, b: &Nat) -> (Nat, Nat) {
    match Option::<NonZero<Nat>>::from(b.to_nz()) {
        Some(b) => a.div_rem(&b),
        None => (small(0), small(0)),
    }
}

/// Remainder, in time that depends on the sizes only. A zero divisor gives 0.
pub(crate) fn rem(a: &Nat, b: &Nat) -> Nat {
    match Option::<NonZero<Nat>>::from(b.to_nz()) {
        Some(b) => a.rem(&b),
        None => small(0),
    }
}

/// The inverse of `a` modulo the odd number `m`, if there is one.
pub(crate) fn invert(a: &Nat, m: &Nat) -> Option<Nat> {
    let m = Option::<Odd<Nat>>::from(m.to_odd())?;
    let a = rem(a, &m).resize_unchecked(m.bits_precision());
    a.invert_odd_mod(&m).into()
}

/// The inverse of the public `a` modulo the public odd number `m`, if there is one.
pub(crate) fn invert_vartime(a: &Nat, m: &Nat) -> Option<Nat> {
    let m = Option::<Odd<Nat>>::from(m.to_odd())?;
    let a = div_rem_vartime(a, &m).1.resize_unchecked(m.bits_precision());
    a.invert_odd_mod_vartime(&m).into()
}

/// How public numbers of any widths compare.
pub(crate) fn cmp_vartime(a: &Nat, b: &Nat) -> Ordering {
    let precision = a.bits_precision().max(b.bits_precision());
    a.resize_unchecked(precision).cmp_vartime(b.resize_unchecked(precision))
}

/// Whether a public number is zero.
pub(crate) fn is_zero_vartime(a: &Nat) -> bool {
    a.bits_vartime() == 0
}

/// `x` modulo a small public number.
pub(crate) fn rem_small(x: &Nat, m: u32) -> u32 {
    limbs(x, x.bits_precision().div_ceil(64) as usize).iter().rev().fold(0u64, |r, &limb| {
        let high = ((r << 32) | (limb >> 32)) % u64::from(m);
        ((high << 32) | (limb & 0xffff_ffff)) % u64::from(m)
    }) as u32
}

/// Regroups 64-bit limbs into `count` digits of `bits` bits.
pub(crate) fn to_digits(limbs: &[u64], bits: u32, count: usize) -> Vec<u64> {
    regroup(limbs, 64, bits, count)
}

/// Regroups digits of `bits` bits into `count` 64-bit limbs.
pub(crate) fn from_digits(digits: &[u64], bits: u32, count: usize) -> Vec<u64> {
    regroup(digits, bits, 64, count)
}

/// Rewrites a little-endian number from digits of one size to digits of another.
fn regroup(input: &[u64], from: u32, to: u32, count: usize) -> Vec<u64> {
    let mask = if to == 64 { u64::MAX } else { (1 << to) - 1 };
    let mut output = Vec::with_capacity(count);
    let (mut buffer, mut filled, mut input) = (0u128, 0u32, input.iter());
    while output.len() < count {
        while filled < to {
            buffer |= u128::from(input.next().copied().unwrap_or(0)) << filled;
            filled += from;
        }
        output.push(buffer as u64 & mask);
        buffer >>= to;
        filled -= to;
    }
    output
}

/// The same public number without leading zero limbs.
pub(crate) fn shorten_vartime(x: &Nat) -> Nat {
    x.resize_unchecked(x.bits_vartime().max(64))
}

/// `x - m` if that is not negative, else `x`, for limbs of equal length, without branches; the last limb,
/// which is then zero, is dropped.
pub(crate) fn subtract_once(x: &[u64], m: &[u64]) -> Vec<u64> {
    let mut borrow = false;
    let mut difference: Vec<u64> = x
        .iter()
        .zip(m)
        .map(|(&x, &m)| {
            let (d, b1) = x.overflowing_sub(m);
            let (d, b2) = d.overflowing_sub(u64::from(borrow));
            borrow = b1 | b2;
            d
        })
        .collect();
    let keep = 0u64.wrapping_sub(u64::from(borrow));
    difference.iter_mut().zip(x).for_each(|(d, &x)| *d = (*d & !keep) | (x & keep));
    difference.pop();
    difference
}

/// `sum += factor * x`; the sum must be long enough.
pub(crate) fn add_multiple(sum: &mut [u64], factor: u64, x: &[u64]) {
    let mut carry = 0u128;
    for (i, digit) in sum.iter_mut().enumerate() {
        let product = u128::from(factor) * u128::from(x.get(i).copied().unwrap_or(0));
        carry += product + u128::from(*digit);
        *digit = carry as u64;
        carry >>= 64;
    }
}
