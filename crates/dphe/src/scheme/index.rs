//! Index matrices. Their type says which permutations have been applied to their rows, so that indices which were not
//! permuted twice cannot be sent.

use core::fmt;
use core::marker::PhantomData;

use zeroize::{Zeroize, Zeroizing};

use crate::scheme::permutation::{UserAggregatorPermutation, UserSharedPermutation};

mod sealed {
    pub trait Sealed {}
}

/// The numbering of the rows of an index matrix.
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
    /// Rows are positions of the task.
    Original;
    /// After the user-shared permutation. The aggregator sums in this numbering.
    OncePermuted;
    /// After both permutations. Only such indices are sent.
    DoublyPermuted;
}

/// `K` in `w = K v`. Column `m` has its only one in row `rows[m]`, and rows are distinct.
pub struct IndexMatrix<F: Frame> {
    rows: Zeroizing<Vec<u32>>,
    frame: PhantomData<F>,
}

impl<F: Frame> IndexMatrix<F> {
    pub(crate) fn from_rows(rows: Vec<u32>) -> Self {
        Self { rows: Zeroizing::new(rows), frame: PhantomData }
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn rows(&self) -> &[u32] {
        &self.rows
    }

    fn renumbered<G: Frame>(self, table: &[u32]) -> IndexMatrix<G> {
        // rows were checked against the number of positions when the matrix was created or read
        let rows = self.rows.iter().map(|&row| table[row as usize]).collect();
        IndexMatrix::from_rows(rows)
    }
}

impl IndexMatrix<Original> {
    /// Applies the user-shared permutation: `phi K`.
    pub fn permute(self, us: &UserSharedPermutation) -> IndexMatrix<OncePermuted> {
        self.renumbered(us.table())
    }
}

impl IndexMatrix<OncePermuted> {
    /// Applies the user-aggregator permutation: `phi(n) phi K` (equation 7).
    pub fn permute(self, ua: &UserAggregatorPermutation) -> IndexMatrix<DoublyPermuted> {
        self.renumbered(ua.table())
    }

    // There is deliberately no method that returns to `Original`. Only an opened sum is reordered.
}

impl IndexMatrix<DoublyPermuted> {
    /// Undoes the user-aggregator permutation: `phi K` (equation 8).
    pub fn reorder(self, ua: &UserAggregatorPermutation) -> IndexMatrix<OncePermuted> {
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
