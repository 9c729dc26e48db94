//! The rules of the parties against a dishonest aggregator, measured with the real state machines: sets of participants
//! that isolate a user, and publications that do not follow from the sum.

use std::collections::BTreeMap;

use chacha20::ChaCha20Rng;
use dphe::party::{
    Action, AggregatorEvent, AggregatorParty, KeyGeneratorEvent, KeyGeneratorParty, Notice, Party as _,
    PartyContext, Time, UserEvent, UserParty,
};
use dphe::wire::{Publish, RosterPlan, Signed};
use dphe::{
    Digest, IdentityKey, KeyGenerator, NoiseMode, PartyId, Profile, Receipts, Roster, SparseVector,
    TaskConfig, TaskId, Threads, Update, UserId, hazmat,
};
use dphe_learn::Seed;
use dphe_paillier::{EncryptionKey, Plaintext, ResidueSum};
use rand_core::{Rng as _, SeedableRng as _};

use crate::{Error, Measurement};

const USERS: u32 = 5;
const DIMENSION: u32 = 24;
const NOW: Time = Time(0);
const MODEL: &[u8] = b"the model that rounds start from";
const NEXT_MODEL: &[u8] = b"the model that follows from the sum";

/// The parties of a small task with an insecure key. No message is lost.
struct World {
    roster: Roster,
    key: EncryptionKey,
    /// The seed of the aggregator's identity key.
    aggregator_seed: [u8; 32],
    key_generator: KeyGeneratorParty,
    aggregator: AggregatorParty,
    users: BTreeMap<UserId, UserParty>,
    /// What the aggregator wants to send to the key generator.
    outbox: Vec<Vec<u8>>,
    /// The ticket of the round.
    ticket: Vec<u8>,
    rng: ChaCha20Rng,
}

/// Tries the sets {1, 2, 3}, {3, 4, 5} and {1, 2, 4, 5} on one model, and publications that were changed. Each
/// measurement is 1 for something that was refused.
pub(super) fn measure(receipts: Receipts, seed: &Seed) -> Result<Measurement, Error> {
    let mut measurement = Measurement::new();
    let mut put = |name: &str, refused: bool| {
        measurement.insert(format!("{name}_refused"), f64::from(u8::from(refused)));
    };
    let mut world = World::new(receipts, &seed.derive("parties", 0))?;
    let mut refused = Vec::new();
    for set in [&[1, 2, 3][..], &[3, 4, 5], &[1, 2, 4, 5]] {
        refused.push(!world.open(set)?);
        world.give_up()?;
    }
    put("first_set", refused[0]);
    put("second_set", refused[1]);
    put("third_set", refused[2]);

    let mut world = World::new(receipts, &seed.derive("parties", 1))?;
    world.open(&[1, 2, 3])?;
    let round = world.aggregator.round();
    world.aggregator(AggregatorEvent::NewModel { round, model: NEXT_MODEL.to_vec() })?;
    put("doubled_sum", world.user_refuses(1, true, NEXT_MODEL)?);
    // the user computes another model than the one that was published
    put("other_model", world.user_refuses(2, false, MODEL)?);
    put("honest_publication", world.user_refuses(3, false, NEXT_MODEL)?);
    Ok(measurement)
}

