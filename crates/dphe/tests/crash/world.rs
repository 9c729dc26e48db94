//! The keys of the parties, the updates of users, and the models that follow from sums.

use std::collections::BTreeMap;

use dphe::party::{Action, AggregatorParty, KeyGeneratorParty, Party as _, PartyContext, Time};
use dphe::wire::RosterPlan;
use dphe::{
    AggregatorKeys, ClipRule, Digest, Error, IdentityKey, KeyGenerator, NoiseMode, PartyId, Profile,
    PublicSupport, Receipts, Roster, Round, SparseVector, TaskConfig, TaskId, TaskParams, Threads, Update,
    UserId, UserKeys, WeightSum, hazmat,
};
use dphe_paillier::{DecryptionKey, EncryptionKey};
use rand_core::SeedableRng;

use crate::sim::{Machine, Rng};

/// Two safe primes of 128 bits.
const P: u128 = 0xd9f2_e49a_6959_5a43_4201_dee5_6f7a_2d4b;
const Q: u128 = 0xe20b_f9cb_9861_6691_b2b6_4225_6277_0a8f;

const SCALE_BITS: u8 = 16;

/// The byte of the user-shared seed.
const SHARED: u8 = 99;

/// What distinguishes a task from others. Sums are bound to their participants as strongly as the profile allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) profile: Profile,
    pub(crate) users: u32,
    /// In the first round, the last user sends larger values than the task allows, so that there is no sum.
    pub(crate) loud: bool,
    /// The most sums that the key generator opens.
    pub(crate) rounds: u32,
    /// The least time between a ticket and the freeze of its round, in milliseconds.
    pub(crate) collect_min: u32,
    /// What is wrong with the last user's keys in all rounds.
    pub(crate) wrong: Wrong,
    /// The last user also sends messages that it must not send.
    pub(crate) garbage: bool,
}

/// A wrong seed of the last user. Its uploads look as they should, and are useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Nothing,
    /// The masks that the key generator removes are not those of the upload.
    Masks,
    /// The check is not that of the upload. In tasks with private supports, the permutation is wrong as well.
    Check,
}

impl Spec {
    pub(crate) fn new(profile: Profile, users: u32) -> Self {
        let (rounds, wrong) = (TaskConfig::MOST_ROUNDS, Wrong::Nothing);
        Self { profile, users, loud: false, rounds, collect_min: 0, wrong, garbage: false }
    }

    /// Whether the last user does what it likes.
    pub(crate) fn has_rogue_user(&self) -> bool {
        self.loud || self.garbage || self.wrong != Wrong::Nothing
    }

    pub(crate) fn loud(self) -> Self {
        Self { loud: true, ..self }
    }
}

/// A task with everything that is needed to start its parties repeatedly.
pub(crate) struct World {
    pub(crate) roster: Roster,
    pub(crate) spec: Spec,
    pub(crate) key: EncryptionKey,
    pub(crate) aggregator: AggregatorKeys,
    noise: NoiseMode,
    users: BTreeMap<UserId, UserKeys>,
}

/// The update of one user in one round, in fixed point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) weights: Vec<i64>,
    pub(crate) dense: i64,
}

