//! `dphe bench protocol`: what a round costs each party, and how many bytes travel.

use clap::{Args, ValueEnum};
use dphe::{NoiseMode, Profile, TaskConfig, Threads};

use super::Format;
use crate::cli::key::{Mode, generate};
use crate::cli::round_cost::RoundCost;
use crate::cli::{CliError, key_bits};

/// One round of a classifier, for every profile: seal, accept, open, on one thread
#[derive(Args)]
pub(crate) struct Protocol {
    /// Bits of the modulus; may be given several times
    #[arg(long, default_values_t = [2048, 3072])]
    bits: Vec<u32>,
    /// How noise is drawn; both, if not given
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// One profile; all, if not given
    #[arg(long, value_enum)]
    profile: Option<ProfileName>,
    /// Classes of the classifier
    #[arg(long, default_value_t = 101, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    classes: u32,
    /// Features of the classifier
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    features: u32,
    /// Users of the round
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=1_000))]
    users: u32,
    /// A table to read, or JSON
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProfileName {
    Sparse,
    Full,
    Paper,
}

impl Protocol {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let modes = match self.mode {
            Some(mode) => vec![mode.into()],
            None => vec![NoiseMode::Secure, NoiseMode::Fast],
        };
        let mut reports = Vec::new();
        for &bits in &self.bits {
            for &mode in &modes {
                // one key for all profiles: making it is measured elsewhere
                let mut key = generate(key_bits(bits, false)?, mode, Threads::all())?;
                for config in self.configs(bits, mode) {
                    let (report, same) = RoundCost::measure(config, self.users, key)?;
                    key = same;
                    reports.push(report);
                }
            }
        }
        match self.format {
            Format::Json => println!("{}", serde_json::to_string_pretty(&reports)?),
            Format::Table => print_table(&reports),
        }
        Ok(())
    }

    /// The paper's scheme and ours: single weights, the classes of a feature, public supports.
    fn configs(&self, bits: u32, mode: NoiseMode) -> Vec<TaskConfig> {
        let make = |profile, tune: fn(TaskConfig) -> TaskConfig| {
            let proposed =
                TaskConfig::new(profile, self.classes, self.features, self.users.next_power_of_two());
            let config = TaskConfig { key_bits: bits, noise: mode, ..proposed };
            tune(config)
        };
        let wanted = |name| self.profile.is_none_or(|profile| profile == name);
        let mut configs = Vec::new();
        if wanted(ProfileName::Paper) {
            configs.push(make(Profile::Paper, |config| config));
        }
        if wanted(ProfileName::Sparse) {
            configs.push(make(Profile::Sparse, |config| config.with_block(1)));
            configs.push(make(Profile::Sparse, |config| config));
        }
        if wanted(ProfileName::Full) {
            configs.push(make(Profile::Full, |config| TaskConfig { capacity: config.positions(), ..config }));
            configs.push(make(Profile::Full, |config| config));
        }
        configs
    }
}

fn print_table(reports: &[RoundCost]) {
    let Some(first) = reports.first() else { return };
    println!(
        "a round of {} users, {} weights, one thread, back end {}; processor time per user, bytes per message\n",
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
