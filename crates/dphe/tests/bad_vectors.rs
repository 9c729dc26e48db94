//! Replays `vectors/messages.json`, and checks that every input of `vectors/bad.json` is refused with the code that it
//! names and leaves the party unchanged.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/json.rs"]
mod json;

use std::collections::BTreeMap;

use chacha20::ChaCha20Rng;
use dphe::party::log::Log;
use dphe::party::{
    Action, AggregatorEvent, AggregatorParty, KeyGeneratorEvent, KeyGeneratorParty, Party as _, PartyContext,
    Time, UserEvent, UserParty,
};
use dphe::wire::RosterChange;
use dphe::{
    AggregatorKeys, Digest, Error, IdentityKey, KeyGenerator, NoiseMode, PartyId, Roster, Round,
    SparseVector, Threads, Update, UserId, UserKeys, hazmat,
};
use ed25519_dalek::{Signer, SigningKey};
use json::{array, floats, hex, list, load, number};
use rand_core::SeedableRng;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

const NOW: Time = Time(1_000);

/// A task of messages.json.
struct Task<'a> {
    json: &'a Value,
    roster: Roster,
    messages: BTreeMap<&'a str, Vec<u8>>,
}

impl<'a> Task<'a> {
    fn new(json: &'a Value) -> Self {
        let named =
            |list: &'a Vec<Value>| list.iter().map(|m| (m["name"].as_str().unwrap(), hex(&m["message"])));
        Self {
            json,
            roster: Roster::decode_with(&hex(&json["roster"]), hazmat::short_keys()).unwrap(),
            messages: named(list(json, "messages")).chain(named(list(json, "others"))).collect(),
        }
    }

    fn keys(&self) -> KeyGenerator {
        let key = &self.json["key"];
        let mode = if key["noise"] == "fast" { NoiseMode::Fast } else { NoiseMode::Secure };
        let secret = dphe_paillier::hazmat::decryption_key(&hex(&key["p"]), &hex(&key["q"]), mode).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut keys = KeyGenerator::with_key(self.roster.task().clone(), secret, &mut rng).unwrap();
        let seeds = list(self.json, "users").iter().map(|entry| {
            let user = UserId::new(number(&entry["user"])).unwrap();
            (user, array(&entry["user_aggregator_seed"]), array(&entry["mask_seed"]))
        });
        hazmat::set_seeds(&mut keys, array(&self.json["user_shared_seed"]), seeds);
        keys
    }

    fn user(&self, user: u32) -> &'a Value {
        list(self.json, "users").iter().find(|entry| number::<u32>(&entry["user"]) == user).unwrap()
    }

    fn party(&self, vector: &Value) -> Running<'_> {
        let identity = |seed: &Value| IdentityKey::from_seed(&array(seed));
        let context = |identity: IdentityKey| PartyContext {
            identity: identity.into(),
            rosters: self.roster.clone().into(),
            log: &[],
            threads: Threads::ONE,
        };
        let mut keys = self.keys();
        let kind = match vector["party"].as_str().unwrap() {
            "aggregator" => {
                let identity = identity(&self.json["aggregator_seed"]);
                let keys = keys.aggregator_keys();
                Kind::Aggregator(AggregatorParty::start(keys, context(identity), NOW).unwrap().0)
            }
            "key_generator" => {
                let identity = identity(&self.json["key_generator_seed"]);
                Kind::KeyGenerator(KeyGeneratorParty::start(keys, context(identity), NOW).unwrap().0)
            }
            _ => {
                let number: u32 = number(&vector["user"]);
                let identity = identity(&self.user(number)["identity_seed"]);
                let keys = keys.enroll(UserId::new(number).unwrap(), &mut ChaCha20Rng::seed_from_u64(1));
                let party = UserParty::start(keys, context(identity), NOW).unwrap().0;
                Kind::User(party, number)
            }
        };
        Running { task: self, kind, rng: ChaCha20Rng::seed_from_u64(3), sent: Vec::new(), now: NOW }
    }
}

/// A party and what it has sent.
struct Running<'a> {
    task: &'a Task<'a>,
    kind: Kind,
    rng: ChaCha20Rng,
    sent: Vec<Vec<u8>>,
    now: Time,
}

#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Kind {
    Aggregator(AggregatorParty),
    KeyGenerator(KeyGeneratorParty),
    User(UserParty, u32),
}

