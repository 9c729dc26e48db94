//! Parquet files with columns of numbers or one column of lists. Labels, attributes and files are found as in CSV.

use std::fs::File;
use std::path::Path;

use parquet::basic::{LogicalType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::csv::Columns;
use super::label::Names;
use super::npy::{half, too_large};
use super::{ReadOptions, read_names};
use crate::catch_panic::catch_panic;
use crate::{Error, FeatureTable};

/// The number of rows decoded at a time.
const BATCH: usize = 4096;

pub(super) fn read(path: &Path, options: &ReadOptions) -> Result<FeatureTable, Error> {
    // the parquet crate panics on some damaged files
    catch_panic(|| decode(path, options)).unwrap_or_else(|panic| Err(bad(ParquetError::General(panic))))
}

fn decode(path: &Path, options: &ReadOptions) -> Result<FeatureTable, Error> {
    let classes = options.classes.as_deref().map(read_names).transpose()?;
    let file = SerializedFileReader::new(File::open(path).map_err(Error::read(path))?).map_err(bad)?;
    let schema = file.metadata().file_metadata().schema_descr_ptr();
    let names: Vec<String> = schema.columns().iter().map(|c| c.path().parts()[0].clone()).collect();
    let is_text: Vec<bool> = schema.columns().iter().map(|c| is_text(c)).collect();
    let lists: Vec<usize> = (0..names.len()).filter(|&c| schema.column(c).max_rep_level() > 0).collect();
    let mut columns = Columns::find(Some(&names), &is_text, options)?;
    match lists[..] {
        [] => (),
        [list] if columns.features.contains(&list) => columns.features = vec![list],
        _ => {
            return Err(Error::table(
                "there are several columns of lists",
                "Keep only the list column that holds the features.",
            ));
        }
    }

    let mut gathered = Gathered::default();
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group).map_err(bad)?;
        let rows = usize::try_from(group.metadata().num_rows()).map_err(|_| damaged())?;
        gathered.group(&*group, rows, &columns, lists.is_empty(), &names, options)?;
    }
    let Gathered { values, width, labels, attributes, files, .. } = gathered;
    if !lists.is_empty() {
        // the length of the lists is the number of features
        columns.features = (0..width).collect();
    }
    columns.table(values, labels, attributes, files, classes)
}

/// The data read from row groups so far.
#[derive(Default)]
struct Gathered {
    values: Vec<f32>,
    width: usize,
    rows: usize,
    labels: Names,
    attributes: Vec<bool>,
    files: Vec<String>,
}

impl Gathered {
    fn group(
        &mut self,
        group: &dyn RowGroupReader,
        rows: usize,
        columns: &Columns,
        scalar: bool,
        names: &[String],
        options: &ReadOptions,
    ) -> Result<(), Error> {
        let within = |column: usize| {
            move |error: Error| match error {
                Error::Table { what, hint } => {
                    Error::Table { what: format!("column {:?}: {what}", names[column]), hint }
                }
                other => other,
            }
        };
        if scalar {
            self.width = columns.features.len();
            let start = self.values.len();
            let count = rows.checked_mul(self.width).and_then(|count| count.checked_add(start));
            let count = count.filter(|&count| count <= options.max_values);
            let count = count.ok_or_else(|| too_large(usize::MAX, options.max_values))?;
            self.values.try_reserve(count - start).map_err(|_| too_large(count, options.max_values))?;
            self.values.resize(count, f32::NAN);
            for (place, &column) in columns.features.iter().enumerate() {
                let mut row = 0;
                numbers(group, column, |value, _| {
                    let cell = self.values.get_mut(start + row * self.width + place).ok_or_else(damaged)?;
                    *cell = value.map_or(f32::NAN, |value| value as f32);
                    row += 1;
                    Ok(())
                })
                .map_err(within(column))?;
                if row != rows {
                    return Err(damaged()).map_err(within(column));
                }
            }
        } else {
            let column = columns.features[0];
            self.lists(group, column, rows, options.max_values).map_err(within(column))?;
        }
        if let Some(column) = columns.label {
            cells(group, column, |label| self.labels.push(label.as_deref().unwrap_or_default()))
                .map_err(within(column))?;
        }
        if let Some(column) = columns.file {
            cells(group, column, |file| {
                self.files.push(file.unwrap_or_default());
                Ok(())
            })
            .map_err(within(column))?;
        }
        self.attributes(group, rows, columns, options.max_values)?;
        self.rows += rows;
        Ok(())
    }

    /// Reads a column of lists that all have the same length.
    fn lists(
        &mut self,
        group: &dyn RowGroupReader,
        column: usize,
        rows: usize,
        max_values: usize,
    ) -> Result<(), Error> {
        let unequal = || {
            Error::table("the lists differ in length", "Write the same number of features for every sample.")
        };
        let (mut length, mut seen) = (0, 0);
        let before = self.values.len();
        numbers(group, column, |value, repeated| {
            if repeated == 0 && seen > 0 {
                if self.width == 0 {
                    self.width = length;
                }
                if length != self.width {
                    return Err(unequal());
                }
                length = 0;
            }
            seen += usize::from(repeated == 0);
            length += 1;
            let value = value.ok_or_else(|| {
                Error::table("a list or an element of one is null", "Write lists without nulls.")
            })?;
            if self.values.len() >= max_values {
                return Err(too_large(self.values.len() + 1, max_values));
            }
            self.values.push(value as f32);
            Ok(())
        })?;
        if self.width == 0 {
            self.width = length;
        }
        let whole = self.width.checked_mul(rows).and_then(|count| count.checked_add(before));
        if whole == Some(self.values.len()) { Ok(()) } else { Err(unequal()) }
    }

