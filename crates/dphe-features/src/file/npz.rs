//! `.npz`: arrays in a zip file, as `numpy.savez` and `numpy.savez_compressed` write them.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy::{self, Npy};
use super::{MOST_CLASSES, ReadOptions, label, read_names};
use crate::{Classifier, Error, FeatureSource, FeatureTable, TableLabels};

/// Deflate makes nothing smaller than by this factor; whoever claims more would only have memory reserved.
const DEFLATE_RATIO: u64 = 1032;
/// A zip file of arrays has a handful of entries.
const MOST_ENTRIES: usize = 10_000;
/// Beyond this, sizes of entries need 64 bits.
const LARGE: u64 = u32::MAX as u64 / 2;

pub(super) fn read(path: &Path, options: &ReadOptions) -> Result<FeatureTable, Error> {
    let file = File::open(path).map_err(Error::read(path))?;
    let mut zip = ZipArchive::new(BufReader::new(file))
        .map_err(|error| bad(format!("not a zip file of arrays: {error}")))?;
    if zip.len() > MOST_ENTRIES {
        return Err(bad(format!("{} entries are too many for a file of features", zip.len())));
    }
    let Some(features) = entry_of(&zip, &["features", "X", "x"]) else {
        let names: Vec<_> = zip.file_names().take(10).flatten().collect();
        return Err(Error::table(
            format!("there is no array `features` or `X`; there are: {}", names.join(", ")),
            "numpy.savez(path, features=..., labels=..., classes=...)",
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

/// The first of these arrays that is there.
fn entry_of<R: Read + Seek>(zip: &ZipArchive<R>, names: &[&str]) -> Option<String> {
    let entries = names.iter().map(|name| format!("{name}.npy"));
    entries.into_iter().find(|entry| zip.index_for_name(entry).is_some())
}

/// Opens an array and reads it whole, so that its checksum is compared.
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
        return Err(within(bad(format!("{packed} bytes cannot hold the {size} that are promised"))));
    }
    let reader: &mut dyn Read = &mut file;
    let value = Npy::open(reader, size, max_values).and_then(read).map_err(within)?;
    // at the end of an entry the checksum is compared
    let rest = file.read(&mut [0]).map_err(|error| bad(format!("{entry}: {error}")))?;
    if rest > 0 { Err(bad(format!("{entry}: longer than promised"))) } else { Ok(value) }
}

fn bad(what: String) -> Error {
    Error::table(what, "write the file again with numpy.savez")
}

/// The arrays of a classifier.
pub(crate) fn read_classifier_npz(path: &Path) -> Result<Classifier, Error> {
    let file = File::open(path).map_err(Error::read(path))?;
    let mut zip = ZipArchive::new(BufReader::new(file))
        .map_err(|error| bad(format!("not a zip file of arrays: {error}")))?;
    type Array = (Vec<usize>, Vec<f64>);
    let mut array = |name: &str| -> Result<Option<Array>, Error> {
        let Some(entry) = entry_of(&zip, &[name]) else { return Ok(None) };
        with_array(&mut zip, &entry, super::MOST_VALUES, |array| {
            let shape = array.shape().to_vec();
            Ok((shape, array.floats()?.into_iter().map(f64::from).collect()))
        })
        .map(Some)
    };
    let lacks = |name: &str| bad(format!("there is no array `{name}`"));
    let (shape, weights) = array("weights")?.ok_or_else(|| lacks("weights"))?;
    let &[features, classes] = &shape[..] else {
        return Err(bad(format!("`weights` has the shape {shape:?}, not features x classes")));
    };
    if weights.is_empty() || features.checked_mul(classes) != Some(weights.len()) {
        return Err(bad(format!("`weights` of shape {shape:?} holds nothing")));
    }
    let (_, intercepts) = array("intercepts")?.ok_or_else(|| lacks("intercepts"))?;
    let mean = array("mean")?.map_or_else(|| vec![0.0; features], |(_, mean)| mean);
    let deviation = array("deviation")?.map_or_else(|| vec![1.0; features], |(_, deviation)| deviation);
    let clip = array("clip")?.and_then(|(_, clip)| clip.first().copied()).unwrap_or(f64::from(f32::MAX));
    let names = match entry_of(&zip, &["classes"]) {
        Some(entry) => with_array(&mut zip, &entry, MOST_CLASSES, |array| array.texts())?,
        None => (0..classes).map(|class| class.to_string()).collect(),
    };
    Ok(Classifier { classes: names, weights, intercepts, mean, deviation, clip, attributes: false })
}

pub(crate) fn write_classifier_npz(path: &Path, classifier: &Classifier) -> Result<(), Error> {
    super::replace(path, |out| {
        let mut zip = ZipWriter::new(out);
        let (features, classes) = (classifier.mean.len(), classifier.classes.len());
        let clip = [classifier.clip];
        for (name, shape, values) in [
            ("weights", &[features, classes][..], &classifier.weights[..]),
            ("intercepts", &[classes], &classifier.intercepts),
            ("mean", &[features], &classifier.mean),
            ("deviation", &[features], &classifier.deviation),
            ("clip", &[1], &clip),
        ] {
            entry(&mut zip, name, (values.len() * 8) as u64, |out| {
                npy::write(out, "<f8", shape, values.iter().map(|value| Ok(value.to_le_bytes())))
            })?;
        }
        let names: Vec<&str> = classifier.classes.iter().map(String::as_str).collect();
        let longest = names.iter().map(|name| name.len()).max().unwrap_or(0);
        entry(&mut zip, "classes", (longest * classes * 4) as u64, |out| {
            npy::write_texts(out, &[classes], &names)
        })?;
        zip.finish()?;
        Ok(())
    })
}

/// Writes `features`, and what else is known: `labels`, `classes`, `files`, `model_digest`, `preprocessing`.
///
/// The same table gives the same bytes. They go to a temporary file beside `path` that gets its name when all of it
/// is on disk.
///
/// # Errors
/// If the file cannot be written; an older one of that name is then still there.
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

/// A table but for its features.
pub(crate) struct NpzParts<'a> {
    pub(crate) samples: usize,
    pub(crate) width: usize,
    pub(crate) labels: Option<(&'a TableLabels, &'a [String])>,
    pub(crate) files: &'a [String],
    pub(crate) source: Option<&'a FeatureSource>,
}

/// Like [`write_npz`], with features that come row by row, as little-endian bytes.
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
    entry(&mut zip, "features", (samples * width * 4) as u64, |out| {
        npy::write(out, "<f4", &[samples, width], rows)
    })?;
    match parts.labels {
        Some((TableLabels::Classes(labels), _)) => entry(&mut zip, "labels", (samples * 8) as u64, |out| {
            npy::write(out, "<i8", &[samples], labels.iter().map(|&label| Ok((label as u64).to_le_bytes())))
        })?,
        Some((TableLabels::Attributes(labels), classes)) => {
            entry(&mut zip, "labels", labels.len() as u64, |out| {
                let shape = [samples, classes.len()];
                npy::write(out, "|b1", &shape, labels.iter().map(|&label| Ok([u8::from(label)])))
            })?;
        }
        None => (),
    }
    let mut names = |name: &str, names: &[String]| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let bytes = names.iter().map(|name| name.len()).max().unwrap_or(0) * names.len() * 4;
        entry(&mut zip, name, bytes as u64, |out| npy::write_texts(out, &[names.len()], &names))
    };
    if let Some((_, classes)) = parts.labels {
        names("classes", classes)?;
    }
    if !parts.files.is_empty() {
        names("files", parts.files)?;
    }
    if let Some(source) = parts.source {
        for (name, text) in [("model_digest", &source.model_digest), ("preprocessing", &source.preprocessing)]
        {
            entry(&mut zip, name, (text.len() * 4) as u64, |out| npy::write_texts(out, &[], &[text]))?;
        }
    }
    zip.finish()?.flush()
}

fn entry<W: Write + Seek>(
    zip: &mut ZipWriter<W>,
    name: &str,
    bytes: u64,
    write: impl FnOnce(&mut BufWriter<&mut ZipWriter<W>>) -> io::Result<()>,
) -> io::Result<()> {
    // stored: features hardly get smaller, and others can map them into memory; the date is always the same
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(zip::DateTime::default())
        .large_file(bytes > LARGE);
    zip.start_file(format!("{name}.npy"), options)?;
    // elements are written one by one
    let mut out = BufWriter::with_capacity(1 << 16, zip);
    write(&mut out)?;
    out.flush()
}
