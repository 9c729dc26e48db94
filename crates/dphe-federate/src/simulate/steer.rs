//! The strength of L1 from round to round, by public numbers alone.

use dphe_learn::StrengthController;

use crate::Error;

/// The controller, and what the guard made of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steering {
    controller: StrengthController,
    /// The strength is never raised above this: what it was when the guard gave alarm, halved.
    ceiling: f64,
}

impl Steering {
    pub(super) fn new(controller: StrengthController) -> Self {
        Self { controller, ceiling: f64::INFINITY }
    }

    /// The strength of the round to come.
    pub(super) fn strength(&self) -> f64 {
        self.controller.strength().min(self.ceiling)
    }

    /// Takes in the mean density of a round.
    pub(super) fn observe(&mut self, density: f64) -> Result<(), Error> {
        Ok(self.controller.observe(density)?)
    }

    /// After an alarm: half the strength from now on, once. Says whether there is anything left to try.
    pub(super) fn relent(&mut self) -> bool {
        let first = self.ceiling.is_infinite();
        if first {
            self.ceiling = self.strength() / 2.0;
        }
        first
    }
}
