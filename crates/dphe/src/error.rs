//! What is refused, and why. Every error has a stable code (docs/protocol.md, section 10); before a request is
//! committed it may be specific, because it depends on public data only. After that there is one code.

use thiserror::Error;

use crate::{Round, UserId};

/// An error of this crate. A refused input changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A task description that cannot be.
    #[error("this task cannot be: {reason}")]
    Task {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An encryption key that must not be used.
    #[error("the encryption key cannot be used: {0}")]
    Key(dphe_paillier::Error),

    /// Bytes that are not a message, or a body that is not the one its header names.
    #[error("not a valid message: {reason}")]
    Encoding {
        /// What is wrong.
        reason: &'static str,
    },
    /// Another protocol, version or type of message.
    #[error("another version or kind of message than expected here")]
    Version,
    /// A length or count beyond what the task allows.
    #[error("{what} is beyond what the task allows")]
    Size {
        /// What is too long or too many.
        what: &'static str,
    },
    /// A message of another task.
    #[error("the message belongs to another task")]
    OtherTask,
    /// Another policy than the pinned one.
    #[error("the message names another policy than the one agreed on")]
    Policy,
    /// Another roster than the pinned one.
    #[error("the message names another roster than the one agreed on")]
    Roster,
    /// Another encryption key.
    #[error("the update was encrypted under another key")]
    KeyId {
        /// Who sent it.
        user: UserId,
    },
    /// Something this profile does not offer.
    #[error("not available in this task's profile: {what}")]
    Profile {
        /// What was asked for.
        what: &'static str,
    },
    /// A signature that does not hold, or of somebody who may not send this.
    #[error("the signature does not hold, or its owner may not send this")]
    Signature,
    /// Somebody who is not in the roster.
    #[error("user {0} is not in the roster")]
    UnknownUser(UserId),
    /// A round that is over.
    #[error("round {round} is over; the current one is {current}")]
    Stale {
        /// The round of the message.
        round: Round,
        /// The round at hand.
        current: Round,
    },
    /// A round that has not begun.
    #[error("round {round} has not begun; the current one is {current}")]
    Future {
        /// The round of the message.
        round: Round,
        /// The round at hand.
        current: Round,
    },
    /// A message that this state does not take.
    #[error("not now: {expected}")]
    Order {
        /// What would have to come first.
        expected: &'static str,
    },
    /// Not the ticket of this round.
    #[error("this is not the ticket of the round")]
    Ticket,
    /// Model bytes that do not have the digest they should have.
    #[error("the model is not the one that was announced")]
    Model,

    /// Lengths that are not the task's.
    #[error("{what}: expected {expected}, found {found}")]
    Dimension {
        /// Of what.
        what: &'static str,
        /// The task's number.
        expected: usize,
        /// The number found.
        found: usize,
    },
    /// Another support than the round's.
    #[error("the public support is not that of the round")]
    SupportDigest,
    /// A number of ciphertexts or of users that is not the task's.
    #[error("{what}: expected {expected}, found {found}")]
    Count {
        /// Of what.
        what: &'static str,
        /// The right number.
        expected: usize,
        /// The number found.
        found: usize,
        /// Who sent it.
        user: Option<UserId>,
    },
    /// A slot beyond the positions of the task.
    #[error("slot {slot} of user {user} is beyond the positions of the task")]
    IndexRange {
        /// The slot.
        slot: u32,
        /// Who sent it.
        user: UserId,
    },
    /// Slots that are not ascending, or twice in an upload.
    #[error("the slots of user {user} are not ascending and distinct")]
    IndexOrder {
        /// Who sent them.
        user: UserId,
    },
    /// A ciphertext that is not canonical.
    #[error("ciphertext {index} is out of range{}", of(*user))]
    CiphertextRange {
        /// Which one, in the order of the body.
        index: usize,
        /// Who sent it; nobody, in a sum.
        user: Option<UserId>,
    },
    /// A ciphertext that is not a unit.
    #[error("ciphertext {index} shares a factor with the modulus{}", of(*user))]
    CiphertextUnit {
        /// Which one, in the order of the body.
        index: usize,
        /// Who sent it; nobody, in a sum.
        user: Option<UserId>,
    },
    /// A ciphertext without noise.
    #[error("ciphertext {index} of user {user} has no noise: anybody could read it")]
    CiphertextTrivial {
        /// Which one, in the order of the body.
        index: usize,
        /// Who sent it.
        user: UserId,
    },
    /// Noise that was used before in this round.
    #[error("an upload of user {user} repeats noise of this round; its differences could be read")]
    NonceReuse {
        /// Who sent it.
        user: UserId,
    },
    /// Another message in the place of one that is stored.
    #[error("there is already another {what} in its place; the first one stays")]
    Conflict {
        /// What is there.
        what: &'static str,
    },
    /// An upload after the freeze.
    #[error("the set of round {round} is frozen; wait for the next round")]
    Late {
        /// The round.
        round: Round,
    },

    /// A weight that cannot be encoded.
    #[error("value {index} is {reason}")]
    Value {
        /// Which one.
        index: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// More occupied positions than fit.
    #[error(
        "{occupied} positions are occupied and {capacity} fit: send fewer, or raise the capacity or the shards of the task"
    )]
    Capacity {
        /// Positions with a weight that is not zero.
        occupied: usize,
        /// Positions of an upload.
        capacity: usize,
    },
    /// A weight outside the round's public support.
    #[error("weight {index} is not in the public support of round {round}")]
    Support {
        /// Which one.
        index: usize,
        /// The round.
        round: Round,
    },

    /// Too few users.
    #[error("{users} users took part and at least {floor} must")]
    SetSmall {
        /// Distinct users.
        users: usize,
        /// The floor of the task.
        floor: usize,
    },
    /// A set that is not ascending.
    #[error("the set of users is not ascending and distinct")]
    SetOrder,
    /// A set with somebody who is not in the roster.
    #[error("the set contains user {0}, who is not in the roster")]
    SetUnknown(UserId),
    /// A set whose difference to an opened one is a single user.
    #[error(
        "the set differs by one user from one already opened on this model; the difference would show that user's update"
    )]
    SetDifference,
    /// Freezes used up or skipped.
    #[error("freeze attempt {attempt} is not the next one, or more than the {max} allowed")]
    Attempts {
        /// The attempt.
        attempt: u32,
        /// The task's maximum.
        max: u32,
    },
    /// A sum that is not the frozen one.
    #[error("the sum is not the one that was frozen")]
    Equation,
    /// Another request after one was committed.
    #[error("a request of this round is committed; no other is opened")]
    Committed,
    /// Decryption or a check of its result failed. Nothing more is said.
    #[error("the round failed")]
    RoundFailed,
    /// A published set that misstates one's own part.
    #[error("the published set misstates this user's part in the round")]
    NotMine,
    /// A result that is not the key generator's.
    #[error("the result is not what the key generator signed")]
    Proof,
    /// The key generator's log went back or forked.
    #[error("the key generator's log went back or forked; do not go on with it")]
    Rollback,
    /// A log that is damaged or not this party's.
    #[error("the stored log cannot be used: {reason}")]
    Storage {
        /// What is wrong.
        reason: &'static str,
    },
}

