//! Powers of many bases: to one secret exponent, or to small public ones.

use zeroize::Zeroizing;

use super::lanes::Lanes;
use super::modulus::{Modulus, Scratch};
use super::nat::{self, Nat};
use super::units::{Buffer, Closed, Factors, Group, Loose, ModSquared, Mont, PQ2, Ring};

/// Bits of an exponent per multiplication. Every multiplication reads the whole table of `2^WINDOW` groups.
/// With four bits, the table fits into the first-level cache for the primes of a 3072-bit key.
const WINDOW: u32 = 4;

/// A secret exponent, cut into windows, highest first. Its length is public.
pub(crate) struct Exponent(Zeroizing<Vec<u8>>);

/// The effects of hardware faults.
#[cfg(test)]
impl Exponent {
    /// Multiplies the exponent by a small number, in one window more.
    pub(crate) fn multiply(&mut self, factor: u32) {
        let mut carry = 0;
        for window in self.0.iter_mut().rev() {
            let product = factor * u32::from(*window) + carry;
            (*window, carry) = ((product & ((1 << WINDOW) - 1)) as u8, product >> WINDOW);
        }
        self.0.insert(0, carry as u8);
    }
}

impl Exponent {
    /// An exponent of at most `bits` bits.
    pub(crate) fn new(x: &Nat, bits: u32) -> Self {
        let limbs = nat::limbs(x, (bits as usize).div_ceil(64));
        let count = bits.div_ceil(WINDOW);
        Self(Zeroizing::new((0..count).rev().map(|i| bit_window(&limbs, i * WINDOW, WINDOW) as u8).collect()))
    }
}

/// Returns `width <= 32` bits of a little-endian number, starting at bit `at`.
pub(super) fn bit_window(limbs: &[u64], at: u32, width: u32) -> u64 {
    let (limb, shift) = (at as usize / 64, at % 64);
    let low = limbs.get(limb).copied().unwrap_or(0) >> shift;
    // Two shifts, because a shift by 64 is not defined.
    let high = limbs.get(limb + 1).copied().unwrap_or(0) << 1 << (63 - shift);
    (low | high) & ((1 << width) - 1)
}

/// `base^exponent` in all lanes. Memory access does not depend on the exponent: every window reads the whole
/// table, and a window of zeros multiplies by one.
pub(crate) fn pow<M, R: Ring<Modulus = M>, S>(
    modulus: &Modulus<M>,
    base: &Group<R, Mont, S, impl Buffer>,
    exponent: &Exponent,
    scratch: &mut Scratch,
) -> Group<R, Mont, Loose, Lanes> {
    let table = powers(modulus, &modulus.ones(), base, 1 << WINDOW, scratch);
    let (mut result, mut next) = (modulus.group(), modulus.group());
    let mut chosen = modulus.group::<R, Mont>();
    let (&first, rest) = exponent.0.split_first().unwrap_or((&0, &[]));
    modulus.select(&mut result, &table, u64::from(first));
    for &window in rest {
        for _ in 0..WINDOW {
            modulus.square(&mut next, &result, scratch);
            core::mem::swap(&mut next, &mut result);
        }
        modulus.select(&mut chosen, &table, u64::from(window));
        modulus.mul(&mut next, &result, &chosen, scratch);
        core::mem::swap(&mut next, &mut result);
    }
    result
}

/// The base to one secret exponent in the lower lanes, and to another in the upper lanes. `ones` is one in all lanes.
/// Memory access is the same for all exponents, as in [`pow`].
pub(crate) fn pow_of_factors(
    modulus: &Modulus<Factors>,
    base: &Group<PQ2, Mont, Loose, impl Buffer>,
    ones: &Group<PQ2, Mont, Loose, impl Buffer>,
    exponents: [&Exponent; 2],
    scratch: &mut Scratch,
) -> Group<PQ2, Mont, Loose, Lanes> {
    let [low, high] = exponents.map(|exponent| &exponent.0);
    assert!(low.len() == high.len(), "exponents of one length");
    let table = powers(modulus, ones, base, 1 << WINDOW, scratch);
    let (mut result, mut next, mut chosen) = (modulus.pairs(), modulus.pairs(), modulus.pairs::<Mont>());
    for (i, (&low, &high)) in low.iter().zip(high.iter()).enumerate() {
        let index = [low, high].map(u64::from);
        if i == 0 {
            modulus.select_of_factors(&mut result, &table, index);
            continue;
        }
        for _ in 0..WINDOW {
            modulus.square(&mut next, &result, scratch);
            core::mem::swap(&mut next, &mut result);
        }
        modulus.select_of_factors(&mut chosen, &table, index);
        modulus.mul(&mut next, &result, &chosen, scratch);
        core::mem::swap(&mut next, &mut result);
    }
    result
}

