//! One round's average: updates in, their sum out, encrypted or not.

mod codec;
mod encrypted;
mod numbers;
mod plain;

pub use codec::{Codec, trainer_of_round};
pub use encrypted::DpheAverage;
pub use numbers::intercept_scale;
pub(crate) use numbers::tells_density;
pub use plain::PlainAverage;

use dphe::{Round, TaskParams};
use dphe_learn::Weights;
use dphe_learn::update::{LocalUpdate, Message, UpdateKind, UpdateSum};
use numbers::Form;

use crate::task::{check_pair, name};
use crate::{Cost, Error, Seconds, Stopwatch};

/// How much a user counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weighting {
    /// As much as any other: the paper's average.
    #[default]
    Equal,
    /// By its number of samples, which stays encrypted: only the sum of all is opened, in one more dense value.
    Samples {
        /// A user with more counts as this many, which bounds what one user can do. A power of two, so that counts
        /// are exact in fixed point.
        most: u32,
    },
}

impl Weighting {
    /// Fractional bits that counts take.
    pub(crate) fn bits(self) -> u8 {
        match self {
            Self::Equal => 0,
            Self::Samples { most } => most.trailing_zeros() as u8,
        }
    }

    /// Dense values that it adds to a message.
    pub(crate) fn values(self) -> usize {
        usize::from(self != Self::Equal)
    }

    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Self::Samples { most } if !(most.is_power_of_two() && most <= 1 << 24) => Err(Error::Parameter {
                name: "most samples",
                value: most.into(),
                remedy: "use a power of two up to 2^24, such as 4096",
            }),
            _ => Ok(()),
        }
    }

    /// What a user's numbers are multiplied by: at most 1, so that they stay in the task's range.
    fn factor(self, samples: usize) -> f64 {
        match self {
            Self::Equal => 1.0,
            Self::Samples { most } => (samples as f64).min(most.into()) / f64::from(most),
        }
    }
}

/// What one user brings to a round. Secret, as the update in it.
#[derive(Clone)]
pub struct Contribution {
    /// The user, counted from 0.
    pub user: usize,
    /// What it wants summed.
    pub update: LocalUpdate,
    /// How many samples it learnt from; used only by [`Weighting::Samples`].
    pub samples: usize,
}

impl core::fmt::Debug for Contribution {
    /// How many samples a user has is the user's secret too.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Contribution").field("user", &self.user).finish_non_exhaustive()
    }
}

/// What comes out of a round.
#[derive(Clone, Debug)]
pub struct Averaged {
    /// The sum, with how much it is the sum of.
    pub sum: UpdateSum,
    /// The fraction of zeros in it.
    pub sparsity: f64,
    /// The mean share of weights that L1 left to users, if the task has a value for it: one number, summed encrypted
    /// like the others.
    pub density: Option<f64>,
    /// How many of all users' numbers were outside the task's range and were cut to it. Every user knows its own;
    /// the sum of them is known to a simulation only. None where numbers are summed as they are.
    pub clipped: Option<usize>,
    /// What it cost.
    pub cost: Cost,
}

/// A way to average.
pub trait Average {
    /// The task: what may be summed, and in which form.
    fn task(&self) -> &TaskParams;

    /// How much users count.
    fn weighting(&self) -> Weighting;

    /// Averages the updates of a round. Rounds ascend. `seconds` takes the time of the steps, by the `stopwatch`.
    ///
    /// # Errors
    /// If the updates do not fit the model or the task, or are of fewer users than the task demands.
    fn average(
        &mut self,
        round: Round,
        global: &Weights,
        contributions: &[Contribution],
        stopwatch: &mut Stopwatch,
        seconds: &mut Seconds,
    ) -> Result<Averaged, Error>;

    /// The features that everybody trains in a round; all, where the task has private supports.
    fn features(&self, round: Round, global: &Weights) -> Vec<usize> {
        codec::features(self.task(), round, global)
    }

    /// Fails unless the task was made for this model and this message.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::Unsuited`].
    fn check(&self, global: &Weights, message: Message) -> Result<(), Error> {
        check_message(self.task(), self.weighting(), global, message)
    }
}

