//! Section 3: the policy and the roster of a task.

use ed25519_dalek::SigningKey;
use sha2::{Digest as _, Sha256};

use super::derive::{Digest, Task, h};
use super::hpke::KeyPair;
use super::message::sign;
use crate::algorithm1::Key;

/// The profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Private support with fresh permutations in each round.
    Sparse = 1,
    /// Public support with packing.
    Full = 2,
    /// Algorithm 1, whose permutations stay the same.
    Paper = 3,
}

impl Profile {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sparse => "sparse",
            Self::Full => "full",
            Self::Paper => "paper",
        }
    }
}

/// How a sum is bound to its participants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipts {
    /// Not at all.
    None = 0,
    /// By a check that G makes, in `sparse`.
    Checked = 1,
    /// By masks and by a check that users make, in `full`.
    Masked = 2,
}

impl Receipts {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Checked => "checked",
            Self::Masked => "masked",
        }
    }
}

/// The policy of a task. The noise is always `secure` here, because the mode only decides how nonces are drawn and the
/// vectors list their nonces.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The profile.
    pub profile: Profile,
    /// The receipts.
    pub receipts: Receipts,
    /// The number of bits of n.
    pub key_bits: u32,
    /// D.
    pub dimension: u32,
    /// The number of dense values.
    pub dense: u32,
    /// B.
    pub block: u32,
    /// M.
    pub capacity: u32,
    /// F.
    pub shards: u32,
    /// f.
    pub scale_bits: u8,
    /// c.
    pub clip_exponent: i8,
    /// Whether weights outside the range are clipped instead of refused.
    pub clip: bool,
    /// The minimum number of users, at least 3.
    pub min_users: u32,
    /// The minimum fraction of the roster, in per cent.
    pub min_percent: u8,
    /// The maximum number of users in a sum.
    pub max_users: u32,
    /// The maximum number of freezes per round.
    pub max_attempts: u32,
    /// The maximum size of a model in bytes.
    pub max_model_bytes: u32,
    /// The maximum number of sums that G opens.
    pub rounds: u32,
    /// The least time in ms between a ticket and its freeze.
    pub collect_min: u32,
    /// The factor above which A rejects a sum, or 0.
    pub outsize: u8,
    /// The number of failed openings after which G refuses further rounds.
    pub max_failures: u8,
}

impl Policy {
    /// Encodes the policy in 85 bytes. Fields that are reserved have their only valid value.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2, self.profile as u8, 1, self.receipts as u8];
        let numbers = [self.key_bits, self.dimension, self.dense, self.block, self.capacity, self.shards];
        bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        bytes.extend([self.scale_bits, self.clip_exponent as u8, u8::from(self.clip)]);
        bytes.extend(self.min_users.to_be_bytes());
        bytes.push(self.min_percent);
        let numbers =
            [self.max_users, self.max_attempts, self.max_model_bytes, self.rounds, self.collect_min];
        bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        let (groups, witnesses) = (1, 0);
        bytes.extend([self.outsize, groups, self.max_failures, self.output(), witnesses]);
        // differential privacy
        bytes.extend([0; 1 + 8 + 8 + 4 + 1 + 2]);
        assert_eq!(bytes.len(), 85);
        bytes
    }

    /// Returns `output`: 1 if G does not learn the sum.
    pub fn output(&self) -> u8 {
        u8::from(self.receipts == Receipts::Masked)
    }

    /// Computes `policy_hash`.
    pub fn hash(&self) -> Digest {
        h("dphe/v2/policy", &[&self.bytes()])
    }

    /// Returns P.
    pub fn positions(&self) -> u32 {
        self.dimension.div_ceil(self.block)
    }

    /// Returns the number of bits of one value, including the sign.
    pub fn value_bits(&self) -> u32 {
        (i32::from(self.scale_bits) + i32::from(self.clip_exponent) + 1) as u32
    }

    /// Returns the largest magnitude of one value.
    pub fn bound(&self) -> i64 {
        (1 << (self.value_bits() - 1)) - 1
    }

    /// Returns beta.
    pub fn slot_bits(&self) -> u32 {
        // ceil(log2(x)) is the number of bits of x - 1
        self.value_bits() + (32 - (self.max_users - 1).leading_zeros())
    }

    /// Returns the number of slots per plaintext.
    pub fn slots(&self) -> usize {
        ((self.key_bits - 2) / self.slot_bits()) as usize
    }

    /// Returns the number of bytes per ciphertext.
    pub fn ciphertext_bytes(&self) -> usize {
        2 * (self.key_bits as usize / 8)
    }

    /// Returns the smallest number of users whose sum is opened.
    pub fn floor(&self, roster_users: usize) -> usize {
        (self.min_users as usize).max((self.min_percent as usize * roster_users).div_ceil(100))
    }

    /// Returns true if the specification allows this policy. Short keys for tests are allowed too.
    pub fn is_valid(&self) -> bool {
        let exponent = i32::from(self.scale_bits) + i32::from(self.clip_exponent);
        // the shards of `paper` are independent
        let shards = if self.profile == Profile::Paper { 1 } else { self.shards };
        self.dimension >= 1
            && (1..=self.dimension).contains(&self.block)
            && self.capacity >= 1
            && self.shards >= 1
            && u64::from(shards) * u64::from(self.capacity) <= u64::from(self.positions())
            && (1..=63).contains(&exponent)
            && self.scale_bits <= 48
            && (3..=self.max_users).contains(&self.min_users)
            && self.max_users <= 65_536
            && self.slot_bits() <= 64
            && self.min_percent <= 100
            && (1..=16).contains(&self.max_attempts)
            && self.rounds >= 1
            && self.max_failures >= 1
            && self.dimension <= 1 << 30
            && self.dense <= 1 << 24
            && match self.receipts {
                Receipts::None => true,
                Receipts::Checked => self.profile == Profile::Sparse,
                Receipts::Masked => self.profile == Profile::Full,
            }
            && match self.profile {
                Profile::Sparse => self.block as usize <= self.slots(),
                Profile::Full => self.shards == 1,
                Profile::Paper => self.block == 1 && self.slots() >= 1,
            }
    }
}

