//! The errors of this crate. Each has a stable code (docs/protocol.md, section 10). Errors are specific as long as they
//! depend on public data only. Once a sum is being opened, there is only [`Error::RoundFailed`].

use thiserror::Error;

use crate::names::named_enum;
use crate::{Round, UserId};

/// An error of this crate. An input that is refused changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid task description. Its code is `policy`.
    #[error("the task is invalid: {reason}")]
    Task {
        /// What is wrong.
        reason: &'static str,
    },
    /// An encryption key that must not be used.
    #[error("the encryption key cannot be used: {0}")]
    Key(dphe_paillier::Error),

    /// Bytes that cannot be decoded, or a body that is not the one that its header names.
    #[error("the message is invalid: {reason}")]
    Encoding {
        /// What is wrong.
        reason: &'static str,
    },
    /// A protocol, version or kind of message that is not the expected one.
    #[error("the message has an unexpected protocol, version or kind")]
    Version,
    /// A length or count beyond what the task allows.
    #[error("{what} exceeds what the task allows")]
    Size {
        /// What is too large.
        what: &'static str,
    },
    /// A message of another task. Its code is `task`.
    #[error("the message belongs to another task")]
    OtherTask,
    /// A policy other than the roster's.
    #[error("the message names a different policy from that of the roster")]
    Policy,
    /// A roster that is not the agreed one, or keys of users who are not in the roster.
    #[error("the roster is not the one that the parties agreed on, or one of them lacks its latest change")]
    Roster,
    /// An update that was encrypted under a key other than the task's.
    #[error("the update was encrypted under another key")]
    KeyId {
        /// The user who sent it.
        user: UserId,
    },
    /// A feature that the profile does not offer.
    #[error("the profile of this task does not offer {what}")]
    Profile {
        /// The feature.
        what: &'static str,
    },
    /// An invalid signature, or a sender who may not send this message.
    #[error("the signature is invalid, or the sender may not send this message")]
    Signature,
    /// A user who is not in the roster.
    #[error("user {0} is not in the roster")]
    UnknownUser(UserId),
    /// A round that is over.
    #[error("round {round} is over; the current round is {current}")]
    Stale {
        /// The round of the message.
        round: Round,
        /// The current round.
        current: Round,
    },
    /// A round that has not started.
    #[error("round {round} has not started; the current round is {current}")]
    Future {
        /// The round of the message.
        round: Round,
        /// The current round.
        current: Round,
    },
    /// An event that the party does not accept in its current state.
    #[error("the event is out of order: {state}")]
    Order {
        /// What the party is doing, or has not done yet.
        state: &'static str,
    },
    /// A ticket that is not the round's.
    #[error("the ticket is not the one of this round")]
    Ticket,
    /// A model that does not have the announced digest.
    #[error("the model is not the one that was announced")]
    Model,

    /// A length that is not the task's.
    #[error("the number of {what} is {found} instead of {expected}")]
    Dimension {
        /// What was counted.
        what: &'static str,
        /// The task's number.
        expected: usize,
        /// The number found.
        found: usize,
    },
    /// A public support that is not the round's.
    #[error("the public support is not that of the round")]
    SupportDigest,
    /// A number of ciphertexts, positions or users that is not the expected one.
    #[error("the number of {what} is {found} instead of {expected}")]
    Count {
        /// What was counted.
        what: &'static str,
        /// The expected number.
        expected: usize,
        /// The number found.
        found: usize,
        /// The user who sent it.
        user: Option<UserId>,
    },
    /// A permuted index beyond the positions of the task.
    #[error("permuted index {index} of user {user} is beyond the positions of the task")]
    IndexRange {
        /// The index.
        index: u32,
        /// The user who sent it.
        user: UserId,
    },
    /// Permuted indices that are not ascending, or appear twice in an upload.
    #[error("the permuted indices of user {user} are not in ascending order, or one is repeated")]
    IndexOrder {
        /// The user who sent them.
        user: UserId,
    },
    /// A ciphertext that is not canonical.
    #[error("ciphertext {index} is out of range{}", of(*user))]
    CiphertextRange {
        /// Its index in the body.
        index: usize,
        /// The user who sent it. A sum has none.
        user: Option<UserId>,
    },
    /// A ciphertext that is not a unit.
    #[error("ciphertext {index} shares a factor with the modulus{}", of(*user))]
    CiphertextUnit {
        /// Its index in the body.
        index: usize,
        /// The user who sent it. A sum has none.
        user: Option<UserId>,
    },
    /// A ciphertext without noise.
    #[error("ciphertext {index} of user {user} has no noise, so anyone could read it")]
    CiphertextTrivial {
        /// Its index in the body.
        index: usize,
        /// The user who sent it.
        user: UserId,
    },
    /// Noise that was used before in this round.
    #[error(
        "the upload of user {user} repeats noise of this round, which would reveal differences of weights"
    )]
    NonceReuse {
        /// The user who sent it.
        user: UserId,
    },
    /// A message that contradicts a stored one.
    #[error("a different {what} is already stored; this one is ignored")]
    Conflict {
        /// What is stored.
        what: &'static str,
    },
    /// An upload after the freeze.
    #[error("round {round} is frozen and accepts no more uploads")]
    Late {
        /// The round.
        round: Round,
    },

    /// A weight that cannot be encoded.
    #[error("value {index} is {reason}")]
    Value {
        /// Its index.
        index: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// More occupied positions than fit.
    #[error(
        "{occupied} positions are occupied but only {capacity} fit; send fewer, or raise the capacity or the shards of the task"
    )]
    Capacity {
        /// The number of occupied positions.
        occupied: usize,
        /// The number of positions in an upload.
        capacity: usize,
    },
    /// A weight outside the round's public support.
    #[error("weight {index} is not in the public support of round {round}")]
    Support {
        /// Its index.
        index: usize,
        /// The round.
        round: Round,
    },

    /// Too few participants.
    #[error("{users} users took part, but at least {floor} must")]
    SetSmall {
        /// The number of participants.
        users: usize,
        /// The floor of the task.
        floor: usize,
    },
    /// Participants that are not ascending and distinct.
    #[error("the set of users is not in ascending order, or a user is repeated")]
    SetOrder,
    /// A participant who is not in the roster.
    #[error("the set of users contains user {0}, who is not in the roster")]
    SetUnknown(UserId),
    /// Participants that differ by too few users from those of a sum that was opened on the same model, or a third set.
    #[error(
        "another set of users was opened on this model, and the two sums together could reveal the update of one user"
    )]
    SetDifference,
    /// A further round after all sums that the policy allows were opened.
    #[error("the task allows {most} sums to be opened, and that many have been opened")]
    Rounds {
        /// The largest number of sums.
        most: u32,
    },
    /// A further round after too many openings failed.
    #[error("{most} openings of this task failed, so no further sum is opened")]
    Failures {
        /// The largest number of failures.
        most: u8,
    },
    /// A freeze too soon after its ticket.
    #[error("the round was frozen less than {least} ms after its ticket")]
    Early {
        /// The least time between a ticket and its freeze, in milliseconds.
        least: u32,
    },
    /// An ending that contradicts what became of the sum.
    #[error("the ending contradicts what the key generator did with the sum")]
    Ending,
    /// The body of an upload that cannot be decrypted.
    #[error("the upload of user {user} cannot be decrypted with the aggregator's key")]
    Body {
        /// The user who sent it.
        user: UserId,
    },
    /// A round that does not start from the model that the user computed.
    #[error("the round does not start from the model that follows from the earlier rounds")]
    Lineage,
    /// A key generator's history that is not the user's.
    #[error("the key generator's history of the task differs from this user's history")]
    History,
    /// A published sum that is not the sum of the listed users.
    #[error("the published sum fails the check, so it is not the sum of the listed users")]
    Check,
    /// A sum that is out of range.
    #[error("the sum is out of range, so an upload was invalid")]
    Range,
    /// A freeze attempt out of sequence, or too many of them.
    #[error("freeze attempt {attempt} is not the next one, or exceeds the {max} allowed")]
    Attempts {
        /// The number of the attempt.
        attempt: u32,
        /// The largest number allowed.
        max: u32,
    },
    /// A sum that is not the frozen one.
    #[error("the sum is not the one that was frozen")]
    Equation,
    /// A second request to open a sum of a round.
    #[error("another sum of this round is already being opened")]
    Committed,
    /// A sum that could not be opened. Details would reveal something about its content.
    #[error("the sum could not be opened")]
    RoundFailed,
    /// A published set that misstates the user's own part.
    #[error("the published list of participants is wrong about whether this user took part")]
    NotMine,
    /// A result that the key generator did not sign.
    #[error("the result is not what the key generator signed")]
    Proof,
    /// The key generator's log went back or forked.
    #[error("the key generator's log went back or forked, so it cannot be trusted")]
    Rollback,
    /// Stored data that is damaged or belongs to another party.
    #[error("stored data cannot be used: {reason}")]
    Storage {
        /// What is wrong.
        reason: &'static str,
    },
}

