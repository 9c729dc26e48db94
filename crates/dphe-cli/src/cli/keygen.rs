//! `dphe keygen`: creates the keys and kits of a task.

use std::path::{Path, PathBuf};

use clap::Args;
use dphe::hazmat::paper_keys;
use dphe_paillier::Threads;
use dphe_service::kit::{KitPlan, Protection, Request, make_kits, make_request};
use dphe_service::party::party_of;
use dphe_service::task_file::TaskFile;

use super::key::{ask_passphrase, generate};
use super::{CliError, os_rng};
use crate::key_file;

/// Create the keys of a task and a kit per party
#[derive(Args)]
pub(crate) struct Keygen {
    /// The task file
    #[arg(default_value = "task.toml")]
    task: PathBuf,
    /// The directory for the kits, or for the keys of a request; it must not exist
    #[arg(short, long, default_value = "kits")]
    output: PathBuf,
    /// Create only this party's identity key (user-3, aggregator), and a request.toml to send to the operator of the
    /// key generator
    #[arg(long, value_name = "PARTY", conflicts_with_all = ["with", "passphrase_file", "no_passphrase"])]
    request: Option<String>,
    /// Create the kit of a party that sent this request, without its secret key
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// Read the passphrase of the decryption key from the first line of this file
    #[arg(long, value_name = "FILE", conflicts_with = "no_passphrase")]
    passphrase_file: Option<PathBuf>,
    /// Store the decryption key unencrypted, for a service that starts unattended; anyone who can read the disk or a
    /// backup of it can decrypt
    #[arg(long)]
    no_passphrase: bool,
}

impl Keygen {
    pub(crate) fn run(self) -> Result<(), CliError> {
        if let Some(party) = &self.request {
            return ask(&self.task, party, &self.output);
        }
        let requests = self.with.iter().map(|file| Request::read(file)).collect::<Result<_, _>>()?;
        let plan = KitPlan::new(&self.task, requests, paper_keys())?;
        if self.output.exists() {
            return Err(dphe_service::Error::from(dphe_service::kit::KitError::Exists {
                folder: self.output,
            })
            .into());
        }
        let protection = match &self.passphrase_file {
            _ if self.no_passphrase => Protection::FileMode,
            Some(file) => Protection::Passphrase(key_file::read_passphrase(file)?),
            None => Protection::Passphrase(ask_passphrase()?),
        };
        if matches!(&protection, Protection::Passphrase(words) if words.is_empty()) {
            return Err(CliError::PassphraseEmpty);
        }
        let task = plan.task();
        let key = generate(task.key_bits(), task.config().noise, Threads::all())?;
        let id = key.encryption_key().id();
        let (bits, profile) = (task.key_bits(), task.profile());
        let directories = make_kits(&plan, key, &self.output, &protection, &mut os_rng()?)?;
        println!("task         {}", task.id());
        println!("key          {id} ({} bits, profile {profile})", bits.get());
        if !bits.is_secure() {
            println!("warning      a key of {} bits protects nothing", bits.get());
        }
        for directory in directories {
            println!("kit          {}", directory.display());
        }
        if self.no_passphrase {
            println!("note         Only its file mode protects the decryption key. It has no passphrase.");
        }
        println!("next         Send each party its kit in private. It runs `dphe doctor --kit DIR`.");
        Ok(())
    }
}

fn ask(task: &Path, party: &str, directory: &Path) -> Result<(), CliError> {
    let file = TaskFile::read(task).map_err(dphe_service::Error::from)?;
    let party = party_of(party).ok_or_else(|| CliError::UnknownParty { name: party.to_owned() })?;
    make_request(&file, party, directory, &mut os_rng()?)?;
    println!("secret key   {}/identity.key (keep it here)", directory.display());
    println!("request      {}/request.toml (send it to the key generator)", directory.display());
    println!("next         Copy the key into your kit, then run `dphe doctor --kit DIR`.");
    Ok(())
}
