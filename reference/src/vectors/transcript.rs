//! One round of a task from beginning to end, as bytes. `messages.json` lists it and `bad.json` changes it.

use std::collections::BTreeMap;

use ed25519_dalek::SigningKey;
use num_bigint::{BigInt, BigUint};

use super::keys;
use super::rounds::{User, base_policy, encoded};
use crate::algorithm1::Key;
use crate::rng::Rng;
use crate::wire::derive::{Digest, Task, rotation, support_digest};
use crate::wire::hpke::{KeyPair, UPLOAD_INFO, seal as hpke_seal, upload_aad};
use crate::wire::log;
use crate::wire::mask::{Round, Salt, Secrets, residue_bytes};
use crate::wire::message::{
    Fields, Message, Participant, Sender, Type, body_hash, model_digest, payload_hash,
};
use crate::wire::participants::{Past, first_history, next_history, path, root};
use crate::wire::seal::{Opened, Sealed, Sum, open, seal, sum, sum_hash, unmask};
use crate::wire::task::{Policy, Profile, Receipts, Roster, key_id, task_file_hash};

/// All enrolled users.
pub const USERS: [u32; 4] = [1, 2, 5, 9];
/// The users whose uploads are in the sum.
pub const UPLOADERS: [u32; 3] = [1, 2, 9];
/// The bytes of the task file.
pub const TASK_FILE: &[u8] = b"the task file";

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
    /// The initial model, from which round 1 starts.
    pub model: Vec<u8>,
    /// The model that follows from round 1.
    pub new_model: Vec<u8>,
    /// The deadline in the round-open.
    pub deadline: u64,
    /// The nonce in the round-open.
    pub nonce: [u8; 16],
    /// The sealed updates of all users.
    pub sealed: BTreeMap<u32, Sealed>,
    /// With receipts `masked`, the residues of the published sum.
    pub residues: Vec<BigUint>,
    /// The messages of the round, in order.
    pub messages: Vec<Named>,
    /// Valid messages that are not part of the round.
    pub others: Vec<Named>,
}

