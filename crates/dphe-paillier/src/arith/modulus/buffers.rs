//! Groups, lists and numbers: allocation, and the moves between them.

use super::super::backend::Backend;
use super::super::lanes::Lanes;
use super::super::units::{
    Buffer, BufferMut, Closed, Group, Loose, Mod, ModSquared, Number, Numbers, Ring, Storage, Value,
    WideGroup,
};
#[cfg(target_arch = "x86_64")]
use super::super::{avx2, ifma};
use super::{Modulus, Scratch};

/// Allocation.
impl<M> Modulus<M> {
    pub(crate) fn scratch(&self) -> Scratch {
        Scratch(Lanes::zeros(4 * self.digits * self.lanes()))
    }
    /// A group of zeros.
    pub(crate) fn group<R: Ring<Modulus = M>, F>(&self) -> Group<R, F, Loose, Lanes> {
        Value::claim(Lanes::zeros(self.words::<R>() * self.lanes()))
    }
    /// A group of zeros modulo `N`.
    pub(crate) fn residues<F>(&self) -> Group<Mod<M>, F, Loose, Lanes> {
        self.group()
    }
    /// A group of zeros modulo `N^2`.
    pub(crate) fn pairs<F>(&self) -> Group<ModSquared<M>, F, Loose, Lanes> {
        self.group()
    }
    /// A group of double-length zeros.
    pub(crate) fn wide<F>(&self) -> WideGroup<Mod<M>, F, Lanes> {
        Value::claim(Lanes::zeros(2 * self.digits * self.lanes()))
    }
    /// A group of ones.
    pub(crate) fn ones<R: Ring<Modulus = M>, F: Closed>(&self) -> Group<R, F, Loose, Lanes> {
        self.broadcast(&self.one().loose().claim_form())
    }
    /// A group in which every lane holds `x`.
    pub(crate) fn broadcast<R: Ring<Modulus = M>, F, S>(
        &self,
        x: &Number<R, F, S, impl Buffer>,
    ) -> Group<R, F, S, Lanes> {
        assert!(x.digits().len() == self.words::<R>(), "a number of this modulus");
        Value::claim(Lanes::broadcast(x.digits(), self.lanes()))
    }
    /// Zero.
    pub(crate) fn number<R: Ring<Modulus = M>, F, S, B: Storage>(&self) -> Number<R, F, S, B> {
        Value::claim(B::zeros(self.words::<R>()))
    }
    /// A list of `count` zeros.
    pub(crate) fn numbers<R: Ring<Modulus = M>, F, S, B: Storage>(
        &self,
        count: usize,
    ) -> Numbers<R, F, S, B> {
        Value::claim(B::zeros(count * self.words::<R>()))
    }
    /// How many numbers a list holds.
    pub(crate) fn count<R: Ring<Modulus = M>, F, S>(&self, list: &Numbers<R, F, S, impl Buffer>) -> usize {
        list.digits().len() / self.words::<R>()
    }
    /// Number `i` of a list.
    pub(crate) fn nth<'a, R: Ring<Modulus = M>, F, S>(
        &self,
        list: &'a Numbers<R, F, S, impl Buffer>,
        i: usize,
    ) -> Number<R, F, S, &'a [u64]> {
        let words = self.words::<R>();
        Value::claim(&list.digits()[i * words..(i + 1) * words])
    }
    /// Number `i` of a list, to be written.
    pub(crate) fn nth_mut<'a, R: Ring<Modulus = M>, F, S>(
        &self,
        list: &'a mut Numbers<R, F, S, impl BufferMut>,
        i: usize,
    ) -> Number<R, F, S, &'a mut [u64]> {
        let words = self.words::<R>();
        Value::claim(&mut list.digits_mut()[i * words..(i + 1) * words])
    }
    /// The numbers of a list.
    pub(crate) fn each<'a, R: Ring<Modulus = M>, F, S>(
        &self,
        list: &'a Numbers<R, F, S, impl Buffer>,
    ) -> impl Iterator<Item = Number<R, F, S, &'a [u64]>> {
        list.digits().chunks_exact(self.words::<R>()).map(Value::claim)
    }
    /// The numbers of a list, to be written.
    pub(crate) fn each_mut<'a, R: Ring<Modulus = M>, F, S>(
        &self,
        list: &'a mut Numbers<R, F, S, impl BufferMut>,
    ) -> impl Iterator<Item = Number<R, F, S, &'a mut [u64]>> {
        list.digits_mut().chunks_exact_mut(self.words::<R>()).map(Value::claim)
    }
}

