//! The sum of a round's updates, encrypted or not.

mod encrypted;
mod plain;
mod scaling;

pub use encrypted::DpheAverage;
pub use plain::PlainAverage;
pub use scaling::intercept_scale;
pub(crate) use scaling::{Scaling, has_density};

use dphe::{Round, TaskParams, Update, WeightSum};

use crate::{Cost, Error, Seconds, Stopwatch};

/// How much a user counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weighting {
    /// As much as any other user: the paper's average.
    #[default]
    Equal,
    /// By its number of samples. The number stays encrypted; only the total over all users is opened, in one more dense
    /// value.
    Samples {
        /// Users with more samples count as having this many, which bounds the influence of one user. A power of two,
        /// so that counts are exact in fixed point.
        most: u32,
    },
}

impl Weighting {
    /// Returns the fractional bits that counts need.
    pub(crate) fn bits(self) -> u8 {
        match self {
            Self::Equal => 0,
            Self::Samples { most } => most.trailing_zeros() as u8,
        }
    }

    /// Returns the number of dense values that it adds to an update.
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

    /// Fails unless the fixed point of the task represents counts exactly.
    pub(crate) fn check_task(self, task: &TaskParams) -> Result<(), Error> {
        self.check()?;
        let config = task.config();
        // The largest count is half the range.
        let bits = i32::from(config.scale_bits) + i32::from(config.clip_exponent) - 1;
        if self == Self::Equal || bits >= i32::from(self.bits()) {
            return Ok(());
        }
        Err(Error::Parameter {
            name: "scale bits",
            value: config.scale_bits.into(),
            remedy: "raise it, so that the fixed point represents the largest number of samples exactly",
        })
    }

    /// Returns the factor of a user's values: at most 1, so that they stay in the task's range.
    pub(crate) fn factor(self, samples: usize) -> f64 {
        match self {
            Self::Equal => 1.0,
            Self::Samples { most } => (samples as f64).min(most.into()) / f64::from(most),
        }
    }
}

/// The update of one user. Secret.
#[derive(Clone, Debug)]
pub struct UserUpdate {
    /// The user, counted from 0.
    pub user: usize,
    /// The update.
    pub update: Update,
}

impl UserUpdate {
    /// Returns the index and the value of every weight that the update carries.
    pub fn entries(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let weights = self.update.weights();
        weights.indices().iter().map(|&index| index as usize).zip(weights.values().iter().copied())
    }
}

/// A sum of updates in floating point. In a deployment it comes from a [`WeightSum`].
#[derive(Clone, Debug, PartialEq)]
pub struct ValueSum {
    /// How many users are in it.
    pub users: usize,
    /// The sums of all weights; zero outside a public support.
    pub weights: Vec<f64>,
    /// The sums of the dense values.
    pub dense: Vec<f64>,
}

impl ValueSum {
    /// Converts an opened sum. Sums below 2^53 are exact, because the divisor is a power of two.
    pub fn of(task: &TaskParams, sum: &WeightSum) -> Self {
        let scale = 2f64.powi(task.config().scale_bits.into());
        let decode = |&integer: &i64| integer as f64 / scale;
        let weights = match sum.support() {
            None => sum.weights().iter().map(decode).collect(),
            Some(support) => {
                let mut weights = vec![0.0; task.dimension()];
                support.indices().zip(sum.weights()).for_each(|(index, sum)| weights[index] = decode(sum));
                weights
            }
        };
        Self { users: sum.users(), weights, dense: sum.dense().iter().map(decode).collect() }
    }

    /// Returns the fraction of zeros among the weights.
    pub fn sparsity(&self) -> f64 {
        let zeros = self.weights.iter().filter(|&&weight| weight == 0.0).count();
        zeros as f64 / self.weights.len().max(1) as f64
    }
}

/// The result of summing a round's updates.
#[derive(Clone, Debug)]
pub struct Averaged {
    /// The sum.
    pub sum: ValueSum,
    /// How many values of all users were outside the task's range and were clipped, or `None` if values are not
    /// rounded. A simulation knows the total. In a deployment, each user knows only its own number.
    pub clipped: Option<usize>,
    /// What it cost.
    pub cost: Cost,
    /// How long the steps took.
    pub seconds: Seconds,
}

/// A way to sum the updates of a round.
pub trait Average {
    /// Returns the task.
    fn task(&self) -> &TaskParams;

    /// Returns how much users count.
    fn weighting(&self) -> Weighting;

    /// Sums the updates of a round. Call it with increasing rounds.
    ///
    /// # Errors
    /// If an update does not fit the task, or there are fewer users than the task demands.
    fn average(
        &mut self,
        round: Round,
        updates: &[UserUpdate],
        stopwatch: &mut Stopwatch,
    ) -> Result<Averaged, Error>;
}

impl<A: Average + ?Sized> Average for Box<A> {
    fn task(&self) -> &TaskParams {
        (**self).task()
    }

    fn weighting(&self) -> Weighting {
        (**self).weighting()
    }

    fn average(
        &mut self,
        round: Round,
        updates: &[UserUpdate],
        stopwatch: &mut Stopwatch,
    ) -> Result<Averaged, Error> {
        (**self).average(round, updates, stopwatch)
    }
}

/// Fails if the task opens no sums of so few of the enrolled users.
pub(crate) fn check_floor(task: &TaskParams, users: usize, enrolled: usize) -> Result<(), Error> {
    let needed = task.floor(enrolled);
    if users < needed { Err(Error::TooFewUsers { users, needed }) } else { Ok(()) }
}

/// Fails unless these updates may be summed.
fn check_users(task: &TaskParams, enrolled: usize, updates: &[UserUpdate]) -> Result<(), Error> {
    let (users, most) = (updates.len(), task.max_users());
    check_floor(task, users, enrolled)?;
    if users > most {
        return Err(Error::TooManyUsers { users, most });
    }
    let mut seen = vec![false; enrolled];
    for &UserUpdate { user, .. } in updates {
        let users = enrolled;
        match seen.get_mut(user) {
            None => return Err(Error::Participant { user, reason: "does not exist", users }),
            Some(true) => return Err(Error::Participant { user, reason: "is named twice", users }),
            Some(seen) => *seen = true,
        }
    }
    Ok(())
}
