//! The storage of a party: its log and its archive. Every write is durable when its call returns.

mod any;
#[cfg(feature = "postgres")]
pub mod postgres;
mod sqlite;

pub(crate) use any::AnyStore;
pub use sqlite::SqliteStore;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use dphe::wire::{max_sum_bytes, max_upload_bytes};
use dphe::{Digest, Round, TaskParams};
use zeroize::Zeroizing;

/// The length of the longest value that a store holds, in bytes. SQLite's own limit is 10^9.
pub const MAX_VALUE_BYTES: u64 = 900_000_000;

/// Checks that a store can hold everything that the parties of a task store: uploads, sums and models.
///
/// # Errors
/// [`StoreError::TaskTooLarge`].
pub fn check_task(task: &TaskParams) -> Result<(), StoreError> {
    let config = task.config();
    // besides its body, a message has a header and names every participant
    let participants = 1024 + 256 * u64::from(config.max_users);
    let sum = max_sum_bytes(task).saturating_add(participants);
    let all = [("upload", max_upload_bytes(task)), ("sum", sum), ("model", config.max_model_bytes.into())];
    match all.into_iter().find(|(_, bytes)| *bytes > MAX_VALUE_BYTES) {
        Some((what, bytes)) => Err(StoreError::TaskTooLarge { what, bytes }),
        None => Ok(()),
    }
}

/// Why data could not be stored or read. The party stops at such an error, because the state on disk is unknown.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process uses the directory.
    #[error("{} is in use by another process", directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory cannot be used.
    #[error("{} cannot be used as a data directory: {source}", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Other users can access the data.
    #[error(
        "{} must be owned by the current user and not accessible to others (mode is {mode:o}); it holds secrets",
        path.display()
    )]
    NotPrivate {
        /// The file or directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// SQLite returned an error.
    #[error("the data could not be stored or read: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL returned an error.
    #[cfg(feature = "postgres")]
    #[error("the data could not be stored or read: {0}")]
    Postgres(#[from] sqlx::Error),
    /// A row of the database has unexpected content.
    #[error("the database is damaged: a row has unexpected content")]
    Damaged,
    /// The thread that accessed the database ended early.
    #[error("access to the database was interrupted")]
    Interrupted,
    /// The URL of the database is invalid.
    #[error("the database URL is invalid: {reason}")]
    Address {
        /// What is wrong with it.
        reason: String,
    },
    /// A task has values that no store can hold.
    #[error("a {what} of this task may have {bytes} bytes, but a store holds at most {MAX_VALUE_BYTES}")]
    TaskTooLarge {
        /// What is too long.
        what: &'static str,
        /// Its length.
        bytes: u64,
    },
    /// The connection to the database would be readable for others.
    #[error(
        "the connection to the database on {host} does not use sslmode=verify-full, so others could read seeds and sums"
    )]
    Unverified {
        /// The host of the database.
        host: String,
    },
    /// The database did not answer in time.
    #[error("the database did not answer within {} s", after.as_secs_f64())]
    Timeout {
        /// The timeout.
        after: Duration,
    },
    /// The tables were created by a later version of this program.
    #[error("the database has tables of version {found}; this program supports versions up to {known}")]
    Version {
        /// The version of the tables.
        found: usize,
        /// The latest version that this program supports.
        known: usize,
    },
    /// The tables belong to another roster.
    #[error("the tables in {schema} belong to a task with another roster")]
    OtherRoster {
        /// The schema of the tables.
        schema: String,
    },
    /// Another replica has become the leader.
    #[error("another replica has become the leader, because this one lost contact with the database")]
    LeaseLost,
}

const DISK_HINT: &str = "Check that the disk is neither full nor read-only, then start the party again.";

impl StoreError {
    /// Returns what to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::InUse { .. } => "Stop the other process, or pass another directory with --data.".into(),
            Self::Directory { directory, .. } => {
                format!("Make {} a directory that this user may write to.", directory.display())
            }
            Self::NotPrivate { path, .. } => format!(
                "Run `chmod -R go= {0}`, or pass a new directory with --data. If other users could write to it, do not trust its content.",
                path.display()
            ),
            #[cfg(feature = "postgres")]
            Self::Postgres(sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut) => {
                "Check that the database runs and can be reached from this machine.".into()
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => DISK_HINT.into(),
            Self::Sqlite(_) | Self::Interrupted => DISK_HINT.into(),
            Self::Damaged => "Read the section on backups in docs/operations.md before you restore the data directory.".into(),
            Self::Address { .. } => {
                "Use a URL such as postgres://dphe@db.example.org/dphe?sslmode=verify-full.".into()
            }
            Self::TaskTooLarge { .. } => {
                "Choose a smaller share, larger blocks, or the profile `full`, whose updates are shorter.".into()
            }
            Self::Unverified { .. } => {
                "Add sslmode=verify-full to the URL, or pass --insecure-database if the network is protected in another way.".into()
            }
            Self::Timeout { .. } => {
                "Check that the database runs, can be reached from this machine, and is not overloaded."
                    .into()
            }
            Self::Version { .. } => "Start the version of this program that the other replicas run.".into(),
            Self::OtherRoster { .. } => {
                "Use another database, or the kits that this database was created with. If the roster has changed, run `dphe roster apply` on this replica's kit.".into()
            }
            Self::LeaseLost => "Do nothing. This replica continues as a follower.".into(),
        })
    }
}

