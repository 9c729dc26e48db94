//! Backups of a party's data directory, also while the party runs.
//!
//! A running party locks its database, so a backup cannot ask SQLite for a copy and copies the files instead. Commits
//! since the last checkpoint are in the write-ahead log, whose frames have checksums, so any prefix of it is a
//! consistent state. The database file changes only at checkpoints, by pages that the write-ahead log still holds.
//! Therefore the two copies are consistent unless the write-ahead log was restarted while they were made. In that case
//! both files are copied again.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::Error;
use crate::kit::Kit;
use crate::store::{LogStore as _, SqliteStore};
use crate::verify::{CheckedLog, check_log};

const DATABASE: &str = "dphe.sqlite";
const WRITE_AHEAD_LOG: &str = "dphe.sqlite-wal";
const LOCK: &str = "dphe.lock";
/// The residual of a user's updates.
const RESIDUAL: &str = "residual.bin";
/// How long a backup tries again. The write-ahead log is restarted once per round and after some megabytes. During
/// uploads this can happen faster than a large database can be copied; other phases of a round write less.
const RETRY_TIMEOUT: Duration = Duration::from_secs(600);
/// The shortest and the longest wait before another attempt.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// The length of the write-ahead log's header, which changes with every restart of the log.
const HEADER: usize = 32;

/// A backup that has been made and verified.
#[derive(Clone, Debug, Serialize)]
pub struct BackedUp {
    /// The log in the backup.
    pub log: CheckedLog,
    /// The size of all files.
    pub bytes: u64,
    /// How often the copy was repeated because the party wrote meanwhile.
    pub again: u32,
}

/// Copies a party's data directory to a new directory and verifies the copy. Until the copy is complete, the new
/// directory is called `.NAME.partial`.
///
/// # Errors
/// Fails if the data directory cannot be read, the new one exists or cannot be written, the party does not stop
/// writing, or the copied log is invalid.
pub async fn back_up(kit: &Kit, data: &Path, to: &Path) -> Result<BackedUp, Error> {
    let Some(name) = to.file_name() else {
        return Err(written(to, io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name")));
    };
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // before minutes of copying
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
        // the next backup of this name removes what is left
        let _ = std::fs::remove_dir_all(&partial);
    }
    drop(lock);
    let made = made?;
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| written(parent, source))?;
    Ok(made)
}

/// Creates the directory of a partial backup, replacing one that an interrupted backup has left. The returned lock
/// tells other processes that this backup is running.
fn make_partial(data: &Path, partial: &Path) -> Result<File, Error> {
    let error = |source| written(partial, source);
    match File::open(partial) {
        Ok(left) => {
            // file systems without locks cannot tell, so the directory counts as left over
            if matches!(left.try_lock(), Err(TryLockError::WouldBlock)) {
                return Err(failed(data, "another backup to this directory is running"));
            }
            std::fs::remove_dir_all(partial).map_err(error)?;
        }
        Err(source) if source.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(error(source)),
    }
    make_directory(partial)?;
    let lock = File::open(partial).map_err(error)?;
    let _ = lock.try_lock();
    Ok(lock)
}

/// Renames a complete backup to its final name.
fn take_name(partial: &Path, to: &Path) -> Result<(), Error> {
    // if the target appears after this check, the rename fails, unless the target is an empty directory
    refuse_existing(to)?;
    std::fs::rename(partial, to).map_err(|source| written(to, source))
}

fn refuse_existing(to: &Path) -> Result<(), Error> {
    match std::fs::symlink_metadata(to) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(written(to, source)),
        Ok(_) => Err(written(to, io::Error::new(io::ErrorKind::AlreadyExists, "it already exists"))),
    }
}

