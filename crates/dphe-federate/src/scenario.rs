//! One data set, split between users as in a deployment.

use dphe_learn::dataset::{Dealing, deal, shares, split_per_class};
use dphe_learn::update::UserNumbers;
use dphe_learn::{Dataset, Labels, Seed, Standardizer};

use crate::Error;

/// How a data set is split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScenarioParams {
    /// How many users there are.
    pub users: usize,
    /// Public samples per class. Data with attributes have this many public samples per attribute, and at most a tenth
    /// of all.
    pub initial_per_class: usize,
    /// Samples per class to learn from, including the initial ones; by default all that are not held out.
    pub train_per_class: Option<usize>,
    /// The largest number of held-out samples per class. Without `train_per_class`, at most a fraction is held out.
    pub test_per_class: usize,
    /// How samples are distributed over users.
    pub dealing: Dealing,
}

/// The fraction that is held out without `train_per_class`.
const HELD_OUT: f64 = 0.3;

impl Default for ScenarioParams {
    /// Returns the paper's scenario: five users with disjoint shares, three initial samples per class, and at most 50
    /// held out per class.
    fn default() -> Self {
        Self {
            users: 5,
            initial_per_class: 3,
            train_per_class: None,
            test_per_class: 50,
            dealing: Dealing::Disjoint,
        }
    }
}

/// A data set split between users, standardised by the initial samples.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The public samples. They fix the initial weights, the standardisation and the size of steps.
    pub initial: Dataset,
    /// The samples of each user.
    pub users: Vec<Dataset>,
    /// The held-out samples.
    pub held_out: Dataset,
    /// The initial samples and those of all users in one place, for comparison.
    pub pooled: Dataset,
    /// The standardisation that was applied.
    pub standardizer: Standardizer,
    /// The indices of each user's samples in the data set.
    pub shares: Vec<Vec<usize>>,
    /// The indices of the held-out samples in the data set.
    pub held_out_samples: Vec<usize>,
}

impl Scenario {
    /// Splits a data set.
    ///
    /// # Errors
    /// If there are too few samples for the split, or nothing is left to hold out.
    pub fn new(all: &Dataset, params: &ScenarioParams, seed: &Seed) -> Result<Self, Error> {
        let Parts { initial, private, held_out } = Parts::of(all.labels(), params, seed)?;
        if held_out.is_empty() {
            let found = all.len();
            let (what, needed) = ("held-out data besides those to learn from", found + 1);
            return Err(dphe_learn::Error::TooFewSamples { what, needed, found }.into());
        }
        let standardizer = Standardizer::fit(&all.features().select(&initial)?);
        let pick = |samples: &[usize]| all.select(samples)?.standardized(&standardizer);
        let shares = deal(all.labels(), &private, params.users, params.dealing, seed)?;
        let pooled: Vec<usize> = initial.iter().chain(&private).copied().collect();
        Ok(Self {
            initial: pick(&initial)?,
            users: shares.iter().map(|share| pick(share)).collect::<Result<_, _>>()?,
            held_out: pick(&held_out)?,
            pooled: pick(&pooled)?,
            standardizer,
            shares,
            held_out_samples: held_out,
        })
    }

    /// Returns what a task with these users would state about them, if `users` of them take part in a round. A sample
    /// with attributes says something about every attribute, so users lack none.
    pub fn user_numbers(&self, users: usize) -> UserNumbers {
        let count = self.users.len().max(1) as f64;
        let samples_per_user = self.users.iter().map(|data| data.len() as f64).sum::<f64>() / count;
        if self.initial.labels().as_classes("a number of classes").is_err() {
            return UserNumbers { users, classes: 1, samples_per_user, classes_per_user: None };
        }
        let held = |data: &Dataset| data.labels().counts().iter().filter(|&&samples| samples > 0).count();
        let held = self.users.iter().map(|data| held(data) as f64).sum::<f64>() / count;
        let classes = self.initial.labels().class_count();
        UserNumbers { users, classes, samples_per_user, classes_per_user: Some(held) }
    }
}

/// The indices of the samples of a scenario, for callers that hold the features themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The public samples.
    pub initial: Vec<usize>,
    /// The samples of each user.
    pub users: Vec<Vec<usize>>,
    /// The held-out samples. There may be none.
    pub held_out: Vec<usize>,
}

impl Split {
    /// Splits samples by their labels, as [`Scenario::new`] does.
    ///
    /// # Errors
    /// If there are too few samples for the split.
    pub fn of(labels: &Labels, params: &ScenarioParams, seed: &Seed) -> Result<Self, Error> {
        let Parts { initial, private, held_out } = Parts::of(labels, params, seed)?;
        let users = deal(labels, &private, params.users, params.dealing, seed)?;
        Ok(Self { initial, users, held_out })
    }
}

/// The indices of samples before they are dealt to users.
struct Parts {
    initial: Vec<usize>,
    private: Vec<usize>,
    held_out: Vec<usize>,
}

