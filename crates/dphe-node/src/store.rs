//! What a party keeps on disk. Every call returns only when its effect is durable.

mod sqlite;

pub use sqlite::SqliteStore;

use std::future::Future;
use std::path::PathBuf;

use dphe::{Digest, Round};
use zeroize::Zeroizing;

/// Why something could not be stored or read. Whoever sees one stops: what is on disk is then not known.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the folder.
    #[error("{} is in use by another process", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder cannot be used.
    #[error("{} cannot be used for data: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Others can read it, or it is another's.
    #[error("{} is open to others (mode {mode:o}), or another user's: it holds secrets", path.display())]
    NotPrivate {
        /// The file or folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The database says no.
    #[error("the data could not be stored or read: {0}")]
    Database(#[from] sqlx::Error),
}

impl StoreError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::InUse { .. } => {
                "one process a folder: stop the other one, or give this one its own --data".into()
            }
            Self::Folder { folder, .. } => {
                format!("see that {} is a folder this user may write", folder.display())
            }
            Self::NotPrivate { path, .. } => format!(
                "chmod -R go= {0}, or a new folder with --data; if others could write to it, its content may be theirs",
                path.display()
            ),
            Self::Database(_) => "see that the disk is not full or read-only; then start again".into(),
        })
    }
}

/// The log of a party (docs/protocol.md, section 9).
pub trait LogStore: Send + 'static {
    /// The whole log; empty the first time.
    fn load(&mut self) -> impl Future<Output = Result<Zeroizing<Vec<u8>>, StoreError>> + Send;

    /// Appends to it.
    fn append(&mut self, bytes: &[u8]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Puts another log in its place, all or nothing. The old one is overwritten as far as that is possible.
    fn replace(&mut self, bytes: &[u8]) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// What the programs around the parties keep: models, what is told of rounds, signed messages.
pub trait Archive: Send + 'static {
    /// Keeps the model that a round starts from, in the place of any other of that round.
    fn put_model(
        &mut self,
        round: Round,
        digest: Digest,
        model: &[u8],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The model with this digest.
    fn model(&mut self, digest: Digest) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send;

    /// The model of the latest round up to this one, with the round.
    fn latest_model(
        &mut self,
        round: Round,
    ) -> impl Future<Output = Result<Option<(Round, Vec<u8>)>, StoreError>> + Send;

    /// Forgets the models of all rounds before this one.
    fn forget_models(&mut self, before: Round) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Keeps what is told of a round.
    fn put_report(
        &mut self,
        round: Round,
        report: &str,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What is told of rounds from this one on, ascending.
    fn reports(
        &mut self,
        from: Round,
    ) -> impl Future<Output = Result<Vec<(Round, String)>, StoreError>> + Send;

    /// Keeps a signed message of a round; of each kind one.
    fn put_message(
        &mut self,
        round: Round,
        kind: u8,
        message: &[u8],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The signed messages of rounds from this one on: round, kind, message; ascending.
    #[allow(clippy::type_complexity, reason = "three columns of a table")]
    fn messages(
        &mut self,
        from: Round,
    ) -> impl Future<Output = Result<Vec<(Round, u8, Vec<u8>)>, StoreError>> + Send;
}
