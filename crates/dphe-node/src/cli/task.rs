//! `dphe init` and `dphe keygen`: from an idea to a kit for each party.

use std::path::{Path, PathBuf};

use clap::Args;
use dphe::TaskId;
use dphe_node::certificates::party_of;
use dphe_node::kit::{KitPlan, Protection, Request, make_kits, make_request};
use dphe_node::task_file::{TaskFile, template};
use dphe_paillier::Threads;
use rand_core::Rng as _;

use super::key::{ask_passphrase, generate};
use super::{CliError, os_rng};
use crate::key_file;

/// Write a task file to be changed
#[derive(Args)]
pub(crate) struct Init {
    /// Where to write it; nothing is overwritten
    #[arg(default_value = "task.toml")]
    file: PathBuf,
}

impl Init {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let mut id = [0; 16];
        os_rng()?.fill_bytes(&mut id);
        key_file::write_public(&self.file, template(TaskId::from_bytes(id)).as_bytes())?;
        println!("task file    {}", self.file.display());
        println!("next         agree on it with everybody, then: dphe keygen {}", self.file.display());
        Ok(())
    }
}

/// Make the keys of a task, and a start-up kit for each party
#[derive(Args)]
pub(crate) struct Keygen {
    /// The task file
    #[arg(default_value = "task.toml")]
    task: PathBuf,
    /// The folder of the kits, or of the keys made for a request; it must not exist
    #[arg(short, long, default_value = "kits")]
    output: PathBuf,
    /// Make the identity and TLS keys of this party here (user-3, aggregator), and a request.toml to send to whoever
    /// makes the kits
    #[arg(long, value_name = "PARTY", conflicts_with_all = ["with", "passphrase_file", "no_passphrase"])]
    request: Option<String>,
    /// Make the kit of a party that sent this request, without its secret keys
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// Read the passphrase of the key that decrypts from the first line of this file
    #[arg(long, value_name = "FILE", conflicts_with = "no_passphrase")]
    passphrase_file: Option<PathBuf>,
    /// Protect the key that decrypts by its file's mode alone: for a service that starts unattended. Whoever can read
    /// the disk or a backup of it can decrypt
    #[arg(long)]
    no_passphrase: bool,
}

impl Keygen {
    pub(crate) fn run(self) -> Result<(), CliError> {
        if let Some(party) = &self.request {
            return ask(&self.task, party, &self.output);
        }
        let requests = self.with.iter().map(|file| Request::read(file)).collect::<Result<_, _>>()?;
        let plan = KitPlan::new(&self.task, requests)?;
        if self.output.exists() {
            return Err(
                dphe_node::Error::from(dphe_node::kit::KitError::Exists { folder: self.output }).into()
            );
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
        let folders = make_kits(&plan, key, &self.output, &protection, &mut os_rng()?)?;
        println!("task         {}", task.id());
        println!("key          {id} ({} bits, profile {profile})", bits.get());
        if !bits.is_secure() {
            println!("warning      {} bits protect nothing today", bits.get());
        }
        for folder in folders {
            println!("kit          {}", folder.display());
        }
        if self.no_passphrase {
            println!(
                "note         the key that decrypts has no passphrase: its file's mode is all that protects it"
            );
        }
        println!(
            "next         hand each party its kit, by a way that nobody else can read; then: dphe doctor --kit DIR"
        );
        Ok(())
    }
}

fn ask(task: &Path, party: &str, folder: &Path) -> Result<(), CliError> {
    let file = TaskFile::read(task).map_err(dphe_node::Error::from)?;
    let party = party_of(party).ok_or_else(|| CliError::UnknownParty { name: party.to_owned() })?;
    make_request(&file, party, folder, &mut os_rng()?)?;
    println!("secret keys  {0}/identity.key, {0}/tls.key: they stay here", folder.display());
    println!("request      {}/request.toml: send it to whoever makes the kits", folder.display());
    println!("next         put both keys into the kit you get back; then: dphe doctor --kit DIR");
    Ok(())
}
