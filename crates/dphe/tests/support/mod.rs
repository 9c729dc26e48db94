//! Shared by the tests: fixed keys, small tasks, an independent fixed-point encoding, and whole rounds.
#![allow(dead_code, unreachable_pub, reason = "every test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

pub mod forge;
pub mod world;

use std::collections::BTreeMap;

use chacha20::ChaCha20Rng;
use dphe::party::{
    Action, AggregatorEvent, AggregatorParty, KeyGeneratorEvent, KeyGeneratorParty, Notice, Party as _,
    PartyContext, Time, UserEvent, UserParty,
};
use dphe::scheme::RoundParams;
use dphe::wire::{RosterPlan, UploadParams};
use dphe::{
    Aggregator, ClipRule, Digest, Error, Identity, IdentityKey, KeyGenerator, NoiseMode, PartyId, Profile,
    Receipts, Roster, Round, SealedSum, SealedUpdate, SparseVector, TaskConfig, TaskId, TaskParams, Threads,
    Update, User, UserId, UserKeys, WeightSum,
};
use dphe_paillier::DecryptionKey;
use rand_core::{Rng as _, SeedableRng as _};

/// Safe primes for tests only. They are public.
const FACTORS: [(u32, &str, &str); 3] = [
    (256, "ca6eafddecc6e7908fd3ae792bea7477", "c59d1ee7c87fc3fad7feb92f96388fbb"),
    (
        512,
        "ee4f091c3133707c250dd15b8d72c5cf2d6be0b63505e0838581c86d7eb0bfff",
        "e7df9f8a92d9f6193a6f2b17f9e82931788cd2a7a276bb313d88822aa4bf8f33",
    ),
    (
        2048,
        "ce1bebc43443505b80bf6a442a6c1771b829b6882a3b630ee06ffae7fa9d68e39a62f5f526f011233634f9b4d6689fc4\
         c5e66d236eab234f5b5c1b94596457f294d1adf26a92a3378eb016ad1fe61f112bae52120e7f7f91c59fa0692c216e5e\
         90089ae6245b821b9409a732dc87ec976544d02f119e480381162fa5425fc3e7",
        "d6d04aa475c21d6e0adf332956b7f6e515b5e9dcc006f4866fc6d059952b77cd827c4b77ee73c31410d0cd64fb9e8d2c\
         39e18328ecb106cd4cc2eebe9a4e044b1b6cf2cdd3d367b58e19282db25afa652b5ce7314ac51baa7dc47dc0071eb538\
         5b005e59d2d00cbc5c173f35f45a79a8673d5c3a32f7b220761be8bdeb73cb0f",
    ),
];

pub fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Returns the factors of the test key with this length.
pub fn factors(bits: u32) -> (Vec<u8>, Vec<u8>) {
    let (_, p, q) = FACTORS.into_iter().find(|&(b, ..)| b == bits).unwrap();
    (unhex(p), unhex(q))
}

pub fn key(bits: u32, mode: NoiseMode) -> DecryptionKey {
    let (p, q) = factors(bits);
    dphe_paillier::hazmat::decryption_key(&p, &q, mode).unwrap()
}

pub fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

/// Draws a number below `bound`.
pub fn below(rng: &mut ChaCha20Rng, bound: usize) -> usize {
    (rng.next_u64() % bound.max(1) as u64) as usize
}

/// Draws distinct numbers below `bound`, ascending.
pub fn choose(rng: &mut ChaCha20Rng, count: usize, bound: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..bound).collect();
    for i in 0..count {
        let j = i + below(rng, bound - i);
        all.swap(i, j);
    }
    all.truncate(count);
    all.sort_unstable();
    all
}

pub fn shuffle<T>(items: &mut [T], rng: &mut ChaCha20Rng) {
    for i in (1..items.len()).rev() {
        items.swap(i, below(rng, i + 1));
    }
}

pub fn user_id(number: u32) -> UserId {
    UserId::new(number).unwrap()
}

pub fn round(number: u64) -> Round {
    Round::new(number).unwrap()
}

