//! The program `dphe`: parse, run, map an error to two lines and an exit code.

mod cli;

use std::process::ExitCode;

use clap::Parser;
use dphe_node::{files, key_file, model, report, samples};

fn main() -> ExitCode {
    // whoever reads our output may stop reading: `dphe predict ... | head` is no bug
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if said.starts_with("failed printing to stdout") {
            std::process::exit(141);
        }
        usual(panic);
    }));
    match cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("try: {hint}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}
