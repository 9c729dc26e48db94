//! `dphe roster`: lets members leave a running task, and replaces identities.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use dphe::PartyId;
use dphe::hazmat::paper_keys;
use dphe_service::Error;
use dphe_service::kit::{Kit, KitChange, Request, apply_change, make_change};
use dphe_service::party::{party_name, party_of};
use dphe_service::store::SqliteStore;

use super::key::prompt;
use super::{CliError, block_on, os_rng};
use crate::key_file;
use crate::terminal::print_entry;

/// Change who takes part in a running task
#[derive(Subcommand)]
pub(crate) enum RosterCommand {
    /// Sign a new roster that removes users or replaces identities, while the key generator is stopped
    Change(Change),
    /// Apply a change to a party's kit; it takes effect at the party's next start
    Apply(Apply),
}

#[derive(Args)]
pub(crate) struct Change {
    /// The kit of the key generator
    #[arg(long, value_name = "DIR")]
    kit: PathBuf,
    /// The data directory of the key generator
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// A user to remove, such as user-3; may be repeated
    #[arg(long, value_name = "PARTY", required_unless_present = "with")]
    remove: Vec<String>,
    /// The request of a party that needs a new identity, made with `dphe keygen --request`; may be repeated
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// The directory for the change and for the kits of users with a new identity; it must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Read the passphrase of the decryption key from the first line of this file
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Apply {
    /// The change, such as roster-2.change
    change: PathBuf,
    /// The kit of the party
    #[arg(long, value_name = "DIR")]
    kit: PathBuf,
    /// The new secret key, if the change replaces the identity of the aggregator
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

impl RosterCommand {
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Change(change) => change.run(),
            Self::Apply(apply) => apply.run(),
        }
    }
}

impl Change {
    fn run(self) -> Result<(), CliError> {
        let remove = self.remove.iter().map(|name| match party_of(name) {
            Some(PartyId::User(user)) => Ok(user),
            _ => Err(CliError::UnknownUser { name: name.clone() }),
        });
        let replace = self.with.iter().map(|file| Request::read(file)).collect::<Result<_, _>>()?;
        let wanted = KitChange { remove: remove.collect::<Result<_, _>>()?, replace };
        let kit = read_kit(&self.kit)?;
        let passphrase = match &self.passphrase_file {
            Some(file) => key_file::read_passphrase(file)?,
            None if kit.needs_passphrase() => prompt("Passphrase of the decryption key: ")?,
            None => Default::default(),
        };
        let mut rng = os_rng()?;
        let made = block_on(async {
            let store = SqliteStore::open(&self.data).await.map_err(Error::from)?;
            make_change(&kit, &passphrase, store, &wanted, &self.output, &mut rng).await
        })??;
        println!("roster       {}", made.roster);
        println!("first round  {}", made.first_round);
        for (party, fingerprint) in made.replaced {
            println!("{:<12} {fingerprint} (compare it with this party)", party_name(party));
        }
        println!("change       {}", made.file.display());
        for folder in made.kits {
            println!("kit          {} (send it in private)", folder.display());
        }
        print_entry(
            "next",
            "Send the change to all parties. Each runs `dphe roster apply`, compares the hash of the roster with the \
             others, and starts again with `--roster HASH`.",
        );
        Ok(())
    }
}

impl Apply {
    fn run(self) -> Result<(), CliError> {
        let kit = read_kit(&self.kit)?;
        let applied = apply_change(&kit, &self.change, self.identity.as_deref())?;
        println!("roster       {}", applied.roster);
        println!("first round  {}", applied.first_round);
        for user in applied.removed {
            println!("removed      {}", party_name(PartyId::User(user)));
        }
        for party in applied.replaced {
            println!("replaced     {}", party_name(party));
        }
        print_entry(
            "next",
            "Compare the hash of the roster with several other parties by telephone. Then start this party again with \
             `--roster` and the hash.",
        );
        Ok(())
    }
}

fn read_kit(folder: &Path) -> Result<Kit, CliError> {
    Ok(Kit::read_with(folder, paper_keys())?)
}