/// A small task under the 256-bit key, with the strongest receipts of its profile.
pub fn config(profile: Profile) -> TaskConfig {
    TaskConfig {
        profile,
        noise: NoiseMode::Fast,
        receipts: Receipts::of(profile),
        key_bits: 256,
        dimension: 24,
        dense: 2,
        block: if profile == Profile::Paper { 1 } else { 2 },
        capacity: 4,
        shards: if profile == Profile::Full { 1 } else { 2 },
        scale_bits: 16,
        clip_exponent: 0,
        clip_rule: ClipRule::Refuse,
        min_users: 3,
        min_percent: 0,
        max_users: 8,
        max_attempts: 3,
        max_model_bytes: 1000,
        rounds: 1000,
        collect_min: 0,
        outsize: 0,
        max_failures: 8,
    }
}

/// The same without receipts.
pub fn config_without_receipts(profile: Profile) -> TaskConfig {
    TaskConfig { receipts: Receipts::None, ..config(profile) }
}

pub fn task(config: TaskConfig) -> TaskParams {
    dphe::hazmat::task_params(TaskId::from_bytes([7; 16]), config).unwrap()
}

/// The three roles of a task.
pub struct Roles {
    pub key_generator: KeyGenerator,
    pub aggregator: Aggregator,
    pub users: Vec<User>,
    pub rng: ChaCha20Rng,
}

impl Roles {
    /// Opens a sum, removes the aggregator's masks, and has the first user check it.
    pub fn open(&mut self, sum: SealedSum) -> Result<WeightSum, Error> {
        let Self { key_generator, aggregator, users, rng } = self;
        open_checked(key_generator, aggregator, &users[0], sum, rng, ONE)
    }
}

/// Opens a sum, removes the aggregator's masks, and has a user check it.
pub fn open_checked(
    key_generator: &mut KeyGenerator,
    aggregator: &Aggregator,
    user: &User,
    mut sum: SealedSum,
    rng: &mut ChaCha20Rng,
    threads: Threads,
) -> Result<WeightSum, Error> {
    let blinds = sum.take_blinds();
    key_generator.open(sum, rng, threads)?.unmask_and_check(aggregator, &blinds, user)
}

/// Returns the context in which a sealed update is read again.
pub fn upload_params<'a>(params: &'a RoundParams, sealed: &SealedUpdate) -> UploadParams<'a> {
    UploadParams { params, user: sealed.user(), count: sealed.ciphertexts() as u32, salt: sealed.salt() }
}

/// Creates the roles of a task with users 1, 2, ...
pub fn roles(config: TaskConfig, users: u32, seed: u64) -> Roles {
    roles_of(task(config), users, seed)
}

pub fn roles_of(task: TaskParams, users: u32, seed: u64) -> Roles {
    let mut rng = rng(seed);
    let key = key(task.config().key_bits, task.config().noise);
    let mut key_generator = KeyGenerator::with_key(task, key, &mut rng).unwrap();
    let users = (1..=users).map(|n| User::new(key_generator.enroll(user_id(n), &mut rng)).unwrap()).collect();
    let aggregator = Aggregator::new(key_generator.aggregator_keys()).unwrap();
    Roles { key_generator, aggregator, users, rng }
}

/// Encodes a weight by floor and remainder, independently of the crate.
pub fn encoded(w: f64, config: &TaskConfig) -> i64 {
    let x = w * f64::from(config.scale_bits).exp2();
    let (floor, rest) = (x.floor(), x - x.floor());
    let up = rest > 0.5 || (rest == 0.5 && floor.rem_euclid(2.0) == 1.0);
    let most = (1i128 << (i32::from(config.scale_bits) + i32::from(config.clip_exponent))) - 1;
    (floor as i128 + i128::from(up)).clamp(-most, most) as i64
}

/// Creates an update with these weights and dense values.
pub fn update(dimension: usize, weights: &[(u32, f64)], dense: &[f64]) -> Update {
    let (indices, values) = weights.iter().copied().unzip();
    Update::new(SparseVector::new(dimension, indices, values).unwrap()).with_dense(dense.to_vec())
}

pub const ONE: Threads = Threads::ONE;
pub const NOW: Time = Time(0);
pub const MODEL: &[u8] = b"the model before";
pub const NEXT_MODEL: &[u8] = b"the model after";

/// The parties of a task, which can be started repeatedly.
pub struct Parties {
    pub roster: Roster,
    pub roles: Roles,
    pub user_keys: BTreeMap<UserId, UserKeys>,
}

pub fn identity_seed(party: PartyId) -> [u8; 32] {
    let seed = match party {
        PartyId::Aggregator => 201,
        PartyId::KeyGenerator => 202,
        PartyId::User(user) => user.get() as u8,
    };
    [seed; 32]
}

