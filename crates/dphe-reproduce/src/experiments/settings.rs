//! What experiments have in common: where the data come from, and how much is done with them.

use std::sync::Arc;

use dphe::Profile;
use dphe_federate::{Scenario, ScenarioParams};
use dphe_learn::dataset::Dealing;
use dphe_learn::{Dataset, Seed, Threads};

use crate::Error;
use crate::experiment::fingerprint;

/// A data set with one class a sample, and the numbers that it is split by.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in tables: `caltech101`.
    pub name: String,
    /// All samples, not standardised.
    pub data: Arc<Dataset>,
    /// The names of the classes; empty if they have none.
    pub classes: Vec<String>,
    /// Public samples of each class.
    pub initial_per_class: usize,
    /// Samples of each class to learn from, the public ones among them.
    pub train_per_class: usize,
    /// At most this many samples of each class are held out.
    pub test_per_class: usize,
    /// How sparse messages are to be. 64 pixels have fewer to spare than 2,048 deep features.
    pub sparsity: f64,
    /// How sparse centres of clusters are to be.
    pub centre_sparsity: f64,
}

impl Source {
    /// By the paper's protocol: 30 samples of each of 101 classes, a tenth of them public, up to 50 held out.
    pub fn caltech101(data: Arc<Dataset>, classes: Vec<String>) -> Self {
        Self {
            name: "caltech101".to_owned(),
            data,
            classes,
            initial_per_class: 3,
            train_per_class: 30,
            test_per_class: 50,
            sparsity: 0.9,
            centre_sparsity: 0.9,
        }
    }

    /// By the paper's protocol: 60 samples of each of 256 classes, a tenth of them public, the rest held out.
    pub fn caltech256(data: Arc<Dataset>, classes: Vec<String>) -> Self {
        Self {
            name: "caltech256".to_owned(),
            initial_per_class: 6,
            train_per_class: 60,
            test_per_class: usize::MAX,
            ..Self::caltech101(data, classes)
        }
    }

    /// Small pictures of digits, for those without the paper's data.
    pub fn digits(data: Arc<Dataset>) -> Self {
        Self {
            name: "digits".to_owned(),
            data,
            classes: (0..10).map(|digit| digit.to_string()).collect(),
            initial_per_class: 6,
            train_per_class: 60,
            test_per_class: 50,
            sparsity: 0.6,
            centre_sparsity: 0.3,
        }
    }

    /// Its name, and what is in it: other data of the same name are others.
    pub(crate) fn described(&self) -> String {
        format!("{}, {}", self.name, fingerprint(&self.data))
    }

    /// What a reader must know first: that these are not the paper's data.
    pub(crate) fn stand_in_note<'a>(sources: impl IntoIterator<Item = &'a Self>) -> Option<String> {
        let others: Vec<&str> = sources
            .into_iter()
            .map(|source| source.name.as_str())
            .filter(|name| !["caltech101", "caltech256"].contains(name))
            .collect();
        (!others.is_empty()).then(|| {
            format!(
                "The paper's data are not there: {} took their place. Compare methods with each other, not with the \
                 paper's numbers.",
                others.join(", ")
            )
        })
    }

    /// Deals the data out.
    pub(crate) fn scenario(
        &self,
        settings: &Settings,
        users: usize,
        dealing: Dealing,
        seed: u64,
    ) -> Result<Scenario, Error> {
        let params = ScenarioParams {
            users,
            initial_per_class: self.initial_per_class,
            train_per_class: Some(settings.train_per_class.unwrap_or(self.train_per_class)),
            test_per_class: settings.test_per_class.unwrap_or(self.test_per_class),
            dealing,
        };
        Ok(Scenario::new(&self.data, &params, &Seed::new(seed))?)
    }
}

/// What is really encrypted. Sums in the clear, of the same rounded numbers, are the same bit for bit; wherever
/// something is encrypted, that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Nothing.
    Nothing,
    /// Messages of packed numbers in the first repetition: seconds.
    FirstPacked,
    /// Everything in the first repetition.
    First,
    /// Everything always: hours, with one number a ciphertext.
    Everything,
}

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How many users share the data.
    pub users: usize,
    /// How many repetitions there are, each with another split.
    pub runs: u64,
    /// The first repetition's seed; the others follow.
    pub seed: u64,
    /// Bits of keys, except where the paper's are measured.
    pub key_bits: u32,
    /// Whose form of message is taken where there is but one besides the paper's.
    pub profile: Profile,
    /// Samples of each class to learn from, if not the source's own number.
    pub train_per_class: Option<usize>,
    /// Samples of each class to hold out at most, if not the source's own number.
    pub test_per_class: Option<usize>,
    /// Rounds, if not each form's own number.
    pub rounds: Option<usize>,
    /// What is really encrypted.
    pub encryption: Encryption,
    /// Threads; results do not depend on it.
    pub threads: Threads,
}

impl Default for Settings {
    /// The paper's: five users, ten repetitions.
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
            threads: Threads::all(),
        }
    }
}

impl Settings {
    /// To see that everything works: two repetitions, five rounds.
    pub fn quick() -> Self {
        Self { runs: 2, rounds: Some(5), encryption: Encryption::First, ..Self::default() }
    }

    pub(crate) fn seeds(&self) -> impl Iterator<Item = u64> {
        self.seed..self.seed.saturating_add(self.runs)
    }

    /// Whether a repetition is encrypted, in a form that packs numbers or in one that does not.
    pub(crate) fn encrypts(&self, seed: u64, packed: bool) -> bool {
        match self.encryption {
            Encryption::Nothing => false,
            Encryption::FirstPacked => packed && seed == self.seed,
            Encryption::First => seed == self.seed,
            Encryption::Everything => true,
        }
    }

    /// What decides the measurements: which data, and these settings.
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
