//! The roster: the task, its parties and its key, signed by the key generator (docs/protocol.md, section 3).

use std::collections::BTreeMap;
use std::sync::Arc;

use dphe_paillier::{EncryptionKey, KeyBits};

use crate::hash::{Digest, hash};
use crate::message::codec::{Reader, Writer};
use crate::task::TaskConfig;
use crate::{Error, Identity, IdentityKey, Party, TaskId, TaskParams, UserId};

/// A roster whose signature holds. Pin its [`Roster::hash`]: the signature alone says only that it is consistent.
#[derive(Clone, Debug)]
pub struct Roster {
    task: TaskParams,
    key_id: [u8; 32],
    aggregator: Identity,
    key_generator: Identity,
    hash: Digest,
    /// Ascending.
    users: Arc<[UserId]>,
    /// All of it. Keys are taken from here when they are needed: thousands of them, ready for use, are megabytes.
    bytes: Arc<[u8]>,
    /// Where the users begin in it.
    lines_at: usize,
}

/// A user as it is written: its number, then its identity.
type UserLine = [u8; 36];

impl Roster {
    /// A roster, signed by the key generator.
    ///
    /// # Errors
    /// [`Error::Key`] if the encryption key is not of the task's length and mode; [`Error::Size`] for more than 65,536 users,
    /// [`Error::Roster`] if two have the same identity.
    pub fn new(
        task: TaskParams,
        epoch: u32,
        key: &EncryptionKey,
        aggregator: Identity,
        key_generator: &IdentityKey,
        users: BTreeMap<UserId, Identity>,
    ) -> Result<Self, Error> {
        task.check_key(key)?;
        let count = u32::try_from(users.len()).unwrap_or(u32::MAX);
        if count > TaskParams::MOST_USERS {
            return Err(Error::Size { what: "the roster" });
        }
        let key_id = *key.id().as_bytes();
        let mut out = Writer::new();
        out.u8(1);
        out.bytes(task.id().as_bytes());
        out.u32(epoch);
        task.write_policy(&mut out);
        out.bytes(&key_id);
        out.bytes(&aggregator.to_bytes());
        out.bytes(&key_generator.identity().to_bytes());
        out.u32(count);
        let lines_at = out.as_bytes().len();
        for (user, identity) in &users {
            out.u32(user.get());
            out.bytes(&identity.to_bytes());
        }
        let mut bytes = out.into_bytes();
        check_distinct(&bytes[lines_at..])?;
        let hash = hash("dphe/v1/roster", &[&bytes]);
        bytes.extend_from_slice(&key_generator.sign(&hash));
        let (users, bytes, key_generator) =
            (users.into_keys().collect(), bytes.into(), key_generator.identity());
        Ok(Self { task, key_id, aggregator, key_generator, hash, users, bytes, lines_at })
    }

    /// Reads a roster and checks its signature.
    ///
    /// # Errors
    /// [`Error::Encoding`], [`Error::Version`], [`Error::Size`], [`Error::Task`], [`Error::Key`], [`Error::SetOrder`],
    /// [`Error::Roster`] or [`Error::Signature`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Self::decode_of(bytes, crate::kit::allowed_bits)
    }

    pub(crate) fn decode_of(
        bytes: &[u8],
        key_bits: impl Fn(&TaskConfig) -> Result<KeyBits, dphe_paillier::Error>,
    ) -> Result<Self, Error> {
        let mut input = Reader::new(bytes);
        if input.u8()? != 1 {
            return Err(Error::Version);
        }
        let id = TaskId::from_bytes(input.array()?);
        let _epoch = input.u32()?;
        let mut policy = Reader::new(input.take(TaskParams::POLICY_BYTES)?);
        let task = TaskParams::read_policy(id, &mut policy, key_bits)?;
        policy.finish()?;
        let key_id = input.array()?;
        let aggregator = Identity::from_bytes(&input.array()?)?;
        let key_generator = Identity::from_bytes(&input.array()?)?;
        let count = input.u32()?;
        if count > TaskParams::MOST_USERS {
            return Err(Error::Size { what: "the roster" });
        }
        let lines_at = bytes.len() - input.rest().len();
        let mut users = Vec::new();
        for _ in 0..count {
            let user = input.user()?;
            Identity::from_bytes(&input.array()?)?;
            if users.last().is_some_and(|&last| last >= user) {
                return Err(Error::SetOrder);
            }
            users.push(user);
        }
        let signed = &bytes[..bytes.len() - input.rest().len()];
        check_distinct(&signed[lines_at..])?;
        let hash = hash("dphe/v1/roster", &[signed]);
        key_generator.verify(&hash, &input.array()?)?;
        input.finish()?;
        let (users, bytes) = (users.into(), bytes.into());
        Ok(Self { task, key_id, aggregator, key_generator, hash, users, bytes, lines_at })
    }

    /// The task.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    /// The hash to pin.
    pub fn hash(&self) -> Digest {
        self.hash
    }

    /// The encoded roster.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The users, ascending.
    pub fn users(&self) -> impl ExactSizeIterator<Item = UserId> + '_ {
        self.users.iter().copied()
    }

    /// Whether this user is in it.
    pub fn contains(&self, user: UserId) -> bool {
        self.users.binary_search(&user).is_ok()
    }

    /// The least number of users whose sum may be opened.
    pub fn floor(&self) -> usize {
        self.task.floor(self.users.len())
    }

    pub(crate) fn key_id(&self) -> &[u8; 32] {
        &self.key_id
    }

    /// The identity of a party.
    ///
    /// # Errors
    /// [`Error::UnknownUser`].
    pub fn identity(&self, party: Party) -> Result<Identity, Error> {
        match party {
            Party::Aggregator => Ok(self.aggregator),
            Party::KeyGenerator => Ok(self.key_generator),
            Party::User(user) => {
                let at = self.users.binary_search(&user).map_err(|_| Error::UnknownUser(user))?;
                let line = lines(&self.bytes[self.lines_at..]).get(at).ok_or(Error::UnknownUser(user))?;
                Identity::from_bytes(key_of(line))
            }
        }
    }

    /// Checks that task and key are those of the roster.
    pub(crate) fn check_task(&self, task: &TaskParams, key: &EncryptionKey) -> Result<(), Error> {
        if *task != self.task {
            return Err(Error::OtherTask);
        }
        self.task.check_key(key)?;
        if key.id().as_bytes() == &self.key_id {
            Ok(())
        } else {
            Err(Error::Key(dphe_paillier::Error::KeyMismatch))
        }
    }
}

fn lines(bytes: &[u8]) -> &[UserLine] {
    bytes.as_chunks().0
}

fn key_of([_, _, _, _, key @ ..]: &UserLine) -> &[u8; 32] {
    key
}

/// One identity counts once: two users who share one are one person towards the floor.
fn check_distinct(users: &[u8]) -> Result<(), Error> {
    let mut keys: Vec<&[u8; 32]> = lines(users).iter().map(key_of).collect();
    keys.sort_unstable();
    if keys.windows(2).any(|pair| pair[0] == pair[1]) { Err(Error::Roster) } else { Ok(()) }
}
