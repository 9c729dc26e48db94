//! `dphe plan`: what a task will cost, before anybody runs it.

use std::path::PathBuf;

use clap::Args;
use dphe::{Profile, TaskConfig, TaskId, TaskParams, Threads, max_body_bytes, max_ciphertexts};
use dphe_features::{ReadOptions, read_table};
use dphe_paillier::DecryptionKey;
use serde::Serialize;

use super::bench::Format;
use super::key::{Mode, generate};
use super::round_cost::RoundCost;
use super::{CliError, key_bits};
use crate::report::Unit;

/// Rounds of about so many ciphertexts are played: the first tells what a round costs in any case, the second what
/// each ciphertext adds.
const CALIBRATION: [u64; 2] = [32, 256];
/// Users of the round that is played; more would only take longer.
const CALIBRATION_USERS: u32 = 3;

/// Say what a task will cost before anybody runs it
///
/// Plays small rounds with a real key on one thread, and works out what the task's would take.
#[derive(Args, Debug)]
pub(crate) struct Plan {
    /// Features with labels, to take the numbers of classes and features from
    #[arg(value_name = "FEATURES", required_unless_present_all = ["classes", "features"])]
    path: Option<PathBuf>,
    /// Classes of the classifier
    #[arg(long, conflicts_with = "path", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    classes: Option<u32>,
    /// Features of the classifier
    #[arg(long, conflicts_with = "path", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    features: Option<u32>,
    /// Users of a round
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=100_000))]
    users: u32,
    /// Rounds to train for
    #[arg(long, default_value_t = 15)]
    rounds: u32,
    /// The share of the weights that a message carries
    #[arg(long, default_value_t = 0.1, value_parser = super::learner::share)]
    share: f64,
    /// Bits of the encryption key
    #[arg(long, default_value_t = 3072)]
    bits: u32,
    /// How noise is drawn
    #[arg(long, value_enum, default_value_t = Mode::Secure)]
    noise: Mode,
    /// A table to read, or JSON
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// One way to do it.
#[derive(Serialize)]
struct Way {
    /// What `dphe simulate --message` calls it.
    message: &'static str,
    profile: &'static str,
    /// Ciphertexts of an upload.
    ciphertexts: u64,
    /// Bytes of an upload.
    bytes: u64,
    /// A user, one thread.
    seal_s: f64,
    /// The aggregator, all users of a round, one thread.
    aggregate_s: f64,
    /// The key generator, one thread.
    open_s: f64,
    /// The share of occupied positions that one user alone would occupy if users chose independently of each other.
    expected_singles: Option<f64>,
}

#[derive(Serialize)]
struct Report {
    classes: u32,
    features: u32,
    users: u32,
    rounds: u32,
    key_bits: u32,
    noise: &'static str,
    backend: &'static str,
    ways: Vec<Way>,
    better: &'static str,
    why: String,
}

