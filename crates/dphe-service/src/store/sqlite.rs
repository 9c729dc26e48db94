//! The SQLite store: one file with a write-ahead log, synced at every commit.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dphe::{Digest, Round};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use zeroize::Zeroizing;

use super::{AboutStore, Archive, LogStore, StoreError, StoreId, round_from_i64, round_to_i64};

const FILE: &str = "dphe.sqlite";
const LOCK: &str = "dphe.lock";

/// Every commit is synced, one process has the file to itself, and deleted content is overwritten with zeros.
const SETTINGS: &str = "
    PRAGMA locking_mode = EXCLUSIVE;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA secure_delete = ON;
";

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS models (round INTEGER PRIMARY KEY, digest BLOB NOT NULL, bytes BLOB NOT NULL);
    CREATE INDEX IF NOT EXISTS models_by_digest ON models (digest);
    CREATE TABLE IF NOT EXISTS round_records (round INTEGER PRIMARY KEY, json TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS messages (
        round INTEGER NOT NULL, kind INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (round, kind));
    CREATE TABLE IF NOT EXISTS about (one INTEGER PRIMARY KEY CHECK (one = 1), id BLOB NOT NULL, roster BLOB);
";

/// A store in a directory of its own.
#[derive(Debug)]
pub struct SqliteStore {
    /// Shared with the thread that runs a statement, which completes even if its caller is cancelled.
    connection: Arc<Mutex<Connection>>,
    directory: PathBuf,
    /// The lock of the directory. The operating system releases it when the process ends.
    _lock: Option<File>,
}

impl SqliteStore {
    /// Opens the store in a directory, which is created if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if another process uses it, [`StoreError::Directory`] if it cannot be written,
    /// [`StoreError::NotPrivate`] if other users can access it.
    pub async fn open(directory: &Path) -> Result<Self, StoreError> {
        let error = |source| StoreError::Directory { directory: directory.into(), source };
        make_private(directory).map_err(error)?;
        // others may list the directory, but not read its files
        only_ours(&std::fs::metadata(directory).map_err(error)?, directory, 0o022)?;
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let lock = options.open(directory.join(LOCK)).map_err(error)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse { directory: directory.into() }),
            Err(TryLockError::Error(source)) => return Err(error(source)),
        }
        let path = directory.join(FILE);
        let mut options = File::options();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // created before SQLite opens it, so that it never has a wider mode; the files beside it take its mode
        let file = options.open(&path).map_err(error)?;
        only_ours(&file.metadata().map_err(error)?, &path, 0o077)?;
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|source| error(std::io::Error::other(source)))?;
        let connection = blocking(move || {
            let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            connection.execute_batch(SETTINGS)?;
            rename_old_tables(&connection)?;
            connection.execute_batch(SCHEMA)?;
            connection.execute("INSERT OR IGNORE INTO about (one, id) VALUES (1, ?)", [&id[..]])?;
            Ok(connection)
        });
        let connection = Arc::new(Mutex::new(connection.await?));
        Ok(Self { connection, directory: directory.into(), _lock: Some(lock) })
    }

    /// Opens a copy of a store for reading. Nothing is written.
    ///
    /// # Errors
    /// [`StoreError`] if it does not exist or is in use.
    pub async fn open_read_only(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        let error = |source| StoreError::Directory { directory: directory.into(), source };
        std::fs::metadata(&path).map_err(error)?;
        let connection = blocking(|| Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY));
        let connection = Arc::new(Mutex::new(connection.await?));
        Ok(Self { connection, directory: directory.into(), _lock: None })
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Closes the database.
    ///
    /// # Errors
    /// [`StoreError`] if the write-ahead log cannot be merged. No data is lost then.
    pub async fn close(self) -> Result<(), StoreError> {
        blocking(move || match Arc::into_inner(self.connection) {
            Some(connection) => {
                let connection = connection.into_inner().unwrap_or_else(PoisonError::into_inner);
                connection.close().map_err(|(_, error)| error)
            }
            // a statement whose caller was cancelled closes the database when it ends
            None => Ok(()),
        })
        .await
    }

    /// Checks every page of the database.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    pub(crate) async fn is_sound(&self) -> Result<bool, StoreError> {
        self.run(|db| db.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0)))
            .await
            .map(|word| word == "ok")
    }

    /// Runs statements on a thread for blocking work.
    async fn run<R: Send + 'static>(
        &self,
        statements: impl FnOnce(&mut Connection) -> rusqlite::Result<R> + Send + 'static,
    ) -> Result<R, StoreError> {
        let connection = self.connection.clone();
        blocking(move || statements(&mut connection.lock().unwrap_or_else(PoisonError::into_inner))).await
    }
}

