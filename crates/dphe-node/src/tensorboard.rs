//! Figures of rounds as TensorBoard reads them: records of protocol buffers, each with its length and checksums.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use dphe_reproduce::data::write_record;

/// A file of events that grows with the rounds. Each record is written whole; a cut one is what TensorBoard waits at.
pub struct EventFile {
    file: File,
    path: PathBuf,
}

impl EventFile {
    /// A new file in a folder, which is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(folder: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).create(folder)?;
        // TensorBoard reads files in the order of their names and takes the time in them for when they began
        let name = format!("events.out.tfevents.{:010}.dphe.{}", now() as u64, std::process::id());
        let path = folder.join(name);
        let file = OpenOptions::new().append(true).create(true).open(&path)?;
        let mut events = Self { file, path };
        let version = [tagged(1, 1), now().to_le_bytes().to_vec(), text(3, b"brain.Event:2")].concat();
        events.record(&version)?;
        Ok(events)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Numbers of a round, by name.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn scalars(&mut self, round: u64, scalars: &[(&str, f64)]) -> io::Result<()> {
        let values: Vec<u8> = scalars
            .iter()
            .flat_map(|(name, value)| {
                // a value has a tag and a 32-bit number
                let value = [text(1, name.as_bytes()), tagged(2, 5), (*value as f32).to_le_bytes().to_vec()];
                text(1, &value.concat())
            })
            .collect();
        let event =
            [tagged(1, 1), now().to_le_bytes().to_vec(), tagged(2, 0), varint(round), text(5, &values)];
        self.record(&event.concat())
    }

    /// In one write: what is read meanwhile is whole, or not there.
    fn record(&mut self, data: &[u8]) -> io::Result<()> {
        let mut record = Vec::new();
        write_record(&mut record, data)?;
        self.file.write_all(&record)
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |elapsed| elapsed.as_secs_f64())
}

/// The number of a field and how it is written.
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

/// A field with its length before it.
fn text(field: u8, bytes: &[u8]) -> Vec<u8> {
    [tagged(field, 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

#[cfg(test)]
mod tests {
    use dphe_reproduce::data::Records;

    use super::*;

    #[test]
    fn records_are_as_the_format_says() {
        let folder = tempfile::tempdir().unwrap();
        let mut events = EventFile::create(&folder.path().join("new")).unwrap();
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
