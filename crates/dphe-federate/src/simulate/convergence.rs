//! The accuracy of the global weights on the public initial data, which tells whether rounds converge.

use std::num::NonZeroUsize;

use dphe_learn::{Dataset, Guard, Real, Verdict, Weights};

use crate::Error;

/// The guard, the data it observes, and the best weights so far.
pub(super) struct Convergence<T> {
    data: Dataset<T>,
    guard: Guard,
    best: (f64, Weights),
}

impl<T: Real> Convergence<T> {
    pub(super) fn new(model: &Weights, data: Dataset<T>, threads: NonZeroUsize) -> Result<Self, Error> {
        let accuracy = model.accuracy(&data, threads)?;
        Ok(Self { data, guard: Guard::new(accuracy), best: (accuracy, model.clone()) })
    }

    /// Returns the weights with the best accuracy.
    pub(super) fn best(&self) -> &Weights {
        &self.best.1
    }

    /// Records the weights of a round. Returns their accuracy and the verdict of the guard.
    pub(super) fn observe(
        &mut self,
        next: &Weights,
        relative_change: f64,
        threads: NonZeroUsize,
    ) -> Result<(f64, Verdict), Error> {
        let accuracy = next.accuracy(&self.data, threads)?;
        // The later of two equals has learnt more.
        if accuracy >= self.best.0 {
            self.best = (accuracy, next.clone());
        }
        Ok((accuracy, self.guard.observe(relative_change, accuracy)))
    }
}