/// Computes the hash of a task file.
pub fn task_file_hash(file: &[u8]) -> Digest {
    h("dphe/v2/task-file", &[file])
}

/// Computes the key id of a Paillier key with noise `secure` (tag 1): SHA-256 of a label, the tag and n.
pub fn key_id(key: &Key) -> Digest {
    let mut hash = Sha256::new();
    hash.update(b"dphe/paillier/key-id/v1");
    hash.update([1]);
    hash.update(key.n.to_bytes_be());
    hash.finalize().into()
}

/// The parties of a task, with their secret identity keys.
#[derive(Clone)]
pub struct Roster {
    /// The task.
    pub task: Task,
    /// The epoch.
    pub epoch: u32,
    /// The policy.
    pub policy: Policy,
    /// The key id of the encryption key.
    pub key_id: Digest,
    /// The digest of the initial model.
    pub initial_model: Digest,
    /// The hash of the task file, or zeros.
    pub task_file: Digest,
    /// The hash of the roster that this one replaces, or zeros.
    pub previous: Digest,
    /// The first round in which it is in force.
    pub first_round: u64,
    /// A.
    pub aggregator: SigningKey,
    /// G.
    pub key_generator: SigningKey,
    /// The users, ascending.
    pub users: Vec<(u32, SigningKey)>,
}

impl Roster {
    fn unsigned(&self) -> Vec<u8> {
        let mut bytes = vec![2];
        bytes.extend(self.task);
        bytes.extend(self.epoch.to_be_bytes());
        bytes.extend(self.policy.bytes());
        bytes.extend(self.key_id);
        bytes.extend(self.initial_model);
        bytes.extend(self.task_file);
        bytes.extend(self.previous);
        bytes.extend(self.first_round.to_be_bytes());
        bytes.extend(self.aggregator.verifying_key().to_bytes());
        bytes.extend(self.agreement().public);
        bytes.extend(self.key_generator.verifying_key().to_bytes());
        // no witnesses
        bytes.push(0);
        bytes.extend((self.users.len() as u32).to_be_bytes());
        for (user, key) in &self.users {
            bytes.extend(user.to_be_bytes());
            bytes.extend(key.verifying_key().to_bytes());
            // no agreement key
            bytes.extend([0; 32]);
        }
        bytes
    }

    /// Returns the agreement key of A.
    pub fn agreement(&self) -> KeyPair {
        KeyPair::agreement(&self.aggregator)
    }

    /// Computes `roster_hash`.
    pub fn hash(&self) -> Digest {
        h("dphe/v2/roster", &[&self.unsigned()])
    }

    /// Encodes the roster, signed by G.
    pub fn bytes(&self) -> Vec<u8> {
        self.edited(|_| ())
    }

    /// Changes the roster and lets G sign the result.
    pub fn edited(&self, edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = self.unsigned();
        edit(&mut bytes);
        let signature = sign(&self.key_generator, &h("dphe/v2/roster", &[&bytes]));
        bytes.extend(signature);
        bytes
    }
}
