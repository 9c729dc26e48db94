//! RA12: gradient descent on an objective with Gaussian noise, with Laplace noise in each step (Rajkumar, Agarwal: A
//! differentially private stochastic gradient descent algorithm for multiparty classification, AISTATS 2012),
//! reconstructed from later papers that describe it:
//!
//! ```text
//! G_u = mean_i l'(y_i w.x_i) y_i x_i + (strength + extra) w + g_u / n_u + xi_u
//! w  <- w - rate mean_u G_u
//! ```
//!
//! There are no intercepts. With steps that are large enough for twenty iterations, they cost two points on Caltech101.
//!
//! `g_u` is drawn once, `xi_u` in each iteration. The Laplace noise spends epsilon in every iteration, as Jayaraman et
//! al. (NeurIPS 2018) point out.

use std::num::NonZeroUsize;

use dphe_learn::{Features, Labels, Seed, Weights};

use super::noise::Noise;
use super::noisy::{Budget, NoisyScenario, Privacy};
use super::product::{largest_eigenvalue, times, transposed};
use crate::Error;

/// Half the width of the rounded corner of the hinge.
const CORNER: f64 = 0.5;
/// The largest second derivative of the loss.
const CURVATURE: f64 = 1.0 / (2.0 * CORNER);

/// The users of a scenario, prepared for any strength.
#[derive(Debug)]
pub struct Ra12<'a> {
    scenario: &'a NoisyScenario,
    columns: Vec<Features>,
    /// The largest eigenvalue of the first user's samples, which bounds the step size.
    eigenvalue: f64,
    threads: NonZeroUsize,
}

impl<'a> Ra12<'a> {
    /// The default number of iterations.
    pub const ITERATIONS: usize = 20;

    /// Prepares the users' samples.
    ///
    /// # Errors
    /// Returns no error for a valid scenario.
    pub fn new(scenario: &'a NoisyScenario, threads: NonZeroUsize) -> Result<Self, Error> {
        let columns = scenario.users.iter().map(|data| transposed(data.features()));
        let first = scenario.users.first().map_or(0.0, |data| largest_eigenvalue(data.features(), 15));
        Ok(Self { scenario, columns: columns.collect::<Result<_, _>>()?, eigenvalue: first, threads })
    }

    /// Trains a classifier. Without `privacy` there is no noise.
    ///
    /// # Errors
    /// Returns an error if a number overflows.
    pub fn run(
        &self,
        strength: f64,
        iterations: usize,
        privacy: Option<Privacy>,
        seed: &Seed,
    ) -> Result<Weights, Error> {
        let classes = self.scenario.initial.labels().class_count();
        let width = self.scenario.initial.features().width();
        let rate = 1.0 / (CURVATURE * self.eigenvalue + strength);
        let users = self.scenario.users.len() as f64;
        let mut flat = vec![0.0; width * classes];
        // the sum of the noise that users draw once, each divided by its number of samples
        let mut fixed = vec![0.0; flat.len()];
        let mut streams = Vec::new();
        for (user, data) in self.scenario.users.iter().enumerate() {
            let mut noise = Noise::new(&seed.derive("noise of a user", user as u64));
            if let Some(privacy) = privacy {
                let deviation = sigma(effective(privacy, data.len(), strength).0, privacy.delta);
                for pair in fixed.chunks_mut(2) {
                    let (a, b) = noise.gaussians(deviation / data.len() as f64);
                    pair.iter_mut().zip([a, b]).for_each(|(sum, v)| *sum += v);
                }
            }
            streams.push(noise);
        }
        for _ in 0..iterations {
            let mut sum = fixed.clone();
            for ((data, columns), noise) in self.scenario.users.iter().zip(&self.columns).zip(&mut streams) {
                let scores = times(data.features(), classes, flat.clone(), self.threads)?;
                let residuals = residuals(&scores, data.labels());
                let slopes = times(columns, classes, residuals, self.threads)?;
                let pull =
                    strength + privacy.map_or(0.0, |privacy| effective(privacy, data.len(), strength).1);
                sum.iter_mut().zip(&slopes).zip(&flat).for_each(|((sum, slope), w)| *sum += slope + pull * w);
                if let Some(privacy) = privacy {
                    let scale = 2.0 / (data.len() as f64 * privacy.epsilon);
                    sum.iter_mut().for_each(|sum| *sum += noise.laplace(scale));
                }
            }
            flat.iter_mut().zip(&sum).for_each(|(w, sum)| *w -= rate * sum / users);
        }
        Ok(Weights::new(width, flat, vec![0.0; classes])?)
    }