async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> rusqlite::Result<R> + Send + 'static,
) -> Result<R, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| StoreError::Interrupted)??)
}

impl LogStore for SqliteStore {
    async fn about(&mut self) -> Result<AboutStore, StoreError> {
        let row = self.run(|db| {
            let select = "SELECT id, roster FROM about";
            db.query_row(select, [], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Option<Vec<u8>>>(1)?)))
        });
        let (id, roster) = row.await?;
        let id = StoreId::from_bytes(id.try_into().map_err(|_| StoreError::Damaged)?);
        let roster = roster.map(|hash| hash.try_into().map(Digest::from_bytes));
        Ok(AboutStore { id, roster: roster.transpose().map_err(|_| StoreError::Damaged)? })
    }

    async fn remember_roster(&mut self, hash: Digest) -> Result<(), StoreError> {
        self.run(move |db| db.execute("UPDATE about SET roster = ?", [hash.as_bytes()]).map(drop)).await
    }

    async fn begin_log(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        // one process has the store to itself
        if self.load().await?.is_empty() { self.replace(bytes).await } else { Ok(()) }
    }

    async fn load(&mut self) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        self.run(|db| {
            let length = "SELECT coalesce(sum(length(bytes)), 0) FROM log";
            let length: i64 = db.query_row(length, [], |row| row.get(0))?;
            let mut log = Zeroizing::new(Vec::with_capacity(usize::try_from(length).unwrap_or(0)));
            let mut select = db.prepare("SELECT bytes FROM log ORDER BY seq")?;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                log.extend_from_slice(row.get_ref(0)?.as_blob()?);
            }
            Ok(log)
        })
        .await
    }

    async fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let bytes = Zeroizing::new(bytes.to_vec());
        self.run(move |db| append_to_log(db, &bytes)).await
    }

    async fn replace(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let bytes = Zeroizing::new(bytes.to_vec());
        self.run(move |db| {
            let transaction = db.transaction()?;
            transaction.execute("DELETE FROM log", [])?;
            append_to_log(&transaction, &bytes)?;
            transaction.commit()?;
            // seeds of rounds that are over must not stay in the write-ahead log either
            db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        })
        .await
    }
}

fn append_to_log(db: &Connection, bytes: &[u8]) -> rusqlite::Result<()> {
    db.execute("INSERT INTO log (bytes) VALUES (?)", [bytes]).map(drop)
}

impl Archive for SqliteStore {
    async fn put_model(&mut self, round: Round, digest: Digest, model: &[u8]) -> Result<(), StoreError> {
        let (round, model) = (round_to_i64(round), model.to_vec());
        self.run(move |db| {
            let insert = "INSERT OR REPLACE INTO models (round, digest, bytes) VALUES (?, ?, ?)";
            db.execute(insert, params![round, digest.as_bytes(), model]).map(drop)
        })
        .await
    }

    async fn model(&mut self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        self.run(move |db| {
            let select = "SELECT bytes FROM models WHERE digest = ? LIMIT 1";
            db.query_row(select, [digest.as_bytes()], |row| row.get(0)).optional()
        })
        .await
    }

