//! Logistic loss: the gradient reveals a sample except its length, and at most two lengths are possible.
//!
//! `Theta = -X / (1 + e^s)` with `X = y x` and the margin `s = w.X`. With `a = w.Theta` the margin solves
//! `h(s) = s + a (1 + e^s) = 0`; then `X = -(1 + e^s) Theta`.

use super::step::{SeenStep, dot, norm};

/// `W(1/e)` with Lambert's function W, the largest `-a` that a sample can have.
const MOST: f64 = 0.278_464_542_761_073_8;
/// `1 + W(1/e)`, the point where the two roots meet.
const MEET: f64 = 1.0 + MOST;
/// The relative rounding error by which `-a` may exceed [`MOST`].
const SLACK: f64 = 1e-9;

/// A sample that explains the step.
#[derive(Clone, Debug, PartialEq)]
pub struct LogisticCandidate {
    /// Its margin under the public weights.
    pub margin: f64,
    /// The sample times its label.
    pub signed: Vec<f64>,
}

/// What a step under logistic loss reveals.
#[derive(Clone, Debug, PartialEq)]
pub enum LogisticLeak {
    /// The step only shrank the weights.
    Nothing,
    /// No sample explains this step, so the guess of its size or strength is wrong.
    Inconsistent,
    /// One candidate if the public weights misclassify the sample, otherwise two that differ only in length.
    Samples(Vec<LogisticCandidate>),
}

/// Computes the samples that explain a step under logistic loss without an intercept.
pub fn logistic(step: &SeenStep<'_>) -> LogisticLeak {
    let Some(gradient) = step.gradient() else { return LogisticLeak::Nothing };
    let Some(margins) = margins(dot(step.before, &gradient)) else { return LogisticLeak::Inconsistent };
    let candidate = |margin: f64| {
        let length = -(1.0 + margin.exp());
        LogisticCandidate { margin, signed: gradient.iter().map(|g| length * g).collect() }
    };
    LogisticLeak::Samples(margins.into_iter().map(candidate).collect())
}

/// Returns the candidate whose length is nearest to the expected one. Standardised samples have about the square root
/// of their number of features.
pub fn nearest_norm(candidates: &[LogisticCandidate], expected: f64) -> Option<&LogisticCandidate> {
    let miss = |candidate: &LogisticCandidate| (norm(&candidate.signed) / expected).ln().abs();
    candidates.iter().min_by(|a, b| miss(a).total_cmp(&miss(b)))
}

/// Returns the roots of `s + a (1 + e^s)` in ascending order, or `None` if there is no root or `a` is not finite.
pub fn margins(a: f64) -> Option<Vec<f64>> {
    let h = |s: f64| s + a * (1.0 + s.exp());
    let slope = |s: f64| 1.0 + a * s.exp();
    let c = -a;
    if !a.is_finite() || c > MOST * (1.0 + SLACK) {
        return None;
    }
    if a == 0.0 {
        return Some(vec![0.0]);
    }
    if a > 0.0 {
        return Some(vec![root(-2.0 * a, -a, h, slope)]);
    }
    if h(MEET) <= 0.0 {
        return Some(vec![MEET]);
    }
    let mut beyond = MEET + 1.0;
    while h(beyond) > 0.0 {
        beyond *= 2.0;
    }
    Some(vec![root(c, MEET, h, slope), root(beyond, MEET, h, slope)])
}