    /// Returns the gradient of the users' mean objective without noise, which is zero at the optimum.
    ///
    /// # Errors
    /// Returns an error if the weights have another shape.
    pub fn slope(&self, weights: &Weights, strength: f64) -> Result<Vec<f64>, Error> {
        let classes = weights.classes();
        let mut sum = vec![0.0; weights.dimension()];
        for (data, columns) in self.scenario.users.iter().zip(&self.columns) {
            let scores = times(data.features(), classes, weights.flat().to_vec(), self.threads)?;
            let slopes = times(columns, classes, residuals(&scores, data.labels()), self.threads)?;
            let users = self.scenario.users.len() as f64;
            let terms = slopes.iter().zip(weights.flat()).map(|(slope, w)| (slope + strength * w) / users);
            sum.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        }
        Ok(sum)
    }
}

/// Returns the derivative of the rounded hinge loss at a margin.
fn loss_slope(margin: f64) -> f64 {
    if margin > 1.0 + CORNER {
        0.0
    } else if margin < 1.0 - CORNER {
        -1.0
    } else {
        (margin - 1.0 - CORNER) / (2.0 * CORNER)
    }
}

/// Returns `l'(y score) y / n` for every sample and class.
fn residuals(scores: &[f64], labels: &Labels) -> Vec<f64> {
    let (classes, samples) = (labels.class_count(), labels.len() as f64);
    let residual = |(i, score): (usize, &f64)| {
        let y = if labels.is_positive(i / classes, i % classes) { 1.0 } else { -1.0 };
        loss_slope(y * score) * y / samples
    };
    scores.iter().enumerate().map(residual).collect()
}

/// Returns the epsilon that remains for the Gaussian noise, and the strength that must be added (Chaudhuri,
/// Monteleoni, Sarwate, JMLR 2011).
fn effective(privacy: Privacy, samples: usize, strength: f64) -> (f64, f64) {
    let samples = samples as f64;
    let left = privacy.epsilon - 2.0 * (1.0 + CURVATURE / (samples * strength)).ln();
    if left > 0.0 {
        return (left, 0.0);
    }
    let extra = CURVATURE / (samples * ((privacy.epsilon / 4.0).exp() - 1.0)) - strength;
    (privacy.epsilon / 2.0, extra.max(0.0))
}

/// Returns the standard deviation of the Gaussian noise.
pub fn sigma(epsilon: f64, delta: f64) -> f64 {
    2.0 * (2.0 * (1.25 / delta).ln()).sqrt() / epsilon
}

/// Returns the budget that all classifiers and iterations together spend.
pub fn budget(privacy: Privacy, classes: usize, iterations: usize) -> Budget {
    Budget { epsilon: privacy.epsilon, delta: privacy.delta, releases: classes * iterations }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_noise_match_their_definitions() {
        assert_eq!(loss_slope(0.0), -1.0);
        assert_eq!(loss_slope(0.5), -1.0);
        assert_eq!(loss_slope(1.0), -0.5);
        assert_eq!(loss_slope(1.5), 0.0);
        assert!((sigma(0.1, 0.05) - 50.745).abs() < 0.001);
        assert!((sigma(0.2, 0.05) - 25.373).abs() < 0.001);
        // with 848 samples, enough of epsilon remains at strength 0.1, but not at 0.001
        let (left, extra) = effective(Privacy::PAPER, 848, 0.1);
        assert!((left - (0.2 - 2.0 * f64::ln(1.0 + 1.0 / 84.8))).abs() < 1e-12 && extra == 0.0);
        let (left, extra) = effective(Privacy::PAPER, 848, 1e-3);
        assert_eq!(left, 0.1);
        assert!((extra - (1.0 / (848.0 * (f64::exp(0.05) - 1.0)) - 1e-3)).abs() < 1e-12);
        assert_eq!(budget(Privacy::PAPER, 101, 20).releases, 2020);
    }
}
