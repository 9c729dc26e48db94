//! The arithmetic: everything that touches digits, and the only place with `unsafe` code.
//!
//! * [`lanes`] buffers of digits, numbers side by side
//! * [`simd`] the vector kernel, written once; [`ifma`] and [`avx2`] instantiate it
//! * [`portable`] the same algebra on 64-bit digits for any CPU
//! * [`backend`] which of the three runs
//! * [`modulus`] Montgomery arithmetic modulo `N` and, on base-`N` pairs, modulo `N^2`
//! * [`pow`], [`fixed_base`], [`multi_pow`] powers: of many numbers, of one, of many into one
//! * [`prime`] the search for safe primes, many candidates at a time
//! * [`nat`] plain big integers for set-up and conversions; the only module that names that library
//!
//! Names ending in `_vartime` take time that depends on their operands; only public values go there.
//! Everything else executes the same instructions and touches the same memory for all values.

#![allow(unsafe_code)]

pub(crate) mod backend;
pub(crate) mod fixed_base;
pub(crate) mod lanes;
pub(crate) mod measure;
pub(crate) mod modulus;
pub(crate) mod multi_pow;
pub(crate) mod nat;
mod portable;
pub(crate) mod pow;
pub(crate) mod prime;
#[cfg(any(test, target_arch = "x86_64"))]
mod simd;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod ifma;

#[cfg(test)]
mod emulated;
#[cfg(test)]
mod tests;

/// Instantiates the generic kernel for one instruction set: these functions are compiled with its
/// instructions enabled, and the generic code is inlined into them.
#[cfg(any(test, target_arch = "x86_64"))]
macro_rules! kernel_entry_points {
    ($simd:ty, $block:expr $(, $features:literal)?) => {
        /// # Safety
        /// The CPU has the instructions; see `simd::mul_pair`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn mul_pair(
            cx: &Context,
            z: *mut u64,
            x: *const u64,
            y: *const u64,
            scratch: *mut u64,
        ) {
            // SAFETY: as the caller vouches.
            unsafe { simd::mul_pair::<$simd, { $block }>(cx, z, x, y, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions; see `simd::scale_pair`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn scale_pair(
            cx: &Context,
            z: *mut u64,
            x: *const u64,
            y: *const u64,
            scratch: *mut u64,
        ) {
            // SAFETY: as the caller vouches.
            unsafe { simd::scale_pair::<$simd, { $block }>(cx, z, x, y, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions; see `simd::reduce_wide`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn reduce_wide(cx: &Context, z: *mut u64, t: *const u64, scratch: *mut u64) {
            // SAFETY: as the caller vouches.
            unsafe { simd::reduce_wide::<$simd, { $block }>(cx, z, t, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions; see `simd::square_pair`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn square_pair(cx: &Context, z: *mut u64, x: *const u64, scratch: *mut u64) {
            // SAFETY: as the caller vouches.
            unsafe { simd::square_pair::<$simd, { $block }>(cx, z, x, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions; see `simd::mul`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn mul(cx: &Context, z: *mut u64, x: *const u64, y: *const u64, scratch: *mut u64) {
            // SAFETY: as the caller vouches.
            unsafe { simd::mul::<$simd, { $block }>(cx, z, x, y, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions; see `simd::square`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn square(cx: &Context, z: *mut u64, x: *const u64, scratch: *mut u64) {
            // SAFETY: as the caller vouches.
            unsafe { simd::square::<$simd, { $block }>(cx, z, x, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions; see `simd::reduce_pair`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn reduce_pair(
            cx: &Context,
            z: *mut u64,
            t0: *mut u64,
            t1: *mut u64,
            scratch: *mut u64,
        ) {
            // SAFETY: as the caller vouches.
            unsafe { simd::reduce_pair::<$simd, { $block }>(cx, z, t0, t1, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions; see `simd::canonical`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn canonical(cx: &Context, x: *mut u64, scratch: *mut u64) {
            // SAFETY: as the caller vouches.
            unsafe {
                simd::canonical::<$simd>(cx, x, scratch);
            }
        }

        /// # Safety
        /// The CPU has the instructions; see `simd::canonical_pair`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn canonical_pair(cx: &Context, x: *mut u64, scratch: *mut u64) {
            // SAFETY: as the caller vouches.
            unsafe { simd::canonical_pair::<$simd>(cx, x, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn select(out: &mut [u64], table: &[u64], index: u64) {
            super::portable::lookup(out, table, index);
        }
    };
}
#[cfg(any(test, target_arch = "x86_64"))]
use kernel_entry_points;
