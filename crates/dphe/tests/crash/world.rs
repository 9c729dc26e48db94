//! The parties' keys, and what each user adds.

use std::collections::BTreeMap;

use dphe::party::{AggregatorParty, KeyGeneratorParty, Time};
use dphe::{
    AggregatorKeys, ClipRule, Error, IdentityKey, KeyGenerator, LocalUpdate, NoiseMode, Party, Profile,
    PublicSupport, Roster, Round, SparseVector, TaskConfig, TaskId, TaskParams, Threads, UserId, UserKeys,
    hazmat,
};
use dphe_paillier::DecryptionKey;
use rand_core::SeedableRng;

use crate::sim::{Machine, Rng};
use dphe::party::Action;

/// Two safe primes of 128 bits.
const P: u128 = 0xd9f2_e49a_6959_5a43_4201_dee5_6f7a_2d4b;
const Q: u128 = 0xe20b_f9cb_9861_6691_b2b6_4225_6277_0a8f;

const SCALE_BITS: u8 = 16;

/// A task, its roster, and what is needed to start each party as often as it crashes.
pub(crate) struct World {
    pub(crate) roster: Roster,
    /// Whether a round may fail.
    pub(crate) loud: bool,
    noise: NoiseMode,
    seeds: BTreeMap<UserId, [u8; 32]>,
    aggregator: AggregatorKeys,
    users: BTreeMap<UserId, UserKeys>,
}

/// What one user adds in one round, in fixed point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) weights: Vec<i64>,
    pub(crate) dense: i64,
}

impl World {
    /// A task of this profile. In the first rounds of a `loud` one the last user sends more than the task allows, so that
    /// opening fails.
    pub(crate) fn new(profile: Profile, users: u32, loud: bool) -> Self {
        let (block, capacity) = match profile {
            Profile::Full => (2, 5),
            _ => (1, 6),
        };
        let noise = if profile == Profile::Full { NoiseMode::Fast } else { NoiseMode::Secure };
        let config = TaskConfig {
            profile,
            noise,
            key_bits: 256,
            dimension: 17,
            dense: 1,
            block,
            capacity,
            shards: 1,
            scale_bits: SCALE_BITS,
            clip_exponent: 0,
            clip_rule: ClipRule::Refuse,
            min_users: 3,
            min_percent: 0,
            max_users: 8,
            max_attempts: 3,
            max_model_bytes: 1 << 10,
        };
        let id = TaskId::from_bytes([7; 16]);
        let task = hazmat::task_params(id, config.clone()).unwrap();
        let users: Vec<UserId> = (1..=users).filter_map(UserId::new).collect();
        let seeds = users.iter().map(|&user| (user, [user.get() as u8; 32])).collect();
        let mut keys = key_generator(&task, noise, &seeds);
        let mut user_keys: BTreeMap<_, _> =
            users.iter().map(|&user| (user, keys.enroll(user, &mut rng(0)))).collect();
        if loud {
            let task = hazmat::task_params(id, TaskConfig { clip_exponent: 6, ..config }).unwrap();
            let last = *users.last().unwrap();
            user_keys.insert(last, key_generator(&task, noise, &seeds).enroll(last, &mut rng(0)));
        }
        let identities = users.iter().map(|&user| (user, identity(Party::User(user)).identity())).collect();
        let (a, g) = (identity(Party::Aggregator).identity(), identity(Party::KeyGenerator));
        let roster = Roster::new(task, 0, keys.encryption_key(), a, &g, identities).unwrap();
        Self { roster, loud, noise, seeds, aggregator: keys.aggregator_keys(), users: user_keys }
    }

    pub(crate) fn parties(&self) -> Vec<Party> {
        [Party::Aggregator, Party::KeyGenerator]
            .into_iter()
            .chain(self.roster.users().map(Party::User))
            .collect()
    }

    /// Starts a party from what its disk holds.
    pub(crate) fn start(&self, party: Party, log: &[u8], now: Time) -> Result<(Machine, Vec<Action>), Error> {
        let (identity, roster, one) = (identity(party), self.roster.clone(), Threads::ONE);
        match party {
            Party::Aggregator => {
                AggregatorParty::start(self.aggregator.clone(), identity, roster, log, one, now)
                    .map(|(party, actions)| (Machine::Aggregator(Box::new(party)), actions))
            }
            Party::KeyGenerator => {
                let keys = key_generator(roster.task(), self.noise, &self.seeds);
                KeyGeneratorParty::start(keys, identity, roster, log, one, now)
                    .map(|(party, actions)| (Machine::KeyGenerator(Box::new(party)), actions))
            }
            // the loud one has a clip of its own
            Party::User(user) => {
                hazmat::start_user(self.users[&user].clone(), identity, roster, log, one, now)
                    .map(|(party, actions)| (Machine::User(Box::new(party)), actions))
            }
        }
    }

    /// User n adds 4^n wherever it adds something: a digit above 1 of a sum in base 4 is somebody counted twice, a digit that
    /// is missing somebody lost. Where it adds differs from life to life, as if training were random.
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
        // only an update sealed under other rules can say this
        let loud = self.users[&user].task() != task && round == Round::FIRST;
        Input { weights, dense: if loud { value << 10 } else { value } }
    }
}

impl Input {
    pub(crate) fn zero(dimension: usize) -> Self {
        Self { weights: vec![0; dimension], dense: 0 }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.weights.iter_mut().zip(&other.weights).for_each(|(sum, w)| *sum += w);
        self.dense += other.dense;
    }

    pub(crate) fn to_update(&self) -> LocalUpdate {
        let float = |&x: &i64| x as f64 / f64::from(1 << SCALE_BITS);
        let weights: Vec<f64> = self.weights.iter().map(float).collect();
        LocalUpdate::new(SparseVector::from_dense(&weights).unwrap()).with_dense(vec![float(&self.dense)])
    }
}

pub(crate) fn rng(seed: u64) -> Rng {
    Rng::seed_from_u64(seed)
}

fn identity(party: Party) -> IdentityKey {
    IdentityKey::from_seed(&match party {
        Party::Aggregator => [101; 32],
        Party::KeyGenerator => [102; 32],
        Party::User(user) => [user.get() as u8; 32],
    })
}

fn key_generator(task: &TaskParams, noise: NoiseMode, seeds: &BTreeMap<UserId, [u8; 32]>) -> KeyGenerator {
    let key: DecryptionKey =
        dphe_paillier::hazmat::decryption_key(&P.to_be_bytes(), &Q.to_be_bytes(), noise).unwrap();
    let mut keys = KeyGenerator::with_key(task.clone(), key, &mut rng(0)).unwrap();
    hazmat::set_seeds(&mut keys, [99; 32], seeds.clone());
    keys
}
