//! The user's part: it seals one update per round (Algorithm 1, lines 3 and 4).

use dphe_paillier::{Plaintext, SlotLayout, Threads};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::decompose::{Pads, decompose};
use super::index::{DoublyPermuted, IndexMatrix};
use super::mask::{Blind, CheckKey, MaskKey, MaskSum, Salt};
use super::permutation::{
    MaskSeed, UserAggregatorPermutation, UserAggregatorSeed, UserSharedPermutation, UserSharedSeed,
};
use super::round_params::RoundParams;
use super::sealed::{SealedShard, SealedUpdate, SealedValues};
use super::shard::{Shard, occupied};
use crate::{Error, Profile, Receipts, Round, TaskParams, Update, UserId, UserKeys};

/// A user of a task.
#[derive(Debug)]
pub struct User {
    keys: UserKeys,
    layout: SlotLayout,
}

impl User {
    /// Creates the user with these keys.
    ///
    /// # Errors
    /// [`Error::Key`] if the encryption key is not the task's.
    pub fn new(keys: UserKeys) -> Result<Self, Error> {
        keys.task.check_key(&keys.encryption)?;
        let layout = keys.task.layout(&keys.encryption)?;
        Ok(Self { keys, layout })
    }

    /// Returns the number of the user.
    pub fn id(&self) -> UserId {
        self.keys.user
    }

    /// Returns the task.
    pub fn task(&self) -> &TaskParams {
        &self.keys.task
    }

    pub(crate) fn keys(&self) -> &UserKeys {
        &self.keys
    }

