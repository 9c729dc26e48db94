//! The same step sealed, as seen by an aggregator that holds everything except the key.

use chacha20::ChaCha20Rng;
use dphe::wire::Encode as _;
use dphe::{
    ClipRule, KeyGenerator, NoiseMode, Profile, Round, SparseVector, TaskConfig, TaskId, TaskParams, Threads,
    Update, User, UserId, hazmat,
};
use dphe_learn::Seed;
use rand_core::{Rng as _, SeedableRng as _};

use crate::Error;

/// An insecure key length, which is long enough for ciphertexts without a pattern.
const KEY_BITS: u32 = 512;
/// The offset of the eight bytes that are taken from a ciphertext. The bytes at its ends are not uniform.
const MIDDLE: usize = 16;

/// A user who seals, with both permutations. The aggregator gets both here, although it knows only one of them.
pub(super) struct Sealer {
    task: TaskParams,
    user: User,
    rng: ChaCha20Rng,
    /// The place of each index in the body.
    place: Vec<u32>,
}

/// A sealed step as the aggregator sees it.
pub(super) struct SealedStep {
    /// The body of the upload.
    pub(super) body: Vec<u8>,
    /// Eight bytes of each weight's ciphertext, as a number from -1 to 1, in the order of the features.
    pub(super) numbers: Vec<f64>,
}

impl Sealer {
    /// Makes a task of one class with this many features.
    pub(super) fn new(features: usize, seed: &Seed) -> Result<Self, Error> {
        let mut rng = ChaCha20Rng::from_seed(seed.derive("sealed", 0).to_bytes());
        let mut config = TaskConfig::new(Profile::Sparse, 1, u32::try_from(features).unwrap_or(u32::MAX), 3);
        config.key_bits = KEY_BITS;
        config.noise = NoiseMode::Fast;
        config.dense = 1;
        config.clip_exponent = 4;
        config.clip_rule = ClipRule::Clip;
        // every weight is sent in a ciphertext of its own, which shows more than a real task does
        config.block = 1;
        config.capacity = config.positions();
        let mut draw = || {
            let mut bytes = [0; 32];
            rng.fill_bytes(&mut bytes);
            bytes
        };
        let mut id = [0; 16];
        id.copy_from_slice(&draw()[..16]);
        let (shared, own, mask) = (draw(), draw(), draw());
        let task = hazmat::task_params(TaskId::from_bytes(id), config)?;
        let mut key_generator = KeyGenerator::new(task.clone(), &mut rng, Threads::ONE)?;
        let name = UserId::new(1).ok_or(dphe::Error::OtherTask)?;
        hazmat::set_seeds(&mut key_generator, shared, [(name, own, mask)]);
        let user = User::new(key_generator.enroll(name, &mut rng))?;
        let shared = hazmat::user_shared_table(&task, shared, Round::FIRST)?;
        let own = hazmat::user_aggregator_table(&task, own, Round::FIRST, name)?;
        let place = shared.iter().map(|&index| own[index as usize]).collect();
        Ok(Self { task, user, rng, place })
    }

    /// Seals the changes of a step.
    pub(super) fn seal(&mut self, weights: &[f64], intercept: f64) -> Result<SealedStep, Error> {
        let update = Update::new(SparseVector::from_dense(weights)?).with_dense(vec![intercept]);
        let body = self.user.seal(Round::FIRST, &update, &mut self.rng, Threads::ONE)?.to_bytes();
        let width = 2 * KEY_BITS as usize / 8;
        let first = 4 * self.task.capacity();
        let number = |place: &u32| {
            let from = first + *place as usize * width + MIDDLE;
            let bytes = body.get(from..from + 8).unwrap_or_default();
            let number = bytes.iter().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
            number as f64 / u64::MAX as f64 * 2.0 - 1.0
        };
        let numbers = self.place.iter().map(number).collect();
        Ok(SealedStep { body, numbers })
    }
}

impl SealedStep {
    /// Returns the number of ciphertexts that two sealed steps have in common, and the number of all.
    pub(super) fn common(&self, other: &Self) -> (usize, usize) {
        let width = 2 * KEY_BITS as usize / 8;
        // the ciphertexts follow the permuted indices
        let of = |body: &'_ [u8]| -> Vec<Vec<u8>> { body.rchunks_exact(width).map(<[u8]>::to_vec).collect() };
        let count = self.numbers.len() + 1;
        let (a, b) = (of(&self.body), of(&other.body));
        let common = a.iter().take(count).filter(|c| b.iter().take(count).any(|d| d == *c)).count();
        (common, count)
    }
}
