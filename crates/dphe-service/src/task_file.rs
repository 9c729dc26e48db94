//! The task file: a TOML file that describes a task before keys exist. Errors name the line.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use dphe::{TaskConfig, TaskId, TaskParams};
use dphe_federate::vector::{VectorRules, VectorSpec};
use dphe_federate::{DEFAULT_OUTSIZE, EncryptionSpec, LearnerSpec, ModelSize, RoundRules, Weighting};
use dphe_learn::Weights;
use dphe_learn::update::LocalTrainer;
use serde::Deserialize;

use crate::tensors::{TensorError, TensorModel};
use crate::{Error, hex};

/// The largest task file that is read.
const MAX_BYTES: u64 = 64 * 1024;

/// The contents of a task file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Sections")]
pub struct TaskFile {
    /// Name, users and rounds.
    pub task: TaskSection,
    /// The addresses of the services.
    pub parties: PartiesSection,
    /// What is trained.
    pub trained: Trained,
    /// How updates are protected.
    pub encryption: EncryptionSpec,
    /// When a round stops collecting uploads.
    pub collect: CollectSection,
}

/// What a task trains.
#[derive(Clone, Debug, PartialEq)]
pub enum Trained {
    /// A linear model, by the learner of the task.
    Linear(LinearSections),
    /// Named tensors, by each user's own program.
    Tensors(TensorSections),
}

/// The sections `[model]` and `[learner]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearSections {
    /// The size of the model.
    pub model: ModelSection,
    /// How users learn.
    pub learner: LearnerSpec,
}

/// The sections `[tensors]` and `[update]`.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSections {
    /// The tensors.
    pub tensors: TensorsSection,
    /// What updates carry.
    pub update: VectorSpec,
}

/// A task file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sections {
    task: TaskSection,
    parties: PartiesSection,
    model: Option<ModelSection>,
    learner: Option<LearnerSpec>,
    tensors: Option<TensorsSection>,
    update: Option<VectorSpec>,
    encryption: EncryptionSpec,
    collect: CollectSection,
}

const SECTIONS: &str = "a task has either the sections [model] and [learner], or [tensors] and [update]";

impl TryFrom<Sections> for TaskFile {
    type Error = &'static str;
    fn try_from(sections: Sections) -> Result<Self, &'static str> {
        let Sections { task, parties, model, learner, tensors, update, encryption, collect } = sections;
        let trained = match (model, learner, tensors, update) {
            (Some(model), Some(learner), None, None) => Trained::Linear(LinearSections { model, learner }),
            (None, None, Some(tensors), Some(update)) => Trained::Tensors(TensorSections { tensors, update }),
            _ => return Err(SECTIONS),
        };
        Ok(Self { task, parties, trained, encryption, collect })
    }
}

/// Name, users and rounds of a task.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSection {
    /// The id: 32 random hexadecimal digits.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// How many users are enrolled. They are numbered from 1.
    pub users: u32,
    /// The number of rounds.
    pub rounds: u64,
    /// A sum is rejected if the norm of its average is more than this many times the largest of earlier rounds; 0 means
    /// never.
    #[serde(default = "default_outsize")]
    pub outsize: u8,
}

fn default_outsize() -> u8 {
    DEFAULT_OUTSIZE
}

/// The addresses of the services.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartiesSection {
    /// Host and port of the aggregator, as users reach it.
    pub aggregator: String,
    /// Host and port of the key generator, as the aggregator reaches it.
    pub key_generator: String,
}

impl PartiesSection {
    /// Returns whether both services are on this machine.
    pub fn are_local(&self) -> bool {
        is_local(&self.aggregator) && is_local(&self.key_generator)
    }
}

/// Returns whether an address with a port is a loopback address.
pub fn is_local(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The size of the model, and where it starts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSection {
    /// The number of classes.
    pub classes: u32,
    /// The number of features per sample.
    pub features: u32,
    /// The file of the initial model; all zeros if absent.
    pub initial: Option<PathBuf>,
}

/// Which tensors are trained, and where they start.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorsSection {
    /// The safetensors file of the initial model.
    pub initial: PathBuf,
    /// The digest of the layout: 64 hexadecimal digits.
    pub layout: String,
    /// The number of trained values.
    pub dimension: u32,
    /// The names of floating-point tensors that are not trained.
    #[serde(default)]
    pub keep: Vec<String>,
}

