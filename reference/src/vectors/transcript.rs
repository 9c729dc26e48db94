//! One round of a task from beginning to end, as bytes. `messages.json` lists it and `bad.json` changes it.

use ed25519_dalek::SigningKey;

use super::keys;
use super::rounds::{User, base_policy, encoded};
use crate::algorithm1::Key;
use crate::rng::Rng;
use crate::wire::derive::{Digest, Task, rotation, support_digest, user_aggregator, user_shared};
use crate::wire::log;
use crate::wire::message::{Fields, Message, Sender, Type, body_hash, model_digest, payload_hash};
use crate::wire::seal::{
    Permutations, Sealed, deal, open, payload, seal_private, seal_public, sum, sum_hash,
};
use crate::wire::task::{Policy, Profile, Roster, key_id};

/// All enrolled users.
pub const USERS: [u32; 4] = [1, 2, 5, 9];
/// The users whose uploads are in the sum.
pub const UPLOADERS: [u32; 3] = [1, 2, 9];

/// A message with the name that `given` lists use.
pub struct Named {
    /// The name.
    pub name: String,
    /// The recipient.
    pub to: &'static str,
    /// The purpose.
    pub comment: &'static str,
    /// The message.
    pub message: Message,
}

/// A task, its parties, and a round.
pub struct Transcript {
    /// The profile's name.
    pub name: &'static str,
    /// The roster, with the identities.
    pub roster: Roster,
    /// The key pair.
    pub key: Key,
    /// The seed that users and G share in round 1.
    pub seed: Digest,
    /// All users, with their weights.
    pub users: Vec<User>,
    /// The model of round 1.
    pub model: Vec<u8>,
    /// The model that is published.
    pub new_model: Vec<u8>,
    /// The deadline in the round-open.
    pub deadline: u64,
    /// The nonce in the round-open.
    pub nonce: [u8; 16],
    /// The messages of the round, in order.
    pub messages: Vec<Named>,
    /// Valid messages that are not part of the round.
    pub others: Vec<Named>,
}

/// The smallest tasks that cover blocks, two shards, dense values and a rotating support.
fn policy(profile: Profile) -> Policy {
    let base = Policy { max_attempts: 2, max_model_bytes: 64, ..base_policy(profile, 256) };
    if profile == Profile::Sparse {
        Policy { dimension: 22, block: 2, capacity: 2, shards: 2, dense: 2, ..base }
    } else {
        Policy { dimension: 40, capacity: 20, dense: 3, min_percent: 75, ..base }
    }
}

impl Transcript {
    /// Makes the transcript of a task with this profile.
    pub fn new(profile: Profile) -> Self {
        let policy = policy(profile);
        assert!(policy.is_valid());
        let mut rng = Rng::new(&format!("messages/{}", profile.name()));
        let key = keys::toy_key(policy.key_bits);
        let mut identity = || SigningKey::from_bytes(&rng.digest());
        let (aggregator, key_generator) = (identity(), identity());
        let identities = USERS.map(|user| (user, identity())).to_vec();
        let (task, seed) = (rng.id(), rng.digest());
        let roster = Roster {
            task,
            epoch: 1,
            key_id: key_id(&key),
            aggregator,
            key_generator,
            users: identities,
            policy,
        };
        let mut transcript = Self {
            name: profile.name(),
            key,
            seed,
            users: vec![],
            model: b"model of round 1".to_vec(),
            new_model: b"the new model".to_vec(),
            deadline: 60_000,
            nonce: rng.id(),
            messages: vec![],
            others: vec![],
            roster,
        };
        for user in USERS {
            let weights = transcript.example_weights(&mut rng);
            let dense = (0..transcript.policy().dense).map(|i| f64::from(i) / 3.0 - 0.25).collect();
            transcript.users.push(User { user, seed: rng.digest(), weights, dense });
        }
        transcript.play(&mut rng);
        transcript
    }

    /// Returns the policy.
    pub fn policy(&self) -> &Policy {
        &self.roster.policy
    }

    /// Returns the task id.
    pub fn task(&self) -> &Task {
        &self.roster.task
    }

