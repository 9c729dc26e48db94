//! The keys of parties as bytes (docs/protocol.md, section 13).
//!
//! Secrets of this crate become bytes in no other way. They implement none of the codec's traits, so they cannot be
//! serialised by accident. The caller must protect the bytes like the keys.

use std::collections::BTreeMap;

use dphe_paillier::{DecryptionKey, EncryptionKey};
use zeroize::{Zeroize, Zeroizing};

use super::codec::{Reader, TRUNCATED, Writer};
use super::domains;
use super::policy::read_task;
use crate::hash::hash;
use crate::scheme::{MaskSeed, UserAggregatorSeed, UserSharedSeed};
use crate::{
    AggregatorKeys, Error, IdentityKey, KeyGenerator, KeyLengths, Round, TaskParams, UserId, UserKeys,
};

const MAGIC: [u8; 8] = *b"DPHEKIT2";
const CHECK_BYTES: usize = 32;

/// The owner of the keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Identity = 1,
    KeyGenerator = 2,
    Aggregator = 3,
    User = 4,
}

impl IdentityKey {
    /// Returns the secret key as bytes.
    pub fn to_secret_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = begin(Kind::Identity);
        out.bytes(&*self.seed());
        finish(out)
    }

    /// Reads what [`IdentityKey::to_secret_bytes`] wrote.
    ///
    /// # Errors
    /// [`Error::Version`] if the bytes are something else, [`Error::Encoding`] if they are damaged.
    pub fn from_secret_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut input = open(Kind::Identity, bytes)?;
        let mut seed = Zeroizing::new([0; 32]);
        seed.copy_from_slice(input.take(32)?);
        input.finish()?;
        Ok(Self::from_seed(&seed))
    }
}

impl UserKeys {
    /// Returns the keys of the user as bytes.
    pub fn to_secret_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = begin(Kind::User);
        write_task(&mut out, &self.task);
        write_key(&mut out, &self.encryption);
        out.u32(self.user.get());
        write_seed(&mut out, self.us.to_parts());
        write_seed(&mut out, self.ua.to_parts());
        write_seed(&mut out, self.mask.to_parts());
        finish(out)
    }

    /// Reads what [`UserKeys::to_secret_bytes`] wrote.
    ///
    /// # Errors
    /// [`Error::Version`] if the bytes are something else, [`Error::Encoding`] if they are damaged, [`Error::Task`] or
    /// [`Error::Key`] if the task is invalid or the key must not be used.
    pub fn from_secret_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_secret_bytes_with(bytes, KeyLengths::default())
    }

    /// Reads keys that may have other lengths.
    ///
    /// # Errors
    /// As [`UserKeys::from_secret_bytes`].
    pub fn from_secret_bytes_with(bytes: &[u8], lengths: KeyLengths) -> Result<Self, Error> {
        let mut input = open(Kind::User, bytes)?;
        let task = read_task(input.get()?, &mut input, lengths)?;
        let encryption = read_key(&mut input, &task, lengths)?;
        let user = input.get()?;
        let us = read_seed(&mut input, UserSharedSeed::from_parts)?;
        let ua = read_seed(&mut input, UserAggregatorSeed::from_parts)?;
        let mask = read_seed(&mut input, MaskSeed::from_parts)?;
        input.finish()?;
        Ok(Self { task, user, encryption, us, ua, mask })
    }
}

impl AggregatorKeys {
    /// Returns the keys of the aggregator as bytes.
    pub fn to_secret_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = begin(Kind::Aggregator);
        write_task(&mut out, &self.task);
        write_key(&mut out, &self.encryption);
        write_users(&mut out, self.ua.iter().map(|(&user, seed)| (user, seed.to_parts())));
        finish(out)
    }

    /// Reads what [`AggregatorKeys::to_secret_bytes`] wrote.
    ///
    /// # Errors
    /// As [`UserKeys::from_secret_bytes`], and [`Error::SetOrder`] or [`Error::Size`] for an invalid list of users.
    pub fn from_secret_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_secret_bytes_with(bytes, KeyLengths::default())
    }

    /// Reads keys that may have other lengths.
    ///
    /// # Errors
    /// As [`AggregatorKeys::from_secret_bytes`].
    pub fn from_secret_bytes_with(bytes: &[u8], lengths: KeyLengths) -> Result<Self, Error> {
        let mut input = open(Kind::Aggregator, bytes)?;
        let task = read_task(input.get()?, &mut input, lengths)?;
        let encryption = read_key(&mut input, &task, lengths)?;
        let ua = read_users(&mut input, UserAggregatorSeed::from_parts)?;
        input.finish()?;
        Ok(Self { task, encryption, ua })
    }
}