/// When a round stops collecting uploads.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectSection {
    /// The number of uploads. A sum of fewer than `min` is never opened. After `max` the round is frozen at once.
    pub count: Range<u32>,
    /// The time for uploads. After `min`, the smallest count is enough. After `max`, the round is frozen or aborted.
    pub time: Range<Milliseconds>,
    /// The key generator accepts no freeze sooner after its ticket. Rounds cannot be run faster than this.
    #[serde(default)]
    pub least: Milliseconds,
}

/// A smallest and a largest value.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range<T> {
    /// The smallest value.
    pub min: T,
    /// The largest value.
    pub max: T,
}

/// A time, written as `500ms`, `30s`, `10m` or `2h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Milliseconds(pub u64);

impl TryFrom<String> for Milliseconds {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            time if time != 0 && time % 3_600_000 == 0 => write!(f, "{}h", time / 3_600_000),
            time if time != 0 && time % 60_000 == 0 => write!(f, "{}m", time / 60_000),
            time if time % 1_000 == 0 => write!(f, "{}s", time / 1_000),
            time => write!(f, "{time}ms"),
        }
    }
}

impl std::str::FromStr for Milliseconds {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor = match &text[digits.len()..] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(format!("{text:?} is not a time; use a form such as 500ms, 30s, 10m or 2h")),
        };
        let number: u64 = digits.parse().map_err(|_| format!("{text:?} is not a time"))?;
        number.checked_mul(factor).map(Self).ok_or_else(|| format!("{text:?} is too long"))
    }
}

/// An error in a task file.
#[derive(Debug, thiserror::Error)]
pub enum TaskFileError {
    /// The file cannot be read.
    #[error("{} could not be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is not a valid task file.
    #[error("{}, line {line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// Values of the file contradict each other or are out of range.
    #[error("{what}")]
    Value {
        /// What is wrong.
        what: String,
    },
    /// The task trains tensors, but something is for linear models only.
    #[error("this task trains named tensors, not a linear model")]
    NotLinear,
    /// The task trains a linear model, but something is for tensors only.
    #[error("this task trains a linear model, not named tensors")]
    NotTensors,
}

impl TaskFileError {
    /// Returns what to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } => Some("Run `dphe init` to write a task file.".into()),
            Self::Syntax { .. } => Some("Compare the file with a new one from `dphe init`.".into()),
            Self::Value { .. } => None,
            Self::NotLinear => Some(
                "Users take part with `dphe join --trainer COMMAND`, and their own programs use and measure the \
                 model: see docs/trainers.md."
                    .into(),
            ),
            Self::NotTensors => {
                Some("Take part with `dphe join --features FILE`. `dphe init --tensors` makes tasks of tensors.".into())
            }
        }
    }
}

const TEMPLATE: &str = include_str!("task_file/template.toml");
const TEMPLATE_ID: &str = "00000000000000000000000000000000";

const TENSOR_TEMPLATE: &str = include_str!("task_file/tensors.toml");

/// Returns the text that `dphe init` writes.
pub fn template(id: TaskId) -> String {
    TEMPLATE.replacen(TEMPLATE_ID, &id.to_string(), 1)
}

/// Returns the text that `dphe init --tensors` writes, with a layout and a dimension to be replaced.
pub fn tensor_template(id: TaskId) -> String {
    let text = template(id);
    match (text.find("[model]"), text.find("[encryption]")) {
        (Some(from), Some(to)) => format!("{}{TENSOR_TEMPLATE}{}", &text[..from], &text[to..]),
        _ => text,
    }
}

impl TaskFile {
    /// Reads and checks a task file.
    ///
    /// # Errors
    /// [`TaskFileError`], with the line if there is one.
    pub fn read(path: &Path) -> Result<Self, TaskFileError> {
        let error = |source| TaskFileError::Read { path: path.into(), source };
        let length = std::fs::metadata(path).map_err(error)?.len();
        if length > MAX_BYTES {
            return Err(error(std::io::Error::other("the file is larger than 64 KiB")));
        }
        Self::parse(&std::fs::read_to_string(path).map_err(error)?, path)
    }

