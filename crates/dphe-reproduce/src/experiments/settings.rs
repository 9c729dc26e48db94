//! The settings that experiments share: data sources and the amount of work.

use std::num::NonZeroUsize;
use std::sync::Arc;

use dphe::Profile;
use dphe_federate::{Scenario, ScenarioParams};
use dphe_learn::dataset::Dealing;
use dphe_learn::{Dataset, Seed, all_cores};

use crate::Error;
use crate::experiment::fingerprint;
use crate::methods::dphe::{DpheVariant, Recipe};

/// The names of data sets that experiments treat in a special way.
pub(super) const CALTECH101: &str = "caltech101";
pub(super) const CALTECH256: &str = "caltech256";
pub(super) const DIGITS: &str = "digits";

/// A data set with one class per sample, and the parameters of its split.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name in tables, such as `caltech101`.
    pub name: String,
    /// All samples, not standardised.
    pub data: Arc<Dataset>,
    /// The names of the classes, or empty.
    pub classes: Vec<String>,
    /// The number of public samples per class.
    pub initial_per_class: usize,
    /// The number of training samples per class, including the public ones.
    pub train_per_class: usize,
    /// The largest number of held-out samples per class.
    pub test_per_class: usize,
    /// The sparsity of messages. It is lower for 64 pixels than for 2,048 deep features.
    pub sparsity: f64,
    /// The sparsity of centroids.
    pub centroid_sparsity: f64,
}

impl Source {
    /// Uses the paper's split: 30 training samples for each of 101 classes, a tenth of them public, and up to 50
    /// held-out samples.
    pub fn caltech101(data: Arc<Dataset>, classes: Vec<String>) -> Self {
        Self {
            name: CALTECH101.to_owned(),
            data,
            classes,
            initial_per_class: 3,
            train_per_class: 30,
            test_per_class: 50,
            sparsity: 0.9,
            centroid_sparsity: 0.9,
        }
    }

    /// Uses the paper's split: 60 training samples for each of 256 classes, a tenth of them public, and all others held
    /// out.
    pub fn caltech256(data: Arc<Dataset>, classes: Vec<String>) -> Self {
        Self {
            name: CALTECH256.to_owned(),
            initial_per_class: 6,
            train_per_class: 60,
            test_per_class: usize::MAX,
            ..Self::caltech101(data, classes)
        }
    }

    /// Uses small images of digits, which replace the paper's data.
    pub fn digits(data: Arc<Dataset>) -> Self {
        Self {
            name: DIGITS.to_owned(),
            data,
            classes: (0..10).map(|digit| digit.to_string()).collect(),
            initial_per_class: 6,
            train_per_class: 60,
            test_per_class: 50,
            sparsity: 0.6,
            centroid_sparsity: 0.3,
        }
    }
}

/// Data that an experiment can split among users.
pub(crate) trait DataSource {
    fn name(&self) -> &str;

    /// Returns the name with a fingerprint of the data, because other data may have the same name.
    fn described(&self) -> String;

    /// Splits the data.
    fn scenario(&self, settings: &Settings, split: Split, seed: u64) -> Result<Scenario, Error>;
}

impl DataSource for Source {
    fn name(&self) -> &str {
        &self.name
    }

    fn described(&self) -> String {
        format!("{}, {}", self.name, fingerprint(&self.data))
    }

    fn scenario(&self, settings: &Settings, split: Split, seed: u64) -> Result<Scenario, Error> {
        let params = ScenarioParams {
            users: split.users,
            initial_per_class: self.initial_per_class,
            train_per_class: Some(settings.train_per_class.unwrap_or(self.train_per_class)),
            test_per_class: settings.test_per_class.unwrap_or(self.test_per_class),
            dealing: split.dealing,
        };
        Ok(Scenario::new(&self.data, &params, &Seed::new(seed))?)
    }
}

/// Returns an experiment's notes, preceded by a warning if a source is not one of the paper's.
pub(super) fn notes<'a>(
    sources: impl IntoIterator<Item = &'a Source>,
    own: impl IntoIterator<Item = impl Into<String>>,
) -> Vec<String> {
    let names = sources.into_iter().map(|source| source.name.as_str());
    let others: Vec<&str> = names.filter(|name| ![CALTECH101, CALTECH256].contains(name)).collect();
    let warning = (!others.is_empty()).then(|| {
        format!(
            "The paper's data are missing, so {} is used instead. Compare methods with each other, not with the \
             paper's numbers.",
            others.join(", ")
        )
    });
    warning.into_iter().chain(own.into_iter().map(Into::into)).collect()
}

