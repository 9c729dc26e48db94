//! The task: what is summed, and in which form. It is checked once, and everything else relies on that.

use dphe_paillier::{EncryptionKey, KeyBits, NoiseMode, SlotLayout};

use super::fixed_point::FixedPoint;
use super::ids::TaskId;
use crate::names::named_enum;
use crate::{Error, KeyLengths};

named_enum! {
    /// The variant of the protocol that a task uses. It decides what the task hides.
    pub enum Profile {
        /// The paper's scheme, hardened. Each user sends some positions, hidden by permutations that change each round.
        Sparse = "sparse",
        /// All users send the same public positions: all of them, or a rotating share. No indices are sent.
        Full = "full",
        /// Algorithm 1 with permutations that never change, for reproduction. It reveals supports within tens of
        /// rounds.
        Paper = "paper",
    }
}

/// The treatment of weights outside the task's range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClipRule {
    /// Sealing fails.
    #[default]
    Refuse,
    /// The weight is moved to the nearest end of the range, and counted.
    Clip,
}

/// An unchecked description of a task. [`TaskParams::new`] checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskConfig {
    /// The variant of the protocol.
    pub profile: Profile,
    /// How ciphertexts get their noise.
    pub noise: NoiseMode,
    /// How a sum is bound to its participants.
    pub receipts: Receipts,
    /// The length of the encryption key in bits.
    pub key_bits: u32,
    /// The number of weights: classes times features. Weights are stored feature-major.
    pub dimension: u32,
    /// The number of dense values that every upload carries besides the weights, such as intercepts.
    pub dense: u32,
    /// The number of weights per position.
    pub block: u32,
    /// The number of positions per shard (M in the paper), or in a round's public support in `full`.
    pub capacity: u32,
    /// The number of shards per upload, the same for all users. In `paper`, the most that a user may send.
    pub shards: u32,
    /// The number of fractional bits of a weight.
    pub scale_bits: u8,
    /// The range of weights: their magnitude is at most two to this power.
    pub clip_exponent: i8,
    /// The treatment of weights outside the range.
    pub clip_rule: ClipRule,
    /// The smallest number of participants, at least three.
    pub min_users: u32,
    /// The smallest share of the roster that must take part, in percent.
    pub min_percent: u8,
    /// The largest number of participants that the slots have room for.
    pub max_users: u32,
    /// How often a round may be frozen.
    pub max_attempts: u32,
    /// The length of the longest model.
    pub max_model_bytes: u32,
    /// The largest number of sums that the key generator opens, failed ones included.
    pub rounds: u32,
    /// The least time between a ticket and the freeze of its round, in milliseconds.
    pub collect_min: u32,
    /// The aggregator rejects a sum whose norm exceeds the largest of earlier rounds by more than this factor; 0 means
    /// never.
    pub outsize: u8,
    /// The largest number of openings that may fail before the key generator refuses further rounds.
    pub max_failures: u8,
}

impl TaskConfig {
    /// The largest number of rounds of a task.
    pub const MOST_ROUNDS: u32 = 1 << 20;

    /// Proposes a task for a classifier of this size and at most this many users: 3072-bit keys, 16 fractional bits,
    /// weights within 1, and a tenth of the positions. A position holds the classes of one feature, or as many as fit.
    /// In `paper` it holds one weight.
    pub fn new(profile: Profile, classes: u32, features: u32, max_users: u32) -> Self {
        let mut config = Self {
            profile,
            noise: NoiseMode::Secure,
            receipts: Receipts::of(profile),
            key_bits: KeyBits::default().get(),
            dimension: classes.saturating_mul(features),
            dense: 0,
            block: 1,
            capacity: 1,
            shards: 1,
            scale_bits: 16,
            clip_exponent: 0,
            clip_rule: ClipRule::Refuse,
            min_users: 3,
            min_percent: 0,
            max_users,
            max_attempts: 3,
            max_model_bytes: 1 << 30,
            rounds: Self::MOST_ROUNDS,
            collect_min: 0,
            outsize: 0,
            max_failures: 8,
        };
        let fits = match profile {
            Profile::Sparse => config.slots().max(1),
            Profile::Full => classes.max(1),
            Profile::Paper => 1,
        };
        // the classes of a feature are divided as evenly as possible
        config.block = classes.max(1).div_ceil(classes.max(1).div_ceil(fits));
        config.capacity = config.positions().div_ceil(10);
        config
    }

