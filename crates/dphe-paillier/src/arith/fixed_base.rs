//! Powers of one fixed base: the noise of every encryption is one.
//!
//! The exponent is cut into windows of `w` bits; for each window `i` the table holds
//! `base^(e 2^(w i))` for all `e`. A power is then the product of one entry per window: no squarings.
//! The exponents are secret, so an entry is fetched by reading its whole window.
//!
//! An entry `x0 + x1 N` is kept as `x0` and `u` with `x0 (1 + u N)` its value. The second factors of a
//! product multiply to `1 + (sum of u) N`, which costs additions only, and the first are residues, not pairs:
//! four half-size products a window instead of five.

use zeroize::Zeroizing;

use super::backend::Backend;
use super::lanes::Lanes;
use super::modulus::{Modulus, Ring, Scratch};
use super::nat::{self, Limbs};
use super::portable;
use super::pow::bit_window;
#[cfg(target_arch = "x86_64")]
use super::{avx2, ifma};

/// Powers of one base modulo `N^2`, ready for exponents up to a given length.
pub(crate) struct FixedBase {
    exponent_bits: u32,
    window: u32,
    table: Table,
}

/// The entries, laid out as the back end's look-up reads them.
enum Table {
    /// Per window and digit, that digit of all entries: vector look-ups of 52-bit digits.
    Digits(Vec<u64>),
    /// The same for 28-bit digits, in half the space.
    ShortDigits(Vec<u32>),
    /// Per window, one entry after the other.
    Entries(Vec<u64>),
}

/// Groups that share one pass over the table: each window is read into the second-level cache once
/// and serves them all.
const GROUPS: usize = 16;

impl FixedBase {
    /// Prepares `base`, a public pair in Montgomery form, for exponents of `exponent_bits` bits.
    ///
    /// # Panics
    /// If the base is not a unit.
    pub(crate) fn new(modulus: &Modulus, base: &[u64], exponent_bits: u32) -> Self {
        let window = window_bits(modulus.backend());
        let windows = exponent_bits.div_ceil(window) as usize;
        let mut table = match modulus.backend() {
            Backend::Portable => Table::Entries(vec![0; (windows * modulus.pair_words()) << window]),
            Backend::Avx2 => Table::ShortDigits(vec![0; (windows * modulus.pair_words()) << window]),
            _ => Table::Digits(vec![0; (windows * modulus.pair_words()) << window]),
        };
        let bases = window_bases(modulus, base, window, windows);
        let mut scratch = modulus.scratch();
        let half = modulus.residues().len();
        let r_squared = modulus.broadcast(&modulus.r_squared()[..modulus.residue_words()]);
        // the lanes work on different windows
        for (group, bases) in bases.chunks(modulus.lanes()).enumerate() {
            let (mut base, mut inverse) = (modulus.pairs(), modulus.residues());
            let (powers, inverses): (Vec<&[u64]>, Vec<&[u64]>) =
                bases.iter().map(|(b, i)| (&**b, &**i)).unzip();
            modulus.gather(&mut base, &powers, modulus.one());
            modulus.gather(&mut inverse, &inverses, modulus.one_in(Ring::ModN));
            let (mut power, mut next) = (modulus.broadcast(modulus.one()), modulus.pairs());
            let mut inverse_power = modulus.broadcast(modulus.one_in(Ring::ModN));
            let (mut entry, mut quotient) = (modulus.pairs(), modulus.residues());
            for e in 0..1 << window {
                modulus.canonical_pair(&mut power, &mut scratch);
                // x1 / x0, times R^2 for `pow`
                modulus.mul(&mut quotient, &power[half..], &inverse_power, &mut scratch);
                let (lower, upper) = entry.split_at_mut(half);
                lower.copy_from_slice(&power[..half]);
                modulus.mul(upper, &quotient, &r_squared, &mut scratch);
                modulus.canonical(upper, &mut scratch);
                for lane in 0..bases.len() {
                    let digits = entry.iter().skip(lane).step_by(modulus.lanes());
                    table.put(group * modulus.lanes() + lane, e, window, modulus.pair_words(), digits);
                }
                modulus.mul_pair(&mut next, &power, &base, &mut scratch);
                core::mem::swap(&mut next, &mut power);
                modulus.mul(&mut quotient, &inverse_power, &inverse, &mut scratch);
                core::mem::swap(&mut quotient, &mut inverse_power);
            }
        }
        Self { exponent_bits, window, table }
    }