/// The random number of a store, which tells it apart from other stores. A copy of a store has the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreId([u8; 16]);

impl StoreId {
    /// Creates a number from its bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Reads 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        crate::hex::decode(text).map(Self)
    }
}

impl std::fmt::Display for StoreId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::hex::encode(&self.0))
    }
}

/// What a store knows about itself and its party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AboutStore {
    /// The number of the store.
    pub id: StoreId,
    /// The hash of the roster that the party first started with, if it has started.
    pub roster: Option<Digest>,
}

/// The outcome of storing an upload chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkOutcome {
    /// The chunk is stored; the next one starts at this offset.
    Stored(u64),
    /// The chunk does not start at this offset, where the stored part ends. Nothing was stored.
    WrongOffset(u64),
    /// The chunk completes the upload.
    Complete(bytes::Bytes),
}

/// The log of a party (docs/protocol.md, section 9).
pub trait LogStore: Send + 'static {
    /// Returns what the store knows about itself and its party.
    fn about(&mut self) -> impl Future<Output = Result<AboutStore, StoreError>> + Send;

    /// Remembers the hash of the party's roster.
    fn remember_roster(&mut self, hash: Digest) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Stores the beginning of the log, unless the log has content already. Replicas may do this at the same time.
    fn begin_log(&mut self, bytes: &[u8]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Reads the whole log. A new log is empty.
    fn load(&mut self) -> impl Future<Output = Result<Zeroizing<Vec<u8>>, StoreError>> + Send;

    /// Appends bytes to the log.
    fn append(&mut self, bytes: &[u8]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Replaces the log atomically. The old content is overwritten as far as the engine allows.
    fn replace(&mut self, bytes: &[u8]) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// What a service keeps besides the log: models, round records and signed messages.
pub trait Archive: Send + 'static {
    /// Stores the model that a round starts from, replacing an earlier one of that round.
    fn put_model(
        &mut self,
        round: Round,
        digest: Digest,
        model: &[u8],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the model with this digest.
    fn model(&mut self, digest: Digest) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send;

    /// Returns the model of the latest round up to `round`, with that round.
    fn latest_model(
        &mut self,
        round: Round,
    ) -> impl Future<Output = Result<Option<(Round, Vec<u8>)>, StoreError>> + Send;

    /// Deletes the models of all rounds before `before`.
    fn forget_models(&mut self, before: Round) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Stores the record of a round as JSON.
    fn put_round_record(
        &mut self,
        round: Round,
        record: &str,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the records of rounds from `from` on, in ascending order.
    fn round_records(
        &mut self,
        from: Round,
    ) -> impl Future<Output = Result<Vec<(Round, String)>, StoreError>> + Send;

    /// Stores a signed message of a round. There is one per kind.
    fn put_message(
        &mut self,
        round: Round,
        kind: u8,
        message: &[u8],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the signed messages of one round as (kind, message).
    fn round_messages(
        &mut self,
        round: Round,
    ) -> impl Future<Output = Result<Vec<(u8, Vec<u8>)>, StoreError>> + Send;

    /// Returns the signed messages of rounds from `from` on as (round, kind, message), in ascending order.
    #[allow(clippy::type_complexity, reason = "a row of three columns")]
    fn messages(
        &mut self,
        from: Round,
    ) -> impl Future<Output = Result<Vec<(Round, u8, Vec<u8>)>, StoreError>> + Send;
}

/// Converts a round for the database. Rounds are counted one by one, so none exceeds the range.
fn round_to_i64(round: Round) -> i64 {
    i64::try_from(round.get()).unwrap_or(i64::MAX)
}

fn round_from_i64(number: i64) -> Result<Round, StoreError> {
    u64::try_from(number).ok().and_then(Round::new).ok_or(StoreError::Damaged)
}
