//! Rosters that replace others within a task: members leave, or get a new identity (docs/protocol.md, section 3).

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand_core::CryptoRng;
use zeroize::{Zeroize as _, Zeroizing};

use super::codec::{Reader, Writer};
use super::domains;
use super::upload_seal::{AgreementKey, SEAL_BYTES};
use crate::hash::{derive, hash};
use crate::scheme::{MaskSeed, UserAggregatorSeed, UserSharedSeed};
use crate::{Digest, Error, IdentityKey, KeyLengths, PartyId, Roster, Round, UserId};

const MAGIC: [u8; 8] = *b"DPHEROS2";
const SALT_BYTES: usize = 16;
const SEED_BYTES: usize = 32;
/// A user with its new user-aggregator seed, in the aggregator's part.
const ENTRY_BYTES: usize = 4 + SEED_BYTES;

/// A roster that replaces another one, with the new seeds of its parties. It was signed by the key generator, and holds
/// no secret in the clear.
///
/// Users who leave know the user-shared seed, so the others get a new one. Each of them finds it under a key that
/// follows from its own mask seed. Users with a new identity find it in their new kits, together with the other seeds.
#[derive(Clone)]
pub struct RosterChange {
    roster: Roster,
    salt: [u8; SALT_BYTES],
    check: Digest,
    /// The new user-shared seed, hidden for each user who keeps its identity.
    hidden: BTreeMap<UserId, [u8; SEED_BYTES]>,
    /// The new user-aggregator seeds, encrypted for the aggregator. Empty if there are none.
    sealed: Vec<u8>,
    replaced: BTreeSet<UserId>,
    bytes: Arc<[u8]>,
}

/// The seeds that a new roster brings. They are those of its first round.
pub(crate) struct NewSeeds {
    pub(crate) us: UserSharedSeed,
    /// The mask seeds of users with a new identity.
    pub(crate) masks: BTreeMap<UserId, MaskSeed>,
    /// The seeds that they share with the aggregator.
    pub(crate) ua: BTreeMap<UserId, UserAggregatorSeed>,
}

impl NewSeeds {
    pub(crate) fn generate(roster: &Roster, previous: &Roster, rng: &mut impl CryptoRng) -> Self {
        let (round, replaced) = (roster.first_round(), roster.replaced_since(previous));
        let mut draw = || {
            let mut seed = [0; SEED_BYTES];
            rng.fill_bytes(&mut seed);
            seed
        };
        Self {
            us: UserSharedSeed::from_parts(round, draw()),
            masks: replaced.iter().map(|&user| (user, MaskSeed::from_parts(round, draw()))).collect(),
            ua: replaced.iter().map(|&user| (user, UserAggregatorSeed::from_parts(round, draw()))).collect(),
        }
    }
}

impl RosterChange {
    /// Signs a change. `masks` are the mask seeds of the users who keep their identities.
    pub(crate) fn new(
        roster: Roster,
        previous: &Roster,
        masks: &BTreeMap<UserId, MaskSeed>,
        seeds: &NewSeeds,
        key_generator: &IdentityKey,
        rng: &mut impl CryptoRng,
    ) -> Result<Self, Error> {
        let (_, us) = seeds.us.to_parts();
        let mut salt = [0; SALT_BYTES];
        rng.fill_bytes(&mut salt);
        let replaced = roster.replaced_since(previous);
        let mut hidden = BTreeMap::new();
        for user in roster.users().filter(|user| !replaced.contains(user)) {
            let mask = masks.get(&user).ok_or(Error::UnknownUser(user))?;
            hidden.insert(user, *xor(us, &*hiding_key(&roster, &salt, user, mask)?));
        }
        let sealed = if replaced.is_empty() {
            Vec::new()
        } else {
            let mut content = Writer::new();
            for (user, seed) in &seeds.ua {
                content.put(user);
                content.bytes(seed.to_parts().1);
            }
            let content = Zeroizing::new(content.into_bytes());
            let (agreement, name) = (roster.agreement(), roster.hash());
            agreement.seal_bytes(domains::ROSTER_SEAL, name.as_bytes(), &content, rng).ok_or(Error::Roster)?
        };
        let check = check_of(roster.hash(), us);
        let mut out = Writer::new();
        out.bytes(&MAGIC);
        out.u32(roster.as_bytes().len() as u32);
        out.bytes(roster.as_bytes());
        out.bytes(&salt);
        out.put(&check);
        hidden.values().for_each(|seed| out.bytes(seed));
        out.bytes(&sealed);
        let mut bytes = out.into_bytes();
        let signature = key_generator.sign(&hash(domains::ROSTER_CHANGE, &[&bytes]));
        bytes.extend_from_slice(&signature);
        Ok(Self { roster, salt, check, hidden, sealed, replaced, bytes: bytes.into() })
    }

