use std::path::PathBuf;

use thiserror::Error;

/// Why an experiment could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Learning, splitting or measuring failed.
    #[error(transparent)]
    Learn(#[from] dphe_learn::Error),
    /// A round failed.
    #[error(transparent)]
    Federate(#[from] dphe_federate::Error),
    /// The protocol refused something.
    #[error(transparent)]
    Protocol(#[from] dphe::Error),
    /// Encryption refused something.
    #[error(transparent)]
    Paillier(#[from] dphe_paillier::Error),
    /// A file of a real data set that is not there, or not what it should be.
    #[error("{}: {what}; expected {expected}, see docs/reproduction.md#{anchor}", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// The layout.
        expected: &'static str,
        /// The section that says how to get and lay out the data.
        anchor: &'static str,
    },
    /// A run that the experiment does not have.
    #[error("the experiment has no run {0:?}")]
    UnknownRun(String),
}