    /// Parses and checks the text of a task file. Errors name `path`.
    ///
    /// # Errors
    /// As [`TaskFile::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, TaskFileError> {
        let file: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let line = 1 + text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count();
            TaskFileError::Syntax { path: path.into(), line, message: error.message().trim().to_owned() }
        })?;
        file.check()?;
        Ok(file)
    }

    fn check(&self) -> Result<(), TaskFileError> {
        let require = |ok: bool, what: &str| match ok {
            true => Ok(()),
            false => Err(TaskFileError::Value { what: what.to_owned() }),
        };
        require(self.id().is_some(), "task: id is not 32 hexadecimal digits")?;
        let (count, time) = (self.collect.count, self.collect.time);
        require(count.min >= 3, "collect: count.min is below 3, which would reveal weights of single users")?;
        require(count.min <= count.max, "collect: count.min is above count.max")?;
        require(count.min <= self.task.users, "collect: count.min is above task.users")?;
        require(time.min <= time.max, "collect: time.min is above time.max")?;
        require(time.max.0 > 0, "collect: time.max is 0, so no user could upload")?;
        require(self.collect.least <= time.max, "collect: least is above time.max")?;
        require(self.task.rounds > 0, "task: rounds is 0")?;
        require(self.task.rounds <= TaskConfig::MOST_ROUNDS.into(), "task: rounds is above 1,048,576")?;
        require(self.task.users <= TaskParams::MOST_USERS, "task: users is above 65,536")?;
        let value = |section: &str, error| TaskFileError::Value { what: format!("{section}: {error}") };
        match &self.trained {
            Trained::Linear(LinearSections { model, learner }) => {
                learner.check().map_err(|error| value("learner", error))?;
                require(
                    model.classes > 0 && model.features > 0,
                    "model: classes and features must be positive",
                )?;
            }
            Trained::Tensors(TensorSections { tensors, update }) => {
                update.check().map_err(|error| value("update", error))?;
                require(tensors.dimension > 0, "tensors: dimension must be positive")?;
                require(
                    hex::decode::<32>(&tensors.layout).is_some(),
                    "tensors: layout is not 64 hexadecimal digits",
                )?;
            }
        }
        for (name, address) in
            [("aggregator", &self.parties.aggregator), ("key_generator", &self.parties.key_generator)]
        {
            let ok = address.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && host.len() < 256 && port.parse::<u16>().is_ok()
            });
            require(
                ok,
                &format!("parties: {name} = {address:?} is not a host and a port, such as localhost:7100"),
            )?;
        }
        Ok(())
    }

    /// Returns the id of the task. Every file that was parsed has one.
    pub fn id(&self) -> Option<TaskId> {
        self.task.id.parse().ok()
    }

    /// Returns the sections of a linear model.
    ///
    /// # Errors
    /// [`TaskFileError::NotLinear`] if the task trains tensors.
    pub fn linear(&self) -> Result<&LinearSections, TaskFileError> {
        match &self.trained {
            Trained::Linear(sections) => Ok(sections),
            Trained::Tensors(_) => Err(TaskFileError::NotLinear),
        }
    }

    /// Returns the sections of named tensors.
    ///
    /// # Errors
    /// [`TaskFileError::NotTensors`] if the task trains a linear model.
    pub fn tensors(&self) -> Result<&TensorSections, TaskFileError> {
        match &self.trained {
            Trained::Tensors(sections) => Ok(sections),
            Trained::Linear(_) => Err(TaskFileError::NotTensors),
        }
    }

    /// Returns the task for this initial model. Only the sizes of numbers depend on it.
    ///
    /// # Errors
    /// If payload, profile and model do not fit each other.
    pub fn config(&self, initial: &Weights) -> Result<TaskConfig, Error> {
        let config = self.linear()?.propose(&self.encryption, ModelSize::of(initial), self.users())?;
        Ok(self.with_collection(config))
    }

    /// Returns the task for this initial model of tensors.
    ///
    /// # Errors
    /// If payload, profile and model do not fit each other, or the model has not the layout of the task.
    pub fn tensor_config(&self, initial: &TensorModel) -> Result<TaskConfig, Error> {
        let sections = self.tensors()?;
        sections.check(initial)?;
        let mut config = self.with_collection(sections.propose(&self.encryption, self.users())?);
        // every model has the length of the initial one
        config.max_model_bytes = u32::try_from(initial.as_bytes().len()).unwrap_or(u32::MAX);
        Ok(config)
    }

    /// Returns whether the parties enforce what this file says about the protection of updates. The lengths of numbers
    /// are not compared, because they depend on the initial model.
    ///
    /// # Errors
    /// If payload, profile and model do not fit each other.
    pub fn is_enforced_by(&self, policy: &TaskConfig) -> Result<bool, Error> {
        let config = match &self.trained {
            Trained::Linear(linear) => linear.propose(&self.encryption, linear.model_size(), self.users())?,
            Trained::Tensors(tensors) => tensors.propose(&self.encryption, self.users())?,
        };
        let config = self.with_collection(config);
        let TaskConfig { block, capacity, shards, scale_bits, clip_exponent, max_model_bytes, .. } = *policy;
        let config =
            TaskConfig { block, capacity, shards, scale_bits, clip_exponent, max_model_bytes, ..config };
        Ok(config == *policy)
    }

    /// Returns the smallest and the largest number of users in a sum.
    fn users(&self) -> RangeInclusive<u32> {
        let Range { min, max } = self.collect.count;
        min..=max
    }

    /// Adds what the key generator enforces besides the protection of updates.
    fn with_collection(&self, mut config: TaskConfig) -> TaskConfig {
        config.rounds = u32::try_from(self.task.rounds).unwrap_or(u32::MAX);
        config.outsize = self.task.outsize;
        config.collect_min = u32::try_from(self.collect.least.0).unwrap_or(u32::MAX);
        config
    }
}

