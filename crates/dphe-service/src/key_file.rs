//! Key files. A file is written completely or not at all, and only its owner can read a secret one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// The size limit for key files. Larger files are not read.
const MAX_BYTES: u64 = 64 * 1024;

/// An error when reading or writing a key file.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and fields")]
pub enum KeyFileError {
    #[error("{} already exists", path.display())]
    Exists { path: PathBuf },
    #[error("{} cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} cannot be written: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} is a secret key that others on this machine can read (mode {mode:o})", path.display())]
    ReadableByOthers { path: PathBuf, mode: u32 },
    #[error("{} is too large for a key file", path.display())]
    TooLarge { path: PathBuf },
}

impl KeyFileError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Exists { .. } => Some("Choose another name. Files are never overwritten.".into()),
            Self::ReadableByOthers { path, .. } => Some(format!("Run `chmod 600 {}`.", path.display())),
            Self::Read { .. } | Self::Write { .. } => Some("Check the path and its permissions.".into()),
            Self::TooLarge { .. } => None,
        }
    }
}

/// Returns the path of the public key that belongs to a secret key.
pub fn public_path(secret: &Path) -> PathBuf {
    let mut name = secret.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// Fails if one of the two key files exists. Called before key generation, which takes minutes.
pub fn refuse_existing(secret: &Path) -> Result<(), KeyFileError> {
    for path in [secret.to_owned(), public_path(secret)] {
        if path.exists() {
            return Err(KeyFileError::Exists { path });
        }
    }
    Ok(())
}

/// Writes a new secret file. It has mode 0600 from the start and is on disk when this function returns.
pub fn write_secret(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    write_new(path, bytes, 0o600)
}

/// Writes a new public file.
pub fn write_public(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    write_new(path, bytes, 0o644)
}

/// The contents of a key file, and its permission bits.
pub struct KeyFile {
    /// The contents.
    pub bytes: Zeroizing<Vec<u8>>,
    path: PathBuf,
    /// The permission bits, on systems that have them.
    mode: Option<u32>,
}

/// Reads a key file.
pub fn read(path: &Path) -> Result<KeyFile, KeyFileError> {
    read_up_to(path, MAX_BYTES)
}

/// Reads a file of at most `most` bytes that may be secret.
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
    /// Fails if anyone but the owner can read the file.
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

/// Other systems have no permission bits.
#[cfg(not(unix))]
fn permission_bits(_metadata: &std::fs::Metadata) -> Option<u32> {
    None
}

/// Reads the first line of a file.
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
        // an incomplete key file must not stay
        let _ = std::fs::remove_file(path);
    }
    written.map_err(error)?;
    sync_directory(path).map_err(error)
}

/// Syncs the directory, so that the new name is on disk as well.
#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory =
        path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

#[cfg(not(unix))]
fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}
