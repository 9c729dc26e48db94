//! `.npz` files: arrays in a zip file, as `numpy.savez` and `numpy.savez_compressed` write them.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy::{self, Npy};
use super::{MOST_CLASSES, ReadOptions, label, read_names};
use crate::{Error, FeatureSource, FeatureTable, TableLabels};

/// The highest compression ratio of Deflate. A file that claims more would only make the reader reserve memory.
const DEFLATE_RATIO: u64 = 1032;
/// The largest number of entries that is accepted.
const MOST_ENTRIES: usize = 10_000;
/// The size from which entries are written with 64-bit sizes.
const LARGE: u64 = u32::MAX as u64 / 2;

pub(super) fn read(path: &Path, options: &ReadOptions) -> Result<FeatureTable, Error> {
    let mut zip = open(path)?;
    let Some(features) = entry_of(&zip, &["features", "X", "x"]) else {
        let names: Vec<_> = zip.file_names().take(10).flatten().collect();
        return Err(Error::table(
            format!("there is no array `features` or `X` among: {}", names.join(", ")),
            "Write the file with numpy.savez(path, features=..., labels=..., classes=...).",
        ));
    };
    let table = with_array(&mut zip, &features, options.max_values, |array| array.matrix())?;
    let samples = table.samples();

    let mut names = |name: &str, most: usize| match entry_of(&zip, &[name]) {
        Some(entry) => with_array(&mut zip, &entry, most, |array| array.texts()).map(Some),
        None => Ok(None),
    };
    let files = names("files", samples)?;
    let digest = names("model_digest", 1)?.unwrap_or_default().pop();
    let preprocessing = names("preprocessing", 1)?.unwrap_or_default().pop();
    let classes = match &options.classes {
        Some(path) => Some(read_names(path)?),
        None => names("classes", MOST_CLASSES)?,
    };

    let table = match entry_of(&zip, &["labels", "y"]) {
        Some(entry) => {
            let most = samples.saturating_mul(MOST_CLASSES).min(options.max_values);
            let (labels, classes) =
                with_array(&mut zip, &entry, most, |array| label::from_array(array, classes))?;
            table.with_labels(labels, classes)?
        }
        None => table,
    };
    let table = match files {
        Some(files) => table.with_files(files)?,
        None => table,
    };
    Ok(match (digest, preprocessing) {
        (Some(model_digest), Some(preprocessing)) => {
            table.with_source(FeatureSource { model_digest, preprocessing })
        }
        _ => table,
    })
}

fn open(path: &Path) -> Result<ZipArchive<BufReader<File>>, Error> {
    let file = File::open(path).map_err(Error::read(path))?;
    let zip = ZipArchive::new(BufReader::new(file))
        .map_err(|error| bad(format!("not a zip file of arrays: {error}")))?;
    if zip.len() > MOST_ENTRIES {
        return Err(bad(format!("the zip file has {} entries, more than {MOST_ENTRIES}", zip.len())));
    }
    Ok(zip)
}

/// Returns the first of these arrays that the file has.
fn entry_of<R: Read + Seek>(zip: &ZipArchive<R>, names: &[&str]) -> Option<String> {
    let entries = names.iter().map(|name| format!("{name}.npy"));
    entries.into_iter().find(|entry| zip.index_for_name(entry).is_some())
}

/// Opens an array and reads it completely, so that its checksum is verified.
fn with_array<T>(
    zip: &mut ZipArchive<impl Read + Seek>,
    entry: &str,
    max_values: usize,
    read: impl FnOnce(Npy<&mut dyn Read>) -> Result<T, Error>,
) -> Result<T, Error> {
    let within = |error: Error| match error {
        Error::Table { what, hint } => Error::Table { what: format!("{entry}: {what}"), hint },
        other => other,
    };
    let mut file = zip.by_name(entry).map_err(|error| bad(format!("{entry}: {error}")))?;
    let (size, packed) = (file.size(), file.compressed_size());
    if size > packed.saturating_mul(DEFLATE_RATIO) {
        return Err(within(bad(format!("{packed} compressed bytes cannot hold the declared {size} bytes"))));
    }
    let reader: &mut dyn Read = &mut file;
    let value = Npy::open(reader, size, max_values).and_then(read).map_err(within)?;
    // reading past the end verifies the checksum
    let rest = file.read(&mut [0]).map_err(|error| bad(format!("{entry}: {error}")))?;
    if rest > 0 { Err(bad(format!("{entry}: the array is longer than declared"))) } else { Ok(value) }
}

fn bad(what: String) -> Error {
    Error::table(what, "Write the file again with numpy.savez.")
}

/// The arrays of any `.npz` file, read by name.
pub struct NpzReader {
    path: PathBuf,
    zip: ZipArchive<BufReader<File>>,
}

/// An array of numbers that was read from an `.npz` file.
#[derive(Clone, Debug, PartialEq)]
pub struct NpzFloats {
    /// The length of each axis.
    pub shape: Vec<usize>,
    /// The elements, row after row.
    pub values: Vec<f32>,
}

impl NpzReader {
    /// Opens a file and reads its list of arrays.
    ///
    /// # Errors
    /// If the file cannot be read or is not a zip file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self { path: path.into(), zip: open(path).map_err(|error| error.in_file(path))? })
    }

    /// Reads an array of numbers. Returns `None` if the file has no array of this name.
    ///
    /// # Errors
    /// If the array is damaged or holds no numbers.
    pub fn floats(&mut self, name: &str) -> Result<Option<NpzFloats>, Error> {
        self.read(name, super::MOST_VALUES, |array| {
            Ok(NpzFloats { shape: array.shape().to_vec(), values: array.floats()? })
        })
    }

    /// Reads an array of at most 65,536 strings. Returns `None` if the file has no array of this name.
    ///
    /// # Errors
    /// If the array is damaged, too long, or holds no strings.
    pub fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>, Error> {
        self.read(name, MOST_CLASSES, |array| array.texts())
    }

    fn read<T>(
        &mut self,
        name: &str,
        max_values: usize,
        read: impl FnOnce(Npy<&mut dyn Read>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let Some(entry) = entry_of(&self.zip, &[name]) else { return Ok(None) };
        let found = with_array(&mut self.zip, &entry, max_values, read);
        found.map(Some).map_err(|error| error.in_file(&self.path))
    }
}

