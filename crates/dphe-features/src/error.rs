//! The crate's error type. An error says what happened to which file, and its hint says what to do next.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// An error while reading, writing or extracting features.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened or read.
    #[error("{} could not be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file could not be written. No partial file is left, and an older file of that name is unchanged.
    #[error("{} could not be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The content of a file is invalid.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// Features, labels and names do not match.
    #[error("{what}")]
    Table {
        /// The problem.
        what: String,
        /// What to do about it.
        hint: String,
    },
}

impl Error {
    /// Returns an imperative sentence that says what to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File { hint, .. } | Self::Table { hint, .. } => Some(hint.clone()),
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("Check the spelling of the path.".into())
            }
            Self::Write { .. } => {
                Some("Check the permissions and the free space, or write somewhere else.".into())
            }
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

    /// Adds the name of the file that the error is about.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            Self::Table { what, hint } => Self::File { path: path.into(), what, hint },
            other => other,
        }
    }
}