    /// Seals an update. The result has the same size for all updates. Seal and send one update per round: two under the
    /// same permutation with different pads would reveal the support.
    ///
    /// # Errors
    /// [`Error::Dimension`] for a wrong length, [`Error::Value`] for a weight that cannot be encoded,
    /// [`Error::Capacity`] for too many occupied positions, [`Error::Support`] for a weight outside a public support,
    /// [`Error::Stale`] for a round whose permutations are forgotten.
    pub fn seal(
        &self,
        round: Round,
        update: &Update,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<SealedUpdate, Error> {
        self.seal_in(&RoundParams::new(&self.keys.task, round), update, rng, threads)
    }

    /// Seals an update for a round whose parameters are known, with its ticket if it has one.
    ///
    /// # Errors
    /// As [`User::seal`].
    pub fn seal_in(
        &self,
        params: &RoundParams,
        update: &Update,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<SealedUpdate, Error> {
        let Unsealed { shards, packed, salt, blind, clipped } =
            self.unsealed(params, update, rng, threads)?;
        let packed = self.encrypt(&packed, rng, threads)?;
        let (task, user, round) = (self.keys.task.clone(), self.keys.user, params.round());
        let sealed = SealedUpdate { task, user, round, shards, packed, salt, blind, clipped };
        self.check_noise(&sealed)?;
        Ok(sealed)
    }

    /// Does everything of [`User::seal_in`] but the encryption of the packed plaintexts.
    pub(crate) fn unsealed(
        &self,
        params: &RoundParams,
        update: &Update,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Unsealed, Error> {
        let (task, round) = (&self.keys.task, params.round());
        check_length("weights", task.dimension(), update.weights().dimension())?;
        check_length("dense values", task.dense(), update.dense().len())?;
        let fixed = task.fixed_point();
        let indices = update.weights().indices();
        let (integers, clipped_weights) = fixed.encode_all(update.weights().values()).map_err(|error| {
            // the error names the weight instead of its place among the non-zeros
            match error {
                Error::Value { index, reason } => Error::Value { index: indices[index] as usize, reason },
                other => other,
            }
        })?;
        let (mut numbers, clipped_dense) = fixed.encode_all(update.dense())?;

        let mut shards = Vec::new();
        // the plaintexts of the shards, each with its place in the check
        let mut sent = Vec::new();
        if task.has_private_support() {
            let us = self.keys.us.permutation(task, round)?;
            let ua = self.keys.ua.permutation(task, round, self.keys.user)?;
            let parts = occupied(indices, &integers, task.block()).into_shards(task, rng)?;
            let mut pads = Pads::around(&parts, task.positions());
            for part in &parts {
                if task.profile() == Profile::Paper {
                    pads = Pads::around(core::slice::from_ref(part), task.positions());
                }
                shards.push(self.seal_shard(part, &mut pads, (&us, &ua), &mut sent, rng, threads)?);
            }
        } else {
            let mut all = public_values(params, indices, &integers)?;
            all.extend_from_slice(&numbers);
            numbers = all;
        }
        let packed = self.layout.pack(&self.keys.encryption, &numbers).map_err(Error::Key)?;
        let mut salt = [0; 16];
        rng.fill_bytes(&mut salt);
        let blind = (task.receipts() == Receipts::Masked).then(|| Blind::generate(rng));
        let packed = self.mask(params, &sent, packed, &salt, blind.as_ref())?;
        Ok(Unsealed { shards, packed, salt, blind, clipped: clipped_weights + clipped_dense })
    }

    /// Appends the check to the packed plaintexts and masks all of them, if the task says so.
    fn mask(
        &self,
        params: &RoundParams,
        sent: &[(usize, Plaintext)],
        mut packed: Vec<Plaintext>,
        salt: &Salt,
        blind: Option<&Blind>,
    ) -> Result<Vec<Plaintext>, Error> {
        if params.task().receipts() == Receipts::None {
            return Ok(packed);
        }
        let (user, key) = (self.keys.user, &self.keys.encryption);
        let first = first_packed_place(params);
        let check = CheckKey::new(&self.keys.us, params, key, first + packed.len())?;
        let places = sent.iter().map(|(place, plaintext)| (*place, plaintext)).chain((first..).zip(&packed));
        let check = check.value(1, places)?;
        packed.push(check);
        let mut masks = MaskSum::new(key, packed.len());
        masks.add(&MaskKey::of_key_generator(&self.keys.mask, params, user, salt)?)?;
        if let Some(blind) = blind {
            masks.add(&blind.mask(params.ticket(), user))?;
        }
        masks.apply(&packed)
    }

    pub(crate) fn check_key(&self, params: &RoundParams) -> Result<CheckKey, Error> {
        let count = first_packed_place(params) + params.packed_plaintexts();
        CheckKey::new(&self.keys.us, params, &self.keys.encryption, count)
    }

    pub(crate) fn layout(&self) -> &SlotLayout {
        &self.layout
    }

    /// Restores the seeds.
    pub(crate) fn resume(&mut self, us: UserSharedSeed, ua: UserAggregatorSeed, mask: MaskSeed) {
        self.keys.us = us;
        self.keys.ua = ua;
        self.keys.mask = mask;
    }

    /// Takes the user-shared seed that comes with a new roster.
    pub(crate) fn renew(&mut self, us: UserSharedSeed) {
        self.keys.us = us;
    }

    /// Forgets the permutations and masks of all rounds before `round`.
    pub fn advance(&mut self, round: Round) {
        self.keys.us.advance(&self.keys.task, round);
        self.keys.ua.advance(&self.keys.task, round);
        self.keys.mask.advance(&self.keys.task, round);
    }

    fn seal_shard(
        &self,
        shard: &Shard,
        pads: &mut Pads,
        (us, ua): (&UserSharedPermutation, &UserAggregatorPermutation),
        sent: &mut Vec<(usize, Plaintext)>,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<SealedShard, Error> {
        let task = &self.keys.task;
        let block = task.block();
        let decomposition = decompose(shard, task.capacity(), block, pads, rng);
        let once = decomposition.indices.permute(us);
        let places: Vec<usize> = once.rows().iter().map(|&row| row as usize).collect();
        let indices = once.permute(ua);
        // sorted by permuted index, the order of the columns reveals nothing either
        let mut order = Zeroizing::new((0..indices.columns()).collect::<Vec<_>>());
        order.sort_unstable_by_key(|&column| indices.rows()[column]);
        let plaintexts = order
            .iter()
            .map(|&column| {
                let values = &decomposition.values[column * block..][..block];
                self.layout.pack(&self.keys.encryption, values).map_err(Error::Key)
            })
            .collect::<Result<Vec<_>, _>>()?
            .concat();
        if task.receipts() != Receipts::None {
            sent.extend(order.iter().map(|&column| places[column]).zip(plaintexts.iter().cloned()));
        }
        let indices: IndexMatrix<DoublyPermuted> =
            IndexMatrix::from_rows(order.iter().map(|&column| indices.rows()[column]).collect());
        Ok(SealedShard::new(indices, self.encrypt(&plaintexts, rng, threads)?))
    }

    fn encrypt(
        &self,
        plaintexts: &[Plaintext],
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<SealedValues, Error> {
        let key = &self.keys.encryption;
        let ciphertexts = key.encrypt_all(plaintexts, rng, threads).map_err(Error::Key)?;
        key.encode(&ciphertexts, threads).map(SealedValues::from_wire).map_err(Error::Key)
    }

    /// Checks that no noise is repeated, because repeated noise reveals differences of weights.
    fn check_noise(&self, sealed: &SealedUpdate) -> Result<(), Error> {
        let user = self.keys.user;
        let key = &self.keys.encryption;
        let half = key.modulus_bytes();
        let batches = sealed.shards.iter().map(SealedShard::values).chain([&sealed.packed]);
        let mut noise: Vec<&[u8]> = batches
            // c mod n is the second half of a ciphertext
            .flat_map(|values| values.as_wire().chunks_exact(2 * half).map(|c| &c[half..]))
            .collect();
        let trivial = |c0: &&[u8]| {
            c0.split_last().is_some_and(|(&last, rest)| last == 1 && rest.iter().all(|&b| b == 0))
        };
        if let Some(index) = noise.iter().position(trivial) {
            return Err(Error::CiphertextTrivial { index, user });
        }
        noise.sort_unstable();
        if noise.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::NonceReuse { user });
        }
        Ok(())
    }
}

/// An update whose packed plaintexts are masked but not encrypted yet.
pub(crate) struct Unsealed {
    shards: Vec<SealedShard>,
    pub(crate) packed: Vec<Plaintext>,
    salt: Salt,
    blind: Option<Blind>,
    clipped: usize,
}

/// The place of the first packed plaintext in the check. Positions come before it.
pub(crate) fn first_packed_place(params: &RoundParams) -> usize {
    if params.task().has_private_support() { params.task().positions() as usize } else { 0 }
}

fn check_length(what: &'static str, expected: usize, found: usize) -> Result<(), Error> {
    if expected == found { Ok(()) } else { Err(Error::Dimension { what, expected, found }) }
}

/// Returns the integers of the public support, in its order.
fn public_values(
    params: &RoundParams,
    indices: &[u32],
    integers: &[i64],
) -> Result<Zeroizing<Vec<i64>>, Error> {
    let (support, round) = (params.support(), params.round());
    let mut all = Zeroizing::new(Vec::with_capacity(params.packed_values()));
    let mut given = indices.iter().zip(integers).filter(|&(_, &e)| e != 0).peekable();
    for index in support.indices() {
        let value = given.next_if(|&(&i, _)| i as usize == index).map_or(0, |(_, &e)| e);
        all.push(value);
        // a given index that was passed lies outside the support
        if let Some(&(&i, _)) = given.peek()
            && (i as usize) <= index
        {
            return Err(Error::Support { index: i as usize, round });
        }
    }
    match given.next() {
        Some((&i, _)) => Err(Error::Support { index: i as usize, round }),
        None => Ok(all),
    }
}
