//! Files that features live in: .npz, .npy, CSV, svmlight, Parquet, or a folder of arrays.

mod atomic;
mod csv;
mod label;
mod npy;
mod npz;
#[cfg(feature = "parquet")]
mod parquet;
mod svmlight;

#[cfg(feature = "extract")]
pub(crate) use label::Names;
pub use npz::write_npz;
#[cfg(feature = "extract")]
pub(crate) use npz::{NpzParts, write_npz_rows};
pub(crate) use npz::{read_classifier_npz, write_classifier_npz};

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::{Error, FeatureTable};
pub(crate) use atomic::replace;
use npy::Npy;

/// Values read at most: 4 GiB of features.
const MOST_VALUES: usize = 1 << 30;
/// Classes or attributes at most.
const MOST_CLASSES: usize = 1 << 16;
/// Bytes of the small text files beside arrays, for each sample or class.
const LONGEST_LINE: u64 = 4 * 4096;

/// How a file is to be read; the default finds out by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// The labels of a `.npy` file; without it, `labels.npy` beside `features.npy`.
    pub labels: Option<PathBuf>,
    /// The names of the classes, a JSON list; without it, `classes.json` beside `features.npy`.
    pub classes: Option<PathBuf>,
    /// Which column of a CSV or Parquet file is the label.
    pub label_column: LabelColumn,
    /// Columns of a CSV or Parquet file whose names start so are attributes, 0 or 1 each, instead of a label.
    pub attribute_prefix: Option<String>,
    /// Whether the first line of a CSV file names the columns; without it, it does if it holds no numbers.
    pub header: Option<bool>,
    /// The number of the first feature of an svmlight file, 0 or 1; without it, 0 if a feature 0 occurs.
    pub first_feature: Option<usize>,
    /// How many features an svmlight file has; without it, as many as occur.
    pub width: Option<usize>,
    /// No table with more values is read, so that a small file cannot fill the memory.
    pub max_values: usize,
}

/// Which column is the label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelColumn {
    /// One named label, labels, class, target or y; without such a name, the last or the first if it holds text.
    #[default]
    Auto,
    /// There are no labels.
    None,
    /// The first column.
    First,
    /// The last column.
    Last,
    /// The column of this name.
    Named(String),
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            labels: None,
            classes: None,
            label_column: LabelColumn::Auto,
            attribute_prefix: None,
            header: None,
            first_feature: None,
            width: None,
            max_values: MOST_VALUES,
        }
    }
}

/// Reads features, and labels where there are some.
///
/// A folder holds `features.npy` and perhaps `labels.npy`, `classes.json` and `files.txt`. Files are known by
/// their endings: `.npz`, `.npy`, `.csv` and `.tsv`, `.svmlight`, `.svm` and `.libsvm`, `.parquet`.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn read_table(path: &Path, options: &ReadOptions) -> Result<FeatureTable, Error> {
    let metadata = path.metadata().map_err(Error::read(path))?;
    if metadata.is_dir() {
        return read_arrays(&path.join("features.npy"), options);
    }
    if metadata.len() == 0 {
        return Err(bad(path, "the file is empty", "write or copy it again"));
    }
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    match ending.as_str() {
        "npz" => npz::read(path, options),
        "npy" => read_arrays(path, options),
        "csv" => csv::read(path, b',', options),
        "tsv" => csv::read(path, b'\t', options),
        "svmlight" | "svm" | "libsvm" => svmlight::read(path, options),
        #[cfg(feature = "parquet")]
        "parquet" => parquet::read(path, options),
        _ => Err(bad(
            path,
            "not a kind of file that features are read from, by its ending",
            "a .npz, .npy, .csv, .tsv, .svmlight or .parquet file, or a folder with features.npy",
        )),
    }
    .map_err(|error| error.in_file(path))
}

/// Arrays in files of their own: features, and labels, names and files beside them.
fn read_arrays(path: &Path, options: &ReadOptions) -> Result<FeatureTable, Error> {
    let table = open_npy(path, options.max_values)?.matrix().map_err(|error| error.in_file(path))?;
    let samples = table.samples();

    let beside = |name: &str| path.with_file_name(name);
    let own_folder = path.file_name().is_some_and(|name| name == "features.npy");
    let either = |given: &Option<PathBuf>, name: &str| match given {
        Some(given) => Some(given.clone()),
        None => Some(beside(name)).filter(|found| own_folder && found.is_file()),
    };
    let classes = match either(&options.classes, "classes.json") {
        Some(path) => Some(read_names(&path)?),
        None => None,
    };
    let table = match either(&options.labels, "labels.npy") {
        Some(path) => {
            let most = samples.saturating_mul(MOST_CLASSES).min(options.max_values);
            let labels = open_npy(&path, most)?;
            label::from_array(labels, classes)
                .and_then(|(labels, classes)| table.with_labels(labels, classes))
                .map_err(|error| error.in_file(&path))?
        }
        None => table,
    };
    match Some(beside("files.txt")).filter(|found| own_folder && found.is_file()) {
        Some(path) => {
            let text = read_text(&path, samples)?;
            let files = text.lines().map(str::to_owned).collect();
            table.with_files(files).map_err(|error| error.in_file(&path))
        }
        None => Ok(table),
    }
}

fn open_npy(path: &Path, max_values: usize) -> Result<Npy<BufReader<File>>, Error> {
    let file = File::open(path).map_err(Error::read(path))?;
    let length = file.metadata().map_err(Error::read(path))?.len();
    Npy::open(BufReader::new(file), length, max_values).map_err(|error| error.in_file(path))
}

impl<R: Read> Npy<R> {
    /// A table from an array of samples x features.
    fn matrix(self) -> Result<FeatureTable, Error> {
        let &[_, width] = self.shape() else {
            return Err(Error::table(
                format!("features of shape {:?}; they have two axes, samples and features", self.shape()),
                "features.reshape(len(features), -1)",
            ));
        };
        FeatureTable::new(width, self.floats()?)
    }
}

/// The names of classes: a JSON list of strings.
fn read_names(path: &Path) -> Result<Vec<String>, Error> {
    serde_json::from_str(&read_text(path, MOST_CLASSES)?).map_err(|error| {
        bad(path, format!("not a list of class names: {error}"), "a JSON list: [\"cat\", \"dog\"]")
    })
}

/// A text file of at most `lines` lines of reasonable length.
fn read_text(path: &Path, lines: usize) -> Result<String, Error> {
    let most = (lines as u64).saturating_mul(LONGEST_LINE);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(Error::read(path))?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(Error::read(path))?;
    if bytes.len() as u64 > most {
        return Err(bad(path, format!("longer than {lines} names can be"), "one name a line"));
    }
    String::from_utf8(bytes).map_err(|_| bad(path, "not UTF-8 text", "save it again as UTF-8"))
}

fn bad(path: &Path, what: impl Into<String>, hint: &str) -> Error {
    Error::File { path: path.into(), what: what.into(), hint: hint.into() }
}
