//! The vector kernel, written once for every instruction set.
//!
//! A register holds one digit of several numbers side by side, one per *lane*. So carries never cross lanes,
//! and every lane executes the same instructions whatever its value. The small trait [`Simd`] describes an
//! instruction set. The loops below are instantiated for AVX-512 IFMA, for AVX2, and for plain arrays in
//! tests.
//!
//! Products are computed column by column in blocks of `T`. `T` accumulators stay in registers while the rows
//! of both factors are read. That takes one load per multiply-accumulate and no carries inside a block, which
//! brings the kernel close to the multiplier's throughput.
//!
//! Every function is `#[inline(always)]` and is called only from functions compiled for the instruction set.

// Index arithmetic on blocks reads better as loops over `k` than as iterator chains.
#![allow(clippy::needless_range_loop)]

/// Runs the body for `$k` from 0 to `$t - 1`, unrolled. `$t` is at most 10. The compiler does not unroll
/// nested loops over a block of ten by itself, and then keeps the accumulators in memory.
macro_rules! unrolled {
    ($k:ident < $t:expr, $body:block) => {
        unrolled!(@each $k, $t, $body, 0 1 2 3 4 5 6 7 8 9)
    };
    (@each $k:ident, $t:expr, $body:block, $($literal:literal)*) => {
        $({
            let $k: usize = $literal;
            if $k < $t $body
        })*
    };
}

/// One instruction set: a register of lanes and a wide accumulator.
///
/// # Safety
/// Every method may use instructions of the set, so the caller must run on a CPU that has them.
/// Pointers must be valid for one register of `LANES` words.
pub(super) trait Simd {
    /// A register: one digit of each lane.
    type V: Copy;
    /// A column sum, with room for the products of two whole columns.
    type Acc: Copy;
    /// The number of lanes.
    const LANES: usize;
    /// The bits of one digit.
    const BITS: u32;

