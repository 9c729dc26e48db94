//! PRR10: everybody learns alone, the mean of all classifiers is released once, with Laplace noise (Pathak, Rane, Raj:
//! Multiparty differential privacy via aggregation of locally trained classifiers, NIPS 2010).
//!
//! The noise is as large as the user with the fewest samples needs it. That user must not become known, so the noise
//! is chosen under encryption: [`protocol`].
//!
//! A change of one sample moves a minimiser by at most `2 / (n strength)`, if samples are not longer than 1. That is a
//! Euclidean bound; independent Laplace noise on every weight would need one on the sum of magnitudes. So this is a
//! baseline for accuracy, not a mechanism to rely on. Intercepts get the same noise, though nothing is proved of them.

pub mod protocol;

use dphe_learn::{Seed, Threads, Weights};

use super::logistic::Logistic;
use super::noise::Noise;
use super::{Budget, NoisyScenario, Privacy, Trial, accuracy};
use crate::Error;

/// The users of a scenario, ready for any strength.
#[derive(Debug)]
pub struct Prr10<'a> {
    scenario: &'a NoisyScenario,
    users: Vec<Logistic>,
    threads: Threads,
}

impl<'a> Prr10<'a> {
    /// Takes the users' samples.
    ///
    /// # Errors
    /// None for a scenario.
    pub fn new(scenario: &'a NoisyScenario, threads: Threads) -> Result<Self, Error> {
        let users = scenario.users.iter().map(|data| Logistic::new(data, threads));
        Ok(Self { scenario, users: users.collect::<Result<_, _>>()?, threads })
    }

    /// The mean of the users' minimisers: what would be released without noise.
    ///
    /// # Errors
    /// If numbers overflow.
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

    /// The mean with noise, and how good it is on the public samples.
    ///
    /// # Errors
    /// If numbers overflow.
    pub fn release(
        &self,
        mean: &Weights,
        strength: f64,
        privacy: Privacy,
        seed: &Seed,
    ) -> Result<Trial, Error> {
        let scale = noise_scale(self.scenario.fewest(), privacy.epsilon, strength);
        let mut noise = Noise::new(&seed.derive("output noise", 0));
        let mut noisy = |numbers: &[f64]| numbers.iter().map(|w| w + noise.laplace(scale)).collect();
        let flat = noisy(mean.flat());
        let weights = Weights::new(mean.features(), flat, noisy(mean.intercepts()))?;
        let initial = accuracy(&weights, &self.scenario.initial, self.threads)?;
        Ok(Trial { strength, weights, initial })
    }
}

/// The scale of the Laplace noise: `2 / (n epsilon strength)`, n being the fewest samples that a user has. Not divided
/// by the number of users, although only the mean is released; Jayaraman et al. (NeurIPS 2018) do that.
pub fn noise_scale(fewest: usize, epsilon: f64, strength: f64) -> f64 {
    2.0 / (fewest as f64 * epsilon * strength)
}

/// What all classifiers together spend.
pub fn budget(privacy: Privacy, classes: usize) -> Budget {
    Budget { epsilon: privacy.epsilon, delta: 0.0, releases: classes }
}