impl KeyGenerator {
    /// Returns the seeds and users of the key generator as bytes. They do not contain the decryption key, which
    /// [`DecryptionKey::to_encrypted_bytes`] writes under a passphrase.
    pub fn to_secret_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = begin(Kind::KeyGenerator);
        write_task(&mut out, self.task());
        out.bytes(self.encryption_key().id().as_bytes());
        let (us, masks, next) = self.parts();
        out.u64(next.get());
        write_seed(&mut out, us.to_parts());
        write_users(&mut out, masks.iter().map(|(&user, seed)| (user, seed.to_parts())));
        finish(out)
    }

    /// Reads what [`KeyGenerator::to_secret_bytes`] wrote, and adds the decryption key.
    ///
    /// # Errors
    /// As [`AggregatorKeys::from_secret_bytes`], and [`Error::Key`] for another decryption key.
    pub fn from_secret_bytes(bytes: &[u8], key: DecryptionKey) -> Result<Self, Error> {
        Self::from_secret_bytes_with(bytes, key, KeyLengths::default())
    }

    /// Reads keys that may have other lengths.
    ///
    /// # Errors
    /// As [`KeyGenerator::from_secret_bytes`].
    pub fn from_secret_bytes_with(
        bytes: &[u8],
        key: DecryptionKey,
        lengths: KeyLengths,
    ) -> Result<Self, Error> {
        let mut input = open(Kind::KeyGenerator, bytes)?;
        let task = read_task(input.get()?, &mut input, lengths)?;
        let id: [u8; 32] = input.get()?;
        if key.encryption_key().id().as_bytes() != &id {
            return Err(Error::Key(dphe_paillier::Error::KeyMismatch));
        }
        let next = input.get()?;
        let us = read_seed(&mut input, UserSharedSeed::from_parts)?;
        let masks = read_users(&mut input, MaskSeed::from_parts)?;
        input.finish()?;
        Self::from_parts(task, key, us, masks, next)
    }
}

fn begin(kind: Kind) -> Writer {
    let mut out = Writer::new();
    out.bytes(&MAGIC);
    out.u8(kind as u8);
    out
}

/// Appends a checksum, because a flipped bit in a seed would go unnoticed and spoil sums.
fn finish(mut out: Writer) -> Zeroizing<Vec<u8>> {
    let check = hash(domains::KEY_BYTES, &[out.as_bytes()]);
    out.put(&check);
    Zeroizing::new(out.into_bytes())
}

fn open(kind: Kind, bytes: &[u8]) -> Result<Reader<'_>, Error> {
    let start = MAGIC.len() + 1;
    if bytes.len() < start + CHECK_BYTES {
        return Err(TRUNCATED);
    }
    if bytes[..MAGIC.len()] != MAGIC || bytes[MAGIC.len()] != kind as u8 {
        return Err(Error::Version);
    }
    let (covered, check) = bytes.split_at(bytes.len() - CHECK_BYTES);
    if hash(domains::KEY_BYTES, &[covered]).as_bytes() != check {
        return Err(Error::Encoding { reason: "the checksum of the keys is wrong" });
    }
    Ok(Reader::new(&covered[start..]))
}

fn write_task(out: &mut Writer, task: &TaskParams) {
    out.put(&task.id());
    out.put(task.config());
}

fn write_key(out: &mut Writer, key: &EncryptionKey) {
    let bytes = key.to_bytes();
    out.u32(bytes.len() as u32);
    out.bytes(&bytes);
}

fn read_key(input: &mut Reader<'_>, task: &TaskParams, lengths: KeyLengths) -> Result<EncryptionKey, Error> {
    let length = input.u32()? as usize;
    let key = lengths.encryption_key(task.config(), input.take(length)?).map_err(Error::Key)?;
    task.check_key(&key)?;
    Ok(key)
}

fn write_seed(out: &mut Writer, (round, key): (Round, &[u8; 32])) {
    out.u64(round.get());
    out.bytes(key);
}

fn read_seed<S>(input: &mut Reader<'_>, from_parts: impl Fn(Round, [u8; 32]) -> S) -> Result<S, Error> {
    let round = input.get()?;
    let mut key: [u8; 32] = input.get()?;
    let seed = from_parts(round, key);
    key.zeroize();
    Ok(seed)
}

fn write_users<'a>(out: &mut Writer, users: impl ExactSizeIterator<Item = (UserId, (Round, &'a [u8; 32]))>) {
    out.u32(users.len() as u32);
    for (user, seed) in users {
        out.u32(user.get());
        write_seed(out, seed);
    }
}

fn read_users<S>(
    input: &mut Reader<'_>,
    from_parts: impl Fn(Round, [u8; 32]) -> S,
) -> Result<BTreeMap<UserId, S>, Error> {
    let count = input.u32()?;
    if count > TaskParams::MOST_USERS {
        return Err(Error::Size { what: "the number of users" });
    }
    let mut users = BTreeMap::new();
    for _ in 0..count {
        let user = input.get()?;
        if users.last_key_value().is_some_and(|(&last, _)| last >= user) {
            return Err(Error::SetOrder);
        }
        users.insert(user, read_seed(input, &from_parts)?);
    }
    Ok(users)
}
