//! CelebA: 40 face attributes, and the official partition.

use std::collections::HashMap;
use std::path::Path;

use dphe_learn::{Dataset, Labels};

use super::Presplit;
use super::feature_file::FeatureFile;
use super::layout::Layout;
use crate::Error;

const ANCHOR: &str = "celeba";
const FEATURES: Layout = Layout {
    expected: "features.npz as `dphe extract` writes it, whose array `files` names the images",
    anchor: ANCHOR,
};
const ATTRIBUTES: Layout = Layout {
    expected: "the number of images, a line with 40 names, and one line per image with its file and 40 labels, -1 or 1",
    anchor: ANCHOR,
};
const PARTITION: Layout = Layout {
    expected: "one line per image with its file and 0 (train), 1 (validation) or 2 (test)",
    anchor: ANCHOR,
};

/// The number of attributes.
const COUNT: usize = 40;

/// Reads `list_attr_celeba.txt`, `list_eval_partition.txt` and `features.npz` in a directory. Users hold the training
/// images, the validation images are public, and the test images are held out. Images without features are left out.
///
/// # Errors
/// Returns [`Error::Data`] if a file is missing or has another layout.
pub fn celeba(directory: &Path) -> Result<Presplit, Error> {
    let attributes_path = directory.join("list_attr_celeba.txt");
    let partition_path = directory.join("list_eval_partition.txt");
    let attributes_text = ATTRIBUTES.text(&attributes_path)?;
    let partition_text = PARTITION.text(&partition_path)?;
    let (names, rows) = attributes(&attributes_path, &attributes_text)?;
    let partition = partition(&partition_path, &partition_text)?;
    if rows.len() != partition.len() {
        let what = format!("it lists {} images, but there are attributes of {}", partition.len(), rows.len());
        return Err(PARTITION.error(&partition_path, what));
    }

    let samples = FeatureFile::in_directory(directory, FEATURES)?;
    let by_file = samples.by_file()?;
    let mut parts: [(Vec<usize>, Vec<bool>); 3] = Default::default();
    for (file, present) in &rows {
        let part = partition.get(file).copied();
        let part =
            part.ok_or_else(|| PARTITION.error(&partition_path, format!("there is no line for {file}")))?;
        if let (Some(&sample), Some((chosen, labels))) = (by_file.get(file), parts.get_mut(part)) {
            chosen.push(sample);
            labels.extend_from_slice(present);
        }
    }
    let [train, initial, held_out] = parts;
    let dataset = |name: &str, (chosen, labels): (Vec<usize>, Vec<bool>)| -> Result<Dataset, Error> {
        if chosen.is_empty() {
            return Err(samples.error(format!("there are no features of {name} images")));
        }
        let labels = Labels::attributes(COUNT, labels).map_err(|error| samples.error(error))?;
        samples.dataset(&chosen, labels)
    };
    let (train, initial, held_out) =
        (dataset("train", train)?, dataset("validation", initial)?, dataset("test", held_out)?);
    let description = format!(
        "{}: {} train, {} validation, {} test images of {} listed, {COUNT} attributes, {} features",
        samples.path.display(),
        train.len(),
        initial.len(),
        held_out.len(),
        rows.len(),
        train.features().width()
    );
    Ok(Presplit { initial: Some(initial), train, held_out, names, description })
}

type Rows<'a> = Vec<(&'a str, Vec<bool>)>;

/// Reads the names of the attributes, and the attributes of each file in the order of the list.
fn attributes<'a>(path: &Path, text: &'a str) -> Result<(Vec<String>, Rows<'a>), Error> {
    let bad = |what: String| ATTRIBUTES.error(path, what);
    let mut lines = text.lines().zip(1..);
    let count = lines.next().map_or("", |(line, _)| line.trim());
    let count: usize =
        count.parse().map_err(|_| bad(format!("line 1: {count:?} is not a number of images")))?;
    let names: Vec<String> =
        lines.next().map_or("", |(line, _)| line).split_whitespace().map(str::to_owned).collect();
    if names.len() != COUNT {
        return Err(bad(format!("line 2 has {} names instead of {COUNT}", names.len())));
    }
    let mut rows = Vec::new();
    for (line, number) in lines.filter(|(line, _)| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let file = words.next().unwrap_or_default();
        let mut present = Vec::with_capacity(COUNT);
        for word in words {
            present.push(match word {
                "1" => true,
                "-1" | "0" => false,
                other => return Err(bad(format!("line {number} has the unknown label {other:?}"))),
            });
        }
        if present.len() != COUNT {
            return Err(bad(format!("line {number} has {} labels instead of {COUNT}", present.len())));
        }
        rows.push((file, present));
    }
    if rows.len() != count {
        return Err(bad(format!("line 1 says {count} images, but there are {}", rows.len())));
    }
    Ok((names, rows))
}

/// Reads the part of every file: 0, 1 or 2.
fn partition<'a>(path: &Path, text: &'a str) -> Result<HashMap<&'a str, usize>, Error> {
    let mut parts = HashMap::new();
    for (line, number) in text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty()) {
        let bad = |what: String| PARTITION.error(path, format!("line {number} {what}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[file, part] = &words[..] else {
            return Err(bad(format!("has {} words instead of 2", words.len())));
        };
        let part = match part {
            "0" => 0,
            "1" => 1,
            "2" => 2,
            other => return Err(bad(format!("has the unknown part {other:?}"))),
        };
        if parts.insert(file, part).is_some() {
            return Err(bad(format!("repeats {file}")));
        }
    }
    Ok(parts)
}
