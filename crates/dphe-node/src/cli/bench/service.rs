//! `dphe bench service`: the services under load. A key generator and aggregators are started as processes on this
//! machine, and a crowd of users in this one uploads to them.

mod drive;
mod figures;
mod output;
mod setting;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dphe_node::load::Beside;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::output::Report;
use super::Format;
use crate::cli::key::Mode;
use crate::cli::processes::stopped_by_signal;
use crate::cli::{CliError, key_bits};

/// Put the services under load
///
/// Starts a key generator and an aggregator as processes on this machine, lets many users upload over TLS, each with a
/// key and a certificate of its own, and says how long that took and what it cost. Fails unless every upload was
/// acknowledged and the published model is exactly the average of what was sent. With 2048 bits the encryption key is a
/// test key that everybody can read.
#[derive(Args, Debug)]
pub(crate) struct Service {
    /// Users that upload; several numbers, with commas between them, are run in turn
    #[arg(long, value_delimiter = ',', default_values_t = [1000], value_parser = clap::value_parser!(u32).range(3..=50_000))]
    users: Vec<u32>,
    /// Weights of an upload
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    dimension: u32,
    /// What a round hides
    #[arg(long, value_enum, default_value_t = ProfileName::Full)]
    profile: ProfileName,
    /// Bits of the modulus; other keys than those of 2048 bits are made for the run, which takes its time
    #[arg(long, default_value_t = 2048)]
    bits: u32,
    /// How noise is drawn
    #[arg(long, value_enum, default_value_t = Mode::Fast)]
    mode: Mode,
    /// Uploads a second that are begun, whatever becomes of those before; 0: as many as can be
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    /// Uploads under way at once, at most
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=8_000))]
    in_flight: u32,
    /// The share of uploads that are sent a second time, from 0 to 1: half of them at the same time as the first
    #[arg(long, default_value_t = 0.0)]
    duplicates: f64,
    /// Uploads of a few bytes a second that never end
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=5_000))]
    slow: u32,
    /// Connections that are opened and never speak
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=10_000))]
    idle: u32,
    /// Users that wait for news all the time, as real ones do; at most all of them
    #[arg(long, default_value_t = 0)]
    waiting: u32,
    /// Aggregators, which share one database
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    replicas: u32,
    /// The database that aggregators share; without it there is one aggregator, with a file
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Rounds, one after the other
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rounds: u64,
    /// Fixes the noise of uploads
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A table to read, or JSON
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Folder for the figures as JSON, and plots if there are several numbers of users
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Profiles whose uploads can be sealed before the round begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProfileName {
    Full,
}

impl Service {
    /// What there is beside this many uploads.
    fn beside(&self, users: u32) -> Beside {
        let waiting = self.waiting.min(users) as usize;
        Beside { idle: self.idle as usize, slow: self.slow as usize, waiting }
    }

    pub(crate) fn run(self) -> Result<(), CliError> {
        self.check()?;
        allow_many_files();
        let stopped = stopped_by_signal()?;
        let mut report = Report::new(&self);
        for &users in &self.users {
            report.add(self.run_with(users, &stopped)?);
        }
        report.print(self.format)?;
        if let Some(folder) = &self.out {
            report.write(folder)?;
        }
        report.verdict()
    }

    fn check(&self) -> Result<(), CliError> {
        let refuse =
            |what: &str, hint: &str| Err(CliError::Data { what: what.to_owned(), hint: hint.to_owned() });
        if !(0.0..=1.0).contains(&self.duplicates) {
            return refuse("--duplicates is a share from 0 to 1", "--duplicates 0.1");
        }
        if self.rate != 0.0 && !(0.001..=1e6).contains(&self.rate) {
            return refuse("--rate is a number of uploads a second", "--rate 100, or 0 for no bound");
        }
        key_bits(self.bits, false)?;
        if self.replicas > 1 && self.database.is_none() {
            let hint = "--database with the URL of an empty database, or --replicas 1";
            return refuse("several aggregators need a database that they share", hint);
        }
        Ok(())
    }
}

/// Every connection is a file, here and in the services, which inherit the limit.
fn allow_many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // with fewer, connections that fail will tell
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