/// The smallest tasks that cover blocks, two shards, dense values and a rotating support. In `paper`, G opens one sum.
fn policy(profile: Profile) -> Policy {
    let base = Policy { max_attempts: 2, max_model_bytes: 64, ..base_policy(profile, 256) };
    match profile {
        Profile::Sparse => Policy {
            receipts: Receipts::Checked,
            dimension: 22,
            block: 2,
            capacity: 2,
            shards: 2,
            dense: 2,
            max_failures: 1,
            ..base
        },
        Profile::Full => Policy {
            receipts: Receipts::Masked,
            dimension: 40,
            capacity: 20,
            dense: 3,
            min_percent: 75,
            outsize: 10,
            ..base
        },
        Profile::Paper => {
            Policy { dimension: 14, capacity: 4, shards: 3, dense: 2, rounds: 1, collect_min: 5000, ..base }
        }
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
        let model = b"model of round 1".to_vec();
        let roster = Roster {
            task,
            epoch: 1,
            key_id: key_id(&key),
            initial_model: model_digest(&model),
            task_file: task_file_hash(TASK_FILE),
            previous: [0; 32],
            first_round: 1,
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
            model,
            new_model: b"the new model".to_vec(),
            deadline: 60_000,
            nonce: rng.id(),
            sealed: BTreeMap::new(),
            residues: vec![],
            messages: vec![],
            others: vec![],
            roster,
        };
        for (user, occupied) in USERS.into_iter().zip([3, 6, 3, 9]) {
            // shards are full only in `paper`
            let occupied = if profile == Profile::Paper { occupied } else { 3 };
            let weights = transcript.example_weights(occupied, &mut rng);
            let dense = (0..transcript.policy().dense).map(|i| f64::from(i) / 3.0 - 0.25).collect();
            let (seed, mask_seed) = (rng.digest(), rng.digest());
            let secrets = Secrets { user, seed, mask_seed, salt: rng.id(), blind: rng.digest() };
            transcript.users.push(User { secrets, weights, dense });
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

    /// Returns round 1.
    pub fn round(&self) -> Round {
        Round { task: *self.task(), number: 1, ticket: self.get("ticket").hash(), seed: self.seed }
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

    /// Returns the secrets of a user.
    pub fn secrets(&self, user: u32) -> &Secrets {
        &self.user(user).secrets
    }

    fn user(&self, user: u32) -> &User {
        self.users.iter().find(|known| known.secrets.user == user).expect("an enrolled user")
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

    fn example_weights(&self, occupied: usize, rng: &mut Rng) -> Vec<f64> {
        let policy = self.policy();
        let mut weights = vec![0.0; policy.dimension as usize];
        let positions = self.support(1).unwrap_or_else(|| (0..policy.positions()).collect());
        for b in rng.shuffled(positions).into_iter().take(occupied) {
            weights[(b * policy.block) as usize] = (rng.below(801) as f64 - 400.0) / 100.0 + 0.001;
        }
        weights
    }

    /// Seals a user's update of round 1 with these secrets and this randomness.
    pub fn seal(&self, secrets: &Secrets, rng: &mut Rng) -> Sealed {
        let policy = self.policy();
        let user = self.user(secrets.user);
        let (weights, dense) = (encoded(policy, &user.weights), encoded(policy, &user.dense));
        seal(policy, &self.key, &self.round(), secrets, (&weights, &dense), rng)
    }

    /// Returns the key material of the ephemeral key of a user's upload.
    pub fn ephemeral_ikm(&self, user: u32) -> Digest {
        Rng::new(&format!("messages/{}/ephemeral/{user}", self.name)).digest()
    }

    /// Encrypts the content of an upload to A.
    pub fn encrypt(&self, user: u32, content: &[u8]) -> Vec<u8> {
        let aad = upload_aad(self.task(), 1, user, &self.get("ticket").hash());
        self.encrypt_with(user, &self.roster.agreement().public, UPLOAD_INFO, &aad, content)
    }

    /// Encrypts the content of an upload to any key, with any `info` and `aad`.
    pub fn encrypt_with(
        &self,
        user: u32,
        key: &[u8; 32],
        info: &[u8],
        aad: &[u8],
        content: &[u8],
    ) -> Vec<u8> {
        hpke_seal(key, &KeyPair::derive(&self.ephemeral_ikm(user)), info, aad, content)
    }

    /// Makes the upload message with this content.
    pub fn upload(&self, user: u32, count: u32, content: &[u8]) -> Message {
        self.upload_of(user, count, &self.secrets(user).salt, &self.encrypt(user, content))
    }

    /// Makes the upload message with this salt and body.
    pub fn upload_of(&self, user: u32, count: u32, salt: &Salt, body: &[u8]) -> Message {
        let fields = Fields::new()
            .bytes(&self.get("ticket").hash())
            .bytes(&self.roster.key_id)
            .u32(count)
            .bytes(salt)
            .bytes(&body_hash(body));
        self.message(Type::Upload, 1, Sender::User(user), fields, body)
    }

    /// Returns the sum of the uploads of these users and its number of occupied positions.
    pub fn sum_of(&self, users: &[u32]) -> (Vec<u8>, u32) {
        let total = self.add_up(users);
        (total.bytes(self.policy(), &self.key), total.occupied())
    }

    fn add_up(&self, users: &[u32]) -> Sum {
        let uploads: Vec<(&Secrets, &[u8])> =
            users.iter().map(|user| (self.secrets(*user), &self.sealed[user].content[..])).collect();
        sum(self.policy(), &self.key, &self.round(), &uploads)
    }

    /// Opens the sum of these users with their masks.
    fn open(&self, users: &[u32]) -> Opened {
        let secrets: Vec<&Secrets> = users.iter().map(|&user| self.secrets(user)).collect();
        open(self.policy(), &self.key, &self.round(), &secrets, &self.add_up(users))
            .expect("honest users pass the check")
    }

    /// Returns the residues that A publishes for these users, with receipts `masked`.
    pub fn residues_of(&self, users: &[u32]) -> Vec<BigUint> {
        let secrets: Vec<&Secrets> = users.iter().map(|&user| self.secrets(user)).collect();
        match self.open(users) {
            Opened::Residues(residues) => unmask(&self.key, &self.round(), &secrets, &residues),
            Opened::Sums(_) => vec![],
        }
    }

    /// Returns users as a freeze lists them.
    pub fn participants(&self, users: &[u32]) -> Vec<Participant> {
        let participant = |&user: &u32| {
            // an unknown user has sent nothing, so anything will do
            let unknown =
                Participant { user, count: 5, salt: [7; 16], body_hash: [7; 32], signature: vec![7; 64] };
            let Some(sealed) = self.sealed.get(&user) else { return unknown };
            let upload = self.get(&format!("upload_{user}"));
            Participant {
                count: sealed.count(),
                salt: self.secrets(user).salt,
                body_hash: body_hash(&upload.body),
                signature: upload.signature.clone(),
                ..unknown
            }
        };
        users.iter().map(participant).collect()
    }

    fn leaves(&self) -> Vec<Digest> {
        self.participants(&UPLOADERS).iter().map(Participant::leaf).collect()
    }

    /// Returns the users root of the round.
    pub fn users_root(&self) -> Digest {
        root(&self.leaves())
    }

    /// Makes a freeze of round 1.
    pub fn freeze(&self, attempt: u32, sum: &[u8], occupied: u32, users: &[u32]) -> Message {
        self.freeze_of(attempt, sum, occupied, &self.participants(users))
    }

    /// Makes a freeze of round 1 with these participants.
    pub fn freeze_of(
        &self,
        attempt: u32,
        sum: &[u8],
        occupied: u32,
        participants: &[Participant],
    ) -> Message {
        let fields = Fields::new()
            .bytes(&self.get("ticket").hash())
            .u32(attempt)
            .bytes(&sum_hash(sum))
            .u32(occupied)
            .participants(participants);
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

    /// Makes the ticket for a round-open message. `past` is the history and the outcome of the round before.
    pub fn ticket(
        &self,
        round: u64,
        open: &Message,
        model: &[u8],
        past: (&Digest, u8),
        log: (u64, &Digest),
    ) -> Message {
        let support = self.support(round).unwrap_or_default();
        let fields = Fields::new()
            .bytes(&open.hash())
            .bytes(&model_digest(model))
            .bytes(&self.policy().hash())
            .bytes(&self.roster.hash())
            .bytes(&support_digest(&support))
            .u64(self.deadline)
            .bytes(past.0)
            .u8(past.1)
            .u64(log.0)
            .bytes(log.1);
        self.message(Type::RoundTicket, round, Sender::KeyGenerator, fields, &[])
    }

    /// Makes a result. `answer` is its outcome and its number of users.
    pub fn result(
        &self,
        request: &Message,
        answer: (u8, u32),
        payload: &[u8],
        log: (u64, &Digest),
    ) -> Message {
        let fields = Fields::new()
            .bytes(&request.hash())
            .u8(answer.0)
            .u32(answer.1)
            .bytes(&self.users_root())
            .bytes(&payload_hash(payload))
            .u64(log.0)
            .bytes(log.1);
        self.message(Type::Result, 1, Sender::KeyGenerator, fields, payload)
    }

    /// Makes a publish message.
    pub fn publish(&self, result: &Message, model: &[u8], sum: &[u8]) -> Message {
        let fields =
            Fields::new().bytes(&result.without_body()).bytes(&model_digest(model)).bytes(&payload_hash(sum));
        self.message(Type::Publish, 1, Sender::Aggregator, fields, sum)
    }

    /// Makes the inclusion of a listed user.
    pub fn inclusion(&self, user: u32) -> Message {
        let index = UPLOADERS.iter().position(|&listed| listed == user).expect("a listed user");
        self.inclusion_of(&self.users_root(), index as u32, &path(&self.leaves(), index))
    }

    /// Makes an inclusion.
    pub fn inclusion_of(&self, root: &Digest, index: u32, path: &[Digest]) -> Message {
        let fields = Fields::new().bytes(root).u32(index).path(path);
        self.message(Type::Inclusion, 1, Sender::Aggregator, fields, &[])
    }

    /// Makes a close message.
    pub fn close(&self, ending: u8, publish: &Digest) -> Message {
        let fields = Fields::new().u8(ending).bytes(publish);
        self.message(Type::Close, 1, Sender::Aggregator, fields, &[])
    }

    /// Returns the history before round 1.
    pub fn first_history(&self) -> Digest {
        first_history(&self.roster.hash())
    }

    /// Returns the history after round 1, if it ended with the close message of this name.
    pub fn history(&self, close: &str, outcome: u8) -> Digest {
        let users_root = if close == "close" { self.users_root() } else { [0; 32] };
        let (ticket, close) = (self.get("ticket").hash(), self.get(close).hash());
        next_history(&self.first_history(), &Past { ticket, outcome, users_root, close })
    }

    fn add(&mut self, name: &str, to: &'static str, comment: &'static str, message: Message) {
        self.messages.push(Named { name: name.to_owned(), to, comment, message });
    }

    fn add_other(&mut self, name: &str, to: &'static str, comment: &'static str, message: Message) {
        self.others.push(Named { name: name.to_owned(), to, comment, message });
    }

    fn play(&mut self, rng: &mut Rng) {
        let open = self.round_open(1, &self.model, &self.nonce);
        let head = log::first_head(&log::prefix(2, 0, self.task(), &self.roster.hash()));
        let past = (&self.first_history(), 0);
        let ticket = self.ticket(1, &open, &self.model, past, (0, &head));
        self.add("round_open", "key_generator", "", open);
        self.add("ticket", "aggregator and users", "log of G: empty", ticket);
        self.play_uploads(rng);
        self.play_sum(rng);
        self.play_others();
    }

    fn play_uploads(&mut self, rng: &mut Rng) {
        for user in USERS {
            let sealed = self.seal(self.secrets(user), rng);
            let upload = self.upload(user, sealed.count(), &sealed.content);
            let hash = body_hash(&upload.body);
            let ack = self.message(Type::UploadAck, 1, Sender::Aggregator, Fields::new().bytes(&hash), &[]);
            self.sealed.insert(user, sealed);
            if UPLOADERS.contains(&user) {
                self.add(&format!("upload_{user}"), "aggregator", "", upload);
                self.add(&format!("ack_{user}"), "user", "", ack);
            } else {
                let comment = "from the user who does not take part: valid until the freeze";
                self.add_other(&format!("upload_{user}"), "aggregator", comment, upload);
            }
        }
    }

    fn play_sum(&mut self, rng: &mut Rng) {
        let (sum, occupied) = self.sum_of(&UPLOADERS);
        let freeze = self.freeze(1, &sum, occupied, &UPLOADERS);
        let fields = Fields::new().bytes(&freeze.hash()).u32(1).u64(1).bytes(&rng.digest());
        let freeze_ack = self.message(Type::FreezeAck, 1, Sender::KeyGenerator, fields, &[]);
        let decrypt = self.decrypt(&freeze, &sum, occupied);
        let payload = self.open(&UPLOADERS).payload(self.policy());
        self.residues = self.residues_of(&UPLOADERS);
        let result = self.result(&decrypt, (1, UPLOADERS.len() as u32), &payload, (3, &rng.digest()));
        let masked = self.policy().receipts == Receipts::Masked;
        let published = if masked { residue_bytes(self.policy(), &self.residues) } else { payload };
        let publish = self.publish(&result, &self.new_model, &published);
        let close = self.close(1, &publish.hash());
        self.add("freeze", "key_generator", "", freeze);
        self.add("freeze_ack", "aggregator", "log of G: arbitrary, seq 1", freeze_ack);
        self.add("decrypt", "key_generator", "", decrypt);
        self.add("result", "aggregator", "log of G: arbitrary, seq 3", result);
        for user in UPLOADERS {
            let inclusion = self.inclusion(user);
            self.add(&format!("inclusion_{user}"), "user", "", inclusion);
        }
        self.add("publish", "users", "", publish);
        self.add("close", "key_generator and users", "", close);
    }

    fn play_others(&mut self) {
        let (sum, occupied) = self.sum_of(&UPLOADERS);
        let all = self.sum_of(&USERS);
        let freeze_all = self.freeze(1, &all.0, all.1, &USERS);
        let decrypt_all = self.decrypt(&freeze_all, &all.0, all.1);
        let freeze_2 = self.freeze(2, &all.0, all.1, &USERS);
        let open_2 = self.round_open(2, &self.model, &[2; 16]);
        let (to, zeros) = ("key_generator and users", [0; 32]);
        let (failed, aborted) = (self.close(2, &zeros), self.close(3, &zeros));
        let rejected = self.close(4, &zeros);
        self.add_other("close_failed", to, "after a sum that could not be opened", failed);
        self.add_other("close_aborted", to, "instead of a freeze", aborted);
        self.add_other("close_rejected", to, "instead of publishing the sum", rejected);
        let again = "round 2 on the model of round 1";
        self.add_other("freeze_all", "key_generator", "instead of freeze: all four users", freeze_all);
        self.add_other("decrypt_all", "key_generator", "after freeze_all", decrypt_all);
        self.add_other("freeze_2", "key_generator", "second attempt, all four users", freeze_2);
        self.add_other("round_open_2", "key_generator", again, open_2);

        if self.policy().profile == Profile::Sparse {
            let wrong = self.freeze(1, &sum, occupied - 1, &UPLOADERS);
            let comment = "a freeze whose number of occupied positions is one too low; G cannot know yet";
            self.add_other("freeze_wrong_occupied", "key_generator", comment, wrong);
        }
        if self.policy().receipts != Receipts::Masked {
            let failing = self.failing_sum();
            let freeze = self.freeze(1, &failing, occupied, &UPLOADERS);
            let decrypt = self.decrypt(&freeze, &failing, occupied);
            let comment = "the freeze of a sum that fails the check or the range check; G cannot know yet";
            self.add_other("freeze_failing", "key_generator", comment, freeze);
            let comment = "after freeze_failing: G answers that opening failed";
            self.add_other("decrypt_failing", "key_generator", comment, decrypt);
        }
        let bad_sums = if self.policy().profile == Profile::Paper { vec![] } else { self.bad_sums() };
        for (name, _, sum) in bad_sums {
            let freeze = self.freeze(1, &sum, occupied, &UPLOADERS);
            let comment = "the freeze of a sum that contains what is no ciphertext; G cannot know yet";
            self.add_other(&format!("freeze_{name}"), "key_generator", comment, freeze);
        }
    }

    /// Returns the sum with a number above all slots added to its last plaintext, which is the check or holds the dense
    /// values.
    fn failing_sum(&self) -> Vec<u8> {
        let mut total = self.add_up(&UPLOADERS);
        let large = self.key.encrypt(&(BigInt::from(1) << 252), &BigUint::from(1u8));
        let last = total.packed.last_mut().expect("a task with dense values");
        *last = &*last * large % self.key.n_squared();
        let secrets: Vec<&Secrets> = UPLOADERS.iter().map(|&user| self.secrets(user)).collect();
        assert!(open(self.policy(), &self.key, &self.round(), &secrets, &total).is_none());
        total.bytes(self.policy(), &self.key)
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
