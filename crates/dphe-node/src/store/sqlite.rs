//! SQLite: one file, written ahead, synced at every commit.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use dphe::{Digest, Round};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteLockingMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, Row as _, SqliteConnection};
use zeroize::Zeroizing;

use super::{Archive, LogStore, StoreError, damaged, number, round_of};

const FILE: &str = "dphe.sqlite";
const LOCK: &str = "dphe.lock";

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS models (round INTEGER PRIMARY KEY, digest BLOB NOT NULL, bytes BLOB NOT NULL);
    CREATE INDEX IF NOT EXISTS models_by_digest ON models (digest);
    CREATE TABLE IF NOT EXISTS reports (round INTEGER PRIMARY KEY, json TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS messages (
        round INTEGER NOT NULL, kind INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (round, kind));
";

/// A store in a folder of its own.
#[derive(Debug)]
pub struct SqliteStore {
    connection: SqliteConnection,
    folder: PathBuf,
    /// Held as long as this is: the operating system lets go of it when the process ends, however it does.
    _lock: Option<File>,
}

impl SqliteStore {
    /// Opens the store of a folder, which is made if need be.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if another process has it, [`StoreError::Folder`] if it cannot be written.
    pub async fn open(folder: &Path) -> Result<Self, StoreError> {
        let error = |source| StoreError::Folder { folder: folder.into(), source };
        make_private(folder).map_err(error)?;
        // a folder may be looked into; what lies in it is for its owner
        only_ours(&std::fs::metadata(folder).map_err(error)?, folder, 0o022)?;
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let lock = options.open(folder.join(LOCK)).map_err(error)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse { folder: folder.into() }),
            Err(TryLockError::Error(source)) => return Err(error(source)),
        }
        let path = folder.join(FILE);
        let mut options = File::options();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // made before SQLite does, so that nobody else can read it at any time; its companions take its mode
        let file = options.open(&path).map_err(error)?;
        only_ours(&file.metadata().map_err(error)?, &path, 0o077)?;
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .locking_mode(SqliteLockingMode::Exclusive)
            .pragma("secure_delete", "ON")
            .disable_statement_logging();
        let mut connection = SqliteConnection::connect_with(&options).await?;
        connection.execute(SCHEMA).await?;
        Ok(Self { connection, folder: folder.into(), _lock: Some(lock) })
    }

    /// Opens a copy of a store to look at it; nothing is written.
    ///
    /// # Errors
    /// [`StoreError`] if there is none, or it is in use.
    pub async fn open_read_only(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(FILE);
        let error = |source| StoreError::Folder { folder: folder.into(), source };
        std::fs::metadata(&path).map_err(error)?;
        let options = SqliteConnectOptions::new().filename(&path).read_only(true).disable_statement_logging();
        let connection = SqliteConnection::connect_with(&options).await?;
        Ok(Self { connection, folder: folder.into(), _lock: None })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Closes it properly.
    ///
    /// # Errors
    /// If the last write-ahead file cannot be folded in; nothing is lost then.
    pub async fn close(self) -> Result<(), StoreError> {
        Ok(self.connection.close().await?)
    }
}

impl LogStore for SqliteStore {
    async fn load(&mut self) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let rows = sqlx::query("SELECT bytes FROM log ORDER BY seq").fetch_all(&mut self.connection).await?;
        let parts = rows.iter().map(|row| row.try_get::<&[u8], _>(0)).collect::<Result<Vec<_>, _>>()?;
        let mut log = Zeroizing::new(Vec::with_capacity(parts.iter().map(|part| part.len()).sum()));
        parts.into_iter().for_each(|part| log.extend_from_slice(part));
        Ok(log)
    }

    async fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        sqlx::query("INSERT INTO log (bytes) VALUES (?)").bind(bytes).execute(&mut self.connection).await?;
        Ok(())
    }

    async fn replace(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let mut transaction = self.connection.begin().await?;
        sqlx::query("DELETE FROM log").execute(&mut *transaction).await?;
        sqlx::query("INSERT INTO log (bytes) VALUES (?)").bind(bytes).execute(&mut *transaction).await?;
        transaction.commit().await?;
        // seeds of rounds that are over do not stay in the write-ahead file either
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut self.connection).await?;
        Ok(())
    }
}

