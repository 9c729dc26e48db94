//! Medical images of two kinds, such as chest X-rays with and without pneumonia.

use std::path::Path;

use dphe_features::TableLabels;
use dphe_learn::dataset::shares;
use dphe_learn::{Labels, Seed};

use super::Presplit;
use super::feature_file::FeatureFile;
use super::layout::Layout;
use crate::Error;

const LAYOUT: Layout = Layout {
    expected: "features of two classes, the second of which is to be detected, and files named train/... and test/...",
    anchor: "medical-images",
};

/// Reads a directory with features of two classes. The second class is the positive one. Files in `test/` are held out,
/// and those in `train/` are for users. If the features do not name their files, three tenths are held out at random.
///
/// # Errors
/// Returns [`Error::Data`] if a file is missing or has another layout.
pub fn medical(directory: &Path) -> Result<Presplit, Error> {
    let samples = FeatureFile::in_directory(directory, LAYOUT)?;
    let Some(TableLabels::Classes(labels)) = samples.table.labels() else {
        return Err(samples.error("the samples have no classes"));
    };
    let names = samples.table.classes().to_vec();
    if names.len() != 2 {
        return Err(samples.error(format!("it has {} classes, not two", names.len())));
    }
    let [train, test] = split(&samples, labels.len())?;
    let part = |picked: &[usize], what: &str| {
        let present: Vec<bool> = picked.iter().map(|&sample| labels[sample] == 1).collect();
        if !present.contains(&true) || !present.contains(&false) {
            return Err(samples.error(format!("the {what} samples are all of one class")));
        }
        let labels = Labels::attributes(1, present).map_err(|error| samples.error(error))?;
        samples.dataset(picked, labels)
    };
    let (train, held_out) = (part(&train, "training")?, part(&test, "test")?);
    let description = format!(
        "{}: {} training and {} test images, {} or {}",
        samples.path.display(),
        train.len(),
        held_out.len(),
        names[0],
        names[1]
    );
    Ok(Presplit { initial: None, train, held_out, names: vec![names[1].clone()], description })
}

/// Returns the samples for training and for testing.
fn split(samples: &FeatureFile, count: usize) -> Result<[Vec<usize>; 2], Error> {
    let files = samples.table.files();
    if files.is_empty() {
        let all: Vec<usize> = (0..count).collect();
        let tenths = shares(&all, 10, &Seed::new(0).derive("medical", 0))?;
        let (test, train) = tenths.split_at(3);
        return Ok([train, test].map(|tenths| {
            let mut picked = tenths.concat();
            picked.sort_unstable();
            picked
        }));
    }
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for (sample, file) in files.iter().enumerate() {
        match file.split(['/', '\\']).next() {
            Some("train") => train.push(sample),
            Some("test") => test.push(sample),
            _ => return Err(samples.error(format!("{file:?} is neither in train/ nor in test/"))),
        }
    }
    Ok([train, test])
}
