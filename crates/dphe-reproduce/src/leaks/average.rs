//! Full-batch gradient descent leaks the average of the misclassified samples.

use dphe_learn::{Features, Real};

use super::step::{Intercepts, SeenStep, dot, norm, with_intercept};

/// The weighted mean that a step over all of a user's samples leaks, if all have the same label.
#[derive(Clone, Debug, PartialEq)]
pub struct LeakedAverage {
    /// The mean of the samples, weighted by the slope of the loss. Under hinge loss it is the mean of the samples that
    /// violate the margin. Under logistic loss, misclassified samples weigh more; at zero weights all weigh the same.
    pub mean: Vec<f64>,
    /// The mean weight of a sample. Under hinge loss it is the fraction of samples that violate the margin.
    pub weight: f64,
    /// The label of all samples, +1 or -1.
    pub label: f64,
}

/// Computes the average that a step leaks. Returns `None` if the step only shrank the weights. If a user has samples of
/// both labels, the result is a mean of signed samples, which reveals less.
pub fn average(step: &SeenStep<'_>, intercepts: &Intercepts) -> Option<LeakedAverage> {
    let found = with_intercept(step, intercepts)?;
    let weight = intercepts.gradient(step.size).abs();
    Some(LeakedAverage { mean: found.sample, weight, label: found.label })
}

/// Ranks the nearest true sample among all samples by the angle to the guess. Rank 1 means that the guess identifies a
/// true sample. Returns `None` without true samples.
pub fn rank_by_cosine<T: Real>(guess: &[f64], samples: &Features<T>, truth: &[usize]) -> Option<usize> {
    let cosines: Vec<f64> = samples
        .rows()
        .map(|row| {
            let row: Vec<f64> = row.iter().map(|x| x.to_f64()).collect();
            dot(guess, &row) / (norm(guess) * norm(&row)).max(f64::MIN_POSITIVE)
        })
        .collect();
    let best = truth.iter().filter_map(|&i| cosines.get(i)).copied().max_by(f64::total_cmp)?;
    Some(1 + cosines.iter().filter(|&&cosine| cosine > best).count())
}

#[cfg(test)]
mod tests {
    use super::super::step::relative_error;
    use super::*;

    #[test]
    fn average_recovers_mean_and_fraction_of_margin_violators() {
        // of three negative samples, the first two violate the margin: -(w.x + b) < 1
        let (before, b) = ([1.0, 0.0], 0.5);
        let samples = [[1.0, 2.0], [-1.0, 4.0], [-3.0, 7.0]];
        let margin = |x: &[f64; 2]| -(dot(&before, x) + b);
        assert_eq!(samples.map(|x| margin(&x) < 1.0), [true, true, false]);
        let (size, strength, rate) = (0.2, 0.01, 1.0);
        // the mean gradient is the sum of the violators divided by 3
        let gradient = [0.0 / 3.0, 6.0 / 3.0];
        let after: Vec<f64> =
            before.iter().zip(gradient).map(|(w, g)| w * (1.0 - size * strength) - size * g).collect();
        let step = SeenStep { before: &before, after: &after, size, strength };
        let seen = Intercepts { before: b, after: b - size * 2.0 / 3.0, rate };
        let leaked = average(&step, &seen).unwrap();
        assert!(relative_error(&leaked.mean, &[0.0, 3.0]) < 1e-12, "{leaked:?}");
        assert!((leaked.weight * 3.0 - 2.0).abs() < 1e-12);
        assert_eq!(leaked.label, -1.0);
    }

    #[test]
    fn rank_by_cosine_counts_nearer_samples() {
        let samples = Features::new(2, vec![1.0f64, 0.0, 1.0, 1.0, 0.0, 5.0, -1.0, 0.0]).unwrap();
        assert_eq!(rank_by_cosine(&[2.0, 0.1], &samples, &[0]), Some(1));
        assert_eq!(rank_by_cosine(&[2.0, 0.1], &samples, &[2, 1]), Some(2));
        assert_eq!(rank_by_cosine(&[2.0, 0.1], &samples, &[3]), Some(4));
        assert_eq!(rank_by_cosine(&[2.0, 0.1], &samples, &[]), None);
    }
}