    /// `base` to each exponent: canonical pairs in Montgomery form, written to `results`, which are all
    /// `pair_words` long.
    pub(crate) fn pow(&self, modulus: &Modulus, exponents: &[Limbs], results: &mut [&mut [u64]]) {
        assert_eq!(exponents.len(), results.len(), "one result for each exponent");
        let lanes = modulus.lanes();
        let mut scratch = modulus.scratch();
        let mut entries = [modulus.pairs(), modulus.pairs()];
        let mut next = modulus.pairs();
        let mut accumulators: Vec<Accumulator> = (0..GROUPS).map(|_| Accumulator::new(modulus)).collect();
        for (exponents, results) in exponents.chunks(GROUPS * lanes).zip(results.chunks_mut(GROUPS * lanes)) {
            for i in 0..self.exponent_bits.div_ceil(self.window) {
                for (two, accumulators) in exponents.chunks(2 * lanes).zip(accumulators.chunks_mut(2)) {
                    let mut index = Zeroizing::new([0; 16]);
                    for (index, exponent) in index.iter_mut().zip(two) {
                        *index = bit_window(exponent, i * self.window, self.window);
                    }
                    let groups = two.len().div_ceil(lanes);
                    self.lookup(modulus, i as usize, &index, &mut entries, groups);
                    for (accumulator, entry) in accumulators.iter_mut().zip(&entries).take(groups) {
                        if i == 0 {
                            accumulator.start(entry);
                        } else {
                            accumulator.multiply(modulus, entry, &mut next, &mut scratch);
                        }
                    }
                }
            }
            for (results, accumulator) in results.chunks_mut(lanes).zip(&mut accumulators) {
                modulus.scatter(results, accumulator.finish(modulus, &mut next, &mut scratch));
            }
        }
    }

    /// Bytes of the table.
    pub(crate) fn bytes(&self) -> usize {
        match &self.table {
            Table::Digits(words) | Table::Entries(words) => 8 * words.len(),
            Table::ShortDigits(words) => 4 * words.len(),
        }
    }

    /// Fetches for each lane of one or two groups its entry of window `i`, reading the whole window alike.
    fn lookup(&self, modulus: &Modulus, i: usize, index: &[u64; 16], out: &mut [Lanes; 2], groups: usize) {
        let (rows, lanes) = (modulus.pair_words(), modulus.lanes());
        assert!(out.iter().all(|out| out.len() == rows * lanes), "groups of pairs");
        let words = rows << self.window;
        let range = i * words..(i + 1) * words;
        match &self.table {
            #[cfg(target_arch = "x86_64")]
            Table::ShortDigits(table) if modulus.backend() == Backend::Avx2 => {
                let table = &table[range];
                let index = index.first_chunk().unwrap_or(&[0; 8]);
                let out = [out[0].as_mut_ptr(), out[1].as_mut_ptr()];
                // SAFETY: the modulus' back end runs here; `table` holds `rows << window` words, each
                // group `rows` registers.
                unsafe { avx2::lookup(out, table.as_ptr(), rows, self.window, index) };
            }
            Table::ShortDigits(_) => unreachable!("a table is used with the back end that made it"),
            #[cfg(target_arch = "x86_64")]
            Table::Digits(table) if modulus.backend() == Backend::Ifma => {
                let table = &table[range];
                for (out, index) in out.iter_mut().zip(index.chunks_exact(lanes)).take(groups) {
                    // SAFETY: as above, and `index` is one register.
                    unsafe {
                        ifma::lookup(out.as_mut_ptr(), table.as_ptr(), rows, self.window, index.as_ptr());
                    }
                }
            }
            Table::Digits(table) => {
                for (out, index) in out.iter_mut().zip(index.chunks_exact(lanes)).take(groups) {
                    plain_lookup(out, &table[range.clone()], index, self.window);
                }
            }
            Table::Entries(table) => {
                for (out, index) in out.iter_mut().zip(index).take(groups) {
                    portable::lookup(out, &table[range.clone()], *index);
                }
            }
        }
    }
}

/// A product in the making: a pair, and the sum of the entries' second factors.
struct Accumulator {
    product: Lanes,
    /// In twice the digits, so that it need not be reduced before the end.
    sum: Lanes,
}

impl Accumulator {
    fn new(modulus: &Modulus) -> Self {
        Self { product: modulus.pairs(), sum: modulus.pairs() }
    }

    fn start(&mut self, entry: &[u64]) {
        let (lower, upper) = entry.split_at(entry.len() / 2);
        for (buffer, half) in [(&mut self.product, lower), (&mut self.sum, upper)] {
            let (first, rest) = buffer.split_at_mut(half.len());
            first.copy_from_slice(half);
            rest.fill(0);
        }
    }

