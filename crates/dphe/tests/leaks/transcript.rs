//! Runs a task, and records what the aggregator sees: the bodies of uploads, its own permutations, and the sum.

use chacha20::ChaCha20Rng;
use dphe::scheme::RoundParams;
use dphe::wire::{DecodeWith as _, Encode as _, UploadParams};
use dphe::{
    Aggregator, KeyGenerator, OpenedSum, Overlap, Profile, Round, SealedUpdate, SparseVector, TaskConfig,
    TaskId, TaskParams, Threads, Update, User, UserId, hazmat,
};
use rand_core::{Rng as _, SeedableRng as _};

/// One thread per test, because the test runner uses the others.
pub(crate) const THREADS: Threads = Threads::ONE;

/// A task with chosen seeds, so that a test can check guesses against the permutations.
pub(crate) struct Session {
    pub(crate) task: TaskParams,
    pub(crate) key_generator: KeyGenerator,
    pub(crate) aggregator: Aggregator,
    pub(crate) users: Vec<User>,
    pub(crate) rng: ChaCha20Rng,
    us: [u8; 32],
    ua: Vec<[u8; 32]>,
}

/// What the aggregator learns in a round.
pub(crate) struct Seen {
    /// For each user, the positions that it sent, after the user-shared permutation.
    pub(crate) sent: Vec<Vec<u32>>,
    /// The published sums, by position.
    pub(crate) sum: Vec<i64>,
    pub(crate) overlap: Overlap,
}

/// A toy task: 256-bit keys, and one weight per position.
pub(crate) fn config(profile: Profile, users: usize, dimension: usize, capacity: usize) -> TaskConfig {
    let mut config = TaskConfig::new(profile, 1, dimension as u32, users.max(3) as u32);
    config.key_bits = 256;
    config.block = 1;
    config.capacity = capacity as u32;
    config
}

impl Session {
    pub(crate) fn new(config: TaskConfig, users: usize, seed: u64) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let task = hazmat::task_params(TaskId::from_bytes([9; 16]), config).unwrap();
        let mut key_generator = KeyGenerator::new(task.clone(), &mut rng, THREADS).unwrap();
        let mut draw = || {
            let mut seed = [0; 32];
            rng.fill_bytes(&mut seed);
            seed
        };
        let us = draw();
        let ua: Vec<[u8; 32]> = (0..users).map(|_| draw()).collect();
        let ids = || (1..).filter_map(UserId::new);
        let seeds: Vec<_> = ids().zip(&ua).map(|(id, &ua)| (id, ua, draw())).collect();
        hazmat::set_seeds(&mut key_generator, us, seeds);
        let users =
            ids().take(users).map(|id| User::new(key_generator.enroll(id, &mut rng)).unwrap()).collect();
        let aggregator = Aggregator::new(key_generator.aggregator_keys()).unwrap();
        Self { task, key_generator, aggregator, users, rng, us, ua }
    }

    /// The user-shared permutation, which the aggregator must not learn.
    pub(crate) fn phi(&self, round: Round) -> Vec<u32> {
        hazmat::user_shared_table(&self.task, self.us, round).unwrap()
    }

    /// The user-aggregator permutation of a user.
    pub(crate) fn phi_of(&self, user: usize, round: Round) -> Vec<u32> {
        hazmat::user_aggregator_table(&self.task, self.ua[user], round, self.users[user].id()).unwrap()
    }

    /// Positive weights at these indices, so that no sum is zero.
    pub(crate) fn vector(&mut self, support: &[u32]) -> SparseVector {
        let values = support.iter().map(|_| f64::from(1 + self.rng.next_u32() % 60_000) / 65_536.0).collect();
        SparseVector::new(self.task.dimension(), support.to_vec(), values).unwrap()
    }

    /// Returns the sealed update of a user.
    pub(crate) fn seal(&mut self, user: usize, round: Round, vector: SparseVector) -> SealedUpdate {
        self.users[user].seal(round, &Update::new(vector), &mut self.rng, THREADS).unwrap()
    }

    /// Reads the body of an update, as the aggregator does.
    pub(crate) fn read(&self, sealed: &SealedUpdate, body: &[u8]) -> SealedUpdate {
        let params = RoundParams::new(&self.task, sealed.round());
        let (user, count, salt) = (sealed.user(), sealed.ciphertexts() as u32, sealed.salt());
        SealedUpdate::from_bytes(body, &UploadParams { params: &params, user, count, salt }).unwrap()
    }

    /// Returns the permuted indices of a body, which anyone who has the body can read.
    pub(crate) fn slots(&self, body: &[u8]) -> Vec<u32> {
        let capacity = self.task.capacity();
        let ciphertext = 2 * self.task.key_bits().get() as usize / 8;
        let shards = self.task.config().shards as usize;
        body.chunks(capacity * (4 + ciphertext))
            .take(shards)
            .flat_map(|shard| shard[..4 * capacity].chunks_exact(4))
            .map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()))
            .collect()
    }

    /// Returns the permuted indices with the user-aggregator permutation undone.
    pub(crate) fn undo(&self, user: usize, round: Round, slots: &[u32]) -> Vec<u32> {
        let inverse = inverse(&self.phi_of(user, round));
        slots.iter().map(|&slot| inverse[slot as usize]).collect()
    }

    /// Runs a round in which each user has non-zeros at exactly these positions.
    pub(crate) fn round(&mut self, round: Round, supports: &[Vec<u32>]) -> Seen {
        let mut collecting = self.aggregator.begin(round);
        let mut sent = Vec::new();
        for (user, support) in supports.iter().enumerate() {
            let vector = self.vector(support);
            let sealed = self.seal(user, round, vector);
            let body = sealed.to_bytes();
            collecting.accept(self.read(&sealed, &body), THREADS).unwrap();
            let mut positions = self.undo(user, round, &self.slots(&body));
            positions.sort_unstable();
            sent.push(positions);
        }
        let overlap = collecting.overlap();
        let sum = collecting.finish(THREADS).unwrap();
        let OpenedSum::Clear(sum) = self.key_generator.open(sum, &mut self.rng, THREADS).unwrap() else {
            panic!("sums of private supports are not masked")
        };
        self.users.iter_mut().for_each(|user| user.advance(round.next()));
        self.aggregator.advance(round.next());
        Seen { sent, sum: sum.weights().to_vec(), overlap }
    }

    /// Draws a random support of this size for each user, ascending.
    pub(crate) fn supports(&mut self, size: usize) -> Vec<Vec<u32>> {
        let dimension = self.task.dimension();
        (0..self.users.len()).map(|_| subset(&mut self.rng, dimension, size)).collect()
    }
}

/// Returns the inverse of a permutation.
pub(crate) fn inverse(table: &[u32]) -> Vec<u32> {
    let mut inverse = vec![0; table.len()];
    table.iter().enumerate().for_each(|(from, &to)| inverse[to as usize] = from as u32);
    inverse
}

/// Draws a random subset of `0..all`, ascending.
pub(crate) fn subset(rng: &mut ChaCha20Rng, all: usize, size: usize) -> Vec<u32> {
    let mut items: Vec<u32> = (0..all as u32).collect();
    for i in 0..size {
        let j = i + (rng.next_u64() % (all - i) as u64) as usize;
        items.swap(i, j);
    }
    items.truncate(size);
    items.sort_unstable();
    items
}

/// The rounds from 1 on.
pub(crate) fn rounds(count: usize) -> impl Iterator<Item = Round> {
    (1..=count as u64).filter_map(Round::new)
}