/// An array to write into an `.npz` file.
pub enum NpzArray<'a> {
    /// Numbers: the shape, and the elements row after row.
    Floats(&'a [usize], &'a [f64]),
    /// A list of strings.
    Texts(&'a [String]),
}

/// Writes arrays under these names. The file appears complete or not at all.
///
/// # Errors
/// If the file cannot be written. An older file of that name is then unchanged.
pub fn write_npz_arrays(path: &Path, arrays: &[(&str, NpzArray<'_>)]) -> Result<(), Error> {
    super::replace(path, |out| {
        let mut zip = ZipWriter::new(out);
        for (name, array) in arrays {
            match array {
                NpzArray::Texts(list) => texts(&mut zip, name, list)?,
                NpzArray::Floats(shape, values) => entry(&mut zip, name, values.len() * 8, |out| {
                    npy::write(out, "<f8", shape, values.iter().map(|value| Ok(value.to_le_bytes())))
                })?,
            }
        }
        zip.finish()?.flush()
    })
}

/// Writes a table as the arrays `features`, `labels`, `classes`, `files`, `model_digest` and `preprocessing`. Unknown
/// parts are left out.
///
/// The same table gives the same bytes. The file appears complete or not at all.
///
/// # Errors
/// If the file cannot be written. An older file of that name is then unchanged.
pub fn write_npz(path: &Path, table: &FeatureTable) -> Result<(), Error> {
    let parts = NpzParts {
        samples: table.samples(),
        width: table.width(),
        labels: table.labels().map(|labels| (labels, table.classes())),
        files: table.files(),
        source: table.source(),
    };
    let row = |row: &[f32]| Ok(row.iter().flat_map(|value| value.to_le_bytes()).collect());
    write_npz_rows(path, &parts, table.rows().map(row))
}

/// A table without its features.
pub(crate) struct NpzParts<'a> {
    pub(crate) samples: usize,
    pub(crate) width: usize,
    pub(crate) labels: Option<(&'a TableLabels, &'a [String])>,
    pub(crate) files: &'a [String],
    pub(crate) source: Option<&'a FeatureSource>,
}

/// Writes a table like [`write_npz`], with features that arrive row by row as little-endian bytes.
pub(crate) fn write_npz_rows(
    path: &Path,
    parts: &NpzParts<'_>,
    rows: impl Iterator<Item = io::Result<Vec<u8>>>,
) -> Result<(), Error> {
    super::replace(path, |out| write(out, parts, rows))
}

fn write(
    out: &mut BufWriter<File>,
    parts: &NpzParts<'_>,
    rows: impl Iterator<Item = io::Result<Vec<u8>>>,
) -> io::Result<()> {
    let mut zip = ZipWriter::new(out);
    let &NpzParts { samples, width, .. } = parts;
    entry(&mut zip, "features", samples * width * 4, |out| npy::write(out, "<f4", &[samples, width], rows))?;
    match parts.labels {
        Some((TableLabels::Classes(labels), _)) => entry(&mut zip, "labels", samples * 8, |out| {
            npy::write(out, "<i8", &[samples], labels.iter().map(|&label| Ok((label as u64).to_le_bytes())))
        })?,
        Some((TableLabels::Attributes(labels), classes)) => {
            entry(&mut zip, "labels", labels.len(), |out| {
                let shape = [samples, classes.len()];
                npy::write(out, "|b1", &shape, labels.iter().map(|&label| Ok([u8::from(label)])))
            })?;
        }
        None => (),
    }
    if let Some((_, classes)) = parts.labels {
        texts(&mut zip, "classes", classes)?;
    }
    if !parts.files.is_empty() {
        texts(&mut zip, "files", parts.files)?;
    }
    if let Some(source) = parts.source {
        for (name, text) in [("model_digest", &source.model_digest), ("preprocessing", &source.preprocessing)]
        {
            entry(&mut zip, name, text.len() * 4, |out| npy::write_texts(out, &[], &[text]))?;
        }
    }
    zip.finish()?.flush()
}

fn texts<W: Write + Seek>(zip: &mut ZipWriter<W>, name: &str, texts: &[String]) -> io::Result<()> {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let bytes = texts.iter().map(|text| text.len()).max().unwrap_or(0) * texts.len() * 4;
    entry(zip, name, bytes, |out| npy::write_texts(out, &[texts.len()], &texts))
}

fn entry<W: Write + Seek>(
    zip: &mut ZipWriter<W>,
    name: &str,
    bytes: usize,
    write: impl FnOnce(&mut BufWriter<&mut ZipWriter<W>>) -> io::Result<()>,
) -> io::Result<()> {
    // uncompressed, because features hardly shrink and stored arrays can be mapped into memory; a fixed date makes
    // the bytes reproducible
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(zip::DateTime::default())
        .large_file(bytes as u64 > LARGE);
    zip.start_file(format!("{name}.npy"), options)?;
    // the buffer helps because elements are written one by one
    let mut out = BufWriter::with_capacity(1 << 16, zip);
    write(&mut out)?;
    out.flush()
}
