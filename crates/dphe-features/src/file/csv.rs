//! CSV files with one sample per line. Columns hold features and optionally a label, attributes or a file name.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use csv::{ReaderBuilder, StringRecord};

use super::label::Names;
use super::npy::too_large;
use super::{LabelColumn, MOST_CLASSES, ReadOptions, read_names};
use crate::{Error, FeatureTable, TableLabels};

const LABEL_NAMES: [&str; 5] = ["label", "labels", "class", "target", "y"];
const FILE_NAMES: [&str; 6] = ["file", "files", "filename", "path", "image", "image_id"];

/// Returns the separator of a CSV file. Where decimals have commas, spreadsheets write semicolons between cells.
pub(super) fn separator(path: &Path) -> Result<u8, Error> {
    let mut first = String::new();
    // a line of bytes that are no text has an error of its own later
    let line =
        BufReader::new(File::open(path).map_err(Error::read(path))?).take(LONGEST_LINE).read_line(&mut first);
    let semicolons = line.is_ok() && first.contains(';') && !first.contains(',');
    Ok(if semicolons { b';' } else { b',' })
}

/// How much of a file is read to find its separator.
const LONGEST_LINE: u64 = 1 << 20;

pub(super) fn read(path: &Path, delimiter: u8, options: &ReadOptions) -> Result<FeatureTable, Error> {
    let classes = options.classes.as_deref().map(read_names).transpose()?;
    let file = File::open(path).map_err(Error::read(path))?;
    let mut reader = ReaderBuilder::new().delimiter(delimiter).has_headers(false).from_reader(file);
    let mut record = StringRecord::new();
    let mut next = |record: &mut StringRecord| {
        reader.read_record(record).map_err(|error| Error::table(format!("{error}"), "Correct that line."))
    };

    next(&mut record)?;
    // column names may be numbers; a cell "label" marks a header, but "y" could be a class
    let named = |cell: &str| LABEL_NAMES[..4].iter().any(|name| cell.trim().eq_ignore_ascii_case(name));
    let header = options
        .header
        .unwrap_or_else(|| record.iter().all(|cell| number(cell).is_none()) || record.iter().any(named));
    let mut names = None;
    if header {
        names = Some(record.iter().map(|name| name.trim().to_owned()).collect::<Vec<_>>());
        if !next(&mut record)? {
            return Err(Error::table("there are no samples after the header", "Write one line per sample."));
        }
    }
    let is_text: Vec<bool> = record.iter().map(|cell| number(cell).is_none()).collect();
    let columns = Columns::find(names.as_deref(), &is_text, options)?;

    let (mut values, mut labels, mut attributes, mut files) =
        (Vec::new(), Names::default(), Vec::new(), Vec::new());
    for sample in 0.. {
        if values.len() > options.max_values {
            return Err(too_large(values.len(), options.max_values));
        }
        for &column in &columns.features {
            let value =
                number(&record[column]).ok_or_else(|| columns.not("a number", sample, column, &record))?;
            values.push(value);
        }
        if let Some(column) = columns.label {
            labels.push(record[column].trim())?;
        }
        for &column in &columns.attributes {
            attributes.push(match number(&record[column]) {
                Some(0.0) => false,
                Some(1.0) => true,
                // CelebA writes -1 for an absent attribute
                Some(-1.0) => false,
                _ => return Err(columns.not("0 or 1", sample, column, &record)),
            });
        }
        if let Some(column) = columns.file {
            files.push(record[column].to_owned());
        }
        if !next(&mut record)? {
            break;
        }
    }
    columns.table(values, labels, attributes, files, classes)
}

/// Parses a number. An empty cell is a missing value.
fn number(cell: &str) -> Option<f32> {
    let cell = cell.trim();
    if cell.is_empty() { Some(f32::NAN) } else { cell.parse().ok() }
}