impl Plan {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let (classes, features) = self.shape()?;
        let bits = key_bits(self.bits, false)?;
        let make = |profile, tune: &dyn Fn(TaskConfig) -> TaskConfig| {
            let most = self.users.next_power_of_two();
            let proposed = TaskConfig::new(profile, classes, features, most);
            let config =
                TaskConfig { key_bits: self.bits, noise: self.noise.into(), dense: classes, ..proposed };
            tune(config)
        };
        let share = |config: TaskConfig| TaskConfig {
            capacity: (f64::from(config.positions()) * self.share).ceil().max(1.0) as u32,
            ..config
        };
        let all = |config: TaskConfig| TaskConfig { capacity: config.positions(), ..config };
        let configs = [
            ("d-topk", make(Profile::Sparse, &|config| share(config.with_block(1)))),
            ("d-block", make(Profile::Sparse, &share)),
            ("all", make(Profile::Full, &all)),
            ("rotate", make(Profile::Full, &share)),
        ];
        // all tasks are checked before a key is made
        let tasks = configs
            .map(|(message, config)| Ok((message, TaskParams::new(TaskId::from_bytes([0; 16]), config)?)))
            .into_iter()
            .collect::<Result<Vec<_>, CliError>>()?;
        let mut key = generate(bits, self.noise.into(), Threads::all())?;
        let backend = key.encryption_key().backend().name();
        let mut ways = Vec::new();
        for (message, task) in tasks {
            let (way, same) = self.cost(message, &task, key)?;
            key = same;
            ways.push(way);
        }
        let (better, why) = recommend(&ways, f64::from(classes) * f64::from(features));
        let report = Report {
            classes,
            features,
            users: self.users,
            rounds: self.rounds,
            key_bits: self.bits,
            noise: key.encryption_key().mode().name(),
            backend,
            ways,
            better,
            why,
        };
        report.print(self.format)
    }

    fn shape(&self) -> Result<(u32, u32), CliError> {
        let (None, Some(classes), Some(features)) = (&self.path, self.classes, self.features) else {
            let path = self.path.clone().unwrap_or_default();
            let table =
                read_table(&path, &ReadOptions::default()).map_err(crate::samples::SamplesError::File)?;
            if table.labels().is_none() {
                return Err(crate::samples::SamplesError::Unlabelled { path }.into());
            }
            // a table has fewer of both than a u32 can count
            return Ok((table.classes().len() as u32, table.width() as u32));
        };
        Ok((classes, features))
    }

    /// Plays two tasks of the same shape with fewer features, and draws the line through them.
    fn cost(
        &self,
        message: &'static str,
        task: &TaskParams,
        key: DecryptionKey,
    ) -> Result<(Way, DecryptionKey), CliError> {
        let ciphertexts = max_ciphertexts(task);
        let [few, many] = CALIBRATION.map(|count| scaled_down(task, count));
        let (few, key) = RoundCost::measure(few, CALIBRATION_USERS, key)?;
        let (many, key) = RoundCost::measure(many, CALIBRATION_USERS, key)?;
        let line = |pick: fn(&RoundCost) -> f64| {
            let (x, y) = (many.ciphertexts as f64, pick(&many));
            let apart = (x - few.ciphertexts as f64).max(1.0);
            let slope = ((y - pick(&few)) / apart).clamp(0.0, y / x.max(1.0));
            (y + slope * (ciphertexts as f64 - x)).max(0.0)
        };
        // what the key generator opens is what anybody sent
        let density = task.capacity() as f64 / f64::from(task.positions());
        let users = f64::from(self.users);
        let occupied = |users: f64| match task.has_private_support() {
            true => (1.0 - (1.0 - density).powf(users)) / density,
            false => 1.0,
        };
        let opening = occupied(users) / occupied(CALIBRATION_USERS.into());
        let way = Way {
            message,
            profile: task.profile().name(),
            ciphertexts,
            bytes: max_body_bytes(task),
            seal_s: line(|cost| cost.seal_s),
            aggregate_s: line(|cost| cost.accept_s) * users + line(|cost| cost.close_s),
            open_s: line(|cost| cost.open_s) * opening,
            expected_singles: task.has_private_support().then(|| singles(density, users)),
        };
        Ok((way, key))
    }
}

/// A task like this one whose uploads have about this many ciphertexts, or fewer if they have.
fn scaled_down(task: &TaskParams, ciphertexts: u64) -> TaskConfig {
    let config = task.config();
    let factor = (max_ciphertexts(task) as f64 / ciphertexts as f64).max(1.0);
    let share = f64::from(config.capacity) / f64::from(config.positions());
    // enough positions for the share to mean something
    let positions = (f64::from(config.positions()) / factor).max(20.0).min(config.positions().into()) as u32;
    let small = TaskConfig { dimension: positions * config.block, dense: 0, ..config.clone() };
    TaskConfig { capacity: (f64::from(small.positions()) * share).ceil().max(1.0) as u32, ..small }
}

/// Of the positions that anybody occupies, the share that exactly one does, where each user occupies a random share.
fn singles(density: f64, users: f64) -> f64 {
    let nobody = (1.0 - density).powf(users);
    let one = users * density * (1.0 - density).powf(users - 1.0);
    one / (1.0 - nobody)
}

