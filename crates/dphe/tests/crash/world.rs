//! The keys of the parties, and the updates of users.

use std::collections::BTreeMap;

use dphe::party::{AggregatorParty, KeyGeneratorParty, Party as _, PartyContext, Time};
use dphe::{
    AggregatorKeys, ClipRule, Error, IdentityKey, KeyGenerator, NoiseMode, PartyId, Profile, PublicSupport,
    Roster, Round, SparseVector, TaskConfig, TaskId, TaskParams, Threads, Update, UserId, UserKeys, hazmat,
};
use dphe_paillier::DecryptionKey;
use rand_core::SeedableRng;

use crate::sim::{Machine, Rng};
use dphe::party::Action;

/// Two safe primes of 128 bits.
const P: u128 = 0xd9f2_e49a_6959_5a43_4201_dee5_6f7a_2d4b;
const Q: u128 = 0xe20b_f9cb_9861_6691_b2b6_4225_6277_0a8f;

const SCALE_BITS: u8 = 16;

/// A task with everything that is needed to start its parties repeatedly.
pub(crate) struct World {
    pub(crate) roster: Roster,
    /// Whether a round may fail.
    pub(crate) loud: bool,
    noise: NoiseMode,
    seeds: BTreeMap<UserId, [u8; 32]>,
    aggregator: AggregatorKeys,
    users: BTreeMap<UserId, UserKeys>,
}

/// The update of one user in one round, in fixed point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) weights: Vec<i64>,
    pub(crate) dense: i64,
}

impl World {
    /// Creates a task of this profile. In the first rounds of a `loud` one, the last user sends larger values than
    /// the task allows, so that opening fails.
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
        let identities = users.iter().map(|&user| (user, identity(PartyId::User(user)).identity())).collect();
        let (a, g) = (identity(PartyId::Aggregator).identity(), identity(PartyId::KeyGenerator));
        let roster = Roster::new(task, 0, keys.encryption_key(), a, &g, identities).unwrap();
        Self { roster, loud, noise, seeds, aggregator: keys.aggregator_keys(), users: user_keys }
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
            identity: identity(party),
            roster: self.roster.clone(),
            log,
            threads: Threads::ONE,
        };
        match party {
            PartyId::Aggregator => AggregatorParty::start(self.aggregator.clone(), context, now)
                .map(|(party, actions)| (Machine::Aggregator(Box::new(party)), actions)),
            PartyId::KeyGenerator => {
                let keys = key_generator(self.roster.task(), self.noise, &self.seeds);
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
}

impl Input {
    pub(crate) fn zero(dimension: usize) -> Self {
        Self { weights: vec![0; dimension], dense: 0 }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.weights.iter_mut().zip(&other.weights).for_each(|(sum, w)| *sum += w);
        self.dense += other.dense;
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

fn identity(party: PartyId) -> IdentityKey {
    IdentityKey::from_seed(&match party {
        PartyId::Aggregator => [101; 32],
        PartyId::KeyGenerator => [102; 32],
        PartyId::User(user) => [user.get() as u8; 32],
    })
}

fn key_generator(task: &TaskParams, noise: NoiseMode, seeds: &BTreeMap<UserId, [u8; 32]>) -> KeyGenerator {
    let key: DecryptionKey =
        dphe_paillier::hazmat::decryption_key(&P.to_be_bytes(), &Q.to_be_bytes(), noise).unwrap();
    let mut keys = KeyGenerator::with_key(task.clone(), key, &mut rng(0)).unwrap();
    hazmat::set_seeds(&mut keys, [99; 32], seeds.clone());
    keys
}