    /// Reads a change of the roster `previous` and verifies it.
    ///
    /// # Errors
    /// [`Error::Version`] if the bytes are something else, [`Error::Encoding`] if they are damaged,
    /// [`Error::Signature`], and the errors of [`Roster::decode`] and [`Roster::follows`].
    pub fn decode_with(bytes: &[u8], previous: &Roster, lengths: KeyLengths) -> Result<Self, Error> {
        let mut input = Reader::new(bytes);
        if input.get::<[u8; 8]>()? != MAGIC {
            return Err(Error::Version);
        }
        let length = input.u32()? as usize;
        let roster = Roster::decode_with(input.take(length)?, lengths)?;
        roster.follows(previous)?;
        let (salt, check) = (input.get()?, input.get()?);
        let replaced = roster.replaced_since(previous);
        let mut hidden = BTreeMap::new();
        for user in roster.users().filter(|user| !replaced.contains(user)) {
            hidden.insert(user, input.get()?);
        }
        let sealed = match replaced.len() {
            0 => Vec::new(),
            count => input.take(count * ENTRY_BYTES + SEAL_BYTES)?.to_vec(),
        };
        let signed = &bytes[..bytes.len() - input.rest().len()];
        let key_generator = roster.identity(PartyId::KeyGenerator)?;
        key_generator.verify(&hash(domains::ROSTER_CHANGE, &[signed]), &input.get()?)?;
        input.finish()?;
        Ok(Self { roster, salt, check, hidden, sealed, replaced, bytes: bytes.into() })
    }

    /// Returns the new roster.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Returns the change as bytes, which may be public.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the users who have a new identity.
    pub fn replaced(&self) -> &BTreeSet<UserId> {
        &self.replaced
    }

    /// Returns the new user-shared seed, for a user who keeps its identity.
    pub(crate) fn user_shared_seed(&self, user: UserId, mask: &MaskSeed) -> Result<UserSharedSeed, Error> {
        let hidden = self.hidden.get(&user).ok_or(Error::Roster)?;
        let us = xor(hidden, &*hiding_key(&self.roster, &self.salt, user, mask)?);
        if check_of(self.roster.hash(), &us) != self.check {
            return Err(Error::Roster);
        }
        Ok(UserSharedSeed::from_parts(self.roster.first_round(), *us))
    }

    /// Returns the new user-aggregator seeds, for the aggregator.
    pub(crate) fn user_aggregator_seeds(
        &self,
        key: &AgreementKey,
    ) -> Result<BTreeMap<UserId, UserAggregatorSeed>, Error> {
        if self.replaced.is_empty() {
            return Ok(BTreeMap::new());
        }
        let name = self.roster.hash();
        let content =
            key.open_bytes(domains::ROSTER_SEAL, name.as_bytes(), &self.sealed).ok_or(Error::Roster)?;
        let content = Zeroizing::new(content);
        let (mut input, round) = (Reader::new(&content), self.roster.first_round());
        let mut seeds = BTreeMap::new();
        for &user in &self.replaced {
            if input.get::<UserId>()? != user {
                return Err(Error::Roster);
            }
            let mut seed: [u8; SEED_BYTES] = input.get()?;
            seeds.insert(user, UserAggregatorSeed::from_parts(round, seed));
            seed.zeroize();
        }
        input.finish()?;
        Ok(seeds)
    }
}

