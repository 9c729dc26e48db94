//! AVX-512 IFMA: eight lanes of 52-bit digits, two fused multiply-adds per digit product.

use core::arch::x86_64::*;

use super::simd::{self, Context, Simd};

/// Columns per block. Ten low and ten high accumulators leave twelve registers for operands.
pub(super) const BLOCK: usize = 10;
pub(super) const LANES: usize = 8;
pub(super) const BITS: u32 = 52;

/// Returns whether this CPU has the instructions.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512ifma")
}

struct Ifma;

// SAFETY (whole impl): `simd` calls these only from the `target_feature` functions below, which
// `Backend` reaches only after `available()`. The kernel's contract guarantees the pointers.
impl Simd for Ifma {
    type V = __m512i;
    /// Sums of the low and of the high halves of the products.
    type Acc = (__m512i, __m512i);
    const LANES: usize = LANES;
    const BITS: u32 = BITS;

    #[inline(always)]
    unsafe fn load(p: *const u64) -> __m512i {
        // SAFETY: eight words are readable, and the load needs no alignment.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u64, v: __m512i) {
        // SAFETY: eight words are writable.
        unsafe { _mm512_storeu_si512(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn splat(x: u64) -> __m512i {
        // SAFETY: register only, like all methods below.
        unsafe { _mm512_set1_epi64(x.cast_signed()) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: register only.
        unsafe { _mm512_add_epi64(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: register only.
        unsafe { _mm512_sub_epi64(a, b) }
    }
    #[inline(always)]
    unsafe fn and(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: register only.
        unsafe { _mm512_and_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: register only.
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn shift(v: __m512i) -> __m512i {
        // SAFETY: register only.
        unsafe { _mm512_srli_epi64::<BITS>(v) }
    }
    #[inline(always)]
    unsafe fn sign(v: __m512i) -> __m512i {
        // SAFETY: register only.
        unsafe { _mm512_srli_epi64::<63>(v) }
    }
    #[inline(always)]
    unsafe fn mul_low(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: register only.
        unsafe { _mm512_madd52lo_epu64(_mm512_setzero_si512(), a, b) }
    }
    #[inline(always)]
    unsafe fn acc(v: __m512i) -> Self::Acc {
        // SAFETY: register only.
        (v, unsafe { _mm512_setzero_si512() })
    }
    #[inline(always)]
    unsafe fn mac((lo, hi): Self::Acc, a: __m512i, b: __m512i) -> Self::Acc {
        // SAFETY: register only.
        unsafe { (_mm512_madd52lo_epu64(lo, a, b), _mm512_madd52hi_epu64(hi, a, b)) }
    }
    #[inline(always)]
    unsafe fn plus((lo, hi): Self::Acc, v: __m512i) -> Self::Acc {
        // SAFETY: register only.
        (unsafe { _mm512_add_epi64(lo, v) }, hi)
    }
    #[inline(always)]
    unsafe fn double((lo, hi): Self::Acc) -> Self::Acc {
        // SAFETY: register only.
        unsafe { (_mm512_add_epi64(lo, lo), _mm512_add_epi64(hi, hi)) }
    }
    #[inline(always)]
    unsafe fn low((lo, _): Self::Acc) -> __m512i {
        lo
    }
    #[inline(always)]
    unsafe fn high((_, hi): Self::Acc) -> __m512i {
        hi
    }
    #[inline(always)]
    unsafe fn carry((lo, hi): Self::Acc) -> __m512i {
        // SAFETY: register only.
        unsafe { _mm512_add_epi64(_mm512_srli_epi64::<BITS>(lo), hi) }
    }
    #[inline(always)]
    unsafe fn word((lo, _): Self::Acc) -> __m512i {
        lo
    }
}

super::kernel_entry_points!(Ifma, BLOCK, "avx512f,avx512dq,avx512ifma");

/// Fetches one entry of a table per lane. The whole table is read alike. For each of `rows` digits, `table`
/// holds that digit of all `1 << window` entries. `index` holds one entry number per lane.
///
/// One instruction, whose timing does not depend on the indices, permutes sixteen entries. Masks choose among
/// the results by the higher index bits.
///
/// # Safety
/// The CPU has the instructions. `out` holds `rows` registers and `table` `rows << window` words, and
/// `4 <= window <= 8`.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) unsafe fn lookup(out: *mut u64, table: *const u64, rows: usize, window: u32, index: *const u64) {
    // SAFETY: `index` is one register, and table reads stay within `rows << window` words.
    unsafe {
        let index = _mm512_loadu_si512(index.cast());
        let bit = |b: i64| _mm512_test_epi64_mask(index, _mm512_set1_epi64(1 << b));
        let masks = [bit(4), bit(5), bit(6), bit(7)];
        let sixteen = |p: *const u64| _mm512_permutex2var_epi64(Ifma::load(p), index, Ifma::load(p.add(8)));
        for row in 0..rows {
            let entries = table.add(row << window);
            let v = match window {
                4 => sixteen(entries),
                5 => fold::<2>(&sixteen, entries, &masks),
                6 => fold::<4>(&sixteen, entries, &masks),
                7 => fold::<8>(&sixteen, entries, &masks),
                _ => fold::<16>(&sixteen, entries, &masks),
            };
            Ifma::store(out.add(row * LANES), v);
        }
    }
}

/// Selects among `N` groups of sixteen entries, halving their number with one index bit at a time.
///
/// # Safety
/// `16 * N` words are readable at `entries`.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
unsafe fn fold<const N: usize>(
    sixteen: &impl Fn(*const u64) -> __m512i,
    entries: *const u64,
    masks: &[__mmask8; 4],
) -> __m512i {
    let mut v = [_mm512_setzero_si512(); N];
    for (i, v) in v.iter_mut().enumerate() {
        // SAFETY: `i < N` groups of sixteen words.
        *v = sixteen(unsafe { entries.add(16 * i) });
    }
    let (mut left, mut level) = (N, 0);
    while left > 1 {
        left /= 2;
        for i in 0..left {
            v[i] = _mm512_mask_blend_epi64(masks[level], v[2 * i], v[2 * i + 1]);
        }
        level += 1;
    }
    v[0]
}

/// Writes eight numbers of `rows` digits side by side.
///
/// # Safety
/// The CPU has the instructions. Each source holds `rows` words, and `out` `rows` registers.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) unsafe fn gather(out: *mut u64, sources: &[*const u64; LANES], rows: usize) {
    let mut row = 0;
    while row + LANES <= rows {
        // SAFETY: eight more words in each source, eight more registers in `out`.
        unsafe {
            let block: [__m512i; LANES] = core::array::from_fn(|i| Ifma::load(sources[i].add(row)));
            for (i, v) in transpose(block).into_iter().enumerate() {
                Ifma::store(out.add((row + i) * LANES), v);
            }
        }
        row += LANES;
    }
    // SAFETY: the rest, word by word within the same bounds.
    unsafe { super::lanes::gather_words(out, sources, row, rows) };
}

/// Takes numbers apart that [`gather`] put side by side.
///
/// # Safety
/// As [`gather`], reading `input` and writing the targets.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) unsafe fn scatter(targets: &[*mut u64; LANES], input: *const u64, rows: usize) {
    let mut row = 0;
    while row + LANES <= rows {
        // SAFETY: eight more registers in `input`, eight more words in each target.
        unsafe {
            let block: [__m512i; LANES] = core::array::from_fn(|i| Ifma::load(input.add((row + i) * LANES)));
            for (i, v) in transpose(block).into_iter().enumerate() {
                Ifma::store(targets[i].add(row), v);
            }
        }
        row += LANES;
    }
    // SAFETY: the rest, word by word within the same bounds.
    unsafe { super::lanes::scatter_words(targets, input, row, rows) };
}

/// Transposes an 8 x 8 block of words: pairs, then 128-bit halves, then 256-bit halves.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
fn transpose(r: [__m512i; LANES]) -> [__m512i; LANES] {
    let pair = |a, b| (_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    let ((a0, a1), (a2, a3)) = (pair(r[0], r[1]), pair(r[2], r[3]));
    let ((a4, a5), (a6, a7)) = (pair(r[4], r[5]), pair(r[6], r[7]));
    let even = |a, b| _mm512_shuffle_i64x2::<0b10_00_10_00>(a, b);
    let odd = |a, b| _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b);
    // columns (0,4) and (2,6) of rows 0..4 and 4..8, for even and odd words
    let (b0, b1, b2, b3) = (even(a0, a2), even(a4, a6), odd(a0, a2), odd(a4, a6));
    let (c0, c1, c2, c3) = (even(a1, a3), even(a5, a7), odd(a1, a3), odd(a5, a7));
    [
        even(b0, b1),
        even(c0, c1),
        even(b2, b3),
        even(c2, c3),
        odd(b0, b1),
        odd(c0, c1),
        odd(b2, b3),
        odd(c2, c3),
    ]
}

/// Independent chains of [`peak`]: twice the latency of four cycles on two ports.
pub(super) const PEAK_CHAINS: u32 = 16;

/// Runs multiply-adds at full speed, for measurements.
///
/// # Safety
/// The CPU has the instructions.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) unsafe fn peak(rounds: u32) {
    let mut acc = [_mm512_set1_epi64(3); PEAK_CHAINS as usize];
    let mut a = _mm512_set1_epi64(5);
    let b = core::hint::black_box(_mm512_set1_epi64(7));
    for _ in 0..rounds {
        for acc in &mut acc {
            // SAFETY: there is no instruction. The block keeps the compiler from computing the product only
            // once, without a dependency that the CPU would have to wait for.
            unsafe {
                core::arch::asm!("/* {0} */", inout(zmm_reg) a, options(nomem, nostack, preserves_flags))
            };
            *acc = _mm512_madd52lo_epu64(*acc, a, b);
        }
    }
    core::hint::black_box(acc);
}
