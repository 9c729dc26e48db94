//! The user's side: one update, sealed.

use dphe_paillier::{Plaintext, SlotLayout, Threads};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::decompose::{Pads, decompose};
use crate::index::{DoublyPermuted, IndexMatrix};
use crate::permutation::{
    UserAggregatorPermutation, UserAggregatorSeed, UserSharedPermutation, UserSharedSeed,
};
use crate::sealed::{SealedShard, SealedUpdate, SealedValues};
use crate::shard::{Shard, occupied};
use crate::support::PublicSupport;
use crate::{Error, LocalUpdate, Profile, Round, TaskParams, UserId, UserKeys};

/// A user of a task.
#[derive(Debug)]
pub struct User {
    keys: UserKeys,
    layout: SlotLayout,
}

impl User {
    /// The user with these keys.
    ///
    /// # Errors
    /// [`Error::Key`] if the encryption key is not the task's.
    pub fn new(keys: UserKeys) -> Result<Self, Error> {
        keys.task.check_key(&keys.encryption)?;
        let layout = keys.task.layout(&keys.encryption)?;
        Ok(Self { keys, layout })
    }

    /// Who it is.
    pub fn id(&self) -> UserId {
        self.keys.user
    }

    /// The task.
    pub fn task(&self) -> &TaskParams {
        &self.keys.task
    }

    pub(crate) fn keys(&self) -> &UserKeys {
        &self.keys
    }

    /// Seals an update (Algorithm 1, lines 3 and 4): what comes out has the same size whatever goes in.
    /// Seal and send one update a round: two under the same permutation, with different pads, would show the support.
    ///
    /// # Errors
    /// [`Error::Dimension`] for a wrong length, [`Error::Value`] for a weight that cannot be encoded,
    /// [`Error::Capacity`] for too many occupied positions, [`Error::Support`] for a weight outside a public support,
    /// [`Error::Stale`] for a round whose permutations are forgotten.
    pub fn seal(
        &self,
        round: Round,
        update: &LocalUpdate,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<SealedUpdate, Error> {
        let task = &self.keys.task;
        check_length("weights", task.dimension(), update.weights().dimension())?;
        check_length("dense values", task.dense(), update.dense().len())?;
        let fixed = task.fixed_point();
        let indices = update.weights().indices();
        let (integers, clipped_weights) = fixed.encode_all(update.weights().values()).map_err(|error| {
            // name the weight, not its place among the non-zeros
            match error {
                Error::Value { index, reason } => Error::Value { index: indices[index] as usize, reason },
                other => other,
            }
        })?;
        let (mut dense, clipped_dense) = fixed.encode_all(update.dense())?;

        let mut shards = Vec::new();
        if task.has_private_support() {
            let us = self.keys.us.permutation(task, round)?;
            let ua = self.keys.ua.permutation(task, round, self.keys.user)?;
            let parts = occupied(indices, &integers, task.block()).into_shards(task, rng)?;
            let mut pads = Pads::around(&parts, task.positions());
            for part in &parts {
                if task.profile() == Profile::Paper {
                    pads = Pads::around(core::slice::from_ref(part), task.positions());
                }
                shards.push(self.seal_shard(part, &mut pads, &us, &ua, rng, threads)?);
            }
        } else {
            let mut all = public_values(task, round, indices, &integers)?;
            all.extend_from_slice(&dense);
            dense = all;
        }
        let dense = self.layout.pack(&self.keys.encryption, &dense).map_err(Error::Key)?;
        let dense = self.encrypt(&dense, rng, threads)?;
        let clipped = clipped_weights + clipped_dense;
        let sealed = SealedUpdate { task: task.clone(), user: self.keys.user, round, shards, dense, clipped };
        self.check_noise(&sealed)?;
        Ok(sealed)
    }

    /// Takes up the seeds where they were left.
    pub(crate) fn resume(&mut self, us: UserSharedSeed, ua: UserAggregatorSeed) {
        self.keys.us = us;
        self.keys.ua = ua;
    }

    /// Refuses a round so far ahead that forgetting all before it would take for ever.
    pub(crate) fn check_ahead(&self, round: Round) -> Result<(), Error> {
        self.keys.us.check_ahead(&self.keys.task, round)
    }

    /// Forgets the permutations of all rounds before `round`.
    pub fn advance(&mut self, round: Round) {
        self.keys.us.advance(&self.keys.task, round);
        self.keys.ua.advance(&self.keys.task, round);
    }

    fn seal_shard(
        &self,
        shard: &Shard,
        pads: &mut Pads,
        us: &UserSharedPermutation,
        ua: &UserAggregatorPermutation,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<SealedShard, Error> {
        let task = &self.keys.task;
        let block = task.block();
        let decomposition = decompose(shard, task.capacity(), block, pads, rng);
        let slots = decomposition.indices.permute(us).permute(ua);
        // sorted by slot, the order of the columns says nothing either
        let mut order = Zeroizing::new((0..slots.columns()).collect::<Vec<_>>());
        order.sort_unstable_by_key(|&column| slots.rows()[column]);
        let plaintexts = order
            .iter()
            .map(|&column| {
                let values = &decomposition.values[column * block..][..block];
                self.layout.pack(&self.keys.encryption, values).map_err(Error::Key)
            })
            .collect::<Result<Vec<_>, _>>()?
            .concat();
        let slots: IndexMatrix<DoublyPermuted> =
            IndexMatrix::from_rows(order.iter().map(|&column| slots.rows()[column]).collect());
        Ok(SealedShard::new(slots, self.encrypt(&plaintexts, rng, threads)?))
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

    /// A generator that repeats itself would give differences of weights away: nothing is sent then.
    fn check_noise(&self, sealed: &SealedUpdate) -> Result<(), Error> {
        let user = self.keys.user;
        let key = &self.keys.encryption;
        let half = key.modulus_bytes();
        let batches = sealed.shards.iter().map(SealedShard::values).chain([&sealed.dense]);
        let mut noise: Vec<&[u8]> = batches
            // c0 = c mod n is the second half
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

fn check_length(what: &'static str, expected: usize, found: usize) -> Result<(), Error> {
    if expected == found { Ok(()) } else { Err(Error::Dimension { what, expected, found }) }
}

/// The integers of a round's public support, in order.
fn public_values(
    task: &TaskParams,
    round: Round,
    indices: &[u32],
    integers: &[i64],
) -> Result<Zeroizing<Vec<i64>>, Error> {
    let support = PublicSupport::of(task, round);
    let mut all = Zeroizing::new(Vec::with_capacity(support.weights() + task.dense()));
    let mut given = indices.iter().zip(integers).filter(|&(_, &e)| e != 0).peekable();
    for index in support.indices() {
        let value = given.next_if(|&(&i, _)| i as usize == index).map_or(0, |(_, &e)| e);
        all.push(value);
        // what is left behind lies outside the support
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
