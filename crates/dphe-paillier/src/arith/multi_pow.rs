//! The product of many powers with public exponents of up to 64 bits, by Pippenger's buckets.
//!
//! For each window of the exponents, the bases are sorted by their digit there. The lanes share the sorted
//! row among them, each multiplying up one bucket after the other, so the first base of a bucket costs
//! nothing and no lane waits for another.

use super::lanes::Lanes;
use super::modulus::{Modulus, Scratch};
use super::pow;

/// The product of `bases[i]^exponents[i]` modulo `N^2`, for exponents of `bits` bits: pairs in Montgomery form
/// in, a canonical one out.
pub(crate) fn multi_pow_vartime(modulus: &Modulus, bases: &[&[u64]], exponents: &[u64], bits: u32) -> Lanes {
    assert_eq!(bases.len(), exponents.len(), "one exponent for each base");
    let mut scratch = modulus.scratch();
    if bases.len() < 8 * modulus.lanes() {
        return few(modulus, bases, exponents, &mut scratch);
    }
    let windows = window_count(bases.len(), bits);
    let window = bits.div_ceil(windows).max(modulus.lanes().ilog2());
    let mut buckets = Buckets::new(modulus, window);
    let (mut result, mut product) = (modulus.broadcast(modulus.one()), modulus.pairs());
    for i in (0..windows).rev() {
        for _ in 0..window {
            modulus.square_pair(&mut product, &result, &mut scratch);
            core::mem::swap(&mut product, &mut result);
        }
        let digits = exponents.iter().map(|&e| pow::bit_window(&[e], i * window, window) as u32);
        buckets.fill(modulus, bases, &digits.collect::<Vec<_>>(), &mut scratch);
        let sum = modulus.broadcast(&buckets.weighted_product(modulus, &mut scratch));
        modulus.mul_pair(&mut product, &result, &sum, &mut scratch);
        core::mem::swap(&mut product, &mut result);
    }
    first_lane(modulus, &mut result, &mut scratch)
}

/// In how many windows the fewest multiplications are: a window takes one for each base and two for
/// each bucket, less the first in each.
fn window_count(bases: usize, bits: u32) -> u32 {
    let cost = |windows: u32| u64::from(windows) * (bases as u64 + (1 << bits.div_ceil(windows)));
    // buckets of 2^16 would be larger than caches, and larger than the ciphertexts of most batches
    (bits.div_ceil(13)..=bits).min_by_key(|&windows| cost(windows)).unwrap_or(1)
}

/// The same for so few bases that buckets would stay empty: powers side by side.
fn few(modulus: &Modulus, bases: &[&[u64]], exponents: &[u64], scratch: &mut Scratch) -> Lanes {
    let mut result = modulus.broadcast(modulus.one());
    let (mut group, mut product) = (modulus.pairs(), modulus.pairs());
    for (bases, exponents) in bases.chunks(modulus.lanes()).zip(exponents.chunks(modulus.lanes())) {
        modulus.gather(&mut group, bases, modulus.one());
        let power = pow::pow_small_vartime(modulus, &group, exponents, scratch);
        modulus.mul_pair(&mut product, &result, &power, scratch);
        core::mem::swap(&mut product, &mut result);
    }
    product_of_lanes(modulus, &result, scratch)
}

/// One product for each digit of a window.
struct Buckets {
    products: Lanes,
    filled: Vec<bool>,
}

/// What one lane is at.
#[derive(Clone, Copy)]
struct Run {
    next: usize,
    end: usize,
    bucket: Option<u32>,
}

impl Buckets {
    fn new(modulus: &Modulus, window: u32) -> Self {
        Self { products: Lanes::zeros(modulus.pair_words() << window), filled: vec![false; 1 << window] }
    }

