//! The commands, one file per command, the code that several of them share, and the errors that they return.

mod backup;
mod bench;
mod completions;
mod data;
mod demo;
mod doctor;
mod evaluate;
mod export;
mod extract;
mod help;
mod init;
mod join;
mod key;
mod keygen;
mod man;
#[cfg_attr(not(feature = "photos"), path = "cli/no_photos.rs")]
mod photos;
mod plan;
mod predict;
pub(crate) mod renamed;
mod reproduce;
mod roster;
mod samples;
mod serve;
mod simulate;
mod status;
mod verify;

use clap::{Parser, Subcommand};
use dphe_paillier::{BACKEND_VARIABLE, Backend, KeyBits, hazmat};

use crate::key_file::KeyFileError;
use crate::model::ModelError;
use crate::samples::SamplesError;

/// Learn a visual classifier together without sharing images.
#[derive(Parser)]
#[command(
    name = "dphe",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    help_template = help::template(Command::augment_subcommands(clap::Command::new("dphe")))
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Demo),
    Simulate(Box<simulate::Simulate>),
    Plan(plan::Plan),
    Evaluate(evaluate::Evaluate),
    Predict(predict::Predict),
    Export(export::Export),
    Reproduce(reproduce::Reproduce),
    #[command(subcommand)]
    Key(key::KeyCommand),
    Extract(extract::Extract),
    #[command(subcommand)]
    Data(data::DataCommand),
    Init(init::Init),
    Keygen(keygen::Keygen),
    #[command(subcommand)]
    Roster(roster::RosterCommand),
    #[command(subcommand)]
    Serve(serve::Serve),
    Join(join::Join),
    Doctor(doctor::Doctor),
    Status(status::Status),
    Verify(verify::Verify),
    Backup(backup::Backup),
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    Completions(completions::Completions),
    Man(man::Man),
}