impl Running<'_> {
    /// Lets an earlier event happen, which must be accepted.
    fn given(&mut self, name: &str) {
        let json = self.task.json;
        let now = self.now;
        let actions = match (&mut self.kind, name) {
            (Kind::Aggregator(party), "start") => {
                let model = Digest::of_model(&hex(&json["model"]));
                let deadline = json["deadline"].as_u64().unwrap();
                let mut nonce = Constant(array(&json["nonce"]));
                party.step(AggregatorEvent::Start { model, deadline }, NOW, &mut nonce)
            }
            (Kind::Aggregator(party), "deadline") => {
                party.step(AggregatorEvent::Tick, Time(u64::MAX), &mut self.rng)
            }
            (Kind::Aggregator(party), "poll") => party.step(
                AggregatorEvent::Poll { user: UserId::new(1).unwrap(), round: Round::FIRST },
                NOW,
                &mut self.rng,
            ),
            (Kind::Aggregator(party), "model") => party.step(
                AggregatorEvent::NewModel { round: Round::FIRST, model: hex(&json["new_model"]) },
                NOW,
                &mut self.rng,
            ),
            (Kind::KeyGenerator(_), "wait") => {
                self.now = Time(now.0 + self.task.roster.task().config().collect_min as u64);
                Ok(Vec::new())
            }
            (Kind::User(party, _), "model") => {
                let (round, model) = (Round::FIRST, hex(&json["new_model"]));
                party.step(UserEvent::Applied { round, model }, now, &mut self.rng)
            }
            (Kind::User(party, number), "update") => {
                let entry = self.task.user(*number);
                let weights = SparseVector::from_dense(&floats(&entry["weights_bits"])).unwrap();
                let update = Update::new(weights).with_dense(floats(&entry["dense_bits"]));
                party.step(UserEvent::Update { round: Round::FIRST, update }, NOW, &mut self.rng)
            }
            (Kind::User(party, _), "ack_own") => {
                // the header of an upload ends with the hash of the body
                let upload = self.sent.iter().rfind(|message| message[5] == 3).unwrap();
                let end = 35 + 32 + 32 + 4 + 16 + 32;
                let header =
                    [&upload[..5], &[4], &upload[6..30], &[1, 0, 0, 0, 0], &upload[end - 32..end]].concat();
                let ack = signed("upload-ack", &header, &array(&json["aggregator_seed"]));
                party.step(UserEvent::Message(ack), NOW, &mut self.rng)
            }
            _ => {
                let message = self.task.messages[name].clone();
                self.take(message, Some(hex(&json["model"])))
            }
        };
        let actions = actions.unwrap_or_else(|error| panic!("{name} was refused: {error}"));
        self.sent.extend(actions.into_iter().filter_map(|action| match action {
            Action::Send { message, .. } | Action::Announce(message) => Some(message),
            _ => None,
        }));
        if let Kind::KeyGenerator(party) = &mut self.kind {
            let actions = party.step(KeyGeneratorEvent::Tick, self.now, &mut self.rng).unwrap();
            self.sent.extend(actions.into_iter().filter_map(|action| match action {
                Action::Send { message, .. } | Action::Announce(message) => Some(message),
                _ => None,
            }));
        }
    }

    fn take(&mut self, message: Vec<u8>, model: Option<Vec<u8>>) -> Result<Vec<Action>, Error> {
        match &mut self.kind {
            Kind::Aggregator(party) => party.step(AggregatorEvent::Message(message), NOW, &mut self.rng),
            Kind::KeyGenerator(party) => {
                party.step(KeyGeneratorEvent::Message(message), self.now, &mut self.rng)
            }
            Kind::User(party, _) => {
                // a ticket is handed over with its model
                let event = match model {
                    Some(model) if message.get(5).is_none_or(|&kind| kind == 2) => {
                        UserEvent::Begin { ticket: message, model }
                    }
                    _ => UserEvent::Message(message),
                };
                party.step(event, NOW, &mut self.rng)
            }
        }
    }

    /// The whole state as text.
    fn state(&self) -> String {
        match &self.kind {
            Kind::Aggregator(party) => format!("{party:?}"),
            Kind::KeyGenerator(party) => format!("{party:?}"),
            Kind::User(party, _) => format!("{party:?}"),
        }
    }
}

