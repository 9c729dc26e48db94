//! The page of `dphe predict`: photos side by side, each with its labels.

use std::path::Path;

use super::{Prediction, seen_from};
use crate::page::{Page, Picture};

/// The most photos on a page. Browsers get slow with more.
const MOST_PHOTOS: usize = 2000;

/// Returns the page. It links to the photos and does not copy them.
pub(super) fn page(predictions: &[Prediction], root: &Path, at: &Path) -> String {
    let mut page = Page::new("Labels");
    page.paragraph(&format!("{} photos.", predictions.len()));
    if predictions.len() > MOST_PHOTOS {
        page.paragraph(&format!("Only the first {MOST_PHOTOS} are shown."));
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
