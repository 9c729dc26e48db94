//! Decides when to stop: after convergence, or when rounds make the model worse. Uses public values only.

/// A monitor of the global weights and their accuracy on the initial data.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    best: f64,
    calm: u32,
}

/// The guard's verdict on a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Continue with the next round.
    Continue,
    /// The weights hardly changed in two consecutive rounds.
    Settled,
    /// The accuracy on the initial data fell well below its best. Return to the best weights and lower the strength
    /// or the server step.
    Diverging,
}

impl Guard {
    /// The relative change below which weights count as unchanged.
    pub const CALM: f64 = 0.01;
    /// The drop in accuracy that counts as worse.
    pub const FALL: f64 = 0.02;

    /// Creates a guard from the accuracy of the initial weights on the initial data.
    pub fn new(accuracy: f64) -> Self {
        Self { best: accuracy, calm: 0 }
    }

    /// Records a round: the change of the global weights relative to their norm, and their accuracy on the initial
    /// data.
    pub fn observe(&mut self, relative_change: f64, accuracy: f64) -> Verdict {
        let fallen = accuracy.is_nan() || accuracy < self.best - Self::FALL;
        if fallen || relative_change.is_nan() {
            return Verdict::Diverging;
        }
        self.best = self.best.max(accuracy);
        self.calm = if relative_change < Self::CALM { self.calm + 1 } else { 0 };
        if self.calm >= 2 { Verdict::Settled } else { Verdict::Continue }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converges_after_two_small_changes_and_detects_an_accuracy_drop() {
        let mut guard = Guard::new(0.8);
        assert_eq!(guard.observe(0.5, 0.85), Verdict::Continue);
        assert_eq!(guard.observe(0.005, 0.84), Verdict::Continue);
        assert_eq!(guard.observe(0.02, 0.84), Verdict::Continue);
        assert_eq!(guard.observe(0.005, 0.84), Verdict::Continue);
        assert_eq!(guard.observe(0.005, 0.84), Verdict::Settled);
        assert_eq!(guard.observe(0.5, 0.82), Verdict::Diverging);
        assert_eq!(guard.observe(0.5, f64::NAN), Verdict::Diverging);
        assert_eq!(guard.observe(f64::NAN, 0.9), Verdict::Diverging);
    }
}
