//! The vector kernel on plain arrays, with the arithmetic of IFMA, so that the logic of the kernel can be
//! tested on any CPU. The IFMA instance differs only in its one-line instructions.

use super::simd::{self, Context, Simd};

const BITS: u32 = 52;
const MASK: u64 = (1 << BITS) - 1;
type V = [u64; 8];

struct Emulated;

fn zip(a: V, b: V, f: impl Fn(u64, u64) -> u64) -> V {
    core::array::from_fn(|i| f(a[i], b[i]))
}

fn product(a: u64, b: u64) -> u128 {
    u128::from(a & MASK) * u128::from(b & MASK)
}

impl Simd for Emulated {
    type V = V;
    type Acc = (V, V);
    const LANES: usize = 8;
    const BITS: u32 = BITS;

    unsafe fn load(p: *const u64) -> V {
        // SAFETY: eight words are readable.
        unsafe { p.cast::<V>().read_unaligned() }
    }
    unsafe fn store(p: *mut u64, v: V) {
        // SAFETY: eight words are writable.
        unsafe { p.cast::<V>().write_unaligned(v) }
    }
    unsafe fn splat(x: u64) -> V {
        [x; 8]
    }
    unsafe fn add(a: V, b: V) -> V {
        zip(a, b, u64::wrapping_add)
    }
    unsafe fn sub(a: V, b: V) -> V {
        zip(a, b, u64::wrapping_sub)
    }
    unsafe fn and(a: V, b: V) -> V {
        zip(a, b, |a, b| a & b)
    }
    unsafe fn or(a: V, b: V) -> V {
        zip(a, b, |a, b| a | b)
    }
    unsafe fn shift(v: V) -> V {
        v.map(|x| x >> BITS)
    }
    unsafe fn sign(v: V) -> V {
        v.map(|x| x >> 63)
    }
    unsafe fn mul_low(a: V, b: V) -> V {
        zip(a, b, |a, b| product(a, b) as u64 & MASK)
    }
    unsafe fn acc(v: V) -> (V, V) {
        (v, [0; 8])
    }
    unsafe fn mac((lo, hi): (V, V), a: V, b: V) -> (V, V) {
        // Checked additions: a column that overflows 64 bits panics.
        let low = zip(a, b, |a, b| product(a, b) as u64 & MASK);
        let high = zip(a, b, |a, b| (product(a, b) >> BITS) as u64);
        (zip(lo, low, |x, y| x.checked_add(y).unwrap()), zip(hi, high, |x, y| x.checked_add(y).unwrap()))
    }
    unsafe fn plus((lo, hi): (V, V), v: V) -> (V, V) {
        (zip(lo, v, |x, y| x.checked_add(y).unwrap()), hi)
    }
    unsafe fn double((lo, hi): (V, V)) -> (V, V) {
        (lo.map(|x| 2 * x), hi.map(|x| 2 * x))
    }
    unsafe fn low((lo, _): (V, V)) -> V {
        lo
    }
    unsafe fn high((_, hi): (V, V)) -> V {
        hi
    }
    unsafe fn carry((lo, hi): (V, V)) -> V {
        zip(lo, hi, |lo, hi| (lo >> BITS) + hi)
    }
    unsafe fn word((lo, _): (V, V)) -> V {
        lo
    }
}

super::kernel_entry_points!(Emulated, 10);