    fn attributes(
        &mut self,
        group: &dyn RowGroupReader,
        rows: usize,
        columns: &Columns,
        max_values: usize,
    ) -> Result<(), Error> {
        let (start, width) = (self.attributes.len(), columns.attributes.len());
        let more = rows.checked_mul(width).filter(|&more| more <= max_values);
        let more = more.ok_or_else(|| too_large(usize::MAX, max_values))?;
        self.attributes.try_reserve(more).map_err(|_| too_large(more, max_values))?;
        self.attributes.resize(start + rows * width, false);
        for (place, &column) in columns.attributes.iter().enumerate() {
            let mut row = 0;
            numbers(group, column, |value, _| {
                let cell = self.attributes.get_mut(start + row * width + place).ok_or_else(damaged)?;
                *cell = match value {
                    Some(0.0 | -1.0) => false,
                    Some(1.0) => true,
                    _ => {
                        return Err(Error::table(
                            format!("row {row} is not 0 or 1"),
                            "Write attributes as 0 and 1.",
                        ));
                    }
                };
                row += 1;
                Ok(())
            })?;
            if row != rows {
                return Err(damaged());
            }
        }
        Ok(())
    }
}

fn is_text(column: &ColumnDescriptor) -> bool {
    column.physical_type() == Type::BYTE_ARRAY
}

/// Passes the numbers of a column to `each`, with their repetition level, which is 0 for the first of a list.
fn numbers(
    group: &dyn RowGroupReader,
    column: usize,
    mut each: impl FnMut(Option<f64>, i16) -> Result<(), Error>,
) -> Result<(), Error> {
    let descriptor = group.metadata().column(column).column_descr();
    let logical = descriptor.logical_type_ref();
    let plain = matches!(logical, None | Some(LogicalType::Integer { .. } | LogicalType::Float16));
    let not = || {
        Error::table(
            "the column does not hold plain numbers",
            "Use columns of float or integer type, name the label column, and drop other columns.",
        )
    };
    if !plain || descriptor.max_rep_level() > 1 {
        return Err(not());
    }
    let half_precision = logical == Some(&LogicalType::Float16);
    let max = descriptor.max_def_level();
    match group.get_column_reader(column).map_err(bad)? {
        ColumnReader::BoolColumnReader(reader) => drain(reader, max, |v, r| each(v.map(f64::from), r)),
        ColumnReader::Int32ColumnReader(reader) => drain(reader, max, |v, r| each(v.map(f64::from), r)),
        ColumnReader::Int64ColumnReader(reader) => drain(reader, max, |v, r| each(v.map(|v| v as f64), r)),
        ColumnReader::FloatColumnReader(reader) => drain(reader, max, |v, r| each(v.map(f64::from), r)),
        ColumnReader::DoubleColumnReader(reader) => drain(reader, max, each),
        ColumnReader::FixedLenByteArrayColumnReader(reader) if half_precision => {
            drain(reader, max, |v, r| {
                let value = v.map(|v| <[u8; 2]>::try_from(v.data()).map_err(|_| damaged())).transpose()?;
                each(value.map(|bytes| half(u16::from_le_bytes(bytes)).into()), r)
            })
        }
        _ => Err(not()),
    }
}

/// Passes the cells of a column to `each` as text.
fn cells(
    group: &dyn RowGroupReader,
    column: usize,
    mut each: impl FnMut(Option<String>) -> Result<(), Error>,
) -> Result<(), Error> {
    let max = group.metadata().column(column).column_descr().max_def_level();
    match group.get_column_reader(column).map_err(bad)? {
        ColumnReader::ByteArrayColumnReader(reader) => drain(reader, max, |value: Option<ByteArray>, _| {
            let text = value.map(|value| value.as_utf8().map(str::to_owned).map_err(bad));
            each(text.transpose()?)
        }),
        _ => numbers(group, column, |value, _| each(value.map(|value| value.to_string()))),
    }
}

/// Passes every cell of a column to `each` with its repetition level. A null is `None`.
fn drain<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    max: i16,
    mut each: impl FnMut(Option<T::T>, i16) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut present, mut repeated, mut values) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        present.clear();
        repeated.clear();
        values.clear();
        let (records, _, levels) =
            reader.read_records(BATCH, Some(&mut present), Some(&mut repeated), &mut values).map_err(bad)?;
        if records == 0 && levels == 0 {
            return Ok(());
        }
        let mut values = values.drain(..);
        for level in 0..levels {
            let there = max == 0 || present.get(level) == Some(&max);
            let value = if there { Some(values.next().ok_or_else(damaged)?) } else { None };
            each(value, repeated.get(level).copied().unwrap_or(0))?;
        }
    }
}

fn bad(error: ParquetError) -> Error {
    Error::table(
        format!("the file cannot be read as Parquet: {error}"),
        "Write it again, uncompressed or with snappy, gzip or lz4 compression.",
    )
}

fn damaged() -> Error {
    Error::table("the columns are damaged", "Write the file again.")
}
