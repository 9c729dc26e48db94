//! The task file: what a task's people agree on, as TOML that a person writes. Unknown fields are refused by line.

use std::path::{Path, PathBuf};

use dphe::{NoiseMode, Profile, TaskConfig, TaskId};
use dphe_federate::{Weighting, propose};
use dphe_learn::Weights;
use dphe_learn::linear::{Loss, Penalty, Schedule, SgdParams, Stable};
use dphe_learn::update::{LocalTrainer, Message, Overflow};
use serde::Deserialize;

/// No task file is longer; a larger one is not read.
const MAX_BYTES: u64 = 64 * 1024;

/// A task as somebody wrote it down.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskFile {
    /// The task itself.
    pub task: TaskSection,
    /// Where the services are.
    pub parties: PartiesSection,
    /// What is learnt.
    pub model: ModelSection,
    /// How users learn.
    pub learner: LearnerSection,
    /// What a round hides, and how.
    pub policy: PolicySection,
    /// When the uploads of a round are complete.
    pub collect: CollectSection,
}

/// The task itself.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSection {
    /// 32 hexadecimal digits that nobody else has.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// How many users are enrolled: 1, 2, ...
    pub users: u32,
    /// How many rounds there are.
    pub rounds: u64,
    /// How long certificates are valid.
    #[serde(default = "valid_days")]
    pub valid_days: u32,
}

/// Where the services are.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartiesSection {
    /// Host and port of the aggregator, as users reach it.
    pub aggregator: String,
    /// Host and port of the key generator, as the aggregator reaches it.
    pub key_generator: String,
}

/// What is learnt.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSection {
    /// Classes.
    pub classes: u32,
    /// Features of a sample.
    pub features: u32,
    /// The model that rounds start from; all zeros without it.
    pub initial: Option<PathBuf>,
}

/// How users learn.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnerSection {
    /// `rotate`, `full`, `d-block`, `d-topk`, `d-l1`, `w-topk` or `w-l1`.
    pub message: MessageName,
    /// How many weights (blocks, in `d-block`) a message holds; a tenth unless told.
    pub capacity: Option<u32>,
    /// The share of what a message left out that is kept for the next.
    #[serde(default = "feedback")]
    pub feedback: f64,
    /// What is made small.
    pub loss: LossName,
    /// Strength of the penalty.
    pub strength: f64,
    /// The share of L1 in it.
    #[serde(default)]
    pub l1_ratio: f64,
    /// Passes over the samples in a round.
    pub epochs: usize,
    /// `1 + mean |x|^2` of samples like the users'.
    pub squared_radius: f64,
    /// How far a first step moves the margin of its sample.
    #[serde(default = "one")]
    pub step: f64,
    /// What the mean difference is multiplied by.
    #[serde(default = "one")]
    pub server_step: f64,
}

/// What a round hides, and how.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySection {
    /// `full`, `sparse` or `paper`.
    pub profile: ProfileName,
    /// Bits of the encryption key: 3072, 2048 or 4096; less in `paper` only.
    pub key_bits: u32,
    /// `secure` or `fast`.
    pub noise: NoiseName,
    /// The least share of the enrolled users in a sum, in percent.
    #[serde(default)]
    pub min_percent: u8,
    /// Fractional bits; proposed from the model unless told.
    pub scale_bits: Option<u8>,
    /// Weights lie within two to this power; proposed from the model unless told.
    pub clip_exponent: Option<i8>,
}

/// When the uploads of a round are complete.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectSection {
    /// How many users: below the least no sum is opened; at the most the round goes on at once.
    pub count: Range<u32>,
    /// How long: after the least time the least count is enough; after the most the round goes on or is given up.
    pub time: Range<Milliseconds>,
}

/// From here to there.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range<T> {
    /// The least.
    pub min: T,
    /// The most.
    pub max: T,
}

/// A time, written as `500ms`, `30s`, `10m` or `2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Milliseconds(pub u64);

impl TryFrom<String> for Milliseconds {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
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
            _ => return Err(format!("{text:?} is not a time; write 500ms, 30s, 10m or 2h")),
        };
        let number: u64 = digits.parse().map_err(|_| format!("{text:?} is not a time"))?;
        number.checked_mul(factor).map(Self).ok_or_else(|| format!("{text:?} is too long"))
    }
}