fn hash(domain: &str, part: &[u8]) -> [u8; 32] {
    let mut sha = Sha256::new();
    for part in [domain.as_bytes(), part] {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    sha.finalize().into()
}

fn signed(name: &str, header: &[u8], seed: &[u8; 32]) -> Vec<u8> {
    let signature = SigningKey::from_bytes(seed).sign(&hash(&format!("dphe/v2/{name}"), header));
    [header, &signature.to_bytes()].concat()
}

/// The parties write the same messages as the reference, except for those that contain randomness.
#[test]
fn transcripts_match_the_vectors() {
    let all = load("messages.json");
    for json in list(&all, "tasks") {
        let task = Task::new(json);
        let message = |name: &str| task.messages[name].clone();
        let mut aggregator = task.party(&serde_json::json!({ "party": "aggregator" }));
        let expect = |running: &mut Running<'_>, event: &str, names: &[&str]| {
            let before = running.sent.len();
            running.given(event);
            for name in names {
                assert!(running.sent[before..].contains(&message(name)), "{event} does not lead to {name}");
            }
        };
        expect(&mut aggregator, "start", &["round_open"]);
        expect(&mut aggregator, "ticket", &["ticket"]);
        expect(&mut aggregator, "upload_1", &["ack_1"]);
        expect(&mut aggregator, "upload_2", &["ack_2"]);
        expect(&mut aggregator, "upload_9", &["ack_9"]);
        expect(&mut aggregator, "deadline", &["freeze"]);
        expect(&mut aggregator, "freeze_ack", &["decrypt"]);
        expect(&mut aggregator, "result", &[]);
        expect(&mut aggregator, "model", &["close"]);
        expect(&mut aggregator, "poll", &["publish", "close"]);
        let mut key_generator = task.party(&serde_json::json!({ "party": "key_generator" }));
        expect(&mut key_generator, "round_open", &["ticket"]);
        expect(&mut key_generator, "wait", &[]);
        expect(&mut key_generator, "freeze", &[]);
        expect(&mut key_generator, "decrypt", &[]);
        // header and log differ from those of the reference, but the payload must not
        let (ours, theirs) = (key_generator.sent.last().unwrap(), message("result"));
        let body = 35 + 32 + 1 + 4 + 32 + 32 + 8 + 32 + 64;
        assert_eq!(ours[body..], theirs[body..]);
        expect(&mut key_generator, "close", &[]);
        for user in [1, 2, 9, 5] {
            let mut party = task.party(&serde_json::json!({ "party": "user", "user": user }));
            expect(&mut party, "ticket", &[]);
            if user == 5 {
                expect(&mut party, "publish", &[]);
                expect(&mut party, "model", &[]);
                let Kind::User(party, _) = &party.kind else { panic!("it is a user") };
                assert_eq!(party.round(), Round::FIRST.next());
                assert_eq!(party.model().unwrap(), Digest::of_model(&hex(&json["new_model"])));
            } else {
                expect(&mut party, "update", &[]);
                expect(&mut party, "ack_own", &[]);
            }
        }
    }
}

