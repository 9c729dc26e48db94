//! Learners, payloads and tasks as people write them on a command line or in a task file.

mod name;

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

use dphe::{NoiseMode, Profile, Receipts, TaskConfig, TaskParams};
use dphe_learn::linear::{Loss, Penalty, Schedule, SgdParams, Stable};
use dphe_learn::update::{LocalTrainer, Overflow, Payload};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use name::{Named, UnknownName, named};

use crate::task::{ModelSize, propose_for};
use crate::{Error, Weighting};

/// How many times as large as those of earlier rounds an average may be, unless the task file says otherwise.
pub const DEFAULT_OUTSIZE: u8 = 10;

/// The name of a [`Payload`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadName {
    /// [`Payload::Rotating`]
    Rotate,
    /// [`Payload::All`]
    All,
    /// [`Payload::LargestBlocks`]
    DBlock,
    /// [`Payload::LargestDifferences`]
    DTopk,
    /// [`Payload::SparseDifferences`]
    DL1,
    /// [`Payload::LargestWeights`]
    WTopk,
    /// [`Payload::SparseWeights`]
    WL1,
}

impl Named for PayloadName {
    const KIND: &'static str = "payload";
    const ALL: &'static [Self] =
        &[Self::Rotate, Self::All, Self::DBlock, Self::DTopk, Self::DL1, Self::WTopk, Self::WL1];

    fn as_str(self) -> &'static str {
        match self {
            Self::Rotate => "rotate",
            Self::All => "all",
            Self::DBlock => "d-block",
            Self::DTopk => "d-topk",
            Self::DL1 => "d-l1",
            Self::WTopk => "w-topk",
            Self::WL1 => "w-l1",
        }
    }

    fn summary(self) -> &'static str {
        match self {
            Self::Rotate => "The differences of a rotating share of the features, the same for every user",
            Self::All => "All differences",
            Self::DBlock => "The blocks with the largest differences",
            Self::DTopk => "The largest differences",
            Self::DL1 => "Differences made sparse by L1",
            Self::WTopk => "The largest weights",
            Self::WL1 => "Weights made sparse by L1, as in the paper",
        }
    }
}

impl PayloadName {
    /// Returns the name of a payload.
    pub fn of(payload: Payload) -> Self {
        match payload {
            Payload::Rotating => Self::Rotate,
            Payload::All => Self::All,
            Payload::LargestBlocks { .. } => Self::DBlock,
            Payload::LargestDifferences { .. } => Self::DTopk,
            Payload::SparseDifferences { .. } => Self::DL1,
            Payload::LargestWeights { .. } => Self::WTopk,
            Payload::SparseWeights { .. } => Self::WL1,
        }
    }

    /// Returns the profile that a task with this payload has by default.
    pub fn default_profile(self) -> Profile {
        match self {
            Self::Rotate | Self::All => Profile::Full,
            _ => Profile::Sparse,
        }
    }

    /// Returns whether L1 decides which weights the payload carries.
    pub fn is_sparse_by_l1(self) -> bool {
        matches!(self, Self::DL1 | Self::WL1)
    }
}

impl fmt::Display for PayloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PayloadName {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::from_name(name)
    }
}

impl Serialize for PayloadName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        named::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for PayloadName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        named::deserialize(deserializer)
    }
}

/// How much of a model a payload carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PayloadSize {
    /// This share of all, rounded up.
    Share(f64),
    /// This many weights; blocks for `d-block`, features for `rotate`.
    Count(usize),
}

impl PayloadSize {
    /// The share that an update carries by default.
    pub const DEFAULT_SHARE: f64 = 0.1;
    /// [`Self::DEFAULT_SHARE`]
    pub const DEFAULT: Self = Self::Share(Self::DEFAULT_SHARE);

    /// Returns how many of `all` the payload carries.
    pub fn of(self, all: usize) -> usize {
        match self {
            Self::Share(share) => ((all as f64 * share).ceil() as usize).max(1),
            Self::Count(count) => count,
        }
    }
}

/// How users learn and what they send: the section `[learner]` of a task file, and the options of `dphe simulate`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnerSpec {
    /// What an update carries.
    #[serde(alias = "message")]
    pub payload: PayloadName,
    /// The share of the weights that an update carries; a tenth if neither this nor `capacity` is given.
    pub share: Option<f64>,
    /// How many weights (blocks for `d-block`, features for `rotate`) an update carries, instead of a share.
    pub capacity: Option<u32>,
    /// The share of what an update leaves out that is added to the next one.
    #[serde(default = "LearnerSpec::default_feedback")]
    pub feedback: f64,
    /// The loss that training minimises.
    #[serde(with = "named")]
    pub loss: Loss,
    /// The strength of the penalty.
    pub strength: f64,
    /// The share of L1 in the penalty.
    #[serde(default)]
    pub l1_ratio: f64,
    /// Passes over a user's samples per round.
    pub epochs: usize,
    /// `1 + mean |x|^2` of samples like the users'.
    pub squared_radius: f64,
    /// How far the first step moves the margin of its sample.
    #[serde(default = "one")]
    pub step: f64,
    /// The factor applied to the average of differences before it is added to the global weights.
    #[serde(default = "one")]
    pub server_step: f64,
}

