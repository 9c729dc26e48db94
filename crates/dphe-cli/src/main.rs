//! The program `dphe`. It parses the command line, runs the command, and prints an error with a hint.
//!
//! | module | contents |
//! | --- | --- |
//! | `cli` | the commands, one file per command |
//! | `args` | arguments that several commands share |
//! | `page`, `terminal` | HTML reports, and tables in a terminal |
//! | `load` | the load generator of `dphe bench service` |
//! | `processes` | parties as child processes, for `demo` and `bench service` |
//! | `round_cost`, `timing` | measurements for `plan` and `bench` |
//! | `digits` | the bundled data set of handwritten digits |
//! | `fashion`, `png` | the bundled pictures of clothes, and pictures on pages |

mod args;
mod cli;
mod digits;
mod fashion;
mod load;
mod page;
mod png;
mod processes;
mod round_cost;
mod terminal;
mod timing;

use std::process::ExitCode;

use clap::Parser;
use dphe_service::{files, key_file, model, samples};

fn main() -> ExitCode {
    // a reader may close the pipe early (`dphe predict ... | head`), which makes println panic
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if message.starts_with("failed printing to stdout") {
            std::process::exit(141);
        }
        usual(panic);
    }));
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => cli::renamed::explain(error, &arguments).exit(),
    };
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("hint: {hint}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}