    /// Returns the public support of a round, if there is one.
    pub fn support(&self, round: u64) -> Option<Vec<u32>> {
        let policy = self.policy();
        let public = policy.profile == Profile::Full;
        public.then(|| rotation(self.task(), round, policy.positions(), policy.capacity))
    }

    /// Returns the identity of a sender.
    pub fn identity(&self, sender: Sender) -> &SigningKey {
        match sender {
            Sender::Aggregator => &self.roster.aggregator,
            Sender::KeyGenerator => &self.roster.key_generator,
            Sender::User(user) => {
                let found = self.roster.users.iter().find(|(id, _)| *id == user);
                &found.expect("only enrolled users sign").1
            }
        }
    }

    /// Makes a signed message of this task.
    pub fn message(&self, kind: Type, round: u64, sender: Sender, fields: Fields, body: &[u8]) -> Message {
        Message::new(kind, self.task(), round, sender, &fields.done(), body, self.identity(sender))
    }

    /// Returns the message of this name.
    pub fn get(&self, name: &str) -> &Message {
        let all = self.messages.iter().chain(&self.others);
        &all.into_iter().find(|named| named.name == name).expect("a name of the transcript").message
    }

    fn example_weights(&self, rng: &mut Rng) -> Vec<f64> {
        let policy = self.policy();
        let mut weights = vec![0.0; policy.dimension as usize];
        let positions = self.support(1).unwrap_or_else(|| (0..policy.positions()).collect());
        for b in rng.shuffled(positions).into_iter().take(3) {
            weights[(b * policy.block) as usize] = (rng.below(801) as f64 - 400.0) / 100.0 + 0.001;
        }
        weights
    }

    /// Seals a user's update of round 1 with its own randomness.
    pub fn seal(&self, user: u32, rng: &mut Rng) -> Sealed {
        let policy = self.policy();
        let user = self.users.iter().find(|known| known.user == user).expect("an enrolled user");
        let (weights, dense) = (encoded(policy, &user.weights), encoded(policy, &user.dense));
        if let Some(support) = self.support(1) {
            return seal_public(policy, &self.key, &support, &weights, &dense, rng);
        }
        let positions = policy.positions();
        let shared = user_shared(false, self.seed, self.task(), 1, positions);
        let own = user_aggregator(false, user.seed, self.task(), 1, user.user, positions);
        let shards = deal(policy, &weights, rng);
        let permutations = Permutations { shared: &shared, own: &own };
        seal_private(policy, &self.key, &permutations, &weights, &dense, &shards, rng)
    }

    /// Makes the upload message with this body.
    pub fn upload(&self, user: u32, count: u32, body: &[u8]) -> Message {
        let fields = Fields::new()
            .bytes(&self.get("ticket").hash())
            .bytes(&self.roster.key_id)
            .u32(count)
            .bytes(&body_hash(body));
        self.message(Type::Upload, 1, Sender::User(user), fields, body)
    }

    /// Returns the sum of the uploads of these users and its number of occupied positions.
    pub fn sum_of(&self, users: &[u32]) -> (Vec<u8>, u32) {
        let total = self.add_up(users);
        (total.bytes(self.policy(), &self.key), total.occupied())
    }

    fn add_up(&self, users: &[u32]) -> crate::wire::seal::Sum {
        let policy = self.policy();
        let uploads: Vec<(Vec<u32>, Vec<u8>)> = users
            .iter()
            .map(|&user| {
                let known = self.users.iter().find(|known| known.user == user).expect("an enrolled user");
                let own = user_aggregator(false, known.seed, self.task(), 1, user, policy.positions());
                (own, self.get(&format!("upload_{user}")).body.clone())
            })
            .collect();
        sum(policy, &self.key, self.support(1).as_deref(), &uploads)
    }

    /// Returns users with the hashes of their bodies.
    pub fn set(&self, users: &[u32]) -> Vec<(u32, Digest)> {
        let hash = |user: u32| {
            let enrolled = USERS.contains(&user);
            // an unknown user has sent nothing, so any hash will do
            if enrolled { body_hash(&self.get(&format!("upload_{user}")).body) } else { [7; 32] }
        };
        users.iter().map(|&user| (user, hash(user))).collect()
    }

