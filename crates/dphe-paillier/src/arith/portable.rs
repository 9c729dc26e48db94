//! The same algebra for any CPU: one lane of 64-bit digits, with products in `u128`.
//!
//! Operands and results are canonical, so a 2048-bit modulus needs exactly 32 digits. Products and reductions
//! are interleaved in bands of [`BAND`] rows. One pass along the columns adds all digit products of a band,
//! with one load and one store per digit of the sum.

// Index arithmetic on columns reads better as loops over `k` than as iterator chains.
#![allow(clippy::needless_range_loop)]

/// Rows per band. With four, one or two products and the reduction keep the multiplier busy.
const BAND: usize = 4;
/// Rows per band for a reduction without products.
const WIDE_BAND: usize = 8;

/// The digits and constants of a modulus.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) modulus: &'a [u64],
    /// `-modulus^-1` modulo `2^64`.
    pub(super) inverse: u64,
    /// `-(R - 1)` modulo the modulus. A quotient is negated by complementing its digits and adding this.
    pub(super) bias: &'a [u64],
}

/// `z = x y / R` modulo the square of the modulus, on base-`N` pairs (see `simd::mul_pair`).
pub(super) fn mul_pair(cx: Context<'_>, z: &mut [u64], x: &[u64], y: &[u64], scratch: &mut [u64]) {
    let digits = cx.modulus.len();
    let ((x0, x1), (y0, y1)) = (x.split_at(digits), y.split_at(digits));
    let (z0, z1) = z.split_at_mut(digits);
    let (quotient, zeros) = scratch[..2 * digits].split_at_mut(digits);
    zeros.fill(0);
    z0.fill(0);
    let over = reduce::<BAND, 1, false>(cx, z0, zeros, quotient, [(x0, y0)]);
    let (_, taken) = subtract_modulus(cx, z0, over);

    z1.fill(0);
    zeros[0] = add_negated(cx, z1, quotient);
    let over = reduce::<BAND, 2, false>(cx, z1, zeros, quotient, [(x0, y1), (x1, y0)]);
    finish_upper(cx, z1, over, taken);
}

/// `z = x y / R` modulo the square of the modulus for a residue `y` (see `simd::scale_pair`).
pub(super) fn scale_pair(cx: Context<'_>, z: &mut [u64], x: &[u64], y: &[u64], scratch: &mut [u64]) {
    let digits = cx.modulus.len();
    let (x0, x1) = x.split_at(digits);
    let (z0, z1) = z.split_at_mut(digits);
    let (quotient, zeros) = scratch[..2 * digits].split_at_mut(digits);
    zeros.fill(0);
    z0.fill(0);
    let over = reduce::<BAND, 1, false>(cx, z0, zeros, quotient, [(x0, y)]);
    let (_, taken) = subtract_modulus(cx, z0, over);

    z1.fill(0);
    zeros[0] = add_negated(cx, z1, quotient);
    let over = reduce::<BAND, 1, false>(cx, z1, zeros, quotient, [(x1, y)]);
    finish_upper(cx, z1, over, taken);
}

/// `t += x` for a longer `t`, which does not overflow.
pub(super) fn add_wide(t: &mut [u64], x: &[u64]) {
    let mut carry = false;
    for (digit, &addend) in t.iter_mut().zip(x.iter().chain(core::iter::repeat(&0))) {
        let (sum, c1) = digit.overflowing_add(addend);
        let (sum, c2) = sum.overflowing_add(u64::from(carry));
        *digit = sum;
        carry = c1 | c2;
    }
}

/// Computes the residue `t / R` of `2 * digits` digits.
pub(super) fn reduce_wide(cx: Context<'_>, z: &mut [u64], t: &[u64], scratch: &mut [u64]) {
    let digits = cx.modulus.len();
    let (low, high) = t.split_at(digits);
    z.copy_from_slice(low);
    let over = reduce::<WIDE_BAND, 0, false>(cx, z, high, &mut scratch[..digits], []);
    subtract_modulus(cx, z, over);
}

/// `z = x^2 / R` modulo the square of the modulus.
pub(super) fn square_pair(cx: Context<'_>, z: &mut [u64], x: &[u64], scratch: &mut [u64]) {
    let digits = cx.modulus.len();
    let (x0, x1) = x.split_at(digits);
    let (z0, z1) = z.split_at_mut(digits);
    let (quotient, t) = scratch[..3 * digits].split_at_mut(digits);
    square_product(t, x0);
    let (low, high) = t.split_at_mut(digits);
    z0.copy_from_slice(low);
    let over = reduce::<WIDE_BAND, 0, false>(cx, z0, high, quotient, []);
    let (_, taken) = subtract_modulus(cx, z0, over);

    // 2 x0 x1 - quotient
    z1.fill(0);
    high.fill(0);
    high[0] = add_negated(cx, z1, quotient);
    let over = reduce::<BAND, 1, true>(cx, z1, high, quotient, [(x0, x1)]);
    finish_upper(cx, z1, over, taken);
}