    unsafe fn load(p: *const u64) -> Self::V;
    unsafe fn store(p: *mut u64, v: Self::V);
    unsafe fn splat(x: u64) -> Self::V;
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn and(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn or(a: Self::V, b: Self::V) -> Self::V;
    /// `v` shifted right by one digit.
    unsafe fn shift(v: Self::V) -> Self::V;
    /// The top bit of each lane, as 0 or 1.
    unsafe fn sign(v: Self::V) -> Self::V;
    /// The low digit of `a * b`.
    unsafe fn mul_low(a: Self::V, b: Self::V) -> Self::V;

    unsafe fn acc(v: Self::V) -> Self::Acc;
    /// `acc + a * b` for digits `a` and `b`.
    unsafe fn mac(acc: Self::Acc, a: Self::V, b: Self::V) -> Self::Acc;
    /// `acc + v`.
    unsafe fn plus(acc: Self::Acc, v: Self::V) -> Self::Acc;
    unsafe fn double(acc: Self::Acc) -> Self::Acc;
    /// Splits the sum: `low + 2^BITS * high`, where `low` need not be a digit yet.
    unsafe fn low(acc: Self::Acc) -> Self::V;
    unsafe fn high(acc: Self::Acc) -> Self::V;
    /// The part that exceeds one digit and is carried into the next column.
    unsafe fn carry(acc: Self::Acc) -> Self::V;
    /// The low word of the sum. Its low `BITS` bits are the digit.
    unsafe fn word(acc: Self::Acc) -> Self::V;
}

/// The digits and constants of a modulus, in every lane. The lanes may have different moduli of one size, as
/// in the search for primes.
#[derive(Clone, Copy)]
pub(super) struct Context {
    /// Digits per number, a multiple of the block size.
    pub(super) digits: usize,
    /// The modulus, `digits` registers.
    pub(super) modulus: *const u64,
    /// `-modulus^-1` modulo one digit, one register.
    pub(super) inverse: *const u64,
    /// `digits` registers `b_i >= 2^BITS - 1` whose value is a multiple of the modulus. They are added before
    /// a digit is subtracted, which keeps the column non-negative.
    pub(super) bias: *const u64,
}

/// `z = x y / R` modulo the square of the modulus, on base-`N` pairs.
///
/// With `x0 y0 = z0 R - m N` (Montgomery's quotient `m`), the product of `x0 + x1 N` and `y0 + y1 N`
/// is `z0 R + (x0 y1 + x1 y0 - m) N` modulo `N^2`. Dividing by `R` needs one more reduction
/// modulo `N`. Five half-size products replace the eight of ordinary Montgomery multiplication.
///
/// # Safety
/// See [`Simd`]. `z`, `x` and `y` hold `2 * digits` registers and `scratch` `4 * digits`. `z` does not
/// overlap a factor.
#[inline(always)]
pub(super) unsafe fn mul_pair<S: Simd, const T: usize>(
    cx: &Context,
    z: *mut u64,
    x: *const u64,
    y: *const u64,
    scratch: *mut u64,
) {
    let row = cx.digits * S::LANES;
    // SAFETY: the offsets stay inside the sizes that the caller guarantees.
    unsafe {
        let (x1, y1) = (x.add(row), y.add(row));
        columns::<S, T, false>(cx.digits, scratch, [(x, y), (x, y)], 1);
        let quotient = scratch.add(2 * row);
        reduce::<S, T>(cx, z, quotient, scratch);
        columns::<S, T, false>(cx.digits, scratch, [(x, y1), (x1, y)], 2);
        subtract_biased::<S>(cx, scratch, quotient);
        reduce::<S, T>(cx, z.add(row), scratch.add(3 * row), scratch);
    }
}

/// `z = x y / R` modulo the square of the modulus for a residue `y`, a pair whose upper half is zero. It
/// costs four fifths of a multiplication.
///
/// # Safety
/// As [`mul_pair`], but `y` holds `digits` registers.
#[inline(always)]
pub(super) unsafe fn scale_pair<S: Simd, const T: usize>(
    cx: &Context,
    z: *mut u64,
    x: *const u64,
    y: *const u64,
    scratch: *mut u64,
) {
    let row = cx.digits * S::LANES;
    // SAFETY: as in `mul_pair`.
    unsafe {
        let x1 = x.add(row);
        columns::<S, T, false>(cx.digits, scratch, [(x, y), (x, y)], 1);
        let quotient = scratch.add(2 * row);
        reduce::<S, T>(cx, z, quotient, scratch);
        columns::<S, T, false>(cx.digits, scratch, [(x1, y), (x1, y)], 1);
        subtract_biased::<S>(cx, scratch, quotient);
        reduce::<S, T>(cx, z.add(row), scratch.add(3 * row), scratch);
    }
}

/// `z = x^2 / R` modulo the square of the modulus. It costs seven tenths of a multiplication.
///
/// # Safety
/// As [`mul_pair`].
#[inline(always)]
pub(super) unsafe fn square_pair<S: Simd, const T: usize>(
    cx: &Context,
    z: *mut u64,
    x: *const u64,
    scratch: *mut u64,
) {
    let row = cx.digits * S::LANES;
    // SAFETY: as in `mul_pair`.
    unsafe {
        let x1 = x.add(row);
        square_columns::<S, T>(cx.digits, scratch, x);
        let quotient = scratch.add(2 * row);
        reduce::<S, T>(cx, z, quotient, scratch);
        columns::<S, T, true>(cx.digits, scratch, [(x, x1), (x, x1)], 1);
        subtract_biased::<S>(cx, scratch, quotient);
        reduce::<S, T>(cx, z.add(row), scratch.add(3 * row), scratch);
    }
}

/// `z = x y / R` modulo the modulus itself.
///
/// # Safety
/// See [`Simd`]. `z`, `x` and `y` hold `digits` registers and `scratch` `4 * digits`.
#[inline(always)]
pub(super) unsafe fn mul<S: Simd, const T: usize>(
    cx: &Context,
    z: *mut u64,
    x: *const u64,
    y: *const u64,
    scratch: *mut u64,
) {
    // SAFETY: the caller guarantees it.
    unsafe {
        columns::<S, T, false>(cx.digits, scratch, [(x, y), (x, y)], 1);
        reduce::<S, T>(cx, z, scratch.add(2 * cx.digits * S::LANES), scratch);
    }
}

/// `z = x^2 / R` modulo the modulus itself.
///
/// # Safety
/// As [`mul`].
#[inline(always)]
pub(super) unsafe fn square<S: Simd, const T: usize>(
    cx: &Context,
    z: *mut u64,
    x: *const u64,
    scratch: *mut u64,
) {
    // SAFETY: the caller guarantees it.
    unsafe {
        square_columns::<S, T>(cx.digits, scratch, x);
        reduce::<S, T>(cx, z, scratch.add(2 * cx.digits * S::LANES), scratch);
    }
}

/// The pair `(t0 + t1 N) / R`. `t0` and `t1` hold up to `2 * digits` digits each and are used up.
///
/// # Safety
/// See [`Simd`]. `z`, `t0`, `t1` and `scratch` hold `2 * digits` registers.
#[inline(always)]
pub(super) unsafe fn reduce_pair<S: Simd, const T: usize>(
    cx: &Context,
    z: *mut u64,
    t0: *mut u64,
    t1: *mut u64,
    scratch: *mut u64,
) {
    let row = cx.digits * S::LANES;
    // SAFETY: the caller guarantees it.
    unsafe {
        reduce::<S, T>(cx, z, scratch, t0);
        subtract_biased::<S>(cx, t1, scratch);
        reduce::<S, T>(cx, z.add(row), scratch.add(row), t1);
    }
}

/// `t += bias - quotient` on the low half of `t`, which subtracts the quotient modulo the modulus.
///
/// # Safety
/// See [`Simd`].
#[inline(always)]
unsafe fn subtract_biased<S: Simd>(cx: &Context, t: *mut u64, quotient: *const u64) {
    for i in 0..cx.digits {
        let at = i * S::LANES;
        // SAFETY: `t` holds more than `digits` registers. The others hold exactly that many.
        unsafe {
            let biased = S::sub(S::load(cx.bias.add(at)), S::load(quotient.add(at)));
            S::store(t.add(at), S::add(S::load(t.add(at)), biased));
        }
    }
}

/// Computes the sum of products, or twice that if `DOUBLE`, as `2 * digits` columns that are not carried.
///
/// # Safety
/// See [`Simd`]. Each factor holds `digits` registers, and `t` twice as many.
#[inline(always)]
unsafe fn columns<S: Simd, const T: usize, const DOUBLE: bool>(
    digits: usize,
    t: *mut u64,
    products: [(*const u64, *const u64); 2],
    count: usize,
) {
    let w = S::LANES;
    // SAFETY: `start + k < 2 * digits`, and each row index below is within `0..digits` by the
    // bounds of its loop.
    unsafe {
        let zero = S::splat(0);
        let mut carried = zero;
        let mut start = 0;
        while start < 2 * digits {
            let mut acc = [S::acc(zero); T];
            for &(a, b) in products.iter().take(count) {
                // rows that contribute to all T columns of the block
                let first = (start + T).saturating_sub(digits);
                band::<S, T>(&mut acc, a, b, start, first, (start + 1).min(digits));
                if start < digits {
                    // rows that start inside the block
                    unrolled!(q < T, {
                        if q > 0 {
                            let ai = S::load(a.add((start + q) * w));
                            for k in q..T {
                                acc[k] = S::mac(acc[k], ai, S::load(b.add((k - q) * w)));
                            }
                        }
                    });
                } else {
                    leaving::<S, T>(&mut acc, a.add((start - digits) * w), b.add(digits * w));
                }
            }
            for k in 0..T {
                let sum = if DOUBLE { S::double(acc[k]) } else { acc[k] };
                S::store(t.add((start + k) * w), S::add(S::low(sum), carried));
                carried = S::high(sum);
            }
            start += T;
        }
    }
}

/// Adds to columns `start..start + T` the products of rows `first..end` of `a` with the `T` rows of `b` that
/// belong there.
///
/// # Safety
/// See [`Simd`]. Rows `start - i` to `start - i + T - 1` of `b` exist for each row `i`.
#[inline(always)]
unsafe fn band<S: Simd, const T: usize>(
    acc: &mut [S::Acc; T],
    a: *const u64,
    b: *const u64,
    start: usize,
    first: usize,
    end: usize,
) {
    let w = S::LANES;
    for i in first..end {
        // SAFETY: the caller guarantees it.
        unsafe {
            let ai = S::load(a.add(i * w));
            let window = b.add((start - i) * w);
            for k in 0..T {
                acc[k] = S::mac(acc[k], ai, S::load(window.add(k * w)));
            }
        }
    }
}

/// Adds the products of the rows that end inside a block: row `q` of `a` contributes to the first `q`
/// columns, with the last `q` rows of `b`, whose end is given.
///
/// # Safety
/// See [`Simd`]. `a` holds `T` registers, and as many precede `b_end`.
#[inline(always)]
unsafe fn leaving<S: Simd, const T: usize>(acc: &mut [S::Acc; T], a: *const u64, b_end: *const u64) {
    let w = S::LANES;
    // SAFETY: `q < T`, and `k < q` keeps the row of `b` before its end.
    unsafe {
        unrolled!(q < T, {
            let ai = S::load(a.add(q * w));
            for k in 0..q {
                acc[k] = S::mac(acc[k], ai, S::load(b_end.sub((q - k) * w)));
            }
        });
    }
}

/// Computes `a^2` as `2 * digits` columns that are not carried. Each mixed product is computed once and
/// doubled.
///
/// # Safety
/// As [`columns`].
#[inline(always)]
unsafe fn square_columns<S: Simd, const T: usize>(digits: usize, t: *mut u64, a: *const u64) {
    let w = S::LANES;
    // SAFETY: as in `columns`. In every product below, `i < j < digits` and `i + j = start + k`.
    unsafe {
        let zero = S::splat(0);
        let mut carried = zero;
        let mut start = 0;
        while start < 2 * digits {
            let mut acc = [S::acc(zero); T];
            if start + T < 2 * digits {
                // rows i < j in all T columns
                let first = (start + T).saturating_sub(digits);
                band::<S, T>(&mut acc, a, a, start, first, start.div_ceil(2));
                if start >= digits {
                    leaving::<S, T>(&mut acc, a.add((start - digits) * w), a.add(digits * w));
                }
                if start % 2 == 0 {
                    diagonal::<S, T, 0>(&mut acc, a.add(start / 2 * w));
                } else {
                    diagonal::<S, T, 1>(&mut acc, a.add(start / 2 * w));
                }
            } else {
                // the last block, where rows both end and reach the diagonal
                let top = a.add((digits - T) * w);
                unrolled!(q < T, {
                    let ai = S::load(top.add(q * w));
                    for k in 0..q {
                        if k + T > 2 * q {
                            acc[k] = S::mac(acc[k], ai, S::load(top.add((T + k - q) * w)));
                        }
                    }
                });
                for k in 0..T {
                    acc[k] = S::double(acc[k]);
                    if (T + k).is_multiple_of(2) {
                        let ai = S::load(top.add((T + k) / 2 * w));
                        acc[k] = S::mac(acc[k], ai, ai);
                    }
                }
            }
            for k in 0..T {
                S::store(t.add((start + k) * w), S::add(S::low(acc[k]), carried));
                carried = S::high(acc[k]);
            }
            start += T;
        }
    }
}

/// Adds the products next to the diagonal of a square, doubles, and adds the diagonal itself. `middle` is row
/// `start / 2`. `ODD` says whether `start` is odd.
///
/// # Safety
/// As [`square_columns`]. `T` more rows follow `middle`, or they are not touched.
#[inline(always)]
unsafe fn diagonal<S: Simd, const T: usize, const ODD: usize>(acc: &mut [S::Acc; T], middle: *const u64) {
    let w = S::LANES;
    // SAFETY: rows `middle + q` and `middle + ODD + k - q` add up to column `start + k`, with
    // `start + k < 2 * digits - T` in the last block but one.
    unsafe {
        unrolled!(q < T, {
            // row i = start/2 + q is multiplied by row j = start + k - i > i
            if q >= ODD && 2 * q < T + ODD {
                let ai = S::load(middle.add(q * w));
                for k in 0..T {
                    if k + ODD > 2 * q {
                        acc[k] = S::mac(acc[k], ai, S::load(middle.add((ODD + k - q) * w)));
                    }
                }
            }
        });
        for k in 0..T {
            acc[k] = S::double(acc[k]);
            if (k + ODD).is_multiple_of(2) {
                let ai = S::load(middle.add((k + ODD) / 2 * w));
                acc[k] = S::mac(acc[k], ai, ai);
            }
        }
    }
}

/// Computes the residue `t / R` of `2 * digits` digits, which need not be carried.
///
/// # Safety
/// See [`Simd`]. `z` and `scratch` hold `digits` registers, and `t` twice as many.
#[inline(always)]
pub(super) unsafe fn reduce_wide<S: Simd, const T: usize>(
    cx: &Context,
    z: *mut u64,
    t: *const u64,
    scratch: *mut u64,
) {
    // SAFETY: the caller guarantees it.
    unsafe { reduce::<S, T>(cx, z, scratch, t) }
}

/// Montgomery reduction of `2 * digits` columns to carried digits: `out = (t + quotient * modulus) / R`.
/// `quotient` receives the digits of Montgomery's quotient.
///
/// # Safety
/// See [`Simd`]. `out` and `quotient` hold `digits` registers, and `t` twice as many. `out` overlaps neither
/// the upper half of `t` nor `quotient`.
#[inline(always)]
unsafe fn reduce<S: Simd, const T: usize>(cx: &Context, out: *mut u64, quotient: *mut u64, t: *const u64) {
    let (w, digits, n) = (S::LANES, cx.digits, cx.modulus);
    // SAFETY: row indices stay within `0..digits`, columns within `0..2 * digits`.
    unsafe {
        let mask = S::splat((1 << S::BITS) - 1);
        let inverse = S::load(cx.inverse);
        let mut carried = S::splat(0);
        let mut start = 0;
        // lower half: find the quotient digits that clear the columns
        while start < digits {
            let mut acc = [S::acc(carried); T];
            for k in 0..T {
                acc[k] = S::acc(S::load(t.add((start + k) * w)));
            }
            band::<S, T>(&mut acc, quotient, n, start, 0, start);
            unrolled!(k < T, {
                acc[k] = S::plus(acc[k], carried);
                let q = S::mul_low(S::word(acc[k]), inverse);
                S::store(quotient.add((start + k) * w), q);
                acc[k] = S::mac(acc[k], q, S::load(n));
                carried = S::carry(acc[k]);
                for j in k + 1..T {
                    acc[j] = S::mac(acc[j], q, S::load(n.add((j - k) * w)));
                }
            });
            start += T;
        }
        // upper half: the result
        while start < 2 * digits {
            let mut acc = [S::acc(carried); T];
            for k in 0..T {
                acc[k] = S::acc(S::load(t.add((start + k) * w)));
            }
            band::<S, T>(&mut acc, quotient, n, start, start + T - digits, digits);
            leaving::<S, T>(&mut acc, quotient.add((start - digits) * w), n.add(digits * w));
            for k in 0..T {
                acc[k] = S::plus(acc[k], carried);
                S::store(out.add((start - digits + k) * w), S::and(S::word(acc[k]), mask));
                carried = S::carry(acc[k]);
            }
            start += T;
        }
    }
}

/// Brings `x < 2 * modulus` into `0..modulus`. Returns 1 in the lanes that were too large.
///
/// # Safety
/// See [`Simd`]. `x` and `scratch` hold `digits` registers.
#[inline(always)]
pub(super) unsafe fn canonical<S: Simd>(cx: &Context, x: *mut u64, scratch: *mut u64) -> S::V {
    let w = S::LANES;
    // SAFETY: row indices stay within `0..digits`.
    unsafe {
        let mask = S::splat((1 << S::BITS) - 1);
        let mut borrow = S::splat(0);
        for i in 0..cx.digits {
            let d = S::sub(S::sub(S::load(x.add(i * w)), S::load(cx.modulus.add(i * w))), borrow);
            S::store(scratch.add(i * w), S::and(d, mask));
            borrow = S::sign(d);
        }
        // all ones where x was small already
        let keep = S::sub(S::splat(0), borrow);
        let take = S::sub(borrow, S::splat(1));
        for i in 0..cx.digits {
            let kept = S::and(S::load(x.add(i * w)), keep);
            let taken = S::and(S::load(scratch.add(i * w)), take);
            S::store(x.add(i * w), S::or(kept, taken));
        }
        S::and(take, S::splat(1))
    }
}

/// Brings a pair into canonical form: both halves in `0..modulus`.
///
/// # Safety
/// As [`canonical`], on `2 * digits` registers.
#[inline(always)]
pub(super) unsafe fn canonical_pair<S: Simd>(cx: &Context, x: *mut u64, scratch: *mut u64) {
    let w = S::LANES;
    // SAFETY: the caller guarantees it.
    unsafe {
        let mut carry = canonical::<S>(cx, x, scratch);
        let x1 = x.add(cx.digits * w);
        let mask = S::splat((1 << S::BITS) - 1);
        for i in 0..cx.digits {
            let s = S::add(S::load(x1.add(i * w)), carry);
            S::store(x1.add(i * w), S::and(s, mask));
            carry = S::shift(s);
        }
        canonical::<S>(cx, x1, scratch);
    }
}
