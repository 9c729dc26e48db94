//! `FeatureTable`: features of samples, and what is known about them.

use std::collections::HashSet;

use crate::Error;

/// Names are stored as wide as the longest of them, so a single absurd one could fill a disk.
const LONGEST_NAME: usize = 4096;

/// Features of samples, row after row, with their labels and where they come from.
///
/// Values may be NaN or infinite here, so that they can be counted; learners refuse them.
#[derive(Clone, PartialEq)]
pub struct FeatureTable {
    // Invariant: values.len() == samples * width, samples > 0, width > 0.
    values: Vec<f32>,
    width: usize,
    // Invariant: as many as there are samples, every label below classes.len().
    labels: Option<TableLabels>,
    classes: Vec<String>,
    // Invariant: none, or one a sample.
    files: Vec<String>,
    source: Option<FeatureSource>,
}

/// What is known about each sample.
#[derive(Clone, PartialEq, Eq)]
pub enum TableLabels {
    /// One class a sample, counted from 0.
    Classes(Vec<usize>),
    /// Which attributes each sample has: samples x classes, row after row.
    Attributes(Vec<bool>),
}

/// The network the features come from, and how photos were prepared for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureSource {
    /// SHA-256 of the model's file, in hexadecimal.
    pub model_digest: String,
    /// The preparation of photos, as JSON.
    pub preprocessing: String,
}

impl FeatureTable {
    /// Takes rows of `width` features each.
    ///
    /// # Errors
    /// No values, or a last row that is not whole.
    pub fn new(width: usize, values: Vec<f32>) -> Result<Self, Error> {
        if width == 0 || values.is_empty() {
            return Err(Error::table("there are no features", "a file with at least one sample and feature"));
        }
        if !values.len().is_multiple_of(width) {
            return Err(Error::table(
                format!("{} values are no whole number of samples of {width} features", values.len()),
                "write the features again, all samples with the same number",
            ));
        }
        Ok(Self { values, width, labels: None, classes: Vec::new(), files: Vec::new(), source: None })
    }

    /// The same features with labels; `classes` are the names of the classes or attributes.
    ///
    /// # Errors
    /// Not as many labels as samples, a label without a class, or names that are not usable.
    pub fn with_labels(mut self, labels: TableLabels, classes: Vec<String>) -> Result<Self, Error> {
        check_names("class", &classes)?;
        let mut seen = HashSet::new();
        if let Some(twice) = classes.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(Error::table(format!("the class {twice:?} is named twice"), "one name a class"));
        }
        let samples = self.samples();
        match &labels {
            TableLabels::Classes(labels) => {
                check_count("labels", labels.len(), samples)?;
                if let Some(sample) = labels.iter().position(|&label| label >= classes.len()) {
                    return Err(Error::table(
                        format!(
                            "sample {sample} has label {}, and there are {} classes, counted from 0",
                            labels[sample],
                            classes.len()
                        ),
                        "the list of classes the labels were made with",
                    ));
                }
            }
            TableLabels::Attributes(labels) => {
                let expected = samples.checked_mul(classes.len()).filter(|&count| count > 0);
                if expected != Some(labels.len()) {
                    return Err(Error::table(
                        format!(
                            "there are {} attributes of {samples} samples and {} names",
                            labels.len(),
                            classes.len()
                        ),
                        "one column of 0 and 1 for each name",
                    ));
                }
            }
        }
        (self.labels, self.classes) = (Some(labels), classes);
        Ok(self)
    }

    /// The same features with the file each sample comes from.
    ///
    /// # Errors
    /// Not as many files as samples, or names that are not usable.
    pub fn with_files(mut self, files: Vec<String>) -> Result<Self, Error> {
        check_names("file", &files)?;
        check_count("file names", files.len(), self.samples())?;
        self.files = files;
        Ok(self)
    }

    /// The same features with the network they come from.
    pub fn with_source(self, source: FeatureSource) -> Self {
        Self { source: Some(source), ..self }
    }

    /// How many samples there are: at least one.
    pub fn samples(&self) -> usize {
        self.values.len() / self.width
    }

    /// How many features a sample has: at least one.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All values, row after row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The samples, one after the other.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.width)
    }

    /// The labels, if there are any.
    pub fn labels(&self) -> Option<&TableLabels> {
        self.labels.as_ref()
    }

    /// The names of the classes or attributes; none without labels.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The file of each sample; none if nobody knows.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// The network the features come from, if it is known.
    pub fn source(&self) -> Option<&FeatureSource> {
        self.source.as_ref()
    }

    /// The samples with these numbers, in this order. All classes keep their names and numbers.
    ///
    /// # Errors
    /// No sample, or one that does not exist.
    pub fn select(&self, samples: &[usize]) -> Result<Self, Error> {
        if let Some(&beyond) = samples.iter().find(|&&sample| sample >= self.samples()) {
            return Err(Error::table(
                format!("there is no sample {beyond}: there are {}, counted from 0", self.samples()),
                "sample numbers of this file",
            ));
        }
        let rows = |sample: usize| &self.values[sample * self.width..][..self.width];
        let mut selected =
            Self::new(self.width, samples.iter().flat_map(|&sample| rows(sample)).copied().collect())?;
        let columns = self.classes.len();
        selected.labels = self.labels.as_ref().map(|labels| match labels {
            TableLabels::Classes(labels) => {
                TableLabels::Classes(samples.iter().map(|&sample| labels[sample]).collect())
            }
            TableLabels::Attributes(labels) => TableLabels::Attributes(
                samples.iter().flat_map(|&sample| &labels[sample * columns..][..columns]).copied().collect(),
            ),
        });
        selected.classes = self.classes.clone();
        if !self.files.is_empty() {
            selected.files = samples.iter().map(|&sample| self.files[sample].clone()).collect();
        }
        selected.source = self.source.clone();
        Ok(selected)
    }
}