/// The role of each column.
pub(super) struct Columns {
    pub(super) features: Vec<usize>,
    pub(super) label: Option<usize>,
    pub(super) attributes: Vec<usize>,
    pub(super) file: Option<usize>,
    names: Vec<String>,
    prefix: usize,
}

impl Columns {
    /// Finds the roles by the names of the columns, if there are any, and by which columns hold text.
    pub(super) fn find(
        names: Option<&[String]>,
        is_text: &[bool],
        options: &ReadOptions,
    ) -> Result<Self, Error> {
        let count = is_text.len();
        let named = |known: &[&str]| {
            let mut known = known.iter();
            known.find_map(|known| names?.iter().position(|name| name.eq_ignore_ascii_case(known)))
        };
        let file = named(&FILE_NAMES).filter(|&column| is_text[column]);

        let prefix = options.attribute_prefix.as_deref();
        let attributes: Vec<usize> = match (prefix, names) {
            (None, _) => Vec::new(),
            (Some(prefix), Some(names)) => (0..count).filter(|&c| names[c].starts_with(prefix)).collect(),
            (Some(_), None) => {
                return Err(Error::table(
                    "attribute columns are found by name, but there is no header",
                    "Add a first line with the names of the columns.",
                ));
            }
        };
        if let (Some(prefix), true) = (prefix, attributes.is_empty() || attributes.len() > MOST_CLASSES) {
            return Err(Error::table(
                format!("{} columns have names that start with {prefix:?}", attributes.len()),
                "Pass the common prefix of the columns that hold 0 and 1.",
            ));
        }

        let free = |column: &usize| Some(*column) != file && is_text[*column];
        let label = match &options.label_column {
            _ if prefix.is_some() => None,
            LabelColumn::None => None,
            LabelColumn::First => Some(0),
            LabelColumn::Last => count.checked_sub(1),
            LabelColumn::Named(name) => Some(
                names.and_then(|names| names.iter().position(|column| column == name)).ok_or_else(|| {
                    Error::table(
                        format!("there is no column {name:?}"),
                        "Use one of the names in the header.",
                    )
                })?,
            ),
            LabelColumn::Auto => {
                named(&LABEL_NAMES).or_else(|| count.checked_sub(1).filter(free)).or(Some(0).filter(free))
            }
        };
        let features: Vec<usize> = (0..count)
            .filter(|&column| Some(column) != label && Some(column) != file && !attributes.contains(&column))
            .collect();
        if features.is_empty() {
            return Err(Error::table(
                "no column is left for features",
                "Write one sample per line, with features in columns.",
            ));
        }
        let names = names.map(<[String]>::to_vec).unwrap_or_default();
        Ok(Self { features, label, attributes, file, names, prefix: prefix.map_or(0, str::len) })
    }

    /// Builds the table from the values of the columns.
    pub(super) fn table(
        &self,
        values: Vec<f32>,
        labels: Names,
        attributes: Vec<bool>,
        files: Vec<String>,
        classes: Option<Vec<String>>,
    ) -> Result<FeatureTable, Error> {
        let mut table = FeatureTable::new(self.features.len(), values)?;
        if self.label.is_some() {
            let (labels, classes) = labels.labels(classes)?;
            table = table.with_labels(labels, classes)?;
        } else if !self.attributes.is_empty() {
            let names = self.attributes.iter().map(|&column| self.names[column][self.prefix..].to_owned());
            table = table.with_labels(TableLabels::Attributes(attributes), names.collect())?;
        }
        if self.file.is_some() { table.with_files(files) } else { Ok(table) }
    }

    fn not(&self, what: &str, sample: usize, column: usize, record: &StringRecord) -> Error {
        let name =
            self.names.get(column).map_or_else(|| format!("{}", column + 1), |name| format!("{name:?}"));
        let cell: String = record[column].chars().take(40).collect();
        Error::table(
            format!("sample {sample}, column {name}: {cell:?} is not {what}"),
            "Name the label column, and remove columns that are not features.",
        )
    }
}
