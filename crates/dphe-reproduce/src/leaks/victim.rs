//! The users that the leaks are computed for: a public model, private samples, and the learner that users run.

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
pub(super) struct VictimModel {
    pub(super) weights: Vec<f64>,
    pub(super) intercept: f64,
}

impl Victim {
    /// Splits the data and keeps up to `most` samples of users. The label says whether a sample has the class.
    pub(super) fn new(data: &Dataset, class: usize, most: usize, seed: Seed) -> Result<Self, Error> {
        let scenario = Scenario::new(data, &ScenarioParams::default(), &seed)?;
        let mut private: Vec<usize> = scenario.shares.iter().flatten().copied().collect();
        private.truncate(most);
        let part = data.select(&private)?;
        let features: Features<f64> = scenario.standardizer.apply(part.features().convert())?;
        let initial = binary(&scenario.initial, scenario.initial.features().convert(), class)?;
        Ok(Self {
            stable: Stable::for_features(initial.features()),
            initial,
            samples: binary(&part, features, class)?,
            standardizer: scenario.standardizer,
            seed,
        })
    }

    /// Returns a learner with the step sizes that all users have.
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

    /// Trains the public model on the initial samples.
    pub(super) fn model(&self, learner: &Sgd) -> Result<Weights, Error> {
        Ok(learner.fit(&self.initial, &self.seed.derive("model", 0))?)
    }

    /// Returns the model of a user with this one sample after one step from the public model.
    pub(super) fn step(&self, learner: &Sgd, model: &Weights, sample: usize) -> Result<VictimModel, Error> {
        let one = self.samples.select(&[sample])?;
        Ok(VictimModel::of(&learner.fit_from(model, &one, &self.seed)?))
    }

    /// Returns the size of the first step, which is public.
    pub(super) fn size(&self) -> f64 {
        self.stable.step / self.stable.squared_radius
    }

    /// Returns the ratio of the intercept's step to that of a weight whose feature is 1.
    pub(super) fn rate(&self) -> f64 {
        self.stable.intercept * self.stable.squared_radius
    }

    /// Returns the expected length of samples, which follows from the public radius.
    pub(super) fn expected_norm(&self) -> f64 {
        (self.stable.squared_radius - 1.0).sqrt()
    }

    /// Returns the step as the aggregator sees it.
    pub(super) fn seen<'a>(
        &self,
        before: &'a VictimModel,
        after: &'a VictimModel,
        strength: f64,
    ) -> SeenStep<'a> {
        SeenStep { before: &before.weights, after: &after.weights, size: self.size(), strength }
    }

    /// Returns the intercepts as the aggregator sees them.
    pub(super) fn intercepts(&self, before: &VictimModel, after: &VictimModel) -> Intercepts {
        Intercepts { before: before.intercept, after: after.intercept, rate: self.rate() }
    }

    /// Returns the label of a sample, +1 or -1.
    pub(super) fn label(&self, sample: usize) -> f64 {
        if self.samples.labels().is_positive(sample, 0) { 1.0 } else { -1.0 }
    }

    /// Returns the sample times its label.
    pub(super) fn signed(&self, sample: usize) -> Vec<f64> {
        let label = self.label(sample);
        self.samples.features().row(sample).iter().map(|x| label * x).collect()
    }

    /// Undoes the standardisation of features.
    pub(super) fn raw(&self, standardised: &[f64]) -> Vec<f64> {
        let parts = self.standardizer.mean().iter().zip(self.standardizer.deviation());
        standardised.iter().zip(parts).map(|(x, (mean, deviation))| x * deviation + mean).collect()
    }
}

impl VictimModel {
    pub(super) fn of(weights: &Weights) -> Self {
        let intercept = weights.intercepts().first().copied().unwrap_or(0.0);
        Self { weights: weights.flat().to_vec(), intercept }
    }
}

fn binary(data: &Dataset, features: Features<f64>, class: usize) -> Result<Dataset<f64>, Error> {
    let present = (0..data.len()).map(|sample| data.labels().is_positive(sample, class)).collect();
    Ok(Dataset::new(features, Labels::attributes(1, present)?)?)
}
