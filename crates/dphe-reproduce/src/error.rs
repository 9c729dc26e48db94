use std::path::PathBuf;

use thiserror::Error;

/// The reason why an experiment cannot run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Training, splitting or measuring failed.
    #[error(transparent)]
    Learn(#[from] dphe_learn::Error),
    /// A round failed.
    #[error(transparent)]
    Federate(#[from] dphe_federate::Error),
    /// The protocol returned an error.
    #[error(transparent)]
    Protocol(#[from] dphe::Error),
    /// Encryption returned an error.
    #[error(transparent)]
    Paillier(#[from] dphe_paillier::Error),
    /// A file of a data set is missing or malformed.
    #[error("{}: {what}; expected {expected}, see docs/reproduction.md#{anchor}", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
        /// The expected layout.
        expected: &'static str,
        /// The section that explains how to get and arrange the data.
        anchor: &'static str,
    },
    /// The experiment has no such run.
    #[error("the experiment has no run {0:?}")]
    UnknownRun(String),
}
