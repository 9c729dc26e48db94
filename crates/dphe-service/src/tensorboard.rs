//! Metrics of rounds in TensorBoard's format: protocol buffer records with lengths and checksums.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use dphe_features::tfrecord::write_record;

/// A TensorBoard event file. Each record is appended with one write, because TensorBoard stops reading at an incomplete
/// record.
pub struct EventFile {
    file: File,
    path: PathBuf,
}

impl EventFile {
    /// Creates an event file in a directory, which is created if necessary.
    ///
    /// # Errors
    /// Fails if the directory or the file cannot be written.
    pub fn create(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).create(directory)?;
        // TensorBoard reads files in the order of their names, which contain the start time
        let name = format!("events.out.tfevents.{:010}.dphe.{}", now() as u64, std::process::id());
        let path = directory.join(name);
        let file = OpenOptions::new().append(true).create(true).open(&path)?;
        let mut events = Self { file, path };
        let version = [tagged(1, 1), now().to_le_bytes().to_vec(), text(3, b"brain.Event:2")].concat();
        events.record(&version)?;
        Ok(events)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends the metrics of a round, by name.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn scalars(&mut self, round: u64, scalars: &[(&str, f64)]) -> io::Result<()> {
        let values: Vec<u8> = scalars
            .iter()
            .flat_map(|(name, value)| {
                // a value is a tag and a 32-bit float
                let value = [text(1, name.as_bytes()), tagged(2, 5), (*value as f32).to_le_bytes().to_vec()];
                text(1, &value.concat())
            })
            .collect();
        let event =
            [tagged(1, 1), now().to_le_bytes().to_vec(), tagged(2, 0), varint(round), text(5, &values)];
        self.record(&event.concat())
    }

    /// Appends a record with one write, so that a concurrent reader sees all of it or nothing.
    fn record(&mut self, data: &[u8]) -> io::Result<()> {
        let mut record = Vec::new();
        write_record(&mut record, data)?;
        self.file.write_all(&record)
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |elapsed| elapsed.as_secs_f64())
}

/// Writes the number and wire type of a field.
fn tagged(field: u8, wire: u8) -> Vec<u8> {
    vec![field << 3 | wire]
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Writes a length-delimited field.
fn text(field: u8, bytes: &[u8]) -> Vec<u8> {
    [tagged(field, 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

#[cfg(test)]
mod tests {
    use dphe_features::tfrecord::Records;

    use super::*;

    #[test]
    fn event_file_has_tensorboards_record_format() {
        let directory = tempfile::tempdir().unwrap();
        let mut events = EventFile::create(&directory.path().join("new")).unwrap();
        events.scalars(300, &[("accuracy", 0.5), ("sparsity", 0.25)]).unwrap();
        let bytes = std::fs::read(events.path()).unwrap();
        let mut input = Records::new(&bytes[..]);
        let mut records = Vec::new();
        while let Some(record) = input.next().transpose().unwrap() {
            records.push(record);
        }
        assert_eq!(records.len(), 2);
        assert_eq!(&records[0][9..], b"\x1a\x0dbrain.Event:2");
        let scalars = b"\x10\xac\x02\x2a\x22\x0a\x0f\x0a\x08accuracy\x15\x00\x00\x00\x3f\x0a\x0f\x0a\x08sparsity\x15\x00\x00\x80\x3e";
        assert_eq!(&records[1][9..], scalars);
    }
}
