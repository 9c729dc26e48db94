//! The update of a user before it is sealed: sparse weights and dense values.

use core::fmt;

use zeroize::Zeroizing;

use crate::Error;

/// A vector of weights, most of which are zero. It is a user's secret: it is wiped when dropped, cannot be serialised,
/// and `Debug` prints only its size.
#[derive(Clone)]
pub struct SparseVector {
    dimension: usize,
    /// Ascending, distinct, below `dimension`.
    indices: Zeroizing<Vec<u32>>,
    values: Zeroizing<Vec<f64>>,
}

impl SparseVector {
    /// Creates a vector with these values at these ascending indices.
    ///
    /// # Errors
    /// [`Error::Dimension`] if the numbers of indices and values differ or an index is beyond the dimension,
    /// [`Error::Value`] if indices are not ascending. Values are checked when they are sealed.
    pub fn new(dimension: usize, indices: Vec<u32>, values: Vec<f64>) -> Result<Self, Error> {
        let (indices, values) = (Zeroizing::new(indices), Zeroizing::new(values));
        if indices.len() != values.len() {
            return Err(Error::Dimension { what: "values", expected: indices.len(), found: values.len() });
        }
        if let Some(index) = (1..indices.len()).find(|&i| indices[i - 1] >= indices[i]) {
            return Err(Error::Value {
                index,
                reason: "out of order: its index is not larger than the one before",
            });
        }
        if let Some(&last) = indices.last()
            && last as usize >= dimension
        {
            return Err(Error::Dimension { what: "indices", expected: dimension, found: last as usize + 1 });
        }
        Ok(Self { dimension, indices, values })
    }

    /// Collects the non-zeros of a dense vector.
    ///
    /// # Errors
    /// [`Error::Dimension`] if the vector has more than 2^32 - 1 entries.
    pub fn from_dense(weights: &[f64]) -> Result<Self, Error> {
        let most = u32::MAX as usize;
        if weights.len() > most {
            return Err(Error::Dimension { what: "weights", expected: most, found: weights.len() });
        }
        // NaN differs from zero, so it is kept, and refused when it is sealed
        let occupied = || weights.iter().enumerate().filter(|&(_, &w)| w != 0.0);
        Ok(Self {
            dimension: weights.len(),
            indices: Zeroizing::new(occupied().map(|(i, _)| i as u32).collect()),
            values: Zeroizing::new(occupied().map(|(_, &w)| w).collect()),
        })
    }

    /// Returns the length, zeros included.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Returns the number of stored entries. An entry may be zero.
    pub fn entries(&self) -> usize {
        self.indices.len()
    }

    /// Returns the indices of the stored entries, ascending.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// Returns the stored entries, in the order of [`indices`](Self::indices).
    pub fn values(&self) -> &[f64] {
        &self.values
    }
}

impl fmt::Debug for SparseVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SparseVector({} entries, <redacted>)", self.dimension)
    }
}

/// The update of one user in a round: weights, and dense values such as intercepts.
#[derive(Clone, Debug)]
pub struct Update {
    weights: SparseVector,
    dense: DenseValues,
}

#[derive(Clone)]
struct DenseValues(Zeroizing<Vec<f64>>);

impl fmt::Debug for DenseValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

impl Update {
    /// Creates an update without dense values.
    pub fn new(weights: SparseVector) -> Self {
        Self { weights, dense: DenseValues(Zeroizing::new(Vec::new())) }
    }

    /// Sets the dense values.
    #[must_use]
    pub fn with_dense(self, values: Vec<f64>) -> Self {
        Self { dense: DenseValues(Zeroizing::new(values)), ..self }
    }

    /// Returns the weights.
    pub fn weights(&self) -> &SparseVector {
        &self.weights
    }

    /// Returns the dense values.
    pub fn dense(&self) -> &[f64] {
        &self.dense.0
    }
}
