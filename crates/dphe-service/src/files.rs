//! Atomic writes of files, and bounded reads.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// How the names of incomplete files begin.
const TEMPORARY: &str = ".dphe-";

/// Writes a file atomically: a reader sees the old content or the new one, also after a crash. The umask decides who
/// may read it.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, bytes, 0o666)
}

/// Writes a file atomically that only its owner can read.
pub fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, bytes, 0o600)
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    let mut file = builder.prefix(TEMPORARY).tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // syncs the directory entry
    File::open(directory)?.sync_all()
}

/// Deletes the incomplete files that a process which was killed has left in a directory that only this one uses now.
pub fn remove_incomplete(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Reads a file of at most `max` bytes.
pub fn read_at_most(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("the file is longer than {max} bytes"),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_files_are_deleted_and_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        replace_private(&path.join("residual.bin"), b"whole").unwrap();
        std::fs::write(path.join(".dphe-x7Kq2p"), b"incompl").unwrap();
        remove_incomplete(path).unwrap();
        let left: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["residual.bin"]);
    }
}
