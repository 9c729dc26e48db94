//! The roster: the task, its parties and its key, signed by the key generator (docs/protocol.md, section 3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dphe_paillier::EncryptionKey;

use super::codec::{Reader, Writer};
use super::domains;
use super::policy::{POLICY_BYTES, read_task};
use super::upload_seal::Agreement;
use crate::hash::hash;
use crate::{
    Digest, Error, Identity, IdentityKey, KeyLengths, PartyId, Profile, Round, TaskId, TaskParams, UserId,
};

/// A roster whose signature was verified. Compare its [`Roster::hash`] with a trusted one: the roster names the key
/// that signs it, so the signature alone proves only that it is consistent.
#[derive(Clone, Debug)]
pub struct Roster {
    task: TaskParams,
    epoch: u32,
    key_id: [u8; 32],
    initial_model: Digest,
    task_file: Digest,
    previous: Digest,
    first_round: Round,
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

/// The description of the first roster of a task.
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

/// What a new roster changes in the one that it replaces.
#[derive(Clone, Debug, Default)]
pub struct RosterEdits {
    /// The users who leave.
    pub removed: BTreeSet<UserId>,
    /// The new identities of users.
    pub users: BTreeMap<UserId, Identity>,
    /// The new identity of the aggregator, with its agreement key.
    pub aggregator: Option<(Identity, Agreement)>,
}

impl RosterEdits {
    /// Returns the parties with a new identity.
    pub fn identities(&self) -> impl Iterator<Item = (PartyId, &Identity)> {
        let aggregator = self.aggregator.iter().map(|(identity, _)| (PartyId::Aggregator, identity));
        aggregator.chain(self.users.iter().map(|(&user, identity)| (PartyId::User(user), identity)))
    }
}

/// The content of a roster that is about to be signed.
struct Draft {
    task: TaskParams,
    epoch: u32,
    key_id: [u8; 32],
    initial_model: Digest,
    task_file: Digest,
    previous: Digest,
    first_round: Round,
    aggregator: Identity,
    agreement: Agreement,
    users: BTreeMap<UserId, Identity>,
}

impl Draft {
    fn sign(self, key_generator: &IdentityKey) -> Result<Roster, Error> {
        let count = u32::try_from(self.users.len()).unwrap_or(u32::MAX);
        if count > TaskParams::MOST_USERS {
            return Err(Error::Size { what: "the roster" });
        }
        let mut out = Writer::new();
        out.u8(VERSION);
        out.bytes(self.task.id().as_bytes());
        out.u32(self.epoch);
        out.put(self.task.config());
        out.bytes(&self.key_id);
        out.put(&self.initial_model);
        out.put(&self.task_file);
        out.put(&self.previous);
        out.put(&self.first_round);
        out.bytes(&self.aggregator.to_bytes());
        out.bytes(self.agreement.as_bytes());
        out.bytes(&key_generator.identity().to_bytes());
        out.u8(0);
        out.u32(count);
        let users_at = out.as_bytes().len();
        for (user, identity) in &self.users {
            out.u32(user.get());
            out.bytes(&identity.to_bytes());
            out.bytes(&NO_AGREEMENT);
        }
        let mut bytes = out.into_bytes();
        check_distinct(&bytes[users_at..], [&self.aggregator, &key_generator.identity()])?;
        let hash = hash(domains::ROSTER, &[&bytes]);
        bytes.extend_from_slice(&key_generator.sign(&hash));
        Ok(Roster {
            task: self.task,
            epoch: self.epoch,
            key_id: self.key_id,
            initial_model: self.initial_model,
            task_file: self.task_file,
            previous: self.previous,
            first_round: self.first_round,
            aggregator: self.aggregator,
            agreement: self.agreement,
            key_generator: key_generator.identity(),
            hash,
            users: self.users.into_keys().collect(),
            bytes: bytes.into(),
            users_at,
        })
    }
}

impl Roster {
    /// Creates the first roster of a task and signs it with the key generator's identity.
    ///
    /// # Errors
    /// [`Error::Key`] if the encryption key does not have the task's length and noise mode, [`Error::Size`] for more
    /// than 65,536 users, [`Error::Roster`] if two parties have the same identity.
    pub fn new(plan: RosterPlan<'_>, key_generator: &IdentityKey) -> Result<Self, Error> {
        let RosterPlan { task, key, initial_model, task_file, aggregator, agreement, users } = plan;
        task.check_key(key)?;
        let draft = Draft {
            task,
            epoch: FIRST_EPOCH,
            key_id: *key.id().as_bytes(),
            initial_model,
            task_file,
            previous: Digest::ZERO,
            first_round: Round::FIRST,
            aggregator,
            agreement,
            users,
        };
        draft.sign(key_generator)
    }

