//! The product of many powers with public exponents of up to 128 bits, by Pippenger's buckets.
//!
//! The lanes work on different windows of the exponents, so one base serves a whole group of buckets.

use super::lanes::Lanes;
use super::modulus::Modulus;

/// The product of `bases[i]^exponents[i]` modulo `N^2`, for exponents of `bits` bits: canonical pairs in Montgomery form in, and out.
pub(crate) fn multi_pow_vartime(modulus: &Modulus, bases: &[&[u64]], exponents: &[u128], bits: u32) -> Lanes {
    assert_eq!(bases.len(), exponents.len(), "one exponent for each base");
    // Buckets cost 2^(w + 1) multiplications a window however many bases there are.
    let window: u32 = match bases.len() {
        0..16 => 2,
        16..1024 => 4,
        _ => 8,
    };
    let windows = bits.div_ceil(window);
    let lanes = modulus.lanes();
    let mut scratch = modulus.scratch();
    let mut product = modulus.pairs();
    let mut sums = Vec::with_capacity(windows as usize);
    for first in (0..windows).step_by(lanes) {
        let mut buckets: Vec<Lanes> = (1..1 << window).map(|_| modulus.broadcast(modulus.one())).collect();
        let digit = |exponent: u128, lane: usize| {
            let shift = (first + lane as u32) * window;
            if shift < 128 { (exponent >> shift) as usize & ((1 << window) - 1) } else { 0 }
        };
        let mut chosen = modulus.pairs();
        for (base, &exponent) in bases.iter().zip(exponents) {
            let base = modulus.broadcast(base);
            // each lane takes its own bucket out, multiplies, and puts it back
            for lane in 0..lanes {
                let bucket = digit(exponent, lane).max(1) - 1;
                copy_lane(&mut chosen, &buckets[bucket], lane, lanes);
            }
            modulus.mul_pair(&mut product, &chosen, &base, &mut scratch);
            for lane in 0..lanes {
                if let Some(bucket) = digit(exponent, lane).checked_sub(1) {
                    copy_lane(&mut buckets[bucket], &product, lane, lanes);
                }
            }
        }
        // sum of e * bucket[e]: running products from the top
        let mut running = modulus.broadcast(modulus.one());
        let mut total = modulus.broadcast(modulus.one());
        for bucket in buckets.iter().rev() {
            modulus.mul_pair(&mut product, &running, bucket, &mut scratch);
            core::mem::swap(&mut product, &mut running);
            modulus.mul_pair(&mut product, &total, &running, &mut scratch);
            core::mem::swap(&mut product, &mut total);
        }
        modulus.canonical_pair(&mut total, &mut scratch);
        for lane in 0..lanes {
            let mut sum = Lanes::zeros(modulus.pair_words());
            for (digit, row) in sum.iter_mut().zip(total.chunks_exact(lanes)) {
                *digit = row[lane];
            }
            sums.push(sum);
        }
    }
    sums.truncate(windows as usize);

    let mut result = modulus.broadcast(modulus.one());
    for sum in sums.iter().rev() {
        for _ in 0..window {
            modulus.square_pair(&mut product, &result, &mut scratch);
            core::mem::swap(&mut product, &mut result);
        }
        modulus.mul_pair(&mut product, &result, &modulus.broadcast(sum), &mut scratch);
        core::mem::swap(&mut product, &mut result);
    }
    modulus.canonical_pair(&mut result, &mut scratch);
    let mut out = Lanes::zeros(modulus.pair_words());
    modulus.scatter(&mut [&mut out], &result);
    out
}

fn copy_lane(to: &mut [u64], from: &[u64], lane: usize, lanes: usize) {
    for (to, from) in to.chunks_exact_mut(lanes).zip(from.chunks_exact(lanes)) {
        to[lane] = from[lane];
    }
}