#[test]
fn bad_inputs_are_refused_with_their_code_and_change_nothing() {
    let (messages, bad) = (load("messages.json"), load("bad.json"));
    let tasks: BTreeMap<&str, Task<'_>> = list(&messages, "tasks")
        .iter()
        .map(|json| (json["name"].as_str().unwrap(), Task::new(json)))
        .collect();
    let vectors = list(&bad, "vectors");
    let mut wrong = Vec::new();
    for vector in vectors {
        let task = &tasks[vector["task"].as_str().unwrap()];
        let found = match vector["party"].as_str().unwrap() {
            "log" => recover(task, vector),
            "key" => read_key(vector),
            "kit" => read_kit(task, vector),
            "roster" => {
                Roster::decode_with(&hex(&vector["input"]), hazmat::short_keys()).map(|_| "ok".into())
            }
            "roster_change" => {
                let bytes = vector.get("previous").map(hex).unwrap_or_else(|| hex(&task.json["roster"]));
                let previous = Roster::decode_with(&bytes, hazmat::short_keys()).unwrap();
                RosterChange::decode_with(&hex(&vector["input"]), &previous, hazmat::short_keys())
                    .map(|_| "ok".into())
            }
            _ => step(task, vector),
        };
        let (found, expected) =
            (found.unwrap_or_else(|error| error.code().as_str().into()), &vector["expected"]);
        if &found != expected {
            wrong.push(format!(
                "{}: expected {expected}, found {found} ({})",
                vector["id"], vector["comment"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), vectors.len(), wrong.join("\n"));
    println!("{} bad vectors", vectors.len());
}

/// The outcome of one vector.
type Outcome = Result<String, Error>;

fn step(task: &Task<'_>, vector: &Value) -> Outcome {
    let mut running = task.party(vector);
    for name in vector["given"].as_array().unwrap() {
        running.given(name.as_str().unwrap());
    }
    let before = running.state();
    let result = if vector["party"] == "weights" {
        weights(&mut running, vector)
    } else if vector["party"] == "model" {
        let Kind::User(party, _) = &mut running.kind else { panic!("the model is a user's") };
        let event = UserEvent::Applied { round: party.round(), model: hex(&vector["input"]) };
        party.step(event, NOW, &mut running.rng)
    } else {
        let mut input = hex(&vector["input"]);
        if let Some(offset) = vector["rebind"]["offset"].as_u64() {
            // the ticket that this key generator issued in its second round
            let ticket = running.sent.iter().rfind(|message| message[5] == 2).unwrap();
            let hash = hash("dphe/v2/round-ticket", &ticket[..ticket.len() - 64]);
            let end = input.len() - 64;
            input[offset as usize..][..32].copy_from_slice(&hash);
            input = signed("freeze", &input[..end], &array(&task.json["aggregator_seed"]));
        }
        let model = vector.get("model").map(hex);
        running.take(input, model)
    };
    if result.is_err() {
        assert_eq!(running.state(), before, "{} changed something", vector["id"]);
    }
    result.map(|_| "ok".into())
}

fn weights(running: &mut Running<'_>, vector: &Value) -> Result<Vec<Action>, Error> {
    let weights = SparseVector::from_dense(&floats(&vector["input"]))?;
    let update = Update::new(weights).with_dense(floats(&vector["dense"]));
    let Kind::User(party, _) = &mut running.kind else { panic!("weights are a user's") };
    party.step(UserEvent::Update { round: Round::FIRST, update }, NOW, &mut running.rng)
}

fn recover(task: &Task<'_>, vector: &Value) -> Outcome {
    let party = match (number::<u8>(&vector["role"]), number::<u32>(&vector["user"])) {
        (1, _) => PartyId::Aggregator,
        (2, _) => PartyId::KeyGenerator,
        (_, user) => PartyId::User(UserId::new(user).unwrap()),
    };
    assert_eq!(Log::new(party, &task.roster).prefix(), hex(&vector["prefix"]));
    let log = hex(&vector["input"]);
    let recovered = Log::recover(party, &task.roster, &log)?;
    assert_eq!(recovered.records.len(), number::<usize>(&vector["records"]), "{}", vector["id"]);
    assert_eq!(recovered.checkpoint.is_some(), vector["checkpoint"].as_bool().unwrap(), "{}", vector["id"]);
    assert_eq!(recovered.valid, number::<usize>(&vector["length"]), "{}", vector["id"]);
    Ok("ok".into())
}

fn read_key(vector: &Value) -> Outcome {
    let mode = if vector["noise"] == "fast" { NoiseMode::Fast } else { NoiseMode::Secure };
    let n = hex(&vector["input"]);
    let bits: u32 = number(&vector["bits"]);
    let key = if bits < 2048 {
        dphe_paillier::hazmat::encryption_key(&n, mode)
    } else {
        dphe_paillier::EncryptionKey::from_modulus(&n, mode)
    };
    // a key of another length than the policy's does not belong to the task either
    let key = key.and_then(|key| {
        if key.bits().get() == bits { Ok(key) } else { Err(dphe_paillier::Error::KeySize { bits }) }
    });
    key.map(|_| "ok".into()).map_err(Error::Key)
}

fn read_kit(task: &Task<'_>, vector: &Value) -> Outcome {
    let (bytes, lengths) = (hex(&vector["input"]), hazmat::short_keys());
    let written = match number::<u8>(&vector["kind"]) {
        1 => IdentityKey::from_secret_bytes(&bytes)?.to_secret_bytes(),
        2 => {
            let key = task.keys().into_key();
            KeyGenerator::from_secret_bytes_with(&bytes, key, lengths)?.to_secret_bytes()
        }
        3 => AggregatorKeys::from_secret_bytes_with(&bytes, lengths)?.to_secret_bytes(),
        _ => UserKeys::from_secret_bytes_with(&bytes, lengths)?.to_secret_bytes(),
    };
    assert_eq!(*written, bytes, "{}", vector["id"]);
    Ok("ok".into())
}

/// A random generator that repeats these bytes.
struct Constant([u8; 16]);

impl rand_core::TryRng for Constant {
    type Error = core::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(u32::from_be_bytes([self.0[0], self.0[1], self.0[2], self.0[3]]))
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        self.try_next_u32().map(u64::from)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        bytes.iter_mut().zip(self.0.iter().cycle()).for_each(|(byte, &value)| *byte = value);
        Ok(())
    }
}

impl rand_core::TryCryptoRng for Constant {}
