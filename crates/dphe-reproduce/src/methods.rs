//! The methods that the paper compares, each from data dealt out to a classifier: what everybody could learn together
//! without secrets, two that add noise, and encrypted averages.

pub mod baseline;
pub mod clusters;
pub mod dphe;
pub mod logistic;
pub mod noise;
mod product;
pub mod prr10;
pub mod ra12;

use dphe_federate::Scenario;
use dphe_learn::metrics::{attribute_accuracy, mean_per_class_accuracy};
use dphe_learn::{Dataset, Features, Labels, Threads, Weights};

use crate::Error;

/// How long samples are for methods whose privacy is proved for samples of length at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// As they are, standardised: about the square root of the number of features. Published accuracies look like
    /// this; the privacy that is claimed does not hold.
    None,
    /// Scaled to length 1, as the proofs demand.
    Unit,
}

impl Norm {
    /// Both.
    pub const ALL: [Self; 2] = [Self::None, Self::Unit];

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "standardised",
            Self::Unit => "unit norm",
        }
    }
}

/// What the methods with noise learn from: every user has the initial samples besides its own, as in the paper.
#[derive(Clone, Debug)]
pub struct NoisyScenario {
    /// The public samples, to choose a strength by.
    pub initial: Dataset,
    /// What each user has, the public samples first.
    pub users: Vec<Dataset>,
    /// What nobody learns from.
    pub held_out: Dataset,
}

impl NoisyScenario {
    /// Prepares data that were dealt out. Attributes get a feature that is always 1, because RA12 has no intercepts
    /// and attributes are seldom as often there as not.
    ///
    /// # Errors
    /// None for a scenario.
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

    /// The samples of the user who has fewest.
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

/// The samples of both, in this order.
pub(crate) fn join(first: &Dataset, second: &Dataset) -> Result<Dataset, Error> {
    let values = [first.features().values(), second.features().values()].concat();
    let features = Features::new(first.features().width(), values)?;
    let classes = first.labels().class_count();
    let labels = match (first.labels().as_classes(""), second.labels().as_classes("")) {
        (Ok(a), Ok(b)) => Labels::classes(classes, [a, b].concat())?,
        _ => {
            let present = |data: &Dataset| {
                let labels = data.labels();
                (0..data.len() * classes)
                    .map(|i| labels.is_positive(i / classes, i % classes))
                    .collect::<Vec<_>>()
            };
            Labels::attributes(classes, [present(first), present(second)].concat())?
        }
    };
    Ok(Dataset::new(features, labels)?)
}

/// The accuracy on some samples, in per cent: the mean over classes, or over attributes.
///
/// # Errors
/// If the samples do not go with the classifier.
pub fn accuracy(weights: &Weights, data: &Dataset, threads: Threads) -> Result<f64, Error> {
    let scores = weights.scores(data.features(), threads)?;
    let share = match data.labels().as_classes("accuracy") {
        Ok(truth) => mean_per_class_accuracy(truth, &scores.best())?,
        Err(_) => attribute_accuracy(data.labels(), &scores)?,
    };
    Ok(100.0 * share)
}

/// What a noisy method gave for one strength of its penalty.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The strength.
    pub strength: f64,
    /// The classifier that is released.
    pub weights: Weights,
    /// Its accuracy on the public samples, in per cent: what the strength is chosen by.
    pub initial: f64,
}

/// The strengths that are tried: what noise costs depends on this number more than on anything else.
pub const STRENGTHS: [f64; 5] = [1e-3, 1e-2, 0.1, 1.0, 10.0];

/// The trial that is best on the public samples; of equals, the weakest.
pub fn best(trials: &[Trial]) -> Option<&Trial> {
    let mut best: Option<&Trial> = None;
    for trial in trials {
        if best.is_none_or(|best| trial.initial > best.initial) {
            best = Some(trial);
        }
    }
    best
}

/// Privacy that is spent, by adding up: what holds for everything that is released together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Epsilon of a single release.
    pub epsilon: f64,
    /// Delta of a single release.
    pub delta: f64,
    /// How many are released: classifiers, times iterations where each is noised anew.
    pub releases: usize,
}

impl Budget {
    /// The sum of all epsilons.
    pub fn total_epsilon(&self) -> f64 {
        self.epsilon * self.releases as f64
    }

    /// The sum of all deltas.
    pub fn total_delta(&self) -> f64 {
        self.delta * self.releases as f64
    }
}

/// The numbers of both methods with noise in the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Privacy {
    /// Epsilon, of a single classifier.
    pub epsilon: f64,
    /// Delta.
    pub delta: f64,
}

impl Privacy {
    /// The paper's: 0.2 and 0.05.
    pub const PAPER: Self = Self { epsilon: 0.2, delta: 0.05 };
}