/// `z = x y / R` modulo the modulus itself.
pub(super) fn mul(cx: Context<'_>, z: &mut [u64], x: &[u64], y: &[u64], scratch: &mut [u64]) {
    let digits = cx.modulus.len();
    let (quotient, zeros) = scratch[..2 * digits].split_at_mut(digits);
    zeros.fill(0);
    z.fill(0);
    let over = reduce::<BAND, 1, false>(cx, z, zeros, quotient, [(x, y)]);
    subtract_modulus(cx, z, over);
}

/// `z = x^2 / R` modulo the modulus itself.
pub(super) fn square(cx: Context<'_>, z: &mut [u64], x: &[u64], scratch: &mut [u64]) {
    let digits = cx.modulus.len();
    let (quotient, t) = scratch[..3 * digits].split_at_mut(digits);
    square_product(t, x);
    let (low, high) = t.split_at(digits);
    z.copy_from_slice(low);
    let over = reduce::<WIDE_BAND, 0, false>(cx, z, high, quotient, []);
    subtract_modulus(cx, z, over);
}

/// `x = 2 x` modulo the modulus if `mask` is all ones.
pub(super) fn double(cx: Context<'_>, x: &mut [u64], mask: u64) {
    let mut carry = 0;
    for digit in x.iter_mut() {
        let sum = u128::from(*digit) + u128::from(*digit & mask) + carry;
        *digit = sum as u64;
        carry = sum >> 64;
    }
    subtract_modulus(cx, x, carry as u64);
}

/// `x = x + y` modulo the modulus.
pub(super) fn add(cx: Context<'_>, x: &mut [u64], y: &[u64]) {
    let mut carry = 0;
    for (digit, &addend) in x.iter_mut().zip(y) {
        let sum = u128::from(*digit) + u128::from(addend) + carry;
        *digit = sum as u64;
        carry = sum >> 64;
    }
    subtract_modulus(cx, x, carry as u64);
}

/// Computes the pair `(t0 + t1 N) / R`. `t0` and `t1` hold `2 * digits` digits.
pub(super) fn reduce_pair(cx: Context<'_>, z: &mut [u64], t0: &[u64], t1: &[u64], scratch: &mut [u64]) {
    let digits = cx.modulus.len();
    let (z0, z1) = z.split_at_mut(digits);
    let (quotient, t) = scratch[..3 * digits].split_at_mut(digits);
    z0.copy_from_slice(&t0[..digits]);
    let over = reduce::<WIDE_BAND, 0, false>(cx, z0, &t0[digits..], quotient, []);
    let (_, taken) = subtract_modulus(cx, z0, over);
    t.copy_from_slice(t1);
    let carry = add_negated(cx, t, quotient);
    let (low, high) = t.split_at(digits);
    z1.copy_from_slice(low);
    let over = carry + reduce::<WIDE_BAND, 0, false>(cx, z1, high, quotient, []);
    finish_upper(cx, z1, over, taken);
}

/// Returns the low digit and the carry of `a b + c + d`, which always fits.
#[inline(always)]
fn mac(a: u64, b: u64, c: u64, d: u64) -> (u64, u64) {
    let sum = u128::from(a) * u128::from(b) + u128::from(c) + u128::from(d);
    (sum as u64, (sum >> 64) as u64)
}

/// The sum of a column: the low and the high halves of its digit products are summed separately.
///
/// So every carry is consumed by the next instruction. Counting the carries of one three-digit sum would take
/// fewer additions, but LLVM collects such counts in vector registers, which takes twice the time. Neither
/// sum can overflow, because that would take `2^64` products.
#[derive(Clone, Copy, Default)]
struct Column {
    low: u128,
    high: u128,
}

impl Column {
    /// Adds `a b`.
    #[inline(always)]
    fn mac(&mut self, a: u64, b: u64) {
        let product = u128::from(a) * u128::from(b);
        self.low += u128::from(product as u64);
        self.high += product >> 64;
    }
    #[inline(always)]
    fn add(&mut self, digit: u64) {
        self.low += u128::from(digit);
    }
    #[inline(always)]
    fn add_twice(&mut self, other: Self) {
        self.low += 2 * other.low;
        self.high += 2 * other.high;
    }
    /// Returns the digit of this column and continues with the column above.
    #[inline(always)]
    fn digit(&mut self) -> u64 {
        let digit = self.low as u64;
        *self = Self { low: (self.low >> 64) + self.high, high: 0 };
        digit
    }
}

