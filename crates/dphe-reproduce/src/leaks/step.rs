//! One step of stochastic gradient descent, as seen by the aggregator that receives the new weights.

/// A step as the aggregator sees it: the weights before and after, and guesses of two numbers that are often defaults.
#[derive(Clone, Copy)]
pub struct SeenStep<'a> {
    /// The public weights.
    pub before: &'a [f64],
    /// The weights that the user sends.
    pub after: &'a [f64],
    /// The size of the step.
    pub size: f64,
    /// The strength of L2: the step shrinks weights by `1 - size * strength`.
    pub strength: f64,
}

/// A gradient that is smaller than this, relative to the weights, is a rounding error.
const ROUNDING: f64 = 1e-11;

impl SeenStep<'_> {
    /// Returns the gradient of the loss, `Theta` in the supplement, or `None` if the step only shrank the weights.
    pub fn gradient(&self) -> Option<Vec<f64>> {
        let gradient: Vec<f64> = self
            .before
            .iter()
            .zip(self.after)
            .map(|(w, after)| (w - after) / self.size - self.strength * w)
            .collect();
        let floor = ROUNDING * norm(self.before) / self.size.abs();
        (norm(&gradient) > floor).then_some(gradient)
    }
}

/// Recovers the sample times its label from a step under hinge loss. Returns `None` if the sample's margin was at least
/// 1. The step then reveals nothing else.
pub fn hinge(step: &SeenStep<'_>) -> Option<Vec<f64>> {
    let mut signed = step.gradient()?;
    signed.iter_mut().for_each(|x| *x = -*x);
    Some(signed)
}

/// A sample and its label, +1 or -1.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoveredSample {
    /// The features.
    pub sample: Vec<f64>,
    /// The label.
    pub label: f64,
}

/// Returns the two samples that `y x` can stand for: the sample with label +1, or its negative with label -1. Without
/// an intercept this must be guessed, which is easy for features with a typical sign.
pub fn labelled(signed: &[f64]) -> [RecoveredSample; 2] {
    let opposite = signed.iter().map(|x| -x).collect();
    [
        RecoveredSample { sample: signed.to_vec(), label: 1.0 },
        RecoveredSample { sample: opposite, label: -1.0 },
    ]
}

/// The intercept as the aggregator sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intercepts {
    /// The public intercept.
    pub before: f64,
    /// The intercept that the user sends.
    pub after: f64,
    /// The public ratio of its step to that of a weight whose feature is 1.
    pub rate: f64,
}

impl Intercepts {
    /// Returns the derivative of the loss with respect to the intercept.
    pub(super) fn gradient(&self, size: f64) -> f64 {
        (self.before - self.after) / (size * self.rate)
    }
}

/// Recovers the sample and its label from a step with an intercept, under any loss. Both gradients contain the same
/// factor, once times the sample and once times 1. Returns `None` if the step only shrank the weights.
pub fn with_intercept(step: &SeenStep<'_>, intercepts: &Intercepts) -> Option<RecoveredSample> {
    let slope = intercepts.gradient(step.size);
    if slope == 0.0 {
        return None;
    }
    let sample = step.gradient()?.iter().map(|g| g / slope).collect();
    Some(RecoveredSample { sample, label: -slope.signum() })
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(super) fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// Returns the distance of a guess from the truth, relative to the length of the truth.
pub(super) fn relative_error(guess: &[f64], truth: &[f64]) -> f64 {
    let difference: f64 = guess.iter().zip(truth).map(|(g, t)| (g - t) * (g - t)).sum();
    difference.sqrt() / norm(truth).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: [f64; 3] = [0.5, -1.0, 0.25];
    const SAMPLE: [f64; 3] = [2.0, 0.0, -3.0];

    /// Computes a step by hand: `w (1 - size strength) - size slope x`.
    fn after(slope: f64, size: f64, strength: f64) -> Vec<f64> {
        BEFORE.iter().zip(SAMPLE).map(|(w, x)| w * (1.0 - size * strength) - size * slope * x).collect()
    }

    #[test]
    fn hinge_recovers_only_samples_that_violate_the_margin() {
        for label in [1.0, -1.0] {
            let after = after(-label, 0.1, 0.01);
            let step = SeenStep { before: &BEFORE, after: &after, size: 0.1, strength: 0.01 };
            let signed = hinge(&step).unwrap();
            let [positive, negative] = labelled(&signed);
            let right = if label > 0.0 { positive } else { negative };
            assert_eq!(right.label, label);
            assert!(relative_error(&right.sample, &SAMPLE) < 1e-13);
        }
        let after = after(0.0, 0.1, 0.01);
        let step = SeenStep { before: &BEFORE, after: &after, size: 0.1, strength: 0.01 };
        assert_eq!(hinge(&step), None);
    }

    #[test]
    fn with_intercept_needs_no_step_size_without_l2() {
        for (label, g) in [(1.0, 1.0), (-1.0, 1.0), (1.0, 0.03), (-1.0, 1e-6)] {
            let (size, rate) = (0.1, 3.0);
            let after = after(-label * g, size, 0.0);
            let seen = Intercepts { before: 0.7, after: 0.7 + size * rate * label * g, rate };
            // the guess of the size is off by a factor of 20
            let step = SeenStep { before: &BEFORE, after: &after, size: 2.0, strength: 0.0 };
            let found = with_intercept(&step, &seen).unwrap();
            assert_eq!(found.label, label);
            assert!(relative_error(&found.sample, &SAMPLE) < 1e-8, "{found:?}");
        }
        let still = Intercepts { before: 0.7, after: 0.7, rate: 1.0 };
        let step = SeenStep { before: &BEFORE, after: &BEFORE, size: 1.0, strength: 0.0 };
        assert_eq!(with_intercept(&step, &still), None);
    }
}