impl Archive for SqliteStore {
    async fn put_model(&mut self, round: Round, digest: Digest, model: &[u8]) -> Result<(), StoreError> {
        sqlx::query("INSERT OR REPLACE INTO models (round, digest, bytes) VALUES (?, ?, ?)")
            .bind(number(round))
            .bind(&digest.as_bytes()[..])
            .bind(model)
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    async fn model(&mut self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let row = sqlx::query("SELECT bytes FROM models WHERE digest = ? LIMIT 1")
            .bind(&digest.as_bytes()[..])
            .fetch_optional(&mut self.connection)
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    async fn latest_model(&mut self, round: Round) -> Result<Option<(Round, Vec<u8>)>, StoreError> {
        let row = sqlx::query("SELECT round, bytes FROM models WHERE round <= ? ORDER BY round DESC LIMIT 1")
            .bind(number(round))
            .fetch_optional(&mut self.connection)
            .await?;
        row.map(|row| Ok((round_of(row.try_get(0)?)?, row.try_get(1)?))).transpose()
    }

    async fn forget_models(&mut self, before: Round) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM models WHERE round < ?")
            .bind(number(before))
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    async fn put_report(&mut self, round: Round, report: &str) -> Result<(), StoreError> {
        sqlx::query("INSERT OR REPLACE INTO reports (round, json) VALUES (?, ?)")
            .bind(number(round))
            .bind(report)
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    async fn reports(&mut self, from: Round) -> Result<Vec<(Round, String)>, StoreError> {
        let rows = sqlx::query("SELECT round, json FROM reports WHERE round >= ? ORDER BY round")
            .bind(number(from))
            .fetch_all(&mut self.connection)
            .await?;
        rows.iter().map(|row| Ok((round_of(row.try_get(0)?)?, row.try_get(1)?))).collect()
    }

    async fn put_message(&mut self, round: Round, kind: u8, message: &[u8]) -> Result<(), StoreError> {
        sqlx::query("INSERT OR REPLACE INTO messages (round, kind, bytes) VALUES (?, ?, ?)")
            .bind(number(round))
            .bind(i64::from(kind))
            .bind(message)
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    async fn messages(&mut self, from: Round) -> Result<Vec<(Round, u8, Vec<u8>)>, StoreError> {
        let rows =
            sqlx::query("SELECT round, kind, bytes FROM messages WHERE round >= ? ORDER BY round, kind")
                .bind(number(from))
                .fetch_all(&mut self.connection)
                .await?;
        rows.iter()
            .map(|row| {
                let kind = u8::try_from(row.try_get::<i64, _>(1)?).map_err(|_| damaged())?;
                Ok((round_of(row.try_get(0)?)?, kind, row.try_get(2)?))
            })
            .collect()
    }
}

/// Seeds and private numbers lie here: others must not be able to read them, or to put their own in their place.
#[cfg(unix)]
fn only_ours(metadata: &std::fs::Metadata, path: &Path, forbidden: u32) -> Result<(), StoreError> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let (mode, owner) = (metadata.permissions().mode() & 0o777, metadata.uid());
    if mode & forbidden != 0 || owner != rustix::process::geteuid().as_raw() {
        return Err(StoreError::NotPrivate { path: path.into(), mode });
    }
    Ok(())
}

/// Other systems have no such bits to look at.
#[cfg(not(unix))]
fn only_ours(_metadata: &std::fs::Metadata, _path: &Path, _forbidden: u32) -> Result<(), StoreError> {
    Ok(())
}

/// A folder for its owner alone; one that is there already stays as it is.
fn make_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
