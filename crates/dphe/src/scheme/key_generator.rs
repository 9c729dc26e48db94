//! The key generator's part: it creates the keys and opens sums (Algorithm 1, lines 1, 2 and 6).

use std::collections::BTreeMap;

use dphe_paillier::{DecryptionKey, EncryptionKey, Plaintext, SlotLayout, Threads, WireCiphertexts};
use rand_core::CryptoRng;

use super::mask::{CheckKey, MaskKey, MaskSum, Salt};
use super::permutation::{MaskSeed, UserAggregatorSeed, UserSharedSeed};
use super::round_params::RoundParams;
use super::sealed::{SealedSum, SealedValues};
use super::sum::{MaskedSum, OpenedSum, unpack};
use super::user::first_packed_place;
use crate::{AggregatorKeys, Error, Receipts, Roster, Round, TaskParams, UserId, UserKeys, WeightSum};

/// The key generator of a task. Only it can decrypt, and it opens one sum per round.
#[derive(Debug)]
pub struct KeyGenerator {
    task: TaskParams,
    decryption: DecryptionKey,
    layout: SlotLayout,
    us: UserSharedSeed,
    /// The mask seeds of all users.
    masks: BTreeMap<UserId, MaskSeed>,
    /// The seeds that users share with the aggregator, while kits are being made. They are not stored.
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
        let (masks, ua) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { task, decryption: key, layout, us, masks, ua, next: Round::FIRST })
    }

    /// Returns the task.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    /// Returns the users enrolled so far, ascending.
    pub fn users(&self) -> impl ExactSizeIterator<Item = UserId> + '_ {
        self.masks.keys().copied()
    }

    /// Returns whether the seed that an enrolled user shares with the aggregator is known. A key generator that was
    /// restored does not have it.
    pub fn has_kit(&self, user: UserId) -> bool {
        self.ua.contains_key(&user)
    }

    /// Returns the next round that may be opened.
    pub fn next_round(&self) -> Round {
        self.next
    }

    /// Returns the key that users encrypt with.
    pub fn encryption_key(&self) -> &EncryptionKey {
        self.decryption.encryption_key()
    }

    /// Returns the decryption key, for use in another task. Seeds and users of this task are dropped.
    pub fn into_key(self) -> DecryptionKey {
        self.decryption
    }

    /// Enrolls a user and returns its keys. A user who was enrolled before keeps its seeds. Enroll all users before the
    /// keys are stored: the seeds that users share with the aggregator are not stored with the others.
    pub fn enroll(&mut self, user: UserId, rng: &mut impl CryptoRng) -> UserKeys {
        let ua = self.ua.entry(user).or_insert_with(|| UserAggregatorSeed::generate(rng)).clone();
        let mask = self.masks.entry(user).or_insert_with(|| MaskSeed::generate(rng)).clone();
        UserKeys {
            task: self.task.clone(),
            user,
            encryption: self.encryption_key().clone(),
            us: self.us.clone(),
            ua,
            mask,
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

    /// Opens the sum of a round: decrypts it, removes the masks of its users, and undoes the user-shared permutation. A
    /// round is opened once. Then its seeds are forgotten. This is what a service executes, too.
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
    ) -> Result<OpenedSum, Error> {
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

    pub(crate) fn mask_seeds(&self) -> &BTreeMap<UserId, MaskSeed> {
        &self.masks
    }

    /// Restores the seeds and the next round that may be opened.
    pub(crate) fn resume(&mut self, us: UserSharedSeed, masks: BTreeMap<UserId, MaskSeed>, next: Round) {
        self.us = us;
        self.masks = masks;
        self.next = next;
    }

    /// Takes the seeds that come with a new roster, and forgets those of users who are not in it.
    pub(crate) fn renew(&mut self, roster: &Roster, us: UserSharedSeed, masks: BTreeMap<UserId, MaskSeed>) {
        self.us = us;
        self.ua.clear();
        self.masks.retain(|&user, _| roster.contains(user));
        self.masks.extend(masks);
    }

    /// Returns everything but the key.
    pub(crate) fn parts(&self) -> (&UserSharedSeed, &BTreeMap<UserId, MaskSeed>, Round) {
        (&self.us, &self.masks, self.next)
    }

    pub(crate) fn from_parts(
        task: TaskParams,
        decryption: DecryptionKey,
        us: UserSharedSeed,
        masks: BTreeMap<UserId, MaskSeed>,
        next: Round,
    ) -> Result<Self, Error> {
        task.check_key(decryption.encryption_key())?;
        let layout = task.layout(decryption.encryption_key())?;
        Ok(Self { task, decryption, layout, us, masks, ua: BTreeMap::new(), next })
    }

    #[cfg(feature = "hazmat")]
    pub(crate) fn set_seeds(
        &mut self,
        us: UserSharedSeed,
        ua: BTreeMap<UserId, UserAggregatorSeed>,
        masks: BTreeMap<UserId, MaskSeed>,
    ) {
        self.us = us;
        self.ua = ua;
        self.masks = masks;
    }

    /// Forgets the permutations of all rounds before `round`, which then cannot be opened any more.
    pub(crate) fn advance(&mut self, round: Round) {
        self.us.advance(&self.task, round);
        self.ua.values_mut().for_each(|seed| seed.advance(&self.task, round));
        self.masks.values_mut().for_each(|seed| seed.advance(&self.task, round));
        self.next = self.next.max(round);
    }

    /// Checks that a sum may be opened and is made of ciphertexts. They are read once and kept for
    /// [`KeyGenerator::open`].
    pub(crate) fn check(&self, sum: &mut SealedSum, threads: Threads) -> Result<(), Error> {
        if *sum.params.task() != self.task {
            return Err(Error::OtherTask);
        }
        let (users, floor) = (sum.users.len(), self.task.floor(self.masks.len()));
        if users < floor {
            return Err(Error::SetSmall { users, floor });
        }
        if let Some(&user) = sum.users.iter().find(|user| !self.masks.contains_key(user)) {
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

    /// Decrypts a checked sum.
    fn decrypt(
        &self,
        sum: &SealedSum,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<OpenedSum, Error> {
        let failed = |_| Error::RoundFailed;
        let Some((values, packed)) = &sum.ciphertexts else { return Err(Error::RoundFailed) };
        let packed = self.decryption.decrypt_wire(packed, rng, threads).map_err(failed)?;
        let masks = self.masks_of(sum, packed.len())?;
        match self.task.receipts() {
            Receipts::Masked => {
                let residues = masks.remove(&packed)?;
                Ok(OpenedSum::Masked(MaskedSum::new(sum.params.clone(), sum.users.len(), residues)))
            }
            Receipts::None => {
                let positions = self.decrypt_positions(values, rng, threads)?;
                self.decode(sum, &positions, &packed).map(OpenedSum::Clear)
            }
            Receipts::Checked => {
                let positions = self.decrypt_positions(values, rng, threads)?;
                let mut packed = masks.remove(&packed)?;
                let found = packed.pop().ok_or(Error::RoundFailed)?;
                if self.check_value(sum, &positions, &packed)? != found {
                    return Err(Error::RoundFailed);
                }
                self.decode(sum, &positions, &packed).map(OpenedSum::Clear)
            }
        }
    }

    /// Returns the masks of the listed users.
    fn masks_of(&self, sum: &SealedSum, count: usize) -> Result<MaskSum, Error> {
        if self.task.receipts() == Receipts::None {
            return Ok(MaskSum::new(self.encryption_key(), count));
        }
        self.sum_masks(&sum.params, sum.users.iter().copied().zip(&sum.salts), count)
    }

    /// Adds up the masks of users, given the salts of their updates.
    pub(crate) fn sum_masks<'a>(
        &self,
        params: &RoundParams,
        users: impl IntoIterator<Item = (UserId, &'a Salt)>,
        count: usize,
    ) -> Result<MaskSum, Error> {
        let mut masks = MaskSum::new(self.encryption_key(), count);
        for (user, salt) in users {
            let seed = self.masks.get(&user).ok_or(Error::SetUnknown(user))?;
            masks.add(&MaskKey::of_key_generator(seed, params, user, salt)?)?;
        }
        Ok(masks)
    }

    /// Returns the check that the updates of the listed users have, if they add up to these plaintexts.
    fn check_value(
        &self,
        sum: &SealedSum,
        positions: &Positions,
        packed: &[Plaintext],
    ) -> Result<Plaintext, Error> {
        let (key, first) = (self.encryption_key(), first_packed_place(&sum.params));
        let check = CheckKey::new(&self.us, &sum.params, key, first + packed.len())?;
        let small;
        let plaintexts = match positions {
            Positions::Packed(plaintexts) => plaintexts,
            Positions::Small(values) => {
                let new = |&value: &i64| Plaintext::new(key, value.into());
                small = values.iter().map(new).collect::<Result<Vec<_>, _>>().map_err(Error::Key)?;
                &small
            }
        };
        let places = sum.occupied.iter().map(|&place| place as usize).zip(plaintexts);
        check.value(sum.users.len(), places.chain((first..).zip(packed)))
    }

    fn decrypt_positions(
        &self,
        batch: &WireCiphertexts,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Positions, Error> {
        let failed = |_| Error::RoundFailed;
        if self.task.block() == 1 {
            let values = self.decryption.decrypt_small(batch, &self.layout, rng, threads).map_err(failed)?;
            return Ok(Positions::Small(values));
        }
        self.decryption.decrypt_wire(batch, rng, threads).map(Positions::Packed).map_err(failed)
    }

    /// Decodes the decrypted sums and undoes the user-shared permutation.
    fn decode(
        &self,
        sum: &SealedSum,
        positions: &Positions,
        packed: &[Plaintext],
    ) -> Result<WeightSum, Error> {
        let (task, block) = (&self.task, self.task.block());
        let failed = |_| Error::RoundFailed;
        let mut weights = vec![0i64; if task.has_private_support() { task.dimension() } else { 0 }];
        let unpacked;
        let positions = match positions {
            Positions::Small(values) => values,
            Positions::Packed(plaintexts) => {
                unpacked =
                    unpack(&self.layout, plaintexts, plaintexts.len() * block, block).map_err(failed)?;
                &unpacked
            }
        };
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
        let (count, slots) = (sum.params.packed_values(), self.layout.slots());
        let mut dense = unpack(&self.layout, packed, count, slots).map_err(failed)?;
        if !task.has_private_support() {
            let tail = dense.split_off(count - task.dense());
            weights = core::mem::replace(&mut dense, tail);
        }
        WeightSum::in_range(&sum.params, &self.layout, sum.users.len(), weights, dense).map_err(failed)
    }
}

/// The decrypted sums of positions: one number each, or one plaintext with a block of numbers each.
enum Positions {
    Small(Vec<i64>),
    Packed(Vec<Plaintext>),
}
