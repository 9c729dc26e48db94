//! The scale at which a user's values are summed.

use dphe::{TaskParams, Update};
use dphe_learn::Weights;
use dphe_learn::update::{ModelUpdate, UpdateKind, UpdateSum};

use super::{ValueSum, Weighting};
use crate::Error;
use crate::vector::{Codec, VectorSum};

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
    codec: Codec,
    dimension: usize,
}

impl Scaling {
    pub(crate) fn of(task: &TaskParams, weighting: Weighting, global: &Weights) -> Result<Self, Error> {
        let codec = Codec::new(task, weighting)?
            .with_fractions(usize::from(has_density(task, weighting, global)))?
            .with_dense_scale(intercept_scale(task, global))?;
        Ok(Self { codec, dimension: global.dimension() })
    }

    /// Scales an update by how much its user counts. The dense values are the intercepts, then the user's factor if
    /// users are weighted, then the density of the local weights if the task sums it.
    pub(crate) fn scale(&self, update: &ModelUpdate, samples: usize) -> Result<Update, Error> {
        let density = [update.learnt_nonzeros() as f64 / self.dimension as f64];
        let density = &density[..self.codec.fractions()];
        self.codec.encode(update.entries(), update.intercepts(), density, samples)
    }

    /// Undoes the scaling of a sum. Returns the sum, and the average density if the task sums it.
    pub(crate) fn restore(
        &self,
        kind: UpdateKind,
        sum: &ValueSum,
    ) -> Result<(UpdateSum, Option<f64>), Error> {
        let VectorSum { total, weights, dense, fractions } = self.codec.decode(sum)?;
        Ok((UpdateSum::from_parts(kind, weights, dense, total)?, fractions.first().copied()))
    }
}

/// Returns whether updates of a task carry the density of the local weights.
pub(crate) fn has_density(task: &TaskParams, weighting: Weighting, global: &Weights) -> bool {
    task.dense() > global.classes() + weighting.values()
}
