//! Caltech-101 and Caltech-256: one class per image.

use std::path::Path;

use dphe_features::TableLabels;
use dphe_learn::Labels;

use super::Unsplit;
use super::feature_file::FeatureFile;
use super::layout::Layout;
use crate::Error;

const LAYOUT: Layout = Layout {
    expected: "features.npz as `dphe extract` writes it, or features.npy, labels.npy and classes.json",
    anchor: "caltech-101-and-caltech-256",
};

/// The background classes. The paper counts 101 and 256 classes without them.
const BACKGROUND: [&str; 2] = ["BACKGROUND_Google", "257.clutter"];

/// Reads a directory with features. The background class is left out.
///
/// # Errors
/// Returns [`Error::Data`] if a file is missing or has another layout.
pub fn caltech(directory: &Path) -> Result<Unsplit, Error> {
    let samples = FeatureFile::in_directory(directory, LAYOUT)?;
    let Some(TableLabels::Classes(labels)) = samples.table.labels() else {
        return Err(samples.error("the samples have no classes"));
    };
    let classes = samples.table.classes();
    let is_background =
        |class: usize| classes.get(class).is_some_and(|name| BACKGROUND.contains(&name.as_str()));
    let kept: Vec<usize> = (0..classes.len()).filter(|&class| !is_background(class)).collect();
    let mut number = vec![None; classes.len()];
    for (new, &class) in (0u32..).zip(&kept) {
        number[class] = Some(new);
    }
    let (mut picked, mut renumbered) = (Vec::new(), Vec::new());
    for (sample, &label) in labels.iter().enumerate() {
        if let Some(class) = number.get(label).copied().flatten() {
            picked.push(sample);
            renumbered.push(class);
        }
    }
    let names: Vec<String> = kept.iter().map(|&class| classes[class].clone()).collect();
    let labels = Labels::classes(names.len(), renumbered).map_err(|error| samples.error(error))?;
    let left_out = samples.table.samples() - picked.len();
    let path = samples.path.clone();
    let data = samples.into_dataset(&picked, labels)?;
    let left_out =
        if left_out > 0 { format!("; {left_out} of the background class left out") } else { String::new() };
    let description = format!(
        "{}: {} images of {} classes, {} features{left_out}",
        path.display(),
        data.len(),
        names.len(),
        data.features().width()
    );
    Ok(Unsplit { data, names, description })
}