async fn fill(kit: &Kit, data: &Path, to: &Path) -> Result<BackedUp, Error> {
    let (begin, mut again) = (Instant::now(), 0);
    let (mut wait, longest) = RETRY_DELAYS;
    while !copy_once(data, to)? {
        again += 1;
        if begin.elapsed() + wait > RETRY_TIMEOUT {
            let reason = "the party kept writing to it for 10 minutes; try between rounds or while the party is \
                          stopped, or use a file system snapshot";
            return Err(failed(data, reason));
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 3 / 2).min(longest);
    }
    // copied after the database, because a residual that is newer than the log does no harm
    if data.join(RESIDUAL).exists() {
        copy(&data.join(RESIDUAL), &to.join(RESIDUAL))?;
    }
    let mut store = SqliteStore::open(to).await?;
    if !store.is_sound().await? {
        return Err(failed(data, "the database is damaged"));
    }
    let log = store.load().await?;
    let log = check_log(kit.party(), kit.rosters(), &log)?;
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
    File::open(to).and_then(|directory| directory.sync_all()).map_err(|source| written(to, source))?;
    Ok(BackedUp { log, bytes, again })
}

/// Copies both files of the database. Returns false if the two may be inconsistent.
fn copy_once(data: &Path, to: &Path) -> Result<bool, Error> {
    let (database, wal) = (data.join(DATABASE), data.join(WRITE_AHEAD_LOG));
    let before = header_of(&wal)?;
    let first = copy(&database, &to.join(DATABASE))?;
    let copied = to.join(WRITE_AHEAD_LOG);
    match copy(&wal, &copied) {
        Ok(_) => {}
        // a party removes the file when it stops normally
        Err(_) if !wal.exists() => match std::fs::remove_file(&copied) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(written(&copied, source)),
            _ => {}
        },
        Err(error) => return Err(error),
    }
    if before != header_of(&wal)? {
        return Ok(false);
    }
    // without a header to compare, a log that was written, checkpointed and truncated in between would go unnoticed
    Ok(before.is_some() || digest_of(&database)? == first)
}

/// Reads the header of a write-ahead log. Returns `None` if the file is empty or missing.
fn header_of(path: &Path) -> Result<Option<[u8; HEADER]>, Error> {
    let mut header = [0; HEADER];
    match File::open(path).and_then(|mut file| file.read_exact(&mut header)) {
        Ok(()) => Ok(Some(header)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {
            Ok(None)
        }
        Err(source) => Err(read(path, source)),
    }
}

fn digest_of(path: &Path) -> Result<[u8; 32], Error> {
    each_chunk(path, |_| Ok(()))
}

/// Copies a file, readable by its owner only, replacing an existing one. Returns the digest of the copied bytes.
fn copy(from: &Path, to: &Path) -> Result<[u8; 32], Error> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // before the new file is created, because the source may be missing
    File::open(from).map_err(|source| read(from, source))?;
    let mut out = options.open(to).map_err(|source| written(to, source))?;
    each_chunk(from, |chunk| out.write_all(chunk).map_err(|source| written(to, source)))
}

fn each_chunk(path: &Path, mut see: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<[u8; 32], Error> {
    let mut file = File::open(path).map_err(|source| read(path, source))?;
    let (mut chunk, mut digest) = (Zeroizing::new(vec![0; 1 << 16]), Sha256::new());
    loop {
        let count = file.read(&mut chunk).map_err(|source| read(path, source))?;
        if count == 0 {
            return Ok(digest.finalize().into());
        }
        digest.update(&chunk[..count]);
        see(&chunk[..count])?;
    }
}

fn make_directory(directory: &Path) -> Result<(), Error> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory).map_err(|source| written(directory, source))
}

fn failed(data: &Path, reason: &str) -> Error {
    Error::Backup { directory: data.into(), reason: reason.to_owned() }
}

fn read(path: &Path, source: io::Error) -> Error {
    crate::key_file::KeyFileError::Read { path: PathBuf::from(path), source }.into()
}

fn written(path: &Path, source: io::Error) -> Error {
    crate::key_file::KeyFileError::Write { path: PathBuf::from(path), source }.into()
}