impl Parts {
    fn of(labels: &Labels, params: &ScenarioParams, seed: &Seed) -> Result<Self, Error> {
        let initial = params.initial_per_class;
        if initial == 0 {
            return Err(Error::Parameter {
                name: "initial samples per class",
                value: 0.0,
                remedy: "use at least 1, because they fix the initial weights and the standardisation",
            });
        }
        if labels.as_classes("a split").is_err() {
            return Self::of_attributes(labels, params, seed);
        }
        if let Some(train) = params.train_per_class {
            if train <= initial {
                return Err(Error::Parameter {
                    name: "samples per class to learn from",
                    value: train as f64,
                    remedy: "use more than the initial samples, because the rest goes to users",
                });
            }
            let split = split_per_class(labels, train, params.test_per_class, seed)?;
            // Samples are ordered by class.
            let is_initial = |i: usize| i % train < initial;
            let pick = |wanted: bool| {
                let samples = split.train.iter().enumerate();
                samples.filter(|&(i, _)| is_initial(i) == wanted).map(|(_, &sample)| sample).collect()
            };
            return Ok(Self { initial: pick(true), private: pick(false), held_out: split.test });
        }
        let split = split_per_class(labels, initial, usize::MAX - initial, seed)?;
        // A fraction of each class is held out.
        let (mut private, mut held_out) = (Vec::new(), Vec::new());
        let class_of = labels.as_classes("a split")?;
        for class in split.test.chunk_by(|&a, &b| class_of[a] == class_of[b]) {
            let count = ((class.len() as f64 * HELD_OUT).round() as usize).min(params.test_per_class);
            held_out.extend_from_slice(&class[..count]);
            private.extend_from_slice(&class[count..]);
        }
        Ok(Self { initial: split.train, private, held_out })
    }

    fn of_attributes(labels: &Labels, params: &ScenarioParams, seed: &Seed) -> Result<Self, Error> {
        let all: Vec<usize> = (0..labels.len()).collect();
        // one share of all is all of them in random order
        let order = shares(&all, 1, &seed.derive("attributes", 0))?.swap_remove(0);
        let initial = params.initial_per_class.saturating_mul(labels.class_count());
        let initial = initial.min(order.len() / 10).max(1);
        let (initial, rest) = order.split_at(initial.min(order.len()));
        let most = params.test_per_class.saturating_mul(labels.class_count());
        let held_out = ((rest.len() as f64 * HELD_OUT).round() as usize).min(most);
        let (held_out, private) = rest.split_at(held_out);
        Ok(Self { initial: initial.to_vec(), private: private.to_vec(), held_out: held_out.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use dphe_learn::Features;

    use super::*;

    fn data(labels: Labels) -> Dataset {
        let values = (0..labels.len() * 2).map(|i| (i % 17) as f32).collect();
        Dataset::new(Features::new(2, values).unwrap(), labels).unwrap()
    }

    fn classes(samples: u32) -> Dataset {
        data(Labels::classes(4, (0..samples).map(|i| i % 4).collect()).unwrap())
    }

    fn sizes(scenario: &Scenario) -> (usize, Vec<usize>, usize, usize) {
        let users = scenario.users.iter().map(Dataset::len).collect();
        (scenario.initial.len(), users, scenario.held_out.len(), scenario.pooled.len())
    }

    #[test]
    fn everybody_gets_a_share() {
        let params = ScenarioParams { users: 3, initial_per_class: 2, ..ScenarioParams::default() };
        let scenario = Scenario::new(&classes(80), &params, &Seed::new(0)).unwrap();
        assert_eq!(sizes(&scenario), (8, vec![18, 17, 17], 20, 60));
        let fixed = ScenarioParams { train_per_class: Some(11), test_per_class: 4, ..params };
        let scenario = Scenario::new(&classes(80), &fixed, &Seed::new(0)).unwrap();
        assert_eq!(sizes(&scenario), (8, vec![12, 12, 12], 16, 44));
        assert_eq!(scenario.initial.labels().counts(), [2; 4]);
        let again = Scenario::new(&classes(80), &fixed, &Seed::new(0)).unwrap();
        assert_eq!(again.users, scenario.users);
        let split = Split::of(classes(80).labels(), &fixed, &Seed::new(0)).unwrap();
        assert_eq!((&split.users, &split.held_out), (&scenario.shares, &scenario.held_out_samples));
        assert_eq!(split.initial.len(), 8);
    }

    #[test]
    fn attributes_are_split_by_chance() {
        let present = (0..200).map(|i| i % 3 == 0).collect();
        let all = data(Labels::attributes(2, present).unwrap());
        let scenario = Scenario::new(&all, &ScenarioParams::default(), &Seed::new(0)).unwrap();
        assert_eq!(sizes(&scenario), (6, vec![14, 13, 13, 13, 13], 28, 72));
    }

    #[test]
    fn impossible_splits_are_refused() {
        let base = ScenarioParams::default();
        for params in [
            ScenarioParams { initial_per_class: 0, ..base },
            ScenarioParams { initial_per_class: 21, ..base },
            ScenarioParams { train_per_class: Some(3), ..base },
            ScenarioParams { train_per_class: Some(20), ..base },
            ScenarioParams { test_per_class: 0, ..base },
            ScenarioParams { users: 0, ..base },
            ScenarioParams { users: 1000, ..base },
        ] {
            assert!(Scenario::new(&classes(80), &params, &Seed::new(0)).is_err(), "{params:?}");
        }
    }
}
