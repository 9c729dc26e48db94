//! What can go wrong in a round, and what to try.

use thiserror::Error;

/// An error of this crate. A round that fails changes nothing.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The learner's.
    #[error(transparent)]
    Learn(#[from] dphe_learn::Error),
    /// The protocol's.
    #[error(transparent)]
    Protocol(#[from] dphe::Error),
    /// The learner's, with the user it happened to.
    #[error("user {user}: {source}")]
    OfUser {
        /// The user, counted from 0.
        user: usize,
        /// What happened.
        source: dphe_learn::Error,
    },
    /// A sum of so few would show too much.
    #[error("{users} users take part and at least {needed} must: a sum of fewer shows single users' weights")]
    TooFewUsers {
        /// How many take part.
        users: usize,
        /// How many must.
        needed: usize,
    },
    /// More users than the sums have room for.
    #[error("{users} users take part and the task has room for {most}; raise its max users")]
    TooManyUsers {
        /// How many take part.
        users: usize,
        /// How many may.
        most: usize,
    },
    /// Somebody who does not exist, or is named twice.
    #[error("user {user} {reason}; name each of the {users} users at most once, counted from 0")]
    Participant {
        /// Who was named.
        user: usize,
        /// What is wrong.
        reason: &'static str,
        /// How many users there are.
        users: usize,
    },
    /// A parameter outside its range.
    #[error("{name} = {value} is not possible; {remedy}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// What it was set to.
        value: f64,
        /// What it may be.
        remedy: &'static str,
    },
    /// A message and a task that do not go together.
    #[error("the message {message} does not go with the profile `{profile}`: {remedy}")]
    Unsuited {
        /// The message.
        message: &'static str,
        /// The task's profile.
        profile: dphe::Profile,
        /// What would.
        remedy: &'static str,
    },
    /// A task made for another model.
    #[error("{what}: the task has {task}, the model needs {model}; propose the task from this model")]
    Shape {
        /// What was counted.
        what: &'static str,
        /// How many the task has.
        task: usize,
        /// How many the model needs.
        model: usize,
    },
}

impl Error {
    /// What to try, for errors whose text does not say it.
    pub fn advice(&self) -> Option<&'static str> {
        let Self::Protocol(error) = self else { return None };
        Some(match error {
            dphe::Error::Capacity { .. } => {
                "raise the task's capacity or shards, or let the message be cut: a message with a \
                 capacity of its own (`d-block`, `d-topk`) or `Overflow::Truncate`"
            }
            dphe::Error::Value { .. } => {
                "raise the task's clip exponent, clip instead of refusing, or learn with smaller steps"
            }
            dphe::Error::Support { .. } => {
                "only `rotate` keeps to a public share of the features; for others let the capacity be all"
            }
            dphe::Error::Dimension { .. } => "propose the task from the model that is to be learnt",
            dphe::Error::SetSmall { .. } => "wait for more users, or lower the task's floor, not below three",
            dphe::Error::Committed | dphe::Error::Stale { .. } => {
                "a round is opened once: go on with the next, or begin a new task"
            }
            dphe::Error::RoundFailed => "begin the next round; if that fails too, somebody misbehaves",
            dphe::Error::Task { .. } => "start from a proposed task and change one number at a time",
            _ => return None,
        })
    }
}
