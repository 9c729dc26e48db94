//! The strength of L1 from round to round. It follows from public numbers only.

use dphe_learn::StrengthController;

use crate::Error;

/// The controller, and the limit that the guard sets for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steering {
    controller: StrengthController,
    /// The strength is never raised above this, half the strength at which the guard raised an alarm.
    ceiling: f64,
}

impl Steering {
    pub(super) fn new(controller: StrengthController) -> Self {
        Self { controller, ceiling: f64::INFINITY }
    }

    /// Returns the strength of the next round.
    pub(super) fn strength(&self) -> f64 {
        self.controller.strength().min(self.ceiling)
    }

    /// Records the average density of a round.
    pub(super) fn observe(&mut self, density: f64) -> Result<(), Error> {
        Ok(self.controller.observe(density)?)
    }

    /// Halves the strength after the first alarm. Returns false after the second one.
    pub(super) fn relent(&mut self) -> bool {
        let first = self.ceiling.is_infinite();
        if first {
            self.ceiling = self.strength() / 2.0;
        }
        first
    }
}
