//! The elastic-net penalty: L1 for sparse weights, L2 for small ones.

use crate::Error;

/// The penalty `strength (l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|_2^2)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalty {
    strength: f64,
    l1_ratio: f64,
}

impl Penalty {
    /// L2 with strength 0.001.
    pub const DEFAULT: Self = Self { strength: 1e-3, l1_ratio: 0.0 };

    /// Creates a mixture of both penalties. `l1_ratio` is 0 for L2 only and 1 for L1 only.
    ///
    /// # Errors
    /// If the strength is negative or not finite, or the ratio is not between 0 and 1.
    pub fn elastic_net(strength: f64, l1_ratio: f64) -> Result<Self, Error> {
        if !(strength >= 0.0 && strength.is_finite()) {
            return Err(Error::Parameter {
                name: "strength",
                value: strength,
                remedy: "use a number of at least 0, such as 0.001",
            });
        }
        if !(0.0..=1.0).contains(&l1_ratio) {
            return Err(Error::Parameter {
                name: "l1_ratio",
                value: l1_ratio,
                remedy: "use a number from 0 (only L2) to 1 (only L1)",
            });
        }
        Ok(Self { strength, l1_ratio })
    }

    /// Creates a pure L2 penalty, which keeps weights small.
    ///
    /// # Errors
    /// If the strength is negative or not finite.
    pub fn l2(strength: f64) -> Result<Self, Error> {
        Self::elastic_net(strength, 0.0)
    }

    /// Creates a pure L1 penalty, which makes weights sparse.
    ///
    /// # Errors
    /// If the strength is negative or not finite.
    pub fn l1(strength: f64) -> Result<Self, Error> {
        Self::elastic_net(strength, 1.0)
    }

    /// Returns the strength.
    pub fn strength(self) -> f64 {
        self.strength
    }

    /// Returns the L1 ratio.
    pub fn l1_ratio(self) -> f64 {
        self.l1_ratio
    }

    /// Returns the same mixture with another strength.
    ///
    /// # Errors
    /// If the strength is negative or not finite.
    pub fn with_strength(self, strength: f64) -> Result<Self, Error> {
        Self::elastic_net(strength, self.l1_ratio)
    }

    /// Returns the factor of `|w|_1`.
    pub(crate) fn l1_strength(self) -> f64 {
        self.strength * self.l1_ratio
    }

    /// Returns the factor of `|w|_2^2 / 2`.
    pub(crate) fn l2_strength(self) -> f64 {
        self.strength * (1.0 - self.l1_ratio)
    }

    /// Returns the penalty of these weights.
    pub(crate) fn value(self, weights: &[f64]) -> f64 {
        let l1: f64 = weights.iter().map(|w| w.abs()).sum();
        let l2: f64 = weights.iter().map(|w| w * w).sum();
        self.l1_strength() * l1 + self.l2_strength() / 2.0 * l2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l1_and_l2_factors_follow_the_ratio() {
        let penalty = Penalty::elastic_net(0.5, 0.5).unwrap();
        assert_eq!(penalty.value(&[1.0, -2.0]), 0.25 * 3.0 + 0.125 * 5.0);
        for (strength, ratio) in
            [(-1.0, 0.5), (f64::NAN, 0.5), (f64::INFINITY, 0.0), (1.0, 1.5), (1.0, f64::NAN)]
        {
            assert!(Penalty::elastic_net(strength, ratio).is_err());
        }
    }
}
