//! The same algebra for any CPU: one lane of 64-bit digits, products in `u128`.
//!
//! Numbers are canonical on the way in and on the way out, so a 2048-bit modulus needs 32 digits and
//! none to spare. Products and reductions are interleaved row by row.


/// What the kernel knows of a modulus.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) modulus: &'a [u64],
    /// `-modulus^-1` modulo `2^64`.
    pub(super) inverse: u64,
    /// `-(R - 1)` modulo the modulus: complementing a quotient's digits and adding this negates it.
    pub(super) bias: &'a [u64],
}

/// `z = x y / R` modulo the square of the modulus, on base-`N` pairs (see `simd::mul_pair`).
pub(super) fn mul_pair(cx: Context<'_>, z: &mut [u64], x: &[u64], y: &[u64], scratch: &mut [u64]) {
    let digits = cx.modulus.len();
    let ((x0, x1), (y0, y1)) = (x.split_at(digits), y.split_at(digits));
    let (z0, z1) = z.split_at_mut(digits);
    let quotient = &mut scratch[..digits];
    z0.fill(0);
    let mut over = 0;
    for (&x, q) in x0.iter().zip(quotient.iter_mut()) {
        (over, *q) = row(cx, z0, over, [(x, y0)], [0]);
    }
    let (_, taken) = subtract_modulus(cx, z0, over);

    z1.fill(0);
    over = 0;
    for (((&x0, &x1), &q), &bias) in x0.iter().zip(x1).zip(&*quotient).zip(cx.bias) {
        (over, _) = row(cx, z1, over, [(x0, y1), (x1, y0)], [!q, bias]);
    }
    finish_upper(cx, z1, over, taken);
}

/// `z = x^2 / R` modulo the square of the modulus.
pub(super) fn square_pair(cx: Context<'_>, z: &mut [u64], x: &[u64], scratch: &mut [u64]) {
    let digits = cx.modulus.len();
    let (x0, x1) = x.split_at(digits);
    let (z0, z1) = z.split_at_mut(digits);
    let (t, quotient) = scratch.split_at_mut(2 * digits + 1);
    let quotient = &mut quotient[..digits];
    square_product(t, x0);
    let over = reduce(cx, z0, t, |k, q| quotient[k] = q);
    let (_, taken) = subtract_modulus(cx, z0, over);

    // 2 x0 x1 - quotient
    product(t, x0, x1);
    let mut carry = 0;
    for digit in t.iter_mut() {
        (*digit, carry) = ((*digit << 1) | carry, *digit >> 63);
    }
    add_negated(cx, t, quotient);
    let over = reduce(cx, z1, t, |_, _| ());
    finish_upper(cx, z1, over, taken);
}

/// `z = x y / R` modulo the modulus itself.
pub(super) fn mul(cx: Context<'_>, z: &mut [u64], x: &[u64], y: &[u64]) {
    z.fill(0);
    let mut over = 0;
    for &x in x {
        (over, _) = row(cx, z, over, [(x, y)], [0]);
    }
    subtract_modulus(cx, z, over);
}

