//! `FeatureTable`: features with their labels, class names, file names and origin.

use std::collections::HashSet;

use crate::Error;

/// NumPy pads every name to the length of the longest, so one very long name could fill a disk.
const LONGEST_NAME: usize = 4096;

/// Features with one row per sample, their labels and their origin.
///
/// Values may be NaN or infinite, so that [`summary`](Self::summary) can count them. Learners refuse such values.
#[derive(Clone, PartialEq)]
pub struct FeatureTable {
    // Invariant: values.len() == samples * width, samples > 0, width > 0.
    values: Vec<f32>,
    width: usize,
    // Invariant: one label (or row of attributes) per sample, every label below classes.len().
    labels: Option<TableLabels>,
    classes: Vec<String>,
    // Invariant: empty, or one per sample.
    files: Vec<String>,
    source: Option<FeatureSource>,
}

/// The parts of a [`FeatureTable`], for a consumer that takes them over without copying.
pub struct TableParts {
    /// The number of features per sample.
    pub width: usize,
    /// All values, row after row.
    pub values: Vec<f32>,
    /// The labels, if the table has any.
    pub labels: Option<TableLabels>,
    /// The names of the classes or attributes.
    pub classes: Vec<String>,
    /// The file that each sample comes from. Empty if unknown.
    pub files: Vec<String>,
    /// The network that computed the features, if it is known.
    pub source: Option<FeatureSource>,
}

/// The labels of a table.
#[derive(Clone, PartialEq, Eq)]
pub enum TableLabels {
    /// One class per sample, numbered from 0.
    Classes(Vec<usize>),
    /// One row per sample that tells for each attribute whether the sample has it.
    Attributes(Vec<bool>),
}

/// The network that computed the features, and how photos were prepared for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureSource {
    /// The SHA-256 of the network's file, in hexadecimal.
    pub model_digest: String,
    /// The `Preprocessing` of photos and the network's output tensor, as JSON.
    pub preprocessing: String,
}

impl FeatureTable {
    /// Creates a table without labels from rows of `width` features each.
    ///
    /// # Errors
    /// If there are no values or the last row is incomplete.
    pub fn new(width: usize, values: Vec<f32>) -> Result<Self, Error> {
        if width == 0 || values.is_empty() {
            return Err(Error::table(
                "the table has no features",
                "Provide at least one sample with at least one feature.",
            ));
        }
        if !values.len().is_multiple_of(width) {
            return Err(Error::table(
                format!("{} values cannot be divided into rows of {width} features", values.len()),
                "Write the features again, with the same number of features per sample.",
            ));
        }
        Ok(Self { values, width, labels: None, classes: Vec::new(), files: Vec::new(), source: None })
    }