    async fn latest_model(&mut self, round: Round) -> Result<Option<(Round, Vec<u8>)>, StoreError> {
        let round = round_to_i64(round);
        let row = self.run(move |db| {
            let select = "SELECT round, bytes FROM models WHERE round <= ? ORDER BY round DESC LIMIT 1";
            db.query_row(select, [round], |row| Ok((row.get(0)?, row.get(1)?))).optional()
        });
        row.await?.map(|(round, model)| Ok((round_from_i64(round)?, model))).transpose()
    }

    async fn forget_models(&mut self, before: Round) -> Result<(), StoreError> {
        let before = round_to_i64(before);
        self.run(move |db| db.execute("DELETE FROM models WHERE round < ?", [before]).map(drop)).await
    }

    async fn put_round_record(&mut self, round: Round, record: &str) -> Result<(), StoreError> {
        let (round, record) = (round_to_i64(round), record.to_owned());
        self.run(move |db| {
            let insert = "INSERT OR REPLACE INTO round_records (round, json) VALUES (?, ?)";
            db.execute(insert, params![round, record]).map(drop)
        })
        .await
    }

    async fn round_records(&mut self, from: Round) -> Result<Vec<(Round, String)>, StoreError> {
        let from = round_to_i64(from);
        let rows: Vec<(i64, String)> = self
            .run(move |db| {
                let select = "SELECT round, json FROM round_records WHERE round >= ? ORDER BY round";
                db.prepare(select)?.query_map([from], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
            })
            .await?;
        rows.into_iter().map(|(round, record)| Ok((round_from_i64(round)?, record))).collect()
    }

    async fn put_message(&mut self, round: Round, kind: u8, message: &[u8]) -> Result<(), StoreError> {
        let (round, message) = (round_to_i64(round), message.to_vec());
        self.run(move |db| {
            let insert = "INSERT OR REPLACE INTO messages (round, kind, bytes) VALUES (?, ?, ?)";
            db.execute(insert, params![round, kind, message]).map(drop)
        })
        .await
    }

    async fn round_messages(&mut self, round: Round) -> Result<Vec<(u8, Vec<u8>)>, StoreError> {
        let round = round_to_i64(round);
        self.run(move |db| {
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let select = "SELECT kind, bytes FROM messages WHERE round = ?";
            db.prepare(select)?.query_map([round], row)?.collect()
        })
        .await
    }

    async fn messages(&mut self, from: Round) -> Result<Vec<(Round, u8, Vec<u8>)>, StoreError> {
        let from = round_to_i64(from);
        let rows: Vec<(i64, u8, Vec<u8>)> = self
            .run(move |db| {
                let select = "SELECT round, kind, bytes FROM messages WHERE round >= ? ORDER BY round, kind";
                let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
                db.prepare(select)?.query_map([from], row)?.collect()
            })
            .await?;
        rows.into_iter().map(|(round, kind, message)| Ok((round_from_i64(round)?, kind, message))).collect()
    }
}

/// Version 0.1 called the table of round records `reports`.
fn rename_old_tables(db: &Connection) -> rusqlite::Result<()> {
    if db.table_exists(None, "reports")? {
        db.execute_batch("ALTER TABLE reports RENAME TO round_records")?;
    }
    Ok(())
}

/// Checks that only the current user can access the data, which includes seeds: nobody else may read or replace it.
#[cfg(unix)]
fn only_ours(metadata: &std::fs::Metadata, path: &Path, forbidden: u32) -> Result<(), StoreError> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let (mode, owner) = (metadata.permissions().mode() & 0o777, metadata.uid());
    if mode & forbidden != 0 || owner != rustix::process::geteuid().as_raw() {
        return Err(StoreError::NotPrivate { path: path.into(), mode });
    }
    Ok(())
}

/// Accepts everything, because other systems have no such mode bits.
#[cfg(not(unix))]
fn only_ours(_metadata: &std::fs::Metadata, _path: &Path, _forbidden: u32) -> Result<(), StoreError> {
    Ok(())
}

/// Creates a directory that only its owner can access. An existing directory is not changed.
fn make_private(directory: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}
