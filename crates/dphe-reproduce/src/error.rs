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
}
