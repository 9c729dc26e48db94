//! What a user wants to add: sparse weights, and a few dense values.

use core::fmt;

use zeroize::Zeroizing;

use crate::Error;

/// A vector of weights most of which are zero. It is somebody's secret: wiped when dropped, not serialisable,
/// printed as its size only.
#[derive(Clone)]
pub struct SparseVector {
    dimension: usize,
    /// Ascending, distinct, below `dimension`.
    indices: Zeroizing<Vec<u32>>,
    values: Zeroizing<Vec<f64>>,
}

impl SparseVector {
    /// The vector with these values at these indices, which must be ascending.
    ///
    /// # Errors
    /// [`Error::Dimension`] if there is not one value for each index or an index lies beyond the dimension, [`Error::Value`] if
    /// indices are not ascending. (Values are checked when they are sealed.)
    pub fn new(dimension: usize, indices: Vec<u32>, values: Vec<f64>) -> Result<Self, Error> {
        let (indices, values) = (Zeroizing::new(indices), Zeroizing::new(values));
        if indices.len() != values.len() {
            return Err(Error::Dimension { what: "values", expected: indices.len(), found: values.len() });
        }
        if let Some(index) = (1..indices.len()).find(|&i| indices[i - 1] >= indices[i]) {
            return Err(Error::Value { index, reason: "at an index that is not above the one before" });
        }
        if let Some(&last) = indices.last()
            && last as usize >= dimension
        {
            return Err(Error::Dimension { what: "indices", expected: dimension, found: last as usize + 1 });
        }
        Ok(Self { dimension, indices, values })
    }

    /// The non-zeros of a dense vector.
    ///
    /// # Errors
    /// [`Error::Dimension`] if it is longer than indices reach.
    pub fn from_dense(weights: &[f64]) -> Result<Self, Error> {
        let most = u32::MAX as usize;
        if weights.len() > most {
            return Err(Error::Dimension { what: "weights", expected: most, found: weights.len() });
        }
        // NaN is no zero: it stays, to be refused by name
        let occupied = || weights.iter().enumerate().filter(|&(_, &w)| w != 0.0);
        Ok(Self {
            dimension: weights.len(),
            indices: Zeroizing::new(occupied().map(|(i, _)| i as u32).collect()),
            values: Zeroizing::new(occupied().map(|(_, &w)| w).collect()),
        })
    }

    /// Its length, zeros included.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// How many entries it stores.
    pub fn nonzeros(&self) -> usize {
        self.indices.len()
    }

    pub(crate) fn indices(&self) -> &[u32] {
        &self.indices
    }

    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }
}

impl fmt::Debug for SparseVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SparseVector({} entries, <redacted>)", self.dimension)
    }
}

/// What one user adds in one round: weights, and the values that travel densely (intercepts, counts).
#[derive(Clone, Debug)]
pub struct LocalUpdate {
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

impl LocalUpdate {
    /// Weights alone.
    pub fn new(weights: SparseVector) -> Self {
        Self { weights, dense: DenseValues(Zeroizing::new(Vec::new())) }
    }

    /// The same with these dense values.
    #[must_use]
    pub fn with_dense(self, values: Vec<f64>) -> Self {
        Self { dense: DenseValues(Zeroizing::new(values)), ..self }
    }

    /// The weights.
    pub fn weights(&self) -> &SparseVector {
        &self.weights
    }

    pub(crate) fn dense(&self) -> &[f64] {
        &self.dense.0
    }
}
