//! Rust's errors as the exceptions of `dphe.errors`.

use dphe_paillier::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::{PyErr, import_exception};

import_exception!(dphe.errors, DpheError);
import_exception!(dphe.errors, InvalidValue);
import_exception!(dphe.errors, KeyMismatch);
import_exception!(dphe.errors, Refused);
import_exception!(dphe.errors, RoundFailed);
import_exception!(dphe.errors, TooFewUsers);

/// Returns the exception of an error, with its message and its code.
pub(crate) fn exception(error: Error) -> PyErr {
    let arguments = (error.to_string(), error.code());
    match error {
        Error::KeyMismatch => PyErr::new::<KeyMismatch, _>(arguments),
        Error::Randomness => PyErr::new::<DpheError, _>(arguments),
        Error::Decryption | Error::KeyEncrypted | Error::Cancelled => PyErr::new::<Refused, _>(arguments),
        _ => PyErr::new::<InvalidValue, _>(arguments),
    }
}

/// Returns the exception of an error of the protocol, with its message, its code and the user who caused it.
pub(crate) fn protocol_exception(error: dphe::Error) -> PyErr {
    use dphe::Error as Protocol;
    let culprit = error.culprit().map(dphe::UserId::get);
    let arguments = (error.to_string(), error.code().as_str(), culprit);
    match error {
        Protocol::Key(Error::KeyMismatch) | Protocol::KeyId { .. } => PyErr::new::<KeyMismatch, _>(arguments),
        Protocol::SetSmall { .. } => PyErr::new::<TooFewUsers, _>(arguments),
        Protocol::RoundFailed | Protocol::Check | Protocol::Range => PyErr::new::<RoundFailed, _>(arguments),
        Protocol::Committed | Protocol::Conflict { .. } | Protocol::Order { .. } => {
            PyErr::new::<Refused, _>(arguments)
        }
        _ => PyErr::new::<InvalidValue, _>(arguments),
    }
}

/// Returns the exception for a value that the binding itself refuses.
pub(crate) fn invalid(message: impl Into<String>, code: &'static str) -> PyErr {
    PyErr::new::<InvalidValue, _>((message.into(), code))
}

/// Returns the exception for a panic, which is always a mistake of this library.
pub(crate) fn bug() -> PyErr {
    PyErr::new::<PyRuntimeError, _>("this is a bug in dphe: the native part panicked")
}
