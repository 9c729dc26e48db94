//! The contrast: the same step sealed, and what an aggregator could make of it that holds everything but the key.

use chacha20::ChaCha20Rng;
use dphe::{
    ClipRule, KeyGenerator, LocalUpdate, NoiseMode, Profile, Round, SparseVector, TaskConfig, TaskId,
    TaskParams, Threads, User, UserId, hazmat,
};
use dphe_learn::Seed;
use rand_core::{Rng as _, SeedableRng as _};

use crate::Error;

/// Keys that nobody would use in earnest, and enough for bytes without a pattern.
const KEY_BITS: u32 = 512;
/// Where in a ciphertext eight bytes are taken from: not at its ends, which a bound shapes.
const MIDDLE: usize = 16;

/// A user who seals, and the permutations, which the aggregator is given here although it has only one of them.
pub(super) struct Sealer {
    task: TaskParams,
    user: User,
    rng: ChaCha20Rng,
    /// From an index to its place in the body.
    place: Vec<u32>,
}

/// What the aggregator holds of a sealed step.
pub(super) struct SealedStep {
    /// The body of the upload.
    pub(super) body: Vec<u8>,
    /// Eight bytes of each weight's ciphertext as a number from -1 to 1, in the order of the features.
    pub(super) numbers: Vec<f64>,
}

impl Sealer {
    /// A task of one class with this many features.
    pub(super) fn new(features: usize, seed: &Seed) -> Result<Self, Error> {
        let mut rng = ChaCha20Rng::from_seed(seed.derive("sealed", 0).to_bytes());
        let mut config = TaskConfig::new(Profile::Sparse, 1, u32::try_from(features).unwrap_or(u32::MAX), 3);
        config.key_bits = KEY_BITS;
        config.noise = NoiseMode::Fast;
        config.dense = 1;
        config.clip_exponent = 4;
        config.clip_rule = ClipRule::Clip;
        // every weight travels, and each in a ciphertext of its own: more than any task would show
        config.block = 1;
        config.capacity = config.positions();
        let mut draw = || {
            let mut bytes = [0; 32];
            rng.fill_bytes(&mut bytes);
            bytes
        };
        let mut id = [0; 16];
        id.copy_from_slice(&draw()[..16]);
        let (shared, own) = (draw(), draw());
        let task = hazmat::task_params(TaskId::from_bytes(id), config)?;
        let mut key_generator = KeyGenerator::new(task.clone(), &mut rng, Threads::ONE)?;
        let name = UserId::new(1).ok_or(dphe::Error::OtherTask)?;
        hazmat::set_seeds(&mut key_generator, shared, [(name, own)]);
        let user = User::new(key_generator.enroll(name, &mut rng))?;
        let shared = hazmat::user_shared_table(&task, shared, Round::FIRST)?;
        let own = hazmat::user_aggregator_table(&task, own, Round::FIRST, name)?;
        let place = shared.iter().map(|&slot| own[slot as usize]).collect();
        Ok(Self { task, user, rng, place })
    }

    /// Seals what changed in a step.
    pub(super) fn seal(&mut self, weights: &[f64], intercept: f64) -> Result<SealedStep, Error> {
        let update = LocalUpdate::new(SparseVector::from_dense(weights)?).with_dense(vec![intercept]);
        let body = self.user.seal(Round::FIRST, &update, &mut self.rng, Threads::ONE)?.to_body();
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
    /// How many ciphertexts two sealed steps have in common, and of how many.
    pub(super) fn common(&self, other: &Self) -> (usize, usize) {
        let width = 2 * KEY_BITS as usize / 8;
        // ciphertexts are at the end; what is before them are slots
        let of = |body: &'_ [u8]| -> Vec<Vec<u8>> { body.rchunks_exact(width).map(<[u8]>::to_vec).collect() };
        let count = self.numbers.len() + 1;
        let (a, b) = (of(&self.body), of(&other.body));
        let common = a.iter().take(count).filter(|c| b.iter().take(count).any(|d| d == *c)).count();
        (common, count)
    }
}
