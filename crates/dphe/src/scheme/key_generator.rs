//! The key generator's part: it creates the keys and opens sums (Algorithm 1, lines 1, 2 and 6).

use std::collections::BTreeMap;

use dphe_paillier::{DecryptionKey, EncryptionKey, SlotLayout, Threads, WireCiphertexts};
use rand_core::CryptoRng;

use super::permutation::{UserAggregatorSeed, UserSharedSeed};
use super::sealed::{SealedSum, SealedValues};
use crate::{AggregatorKeys, Error, Round, TaskParams, UserId, UserKeys, WeightSum};

/// The key generator of a task. Only it can decrypt, and it opens one sum per round.
#[derive(Debug)]
pub struct KeyGenerator {
    task: TaskParams,
    decryption: DecryptionKey,
    layout: SlotLayout,
    us: UserSharedSeed,
    ua: BTreeMap<UserId, UserAggregatorSeed>,
    /// The next round that may be opened.
    next: Round,
}

impl KeyGenerator {
    /// Creates a key generator with a new key.
    ///
    /// # Errors
    /// [`Error::Key`] if no key can be generated, which happens only if the random generator is broken.
    pub fn new(task: TaskParams, rng: &mut impl CryptoRng, threads: Threads) -> Result<Self, Error> {
        let key = DecryptionKey::generate(task.key_bits(), task.config().noise, rng, threads)
            .map_err(Error::Key)?;
        Self::with_key(task, key, rng)
    }

    /// Creates a key generator with an existing key.
    ///
    /// # Errors
    /// [`Error::Key`] if the key is not of the task's length and mode.
    pub fn with_key(task: TaskParams, key: DecryptionKey, rng: &mut impl CryptoRng) -> Result<Self, Error> {
        task.check_key(key.encryption_key())?;
        let layout = task.layout(key.encryption_key())?;
        let us = UserSharedSeed::generate(rng);
        Ok(Self { task, decryption: key, layout, us, ua: BTreeMap::new(), next: Round::FIRST })
    }

    /// Returns the task.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    /// Returns the key that users encrypt with.
    pub fn encryption_key(&self) -> &EncryptionKey {
        self.decryption.encryption_key()
    }

    /// Returns the decryption key, for use in another task. Seeds and users of this task are dropped.
    pub fn into_key(self) -> DecryptionKey {
        self.decryption
    }

    /// Enrolls a user and returns its keys. A user who was enrolled before keeps its seed.
    pub fn enroll(&mut self, user: UserId, rng: &mut impl CryptoRng) -> UserKeys {
        let ua = self.ua.entry(user).or_insert_with(|| UserAggregatorSeed::generate(rng)).clone();
        UserKeys {
            task: self.task.clone(),
            user,
            encryption: self.encryption_key().clone(),
            us: self.us.clone(),
            ua,
        }
    }

    /// Returns the aggregator's keys, for the users enrolled so far.
    pub fn aggregator_keys(&self) -> AggregatorKeys {
        AggregatorKeys {
            task: self.task.clone(),
            encryption: self.encryption_key().clone(),
            ua: self.ua.clone(),
        }
    }

