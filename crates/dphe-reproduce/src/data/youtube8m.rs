//! YouTube-8M: attributes of videos, from the published video-level records.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use dphe_features::tfrecord::Records;
use dphe_learn::{Dataset, Features, Labels};

use super::Presplit;
use super::example::{Video, parse_video};
use super::layout::Layout;
use crate::Error;

const LAYOUT: Layout = Layout {
    expected: "video-level records train*.tfrecord and validate*.tfrecord, with labels and mean_rgb",
    anchor: "youtube-8m",
};
const VOCABULARY: Layout = Layout {
    expected: "the published vocabulary.csv, with the columns Index and Name",
    anchor: "youtube-8m",
};

/// A bound on the number of values in memory: 4 GiB of features.
const MOST_VALUES: usize = 1 << 30;

/// The part of the data set that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YouTube8m {
    /// The largest number of training videos.
    pub train: usize,
    /// The largest number of held-out videos.
    pub held_out: usize,
    /// The number of attributes. The most frequent ones are taken.
    pub attributes: usize,
    /// Whether audio features are appended to those of the frames.
    pub audio: bool,
}

impl Default for YouTube8m {
    /// Returns the paper's part: 227,476 and 79,398 videos, 100 attributes, no audio.
    fn default() -> Self {
        Self { train: 227_476, held_out: 79_398, attributes: 100, audio: false }
    }
}

/// Reads the records in a directory, in the order of the file names. If there is a `vocabulary.csv`, it names the
/// attributes.
///
/// # Errors
/// Returns [`Error::Data`] if a file is missing or has another layout.
pub fn youtube8m(directory: &Path, wanted: &YouTube8m) -> Result<Presplit, Error> {
    let train = read(directory, "train", wanted.train, wanted.audio)?;
    let held_out = read(directory, "validate", wanted.held_out, wanted.audio)?;
    if train.width != held_out.width {
        let what = format!("training videos have {} features, held-out ones {}", train.width, held_out.width);
        return Err(LAYOUT.error(directory, what));
    }
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    train.labels.iter().flatten().for_each(|&label| *counts.entry(label).or_default() += 1);
    let mut frequent: Vec<(u32, usize)> = counts.into_iter().collect();
    // the sort is stable, so equally frequent attributes stay in the order of the vocabulary
    frequent.sort_by_key(|&(_, count)| core::cmp::Reverse(count));
    frequent.truncate(wanted.attributes);
    if frequent.is_empty() {
        return Err(LAYOUT.error(directory, "no training video has a label"));
    }
    let names = vocabulary(&directory.join("vocabulary.csv"))?;
    let name = |label: u32| names.get(&label).cloned().unwrap_or_else(|| format!("label {label}"));
    let chosen: Vec<u32> = frequent.iter().map(|&(label, _)| label).collect();
    let description = format!(
        "{}: {} training and {} held-out videos, {} attributes of {} to {} videos, {} features",
        directory.display(),
        train.labels.len(),
        held_out.labels.len(),
        chosen.len(),
        frequent.last().map_or(0, |&(_, count)| count),
        frequent.first().map_or(0, |&(_, count)| count),
        train.width
    );
    Ok(Presplit {
        initial: None,
        train: train.dataset(directory, &chosen)?,
        held_out: held_out.dataset(directory, &chosen)?,
        names: chosen.into_iter().map(name).collect(),
        description,
    })
}

/// The videos of one part of the split.
struct Videos {
    width: usize,
    values: Vec<f32>,
    labels: Vec<Vec<u32>>,
}

impl Videos {
    fn dataset(self, directory: &Path, chosen: &[u32]) -> Result<Dataset, Error> {
        let has =
            |labels: &Vec<u32>| -> Vec<bool> { chosen.iter().map(|label| labels.contains(label)).collect() };
        let present = self.labels.iter().flat_map(has).collect();
        let labels =
            Labels::attributes(chosen.len(), present).map_err(|error| LAYOUT.error(directory, error))?;
        let features =
            Features::new(self.width, self.values).map_err(|error| LAYOUT.error(directory, error))?;
        Dataset::new(features, labels).map_err(|error| LAYOUT.error(directory, error))
    }
}

