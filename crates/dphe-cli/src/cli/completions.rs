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
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "dphe", &mut script);
        // not straight to standard output, whose reader may close it early
        print!("{}", String::from_utf8_lossy(&script));
        Ok(())
    }
}
