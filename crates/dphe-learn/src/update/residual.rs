//! What updates left out.

use crate::Error;

/// The differences that a user has learnt but not sent yet. Secret: never sent, never shown.
#[derive(Clone, Default, PartialEq)]
pub struct Residual {
    // Empty until the first update leaves something out.
    values: Vec<f64>,
}

impl Residual {
    /// Creates an empty residual.
    pub fn new() -> Self {
        Self::default()
    }

    /// Restores a stored residual.
    ///
    /// # Errors
    /// If a value is not finite.
    pub fn from_values(values: Vec<f64>) -> Result<Self, Error> {
        match values.iter().position(|value| !value.is_finite()) {
            Some(index) => Err(Error::NotFinite { what: "number of the residual", index }),
            None => Ok(Self { values }),
        }
    }

    /// Returns the differences in the flat order of weights, or nothing if no update has left anything out yet. They
    /// are as private as the samples they were learnt from.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Forgets everything, for a model that starts over.
    pub fn reset(&mut self) {
        self.values.clear();
    }

    /// Returns the Euclidean length.
    pub fn norm(&self) -> f64 {
        self.values.iter().map(|v| v * v).sum::<f64>().sqrt()
    }

    /// Adds what earlier updates have left out to the changes of this round.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of changes. Nothing has changed then.
    pub fn add_to(&self, changes: &mut [f64]) -> Result<(), Error> {
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

    /// Replaces the content by a share of what was not sent. The next round learns part of it again, so keeping all
    /// would count it twice.
    pub fn keep(&mut self, mut unsent: Vec<f64>, share: f64) {
        unsent.iter_mut().for_each(|v| *v *= share);
        self.values = unsent;
    }
}

impl core::fmt::Debug for Residual {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Residual(..)")
    }
}
