//! Operations on groups: typed wrappers of the kernels.

use super::super::backend::Backend;
#[cfg(test)]
use super::super::emulated;
use super::super::lanes::MAX_LANES;
use super::super::portable;
#[cfg(any(test, target_arch = "x86_64"))]
use super::super::simd;
use super::super::units::{
    Buffer, BufferMut, Canonical, Group, Loose, Mod, ModSquared, Reduce, Ring, Times, Value, WideGroup,
};
#[cfg(target_arch = "x86_64")]
use super::super::{avx2, ifma};
use super::{Modulus, Scratch};

/// Calls the kernel of the back end in use.
macro_rules! dispatch {
    ($self:ident, $vector:ident($($v:expr),*), $portable:expr) => {
        match $self.backend {
            // SAFETY: a `Modulus` exists only for an available back end (checked in `new`), and the
            // caller has checked the lengths of all buffers.
            #[cfg(target_arch = "x86_64")]
            Backend::Ifma => unsafe { ifma::$vector($($v),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Backend::Avx2 => unsafe { avx2::$vector($($v),*) },
            #[cfg(test)]
            // SAFETY: as above.
            Backend::Emulated => unsafe { emulated::$vector($($v),*) },
            _ => $portable,
        }
    };
}

impl<M> Modulus<M> {
    /// `z = x y / R` in the ring of the operands.
    pub fn mul<R, X, Y, SX, SY>(
        &self,
        z: &mut Group<R, X::Product, Loose, impl BufferMut>,
        x: &Group<R, X, SX, impl Buffer>,
        y: &Group<R, Y, SY, impl Buffer>,
        scratch: &mut Scratch,
    ) where
        R: Ring<Modulus = M>,
        X: Times<Y>,
    {
        let (z, x, y) = (z.digits_mut(), x.digits(), y.digits());
        if R::HALVES == 1 {
            self.check(scratch, [z.len(), x.len(), y.len()], self.digits * self.lanes());
            dispatch!(
                self,
                mul(&self.context(), z.as_mut_ptr(), x.as_ptr(), y.as_ptr(), scratch.0.as_mut_ptr()),
                portable::mul(self.portable(), z, x, y, &mut scratch.0)
            );
        } else {
            self.check_pairs(scratch, [z.len(), x.len(), y.len()]);
            dispatch!(
                self,
                mul_pair(&self.context(), z.as_mut_ptr(), x.as_ptr(), y.as_ptr(), scratch.0.as_mut_ptr()),
                portable::mul_pair(self.portable(), z, x, y, &mut scratch.0)
            );
        }
    }

    /// `z = x^2 / R` in the ring of the operand.
    pub(crate) fn square<R, X, S>(
        &self,
        z: &mut Group<R, X::Product, Loose, impl BufferMut>,
        x: &Group<R, X, S, impl Buffer>,
        scratch: &mut Scratch,
    ) where
        R: Ring<Modulus = M>,
        X: Times<X>,
    {
        let (z, x) = (z.digits_mut(), x.digits());
        if R::HALVES == 1 {
            let words = self.digits * self.lanes();
            self.check(scratch, [z.len(), x.len(), words], words);
            dispatch!(
                self,
                square(&self.context(), z.as_mut_ptr(), x.as_ptr(), scratch.0.as_mut_ptr()),
                portable::square(self.portable(), z, x, &mut scratch.0)
            );
        } else {
            self.check_pairs(scratch, [z.len(), x.len(), x.len()]);
            dispatch!(
                self,
                square_pair(&self.context(), z.as_mut_ptr(), x.as_ptr(), scratch.0.as_mut_ptr()),
                portable::square_pair(self.portable(), z, x, &mut scratch.0)
            );
        }
    }

    /// `z = x y / R` modulo `N^2` for residues `y`, which are pairs whose upper half is zero.
    pub(crate) fn scale<X, Y, SX, SY>(
        &self,
        z: &mut Group<ModSquared<M>, X::Product, Loose, impl BufferMut>,
        x: &Group<ModSquared<M>, X, SX, impl Buffer>,
        y: &Group<Mod<M>, Y, SY, impl Buffer>,
        scratch: &mut Scratch,
    ) where
        X: Times<Y>,
    {
        let (z, x, y) = (z.digits_mut(), x.digits(), y.digits());
        self.check_pairs(scratch, [z.len(), x.len(), 2 * y.len()]);
        dispatch!(
            self,
            scale_pair(&self.context(), z.as_mut_ptr(), x.as_ptr(), y.as_ptr(), scratch.0.as_mut_ptr()),
            portable::scale_pair(self.portable(), z, x, y, &mut scratch.0)
        );
    }

    /// The pairs `(t0 + t1 N) / R`. `t0` and `t1` are below `N R` and are used up.
    pub(crate) fn reduce_pair<X: Reduce>(
        &self,
        z: &mut Group<ModSquared<M>, X::Reduced, Loose, impl BufferMut>,
        t0: &mut WideGroup<Mod<M>, X, impl BufferMut>,
        t1: &mut WideGroup<Mod<M>, X, impl BufferMut>,
        scratch: &mut Scratch,
    ) {
        let (z, t0, t1) = (z.digits_mut(), t0.digits_mut(), t1.digits_mut());
        self.check_pairs(scratch, [z.len(), t0.len(), t1.len()]);
        dispatch!(
            self,
            reduce_pair(
                &self.context(),
                z.as_mut_ptr(),
                t0.as_mut_ptr(),
                t1.as_mut_ptr(),
                scratch.0.as_mut_ptr()
            ),
            portable::reduce_pair(self.portable(), z, t0, t1, &mut scratch.0)
        );
    }

    /// `t += x` for residues `x`, without a reduction. Vector back ends do not carry either: 28-bit and
    /// 52-bit digits leave room for more terms than any table has windows.
    pub(crate) fn add_wide<F, S>(
        &self,
        t: &mut WideGroup<Mod<M>, F, impl BufferMut>,
        x: &Group<Mod<M>, F, S, impl Buffer>,
    ) {
        let (t, x) = (t.digits_mut(), x.digits());
        assert!(x.len() == self.digits * self.lanes() && t.len() == 2 * x.len(), "a group of this modulus");
        if self.backend == Backend::Portable {
            return portable::add_wide(t, x);
        }
        t.iter_mut().zip(x).for_each(|(sum, digit)| *sum += digit);
    }

    /// The residues `t / R` of double-length numbers `t` below `N R`. Vector back ends accept sums of
    /// hundreds of digits in place of digits, so columns need not be carried.
    pub(crate) fn reduce_wide<X: Reduce>(
        &self,
        z: &mut Group<Mod<M>, X::Reduced, Loose, impl BufferMut>,
        t: &WideGroup<Mod<M>, X, impl Buffer>,
        scratch: &mut Scratch,
    ) {
        let (z, t) = (z.digits_mut(), t.digits());
        let words = self.digits * self.lanes();
        self.check(scratch, [z.len(), t.len() / 2, t.len().div_ceil(2)], words);
        dispatch!(
            self,
            reduce_wide(&self.context(), z.as_mut_ptr(), t.as_ptr(), scratch.0.as_mut_ptr()),
            portable::reduce_wide(self.portable(), z, t, &mut scratch.0)
        );
    }

    /// `x = 2 x` modulo `N` in the lanes where `mask` is all ones. The result may reach `4N`. The
    /// multiplication that follows every doubling brings it back below `2N`, because `R` is at least `16N`.
    pub(crate) fn double<F>(&self, x: &mut Group<Mod<M>, F, Loose, impl BufferMut>, mask: &[u64]) {
        let (x, lanes) = (x.digits_mut(), self.lanes());
        assert!(x.len() == self.digits * lanes && mask.len() == lanes, "a group of this modulus");
        if self.backend == Backend::Portable {
            return portable::double(self.portable(), x, mask[0]);
        }
        let mut carry = [0; MAX_LANES];
        for row in x.chunks_exact_mut(lanes) {
            for ((digit, carry), mask) in row.iter_mut().zip(&mut carry).zip(mask) {
                let sum = *digit + (*digit & mask) + *carry;
                *digit = sum & self.backend.digit_mask();
                *carry = sum >> self.backend.digit_bits();
            }
        }
    }

    /// `x = x + y` modulo `N`.
    pub(crate) fn add<F>(
        &self,
        x: &mut Group<Mod<M>, F, Canonical, impl BufferMut>,
        y: &Group<Mod<M>, F, Canonical, impl Buffer>,
        scratch: &mut Scratch,
    ) {
        let (x, y) = (x.digits_mut(), y.digits());
        let (lanes, words) = (self.lanes(), self.digits * self.lanes());
        self.check(scratch, [x.len(), y.len(), words], words);
        if self.backend == Backend::Portable {
            return portable::add(self.portable(), x, y);
        }
        let mut carry = [0; MAX_LANES];
        for (row, addend) in x.chunks_exact_mut(lanes).zip(y.chunks_exact(lanes)) {
            for ((digit, addend), carry) in row.iter_mut().zip(addend).zip(&mut carry) {
                let sum = *digit + addend + *carry;
                *digit = sum & self.backend.digit_mask();
                *carry = sum >> self.backend.digit_bits();
            }
        }
        dispatch!(self, canonical(&self.context(), x.as_mut_ptr(), scratch.0.as_mut_ptr()), ());
    }

    /// Brings a group into canonical range, in place.
    pub(crate) fn canonical<'x, R: Ring<Modulus = M>, F>(
        &self,
        x: &'x mut Group<R, F, Loose, impl BufferMut>,
        scratch: &mut Scratch,
    ) -> Group<R, F, Canonical, &'x mut [u64]> {
        let x = x.digits_mut();
        if R::HALVES == 1 {
            self.check(scratch, [x.len(); 3], self.digits * self.lanes());
            dispatch!(self, canonical(&self.context(), x.as_mut_ptr(), scratch.0.as_mut_ptr()), ());
        } else {
            self.check_pairs(scratch, [x.len(); 3]);
            dispatch!(self, canonical_pair(&self.context(), x.as_mut_ptr(), scratch.0.as_mut_ptr()), ());
        }
        Value::claim(x)
    }

    /// Copies entry `index` of a table of groups. Every entry is read alike.
    pub(in crate::arith) fn select<R: Ring<Modulus = M>, F, S>(
        &self,
        out: &mut Group<R, F, S, impl BufferMut>,
        table: &[u64],
        index: u64,
    ) {
        let out = out.digits_mut();
        assert!(table.len().is_multiple_of(out.len()), "a table of groups");
        dispatch!(self, select(out, table, index), portable::lookup(out, table, index));
    }

    /// Copies the lower lanes of one entry of a table of groups, and the upper lanes of another. Every entry is read
    /// alike.
    pub(in crate::arith) fn select_of_factors<R: Ring<Modulus = M>, F, S>(
        &self,
        out: &mut Group<R, F, S, impl BufferMut>,
        table: &[u64],
        index: [u64; 2],
    ) {
        let out = out.digits_mut();
        assert!(table.len().is_multiple_of(out.len()), "a table of groups");
        dispatch!(
            self,
            select_halves(out, table, index),
            unreachable!("a back end without lanes has no halves of lanes")
        );
    }

    /// As `check`, and that this modulus has pairs. A modulus made by `side_by_side` has none.
    fn check_pairs(&self, scratch: &Scratch, lengths: [usize; 3]) {
        let residue = self.digits * self.lanes();
        assert!(self.bias.len() == residue, "a modulus with pairs");
        self.check(scratch, lengths, 2 * residue);
    }

    fn check(&self, scratch: &Scratch, lengths: [usize; 3], words: usize) {
        assert!(lengths == [words; 3], "a group of this modulus");
        assert!(scratch.0.len() >= 4 * self.digits * self.lanes(), "scratch of this modulus");
    }

    #[cfg(any(test, target_arch = "x86_64"))]
    fn context(&self) -> simd::Context {
        simd::Context {
            digits: self.digits,
            modulus: self.rows.as_ptr(),
            inverse: self.inverse.as_ptr(),
            bias: self.bias.as_ptr(),
        }
    }

    fn portable(&self) -> portable::Context<'_> {
        portable::Context { modulus: &self.rows, inverse: self.inverse[0], bias: &self.bias }
    }
}
