//! `dphe man`: writes man pages.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};

use super::{Cli, CliError};

/// Write man pages for all commands
///
/// Writes dphe.1, and one page per command, such as dphe-serve-aggregator.1. Existing pages with the same names are
/// replaced. `man` finds the pages in a directory that is called man1 and whose parent is in MANPATH.
#[derive(Args)]
pub(crate) struct Man {
    /// The directory for the pages, created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let written = std::fs::create_dir_all(&self.directory)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), &self.directory));
        written.map_err(|source| CliError::Output { path: self.directory, source })
    }
}
