//! Descriptions of layouts for error messages.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::Error;

/// The expected layout of a file, and where it is documented.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) expected: &'static str,
    /// A heading of docs/reproduction.md.
    pub(super) anchor: &'static str,
}

/// A bound on the size of a text file. The published lists are much shorter.
const LONGEST_TEXT: u64 = 256 << 20;

impl Layout {
    pub(super) fn error(&self, path: &Path, what: impl ToString) -> Error {
        let Self { expected, anchor } = *self;
        Error::Data { path: path.into(), what: what.to_string(), expected, anchor }
    }

    pub(super) fn text(&self, path: &Path) -> Result<String, Error> {
        let file = File::open(path).map_err(|error| self.error(path, error))?;
        let mut bytes = Vec::new();
        file.take(LONGEST_TEXT + 1).read_to_end(&mut bytes).map_err(|error| self.error(path, error))?;
        if bytes.len() as u64 > LONGEST_TEXT {
            return Err(self.error(path, "it is longer than 256 MiB"));
        }
        String::from_utf8(bytes).map_err(|_| self.error(path, "it is not UTF-8 text"))
    }
}
