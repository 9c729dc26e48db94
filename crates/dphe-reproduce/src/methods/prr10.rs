//! PRR10: users train alone, and the mean of their classifiers is released once with Laplace noise (Pathak, Rane, Raj:
//! Multiparty differential privacy via aggregation of locally trained classifiers, NIPS 2010).
//!
//! The scale of the noise is the one that the user with the fewest samples needs. Nobody may learn which user that is,
//! so the noise is selected under encryption: [`protocol`].
//!
//! If samples are not longer than 1, a change of one sample moves the minimiser by at most `2 / (n strength)` in
//! Euclidean norm. Independent Laplace noise on every weight would need a bound in the L1 norm. Therefore this is a
//! baseline for accuracy and not a mechanism to rely on. Intercepts get the same noise, although the proof does not
//! cover them.

pub mod protocol;

use std::num::NonZeroUsize;

use dphe_learn::{Seed, Weights};

use super::logistic::Logistic;
use super::noise::Noise;
use super::noisy::{Budget, NoisyScenario, Privacy};
use crate::Error;

/// The users of a scenario, prepared for any strength.
#[derive(Debug)]
pub struct Prr10<'a> {
    scenario: &'a NoisyScenario,
    users: Vec<Logistic>,
}

impl<'a> Prr10<'a> {
    /// Prepares the users' samples.
    ///
    /// # Errors
    /// Returns no error for a valid scenario.
    pub fn new(scenario: &'a NoisyScenario, threads: NonZeroUsize) -> Result<Self, Error> {
        let users = scenario.users.iter().map(|data| Logistic::new(data, threads));
        Ok(Self { scenario, users: users.collect::<Result<_, _>>()? })
    }

    /// Returns the mean of the users' minimisers, before noise is added.
    ///
    /// # Errors
    /// Returns an error if a number overflows.
    pub fn mean(&self, strength: f64) -> Result<Weights, Error> {
        let (mut sum, mut intercepts): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
        for user in &self.users {
            let solved = user.solve(strength)?.weights;
            for (sum, part) in [(&mut sum, solved.flat()), (&mut intercepts, solved.intercepts())] {
                sum.resize(part.len(), 0.0);
                sum.iter_mut().zip(part).for_each(|(sum, w)| *sum += w);
            }
        }
        sum.iter_mut().chain(&mut intercepts).for_each(|w| *w /= self.users.len() as f64);
        Ok(Weights::new(self.scenario.initial.features().width(), sum, intercepts)?)
    }

    /// Returns the mean with noise.
    ///
    /// # Errors
    /// Returns an error if a number overflows.
    pub fn release(
        &self,
        mean: &Weights,
        strength: f64,
        privacy: Privacy,
        seed: &Seed,
    ) -> Result<Weights, Error> {
        let scale = noise_scale(self.scenario.fewest(), privacy.epsilon, strength);
        let mut noise = Noise::new(&seed.derive("output noise", 0));
        let mut noisy = |numbers: &[f64]| numbers.iter().map(|w| w + noise.laplace(scale)).collect();
        let flat = noisy(mean.flat());
        Ok(Weights::new(mean.features(), flat, noisy(mean.intercepts()))?)
    }
}

/// Returns the scale of the Laplace noise, `2 / (n epsilon strength)`, where n is the smallest number of samples that a
/// user has. Jayaraman et al. (NeurIPS 2018) divide it by the number of users, because only the mean is released.
/// PRR10 does not.
pub fn noise_scale(fewest: usize, epsilon: f64, strength: f64) -> f64 {
    2.0 / (fewest as f64 * epsilon * strength)
}

/// Returns the budget that all classifiers together spend.
pub fn budget(privacy: Privacy, classes: usize) -> Budget {
    Budget { epsilon: privacy.epsilon, delta: 0.0, releases: classes }
}