pub fn identity(party: PartyId) -> IdentityKey {
    IdentityKey::from_seed(&identity_seed(party))
}

/// A roster of these users, whose first round starts from [`MODEL`].
pub fn roster_plan(key_generator: &KeyGenerator, users: BTreeMap<UserId, Identity>) -> RosterPlan<'_> {
    let aggregator = identity(PartyId::Aggregator);
    RosterPlan {
        task: key_generator.task().clone(),
        key: key_generator.encryption_key(),
        initial_model: Digest::of_model(MODEL),
        task_file: Digest::ZERO,
        aggregator: aggregator.identity(),
        agreement: aggregator.agreement_key().public(),
        users,
    }
}

impl Parties {
    pub fn new(config: TaskConfig, users: u32) -> Self {
        let mut roles = roles(config, users, 5);
        // an enrolled user gets the same keys again
        let enroll = |n| (user_id(n), roles.key_generator.enroll(user_id(n), &mut roles.rng));
        let user_keys = (1..=users).map(enroll).collect();
        let ids = (1..=users).map(|n| (user_id(n), identity(PartyId::User(user_id(n))).identity()));
        let plan = roster_plan(&roles.key_generator, ids.collect());
        let roster = Roster::new(plan, &identity(PartyId::KeyGenerator)).unwrap();
        Self { roster, roles, user_keys }
    }

    /// Creates the key generator again, with the same seeds.
    pub fn key_generator(&self) -> KeyGenerator {
        let task = self.roster.task().clone();
        roles_of(task, self.roster.users().len() as u32, 5).key_generator
    }

    fn context<'a>(&self, party: PartyId, log: &'a [u8]) -> PartyContext<'a> {
        PartyContext {
            identity: identity(party).into(),
            rosters: self.roster.clone().into(),
            log,
            threads: ONE,
        }
    }

    pub fn start_key_generator(&self, log: &[u8]) -> Result<KeyGeneratorParty, Error> {
        self.start_key_generator_at(log, NOW)
    }

    pub fn start_key_generator_at(&self, log: &[u8], now: Time) -> Result<KeyGeneratorParty, Error> {
        let party = PartyId::KeyGenerator;
        KeyGeneratorParty::start(self.key_generator(), self.context(party, log), now).map(|(party, _)| party)
    }

    pub fn start_aggregator(&self, log: &[u8]) -> Result<AggregatorParty, Error> {
        let (keys, party) = (self.roles.key_generator.aggregator_keys(), PartyId::Aggregator);
        AggregatorParty::start(keys, self.context(party, log), NOW).map(|(party, _)| party)
    }

    pub fn start_user(&self, number: u32, log: &[u8]) -> Result<UserParty, Error> {
        let user = user_id(number);
        let keys = self.user_keys[&user].clone();
        UserParty::start(keys, self.context(PartyId::User(user), log), NOW).map(|(p, _)| p)
    }
}

/// Everything that the parties wrote and sent in one round.
#[derive(Default)]
pub struct Transcript {
    /// Every message in order, with its sender.
    pub messages: Vec<(PartyId, Vec<u8>)>,
    /// Every state of each log.
    pub logs: BTreeMap<PartyId, Vec<Vec<u8>>>,
    /// The key generator's log before each message that it received, with the message.
    pub before: Vec<(Vec<u8>, Vec<u8>)>,
    /// The sums that users checked.
    pub sums: Vec<(UserId, WeightSum)>,
}

impl Transcript {
    pub fn of_kind(&self, kind: u8) -> Vec<u8> {
        let found = self.messages.iter().find(|(_, message)| message[5] == kind);
        found.unwrap_or_else(|| panic!("no message of type {kind}")).1.clone()
    }
}

