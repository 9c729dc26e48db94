//! Powers of many bases to one secret exponent, and to many small public ones.

use zeroize::Zeroizing;

use super::lanes::Lanes;
use super::modulus::{Modulus, Ring, Scratch};
use super::nat::{self, Nat};

/// Bits of an exponent that one multiplication takes care of. The table of `2^WINDOW` groups is read
/// whole for each; with four it stays in the first-level cache for the primes of a 3072-bit key.
const WINDOW: u32 = 4;

/// A secret exponent, cut into windows, highest first. Its length is public.
pub(crate) struct Exponent(Zeroizing<Vec<u8>>);

impl Exponent {
    /// An exponent of at most `bits` bits.
    pub(crate) fn new(x: &Nat, bits: u32) -> Self {
        let limbs = nat::limbs(x, (bits as usize).div_ceil(64));
        let count = bits.div_ceil(WINDOW);
        Self(Zeroizing::new((0..count).rev().map(|i| bit_window(&limbs, i * WINDOW, WINDOW) as u8).collect()))
    }
}

/// `width <= 32` bits of a little-endian number from bit `at` on.
pub(super) fn bit_window(limbs: &[u64], at: u32, width: u32) -> u64 {
    let (limb, shift) = (at as usize / 64, at % 64);
    let low = limbs.get(limb).copied().unwrap_or(0) >> shift;
    // two shifts, because one by 64 is not defined
    let high = limbs.get(limb + 1).copied().unwrap_or(0) << 1 << (63 - shift);
    (low | high) & ((1 << width) - 1)
}

/// `base^exponent` in all lanes, in Montgomery form, loose. Constant access: the table is read whole
/// for each window, and a window of zeros multiplies by one.
pub(crate) fn pow(
    modulus: &Modulus,
    ring: Ring,
    base: &[u64],
    exponent: &Exponent,
    scratch: &mut Scratch,
) -> Lanes {
    let table = powers(modulus, ring, base, 1 << WINDOW, scratch);
    let mut result = modulus.group(ring);
    let mut next = modulus.group(ring);
    let mut chosen = modulus.group(ring);
    let (&first, rest) = exponent.0.split_first().unwrap_or((&0, &[]));
    modulus.select(&mut result, &table, u64::from(first));
    for &window in rest {
        for _ in 0..WINDOW {
            modulus.square_in(ring, &mut next, &result, scratch);
            core::mem::swap(&mut next, &mut result);
        }
        modulus.select(&mut chosen, &table, u64::from(window));
        modulus.mul_in(ring, &mut next, &result, &chosen, scratch);
        core::mem::swap(&mut next, &mut result);
    }
    result
}

/// `base^exponents[lane]` in each lane; the exponents are public.
pub(crate) fn pow_small_vartime(
    modulus: &Modulus,
    base: &[u64],
    exponents: &[u64],
    scratch: &mut Scratch,
) -> Lanes {
    let (ring, lanes) = (Ring::ModNSquared, modulus.lanes());
    let bits = exponents.iter().map(|e| 64 - e.leading_zeros()).max().unwrap_or(0);
    let width = if bits < 8 { 1 } else { WINDOW };
    let table = powers(modulus, ring, base, 1 << width, scratch);
    let mut result = modulus.broadcast(modulus.one_in(ring));
    let mut next = modulus.group(ring);
    let mut chosen = modulus.group(ring);
    let words = chosen.len();
    for i in (0..bits.div_ceil(width)).rev() {
        for _ in 0..width {
            modulus.square_in(ring, &mut next, &result, scratch);
            core::mem::swap(&mut next, &mut result);
        }
        for lane in 0..lanes {
            let exponent = exponents.get(lane).copied().unwrap_or(0);
            let entry = &table[bit_window(&[exponent], i * width, width) as usize * words..][..words];
            for at in (lane..words).step_by(lanes) {
                chosen[at] = entry[at];
            }
        }
        modulus.mul_in(ring, &mut next, &result, &chosen, scratch);
        core::mem::swap(&mut next, &mut result);
    }
    result
}

/// `base^0` to `base^(count - 1)`, one group after the other.
fn powers(modulus: &Modulus, ring: Ring, base: &[u64], count: usize, scratch: &mut Scratch) -> Lanes {
    let words = base.len();
    let mut table = Lanes::zeros(count * words);
    table[..words].copy_from_slice(&modulus.broadcast(modulus.one_in(ring)));
    table[words..2 * words].copy_from_slice(base);
    for i in 2..count {
        let (known, new) = table.split_at_mut(i * words);
        let new = &mut new[..words];
        if i % 2 == 0 {
            modulus.square_in(ring, new, &known[i / 2 * words..][..words], scratch);
        } else {
            modulus.mul_in(ring, new, &known[(i - 1) * words..], base, scratch);
        }
    }
    table
}