fn one() -> f64 {
    1.0
}

/// How a task protects updates: the section `[encryption]` of a task file.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncryptionSpec {
    /// The variant of the protocol.
    #[serde(with = "named")]
    pub profile: Profile,
    /// Bits of the encryption key: 2048, 3072 or 4096; fewer only in `paper`.
    pub key_bits: u32,
    /// How the noise of ciphertexts is drawn.
    #[serde(with = "named")]
    pub noise: NoiseMode,
    /// The smallest share of the enrolled users in a sum, in percent.
    #[serde(default)]
    pub min_percent: u8,
    /// Fractional bits of a weight; proposed from the model if absent.
    pub scale_bits: Option<u8>,
    /// Weights lie within two to this power; proposed from the model if absent.
    pub clip_exponent: Option<i8>,
    /// Whether sums are bound to their participants, as far as the profile allows. False only for measurements: the
    /// aggregator can then read the update of one user per round.
    #[serde(default = "default_bind_sums")]
    pub bind_sums: bool,
}

fn default_bind_sums() -> bool {
    true
}

impl EncryptionSpec {
    /// Creates a specification without a minimum share of users, with proposed numbers.
    pub fn new(profile: Profile, key_bits: u32, noise: NoiseMode) -> Self {
        let (scale_bits, clip_exponent) = (None, None);
        Self { profile, key_bits, noise, min_percent: 0, scale_bits, clip_exponent, bind_sums: true }
    }
}

/// Fails on a server step that no round can take.
pub(crate) fn check_server_step(server_step: f64) -> Result<(), Error> {
    if server_step > 0.0 && server_step.is_finite() {
        return Ok(());
    }
    Err(Error::Parameter {
        name: "server step",
        value: server_step,
        remedy: "use a positive number, normally 1",
    })
}

impl LearnerSpec {
    /// Returns the usual share of what an update leaves out that is added to the next one.
    pub fn default_feedback() -> f64 {
        0.9
    }

    /// Fails on a size that no payload has, and on a server step that no round can take.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the share is not above 0 and at most 1, both a share and a capacity are given, or the
    /// server step is not a positive number.
    pub fn check(&self) -> Result<(), Error> {
        check_server_step(self.server_step)?;
        match (self.share, self.capacity) {
            (Some(_), Some(capacity)) => Err(Error::Parameter {
                name: "capacity",
                value: capacity.into(),
                remedy: "give a share or a capacity, not both",
            }),
            (Some(share), None) if !(share > 0.0 && share <= 1.0) => Err(Error::Parameter {
                name: "share",
                value: share,
                remedy: "use a number above 0 and up to 1, such as 0.1",
            }),
            _ => Ok(()),
        }
    }

    /// Returns the share of a model's weights that an update carries.
    pub fn share_of(&self, weights: usize) -> f64 {
        match self.capacity {
            Some(capacity) => (f64::from(capacity) / weights as f64).min(1.0),
            None => self.share.unwrap_or(PayloadSize::DEFAULT_SHARE),
        }
    }

    fn size(&self) -> PayloadSize {
        match (self.share, self.capacity) {
            (_, Some(capacity)) => PayloadSize::Count(capacity as usize),
            (Some(share), None) => PayloadSize::Share(share),
            (None, None) => PayloadSize::DEFAULT,
        }
    }

    /// Returns the payload for a model of this size, in a task whose plaintexts hold `slots` weights.
    pub fn payload(&self, profile: Profile, model: ModelSize, slots: usize) -> Payload {
        payload(self.payload, self.size(), self.feedback, profile, model, slots)
    }

    /// Returns the parameters of the learner.
    ///
    /// # Errors
    /// If the penalty is out of range.
    pub fn sgd(&self) -> Result<SgdParams, dphe_learn::Error> {
        let schedule = Schedule::Stable(Stable { step: self.step, ..Stable::new(self.squared_radius) });
        let penalty = Penalty::elastic_net(self.strength, self.l1_ratio)?;
        Ok(SgdParams { loss: self.loss, penalty, epochs: self.epochs, ..SgdParams::new(schedule) })
    }

    /// Returns the trainer of a user in a task for a model of this size.
    ///
    /// # Errors
    /// If a number of the learner or the payload is out of range.
    pub fn trainer(&self, task: &TaskParams, model: ModelSize) -> Result<LocalTrainer, Error> {
        let payload = self.payload(task.profile(), model, task.slots());
        Ok(LocalTrainer::new(self.sgd()?.check()?, payload)?)
    }

