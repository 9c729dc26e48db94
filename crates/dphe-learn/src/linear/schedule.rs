//! Step size schedules.

use super::{Loss, Penalty};
use crate::{Error, Features, Real};

/// A step size schedule. Step `t`, from 1, has the size `first / (1 + strength first (t - 1))` (Bottou's rule). The
/// schedules differ in the first step and in the step size of intercepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// scikit-learn's `optimal`. The first step is `strength^(-1/4)`, and intercepts move like a feature that is
    /// always 1. Use it for comparisons only. Its large first steps discard the starting weights, so rounds do not
    /// build on each other.
    Optimal,
    /// Steps scaled by the norm of the samples, for rounds.
    Stable(Stable),
}

/// The schedule for rounds. The first step is `step / R^2`, which moves the margin of a typical violating sample by
/// `step`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stable {
    /// `R^2 = 1 + mean |x|^2` of the initial data, published with the initial weights.
    pub squared_radius: f64,
    /// The distance that the first step moves the margin of its sample. The default is 1. Lower it to shrink steps
    /// over rounds.
    pub step: f64,
    /// The distance that the first step moves the intercept. The default of 0.05 converges in few epochs without
    /// drifting.
    pub intercept: f64,
}

impl Stable {
    /// Creates the schedule for samples with this squared radius.
    pub fn new(squared_radius: f64) -> Self {
        Self { squared_radius, step: 1.0, intercept: 0.05 }
    }

    /// Creates the schedule for samples like these.
    pub fn for_features<T: Real>(features: &Features<T>) -> Self {
        Self::new(features.squared_radius())
    }

    /// Adapts the schedule to a part of the features, assuming that standardised features contribute equally.
    #[must_use]
    pub fn for_share(self, share: f64) -> Self {
        Self { squared_radius: 1.0 + (self.squared_radius - 1.0) * share, ..self }
    }
}

impl Schedule {
    /// Checks that the step sizes are positive and finite.
    pub(super) fn check(&self, penalty: Penalty) -> Result<(), Error> {
        let bad = |name, value, remedy| Err(Error::Parameter { name, value, remedy });
        match self {
            Self::Optimal if penalty.strength() <= 0.0 => {
                bad("strength", penalty.strength(), "the optimal schedule needs a positive strength")
            }
            Self::Optimal => Ok(()),
            Self::Stable(s) if !(s.squared_radius >= 1.0 && s.squared_radius.is_finite()) => {
                bad("squared_radius", s.squared_radius, "it is 1 + mean |x|^2 of the initial data")
            }
            Self::Stable(s) if !(s.step > 0.0 && s.step.is_finite()) => {
                bad("step", s.step, "use a positive number, normally 1")
            }
            Self::Stable(s) if !(s.intercept >= 0.0 && s.intercept.is_finite()) => {
                bad("intercept", s.intercept, "use a number from 0 on, normally 0.05")
            }
            Self::Stable(_) => Ok(()),
        }
    }

    /// Returns the step sizes for this loss and penalty.
    pub(super) fn steps(&self, loss: Loss, penalty: Penalty) -> Steps {
        let strength = penalty.strength();
        match self {
            Self::Optimal => {
                // scikit-learn divides by max(1, slope) and passes a negative slope, so the divisor is 1
                let first = (1.0 / strength.sqrt()).sqrt();
                Steps { strength, offset: 1.0 / (first * strength), first, intercept: 1.0 }
            }
            Self::Stable(stable) => {
                let first = stable.step / (stable.squared_radius * loss.curvature());
                let intercept = stable.intercept * stable.squared_radius;
                Steps { strength, offset: 1.0 / (first * strength), first, intercept }
            }
        }
    }
}

/// The step sizes of a schedule for one loss and penalty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    strength: f64,
    offset: f64,
    first: f64,
    /// The step size of an intercept, relative to a weight whose feature is 1.
    pub(super) intercept: f64,
}

impl Steps {
    /// Returns the size of step `t`, from 1.
    #[inline(always)]
    pub(super) fn size(&self, t: f64) -> f64 {
        // the same formula as in scikit-learn, for the same rounding
        if self.strength > 0.0 { 1.0 / (self.strength * (self.offset + t - 1.0)) } else { self.first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_step_sizes_follow_the_schedule() {
        let penalty = Penalty::l2(1e-4).unwrap();
        let optimal = Schedule::Optimal.steps(Loss::Hinge, penalty);
        assert!((optimal.size(1.0) - 10.0).abs() < 1e-12);
        let stable = Schedule::Stable(Stable::new(2049.0)).steps(Loss::Hinge, penalty);
        assert!((stable.size(1.0) * 2049.0 - 1.0).abs() < 1e-12);
        assert!((stable.size(1.0) * stable.intercept - 0.05).abs() < 1e-12);
        assert!(stable.size(100.0) < stable.size(99.0));
        let constant =
            Schedule::Stable(Stable::new(4.0)).steps(Loss::SquaredHinge, Penalty::l2(0.0).unwrap());
        assert_eq!(constant.size(50.0), 0.125);
        assert_eq!(Stable::new(2049.0).for_share(0.5).squared_radius, 1025.0);
    }

    #[test]
    fn invalid_step_sizes_are_refused() {
        let none = Penalty::l2(0.0).unwrap();
        assert!(Schedule::Optimal.check(none).is_err());
        for stable in [
            Stable::new(0.5),
            Stable::new(f64::NAN),
            Stable { step: 0.0, ..Stable::new(2.0) },
            Stable { intercept: -1.0, ..Stable::new(2.0) },
        ] {
            assert!(Schedule::Stable(stable).check(none).is_err());
        }
    }
}
