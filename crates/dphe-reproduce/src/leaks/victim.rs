//! Whom the leaks are shown on: a public model, private samples, and the learner that users have.

use dphe_federate::{Scenario, ScenarioParams};
use dphe_learn::linear::{Loss, Penalty, Schedule, Sgd, SgdParams, Stable};
use dphe_learn::{Dataset, Features, Labels, Seed, Standardizer, Weights};

use super::step::{Intercepts, SeenStep};
use crate::Error;

/// Users' samples in double precision, and the public model of one class against the rest.
pub(super) struct Victim {
    pub(super) initial: Dataset<f64>,
    pub(super) samples: Dataset<f64>,
    pub(super) standardizer: Standardizer,
    stable: Stable,
    seed: Seed,
}

/// The weights of one linear function, and its intercept.
pub(super) struct Model {
    pub(super) weights: Vec<f64>,
    pub(super) intercept: f64,
}

impl Victim {
    /// Deals the data out as an experiment would, and keeps up to `most` samples of users. Labels are whether a sample
    /// has the class.
    pub(super) fn new(data: &Dataset, class: usize, most: usize, seed: Seed) -> Result<Self, Error> {
        let scenario = Scenario::new(data, &ScenarioParams::default(), &seed)?;
        let mut private: Vec<usize> = scenario.shares.iter().flatten().copied().collect();
        private.truncate(most);
        let part = data.select(&private)?;
        let features: Features<f64> = scenario.standardizer.apply(part.features())?;
        let initial = binary(&scenario.initial, scenario.initial.features().convert(), class)?;
        Ok(Self {
            stable: Stable::for_features(initial.features()),
            initial,
            samples: binary(&part, features, class)?,
            standardizer: scenario.standardizer,
            seed,
        })
    }

    /// A learner with the steps that all users take.
    pub(super) fn learner(
        &self,
        loss: Loss,
        penalty: Penalty,
        intercept: bool,
        epochs: usize,
    ) -> Result<Sgd, dphe_learn::Error> {
        let base = SgdParams::new(Schedule::Stable(self.stable));
        SgdParams { loss, penalty, intercept, epochs, ..base }.check()
    }

    /// The public model: learnt from the initial samples.
    pub(super) fn model(&self, learner: &Sgd) -> Result<Weights, Error> {
        Ok(learner.fit(&self.initial, &self.seed.derive("model", 0))?)
    }

    /// What a user with this one sample has after one step from the model.
    pub(super) fn step(&self, learner: &Sgd, model: &Weights, sample: usize) -> Result<Model, Error> {
        let one = self.samples.select(&[sample])?;
        Ok(Model::of(&learner.fit_from(model, &one, &self.seed)?))
    }

    /// The size of a first step: all of it is public.
    pub(super) fn size(&self) -> f64 {
        self.stable.step / self.stable.squared_radius
    }

    /// How much more an intercept moves than a weight whose feature is 1.
    pub(super) fn rate(&self) -> f64 {
        self.stable.intercept * self.stable.squared_radius
    }

    /// How long samples are, from the published radius.
    pub(super) fn expected_norm(&self) -> f64 {
        (self.stable.squared_radius - 1.0).sqrt()
    }

    /// What the aggregator sees.
    pub(super) fn seen<'a>(&self, before: &'a Model, after: &'a Model, strength: f64) -> SeenStep<'a> {
        SeenStep { before: &before.weights, after: &after.weights, size: self.size(), strength }
    }

    /// What it sees of intercepts.
    pub(super) fn intercepts(&self, before: &Model, after: &Model) -> Intercepts {
        Intercepts { before: before.intercept, after: after.intercept, rate: self.rate() }
    }

    /// The label of a sample, +1 or -1.
    pub(super) fn label(&self, sample: usize) -> f64 {
        if self.samples.labels().is_positive(sample, 0) { 1.0 } else { -1.0 }
    }

    /// The sample times its label.
    pub(super) fn signed(&self, sample: usize) -> Vec<f64> {
        let label = self.label(sample);
        self.samples.features().row(sample).iter().map(|x| label * x).collect()
    }

    /// Standardised features as they were before.
    pub(super) fn raw(&self, standardised: &[f64]) -> Vec<f64> {
        let parts = self.standardizer.mean().iter().zip(self.standardizer.deviation());
        standardised.iter().zip(parts).map(|(x, (mean, deviation))| x * deviation + mean).collect()
    }
}

impl Model {
    pub(super) fn of(weights: &Weights) -> Self {
        let intercept = weights.intercepts().first().copied().unwrap_or(0.0);
        Self { weights: weights.flat().to_vec(), intercept }
    }
}

fn binary(data: &Dataset, features: Features<f64>, class: usize) -> Result<Dataset<f64>, Error> {
    let present = (0..data.len()).map(|sample| data.labels().is_positive(sample, class)).collect();
    Ok(Dataset::new(features, Labels::attributes(1, present)?)?)
}