impl World {
    fn new(receipts: Receipts, seed: &Seed) -> Result<Self, Error> {
        let mut rng = ChaCha20Rng::from_seed(seed.to_bytes());
        let proposed = TaskConfig::new(Profile::Full, 1, DIMENSION, 8);
        let config = TaskConfig {
            noise: NoiseMode::Fast,
            receipts,
            key_bits: 256,
            block: 1,
            capacity: DIMENSION,
            max_model_bytes: 1000,
            ..proposed
        };
        let task = hazmat::task_params(TaskId::from_bytes([9; 16]), config)?;
        let mut keys = KeyGenerator::new(task.clone(), &mut rng, Threads::ONE)?;
        let ids: Vec<UserId> = (1..=USERS).filter_map(UserId::new).collect();
        let user_keys: Vec<_> = ids.iter().map(|&id| (id, keys.enroll(id, &mut rng))).collect();
        let mut draw = || {
            let mut seed = [0; 32];
            rng.fill_bytes(&mut seed);
            seed
        };
        let aggregator_seed = draw();
        let (own, aggregator) = (IdentityKey::from_seed(&draw()), IdentityKey::from_seed(&aggregator_seed));
        let identities: Vec<_> = ids.iter().map(|&id| (id, IdentityKey::from_seed(&draw()))).collect();
        let key = keys.encryption_key().clone();
        let plan = RosterPlan {
            task,
            key: &key,
            initial_model: Digest::of_model(MODEL),
            task_file: Digest::ZERO,
            aggregator: aggregator.identity(),
            agreement: aggregator.agreement_key().public(),
            users: identities.iter().map(|(id, key)| (*id, key.identity())).collect(),
        };
        let roster = Roster::new(plan, &own)?;
        let context = |identity: IdentityKey| PartyContext {
            identity: identity.into(),
            rosters: roster.clone().into(),
            log: &[],
            threads: Threads::ONE,
        };
        let aggregator_keys = keys.aggregator_keys();
        let mut users = BTreeMap::new();
        for ((id, keys), (_, identity)) in user_keys.into_iter().zip(identities) {
            users.insert(id, UserParty::start(keys, context(identity), NOW)?.0);
        }
        Ok(Self {
            aggregator: AggregatorParty::start(aggregator_keys, context(aggregator), NOW)?.0,
            key_generator: KeyGeneratorParty::start(keys, context(own), NOW)?.0,
            users,
            outbox: Vec::new(),
            ticket: Vec::new(),
            roster,
            key,
            aggregator_seed,
            rng,
        })
    }

    /// Lets the aggregator take a step. Keeps what it sends to the key generator, and returns the rest.
    fn aggregator(&mut self, event: AggregatorEvent) -> Result<Vec<Action>, Error> {
        let mut rest = Vec::new();
        for action in self.aggregator.step(event, NOW, &mut self.rng)? {
            match action {
                Action::Send { to: PartyId::KeyGenerator, message } => self.outbox.push(message),
                other => rest.push(other),
            }
        }
        Ok(rest)
    }

    /// Hands everything that the aggregator has sent to the key generator, and the answers to the aggregator, until
    /// nothing is left. Returns false if the key generator refuses the set of users.
    fn exchange(&mut self) -> Result<bool, Error> {
        while !self.outbox.is_empty() {
            let message = self.outbox.remove(0);
            let mut actions =
                match self.key_generator.step(KeyGeneratorEvent::Message(message), NOW, &mut self.rng) {
                    Err(dphe::Error::SetDifference) => return Ok(false),
                    actions => actions?,
                };
            if actions.iter().any(|action| matches!(action, Action::Wake(_))) {
                actions.extend(self.key_generator.step(KeyGeneratorEvent::Tick, NOW, &mut self.rng)?);
            }
            for answer in sent(actions) {
                for action in self.aggregator(AggregatorEvent::Message(answer))? {
                    if let Action::Announce(ticket) = action {
                        self.ticket = ticket;
                    }
                }
            }
        }
        Ok(true)
    }

    /// Runs a round of these users up to the opened sum. Returns whether the key generator opened it.
    fn open(&mut self, set: &[u32]) -> Result<bool, Error> {
        let start = AggregatorEvent::Start { model: Digest::of_model(MODEL), deadline: 1000 };
        self.aggregator(start)?;
        self.exchange()?;
        let round = self.aggregator.round();
        for id in set.iter().copied().filter_map(UserId::new) {
            self.user(id, UserEvent::Begin { ticket: self.ticket.clone(), model: MODEL.to_vec() })?;
            let weights = vec![f64::from(id.get()) / 8.0; DIMENSION as usize];
            let update = Update::new(SparseVector::from_dense(&weights)?);
            for upload in sent(self.user(id, UserEvent::Update { round, update })?) {
                for ack in sent(self.aggregator(AggregatorEvent::Message(upload))?) {
                    self.user(id, UserEvent::Message(ack))?;
                }
            }
        }
        if self.outbox.is_empty() {
            self.aggregator(AggregatorEvent::Freeze)?;
        }
        self.exchange()
    }

