//! Penalties on large and on many weights.

use crate::Error;

/// `strength (l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|_2^2)`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalty {
    strength: f64,
    l1_ratio: f64,
}

impl Penalty {
    /// A little L2: strength 0.001.
    pub const DEFAULT: Self = Self { strength: 1e-3, l1_ratio: 0.0 };

    /// Both kinds: `l1_ratio` 0 is L2 alone, 1 is L1 alone.
    ///
    /// # Errors
    /// If the strength is negative or not finite, or the ratio is outside 0 to 1.
    pub fn elastic_net(strength: f64, l1_ratio: f64) -> Result<Self, Error> {
        if !(strength >= 0.0 && strength.is_finite()) {
            return Err(Error::Parameter {
                name: "strength",
                value: strength,
                remedy: "use a number from 0 on, such as 0.001",
            });
        }
        if !(0.0..=1.0).contains(&l1_ratio) {
            return Err(Error::Parameter {
                name: "l1_ratio",
                value: l1_ratio,
                remedy: "use a number from 0 (L2 alone) to 1 (L1 alone)",
            });
        }
        Ok(Self { strength, l1_ratio })
    }

    /// Small weights.
    ///
    /// # Errors
    /// If the strength is negative or not finite.
    pub fn l2(strength: f64) -> Result<Self, Error> {
        Self::elastic_net(strength, 0.0)
    }

    /// Few weights.
    ///
    /// # Errors
    /// If the strength is negative or not finite.
    pub fn l1(strength: f64) -> Result<Self, Error> {
        Self::elastic_net(strength, 1.0)
    }

    /// The overall strength.
    pub fn strength(self) -> f64 {
        self.strength
    }

    /// The share of L1.
    pub fn l1_ratio(self) -> f64 {
        self.l1_ratio
    }

    /// The same mixture with another strength.
    ///
    /// # Errors
    /// If the strength is negative or not finite.
    pub fn with_strength(self, strength: f64) -> Result<Self, Error> {
        Self::elastic_net(strength, self.l1_ratio)
    }

    /// The factor of `|w|_1`.
    pub(crate) fn l1_strength(self) -> f64 {
        self.strength * self.l1_ratio
    }

    /// The factor of `|w|_2^2 / 2`.
    pub(crate) fn l2_strength(self) -> f64 {
        self.strength * (1.0 - self.l1_ratio)
    }

    /// What these weights cost.
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
    fn mixtures() {
        let penalty = Penalty::elastic_net(0.5, 0.5).unwrap();
        assert_eq!(penalty.value(&[1.0, -2.0]), 0.25 * 3.0 + 0.125 * 5.0);
        for (strength, ratio) in
            [(-1.0, 0.5), (f64::NAN, 0.5), (f64::INFINITY, 0.0), (1.0, 1.5), (1.0, f64::NAN)]
        {
            assert!(Penalty::elastic_net(strength, ratio).is_err());
        }
    }
}
