//! Feature files whose samples are found by the names of the image files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use dphe_features::{FeatureTable, ReadOptions, TableParts, read_table};
use dphe_learn::{Dataset, Features, Labels};

use super::layout::Layout;
use crate::Error;

/// A feature file and the layout that is expected of it.
pub(super) struct FeatureFile {
    pub(super) path: PathBuf,
    pub(super) table: FeatureTable,
    layout: Layout,
}

impl FeatureFile {
    /// Reads `features.npz` or `features.npy` in a directory.
    pub(super) fn in_directory(directory: &Path, layout: Layout) -> Result<Self, Error> {
        let candidates = ["features.npz", "features.npy"].map(|name| directory.join(name));
        match candidates.into_iter().find(|path| path.is_file()) {
            Some(path) => Self::read(&path, layout),
            None => Err(layout.error(directory, "it holds neither features.npz nor features.npy")),
        }
    }

    pub(super) fn read(path: &Path, layout: Layout) -> Result<Self, Error> {
        let table = read_table(path, &ReadOptions::default()).map_err(|error| {
            // the error names the malformed file, which may be another one in the same directory
            let hint = error.hint().map_or(String::new(), |hint| format!(" ({hint})"));
            layout.error(path, format!("{error}{hint}"))
        })?;
        Ok(Self { path: path.into(), table, layout })
    }

    pub(super) fn error(&self, what: impl ToString) -> Error {
        self.layout.error(&self.path, what)
    }

    /// Maps file names to sample numbers. A file is found by its whole name, and by its last part if that is unique.
    pub(super) fn by_file(&self) -> Result<HashMap<&str, usize>, Error> {
        let files = self.table.files();
        if files.is_empty() {
            return Err(self.error("the array `files`, which names the images, is missing"));
        }
        let mut whole = HashMap::new();
        let mut last: HashMap<&str, Option<usize>> = HashMap::new();
        for (sample, file) in files.iter().enumerate() {
            if whole.insert(file.as_str(), sample).is_some() {
                return Err(self.error(format!("the array `files` lists {file:?} twice")));
            }
            let part = file.rsplit(['/', '\\']).next().unwrap_or(file);
            last.entry(part).and_modify(|known| *known = None).or_insert(Some(sample));
        }
        let unique = last.into_iter().filter_map(|(part, sample)| Some((part, sample?)));
        let mut all: HashMap<&str, usize> = unique.collect();
        all.extend(whole);
        Ok(all)
    }

    /// Copies the samples with these numbers and gives them these labels.
    pub(super) fn dataset(&self, samples: &[usize], labels: Labels) -> Result<Dataset, Error> {
        let width = self.table.width();
        let mut values = Vec::with_capacity(samples.len() * width);
        for &sample in samples {
            // the numbers are those of this table's rows
            let row = self.table.values().get(sample * width..).unwrap_or_default();
            values.extend_from_slice(row.get(..width).unwrap_or_default());
        }
        let features = Features::new(width, values).map_err(|error| self.error(error))?;
        Dataset::new(features, labels).map_err(|error| self.error(error))
    }

    /// Keeps the samples with these numbers, in ascending order, and gives them these labels. The values stay in the
    /// memory that they were read into.
    pub(super) fn into_dataset(self, samples: &[usize], labels: Labels) -> Result<Dataset, Error> {
        let Self { path, table, layout } = self;
        let TableParts { width, mut values, .. } = table.into_parts();
        for (row, &sample) in samples.iter().enumerate() {
            values.copy_within(sample * width..(sample + 1) * width, row * width);
        }
        values.truncate(samples.len() * width);
        let features = Features::new(width, values).map_err(|error| layout.error(&path, error))?;
        Dataset::new(features, labels).map_err(|error| layout.error(&path, error))
    }
}
