//! Errors that any message can have: truncation, version, size, signature, task and round.

use num_bigint::BigUint;

use super::super::transcript::USERS;
use super::{
    Bad, CLOSED, COLLECTING, Case, FOLLOWED, FROZEN, Party, RELEASED, REQUESTED, UPLOADED, put, sender,
};
use crate::wire::message::{Message, Participant, Sender};

/// Offsets in the header.
pub(super) const VERSION: usize = 4;
const TYPE: usize = 5;
const TASK: usize = 6;
/// The round.
pub(super) const ROUND: usize = 22;
const ROLE: usize = 30;
const USER: usize = 31;

/// Returns every message with its recipient and the messages before it.
const STAGES: &[(Party, &str, &[&str])] = &[
    (Party::KeyGenerator, "round_open", &[]),
    (Party::KeyGenerator, "freeze", &["round_open"]),
    (Party::KeyGenerator, "decrypt", &["round_open", "freeze"]),
    (Party::KeyGenerator, "close", RELEASED),
    (Party::Aggregator, "ticket", &["start"]),
    (Party::Aggregator, "upload_1", COLLECTING),
    (Party::Aggregator, "freeze_ack", FROZEN),
    (Party::Aggregator, "result", REQUESTED),
    (Party::User(1), "ticket", &[]),
    (Party::User(1), "ack_1", &["ticket", "update"]),
    (Party::User(5), "publish", &["ticket"]),
    (Party::User(5), "close", &["ticket"]),
    (Party::User(1), "inclusion_1", UPLOADED),
];

/// Adds the vectors.
pub(super) fn add(bad: &mut Bad<'_>) {
    for &(party, name, given) in STAGES {
        let at = |row| Stage { case: Case { row, party, given }, name };
        cut(bad, at(1));
        forged(bad, at(5));
        other_task(bad, at(7));
        other_round(bad, at(8));
    }
    versions(bad);
    sizes(bad);
    after_the_round(bad);
}

#[derive(Clone, Copy)]
struct Stage<'a> {
    case: Case<'a>,
    name: &'a str,
}

impl Stage<'_> {
    fn add(&self, bad: &mut Bad<'_>, id: &str, comment: &str, bytes: &[u8], expected: &str) {
        let id = format!("{}-{id}", self.name.replace('_', "-"));
        if let (Party::User(_), "ticket") = (self.case.party, self.name) {
            let model = super::hex(&bad.t.model);
            bad.with(self.case, &id, comment, super::hex(bytes), &[("model", model)], expected);
        } else {
            bad.bytes(self.case, &id, comment, bytes, expected);
        }
    }
}

/// The sparse task has all of them and the full task has some, because both use the same code.
pub(super) fn thorough(bad: &Bad<'_>) -> bool {
    bad.t.name == "sparse"
}

fn cut(bad: &mut Bad<'_>, stage: Stage<'_>) {
    let message = bad.t.get(stage.name).clone();
    let (bytes, header) = (message.bytes(), message.header.len());
    let cuts = if thorough(bad) {
        vec![0, 1, 34, 35, 51, header - 1, header, header + 63]
    } else {
        vec![header - 1, header + 63]
    };
    for length in cuts {
        stage.add(bad, &format!("cut-{length}"), "cut short", &bytes[..length], "encoding");
    }
    if message.body.is_empty() {
        let longer = [&bytes[..], &[0]].concat();
        stage.add(bad, "one-more", "one byte left over", &longer, "encoding");
        let twice = [&bytes[..], &bytes].concat();
        stage.add(bad, "twice", "the message twice", &twice, "encoding");
    }
}

fn versions(bad: &mut Bad<'_>) {
    let messages: &[usize] = if thorough(bad) { &[0, 1, 2, 5, 7, 8, 10, 12] } else { &[0, 4, 11] };
    for &index in messages {
        let (party, name, given) = STAGES[index];
        let stage = Stage { case: Case { row: 2, party, given }, name };
        let mut one = |id: &str, comment, at, bytes: &[u8]| {
            let message = bad.put(name, at, bytes);
            stage.add(bad, id, comment, &message.bytes(), "version");
        };
        one("magic", "another magic", 0, b"DPHF");
        one("version-1", "the version before", VERSION, &[1]);
        one("type-16", "no such type", TYPE, &[16]);
        if index == 0 {
            one("magic-lower", "the magic in small letters", 0, b"dphe");
            one("magic-zeros", "no magic", 0, &[0; 4]);
            one("version-0", "no version", VERSION, &[0]);
            one("version-3", "a later version", VERSION, &[3]);
            one("version-255", "a version far away", VERSION, &[255]);
            one("type-0", "no type", TYPE, &[0]);
            for kind in [7, 8, 13, 14] {
                one(&format!("type-{kind}"), "a type that is reserved", TYPE, &[kind]);
            }
            one("type-255", "no such type", TYPE, &[255]);
        }
    }
}

