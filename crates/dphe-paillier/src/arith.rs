//! The arithmetic: all code that touches digits, and the only place with `unsafe` code.
//!
//! * [`units`]: types for layout, ring, form and range of digits
//! * [`lanes`]: buffers of digits, numbers side by side
//! * [`simd`]: the vector kernel, written once and instantiated by [`ifma`] and [`avx2`]
//! * [`portable`]: the same algebra on 64-bit digits for any CPU
//! * [`backend`]: the choice between the three
//! * [`modulus`]: Montgomery arithmetic modulo `N` and, on base-`N` pairs, modulo `N^2`
//! * [`crossing`]: from residues modulo `n^2` to residues modulo `p^2`
//! * [`pow`], [`fixed_base`], [`multi_pow`]: powers of many numbers, powers of one number, products of powers
//! * [`prime`]: the search for safe primes, many candidates at a time
//! * [`euclid`]: inverses of public numbers
//! * [`nat`]: plain big integers for set-up and conversions, the only module that names that library
//! * [`measure`]: the speed of the kernel compared with the CPU's peak rate
//!
//! Functions whose names end in `_vartime` take time that depends on their operands. Only public values go
//! there. All other functions execute the same instructions and touch the same memory for all values.

#![allow(unsafe_code, reason = "vector instructions, and buffers aligned for them")]
#![allow(unreachable_pub, reason = "public with `hazmat`, for the programs that must not compile")]
#![allow(rustdoc::private_intra_doc_links, reason = "hidden from the documentation")]

pub(crate) mod backend;
pub(crate) mod crossing;
mod euclid;
pub(crate) mod fixed_base;
pub mod lanes;
pub(crate) mod measure;
pub mod modulus;
pub(crate) mod multi_pow;
pub mod nat;
mod portable;
pub(crate) mod pow;
pub(crate) mod prime;
#[cfg(any(test, target_arch = "x86_64"))]
mod simd;
pub mod units;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod ifma;

#[cfg(test)]
mod emulated;
#[cfg(test)]
mod tests;

/// Instantiates the generic kernel for one instruction set. These functions are compiled with its
/// instructions enabled, and the generic code is inlined into them.
#[cfg(any(test, target_arch = "x86_64"))]
macro_rules! kernel_entry_points {
    ($simd:ty, $block:expr $(, $features:literal)?) => {
        /// # Safety
        /// The CPU has the instructions. See `simd::mul_pair`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn mul_pair(
            cx: &Context,
            z: *mut u64,
            x: *const u64,
            y: *const u64,
            scratch: *mut u64,
        ) {
            // SAFETY: the caller guarantees it.
            unsafe { simd::mul_pair::<$simd, { $block }>(cx, z, x, y, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions. See `simd::scale_pair`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn scale_pair(
            cx: &Context,
            z: *mut u64,
            x: *const u64,
            y: *const u64,
            scratch: *mut u64,
        ) {
            // SAFETY: the caller guarantees it.
            unsafe { simd::scale_pair::<$simd, { $block }>(cx, z, x, y, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions. See `simd::reduce_wide`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn reduce_wide(cx: &Context, z: *mut u64, t: *const u64, scratch: *mut u64) {
            // SAFETY: the caller guarantees it.
            unsafe { simd::reduce_wide::<$simd, { $block }>(cx, z, t, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions. See `simd::square_pair`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn square_pair(cx: &Context, z: *mut u64, x: *const u64, scratch: *mut u64) {
            // SAFETY: the caller guarantees it.
            unsafe { simd::square_pair::<$simd, { $block }>(cx, z, x, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions. See `simd::mul`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn mul(cx: &Context, z: *mut u64, x: *const u64, y: *const u64, scratch: *mut u64) {
            // SAFETY: the caller guarantees it.
            unsafe { simd::mul::<$simd, { $block }>(cx, z, x, y, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions. See `simd::square`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn square(cx: &Context, z: *mut u64, x: *const u64, scratch: *mut u64) {
            // SAFETY: the caller guarantees it.
            unsafe { simd::square::<$simd, { $block }>(cx, z, x, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions. See `simd::reduce_pair`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn reduce_pair(
            cx: &Context,
            z: *mut u64,
            t0: *mut u64,
            t1: *mut u64,
            scratch: *mut u64,
        ) {
            // SAFETY: the caller guarantees it.
            unsafe { simd::reduce_pair::<$simd, { $block }>(cx, z, t0, t1, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions. See `simd::canonical`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn canonical(cx: &Context, x: *mut u64, scratch: *mut u64) {
            // SAFETY: the caller guarantees it.
            unsafe {
                simd::canonical::<$simd>(cx, x, scratch);
            }
        }

        /// # Safety
        /// The CPU has the instructions. See `simd::canonical_pair`.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn canonical_pair(cx: &Context, x: *mut u64, scratch: *mut u64) {
            // SAFETY: the caller guarantees it.
            unsafe { simd::canonical_pair::<$simd>(cx, x, scratch) }
        }

        /// # Safety
        /// The CPU has the instructions.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn select(out: &mut [u64], table: &[u64], index: u64) {
            super::portable::lookup(out, table, index);
        }

        /// # Safety
        /// The CPU has the instructions.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn select_halves(out: &mut [u64], table: &[u64], index: [u64; 2]) {
            super::portable::lookup_halves::<{ <$simd as simd::Simd>::LANES }>(out, table, index);
        }
    };
}
#[cfg(any(test, target_arch = "x86_64"))]
use kernel_entry_points;
