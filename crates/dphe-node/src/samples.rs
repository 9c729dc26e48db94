//! Samples as the learners want them, from a file of features.

use std::path::{Path, PathBuf};

use dphe_features::{FeatureSource, FeatureTable, ReadOptions, TableLabels, read_table};
use dphe_learn::{Dataset, Features, Labels};

use crate::digits;
use crate::model::LabelKind;

/// Labelled samples with the names that belong to them.
#[derive(Debug)]
pub struct Samples {
    /// Features and labels.
    pub data: Dataset,
    /// What the classes are called.
    pub classes: Vec<String>,
    /// What is known of a sample.
    pub kind: LabelKind,
    /// Where the features come from, if that is known.
    pub source: Option<FeatureSource>,
}

/// Why samples cannot be had.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are those of the messages")]
pub enum SamplesError {
    /// Of the file.
    #[error("{0}")]
    File(#[from] dphe_features::Error),
    /// Features alone.
    #[error("{path} has no labels")]
    Unlabelled { path: PathBuf },
    /// A class that the task does not have.
    #[error("{path}: the task has no class {name:?}")]
    UnknownClass { path: PathBuf, name: String },
    /// What the learners refuse.
    #[error("{path}: {source}")]
    Learn { path: PathBuf, source: dphe_learn::Error },
}

impl SamplesError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File(error) => error.hint(),
            Self::Unlabelled { .. } => {
                Some("an array `labels` beside `features`, or a label column; see `dphe data inspect`".into())
            }
            Self::UnknownClass { .. } => Some(
                "the names of classes as everybody agreed on them, or numbers from 0 if nobody named them"
                    .into(),
            ),
            Self::Learn { .. } => Some("`dphe data inspect` tells what is in the file".into()),
        }
    }
}

impl Samples {
    /// Reads a file or folder of features with labels.
    pub fn read(path: &Path, options: &ReadOptions) -> Result<Self, SamplesError> {
        let table = read_table(path, options)?;
        Self::of(&table, path)
    }

    /// Those that come with the program.
    pub fn digits() -> Result<Self, SamplesError> {
        let data = digits::digits()
            .map_err(|source| SamplesError::Learn { path: PathBuf::from("the digits"), source })?;
        Ok(Self { data, classes: digits::names(), kind: LabelKind::Classes, source: None })
    }

    /// With labels that count the classes of a task: a user's file may name only those it has.
    ///
    /// # Errors
    /// A class that the task does not have, or attributes other than its.
    pub fn in_classes(&self, classes: &[String], path: &Path) -> Result<Dataset, SamplesError> {
        let learn = |source| SamplesError::Learn { path: path.into(), source };
        let unknown = |name: &str| SamplesError::UnknownClass { path: path.into(), name: name.into() };
        let labels = match self.data.labels().as_classes("classes") {
            Err(_) => {
                return match self.classes.iter().zip(classes).find(|(ours, theirs)| ours != theirs) {
                    Some((name, _)) => Err(unknown(name)),
                    None if self.classes.len() != classes.len() => {
                        Err(unknown("another number of attributes"))
                    }
                    None => Ok(self.data.clone()),
                };
            }
            Ok(labels) => labels,
        };
        let places = self
            .classes
            .iter()
            .map(|name| classes.iter().position(|class| class == name).ok_or_else(|| unknown(name)))
            .collect::<Result<Vec<usize>, _>>()?;
        // a task has far fewer classes than a u32 can count
        let labels = labels.iter().map(|&label| places[label as usize] as u32).collect();
        let labels = Labels::classes(classes.len(), labels).map_err(learn)?;
        Dataset::new(self.data.features().clone(), labels).map_err(learn)
    }

    fn of(table: &FeatureTable, path: &Path) -> Result<Self, SamplesError> {
        let learn = |source| SamplesError::Learn { path: path.into(), source };
        let classes = table.classes().to_vec();
        let (kind, labels) = match table.labels() {
            None => return Err(SamplesError::Unlabelled { path: path.into() }),
            Some(TableLabels::Classes(labels)) => {
                // a table has far fewer classes than a u32 can count
                let labels = labels.iter().map(|&label| label as u32).collect();
                (LabelKind::Classes, Labels::classes(classes.len(), labels))
            }
            Some(TableLabels::Attributes(present)) => {
                (LabelKind::Attributes, Labels::attributes(classes.len(), present.clone()))
            }
        };
        let features = Features::new(table.width(), table.values().to_vec()).map_err(learn)?;
        let data = Dataset::new(features, labels.map_err(learn)?).map_err(learn)?;
        Ok(Self { data, classes, kind, source: table.source().cloned() })
    }
}
