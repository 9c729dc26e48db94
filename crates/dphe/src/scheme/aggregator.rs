//! The aggregator's part: it turns sealed updates into one sealed sum (Algorithm 1, line 5).

use std::collections::BTreeMap;
use std::sync::Arc;

use dphe_paillier::{EncryptionKey, RunningSums, Threads, WireCiphertexts};

use super::fingerprints::{self, Fingerprints, fingerprint};
use super::mask::{Blind, Salt};
use super::permutation::UserAggregatorSeed;
use super::round_params::RoundParams;
use super::sealed::{Blinds, SealedSum, SealedUpdate, SealedValues};
use crate::{AggregatorKeys, Error, Profile, Receipts, Roster, Round, TaskParams, UserId};

/// The aggregator of a task.
#[derive(Clone, Debug)]
pub struct Aggregator {
    keys: Arc<AggregatorKeys>,
}

impl Aggregator {
    /// Creates the aggregator with these keys.
    ///
    /// # Errors
    /// [`Error::Key`] if the encryption key is not the task's.
    pub fn new(keys: AggregatorKeys) -> Result<Self, Error> {
        keys.task.check_key(&keys.encryption)?;
        Ok(Self { keys: Arc::new(keys) })
    }

    /// Returns an aggregator without the seeds, which publishes sums and collects nothing.
    #[must_use]
    pub fn without_seeds(&self) -> Self {
        let AggregatorKeys { task, encryption, .. } = &*self.keys;
        let keys = AggregatorKeys { task: task.clone(), encryption: encryption.clone(), ua: BTreeMap::new() };
        Self { keys: Arc::new(keys) }
    }

    /// Returns the task.
    pub fn task(&self) -> &TaskParams {
        &self.keys.task
    }

    /// Returns the number of enrolled users.
    pub fn enrolled(&self) -> usize {
        self.keys.ua.len()
    }

    /// Starts to collect the updates of a round.
    pub fn begin(&self, round: Round) -> Collecting {
        self.begin_in(Arc::new(RoundParams::new(&self.keys.task, round)))
    }

    /// Starts to collect the updates of a round whose parameters are known, with its ticket if it has one.
    pub fn begin_in(&self, params: Arc<RoundParams>) -> Collecting {
        let key = &self.keys.encryption;
        let positions =
            if params.task().has_private_support() { params.task().positions() as usize } else { 0 };
        Collecting {
            keys: Arc::clone(&self.keys),
            users: BTreeMap::new(),
            positions: RunningSums::new(key, positions),
            packed: RunningSums::new(key, params.packed_ciphertexts()),
            fingerprints: Fingerprints::default(),
            params,
        }
    }

    /// Returns the keys, with the seeds of the earliest round that is not forgotten. They are secret.
    pub fn keys(&self) -> &AggregatorKeys {
        &self.keys
    }

    pub(crate) fn encryption_key(&self) -> &EncryptionKey {
        &self.keys.encryption
    }

    pub(crate) fn seeds(&self) -> &BTreeMap<UserId, UserAggregatorSeed> {
        &self.keys.ua
    }

    /// Restores the seeds of all users.
    pub(crate) fn resume(&mut self, ua: BTreeMap<UserId, UserAggregatorSeed>) {
        Arc::make_mut(&mut self.keys).ua = ua;
    }

    /// Takes the seeds that come with a new roster, and forgets those of users who are not in it.
    pub(crate) fn renew(&mut self, roster: &Roster, ua: BTreeMap<UserId, UserAggregatorSeed>) {
        let keys = Arc::make_mut(&mut self.keys);
        keys.ua.retain(|&user, _| roster.contains(user));
        keys.ua.extend(ua);
    }

    /// Refuses a round whose seeds are forgotten, or that is too far ahead for [`Aggregator::advance`].
    ///
    /// # Errors
    /// [`Error::Stale`] or [`Error::Future`].
    pub fn check_round(&self, round: Round) -> Result<(), Error> {
        self.keys.ua.values().try_for_each(|seed| seed.check_round(&self.keys.task, round))
    }