    /// Creates the roster that replaces this one from a round on, and signs it with the key generator's identity.
    ///
    /// # Errors
    /// [`Error::UnknownUser`] if a user is removed or replaced who is not in this roster, [`Error::Signature`] for
    /// another key generator's identity, [`Error::Roster`] if two parties have the same identity, and the errors of
    /// [`Roster::follows`].
    pub fn changed(
        &self,
        edits: &RosterEdits,
        first_round: Round,
        key_generator: &IdentityKey,
    ) -> Result<Self, Error> {
        if key_generator.identity() != self.key_generator {
            return Err(Error::Signature);
        }
        let mut users = BTreeMap::new();
        for user in self.users() {
            users.insert(user, self.identity(PartyId::User(user))?);
        }
        for (&user, &identity) in &edits.users {
            users.insert(user, identity).ok_or(Error::UnknownUser(user))?;
        }
        for &user in &edits.removed {
            users.remove(&user).ok_or(Error::UnknownUser(user))?;
        }
        let (aggregator, agreement) = edits.aggregator.unwrap_or((self.aggregator, self.agreement));
        let draft = Draft {
            task: self.task.clone(),
            epoch: self.epoch.checked_add(1).ok_or(Error::Size { what: "the number of rosters" })?,
            key_id: self.key_id,
            initial_model: self.initial_model,
            task_file: self.task_file,
            previous: self.hash,
            first_round,
            aggregator,
            agreement,
            users,
        };
        let roster = draft.sign(key_generator)?;
        roster.follows(self)?;
        Ok(roster)
    }

    /// Checks that this roster replaces `previous` in its task (docs/protocol.md, section 3): it names the hash of
    /// `previous`, and differs in nothing but removed users and replaced identities.
    ///
    /// # Errors
    /// [`Error::OtherTask`] or [`Error::Policy`] for another task, [`Error::Profile`] if the profile does not allow
    /// changes, [`Error::SetSmall`] if too few users are left, [`Error::Roster`] for every other difference.
    pub fn follows(&self, previous: &Self) -> Result<(), Error> {
        if self.task.id() != previous.task.id() {
            return Err(Error::OtherTask);
        }
        if self.task != previous.task {
            return Err(Error::Policy);
        }
        if self.task.profile() == Profile::Paper {
            return Err(Error::Profile { what: "changed rosters" });
        }
        let same_aggregator = self.aggregator == previous.aggregator;
        let follows = previous.epoch.checked_add(1) == Some(self.epoch)
            && self.previous == previous.hash
            && self.first_round >= previous.first_round
            && self.key_id == previous.key_id
            && self.initial_model == previous.initial_model
            && self.task_file == previous.task_file
            && self.key_generator == previous.key_generator
            && same_aggregator == (self.agreement == previous.agreement)
            && self.users().all(|user| previous.contains(user));
        if !follows {
            return Err(Error::Roster);
        }
        let (users, floor) = (self.users.len(), self.floor());
        if users < floor {
            return Err(Error::SetSmall { users, floor });
        }
        Ok(())
    }

    /// Returns the users of this roster whose identity is another one in `previous`.
    pub(crate) fn replaced_since(&self, previous: &Self) -> BTreeSet<UserId> {
        let identity = |roster: &Self, user| roster.identity(PartyId::User(user)).ok();
        self.users().filter(|&user| identity(self, user) != identity(previous, user)).collect()
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
        let epoch = input.u32()?;
        let mut policy = Reader::new(input.take(POLICY_BYTES)?);
        let task = read_task(id, &mut policy, lengths)?;
        policy.finish()?;
        let key_id = input.get()?;
        let (initial_model, task_file) = (input.get()?, input.get()?);
        let previous = input.get()?;
        let first_round = Round::new(input.u64()?).ok_or(Error::Roster)?;
        let is_first = epoch == FIRST_EPOCH;
        if epoch < FIRST_EPOCH
            || is_first != (previous == Digest::ZERO)
            || (is_first && first_round != Round::FIRST)
        {
            return Err(Error::Roster);
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
            epoch,
            key_id,
            initial_model,
            task_file,
            previous,
            first_round,
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

    /// Returns the number of the roster within its task, from 1.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the first round in which the roster is in force.
    pub fn first_round(&self) -> Round {
        self.first_round
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
