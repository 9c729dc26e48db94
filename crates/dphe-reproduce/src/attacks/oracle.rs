//! An aggregator that asks the key generator for more than one honest sum per round. The requests run against the real
//! roles.

use chacha20::ChaCha20Rng;
use dphe::scheme::RoundParams;
use dphe::wire::{DecodeWith as _, Encode as _, UploadParams};
use dphe::{
    Aggregator, ClipRule, KeyGenerator, NoiseMode, Profile, Receipts, Round, SealedSum, SealedUpdate,
    SparseVector, TaskConfig, TaskId, Threads, Update, User, UserId, hazmat,
};
use dphe_learn::Seed;
use dphe_paillier::Plaintext;
use rand_core::SeedableRng as _;

use crate::{Error, Measurement};

const ONE: Threads = Threads::ONE;
const USERS: u32 = 5;
const DIMENSION: usize = 24;
const CAPACITY: usize = 8;

/// The attempts: the name of the measurement, a description, and whether the attempt must be refused.
pub(super) const ATTEMPTS: [(&str, &str, bool); 9] = [
    ("honest_sum", "an honest sum of five users", false),
    ("same_again", "the same sum again", true),
    ("other_sum", "another sum of the same round, without one user", true),
    ("earlier_round", "a sum of an earlier round", true),
    ("upload_twice", "a user's second upload in a round", true),
    ("shards_as_users", "three shards of one user in place of three users", true),
    ("too_few", "three users where the roster requires six", true),
    (
        "own_zeros",
        "one user's upload, and zeros that the aggregator encrypted under four other names, without a check",
        false,
    ),
    ("own_zeros_checked", "the same in a task whose sums are checked", true),
];

/// The parties of a small task with insecure toy keys.
struct Parties {
    key_generator: KeyGenerator,
    aggregator: Aggregator,
    users: Vec<User>,
    rng: ChaCha20Rng,
}

impl Parties {
    fn new(profile: Profile, receipts: Receipts, min_percent: u8, seed: &Seed) -> Result<Self, Error> {
        let mut rng = ChaCha20Rng::from_seed(seed.to_bytes());
        let config = TaskConfig {
            noise: NoiseMode::Fast,
            receipts,
            key_bits: 256,
            block: 1,
            capacity: CAPACITY as u32,
            shards: if profile == Profile::Paper { 3 } else { 1 },
            clip_rule: ClipRule::Clip,
            min_percent,
            max_users: 16,
            ..TaskConfig::new(profile, 1, DIMENSION as u32, 16)
        };
        let task = hazmat::task_params(TaskId::from_bytes([7; 16]), config)?;
        let mut key_generator = KeyGenerator::new(task, &mut rng, ONE)?;
        let users = (1..=USERS)
            .filter_map(UserId::new)
            .map(|id| User::new(key_generator.enroll(id, &mut rng)))
            .collect::<Result<Vec<_>, _>>()?;
        let aggregator = Aggregator::new(key_generator.aggregator_keys())?;
        Ok(Self { key_generator, aggregator, users, rng })
    }

    /// Seals an update of a user with this many nonzeros.
    fn seal(&mut self, user: usize, round: Round, nonzeros: usize) -> Result<SealedUpdate, Error> {
        let weights: Vec<f64> =
            (0..DIMENSION).map(|i| if i < nonzeros { 0.25 + 0.01 * user as f64 } else { 0.0 }).collect();
        let update = Update::new(SparseVector::from_dense(&weights)?);
        Ok(self.users[user].seal(round, &update, &mut self.rng, ONE)?)
    }

    /// Returns the sealed sum of these users.
    fn sum(&mut self, round: Round, users: core::ops::Range<usize>) -> Result<SealedSum, Error> {
        let mut collecting = self.aggregator.begin(round);
        for user in users {
            let update = self.seal(user, round, 4)?;
            collecting.accept(update, ONE)?;
        }
        collecting.finish(ONE).map_err(|still| still.error.into())
    }

    /// Returns true if the key generator opens the sum.
    fn opens(&mut self, sum: SealedSum) -> Result<bool, Error> {
        refusal(self.key_generator.open(sum, &mut self.rng, ONE))
    }
}

