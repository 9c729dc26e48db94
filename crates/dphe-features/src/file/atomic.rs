//! Files written whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::Error;

/// Writes a file beside `path`, on disk, and gives it that name only then. Whatever goes wrong leaves the old one.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Error> {
    let error = Error::write(path);
    let Some(name) = path.file_name() else {
        return Err(error(io::Error::new(io::ErrorKind::InvalidInput, "this names no file")));
    };
    if path.is_dir() {
        return Err(error(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    // the process's number keeps two programs that write the same file apart
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);

    let written = (|| {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&temporary)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        write(&mut out)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        fs::rename(&temporary, path)?;
        sync_folder(path)
    })();
    written.map_err(|source| {
        // it may never have been made; the error to tell is the first one
        let _ = fs::remove_file(&temporary);
        error(source)
    })
}

/// The new name itself is on disk only once its folder is.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Folders cannot be opened like files elsewhere.
#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}