/// `base^exponents[lane]` in each lane. The exponents are public.
pub(crate) fn pow_small_vartime<M, F: Closed, S>(
    modulus: &Modulus<M>,
    base: &Group<ModSquared<M>, F, S, impl Buffer>,
    exponents: &[u64],
    scratch: &mut Scratch,
) -> Group<ModSquared<M>, F, Loose, Lanes> {
    let exponents: Vec<&[u64]> = exponents.chunks(1).collect();
    pow_vartime(modulus, base, &exponents, scratch)
}

/// `base^exponents[lane]` in each lane. The exponents are public little-endian numbers of any length.
pub(crate) fn pow_vartime<M, F: Closed, S>(
    modulus: &Modulus<M>,
    base: &Group<ModSquared<M>, F, S, impl Buffer>,
    exponents: &[&[u64]],
    scratch: &mut Scratch,
) -> Group<ModSquared<M>, F, Loose, Lanes> {
    let lanes = modulus.lanes();
    let bits = exponents.iter().map(|exponent| bit_length(exponent)).max().unwrap_or(0);
    if bits == 0 {
        return modulus.ones();
    }
    let width = public_window(bits);
    let table = powers(modulus, &modulus.ones(), base, 1 << width, scratch);
    let (mut result, mut next, mut chosen) = (modulus.pairs(), modulus.pairs(), modulus.pairs());
    let words = base.digits().len();
    let choose = |chosen: &mut Group<_, _, _, Lanes>, i: u32| {
        let windows: Vec<u64> = (0..lanes)
            .map(|lane| bit_window(exponents.get(lane).copied().unwrap_or(&[]), i * width, width))
            .collect();
        let digits = chosen.digits_mut();
        for (lane, window) in windows.iter().enumerate() {
            let entry = &table[*window as usize * words..][..words];
            for at in (lane..words).step_by(lanes) {
                digits[at] = entry[at];
            }
        }
        windows.iter().any(|&window| window != 0)
    };
    let windows = bits.div_ceil(width);
    choose(&mut result, windows - 1);
    for i in (0..windows - 1).rev() {
        for _ in 0..width {
            modulus.square(&mut next, &result, scratch);
            core::mem::swap(&mut next, &mut result);
        }
        // A window that is zero in all lanes multiplies by one.
        if choose(&mut chosen, i) {
            modulus.mul(&mut next, &result, &chosen, scratch);
            core::mem::swap(&mut next, &mut result);
        }
    }
    result
}

/// Returns the bits per window that need the fewest multiplications for a public exponent of that length.
fn public_window(bits: u32) -> u32 {
    let cost = |width: u32| (1 << width) + bits.div_ceil(width);
    // Longer windows would need a table beyond the second-level cache.
    (1..=6).min_by_key(|&width| cost(width)).unwrap_or(WINDOW)
}

/// Returns the bits of a little-endian number without leading zeros.
fn bit_length(limbs: &[u64]) -> u32 {
    let (mut bits, mut below) = (0, 0);
    for limb in limbs {
        if *limb != 0 {
            bits = below + 64 - limb.leading_zeros();
        }
        below += 64;
    }
    bits
}

/// `base^0` to `base^(count - 1)`, one group after the other.
fn powers<M, R: Ring<Modulus = M>, F: Closed, S>(
    modulus: &Modulus<M>,
    ones: &Group<R, F, Loose, impl Buffer>,
    base: &Group<R, F, S, impl Buffer>,
    count: usize,
    scratch: &mut Scratch,
) -> Lanes {
    let words = base.digits().len();
    let mut table = Lanes::zeros(count * words);
    table[..words].copy_from_slice(ones.digits());
    table[words..2 * words].copy_from_slice(base.digits());
    for i in 2..count {
        let (known, new) = table.split_at_mut(i * words);
        let entry = |i: usize| Group::<R, F, Loose, &[u64]>::claim(&known[i * words..][..words]);
        let mut new = Group::<R, F, Loose, &mut [u64]>::claim(&mut new[..words]);
        if i % 2 == 0 {
            modulus.square(&mut new, &entry(i / 2), scratch);
        } else {
            modulus.mul(&mut new, &entry(i - 1), base, scratch);
        }
    }
    table
}
