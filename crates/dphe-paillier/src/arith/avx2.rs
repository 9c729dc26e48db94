//! AVX2: four lanes of 28-bit digits, for CPUs without IFMA.
//!
//! A digit product has 56 bits, so a 64-bit lane can sum 256 of them. That is enough for both products of a
//! column of a 3072-bit modulus (2 x 110). Columns are split before they are reduced.

use core::arch::x86_64::*;

use super::simd::{self, Context, Simd};

/// Columns per block. With five, moduli of 1024, 1536, 2048 and 3072 bits take 40, 55, 75 and 110 digits,
/// which wastes little.
pub(super) const BLOCK: usize = 5;
pub(super) const LANES: usize = 4;
pub(super) const BITS: u32 = 28;

/// Returns whether this CPU has the instructions.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx2")
}

struct Avx2;

// SAFETY (whole impl): `simd` calls these only from the `target_feature` functions below, which
// `Backend` reaches only after `available()`. The kernel's contract guarantees the pointers.
impl Simd for Avx2 {
    type V = __m256i;
    type Acc = __m256i;
    const LANES: usize = LANES;
    const BITS: u32 = BITS;

    #[inline(always)]
    unsafe fn load(p: *const u64) -> __m256i {
        // SAFETY: four words are readable, and the load needs no alignment.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u64, v: __m256i) {
        // SAFETY: four words are writable.
        unsafe { _mm256_storeu_si256(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn splat(x: u64) -> __m256i {
        // SAFETY: register only, like all methods below.
        unsafe { _mm256_set1_epi64x(x.cast_signed()) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: register only.
        unsafe { _mm256_add_epi64(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: register only.
        unsafe { _mm256_sub_epi64(a, b) }
    }
    #[inline(always)]
    unsafe fn and(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: register only.
        unsafe { _mm256_and_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: register only.
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn shift(v: __m256i) -> __m256i {
        // SAFETY: register only.
        unsafe { _mm256_srli_epi64::<{ BITS as i32 }>(v) }
    }
    #[inline(always)]
    unsafe fn sign(v: __m256i) -> __m256i {
        // SAFETY: register only.
        unsafe { _mm256_srli_epi64::<63>(v) }
    }
    #[inline(always)]
    unsafe fn mul_low(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: register only.
        unsafe { Self::and(_mm256_mul_epu32(a, b), Self::splat((1 << BITS) - 1)) }
    }
    #[inline(always)]
    unsafe fn acc(v: __m256i) -> __m256i {
        v
    }
    #[inline(always)]
    unsafe fn mac(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: register only.
        unsafe { _mm256_add_epi64(acc, _mm256_mul_epu32(a, b)) }
    }
    #[inline(always)]
    unsafe fn plus(acc: __m256i, v: __m256i) -> __m256i {
        // SAFETY: register only.
        unsafe { _mm256_add_epi64(acc, v) }
    }
    #[inline(always)]
    unsafe fn double(acc: __m256i) -> __m256i {
        // SAFETY: register only.
        unsafe { _mm256_add_epi64(acc, acc) }
    }
    #[inline(always)]
    unsafe fn low(acc: __m256i) -> __m256i {
        // SAFETY: register only.
        unsafe { Self::and(acc, Self::splat((1 << BITS) - 1)) }
    }
    #[inline(always)]
    unsafe fn high(acc: __m256i) -> __m256i {
        // SAFETY: register only.
        unsafe { Self::shift(acc) }
    }
    #[inline(always)]
    unsafe fn carry(acc: __m256i) -> __m256i {
        // SAFETY: register only.
        unsafe { Self::shift(acc) }
    }
    #[inline(always)]
    unsafe fn word(acc: __m256i) -> __m256i {
        acc
    }
}

super::kernel_entry_points!(Avx2, BLOCK, "avx2");

/// Fetches one entry of a table per lane of two groups. The whole table is read alike. For each of `rows`
/// digits, `table` holds that digit of all `1 << window` entries. `index` holds one entry number per lane,
/// for the first group and then for the second.
///
/// One instruction, whose timing does not depend on the indices, permutes eight entries for eight lanes.
/// Masks choose among the results by the higher index bits.
///
/// # Safety
/// The CPU has AVX2. Each group in `out` holds `rows` registers, `table` holds `rows << window` words, and
/// `4 <= window <= 8`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn lookup(
    out: [*mut u64; 2],
    table: *const u32,
    rows: usize,
    window: u32,
    index: &[u64; 2 * LANES],
) {
    let index = index.map(|i| i as i32);
    // SAFETY: eight indices are one register, and table reads stay within `rows << window` words.
    unsafe {
        let index = _mm256_loadu_si256(index.as_ptr().cast());
        // blends look at the top bit of each lane
        let masks = [
            _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index)),
            _mm256_castsi256_ps(_mm256_slli_epi32::<27>(index)),
            _mm256_castsi256_ps(_mm256_slli_epi32::<26>(index)),
            _mm256_castsi256_ps(_mm256_slli_epi32::<25>(index)),
            _mm256_castsi256_ps(_mm256_slli_epi32::<24>(index)),
        ];
        for row in 0..rows {
            let entries = table.add(row << window);
            let v = match window {
                4 => fold::<2>(entries, index, &masks),
                5 => fold::<4>(entries, index, &masks),
                6 => fold::<8>(entries, index, &masks),
                7 => fold::<16>(entries, index, &masks),
                _ => fold::<32>(entries, index, &masks),
            };
            Avx2::store(out[0].add(row * LANES), _mm256_cvtepu32_epi64(_mm256_castsi256_si128(v)));
            Avx2::store(out[1].add(row * LANES), _mm256_cvtepu32_epi64(_mm256_extracti128_si256::<1>(v)));
        }
    }
}

/// Selects among `N` groups of eight entries, halving their number with one index bit at a time.
///
/// # Safety
/// `8 * N` words are readable at `entries`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn fold<const N: usize>(entries: *const u32, index: __m256i, masks: &[__m256; 5]) -> __m256i {
    let mut v = [_mm256_setzero_ps(); N];
    for (i, v) in v.iter_mut().enumerate() {
        // SAFETY: `i < N` groups of eight words. The permutation uses the low three index bits.
        let eight = unsafe { _mm256_loadu_si256(entries.add(8 * i).cast()) };
        *v = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(eight, index));
    }
    let (mut left, mut level) = (N, 0);
    while left > 1 {
        left /= 2;
        for i in 0..left {
            v[i] = _mm256_blendv_ps(v[2 * i], v[2 * i + 1], masks[level]);
        }
        level += 1;
    }
    _mm256_castps_si256(v[0])
}

/// Writes four numbers of `rows` digits side by side.
///
/// # Safety
/// The CPU has AVX2. Each source holds `rows` words, and `out` `rows` registers.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn gather(out: *mut u64, sources: &[*const u64; LANES], rows: usize) {
    let mut row = 0;
    while row + LANES <= rows {
        // SAFETY: four more words in each source, four more registers in `out`.
        unsafe {
            let block: [__m256i; LANES] = core::array::from_fn(|i| Avx2::load(sources[i].add(row)));
            for (i, v) in transpose(block).into_iter().enumerate() {
                Avx2::store(out.add((row + i) * LANES), v);
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
#[target_feature(enable = "avx2")]
pub(super) unsafe fn scatter(targets: &[*mut u64; LANES], input: *const u64, rows: usize) {
    let mut row = 0;
    while row + LANES <= rows {
        // SAFETY: four more registers in `input`, four more words in each target.
        unsafe {
            let block: [__m256i; LANES] = core::array::from_fn(|i| Avx2::load(input.add((row + i) * LANES)));
            for (i, v) in transpose(block).into_iter().enumerate() {
                Avx2::store(targets[i].add(row), v);
            }
        }
        row += LANES;
    }
    // SAFETY: the rest, word by word within the same bounds.
    unsafe { super::lanes::scatter_words(targets, input, row, rows) };
}

/// Transposes a 4 x 4 block of words.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(r: [__m256i; LANES]) -> [__m256i; LANES] {
    let (a0, a1) = (_mm256_unpacklo_epi64(r[0], r[1]), _mm256_unpackhi_epi64(r[0], r[1]));
    let (a2, a3) = (_mm256_unpacklo_epi64(r[2], r[3]), _mm256_unpackhi_epi64(r[2], r[3]));
    [
        _mm256_permute2x128_si256::<0x20>(a0, a2),
        _mm256_permute2x128_si256::<0x20>(a1, a3),
        _mm256_permute2x128_si256::<0x31>(a0, a2),
        _mm256_permute2x128_si256::<0x31>(a1, a3),
    ]
}

/// Independent chains of [`peak`].
pub(super) const PEAK_CHAINS: u32 = 12;

/// Runs multiplications with additions at full speed, for measurements.
///
/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn peak(rounds: u32) {
    let mut acc = [_mm256_set1_epi64x(3); PEAK_CHAINS as usize];
    let mut a = _mm256_set1_epi64x(5);
    let b = core::hint::black_box(_mm256_set1_epi64x(7));
    for _ in 0..rounds {
        for acc in &mut acc {
            // SAFETY: there is no instruction. The block keeps the compiler from computing the product only
            // once, without a dependency that the CPU would have to wait for.
            unsafe {
                core::arch::asm!("/* {0} */", inout(ymm_reg) a, options(nomem, nostack, preserves_flags))
            };
            *acc = _mm256_add_epi64(*acc, _mm256_mul_epu32(a, b));
        }
    }
    core::hint::black_box(acc);
}
