//! `dphe bench protocol`: measures what a round costs each party, and the bytes sent.

use clap::Args;
use dphe::{NoiseMode, Profile, TaskConfig, Threads};

use crate::args::{TableFormat, one_of};
use crate::cli::key::generate;
use crate::cli::{CliError, key_bits};
use crate::round_cost::RoundCost;

/// Measure a protocol round on one thread: seal, accept and open times, and bytes
#[derive(Args)]
pub(crate) struct Protocol {
    /// The key length in bits; may be repeated
    #[arg(long, default_values_t = [2048, 3072])]
    bits: Vec<u32>,
    /// How noise is generated [default: both ways]
    #[arg(long, value_parser = one_of::<NoiseMode>())]
    mode: Option<NoiseMode>,
    /// The profile [default: all]
    #[arg(long, value_parser = one_of::<Profile>())]
    profile: Option<Profile>,
    /// The number of classes
    #[arg(long, default_value_t = 101, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    classes: u32,
    /// The number of features
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    features: u32,
    /// The number of users
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=1_000))]
    users: u32,
    /// The output format
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
}

impl Protocol {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let modes = match self.mode {
            Some(mode) => vec![mode],
            None => vec![NoiseMode::Secure, NoiseMode::Fast],
        };
        let mut reports = Vec::new();
        for &bits in &self.bits {
            for &mode in &modes {
                // one key for all profiles, because key generation is measured elsewhere
                let mut key = generate(key_bits(bits, false)?, mode, Threads::all())?;
                for config in self.configs(bits, mode) {
                    let (report, same) = RoundCost::measure(config, self.users, key)?;
                    key = same;
                    reports.push(report);
                }
            }
        }
        match self.format {
            TableFormat::Json => println!("{}", serde_json::to_string_pretty(&reports)?),
            TableFormat::Table => print_table(&reports),
        }
        Ok(())
    }

    /// Returns the settings to measure: the paper's scheme, single weights, blocks of classes, and public supports.
    fn configs(&self, bits: u32, mode: NoiseMode) -> Vec<TaskConfig> {
        let make = |profile, tune: fn(TaskConfig) -> TaskConfig| {
            let proposed =
                TaskConfig::new(profile, self.classes, self.features, self.users.next_power_of_two());
            let config = TaskConfig { key_bits: bits, noise: mode, ..proposed };
            tune(config)
        };
        let wanted = |name| self.profile.is_none_or(|profile| profile == name);
        let mut configs = Vec::new();
        if wanted(Profile::Paper) {
            configs.push(make(Profile::Paper, |config| config));
        }
        if wanted(Profile::Sparse) {
            configs.push(make(Profile::Sparse, |config| config.with_block(1)));
            configs.push(make(Profile::Sparse, |config| config));
        }
        if wanted(Profile::Full) {
            configs.push(make(Profile::Full, |config| TaskConfig { capacity: config.positions(), ..config }));
            configs.push(make(Profile::Full, |config| config));
        }
        configs
    }
}

fn print_table(reports: &[RoundCost]) {
    let Some(first) = reports.first() else { return };
    println!(
        "a round of {} users, {} weights, one thread, back end {}\nprocessor time per user, bytes per message\n",
        first.users, first.dimension, first.backend
    );
    println!(
        "{:<8}{:>6}{:>6}{:>8}{:>13}{:>10}{:>12}{:>10}{:>10}{:>10}{:>12}",
        "profile",
        "block",
        "bits",
        "noise",
        "ciphertexts",
        "seal",
        "bytes",
        "accept",
        "close",
        "open",
        "sum bytes"
    );
    for r in reports {
        println!(
            "{:<8}{:>6}{:>6}{:>8}{:>13}{:>10}{:>12}{:>10}{:>10}{:>10}{:>12}",
            r.profile,
            r.block,
            r.bits,
            r.mode,
            r.ciphertexts,
            super::readable(r.seal_s * 1e6),
            r.seal_bytes,
            super::readable(r.accept_s * 1e6),
            super::readable(r.close_s * 1e6),
            super::readable(r.open_s * 1e6),
            r.sum_bytes
        );
    }
}
