//! The scale at which a user's values are summed.

use dphe::{SparseVector, TaskParams, Update};
use dphe_learn::Weights;
use dphe_learn::update::{ModelUpdate, UpdateKind, UpdateSum};

use super::{ValueSum, Weighting};
use crate::Error;

/// Returns what intercepts are divided by before they are summed: a power of two, so that only the rounding changes.
///
/// Intercepts are larger than weights and change by more. At the scale of the weights they would need wider slots for
/// all values. The range of their changes is four times the largest global intercept, and at least four. It follows
/// from the task and the global weights, which all parties have, so it is neither sent nor stored.
pub fn intercept_scale(task: &TaskParams, global: &Weights) -> f64 {
    let largest = global.intercepts().iter().fold(1.0f64, |most, b| most.max(b.abs()));
    let exponent = (2.0 + largest.log2()).ceil() as i32 - i32::from(task.config().clip_exponent);
    // A model that needs more has diverged long before.
    2f64.powi(exponent.clamp(0, 1000))
}

/// The scale of the values of one round.
pub(crate) struct Scaling {
    weighting: Weighting,
    intercepts: f64,
    /// The factor that maps the numbers from 0 to 1 to half of the task's range, where they are exact.
    fraction: f64,
    has_density: bool,
    dimension: usize,
}

impl Scaling {
    pub(crate) fn of(task: &TaskParams, weighting: Weighting, global: &Weights) -> Self {
        Self {
            weighting,
            intercepts: intercept_scale(task, global),
            fraction: 2f64.powi(i32::from(task.config().clip_exponent) - 1),
            has_density: has_density(task, weighting, global),
            dimension: global.dimension(),
        }
    }

    /// Scales an update by how much its user counts. The dense values are the intercepts, then the user's factor if
    /// users are weighted, then the density of the local weights if the task sums it.
    pub(crate) fn scale(
        &self,
        task: &TaskParams,
        update: &ModelUpdate,
        samples: usize,
    ) -> Result<Update, Error> {
        let factor = self.weighting.factor(samples);
        // Indices are below the dimension, which is at most 2^30.
        let (indices, values) = update.entries().map(|(index, value)| (index as u32, value * factor)).unzip();
        let mut dense: Vec<f64> = update.intercepts().iter().map(|b| b * factor / self.intercepts).collect();
        if self.weighting != Weighting::Equal {
            dense.push(factor * self.fraction);
        }
        if self.has_density {
            dense.push(update.learnt_nonzeros() as f64 / self.dimension as f64 * self.fraction);
        }
        Ok(Update::new(SparseVector::new(task.dimension(), indices, values)?).with_dense(dense))
    }

    /// Undoes the scaling of a sum. Returns the sum, and the average density if the task sums it.
    pub(crate) fn restore(
        &self,
        kind: UpdateKind,
        sum: &ValueSum,
    ) -> Result<(UpdateSum, Option<f64>), Error> {
        let mut dense = sum.dense.clone();
        let mut fraction = |wanted: bool| match wanted {
            true => dense.pop().map(|sum| sum / self.fraction),
            false => None,
        };
        // A rounded sum of ones may be one step more than their number.
        let density = fraction(self.has_density).map(|total| (total / sum.users as f64).clamp(0.0, 1.0));
        let total = fraction(self.weighting != Weighting::Equal).unwrap_or(sum.users as f64);
        dense.iter_mut().for_each(|b| *b *= self.intercepts);
        Ok((UpdateSum::from_parts(kind, sum.weights.clone(), dense, total)?, density))
    }
}

/// Returns whether updates of a task carry the density of the local weights.
pub(crate) fn has_density(task: &TaskParams, weighting: Weighting, global: &Weights) -> bool {
    task.dense() > global.classes() + weighting.values()
}
