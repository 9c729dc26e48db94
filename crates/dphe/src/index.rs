//! Index matrices, and the frame their rows are numbered in.
//!
//! Row numbers mean nothing without knowing which permutations have been applied, so the frame is part of the
//! type: what has not been permuted twice cannot be put into a message.

use core::fmt;
use core::marker::PhantomData;

use zeroize::{Zeroize, Zeroizing};

use crate::permutation::{UserAggregatorPermutation, UserSharedPermutation};

mod sealed {
    pub trait Sealed {}
}

/// The frame in which the rows of an index matrix are numbered.
pub trait Frame: sealed::Sealed {}

macro_rules! frames {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        pub enum $name {}
        impl sealed::Sealed for $name {}
        impl Frame for $name {}
    )*};
}

frames! {
    /// Rows are positions of the weights.
    Original;
    /// After the user-shared permutation: the frame in which the aggregator sums.
    Permuted;
    /// After both permutations: the only frame that travels.
    DoublyPermuted;
}

/// `K` of `w = K v`: column `m` has its single one in row `rows[m]`; no row appears twice.
pub struct IndexMatrix<F: Frame> {
    rows: Zeroizing<Vec<u32>>,
    frame: PhantomData<F>,
}

impl<F: Frame> IndexMatrix<F> {
    pub(crate) fn from_rows(rows: Vec<u32>) -> Self {
        Self { rows: Zeroizing::new(rows), frame: PhantomData }
    }

    /// The number of columns.
    pub fn columns(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn rows(&self) -> &[u32] {
        &self.rows
    }

    fn renumbered<G: Frame>(self, table: &[u32]) -> IndexMatrix<G> {
        // every row is below the length of the table: checked where a matrix is made or read
        let rows = self.rows.iter().map(|&row| table[row as usize]).collect();
        IndexMatrix::from_rows(rows)
    }
}

impl IndexMatrix<Original> {
    /// `phi K`.
    pub fn permute(self, us: &UserSharedPermutation) -> IndexMatrix<Permuted> {
        self.renumbered(us.table())
    }
}

impl IndexMatrix<Permuted> {
    /// `phi(n) phi K` (equation 7).
    pub fn permute(self, ua: &UserAggregatorPermutation) -> IndexMatrix<DoublyPermuted> {
        self.renumbered(ua.table())
    }

    // Deliberately no way back to `Original`: only an opened *sum* is reordered.
}

impl IndexMatrix<DoublyPermuted> {
    /// Back to `phi K` (equation 8).
    pub fn reorder(self, ua: &UserAggregatorPermutation) -> IndexMatrix<Permuted> {
        self.renumbered(&ua.inverse())
    }
}

impl<F: Frame> Zeroize for IndexMatrix<F> {
    fn zeroize(&mut self) {
        self.rows.zeroize();
    }
}

impl<F: Frame> fmt::Debug for IndexMatrix<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexMatrix({} columns, <redacted>)", self.columns())
    }
}