named_enum! {
    /// The stable code of an error (docs/protocol.md, section 10). Other machines and other versions of this crate rely
    /// on its name.
    pub enum ErrorCode {
        /// A freeze attempt is not the next one, or there were too many.
        Attempts = "attempts",
        /// The body of an upload cannot be decrypted.
        Body = "body",
        /// More positions are occupied than fit into an update.
        Capacity = "capacity",
        /// The published sum is not that of the listed users.
        Check = "check",
        /// A ciphertext is not canonical.
        CiphertextRange = "ct_range",
        /// A ciphertext has no noise.
        CiphertextTrivial = "ct_trivial",
        /// A ciphertext is not a unit modulo n².
        CiphertextUnit = "ct_unit",
        /// Another request of the round is already being opened.
        Committed = "committed",
        /// A different message is already stored in its place.
        Conflict = "conflict",
        /// A number of ciphertexts, positions or users is not the expected one.
        Count = "count",
        /// A length is not that of the task.
        Dimension = "dimension",
        /// The round was frozen too soon after its ticket.
        Early = "early",
        /// The ending contradicts what became of the sum.
        Ending = "ending",
        /// The bytes cannot be decoded.
        Encoding = "encoding",
        /// The sum is not the frozen one.
        Equation = "equation",
        /// Too many openings failed.
        Failures = "failures",
        /// The round has not started.
        Future = "future",
        /// The key generator's history is not the user's.
        History = "history",
        /// Permuted indices are not ascending and distinct.
        IndexOrder = "index_order",
        /// A permuted index is beyond the positions of the task.
        IndexRange = "index_range",
        /// A Paillier key must not be used.
        Key = "key",
        /// The update was encrypted under another key.
        KeyId = "key_id",
        /// The upload arrived after the freeze.
        Late = "late",
        /// The round does not start from the model that the user computed.
        Lineage = "lineage",
        /// The model does not have the announced digest.
        Model = "model",
        /// An upload repeats noise of this round.
        NonceReuse = "nonce_reuse",
        /// A published set misstates the user's own part.
        NotMine = "not_mine",
        /// The party does not accept the event in its current state.
        Order = "order",
        /// The message belongs to another task.
        Task = "task",
        /// The task is invalid, or the message names another policy.
        Policy = "policy",
        /// The profile of the task does not offer this.
        Profile = "profile",
        /// A result is not what the key generator signed.
        Proof = "proof",
        /// A sum is out of range.
        Range = "range",
        /// The key generator's log went back or forked.
        Rollback = "rollback",
        /// The message names another roster.
        Roster = "roster",
        /// Opening the sum failed.
        RoundFailed = "round_failed",
        /// All sums that the policy allows were opened.
        Rounds = "rounds",
        /// Another set of users was opened on the same model.
        SetDifference = "set_difference",
        /// The set of users is not ascending and distinct.
        SetOrder = "set_order",
        /// Fewer users than the floor took part.
        SetSmall = "set_small",
        /// The set contains a user who is not in the roster.
        SetUnknown = "set_unknown",
        /// A signature is invalid, or its owner may not send this message.
        Signature = "signature",
        /// A length or count is beyond what the task allows.
        Size = "size",
        /// The round is over.
        Stale = "stale",
        /// Stored data cannot be used.
        Storage = "storage",
        /// A weight is outside the public support of the round.
        Support = "support",
        /// The ticket that the message names is not the round's.
        Ticket = "ticket",
        /// The user is not in the roster.
        UnknownUser = "unknown_user",
        /// A weight cannot be encoded.
        Value = "value",
        /// Another protocol, version or kind of message.
        Version = "version",
    }
}

