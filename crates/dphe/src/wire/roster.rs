//! The roster: the task, its parties and its key, signed by the key generator (docs/protocol.md, section 3).

use std::collections::BTreeMap;
use std::sync::Arc;

use dphe_paillier::EncryptionKey;

use super::codec::{Reader, Writer};
use super::domains;
use super::policy::{POLICY_BYTES, read_task};
use super::upload_seal::Agreement;
use crate::hash::hash;
use crate::{Digest, Error, Identity, IdentityKey, KeyLengths, PartyId, TaskId, TaskParams, UserId};

/// A roster whose signature was verified. Compare its [`Roster::hash`] with a trusted one: the roster names the key
/// that signs it, so the signature alone proves only that it is consistent.
#[derive(Clone, Debug)]
pub struct Roster {
    task: TaskParams,
    key_id: [u8; 32],
    initial_model: Digest,
    task_file: Digest,
    aggregator: Identity,
    agreement: Agreement,
    key_generator: Identity,
    hash: Digest,
    /// Ascending.
    users: Arc<[UserId]>,
    /// The encoded roster. Identity keys are read from here when they are needed, because thousands of decoded keys
    /// take megabytes.
    bytes: Arc<[u8]>,
    /// The offset of the users in `bytes`.
    users_at: usize,
}

const VERSION: u8 = 2;
/// The number of a roster that replaces no other.
const FIRST_EPOCH: u32 = 1;

/// A user as encoded: number, identity and agreement key.
type UserEntry = [u8; 68];

/// No user has an agreement key in this version.
const NO_AGREEMENT: [u8; 32] = [0; 32];

/// The description of a roster that is about to be signed.
#[derive(Clone, Debug)]
pub struct RosterPlan<'a> {
    /// The task.
    pub task: TaskParams,
    /// The encryption key.
    pub key: &'a EncryptionKey,
    /// The digest of the initial model.
    pub initial_model: Digest,
    /// The hash of the task file, or zeros.
    pub task_file: Digest,
    /// The aggregator's identity.
    pub aggregator: Identity,
    /// The key that uploads are encrypted to.
    pub agreement: Agreement,
    /// The users.
    pub users: BTreeMap<UserId, Identity>,
}

impl Roster {
    /// Creates a roster and signs it with the key generator's identity.
    ///
    /// # Errors
    /// [`Error::Key`] if the encryption key does not have the task's length and noise mode, [`Error::Size`] for more
    /// than 65,536 users, [`Error::Roster`] if two parties have the same identity.
    pub fn new(plan: RosterPlan<'_>, key_generator: &IdentityKey) -> Result<Self, Error> {
        let RosterPlan { task, key, initial_model, task_file, aggregator, agreement, users } = plan;
        task.check_key(key)?;
        let count = u32::try_from(users.len()).unwrap_or(u32::MAX);
        if count > TaskParams::MOST_USERS {
            return Err(Error::Size { what: "the roster" });
        }
        let key_id = *key.id().as_bytes();
        let mut out = Writer::new();
        out.u8(VERSION);
        out.bytes(task.id().as_bytes());
        out.u32(FIRST_EPOCH);
        out.put(task.config());
        out.bytes(&key_id);
        out.put(&initial_model);
        out.put(&task_file);
        out.put(&Digest::ZERO);
        out.bytes(&aggregator.to_bytes());
        out.bytes(agreement.as_bytes());
        out.bytes(&key_generator.identity().to_bytes());
        out.u8(0);
        out.u32(count);
        let users_at = out.as_bytes().len();
        for (user, identity) in &users {
            out.u32(user.get());
            out.bytes(&identity.to_bytes());
            out.bytes(&NO_AGREEMENT);
        }
        let mut bytes = out.into_bytes();
        check_distinct(&bytes[users_at..], [&aggregator, &key_generator.identity()])?;
        let hash = hash(domains::ROSTER, &[&bytes]);
        bytes.extend_from_slice(&key_generator.sign(&hash));
        let (users, bytes, key_generator) =
            (users.into_keys().collect(), bytes.into(), key_generator.identity());
        Ok(Self {
            task,
            key_id,
            initial_model,
            task_file,
            aggregator,
            agreement,
            key_generator,
            hash,
            users,
            bytes,
            users_at,
        })
    }

