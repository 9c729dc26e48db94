//! Detection: a list of files with one binary label each.

use std::collections::HashSet;
use std::path::Path;

use dphe_learn::Labels;

use super::feature_file::FeatureFile;
use super::layout::Layout;
use super::{Presplit, Unsplit};
use crate::Error;

const ANCHOR: &str = "life-logging";
const LIST: Layout =
    Layout { expected: "a CSV file with the columns file,label and labels 0 or 1", anchor: ANCHOR };
const FEATURES: Layout = Layout {
    expected: "features.npz as `dphe extract` writes it, whose array `files` names the images",
    anchor: ANCHOR,
};

/// Reads a list with the columns `file,label` and the features of its files. Negative labels are 0 or -1.
///
/// # Errors
/// Returns [`Error::Data`] if a file is missing or has another layout, or if an image of the list has no features.
pub fn detection(list: &Path, features: &Path) -> Result<Unsplit, Error> {
    of(list, &FeatureFile::read(features, FEATURES)?)
}

/// Reads `train.csv`, `test.csv` and `features.npz` in a directory.
///
/// # Errors
/// Returns the same errors as [`detection`].
pub fn lifelog(directory: &Path) -> Result<Presplit, Error> {
    let samples = FeatureFile::in_directory(directory, FEATURES)?;
    let (train, test) =
        (of(&directory.join("train.csv"), &samples)?, of(&directory.join("test.csv"), &samples)?);
    let description = format!("{}; {}", train.description, test.description);
    Ok(Presplit { initial: None, train: train.data, held_out: test.data, names: train.names, description })
}

fn of(list: &Path, samples: &FeatureFile) -> Result<Unsplit, Error> {
    let bad = |what: String| LIST.error(list, what);
    let text = LIST.text(list)?;
    let by_file = samples.by_file()?;
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| bad(error.to_string()))?;
    if header.iter().ne(["file", "label"]) {
        let found: Vec<&str> = header.iter().take(5).collect();
        return Err(bad(format!("line 1 has the columns {}", found.join(","))));
    }
    let (mut chosen, mut present, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for record in reader.records() {
        let record = record.map_err(|error| bad(error.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        let file = record.get(0).unwrap_or_default();
        present.push(match record.get(1).unwrap_or_default() {
            "1" => true,
            "0" | "-1" => false,
            other => return Err(bad(format!("line {line} has the unknown label {other:?}"))),
        });
        let sample = by_file.get(file).copied();
        let sample = sample.ok_or_else(|| {
            bad(format!("line {line}: {} has no features of {file}", samples.path.display()))
        })?;
        if !seen.insert(sample) {
            return Err(bad(format!("line {line} repeats {file}")));
        }
        chosen.push(sample);
    }
    let positive = present.iter().filter(|&&there| there).count();
    let labels = Labels::attributes(1, present).map_err(|_| bad("the list is empty".to_owned()))?;
    let data = samples.dataset(&chosen, labels)?;
    let description = format!(
        "{}: {} images, {positive} of them positive, {} features",
        list.display(),
        data.len(),
        data.features().width()
    );
    Ok(Unsplit { data, names: vec!["positive".to_owned()], description })
}
