//! Elastic net, as this project's learner applies L1. Weights that become zero hide their features. All other weights
//! leak them.

use super::step::SeenStep;

/// Recovers the features that a step with L1 leaks. A feature is `None` if its weight became zero.
///
/// `threshold` is the amount that L1 subtracts from a weight in the step: size times strength times the fraction of
/// L1. `pull` is the factor of the sample in the step: label times size times slope of the loss. It follows from the
/// intercept. Under hinge loss without an intercept it is the size, up to the sign. `step.strength` is the strength of
/// L2 only.
pub fn elastic_net(step: &SeenStep<'_>, threshold: f64, pull: f64) -> Vec<Option<f64>> {
    let shrink = 1.0 - step.size * step.strength;
    step.before
        .iter()
        .zip(step.after)
        .map(|(w, &after)| {
            let leaks = after != 0.0 && pull != 0.0;
            leaks.then(|| (after + threshold.copysign(after) - shrink * w) / pull)
        })
        .collect()
}

/// Returns the fraction of a sample's squared length that lies in the recovered features.
pub fn share_of_norm(sample: &[f64], recovered: &[Option<f64>]) -> f64 {
    let all: f64 = sample.iter().map(|x| x * x).sum();
    let known: f64 = sample.iter().zip(recovered).filter(|(_, r)| r.is_some()).map(|(x, _)| x * x).sum();
    if all > 0.0 { known / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_leak_unless_their_weights_become_zero() {
        let before = [0.0, 0.0, 1.0, -0.5];
        let sample = [3.0, 0.1, 0.0, -2.0];
        let (size, strength, threshold, pull) = (0.1, 0.5, 0.02, -0.1);
        let after: Vec<f64> = before
            .iter()
            .zip(sample)
            .map(|(w, x): (&f64, f64)| {
                let moved = w * (1.0 - size * strength) + pull * x;
                (moved.abs() - threshold).max(0.0).copysign(moved)
            })
            .collect();
        let step = SeenStep { before: &before, after: &after, size, strength };
        let found = elastic_net(&step, threshold, pull);
        assert_eq!(found[1], None);
        for i in [0, 2, 3] {
            assert!((found[i].unwrap() - sample[i]).abs() < 1e-12, "{i} {found:?}");
        }
        assert!((share_of_norm(&sample, &found) - 13.0 / 13.01).abs() < 1e-12);
        assert_eq!(elastic_net(&step, threshold, 0.0), [None; 4]);
        assert_eq!(share_of_norm(&[0.0], &[None]), 0.0);
    }
}
