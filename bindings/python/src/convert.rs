//! Buffers, threads and factors from Python.

use std::ops::Range;

use dphe_paillier::{EncryptionKey, Error, Plaintext, Threads, simple};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use zeroize::{Zeroize, Zeroizing};

use crate::errors::{exception, invalid};

/// Returns the number of threads that Python asks for. `None` stands for all cores.
pub(crate) fn threads(count: Option<usize>) -> PyResult<Threads> {
    match count {
        None => Ok(Threads::all()),
        Some(0) => Err(invalid("a call needs at least one thread", "threads")),
        Some(count) => Ok(Threads::new(count)),
    }
}

/// The elements of a Python buffer. They are copied, because Python may change the buffer while a call computes. The
/// copy is small beside the ciphertexts, and is wiped when dropped.
pub(crate) struct Elements<T: Zeroize>(Zeroizing<Vec<T>>);

impl<T: Zeroize> Elements<T> {
    /// Returns the elements, which are not wiped any more.
    pub(crate) fn into_vec(mut self) -> Vec<T> {
        std::mem::take(&mut *self.0)
    }
}

impl<T: Zeroize> std::ops::Deref for Elements<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'py, T: Element + Zeroize> FromPyObject<'_, 'py> for Elements<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let elements = PyBuffer::get(&object)?.to_vec(object.py())?;
        Ok(Self(Zeroizing::new(elements)))
    }
}

/// Copies results into a contiguous buffer of the same length that Python can write to.
pub(crate) fn write<T: Element>(py: Python<'_>, buffer: &PyBuffer<T>, values: &[T]) -> PyResult<()> {
    if buffer.item_count() != values.len() {
        return Err(invalid("the result array has another length", "length"));
    }
    buffer.copy_from_slice(py, values)
}

/// Numbers to encrypt or to add, in one of the forms in which Python passes them.
pub(crate) enum Numbers {
    /// 64-bit integers.
    Integers(Elements<i64>),
    /// Fractions, and how many bits after the binary point are kept.
    Fractions(Elements<f64>, u32),
    /// Residues modulo `n`: big-endian, each in as many bytes as `n` has.
    Residues(Zeroizing<Vec<u8>>),
}

impl Numbers {
    /// Returns how many there are.
    pub(crate) fn count(&self, key: &EncryptionKey) -> usize {
        match self {
            Self::Integers(elements) => elements.len(),
            Self::Fractions(elements, _) => elements.len(),
            Self::Residues(bytes) => bytes.len() / key.modulus_bytes(),
        }
    }

    /// Returns the numbers of a range as integers, which fractions become too.
    pub(crate) fn integers(&self, range: Range<usize>) -> Result<Zeroizing<Vec<i128>>, Error> {
        let integers = match self {
            Self::Integers(elements) => elements[range].iter().map(|&integer| integer.into()).collect(),
            Self::Fractions(elements, bits) => elements[range.clone()]
                .iter()
                .zip(range)
                .map(|(&fraction, index)| simple::fixed_point(index, fraction, *bits))
                .collect::<Result<_, _>>()?,
            Self::Residues(_) => {
                return Err(Error::Number { index: range.start, reason: "is too large to be packed" });
            }
        };
        Ok(Zeroizing::new(integers))
    }

    /// Returns the plaintexts of a range.
    pub(crate) fn plaintexts(&self, range: Range<usize>, key: &EncryptionKey) -> PyResult<Vec<Plaintext>> {
        let width = key.modulus_bytes();
        let plaintexts: Result<_, _> = match self {
            Self::Residues(bytes) => bytes[range.start * width..range.end * width]
                .chunks_exact(width)
                .map(|residue| Plaintext::from_residue_bytes(key, residue))
                .collect(),
            _ => self
                .integers(range)
                .and_then(|integers| integers.iter().map(|&integer| Plaintext::new(key, integer)).collect()),
        };
        plaintexts.map_err(exception)
    }
}

impl<'py> FromPyObject<'_, 'py> for Numbers {
    type Error = PyErr;

    /// Reads a pair: the data, and `None` for integers, the number of fractional bits, or a negative number for
    /// residues.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (data, bits): (Bound<'py, PyAny>, Option<i64>) = object.extract()?;
        match bits {
            None => Ok(Self::Integers(data.extract()?)),
            Some(bits) => match u32::try_from(bits) {
                Ok(bits) => Ok(Self::Fractions(data.extract()?, bits)),
                Err(_) => Ok(Self::Residues(Zeroizing::new(data.extract()?))),
            },
        }
    }
}