    /// Reads a roster and verifies its signature.
    ///
    /// # Errors
    /// [`Error::Encoding`], [`Error::Version`], [`Error::Size`], [`Error::Task`], [`Error::Key`], [`Error::SetOrder`],
    /// [`Error::Roster`], [`Error::Profile`] or [`Error::Signature`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Self::decode_with(bytes, KeyLengths::default())
    }

    /// Reads a roster of a task whose key may have other lengths.
    ///
    /// # Errors
    /// As [`Roster::decode`].
    pub fn decode_with(bytes: &[u8], lengths: KeyLengths) -> Result<Self, Error> {
        let mut input = Reader::new(bytes);
        if input.u8()? != VERSION {
            return Err(Error::Version);
        }
        let id = TaskId::from_bytes(input.get()?);
        let _epoch = input.u32()?;
        let mut policy = Reader::new(input.take(POLICY_BYTES)?);
        let task = read_task(id, &mut policy, lengths)?;
        policy.finish()?;
        let key_id = input.get()?;
        let (initial_model, task_file) = (input.get()?, input.get()?);
        if input.get::<Digest>()? != Digest::ZERO {
            return Err(Error::Profile { what: "changed rosters" });
        }
        let aggregator = Identity::from_bytes(&input.get()?)?;
        let agreement = Agreement::from_bytes(input.get()?)?;
        let key_generator = Identity::from_bytes(&input.get()?)?;
        if input.u8()? != 0 {
            return Err(Error::Profile { what: "witnesses" });
        }
        let count = input.u32()?;
        if count > TaskParams::MOST_USERS {
            return Err(Error::Size { what: "the roster" });
        }
        let users_at = bytes.len() - input.rest().len();
        let mut users = Vec::new();
        for _ in 0..count {
            let user = input.get()?;
            Identity::from_bytes(&input.get()?)?;
            if input.get::<[u8; 32]>()? != NO_AGREEMENT {
                return Err(Error::Profile { what: "agreement keys of users" });
            }
            if users.last().is_some_and(|&last| last >= user) {
                return Err(Error::SetOrder);
            }
            users.push(user);
        }
        let signed = &bytes[..bytes.len() - input.rest().len()];
        check_distinct(&signed[users_at..], [&aggregator, &key_generator])?;
        let hash = hash(domains::ROSTER, &[signed]);
        key_generator.verify(&hash, &input.get()?)?;
        input.finish()?;
        let (users, bytes) = (users.into(), bytes.into());
        Ok(Self {
            task,
            key_id,
            initial_model,
            task_file,
            aggregator,
            agreement,
            key_generator,
            hash,
            users,
            bytes,
            users_at,
        })
    }

    /// Returns the task.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    /// Returns the hash, by which parties agree on the roster.
    pub fn hash(&self) -> Digest {
        self.hash
    }

    /// Returns the encoded roster.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the users, ascending.
    pub fn users(&self) -> impl ExactSizeIterator<Item = UserId> + '_ {
        self.users.iter().copied()
    }

    /// Returns whether a user is in the roster.
    pub fn contains(&self, user: UserId) -> bool {
        self.users.binary_search(&user).is_ok()
    }

    /// Returns the floor: the smallest number of participants whose sum may be opened.
    pub fn floor(&self) -> usize {
        self.task.floor(self.users.len())
    }

    /// Returns the digest of the model that the first round starts from.
    pub fn initial_model(&self) -> Digest {
        self.initial_model
    }

    /// Returns the hash of the task file, or zeros if the roster names none.
    pub fn task_file(&self) -> Digest {
        self.task_file
    }

    /// Returns the key that uploads are encrypted to.
    pub fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    pub(crate) fn key_id(&self) -> &[u8; 32] {
        &self.key_id
    }

    /// Returns the identity of a party.
    ///
    /// # Errors
    /// [`Error::UnknownUser`] for a user who is not in the roster.
    pub fn identity(&self, party: PartyId) -> Result<Identity, Error> {
        match party {
            PartyId::Aggregator => Ok(self.aggregator),
            PartyId::KeyGenerator => Ok(self.key_generator),
            PartyId::User(user) => {
                let at = self.users.binary_search(&user).map_err(|_| Error::UnknownUser(user))?;
                let entry = entries(&self.bytes[self.users_at..]).get(at).ok_or(Error::UnknownUser(user))?;
                Identity::from_bytes(key_of(entry))
            }
        }
    }

    /// Returns the party with this identity.
    pub fn party(&self, identity: &Identity) -> Option<PartyId> {
        if *identity == self.aggregator {
            return Some(PartyId::Aggregator);
        }
        if *identity == self.key_generator {
            return Some(PartyId::KeyGenerator);
        }
        let key = identity.to_bytes();
        let at = entries(&self.bytes[self.users_at..])[..self.users.len()]
            .iter()
            .position(|entry| *key_of(entry) == key)?;
        self.users.get(at).copied().map(PartyId::User)
    }

    /// Checks that a task and an encryption key are those of the roster.
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

fn entries(bytes: &[u8]) -> &[UserEntry] {
    bytes.as_chunks().0
}

fn key_of(entry: &UserEntry) -> &[u8; 32] {
    entry[4..].first_chunk().unwrap_or(&NO_AGREEMENT)
}

/// Checks that identities are distinct. Two users with one identity would be one person, and count twice for the floor.
/// TLS tells parties apart by their identities.
fn check_distinct(users: &[u8], others: [&Identity; 2]) -> Result<(), Error> {
    let others = others.map(Identity::to_bytes);
    let mut keys: Vec<&[u8; 32]> = entries(users).iter().map(key_of).chain(&others).collect();
    keys.sort_unstable();
    if keys.windows(2).any(|pair| pair[0] == pair[1]) { Err(Error::Roster) } else { Ok(()) }
}
