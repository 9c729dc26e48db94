//! The task: who sums what, in which form. Checked once; everything else trusts it.

use core::fmt;
use core::num::{NonZeroU32, NonZeroU64};
use core::str::FromStr;

use dphe_paillier::{EncryptionKey, KeyBits, NoiseMode, SlotLayout};

use crate::hash::{Digest, hash};
use crate::message::codec::{Reader, Writer};
use crate::{Error, fixed::FixedPoint};

/// Names a task: 16 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId([u8; 16]);

impl TaskId {
    /// The task with these bytes, which should be random.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({self})")
    }
}

impl FromStr for TaskId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let error = Error::Task { reason: "a task id is 32 hexadecimal digits" };
        if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(error);
        }
        u128::from_str_radix(text, 16).map(|id| Self(id.to_be_bytes())).map_err(|_| error)
    }
}

/// Names a user within a task; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserId(NonZeroU32);

impl UserId {
    /// The user of this number, unless it is 0.
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserId({self})")
    }
}

/// One averaging, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Round(NonZeroU64);

impl Round {
    /// The first round.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The round of this number, unless it is 0.
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// Checks that it is the round at hand.
    pub(crate) fn check(self, current: Self) -> Result<(), Error> {
        match self.cmp(&current) {
            core::cmp::Ordering::Less => Err(Error::Stale { round: self, current }),
            core::cmp::Ordering::Equal => Ok(()),
            core::cmp::Ordering::Greater => Err(Error::Future { round: self, current }),
        }
    }

    /// The round after this one. (There is one for longer than anybody can wait.)
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Round({self})")
    }
}

/// What a task hides, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The paper's scheme, hardened: each user sends some positions, hidden by permutations drawn anew each round.
    Sparse,
    /// Everybody sends the same public positions, all of them or a rotating share; no index travels.
    Full,
    /// Algorithm 1 with permutations that are kept. For reproduction; it gives the supports away in tens of rounds.
    Paper,
}

impl Profile {
    /// The name used in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sparse => "sparse",
            Self::Full => "full",
            Self::Paper => "paper",
        }
    }

    fn tag(self) -> u8 {
        match self {
            Self::Sparse => 1,
            Self::Full => 2,
            Self::Paper => 3,
        }
    }

    fn from_tag(tag: u8) -> Option<Self> {
        [Self::Sparse, Self::Full, Self::Paper].into_iter().find(|profile| profile.tag() == tag)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What happens to a weight outside the task's range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClipRule {
    /// It is an error.
    #[default]
    Refuse,
    /// It is moved to the nearest end of the range, and counted.
    Clip,
}

/// A task as somebody wrote it down; [`TaskParams::new`] checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskConfig {
    /// What the task hides, and how.
    pub profile: Profile,
    /// How ciphertexts get their noise.
    pub noise: NoiseMode,
    /// Bits of the encryption key.
    pub key_bits: u32,
    /// Number of weights: classes times features, feature-major.
    pub dimension: u32,
    /// Values besides the weights that every upload carries: intercepts, counts.
    pub dense: u32,
    /// Weights of one position.
    pub block: u32,
    /// Positions of one shard, the paper's M; in `full`, of one round's public support.
    pub capacity: u32,
    /// Shards of one upload, the same for everybody; in `paper`, the most a user may send.
    pub shards: u32,
    /// Fractional bits of a weight.
    pub scale_bits: u8,
    /// Weights lie within two to this power.
    pub clip_exponent: i8,
    /// What happens to those that do not.
    pub clip_rule: ClipRule,
    /// A sum of fewer users is not opened; at least three.
    pub min_users: u32,
    /// Nor is a sum of less than this share of the roster.
    pub min_percent: u8,
    /// A sum of more users does not fit the slots.
    pub max_users: u32,
    /// How often the set of a round may be frozen.
    pub max_attempts: u32,
    /// Longest model that may be published.
    pub max_model_bytes: u32,
}

impl TaskConfig {
    /// The proposal for a classifier of this size and at most this many users: 3072-bit keys, 16 fractional bits,
    /// weights within 1, a tenth of the positions. A position is the classes of one feature, or as many as fit; one
    /// weight in `paper`.
    pub fn new(profile: Profile, classes: u32, features: u32, max_users: u32) -> Self {
        let mut config = Self {
            profile,
            noise: NoiseMode::Secure,
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
        };
        let fits = match profile {
            Profile::Sparse => config.slots().max(1),
            Profile::Full => classes.max(1),
            Profile::Paper => 1,
        };
        // as even a cut of a feature's classes as there is
        config.block = classes.max(1).div_ceil(classes.max(1).div_ceil(fits));
        config.capacity = config.positions().div_ceil(10);
        config
    }

    /// The same with this many weights in a position, and a tenth of the positions as capacity.
    #[must_use]
    pub fn with_block(mut self, block: u32) -> Self {
        self.block = block;
        self.capacity = self.positions().div_ceil(10);
        self
    }