    /// Returns the same task with this many weights per position, and a tenth of the positions as capacity.
    #[must_use]
    pub fn with_block(mut self, block: u32) -> Self {
        self.block = block;
        self.capacity = self.positions().div_ceil(10);
        self
    }

    /// Returns the number of positions. The block of the last one may be short.
    pub fn positions(&self) -> u32 {
        self.dimension.div_ceil(self.block.max(1))
    }

    fn value_bits(&self) -> i32 {
        i32::from(self.scale_bits) + i32::from(self.clip_exponent) + 1
    }

    fn slot_bits(&self) -> i32 {
        self.value_bits() + (32 - self.max_users.saturating_sub(1).leading_zeros()) as i32
    }

    /// Returns how many weights a plaintext holds.
    pub fn slots(&self) -> u32 {
        let bits = u32::try_from(self.slot_bits()).unwrap_or(0).max(1);
        self.key_bits.saturating_sub(2) / bits
    }
}

/// How a sum is bound to its participants (docs/protocol.md, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipts {
    /// Not at all. The key generator opens what the aggregator submits.
    None = 0,
    /// By a check ciphertext that the key generator verifies. Against an aggregator without accomplices.
    Checked = 1,
    /// By masks that only the key generator can remove, for exactly the listed users, and by a check that users verify.
    Masked = 2,
}

impl Receipts {
    /// Returns the strongest kind that a profile offers.
    pub fn of(profile: Profile) -> Self {
        match profile {
            Profile::Sparse => Self::Checked,
            Profile::Full => Self::Masked,
            Profile::Paper => Self::None,
        }
    }
}

/// A task that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskParams {
    id: TaskId,
    config: TaskConfig,
    key_bits: KeyBits,
}

impl TaskParams {
    /// The largest number of participants of any task.
    pub const MOST_USERS: u32 = 1 << 16;

    /// Checks a task. Keys have at least 2048 bits.
    ///
    /// # Errors
    /// [`Error::Task`] if a rule is broken, [`Error::Key`] for a key length that is not offered.
    pub fn new(id: TaskId, config: TaskConfig) -> Result<Self, Error> {
        Self::new_with(id, config, KeyLengths::default())
    }

    /// Checks a task whose key may have other lengths.
    ///
    /// # Errors
    /// As [`TaskParams::new`].
    pub fn new_with(id: TaskId, config: TaskConfig, lengths: KeyLengths) -> Result<Self, Error> {
        let key_bits = lengths.key_bits(&config).map_err(Error::Key)?;
        let require = |holds: bool, reason| if holds { Ok(()) } else { Err(Error::Task { reason }) };
        let private = config.profile != Profile::Full;
        require(config.dimension >= 1, "a task needs at least one weight")?;
        require(config.dimension <= 1 << 30, "there are more than 2^30 weights")?;
        require(config.dense <= 1 << 24, "there are more than 2^24 dense values")?;
        require(
            (1..=config.dimension).contains(&config.block),
            "a block must hold between one and all weights",
        )?;
        require(
            config.profile != Profile::Paper || config.block == 1,
            "in `paper`, a block must hold one weight",
        )?;
        require(config.capacity >= 1 && config.shards >= 1, "capacity and shards must be at least 1")?;
        require(
            u64::from(config.capacity) * u64::from(config.shards) <= u64::from(config.positions())
                || (config.profile == Profile::Paper && config.capacity <= config.positions()),
            "capacity times shards exceeds the number of positions",
        )?;
        require(private || config.shards == 1, "in `full`, shards must be 1")?;
        require(config.scale_bits <= 48, "there are more than 48 fractional bits")?;
        require(config.value_bits() >= 2, "scale bits and clip exponent leave no bits for a value")?;
        require(
            config.slot_bits() <= 64,
            "sums would need more than 64 bits; lower the scale bits, the clip exponent or the number of users",
        )?;
        require(
            config.min_users >= 3,
            "min users must be at least 3, because a sum of fewer users reveals too much",
        )?;
        require(config.max_users >= config.min_users, "max users is smaller than min users")?;
        require(config.max_users <= Self::MOST_USERS, "there are more than 65,536 users")?;
        require(config.min_percent <= 100, "min percent is above 100")?;
        require((1..=16).contains(&config.max_attempts), "max attempts must be between 1 and 16")?;
        require(
            (1..=TaskConfig::MOST_ROUNDS).contains(&config.rounds),
            "the number of rounds must be between 1 and 2^20",
        )?;
        require(config.max_failures >= 1, "max failures must be at least 1")?;
        require(
            config.receipts == Receipts::None || config.receipts == Receipts::of(config.profile),
            "sums are `checked` in `sparse` only and `masked` in `full` only",
        )?;
        require(
            config.noise != NoiseMode::Textbook,
            "textbook noise is for keys that other programs made; the noise of a task is secure or fast",
        )?;
        require(config.slots() >= 1, "the key is too short for one value")?;
        require(
            !private || config.block <= config.slots(),
            "a block does not fit into one plaintext; choose a smaller block",
        )?;
        require(
            config.profile != Profile::Paper || config.shards <= config.positions().div_ceil(config.capacity),
            "there are more shards than all positions need",
        )?;
        // so that a log record, and with it every message, is shorter than 4 GiB
        let positions = if private { u64::from(config.positions()) } else { 0 };
        let dense = if private { 0 } else { u64::from(config.capacity) * u64::from(config.block) };
        let ciphertexts = positions + (dense + u64::from(config.dense)).div_ceil(config.slots().into());
        require(
            ciphertexts * u64::from(config.key_bits.div_ceil(4) + 4) <= 1 << 31
                && config.max_model_bytes <= 1 << 31,
            "a sum or a model would be longer than 2 GiB; choose larger blocks or a smaller model",
        )?;
        Ok(Self { id, config, key_bits })
    }