impl Error {
    /// Returns the stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Attempts { .. } => ErrorCode::Attempts,
            Self::Body { .. } => ErrorCode::Body,
            Self::Check => ErrorCode::Check,
            Self::Early { .. } => ErrorCode::Early,
            Self::Ending => ErrorCode::Ending,
            Self::Failures { .. } => ErrorCode::Failures,
            Self::History => ErrorCode::History,
            Self::Lineage => ErrorCode::Lineage,
            Self::Range => ErrorCode::Range,
            Self::Rounds { .. } => ErrorCode::Rounds,
            Self::Capacity { .. } => ErrorCode::Capacity,
            Self::CiphertextRange { .. } => ErrorCode::CiphertextRange,
            Self::CiphertextTrivial { .. } => ErrorCode::CiphertextTrivial,
            Self::CiphertextUnit { .. } => ErrorCode::CiphertextUnit,
            Self::Committed => ErrorCode::Committed,
            Self::Conflict { .. } => ErrorCode::Conflict,
            Self::Count { .. } => ErrorCode::Count,
            Self::Dimension { .. } | Self::SupportDigest => ErrorCode::Dimension,
            Self::Encoding { .. } => ErrorCode::Encoding,
            Self::Equation => ErrorCode::Equation,
            Self::Future { .. } => ErrorCode::Future,
            Self::IndexOrder { .. } => ErrorCode::IndexOrder,
            Self::IndexRange { .. } => ErrorCode::IndexRange,
            Self::Key(_) => ErrorCode::Key,
            Self::KeyId { .. } => ErrorCode::KeyId,
            Self::Late { .. } => ErrorCode::Late,
            Self::Model => ErrorCode::Model,
            Self::NonceReuse { .. } => ErrorCode::NonceReuse,
            Self::NotMine => ErrorCode::NotMine,
            Self::Order { .. } => ErrorCode::Order,
            Self::OtherTask => ErrorCode::Task,
            Self::Policy | Self::Task { .. } => ErrorCode::Policy,
            Self::Profile { .. } => ErrorCode::Profile,
            Self::Proof => ErrorCode::Proof,
            Self::Rollback => ErrorCode::Rollback,
            Self::Roster => ErrorCode::Roster,
            Self::RoundFailed => ErrorCode::RoundFailed,
            Self::SetDifference => ErrorCode::SetDifference,
            Self::SetOrder => ErrorCode::SetOrder,
            Self::SetSmall { .. } => ErrorCode::SetSmall,
            Self::SetUnknown(_) => ErrorCode::SetUnknown,
            Self::Signature => ErrorCode::Signature,
            Self::Size { .. } => ErrorCode::Size,
            Self::Stale { .. } => ErrorCode::Stale,
            Self::Storage { .. } => ErrorCode::Storage,
            Self::Support { .. } => ErrorCode::Support,
            Self::Ticket => ErrorCode::Ticket,
            Self::UnknownUser(_) => ErrorCode::UnknownUser,
            Self::Value { .. } => ErrorCode::Value,
            Self::Version => ErrorCode::Version,
        }
    }

    /// Returns the user who sent the offending bytes, if the error names one.
    pub fn culprit(&self) -> Option<UserId> {
        match *self {
            Self::CiphertextTrivial { user, .. }
            | Self::IndexOrder { user }
            | Self::IndexRange { user, .. }
            | Self::KeyId { user }
            | Self::Body { user }
            | Self::NonceReuse { user }
            | Self::UnknownUser(user) => Some(user),
            Self::CiphertextRange { user, .. }
            | Self::CiphertextUnit { user, .. }
            | Self::Count { user, .. } => user,
            Self::Task { .. }
            | Self::Key(_)
            | Self::Encoding { .. }
            | Self::Version
            | Self::Size { .. }
            | Self::OtherTask
            | Self::Policy
            | Self::Roster
            | Self::Profile { .. }
            | Self::Signature
            | Self::Stale { .. }
            | Self::Future { .. }
            | Self::Order { .. }
            | Self::Ticket
            | Self::Model
            | Self::Dimension { .. }
            | Self::SupportDigest
            | Self::Conflict { .. }
            | Self::Late { .. }
            | Self::Value { .. }
            | Self::Capacity { .. }
            | Self::Support { .. }
            | Self::SetSmall { .. }
            | Self::SetOrder
            | Self::SetUnknown(_)
            | Self::SetDifference
            | Self::Rounds { .. }
            | Self::Failures { .. }
            | Self::Early { .. }
            | Self::Ending
            | Self::Lineage
            | Self::History
            | Self::Check
            | Self::Range
            | Self::Attempts { .. }
            | Self::Equation
            | Self::Committed
            | Self::RoundFailed
            | Self::NotMine
            | Self::Proof
            | Self::Rollback
            | Self::Storage { .. } => None,
        }
    }

    /// Converts an error of reading ciphertexts, the first of which has index `first` in the body.
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