impl World {
    pub(crate) fn new(spec: Spec) -> Self {
        let (block, capacity, shards) = match spec.profile {
            Profile::Sparse => (1, 6, 1),
            Profile::Full => (2, 5, 1),
            Profile::Paper => (1, 6, 2),
        };
        let noise = if spec.profile == Profile::Full { NoiseMode::Fast } else { NoiseMode::Secure };
        let config = TaskConfig {
            profile: spec.profile,
            noise,
            receipts: Receipts::of(spec.profile),
            key_bits: 256,
            dimension: 17,
            dense: 1,
            block,
            capacity,
            shards,
            scale_bits: SCALE_BITS,
            clip_exponent: 0,
            clip_rule: ClipRule::Refuse,
            min_users: 3,
            min_percent: 0,
            // slots of a loud task have room for the larger values of a smaller task
            max_users: if spec.loud { 1 << 12 } else { 8 },
            max_attempts: 3,
            max_model_bytes: 1 << 10,
            rounds: spec.rounds,
            collect_min: spec.collect_min,
            outsize: 0,
            max_failures: 8,
        };
        let id = TaskId::from_bytes([7; 16]);
        let task = hazmat::task_params(id, config.clone()).unwrap();
        let users: Vec<UserId> = (1..=spec.users).filter_map(UserId::new).collect();
        let mut keys = key_generator(&task, noise, spec.users);
        let mut user_keys: BTreeMap<_, _> =
            users.iter().map(|&user| (user, keys.enroll(user, &mut rng(0)))).collect();
        if spec.loud {
            let larger = TaskConfig { clip_exponent: 10, max_users: 4, ..config };
            let larger = hazmat::task_params(id, larger).unwrap();
            assert_eq!(larger.slot_bits(), task.slot_bits());
            let last = *users.last().unwrap();
            let mut keys = key_generator(&larger, noise, spec.users);
            user_keys.insert(last, keys.enroll(last, &mut rng(0)));
        }
        if spec.wrong != Wrong::Nothing {
            let last = *users.last().unwrap();
            let number = last.get() as u8;
            let mut keys = key_generator(&task, noise, spec.users);
            let (shared, mask) = match spec.wrong {
                Wrong::Check => (98, number ^ 0x80),
                _ => (SHARED, number ^ 0x40),
            };
            hazmat::set_seeds(&mut keys, [shared; 32], [(last, [number; 32], [mask; 32])]);
            user_keys.insert(last, keys.enroll(last, &mut rng(0)));
        }
        let aggregator = identity(PartyId::Aggregator);
        let plan = RosterPlan {
            initial_model: Digest::of_model(&first_model(&task)),
            task,
            key: keys.encryption_key(),
            task_file: Digest::ZERO,
            aggregator: aggregator.identity(),
            agreement: aggregator.agreement_key().public(),
            users: users.iter().map(|&user| (user, identity(PartyId::User(user)).identity())).collect(),
        };
        let roster = Roster::new(plan, &identity(PartyId::KeyGenerator)).unwrap();
        let (aggregator, key) = (keys.aggregator_keys(), keys.encryption_key().clone());
        Self { roster, spec, key, aggregator, noise, users: user_keys }
    }

    pub(crate) fn parties(&self) -> Vec<PartyId> {
        [PartyId::Aggregator, PartyId::KeyGenerator]
            .into_iter()
            .chain(self.roster.users().map(PartyId::User))
            .collect()
    }

    /// Starts a party from what its disk holds.
    pub(crate) fn start(
        &self,
        party: PartyId,
        log: &[u8],
        now: Time,
    ) -> Result<(Machine, Vec<Action>), Error> {
        let context = PartyContext {
            identity: identity(party).into(),
            rosters: self.roster.clone().into(),
            log,
            threads: Threads::ONE,
        };
        match party {
            PartyId::Aggregator => AggregatorParty::start(self.aggregator.clone(), context, now)
                .map(|(party, actions)| (Machine::Aggregator(Box::new(party)), actions)),
            PartyId::KeyGenerator => {
                let keys = key_generator(self.roster.task(), self.noise, self.spec.users);
                KeyGeneratorParty::start(keys, context, now)
                    .map(|(party, actions)| (Machine::KeyGenerator(Box::new(party)), actions))
            }
            // the loud user has a larger clip
            PartyId::User(user) => hazmat::start_user(self.users[&user].clone(), context, now)
                .map(|(party, actions)| (Machine::User(Box::new(party)), actions)),
        }
    }

