//! The program `dphe`: parse, run, map an error to two lines and an exit code.

mod cli;

use std::process::ExitCode;

use clap::Parser;
use dphe_node::{files, key_file, model, report, samples};

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("try: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}