/// Fails unless the task was made for this model and this message.
fn check_message(
    task: &TaskParams,
    weighting: Weighting,
    global: &Weights,
    message: Message,
) -> Result<(), Error> {
    check_model(task, weighting, global, message.is_sparse_by_l1())?;
    check_pair(task.profile(), message)?;
    let public = !task.has_private_support();
    if message == Message::Rotating && task.block() != global.classes() {
        return Err(Error::Shape {
            what: "weights of a position",
            task: task.block(),
            model: global.classes(),
        });
    }
    if public && message != Message::Rotating && task.capacity() < task.positions() as usize {
        return Err(Error::Unsuited {
            message: name(message),
            profile: task.profile(),
            remedy: "this task sends a share of the features: let its capacity be all, or take `rotate`",
        });
    }
    Ok(())
}

/// `may_tell_density`: messages may carry one more dense value.
fn check_model(
    task: &TaskParams,
    weighting: Weighting,
    global: &Weights,
    may_tell_density: bool,
) -> Result<(), Error> {
    let dense = global.classes() + weighting.values();
    let dense = if may_tell_density && task.dense() == dense + 1 { dense + 1 } else { dense };
    for (what, task, model) in
        [("weights", task.dimension(), global.dimension()), ("dense values", task.dense(), dense)]
    {
        if task != model {
            return Err(Error::Shape { what, task, model });
        }
    }
    Ok(())
}

/// Fails unless counts come out of the fixed point as they went in.
fn check_weighting(task: &TaskParams, weighting: Weighting) -> Result<(), Error> {
    weighting.check()?;
    let config = task.config();
    // a count of the most is half the range
    let bits = i32::from(config.scale_bits) + i32::from(config.clip_exponent) - 1;
    if weighting == Weighting::Equal || bits >= i32::from(weighting.bits()) {
        return Ok(());
    }
    Err(Error::Parameter {
        name: "scale bits",
        value: config.scale_bits.into(),
        remedy: "counts need one more bit below the range than the most samples have",
    })
}

/// Fails unless these may be summed. Returns their kind.
fn check_round(
    task: &TaskParams,
    weighting: Weighting,
    enrolled: usize,
    global: &Weights,
    contributions: &[Contribution],
) -> Result<UpdateKind, Error> {
    check_model(task, weighting, global, true)?;
    let (users, needed, most) = (contributions.len(), task.floor(enrolled), task.max_users());
    let Some(first) = contributions.first().filter(|_| users >= needed) else {
        return Err(Error::TooFewUsers { users, needed });
    };
    if users > most {
        return Err(Error::TooManyUsers { users, most });
    }
    let mut seen = vec![false; enrolled];
    for Contribution { user, update, .. } in contributions {
        let (user, users) = (*user, enrolled);
        match seen.get_mut(user) {
            None => return Err(Error::Participant { user, reason: "does not exist", users }),
            Some(true) => return Err(Error::Participant { user, reason: "is named twice", users }),
            Some(seen) => *seen = true,
        }
        if update.kind() != first.update.kind() {
            let (needed, found) = ("updates of one kind", "both kinds");
            return Err(Error::Learn(dphe_learn::Error::Unsuited { what: "a sum", needed, found }));
        }
        check_update(global, update).map_err(|source| Error::OfUser { user, source })?;
    }
    Ok(first.update.kind())
}

/// Fails unless an update is of this model.
fn check_update(global: &Weights, update: &LocalUpdate) -> Result<(), dphe_learn::Error> {
    if update.intercepts().len() != global.classes() {
        let (expected, found) = (global.classes(), update.intercepts().len());
        return Err(dphe_learn::Error::Shape { what: "classes", expected, found });
    }
    match update.entries().find(|&(index, _)| index >= global.dimension()) {
        Some((index, _)) => {
            Err(dphe_learn::Error::Index { what: "weight", index, count: global.dimension() })
        }
        None => Ok(()),
    }
}
