//! Files that are whole or not there.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// Puts a file in the place of another, or where there was none; what is read at any moment is one of the two.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // as any new file: whom else it is for, the umask says
    write(path, bytes, 0o666)
}

/// The same, for its owner alone.
pub fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, bytes, 0o600)
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    let mut file = builder.prefix(".dphe-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // the name is in the folder, and that has to be on the disk too
    File::open(folder)?.sync_all()
}

/// Reads a file that should not be longer than this.
pub fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {most} bytes")));
    }
    Ok(bytes)
}
