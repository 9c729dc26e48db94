//! Reads and writes feature files: `.npz`, `.npy`, CSV, svmlight, Parquet, or a directory of arrays.

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
pub use npz::{NpzArray, NpzFloats, NpzReader, write_npz, write_npz_arrays};
#[cfg(feature = "extract")]
pub(crate) use npz::{NpzParts, write_npz_rows};

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::{Error, FeatureTable};
use atomic::replace;
use npy::Npy;

/// The default limit on values, which is 4 GiB of features.
const MOST_VALUES: usize = 1 << 30;
/// The largest number of classes or attributes.
const MOST_CLASSES: usize = 1 << 16;
/// Bytes per line in the text files beside arrays.
const LONGEST_LINE: u64 = 4 * 4096;

/// How to read a file. The default detects everything from the file itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// The file with the labels of a `.npy` file. The default is `labels.npy` beside `features.npy`.
    pub labels: Option<PathBuf>,
    /// A JSON list of the class names. The default is `classes.json` beside `features.npy`.
    pub classes: Option<PathBuf>,
    /// The label column of a CSV or Parquet file.
    pub label_column: LabelColumn,
    /// The name prefix of attribute columns in a CSV or Parquet file. They hold 0 or 1 and replace the label.
    pub attribute_prefix: Option<String>,
    /// Whether the first line of a CSV file is a header. By default it is, if it contains no numbers.
    pub header: Option<bool>,
    /// The number of the first feature of an svmlight file, 0 or 1. The default is 0 if a feature 0 occurs.
    pub first_feature: Option<usize>,
    /// The number of features of an svmlight file. The default is the highest that occurs.
    pub width: Option<usize>,
    /// The largest table that is read, in values. It keeps a small file from filling the memory.
    pub max_values: usize,
}

/// The column that holds the label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelColumn {
    /// The column named label, labels, class, target or y. Otherwise the last or first column, if it holds text.
    #[default]
    Auto,
    /// No column: the file has no labels.
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

/// Reads features, and labels if the file has any.
///
/// A directory holds `features.npy` and optionally `labels.npy`, `classes.json` and `files.txt`. The format of a file
/// follows from its extension: `.npz`, `.npy`, `.csv`, `.tsv`, `.svmlight`, `.svm`, `.libsvm` or `.parquet`.
///
/// # Errors
/// If the file cannot be read or is invalid. The error names the file and the problem.
pub fn read_table(path: &Path, options: &ReadOptions) -> Result<FeatureTable, Error> {
    let metadata = path.metadata().map_err(Error::read(path))?;
    if metadata.is_dir() {
        if !path.join("features.npy").exists() {
            return Err(bad(
                path,
                "the directory has no features.npy",
                "If it holds photos, compute their features first: `dphe extract DIRECTORY --network NETWORK.onnx -o \
                 features.npz`.",
            ));
        }
        return read_arrays(&path.join("features.npy"), options);
    }
    if metadata.len() == 0 {
        return Err(bad(path, "the file is empty", "Write or copy it again."));
    }
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    match ending.as_str() {
        "npz" => npz::read(path, options),
        "npy" => read_arrays(path, options),
        "csv" => csv::read(path, csv::separator(path)?, options),
        "tsv" => csv::read(path, b'\t', options),
        "svmlight" | "svm" | "libsvm" => svmlight::read(path, options),
        #[cfg(feature = "parquet")]
        "parquet" => parquet::read(path, options),
        #[cfg(not(feature = "parquet"))]
        "parquet" => Err(bad(
            path,
            "this build cannot read Parquet files",
            "Build with `cargo build --release --features parquet`, or convert the file to .npz or .csv.",
        )),
        _ => Err(bad(
            path,
            "features cannot be read from a file with this ending",
            "Use a .npz, .npy, .csv, .tsv, .svmlight or .parquet file, or a directory with features.npy.",
        )),
    }
    .map_err(|error| error.in_file(path))
}

/// Reads features from a `.npy` file, and labels and names from the files beside it.
fn read_arrays(path: &Path, options: &ReadOptions) -> Result<FeatureTable, Error> {
    let table = open_npy(path, options.max_values)?.matrix().map_err(|error| error.in_file(path))?;
    let samples = table.samples();

    let beside = |name: &str| path.with_file_name(name);
    let own_directory = path.file_name().is_some_and(|name| name == "features.npy");
    let either = |given: &Option<PathBuf>, name: &str| match given {
        Some(given) => Some(given.clone()),
        None => Some(beside(name)).filter(|found| own_directory && found.is_file()),
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
    match Some(beside("files.txt")).filter(|found| own_directory && found.is_file()) {
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
    /// Reads a table from an array of samples x features.
    fn matrix(self) -> Result<FeatureTable, Error> {
        let &[_, width] = self.shape() else {
            return Err(Error::table(
                format!(
                    "the features have the shape {:?} instead of two axes, samples and features",
                    self.shape()
                ),
                "Reshape them with features.reshape(len(features), -1).",
            ));
        };
        FeatureTable::new(width, self.floats()?)
    }
}

/// Reads class names from a JSON list of strings.
fn read_names(path: &Path) -> Result<Vec<String>, Error> {
    serde_json::from_str(&read_text(path, MOST_CLASSES)?).map_err(|error| {
        bad(
            path,
            format!("not a list of class names: {error}"),
            "Write a JSON list such as [\"cat\", \"dog\"].",
        )
    })
}

/// Reads a text file of at most `lines` lines.
fn read_text(path: &Path, lines: usize) -> Result<String, Error> {
    let most = (lines as u64).saturating_mul(LONGEST_LINE);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(Error::read(path))?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(Error::read(path))?;
    if bytes.len() as u64 > most {
        return Err(bad(path, format!("the file is too long for {lines} names"), "Write one name per line."));
    }
    String::from_utf8(bytes).map_err(|_| bad(path, "the file is not UTF-8 text", "Save it again as UTF-8."))
}

fn bad(path: &Path, what: impl Into<String>, hint: &str) -> Error {
    Error::File { path: path.into(), what: what.into(), hint: hint.into() }
}
