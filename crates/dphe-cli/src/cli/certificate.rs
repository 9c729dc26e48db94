//! `dphe certificate`: renews certificates of a running task.

use std::path::PathBuf;

use clap::Subcommand;
use dphe::PartyId;
use dphe::hazmat::paper_keys;
use dphe_service::certificates::{party_name, party_of};
use dphe_service::kit::{Kit, Request, install_certificate, issue_certificates, request_certificate};

use super::CliError;

/// Renew certificates of a running task
#[derive(Subcommand)]
pub(crate) enum Certificate {
    /// Create a TLS key, and a request.toml to send to the key generator (run by any party)
    Request {
        /// The kit of the party
        #[arg(long, value_name = "DIR")]
        kit: PathBuf,
        /// The directory for the key and the request; it must not exist
        #[arg(short, long, value_name = "DIR", default_value = "new-certificate")]
        output: PathBuf,
    },
    /// Issue certificates (run by the key generator)
    Issue {
        /// The kit of the key generator
        #[arg(long, value_name = "DIR")]
        kit: PathBuf,
        /// Issue a certificate with a new key for this party (user-3, aggregator, key-generator) [default: all parties,
        /// unless --with is given]
        #[arg(long, value_name = "PARTY")]
        party: Vec<String>,
        /// Issue a certificate for this request; its sender keeps its own key
        #[arg(long, value_name = "FILE")]
        with: Vec<PathBuf>,
        /// The number of days that the certificates are valid [default: as in the task file]
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: Option<u32>,
        /// The directory in which to create one directory per party; it must not exist
        #[arg(short, long, value_name = "DIR", default_value = "certificates")]
        output: PathBuf,
    },
    /// Install a certificate in a kit; the party uses it from its next start
    Install {
        /// The kit of the party
        #[arg(long, value_name = "DIR")]
        kit: PathBuf,
        /// The new certificate
        #[arg(long, value_name = "FILE")]
        certificate: PathBuf,
        /// The key of the new certificate
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
}

impl Certificate {
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Request { kit, output } => {
                request_certificate(&Kit::read_with(&kit, paper_keys())?, &output)?;
                println!("secret key   {}/tls.key (keep it here)", output.display());
                println!("request      {}/request.toml (send it to the key generator)", output.display());
                println!(
                    "next         Run `dphe certificate install` with this key and the certificate you get."
                );
            }
            Self::Issue { kit, party, with, days, output } => {
                let kit = Kit::read_with(&kit, paper_keys())?;
                let named = |name: &String| {
                    let party = party_of(name).filter(|&party| kit.roster().identity(party).is_ok());
                    party.ok_or_else(|| CliError::UnknownParty { name: name.clone() })
                };
                let mut parties = party.iter().map(named).collect::<Result<Vec<_>, _>>()?;
                if parties.is_empty() && with.is_empty() {
                    let users = kit.roster().users().map(PartyId::User);
                    parties = [PartyId::KeyGenerator, PartyId::Aggregator].into_iter().chain(users).collect();
                }
                parties.sort_unstable_by_key(|&party| party_name(party));
                parties.dedup();
                let requests = with.iter().map(|file| Request::read(file)).collect::<Result<Vec<_>, _>>()?;
                let days = days.unwrap_or(kit.task_file().task.valid_days);
                for directory in issue_certificates(&kit, &parties, &requests, days, &output)? {
                    println!("certificate  {}: valid for {days} days", directory.display());
                }
                println!(
                    "next         Send each party its directory. The party then runs `dphe certificate install`."
                );
            }
            Self::Install { kit, certificate, key } => {
                let (party, validity) = install_certificate(&kit, &certificate, &key, paper_keys())?;
                println!("certificate  {}, valid until {}", party_name(party), validity.to.date());
                println!("next         Restart the party. The other parties do not have to do anything.");
            }
        }
        Ok(())
    }
}