/// The name of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "dphe_learn::update::Message says what they are")]
pub enum MessageName {
    Rotate,
    Full,
    DBlock,
    DTopk,
    DL1,
    WTopk,
    WL1,
}

/// The name of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "dphe_learn::linear::Loss says what they are")]
pub enum LossName {
    Hinge,
    SquaredHinge,
    Logistic,
    Multinomial,
}

/// The name of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "dphe::Profile says what they are")]
pub enum ProfileName {
    Sparse,
    Full,
    Paper,
}

/// The name of a noise mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "dphe::NoiseMode says what they are")]
pub enum NoiseName {
    Secure,
    Fast,
}

fn valid_days() -> u32 {
    365
}

fn feedback() -> f64 {
    0.9
}

fn one() -> f64 {
    1.0
}

/// Why a task file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TaskFileError {
    /// It cannot be read.
    #[error("{} could not be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no task file.
    #[error("{}, line {line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// Its numbers do not go together.
    #[error("{what}")]
    Value {
        /// What does not.
        what: String,
    },
}

impl TaskFileError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } => Some("`dphe init` writes a task file to start from".into()),
            Self::Syntax { .. } => Some("compare with a fresh one from `dphe init`".into()),
            Self::Value { .. } => None,
        }
    }
}

const TEMPLATE: &str = include_str!("task_file/template.toml");
const TEMPLATE_ID: &str = "00000000000000000000000000000000";

/// What `dphe init` writes: a task to be changed.
pub fn template(id: TaskId) -> String {
    TEMPLATE.replacen(TEMPLATE_ID, &id.to_string(), 1)
}

impl TaskFile {
    /// Reads and checks a task file.
    ///
    /// # Errors
    /// [`TaskFileError`], with the line where there is one.
    pub fn read(path: &Path) -> Result<Self, TaskFileError> {
        let error = |source| TaskFileError::Read { path: path.into(), source };
        let length = std::fs::metadata(path).map_err(error)?.len();
        if length > MAX_BYTES {
            return Err(error(std::io::Error::other("it is too large for a task file")));
        }
        Self::parse(&std::fs::read_to_string(path).map_err(error)?, path)
    }

    /// Checks the text of a task file; `path` is what errors name.
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
        require(self.id().is_some(), "task: id is not 32 hexadecimal digits, such as `dphe init` writes")?;
        let (count, time) = (self.collect.count, self.collect.time);
        require(count.min >= 3, "collect: a count.min below 3 would show single users' weights")?;
        require(count.min <= count.max, "collect: count.min is above count.max")?;
        require(count.min <= self.task.users, "collect: count.min is more users than task.users")?;
        require(time.min <= time.max, "collect: time.min is above time.max")?;
        require(time.max.0 > 0, "collect: time.max is 0, and nobody could upload anything")?;
        require(self.task.rounds > 0, "task: there are no rounds")?;
        require(self.task.valid_days > 0, "task: certificates would never be valid")?;
        require(self.task.valid_days <= 36_500, "task: certificates would be valid for more than a century")?;
        require(self.task.users <= dphe::TaskParams::MOST_USERS, "task: more than 65,536 users")?;
        require(self.model.classes > 0 && self.model.features > 0, "model: it has no weights")?;
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

    /// The task's id; there is one in every file that was read.
    pub fn id(&self) -> Option<TaskId> {
        self.task.id.parse().ok()
    }

    /// The message that users send.
    pub fn message(&self) -> Message {
        let LearnerSection { message, capacity, feedback, .. } = self.learner;
        let (classes, features) = (self.model.classes as usize, self.model.features as usize);
        let of = |all: usize| capacity.map_or(all.div_ceil(10), |capacity| capacity as usize);
        let (weights, blocks) = (of(classes.saturating_mul(features)), of(features));
        // the paper's overflow is more shards; elsewhere everybody sends equally much
        let overflow =
            if self.policy.profile == ProfileName::Paper { Overflow::Shard } else { Overflow::Truncate };
        match message {
            MessageName::Rotate => Message::Rotating,
            MessageName::Full => Message::Full,
            MessageName::DBlock => Message::LargestBlocks { width: classes, capacity: blocks, feedback },
            MessageName::DTopk => Message::LargestDifferences { capacity: weights, feedback },
            MessageName::DL1 => Message::SparseDifferences { capacity: weights, overflow },
            MessageName::WTopk => Message::LargestWeights { capacity: weights },
            MessageName::WL1 => Message::SparseWeights { capacity: weights, overflow },
        }
    }