impl Cli {
    pub(crate) fn run(self) -> Result<(), CliError> {
        check_backend_variable()?;
        match self.command {
            Command::Demo(command) => command.run(),
            Command::Simulate(command) => command.run(),
            Command::Plan(command) => command.run(),
            Command::Evaluate(command) => command.run(),
            Command::Predict(command) => command.run(),
            Command::Export(command) => command.run(),
            Command::Reproduce(command) => command.run(),
            Command::Key(command) => command.run(),
            Command::Extract(command) => command.run(),
            Command::Data(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::Init(command) => command.run(),
            Command::Keygen(command) => command.run(),
            Command::Roster(command) => command.run(),
            Command::Serve(command) => command.run(),
            Command::Join(command) => command.run(),
            Command::Doctor(command) => command.run(),
            Command::Status(command) => command.run(),
            Command::Verify(command) => command.run(),
            Command::Backup(command) => command.run(),
            Command::Completions(command) => command.run(),
            Command::Man(command) => command.run(),
        }
    }
}

/// Fails if the environment asks for a back end that this CPU cannot run. The library would silently use another one.
fn check_backend_variable() -> Result<(), CliError> {
    let Ok(name) = std::env::var(BACKEND_VARIABLE) else { return Ok(()) };
    match Backend::from_name(&name) {
        None => Err(CliError::UnknownBackend { name }),
        Some(backend) if !backend.available() => Err(CliError::UnavailableBackend { name }),
        Some(_) => Ok(()),
    }
}

/// An error of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("{0}")]
    Paillier(#[from] dphe_paillier::Error),
    #[error("{0}")]
    Protocol(#[from] dphe::Error),
    #[error("{0}")]
    Learn(#[from] dphe_learn::Error),
    #[error("{0}")]
    Features(#[from] dphe_features::Error),
    #[error("{what}")]
    Data { what: String, hint: String },
    #[error("{0}")]
    Federate(#[from] dphe_federate::Error),
    #[error("{0}")]
    Reproduce(#[from] dphe_reproduce::Error),
    #[error("{0}")]
    Samples(#[from] SamplesError),
    #[error("{0}")]
    Model(#[from] ModelError),
    #[error("{path} cannot be written: {source}")]
    Output { path: std::path::PathBuf, source: std::io::Error },
    #[error("{0}")]
    KeyBits(dphe_paillier::Error),
    #[error("{0}")]
    KeyFile(#[from] KeyFileError),
    #[error("{0}")]
    Service(#[from] dphe_service::Error),
    #[error("there is no party {name:?}")]
    UnknownParty { name: String },
    #[error("{name:?} is not the name of a user")]
    UnknownUser { name: String },
    #[error("the operating system refused a thread, a process or a signal handler: {source}")]
    Runtime { source: std::io::Error },
    #[error("a claim does not hold")]
    Claims,
    #[error("{what}")]
    CheckFailed { what: &'static str },
    #[error("the passphrase cannot be read: {0}")]
    Passphrase(std::io::Error),
    #[error("the passphrases differ")]
    PassphrasesDiffer,
    #[error("the passphrase is shorter than {least} characters")]
    PassphraseShort { least: usize },
    #[error("there is no back end {name:?}")]
    UnknownBackend { name: String },
    #[error("this CPU cannot run the {name} back end")]
    UnavailableBackend { name: String },
    #[error("{slot_bits}-bit slots cannot hold a sum of {terms} terms")]
    Slots { slot_bits: u32, terms: u64 },
    #[error("this build of dphe cannot {what}")]
    MissingFeature { what: &'static str, feature: &'static str },
    /// The program was stopped by Ctrl-C and says by itself what that means.
    #[error("interrupted")]
    Interrupted { hint: String },
    #[error("the report cannot be written: {0}")]
    Report(#[from] serde_json::Error),
}

impl CliError {
    /// Returns the exit code (docs/operations.md): 3 if a check found a problem, 130
    /// after Ctrl-C, 1 for other errors. The parser exits
    /// with 2 on wrong usage.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::CheckFailed { .. } | Self::Claims => 3,
            Self::Interrupted { .. } => 130,
            _ => 1,
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::KeyFile(error) => error.hint(),
            Self::Samples(error) => error.hint(),
            Self::Model(error) => error.hint(),
            Self::Federate(error) | Self::Reproduce(dphe_reproduce::Error::Federate(error)) => {
                error.hint().map(Into::into)
            }
            Self::Output { .. } => {
                Some("Choose a directory that you can write to, with enough space.".into())
            }
            Self::Features(error) => error.hint(),
            Self::Data { hint, .. } | Self::Interrupted { hint } => Some(hint.clone()),
            Self::Service(error) => error.hint(),
            Self::UnknownParty { .. } => {
                Some("Use `aggregator`, `key-generator`, `user-1`, `user-2` and so on.".into())
            }
            Self::UnknownUser { .. } => Some("Use `user-1`, `user-2` and so on.".into()),
            Self::Claims => Some("See the lines above that start with `does not hold`.".into()),
            Self::CheckFailed { .. } => Some("See the lines above that are not marked `ok`.".into()),
            Self::Runtime { .. } => None,
            Self::Passphrase(_) => Some("Pass it in a file with `--passphrase-file`.".into()),
            Self::PassphrasesDiffer => {
                Some("Run the command again and type the same passphrase twice.".into())
            }
            Self::PassphraseShort { .. } => {
                let hint = "Run the command again with a longer passphrase, such as five random words. \
                            `--passphrase-file` reads it from the first line.";
                Some(hint.into())
            }
            Self::UnknownBackend { .. } | Self::UnavailableBackend { .. } => {
                let names: Vec<_> = Backend::all().filter(|b| b.available()).map(Backend::name).collect();
                Some(format!("Unset {BACKEND_VARIABLE}, or set it to one of: {}.", names.join(", ")))
            }
            Self::Slots { .. } => Some("Use wider slots with `--slot-bits`, or fewer `--terms`.".into()),
            Self::KeyBits(_) => {
                Some("Use `--bits 3072`, or `--bits 1024 --paper` to reproduce the paper.".into())
            }
            Self::MissingFeature { feature, .. } => {
                // `args` panics on a path that is not Unicode
                let arguments = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned());
                Some(format!("Run `{}`.", command_with(feature, arguments)))
            }
            Self::Paillier(_) | Self::Protocol(_) | Self::Reproduce(_) | Self::Learn(_) | Self::Report(_) => {
                None
            }
        }
    }
}

/// Returns the command that builds `dphe` with a feature and runs it with the same arguments.
fn command_with(feature: &str, arguments: impl Iterator<Item = String>) -> String {
    let quoted = arguments.map(|argument| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=@%+".contains(c);
        if !argument.is_empty() && argument.chars().all(plain) {
            argument
        } else {
            format!("'{}'", argument.replace('\'', "'\\''"))
        }
    });
    let command = [format!("cargo run --release --features {feature} --")];
    command.into_iter().chain(quoted).collect::<Vec<_>>().join(" ")
}

/// Checks a key length from the command line. Short keys need `--paper`.
fn key_bits(bits: u32, paper: bool) -> Result<KeyBits, CliError> {
    let found = if paper { hazmat::insecure_key_bits(bits) } else { KeyBits::new(bits) };
    found.map_err(CliError::KeyBits)
}

/// Creates a random number generator seeded by the operating system.
pub(crate) fn os_rng() -> Result<chacha20::ChaCha20Rng, CliError> {
    Ok(dphe_service::service::os_rng()?)
}

/// Runs a future on the current thread.
fn block_on<R>(work: impl Future<Output = R>) -> Result<R, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|source| CliError::Runtime { source })?.block_on(work))
}
