//! `dphe backup` and `dphe certificate`: what a task needs while it runs.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dphe::Party;
use dphe_node::backup::back_up;
use dphe_node::certificates::{party_of, role_name};
use dphe_node::kit::{Kit, Request, install_certificate, issue_certificates, request_certificate};

use super::CliError;

/// Copy a party's data folder, also while the party runs
#[derive(Args)]
pub(crate) struct Backup {
    /// The start-up kit of the party
    #[arg(long, value_name = "DIR")]
    kit: PathBuf,
    /// Its data folder
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The folder of the copy; it must not exist
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

impl Backup {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let kit = Kit::read(&self.kit)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| CliError::Runtime { source })?;
        let made = runtime.block_on(back_up(&kit, &self.data, &self.to))?;
        println!("copy         {}: {} bytes", self.to.display(), made.bytes);
        println!("log          {} records, head {}", made.log.records, &made.log.head[..16]);
        if made.again > 0 {
            println!("again        {} times, because the party moved on in the midst of it", made.again);
        }
        if kit.party() == Party::KeyGenerator {
            println!(
                "note         once the party goes on, this copy must not take its place: the others would refuse it"
            );
        }
        Ok(())
    }
}

/// New certificates for the parties of a task that goes on
#[derive(Subcommand)]
pub(crate) enum Certificate {
    /// Make a new TLS key at a party's own place, and a request.toml to send to the key generator
    Request {
        /// The start-up kit of the party
        #[arg(long, value_name = "DIR")]
        kit: PathBuf,
        /// The folder of the key and the request; it must not exist
        #[arg(short, long, value_name = "DIR", default_value = "new-certificate")]
        output: PathBuf,
    },
    /// Make new certificates, at the key generator
    Issue {
        /// The start-up kit of the key generator
        #[arg(long, value_name = "DIR")]
        kit: PathBuf,
        /// Make a certificate with a new key for this party (user-3, aggregator, key-generator); for all parties, unless
        /// one is named or a request given
        #[arg(long, value_name = "PARTY")]
        party: Vec<String>,
        /// Make a certificate for a party that sent this request, and keeps its key
        #[arg(long, value_name = "FILE")]
        with: Vec<PathBuf>,
        /// How long they are valid; as the task file says unless told
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: Option<u32>,
        /// A folder with one folder a party; it must not exist
        #[arg(short, long, value_name = "DIR", default_value = "certificates")]
        output: PathBuf,
    },
    /// Put a new certificate into a party's kit; the party shows it when it is started again
    Install {
        /// The start-up kit of the party
        #[arg(long, value_name = "DIR")]
        kit: PathBuf,
        /// The new certificate
        #[arg(long, value_name = "FILE")]
        certificate: PathBuf,
        /// Its key
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
}

impl Certificate {
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Request { kit, output } => {
                request_certificate(&Kit::read(&kit)?, &output)?;
                println!("secret key   {}/tls.key: it stays here", output.display());
                println!("request      {}/request.toml: send it to the key generator", output.display());
                println!(
                    "next         dphe certificate install, with the certificate that comes back and this key"
                );
            }
            Self::Issue { kit, party, with, days, output } => {
                let kit = Kit::read(&kit)?;
                let named = |name: &String| {
                    let party = party_of(name).filter(|&party| kit.roster().identity(party).is_ok());
                    party.ok_or_else(|| CliError::UnknownParty { name: name.clone() })
                };
                let mut parties = party.iter().map(named).collect::<Result<Vec<_>, _>>()?;
                if parties.is_empty() && with.is_empty() {
                    let users = kit.roster().users().map(Party::User);
                    parties = [Party::KeyGenerator, Party::Aggregator].into_iter().chain(users).collect();
                }
                parties.sort_unstable_by_key(|&party| role_name(party));
                parties.dedup();
                let requests = with.iter().map(|file| Request::read(file)).collect::<Result<Vec<_>, _>>()?;
                let days = days.unwrap_or(kit.task_file().task.valid_days);
                for folder in issue_certificates(&kit, &parties, &requests, days, &output)? {
                    println!("certificate  {}: valid for {days} days", folder.display());
                }
                println!(
                    "next         hand each party its folder as you did its kit; then: dphe certificate install"
                );
            }
            Self::Install { kit, certificate, key } => {
                let (party, validity) = install_certificate(&kit, &certificate, &key)?;
                println!("certificate  of {}, valid until {}", role_name(party), validity.to.date());
                println!("next         start the party again; the others need not know");
            }
        }
        Ok(())
    }
}