    /// What a user trains with.
    ///
    /// # Errors
    /// If the learner's numbers cannot be.
    pub fn trainer(&self) -> Result<LocalTrainer, dphe_learn::Error> {
        let LearnerSection { loss, strength, l1_ratio, epochs, squared_radius, step, .. } = self.learner;
        let schedule = Schedule::Stable(Stable { step, ..Stable::new(squared_radius) });
        let loss = match loss {
            LossName::Hinge => Loss::Hinge,
            LossName::SquaredHinge => Loss::SquaredHinge,
            LossName::Logistic => Loss::Logistic,
            LossName::Multinomial => Loss::Multinomial,
        };
        let penalty = Penalty::elastic_net(strength, l1_ratio)?;
        let params = SgdParams { loss, penalty, epochs, ..SgdParams::new(schedule) };
        LocalTrainer::new(params.check()?, self.message())
    }

    /// The task for this initial model.
    ///
    /// # Errors
    /// If message, profile and model do not go together.
    pub fn config(&self, initial: &Weights) -> Result<TaskConfig, dphe_federate::Error> {
        let policy = &self.policy;
        let profile = match policy.profile {
            ProfileName::Sparse => Profile::Sparse,
            ProfileName::Full => Profile::Full,
            ProfileName::Paper => Profile::Paper,
        };
        let message = self.message();
        let mut config = propose(profile, message, initial, self.collect.count.max, Weighting::Equal)?;
        config.key_bits = policy.key_bits;
        config.noise = match policy.noise {
            NoiseName::Secure => NoiseMode::Secure,
            NoiseName::Fast => NoiseMode::Fast,
        };
        config.min_users = self.collect.count.min;
        config.min_percent = policy.min_percent;
        config.scale_bits = policy.scale_bits.unwrap_or(config.scale_bits);
        config.clip_exponent = policy.clip_exponent.unwrap_or(config.clip_exponent);
        if let (Message::Rotating, Some(capacity)) = (message, self.learner.capacity) {
            config.capacity = capacity.min(config.positions());
        }
        // models are this long and no longer; what may be published is bounded by it
        let values = u64::from(config.dimension) + u64::from(self.model.classes);
        config.max_model_bytes = u32::try_from(values * 8 + 64 * 1024).unwrap_or(u32::MAX);
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TaskFile, TaskFileError> {
        TaskFile::parse(text, Path::new("task.toml"))
    }

    #[test]
    fn the_template_is_a_task() {
        let file = parse(TEMPLATE).unwrap();
        let initial = Weights::zeros(file.model.features as usize, file.model.classes as usize).unwrap();
        let config = file.config(&initial).unwrap();
        dphe::TaskParams::new(TaskId::from_bytes([1; 16]), config).unwrap();
        file.trainer().unwrap();
    }

    #[test]
    fn unknown_and_wrong_fields_are_named_with_their_line() {
        let line = |needle: &str| 1 + TEMPLATE.lines().position(|line| line.starts_with(needle)).unwrap();
        for (from, to, at, message) in [
            ("rounds =", "ruonds =", line("rounds ="), "unknown field `ruonds`"),
            ("profile = \"full\"", "profile = \"fool\"", line("profile ="), "unknown variant `fool`"),
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
    fn numbers_that_do_not_go_together_are_refused() {
        for (from, to, message) in [
            ("min = 3", "min = 2", "single users"),
            ("min = 3", "min = 9", "above count.max"),
            ("localhost:7100", "localhost", "host and a port"),
            ("rounds = 20", "rounds = 0", "no rounds"),
        ] {
            let text = TEMPLATE.replacen(from, to, 1);
            assert_ne!(text, TEMPLATE);
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn times_are_read() {
        let read = |text: &str| Milliseconds::try_from(text.to_owned());
        assert_eq!(read("500ms"), Ok(Milliseconds(500)));
        assert_eq!(read("10m"), Ok(Milliseconds(600_000)));
        assert!(read("10").is_err() && read("-1s").is_err() && read("99999999999999999h").is_err());
    }
}