/// Montgomery reduction, in bands of `K` rows, of the number with the digits `t` and, above them, `upper`,
/// plus the sum of the products, or twice that sum if `TWICE`. `t` receives the result divided by `R` and
/// `quotient` Montgomery's quotient. Returns the digit above `t`. Rows that do not fill a band are processed
/// one at a time.
#[inline(always)]
fn reduce<const K: usize, const P: usize, const TWICE: bool>(
    cx: Context<'_>,
    t: &mut [u64],
    upper: &[u64],
    quotient: &mut [u64],
    products: [(&[u64], &[u64]); P],
) -> u64 {
    let digits = cx.modulus.len();
    let (full, rest) = (digits / K, digits % K);
    let mut over = 0;
    for i in 0..full {
        let rows = products.map(|(x, y)| (&x.as_chunks().0[i], y));
        let at = K * i;
        over = band::<K, P, TWICE>(cx, t, &upper[at..], over, &mut quotient[at..], rows);
    }
    for at in digits - rest..digits {
        let rows = products.map(|(x, y)| (&x.as_chunks().0[at], y));
        over = band::<1, P, TWICE>(cx, t, &upper[at..], over, &mut quotient[at..], rows);
    }
    over
}

/// Processes the first `K` rows of each product and of the reduction: clears and drops the first `K` digits
/// of `t`, and appends as many of `upper`, with `over` added to the lowest of these. Returns the digit above
/// `t`.
///
/// It is not inlined, so that its inner loop gets all registers. Inlined, it was up to a fifth slower.
#[inline(never)]
#[allow(clippy::expect_used, reason = "slices of K digits are K digits long")]
fn band<const K: usize, const P: usize, const TWICE: bool>(
    cx: Context<'_>,
    t: &mut [u64],
    upper: &[u64],
    over: u64,
    quotient: &mut [u64],
    products: [(&[u64; K], &[u64]); P],
) -> u64 {
    let digits = cx.modulus.len();
    let (t, n) = (&mut t[..digits], &cx.modulus[..digits]);
    let products = products.map(|(x, y)| (x, &y[..digits]));
    // `once` collects the products if they count twice, and stays zero otherwise.
    let mut sum = Column::default();

    // columns that the band clears
    let mut q = [0; K];
    for k in 0..K {
        sum.add(t[k]);
        let mut once = Column::default();
        let target = if TWICE { &mut once } else { &mut sum };
        for (x, y) in products {
            for m in 0..=k {
                target.mac(x[m], y[k - m]);
            }
        }
        sum.add_twice(once);
        for m in 0..k {
            sum.mac(q[m], n[k - m]);
        }
        q[k] = (sum.low as u64).wrapping_mul(cx.inverse);
        sum.mac(q[k], n[0]);
        sum.digit();
    }
    quotient[..K].copy_from_slice(&q);
    // columns to which all rows contribute
    for j in K..digits {
        sum.add(t[j]);
        let mut once = Column::default();
        let target = if TWICE { &mut once } else { &mut sum };
        for (x, y) in products {
            let y: &[u64; K] = y[j + 1 - K..j + 1].try_into().expect("a slice of K digits");
            for m in 0..K {
                target.mac(x[m], y[K - 1 - m]);
            }
        }
        sum.add_twice(once);
        let n: &[u64; K] = n[j + 1 - K..j + 1].try_into().expect("a slice of K digits");
        for m in 0..K {
            sum.mac(q[m], n[K - 1 - m]);
        }
        t[j - K] = sum.digit();
    }
    // columns to which only the last rows contribute
    sum.add(over);
    for k in 0..K {
        sum.add(upper[k]);
        let mut once = Column::default();
        let target = if TWICE { &mut once } else { &mut sum };
        for (x, y) in products {
            for m in k + 1..K {
                target.mac(x[m], y[digits + k - m]);
            }
        }
        sum.add_twice(once);
        for m in k + 1..K {
            sum.mac(q[m], n[digits + k - m]);
        }
        t[digits - K + k] = sum.digit();
    }
    sum.low as u64
}

