//! Buffers of digits, aligned to cache lines and wiped when dropped, and moves between one number
//! after the other (how ciphertexts are stored) and side by side (how kernels work).

use core::ops::{Deref, DerefMut};

use zeroize::Zeroize;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u64; 8]);

/// An aligned buffer of words. It may have held secrets: wiped when dropped.
pub(crate) struct Lanes {
    lines: Vec<Line>,
    words: usize,
}

impl Lanes {
    /// `words` zeros.
    pub(crate) fn zeros(words: usize) -> Self {
        Self { lines: vec![Line([0; 8]); words.div_ceil(8)], words }
    }

    /// `digits`, each repeated for `lanes` lanes.
    pub(crate) fn broadcast(digits: &[u64], lanes: usize) -> Self {
        let mut buffer = Self::zeros(digits.len() * lanes);
        for (row, &digit) in buffer.chunks_exact_mut(lanes).zip(digits) {
            row.fill(digit);
        }
        buffer
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
        // SAFETY: `Line` is `repr(C)` over `[u64; 8]`, so the lines are that many words in a row, and
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

impl Drop for Lanes {
    fn drop(&mut self) {
        self.zeroize();
    }
}

/// Copies digits `from..to` of each source into its lane.
///
/// # Safety
/// Each source holds `to` words, `out` `to` rows of as many words as there are sources.
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
