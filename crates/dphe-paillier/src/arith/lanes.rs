//! Buffers of digits, aligned to cache lines and wiped when dropped. Ciphertexts are stored as numbers one
//! after the other, and kernels compute on numbers side by side. This module also converts between the two
//! layouts.

use core::ops::{Deref, DerefMut};

use zeroize::Zeroize;

use super::units::Storage;

/// The most lanes that any back end has.
pub(crate) const MAX_LANES: usize = 8;

/// Words of a cache line.
const LINE: usize = 8;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct CacheLine([u64; LINE]);

/// An aligned buffer of words. It may hold secrets and is wiped when dropped.
pub struct Lanes {
    lines: Vec<CacheLine>,
    words: usize,
}

impl Lanes {
    /// A buffer of `words` zeros.
    pub(crate) fn zeros(words: usize) -> Self {
        Self { lines: vec![CacheLine([0; LINE]); words.div_ceil(LINE)], words }
    }

    /// A buffer of `digits`, each repeated for `lanes` lanes.
    pub(crate) fn broadcast(digits: &[u64], lanes: usize) -> Self {
        let mut buffer = Self::zeros(digits.len() * lanes);
        for (row, &digit) in buffer.chunks_exact_mut(lanes).zip(digits) {
            row.fill(digit);
        }
        buffer
    }
}

impl Lanes {
    /// The lower lanes of `low` and the upper lanes of `high`, two buffers of equal length.
    pub(crate) fn side_by_side(low: &[u64], high: &[u64], lanes: usize) -> Self {
        assert!(low.len() == high.len() && low.len().is_multiple_of(lanes), "groups of one length");
        let mut both = Self::zeros(low.len());
        both.copy_from_slice(low);
        for (row, high) in both.chunks_exact_mut(lanes).zip(high.chunks_exact(lanes)) {
            row[lanes / 2..].copy_from_slice(&high[lanes / 2..]);
        }
        both
    }
}

impl Clone for Lanes {
    fn clone(&self) -> Self {
        Self { lines: self.lines.clone(), words: self.words }
    }
}

impl Deref for Lanes {
    type Target = [u64];
    fn deref(&self) -> &[u64] {
        // SAFETY: `CacheLine` is `repr(C)` over `[u64; LINE]`, so the lines are that many words in a row, and
        // `words` never exceeds them.
        unsafe { core::slice::from_raw_parts(self.lines.as_ptr().cast(), self.words) }
    }
}

impl DerefMut for Lanes {
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.words) }
    }
}

impl Storage for Lanes {
    fn zeros(words: usize) -> Self {
        Self::zeros(words)
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.zeroize();
    }
}

/// Copies digits `from..to` of each source into its lane.
///
/// # Safety
/// Each source holds `to` words. `out` holds `to` rows of as many words as there are sources.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn gather_words<const W: usize>(
    out: *mut u64,
    sources: &[*const u64; W],
    from: usize,
    to: usize,
) {
    for row in from..to {
        for (lane, source) in sources.iter().enumerate() {
            // SAFETY: `row < to` and `lane < W`.
            unsafe { *out.add(row * W + lane) = *source.add(row) };
        }
    }
}

/// The inverse of [`gather_words`].
///
/// # Safety
/// As [`gather_words`].
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn scatter_words<const W: usize>(
    targets: &[*mut u64; W],
    input: *const u64,
    from: usize,
    to: usize,
) {
    for row in from..to {
        for (lane, target) in targets.iter().enumerate() {
            // SAFETY: `row < to` and `lane < W`.
            unsafe { *target.add(row) = *input.add(row * W + lane) };
        }
    }
}