pub(super) fn boxed(sources: Vec<Source>) -> Vec<Box<dyn DataSource>> {
    sources.into_iter().map(|source| Box::new(source) as Box<dyn DataSource>).collect()
}

/// The number of users and the assignment of samples to them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Split {
    pub(crate) users: usize,
    pub(crate) dealing: Dealing,
}

impl Split {
    pub(crate) fn disjoint(users: usize) -> Self {
        Self { users, dealing: Dealing::Disjoint }
    }

    /// Returns the number of users that hold each sample.
    pub(crate) fn copies(self) -> usize {
        if let Dealing::Duplicated { copies } = self.dealing { copies } else { 1 }
    }
}

/// The runs that are encrypted. Other runs sum the same rounded numbers in the clear and give the same bits, which
/// every encrypted run checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// No run.
    Nothing,
    /// The first repetition, if its payload is packed. This takes seconds.
    FirstPacked,
    /// The first repetition.
    First,
    /// Every run. With one number per ciphertext this takes hours.
    Everything,
}

/// The amount of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The number of users that share the data.
    pub users: usize,
    /// The number of repetitions, each with another split.
    pub runs: u64,
    /// The seed of the first repetition. The others have the following numbers.
    pub seed: u64,
    /// The number of bits of keys, except where the paper's keys are measured.
    pub key_bits: u32,
    /// The profile whose variant is compared with the paper's, in experiments that compare only one.
    pub profile: Profile,
    /// The number of training samples per class, if it differs from the source's.
    pub train_per_class: Option<usize>,
    /// The largest number of held-out samples per class, if it differs from the source's.
    pub test_per_class: Option<usize>,
    /// The number of rounds, if it differs from the method's.
    pub rounds: Option<usize>,
    /// The runs that are encrypted.
    pub encryption: Encryption,
    /// The number of threads. Results do not depend on it.
    pub threads: NonZeroUsize,
}

impl Default for Settings {
    /// Returns the paper's settings: five users and ten repetitions.
    fn default() -> Self {
        Self {
            users: 5,
            runs: 10,
            seed: 0,
            key_bits: 2048,
            profile: Profile::Sparse,
            train_per_class: None,
            test_per_class: None,
            rounds: None,
            encryption: Encryption::FirstPacked,
            threads: all_cores(),
        }
    }
}

impl Settings {
    /// Returns settings for a quick check: two repetitions and five rounds.
    pub fn quick() -> Self {
        Self { runs: 2, rounds: Some(5), encryption: Encryption::First, ..Self::default() }
    }

    pub(crate) fn seeds(&self) -> impl Iterator<Item = u64> {
        self.seed..self.seed.saturating_add(self.runs)
    }

    /// Returns true if the repetition with this seed is encrypted. `packed` says whether its payload is packed.
    pub(crate) fn encrypts(&self, seed: u64, packed: bool) -> bool {
        match self.encryption {
            Encryption::Nothing => false,
            Encryption::FirstPacked => packed && seed == self.seed,
            Encryption::First => seed == self.seed,
            Encryption::Everything => true,
        }
    }

    /// Returns the recipe of a variant that aims at this sparsity.
    pub(crate) fn recipe(&self, variant: DpheVariant, sparsity: f64) -> Recipe {
        let defaults = Recipe::new(variant);
        Recipe {
            rounds: self.rounds.map_or(defaults.rounds, |rounds| rounds.min(defaults.rounds)),
            share: (1.0 - sparsity).max(0.01),
            sparsity,
            key_bits: self.key_bits,
            ..defaults
        }
    }

    /// Returns the variant that is compared with the paper's where there is only one.
    pub(crate) fn variant(&self) -> DpheVariant {
        match DpheVariant::of_profile(self.profile) {
            DpheVariant::SparseWeights => DpheVariant::SolvedWeights,
            variant => variant,
        }
    }

    /// Returns everything that the measurements depend on: the data and these settings.
    pub(crate) fn lines(&self, data: impl IntoIterator<Item = String>) -> Vec<(String, String)> {
        let data = data.into_iter().collect::<Vec<_>>().join("; ");
        let own = |number: Option<usize>| number.map_or("own".to_owned(), |n| n.to_string());
        [
            ("data", data),
            ("users", self.users.to_string()),
            ("runs", self.runs.to_string()),
            ("seed", self.seed.to_string()),
            ("key bits", self.key_bits.to_string()),
            ("profile", self.profile.to_string()),
            ("train per class", own(self.train_per_class)),
            ("test per class", own(self.test_per_class)),
            ("rounds", own(self.rounds)),
            ("encryption", format!("{:?}", self.encryption)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }
}
