//! Keys as bytes, for the start-up kits of parties (docs/protocol.md, section 13).
//!
//! This is the one way secrets of this crate become bytes. It is called by name: nothing here can be serialised by
//! accident. Whoever holds the bytes holds the keys; keeping them is the caller's.

use std::collections::BTreeMap;

use dphe_paillier::{DecryptionKey, EncryptionKey, KeyBits};
use zeroize::{Zeroize, Zeroizing};

use crate::hash::hash;
use crate::message::codec::{Reader, Writer};
use crate::permutation::{UserAggregatorSeed, UserSharedSeed};
use crate::{
    AggregatorKeys, Error, IdentityKey, KeyGenerator, Round, TaskConfig, TaskId, TaskParams, UserId, UserKeys,
};

const MAGIC: [u8; 8] = *b"DPHEKIT1";
const CHECK_BYTES: usize = 32;

/// What a kit file holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Identity = 1,
    KeyGenerator = 2,
    Aggregator = 3,
    User = 4,
}

impl IdentityKey {
    /// The secret key, for the kit of its owner and nobody else.
    pub fn to_kit_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = begin(Kind::Identity);
        out.bytes(&*self.seed());
        finish(out)
    }

    /// Reads what [`IdentityKey::to_kit_bytes`] wrote.
    ///
    /// # Errors
    /// [`Error::Version`] if it is something else, [`Error::Encoding`] if it is damaged.
    pub fn from_kit_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut input = open(Kind::Identity, bytes)?;
        let mut seed = Zeroizing::new([0; 32]);
        seed.copy_from_slice(input.take(32)?);
        input.finish()?;
        Ok(Self::from_seed(&seed))
    }
}

impl UserKeys {
    /// The keys, for the kit of this user and nobody else.
    pub fn to_kit_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = begin(Kind::User);
        write_task(&mut out, &self.task);
        write_key(&mut out, &self.encryption);
        out.u32(self.user.get());
        write_seed(&mut out, self.us.to_parts());
        write_seed(&mut out, self.ua.to_parts());
        finish(out)
    }

    /// Reads what [`UserKeys::to_kit_bytes`] wrote.
    ///
    /// # Errors
    /// [`Error::Version`] if it is something else, [`Error::Encoding`] if it is damaged, [`Error::Task`] or
    /// [`Error::Key`] if its task or key must not be used.
    pub fn from_kit_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut input = open(Kind::User, bytes)?;
        let task = read_task(&mut input)?;
        let encryption = read_key(&mut input, &task)?;
        let user = input.user()?;
        let us = read_seed(&mut input, UserSharedSeed::from_parts)?;
        let ua = read_seed(&mut input, UserAggregatorSeed::from_parts)?;
        input.finish()?;
        Ok(Self { task, user, encryption, us, ua })
    }
}

impl AggregatorKeys {
    /// The keys, for the kit of the aggregator and nobody else.
    pub fn to_kit_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = begin(Kind::Aggregator);
        write_task(&mut out, &self.task);
        write_key(&mut out, &self.encryption);
        write_users(&mut out, &self.ua);
        finish(out)
    }

    /// Reads what [`AggregatorKeys::to_kit_bytes`] wrote.
    ///
    /// # Errors
    /// As [`UserKeys::from_kit_bytes`], and [`Error::SetOrder`] or [`Error::Size`] for users that cannot be.
    pub fn from_kit_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut input = open(Kind::Aggregator, bytes)?;
        let task = read_task(&mut input)?;
        let encryption = read_key(&mut input, &task)?;
        let ua = read_users(&mut input)?;
        input.finish()?;
        Ok(Self { task, encryption, ua })
    }
}

impl KeyGenerator {
    /// Seeds and users, for the kit of the key generator and nobody else. The key that decrypts is not in it:
    /// [`DecryptionKey::seal`] writes that, under a passphrase.
    pub fn to_kit_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = begin(Kind::KeyGenerator);
        write_task(&mut out, self.task());
        out.bytes(self.encryption_key().id().as_bytes());
        let (us, ua, next) = self.parts();
        out.u64(next.get());
        write_seed(&mut out, us.to_parts());
        write_users(&mut out, ua);
        finish(out)
    }

    /// Reads what [`KeyGenerator::to_kit_bytes`] wrote, and takes the key that belongs to it.
    ///
    /// # Errors
    /// As [`AggregatorKeys::from_kit_bytes`]; [`Error::Key`] for another key.
    pub fn from_kit_bytes(bytes: &[u8], key: DecryptionKey) -> Result<Self, Error> {
        let mut input = open(Kind::KeyGenerator, bytes)?;
        let task = read_task(&mut input)?;
        let id: [u8; 32] = input.array()?;
        if key.encryption_key().id().as_bytes() != &id {
            return Err(Error::Key(dphe_paillier::Error::KeyMismatch));
        }
        let next = read_round(&mut input)?;
        let us = read_seed(&mut input, UserSharedSeed::from_parts)?;
        let ua = read_users(&mut input)?;
        input.finish()?;
        Self::from_parts(task, key, us, ua, next)
    }
}

