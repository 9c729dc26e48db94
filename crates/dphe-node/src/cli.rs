//! The command line. One file for each command; this one names them and says how they fail.

mod bench;
mod data;
mod demo;
mod evaluate;
mod export;
mod extract;
mod input;
mod inspect;
mod key;
mod learner;
mod maintain;
mod measure;
mod place;
mod plan;
mod predict;
mod processes;
mod reproduce;
mod round_cost;
mod serve;
mod simulate;
mod table;
mod task;

use clap::{CommandFactory as _, Parser, Subcommand};
use dphe_paillier::{BACKEND_VARIABLE, Backend, KeyBits, hazmat};

use crate::key_file::KeyFileError;
use crate::model::ModelError;
use crate::samples::SamplesError;

/// Learn a visual classifier together without sharing images.
#[derive(Parser)]
#[command(name = "dphe", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Learn to read digits together: everything a deployment has, on this machine
    Demo(demo::Demo),
    /// Train as users, aggregator and key generator would, in one process
    Simulate(Box<simulate::Simulate>),
    /// Say what a task will cost before anybody runs it
    Plan(plan::Plan),
    /// Say how good a model is on labelled features
    Evaluate(evaluate::Evaluate),
    /// Give labels to photos or features
    Predict(predict::Predict),
    /// Write a model in a format that other programs read
    Export(export::Export),
    /// Repeat the paper's experiments, and those about it
    Reproduce(reproduce::Reproduce),
    /// Make and look at Paillier keys
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Turn photos into features with an ONNX network
    Extract(extract::Extract),
    /// Look at feature files, and split them
    #[command(subcommand)]
    Data(data::DataCommand),
    /// Write a task file to be changed
    Init(task::Init),
    /// Make the keys of a task, and a start-up kit for each party
    Keygen(task::Keygen),
    /// Run a service of a task
    #[command(subcommand)]
    Serve(serve::Serve),
    /// Take part in a task as a user
    Join(serve::Join),
    /// Look at a kit, the clock, the port and the peers before the day it matters
    Doctor(inspect::Doctor),
    /// Ask the services of a task how they stand
    Status(inspect::Status),
    /// Check again what a party stored: the log's chain of hashes, and every round's signed messages
    Verify(inspect::Verify),
    /// Copy a party's data folder, also while the party runs
    Backup(maintain::Backup),
    /// New certificates for the parties of a task that goes on
    #[command(subcommand)]
    Certificate(maintain::Certificate),
    /// Measure this machine
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Write what a shell needs to complete this program's commands and options
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
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
            Command::Serve(command) => command.run(),
            Command::Join(command) => command.run(),
            Command::Doctor(command) => command.run(),
            Command::Status(command) => command.run(),
            Command::Verify(command) => command.run(),
            Command::Backup(command) => command.run(),
            Command::Certificate(command) => command.run(),
            Command::Completions { shell } => {
                clap_complete::generate(shell, &mut Self::command(), "dphe", &mut std::io::stdout());
                Ok(())
            }
        }
    }
}

/// The library quietly falls back to what the CPU can do; a person who asked for something should know.
fn check_backend_variable() -> Result<(), CliError> {
    let Ok(name) = std::env::var(BACKEND_VARIABLE) else { return Ok(()) };
    match Backend::from_name(&name) {
        None => Err(CliError::UnknownBackend { name }),
        Some(backend) if !backend.available() => Err(CliError::UnavailableBackend { name }),
        Some(_) => Ok(()),
    }
}

/// Why a command failed, and what to try.
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
    Node(#[from] dphe_node::Error),
    #[error("there is no party {name:?}")]
    UnknownParty { name: String },
    #[error("the operating system gives no threads or signals: {source}")]
    Runtime { source: std::io::Error },
    #[error("a claim does not hold")]
    Claims,
    #[error("{what}")]
    NotWell { what: &'static str },
    #[error("the kit changed while it was read")]
    Backwards,
    #[error("the passphrase could not be read: {0}")]
    Passphrase(std::io::Error),
    #[error("the passphrases differ")]
    PassphrasesDiffer,
    #[error("the passphrase is empty")]
    PassphraseEmpty,
    #[error("no random bytes from the operating system: {0}")]
    Randomness(getrandom::Error),
    #[error("a back end named {name:?} does not exist")]
    UnknownBackend { name: String },
    #[error("this CPU cannot run the {name} back end")]
    UnavailableBackend { name: String },
    #[error("{slot_bits}-bit slots leave no room for {terms} terms")]
    Slots { slot_bits: u32, terms: u64 },
    #[error("the report could not be written: {0}")]
    Report(#[from] serde_json::Error),
}

impl CliError {
    /// What a script can tell apart (docs/operations.md): 1, something failed; 3, a check found something wrong. Wrong
    /// usage is 2, from the parser.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NotWell { .. } | Self::Claims => 3,
            _ => 1,
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::KeyFile(error) => error.hint(),
            Self::Samples(error) => error.hint(),
            Self::Model(error) => error.hint(),
            Self::Federate(error) | Self::Reproduce(dphe_reproduce::Error::Federate(error)) => {
                error.advice().map(Into::into)
            }
            Self::Output { .. } => Some("a folder that you may write to, with room left".into()),
            Self::Features(error) => error.hint(),
            Self::Data { hint, .. } => Some(hint.clone()),
            Self::Node(error) => error.hint(),
            Self::UnknownParty { .. } => Some("aggregator, or user-1, user-2, ...".into()),
            Self::Claims => Some("the lines that begin with `does not hold` say which".into()),
            Self::NotWell { .. } => Some("the lines above that do not begin with ok".into()),
            Self::Runtime { .. } | Self::Backwards => None,
            Self::Passphrase(_) => Some("give it in a file with --passphrase-file".into()),
            Self::PassphrasesDiffer | Self::PassphraseEmpty => Some("type the same passphrase twice".into()),
            Self::UnknownBackend { .. } | Self::UnavailableBackend { .. } => {
                let names: Vec<_> = Backend::all().filter(|b| b.available()).map(Backend::name).collect();
                Some(format!("unset {BACKEND_VARIABLE}, or set it to one of: {}", names.join(", ")))
            }
            Self::Slots { .. } => Some("wider slots with --slot-bits, or fewer --terms".into()),
            Self::KeyBits(_) => Some("--bits 3072, or --bits 1024 --paper to reproduce the paper".into()),
            Self::Paillier(_)
            | Self::Protocol(_)
            | Self::Reproduce(_)
            | Self::Learn(_)
            | Self::Randomness(_)
            | Self::Report(_) => None,
        }
    }
}

/// The length asked for on the command line; short ones only with `--paper`.
fn key_bits(bits: u32, paper: bool) -> Result<KeyBits, CliError> {
    let found = if paper { hazmat::insecure_key_bits(bits) } else { KeyBits::new(bits) };
    found.map_err(CliError::KeyBits)
}

/// A generator seeded by the operating system.
pub(crate) fn os_rng() -> Result<chacha20::ChaCha20Rng, CliError> {
    rand_core::SeedableRng::try_from_rng(&mut getrandom::SysRng).map_err(CliError::Randomness)
}
