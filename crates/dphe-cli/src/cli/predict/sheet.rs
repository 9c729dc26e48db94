//! The page of `dphe predict`: photos side by side, each with its labels.

use std::path::Path;

use super::{Prediction, seen_from};
use crate::files;
use crate::page::{Figure, Page, Picture};
use crate::png;
use crate::terminal::Tone;

/// The most photos on a page. Browsers get slow with more.
const MOST_PHOTOS: usize = 2000;
/// The most bytes of photos that a page contains. It refers to the files of the others.
const MOST_BYTES: u64 = 24_000_000;

/// Returns the page. It contains copies of the photos as far as they are small enough, so that it can be sent.
pub(super) fn page(predictions: &[Prediction], classes: &[String], root: &Path, at: &Path) -> String {
    let mut page = Page::new("Labels of photos");
    page.lead("The least certain labels come first: those whose best and second-best scores are closest.");
    let mut order: Vec<&Prediction> = predictions.iter().collect();
    order.sort_by(|a, b| margin(a).total_cmp(&margin(b)));
    let filed: Vec<(&str, bool)> = order
        .iter()
        .filter_map(|prediction| Some((filed_as(prediction, classes)?, is_as_filed(prediction))))
        .collect();
    let mut figures = vec![Figure::new("photos", predictions.len().to_string(), "")];
    if !filed.is_empty() {
        let right = filed.iter().filter(|(_, right)| *right).count();
        let tone = if right == filed.len() { Tone::Good } else { Tone::Doubtful };
        let value = format!("{right} of {}", filed.len());
        figures.push(Figure::new("labelled as their directory is named", value, "").toned(tone));
    }
    page.figures(&figures);
    if predictions.len() > MOST_PHOTOS {
        page.paragraph(&format!("Only {MOST_PHOTOS} are shown."));
    }
    let mut left = MOST_BYTES;
    let pictures: Vec<Picture> = order
        .into_iter()
        .take(MOST_PHOTOS)
        .map(|prediction| {
            let file = root.join(&prediction.file);
            let labels = prediction.labels.iter();
            let mut lines: Vec<String> =
                labels.map(|scored| format!("{} (score {:.2})", scored.label, scored.score)).collect();
            if let Some(name) = filed_as(prediction, classes).filter(|_| !is_as_filed(prediction)) {
                lines.push(format!("its directory says {name}"));
            }
            Picture {
                address: copied(&file, &mut left).unwrap_or_else(|| seen_from(at, &file)),
                name: prediction.file.clone(),
                lines,
            }
        })
        .collect();
    page.pictures(&pictures);
    page.paragraph("A score is a distance to the boundary of the class. A photo with only negative scores fits no class well.");
    page.html()
}

/// Returns how much better the best label is than the second one.
fn margin(prediction: &Prediction) -> f64 {
    match &prediction.labels[..] {
        [best, second, ..] => best.score - second.score,
        _ => f64::INFINITY,
    }
}

/// Returns the name of a photo's directory if it is the name of a class.
fn filed_as<'a>(prediction: &'a Prediction, classes: &[String]) -> Option<&'a str> {
    let directory = Path::new(&prediction.file).parent()?.file_name()?.to_str()?;
    classes.iter().any(|class| class == directory).then_some(directory)
}

fn is_as_filed(prediction: &Prediction) -> bool {
    let directory = Path::new(&prediction.file).parent().and_then(Path::file_name);
    prediction.labels.first().is_some_and(|best| directory == Some(best.label.as_ref()))
}

/// Returns a photo as a `data:` address, if a browser shows its format and `left` bytes are enough for it.
fn copied(file: &Path, left: &mut u64) -> Option<String> {
    let kind = match file.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "jpg" | "jpeg" => "jpeg",
        "png" => "png",
        "gif" => "gif",
        "webp" => "webp",
        _ => return None,
    };
    let bytes = files::read_at_most(file, *left).ok()?;
    *left = left.checked_sub(bytes.len() as u64)?;
    Some(format!("data:image/{kind};base64,{}", png::base64(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::super::Scored;
    use super::*;

    fn prediction(file: &str, scores: [f64; 2]) -> Prediction {
        let scored = |label: &str, score| Scored { label: label.into(), score };
        Prediction { file: file.into(), labels: vec![scored("cat", scores[0]), scored("dog", scores[1])] }
    }

    #[test]
    fn pages_contain_their_photos_and_begin_with_doubtful_labels() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("sure.png"), b"abc").unwrap();
        let predictions = [prediction("sure.png", [2.0, -1.0]), prediction("dog/doubtful.tif", [0.2, 0.1])];
        let classes = ["cat".to_owned(), "dog".to_owned()];
        let html = page(&predictions, &classes, directory.path(), &directory.path().join("page.html"));
        assert!(html.contains("src=\"data:image/png;base64,YWJj\" alt=\"sure.png\""), "{html}");
        assert!(
            html.contains("src=\"dog/doubtful.tif\"") && html.contains("its directory says dog"),
            "{html}"
        );
        let (mut left, file) = (5, directory.path().join("sure.png"));
        assert!(copied(&file, &mut left).is_some() && left == 2);
        assert!(copied(&file, &mut left).is_none() && left == 2);
        assert!(html.find("doubtful.tif") < html.find("sure.png") && html.contains("0 of 1"), "{html}");
    }
}
