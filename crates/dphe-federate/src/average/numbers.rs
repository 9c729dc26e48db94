//! A user's numbers as they are summed, and the sums as the learner's.

use dphe::TaskParams;
use dphe_learn::Weights;
use dphe_learn::update::{UpdateKind, UpdateSum};

use super::{Averaged, Contribution, Weighting};
use crate::{Cost, Error};

/// What intercepts are divided by before they are summed: a power of two, so that nothing but the grid changes.
///
/// Intercepts are larger than weights and change by more; at the weights' scale they would dictate the width of every
/// slot. The range for their changes is four times the largest of the public intercepts, or four. It follows from
/// the task and the weights that a round starts from, which everybody has, so it need not be sent or kept.
pub fn intercept_scale(task: &TaskParams, global: &Weights) -> f64 {
    let largest = global.intercepts().iter().fold(1.0f64, |most, b| most.max(b.abs()));
    let exponent = (2.0 + largest.log2()).ceil() as i32 - i32::from(task.config().clip_exponent);
    // a model that needs more has long been given up
    2f64.powi(exponent.clamp(0, 1000))
}

/// A user's numbers, scaled by how much the user counts.
pub(super) struct Numbers {
    pub(super) indices: Vec<usize>,
    pub(super) values: Vec<f64>,
    /// Intercepts, then what the user counts, if not 1, then the share of weights that L1 left, if it is wanted.
    pub(super) dense: Vec<f64>,
}

/// How numbers travel in one round.
pub(super) struct Form {
    weighting: Weighting,
    intercepts: f64,
    /// Puts a number up to 1 in the middle of the task's range, where it is exact.
    fraction: f64,
    tells_density: bool,
    dimension: usize,
}

impl Form {
    pub(super) fn of(task: &TaskParams, weighting: Weighting, global: &Weights) -> Self {
        Self {
            weighting,
            intercepts: intercept_scale(task, global),
            fraction: 2f64.powi(i32::from(task.config().clip_exponent) - 1),
            tells_density: tells_density(task, weighting, global),
            dimension: global.dimension(),
        }
    }

    pub(super) fn numbers(&self, contribution: &Contribution) -> Numbers {
        let Contribution { update, samples, .. } = contribution;
        let factor = self.weighting.factor(*samples);
        let (indices, values) = update.entries().map(|(index, value)| (index, value * factor)).unzip();
        let mut dense: Vec<f64> = update.intercepts().iter().map(|b| b * factor / self.intercepts).collect();
        if self.weighting != Weighting::Equal {
            dense.push(factor * self.fraction);
        }
        if self.tells_density {
            dense.push(update.learnt_nonzeros() as f64 / self.dimension as f64 * self.fraction);
        }
        Numbers { indices, values, dense }
    }

    /// The opened sum of [`Numbers`] of this many users.
    pub(super) fn averaged(
        &self,
        kind: UpdateKind,
        users: usize,
        flat: Vec<f64>,
        mut dense: Vec<f64>,
    ) -> Result<Averaged, Error> {
        let mut fraction = |wanted: bool| match wanted {
            true => dense.pop().map(|sum| sum / self.fraction),
            false => None,
        };
        // a rounded sum of ones may be a step more than their number
        let density = fraction(self.tells_density).map(|sum| (sum / users as f64).clamp(0.0, 1.0));
        let total = fraction(self.weighting != Weighting::Equal).unwrap_or(users as f64);
        dense.iter_mut().for_each(|b| *b *= self.intercepts);
        let zeros = flat.iter().filter(|&&v| v == 0.0).count();
        let sparsity = zeros as f64 / flat.len().max(1) as f64;
        let sum = UpdateSum::from_parts(kind, flat, dense, total)?;
        Ok(Averaged { sum, sparsity, density, clipped: None, cost: Cost::default() })
    }
}

/// Whether messages of a task carry the share of weights that L1 left.
pub(crate) fn tells_density(task: &TaskParams, weighting: Weighting, global: &Weights) -> bool {
    task.dense() > global.classes() + weighting.values()
}
