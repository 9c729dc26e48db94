//! `dphe plan`: estimates what a task will cost.

use std::path::PathBuf;

use clap::Args;
use dphe::scheme::max_ciphertexts;
use dphe::wire::max_upload_bytes;
use dphe::{NoiseMode, Profile, TaskConfig, TaskId, TaskParams, Threads};
use dphe_features::{ReadOptions, read_table};
use dphe_federate::spec::named;
use dphe_federate::vector::VectorSpec;
use dphe_federate::{EncryptionSpec, LearnerSpec, ModelSize, PayloadName, Weighting};
use dphe_learn::linear::Loss;
use dphe_paillier::DecryptionKey;
use dphe_service::chart::Unit;
use dphe_service::store::check_task;
use dphe_service::tensors::TensorModel;
use serde::Serialize;

use super::key::generate;
use super::{CliError, key_bits};
use crate::args::{TableFormat, one_of};
use crate::round_cost::RoundCost;
use crate::terminal::{print_columns, print_text, spinner};

/// The ciphertexts per upload in the two rounds that are measured. Their difference gives the cost per ciphertext.
const CALIBRATION: [u64; 2] = [32, 256];
/// The number of users in the rounds that are measured.
const CALIBRATION_USERS: u32 = 3;

/// The learner has no influence on the cost of a round.
const PLANNED: LearnerSpec = LearnerSpec {
    payload: PayloadName::Rotate,
    share: None,
    capacity: None,
    feedback: 0.9,
    loss: Loss::Hinge,
    strength: 1e-3,
    l1_ratio: 0.0,
    epochs: 5,
    squared_radius: 1.0,
    step: 1.0,
    server_step: 1.0,
};

/// Estimate what a task will cost
///
/// Runs small rounds with a real key on one thread and extrapolates to the rounds of the task.
#[derive(Args, Debug)]
#[command(
    override_usage = "dphe plan [OPTIONS] <FEATURES>\n       dphe plan [OPTIONS] --class-count <COUNT> \
                            --feature-count <COUNT>"
)]
pub(crate) struct Plan {
    /// A feature file with labels, to read the numbers of classes and features from
    #[arg(
        value_name = "FEATURES",
        required_unless_present_any = ["tensors"],
        required_unless_present_all = ["classes", "features"]
    )]
    path: Option<PathBuf>,
    /// A safetensors file, to plan a task of named tensors instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["path", "classes", "features"])]
    tensors: Option<PathBuf>,
    /// The number of classes
    #[arg(
        long = "class-count",
        value_name = "COUNT",
        conflicts_with = "path",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    classes: Option<u32>,
    /// The number of features
    #[arg(
        long = "feature-count",
        value_name = "COUNT",
        conflicts_with = "path",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    features: Option<u32>,
    /// The number of users per round
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=100_000))]
    users: u32,
    /// The number of rounds
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The share of the weights that an update carries
    #[arg(long, default_value_t = 0.1, value_parser = crate::args::share)]
    share: f64,
    /// The key length in bits
    #[arg(long, default_value_t = 3072)]
    bits: u32,
    /// How noise is generated
    #[arg(long, value_parser = one_of::<NoiseMode>(), default_value = NoiseMode::Secure.name())]
    noise: NoiseMode,
    /// The output format
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
}

/// The cost of one payload and profile.
#[derive(Serialize)]
struct Way {
    payload: PayloadName,
    #[serde(with = "named")]
    profile: Profile,
    /// Ciphertexts per upload.
    ciphertexts: u64,
    /// Bytes per upload.
    bytes: u64,
    /// Seconds of a user on one thread.
    seal_s: f64,
    /// Seconds of the aggregator per round, on one thread.
    aggregate_s: f64,
    /// Seconds of the key generator per round, on one thread.
    open_s: f64,
    /// The expected share of occupied positions that only one user occupies, if users choose independently.
    expected_singles: Option<f64>,
}

/// What a task trains.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum Shape {
    Linear { classes: u32, features: u32 },
    Tensors { values: u32 },
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    shape: Shape,
    users: u32,
    rounds: u32,
    key_bits: u32,
    noise: &'static str,
    backend: &'static str,
    ways: Vec<Way>,
    #[serde(with = "named")]
    better: Profile,
    why: String,
}

