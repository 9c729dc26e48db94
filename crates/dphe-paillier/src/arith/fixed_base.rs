//! Powers of one fixed base. The noise of every encryption is such a power.
//!
//! The exponent is cut into windows of `w` bits. For each window `i`, the table holds `base^(e 2^(w i))` for
//! all `e`. A power is the product of one entry per window, without squarings. The exponents are secret, so
//! fetching an entry reads its whole window.
//!
//! An entry `x0 + x1 N` is stored as `x0` and `u`, where its value is `x0 (1 + u N)`. The second factors of a
//! product multiply to `1 + (sum of u) N`, which costs only additions. The first factors are residues rather
//! than pairs. So a window costs four half-size products instead of five.

use core::marker::PhantomData;

use zeroize::Zeroizing;

use super::backend::Backend;
use super::lanes::{Lanes, MAX_LANES};
use super::modulus::{Modulus, Scratch};
use super::nat::{self, Limbs};
use super::portable;
use super::pow::bit_window;
use super::units::{
    Buffer, Canonical, Group, Loose, Mod, ModSquared, Mont, Number, OverR, RSquared, Ring, WideGroup,
};
#[cfg(target_arch = "x86_64")]
use super::{avx2, ifma};

/// The powers of one base modulo `N^2` for exponents up to a given length.
pub(crate) struct FixedBase {
    exponent_bits: u32,
    window: u32,
    table: Table,
}

/// The entries, in the order in which the look-up of the back end reads them.
enum Table {
    /// Per window and digit, that digit of all entries: vector look-ups of 52-bit digits.
    Digits(Vec<u64>),
    /// The same for 28-bit digits, in half the space.
    ShortDigits(Vec<u32>),
    /// Per window, one entry after the other.
    Entries(Vec<u64>),
}

/// Groups that share one pass over the table. Each window is read into the second-level cache once for all of
/// them.
const GROUPS: usize = 16;

impl FixedBase {
    /// Prepares `base`, a public unit, for exponents of `exponent_bits` bits.
    ///
    /// # Panics
    /// If the base is not a unit.
    pub(crate) fn new<M>(
        modulus: &Modulus<M>,
        base: &Number<ModSquared<M>, Mont, Canonical, impl Buffer>,
        exponent_bits: u32,
    ) -> Self {
        let window = window_bits(modulus.backend());
        let windows = exponent_bits.div_ceil(window) as usize;
        let mut table = match modulus.backend() {
            Backend::Portable => Table::Entries(vec![0; (windows * modulus.pair_words()) << window]),
            Backend::Avx2 => Table::ShortDigits(vec![0; (windows * modulus.pair_words()) << window]),
            _ => Table::Digits(vec![0; (windows * modulus.pair_words()) << window]),
        };
        let bases = window_bases(modulus, base, window, windows);
        let mut scratch = modulus.scratch();
        // The lanes work on different windows.
        for (group, bases) in bases.chunks(modulus.lanes()).enumerate() {
            let (mut base, mut inverse) = (modulus.pairs(), modulus.residues());
            let (powers, inverses): (Vec<_>, Vec<_>) =
                bases.iter().map(|(b, i)| (b.view(), i.view())).unzip();
            modulus.gather(&mut base, &powers, modulus.one());
            modulus.gather(&mut inverse, &inverses, modulus.one());
            let (mut power, mut next) = (modulus.ones::<ModSquared<M>, Mont>(), modulus.pairs());
            let mut inverse_power = modulus.ones();
            let mut entry = Entry::new(modulus);
            let (mut quotient, mut upper) = (modulus.residues::<Mont>(), modulus.residues());
            for e in 0..1 << window {
                let canonical = modulus.canonical(&mut power, &mut scratch);
                let [x0, x1] = canonical.view().halves();
                // u = x1 / x0, in the form that `Accumulator` sums up
                modulus.mul(&mut quotient, &x1, &inverse_power, &mut scratch);
                modulus.mul(&mut upper, &quotient, &modulus.r_squared(), &mut scratch);
                let u = modulus.canonical(&mut upper, &mut scratch);
                entry.set(&x0, &u.view());
                for lane in 0..bases.len() {
                    let digits = entry.digits.iter().skip(lane).step_by(modulus.lanes());
                    table.put(group * modulus.lanes() + lane, e, window, modulus.pair_words(), digits);
                }
                modulus.mul(&mut next, &power, &base, &mut scratch);
                core::mem::swap(&mut next, &mut power);
                modulus.mul(&mut quotient, &inverse_power, &inverse, &mut scratch);
                core::mem::swap(&mut quotient, &mut inverse_power);
            }
        }
        Self { exponent_bits, window, table }
    }