/// The offset of the number of users in a freeze.
pub(super) const FREEZE_USERS: usize = 107;

/// Adds counts and lengths that the task does not allow. They are refused before anything else is read.
fn sizes(bad: &mut Bad<'_>) {
    let freeze =
        Stage { case: Case { row: 3, party: Party::KeyGenerator, given: &["round_open"] }, name: "freeze" };
    for count in [u32::MAX, 1 << 31, 1 << 16, 9, 5] {
        let message = bad.put("freeze", FREEZE_USERS, &count.to_be_bytes());
        let comment = "more users than the roster has, by the count; the list is that of three";
        freeze.add(bad, &format!("users-{count}"), comment, &message.bytes(), "size");
    }
    let users = bad.t.participants(&[1, 2, 5, 9, 10]);
    let message = bad.edited("freeze", |message| replace_users(message, &users));
    freeze.add(bad, "five-users", "five users, and all of them listed", &message.bytes(), "size");
    for count in [2u32, 4] {
        let message = bad.put("freeze", FREEZE_USERS, &count.to_be_bytes());
        let comment = "a count that is allowed, but the list is that of three";
        freeze.add(bad, &format!("list-of-{count}"), comment, &message.bytes(), "encoding");
    }

    let publish = Stage { case: Case { row: 3, party: Party::User(5), given: &["ticket"] }, name: "publish" };
    let sum = bad.t.get("publish").body.clone();
    for (id, length) in [("one-byte", sum.len() + 1), ("twice", 2 * sum.len()), ("much", 500)] {
        let mut longer = sum.clone();
        longer.resize(length, 0);
        let message = bad.t.publish(bad.t.get("result"), &bad.t.new_model, &longer);
        let comment = "longer than any sum of the task; its hash is right";
        publish.add(bad, &format!("longer-{id}"), comment, &message.bytes(), "size");
    }

    let decrypt = Stage {
        case: Case { row: 3, party: Party::KeyGenerator, given: &["round_open", "freeze"] },
        name: "decrypt",
    };
    let policy = bad.t.policy();
    let most = policy.positions() as usize * policy.ciphertext_bytes() + 1024;
    let long = bad.edited("decrypt", |message| message.body.resize(most, 1));
    decrypt.add(bad, "body-too-long", "longer than any sum of the task", &long.bytes(), "size");
}

/// Replaces the participants in a freeze.
pub(super) fn replace_users(message: &mut Message, users: &[Participant]) {
    message.header.truncate(FREEZE_USERS);
    message.header.extend((users.len() as u32).to_be_bytes());
    message.header.extend(users.iter().flat_map(Participant::bytes));
}

fn forged(bad: &mut Bad<'_>, stage: Stage<'_>) {
    let good = bad.t.get(stage.name).clone();
    let from = sender(&good);
    let mut signed = |id: &str, comment: &str, signature: &[u8]| {
        let message = Message { signature: signature.to_vec(), ..good.clone() };
        stage.add(bad, id, comment, &message.bytes(), "signature");
    };
    let flipped = |at: usize| {
        let mut signature = good.signature.clone();
        signature[at] ^= 1;
        signature
    };
    signed("signature-r", "one bit of R", &flipped(3));
    signed("signature-zero", "zeros", &[0; 64]);
    signed("signature-s", "one bit of s", &flipped(40));
    signed("signature-s-plus-l", "s + l: the same number, not canonical", &not_canonical(&good.signature));
    // R = identity and s = 0 is valid for a key of small order under lax rules
    let mut identity = [0; 64];
    identity[0] = 1;
    signed("signature-identity", "R is the identity, s is 0", &identity);

    let wrong = if from == Sender::User(1) { Sender::User(2) } else { Sender::User(1) };
    for (id, signer) in [("signed-by-user", wrong), ("signed-by-server", other_server(from))] {
        let mut message = good.clone();
        message.sign(bad.t.identity(signer));
        stage.add(bad, id, "the signature of somebody else", &message.bytes(), "signature");
    }
    let mut message = bad.put(stage.name, ROUND, &2u64.to_be_bytes());
    message.header.clone_from(&good.header);
    stage.add(bad, "signature-of-round-2", "a signature over another round", &message.bytes(), "signature");
    for role in [other_server(from), wrong] {
        // several users may upload
        if let (Sender::User(_), Sender::User(_)) = (from, role) {
            continue;
        }
        let mut message = good.clone();
        put(&mut message, ROLE, &[role.role()]);
        put(&mut message, USER, &role.user().to_be_bytes());
        message.sign(bad.t.identity(role));
        let id = format!("role-{}", role.role());
        stage.add(bad, &id, "well signed by one who may not send this", &message.bytes(), "signature");
    }
}