    /// User n adds 4^n to every weight that it changes. In base 4, a digit above 1 of a sum is a user counted twice,
    /// and a missing digit is a lost user. The changed weights differ between restarts, as if training were random.
    pub(crate) fn input(&self, user: UserId, round: Round, life: u64, support: &PublicSupport) -> Input {
        let task = self.roster.task();
        let value = 1i64 << (2 * user.get());
        let mut weights = vec![0; task.dimension()];
        let turn = (round.get() * 5 + life * 3 + u64::from(user.get()) * 2) as usize;
        if task.has_private_support() {
            (0..task.capacity()).for_each(|i| weights[(turn + i * i) % task.dimension()] = value);
        } else {
            support
                .indices()
                .filter(|index| !(index + turn).is_multiple_of(3))
                .for_each(|index| weights[index] = value);
        }
        // only an update that was sealed with a larger clip can carry this
        let loud = self.users[&user].task() != task && round == Round::FIRST;
        Input { weights, dense: if loud { value << 10 } else { value } }
    }

    /// The user who may do what it likes.
    pub(crate) fn last_user(&self) -> UserId {
        UserId::new(self.spec.users).unwrap()
    }

    pub(crate) fn first_model(&self) -> Vec<u8> {
        first_model(self.roster.task())
    }
}

fn first_model(task: &TaskParams) -> Vec<u8> {
    vec![0; 8 * (task.dimension() + task.dense())]
}

/// Returns the model that follows from a model and a sum, which is the sum of all sums so far.
pub(crate) fn next_model(model: &[u8], sum: &WeightSum) -> Vec<u8> {
    let mut numbers: Vec<i64> = model.as_chunks().0.iter().map(|bytes| i64::from_be_bytes(*bytes)).collect();
    let dense_at = numbers.len() - sum.dense().len();
    let at: Vec<usize> =
        sum.support().map_or_else(|| (0..dense_at).collect(), |support| support.indices().collect());
    let all = at.into_iter().zip(sum.weights()).chain((dense_at..).zip(sum.dense()));
    all.for_each(|(at, value)| numbers[at] = numbers[at].wrapping_add(*value));
    numbers.into_iter().flat_map(i64::to_be_bytes).collect()
}

impl Input {
    pub(crate) fn zero(dimension: usize) -> Self {
        Self { weights: vec![0; dimension], dense: 0 }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.weights.iter_mut().zip(&other.weights).for_each(|(sum, w)| *sum += w);
        self.dense += other.dense;
    }

    /// Returns whether a sum holds these numbers, at the positions of the round if they are public.
    pub(crate) fn is(&self, sum: &WeightSum) -> bool {
        let same = match sum.support() {
            Some(support) => support.indices().map(|index| &self.weights[index]).eq(sum.weights()),
            None => self.weights == sum.weights(),
        };
        same && sum.dense() == [self.dense]
    }

    pub(crate) fn to_update(&self) -> Update {
        let float = |&x: &i64| x as f64 / f64::from(1 << SCALE_BITS);
        let weights: Vec<f64> = self.weights.iter().map(float).collect();
        Update::new(SparseVector::from_dense(&weights).unwrap()).with_dense(vec![float(&self.dense)])
    }
}

pub(crate) fn rng(seed: u64) -> Rng {
    Rng::seed_from_u64(seed)
}

/// The seed of a party's identity key.
pub(crate) fn identity_seed(party: PartyId) -> [u8; 32] {
    match party {
        PartyId::Aggregator => [101; 32],
        PartyId::KeyGenerator => [102; 32],
        PartyId::User(user) => [user.get() as u8; 32],
    }
}

pub(crate) fn identity(party: PartyId) -> IdentityKey {
    IdentityKey::from_seed(&identity_seed(party))
}

fn key_generator(task: &TaskParams, noise: NoiseMode, users: u32) -> KeyGenerator {
    let key: DecryptionKey =
        dphe_paillier::hazmat::decryption_key(&P.to_be_bytes(), &Q.to_be_bytes(), noise).unwrap();
    let mut keys = KeyGenerator::with_key(task.clone(), key, &mut rng(0)).unwrap();
    let seeds = (1..=users)
        .filter_map(UserId::new)
        .map(|user| (user, [user.get() as u8; 32], [user.get() as u8 ^ 0x80; 32]));
    hazmat::set_seeds(&mut keys, [SHARED; 32], seeds);
    keys
}
