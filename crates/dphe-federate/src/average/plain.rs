//! Sums without encryption, for comparison.

use dphe::{ClipRule, Round, TaskParams};

use super::{Average, Averaged, UserUpdate, ValueSum, Weighting, check_users};
use crate::{Cost, Error, Seconds, Stopwatch};

/// A sum without encryption, by the rules of the same task: the control of experiments.
#[derive(Clone, Debug)]
pub struct PlainAverage {
    task: TaskParams,
    weighting: Weighting,
    users: usize,
    rounds_values: bool,
}

impl PlainAverage {
    /// Creates sums of this many users in floating point.
    ///
    /// # Errors
    /// If the fixed point of the task cannot represent the counts of the weighting.
    pub fn new(task: TaskParams, weighting: Weighting, users: usize) -> Result<Self, Error> {
        weighting.check_task(&task)?;
        Ok(Self { task, weighting, users, rounds_values: false })
    }

    /// Rounds every value to the task's fixed point before it is added, as encryption does. Both then agree bit for
    /// bit.
    #[must_use]
    pub fn rounded(self) -> Self {
        Self { rounds_values: true, ..self }
    }

    /// Rounds a value if asked to. It repeats the rule of `dphe` on purpose, so that the control is independent.
    fn value(&self, index: usize, value: f64, clipped: &mut usize) -> Result<f64, Error> {
        if !self.rounds_values {
            return Ok(value);
        }
        let config = self.task.config();
        let (scale, clip) = (2f64.powi(config.scale_bits.into()), 2f64.powi(i32::from(config.clip_exponent)));
        if !value.is_finite() || (value.abs() > clip && config.clip_rule == ClipRule::Refuse) {
            return Err(Error::Protocol(dphe::Error::Value { index, reason: "outside the task's range" }));
        }
        *clipped += usize::from(value.abs() > clip);
        let most = clip - 1.0 / scale;
        Ok(((value * scale).round_ties_even() / scale).clamp(-most, most))
    }
}

impl Average for PlainAverage {
    fn task(&self) -> &TaskParams {
        &self.task
    }

    fn weighting(&self) -> Weighting {
        self.weighting
    }

    fn average(
        &mut self,
        _round: Round,
        updates: &[UserUpdate],
        stopwatch: &mut Stopwatch,
    ) -> Result<Averaged, Error> {
        check_users(&self.task, self.users, updates)?;
        let (dimension, dense_values) = (self.task.dimension(), self.task.dense());
        let (mut weights, mut dense) = (vec![0.0; dimension], vec![0.0; dense_values]);
        let (mut cost, mut seconds) = (Cost { shards: 1, ..Cost::default() }, Seconds::default());
        let mut clipped = 0;
        stopwatch.time(&mut seconds.aggregate, || {
            for user in updates {
                let (sent, sent_dense) = (user.update.weights(), user.update.dense());
                check_length("weights", dimension, sent.dimension())?;
                check_length("dense values", dense_values, sent_dense.len())?;
                for (index, value) in user.entries() {
                    weights[index] += self.value(index, value, &mut clipped)?;
                }
                for (index, (sum, &value)) in dense.iter_mut().zip(sent_dense).enumerate() {
                    *sum += self.value(index, value, &mut clipped)?;
                }
                // The size in single precision, without indices.
                cost.bytes = cost.bytes.max(4 * (sent.values().len() + sent_dense.len()));
            }
            Ok::<(), Error>(())
        })?;
        let sum = ValueSum { users: updates.len(), weights, dense };
        Ok(Averaged { sum, clipped: self.rounds_values.then_some(clipped), cost, seconds })
    }
}

fn check_length(what: &'static str, expected: usize, found: usize) -> Result<(), Error> {
    match expected == found {
        true => Ok(()),
        false => Err(Error::Protocol(dphe::Error::Dimension { what, expected, found })),
    }
}
