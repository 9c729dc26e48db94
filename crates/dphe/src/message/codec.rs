//! Reading and writing bytes: fixed widths, big-endian, nothing optional, nothing left over.

use zeroize::Zeroize;

use crate::hash::Digest;
use crate::{Error, UserId};

/// Collects bytes.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn u8(&mut self, x: u8) {
        self.bytes(&[x]);
    }

    pub(crate) fn u32(&mut self, x: u32) {
        self.bytes(&x.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, x: u64) {
        self.bytes(&x.to_be_bytes());
    }

    pub(crate) fn digest(&mut self, x: &Digest) {
        self.bytes(x.as_bytes());
    }

    pub(crate) fn bytes(&mut self, x: &[u8]) {
        let needed = self.0.len() + x.len();
        if needed > self.0.capacity() {
            // what is written may be secret, and a vector that grows by itself leaves a copy behind
            let mut larger = Vec::with_capacity(needed.max(2 * self.0.capacity()));
            larger.extend_from_slice(&self.0);
            self.0.zeroize();
            self.0 = larger;
        }
        self.0.extend_from_slice(x);
    }

    /// What has been written so far.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Takes bytes apart. No length it reads decides an allocation by itself.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or(Error::Encoding { reason: "it is cut short" })?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn digest(&mut self) -> Result<Digest, Error> {
        Ok(Digest::from_bytes(self.array()?))
    }

    pub(crate) fn user(&mut self) -> Result<UserId, Error> {
        UserId::new(self.u32()?).ok_or(Error::Encoding { reason: "there is no user 0" })
    }

    /// What has not been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Nothing may be left over.
    pub(crate) fn finish(self) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::Encoding { reason: "there are bytes left over" }) }
    }
}
