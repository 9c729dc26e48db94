//! Atomic replacement of files.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::Error;

/// Writes a temporary file beside `path`, syncs it, and renames it to `path`. On any error the old file is unchanged.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Error> {
    let error = Error::write(path);
    let Some(name) = path.file_name() else {
        return Err(error(io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name")));
    };
    if path.is_dir() {
        return Err(error(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    // the process id keeps programs that write the same file from sharing a temporary file
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
        sync_directory(path)
    })();
    written.map_err(|source| {
        // the first error matters; the temporary file may not exist
        let _ = fs::remove_file(&temporary);
        error(source)
    })
}

/// Syncs the directory, which holds the new name.
#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// Does nothing, because other systems cannot open directories as files.
#[cfg(not(unix))]
fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}