impl Plan {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let shape = self.shape()?;
        let bits = key_bits(self.bits, false)?;
        let configure = |payload: PayloadName| -> Result<_, CliError> {
            let encryption = EncryptionSpec::new(payload.default_profile(), self.bits, self.noise);
            let config = match shape {
                Shape::Linear { classes, features } => {
                    let spec = LearnerSpec { payload, share: Some(self.share), ..PLANNED };
                    let (features, classes) = (features as usize, classes as usize);
                    let model = ModelSize { features, classes, largest_weight: 0.0 };
                    spec.propose(&encryption, model, 3..=self.users, Weighting::Equal)?.0
                }
                Shape::Tensors { values } => {
                    let share = (payload != PayloadName::All).then_some(self.share);
                    let spec = VectorSpec { share, ..VectorSpec::new(payload) };
                    spec.propose(&encryption, values, 3..=self.users)?
                }
            };
            let task = TaskParams::new(TaskId::from_bytes([0; 16]), config)?;
            check_task(&task).map_err(dphe_service::Error::from)?;
            Ok((payload, task))
        };
        // All tasks are checked before a key is generated.
        let tasks = [PayloadName::DTopk, PayloadName::DBlock, PayloadName::All, PayloadName::Rotate]
            .map(configure)
            .into_iter()
            .collect::<Result<Vec<_>, CliError>>()?;
        let mut key = generate(bits, self.noise, Threads::all())?;
        let backend = key.encryption_key().backend().name();
        let mut ways = Vec::new();
        let bar = spinner("measuring rounds");
        for (payload, task) in tasks {
            bar.set_message(format!("measuring a round with the payload {payload}"));
            let (way, same) = self.cost(payload, &task, key)?;
            key = same;
            ways.push(way);
        }
        bar.finish_and_clear();
        let weights = match shape {
            Shape::Linear { classes, features } => f64::from(classes) * f64::from(features),
            Shape::Tensors { values } => values.into(),
        };
        let (better, why) = recommend(&ways, weights);
        let report = Report {
            shape,
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

    fn shape(&self) -> Result<Shape, CliError> {
        if let Some(path) = &self.tensors {
            let model = TensorModel::read(path, &[]).map_err(dphe_service::Error::from)?;
            // a model has at most 2^30 values
            return Ok(Shape::Tensors { values: model.len() as u32 });
        }
        let (None, Some(classes), Some(features)) = (&self.path, self.classes, self.features) else {
            let path = self.path.clone().unwrap_or_default();
            let table =
                read_table(&path, &ReadOptions::default()).map_err(crate::samples::SamplesError::File)?;
            if table.labels().is_none() {
                return Err(crate::samples::SamplesError::Unlabelled { path }.into());
            }
            // both numbers fit in a u32
            let (classes, features) = (table.classes().len() as u32, table.width() as u32);
            return Ok(Shape::Linear { classes, features });
        };
        Ok(Shape::Linear { classes, features })
    }

    /// Measures two smaller tasks of the same shape and extrapolates linearly.
    fn cost(
        &self,
        payload: PayloadName,
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
        // the key generator opens every position that at least one user sent
        let density = task.capacity() as f64 / f64::from(task.positions());
        let users = f64::from(self.users);
        let occupied = |users: f64| match task.has_private_support() {
            true => (1.0 - (1.0 - density).powf(users)) / density,
            false => 1.0,
        };
        let opening = occupied(users) / occupied(CALIBRATION_USERS.into());
        let way = Way {
            payload,
            profile: task.profile(),
            ciphertexts,
            bytes: max_upload_bytes(task),
            seal_s: line(|cost| cost.seal_s),
            aggregate_s: line(|cost| cost.accept_s) * users + line(|cost| cost.close_s),
            open_s: line(|cost| cost.open_s) * opening,
            expected_singles: task.has_private_support().then(|| singles(density, users)),
        };
        Ok((way, key))
    }
}

/// Returns a similar task whose uploads have at most about this many ciphertexts.
fn scaled_down(task: &TaskParams, ciphertexts: u64) -> TaskConfig {
    let config = task.config();
    let factor = (max_ciphertexts(task) as f64 / ciphertexts as f64).max(1.0);
    let share = f64::from(config.capacity) / f64::from(config.positions());
    // keep enough positions for the share to be meaningful
    let positions = (f64::from(config.positions()) / factor).max(20.0).min(config.positions().into()) as u32;
    let small = TaskConfig { dimension: positions * config.block, dense: 0, ..config.clone() };
    TaskConfig { capacity: (f64::from(small.positions()) * share).ceil().max(1.0) as u32, ..small }
}

/// Returns the expected share of occupied positions that exactly one user occupies, if each user occupies a random
/// fraction `density` of all positions.
fn singles(density: f64, users: f64) -> f64 {
    let nobody = (1.0 - density).powf(users);
    let one = users * density * (1.0 - density).powf(users - 1.0);
    one / (1.0 - nobody)
}

/// Returns the cheaper profile for users, and the reason.
fn recommend(ways: &[Way], weights: f64) -> (Profile, String) {
    let cheapest = |profile| {
        let of = ways.iter().filter(|way| way.profile == profile);
        of.min_by_key(|way| (way.ciphertexts, way.bytes))
    };
    let (Some(full), Some(sparse)) = (cheapest(Profile::Full), cheapest(Profile::Sparse)) else {
        return (Profile::Full, String::new());
    };
    let (better, other, note) = match full.ciphertexts <= sparse.ciphertexts {
        true => (full, sparse, " and has no positions to hide"),
        false => (sparse, full, ""),
    };
    let mut why = format!(
        "{} with {} needs {} ciphertexts per upload{note}, compared with {} for {} with {}.",
        better.profile, better.payload, better.ciphertexts, other.ciphertexts, other.profile, other.payload,
    );
    if let Some(all) = ways.iter().find(|way| way.payload == PayloadName::All) {
        let density = 100.0 * all.ciphertexts as f64 / weights;
        why += &format!(
            " Hiding single weights is cheaper than sending all weights only below a share of {density:.2} %."
        );
    }
    (better.profile, why)
}

impl Report {
    fn print(&self, format: TableFormat) -> Result<(), CliError> {
        if format == TableFormat::Json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        let shape = match self.shape {
            Shape::Linear { classes, features } => format!("{classes} classes x {features} features"),
            Shape::Tensors { values } => format!("{values} values"),
        };
        println!(
            "{shape}, {} users, {} bits, noise {}\none thread, back end {}\n",
            self.users, self.key_bits, self.noise, self.backend
        );
        let seconds = |value: f64| super::bench::readable(value * 1e6);
        let row = |way: &Way| {
            vec![
                way.payload.to_string(),
                way.profile.to_string(),
                way.ciphertexts.to_string(),
                Unit::Bytes.write(way.bytes as f64),
                seconds(way.seal_s),
                seconds(way.aggregate_s),
                seconds(way.open_s),
                way.expected_singles.map_or("none".into(), |share| format!("{:.0} %", 100.0 * share)),
                Unit::Bytes.write(way.bytes as f64 * f64::from(self.rounds)),
            ]
        };
        let head = [
            "payload",
            "profile",
            "cipher-\ntexts",
            "bytes",
            "seal, one user",
            "add, all users",
            "open, one round",
            "singles",
            "upload, all rounds",
        ];
        print_columns(&head, &self.ways.iter().map(row).collect::<Vec<_>>(), |column| column < 2);
        print_text(&format!("\nrecommended: {}", self.why));
        print_text(match self.shape {
            Shape::Linear { .. } => {
                "The estimate is for weights up to 1. A task with an initial model may need less."
            }
            Shape::Tensors { .. } => "The estimate is for differences up to 1 with 20 fractional bits.",
        });
        print_text(
            "Singles are positions that only one user occupies, if users choose at random. At such a position, the \
             sum reveals that user's numbers.",
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_singles() {
        // with one user all positions are singles; if all users occupy everything, none are
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
