//! The error of a party's program, with hints.

use crate::http::client::ClientError;
use crate::key_file::KeyFileError;
use crate::kit::KitError;
use crate::store::StoreError;
use crate::task_file::TaskFileError;

/// Why a party cannot start, or had to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The task file is invalid.
    #[error(transparent)]
    TaskFile(#[from] TaskFileError),
    /// The kit is invalid.
    #[error(transparent)]
    Kit(#[from] KitError),
    /// A key file cannot be read or written.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// Data cannot be stored or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The protocol refused something.
    #[error(transparent)]
    Protocol(#[from] dphe::Error),
    /// A Paillier key cannot be used.
    #[error(transparent)]
    Paillier(#[from] dphe_paillier::Error),
    /// The learner failed.
    #[error(transparent)]
    Federate(#[from] dphe_federate::Error),
    /// A request to a service failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(rustls::Error),
    /// A model file cannot be read or written.
    #[error(transparent)]
    ModelFile(#[from] crate::model::ModelError),
    /// A model of named tensors cannot be used.
    #[error(transparent)]
    Tensors(#[from] crate::tensors::TensorError),
    /// The trainer failed.
    #[error(transparent)]
    Trainer(#[from] crate::command_trainer::TrainerError),
    /// The bytes are not a valid model.
    #[error("the model is invalid: {reason}")]
    Model {
        /// The cause.
        reason: &'static str,
    },
    /// A data file cannot be read.
    #[error("{file}: {reason}")]
    Data {
        /// The file, with the line if there is one.
        file: String,
        /// The cause.
        reason: String,
    },
    /// A data directory cannot be copied.
    #[error("{} cannot be copied: {reason}", directory.display())]
    Backup {
        /// The directory.
        directory: std::path::PathBuf,
        /// The cause.
        reason: String,
    },
    /// The service cannot listen on its address.
    #[error("the service cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The operating system did not provide random bytes.
    #[error("the operating system did not provide random bytes: {0}")]
    Randomness(getrandom::Error),
    /// A bug.
    #[error("internal error: {what}")]
    Unexpected {
        /// What happened.
        what: &'static str,
    },
}

impl Error {
    /// Returns what to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::TaskFile(error) => error.hint(),
            Self::Kit(error) => error.hint(),
            Self::KeyFile(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Tensors(error) => error.hint(),
            Self::Trainer(error) => Some(error.hint().to_owned()),
            Self::Federate(error) => error.hint().map(str::to_owned),
            Self::Listen { .. } => {
                Some("Pass another address with --listen, or stop the program that uses this one.".into())
            }
            Self::Protocol(dphe::Error::Storage { reason }) if reason.contains("roster") => Some(
                "Run `dphe roster apply` with all changes of the roster on this party's kit, in their order. If it has \
                 them, its data directory is older than its kit."
                    .into(),
            ),
            Self::Protocol(dphe::Error::Storage { reason }) if reason.contains("protocol") => Some(
                "Finish the task with the version that started it. Or start a new task from its last model with `dphe \
                 init --model`, with new kits from `dphe keygen` and new data directories."
                    .into(),
            ),
            Self::Protocol(dphe::Error::Storage { .. }) => Some(
                "Give each party its own --data directory. If a directory is damaged, read the section on backups in \
                 docs/operations.md before you restore it."
                    .into(),
            ),
            Self::Protocol(dphe::Error::Roster) => {
                Some("Run `dphe roster apply` with the latest change on the kits of all parties, and start them again.".into())
            }
            Self::Paillier(dphe_paillier::Error::KeyEncrypted) => {
                Some("Use --passphrase-file to pass the passphrase that was given to `dphe keygen`.".into())
            }
            Self::Backup { .. } => Some(
                "Try again, or stop the party first. Run `dphe verify` to check a data directory.".into(),
            ),
            Self::Client(_) => Some("Run `dphe doctor` to see which services can be reached.".into()),
            Self::Tls(_) => Some("Run `dphe doctor` to check the files of the kit.".into()),
            _ => None,
        }
    }
}