    /// Positions: blocks of weights, the last of which may be short.
    pub fn positions(&self) -> u32 {
        self.dimension.div_ceil(self.block.max(1))
    }

    fn value_bits(&self) -> i32 {
        i32::from(self.scale_bits) + i32::from(self.clip_exponent) + 1
    }

    fn slot_bits(&self) -> i32 {
        self.value_bits() + (32 - self.max_users.saturating_sub(1).leading_zeros()) as i32
    }

    /// How many weights a plaintext holds.
    fn slots(&self) -> u32 {
        let bits = u32::try_from(self.slot_bits()).unwrap_or(0).max(1);
        self.key_bits.saturating_sub(2) / bits
    }
}

/// A checked task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskParams {
    id: TaskId,
    config: TaskConfig,
    key_bits: KeyBits,
}

impl TaskParams {
    /// Most users of a sum.
    pub const MOST_USERS: u32 = 1 << 16;
    /// Bytes of an encoded policy.
    pub(crate) const POLICY_BYTES: usize = 48;

    /// Checks a task.
    ///
    /// # Errors
    /// [`Error::Task`] saying what cannot be, [`Error::Key`] for a key length that is not offered.
    pub fn new(id: TaskId, config: TaskConfig) -> Result<Self, Error> {
        let key_bits = match config.profile {
            #[cfg(feature = "hazmat")]
            Profile::Paper => dphe_paillier::hazmat::insecure_key_bits(config.key_bits),
            _ => KeyBits::new(config.key_bits),
        };
        Self::checked(id, config, key_bits.map_err(Error::Key)?)
    }

    pub(crate) fn checked(id: TaskId, config: TaskConfig, key_bits: KeyBits) -> Result<Self, Error> {
        let require = |holds: bool, reason| if holds { Ok(()) } else { Err(Error::Task { reason }) };
        let private = config.profile != Profile::Full;
        require(config.dimension >= 1, "it has no weights")?;
        require(config.dimension <= 1 << 30, "it has more than 2^30 weights")?;
        require(config.dense <= 1 << 24, "it has more than 2^24 dense values")?;
        require(
            (1..=config.dimension).contains(&config.block),
            "a block holds at least one weight, at most all",
        )?;
        require(
            config.profile != Profile::Paper || config.block == 1,
            "in `paper` a position is one weight",
        )?;
        require(config.capacity >= 1 && config.shards >= 1, "capacity and shards are at least 1")?;
        require(
            u64::from(config.capacity) * u64::from(config.shards) <= u64::from(config.positions())
                || (config.profile == Profile::Paper && config.capacity <= config.positions()),
            "capacity times shards is more than there are positions",
        )?;
        require(private || config.shards == 1, "in `full` there are no shards: shards must be 1")?;
        require(config.scale_bits <= 48, "more than 48 fractional bits")?;
        require(config.value_bits() >= 2, "scale and clip leave no bit for a value")?;
        require(
            config.slot_bits() <= 64,
            "the sums would need more than 64 bits: lower scale, clip or users",
        )?;
        require(
            config.min_users >= 3,
            "a sum of fewer than three users shows too much: min users is at least 3",
        )?;
        require(config.max_users >= config.min_users, "max users is below min users")?;
        require(config.max_users <= Self::MOST_USERS, "more than 65,536 users")?;
        require(config.min_percent <= 100, "min percent is above 100")?;
        require((1..=16).contains(&config.max_attempts), "between 1 and 16 freeze attempts")?;
        require(config.slots() >= 1, "not one value fits the key")?;
        require(
            !private || config.block <= config.slots(),
            "a block does not fit one plaintext: make it smaller",
        )?;
        require(
            config.profile != Profile::Paper || config.shards <= config.positions().div_ceil(config.capacity),
            "more shards than it takes to send everything",
        )?;
        // a record of a log, and with it every message, is shorter than 4 GiB
        let positions = if private { u64::from(config.positions()) } else { 0 };
        let dense = if private { 0 } else { u64::from(config.capacity) * u64::from(config.block) };
        let ciphertexts = positions + (dense + u64::from(config.dense)).div_ceil(config.slots().into());
        require(
            ciphertexts * u64::from(config.key_bits.div_ceil(4) + 4) <= 1 << 31
                && config.max_model_bytes <= 1 << 31,
            "a sum or a model would be longer than 2 GiB: larger blocks, or a smaller model",
        )?;
        Ok(Self { id, config, key_bits })
    }

    /// The task's name.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// The task as it was written down.
    pub fn config(&self) -> &TaskConfig {
        &self.config
    }

    /// What it hides, and how.
    pub fn profile(&self) -> Profile {
        self.config.profile
    }

    /// Length of the encryption key.
    pub fn key_bits(&self) -> KeyBits {
        self.key_bits
    }

    /// Number of weights.
    pub fn dimension(&self) -> usize {
        self.config.dimension as usize
    }

