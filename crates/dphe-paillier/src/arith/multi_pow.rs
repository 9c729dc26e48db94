//! The product of many powers with public exponents of up to 64 bits, by Pippenger's buckets.
//!
//! For each window of the exponents, the bases are sorted by their digit in that window. The lanes divide the
//! sorted row among themselves, and each multiplies up one bucket after the other. So the first base of a
//! bucket is free, and no lane waits for another.

use super::lanes::{Lanes, MAX_LANES};
use super::modulus::{Modulus, Scratch};
use super::pow;
use super::units::{Buffer, Canonical, Closed, Group, Loose, ModSquared, Number, Numbers};

/// A base, and the product of many.
type Pair<'a, M, F> = Number<ModSquared<M>, F, Loose, &'a [u64]>;
type Product<M, F> = Number<ModSquared<M>, F, Canonical, Lanes>;
type Pairs<M, F, B = Lanes> = Group<ModSquared<M>, F, Loose, B>;

/// The product of `bases[i]^exponents[i]` modulo `N^2`, for exponents of `bits` bits.
pub(crate) fn multi_pow_vartime<M, F: Closed>(
    modulus: &Modulus<M>,
    bases: &[Pair<'_, M, F>],
    exponents: &[u64],
    bits: u32,
) -> Product<M, F> {
    assert_eq!(bases.len(), exponents.len(), "one exponent for each base");
    let mut scratch = modulus.scratch();
    if bases.len() < 8 * modulus.lanes() {
        return few(modulus, bases, exponents, &mut scratch);
    }
    let windows = window_count(bases.len(), bits);
    let window = bits.div_ceil(windows).max(modulus.lanes().ilog2());
    let mut buckets = Buckets::new(modulus, window);
    let (mut result, mut product) = (modulus.ones(), modulus.pairs());
    for i in (0..windows).rev() {
        for _ in 0..window {
            modulus.square(&mut product, &result, &mut scratch);
            core::mem::swap(&mut product, &mut result);
        }
        let digits = exponents.iter().map(|&e| pow::bit_window(&[e], i * window, window) as u32);
        buckets.fill(modulus, bases, &digits.collect::<Vec<_>>(), &mut scratch);
        let sum = modulus.broadcast(&buckets.weighted_product(modulus, &mut scratch));
        modulus.mul(&mut product, &result, &sum, &mut scratch);
        core::mem::swap(&mut product, &mut result);
    }
    first_lane(modulus, &mut result, &mut scratch)
}

/// The number of windows that needs the fewest multiplications. A window takes one per base and two per
/// bucket, less the first in each.
fn window_count(bases: usize, bits: u32) -> u32 {
    let cost = |windows: u32| u64::from(windows) * (bases as u64 + (1 << bits.div_ceil(windows)));
    // 2^16 buckets would be larger than the caches, and larger than the ciphertexts of most batches.
    (bits.div_ceil(13)..=bits).min_by_key(|&windows| cost(windows)).unwrap_or(1)
}

/// The same for few bases, where most buckets would stay empty: powers side by side.
fn few<M, F: Closed>(
    modulus: &Modulus<M>,
    bases: &[Pair<'_, M, F>],
    exponents: &[u64],
    scratch: &mut Scratch,
) -> Product<M, F> {
    let mut result = modulus.ones();
    let (mut group, mut product) = (modulus.pairs(), modulus.pairs());
    for (bases, exponents) in bases.chunks(modulus.lanes()).zip(exponents.chunks(modulus.lanes())) {
        modulus.gather(&mut group, bases, one(modulus));
        let power = pow::pow_small_vartime(modulus, &group, exponents, scratch);
        modulus.mul(&mut product, &result, &power, scratch);
        core::mem::swap(&mut product, &mut result);
    }
    product_of_lanes(modulus, &result, scratch)
}

/// One product for each digit of a window.
struct Buckets<M, F> {
    products: Numbers<ModSquared<M>, F, Loose, Lanes>,
    filled: Vec<bool>,
}

/// The part of the sorted row that one lane works on.
#[derive(Clone, Copy)]
struct Run {
    next: usize,
    end: usize,
    bucket: Option<u32>,
}

impl<M, F: Closed> Buckets<M, F> {
    fn new(modulus: &Modulus<M>, window: u32) -> Self {
        Self { products: modulus.numbers(1 << window), filled: vec![false; 1 << window] }
    }

    /// Puts into each bucket the product of the bases that have its digit.
    fn fill(
        &mut self,
        modulus: &Modulus<M>,
        bases: &[Pair<'_, M, F>],
        digits: &[u32],
        scratch: &mut Scratch,
    ) {
        self.filled.fill(false);
        let lanes = modulus.lanes();
        // A base whose digit is zero takes no part.
        let mut order: Vec<u32> = (0..bases.len() as u32).filter(|&i| digits[i as usize] != 0).collect();
        order.sort_by_key(|&i| digits[i as usize]);
        let mut runs: Vec<Run> = (0..lanes)
            .map(|lane| Run {
                next: order.len() * lane / lanes,
                end: order.len() * (lane + 1) / lanes,
                bucket: None,
            })
            .collect();
        let (mut product, mut factor, mut next) = (modulus.ones(), modulus.pairs(), modulus.pairs());
        loop {
            let mut factors = [one(modulus); MAX_LANES];
            let mut busy = false;
            for (lane, run) in runs.iter_mut().enumerate() {
                while run.next < run.end {
                    let i = order[run.next] as usize;
                    run.next += 1;
                    if run.bucket == Some(digits[i]) {
                        factors[lane] = bases[i];
                        busy = true;
                        break;
                    }
                    self.store(modulus, *run, &product, lane, scratch);
                    run.bucket = Some(digits[i]);
                    modulus.set_lane(&mut product, lane, &bases[i]);
                }
            }
            if !busy {
                break;
            }
            modulus.gather(&mut factor, &factors[..lanes], one(modulus));
            modulus.mul(&mut next, &product, &factor, scratch);
            core::mem::swap(&mut next, &mut product);
        }
        for (lane, &run) in runs.iter().enumerate() {
            self.store(modulus, run, &product, lane, scratch);
        }
    }

    /// Puts a lane's product into its bucket. Two lanes can share a bucket where the sorted row was cut.
    fn store(
        &mut self,
        modulus: &Modulus<M>,
        run: Run,
        product: &Pairs<M, F>,
        lane: usize,
        scratch: &mut Scratch,
    ) {
        let Some(bucket) = run.bucket.map(|bucket| bucket as usize) else { return };
        if core::mem::replace(&mut self.filled[bucket], true) {
            let mut both = modulus.pairs();
            let other = modulus.broadcast(&modulus.nth(&self.products, bucket));
            modulus.mul(&mut both, product, &other, scratch);
            modulus.copy_lane(modulus.nth_mut(&mut self.products, bucket), &both, lane);
        } else {
            modulus.copy_lane(modulus.nth_mut(&mut self.products, bucket), product, lane);
        }
    }

    /// The product of each bucket to the power of its digit. Each lane takes a range of digits: running
    /// products from the top give powers counted from zero, and the product of the whole range is raised to
    /// its first digit.
    fn weighted_product(&self, modulus: &Modulus<M>, scratch: &mut Scratch) -> Product<M, F> {
        let lanes = modulus.lanes();
        let range = self.filled.len() / lanes;
        let (mut running, mut total) = (modulus.ones(), modulus.ones());
        let (mut group, mut next) = (modulus.pairs(), modulus.pairs());
        for digit in (0..range).rev() {
            let mut sources = [one(modulus); MAX_LANES];
            for (lane, source) in sources.iter_mut().enumerate().take(lanes) {
                let bucket = lane * range + digit;
                if self.filled[bucket] {
                    *source = modulus.nth(&self.products, bucket);
                }
            }
            modulus.gather(&mut group, &sources[..lanes], one(modulus));
            modulus.mul(&mut next, &running, &group, scratch);
            core::mem::swap(&mut next, &mut running);
            if digit > 0 {
                modulus.mul(&mut next, &total, &running, scratch);
                core::mem::swap(&mut next, &mut total);
            }
        }
        let firsts: Vec<u64> = (0..lanes).map(|lane| (lane * range) as u64).collect();
        let lifted = pow::pow_small_vartime(modulus, &running, &firsts, scratch);
        modulus.mul(&mut next, &total, &lifted, scratch);
        product_of_lanes(modulus, &next, scratch)
    }
}

fn one<M, F: Closed>(modulus: &Modulus<M>) -> Pair<'_, M, F> {
    modulus.one().loose().claim_form()
}

/// The product of all lanes.
fn product_of_lanes<M, F: Closed>(
    modulus: &Modulus<M>,
    group: &Pairs<M, F, impl Buffer>,
    scratch: &mut Scratch,
) -> Product<M, F> {
    let mut next = modulus.pairs();
    let mut product = modulus.broadcast(&modulus.lane(group, 0));
    for lane in 1..modulus.lanes() {
        modulus.mul(&mut next, &product, &modulus.broadcast(&modulus.lane(group, lane)), scratch);
        core::mem::swap(&mut next, &mut product);
    }
    first_lane(modulus, &mut product, scratch)
}

/// The number in the first lane.
fn first_lane<M, F>(modulus: &Modulus<M>, group: &mut Pairs<M, F>, scratch: &mut Scratch) -> Product<M, F> {
    modulus.lane(&modulus.canonical(group, scratch), 0)
}
