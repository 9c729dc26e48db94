//! The names of values, which are the same on the command line, in task files and in reports.

use dphe::{NoiseMode, Profile};
use dphe_learn::linear::Loss;
use serde::{Deserialize, Deserializer, Serializer};

/// A value that users choose by a word.
pub trait Named: Copy + PartialEq + Send + Sync + 'static {
    /// What kind of value it is, for errors.
    const KIND: &'static str;
    /// All values, in the order in which help and errors list them.
    const ALL: &'static [Self];

    /// Returns the word for this value.
    fn as_str(self) -> &'static str;

    /// Returns a short description, for help texts.
    fn summary(self) -> &'static str;

    /// Finds the value for a word.
    ///
    /// # Errors
    /// [`UnknownName`], which lists all words.
    fn from_name(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.iter().copied().find(|value| value.as_str() == name).ok_or_else(|| UnknownName {
            kind: Self::KIND,
            name: name.to_owned(),
            known: Self::ALL.iter().map(|value| value.as_str()).collect::<Vec<_>>().join(", "),
        })
    }
}

/// A word that names no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} `{name}`; use one of {known}")]
pub struct UnknownName {
    /// The kind of value.
    pub kind: &'static str,
    /// The word.
    pub name: String,
    /// All words of this kind, separated by commas.
    pub known: String,
}

/// Writes a value as its word, for `#[serde(with = "dphe_federate::spec::named")]`.
pub mod named {
    use super::{Deserialize as _, Deserializer, Named, Serializer};

    /// Writes the word.
    ///
    /// # Errors
    /// As the serializer.
    pub fn serialize<T: Named, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(value.as_str())
    }

    /// Reads a word.
    ///
    /// # Errors
    /// As the deserializer, and for an unknown word.
    pub fn deserialize<'de, T: Named, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        T::from_name(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl Named for Profile {
    const KIND: &'static str = "profile";
    const ALL: &'static [Self] = &[Self::Sparse, Self::Full, Self::Paper];

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }

    fn summary(self) -> &'static str {
        match self {
            Self::Sparse => "The paper's scheme, hardened, with hidden positions",
            Self::Full => "Public positions, the same for every user",
            Self::Paper => "The paper's scheme as printed, for reproduction only",
        }
    }
}

impl Named for NoiseMode {
    const KIND: &'static str = "noise mode";
    const ALL: &'static [Self] = &[Self::Secure, Self::Fast];

    fn as_str(self) -> &'static str {
        self.name()
    }

    fn summary(self) -> &'static str {
        match self {
            Self::Secure => "Half-length exponents",
            Self::Fast => "Short exponents, which are faster but need one more assumption",
            Self::Textbook => "Powers of random numbers, for keys that other programs made; tasks refuse it",
        }
    }
}

impl Named for Loss {
    const KIND: &'static str = "loss";
    const ALL: &'static [Self] = &[Self::Hinge, Self::SquaredHinge, Self::Logistic, Self::Multinomial];

    fn as_str(self) -> &'static str {
        match self {
            Self::Hinge => "hinge",
            Self::SquaredHinge => "squared-hinge",
            Self::Logistic => "logistic",
            Self::Multinomial => "multinomial",
        }
    }

    fn summary(self) -> &'static str {
        match self {
            Self::Hinge => "A support vector machine",
            Self::SquaredHinge => "A support vector machine with squared violations",
            Self::Logistic => "Logistic regression, one class against the others",
            Self::Multinomial => "Logistic regression over all classes together",
        }
    }
}