/// Finds a root by Newton's method between a point with `h <= 0` and one with `h >= 0`. A step that leaves the bracket
/// is replaced by bisection.
fn root(mut below: f64, mut above: f64, h: impl Fn(f64) -> f64, slope: impl Fn(f64) -> f64) -> f64 {
    let mut s = (below + above) / 2.0;
    // bisection alone needs about 1,100 steps
    for _ in 0..2_000 {
        let value = h(s);
        if value == 0.0 {
            return s;
        }
        if value < 0.0 {
            below = s;
        } else {
            above = s;
        }
        let (low, high) = (below.min(above), below.max(above));
        let newton = s - value / slope(s);
        let next = if newton > low && newton < high { newton } else { (low + high) / 2.0 };
        if next == s {
            return s;
        }
        let close = (next - s).abs() <= f64::EPSILON * s.abs();
        s = next;
        if close {
            return s;
        }
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h(a: f64, s: f64) -> f64 {
        s + a * (1.0 + s.exp())
    }

    /// The expected roots were computed with Lambert's function: `s = -a - W_k(a e^-a)`.
    #[test]
    fn margins_match_lambert_w() {
        for (a, expected) in [
            (0.5, &[-0.738_835_031_131_607_9][..]),
            (2.0, &[-2.217_715_105_757_090_3]),
            (-0.1, &[0.225_265_528_810_478_9, 3.537_259_626_789_641_7]),
            (-0.25, &[0.814_526_618_196_084_6, 1.866_651_227_121_356_7]),
            (0.0, &[0.0]),
        ] {
            let found = margins(a).unwrap();
            assert_eq!(found.len(), expected.len(), "{a}");
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-14, "{a}: {found} {expected}");
            }
        }
    }

    #[test]
    fn margins_are_roots_for_all_magnitudes() {
        for exponent in -60..=60 {
            let a = 10f64.powf(f64::from(exponent) / 10.0);
            let [s] = margins(a).unwrap()[..] else { panic!("{a}") };
            assert!((-2.0 * a..=-a).contains(&s) && h(a, s).abs() <= 1e-12 * a.max(1.0), "{a} {s}");
            let Some(found) = margins(-a) else {
                assert!(a > MOST);
                continue;
            };
            assert_eq!(found.len(), 2, "{a}");
            assert!(found[0] <= MEET && MEET <= found[1]);
            found.iter().for_each(|&s| assert!(h(-a, s).abs() < 1e-12, "{a} {s} {}", h(-a, s)));
        }
        // the roots of a tiny `a` stay finite
        let far = margins(-1e-300).unwrap();
        assert!(far[1] > 690.0 && far[1] < 710.0, "{far:?}");
        assert!((far[0] - 2e-300).abs() < 1e-305, "{far:?}");
    }

    #[test]
    fn margins_near_zero_are_twice_the_product() {
        for a in [1e-3, 1e-6, 1e-12, -1e-3, -1e-6, -1e-12] {
            assert!((margins(a).unwrap()[0] + 2.0 * a).abs() < 4.0 * a * a, "{a}");
        }
    }

    #[test]
    fn margins_at_and_beyond_the_double_root() {
        for c in [MOST, MOST * (1.0 + 1e-10)] {
            for s in margins(-c).unwrap() {
                assert!((s - MEET).abs() < 1e-6, "{s}");
            }
        }
        assert_eq!(margins(-MOST * (1.0 + 1e-8)), None);
        assert_eq!(margins(-1.0), None);
        assert_eq!(margins(f64::NAN), None);
        assert_eq!(margins(f64::INFINITY), None);
    }

    #[test]
    fn the_sample_is_among_the_candidates() {
        use super::super::step::relative_error;
        use rand_core::{Rng as _, SeedableRng as _};
        let mut rng = chacha20::ChaCha20Rng::seed_from_u64(1);
        let (size, strength) = (0.05, 0.001);
        for width in [1usize, 5, 2048] {
            for number in 0..40 {
                let mut draw = |scale: f64| -> Vec<f64> {
                    (0..width).map(|_| scale * (f64::from(rng.next_u32()) / 2f64.powi(31) - 1.0)).collect()
                };
                let (before, signed) = (draw(3.0 / (width as f64).sqrt()), draw(1.0));
                let g = 1.0 / (1.0 + dot(&before, &signed).exp());
                let after: Vec<f64> = before
                    .iter()
                    .zip(&signed)
                    .map(|(w, x)| w * (1.0 - size * strength) + size * g * x)
                    .collect();
                let step = SeenStep { before: &before, after: &after, size, strength };
                let LogisticLeak::Samples(found) = logistic(&step) else { panic!("{width} {number}") };
                let best =
                    found.iter().map(|c| relative_error(&c.signed, &signed)).fold(f64::INFINITY, f64::min);
                assert!(best < 1e-10, "{width} {number}: {best}");
                assert!(nearest_norm(&found, norm(&signed)).is_some());
            }
        }
    }

    /// A wrong guess of the size is often noticed, because no sample explains the step.
    #[test]
    fn a_wrong_step_size_is_inconsistent() {
        let before = [2.0, 1.0];
        let signed = [0.6, 0.0784645];
        let g = 1.0 / (1.0 + dot(&before, &signed).exp());
        let after: Vec<f64> = before.iter().zip(&signed).map(|(w, x)| w + 0.1 * g * x).collect();
        let step = |size| SeenStep { before: &before, after: &after, size, strength: 0.0 };
        assert!(matches!(logistic(&step(0.1)), LogisticLeak::Samples(_)));
        assert_eq!(logistic(&step(0.05)), LogisticLeak::Inconsistent);
        let still = SeenStep { before: &before, after: &before, size: 0.1, strength: 0.0 };
        assert_eq!(logistic(&still), LogisticLeak::Nothing);
    }
}
