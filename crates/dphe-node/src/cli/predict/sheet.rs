//! A contact sheet: photos side by side, each with its labels.

use std::path::Path;

use super::{Prediction, seen_from};
use crate::report::{Page, Picture};

/// More would make a page that no browser likes.
const MOST_PHOTOS: usize = 2000;

/// Photos are linked, not copied: the page shows them where they are.
pub(super) fn page(predictions: &[Prediction], root: &Path, at: &Path) -> String {
    let mut page = Page::new("Labels");
    page.paragraph(&format!("{} photos.", predictions.len()));
    if predictions.len() > MOST_PHOTOS {
        page.paragraph(&format!("The first {MOST_PHOTOS} are shown."));
    }
    let pictures: Vec<Picture> = predictions
        .iter()
        .take(MOST_PHOTOS)
        .map(|prediction| {
            let labels = prediction.labels.iter();
            Picture {
                address: seen_from(at, &root.join(&prediction.file)),
                name: prediction.file.clone(),
                lines: labels.map(|scored| format!("{} {:.2}", scored.label, scored.score)).collect(),
            }
        })
        .collect();
    page.pictures(&pictures);
    page.html()
}
