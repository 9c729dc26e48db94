//! The cache of features: an append-only file, indexed by the SHA-256 of the photo.
//!
//! A record is the SHA-256 of the photo, its features, and the first bytes of the SHA-256 of both. A program that is
//! killed leaves at most one incomplete record at the end, which the next run removes.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::Error;

pub(super) type PhotoDigest = [u8; 32];

const CHECK: usize = 8;

/// An open cache for one network and one preprocessing, locked against other processes.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    width: usize,
    places: HashMap<PhotoDigest, u64>,
    end: u64,
}

impl Journal {
    /// Opens or creates the cache for `key` in a directory and reads its index.
    pub(super) fn open(directory: &Path, key: &str, width: usize) -> Result<Self, Error> {
        fs::create_dir_all(directory).map_err(Error::write(directory))?;
        let name = Sha256::digest(key).iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>();
        let path = directory.join(format!("{name}.features"));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(Error::write(&path))?;
        match file.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::File {
                    path,
                    what: "another extraction is using this cache".into(),
                    hint: "Wait for it to end, or choose another directory with --cache.".into(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(Error::Write { path, source }),
        }
        let mut journal = Self { path, file, width, places: HashMap::new(), end: 0 };
        journal.scan().map_err(Error::read(&journal.path))?;
        Ok(journal)
    }

    pub(super) fn contains(&self, photo: &PhotoDigest) -> bool {
        self.places.contains_key(photo)
    }

    /// Appends a record. The record survives a crash of this program, but not of the machine.
    pub(super) fn append(&mut self, photo: PhotoDigest, features: &[f32]) -> Result<(), Error> {
        let mut record = Vec::with_capacity(self.record_bytes());
        record.extend(photo);
        record.extend(features.iter().flat_map(|value| value.to_le_bytes()));
        record.extend(check(&record));
        debug_assert_eq!(record.len(), self.record_bytes());
        let written = self.file.seek(SeekFrom::Start(self.end)).and_then(|_| self.file.write_all(&record));
        written.map_err(Error::write(&self.path))?;
        self.places.insert(photo, self.end);
        self.end += record.len() as u64;
        Ok(())
    }

    /// Returns the features of a photo as little-endian bytes.
    pub(super) fn features(&mut self, photo: &PhotoDigest) -> io::Result<Vec<u8>> {
        let place =
            self.places.get(photo).ok_or_else(|| io::Error::other("a photo is missing from the cache"))?;
        self.file.seek(SeekFrom::Start(place + photo.len() as u64))?;
        let mut bytes = vec![0; self.width * 4];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn record_bytes(&self) -> usize {
        32 + self.width * 4 + CHECK
    }

    fn scan(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let mut record = vec![0; self.record_bytes()];
        let mut reader = BufReader::with_capacity(1 << 20, &self.file);
        let mut good = 0;
        while length - good >= record.len() as u64 {
            reader.read_exact(&mut record)?;
            let (body, end) = record.split_at(record.len() - CHECK);
            let Some(&photo) = body.first_chunk::<32>() else { break };
            if check(body) != *end {
                break;
            }
            self.places.insert(photo, good);
            good += record.len() as u64;
        }
        self.end = good;
        self.file.set_len(good)
    }
}

fn check(body: &[u8]) -> [u8; CHECK] {
    let digest = Sha256::digest(body);
    core::array::from_fn(|i| digest[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_and_damaged_records_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Journal::open(directory.path(), "key", 2).unwrap();
        let mut journal = open();
        assert!(Journal::open(directory.path(), "key", 2).is_err(), "the cache is locked");
        journal.append([1; 32], &[1.0, 2.0]).unwrap();
        journal.append([2; 32], &[3.0, 4.0]).unwrap();
        let path = journal.path.clone();
        drop(journal);
        let whole = fs::read(&path).unwrap();
        for cut in [1, 20, 47] {
            fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            let mut journal = open();
            assert!(journal.contains(&[1; 32]) && !journal.contains(&[2; 32]));
            journal.append([2; 32], &[3.0, 4.0]).unwrap();
            assert_eq!(journal.features(&[1; 32]).unwrap(), [1f32, 2.0].map(f32::to_le_bytes).concat());
            assert_eq!(fs::read(&path).unwrap(), whole);
        }
        let mut flipped = whole.clone();
        flipped[40] ^= 1;
        fs::write(&path, &flipped).unwrap();
        assert!(!open().contains(&[1; 32]), "a record with a wrong checksum is dropped");
        assert!(!Journal::open(directory.path(), "other", 2).unwrap().contains(&[2; 32]));
    }
}