impl Error {
    /// The stable code, for other machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Attempts { .. } => "attempts",
            Self::Capacity { .. } => "capacity",
            Self::CiphertextRange { .. } => "ct_range",
            Self::CiphertextTrivial { .. } => "ct_trivial",
            Self::CiphertextUnit { .. } => "ct_unit",
            Self::Committed => "committed",
            Self::Conflict { .. } => "conflict",
            Self::Count { .. } => "count",
            Self::Dimension { .. } | Self::SupportDigest => "dimension",
            Self::Encoding { .. } => "encoding",
            Self::Equation => "equation",
            Self::Future { .. } => "future",
            Self::IndexOrder { .. } => "index_order",
            Self::IndexRange { .. } => "index_range",
            Self::Key(_) => "key",
            Self::KeyId { .. } => "key_id",
            Self::Late { .. } => "late",
            Self::Model => "model",
            Self::NonceReuse { .. } => "nonce_reuse",
            Self::NotMine => "not_mine",
            Self::Order { .. } => "order",
            Self::OtherTask => "task",
            Self::Policy | Self::Task { .. } => "policy",
            Self::Profile { .. } => "profile",
            Self::Proof => "proof",
            Self::Rollback => "rollback",
            Self::Roster => "roster",
            Self::RoundFailed => "round_failed",
            Self::SetDifference => "set_difference",
            Self::SetOrder => "set_order",
            Self::SetSmall { .. } => "set_small",
            Self::SetUnknown(_) => "set_unknown",
            Self::Signature => "signature",
            Self::Size { .. } => "size",
            Self::Stale { .. } => "stale",
            Self::Storage { .. } => "storage",
            Self::Support { .. } => "support",
            Self::Ticket => "ticket",
            Self::UnknownUser(_) => "unknown_user",
            Self::Value { .. } => "value",
            Self::Version => "version",
        }
    }

    /// The user to blame, where the error says who sent the offending bytes.
    pub fn culprit(&self) -> Option<UserId> {
        match *self {
            Self::CiphertextTrivial { user, .. }
            | Self::IndexOrder { user }
            | Self::IndexRange { user, .. }
            | Self::KeyId { user }
            | Self::NonceReuse { user }
            | Self::UnknownUser(user) => Some(user),
            Self::CiphertextRange { user, .. }
            | Self::CiphertextUnit { user, .. }
            | Self::Count { user, .. } => user,
            _ => None,
        }
    }

    /// What reading ciphertexts can fail with.
    pub(crate) fn of_ciphertexts(error: dphe_paillier::Error, first: usize, user: Option<UserId>) -> Self {
        match error {
            dphe_paillier::Error::CiphertextRange { index } => {
                Self::CiphertextRange { index: first + index, user }
            }
            dphe_paillier::Error::CiphertextUnit { index } => {
                Self::CiphertextUnit { index: first + index, user }
            }
            dphe_paillier::Error::CiphertextLength { .. } => Self::Size { what: "the body" },
            other => Self::Key(other),
        }
    }
}

fn of(user: Option<UserId>) -> String {
    user.map(|user| format!(" (sent by user {user})")).unwrap_or_default()
}