/// Runs one round with the given updates, and records everything.
pub fn transcript(parties: &Parties, update: impl Fn(u32) -> Update) -> Transcript {
    let mut t = Transcript::default();
    let (mut rng, mut nonces) = (rng(77), rng(3));
    let mut generator = parties.start_key_generator(&[]).unwrap();
    let mut aggregator = parties.start_aggregator(&[]).unwrap();
    let ids: Vec<UserId> = parties.roster.users().collect();
    let mut users: BTreeMap<UserId, UserParty> =
        ids.iter().map(|&id| (id, parties.start_user(id.get(), &[]).unwrap())).collect();
    let prefix = |party| dphe::party::log::Log::new(party, &parties.roster).prefix().to_vec();
    let mut logs: BTreeMap<PartyId, Vec<u8>> = BTreeMap::new();
    logs.insert(PartyId::Aggregator, prefix(PartyId::Aggregator));
    logs.insert(PartyId::KeyGenerator, prefix(PartyId::KeyGenerator));
    for &id in &ids {
        logs.insert(PartyId::User(id), prefix(PartyId::User(id)));
    }
    let mut queue = std::collections::VecDeque::new();
    let start = AggregatorEvent::Start { model: Digest::of_model(MODEL), deadline: 1000 };
    let mut done: Vec<(PartyId, Vec<Action>)> =
        vec![(PartyId::Aggregator, aggregator.step(start, NOW, &mut nonces).unwrap())];
    loop {
        for (party, actions) in std::mem::take(&mut done) {
            for action in actions {
                let log = logs.get_mut(&party).unwrap();
                match action {
                    Action::Append(bytes) => log.extend(bytes),
                    Action::Replace(bytes) => *log = bytes.to_vec(),
                    Action::Send { to, message } => {
                        t.messages.push((party, message.clone()));
                        queue.push_back((to, message));
                        continue;
                    }
                    Action::Announce(message) => {
                        for &id in users.keys() {
                            t.messages.push((party, message.clone()));
                            queue.push_back((PartyId::User(id), message.clone()));
                        }
                        continue;
                    }
                    Action::Poll(round) => {
                        let PartyId::User(user) = party else { panic!("only users ask") };
                        let event = AggregatorEvent::Poll { user, round };
                        done.push((PartyId::Aggregator, aggregator.step(event, NOW, &mut nonces).unwrap()));
                        continue;
                    }
                    Action::Notify(Notice::Train { round, .. }) => {
                        let PartyId::User(id) = party else { panic!("only users train") };
                        let event = UserEvent::Update { round, update: update(id.get()) };
                        let actions = users.get_mut(&id).unwrap().step(event, NOW, &mut rng).unwrap();
                        done.push((party, actions));
                        continue;
                    }
                    Action::Notify(Notice::Opened { sum, .. }) => {
                        let event =
                            AggregatorEvent::NewModel { round: sum.round(), model: NEXT_MODEL.to_vec() };
                        done.push((party, aggregator.step(event, NOW, &mut nonces).unwrap()));
                        continue;
                    }
                    Action::Notify(Notice::Apply { sum }) => {
                        let PartyId::User(id) = party else { panic!("only users apply sums") };
                        let event = UserEvent::Applied { round: sum.round(), model: NEXT_MODEL.to_vec() };
                        let actions = users.get_mut(&id).unwrap().step(event, NOW, &mut rng).unwrap();
                        t.sums.push((id, sum));
                        done.push((party, actions));
                        continue;
                    }
                    // the key generator opens sums on the next tick
                    Action::Wake(NOW) if party == PartyId::KeyGenerator => {
                        done.push((party, generator.step(KeyGeneratorEvent::Tick, NOW, &mut rng).unwrap()));
                        continue;
                    }
                    _ => continue,
                }
                t.logs.entry(party).or_default().push(logs[&party].clone());
            }
        }
        if !done.is_empty() {
            continue;
        }
        let Some((to, message)) = queue.pop_front() else {
            // every user has checked the same sum
            assert!(t.sums.len() == ids.len() && t.sums.iter().all(|(_, sum)| *sum == t.sums[0].1));
            return t;
        };
        let actions = match to {
            PartyId::Aggregator => aggregator.step(AggregatorEvent::Message(message), NOW, &mut nonces),
            PartyId::KeyGenerator => {
                t.before.push((logs[&to].clone(), message.clone()));
                generator.step(KeyGeneratorEvent::Message(message), NOW, &mut rng)
            }
            PartyId::User(id) => {
                let user = users.get_mut(&id).unwrap();
                if message[5] == 2 {
                    let event = UserEvent::Begin { ticket: message, model: MODEL.to_vec() };
                    user.step(event, NOW, &mut rng)
                } else {
                    user.step(UserEvent::Message(message), NOW, &mut rng)
                }
            }
        };
        // after a publish message, the round is over when the close message arrives
        match actions {
            Ok(actions) => done.push((to, actions)),
            Err(Error::Stale { .. }) => {}
            Err(error) => panic!("{to:?}: {error}"),
        }
    }
}