fn other_server(from: Sender) -> Sender {
    if from == Sender::Aggregator { Sender::KeyGenerator } else { Sender::Aggregator }
}

/// Returns the same signature with s + l, where l is the order of the group.
fn not_canonical(signature: &[u8]) -> Vec<u8> {
    let order: BigUint = (BigUint::from(1u8) << 252) + 27_742_317_777_372_353_535_851_937_790_883_648_493u128;
    let mut s = (BigUint::from_bytes_le(&signature[32..]) + order).to_bytes_le();
    s.resize(32, 0);
    [&signature[..32], &s].concat()
}

fn other_task(bad: &mut Bad<'_>, stage: Stage<'_>) {
    let other = *bad.other.task();
    let message = bad.put(stage.name, TASK, &other);
    stage.add(bad, "other-task", "the task id of another task", &message.bytes(), "task");
    if thorough(bad) {
        let message = bad.flip(stage.name, TASK + 15);
        stage.add(bad, "task-bit", "one bit of the task id", &message.bytes(), "task");
    }
}

fn other_round(bad: &mut Bad<'_>, stage: Stage<'_>) {
    let mut rounds = vec![(0, "stale"), (2, "future"), (u64::MAX, "future")];
    if let (Party::User(_), "ticket") = (stage.case.party, stage.name) {
        // a user may have missed any number of rounds
        rounds.truncate(1);
    }
    if let (Party::User(_), "close") = (stage.case.party, stage.name) {
        // the next round is not too far ahead
        rounds.remove(1);
    }
    for (round, expected) in rounds {
        let message = bad.put(stage.name, ROUND, &u64::to_be_bytes(round));
        stage.add(bad, &format!("round-{round}"), "another round", &message.bytes(), expected);
    }
}

/// Adds rounds that are wrong after round 1.
fn after_the_round(bad: &mut Bad<'_>) {
    let case = Case { row: 8, party: Party::KeyGenerator, given: CLOSED };
    for (round, expected) in [(0, "stale"), (1, "stale"), (3, "future"), (u64::MAX, "future")] {
        let message = bad.t.round_open(round.clamp(1, 4), &bad.t.new_model, &[9; 16]);
        let mut message = message;
        put(&mut message, ROUND, &u64::to_be_bytes(round));
        message.sign(bad.t.identity(Sender::Aggregator));
        let id = format!("round-open-{round}-after-round-1");
        bad.message(case, &id, "the next round is 2", &message, expected);
    }
    let freeze = bad.t.freeze(2, b"another sum", 3, &USERS);
    bad.message(case, "freeze-of-round-1-after-it", "round 1 is closed", &freeze, "stale");
    let case = Case { given: &["round_open"], ..case };
    let message = bad.t.round_open(3, &bad.t.new_model, &[9; 16]);
    bad.message(case, "round-open-3-in-round-1", "the next round is 2", &message, "future");

    let case = Case { row: 8, party: Party::User(5), given: FOLLOWED };
    let ticket = bad.put("ticket", 236, &7u64.to_be_bytes());
    bad.ticket(case, "ticket-of-round-1-after-it", "round 1 is over", &ticket, &bad.t.model.clone(), "stale");
    let publish = bad.t.publish(bad.t.get("result"), &bad.t.model, &bad.t.get("publish").body);
    bad.message(case, "publish-of-round-1-after-it", "round 1 is over", &publish, "stale");
    for name in ["close_aborted", "inclusion_1"] {
        let id = format!("{}-of-round-1-after-it", name.replace('_', "-"));
        let message = bad.t.get(name).clone();
        bad.message(case, &id, "round 1 is over", &message, "stale");
    }
}
