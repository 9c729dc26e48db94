//! The methods with noise: their data, their privacy parameters, and the choice of the strength of the penalty.

use std::num::NonZeroUsize;

use dphe_federate::Scenario;
use dphe_learn::{Dataset, Features, Seed, Weights};

use super::join;
use super::prr10::Prr10;
use super::ra12::Ra12;
use crate::{Error, Measurement};

/// A method with noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoisyMethod {
    /// Output perturbation: [`Prr10`].
    Prr10,
    /// Gradient perturbation: [`Ra12`].
    Ra12,
}

/// A way to measure a classifier on some samples.
pub(crate) type JudgeOn<'a> = &'a dyn Fn(&Weights, &Dataset) -> Result<Measurement, Error>;

/// Runs a method with every strength and measures the classifier that is best on the public samples. Classifiers are
/// compared by the measurement `main`. If `reports_strengths`, the result also has the measurements of every strength,
/// and of classifiers without noise.
pub(crate) fn measure(
    method: NoisyMethod,
    data: &NoisyScenario,
    (main, judge): (&str, JudgeOn<'_>),
    reports_strengths: bool,
    seed: &Seed,
    threads: NonZeroUsize,
) -> Result<Measurement, Error> {
    let score = |weights: &Weights, on: &Dataset| -> Result<f64, Error> {
        Ok(judge(weights, on)?.get(main).copied().unwrap_or(0.0))
    };
    let choose = |released: &[Weights]| -> Result<(usize, Vec<f64>), Error> {
        let public = released.iter().map(|w| score(w, &data.initial)).collect::<Result<Vec<f64>, Error>>()?;
        Ok((best(&public).unwrap_or(0), public))
    };
    let (mut released, mut quiet) = (Vec::new(), Vec::new());
    match method {
        NoisyMethod::Prr10 => {
            let prr10 = Prr10::new(data, threads)?;
            for strength in STRENGTHS {
                let mean = prr10.mean(strength)?;
                released.push(prr10.release(&mean, strength, Privacy::PAPER, seed)?);
                quiet.push((strength, mean));
            }
        }
        NoisyMethod::Ra12 => {
            let ra12 = Ra12::new(data, threads)?;
            for strength in STRENGTHS {
                released.push(ra12.run(strength, Ra12::ITERATIONS, Some(Privacy::PAPER), seed)?);
            }
            if reports_strengths {
                let chosen = STRENGTHS[choose(&released)?.0];
                quiet.push((chosen, ra12.run(chosen, Ra12::ITERATIONS, None, seed)?));
            }
        }
    }
    let (chosen, public) = choose(&released)?;
    let mut measurement = judge(&released[chosen], &data.held_out)?;
    measurement.insert("strength".to_owned(), STRENGTHS[chosen]);
    if reports_strengths {
        for ((strength, weights), public) in STRENGTHS.iter().zip(&released).zip(public) {
            measurement.insert(format!("{main} at {strength}"), score(weights, &data.held_out)?);
            measurement.insert(format!("public at {strength}"), public);
        }
        for (strength, weights) in &quiet {
            measurement.insert(format!("quiet at {strength}"), score(weights, &data.held_out)?);
        }
    }
    Ok(measurement)
}

/// The length of samples for the methods with noise. Their proofs of privacy require samples of length at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Standardised samples, whose length is about the square root of their number of features. The published
    /// accuracies match these, but the proofs of privacy do not apply.
    None,
    /// Samples that are scaled to length 1, as the proofs require.
    Unit,
}

impl Norm {
    /// Both norms.
    pub const ALL: [Self; 2] = [Self::None, Self::Unit];

    /// Returns a short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "standardised",
            Self::Unit => "unit norm",
        }
    }
}

/// The data of the methods with noise. As in the paper, every user has the public samples besides its own.
#[derive(Clone, Debug)]
pub struct NoisyScenario {
    /// The public samples, which decide the strength of the penalty.
    pub initial: Dataset,
    /// Each user's samples, the public ones first.
    pub users: Vec<Dataset>,
    /// The samples that are not used for training.
    pub held_out: Dataset,
}

impl NoisyScenario {
    /// Prepares the data of a scenario. Samples with attributes get a feature that is always 1, because RA12 has no
    /// intercepts and most attributes are rarer than their absence.
    ///
    /// # Errors
    /// Returns no error for a valid scenario.
    pub fn new(scenario: &Scenario, norm: Norm) -> Result<Self, Error> {
        let constant = scenario.initial.labels().as_classes("").is_err();
        let prepare = |data: &Dataset| prepare(data, norm, constant);
        let users = scenario.users.iter().map(|own| prepare(&join(&scenario.initial, own)?));
        Ok(Self {
            initial: prepare(&scenario.initial)?,
            users: users.collect::<Result<_, _>>()?,
            held_out: prepare(&scenario.held_out)?,
        })
    }

    /// Returns the smallest number of samples that a user has.
    pub fn fewest(&self) -> usize {
        self.users.iter().map(Dataset::len).min().unwrap_or(0)
    }
}

fn prepare(data: &Dataset, norm: Norm, constant: bool) -> Result<Dataset, Error> {
    let features = data.features();
    let width = features.width() + usize::from(constant);
    let mut values = Vec::with_capacity(features.len() * width);
    for row in features.rows() {
        let start = values.len();
        values.extend_from_slice(row);
        if constant {
            values.push(1.0);
        }
        if norm == Norm::Unit {
            let row = &mut values[start..];
            let length = row.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
            if length > 0.0 {
                row.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
            }
        }
    }
    Ok(data.with_features(Features::new(width, values)?)?)
}

/// The strengths of the penalty that are tried. The cost of noise depends mostly on this number.
pub const STRENGTHS: [f64; 5] = [1e-3, 1e-2, 0.1, 1.0, 10.0];

/// Returns the index of the largest score on the public samples; of equal scores, the one of the weakest penalty.
pub fn best(public: &[f64]) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (index, score) in public.iter().enumerate() {
        if best.is_none_or(|best| *score > public[best]) {
            best = Some(index);
        }
    }
    best
}

/// The privacy budget that all releases together spend, by simple composition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// The epsilon of a single release.
    pub epsilon: f64,
    /// The delta of a single release.
    pub delta: f64,
    /// The number of releases: classifiers, times iterations if each of them adds noise.
    pub releases: usize,
}

impl Budget {
    /// Returns the sum of all epsilons.
    pub fn total_epsilon(&self) -> f64 {
        self.epsilon * self.releases as f64
    }
}

/// The privacy parameters of a method with noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Privacy {
    /// The epsilon of a single classifier.
    pub epsilon: f64,
    /// The delta of a single classifier.
    pub delta: f64,
}

impl Privacy {
    /// The paper's parameters.
    pub const PAPER: Self = Self { epsilon: 0.2, delta: 0.05 };
}