/// `z = x^2 / R` modulo the modulus itself.
pub(super) fn square(cx: Context<'_>, z: &mut [u64], x: &[u64], scratch: &mut [u64]) {
    let t = &mut scratch[..2 * cx.modulus.len() + 1];
    square_product(t, x);
    let over = reduce(cx, z, t, |_, _| ());
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

/// The pair `(t0 + t1 N) / R`; both hold `2 * digits` digits.
pub(super) fn reduce_pair(cx: Context<'_>, z: &mut [u64], t0: &[u64], t1: &[u64], scratch: &mut [u64]) {
    let digits = cx.modulus.len();
    let (z0, z1) = z.split_at_mut(digits);
    let (t, quotient) = scratch.split_at_mut(2 * digits + 1);
    let quotient = &mut quotient[..digits];
    t[..2 * digits].copy_from_slice(t0);
    t[2 * digits] = 0;
    let over = reduce(cx, z0, t, |k, q| quotient[k] = q);
    let (_, taken) = subtract_modulus(cx, z0, over);
    t[..2 * digits].copy_from_slice(t1);
    t[2 * digits] = 0;
    add_negated(cx, t, quotient);
    let over = reduce(cx, z1, t, |_, _| ());
    finish_upper(cx, z1, over, taken);
}

/// `a b + c + d`, low digit and carry; it always fits.
#[inline(always)]
fn mac(a: u64, b: u64, c: u64, d: u64) -> (u64, u64) {
    let sum = u128::from(a) * u128::from(b) + u128::from(c) + u128::from(d);
    (sum as u64, (sum >> 64) as u64)
}

/// One row of an interleaved product and reduction: adds each `factor * number` and each addend to `t`,
/// clears the lowest digit with a multiple of the modulus and drops it. `over` is the digit above `t`.
/// Returns the new `over` and the quotient digit.
#[inline(always)]
fn row<const P: usize>(
    cx: Context<'_>,
    t: &mut [u64],
    over: u64,
    products: [(u64, &[u64]); P],
    addends: [u64; P],
) -> (u64, u64) {
    let digits = cx.modulus.len();
    let (t, n) = (&mut t[..digits], &cx.modulus[..digits]);
    let products = products.map(|(factor, number)| (factor, &number[..digits]));
    let mut carry = [0; P];
    let mut low = t[0];
    for p in 0..P {
        (low, carry[p]) = mac(products[p].0, products[p].1[0], low, addends[p]);
    }
    let q = low.wrapping_mul(cx.inverse);
    let (_, mut reduced) = mac(q, n[0], low, 0);
    for j in 1..digits {
        let mut digit = t[j];
        for p in 0..P {
            (digit, carry[p]) = mac(products[p].0, products[p].1[j], digit, carry[p]);
        }
        (t[j - 1], reduced) = mac(q, n[j], digit, reduced);
    }
    let mut top = u128::from(over) + u128::from(reduced);
    for carry in carry {
        top += u128::from(carry);
    }
    t[digits - 1] = top as u64;
    ((top >> 64) as u64, q)
}

/// `t = x y`; `t` has one digit more than both together.
fn product(t: &mut [u64], x: &[u64], y: &[u64]) {
    t.fill(0);
    for (i, &x) in x.iter().enumerate() {
        let mut carry = 0;
        for (t, &y) in t[i..i + y.len()].iter_mut().zip(y) {
            (*t, carry) = mac(x, y, *t, carry);
        }
        t[i + y.len()] = carry;
    }
}

/// `t = x^2`: the mixed products once, doubled, and the squares; `t` has one digit more than needed.
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

/// `t += -quotient` modulo the modulus.
fn add_negated(cx: Context<'_>, t: &mut [u64], quotient: &[u64]) {
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
}

/// Montgomery reduction of `t`, which is used up: `out` receives `t / R`; returns the digit above.
/// Each digit of the quotient is reported.
#[inline(always)]
fn reduce(cx: Context<'_>, out: &mut [u64], t: &mut [u64], mut report: impl FnMut(usize, u64)) -> u64 {
    let n = cx.modulus;
    let digits = n.len();
    let mut over = 0u64;
    for i in 0..digits {
        let q = t[i].wrapping_mul(cx.inverse);
        report(i, q);
        let mut carry = 0;
        for (t, &n) in t[i..i + digits].iter_mut().zip(n) {
            (*t, carry) = mac(q, n, *t, carry);
        }
        let top = u128::from(t[i + digits]) + u128::from(carry) + u128::from(over);
        t[i + digits] = top as u64;
        over = (top >> 64) as u64;
    }
    out.copy_from_slice(&t[digits..2 * digits]);
    t[2 * digits] + over
}

/// Makes the upper half canonical: it is below `3N - 1`, and gains one if `N` was taken from the lower.
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

/// Subtracts the modulus once from `x + over * R` if that is not smaller; returns what is left of
/// `over`, and 1 if it did subtract.
#[inline(always)]
fn subtract_modulus(cx: Context<'_>, x: &mut [u64], over: u64) -> (u64, u64) {
    let mut borrow = false;
    for (&x, &n) in x.iter().zip(cx.modulus) {
        let (d, b1) = x.overflowing_sub(n);
        let (_, b2) = d.overflowing_sub(u64::from(borrow));
        borrow = b1 | b2;
    }
    // enough: there is something above, or no borrow
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

/// Fetches entry `index` of a table of numbers as long as `out`, touching all of them alike.
/// Inlined into functions compiled for wider registers, which it then uses.
#[inline(always)]
pub(super) fn lookup(out: &mut [u64], table: &[u64], index: u64) {
    out.fill(0);
    for (entry, number) in (0u64..).zip(table.chunks_exact(out.len())) {
        let difference = core::hint::black_box(entry ^ index);
        // all ones if equal
        let mask = ((difference | difference.wrapping_neg()) >> 63).wrapping_sub(1);
        for (out, &digit) in out.iter_mut().zip(number) {
            *out |= digit & mask;
        }
    }
}