    /// Opens the sum of a round: decrypts it and undoes the user-shared permutation. A round is opened once. Then its
    /// permutation is forgotten. This is what a service executes, too.
    ///
    /// # Errors
    /// [`Error::OtherTask`], [`Error::SetSmall`], [`Error::SetUnknown`] or [`Error::Committed`] for a sum that must
    /// not be opened, and [`Error::CiphertextRange`] or [`Error::CiphertextUnit`] for invalid ciphertexts. Every
    /// error that depends on the plaintexts is [`Error::RoundFailed`].
    pub fn open(
        &mut self,
        mut sum: SealedSum,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<WeightSum, Error> {
        self.check(&mut sum, threads)?;
        let opened = self.decrypt(&sum, rng, threads);
        // a sum that failed counts as opened too, because a second try would be an oracle
        if matches!(opened, Ok(_) | Err(Error::RoundFailed)) {
            self.advance(sum.round().next());
        }
        opened
    }

    pub(crate) fn user_shared_seed(&self) -> &UserSharedSeed {
        &self.us
    }

    /// Restores the seed and the next round that may be opened.
    pub(crate) fn resume(&mut self, us: UserSharedSeed, next: Round) {
        self.us = us;
        self.next = next;
    }

    /// Returns everything but the key.
    pub(crate) fn parts(&self) -> (&UserSharedSeed, &BTreeMap<UserId, UserAggregatorSeed>, Round) {
        (&self.us, &self.ua, self.next)
    }

    pub(crate) fn from_parts(
        task: TaskParams,
        decryption: DecryptionKey,
        us: UserSharedSeed,
        ua: BTreeMap<UserId, UserAggregatorSeed>,
        next: Round,
    ) -> Result<Self, Error> {
        task.check_key(decryption.encryption_key())?;
        let layout = task.layout(decryption.encryption_key())?;
        Ok(Self { task, decryption, layout, us, ua, next })
    }

    #[cfg(feature = "hazmat")]
    pub(crate) fn set_seeds(&mut self, us: UserSharedSeed, ua: BTreeMap<UserId, UserAggregatorSeed>) {
        self.us = us;
        self.ua = ua;
    }

    /// Forgets the permutations of all rounds before `round`, which then cannot be opened any more.
    pub(crate) fn advance(&mut self, round: Round) {
        self.us.advance(&self.task, round);
        self.ua.values_mut().for_each(|seed| seed.advance(&self.task, round));
        self.next = self.next.max(round);
    }

    /// Checks that a sum may be opened and is made of ciphertexts. They are read once and kept for
    /// [`KeyGenerator::open`].
    pub(crate) fn check(&self, sum: &mut SealedSum, threads: Threads) -> Result<(), Error> {
        if *sum.params.task() != self.task {
            return Err(Error::OtherTask);
        }
        let (users, floor) = (sum.users.len(), self.task.floor(self.ua.len()));
        if users < floor {
            return Err(Error::SetSmall { users, floor });
        }
        if let Some(&user) = sum.users.iter().find(|user| !self.ua.contains_key(user)) {
            return Err(Error::SetUnknown(user));
        }
        if sum.round() < self.next {
            return Err(Error::Committed);
        }
        self.us.check_ahead(&self.task, sum.round())?;
        if sum.ciphertexts.is_none() {
            let read = |values: &SealedValues, first| {
                let batch = self.encryption_key().read_wire(values.as_wire(), threads);
                batch.map_err(|error| Error::of_ciphertexts(error, first, None))
            };
            sum.ciphertexts = Some((read(&sum.values, 0)?, read(&sum.packed, sum.occupied.len())?));
        }
        Ok(())
    }

    /// Decrypts a checked sum and undoes the user-shared permutation.
    fn decrypt(
        &self,
        sum: &SealedSum,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<WeightSum, Error> {
        let (task, block) = (&self.task, self.task.block());
        let count = sum.params.packed_values();
        let mut weights = vec![0i64; if task.has_private_support() { task.dimension() } else { 0 }];
        let Some((values, packed)) = &sum.ciphertexts else { return Err(Error::RoundFailed) };
        let positions = self.open_values(values, sum.occupied.len() * block, block, rng, threads)?;
        if task.has_private_support() {
            let us = self.us.permutation(task, sum.round())?;
            let mut column_of = vec![u32::MAX; task.positions() as usize];
            for (i, &index) in (0..).zip(&sum.occupied) {
                column_of[index as usize] = i;
            }
            for (weights, &index) in weights.chunks_mut(block).zip(us.table()) {
                let first = column_of[index as usize] as usize * block;
                if let Some(values) = positions.get(first..first + block) {
                    weights.iter_mut().zip(values).for_each(|(w, &v)| *w = v);
                    // the last position may be short, and its padding must be zero
                    if values[weights.len()..].iter().any(|&v| v != 0) {
                        return Err(Error::RoundFailed);
                    }
                }
            }
        }
        let slots = self.layout.slots();
        let mut dense = self.open_values(packed, count, slots, rng, threads)?;
        if !task.has_private_support() {
            let tail = dense.split_off(count - task.dense());
            weights = core::mem::replace(&mut dense, tail);
        }
        // tighter than the slots: the bound for the participants instead of the largest possible number of users
        let most = self.layout.bound().saturating_sub(1).saturating_mul(sum.users.len() as i64);
        if weights.iter().chain(&dense).any(|sum| sum.unsigned_abs() > most.unsigned_abs()) {
            return Err(Error::RoundFailed);
        }
        Ok(WeightSum::new(&sum.params, sum.users.len(), weights, dense))
    }

    /// Decrypts the first `count` numbers of ciphertexts that hold `width` numbers each.
    fn open_values(
        &self,
        batch: &WireCiphertexts,
        count: usize,
        width: usize,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Vec<i64>, Error> {
        let failed = |_| Error::RoundFailed;
        if width == 1 {
            return self.decryption.decrypt_small(batch, &self.layout, rng, threads).map_err(failed);
        }
        let plaintexts = self.decryption.decrypt_wire(batch, rng, threads).map_err(failed)?;
        if plaintexts.len() != count.div_ceil(width) {
            return Err(Error::RoundFailed);
        }
        let slots = self.layout.slots();
        let mut all = Vec::with_capacity(plaintexts.len() * width);
        for plaintext in plaintexts.chunks(1) {
            let unpacked = self.layout.unpack(plaintext, slots).map_err(failed)?;
            let (used, rest) = unpacked.split_at(width);
            // unused slots must be zero
            if rest.iter().any(|&value| value != 0) {
                return Err(Error::RoundFailed);
            }
            all.extend_from_slice(used);
        }
        if all.split_off(count).iter().any(|&value| value != 0) {
            return Err(Error::RoundFailed);
        }
        Ok(all)
    }
}
