//! svmlight files: one line `label feature:value feature:value ... # comment` per sample. Missing features are 0.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::npy::{reserve, too_large};
use super::{MOST_CLASSES, ReadOptions, label, read_names};
use crate::{Error, FeatureTable, TableLabels};

pub(super) fn read(path: &Path, options: &ReadOptions) -> Result<FeatureTable, Error> {
    let classes = options.classes.as_deref().map(read_names).transpose()?;
    let mut lines = BufReader::new(File::open(path).map_err(Error::read(path))?);
    let mut sparse = Sparse::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(Error::read(path))? == 0 {
            break;
        }
        let text = core::str::from_utf8(&line).map_err(|_| bad(number, "the line is not UTF-8 text"))?;
        let text = text.split('#').next().unwrap_or_default().trim();
        if !text.is_empty() {
            sparse.push(text, number)?;
        }
    }

    let first = options.first_feature.unwrap_or(usize::from(sparse.lowest != Some(0)));
    if sparse.lowest.is_some_and(|lowest| (lowest as usize) < first) {
        return Err(Error::table(
            "there is a feature 0, but features are numbered from 1",
            "Number the features from 0.",
        ));
    }
    let seen = sparse.highest.map_or(0, |highest| highest as usize + 1 - first);
    let width = options.width.unwrap_or(seen);
    if seen > width {
        return Err(Error::table(
            format!("there are {seen} features, more than the {width} that were requested"),
            "Use the number of features of the other files.",
        ));
    }
    let samples = sparse.ends.len();
    let count = samples.checked_mul(width).filter(|&count| count <= options.max_values);
    let count = count.ok_or_else(|| too_large(samples.saturating_mul(width), options.max_values))?;
    let mut values = reserve(count)?;
    values.resize(count, 0.0);
    let mut start = 0;
    for (row, &end) in values.chunks_exact_mut(width.max(1)).zip(&sparse.ends) {
        for &(feature, value) in &sparse.pairs[start..end] {
            row[feature as usize - first] = value;
        }
        start = end;
    }
    let table = FeatureTable::new(width, values)?;
    let (labels, classes) = sparse.labels(classes)?;
    table.with_labels(labels, classes)
}

/// The samples in sparse form, before the number of features is known.
#[derive(Default)]
struct Sparse {
    pairs: Vec<(u32, f32)>,
    /// The end of each sample in `pairs`.
    ends: Vec<usize>,
    labels: Vec<Vec<i64>>,
    several: bool,
    lowest: Option<u32>,
    highest: Option<u32>,
}

impl Sparse {
    fn push(&mut self, line: &str, number: usize) -> Result<(), Error> {
        let mut words = line.split_ascii_whitespace();
        let mut label = words.next().unwrap_or_default();
        let mut first = None;
        if label.contains(':') {
            // a sample without labels, in files where a sample may have several
            (first, label) = (Some(label), "");
            self.several = true;
        }
        let labels: Option<Vec<i64>> = label.split(',').filter(|l| !l.is_empty()).map(whole).collect();
        let labels =
            labels.ok_or_else(|| bad(number, &format!("the label {label:?} is not a whole number")))?;
        self.several |= labels.len() > 1;
        self.labels.push(labels);

        let mut before = None;
        for word in first.into_iter().chain(words) {
            if word.starts_with("qid:") {
                return Err(Error::table(
                    format!("line {number} has a query number (qid), which is used for ranking only"),
                    "Remove the qid: columns.",
                ));
            }
            let pair = word.split_once(':');
            let pair = pair.and_then(|(feature, value)| Some((feature.parse().ok()?, value.parse().ok()?)));
            let Some((feature, value)) = pair else {
                return Err(bad(number, &format!("{word:?} is not feature:value")));
            };
            if before.is_some_and(|before| before >= feature) {
                return Err(bad(number, "the features are not in ascending order"));
            }
            before = Some(feature);
            self.lowest = Some(self.lowest.map_or(feature, |lowest| lowest.min(feature)));
            self.highest = Some(self.highest.map_or(feature, |highest| highest.max(feature)));
            self.pairs.push((feature, value));
        }
        self.ends.push(self.pairs.len());
        Ok(())
    }

    fn labels(self, classes: Option<Vec<String>>) -> Result<(TableLabels, Vec<String>), Error> {
        if !self.several {
            return label::from_numbers(self.labels.into_iter().flatten().collect(), classes);
        }
        let known = classes.as_ref().map(Vec::len);
        let seen = self.labels.iter().flatten().max().map_or(1, |&highest| highest.saturating_add(1));
        let count = known.unwrap_or(usize::try_from(seen).unwrap_or_default());
        let size = self
            .labels
            .len()
            .checked_mul(count)
            .filter(|&size| count <= MOST_CLASSES && size <= super::MOST_VALUES);
        let mut attributes = reserve(size.ok_or_else(|| bad(1, "there are too many labels"))?)?;
        attributes.resize(self.labels.len() * count, false);
        for (row, labels) in attributes.chunks_exact_mut(count.max(1)).zip(&self.labels) {
            for &label in labels {
                let place = usize::try_from(label).ok().and_then(|label| row.get_mut(label));
                *place.ok_or_else(|| {
                    Error::table(
                        format!("label {label} is not one of {count} (numbered from 0)"),
                        "Use the list of classes that the labels were made with.",
                    )
                })? = true;
            }
        }
        let names = classes.unwrap_or_else(|| (0..count).map(|i| i.to_string()).collect());
        Ok((TableLabels::Attributes(attributes), names))
    }
}

fn whole(text: &str) -> Option<i64> {
    let value: f64 = text.parse().ok()?;
    (value.fract() == 0.0 && value.abs() < 1e15).then_some(value as i64)
}

fn bad(line: usize, what: &str) -> Error {
    Error::table(format!("line {line}: {what}"), "Write lines of the form: 3 1:0.5 7:2.25 # comment")
}