impl LinearSections {
    /// Returns the size of the model.
    pub fn model_size(&self) -> ModelSize {
        let (features, classes) = (self.model.features as usize, self.model.classes as usize);
        ModelSize { features, classes, largest_weight: 0.0 }
    }

    /// Returns the trainer of users in this task.
    ///
    /// # Errors
    /// If a number of the learner is out of range.
    pub fn trainer(&self, task: &TaskParams) -> Result<LocalTrainer, dphe_federate::Error> {
        self.learner.trainer(task, self.model_size())
    }

    /// Returns how the rounds of this task are computed.
    ///
    /// # Errors
    /// If a number of the learner is out of range.
    pub fn rules(&self, task: TaskParams) -> Result<RoundRules, dphe_federate::Error> {
        let trainer = self.trainer(&task)?;
        RoundRules::new(task, Weighting::Equal, trainer)?.with_server_step(self.learner.server_step)
    }

    fn propose(
        &self,
        encryption: &EncryptionSpec,
        size: ModelSize,
        users: RangeInclusive<u32>,
    ) -> Result<TaskConfig, dphe_federate::Error> {
        Ok(self.learner.propose(encryption, size, users, Weighting::Equal)?.0)
    }
}

impl TensorSections {
    /// Returns how the rounds of this task are computed.
    ///
    /// # Errors
    /// If a number is out of range.
    pub fn rules(&self, task: TaskParams) -> Result<VectorRules, dphe_federate::Error> {
        VectorRules::new(task, self.update.clone())
    }

    /// Parses a model of the task.
    ///
    /// # Errors
    /// If the bytes are not a model, or its layout is not the one of the task.
    pub fn model(&self, bytes: Vec<u8>) -> Result<TensorModel, TensorError> {
        let model = TensorModel::new(bytes, &self.tensors.keep)?;
        self.check(&model)?;
        Ok(model)
    }

    fn check(&self, model: &TensorModel) -> Result<(), TensorError> {
        model.check_layout(&self.tensors.layout)?;
        if model.len() != self.tensors.dimension as usize {
            return Err(TensorError::Size { values: model.len() });
        }
        Ok(())
    }

    fn propose(
        &self,
        encryption: &EncryptionSpec,
        users: RangeInclusive<u32>,
    ) -> Result<TaskConfig, dphe_federate::Error> {
        self.update.propose(encryption, self.tensors.dimension, users)
    }
}

#[cfg(test)]
mod tests {
    use dphe::Receipts;
    use dphe_paillier::NoiseMode;

    use super::*;

    #[test]
    fn times_are_written_as_they_are_read() {
        for text in ["0s", "1ms", "1500ms", "30s", "10m", "90m", "2h"] {
            assert_eq!(text.parse::<Milliseconds>().unwrap().to_string(), text);
        }
    }

    fn parse(text: &str) -> Result<TaskFile, TaskFileError> {
        TaskFile::parse(text, Path::new("task.toml"))
    }

    #[test]
    fn template_is_a_valid_task_file() {
        let file = parse(TEMPLATE).unwrap();
        let size = file.linear().unwrap().model_size();
        let initial = Weights::zeros(size.features, size.classes).unwrap();
        let config = file.config(&initial).unwrap();
        let task = TaskParams::new(TaskId::from_bytes([1; 16]), config).unwrap();
        file.linear().unwrap().trainer(&task).unwrap();
    }