fn begin(kind: Kind) -> Writer {
    let mut out = Writer::new();
    out.bytes(&MAGIC);
    out.u8(kind as u8);
    out
}

/// A flipped bit in a seed would go unnoticed and spoil sums, so everything is covered by a hash.
fn finish(mut out: Writer) -> Zeroizing<Vec<u8>> {
    let check = hash("dphe/v1/kit", &[out.as_bytes()]);
    out.digest(&check);
    Zeroizing::new(out.into_bytes())
}

fn open(kind: Kind, bytes: &[u8]) -> Result<Reader<'_>, Error> {
    let cut = Error::Encoding { reason: "it is cut short" };
    let start = MAGIC.len() + 1;
    if bytes.len() < start + CHECK_BYTES {
        return Err(cut);
    }
    if bytes[..MAGIC.len()] != MAGIC || bytes[MAGIC.len()] != kind as u8 {
        return Err(Error::Version);
    }
    let (covered, check) = bytes.split_at(bytes.len() - CHECK_BYTES);
    if hash("dphe/v1/kit", &[covered]).as_bytes() != check {
        return Err(Error::Encoding { reason: "it is damaged" });
    }
    Ok(Reader::new(&covered[start..]))
}

fn write_task(out: &mut Writer, task: &TaskParams) {
    out.bytes(task.id().as_bytes());
    task.write_policy(out);
}

fn read_task(input: &mut Reader<'_>) -> Result<TaskParams, Error> {
    let id = TaskId::from_bytes(input.array()?);
    TaskParams::read_policy(id, input, allowed_bits)
}

/// As in rosters: short keys in `paper` only.
pub(crate) fn allowed_bits(config: &TaskConfig) -> Result<KeyBits, dphe_paillier::Error> {
    match config.profile {
        #[cfg(feature = "hazmat")]
        crate::Profile::Paper => dphe_paillier::hazmat::insecure_key_bits(config.key_bits),
        _ => KeyBits::new(config.key_bits),
    }
}

fn write_key(out: &mut Writer, key: &EncryptionKey) {
    let bytes = key.to_bytes();
    out.u32(bytes.len() as u32);
    out.bytes(&bytes);
}

fn read_key(input: &mut Reader<'_>, task: &TaskParams) -> Result<EncryptionKey, Error> {
    let length = input.u32()? as usize;
    let bytes = input.take(length)?;
    let key = match task.profile() {
        #[cfg(feature = "hazmat")]
        crate::Profile::Paper => dphe_paillier::hazmat::read_public_key(bytes),
        _ => EncryptionKey::from_bytes(bytes),
    }
    .map_err(Error::Key)?;
    task.check_key(&key)?;
    Ok(key)
}

fn write_seed(out: &mut Writer, (round, key): (Round, &[u8; 32])) {
    out.u64(round.get());
    out.bytes(key);
}

fn read_seed<S>(input: &mut Reader<'_>, from_parts: impl Fn(Round, [u8; 32]) -> S) -> Result<S, Error> {
    let round = read_round(input)?;
    let mut key: [u8; 32] = input.array()?;
    let seed = from_parts(round, key);
    key.zeroize();
    Ok(seed)
}

fn read_round(input: &mut Reader<'_>) -> Result<Round, Error> {
    Round::new(input.u64()?).ok_or(Error::Encoding { reason: "there is no round 0" })
}

fn write_users(out: &mut Writer, users: &BTreeMap<UserId, UserAggregatorSeed>) {
    out.u32(users.len() as u32);
    for (user, seed) in users {
        out.u32(user.get());
        write_seed(out, seed.to_parts());
    }
}

fn read_users(input: &mut Reader<'_>) -> Result<BTreeMap<UserId, UserAggregatorSeed>, Error> {
    let count = input.u32()?;
    if count > TaskParams::MOST_USERS {
        return Err(Error::Size { what: "the number of users" });
    }
    let mut users = BTreeMap::new();
    for _ in 0..count {
        let user = input.user()?;
        if users.last_key_value().is_some_and(|(&last, _)| last >= user) {
            return Err(Error::SetOrder);
        }
        users.insert(user, read_seed(input, UserAggregatorSeed::from_parts)?);
    }
    Ok(users)
}
