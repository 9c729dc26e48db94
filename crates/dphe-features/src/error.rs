//! What can go wrong: an error says what happened, and to which file; its hint says what to try.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// An error of this crate.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that could not be opened or read.
    #[error("{} could not be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file that could not be written. Nothing is left of it, and an older one of that name is still there.
    #[error("{} could not be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file with something wrong inside.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// What to try.
        hint: String,
    },
    /// Features, labels and names that do not go together.
    #[error("{what}")]
    Table {
        /// What is wrong.
        what: String,
        /// What to try.
        hint: String,
    },
}

impl Error {
    /// What to try, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File { hint, .. } | Self::Table { hint, .. } => Some(hint.clone()),
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("check the spelling of the path".into())
            }
            Self::Write { .. } => Some("another place for the output, or more room on this disk".into()),
            Self::Read { .. } => None,
        }
    }

    pub(crate) fn table(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Table { what: what.into(), hint: hint.into() }
    }

    pub(crate) fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read { path: path.into(), source }
    }

    pub(crate) fn write(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write { path: path.into(), source }
    }

    /// The same error, with the file it was found in.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            Self::Table { what, hint } => Self::File { path: path.into(), what, hint },
            other => other,
        }
    }
}