    /// Puts into each bucket the product of the bases that have its digit.
    fn fill(&mut self, modulus: &Modulus, bases: &[&[u64]], digits: &[u32], scratch: &mut Scratch) {
        self.filled.fill(false);
        let lanes = modulus.lanes();
        // a digit of zero takes no part
        let mut order: Vec<u32> = (0..bases.len() as u32).filter(|&i| digits[i as usize] != 0).collect();
        order.sort_by_key(|&i| digits[i as usize]);
        let mut runs: Vec<Run> = (0..lanes)
            .map(|lane| Run {
                next: order.len() * lane / lanes,
                end: order.len() * (lane + 1) / lanes,
                bucket: None,
            })
            .collect();
        let (mut product, mut factor, mut next) =
            (modulus.broadcast(modulus.one()), modulus.pairs(), modulus.pairs());
        loop {
            let mut factors = [modulus.one(); 8];
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
                    for (row, &digit) in product.chunks_exact_mut(lanes).zip(bases[i]) {
                        row[lane] = digit;
                    }
                }
            }
            if !busy {
                break;
            }
            modulus.gather(&mut factor, &factors[..lanes], modulus.one());
            modulus.mul_pair(&mut next, &product, &factor, scratch);
            core::mem::swap(&mut next, &mut product);
        }
        for (lane, &run) in runs.iter().enumerate() {
            self.store(modulus, run, &product, lane, scratch);
        }
    }

    /// Puts a lane's product into its bucket. Two lanes may meet in one, where the sorted row was cut.
    fn store(&mut self, modulus: &Modulus, run: Run, product: &[u64], lane: usize, scratch: &mut Scratch) {
        let Some(bucket) = run.bucket.map(|bucket| bucket as usize) else { return };
        let words = modulus.pair_words();
        let target = &mut self.products[bucket * words..(bucket + 1) * words];
        if core::mem::replace(&mut self.filled[bucket], true) {
            let mut both = modulus.pairs();
            modulus.mul_pair(&mut both, product, &modulus.broadcast(target), scratch);
            take_lane(target, &both, lane, modulus.lanes());
        } else {
            take_lane(target, product, lane, modulus.lanes());
        }
    }

    /// The product of each bucket to the power of its digit, canonical. Each lane takes a range of digits: by
    /// running products from the top, to powers from zero on, and then the whole range to its first.
    fn weighted_product(&self, modulus: &Modulus, scratch: &mut Scratch) -> Lanes {
        let (lanes, words) = (modulus.lanes(), modulus.pair_words());
        let range = self.filled.len() / lanes;
        let mut running = modulus.broadcast(modulus.one());
        let mut total = modulus.broadcast(modulus.one());
        let (mut group, mut next) = (modulus.pairs(), modulus.pairs());
        for digit in (0..range).rev() {
            let mut sources = [modulus.one(); 8];
            for (lane, source) in sources.iter_mut().enumerate().take(lanes) {
                let bucket = lane * range + digit;
                if self.filled[bucket] {
                    *source = &self.products[bucket * words..(bucket + 1) * words];
                }
            }
            modulus.gather(&mut group, &sources[..lanes], modulus.one());
            modulus.mul_pair(&mut next, &running, &group, scratch);
            core::mem::swap(&mut next, &mut running);
            if digit > 0 {
                modulus.mul_pair(&mut next, &total, &running, scratch);
                core::mem::swap(&mut next, &mut total);
            }
        }
        let firsts: Vec<u64> = (0..lanes).map(|lane| (lane * range) as u64).collect();
        let lifted = pow::pow_small_vartime(modulus, &running, &firsts, scratch);
        modulus.mul_pair(&mut next, &total, &lifted, scratch);
        product_of_lanes(modulus, &next, scratch)
    }
}

/// The product of all lanes, canonical.
fn product_of_lanes(modulus: &Modulus, group: &[u64], scratch: &mut Scratch) -> Lanes {
    let (mut one, mut next) = (Lanes::zeros(modulus.pair_words()), modulus.pairs());
    let mut product = modulus.pairs();
    product.copy_from_slice(group);
    for lane in 1..modulus.lanes() {
        take_lane(&mut one, group, lane, modulus.lanes());
        modulus.mul_pair(&mut next, &product, &modulus.broadcast(&one), scratch);
        core::mem::swap(&mut next, &mut product);
    }
    first_lane(modulus, &mut product, scratch)
}

/// The pair in the first lane, canonical.
fn first_lane(modulus: &Modulus, group: &mut Lanes, scratch: &mut Scratch) -> Lanes {
    modulus.canonical_pair(group, scratch);
    let mut one = Lanes::zeros(modulus.pair_words());
    take_lane(&mut one, group, 0, modulus.lanes());
    one
}

fn take_lane(to: &mut [u64], group: &[u64], lane: usize, lanes: usize) {
    for (to, row) in to.iter_mut().zip(group.chunks_exact(lanes)) {
        *to = row[lane];
    }
}
