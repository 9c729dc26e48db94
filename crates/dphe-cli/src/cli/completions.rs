//! `dphe completions`: prints a completion script for a shell.

use clap::{Args, CommandFactory as _};

use super::{Cli, CliError};

/// Print a completion script for a shell
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<(), CliError> {
        clap_complete::generate(self.shell, &mut Cli::command(), "dphe", &mut std::io::stdout());
        Ok(())
    }
}
