//! `dphe bench service`: the services under load. It starts a key generator and aggregators as processes on this
//! machine, and uploads to them from many users in this process.

mod drive;
mod output;
mod resources;
mod setting;

use std::path::PathBuf;

use crate::args::{TableFormat, one_of};
use crate::load::AbusiveClientPlan;
use clap::Args;
use dphe::{NoiseMode, Profile};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::output::Report;
use crate::cli::{CliError, key_bits};
use crate::processes::stopped_by_signal;

/// Measure the services under load
///
/// Starts a key generator and an aggregator as processes on this machine, and uploads to them over TLS from many users
/// with their own keys. Prints the time and resources that this took. Fails unless every upload is
/// acknowledged and the published model is exactly the average of the updates. With 2048 bits, the encryption key is a
/// public test key.
#[derive(Args, Debug)]
pub(crate) struct Service {
    /// The number of users that upload, or several numbers separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [1000], value_parser = clap::value_parser!(u32).range(3..=50_000))]
    users: Vec<u32>,
    /// The number of weights per upload
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    dimension: u32,
    /// The profile; only `full` has uploads that can be sealed before the round starts
    #[arg(long, value_parser = [Profile::Full.as_str()], default_value = Profile::Full.as_str())]
    profile: String,
    /// The key length in bits; 2048 uses a built-in test key, other lengths generate a key first
    #[arg(long, default_value_t = 2048)]
    bits: u32,
    /// How noise is generated
    #[arg(long, value_parser = one_of::<NoiseMode>(), default_value = NoiseMode::Fast.name())]
    noise: NoiseMode,
    /// The number of uploads started per second, independently of earlier ones; 0 for no limit
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    /// The maximum number of concurrent uploads
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=8_000))]
    in_flight: u32,
    /// The fraction of uploads that are sent twice, from 0 to 1; half of the copies are sent together with the
    /// original
    #[arg(long, default_value_t = 0.0)]
    duplicates: f64,
    /// The number of uploads that send a few bytes per second and never end
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=5_000))]
    slow: u32,
    /// The number of idle connections
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=10_000))]
    idle: u32,
    /// The number of users that keep polling, as real ones do
    #[arg(long, default_value_t = 0)]
    waiting: u32,
    /// The number of aggregators, which share a database
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    replicas: u32,
    /// The database that aggregators share [default: one aggregator with SQLite]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// The number of rounds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rounds: u64,
    /// The random seed of the uploads' noise
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The output format
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
    /// The directory for measurements as JSON, and for plots if there are several numbers of users
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl Service {
    /// Returns the abusive clients beside this many uploading users.
    fn abusive_clients(&self, users: u32) -> AbusiveClientPlan {
        let waiting = self.waiting.min(users) as usize;
        AbusiveClientPlan { idle: self.idle as usize, slow: self.slow as usize, waiting }
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
        if let Some(directory) = &self.output {
            report.write(directory)?;
        }
        report.verdict()
    }

    fn check(&self) -> Result<(), CliError> {
        let refuse =
            |what: &str, hint: &str| Err(CliError::Data { what: what.to_owned(), hint: hint.to_owned() });
        if !(0.0..=1.0).contains(&self.duplicates) {
            return refuse(
                "`--duplicates` must be a fraction from 0 to 1",
                "Use `--duplicates 0.1`, for example.",
            );
        }
        if self.rate != 0.0 && !(0.001..=1e6).contains(&self.rate) {
            return refuse(
                "`--rate` must be 0, or a number of uploads per second from 0.001 to 1000000",
                "Use `--rate 100`, for example, or `--rate 0` for no limit.",
            );
        }
        key_bits(self.bits, false)?;
        if self.replicas > 1 && self.database.is_none() {
            let hint = "Pass `--database` with the URL of an empty database, or use `--replicas 1`.";
            return refuse("several aggregators need a shared database", hint);
        }
        Ok(())
    }
}

/// Raises the limit of open files, because every connection needs one. The services inherit the limit.
fn allow_many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // if this fails, the errors of connections will tell
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
