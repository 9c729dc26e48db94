//! Copies of a party's data folder, also while the party runs.
//!
//! A party holds its database for itself, so nobody else can ask SQLite for a copy: the files are copied. What was
//! committed since the last checkpoint lies in the write-ahead file, whose frames have check sums, so that a copy of its
//! beginning is a state that was. The database file itself changes at checkpoints only, and then gets what the
//! write-ahead file still holds. So the two copies make one state as long as the write-ahead file was not begun anew
//! between the first byte and the last; if it was, they are made again.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Row as _, SqliteConnection};
use zeroize::Zeroizing;

use crate::Error;
use crate::kit::Kit;
use crate::store::{LogStore as _, SqliteStore, StoreError};
use crate::verify::{CheckedLog, check_log};

const DATABASE: &str = "dphe.sqlite";
const AHEAD: &str = "dphe.sqlite-wal";
const LOCK: &str = "dphe.lock";
/// What a user's messages have left out so far.
const RESIDUAL: &str = "residual.bin";
/// The write-ahead file is begun anew once a round and after some megabytes. While uploads come in, that can be more
/// often than a large database can be copied. Other phases of a round are quieter, and most rounds are shorter than this.
const PATIENCE: Duration = Duration::from_secs(600);
/// The first wait before another try, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// The head of a write-ahead file; another one after each time it is begun anew.
const HEAD: usize = 32;

/// A copy that was made and holds.
#[derive(Clone, Debug, Serialize)]
pub struct BackedUp {
    /// The log of the copy.
    pub log: CheckedLog,
    /// Bytes of all files.
    pub bytes: u64,
    /// How often the party moved on in the midst of it.
    pub again: u32,
}

/// Copies the data folder of a party to a new folder, and checks the copy. The new folder has its name only once it is
/// whole; until then it is `.NAME.partial`, beside it.
///
/// # Errors
/// If there is no data folder or the new one cannot be written, the party never stops writing, or what was copied does
/// not hold.
pub async fn back_up(kit: &Kit, data: &Path, to: &Path) -> Result<BackedUp, Error> {
    let Some(name) = to.file_name() else {
        return Err(written(to, io::Error::new(io::ErrorKind::InvalidInput, "it has no name")));
    };
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // minutes before it would be noticed otherwise
    refuse_existing(to)?;
    let partial = {
        let mut partial = std::ffi::OsString::from(".");
        partial.push(name);
        partial.push(".partial");
        parent.join(partial)
    };
    let lock = make_partial(data, &partial)?;
    let made = match fill(kit, data, &partial).await {
        Ok(made) => take_name(&partial, to).map(|()| made),
        Err(error) => Err(error),
    };
    if made.is_err() {
        // what cannot be removed is removed by the next one of this name
        let _ = std::fs::remove_dir_all(&partial);
    }
    drop(lock);
    let made = made?;
    File::open(parent).and_then(|folder| folder.sync_all()).map_err(|source| written(parent, source))?;
    Ok(made)
}

/// A new folder, in the place of one that an interrupted back-up has left. Nobody else takes it for such a one as long
/// as the file that is returned is open.
fn make_partial(data: &Path, partial: &Path) -> Result<File, Error> {
    let error = |source| written(partial, source);
    match File::open(partial) {
        Ok(left) => {
            // where there are no locks, nothing is known, and it is taken for left over
            if matches!(left.try_lock(), Err(TryLockError::WouldBlock)) {
                return Err(failed(data, "another back-up of this name is under way"));
            }
            std::fs::remove_dir_all(partial).map_err(error)?;
        }
        Err(source) if source.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(error(source)),
    }
    make_folder(partial)?;
    let lock = File::open(partial).map_err(error)?;
    let _ = lock.try_lock();
    Ok(lock)
}

/// Gives a whole copy its name.
fn take_name(partial: &Path, to: &Path) -> Result<(), Error> {
    // what comes in between is refused by the file system, unless it is an empty folder
    refuse_existing(to)?;
    std::fs::rename(partial, to).map_err(|source| written(to, source))
}

fn refuse_existing(to: &Path) -> Result<(), Error> {
    match std::fs::symlink_metadata(to) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(written(to, source)),
        Ok(_) => Err(written(to, io::Error::new(io::ErrorKind::AlreadyExists, "it exists already"))),
    }
}

