//! No encryption: what all the effort is to be compared with.

use dphe::{ClipRule, Round, TaskParams};
use dphe_learn::Weights;

use super::{Average, Averaged, Contribution, Form, Weighting, check_round, check_weighting};
use crate::{Cost, Error, Seconds, Stopwatch};

/// Adds in the clear, by the rules of the same task: the control of every experiment.
#[derive(Clone, Debug)]
pub struct PlainAverage {
    task: TaskParams,
    weighting: Weighting,
    users: usize,
    rounds_numbers: bool,
}

impl PlainAverage {
    /// Averages of this many users in floating point.
    ///
    /// # Errors
    /// If the task cannot hold the counts of the weighting.
    pub fn new(task: TaskParams, weighting: Weighting, users: usize) -> Result<Self, Error> {
        check_weighting(&task, weighting)?;
        Ok(Self { task, weighting, users, rounds_numbers: false })
    }

    /// The same with every number rounded to the task's fixed point before it is added, as encryption does: then
    /// both agree bit for bit.
    #[must_use]
    pub fn rounded(self) -> Self {
        Self { rounds_numbers: true, ..self }
    }

    /// A number as it is added. Written here once more, so that the control does not repeat what it controls.
    fn number(&self, index: usize, value: f64, clipped: &mut usize) -> Result<f64, Error> {
        if !self.rounds_numbers {
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
        global: &Weights,
        contributions: &[Contribution],
        stopwatch: &mut Stopwatch,
        seconds: &mut Seconds,
    ) -> Result<Averaged, Error> {
        let kind = check_round(&self.task, self.weighting, self.users, global, contributions)?;
        let form = Form::of(&self.task, self.weighting, global);
        let mut flat = vec![0.0; global.dimension()];
        let mut dense = vec![0.0; self.task.dense()];
        let mut cost = Cost { shards: 1, ..Cost::default() };
        let mut clipped = 0;
        stopwatch.time(&mut seconds.aggregate, || {
            for contribution in contributions {
                let numbers = form.numbers(contribution);
                for (&index, &value) in numbers.indices.iter().zip(&numbers.values) {
                    flat[index] += self.number(index, value, &mut clipped)?;
                }
                for (index, (sum, &value)) in dense.iter_mut().zip(&numbers.dense).enumerate() {
                    *sum += self.number(index, value, &mut clipped)?;
                }
                // as single-precision numbers, without the indices
                cost.bytes = cost.bytes.max(4 * (numbers.values.len() + numbers.dense.len()));
            }
            Ok::<(), Error>(())
        })?;
        let averaged = form.averaged(kind, contributions.len(), flat, dense)?;
        Ok(Averaged { clipped: self.rounds_numbers.then_some(clipped), cost, ..averaged })
    }
}
