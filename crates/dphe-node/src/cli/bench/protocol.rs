//! `dphe bench protocol`: what a round costs each party, and how many bytes travel.

use std::time::Duration;

use clap::{Args, ValueEnum};
use dphe::{
    Aggregator, KeyGenerator, LocalUpdate, NoiseMode, Profile, PublicSupport, Round, SealedUpdate,
    SparseVector, TaskConfig, TaskId, TaskParams, Threads, User, UserId,
};
use dphe_paillier::DecryptionKey;
use rand_core::CryptoRng;
use serde::Serialize;

use super::Format;
use crate::cli::key::{Mode, generate};
use crate::cli::measure::processor_time;
use crate::cli::{CliError, key_bits, os_rng};

/// How often something short is measured; the best counts.
const SAMPLES: usize = 5;

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

/// Seconds of processor time per user and on one thread; bytes per message.
#[derive(Serialize)]
struct Report {
    profile: &'static str,
    block: u32,
    bits: u32,
    mode: &'static str,
    backend: &'static str,
    users: u32,
    dimension: u32,
    /// Positions of an upload.
    capacity: u32,
    /// Ciphertexts of an upload.
    ciphertexts: usize,
    seal_s: f64,
    seal_bytes: usize,
    accept_s: f64,
    close_s: f64,
    open_s: f64,
    sum_bytes: usize,
    result_bytes: usize,
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
                    let (report, same) = self.measure(config, key)?;
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

    fn measure(&self, config: TaskConfig, key: DecryptionKey) -> Result<(Report, DecryptionKey), CliError> {
        let mut rng = os_rng()?;
        let task = TaskParams::new(TaskId::from_bytes(random(&mut rng)), config)?;
        let encryption = key.encryption_key().clone();
        encryption.prepare();
        let mut keys = KeyGenerator::with_key(task.clone(), key, &mut rng)?;
        let users = (1..=self.users)
            .filter_map(UserId::new)
            .map(|id| User::new(keys.enroll(id, &mut rng)))
            .collect::<Result<Vec<_>, _>>()?;
        let aggregator = Aggregator::new(keys.aggregator_keys())?;
        let round = Round::FIRST;

        let (mut seal, mut accept) = (Duration::MAX, Duration::ZERO);
        let (mut ciphertexts, mut seal_bytes) = (0, 0);
        let mut collecting = aggregator.begin(round);
        for (i, user) in users.iter().enumerate() {
            let update = random_update(&task, round, &mut rng)?;
            let mut sealed = user.seal(round, &update, &mut rng, Threads::all())?;
            let mut body = sealed.to_body();
            // the first user's time is measured; what takes long needs no second look
            for sample in 0..if i == 0 { SAMPLES } else { 0 } {
                if sample > 0 && seal > Duration::from_secs(1) {
                    break;
                }
                let start = processor_time();
                sealed = user.seal(round, &update, &mut rng, Threads::ONE)?;
                body = sealed.to_body();
                seal = seal.min(processor_time().saturating_sub(start));
            }
            (ciphertexts, seal_bytes) = (sealed.ciphertexts(&task), body.len());
            let count = u32::try_from(ciphertexts).unwrap_or(u32::MAX);
            let start = processor_time();
            let received = SealedUpdate::from_body(&task, round, user.id(), count, &body)?;
            collecting.accept(received, Threads::ONE)?;
            accept += processor_time().saturating_sub(start);
        }
        let start = processor_time();
        let sum = collecting.close(Threads::ONE).map_err(dphe::Error::from)?;
        let close = processor_time().saturating_sub(start);
        let sum_bytes = sum.to_body(&task).len();
        let start = processor_time();
        let opened = keys.open(sum, &mut rng, Threads::ONE)?;
        let open = processor_time().saturating_sub(start);
        let config = task.config();
        let report = Report {
            profile: config.profile.name(),
            block: config.block,
            bits: config.key_bits,
            mode: config.noise.name(),
            backend: encryption.backend().name(),
            users: self.users,
            dimension: config.dimension,
            capacity: config.capacity,
            ciphertexts,
            seal_s: seal.as_secs_f64(),
            seal_bytes,
            accept_s: accept.as_secs_f64() / f64::from(self.users),
            close_s: close.as_secs_f64(),
            open_s: open.as_secs_f64(),
            sum_bytes,
            result_bytes: opened.to_payload(&task).len(),
        };
        Ok((report, keys.into_key()))
    }
}

/// As many random weights as an upload has room for.
fn random_update(task: &TaskParams, round: Round, rng: &mut impl CryptoRng) -> Result<LocalUpdate, CliError> {
    let mut weights = vec![0.0; task.dimension()];
    if task.has_private_support() {
        let (mut left, mut wanted) = (task.positions(), task.capacity() as u32);
        for block in weights.chunks_mut(task.block()) {
            // each subset is equally likely: take this position with probability wanted / left
            if u64::from(rng.next_u32()) * u64::from(left) < u64::from(wanted) << 32 {
                block.iter_mut().for_each(|w| *w = random_weight(rng));
                wanted -= 1;
            }
            left -= 1;
        }
    } else {
        PublicSupport::of(task, round).indices().for_each(|index| weights[index] = random_weight(rng));
    }
    Ok(LocalUpdate::new(SparseVector::from_dense(&weights)?))
}

/// Between 0.1 and 0.6: none rounds to zero.
fn random_weight(rng: &mut impl CryptoRng) -> f64 {
    0.1 + f64::from(rng.next_u32()) / f64::from(u32::MAX) / 2.0
}

fn random(rng: &mut impl CryptoRng) -> [u8; 16] {
    let mut bytes = [0; 16];
    rng.fill_bytes(&mut bytes);
    bytes
}

fn print_table(reports: &[Report]) {
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
