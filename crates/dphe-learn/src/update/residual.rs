//! What messages left out.

use crate::Error;

/// Differences that were learnt and not sent. The user's secret: never sent, never shown.
#[derive(Clone, Default, PartialEq)]
pub struct Residual {
    // Empty until the first message leaves something out.
    values: Vec<f64>,
}

impl Residual {
    /// Nothing left out yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything: for a model that starts anew.
    pub fn reset(&mut self) {
        self.values.clear();
    }

    /// The Euclidean length: how much waits to be sent.
    pub fn norm(&self) -> f64 {
        self.values.iter().map(|v| v * v).sum::<f64>().sqrt()
    }

    pub(super) fn add_to(&self, changes: &mut [f64]) -> Result<(), Error> {
        if self.values.is_empty() {
            return Ok(());
        }
        if self.values.len() != changes.len() {
            return Err(Error::Shape {
                what: "weights of the residual",
                expected: self.values.len(),
                found: changes.len(),
            });
        }
        changes.iter_mut().zip(&self.values).for_each(|(change, left)| *change += left);
        Ok(())
    }

    /// Keeps a share of what was not sent. All of it would come twice: once from here, once learnt again.
    pub(super) fn keep(&mut self, mut unsent: Vec<f64>, share: f64) {
        unsent.iter_mut().for_each(|v| *v *= share);
        self.values = unsent;
    }
}

impl core::fmt::Debug for Residual {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Residual(..)")
    }
}
