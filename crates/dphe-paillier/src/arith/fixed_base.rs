//! Powers of one fixed base: the noise of every encryption is one.
//!
//! The exponent is cut into windows of `w` bits; for each window `i` the table holds
//! `base^(e 2^(w i))` for all `e`. A power is then the product of one entry per window: no squarings.
//! The exponents are secret, so an entry is fetched by reading its whole window.

use zeroize::Zeroizing;

use super::backend::Backend;
use super::lanes::Lanes;
use super::modulus::{Modulus, Ring, Scratch};
use super::nat::Limbs;
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
    /// Prepares `base`, a pair in Montgomery form, for exponents of `exponent_bits` bits.
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
        // the lanes work on different windows
        for (group, bases) in bases.chunks(modulus.lanes()).enumerate() {
            let sources: Vec<&[u64]> = bases.iter().map(|b| &**b).collect();
            let mut base = modulus.pairs();
            modulus.gather(&mut base, &sources, modulus.one());
            let mut entry = modulus.broadcast(modulus.one());
            let mut next = modulus.pairs();
            for e in 0..1 << window {
                modulus.canonical_pair(&mut entry, &mut scratch);
                for lane in 0..bases.len() {
                    let digits = entry.iter().skip(lane).step_by(modulus.lanes());
                    table.put(group * modulus.lanes() + lane, e, window, modulus.pair_words(), digits);
                }
                modulus.mul_pair(&mut next, &entry, &base, &mut scratch);
                core::mem::swap(&mut next, &mut entry);
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
        let mut accumulators: Vec<Lanes> = (0..GROUPS).map(|_| modulus.pairs()).collect();
        for (exponents, results) in exponents.chunks(GROUPS * lanes).zip(results.chunks_mut(GROUPS * lanes)) {
            for i in 0..self.exponent_bits.div_ceil(self.window) {
                for (two, accumulators) in exponents.chunks(2 * lanes).zip(accumulators.chunks_mut(2)) {
                    let mut index = Zeroizing::new([0; 16]);
                    for (index, exponent) in index.iter_mut().zip(two) {
                        *index = bit_window(exponent, i * self.window, self.window);
                    }
                    let groups = two.len().div_ceil(lanes);
                    self.lookup(modulus, i as usize, &index, &mut entries, groups);
                    for (accumulator, entry) in accumulators.iter_mut().zip(&mut entries).take(groups) {
                        if i == 0 {
                            core::mem::swap(accumulator, entry);
                        } else {
                            modulus.mul_pair(&mut next, accumulator, entry, &mut scratch);
                            core::mem::swap(accumulator, &mut next);
                        }
                    }
                }
            }
            for (results, accumulator) in results.chunks_mut(lanes).zip(&mut accumulators) {
                modulus.canonical_pair(accumulator, &mut scratch);
                modulus.scatter(results, accumulator);
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

/// `base^(2^(w i))` for each window `i`.
fn window_bases(modulus: &Modulus, base: &[u64], window: u32, windows: usize) -> Vec<Lanes> {
    let mut scratch: Scratch = modulus.scratch();
    let mut power = modulus.broadcast(base);
    let mut next = modulus.group(Ring::ModNSquared);
    let mut bases = Vec::with_capacity(windows);
    for _ in 0..windows {
        let mut canonical = power.clone();
        modulus.canonical_pair(&mut canonical, &mut scratch);
        let mut one = Lanes::zeros(modulus.pair_words());
        modulus.scatter(&mut [&mut one], &canonical);
        bases.push(one);
        for _ in 0..window {
            modulus.square_pair(&mut next, &power, &mut scratch);
            core::mem::swap(&mut next, &mut power);
        }
    }
    bases
}
