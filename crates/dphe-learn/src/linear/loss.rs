//! Loss functions and their derivatives.

use crate::Real;

/// A loss function of the margin `z`, which is target times score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Loss {
    /// `max(0, 1 - z)`, as in a support vector machine.
    #[default]
    Hinge,
    /// `max(0, 1 - z)^2`.
    SquaredHinge,
    /// `ln(1 + e^-z)`, logistic regression of one class against the rest.
    Logistic,
    /// `-ln softmax(scores)` of the sample's class, over all classes together.
    Multinomial,
}

impl Loss {
    /// The bound of slopes, as in scikit-learn, so that one extreme sample cannot cause infinities.
    const STEEPEST: f64 = 1e12;

    /// Returns the derivative with respect to the score of a class with this target, +1 or -1. Not for
    /// [`Loss::Multinomial`], whose slope depends on all scores of the sample.
    #[inline(always)]
    pub(crate) fn slope<T: Real>(self, target: T, score: T) -> T {
        let margin = target * score;
        match self {
            // scikit-learn counts z = 1 as a violation
            Self::Hinge => {
                if margin <= T::ONE {
                    -target
                } else {
                    T::ZERO
                }
            }
            Self::SquaredHinge => {
                let short = (T::ONE - margin).larger(T::ZERO);
                let steepest = T::from_f64(Self::STEEPEST);
                (-(target + target) * short).smaller(steepest).larger(-steepest)
            }
            Self::Logistic | Self::Multinomial => {
                T::from_f64(-target.to_f64() / (1.0 + margin.to_f64().exp()))
            }
        }
    }

    /// Returns the loss of a class with this target and score.
    pub(crate) fn value(self, target: f64, score: f64) -> f64 {
        let margin = target * score;
        match self {
            Self::Hinge => (1.0 - margin).max(0.0),
            Self::SquaredHinge => (1.0 - margin).max(0.0).powi(2),
            Self::Logistic | Self::Multinomial => {
                if margin > 0.0 {
                    (-margin).exp().ln_1p()
                } else {
                    margin.exp().ln_1p() - margin
                }
            }
        }
    }

    /// Returns how fast the slope can change with the score, relative to the hinge loss. The stable schedule divides
    /// its first step by it.
    pub(crate) fn curvature(self) -> f64 {
        match self {
            Self::Hinge | Self::Logistic => 1.0,
            Self::SquaredHinge => 2.0,
            Self::Multinomial => 0.5,
        }
    }
}

/// Replaces scores by softmax probabilities.
pub(crate) fn softmax(scores: &mut [f64]) {
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    scores.iter_mut().for_each(|s| *s = (*s - highest).exp());
    let sum: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|s| *s /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_derivatives() {
        for loss in [Loss::Hinge, Loss::SquaredHinge, Loss::Logistic] {
            for target in [-1.0, 1.0] {
                for score in [-30.0, -2.5, -0.3, 0.4, 0.9, 1.1, 40.0] {
                    let h = 1e-6;
                    let numeric = (loss.value(target, score + h) - loss.value(target, score - h)) / (2.0 * h);
                    let slope: f64 = loss.slope(target, score);
                    assert!((slope - numeric).abs() < 1e-6, "{loss:?} {target} {score}: {slope} {numeric}");
                }
            }
        }
        assert_eq!(Loss::Hinge.slope(1.0, 1.0), -1.0);
        assert_eq!(Loss::SquaredHinge.slope(1.0, -1e20), -1e12);
    }

    #[test]
    fn softmax_of_large_scores_is_finite() {
        let mut scores = [1000.0, 1000.0, -1000.0];
        softmax(&mut scores);
        assert_eq!(scores, [0.5, 0.5, 0.0]);
    }
}