    /// Forgets the permutations of all rounds before `round`.
    pub fn advance(&mut self, round: Round) {
        let keys = &self.keys;
        // if no seed changes, the keys stay shared with all clones
        if keys.task.profile() == Profile::Paper || keys.ua.values().all(|seed| seed.to_parts().0 >= round) {
            return;
        }
        let keys = Arc::make_mut(&mut self.keys);
        keys.ua.values_mut().for_each(|seed| seed.advance(&keys.task, round));
    }
}

/// A round in which updates are collected. Its size depends on the number of positions. Each user adds only twelve
/// bytes per ciphertext.
#[derive(Debug)]
pub struct Collecting {
    pub(crate) keys: Arc<AggregatorKeys>,
    params: Arc<RoundParams>,
    /// The users whose updates were accepted, with the salts of their masks and the aggregator's part of them.
    users: BTreeMap<UserId, (Salt, Option<Blind>)>,
    /// The sums of positions.
    pub(crate) positions: RunningSums,
    /// The sums of the packed numbers: the weights of a public support, and the dense values.
    pub(crate) packed: RunningSums,
    fingerprints: Fingerprints,
}

/// A round that cannot be finished yet, given back to the caller.
#[derive(Debug)]
pub struct StillCollecting {
    /// The round, unchanged.
    pub collecting: Box<Collecting>,
    /// Why it cannot be finished.
    pub error: Error,
}

impl From<StillCollecting> for Error {
    fn from(still: StillCollecting) -> Self {
        still.error
    }
}

impl Collecting {
    /// Returns the round.
    pub fn round(&self) -> Round {
        self.params.round()
    }

    /// Returns what all parties know about the round.
    pub fn params(&self) -> &Arc<RoundParams> {
        &self.params
    }