    /// Makes a freeze of round 1.
    pub fn freeze(&self, attempt: u32, sum: &[u8], occupied: u32, users: &[u32]) -> Message {
        let fields = Fields::new()
            .bytes(&self.get("ticket").hash())
            .u32(attempt)
            .u8(0)
            .bytes(&sum_hash(sum))
            .u32(occupied)
            .users(&self.set(users));
        self.message(Type::Freeze, 1, Sender::Aggregator, fields, &[])
    }

    /// Makes the request for a frozen sum.
    pub fn decrypt(&self, freeze: &Message, sum: &[u8], occupied: u32) -> Message {
        let fields = Fields::new().bytes(&freeze.hash()).u32(occupied).bytes(&sum_hash(sum));
        self.message(Type::Decrypt, 1, Sender::Aggregator, fields, sum)
    }

    /// Makes a round-open message.
    pub fn round_open(&self, round: u64, model: &[u8], nonce: &[u8; 16]) -> Message {
        let support = self.support(round).unwrap_or_default();
        let fields = Fields::new()
            .bytes(&model_digest(model))
            .bytes(&self.policy().hash())
            .bytes(&self.roster.hash())
            .bytes(&support_digest(&support))
            .u64(self.deadline)
            .bytes(nonce);
        self.message(Type::RoundOpen, round, Sender::Aggregator, fields, &[])
    }

    /// Makes the ticket for a round-open message.
    pub fn ticket(&self, round: u64, open: &Message, model: &[u8], seq: u64, head: &Digest) -> Message {
        let support = self.support(round).unwrap_or_default();
        let fields = Fields::new()
            .bytes(&open.hash())
            .bytes(&model_digest(model))
            .bytes(&self.policy().hash())
            .bytes(&self.roster.hash())
            .bytes(&support_digest(&support))
            .u64(self.deadline)
            .u64(seq)
            .bytes(head);
        self.message(Type::RoundTicket, round, Sender::KeyGenerator, fields, &[])
    }

    /// Makes a publish message.
    pub fn publish(&self, result: &Message, model: &[u8], users: &[(u32, Digest)]) -> Message {
        let fields = Fields::new()
            .bytes(&result.without_body())
            .bytes(&model_digest(model))
            .u32(model.len() as u32)
            .users(users);
        self.message(Type::Publish, 1, Sender::Aggregator, fields, model)
    }