    /// Adds labels. `classes` are the names of the classes or attributes.
    ///
    /// # Errors
    /// If the number of labels differs from the number of samples, a label has no class, or a name is empty, too long
    /// or repeated.
    pub fn with_labels(mut self, labels: TableLabels, classes: Vec<String>) -> Result<Self, Error> {
        check_names("class", &classes)?;
        let mut seen = HashSet::new();
        if let Some(twice) = classes.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(Error::table(
                format!("the class name {twice:?} occurs twice"),
                "Give every class its own name.",
            ));
        }
        let samples = self.samples();
        match &labels {
            TableLabels::Classes(labels) => {
                check_count("labels", labels.len(), samples)?;
                if let Some(sample) = labels.iter().position(|&label| label >= classes.len()) {
                    return Err(Error::table(
                        format!(
                            "sample {sample} has label {}, but there are only {} classes (numbered from 0)",
                            labels[sample],
                            classes.len()
                        ),
                        "Use the list of classes that the labels were made with.",
                    ));
                }
            }
            TableLabels::Attributes(labels) => {
                let expected = samples.checked_mul(classes.len()).filter(|&count| count > 0);
                if expected != Some(labels.len()) {
                    return Err(Error::table(
                        format!(
                            "{} attribute values do not match {samples} samples and {} attribute names",
                            labels.len(),
                            classes.len()
                        ),
                        "Provide one column of 0 and 1 per attribute name.",
                    ));
                }
            }
        }
        (self.labels, self.classes) = (Some(labels), classes);
        Ok(self)
    }

    /// Adds the name of the file that each sample comes from.
    ///
    /// # Errors
    /// If the number of names differs from the number of samples, or a name is empty or too long.
    pub fn with_files(mut self, files: Vec<String>) -> Result<Self, Error> {
        check_names("file", &files)?;
        check_count("file names", files.len(), self.samples())?;
        self.files = files;
        Ok(self)
    }

    /// Adds the network that computed the features.
    pub fn with_source(self, source: FeatureSource) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Returns the number of samples, which is at least one.
    pub fn samples(&self) -> usize {
        self.values.len() / self.width
    }

    /// Returns the number of features per sample, which is at least one.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns all values, row after row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Iterates over the samples.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.width)
    }

    /// Returns the labels, if the table has any.
    pub fn labels(&self) -> Option<&TableLabels> {
        self.labels.as_ref()
    }

    /// Returns the names of the classes or attributes. The list is empty if there are no labels.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Returns the name of each sample's file. The list is empty if the names are unknown.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Returns the network that computed the features, if it is known.
    pub fn source(&self) -> Option<&FeatureSource> {
        self.source.as_ref()
    }

    /// Takes the table apart without copying it.
    pub fn into_parts(self) -> TableParts {
        let Self { values, width, labels, classes, files, source } = self;
        TableParts { width, values, labels, classes, files, source }
    }

    /// Returns a table of the samples with these numbers, in this order. The list of classes stays the same.
    ///
    /// # Errors
    /// If the list is empty or a sample does not exist.
    pub fn select(&self, samples: &[usize]) -> Result<Self, Error> {
        if let Some(&beyond) = samples.iter().find(|&&sample| sample >= self.samples()) {
            return Err(Error::table(
                format!("there is no sample {beyond}, only {} (numbered from 0)", self.samples()),
                "Use sample numbers of this file.",
            ));
        }
        let rows = |sample: usize| &self.values[sample * self.width..][..self.width];
        let mut selected =
            Self::new(self.width, samples.iter().flat_map(|&sample| rows(sample)).copied().collect())?;
        selected.labels = self.labels.as_ref().map(|labels| labels.select(samples, self.classes.len()));
        selected.classes = self.classes.clone();
        if !self.files.is_empty() {
            selected.files = samples.iter().map(|&sample| self.files[sample].clone()).collect();
        }
        selected.source = self.source.clone();
        Ok(selected)
    }
}

impl TableLabels {
    /// Returns the labels of the samples with these numbers, which must exist. `classes` is the number of classes.
    pub(crate) fn select(&self, samples: &[usize], classes: usize) -> Self {
        match self {
            Self::Classes(labels) => Self::Classes(samples.iter().map(|&sample| labels[sample]).collect()),
            Self::Attributes(labels) => {
                let rows = samples.iter().flat_map(|&sample| &labels[sample * classes..][..classes]);
                Self::Attributes(rows.copied().collect())
            }
        }
    }
}

fn check_count(what: &str, found: usize, samples: usize) -> Result<(), Error> {
    if found == samples {
        return Ok(());
    }
    Err(Error::table(
        format!("there are {found} {what} for {samples} samples"),
        "Use features and labels of the same samples.",
    ))
}

fn check_names(what: &str, names: &[String]) -> Result<(), Error> {
    for (number, name) in names.iter().enumerate() {
        // NumPy strips trailing NULs from names
        let wrong = if name.is_empty() {
            "is empty"
        } else if name.contains('\0') {
            "contains a NUL character"
        } else if name.chars().count() > LONGEST_NAME {
            "is longer than 4096 characters"
        } else {
            continue;
        };
        return Err(Error::table(format!("the name of {what} {number} {wrong}"), "Rename it."));
    }
    Ok(())
}

impl core::fmt::Debug for FeatureTable {
    /// Shows the sizes only, because the values are private data.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FeatureTable")
            .field("samples", &self.samples())
            .field("width", &self.width)
            .field("classes", &self.classes.len())
            .finish_non_exhaustive()
    }
}

impl core::fmt::Debug for TableLabels {
    /// Shows the kind and the number of labels only, because labels are private data.
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
    fn invalid_shapes_labels_and_names_are_refused() {
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
    fn select_keeps_labels_files_and_source() {
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