/// The cheaper profile for this share, by what users compute and send, and where that would change.
fn recommend(ways: &[Way], weights: f64) -> (&'static str, String) {
    let cheapest = |profile| {
        let of = ways.iter().filter(|way| way.profile == profile);
        of.min_by_key(|way| (way.ciphertexts, way.bytes))
    };
    let (Some(full), Some(sparse)) = (cheapest("full"), cheapest("sparse")) else {
        return ("full", String::new());
    };
    let better = if full.ciphertexts <= sparse.ciphertexts { full } else { sparse };
    let mut why = format!(
        "{} with {}: {} ciphertexts a round, {} {}",
        better.profile,
        better.message,
        better.ciphertexts,
        if better.profile == "full" { "no position to hide, against" } else { "against" },
        if better.profile == "full" { sparse.ciphertexts } else { full.ciphertexts },
    );
    why += match better.profile {
        "full" => format!(" of sparse with {}.", sparse.message),
        _ => format!(" of full with {}.", full.message),
    }
    .as_str();
    if let Some(all) = ways.iter().find(|way| way.message == "all") {
        let density = 100.0 * all.ciphertexts as f64 / weights;
        why += &format!(" Single hidden weights beat sending all of them packed below {density:.2} % only.");
    }
    (better.profile, why)
}

impl Report {
    fn print(&self, format: Format) -> Result<(), CliError> {
        if format == Format::Json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        println!(
            "{} classes x {} features, {} users, {} bits, noise {}, one thread, back end {}\n",
            self.classes, self.features, self.users, self.key_bits, self.noise, self.backend
        );
        println!(
            "{:<9}{:<9}{:>12}{:>10}{:>11}{:>11}{:>11}{:>9}{:>13}",
            "message", "profile", "ciphertexts", "bytes", "seal", "add", "open", "singles", "upload, all"
        );
        println!(
            "{:<9}{:<9}{:>12}{:>10}{:>11}{:>11}{:>11}{:>9}{:>13}",
            "", "", "a user", "a user", "a user", "all users", "a round", "", "rounds"
        );
        for way in &self.ways {
            let seconds = |value: f64| super::bench::readable(value * 1e6);
            println!(
                "{:<9}{:<9}{:>12}{:>10}{:>11}{:>11}{:>11}{:>9}{:>13}",
                way.message,
                way.profile,
                way.ciphertexts,
                Unit::Bytes.write(way.bytes as f64),
                seconds(way.seal_s),
                seconds(way.aggregate_s),
                seconds(way.open_s),
                way.expected_singles.map_or("none".into(), |share| format!("{:.0} %", 100.0 * share)),
                Unit::Bytes.write(way.bytes as f64 * f64::from(self.rounds)),
            );
        }
        println!("\nbetter: {}", self.why);
        println!("for weights up to 1; a task that is fitted to its first model may need fewer ciphertexts");
        println!(
            "singles: positions of one user alone, if users chose by chance; the sum shows that user's numbers there"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_singles() {
        // one user: all of them; everybody everywhere: none
        assert!((singles(0.3, 1.0) - 1.0).abs() < 1e-12);
        assert!(singles(1.0, 5.0).abs() < 1e-12);
        // 5 users, a tenth each: 5 * 0.1 * 0.9^4 of 1 - 0.9^5
        assert!((singles(0.1, 5.0) - 0.801_079).abs() < 1e-6, "{}", singles(0.1, 5.0));
    }

    #[test]
    fn a_scaled_down_task_is_small_and_valid() {
        for profile in [Profile::Sparse, Profile::Full] {
            for (classes, features) in [(101, 2048), (2, 10), (1000, 50), (1, 1), (1, 100_000)] {
                let config = TaskConfig::new(profile, classes, features, 8);
                let task = TaskParams::new(TaskId::from_bytes([0; 16]), config).unwrap();
                for count in CALIBRATION {
                    let small =
                        TaskParams::new(TaskId::from_bytes([0; 16]), scaled_down(&task, count)).unwrap();
                    assert!(max_ciphertexts(&small) <= 2 * count, "{classes} x {features}");
                }
            }
        }
    }
}