/// Returns true for success and false for an expected refusal. Any other error is a failure of the experiment.
fn refusal<T>(result: Result<T, dphe::Error>) -> Result<bool, Error> {
    match result {
        Ok(_) => Ok(true),
        Err(
            dphe::Error::Committed
            | dphe::Error::SetSmall { .. }
            | dphe::Error::Conflict { .. }
            | dphe::Error::RoundFailed,
        ) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

/// Makes all attempts. The measurement is 1 for an attempt that succeeded and 0 for one that was refused.
pub(super) fn ask(seed: &Seed) -> Result<Measurement, Error> {
    let mut measurement = Measurement::new();
    let mut put = |name: &str, done: bool| measurement.insert(name.to_owned(), f64::from(u8::from(done)));
    let (first, second) = (Round::FIRST, Round::FIRST.next());

    let mut parties = Parties::new(Profile::Sparse, Receipts::None, 0, &seed.derive("oracle", 0))?;
    let (honest, again) = twice(&mut parties, second)?;
    let without_one = parties.sum(second, 0..4)?;
    let earlier = parties.sum(first, 0..5)?;
    put("honest_sum", parties.opens(honest)?);
    put("same_again", parties.opens(again)?);
    put("other_sum", parties.opens(without_one)?);
    put("earlier_round", parties.opens(earlier)?);

    let third = second.next();
    let mut collecting = parties.aggregator.begin(third);
    let (one, other) = (parties.seal(0, third, 4)?, parties.seal(0, third, 5)?);
    collecting.accept(one, ONE)?;
    put("upload_twice", refusal(collecting.accept(other, ONE))?);

    // in `paper`, a user with many nonzeros sends several shards
    let mut paper = Parties::new(Profile::Paper, Receipts::None, 0, &seed.derive("oracle", 1))?;
    let update = paper.seal(0, first, 3 * CAPACITY)?;
    let mut collecting = paper.aggregator.begin(first);
    collecting.accept(update, ONE)?;
    put("shards_as_users", refusal(collecting.finish(ONE).map_err(|still| still.error))?);

    // the aggregator knows five users, so 60 % are three; the key generator knows ten
    let mut grown = Parties::new(Profile::Sparse, Receipts::None, 60, &seed.derive("oracle", 2))?;
    for id in (USERS + 1..=2 * USERS).filter_map(UserId::new) {
        let Parties { key_generator, rng, .. } = &mut grown;
        key_generator.enroll(id, rng);
    }
    let three = grown.sum(first, 0..3)?;
    put("too_few", grown.opens(three)?);

    let sum = with_own_zeros(&mut parties, third)?;
    put("own_zeros", parties.opens(sum)?);

    let mut checked = Parties::new(Profile::Sparse, Receipts::Checked, 0, &seed.derive("oracle", 3))?;
    let sum = with_own_zeros(&mut checked, first)?;
    put("own_zeros_checked", checked.opens(sum)?);
    Ok(measurement)
}

/// Makes the same sum twice by replaying the uploads.
fn twice(parties: &mut Parties, round: Round) -> Result<(SealedSum, SealedSum), Error> {
    let task = parties.key_generator.task().clone();
    let (mut first, mut second) = (parties.aggregator.begin(round), parties.aggregator.begin(round));
    for user in 0..parties.users.len() {
        let update = parties.seal(user, round, 4)?;
        let count = u32::try_from(update.ciphertexts()).unwrap_or(u32::MAX);
        let copy = SealedUpdate::from_bytes(
            &update.to_bytes(),
            &UploadParams {
                params: &RoundParams::new(&task, round),
                user: update.user(),
                count,
                salt: update.salt(),
            },
        )?;
        first.accept(update, ONE)?;
        second.accept(copy, ONE)?;
    }
    let close =
        |collecting: dphe::Collecting| collecting.finish(ONE).map_err(|still| Error::from(still.error));
    Ok((close(first)?, close(second)?))
}

/// Adds one user's upload to zeros that the aggregator encrypted in the names of the other users.
fn with_own_zeros(parties: &mut Parties, round: Round) -> Result<SealedSum, Error> {
    let task = parties.key_generator.task().clone();
    let key = parties.key_generator.encryption_key().clone();
    let mut collecting = parties.aggregator.begin(round);
    let victim = parties.seal(0, round, 4)?;
    collecting.accept(victim, ONE)?;
    for user in 1..parties.users.len() {
        let zero = Plaintext::new(&key, 0).map_err(dphe::Error::Key)?;
        // one more in place of the check, if the task has one
        let count = CAPACITY + usize::from(task.receipts() != Receipts::None);
        let zeros = key.encrypt_all(&vec![zero; count], &mut parties.rng, ONE).map_err(dphe::Error::Key)?;
        let mut body: Vec<u8> = (0..CAPACITY as u32).flat_map(u32::to_be_bytes).collect();
        body.extend(key.encode(&zeros, ONE).map_err(dphe::Error::Key)?);
        let id = parties.users[user].id();
        collecting.accept(
            SealedUpdate::from_bytes(
                &body,
                &UploadParams {
                    params: &RoundParams::new(&task, round),
                    user: id,
                    count: count as u32,
                    salt: [0; 16],
                },
            )?,
            ONE,
        )?;
    }
    collecting.finish(ONE).map_err(|still| still.error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_refused_or_succeed_as_documented() {
        let measurement = ask(&Seed::new(3)).unwrap();
        assert_eq!(measurement.len(), ATTEMPTS.len());
        for (name, _, refused) in ATTEMPTS {
            assert_eq!(measurement[name] == 0.0, refused, "{name}");
        }
    }
}
