//! Measures how close the kernel comes to the peak rate of the CPU's multiplier.

use std::time::Instant;

use super::backend::Backend;
use super::modulus::Modulus;
use super::nat;
use super::units::{ModSquared, Mont, Public};
#[cfg(target_arch = "x86_64")]
use super::{avx2, ifma};
use crate::KeyBits;

/// A measurement of the multiplication modulo `n^2`. Times are for all lanes together.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct KernelRate {
    /// The back end that was measured.
    pub backend: Backend,
    /// Numbers that one call multiplies.
    pub lanes: usize,
    /// The time of one multiplication.
    pub multiply_ns: f64,
    /// The time of one squaring.
    pub square_ns: f64,
    /// Multiply instructions in a multiplication.
    pub instructions: f64,
    /// The time of these instructions at the multiplier's peak rate, measured in the same run.
    pub bound_ns: f64,
}

/// Measures the kernel for keys of this length, alternating with the multiplier's peak rate.
pub fn kernel_rate(bits: KeyBits) -> KernelRate {
    let backend = Backend::for_key(bits.get());
    // Any odd number of that length will do, because the time depends on the length only.
    let n = nat::sub(&nat::power_of_two(bits.get()), &nat::small(1));
    let modulus = Modulus::<Public>::new(&n, backend);
    let digits = modulus.residue_words() as f64;
    let products = match backend {
        // the low and the high half of each of five products
        Backend::Ifma => 10.0,
        _ => 5.0,
    };
    let instructions = products * digits * digits;
    let mut scratch = modulus.scratch();
    let x = modulus.ones::<ModSquared<Public>, Mont>();
    let mut z = modulus.pairs();
    let (mut multiply, mut square, mut peak) = (f64::MAX, f64::MAX, f64::MAX);
    for _ in 0..500 {
        multiply = multiply.min(time(8, || modulus.mul(&mut z, &x, &x, &mut scratch)));
        square = square.min(time(8, || modulus.square(&mut z, &x, &mut scratch)));
        peak = peak.min(peak_ns(backend));
    }
    KernelRate {
        backend,
        lanes: modulus.lanes(),
        multiply_ns: multiply,
        square_ns: square,
        instructions,
        bound_ns: instructions * peak,
    }
}

fn time(count: u32, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..count).for_each(|_| work());
    start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

/// Returns the nanoseconds per multiply instruction with its addition. The operands are in registers, and
/// there are enough independent chains to hide the latency.
fn peak_ns(backend: Backend) -> f64 {
    const ROUNDS: u32 = 500;
    match backend {
        // SAFETY: the back end is available, or no modulus could have been made for it.
        #[cfg(target_arch = "x86_64")]
        Backend::Ifma => time(1, || unsafe { ifma::peak(ROUNDS) }) / f64::from(ROUNDS * ifma::PEAK_CHAINS),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Backend::Avx2 => time(1, || unsafe { avx2::peak(ROUNDS) }) / f64::from(ROUNDS * avx2::PEAK_CHAINS),
        _ => time(1, || scalar_peak(ROUNDS)) / f64::from(ROUNDS * 8),
    }
}

/// Computes eight independent 64-bit products per round.
fn scalar_peak(rounds: u32) {
    let mut x = core::hint::black_box([3u64, 5, 7, 9, 11, 13, 15, 17]);
    for _ in 0..rounds {
        for x in &mut x {
            *x = ((u128::from(*x) * u128::from(0x9e37_79b9_7f4a_7c15_u64)) >> 64) as u64 ^ *x;
        }
    }
    core::hint::black_box(x);
}