    /// Writes `base` to each exponent to `results`. The exponents have at most `bits` bits.
    pub(crate) fn pow<M>(
        &self,
        modulus: &Modulus<M>,
        exponents: &[Limbs],
        bits: u32,
        results: &mut [Number<ModSquared<M>, Mont, Canonical, &mut [u64]>],
    ) {
        assert_eq!(exponents.len(), results.len(), "one result for each exponent");
        assert!(bits <= self.exponent_bits, "exponents that the table has windows for");
        let lanes = modulus.lanes();
        let mut scratch = modulus.scratch();
        let mut entries = [Entry::new(modulus), Entry::new(modulus)];
        let mut next = modulus.pairs();
        let mut accumulators: Vec<Accumulator<M>> = (0..GROUPS).map(|_| Accumulator::new(modulus)).collect();
        for (exponents, results) in exponents.chunks(GROUPS * lanes).zip(results.chunks_mut(GROUPS * lanes)) {
            for i in 0..bits.div_ceil(self.window) {
                for (two, accumulators) in exponents.chunks(2 * lanes).zip(accumulators.chunks_mut(2)) {
                    let mut index = Zeroizing::new([0; 2 * MAX_LANES]);
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
                modulus.scatter(results, &accumulator.finish(modulus, &mut next, &mut scratch));
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

    /// Fetches the entries of window `i` for the lanes of one or two groups. The whole window is read alike.
    fn lookup<M>(
        &self,
        modulus: &Modulus<M>,
        i: usize,
        index: &[u64; 2 * MAX_LANES],
        out: &mut [Entry<M>; 2],
        groups: usize,
    ) {
        let (rows, lanes) = (modulus.pair_words(), modulus.lanes());
        let mut out = out.each_mut().map(|entry| &mut entry.digits[..]);
        assert!(out.iter().all(|out| out.len() == rows * lanes), "groups of pairs");
        let words = rows << self.window;
        let range = i * words..(i + 1) * words;
        match &self.table {
            #[cfg(target_arch = "x86_64")]
            Table::ShortDigits(table) if modulus.backend() == Backend::Avx2 => {
                let table = &table[range];
                let index = index.first_chunk().unwrap_or(&[0; MAX_LANES]);
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

/// A group of entries `x0 (1 + u N)`: the digits of all `x0`, then those of all `u`.
struct Entry<M> {
    digits: Lanes,
    modulus: PhantomData<M>,
}

impl<M> Entry<M> {
    fn new(modulus: &Modulus<M>) -> Self {
        Self { digits: Lanes::zeros(modulus.pair_words() * modulus.lanes()), modulus: PhantomData }
    }

    fn set(
        &mut self,
        first_factor: &Group<Mod<M>, Mont, Canonical, &[u64]>,
        u: &Group<Mod<M>, RSquared, Canonical, &[u64]>,
    ) {
        let (lower, upper) = self.digits.split_at_mut(first_factor.digits().len());
        lower.copy_from_slice(first_factor.digits());
        upper.copy_from_slice(u.digits());
    }

    fn first_factor(&self) -> Group<Mod<M>, Mont, Canonical, &[u64]> {
        Group::claim(&self.digits[..self.digits.len() / 2])
    }

    fn u(&self) -> Group<Mod<M>, RSquared, Canonical, &[u64]> {
        Group::claim(&self.digits[self.digits.len() / 2..])
    }
}

/// A product that grows by one entry per window: the product of first factors, and the sum of the `u`.
struct Accumulator<M> {
    product: Group<ModSquared<M>, Mont, Loose, Lanes>,
    /// Double-length, so that it is reduced only once, at the end.
    sum: WideGroup<Mod<M>, RSquared, Lanes>,
}

impl<M> Accumulator<M> {
    fn new(modulus: &Modulus<M>) -> Self {
        Self { product: modulus.pairs(), sum: modulus.wide() }
    }

    fn start(&mut self, entry: &Entry<M>) {
        let halves = [
            (self.product.digits_mut(), entry.first_factor().into_digits()),
            (self.sum.digits_mut(), entry.u().into_digits()),
        ];
        for (buffer, half) in halves {
            let (first, rest) = buffer.split_at_mut(half.len());
            first.copy_from_slice(half);
            rest.fill(0);
        }
    }

    fn multiply(
        &mut self,
        modulus: &Modulus<M>,
        entry: &Entry<M>,
        next: &mut Group<ModSquared<M>, Mont, Loose, Lanes>,
        scratch: &mut Scratch,
    ) {
        modulus.scale(next, &self.product, &entry.first_factor(), scratch);
        core::mem::swap(next, &mut self.product);
        modulus.add_wide(&mut self.sum, &entry.u());
    }

    /// The product as pairs: `p0 + p1 N` times `1 + s N` is `p0 + (p1 + s p0) N`.
    fn finish(
        &mut self,
        modulus: &Modulus<M>,
        next: &mut Group<ModSquared<M>, Mont, Loose, Lanes>,
        scratch: &mut Scratch,
    ) -> Group<ModSquared<M>, Mont, Canonical, &mut [u64]> {
        let mut pairs = modulus.canonical(&mut self.product, scratch);
        let [mut sum, mut product] = next.view_mut().halves_mut();
        modulus.reduce_wide(&mut sum, &self.sum, scratch);
        let [lower, mut upper] = pairs.view_mut().halves_mut();
        modulus.mul(&mut product, &lower, &sum, scratch);
        modulus.add(&mut upper, &modulus.canonical(&mut product, scratch), scratch);
        pairs
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
    for (out, entries) in out.chunks_exact_mut(MAX_LANES).zip(table.chunks_exact(1 << window)) {
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

/// A base of one window, and its inverse modulo `N`.
type WindowBase<M> = (Number<ModSquared<M>, Mont, Canonical, Lanes>, Number<Mod<M>, Mont, Canonical, Lanes>);

/// `base^(2^(w i))` for each window `i`, and its inverse modulo `N`.
fn window_bases<M>(
    modulus: &Modulus<M>,
    base: &Number<ModSquared<M>, Mont, Canonical, impl Buffer>,
    window: u32,
    windows: usize,
) -> Vec<WindowBase<M>> {
    let mut scratch = modulus.scratch();
    let [residue, _] = base.view().halves();
    let mut power = modulus.broadcast(base).loose();
    let mut inverse = modulus.broadcast(&inverse(modulus, &residue, &mut scratch)).loose();
    let mut bases = Vec::with_capacity(windows);
    for _ in 0..windows {
        let canonical = modulus.lane(&modulus.canonical(&mut power, &mut scratch), 0);
        bases.push((canonical, modulus.lane(&modulus.canonical(&mut inverse, &mut scratch), 0)));
        repeat_square(modulus, &mut power, window, &mut scratch);
        repeat_square(modulus, &mut inverse, window, &mut scratch);
    }
    bases
}

/// `x = x^(2^count)`.
fn repeat_square<M, R: Ring<Modulus = M>>(
    modulus: &Modulus<M>,
    x: &mut Group<R, Mont, Loose, Lanes>,
    count: u32,
    scratch: &mut Scratch,
) {
    let mut next = modulus.group();
    for _ in 0..count {
        modulus.square(&mut next, x, scratch);
        core::mem::swap(&mut next, x);
    }
}

/// The inverse of a public residue.
fn inverse<M>(
    modulus: &Modulus<M>,
    residue: &Number<Mod<M>, Mont, Canonical, &[u64]>,
    scratch: &mut Scratch,
) -> Number<Mod<M>, Mont, Canonical, Lanes> {
    let representation = nat::from_limbs(&modulus.representation(residue));
    let inverse = nat::invert_vartime(&representation, modulus.nat());
    let Some(inverse) = inverse else { unreachable!("the base of noise is a unit") };
    // The inverse of x R is x^-1 / R. Each product by R^2 adds one factor R.
    let over_r = modulus.broadcast(&modulus.residue(&inverse).claim_form::<OverR>());
    let (mut plain, mut mont) = (modulus.residues(), modulus.residues());
    modulus.mul(&mut plain, &over_r, &modulus.r_squared(), scratch);
    modulus.enter(&mut mont, &plain, scratch);
    modulus.lane(&modulus.canonical(&mut mont, scratch), 0)
}