/// Moves.
impl<M> Modulus<M> {
    /// Puts numbers side by side, with `filler` in the remaining lanes. The range of the result is that of
    /// the numbers.
    pub(crate) fn gather<'z, R: Ring<Modulus = M>, F, S>(
        &self,
        out: &'z mut Group<R, F, Loose, impl BufferMut>,
        sources: &[Number<R, F, S, &[u64]>],
        filler: Number<R, F, S, &[u64]>,
    ) -> Group<R, F, S, &'z mut [u64]> {
        self.gather_rows(out.digits_mut(), self.words::<R>(), |lane| {
            sources.get(lane).unwrap_or(&filler).digits()
        });
        Value::claim(out.digits_mut())
    }

    /// Puts residues of a longer modulus side by side as double-length numbers, with zeros in the remaining
    /// lanes.
    pub(in crate::arith) fn gather_wide<L, F, G, S>(
        &self,
        out: &mut WideGroup<Mod<M>, G, impl BufferMut>,
        sources: &[Number<Mod<L>, F, S, &[u64]>],
        digits: usize,
    ) {
        // longer than any key has digits
        static ZEROS: [u64; 256] = [0; 256];
        let (rows, rest) = out.digits_mut().split_at_mut(digits * self.lanes());
        self.gather_rows(rows, digits, |lane| sources.get(lane).map_or(&ZEROS[..digits], |x| x.digits()));
        rest.fill(0);
    }

    pub(super) fn gather_rows<'s>(&self, out: &mut [u64], rows: usize, source: impl Fn(usize) -> &'s [u64]) {
        assert!((0..self.lanes()).all(|lane| source(lane).len() == rows), "numbers of one length");
        assert!(out.len() == rows * self.lanes(), "a group of that many rows");
        match self.backend {
            // SAFETY: the back end is available; lengths were checked above.
            #[cfg(target_arch = "x86_64")]
            Backend::Ifma => unsafe {
                ifma::gather(out.as_mut_ptr(), &core::array::from_fn(|lane| source(lane).as_ptr()), rows);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Backend::Avx2 => unsafe {
                avx2::gather(out.as_mut_ptr(), &core::array::from_fn(|lane| source(lane).as_ptr()), rows);
            },
            _ => {
                for lane in 0..self.lanes() {
                    for (row, &digit) in out.chunks_exact_mut(self.lanes()).zip(source(lane)) {
                        row[lane] = digit;
                    }
                }
            }
        }
    }

    /// Takes the first numbers of a group apart.
    pub(crate) fn scatter<R: Ring<Modulus = M>, F, S>(
        &self,
        targets: &mut [Number<R, F, S, &mut [u64]>],
        input: &Group<R, F, S, impl Buffer>,
    ) {
        let (input, rows) = (input.digits(), self.words::<R>());
        assert!(input.len() == rows * self.lanes(), "a group of this modulus");
        assert!(targets.iter().all(|target| target.digits().len() == rows), "numbers of one length");
        match self.backend {
            // SAFETY: the back end is available; there is a target for every lane, of `rows` words.
            #[cfg(target_arch = "x86_64")]
            Backend::Ifma if targets.len() == ifma::LANES => unsafe {
                let targets = core::array::from_fn(|lane| targets[lane].digits_mut().as_mut_ptr());
                ifma::scatter(&targets, input.as_ptr(), rows);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Backend::Avx2 if targets.len() == avx2::LANES => unsafe {
                let targets = core::array::from_fn(|lane| targets[lane].digits_mut().as_mut_ptr());
                avx2::scatter(&targets, input.as_ptr(), rows);
            },
            _ => {
                for (lane, target) in targets.iter_mut().enumerate() {
                    for (row, digit) in input.chunks_exact(self.lanes()).zip(target.digits_mut()) {
                        *digit = row[lane];
                    }
                }
            }
        }
    }

    /// The first `count` numbers of a group.
    pub(crate) fn take_apart<R: Ring<Modulus = M>, F, S, B: Storage>(
        &self,
        group: &Group<R, F, S, impl Buffer>,
        count: usize,
    ) -> Vec<Number<R, F, S, B>> {
        let mut all: Vec<Number<R, F, S, B>> = (0..count).map(|_| self.number()).collect();
        self.scatter(&mut all.iter_mut().map(Value::view_mut).collect::<Vec<_>>(), group);
        all
    }

    /// The number in one lane of a group.
    pub(crate) fn lane<R: Ring<Modulus = M>, F, S>(
        &self,
        group: &Group<R, F, S, impl Buffer>,
        lane: usize,
    ) -> Number<R, F, S, Lanes> {
        let mut number = self.number();
        self.copy_lane(number.view_mut(), group, lane);
        number
    }

    /// Copies the number in one lane of a group.
    pub(in crate::arith) fn copy_lane<R: Ring<Modulus = M>, F, S>(
        &self,
        mut to: Number<R, F, S, &mut [u64]>,
        group: &Group<R, F, S, impl Buffer>,
        lane: usize,
    ) {
        for (to, row) in to.digits_mut().iter_mut().zip(group.digits().chunks_exact(self.lanes())) {
            *to = row[lane];
        }
    }

    /// Puts a number into one lane of a group.
    pub(in crate::arith) fn set_lane<R: Ring<Modulus = M>, F, S>(
        &self,
        group: &mut Group<R, F, Loose, impl BufferMut>,
        lane: usize,
        x: &Number<R, F, S, impl Buffer>,
    ) {
        for (row, &digit) in group.digits_mut().chunks_exact_mut(self.lanes()).zip(x.digits()) {
            row[lane] = digit;
        }
    }
}