    #[test]
    fn a_task_has_the_sections_of_a_linear_model_or_of_tensors() {
        let text = tensor_template(TaskId::from_bytes([1; 16]));
        let file = parse(&text).unwrap();
        let tensors = file.tensors().unwrap();
        assert_eq!((tensors.tensors.dimension, tensors.update.feedback), (1, 0.9));
        assert!(file.linear().is_err() && parse(TEMPLATE).unwrap().tensors().is_err());
        let sections = ["[tensors]", "[update]"].map(|name| text.find(name).unwrap());
        for mixed in [
            text.replacen("[encryption]", "[model]\nclasses = 1\nfeatures = 1\n[encryption]", 1),
            format!("{}{}", &text[..sections[0]], &text[sections[1]..]),
        ] {
            let error = parse(&mixed).unwrap_err().to_string();
            assert!(error.contains("either the sections"), "{error}");
        }
        for (from, to, message) in [
            ("layout = \"0", "layout = \"", "64 hexadecimal digits"),
            ("dimension = 1", "dimension = 0", "dimension must be positive"),
            ("\"rotate\"", "\"w-l1\"", "update: the payload `w-l1` is for linear models"),
            ("# share = 0.1", "share = 2.0", "share = 2 is out of range"),
        ] {
            let error = parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn policies_with_less_protection_do_not_enforce_the_task_file() {
        let file = parse(TEMPLATE).unwrap();
        let config = file.config(&Weights::zeros(64, 10).unwrap()).unwrap();
        assert!(file.is_enforced_by(&config).unwrap());
        let wider = TaskConfig { clip_exponent: config.clip_exponent + 1, ..config.clone() };
        assert!(file.is_enforced_by(&wider).unwrap());
        for other in [
            TaskConfig { receipts: Receipts::None, ..config.clone() },
            TaskConfig { noise: NoiseMode::Fast, ..config.clone() },
            TaskConfig { key_bits: 2048, ..config.clone() },
            TaskConfig { min_users: config.min_users + 1, ..config.clone() },
            TaskConfig { min_percent: 99, ..config.clone() },
            TaskConfig { rounds: config.rounds + 1, ..config.clone() },
            TaskConfig { collect_min: config.collect_min + 1, ..config.clone() },
            TaskConfig { outsize: 0, ..config.clone() },
            TaskConfig { max_failures: config.max_failures + 1, ..config.clone() },
        ] {
            assert!(!file.is_enforced_by(&other).unwrap(), "{other:?}");
        }
    }

    #[test]
    fn unknown_fields_and_values_are_reported_with_their_line() {
        let line = |needle: &str| 1 + TEMPLATE.lines().position(|line| line.starts_with(needle)).unwrap();
        for (from, to, at, message) in [
            ("rounds =", "ruonds =", line("rounds ="), "unknown field `ruonds`"),
            (
                "profile = \"full\"",
                "profile = \"fool\"",
                line("profile ="),
                "unknown profile `fool`; use one of sparse, full, paper",
            ),
            ("time =", "time = { min = \"5 years\", max = \"1h\" } #", line("time ="), "is not a time"),
            ("count =", "count = { min = 3, max = 5, mean = 4 } #", line("count ="), "unknown field `mean`"),
        ] {
            let text = TEMPLATE.replacen(from, to, 1);
            match parse(&text).unwrap_err() {
                TaskFileError::Syntax { line, message: found, .. } => {
                    assert!(found.contains(message), "{found}");
                    assert_eq!(line, at, "{found}");
                }
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn contradictory_values_are_refused() {
        for (from, to, message) in [
            ("min = 3", "min = 2", "single users"),
            ("min = 3", "min = 9", "above count.max"),
            ("localhost:7100", "localhost", "host and a port"),
            ("rounds = 20", "rounds = 0", "rounds is 0"),
            ("# server_step = 1.0", "server_step = -1.0", "learner: server step = -1 is out of range"),
            ("# server_step = 1.0", "server_step = inf", "learner: server step = inf is out of range"),
        ] {
            let text = TEMPLATE.replacen(from, to, 1);
            assert_ne!(text, TEMPLATE);
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn times_are_parsed() {
        let read = |text: &str| Milliseconds::try_from(text.to_owned());
        assert_eq!(read("500ms"), Ok(Milliseconds(500)));
        assert_eq!(read("10m"), Ok(Milliseconds(600_000)));
        assert!(read("10").is_err() && read("-1s").is_err() && read("99999999999999999h").is_err());
    }
}
