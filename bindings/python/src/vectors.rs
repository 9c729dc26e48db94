//! Selection of the largest numbers of a vector.

use dphe_learn::select;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::Elements;
use crate::errors::invalid;
use crate::interrupt::uninterrupted;

/// Returns the indices of the `count` numbers of largest magnitude, ascending, as 64-bit integers.
#[pyfunction]
pub(crate) fn largest<'py>(
    py: Python<'py>,
    values: Elements<f64>,
    count: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    check_finite(&values)?;
    let chosen = uninterrupted(py, || select::largest(&values, count))?;
    indices(py, &chosen)
}

/// Returns the numbers of the `count` blocks of largest length, ascending, as 64-bit integers.
#[pyfunction]
pub(crate) fn largest_blocks<'py>(
    py: Python<'py>,
    values: Elements<f64>,
    width: usize,
    count: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    check_finite(&values)?;
    let chosen = uninterrupted(py, || select::largest_blocks(&values, width, count))?;
    indices(py, &chosen)
}

fn check_finite(values: &[f64]) -> PyResult<()> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(index) => Err(invalid(format!("value {index} is not a finite number"), "value")),
    }
}

fn indices<'py>(py: Python<'py>, chosen: &[usize]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, 8 * chosen.len(), |bytes| {
        for (place, &index) in bytes.as_chunks_mut().0.iter_mut().zip(chosen) {
            *place = (index as i64).to_ne_bytes();
        }
        Ok(())
    })
}
