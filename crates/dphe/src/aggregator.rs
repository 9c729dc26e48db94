//! The aggregator's side: sealed updates in, one sealed sum out (Algorithm 1, line 5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dphe_paillier::{RunningSums, Threads, WireCiphertexts};

use crate::fingerprints::Fingerprints;
use crate::message::codec::{Reader, Writer};
use crate::permutation::UserAggregatorSeed;
use crate::sealed::{SealedSum, SealedUpdate, SealedValues, Shape, ciphertext_bytes};
use crate::{AggregatorKeys, Error, Profile, Round, TaskParams, UserId};

/// The aggregator of a task.
#[derive(Clone, Debug)]
pub struct Aggregator {
    keys: Arc<AggregatorKeys>,
}

impl Aggregator {
    /// The aggregator with these keys.
    ///
    /// # Errors
    /// [`Error::Key`] if the encryption key is not the task's.
    pub fn new(keys: AggregatorKeys) -> Result<Self, Error> {
        keys.task.check_key(&keys.encryption)?;
        Ok(Self { keys: Arc::new(keys) })
    }

    /// The task.
    pub fn task(&self) -> &TaskParams {
        &self.keys.task
    }

    /// How many users are enrolled.
    pub fn enrolled(&self) -> usize {
        self.keys.ua.len()
    }

    /// Begins a round.
    pub fn begin(&self, round: Round) -> Collecting {
        let task = &self.keys.task;
        let slots = if task.has_private_support() { task.positions() as usize } else { 0 };
        let shape = Shape::of(task, round);
        Collecting {
            keys: Arc::clone(&self.keys),
            round,
            users: BTreeSet::new(),
            slots: RunningSums::new(&self.keys.encryption, slots),
            dense: RunningSums::new(&self.keys.encryption, shape.dense_ciphertexts),
            noise: Fingerprints::default(),
        }
    }

    pub(crate) fn seeds(&self) -> &BTreeMap<UserId, UserAggregatorSeed> {
        &self.keys.ua
    }

    /// Takes up the seed of a user where it was left.
    pub(crate) fn resume(&mut self, user: UserId, seed: UserAggregatorSeed) {
        Arc::make_mut(&mut self.keys).ua.insert(user, seed);
    }

    /// Forgets the permutations of all rounds before `round`.
    pub fn advance(&mut self, round: Round) {
        // seeds that are there already stay shared with whoever has them, too
        let keys = &self.keys;
        if keys.task.profile() == Profile::Paper || keys.ua.values().all(|seed| seed.to_parts().0 >= round) {
            return;
        }
        let keys = Arc::make_mut(&mut self.keys);
        keys.ua.values_mut().for_each(|seed| seed.advance(&keys.task, round));
    }
}

/// A round that takes updates. What it holds grows with the positions, not with the users, but for eight bytes a
/// ciphertext.
#[derive(Debug)]
pub struct Collecting {
    keys: Arc<AggregatorKeys>,
    round: Round,
    users: BTreeSet<UserId>,
    slots: RunningSums,
    dense: RunningSums,
    noise: Fingerprints,
}

/// A round that cannot be closed yet, given back.
#[derive(Debug)]
pub struct StillCollecting {
    /// The round, as it was.
    pub collecting: Box<Collecting>,
    /// Why it cannot be closed.
    pub error: Error,
}

impl From<StillCollecting> for Error {
    fn from(still: StillCollecting) -> Self {
        still.error
    }
}

impl Collecting {
    /// The round.
    pub fn round(&self) -> Round {
        self.round
    }