    /// Proposes the task for a model, and returns the payload that fits it. `users` is the smallest and the largest
    /// number of users in a sum.
    ///
    /// # Errors
    /// If payload, profile and model do not fit each other.
    pub fn propose(
        &self,
        encryption: &EncryptionSpec,
        model: ModelSize,
        users: RangeInclusive<u32>,
        weighting: Weighting,
    ) -> Result<(TaskConfig, Payload), Error> {
        self.check()?;
        let profile = encryption.profile;
        let configure = |payload| -> Result<TaskConfig, Error> {
            let mut config = propose_for(profile, payload, model, *users.end(), weighting)?;
            config.key_bits = encryption.key_bits;
            config.noise = encryption.noise;
            if !encryption.bind_sums {
                config.receipts = Receipts::None;
            }
            config.min_users = *users.start();
            config.min_percent = encryption.min_percent;
            config.scale_bits = encryption.scale_bits.unwrap_or(config.scale_bits);
            config.outsize = DEFAULT_OUTSIZE;
            config.clip_exponent = encryption.clip_exponent.unwrap_or(config.clip_exponent);
            if payload == Payload::Rotating {
                let features = self.size().of(config.positions() as usize);
                config.capacity = u32::try_from(features).unwrap_or(u32::MAX).min(config.positions());
            }
            // A published model is never longer than this.
            let values = u64::from(config.dimension) + model.classes as u64;
            config.max_model_bytes = u32::try_from(values * 8 + 64 * 1024).unwrap_or(u32::MAX);
            Ok(config)
        };
        // The number of slots depends on the kind of payload but not on its size.
        let slots = configure(self.payload(profile, model, 1))?.slots();
        let payload = self.payload(profile, model, slots as usize);
        Ok((configure(payload)?, payload))
    }
}

/// Returns the payload of this name and size. The blocks of `d-block` hold the weights of one feature, cut evenly
/// where they do not fit the `slots` of one plaintext.
pub fn payload(
    name: PayloadName,
    size: PayloadSize,
    feedback: f64,
    profile: Profile,
    model: ModelSize,
    slots: usize,
) -> Payload {
    let weights = size.of(model.dimension());
    // The paper sends more shards when L1 leaves more weights. Elsewhere every user sends equally many.
    let overflow = if profile == Profile::Paper { Overflow::Shard } else { Overflow::Truncate };
    match name {
        PayloadName::Rotate => Payload::Rotating,
        PayloadName::All => Payload::All,
        PayloadName::DBlock => {
            let classes = model.classes.max(1);
            let width = classes.div_ceil(classes.div_ceil(slots.max(1)));
            Payload::LargestBlocks { width, blocks: size.of(model.dimension().div_ceil(width)), feedback }
        }
        PayloadName::DTopk => Payload::LargestDifferences { weights, feedback },
        PayloadName::DL1 => Payload::SparseDifferences { weights, overflow },
        PayloadName::WTopk => Payload::LargestWeights { weights },
        PayloadName::WL1 => Payload::SparseWeights { weights, overflow },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_are_read_back<T: Named + fmt::Debug>() {
        for &value in T::ALL {
            assert_eq!(T::from_name(value.as_str()), Ok(value));
            assert!(!value.summary().is_empty());
        }
        let error = T::from_name("d-best").unwrap_err().to_string();
        assert!(T::ALL.iter().all(|value| error.contains(value.as_str())), "{error}");
    }

    #[test]
    fn names_are_read_back_and_unknown_ones_list_the_known() {
        words_are_read_back::<PayloadName>();
        words_are_read_back::<Profile>();
        words_are_read_back::<NoiseMode>();
        words_are_read_back::<Loss>();
        let json = serde_json::to_string(&PayloadName::DL1).unwrap();
        assert_eq!(json, "\"d-l1\"");
        assert_eq!(serde_json::from_str::<PayloadName>(&json).unwrap(), PayloadName::DL1);
        let error = serde_json::from_str::<PayloadName>("\"full\"").unwrap_err().to_string();
        assert!(error.contains("unknown payload `full`; use one of rotate, all, d-block"), "{error}");
    }

    #[test]
    fn payload_has_the_name_it_was_made_from() {
        let model = ModelSize { features: 20, classes: 7, largest_weight: 0.1 };
        for &name in PayloadName::ALL {
            let payload = payload(name, PayloadSize::DEFAULT, 0.9, Profile::Sparse, model, 100);
            assert_eq!(PayloadName::of(payload), name);
            assert_eq!(payload.is_sparse_by_l1(), name.is_sparse_by_l1());
        }
    }

    #[test]
    fn a_share_of_a_tenth_is_exact() {
        for all in 1..100_000 {
            assert_eq!(PayloadSize::DEFAULT.of(all), all.div_ceil(10));
        }
    }

    #[test]
    fn blocks_are_cut_evenly_where_a_feature_does_not_fit_a_plaintext() {
        let blocks = |classes, slots| {
            let model = ModelSize { features: 20, classes, largest_weight: 0.1 };
            match payload(PayloadName::DBlock, PayloadSize::DEFAULT, 0.9, Profile::Sparse, model, slots) {
                Payload::LargestBlocks { width, blocks, .. } => (width, blocks),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(blocks(10, 100), (10, 2));
        assert_eq!(blocks(101, 100), (51, 4));
        assert_eq!(blocks(101, 1), (1, 202));
    }
}