fn check_count(what: &str, found: usize, samples: usize) -> Result<(), Error> {
    if found == samples {
        return Ok(());
    }
    Err(Error::table(
        format!("there are {found} {what} for {samples} samples"),
        "features and labels that were written together",
    ))
}

fn check_names(what: &str, names: &[String]) -> Result<(), Error> {
    for (number, name) in names.iter().enumerate() {
        // a NUL ends a name in an array of NumPy
        let wrong = if name.is_empty() {
            "is empty"
        } else if name.contains('\0') {
            "contains a NUL character"
        } else if name.chars().count() > LONGEST_NAME {
            "is longer than 4096 characters"
        } else {
            continue;
        };
        return Err(Error::table(format!("the name of {what} {number} {wrong}"), "another name"));
    }
    Ok(())
}

impl core::fmt::Debug for FeatureTable {
    /// The sizes only: the values are somebody's data.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FeatureTable")
            .field("samples", &self.samples())
            .field("width", &self.width)
            .field("classes", &self.classes.len())
            .finish_non_exhaustive()
    }
}

impl core::fmt::Debug for TableLabels {
    /// The kind and the number only.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Classes(labels) => write!(f, "Classes({})", labels.len()),
            Self::Attributes(labels) => write!(f, "Attributes({})", labels.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn shapes_and_labels_are_checked() {
        assert!(FeatureTable::new(0, vec![]).is_err());
        assert!(FeatureTable::new(2, vec![]).is_err());
        assert!(FeatureTable::new(2, vec![1.0; 3]).is_err());
        let table = FeatureTable::new(2, vec![1.0, f32::NAN, 3.0, 4.0]).unwrap();
        let with = |labels, classes: &[&str]| table.clone().with_labels(labels, names(classes));
        assert!(with(TableLabels::Classes(vec![0, 1]), &["a", "b"]).is_ok());
        for (labels, classes) in [
            (TableLabels::Classes(vec![0]), &["a", "b"][..]),
            (TableLabels::Classes(vec![0, 2]), &["a", "b"]),
            (TableLabels::Classes(vec![0, 1]), &["a", "a"]),
            (TableLabels::Classes(vec![0, 1]), &["a", ""]),
            (TableLabels::Classes(vec![0, 1]), &["a", "b\0"]),
            (TableLabels::Attributes(vec![true; 3]), &["a", "b"]),
            (TableLabels::Attributes(vec![]), &[]),
        ] {
            let error = with(labels, classes).unwrap_err();
            assert!(error.hint().is_some(), "{error}");
        }
        assert!(table.clone().with_files(names(&["one"])).is_err());
        assert!(table.clone().with_files(vec!["x".repeat(4097); 2]).is_err());
        assert_eq!(format!("{table:?}"), "FeatureTable { samples: 2, width: 2, classes: 0, .. }");
    }

    #[test]
    fn a_selection_takes_everything_along() {
        let table = FeatureTable::new(1, vec![1.0, 2.0, 3.0])
            .unwrap()
            .with_labels(
                TableLabels::Attributes(vec![true, false, false, false, true, true]),
                names(&["a", "b"]),
            )
            .unwrap()
            .with_files(names(&["x", "y", "z"]))
            .unwrap()
            .with_source(FeatureSource { model_digest: "00".into(), preprocessing: "{}".into() });
        let selected = table.select(&[2, 0]).unwrap();
        assert_eq!(selected.values(), [3.0, 1.0]);
        assert_eq!(selected.labels(), Some(&TableLabels::Attributes(vec![true, true, true, false])));
        assert_eq!(selected.files(), ["z", "x"]);
        assert_eq!(selected.source(), table.source());
        assert!(table.select(&[3]).is_err() && table.select(&[]).is_err());
    }
}
