//! `dphe keygen`: creates the keys and kits of a task.

use std::path::{Path, PathBuf};

use clap::Args;
use dphe::PartyId;
use dphe::hazmat::paper_keys;
use dphe_paillier::Threads;
use dphe_service::kit::{Fingerprint, KitError, KitPlan, Protection, make_kits, make_request, read_requests};
use dphe_service::party::{party_name, party_of};
use dphe_service::task_file::TaskFile;

use super::key::{generate, new_passphrase};
use super::{CliError, os_rng};

/// Create the keys of a task and a kit per party
///
/// Every user and the aggregator first creates its own identity key with `--request`, and sends the request that this
/// makes to the operator of the key generator. The operator then creates the kits from all requests.
#[derive(Args)]
pub(crate) struct Keygen {
    /// The task file
    #[arg(default_value = "task.toml")]
    task: PathBuf,
    /// The directory for the kits, or for the keys of a request; it must not exist [default: kits, or my-keys with
    /// `--request`]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Create only this party's identity key (user-3, aggregator), and a request to send to the operator of the key
    /// generator
    #[arg(
        long,
        value_name = "PARTY",
        conflicts_with_all = ["with", "for_all_parties", "passphrase_file", "no_passphrase"]
    )]
    request: Option<String>,
    /// The requests of the aggregator and of all users: a file, or a directory with .toml files; may be repeated
    #[arg(long, value_name = "PATH")]
    with: Vec<PathBuf>,
    /// Create the identity keys of parties that sent no request, too. This is for demos and tests: with these keys, the
    /// operator of the key generator can take the place of those parties
    #[arg(long)]
    for_all_parties: bool,
    /// Read the passphrase of the decryption key, of at least 12 characters, from the first line of this file
    #[arg(long, value_name = "FILE", conflicts_with = "no_passphrase")]
    passphrase_file: Option<PathBuf>,
    /// Store the decryption key unencrypted, for a service that starts unattended; anyone who can read the disk or a
    /// backup of it can decrypt
    #[arg(long)]
    no_passphrase: bool,
}

impl Keygen {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let output = |usual: &str| self.output.clone().unwrap_or_else(|| usual.into());
        match &self.request {
            Some(party) => ask(&self.task, party, &output("my-keys")),
            None => self.make(&output("kits")),
        }
    }

    /// Creates the keys and the kits.
    fn make(&self, output: &Path) -> Result<(), CliError> {
        let requests = read_requests(&self.with)?;
        let plan = match self.for_all_parties {
            true => KitPlan::for_all_parties(&self.task, requests, paper_keys())?,
            false => KitPlan::new(&self.task, requests, paper_keys())?,
        };
        if output.exists() {
            return Err(dphe_service::Error::from(KitError::Exists { folder: output.into() }).into());
        }
        // shown before the search for a key, so that the operator can compare them meanwhile
        for (party, fingerprint) in plan.fingerprints()? {
            println!("request      {:<14} {fingerprint}", party_name(party));
        }
        let protection = match self.no_passphrase {
            true => Protection::FileMode,
            false => Protection::Passphrase(new_passphrase(self.passphrase_file.as_deref())?),
        };
        let task = plan.task();
        let key = generate(task.key_bits(), task.config().noise, Threads::all())?;
        let id = key.encryption_key().id();
        let (bits, profile) = (task.key_bits(), task.profile());
        let made = make_kits(&plan, key, output, &protection, &mut os_rng()?)?;
        println!("task         {}", task.id());
        println!("key          {id} ({} bits, profile {profile})", bits.get());
        if !bits.is_secure() {
            println!("warning      a key of {} bits protects nothing", bits.get());
        }
        for directory in made.folders {
            println!("kit          {}", directory.display());
        }
        if self.no_passphrase {
            println!("note         Only its file mode protects the decryption key. It has no passphrase.");
        }
        if self.for_all_parties {
            println!("note         For demos and tests only: all identity keys were made here.");
        }
        println!("identity     {}", Fingerprint::of_identity(&made.roster.identity(PartyId::KeyGenerator)?));
        println!("roster       {}", Fingerprint::of_roster(&made.roster));
        println!("next         Send each party its kit in private. All parties compare the hash");
        println!("             of the roster, and pass it with `--roster` at their first start.");
        Ok(())
    }
}

fn ask(task: &Path, party: &str, directory: &Path) -> Result<(), CliError> {
    let file = TaskFile::read(task).map_err(dphe_service::Error::from)?;
    let party = party_of(party).ok_or_else(|| CliError::UnknownParty { name: party.to_owned() })?;
    let made = make_request(&file, party, directory, &mut os_rng()?)?;
    println!("secret key   {} (keep it here)", made.identity.display());
    println!("fingerprint  {}", made.fingerprint);
    println!("request      {} (send it to the key generator)", made.request.display());
    println!("next         Pass the key with `--identity` when you first start with your kit.");
    Ok(())
}
