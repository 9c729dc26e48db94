//! The codec: big-endian, fixed widths, no optional fields, no bytes left over.
//!
//! Every type that has bytes implements [`Encode`], and either [`Decode`] or [`DecodeWith`]. The latter takes a value
//! that the bounds of the type depend on, such as a [`Roster`](super::Roster). Secret keys are the exception: they
//! become bytes only through functions that say so (`to_secret_bytes`).

use zeroize::Zeroize;

use crate::party::log::LogPoint;
use crate::{Digest, Error, Round, TaskId, UserId};

/// A value that can be written as bytes.
pub trait Encode {
    /// Appends the value to `out`.
    fn encode(&self, out: &mut Writer);

    /// Returns the bytes of the value.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        self.encode(&mut out);
        out.into_bytes()
    }
}

/// A value that can be read from bytes alone.
pub trait Decode: Sized {
    /// Reads the value from the beginning of `input`.
    ///
    /// # Errors
    /// [`Error::Encoding`] or another error that says what is wrong with the bytes.
    fn decode(input: &mut Reader<'_>) -> Result<Self, Error>;
}

/// A value that can be read from bytes by a reader who knows `P`.
pub trait DecodeWith<P: ?Sized>: Sized {
    /// Reads the value from the beginning of `input`.
    ///
    /// # Errors
    /// [`Error::Encoding`], [`Error::Size`] or another error that says what is wrong with the bytes.
    fn decode_with(input: &mut Reader<'_>, params: &P) -> Result<Self, Error>;

    /// Reads the value from all of `bytes`.
    ///
    /// # Errors
    /// As [`DecodeWith::decode_with`], and [`Error::Encoding`] if bytes are left over.
    fn from_bytes(bytes: &[u8], params: &P) -> Result<Self, Error> {
        let mut input = Reader::new(bytes);
        let value = Self::decode_with(&mut input, params)?;
        input.finish()?;
        Ok(value)
    }
}

impl<P: ?Sized, T: Decode> DecodeWith<P> for T {
    fn decode_with(input: &mut Reader<'_>, _: &P) -> Result<Self, Error> {
        Self::decode(input)
    }
}

/// The bytes written so far. They are wiped where a growing buffer would leave a copy behind.
#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Creates an empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty writer with room for this many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Appends an encoded value.
    pub fn put(&mut self, value: &impl Encode) {
        value.encode(self);
    }

    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let needed = self.0.len() + bytes.len();
        if needed > self.0.capacity() {
            let mut larger = Vec::with_capacity(needed.max(2 * self.0.capacity()));
            larger.extend_from_slice(&self.0);
            self.0.zeroize();
            self.0 = larger;
        }
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, x: u8) {
        self.put(&x);
    }

    pub(crate) fn u32(&mut self, x: u32) {
        self.put(&x);
    }

    pub(crate) fn u64(&mut self, x: u64) {
        self.put(&x);
    }

    /// Returns what has been written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns all bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The bytes that have not been read yet. A length in the input never causes an allocation by itself.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts reading `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads a value.
    ///
    /// # Errors
    /// As [`Decode::decode`].
    pub fn get<T: Decode>(&mut self) -> Result<T, Error> {
        T::decode(self)
    }

    /// Takes the next `count` bytes.
    ///
    /// # Errors
    /// [`Error::Encoding`] if there are fewer.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.get()
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.get()
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        self.get()
    }

    /// Returns what has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Checks that no bytes are left over.
    ///
    /// # Errors
    /// [`Error::Encoding`] if there are.
    pub fn finish(self) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { Err(LEFT_OVER) }
    }
}

pub(crate) const TRUNCATED: Error = Error::Encoding { reason: "the bytes end too early" };
pub(crate) const LEFT_OVER: Error = Error::Encoding { reason: "bytes are left over at the end" };

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl Encode for $type {
            fn encode(&self, out: &mut Writer) {
                out.bytes(&self.to_be_bytes());
            }
        }

        impl Decode for $type {
            fn decode(input: &mut Reader<'_>) -> Result<Self, Error> {
                Ok(Self::from_be_bytes(input.get()?))
            }
        }
    )+};
}

integers!(u8, u32, u64);

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, out: &mut Writer) {
        out.bytes(self);
    }
}

impl<const N: usize> Decode for [u8; N] {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Error> {
        let mut array = [0; N];
        array.copy_from_slice(input.take(N)?);
        Ok(array)
    }
}

impl Encode for Digest {
    fn encode(&self, out: &mut Writer) {
        out.bytes(self.as_bytes());
    }
}

impl Decode for Digest {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self::from_bytes(input.get()?))
    }
}

impl Encode for TaskId {
    fn encode(&self, out: &mut Writer) {
        out.bytes(self.as_bytes());
    }
}

impl Decode for TaskId {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self::from_bytes(input.get()?))
    }
}

impl Encode for UserId {
    fn encode(&self, out: &mut Writer) {
        out.u32(self.get());
    }
}

impl Decode for UserId {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Error> {
        Self::try_from(input.u32()?)
    }
}

impl Encode for Round {
    fn encode(&self, out: &mut Writer) {
        out.u64(self.get());
    }
}

impl Decode for Round {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Error> {
        Self::new(input.u64()?).ok_or(Error::Encoding { reason: "rounds are numbered from 1" })
    }
}

impl Encode for LogPoint {
    fn encode(&self, out: &mut Writer) {
        out.u64(self.seq);
        out.put(&self.head);
    }
}

impl Decode for LogPoint {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self { seq: input.get()?, head: input.get()? })
    }
}

/// Writes messages as a list, each with its length before it as eight bytes.
pub fn encode_list(messages: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut out = Writer(Vec::with_capacity(messages.iter().map(|message| 8 + message.as_ref().len()).sum()));
    for message in messages {
        out.u64(message.as_ref().len() as u64);
        out.bytes(message.as_ref());
    }
    out.into_bytes()
}

/// Reads a list of messages.
///
/// # Errors
/// [`Error::Encoding`] if a message is shorter than the length before it.
pub fn decode_list(bytes: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let mut input = Reader::new(bytes);
    let mut messages = Vec::new();
    while !input.rest().is_empty() {
        let length = usize::try_from(input.u64()?).map_err(|_| TRUNCATED)?;
        messages.push(input.take(length)?);
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_decoded_as_encoded_and_wrong_lengths_are_refused() {
        let list = encode_list(&[b"one".to_vec(), Vec::new(), vec![7; 300]]);
        assert_eq!(decode_list(&list).unwrap(), [&b"one"[..], b"", &[7; 300]]);
        assert_eq!(decode_list(&[]), Ok(Vec::new()));
        for length in 1..list.len() {
            // a cut between two messages leaves a shorter list
            assert_eq!(decode_list(&list[..length]).is_ok(), [11, 19].contains(&length), "{length}");
        }
        let mut lie = list.clone();
        lie[0] = 255;
        assert!(decode_list(&lie).is_err());
    }
}