    /// Who has sent an update.
    pub fn users(&self) -> impl ExactSizeIterator<Item = UserId> + '_ {
        self.users.iter().copied()
    }

    /// Folds an update into the sums.
    ///
    /// # Errors
    /// [`Error::OtherTask`], [`Error::Stale`] or [`Error::Future`] for another round, [`Error::UnknownUser`], [`Error::Conflict`] for a second update of a
    /// user, [`Error::Size`] beyond the task's most users, and for ciphertexts
    /// [`Error::CiphertextRange`], [`Error::CiphertextUnit`], [`Error::CiphertextTrivial`] or [`Error::NonceReuse`],
    /// naming the user. Nothing has changed then.
    pub fn accept(&mut self, update: SealedUpdate, threads: Threads) -> Result<(), Error> {
        let SealedUpdate { task, user, round, shards, dense, clipped: _ } = update;
        if task != self.keys.task {
            return Err(Error::OtherTask);
        }
        round.check(self.round)?;
        let keys = Arc::clone(&self.keys);
        let seed = keys.ua.get(&user).ok_or(Error::UnknownUser(user))?;
        if self.users.contains(&user) {
            return Err(Error::Conflict { what: "update of this user" });
        }
        if self.users.len() >= keys.task.max_users() {
            return Err(Error::Size { what: "the number of users" });
        }

        // everything is checked before anything is added
        let mut batches: Vec<(Vec<u32>, WireCiphertexts)> = Vec::with_capacity(shards.len());
        let mut noise = Vec::new();
        if !shards.is_empty() {
            let ua = seed.permutation(&keys.task, round, user)?;
            for shard in shards {
                let (slots, values) = shard.into_parts();
                let batch = self.read(&values, noise.len(), user, threads)?;
                noise.extend((0..batch.len()).map(|i| batch.fingerprint(i) as u64));
                // equation 8: back to the frame of the user-shared permutation, and no further
                batches.push((slots.reorder(&ua).rows().to_vec(), batch));
            }
        }
        let dense = self.read(&dense, noise.len(), user, threads)?;
        noise.extend((0..dense.len()).map(|i| dense.fingerprint(i) as u64));
        if dense.len() != self.dense.positions() {
            let (expected, found) = (self.dense.positions(), dense.len());
            return Err(Error::Count { what: "dense ciphertexts", expected, found, user: Some(user) });
        }
        if !self.noise.insert(noise) {
            return Err(Error::NonceReuse { user });
        }

        for (slots, batch) in &batches {
            self.slots.fold(slots, batch, threads).map_err(Error::Key)?;
        }
        let all: Vec<u32> = (0..dense.len() as u32).collect();
        self.dense.fold(&all, &dense, threads).map_err(Error::Key)?;
        self.users.insert(user);
        Ok(())
    }

    /// Takes in what another replica collected of the same round.
    ///
    /// # Errors
    /// [`Error::Conflict`] if both have an update of the same user, [`Error::NonceReuse`] if they repeat noise,
    /// [`Error::Stale`] or [`Error::Future`] for another round. Nothing has changed then.
    pub fn merge(&mut self, other: Self, threads: Threads) -> Result<(), Error> {
        other.round.check(self.round)?;
        if self.keys.task != other.keys.task || self.keys.encryption != other.keys.encryption {
            return Err(Error::OtherTask);
        }
        if !self.users.is_disjoint(&other.users) {
            return Err(Error::Conflict { what: "update of a user" });
        }
        if self.users.len() + other.users.len() > self.keys.task.max_users() {
            return Err(Error::Size { what: "the number of users" });
        }
        let Some(&user) = other.users.first() else { return Ok(()) };
        if !self.noise.merge(other.noise) {
            return Err(Error::NonceReuse { user });
        }
        self.slots.merge(other.slots, threads).map_err(Error::Key)?;
        self.dense.merge(other.dense, threads).map_err(Error::Key)?;
        self.users.extend(other.users);
        Ok(())
    }

    /// The sums as bytes, to be kept where other replicas can go on with them: neither who is in them, nor their noise.
    pub fn to_partial(&self, threads: Threads) -> Vec<u8> {
        let mut out = Writer::new();
        out.u64(self.round.get());
        for sums in [&self.slots, &self.dense] {
            let occupied = sums.occupied();
            out.u32(occupied.len() as u32);
            for position in occupied {
                out.u32(position);
                out.u32(sums.terms(position));
            }
            out.bytes(&sums.encode(threads));
        }
        out.into_bytes()
    }

    /// Eight bytes of each ciphertext that was taken.
    pub fn noise(&self) -> Vec<u8> {
        self.noise.iter().flat_map(u64::to_be_bytes).collect()
    }

    /// Takes up sums that [`Collecting::to_partial`] wrote. [`Collecting::add_user`] says whose they are.
    ///
    /// # Errors
    /// [`Error::Storage`] if they are none of this round; what was collected is of no use then.
    pub fn add_partial(&mut self, bytes: &[u8], threads: Threads) -> Result<(), Error> {
        let damaged = |_| Error::Storage { reason: "a partial sum cannot be read" };
        let other = |_| Error::Storage { reason: "a partial sum is none of this task" };
        let (key, width) = (&self.keys.encryption, ciphertext_bytes(&self.keys.task));
        let mut input = Reader::new(bytes);
        if input.u64().map_err(damaged)? != self.round.get() {
            return Err(Error::Storage { reason: "a partial sum is of another round" });
        }
        for sums in [&mut self.slots, &mut self.dense] {
            let (count, positions) = (input.u32().map_err(damaged)? as usize, sums.positions());
            if count > positions {
                return Err(Error::Storage { reason: "a partial sum has too many positions" });
            }
            let (mut occupied, mut terms) = (Vec::with_capacity(count), Vec::with_capacity(count));
            for _ in 0..count {
                occupied.push(input.u32().map_err(damaged)?);
                terms.push(input.u32().map_err(damaged)?);
            }
            let wire = input.take(count * width).map_err(damaged)?;
            let batch = key.read_wire(wire, threads).map_err(other)?;
            let part = RunningSums::restore(key, positions, &occupied, &terms, &batch, threads);
            sums.merge(part.map_err(other)?, threads).map_err(other)?;
        }
        if !input.rest().is_empty() {
            return Err(Error::Storage { reason: "a partial sum goes on where it should end" });
        }
        Ok(())
    }

    /// Takes up a user of sums that are or will be added, with what [`Collecting::noise`] said of its update.
    ///
    /// # Errors
    /// [`Error::Storage`] for one who is there already, or for what is no noise; [`Error::NonceReuse`] for noise of a user before.
    pub fn add_user(&mut self, user: UserId, noise: &[u8]) -> Result<(), Error> {
        let (noise, rest) = noise.as_chunks();
        if !rest.is_empty() {
            return Err(Error::Storage { reason: "the noise of an update cannot be read" });
        }
        if self.users.contains(&user) {
            return Err(Error::Storage { reason: "a user is counted twice" });
        }
        if !self.noise.insert(noise.iter().map(|bytes| u64::from_be_bytes(*bytes)).collect()) {
            return Err(Error::NonceReuse { user });
        }
        self.users.insert(user);
        Ok(())
    }

    /// Whether the sums are of as many updates as there are users, by the number of their ciphertexts. In `paper`, where some
    /// send more than others, it is noticed only if there are too few.
    ///
    /// # Errors
    /// [`Error::Storage`] if not.
    pub fn check_count(&self) -> Result<(), Error> {
        let (task, users) = (&self.keys.task, self.users.len());
        let terms = |sums: &RunningSums| -> Vec<usize> {
            (0..sums.positions() as u32).map(|position| sums.terms(position) as usize).collect()
        };
        let everywhere = terms(&self.dense).into_iter().all(|count| count == users);
        let (sent, least) = (terms(&self.slots).into_iter().sum::<usize>(), users * task.capacity());
        let hidden = match task.profile() {
            Profile::Full => sent == 0,
            Profile::Sparse => sent == least * task.config().shards as usize,
            Profile::Paper => sent >= least && sent.is_multiple_of(task.capacity()),
        };
        if everywhere && hidden {
            Ok(())
        } else {
            Err(Error::Storage { reason: "the sums are of another number of users" })
        }
    }

    /// How many ciphertexts each position got, pads included: all that is known here about singles.
    pub fn overlap(&self) -> Overlap {
        let mut overlap = Overlap { occupied: 0, singles: 0 };
        for position in 0..self.slots.positions() as u32 {
            let terms = self.slots.terms(position);
            overlap.occupied += usize::from(terms > 0);
            overlap.singles += usize::from(terms == 1);
        }
        overlap
    }

    /// Ends the round. This is the only way to a [`SealedSum`] that has not come over the wire.
    ///
    /// # Errors
    /// [`Error::SetSmall`] below the task's floor, and what [`Collecting::check_count`] says; the round is given back.
    pub fn close(self, threads: Threads) -> Result<SealedSum, StillCollecting> {
        let floor = self.keys.task.floor(self.keys.ua.len());
        let users = self.users.len();
        let enough = if users < floor { Err(Error::SetSmall { users, floor }) } else { self.check_count() };
        if let Err(error) = enough {
            return Err(StillCollecting { collecting: Box::new(self), error });
        }
        Ok(SealedSum {
            task: self.keys.task.clone(),
            round: self.round,
            users: self.users.iter().copied().collect(),
            occupied: self.slots.occupied(),
            values: SealedValues::from_wire(self.slots.encode(threads)),
            dense: SealedValues::from_wire(self.dense.encode(threads)),
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

/// How much the updates of a round overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Positions that somebody sent.
    pub occupied: usize,
    /// Positions with exactly one ciphertext: where it was no pad, the sum is one user's value.
    pub singles: usize,
}

impl Overlap {
    /// The share of singles among the occupied positions: a gauge of what the sum gives away.
    pub fn share_of_singles(&self) -> f64 {
        if self.occupied == 0 { 0.0 } else { self.singles as f64 / self.occupied as f64 }
    }
}
