//! Key files on disk: written whole or not at all, the secret ones readable by their owner only.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// No key file is longer; a larger one is not read.
const MAX_BYTES: u64 = 64 * 1024;

/// Why a key file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it all")]
pub enum KeyFileError {
    #[error("{} exists already", path.display())]
    Exists { path: PathBuf },
    #[error("{} could not be read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} could not be written: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} is a secret key that others on this machine can read (mode {mode:o})", path.display())]
    ReadableByOthers { path: PathBuf, mode: u32 },
    #[error("{} is too large for a key file", path.display())]
    TooLarge { path: PathBuf },
}

impl KeyFileError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Exists { .. } => Some("another name; a key is never overwritten".into()),
            Self::ReadableByOthers { path, .. } => Some(format!("chmod 600 {}", path.display())),
            Self::Read { .. } | Self::Write { .. } | Self::TooLarge { .. } => None,
        }
    }
}

/// The public key's file beside a secret one.
pub fn public_path(secret: &Path) -> PathBuf {
    let mut name = secret.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// Refuses early, before minutes are spent on a key that could not be stored.
pub fn refuse_existing(secret: &Path) -> Result<(), KeyFileError> {
    for path in [secret.to_owned(), public_path(secret)] {
        if path.exists() {
            return Err(KeyFileError::Exists { path });
        }
    }
    Ok(())
}

/// Writes anything secret: a new file, mode 0600 from the start, on disk before this returns.
pub fn write_secret(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    write_new(path, bytes, 0o600)
}

/// Writes anything public: a new file.
pub fn write_public(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    write_new(path, bytes, 0o644)
}

/// A key file that has been read, and who else could have read it.
pub struct KeyFile {
    /// What is in it.
    pub bytes: Zeroizing<Vec<u8>>,
    path: PathBuf,
    /// Permission bits of the file that was read, where there are any.
    mode: Option<u32>,
}

/// Reads a key file.
pub fn read(path: &Path) -> Result<KeyFile, KeyFileError> {
    read_up_to(path, MAX_BYTES)
}

/// Reads a file of at most so many bytes that may be secret.
pub fn read_up_to(path: &Path, most: u64) -> Result<KeyFile, KeyFileError> {
    let error = |source| KeyFileError::Read { path: path.into(), source };
    let file = File::open(path).map_err(error)?;
    let mode = permission_bits(&file.metadata().map_err(error)?);
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(most + 1).read_to_end(&mut bytes).map_err(error)?;
    if bytes.len() as u64 > most {
        return Err(KeyFileError::TooLarge { path: path.into() });
    }
    Ok(KeyFile { bytes, path: path.into(), mode })
}

impl KeyFile {
    /// Refuses a secret key that anybody but its owner can read.
    pub fn refuse_readable_by_others(&self) -> Result<(), KeyFileError> {
        match self.mode {
            Some(mode) if mode & 0o077 != 0 => {
                Err(KeyFileError::ReadableByOthers { path: self.path.clone(), mode })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(unix)]
fn permission_bits(metadata: &std::fs::Metadata) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;
    Some(metadata.permissions().mode() & 0o777)
}

/// Other systems have no such bits to look at.
#[cfg(not(unix))]
fn permission_bits(_metadata: &std::fs::Metadata) -> Option<u32> {
    None
}

/// The first line of a file.
pub fn read_passphrase(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let bytes = read(path)?.bytes;
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    Ok(Zeroizing::new(line.strip_suffix(b"\r").unwrap_or(line).to_vec()))
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), KeyFileError> {
    let error = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.into() },
        _ => KeyFileError::Write { path: path.into(), source },
    };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    let mut file = options.open(path).map_err(error)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        // half a key is worse than none
        let _ = std::fs::remove_file(path);
    }
    written.map_err(error)?;
    sync_folder(path).map_err(error)
}

/// The new name is on disk only when its folder is.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}
