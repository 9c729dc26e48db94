//! When to stop: rounds that settle, and rounds that go wrong. Both seen by public signals alone.

/// Watches the public weights and their accuracy on the initial data.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    best: f64,
    calm: u32,
}

/// What the guard thinks of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Continue,
    /// The weights hardly changed, twice in a row.
    Settled,
    /// The accuracy on the initial data fell well below its best: go back to the best weights and lower the strength
    /// or the step.
    Diverging,
}

impl Guard {
    /// A relative change below this is none.
    pub const CALM: f64 = 0.01;
    /// A fall of accuracy beyond this is an alarm.
    pub const FALL: f64 = 0.02;

    /// Starts with the accuracy of the initial weights on the initial data.
    pub fn new(accuracy: f64) -> Self {
        Self { best: accuracy, calm: 0 }
    }

    /// Takes in a round: how much the public weights changed, relative to their length, and their accuracy on the
    /// initial data.
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
    fn settles_after_two_calm_rounds_and_notices_a_fall() {
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