    /// Number of dense values.
    pub fn dense(&self) -> usize {
        self.config.dense as usize
    }

    /// Weights of one position.
    pub fn block(&self) -> usize {
        self.config.block as usize
    }

    /// Number of positions.
    pub fn positions(&self) -> u32 {
        self.config.positions()
    }

    /// Positions of one shard, or of a round's public support.
    pub fn capacity(&self) -> usize {
        self.config.capacity as usize
    }

    /// Whether supports are private, so that indices travel.
    pub fn has_private_support(&self) -> bool {
        self.config.profile != Profile::Full
    }

    /// How weights become integers.
    pub(crate) fn fixed_point(&self) -> FixedPoint {
        FixedPoint::new(self.config.scale_bits, self.config.clip_exponent, self.config.clip_rule)
    }

    /// Bits of one slot of a plaintext.
    pub fn slot_bits(&self) -> u32 {
        self.config.slot_bits().unsigned_abs()
    }

    /// Slots of one plaintext.
    pub fn slots(&self) -> usize {
        self.config.slots() as usize
    }

    /// The slots, for a key of the task.
    pub(crate) fn layout(&self, key: &EncryptionKey) -> Result<SlotLayout, Error> {
        SlotLayout::new(key, self.config.value_bits().unsigned_abs(), self.config.max_users.into())
            .map_err(Error::Key)
    }

    /// Checks that a key is of the task's length and mode.
    pub(crate) fn check_key(&self, key: &EncryptionKey) -> Result<(), Error> {
        if key.bits() == self.key_bits && key.mode() == self.config.noise {
            Ok(())
        } else {
            Err(Error::Key(dphe_paillier::Error::KeyMismatch))
        }
    }

    /// The least number of users whose sum may be opened, of a roster with this many.
    pub fn floor(&self, roster: usize) -> usize {
        let share = (roster * usize::from(self.config.min_percent)).div_ceil(100);
        share.max(self.config.min_users as usize)
    }

    /// Most users of a sum.
    pub fn max_users(&self) -> usize {
        self.config.max_users as usize
    }

    /// The policy: the task without its name (docs/protocol.md, section 3).
    pub fn policy_hash(&self) -> Digest {
        let mut out = Writer::new();
        self.write_policy(&mut out);
        hash("dphe/v1/policy", &[&out.into_bytes()])
    }

    pub(crate) fn write_policy(&self, out: &mut Writer) {
        let TaskConfig {
            profile,
            noise,
            key_bits,
            dimension,
            dense,
            block,
            capacity,
            shards,
            scale_bits,
            clip_exponent,
            clip_rule,
            min_users,
            min_percent,
            max_users,
            max_attempts,
            max_model_bytes,
        } = self.config;
        let noise = if noise == NoiseMode::Secure { 1 } else { 2 };
        [1, profile.tag(), noise, 0].into_iter().for_each(|byte| out.u8(byte));
        [key_bits, dimension, dense, block, capacity, shards].into_iter().for_each(|x| out.u32(x));
        [scale_bits, clip_exponent as u8, u8::from(clip_rule == ClipRule::Clip)]
            .into_iter()
            .for_each(|byte| out.u8(byte));
        out.u32(min_users);
        out.u8(min_percent);
        [max_users, max_attempts, max_model_bytes].into_iter().for_each(|x| out.u32(x));
    }

    /// Reads a policy. `key_bits` says which key lengths are taken.
    pub(crate) fn read_policy(
        id: TaskId,
        input: &mut Reader<'_>,
        key_bits: impl Fn(&TaskConfig) -> Result<KeyBits, dphe_paillier::Error>,
    ) -> Result<Self, Error> {
        if input.u8()? != 1 {
            return Err(Error::Version);
        }
        let unknown = |reason| Error::Task { reason };
        let profile = Profile::from_tag(input.u8()?).ok_or(unknown("unknown profile"))?;
        let noise = match input.u8()? {
            1 => NoiseMode::Secure,
            2 => NoiseMode::Fast,
            _ => return Err(unknown("unknown noise mode")),
        };
        if input.u8()? != 0 {
            return Err(Error::Profile { what: "receipts" });
        }
        let config = TaskConfig {
            profile,
            noise,
            key_bits: input.u32()?,
            dimension: input.u32()?,
            dense: input.u32()?,
            block: input.u32()?,
            capacity: input.u32()?,
            shards: input.u32()?,
            scale_bits: input.u8()?,
            clip_exponent: input.u8()? as i8,
            clip_rule: match input.u8()? {
                0 => ClipRule::Refuse,
                1 => ClipRule::Clip,
                _ => return Err(unknown("unknown clip rule")),
            },
            min_users: input.u32()?,
            min_percent: input.u8()?,
            max_users: input.u32()?,
            max_attempts: input.u32()?,
            max_model_bytes: input.u32()?,
        };
        let key_bits = key_bits(&config).map_err(Error::Key)?;
        Self::checked(id, config, key_bits)
    }
}