/// `t = x^2`. The mixed products are computed once and doubled.
fn square_product(t: &mut [u64], x: &[u64]) {
    let digits = x.len();
    t.fill(0);
    for i in 0..digits {
        let mut carry = 0;
        let row = &mut t[2 * i + 1..i + digits];
        for (t, &y) in row.iter_mut().zip(&x[i + 1..]) {
            (*t, carry) = mac(x[i], y, *t, carry);
        }
        t[i + digits] = carry;
    }
    let (mut carry, mut shifted) = (0, 0);
    for (t, &x) in t.chunks_exact_mut(2).zip(x) {
        let (low, high) = mac(x, x, (t[0] << 1) | shifted, carry);
        let doubled = (t[1] << 1) | (t[0] >> 63);
        shifted = t[1] >> 63;
        let (sum, wrapped) = doubled.overflowing_add(high);
        (t[0], t[1], carry) = (low, sum, u64::from(wrapped));
    }
}

/// Computes `t += -quotient` modulo the modulus and returns the carry.
fn add_negated(cx: Context<'_>, t: &mut [u64], quotient: &[u64]) -> u64 {
    let mut carry = 0u128;
    for (k, t) in t.iter_mut().enumerate() {
        let addend = match quotient.get(k) {
            Some(q) => u128::from(!q) + u128::from(cx.bias[k]),
            None => 0,
        };
        let sum = u128::from(*t) + addend + carry;
        *t = sum as u64;
        carry = sum >> 64;
    }
    carry as u64
}

/// Makes the upper half canonical. It is below `3N - 1`, and grows by one if `N` was subtracted from the
/// lower half.
#[inline(always)]
fn finish_upper(cx: Context<'_>, z1: &mut [u64], mut over: u64, taken: u64) {
    let mut carry = taken;
    for digit in z1.iter_mut() {
        let (sum, wrapped) = digit.overflowing_add(carry);
        *digit = sum;
        carry = u64::from(wrapped);
    }
    over += carry;
    let (over, _) = subtract_modulus(cx, z1, over);
    subtract_modulus(cx, z1, over);
}

/// Subtracts the modulus once from `x + over * R` if the difference is not negative. Returns the rest of
/// `over`, and 1 if it subtracted.
#[inline(always)]
fn subtract_modulus(cx: Context<'_>, x: &mut [u64], over: u64) -> (u64, u64) {
    let mut borrow = false;
    for (&x, &n) in x.iter().zip(cx.modulus) {
        let (d, b1) = x.overflowing_sub(n);
        let (_, b2) = d.overflowing_sub(u64::from(borrow));
        borrow = b1 | b2;
    }
    // The number is large enough if there is no borrow or a digit above.
    let (left, below) = over.overflowing_sub(u64::from(borrow));
    let mask = u64::from(below).wrapping_sub(1);
    let mut borrow = false;
    for (x, &n) in x.iter_mut().zip(cx.modulus) {
        let (d, b1) = x.overflowing_sub(n & mask);
        let (d, b2) = d.overflowing_sub(u64::from(borrow));
        *x = d;
        borrow = b1 | b2;
    }
    ((left & mask) | (over & !mask), mask & 1)
}

/// All ones if both are equal, otherwise zero, without a branch.
#[inline(always)]
fn equality_mask(x: u64, y: u64) -> u64 {
    let difference = core::hint::black_box(x ^ y);
    ((difference | difference.wrapping_neg()) >> 63).wrapping_sub(1)
}

/// Copies the lower lanes of one entry of a table of groups, and the upper lanes of another. Every entry is read alike.
#[inline(always)]
pub(super) fn lookup_halves<const LANES: usize>(out: &mut [u64], table: &[u64], index: [u64; 2]) {
    out.fill(0);
    for (entry, group) in (0u64..).zip(table.chunks_exact(out.len())) {
        let masks = index.map(|index| equality_mask(entry, index));
        let masks: [u64; LANES] = core::array::from_fn(|lane| masks[2 * lane / LANES]);
        for (out, row) in out.as_chunks_mut().0.iter_mut().zip(group.as_chunks::<LANES>().0) {
            let out: &mut [u64; LANES] = out;
            for lane in 0..LANES {
                out[lane] |= row[lane] & masks[lane];
            }
        }
    }
}

/// Copies entry `index` of a table of numbers as long as `out`. Every entry is read alike. It is inlined into
/// functions that are compiled for wider registers, and then uses these.
#[inline(always)]
pub(super) fn lookup(out: &mut [u64], table: &[u64], index: u64) {
    out.fill(0);
    for (entry, number) in (0u64..).zip(table.chunks_exact(out.len())) {
        let mask = equality_mask(entry, index);
        for (out, &digit) in out.iter_mut().zip(number) {
            *out |= digit & mask;
        }
    }
}
