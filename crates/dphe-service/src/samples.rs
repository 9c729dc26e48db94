//! Labelled samples from feature files.

use std::path::{Path, PathBuf};

use dphe_features::{FeatureSource, FeatureTable, ReadOptions, TableLabels, TableParts, read_table};
use dphe_learn::{Dataset, Features, Labels};

use crate::model::LabelKind;

/// Labelled samples with the names of their classes.
#[derive(Debug)]
pub struct Samples {
    /// Features and labels.
    pub data: Dataset,
    /// The names of the classes.
    pub classes: Vec<String>,
    /// The kind of labels.
    pub kind: LabelKind,
    /// The origin of the features, if known.
    pub source: Option<FeatureSource>,
}

/// An error when reading samples.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the fields")]
pub enum SamplesError {
    /// The file cannot be read.
    #[error("{0}")]
    File(#[from] dphe_features::Error),
    /// The file has features without labels.
    #[error("{path} has no labels")]
    Unlabelled { path: PathBuf },
    /// A label is not a class of the task.
    #[error("{path}: the task has no class {name:?}")]
    UnknownClass { path: PathBuf, name: String },
    /// The file has another number of attributes than the task.
    #[error("{path} has {found} attributes, but the task has {expected}")]
    AttributeCount { path: PathBuf, expected: usize, found: usize },
    /// The data set is invalid.
    #[error("{path}: {source}")]
    Learn { path: PathBuf, source: dphe_learn::Error },
}

impl SamplesError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File(error) => error.hint(),
            Self::Unlabelled { .. } => {
                Some("Add an array `labels` or a label column. `dphe data inspect` shows the contents of the file.".into())
            }
            Self::UnknownClass { .. } => Some(
                "Use the class names of the task, or numbers from 0 if it has no names."
                    .into(),
            ),
            Self::AttributeCount { .. } | Self::Learn { .. } => {
                Some("Run `dphe data inspect` to see the contents of the file.".into())
            }
        }
    }
}

impl Samples {
    /// Reads a file or directory of features with labels.
    pub fn read(path: &Path, options: &ReadOptions) -> Result<Self, SamplesError> {
        Self::new(read_table(path, options)?, path)
    }

    /// Renumbers the labels by a task's list of classes. The file may lack some of the classes.
    ///
    /// # Errors
    /// If the task lacks a class of the file, or the attributes are not those of the task.
    pub fn in_classes(self, classes: &[String], path: &Path) -> Result<Dataset, SamplesError> {
        let learn = |source| SamplesError::Learn { path: path.into(), source };
        let unknown = |name: &str| SamplesError::UnknownClass { path: path.into(), name: name.into() };
        let labels = match self.data.labels().as_classes("classes") {
            Err(_) => {
                return match self.classes.iter().zip(classes).find(|(ours, theirs)| ours != theirs) {
                    Some((name, _)) => Err(unknown(name)),
                    None if self.classes.len() != classes.len() => Err(SamplesError::AttributeCount {
                        path: path.into(),
                        expected: classes.len(),
                        found: self.classes.len(),
                    }),
                    None => Ok(self.data),
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
        self.data.with_labels(labels).map_err(learn)
    }

    fn new(table: FeatureTable, path: &Path) -> Result<Self, SamplesError> {
        let learn = |source| SamplesError::Learn { path: path.into(), source };
        let TableParts { width, values, labels, classes, source, .. } = table.into_parts();
        let (kind, labels) = match labels {
            None => return Err(SamplesError::Unlabelled { path: path.into() }),
            Some(TableLabels::Classes(labels)) => {
                // a table has far fewer classes than a u32 can count
                let labels = labels.into_iter().map(|label| label as u32).collect();
                (LabelKind::Classes, Labels::classes(classes.len(), labels))
            }
            Some(TableLabels::Attributes(present)) => {
                (LabelKind::Attributes, Labels::attributes(classes.len(), present))
            }
        };
        let features = Features::new(width, values).map_err(learn)?;
        let data = Dataset::new(features, labels.map_err(learn)?).map_err(learn)?;
        Ok(Self { data, classes, kind, source })
    }
}

#[cfg(test)]
mod tests {
    use dphe_learn::Standardizer;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn features_are_not_copied_between_file_and_learner() {
        let path = Path::new("pets.npz");
        let values = vec![1.0, 2.0, 3.0, 4.0];
        let buffer = values.as_ptr();
        let table = FeatureTable::new(2, values).unwrap();
        let table = table.with_labels(TableLabels::Classes(vec![1, 0]), names(&["cat", "dog"])).unwrap();
        let data =
            Samples::new(table, path).unwrap().in_classes(&names(&["dog", "bird", "cat"]), path).unwrap();
        assert_eq!(data.labels().as_classes("a test").unwrap(), [0, 2]);
        let standardizer = Standardizer::fit(data.features());
        let data = data.standardized(&standardizer).unwrap();
        assert_eq!(data.features().values(), [-1.0, -1.0, 1.0, 1.0]);
        assert_eq!(data.features().values().as_ptr(), buffer);
    }
}
