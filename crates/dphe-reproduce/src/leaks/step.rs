//! One step of stochastic gradient descent, as whoever receives the new weights sees it.

/// What is known of a step: the weights before and after, and guesses of two numbers that are often defaults.
#[derive(Clone, Copy)]
pub struct SeenStep<'a> {
    /// The public weights.
    pub before: &'a [f64],
    /// What the user sends.
    pub after: &'a [f64],
    /// The size of the step.
    pub size: f64,
    /// The strength of L2: the step shrinks weights by `1 - size * strength`.
    pub strength: f64,
}

/// Smaller than this, compared with what it is the difference of, a gradient is rounding.
const ROUNDING: f64 = 1e-11;

impl SeenStep<'_> {
    /// The gradient of the loss, the supplement's `Theta`; none if the step only shrank the weights.
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

/// The sample times its label, from a step under hinge loss. None if the sample's margin was at least 1: that is all
/// that is said about it then.
pub fn hinge(step: &SeenStep<'_>) -> Option<Vec<f64>> {
    let mut signed = step.gradient()?;
    signed.iter_mut().for_each(|x| *x = -*x);
    Some(signed)
}

/// A sample and its label, +1 or -1.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovered {
    /// The features.
    pub sample: Vec<f64>,
    /// The label.
    pub label: f64,
}

/// The two samples that `y x` can be: the sample of label +1, or its opposite of label -1. Real features have a sign
/// that looks right; without an intercept that is what is left to guess.
pub fn labelled(signed: &[f64]) -> [Recovered; 2] {
    let opposite = signed.iter().map(|x| -x).collect();
    [Recovered { sample: signed.to_vec(), label: 1.0 }, Recovered { sample: opposite, label: -1.0 }]
}

/// What is known of the intercept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intercepts {
    /// The public one.
    pub before: f64,
    /// What the user sends.
    pub after: f64,
    /// How much more it moves than a weight whose feature is 1; public.
    pub rate: f64,
}

impl Intercepts {
    /// The gradient of the loss by the intercept.
    pub(super) fn gradient(&self, size: f64) -> f64 {
        (self.before - self.after) / (size * self.rate)
    }
}

/// With an intercept nothing is left to guess, whatever the loss: both gradients are the same number times the sample,
/// and times 1. None if the step only shrank the weights.
pub fn with_intercept(step: &SeenStep<'_>, intercepts: &Intercepts) -> Option<Recovered> {
    let slope = intercepts.gradient(step.size);
    if slope == 0.0 {
        return None;
    }
    let sample = step.gradient()?.iter().map(|g| g / slope).collect();
    Some(Recovered { sample, label: -slope.signum() })
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(super) fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// How far a guess is from the truth, compared with the truth.
pub(super) fn relative_error(guess: &[f64], truth: &[f64]) -> f64 {
    let difference: f64 = guess.iter().zip(truth).map(|(g, t)| (g - t) * (g - t)).sum();
    difference.sqrt() / norm(truth).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: [f64; 3] = [0.5, -1.0, 0.25];
    const SAMPLE: [f64; 3] = [2.0, 0.0, -3.0];

    /// A step by hand: `w (1 - size strength) - size slope x`.
    fn after(slope: f64, size: f64, strength: f64) -> Vec<f64> {
        BEFORE.iter().zip(SAMPLE).map(|(w, x)| w * (1.0 - size * strength) - size * slope * x).collect()
    }

    #[test]
    fn a_violating_sample_is_read_off_and_any_other_is_not() {
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
    fn an_intercept_leaves_no_choice_and_needs_no_guess_without_l2() {
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
