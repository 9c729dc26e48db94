//! The user's part: it seals one update per round (Algorithm 1, lines 3 and 4).

use dphe_paillier::{Plaintext, SlotLayout, Threads};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::decompose::{Pads, decompose};
use super::index::{DoublyPermuted, IndexMatrix};
use super::mask::CheckKey;
use super::permutation::{
    MaskSeed, UserAggregatorPermutation, UserAggregatorSeed, UserSharedPermutation, UserSharedSeed,
};
use super::round_params::RoundParams;
use super::sealed::{SealedShard, SealedUpdate, SealedValues};
use super::sealing::{SEALED_AT_ONCE, Sealing};
use super::shard::{Shard, occupied};
use crate::{Error, Profile, Receipts, Round, SparseVector, TaskParams, Update, UserId, UserKeys};

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

    /// Returns the keys, with the seeds of the earliest round that is not forgotten. They are secret.
    pub fn keys(&self) -> &UserKeys {
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
        let Prepared { shards, sent, numbers, clipped } = self.prepare(params, update, rng, threads)?;
        let mut sealing = Sealing::new(self, params, shards, &sent, rng)?;
        sealing.clipped = clipped;
        sealing.push_integers(&numbers, rng, threads)?;
        sealing.finish(rng, threads)
    }

    /// Seals a vector of which every weight is given, as [`User::seal_in`] seals its non-zeros. If the support is
    /// public, it needs little more memory than the result.
    ///
    /// # Errors
    /// As [`User::seal`].
    pub fn seal_dense<T: Copy + Into<f64>>(
        &self,
        params: &RoundParams,
        weights: &[T],
        dense: &[f64],
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<SealedUpdate, Error> {
        let task = &self.keys.task;
        check_length("weights", task.dimension(), weights.len())?;
        check_length("dense values", task.dense(), dense.len())?;
        if task.has_private_support() {
            let occupied = weights.iter().map(|&weight| weight.into()).enumerate().filter(|&(_, w)| w != 0.0);
            let (indices, values) = occupied.map(|(index, weight)| (index as u32, weight)).unzip();
            let weights = SparseVector::new(weights.len(), indices, values)?;
            return self.seal_in(params, &Update::new(weights).with_dense(dense.to_vec()), rng, threads);
        }
        check_support(params, weights)?;
        let mut sealing = self.begin_seal(params, rng)?;
        let size = SEALED_AT_ONCE * task.slots();
        let mut chunk = Zeroizing::new(Vec::with_capacity(size));
        let mut indices = params.support().indices();
        loop {
            chunk.clear();
            chunk.extend(indices.by_ref().take(size).map(|index| weights[index].into()));
            if chunk.is_empty() {
                break;
            }
            sealing.push(&chunk, rng, threads)?;
        }
        sealing.push(dense, rng, threads)?;
        sealing.finish(rng, threads)
    }

    /// Starts to seal an update whose numbers come one after the other: the weights of the public support, ascending,
    /// then the dense values. Seal one update per round.
    ///
    /// # Errors
    /// [`Error::Profile`] if the support of the task is private, [`Error::Stale`] for a round whose seeds are
    /// forgotten.
    pub fn begin_seal<'a>(
        &'a self,
        params: &'a RoundParams,
        rng: &mut impl CryptoRng,
    ) -> Result<Sealing<'a>, Error> {
        if self.keys.task.has_private_support() {
            return Err(Error::Profile { what: "updates in parts" });
        }
        Sealing::new(self, params, Vec::new(), &[], rng)
    }

    /// Returns the packed plaintexts of an update, masked but not encrypted.
    #[cfg(feature = "hazmat")]
    pub(crate) fn packed_plaintexts(
        &self,
        params: &RoundParams,
        update: &Update,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Vec<Plaintext>, Error> {
        let Prepared { sent, numbers, .. } = self.prepare(params, update, rng, threads)?;
        let mut sealing = Sealing::new(self, params, Vec::new(), &sent, rng)?;
        let mut packed = sealing.packed.plaintexts(&numbers)?;
        packed.extend(sealing.packed.check()?);
        Ok(packed)
    }

    /// Does everything of [`User::seal_in`] that comes before the packed plaintexts.
    fn prepare(
        &self,
        params: &RoundParams,
        update: &Update,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Prepared, Error> {
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
        Ok(Prepared { shards, sent, numbers, clipped: clipped_weights + clipped_dense })
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

    /// Refuses a round whose seeds are forgotten, or that is too far ahead for [`User::advance`].
    ///
    /// # Errors
    /// [`Error::Stale`] or [`Error::Future`].
    pub fn check_round(&self, round: Round) -> Result<(), Error> {
        self.keys.us.check_round(&self.keys.task, round)?;
        self.keys.ua.check_round(&self.keys.task, round)?;
        self.keys.mask.check_round(&self.keys.task, round)
    }

    /// Returns the first round whose seeds are not forgotten.
    pub fn first_round(&self) -> Round {
        self.keys.us.to_parts().0
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

    pub(super) fn encrypt(
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
    pub(super) fn check_noise(&self, sealed: &SealedUpdate) -> Result<(), Error> {
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

/// An update before its packed numbers are sealed.
struct Prepared {
    shards: Vec<SealedShard>,
    /// The plaintexts of the shards, each with its place in the check.
    sent: Vec<(usize, Plaintext)>,
    /// The numbers to pack.
    numbers: Zeroizing<Vec<i64>>,
    clipped: usize,
}

/// The place of the first packed plaintext in the check. Positions come before it.
pub(crate) fn first_packed_place(params: &RoundParams) -> usize {
    if params.task().has_private_support() { params.task().positions() as usize } else { 0 }
}

fn check_length(what: &'static str, expected: usize, found: usize) -> Result<(), Error> {
    if expected == found { Ok(()) } else { Err(Error::Dimension { what, expected, found }) }
}

/// Fails if a weight outside the public support is not zero.
fn check_support<T: Copy + Into<f64>>(params: &RoundParams, weights: &[T]) -> Result<(), Error> {
    let (support, round) = (params.support(), params.round());
    let mut first = 0;
    for index in support.indices().chain([weights.len()]) {
        // a NaN differs from zero, too
        if let Some(outside) = weights[first..index].iter().position(|&weight| weight.into() != 0.0) {
            return Err(Error::Support { index: first + outside, round });
        }
        first = index + 1;
    }
    Ok(())
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
