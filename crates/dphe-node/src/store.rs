//! What a party keeps on disk. Every call returns only when its effect is durable.

pub mod postgres;
mod sqlite;

pub use sqlite::SqliteStore;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

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
    /// The address of the database cannot be read.
    #[error("the database's address cannot be read: {reason}")]
    Address {
        /// Why.
        reason: String,
    },
    /// The database says nothing.
    #[error("the database did not answer within {} s", patience.as_secs_f64())]
    Silent {
        /// How long it was waited for.
        patience: Duration,
    },
    /// Its tables are of a later version.
    #[error("the database has tables of version {found}, and this program knows version {known}")]
    Version {
        /// Theirs.
        found: usize,
        /// This program's latest.
        known: usize,
    },
    /// Its tables are of another roster.
    #[error("the tables in {schema} are of a task with another roster")]
    OtherRoster {
        /// Where they are.
        schema: String,
    },
    /// Another replica leads by now.
    #[error("another replica leads: this one was out of touch with the database")]
    Deposed,
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
            Self::Database(sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut) => {
                "see that the database runs, and can be reached from here".into()
            }
            Self::Database(_) => "see that the disk is not full or read-only; then start again".into(),
            Self::Address { .. } => "postgres://dphe@db.example.org/dphe?sslmode=verify-full, say".into(),
            Self::Silent { .. } => {
                "see that the database runs, can be reached from here, and is not overloaded".into()
            }
            Self::Version { .. } => "start the version of this program that the other replicas have".into(),
            Self::OtherRoster { .. } => "another database, or the kits that were made for this one".into(),
            Self::Deposed => "nothing: it goes on as one of the others".into(),
        })
    }
}

/// What came of a piece of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// More is needed, from here on.
    Stored(u64),
    /// It does not follow from what is there: so much is.
    Misplaced(u64),
    /// That was the last one.
    Whole(bytes::Bytes),
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

/// Rounds are counted one by one: none is beyond what a database can hold.
fn number(round: Round) -> i64 {
    i64::try_from(round.get()).unwrap_or(i64::MAX)
}

fn round_of(number: i64) -> Result<Round, StoreError> {
    u64::try_from(number).ok().and_then(Round::new).ok_or_else(damaged)
}

fn damaged() -> StoreError {
    StoreError::Database(sqlx::Error::Protocol("a row does not hold what it should".into()))
}
