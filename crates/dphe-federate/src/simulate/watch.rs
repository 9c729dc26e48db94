//! What the guard looks at: the accuracy of the public weights on the public initial data.

use dphe_learn::{Dataset, Guard, Real, Threads, Verdict, Weights};

use crate::Error;

/// The guard, what it looks at, and the weights it would go back to.
pub(super) struct Watch<T> {
    data: Dataset<T>,
    guard: Guard,
    best: (f64, Weights),
}

impl<T: Real> Watch<T> {
    pub(super) fn new(model: &Weights, data: Dataset<T>, threads: Threads) -> Result<Self, Error> {
        let accuracy = model.accuracy(&data, threads)?;
        Ok(Self { data, guard: Guard::new(accuracy), best: (accuracy, model.clone()) })
    }

    /// The weights that did best.
    pub(super) fn best(&self) -> &Weights {
        &self.best.1
    }

    /// Takes in a round.
    pub(super) fn observe(
        &mut self,
        next: &Weights,
        relative_change: f64,
        threads: Threads,
    ) -> Result<(f64, Verdict), Error> {
        let accuracy = next.accuracy(&self.data, threads)?;
        // the later of two equals has seen more
        if accuracy >= self.best.0 {
            self.best = (accuracy, next.clone());
        }
        Ok((accuracy, self.guard.observe(relative_change, accuracy)))
    }
}

/// Fails unless the model can be used on these data.
pub(super) fn check_data<T: Real>(model: &Weights, data: &Dataset<T>) -> Result<(), dphe_learn::Error> {
    for (what, expected, found) in [
        ("features", model.features(), data.features().width()),
        ("classes", model.classes(), data.labels().class_count()),
    ] {
        if expected != found {
            return Err(dphe_learn::Error::Shape { what, expected, found });
        }
    }
    Ok(())
}
