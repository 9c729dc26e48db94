//! The key generator's side: keys out, sums opened (Algorithm 1, lines 1, 2 and 6).

use std::collections::BTreeMap;

use dphe_paillier::{DecryptionKey, EncryptionKey, SlotLayout, Threads};
use rand_core::CryptoRng;

use crate::permutation::{UserAggregatorSeed, UserSharedSeed};
use crate::sealed::{SealedSum, SealedValues, Shape};
use crate::{AggregatorKeys, Error, Round, TaskParams, UserId, UserKeys, WeightSum};

/// The key generator of a task: it alone can decrypt, and opens one sum a round.
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
    /// A key generator with a fresh key.
    ///
    /// # Errors
    /// None that a working random generator can bring about.
    pub fn new(task: TaskParams, rng: &mut impl CryptoRng, threads: Threads) -> Result<Self, Error> {
        let key = DecryptionKey::generate(task.key_bits(), task.config().noise, rng, threads)
            .map_err(Error::Key)?;
        Self::with_key(task, key, rng)
    }

    /// A key generator with a key made before.
    ///
    /// # Errors
    /// [`Error::Key`] if the key is not of the task's length and mode.
    pub fn with_key(task: TaskParams, key: DecryptionKey, rng: &mut impl CryptoRng) -> Result<Self, Error> {
        task.check_key(key.encryption_key())?;
        let layout = task.layout(key.encryption_key())?;
        let us = UserSharedSeed::generate(rng);
        Ok(Self { task, decryption: key, layout, us, ua: BTreeMap::new(), next: Round::FIRST })
    }

    /// The task.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    /// The key that users encrypt with.
    pub fn encryption_key(&self) -> &EncryptionKey {
        self.decryption.encryption_key()
    }

    /// The key, to be used in another task; seeds and users of this one are forgotten.
    pub fn into_key(self) -> DecryptionKey {
        self.decryption
    }

    /// Takes a user into the task and makes its keys. A user who is in already keeps the seed it has.
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

    /// The aggregator's keys: those of the users enrolled so far.
    pub fn aggregator_keys(&self) -> AggregatorKeys {
        AggregatorKeys {
            task: self.task.clone(),
            encryption: self.encryption_key().clone(),
            ua: self.ua.clone(),
        }
    }

    /// Opens the sum of a round: decrypts it and moves every position back to its place. Each round is opened once, and then its
    /// permutation is forgotten.
    ///
    /// # Errors
    /// [`Error::OtherTask`], [`Error::SetSmall`], [`Error::SetUnknown`] or [`Error::Committed`] for a sum that must not be opened;
    /// [`Error::CiphertextRange`] or [`Error::CiphertextUnit`] for what is no sum of ciphertexts; [`Error::RoundFailed`], without
    /// detail, for anything that depends on what was inside.
    pub fn open(
        &mut self,
        sum: SealedSum,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<WeightSum, Error> {
        if sum.task != self.task {
            return Err(Error::OtherTask);
        }
        let (users, floor) = (sum.users.len(), self.task.floor(self.ua.len()));
        if users < floor {
            return Err(Error::SetSmall { users, floor });
        }
        if let Some(&user) = sum.users.iter().find(|user| !self.ua.contains_key(user)) {
            return Err(Error::SetUnknown(user));
        }
        if sum.round < self.next {
            return Err(Error::Committed);
        }
        self.us.check_ahead(&self.task, sum.round)?;
        self.check(&sum, threads)?;
        let opened = self.decrypt(&sum, rng, threads);
        // one that failed was opened too: a second try would be an oracle
        if matches!(opened, Ok(_) | Err(Error::RoundFailed)) {
            self.advance(sum.round.next());
        }
        opened
    }

    /// Opens the sum of the round at hand, which is checked already, and may do so again after a restart.
    pub(crate) fn open_again(
        &self,
        sum: SealedSum,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<WeightSum, Error> {
        self.decrypt(&sum, rng, threads)
    }

    pub(crate) fn user_shared_seed(&self) -> &UserSharedSeed {
        &self.us
    }

    /// Takes up where it was left: the seed, and the next round to be opened.
    pub(crate) fn resume(&mut self, us: UserSharedSeed, next: Round) {
        self.us = us;
        self.next = next;
    }

    /// What it is made of besides the key.
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

    /// Forgets the permutations of all rounds before `round`, and opens none of them again.
    pub(crate) fn advance(&mut self, round: Round) {
        self.us.advance(&self.task, round);
        self.ua.values_mut().for_each(|seed| seed.advance(&self.task, round));
        self.next = self.next.max(round);
    }

    /// Checks that what is to be decrypted is made of ciphertexts.
    pub(crate) fn check(&self, sum: &SealedSum, threads: Threads) -> Result<(), Error> {
        let key = self.encryption_key();
        for (values, first) in [(&sum.values, 0), (&sum.dense, sum.occupied.len())] {
            key.read_wire(values.as_wire(), threads)
                .map_err(|error| Error::of_ciphertexts(error, first, None))?;
        }
        Ok(())
    }

    /// Decrypts and reorders.
    fn decrypt(
        &self,
        sum: &SealedSum,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<WeightSum, Error> {
        let (task, block) = (&self.task, self.task.block());
        let count = Shape::of(task, sum.round).dense_values;
        let mut weights = vec![0i64; if task.has_private_support() { task.dimension() } else { 0 }];
        let positions = self.open_values(&sum.values, 0, sum.occupied.len() * block, block, rng, threads)?;
        if task.has_private_support() {
            let us = self.us.permutation(task, sum.round)?;
            let mut of_slot = vec![u32::MAX; task.positions() as usize];
            for (i, &slot) in (0..).zip(&sum.occupied) {
                of_slot[slot as usize] = i;
            }
            for (weights, &slot) in weights.chunks_mut(block).zip(us.table()) {
                let first = of_slot[slot as usize] as usize * block;
                if let Some(values) = positions.get(first..first + block) {
                    weights.iter_mut().zip(values).for_each(|(w, &v)| *w = v);
                    // what fills the last position up is zero
                    if values[weights.len()..].iter().any(|&v| v != 0) {
                        return Err(Error::RoundFailed);
                    }
                }
            }
        }
        let slots = self.layout.slots();
        let mut dense = self.open_values(&sum.dense, sum.occupied.len(), count, slots, rng, threads)?;
        if !task.has_private_support() {
            let tail = dense.split_off(count - task.dense());
            weights = core::mem::replace(&mut dense, tail);
        }
        // tighter than the slots: of the users who took part, not of those who may
        let most = self.layout.bound().saturating_sub(1).saturating_mul(sum.users.len() as i64);
        if weights.iter().chain(&dense).any(|sum| sum.unsigned_abs() > most.unsigned_abs()) {
            return Err(Error::RoundFailed);
        }
        Ok(WeightSum::new(task, sum.round, sum.users.len(), weights, dense))
    }

    /// The first `count` numbers in ciphertexts that hold `width` each.
    fn open_values(
        &self,
        values: &SealedValues,
        first: usize,
        count: usize,
        width: usize,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Vec<i64>, Error> {
        let batch = self
            .encryption_key()
            .read_wire(values.as_wire(), threads)
            .map_err(|error| Error::of_ciphertexts(error, first, None))?;
        let failed = |_| Error::RoundFailed;
        if width == 1 {
            return self.decryption.decrypt_small(&batch, &self.layout, rng, threads).map_err(failed);
        }
        let plaintexts = self.decryption.decrypt_wire(&batch, rng, threads).map_err(failed)?;
        if plaintexts.len() != count.div_ceil(width) {
            return Err(Error::RoundFailed);
        }
        let slots = self.layout.slots();
        let mut all = Vec::with_capacity(plaintexts.len() * width);
        for plaintext in plaintexts.chunks(1) {
            let unpacked = self.layout.unpack(plaintext, slots).map_err(failed)?;
            let (used, rest) = unpacked.split_at(width);
            // slots that nobody fills hold nothing
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