    /// Returns the name of the task.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Returns the checked description.
    pub fn config(&self) -> &TaskConfig {
        &self.config
    }

    /// Returns the variant of the protocol.
    pub fn profile(&self) -> Profile {
        self.config.profile
    }

    /// Returns the length of the encryption key.
    pub fn key_bits(&self) -> KeyBits {
        self.key_bits
    }

    /// Returns the number of weights.
    pub fn dimension(&self) -> usize {
        self.config.dimension as usize
    }

    /// Returns the number of dense values.
    pub fn dense(&self) -> usize {
        self.config.dense as usize
    }

    /// Returns the number of weights per position.
    pub fn block(&self) -> usize {
        self.config.block as usize
    }

    /// Returns the number of positions.
    pub fn positions(&self) -> u32 {
        self.config.positions()
    }

    /// Returns the number of positions per shard, or in a round's public support.
    pub fn capacity(&self) -> usize {
        self.config.capacity as usize
    }

    /// Returns whether supports are private, so that permuted indices are sent.
    pub fn has_private_support(&self) -> bool {
        self.config.profile != Profile::Full
    }

    /// Returns how a sum is bound to its participants.
    pub fn receipts(&self) -> Receipts {
        self.config.receipts
    }

    /// Returns the encoding of weights as integers.
    pub(crate) fn fixed_point(&self) -> FixedPoint {
        FixedPoint::new(self.config.scale_bits, self.config.clip_exponent, self.config.clip_rule)
    }

    /// Returns the number of bits per slot.
    pub fn slot_bits(&self) -> u32 {
        self.config.slot_bits().unsigned_abs()
    }

    /// Returns the number of slots per plaintext.
    pub fn slots(&self) -> usize {
        self.config.slots() as usize
    }

    /// Returns the layout of slots for a key of the task.
    pub(crate) fn layout(&self, key: &EncryptionKey) -> Result<SlotLayout, Error> {
        SlotLayout::new(key, self.config.value_bits().unsigned_abs(), self.config.max_users.into())
            .map_err(Error::Key)
    }

    /// Checks that a key has the task's length and noise mode.
    pub(crate) fn check_key(&self, key: &EncryptionKey) -> Result<(), Error> {
        if key.bits() == self.key_bits && key.mode() == self.config.noise {
            Ok(())
        } else {
            Err(Error::Key(dphe_paillier::Error::KeyMismatch))
        }
    }

    /// Returns the floor for a roster of this size: the smallest number of participants whose sum may be opened.
    pub fn floor(&self, roster: usize) -> usize {
        let share = (roster * usize::from(self.config.min_percent)).div_ceil(100);
        share.max(self.config.min_users as usize)
    }

    /// Returns the largest number of participants.
    pub fn max_users(&self) -> usize {
        self.config.max_users as usize
    }
}