/// Reads up to `most` videos from the files whose names start with `prefix`.
fn read(directory: &Path, prefix: &str, most: usize, audio: bool) -> Result<Videos, Error> {
    let files = files(directory, prefix)?;
    let mut videos = Videos { width: 0, values: Vec::new(), labels: Vec::new() };
    for path in &files {
        if videos.labels.len() >= most {
            break;
        }
        let file = File::open(path).map_err(|error| LAYOUT.error(path, error))?;
        for (record, number) in Records::new(BufReader::new(file)).zip(1..) {
            if videos.labels.len() >= most {
                break;
            }
            let record = record.map_err(|error| LAYOUT.error(path, error))?;
            let bad = |what: String| LAYOUT.error(path, format!("record {number}: {what}"));
            let video = parse_video(&record).map_err(|what| bad(what.to_owned()))?;
            add(&mut videos, video, audio).map_err(bad)?;
        }
    }
    if videos.labels.is_empty() {
        return Err(LAYOUT.error(directory, format!("{prefix}*.tfrecord hold no videos")));
    }
    Ok(videos)
}

fn add(videos: &mut Videos, video: Video, audio: bool) -> Result<(), String> {
    let Video { labels, mut mean_rgb, mean_audio, .. } = video;
    if mean_rgb.is_empty() {
        return Err("mean_rgb is missing".to_owned());
    }
    if audio && mean_audio.is_empty() {
        return Err("mean_audio is missing".to_owned());
    }
    if audio {
        mean_rgb.extend(mean_audio);
    }
    if videos.width == 0 {
        videos.width = mean_rgb.len();
    }
    if mean_rgb.len() != videos.width {
        return Err(format!("{} features instead of {} as before", mean_rgb.len(), videos.width));
    }
    if mean_rgb.iter().any(|value| !value.is_finite()) {
        return Err("a feature is not finite".to_owned());
    }
    if videos.values.len() + mean_rgb.len() > MOST_VALUES {
        return Err("the features exceed 4 GiB; read fewer videos".to_owned());
    }
    videos.values.extend(mean_rgb);
    videos.labels.push(labels);
    Ok(())
}

/// Returns the sorted files whose names start with `prefix`, in the directory or in its subdirectory of that name.
fn files(directory: &Path, prefix: &str) -> Result<Vec<PathBuf>, Error> {
    let inner = directory.join(prefix);
    let directory = if inner.is_dir() { &inner } else { directory };
    let entries = directory.read_dir().map_err(|error| LAYOUT.error(directory, error))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| LAYOUT.error(directory, error))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(prefix) && name.ends_with(".tfrecord") {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(LAYOUT.error(directory, format!("{prefix}*.tfrecord is missing")));
    }
    files.sort_unstable();
    Ok(files)
}

/// Reads the names of attributes by number. There are none without the file.
fn vocabulary(path: &Path) -> Result<BTreeMap<u32, String>, Error> {
    let mut names = BTreeMap::new();
    if !path.is_file() {
        return Ok(names);
    }
    let bad = |what: String| VOCABULARY.error(path, what);
    let text = VOCABULARY.text(path)?;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| bad(error.to_string()))?;
    let column = |name: &str| header.iter().position(|column| column == name);
    let (Some(index), Some(name)) = (column("Index"), column("Name")) else {
        return Err(bad("a column is missing".to_owned()));
    };
    for record in reader.records() {
        let record = record.map_err(|error| bad(error.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        let number = record.get(index).unwrap_or_default();
        let number = number.parse().map_err(|_| bad(format!("line {line} has the index {number:?}")))?;
        names.insert(number, record.get(name).unwrap_or_default().to_owned());
    }
    Ok(names)
}
