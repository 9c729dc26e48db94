//! The sparsity of updates, and a controller for the L1 strength that reaches it. Uses public values only.

use crate::Error;

/// A fraction of zeros, at least 0 and below 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Sparsity(f64);

impl Sparsity {
    /// Creates a sparsity from a fraction of zeros.
    ///
    /// # Errors
    /// If it is not at least 0 and below 1.
    pub fn new(zeros: f64) -> Result<Self, Error> {
        match (0.0..1.0).contains(&zeros) {
            true => Ok(Self(zeros)),
            false => Err(Error::Parameter {
                name: "sparsity",
                value: zeros,
                remedy: "use the fraction of zeros, from 0 to below 1, such as 0.9",
            }),
        }
    }

    /// Returns the fraction of zeros.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// A controller that adapts the L1 strength in every round to the mean density of all users' updates, which is one
/// summed number.
///
/// `ln strength += clip(0.7 ln(density / wanted), ln 2)`. All users have the same strength. With individual
/// strengths, the users with the weakest penalty would dominate the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StrengthController {
    strength: f64,
    wanted_density: f64,
}

impl StrengthController {
    /// Density is roughly proportional to strength^-1.5, so this gain corrects most of an error without overshooting.
    const GAIN: f64 = 0.7;
    /// The controller aims for this much more sparsity than the target, so that single users rarely miss it.
    const MARGIN: f64 = 0.01;
    /// The lowest density to aim for. With a target near 1, the margin would leave no weights.
    const LEAST_DENSITY: f64 = 1e-4;

    /// The useful range of strengths for standardised features.
    pub const RANGE: (f64, f64) = (1e-5, 1.0);

    /// Creates a controller that starts at a strength, normally the result of [`find_strength`] on the initial data.
    ///
    /// # Errors
    /// If the strength is not positive.
    pub fn new(strength: f64, target: Sparsity) -> Result<Self, Error> {
        if !(strength > 0.0 && strength.is_finite()) {
            return Err(Error::Parameter {
                name: "strength",
                value: strength,
                remedy: "start from a positive number, such as 0.01",
            });
        }
        let wanted_density = (1.0 - target.get() - Self::MARGIN).max(Self::LEAST_DENSITY);
        Ok(Self { strength, wanted_density })
    }

    /// Returns the strength of the next round.
    pub fn strength(&self) -> f64 {
        self.strength
    }

    /// Records the mean fraction of non-zeros in a round's updates.
    ///
    /// # Errors
    /// If it is not between 0 and 1.
    pub fn observe(&mut self, mean_density: f64) -> Result<(), Error> {
        if !(0.0..=1.0).contains(&mean_density) {
            return Err(Error::Parameter {
                name: "mean density",
                value: mean_density,
                remedy: "use the mean fraction of non-zeros, from 0 to 1",
            });
        }
        let most = core::f64::consts::LN_2;
        let change = (Self::GAIN * (mean_density / self.wanted_density).ln()).clamp(-most, most);
        self.strength = (self.strength.ln() + change).exp().clamp(Self::RANGE.0, Self::RANGE.1);
        Ok(())
    }
}

/// Finds the lowest strength that reaches a sparsity, with nine bisection steps on a logarithmic scale. `sparsity_at`
/// trains on the initial data, which is public.
///
/// # Errors
/// If `sparsity_at` fails, or if the highest strength does not reach the target.
pub fn find_strength(
    target: Sparsity,
    mut sparsity_at: impl FnMut(f64) -> Result<f64, Error>,
) -> Result<f64, Error> {
    let (lowest, highest) = StrengthController::RANGE;
    let (mut low, mut high) = (lowest.ln(), highest.ln());
    let mut found = None;
    let mut best: f64 = 0.0;
    for _ in 0..9 {
        let middle = (low + high) / 2.0;
        let reached = sparsity_at(middle.exp())?;
        best = best.max(reached);
        if reached >= target.get() {
            found = Some(middle.exp());
            high = middle;
        } else {
            low = middle;
        }
    }
    found.ok_or(Error::SparsityOutOfReach { target: target.get(), reached: best, low: lowest, high: highest })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The density as measured on real features.
    fn density(strength: f64) -> f64 {
        (0.1 * (strength / 0.0145).powf(-1.5)).min(1.0)
    }

    #[test]
    fn search_and_controller_reach_the_target() {
        let target = Sparsity::new(0.9).unwrap();
        let found = find_strength(target, |s| Ok(1.0 - density(s))).unwrap();
        assert!((0.0145..0.0150).contains(&found), "{found}");
        let mut controller = StrengthController::new(found * 4.0, target).unwrap();
        for _ in 0..6 {
            controller.observe(density(controller.strength())).unwrap();
        }
        assert!((density(controller.strength()) - 0.09).abs() < 0.002);
        // an empty update lowers the strength, but by a bounded step
        let before = controller.strength();
        controller.observe(0.0).unwrap();
        assert!((controller.strength() * 2.0 - before).abs() < 1e-12);
    }

    #[test]
    fn invalid_fractions_and_unreachable_targets_are_refused() {
        assert!(
            Sparsity::new(1.0).is_err() && Sparsity::new(-0.1).is_err() && Sparsity::new(f64::NAN).is_err()
        );
        let target = Sparsity::new(0.9).unwrap();
        assert!(matches!(
            find_strength(target, |_| Ok(0.5)),
            Err(Error::SparsityOutOfReach { reached: 0.5, .. })
        ));
        let mut controller = StrengthController::new(0.01, target).unwrap();
        assert!(controller.observe(1.5).is_err() && controller.observe(f64::NAN).is_err());
        assert!(StrengthController::new(0.0, target).is_err());
    }
}
