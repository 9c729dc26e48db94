//! TFRecord files: a sequence of records. A record has a length and its checksum, then the data and their checksum.

mod checksum;

use std::io::{self, Read, Write};

use thiserror::Error;

use self::checksum::masked;

/// The longest record. Records of videos have a few thousand bytes.
const LONGEST: u64 = 16 << 20;

/// The reason why a TFRecord file cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The file ends within a record.
    #[error("record {record} is truncated")]
    Truncated {
        /// The record's number, from 1.
        record: u64,
    },
    /// The length of a record does not match its checksum.
    #[error("record {record}: the checksum of its length is wrong")]
    LengthChecksum {
        /// The record's number, from 1.
        record: u64,
    },
    /// The data of a record does not match its checksum.
    #[error("record {record}: the checksum of its data is wrong")]
    DataChecksum {
        /// The record's number, from 1.
        record: u64,
    },
    /// A record is longer than 16 MiB.
    #[error("record {record}: its length of {length} bytes is above the limit")]
    TooLong {
        /// The record's number, from 1.
        record: u64,
        /// The declared length in bytes.
        length: u64,
    },
}

/// An iterator over the records of a file. It ends after the first error.
#[derive(Debug)]
pub struct Records<R> {
    input: R,
    record: u64,
    over: bool,
}

impl<R: Read> Records<R> {
    /// Creates an iterator over a file, from its beginning.
    pub fn new(input: R) -> Self {
        Self { input, record: 0, over: false }
    }

    fn read(&mut self) -> Result<Option<Vec<u8>>, RecordError> {
        let header = self.take(12)?;
        if header.is_empty() {
            return Ok(None);
        }
        self.record += 1;
        let record = self.record;
        let Some((length, checksum)) = header.split_at_checked(8).filter(|(_, rest)| rest.len() == 4) else {
            return Err(RecordError::Truncated { record });
        };
        if le(checksum) != u64::from(masked(length)) {
            return Err(RecordError::LengthChecksum { record });
        }
        let length = le(length);
        if length > LONGEST {
            return Err(RecordError::TooLong { record, length });
        }
        let data = self.take(length)?;
        let checksum = self.take(4)?;
        if data.len() as u64 != length || checksum.len() != 4 {
            return Err(RecordError::Truncated { record });
        }
        if le(&checksum) != u64::from(masked(&data)) {
            return Err(RecordError::DataChecksum { record });
        }
        Ok(Some(data))
    }

    /// Reads up to `count` bytes. Memory grows with the bytes that exist, not with `count`.
    fn take(&mut self, count: u64) -> Result<Vec<u8>, RecordError> {
        let mut bytes = Vec::new();
        self.input.by_ref().take(count).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl<R: Read> Iterator for Records<R> {
    type Item = Result<Vec<u8>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let record = self.read().transpose();
        self.over = !matches!(record, Some(Ok(_)));
        record
    }
}

fn le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Writes a record.
///
/// # Errors
/// If `out` returns an error.
pub fn write_record(mut out: impl Write, data: &[u8]) -> io::Result<()> {
    let length = (data.len() as u64).to_le_bytes();
    out.write_all(&length)?;
    out.write_all(&masked(&length).to_le_bytes())?;
    out.write_all(data)?;
    out.write_all(&masked(data).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(records: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| write_record(&mut bytes, record).unwrap());
        bytes
    }

    #[test]
    fn records_are_written_and_read_back() {
        let bytes = file(&[b"abc", b"", &[7; 5000]]);
        let records: Vec<Vec<u8>> = Records::new(&bytes[..]).map(Result::unwrap).collect();
        assert_eq!(records, [b"abc".to_vec(), Vec::new(), vec![7; 5000]]);
        assert_eq!(Records::new(&b""[..]).count(), 0);
    }

    #[test]
    fn every_truncation_and_bit_flip_is_detected() {
        let bytes = file(&[b"first", b"second record"]);
        let first = file(&[b"first"]).len();
        for end in (0..bytes.len()).filter(|&end| end != 0 && end != first) {
            let last = Records::new(&bytes[..end]).last().unwrap();
            assert!(matches!(last, Err(RecordError::Truncated { .. })), "{end}");
        }
        for bit in 0..8 * bytes.len() {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let all: Vec<_> = Records::new(&bytes[..]).collect();
            assert!(all.last().unwrap().is_err(), "{bit}");
        }
    }

    #[test]
    fn huge_length_is_refused_without_allocating() {
        let length = u64::MAX.to_le_bytes();
        let mut bytes = length.to_vec();
        bytes.extend(masked(&length).to_le_bytes());
        let error = Records::new(&bytes[..]).next().unwrap().unwrap_err();
        assert!(matches!(error, RecordError::TooLong { record: 1, length: u64::MAX }));
    }
}