async fn fill(kit: &Kit, data: &Path, to: &Path) -> Result<BackedUp, Error> {
    let (begin, mut again) = (Instant::now(), 0);
    let (mut wait, longest) = WAITS;
    while !copy_once(data, to)? {
        again += 1;
        if begin.elapsed() + wait > PATIENCE {
            let reason = "the party did not stop writing to it for 10 minutes; try between rounds, while the party \
                          is down, or a snapshot of the file system";
            return Err(failed(data, reason));
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 3 / 2).min(longest);
    }
    // after the database: one that is ahead of the log does no harm
    if data.join(RESIDUAL).exists() {
        copy(&data.join(RESIDUAL), &to.join(RESIDUAL))?;
    }
    let database = to.join(DATABASE);
    let options = SqliteConnectOptions::new().filename(&database).disable_statement_logging();
    let mut connection = SqliteConnection::connect_with(&options).await.map_err(StoreError::from)?;
    let rows = sqlx::query("PRAGMA integrity_check").fetch_all(&mut connection).await;
    let rows = rows.map_err(StoreError::from)?;
    let sound =
        rows.first().and_then(|row| row.try_get::<String, _>(0).ok()).is_some_and(|word| word == "ok");
    connection.close().await.map_err(StoreError::from)?;
    if !sound {
        return Err(failed(data, "its database is damaged"));
    }
    let mut store = SqliteStore::open(to).await?;
    let log = store.load().await?;
    let log = check_log(kit.party(), kit.roster(), &log)?;
    store.close().await?;
    let _ = std::fs::remove_file(to.join(LOCK));
    let mut bytes = 0;
    for name in [DATABASE, RESIDUAL] {
        if let Ok(file) = File::open(to.join(name)) {
            let error = |source| written(&to.join(name), source);
            file.sync_all().map_err(error)?;
            bytes += file.metadata().map_err(error)?.len();
        }
    }
    File::open(to).and_then(|folder| folder.sync_all()).map_err(|source| written(to, source))?;
    Ok(BackedUp { log, bytes, again })
}

/// Copies both files of the database. `false` if they may be of two states.
fn copy_once(data: &Path, to: &Path) -> Result<bool, Error> {
    let (database, ahead) = (data.join(DATABASE), data.join(AHEAD));
    let before = head_of(&ahead)?;
    let first = copy(&database, &to.join(DATABASE))?;
    let copied = to.join(AHEAD);
    match copy(&ahead, &copied) {
        Ok(_) => {}
        // removed when the party ends properly
        Err(_) if !ahead.exists() => match std::fs::remove_file(&copied) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(written(&copied, source)),
            _ => {}
        },
        Err(error) => return Err(error),
    }
    if before != head_of(&ahead)? {
        return Ok(false);
    }
    // without a head to go by: begun, folded in and cut off again in between, it would look the same
    Ok(before.is_some() || digest_of(&database)? == first)
}

/// The head of a write-ahead file; none, if the file is empty or not there.
fn head_of(path: &Path) -> Result<Option<[u8; HEAD]>, Error> {
    let mut head = [0; HEAD];
    match File::open(path).and_then(|mut file| file.read_exact(&mut head)) {
        Ok(()) => Ok(Some(head)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {
            Ok(None)
        }
        Err(source) => Err(read(path, source)),
    }
}

fn digest_of(path: &Path) -> Result<[u8; 32], Error> {
    each_part(path, |_| Ok(()))
}

/// Copies a file for its owner alone, in the place of any other. Returns the digest of what was copied.
fn copy(from: &Path, to: &Path) -> Result<[u8; 32], Error> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // before the new file is made: there may be nothing to copy
    File::open(from).map_err(|source| read(from, source))?;
    let mut out = options.open(to).map_err(|source| written(to, source))?;
    each_part(from, |part| out.write_all(part).map_err(|source| written(to, source)))
}

fn each_part(path: &Path, mut see: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<[u8; 32], Error> {
    let mut file = File::open(path).map_err(|source| read(path, source))?;
    let (mut part, mut digest) = (Zeroizing::new(vec![0; 1 << 16]), Sha256::new());
    loop {
        let count = file.read(&mut part).map_err(|source| read(path, source))?;
        if count == 0 {
            return Ok(digest.finalize().into());
        }
        digest.update(&part[..count]);
        see(&part[..count])?;
    }
}

fn make_folder(folder: &Path) -> Result<(), Error> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|source| written(folder, source))
}

fn failed(data: &Path, reason: &str) -> Error {
    Error::Backup { folder: data.into(), reason: reason.to_owned() }
}

fn read(path: &Path, source: io::Error) -> Error {
    crate::key_file::KeyFileError::Read { path: PathBuf::from(path), source }.into()
}

fn written(path: &Path, source: io::Error) -> Error {
    crate::key_file::KeyFileError::Write { path: PathBuf::from(path), source }.into()
}
