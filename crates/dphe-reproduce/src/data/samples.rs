//! Features, found by the file they were made from.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use dphe_features::{FeatureTable, ReadOptions, read_table};
use dphe_learn::{Dataset, Features, Labels};

use super::layout::Layout;
use crate::Error;

/// The features of a file or folder.
pub(super) struct Samples {
    pub(super) path: PathBuf,
    pub(super) table: FeatureTable,
    layout: Layout,
}

impl Samples {
    /// Reads `features.npz` or `features.npy` in a folder.
    pub(super) fn in_folder(folder: &Path, layout: Layout) -> Result<Self, Error> {
        let candidates = ["features.npz", "features.npy"].map(|name| folder.join(name));
        match candidates.into_iter().find(|path| path.is_file()) {
            Some(path) => Self::read(&path, layout),
            None => Err(layout.error(folder, "there is neither features.npz nor features.npy")),
        }
    }

    pub(super) fn read(path: &Path, layout: Layout) -> Result<Self, Error> {
        let table = read_table(path, &ReadOptions::default()).map_err(|error| {
            // the reader names the file at fault, which may be one beside this
            let hint = error.hint().map_or(String::new(), |hint| format!(" ({hint})"));
            layout.error(path, format!("{error}{hint}"))
        })?;
        Ok(Self { path: path.into(), table, layout })
    }

    pub(super) fn error(&self, what: impl ToString) -> Error {
        self.layout.error(&self.path, what)
    }

    /// Sample numbers by file: by its whole name, and by its last part where that is unique.
    pub(super) fn by_file(&self) -> Result<HashMap<&str, usize>, Error> {
        let files = self.table.files();
        if files.is_empty() {
            return Err(self.error("there is no array `files`, so nobody knows which picture is which"));
        }
        let mut whole = HashMap::new();
        let mut last: HashMap<&str, Option<usize>> = HashMap::new();
        for (sample, file) in files.iter().enumerate() {
            if whole.insert(file.as_str(), sample).is_some() {
                return Err(self.error(format!("the file {file:?} is there twice")));
            }
            let part = file.rsplit(['/', '\\']).next().unwrap_or(file);
            last.entry(part).and_modify(|known| *known = None).or_insert(Some(sample));
        }
        let unique = last.into_iter().filter_map(|(part, sample)| Some((part, sample?)));
        let mut all: HashMap<&str, usize> = unique.collect();
        all.extend(whole);
        Ok(all)
    }

    /// The samples with these numbers, with these labels.
    pub(super) fn dataset(&self, samples: &[usize], labels: Labels) -> Result<Dataset, Error> {
        let width = self.table.width();
        let mut values = Vec::with_capacity(samples.len() * width);
        for &sample in samples {
            // numbers come from this table
            let row = self.table.values().get(sample * width..).unwrap_or_default();
            values.extend_from_slice(row.get(..width).unwrap_or_default());
        }
        let features = Features::new(width, values).map_err(|error| self.error(error))?;
        Dataset::new(features, labels).map_err(|error| self.error(error))
    }
}