    fn multiply(&mut self, modulus: &Modulus, entry: &[u64], next: &mut Lanes, scratch: &mut Scratch) {
        let (lower, upper) = entry.split_at(entry.len() / 2);
        modulus.scale_pair(next, &self.product, lower, scratch);
        core::mem::swap(next, &mut self.product);
        modulus.add_wide(&mut self.sum, upper);
    }

    /// The product as canonical pairs: `p0 + p1 N` times `1 + s N` is `p0 + (p1 + s p0) N`.
    fn finish(&mut self, modulus: &Modulus, next: &mut Lanes, scratch: &mut Scratch) -> &Lanes {
        modulus.canonical_pair(&mut self.product, scratch);
        let (sum, product) = next.split_at_mut(self.product.len() / 2);
        modulus.reduce_wide(sum, &self.sum, scratch);
        let (lower, upper) = self.product.split_at_mut(sum.len());
        modulus.mul(product, lower, sum, scratch);
        modulus.canonical(product, scratch);
        modulus.add(upper, product, scratch);
        &self.product
    }
}

impl Table {
    fn put<'a>(
        &mut self,
        window_index: usize,
        entry: usize,
        window: u32,
        rows: usize,
        digits: impl Iterator<Item = &'a u64>,
    ) {
        let start = (window_index * rows) << window;
        for (row, &digit) in digits.enumerate() {
            match self {
                Self::Digits(table) => table[start + (row << window) + entry] = digit,
                Self::ShortDigits(table) => table[start + (row << window) + entry] = digit as u32,
                Self::Entries(table) => table[start + entry * rows + row] = digit,
            }
        }
    }
}

/// The look-up of [`Table::Digits`] without vector instructions, for the emulated back end.
fn plain_lookup(out: &mut [u64], table: &[u64], index: &[u64], window: u32) {
    for (out, entries) in out.chunks_exact_mut(8).zip(table.chunks_exact(1 << window)) {
        for (out, index) in out.iter_mut().zip(index) {
            portable::lookup(core::slice::from_mut(out), entries, *index);
        }
    }
}

/// Bits per window: more bits are fewer multiplications, but each fetch reads `2^w` entries.
/// Measured optima of the three look-ups.
fn window_bits(backend: Backend) -> u32 {
    match backend {
        Backend::Portable => 6,
        Backend::Avx2 => 7,
        _ => 7,
    }
}

/// `base^(2^(w i))` for each window `i`, and its inverse modulo `N`.
fn window_bases(modulus: &Modulus, base: &[u64], window: u32, windows: usize) -> Vec<(Lanes, Lanes)> {
    let mut scratch: Scratch = modulus.scratch();
    let mut power = modulus.broadcast(base);
    let mut inverse = modulus.broadcast(&inverse(modulus, &base[..modulus.residue_words()]));
    let mut bases = Vec::with_capacity(windows);
    for _ in 0..windows {
        let mut canonical = (power.clone(), inverse.clone());
        modulus.canonical_pair(&mut canonical.0, &mut scratch);
        modulus.canonical(&mut canonical.1, &mut scratch);
        let mut one = (Lanes::zeros(modulus.pair_words()), Lanes::zeros(modulus.residue_words()));
        modulus.scatter(&mut [&mut one.0], &canonical.0);
        modulus.scatter(&mut [&mut one.1], &canonical.1);
        bases.push(one);
        for (ring, power) in [(Ring::ModNSquared, &mut power), (Ring::ModN, &mut inverse)] {
            let mut next = modulus.group(ring);
            for _ in 0..window {
                modulus.square_in(ring, &mut next, power, &mut scratch);
                core::mem::swap(&mut next, power);
            }
        }
    }
    bases
}

/// The inverse of a public residue, both in Montgomery form.
fn inverse(modulus: &Modulus, residue: &[u64]) -> Lanes {
    let residue = nat::from_limbs(&modulus.limbs_of(residue));
    let inverse = nat::invert_vartime(&residue, modulus.nat());
    let Some(inverse) = inverse else { unreachable!("the base of noise is a unit") };
    let r_squared = modulus.broadcast(&modulus.r_squared()[..modulus.residue_words()]);
    // of x R it is x^-1 R^-1, and each product by R^2 brings one factor R
    let (mut once, mut twice) = (modulus.residues(), modulus.residues());
    let mut scratch = modulus.scratch();
    modulus.mul(&mut once, &modulus.broadcast(&modulus.residue_digits(&inverse)), &r_squared, &mut scratch);
    modulus.mul(&mut twice, &once, &r_squared, &mut scratch);
    modulus.canonical(&mut twice, &mut scratch);
    let mut digits = Lanes::zeros(modulus.residue_words());
    modulus.scatter(&mut [&mut digits], &twice);
    digits
}
