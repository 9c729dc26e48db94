//! The aggregator's part of a round: a sum becomes the next global weights.

use super::{ModelUpdate, UpdateKind};
use crate::{Error, Weights};

/// The sum of users' updates over all weights. Add the updates one by one with [`UpdateSum::add`], or start from an
/// opened sum with [`UpdateSum::from_parts`].
#[derive(Clone, PartialEq)]
pub struct UpdateSum {
    kind: UpdateKind,
    flat: Vec<f64>,
    intercepts: Vec<f64>,
    total: f64,
}

impl UpdateSum {
    /// Creates an empty sum.
    pub fn new(kind: UpdateKind, global: &Weights) -> Self {
        Self {
            kind,
            flat: vec![0.0; global.dimension()],
            intercepts: vec![0.0; global.classes()],
            total: 0.0,
        }
    }

    /// Creates a sum from opened values. `total` is the number of users, or the sum of their weights if updates are
    /// weighted.
    ///
    /// # Errors
    /// If a number is not finite, or the total is not positive.
    pub fn from_parts(
        kind: UpdateKind,
        flat: Vec<f64>,
        intercepts: Vec<f64>,
        total: f64,
    ) -> Result<Self, Error> {
        if let Some(index) = flat.iter().chain(&intercepts).position(|v| !v.is_finite()) {
            return Err(Error::NotFinite { what: "sum", index });
        }
        if !(total > 0.0 && total.is_finite()) {
            return Err(Error::Parameter {
                name: "total",
                value: total,
                remedy: "use the number of users in the sum",
            });
        }
        Ok(Self { kind, flat, intercepts, total })
    }

    /// Adds a user's update with this weight: 1 for a plain average, the number of samples for a weighted one.
    ///
    /// # Errors
    /// If the update has another kind or shape.
    pub fn add(&mut self, update: &ModelUpdate, weight: f64) -> Result<(), Error> {
        if update.kind() != self.kind {
            return Err(Error::Unsuited {
                what: "a sum",
                needed: "updates of one kind",
                found: "both kinds",
            });
        }
        if update.intercepts().len() != self.intercepts.len() {
            let (expected, found) = (self.intercepts.len(), update.intercepts().len());
            return Err(Error::Shape { what: "classes", expected, found });
        }
        for (index, value) in update.entries() {
            crate::dataset::check_index("weight", index, self.flat.len())?;
            self.flat[index] += weight * value;
        }
        for (sum, value) in self.intercepts.iter_mut().zip(update.intercepts()) {
            *sum += weight * value;
        }
        self.total += weight;
        Ok(())
    }

    /// Returns the length of the average relative to that of the global weights: infinite if these are zeros, and not
    /// a number if both are. Intercepts do not count.
    pub fn relative_length(&self, global: &Weights) -> f64 {
        self.flat.iter().map(|sum| (sum / self.total) * (sum / self.total)).sum::<f64>().sqrt()
            / global.norm()
    }

    /// Returns whether it is a sum of whole classifiers or of differences.
    pub fn kind(&self) -> UpdateKind {
        self.kind
    }

    /// Returns the next global weights. `server_step` multiplies the average of differences. It is normally 1, and
    /// larger if many users with few samples dilute each other. Averages of whole classifiers ignore it.
    ///
    /// # Errors
    /// If the sum is empty, the shapes differ, or the step is not positive.
    pub fn apply(&self, global: &Weights, server_step: f64) -> Result<Weights, Error> {
        if self.total <= 0.0 {
            return Err(Error::Empty { what: "updates" });
        }
        if self.flat.len() != global.dimension() {
            return Err(Error::Shape {
                what: "weights",
                expected: global.dimension(),
                found: self.flat.len(),
            });
        }
        if self.intercepts.len() != global.classes() {
            return Err(Error::Shape {
                what: "classes",
                expected: global.classes(),
                found: self.intercepts.len(),
            });
        }
        if !(server_step > 0.0 && server_step.is_finite()) {
            return Err(Error::Parameter {
                name: "server_step",
                value: server_step,
                remedy: "use a positive number, normally 1",
            });
        }
        let (scale, keep) = match self.kind {
            UpdateKind::Weights => (1.0, 0.0),
            UpdateKind::Difference => (server_step, 1.0),
        };
        let step = |old: &[f64], sums: &[f64], keep: f64, scale: f64| -> Vec<f64> {
            old.iter().zip(sums).map(|(old, sum)| keep * old + scale * (sum / self.total)).collect()
        };
        Weights::new(
            global.features(),
            step(global.flat(), &self.flat, keep, scale),
            step(global.intercepts(), &self.intercepts, 1.0, scale),
        )
    }
}

impl core::fmt::Debug for UpdateSum {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("UpdateSum")
            .field("kind", &self.kind)
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}