    fn play(&mut self, rng: &mut Rng) {
        let add = |list: &mut Vec<Named>, name: &str, to, comment, message| {
            list.push(Named { name: name.to_owned(), to, comment, message });
        };
        let open_message = self.round_open(1, &self.model, &self.nonce);
        let log_prefix = log::prefix(2, 0, self.task(), &self.roster.hash());
        let ticket = self.ticket(1, &open_message, &self.model, 0, &log::first_head(&log_prefix));
        add(&mut self.messages, "round_open", "key_generator", "", open_message);
        add(&mut self.messages, "ticket", "aggregator and users", "log of G: empty", ticket);
        for user in USERS {
            let sealed = self.seal(user, rng);
            let upload = self.upload(user, sealed.count(), &sealed.body);
            let hash = body_hash(&sealed.body);
            let ack = self.message(Type::UploadAck, 1, Sender::Aggregator, Fields::new().bytes(&hash), &[]);
            if UPLOADERS.contains(&user) {
                add(&mut self.messages, &format!("upload_{user}"), "aggregator", "", upload);
                add(&mut self.messages, &format!("ack_{user}"), "user", "", ack);
            } else {
                let comment = "from the user who does not take part: valid until the freeze";
                add(&mut self.others, &format!("upload_{user}"), "aggregator", comment, upload);
            }
        }

        let total = self.add_up(&UPLOADERS);
        let (sum, occupied) = self.sum_of(&UPLOADERS);
        let freeze = self.freeze(1, &sum, occupied, &UPLOADERS);
        let fields = Fields::new().bytes(&freeze.hash()).u32(1).u64(1).bytes(&rng.digest());
        let freeze_ack = self.message(Type::FreezeAck, 1, Sender::KeyGenerator, fields, &[]);
        let decrypt = self.decrypt(&freeze, &sum, occupied);
        let shared = user_shared(false, self.seed, self.task(), 1, self.policy().positions());
        let (weights, dense) = open(self.policy(), &self.key, &shared, self.support(1).as_deref(), &total)
            .expect("honest users stay in range");
        let payload = payload(self.policy(), &weights, &dense);
        let fields = Fields::new()
            .bytes(&decrypt.hash())
            .u8(1)
            .u32(UPLOADERS.len() as u32)
            .bytes(&payload_hash(&payload))
            .u64(3)
            .bytes(&rng.digest());
        let result = self.message(Type::Result, 1, Sender::KeyGenerator, fields, &payload);
        let publish = self.publish(&result, &self.new_model, &self.set(&UPLOADERS));
        let fields = Fields::new().u8(1).bytes(&publish.hash());
        let close = self.message(Type::Close, 1, Sender::Aggregator, fields, &[]);
        add(&mut self.messages, "freeze", "key_generator", "", freeze);
        add(&mut self.messages, "freeze_ack", "aggregator", "log of G: arbitrary, seq 1", freeze_ack);
        add(&mut self.messages, "decrypt", "key_generator", "", decrypt);
        add(&mut self.messages, "result", "aggregator", "log of G: arbitrary, seq 3", result);
        add(&mut self.messages, "publish", "users", "", publish);
        add(&mut self.messages, "close", "key_generator and users", "", close);

        let all = self.sum_of(&USERS);
        let freeze_all = self.freeze(1, &all.0, all.1, &USERS);
        let decrypt_all = self.decrypt(&freeze_all, &all.0, all.1);
        let freeze_2 = self.freeze(2, &all.0, all.1, &USERS);
        let open_2 = self.round_open(2, &self.model, &[2; 16]);
        let fields = Fields::new().u8(3).bytes(&[0; 32]);
        let aborted = self.message(Type::Close, 1, Sender::Aggregator, fields, &[]);
        add(&mut self.others, "close_aborted", "key_generator and users", "instead of a freeze", aborted);
        let again = "round 2 on the model of round 1";
        add(&mut self.others, "freeze_all", "key_generator", "instead of freeze: all four users", freeze_all);
        add(&mut self.others, "decrypt_all", "key_generator", "after freeze_all", decrypt_all);
        add(&mut self.others, "freeze_2", "key_generator", "second attempt, all four users", freeze_2);
        add(&mut self.others, "round_open_2", "key_generator", again, open_2);

        if self.policy().profile == Profile::Sparse {
            let wrong = self.freeze(1, &sum, occupied - 1, &UPLOADERS);
            let comment = "a freeze whose number of occupied positions is one too low; G cannot know yet";
            add(&mut self.others, "freeze_wrong_occupied", "key_generator", comment, wrong);
        }
        for (name, _, sum) in self.bad_sums() {
            let freeze = self.freeze(1, &sum, occupied, &UPLOADERS);
            let comment = "the freeze of a sum that contains what is no ciphertext; G cannot know yet";
            add(&mut self.others, &format!("freeze_{name}"), "key_generator", comment, freeze);
        }
    }

    /// Makes sums whose last ciphertext is invalid, with the error codes that G answers.
    pub fn bad_sums(&self) -> Vec<(String, &'static str, Vec<u8>)> {
        let (sum, _) = self.sum_of(&UPLOADERS);
        let at = sum.len() - self.policy().ciphertext_bytes();
        super::corners::ciphertexts(self.policy(), &self.key)
            .into_iter()
            // G does not check noise, so a sum may be any unit
            .filter(|corner| corner.expected != "ct_trivial")
            .map(|corner| {
                (format!("sum_{}", corner.name), corner.expected, [&sum[..at], &corner.bytes].concat())
            })
            .collect()
    }
}