    /// Returns the users whose updates were accepted.
    pub fn users(&self) -> impl ExactSizeIterator<Item = UserId> + '_ {
        self.users.keys().copied()
    }

    /// Adds an update to the sums.
    ///
    /// # Errors
    /// [`Error::OtherTask`], [`Error::Stale`] or [`Error::Future`] for another task or round, [`Error::UnknownUser`],
    /// [`Error::Conflict`] for a second update of a user, and [`Error::Size`] for too many users. For ciphertexts,
    /// [`Error::CiphertextRange`], [`Error::CiphertextUnit`], [`Error::CiphertextTrivial`] or [`Error::NonceReuse`],
    /// which name the user. After an error, nothing has changed.
    pub fn accept(&mut self, update: SealedUpdate, threads: Threads) -> Result<(), Error> {
        let SealedUpdate { task, user, round, shards, packed, salt, blind, clipped: _ } = update;
        if task != self.keys.task {
            return Err(Error::OtherTask);
        }
        round.check(self.round())?;
        let keys = Arc::clone(&self.keys);
        let seed = keys.ua.get(&user).ok_or(Error::UnknownUser(user))?;
        if self.users.contains_key(&user) {
            return Err(Error::Conflict { what: "update of this user" });
        }
        if self.users.len() >= keys.task.max_users() {
            return Err(Error::Size { what: "the number of users" });
        }

        // everything is checked before anything is added
        let mut batches: Vec<(Vec<u32>, WireCiphertexts)> = Vec::with_capacity(shards.len());
        let mut fingerprints = Vec::new();
        if !shards.is_empty() {
            let ua = seed.permutation(&keys.task, round, user)?;
            for shard in shards {
                let (indices, values) = shard.into_parts();
                let batch = self.read(&values, fingerprints.len(), user, threads)?;
                fingerprints.extend((0..batch.len()).map(|i| fingerprint(batch.fingerprint(i))));
                // equation 8: undo the user-aggregator permutation and nothing else
                batches.push((indices.reorder(&ua).rows().to_vec(), batch));
            }
        }
        let packed = self.read(&packed, fingerprints.len(), user, threads)?;
        fingerprints.extend((0..packed.len()).map(|i| fingerprint(packed.fingerprint(i))));
        if packed.len() != self.packed.positions() {
            let (expected, found) = (self.packed.positions(), packed.len());
            return Err(Error::Count { what: "packed ciphertexts", expected, found, user: Some(user) });
        }
        if !self.fingerprints.insert(fingerprints) {
            return Err(Error::NonceReuse { user });
        }

        for (positions, batch) in &batches {
            self.positions.fold(positions, batch, threads).map_err(Error::Key)?;
        }
        let all: Vec<u32> = (0..packed.len() as u32).collect();
        self.packed.fold(&all, &packed, threads).map_err(Error::Key)?;
        self.users.insert(user, (salt, blind));
        Ok(())
    }

    /// Adds the updates that another value has collected in the same round. A replica adds up checked uploads with it.
    ///
    /// # Errors
    /// [`Error::Stale`], [`Error::Future`] or [`Error::OtherTask`] for another round or task, [`Error::Conflict`] if
    /// both have an update of the same user, [`Error::Size`] for too many users, and [`Error::NonceReuse`] if they
    /// repeat noise. After these errors, nothing has changed.
    pub fn merge(&mut self, other: Self, threads: Threads) -> Result<(), Error> {
        other.round().check(self.round())?;
        if self.keys.task != other.keys.task || self.keys.encryption != other.keys.encryption {
            return Err(Error::OtherTask);
        }
        if other.users.keys().any(|user| self.users.contains_key(user)) {
            return Err(Error::Conflict { what: "update of a user" });
        }
        if self.users.len() + other.users.len() > self.keys.task.max_users() {
            return Err(Error::Size { what: "the number of users" });
        }
        let Some((&user, _)) = other.users.first_key_value() else { return Ok(()) };
        if !self.fingerprints.merge(other.fingerprints) {
            return Err(Error::NonceReuse { user });
        }
        self.positions.merge(other.positions, threads).map_err(Error::Key)?;
        self.packed.merge(other.packed, threads).map_err(Error::Key)?;
        self.users.extend(other.users);
        Ok(())
    }

    /// Returns twelve bytes per accepted ciphertext, by which repeated noise is recognised.
    pub fn fingerprints(&self) -> Vec<u8> {
        self.fingerprints.iter().flat_map(fingerprints::to_bytes).collect()
    }

    /// Returns whether two lists of [`Collecting::fingerprints`] have one in common, so that two updates share noise.
    pub fn share_noise(one: &[u8], other: &[u8]) -> bool {
        let read = |bytes: &[u8]| bytes.as_chunks().0.iter().map(fingerprints::from_bytes).collect();
        let mut all = Fingerprints::default();
        all.insert(read(one)) && !all.insert(read(other))
    }

    /// Returns what another replica needs to count the only user of these sums: the salt, then the aggregator's part of
    /// the masks, if sums are masked. The latter is secret.
    pub fn mask_parts(&self) -> Vec<u8> {
        self.users.values().flat_map(|(salt, blind)| mask_parts(salt, blind.as_ref())).collect()
    }

    /// Counts a user whose ciphertexts are part of an added partial sum, given the [`Collecting::fingerprints`] and
    /// the [`Collecting::mask_parts`] of its update.
    ///
    /// # Errors
    /// [`Error::Storage`] if the user was counted before or a part cannot be read, [`Error::NonceReuse`] if the noise
    /// of another user is repeated.
    pub fn add_user(&mut self, user: UserId, fingerprints: &[u8], masks: &[u8]) -> Result<(), Error> {
        let masks = read_mask_parts(&self.keys.task, masks)?;
        let (all, rest) = fingerprints.as_chunks();
        if !rest.is_empty() {
            return Err(Error::Storage { reason: "the fingerprints of an update cannot be read" });
        }
        if self.users.contains_key(&user) {
            return Err(Error::Storage { reason: "a user is counted twice" });
        }
        if !self.fingerprints.insert(all.iter().map(fingerprints::from_bytes).collect()) {
            return Err(Error::NonceReuse { user });
        }
        self.users.insert(user, masks);
        Ok(())
    }

    /// Checks by the number of ciphertexts that the sums contain as many updates as there are users. In `paper`, where
    /// users may send several shards, only a number that is too small is noticed.
    ///
    /// # Errors
    /// [`Error::Storage`] if the numbers differ.
    pub fn check_count(&self) -> Result<(), Error> {
        let (task, users) = (&self.keys.task, self.users.len());
        let terms = |sums: &RunningSums| -> Vec<usize> {
            (0..sums.positions() as u32).map(|position| sums.terms(position) as usize).collect()
        };
        let packed_matches = terms(&self.packed).into_iter().all(|count| count == users);
        let (sent, least) = (terms(&self.positions).into_iter().sum::<usize>(), users * task.capacity());
        let positions_match = match task.profile() {
            Profile::Full => sent == 0,
            Profile::Sparse => sent == least * task.config().shards as usize,
            Profile::Paper => sent >= least && sent.is_multiple_of(task.capacity()),
        };
        if packed_matches && positions_match {
            Ok(())
        } else {
            Err(Error::Storage {
                reason: "the number of updates in the sums differs from the number of users",
            })
        }
    }

    /// Counts how many positions were sent, and by how many users. Pads count, because the aggregator cannot tell them
    /// from other positions.
    pub fn overlap(&self) -> Overlap {
        let mut overlap = Overlap { occupied: 0, singles: 0 };
        for position in 0..self.positions.positions() as u32 {
            let terms = self.positions.terms(position);
            overlap.occupied += usize::from(terms > 0);
            overlap.singles += usize::from(terms == 1);
        }
        overlap
    }

    /// Finishes the round. Apart from the wire, this is the only way to a [`SealedSum`].
    ///
    /// # Errors
    /// [`Error::SetSmall`] below the task's floor, or the error of [`Collecting::check_count`]. The round is given
    /// back.
    pub fn finish(self, threads: Threads) -> Result<SealedSum, StillCollecting> {
        let floor = self.keys.task.floor(self.keys.ua.len());
        let users = self.users.len();
        let enough = if users < floor { Err(Error::SetSmall { users, floor }) } else { self.check_count() };
        if let Err(error) = enough {
            return Err(StillCollecting { collecting: Box::new(self), error });
        }
        let blinds = self.users.iter().filter_map(|(&user, (_, blind))| Some((user, blind.clone()?)));
        Ok(SealedSum {
            users: self.users.keys().copied().collect(),
            salts: self.users.values().map(|(salt, _)| *salt).collect(),
            blinds: Blinds(blinds.collect()),
            occupied: self.positions.occupied(),
            values: SealedValues::from_wire(self.positions.encode(threads)),
            packed: SealedValues::from_wire(self.packed.encode(threads)),
            ciphertexts: None,
            params: self.params,
        })
    }

    fn read(
        &self,
        values: &SealedValues,
        first: usize,
        user: UserId,
        threads: Threads,
    ) -> Result<WireCiphertexts, Error> {
        let batch = self
            .keys
            .encryption
            .read_wire(values.as_wire(), threads)
            .map_err(|error| Error::of_ciphertexts(error, first, Some(user)))?;
        match (0..batch.len()).find(|&i| batch.is_trivial(i)) {
            Some(i) => Err(Error::CiphertextTrivial { index: first + i, user }),
            None => Ok(batch),
        }
    }
}

