//! Why a party cannot start, or had to stop, and what to try.

use crate::http::client::ClientError;
use crate::key_file::KeyFileError;
use crate::kit::KitError;
use crate::store::StoreError;
use crate::task_file::TaskFileError;

/// An error of a party's program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The task file's.
    #[error(transparent)]
    TaskFile(#[from] TaskFileError),
    /// The kit's.
    #[error(transparent)]
    Kit(#[from] KitError),
    /// A file's.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The disk's.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The protocol's.
    #[error(transparent)]
    Protocol(#[from] dphe::Error),
    /// A key's.
    #[error(transparent)]
    Paillier(#[from] dphe_paillier::Error),
    /// The learner's.
    #[error(transparent)]
    Federate(#[from] dphe_federate::Error),
    /// Of talking to a service.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A certificate that cannot be made or used.
    #[error("certificates: {reason}")]
    Certificate {
        /// Why.
        reason: String,
    },
    /// A TLS key or certificate that cannot be used.
    #[error("certificates: {0}")]
    Tls(rustls::Error),
    /// A model file's.
    #[error(transparent)]
    ModelFile(#[from] crate::model::ModelError),
    /// A model that cannot be read.
    #[error("not a model: {reason}")]
    Model {
        /// Why.
        reason: &'static str,
    },
    /// Data that cannot be read.
    #[error("{file}: {reason}")]
    Data {
        /// The file, with the line where there is one.
        file: String,
        /// Why.
        reason: String,
    },
    /// A data folder that cannot be copied.
    #[error("{} cannot be copied: {reason}", folder.display())]
    Backup {
        /// The folder.
        folder: std::path::PathBuf,
        /// Why.
        reason: String,
    },
    /// An address that cannot be listened on.
    #[error("{address} cannot be listened on: {source}")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// No random numbers.
    #[error("no random bytes from the operating system: {0}")]
    Randomness(getrandom::Error),
    /// What cannot be.
    #[error("internal error: {what}")]
    Unexpected {
        /// What.
        what: &'static str,
    },
}

impl Error {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::TaskFile(error) => error.hint(),
            Self::Kit(error) => error.hint(),
            Self::KeyFile(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Federate(error) => error.advice().map(str::to_owned),
            Self::Listen { .. } => Some("another --listen, or stop what listens there already".into()),
            Self::Protocol(dphe::Error::Storage { .. }) => {
                Some("each party has its own --data folder; a damaged one is restored from a backup, or not at all".into())
            }
            Self::Paillier(dphe_paillier::Error::KeySealed) => {
                Some("the passphrase given to `dphe keygen`, with --passphrase-file".into())
            }
            Self::Backup { .. } => Some("try again, or stop the party first; `dphe verify` says what holds of a folder".into()),
            Self::Client(_) => Some("`dphe doctor` says what can be reached from here".into()),
            Self::Certificate { .. } | Self::Tls(_) => Some("`dphe doctor` looks at every file of a kit".into()),
            _ => None,
        }
    }
}
