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

/// Returns the exception of an error in a round of learning.
pub(crate) fn learning(error: dphe_federate::Error) -> PyErr {
    use dphe_federate::Error as Learning;
    let text = match error.hint() {
        Some(hint) => format!("{error}. {hint}"),
        None => error.to_string(),
    };
    match error {
        Learning::Protocol(dphe::Error::Key(error)) => exception(error),
        Learning::Protocol(error) => {
            let arguments = (text, error.code().as_str());
            match error {
                dphe::Error::RoundFailed => PyErr::new::<RoundFailed, _>(arguments),
                dphe::Error::SetSmall { .. } => PyErr::new::<TooFewUsers, _>(arguments),
                _ => PyErr::new::<InvalidValue, _>(arguments),
            }
        }
        Learning::TooFewUsers { .. } => PyErr::new::<TooFewUsers, _>((text, "set_small")),
        Learning::OfUser { user, source } => {
            PyErr::new::<InvalidValue, _>((text, learner(&source), user + 1))
        }
        Learning::Learn(source) => PyErr::new::<InvalidValue, _>((text, learner(&source))),
        Learning::Parameter { .. } => PyErr::new::<InvalidValue, _>((text, "parameter")),
        _ => PyErr::new::<InvalidValue, _>((text, "task")),
    }
}

/// Returns the code of a learner's error.
fn learner(error: &dphe_learn::Error) -> &'static str {
    use dphe_learn::Error as Learner;
    match error {
        Learner::FeatureNotFinite { .. } | Learner::NotFinite { .. } => "number",
        Learner::Parameter { .. } => "parameter",
        Learner::Diverged { .. } => "diverged",
        Learner::Empty { .. } | Learner::TooFewSamples { .. } => "samples",
        _ => "shape",
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