    /// Ends the round without a publication, so that the next one starts from the same model. All users are told.
    fn give_up(&mut self) -> Result<(), Error> {
        let round = self.aggregator.round();
        if self.aggregator(AggregatorEvent::Reject { round }).is_err() {
            self.outbox.clear();
            self.aggregator(AggregatorEvent::Abort)?;
        }
        self.exchange()?;
        for id in self.users.keys().copied().collect::<Vec<_>>() {
            for message in self.poll(id)? {
                self.user(id, UserEvent::Message(message))?;
            }
        }
        Ok(())
    }

    /// Tells a user of the published round, with the sum doubled if so asked. The user computes this model. Returns
    /// whether the user refuses the publication.
    fn user_refuses(&mut self, number: u32, doubled: bool, model: &[u8]) -> Result<bool, Error> {
        let Some(id) = UserId::new(number) else { return Ok(false) };
        for message in self.poll(id)? {
            let message = if doubled { self.doubled(message)? } else { message };
            let actions = match self.user(id, UserEvent::Message(message)) {
                Err(Error::Protocol(dphe::Error::Check | dphe::Error::Proof)) => return Ok(true),
                actions => actions?,
            };
            for action in actions {
                let Action::Notify(Notice::Apply { sum }) = action else { continue };
                let applied = UserEvent::Applied { round: sum.round(), model: model.to_vec() };
                return match self.user(id, applied) {
                    Err(Error::Protocol(dphe::Error::Model)) => Ok(true),
                    other => other.map(|_| false),
                };
            }
        }
        Ok(false)
    }

    /// Doubles the sum of a publish message, and signs it again as the aggregator. Other messages stay as they are.
    fn doubled(&self, message: Vec<u8>) -> Result<Vec<u8>, Error> {
        let Ok(publish) = Signed::<Publish>::decode(&message, &self.roster) else { return Ok(message) };
        let body = match self.roster.task().receipts() {
            Receipts::Masked => self.doubled_residues(publish.body())?,
            Receipts::None | Receipts::Checked => doubled_numbers(publish.body()),
        };
        let key = IdentityKey::from_seed(&self.aggregator_seed);
        Ok(hazmat::republish(&key, &self.roster, &publish, body).to_bytes())
    }

    fn doubled_residues(&self, residues: &[u8]) -> Result<Vec<u8>, Error> {
        let mut doubled = Vec::with_capacity(residues.len());
        for residue in residues.chunks_exact(self.key.modulus_bytes()) {
            let mut sum = ResidueSum::new(&self.key);
            sum.add_product(2, &Plaintext::from_residue_bytes(&self.key, residue)?)?;
            doubled.extend_from_slice(&sum.reduce().to_residue_bytes());
        }
        Ok(doubled)
    }

    fn user(&mut self, id: UserId, event: UserEvent) -> Result<Vec<Action>, Error> {
        let user = self.users.get_mut(&id).ok_or(dphe::Error::UnknownUser(id))?;
        Ok(user.step(event, NOW, &mut self.rng)?)
    }

    /// The messages with which the aggregator answers a user who asks about its round.
    fn poll(&mut self, id: UserId) -> Result<Vec<Vec<u8>>, Error> {
        let round = self.users.get(&id).ok_or(dphe::Error::UnknownUser(id))?.round();
        Ok(sent(self.aggregator(AggregatorEvent::Poll { user: id, round })?))
    }
}

/// The messages of actions.
fn sent(actions: Vec<Action>) -> Vec<Vec<u8>> {
    let message = |action| match action {
        Action::Send { message, .. } | Action::Announce(message) => Some(message),
        _ => None,
    };
    actions.into_iter().filter_map(message).collect()
}

/// Doubles the numbers of a sum, which are positive here and have three big-endian bytes each.
fn doubled_numbers(numbers: &[u8]) -> Vec<u8> {
    let double = |number: &[u8; 3]| {
        let [a, b, c] = *number;
        let [_, a, b, c] = (2 * u32::from_be_bytes([0, a, b, c])).to_be_bytes();
        [a, b, c]
    };
    numbers.as_chunks().0.iter().flat_map(double).collect()
}