impl fmt::Debug for RosterChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RosterChange(epoch {}, {:?})", self.roster.epoch(), self.roster.hash())
    }
}

fn hiding_key(
    roster: &Roster,
    salt: &[u8; SALT_BYTES],
    user: UserId,
    mask: &MaskSeed,
) -> Result<Zeroizing<[u8; 32]>, Error> {
    let (key, _) = mask.key(roster.task(), roster.first_round())?;
    Ok(hiding_key_of(&key, roster.hash(), salt, user))
}

/// Derives the key that hides the new user-shared seed from everybody but this user and the key generator. The salt
/// makes it another key if a change is made twice.
pub(crate) fn hiding_key_of(
    mask: &[u8; 32],
    roster: Digest,
    salt: &[u8; SALT_BYTES],
    user: UserId,
) -> Zeroizing<[u8; 32]> {
    let user = user.get().to_be_bytes();
    derive(domains::ROSTER_SEED, &[mask, roster.as_bytes(), salt, &user])
}

/// Returns what shows that a user has the right seed: a wrong one would spoil sums.
pub(crate) fn check_of(roster: Digest, us: &[u8; SEED_BYTES]) -> Digest {
    hash(domains::ROSTER_SEED_CHECK, &[us, roster.as_bytes()])
}

pub(crate) fn xor(a: &[u8; SEED_BYTES], b: &[u8; SEED_BYTES]) -> Zeroizing<[u8; SEED_BYTES]> {
    let mut out = Zeroizing::new(*a);
    out.iter_mut().zip(b).for_each(|(out, b)| *out ^= b);
    out
}

/// The rosters of a task, from the first one that a party knows to the latest.
#[derive(Clone, Debug)]
pub struct Rosters {
    first: Arc<Roster>,
    changes: Vec<Arc<RosterChange>>,
}

impl From<Arc<Roster>> for Rosters {
    fn from(first: Arc<Roster>) -> Self {
        Self { first, changes: Vec::new() }
    }
}

impl From<Roster> for Rosters {
    fn from(roster: Roster) -> Self {
        Arc::new(roster).into()
    }
}

impl From<&Roster> for Rosters {
    fn from(roster: &Roster) -> Self {
        roster.clone().into()
    }
}

impl From<&Arc<Roster>> for Rosters {
    fn from(roster: &Arc<Roster>) -> Self {
        roster.clone().into()
    }
}

impl From<&Self> for Rosters {
    fn from(rosters: &Self) -> Self {
        rosters.clone()
    }
}

impl Rosters {
    /// Adds a change of the latest roster.
    ///
    /// # Errors
    /// As [`RosterChange::decode_with`].
    pub fn add(&mut self, bytes: &[u8], lengths: KeyLengths) -> Result<(), Error> {
        self.push(RosterChange::decode_with(bytes, self.latest(), lengths)?);
        Ok(())
    }

    pub(crate) fn push(&mut self, change: RosterChange) {
        self.changes.push(Arc::new(change));
    }

    /// Returns the first roster.
    pub fn first(&self) -> &Roster {
        &self.first
    }

    /// Returns the latest roster, which may not be in force yet.
    pub fn latest(&self) -> &Roster {
        self.changes.last().map_or(&*self.first, |change| change.roster())
    }

    /// Returns the roster that is in force in a round.
    pub fn at(&self, round: Round) -> &Roster {
        self.iter().rev().find(|roster| roster.first_round() <= round).unwrap_or(&self.first)
    }

    /// Returns all rosters, the first one first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Roster> {
        [&*self.first].into_iter().chain(self.changes.iter().map(|change| change.roster()))
    }

    /// Returns the changes, the first one first.
    pub fn changes(&self) -> &[Arc<RosterChange>] {
        &self.changes
    }
}
