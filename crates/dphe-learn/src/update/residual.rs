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

    /// What somebody kept, to go on with.
    ///
    /// # Errors
    /// If a value is not finite.
    pub fn from_values(values: Vec<f64>) -> Result<Self, Error> {
        match values.iter().position(|value| !value.is_finite()) {
            Some(index) => Err(Error::NotFinite { what: "number of the residual", index }),
            None => Ok(Self { values }),
        }
    }

    /// What waits to be sent, in the flat order of weights; empty if nothing was left out yet. It is as private as the
    /// samples it was learnt from.
    pub fn values(&self) -> &[f64] {
        &self.values
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
