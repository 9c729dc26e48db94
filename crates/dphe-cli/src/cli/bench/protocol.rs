//! `dphe bench protocol`: measures what a round costs each party, and the bytes sent.

use clap::Args;
use dphe::{NoiseMode, Profile, Receipts, TaskConfig, Threads};
use serde::Serialize;

use super::binding::BindingCost;
use crate::args::{TableFormat, one_of};
use crate::cli::key::generate;
use crate::cli::{CliError, key_bits};
use crate::round_cost::RoundCost;
use crate::terminal::{print_columns, print_text, spinner};

/// Measure a protocol round on one thread: seal, accept and open times, and bytes
#[derive(Args)]
pub(crate) struct Protocol {
    /// The key length in bits; may be repeated
    #[arg(long, default_values_t = [2048, 3072])]
    bits: Vec<u32>,
    /// How noise is generated [default: both ways]
    #[arg(long, value_parser = one_of::<NoiseMode>())]
    noise: Option<NoiseMode>,
    /// The profile [default: all]
    #[arg(long, value_parser = one_of::<Profile>())]
    profile: Option<Profile>,
    /// The number of classes
    #[arg(long = "class-count", default_value_t = 101, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    classes: u32,
    /// The number of features
    #[arg(long = "feature-count", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=10_000))]
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
        let modes = match self.noise {
            Some(mode) => vec![mode],
            None => vec![NoiseMode::Secure, NoiseMode::Fast],
        };
        let mut reports = Vec::new();
        for &bits in &self.bits {
            for &mode in &modes {
                // one key for all profiles, because key generation is measured elsewhere
                let mut key = generate(key_bits(bits, false)?, mode, Threads::all())?;
                let bar = spinner("measuring rounds");
                for config in self.configs(bits, mode) {
                    bar.set_message(format!(
                        "measuring {}, {bits} bits, noise {}, blocks of {}",
                        config.profile,
                        mode.name(),
                        config.block
                    ));
                    let (round, same) = RoundCost::measure(config.clone(), self.users, key)?;
                    key = same;
                    let mut binding = None;
                    if config.receipts == Receipts::Masked {
                        let (cost, same) = BindingCost::measure(&config, self.users, key)?;
                        (binding, key) = (Some(cost), same);
                    }
                    let report = Report { round, binding };
                    if self.format == TableFormat::Table {
                        // results appear as they come, because all of them take minutes
                        bar.suspend(|| eprintln!("{}", report.line()));
                    }
                    reports.push(report);
                }
                bar.finish_and_clear();
            }
        }
        match self.format {
            TableFormat::Json => println!("{}", serde_json::to_string_pretty(&reports)?),
            TableFormat::Table => {
                print_table(&reports);
                print_binding(&reports);
            }
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

/// The cost of a round, and in `full` what masks and the check contribute to it.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    round: RoundCost,
    #[serde(skip_serializing_if = "Option::is_none")]
    binding: Option<BindingCost>,
}

impl Report {
    /// Returns the result in one line, to be seen before the tables.
    fn line(&self) -> String {
        let r = &self.round;
        let time = |seconds: f64| super::readable(seconds * 1e6);
        format!(
            "{}, {} bits, noise {}, block {}: seal {}, open {}",
            r.profile,
            r.bits,
            r.mode,
            r.block,
            time(r.seal_s),
            time(r.open_s)
        )
    }
}

fn print_table(reports: &[Report]) {
    let Some(Report { round: first, .. }) = reports.first() else { return };
    println!(
        "a round of {} users, {} weights, one thread, back end {}\nprocessor time per user, bytes per message\n",
        first.users, first.dimension, first.backend
    );
    let head = [
        "profile",
        "block",
        "bits",
        "noise",
        "cipher-\ntexts",
        "seal",
        "bytes",
        "accept",
        "close",
        "open",
        "sum bytes",
    ];
    let time = |seconds: f64| super::readable(seconds * 1e6);
    let row = |Report { round: r, .. }: &Report| {
        vec![
            r.profile.to_owned(),
            r.block.to_string(),
            r.bits.to_string(),
            r.mode.to_owned(),
            r.ciphertexts.to_string(),
            time(r.seal_s),
            r.seal_bytes.to_string(),
            time(r.accept_s),
            time(r.close_s),
            time(r.open_s),
            r.sum_bytes.to_string(),
        ]
    };
    print_columns(&head, &reports.iter().map(row).collect::<Vec<_>>(), |column| column == 0);
}

fn print_binding(reports: &[Report]) {
    let bound = || reports.iter().filter_map(|report| Some((&report.round, report.binding.as_ref()?)));
    let Some((_, first)) = bound().next() else { return };
    let time = |seconds: f64| super::readable(seconds * 1e6);
    print_text(
        "\nwhat masks and the check cost in `full`: a task without them, and one with them, measured side by side\n",
    );
    let head = [
        "bits",
        "noise",
        "cipher-\ntexts",
        "seal",
        "with",
        "ratio",
        "bytes",
        "open",
        "with",
        "ratio",
        "user\nchecks",
        "masks",
        "signa-\ntures",
    ];
    let rows = bound().map(|(r, b)| {
        vec![
            r.bits.to_string(),
            r.mode.to_owned(),
            r.ciphertexts.to_string(),
            time(b.without_s.seal),
            time(b.with_s.seal),
            format!("{:.3}", b.with_s.seal / b.without_s.seal),
            format!("+{}", b.with_bytes.saturating_sub(b.without_bytes)),
            time(b.without_s.open),
            time(b.with_s.open),
            format!("{:.3}", b.with_s.open / b.without_s.open),
            time(b.check_s),
            time(b.many_masks_s),
            time(b.signatures_s),
        ]
    });
    print_columns(&head, &rows.collect::<Vec<_>>(), |_| false);
    print_text(&format!(
        "\n`user checks` is the time in which a user checks and unpacks a sum, `masks` the time in which the key \
         generator adds up the masks of {} users with {} numbers each, and `signatures` the time in which it verifies \
         the signatures of {} uploads.",
        first.many_users, first.many_numbers, first.signatures
    ));
    print_text(
        "\nCONTROL, NOT THE PRODUCT: the same masks and check without encryption. `dphe` never sends this.\n",
    );
    let rows = bound().map(|(r, b)| {
        vec![
            r.bits.to_string(),
            r.mode.to_owned(),
            time(b.control_s.seal),
            b.control_bytes.to_string(),
            time(b.control_s.open),
        ]
    });
    print_columns(&["bits", "noise", "seal", "bytes", "open"], &rows.collect::<Vec<_>>(), |_| false);
    print_text(
        "\nEncryption is a second lock: without it, leaked mask seeds alone would open every upload, and the profile \
         `sparse` would not be possible (docs/proof.md, section 8).",
    );
}
