//! Errors of a round, and what to do about them.

use thiserror::Error;

use crate::PayloadName;

/// An error of this crate. A round that fails changes nothing.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// Learning failed.
    #[error(transparent)]
    Learn(#[from] dphe_learn::Error),
    /// The protocol failed.
    #[error(transparent)]
    Protocol(#[from] dphe::Error),
    /// Learning failed for one user.
    #[error("user {}: {source}", user + 1)]
    OfUser {
        /// The user, counted from 0. The text counts from 1.
        user: usize,
        /// The error.
        source: dphe_learn::Error,
    },
    /// A sum of so few users would reveal too much.
    #[error(
        "{users} users take part, but at least {needed} must, because smaller sums reveal weights of single users"
    )]
    TooFewUsers {
        /// How many users take part.
        users: usize,
        /// How many must take part.
        needed: usize,
    },
    /// The sums have no room for so many users.
    #[error(
        "{users} users take part, but the task has room for only {most}; raise its maximum number of users"
    )]
    TooManyUsers {
        /// How many users take part.
        users: usize,
        /// How many may take part.
        most: usize,
    },
    /// A participant does not exist, or is named twice.
    #[error("user {} {reason}; name each of the {users} users at most once", user.saturating_add(1))]
    Participant {
        /// The participant, counted from 0. The text counts from 1.
        user: usize,
        /// What is wrong with it.
        reason: &'static str,
        /// How many users there are.
        users: usize,
    },
    /// A parameter is out of range.
    #[error("{name} = {value} is out of range; {remedy}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The values it may have.
        remedy: &'static str,
    },
    /// A payload does not fit the task.
    #[error("the payload `{payload}` does not fit the profile `{profile}`: {remedy}")]
    Unsuited {
        /// The payload.
        payload: PayloadName,
        /// The profile of the task.
        profile: dphe::Profile,
        /// What to change.
        remedy: &'static str,
    },
    /// Vectors have no such payload.
    #[error("the payload `{payload}` is for linear models; use rotate, all, d-topk or d-block")]
    VectorPayload {
        /// The payload.
        payload: PayloadName,
    },
    /// The task was made for another model.
    #[error(
        "{what}: the task has {task}, but the model needs {model}; create the task from this model with `propose`"
    )]
    Shape {
        /// What was counted.
        what: &'static str,
        /// How many the task has.
        task: usize,
        /// How many the model needs.
        model: usize,
    },
    /// The bytes of a model cannot be decoded.
    #[error("the model cannot be decoded: {reason}")]
    Model {
        /// What is wrong with them.
        reason: &'static str,
    },
}

impl Error {
    /// Returns what to do, for errors whose text does not say it.
    pub fn hint(&self) -> Option<&'static str> {
        let Self::Protocol(error) = self else { return None };
        Some(match error {
            dphe::Error::Capacity { .. } => {
                "Raise the task's capacity or shards, or use a payload of fixed size (`d-block`, `d-topk`, or \
                 `Overflow::Truncate`)."
            }
            dphe::Error::Value { .. } => {
                "Raise the task's clip exponent, set its clip rule to clip, or train with smaller steps."
            }
            dphe::Error::Support { .. } => {
                "Use `rotate`, which sends only a public share of the features, or raise the capacity to all of them."
            }
            dphe::Error::Dimension { .. } => {
                "Create the task with `propose` from the model that is being trained."
            }
            dphe::Error::SetSmall { .. } => {
                "Wait for more users, or lower the task's floor, but not below three."
            }
            dphe::Error::Committed | dphe::Error::Stale { .. } => {
                "Continue with the next round, or start a new task. Each round is opened only once."
            }
            dphe::Error::RoundFailed => "Start the next round. If it fails too, a party is misbehaving.",
            dphe::Error::Task { .. } => "Start from a proposed task and change one number at a time.",
            _ => return None,
        })
    }
}