fn mask_parts(salt: &Salt, blind: Option<&Blind>) -> Vec<u8> {
    let blind: &[u8] = blind.map_or(&[], |blind| blind.as_bytes());
    [&salt[..], blind].concat()
}

fn read_mask_parts(task: &TaskParams, bytes: &[u8]) -> Result<(Salt, Option<Blind>), Error> {
    let parts = match task.receipts() {
        Receipts::Masked => bytes.split_first_chunk().and_then(|(salt, blind)| {
            let blind: [u8; Blind::BYTES] = blind.try_into().ok()?;
            Some((*salt, Some(Blind::from_bytes(blind))))
        }),
        Receipts::None | Receipts::Checked => bytes.try_into().ok().map(|salt| (salt, None)),
    };
    parts.ok_or(Error::Storage { reason: "the masks of an update cannot be read" })
}

/// How much the updates of a round overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The number of positions that at least one user sent.
    pub occupied: usize,
    /// The number of positions with exactly one ciphertext. Unless it is a pad, the sum there is one user's value: a
    /// single.
    pub singles: usize,
}

impl Overlap {
    /// Returns the share of singles among the occupied positions, which measures what the sum reveals.
    pub fn share_of_singles(&self) -> f64 {
        if self.occupied == 0 { 0.0 } else { self.singles as f64 / self.occupied as f64 }
    }
}
