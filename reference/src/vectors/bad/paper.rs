//! Vectors of the task `paper`: its policy lets G open one sum, and only after some time. Its users send as many shards
//! as they need.

use super::envelope::replace_users;
use super::key_generator::unsigned;
use super::{Bad, COLLECTING, Case, Party, publish};
use crate::wire::message::Message;

const TICKETED: &[&str] = &["round_open"];
const WAITED: &[&str] = &["round_open", "wait"];
const RELEASED: &[&str] = &["round_open", "wait", "freeze", "decrypt"];
const FAILED: &[&str] = &["round_open", "wait", "freeze_failing", "decrypt_failing"];

/// Adds the vectors.
pub(super) fn add(bad: &mut Bad<'_>) {
    rounds(bad);
    early(bad);
    signatures(bad);
    endings(bad);
    counts(bad);
    slots(bad);
    publish::payloads(bad);
}

fn key_generator<'a>(row: u8, given: &'a [&'a str]) -> Case<'a> {
    Case { row, party: Party::KeyGenerator, given }
}

/// Adds rounds after the only one whose sum G opens.
fn rounds(bad: &mut Bad<'_>) {
    for (when, before, close) in [
        ("published", RELEASED, "close"),
        ("rejected", RELEASED, "close_rejected"),
        ("failed", FAILED, "close_failed"),
    ] {
        let given = [before, &[close]].concat();
        let case = key_generator(34, &given);
        for (id, model) in [("again", bad.t.model.clone()), ("new-model", bad.t.new_model.clone())] {
            let message = bad.t.round_open(2, &model, &[2; 16]);
            let comment = "one sum was opened, and the policy allows no more";
            bad.message(case, &format!("open-2-{id}-after-{when}"), comment, &message, "rounds");
        }
    }
    let message = bad.t.get("round_open_2").clone();
    let case = key_generator(34, &["round_open", "close_aborted"]);
    bad.message(case, "open-2-after-aborted", "no sum was opened in round 1", &message, "ok");
}

/// Adds freezes at the time of their ticket.
fn early(bad: &mut Bad<'_>) {
    for name in ["freeze", "freeze_all", "freeze_failing"] {
        let message = bad.t.get(name).clone();
        let id = format!("{}-early", name.replace('_', "-"));
        let comment = "no time has passed since the ticket";
        bad.message(key_generator(36, TICKETED), &id, comment, &message, "early");
        let id = format!("{}-in-time", name.replace('_', "-"));
        bad.message(key_generator(36, WAITED), &id, "as it should be", &message, "ok");
    }
}

fn signatures(bad: &mut Bad<'_>) {
    for (id, comment, participants) in unsigned(bad).into_iter().step_by(4) {
        let message = bad.edited("freeze", |message| replace_users(message, &participants));
        let id = format!("freeze-upload-{id}");
        bad.message(key_generator(37, WAITED), &id, comment, &message, "signature");
    }
}

fn endings(bad: &mut Bad<'_>) {
    let cases = [
        ("released", RELEASED, &["close_failed", "close_aborted"][..]),
        ("failed", FAILED, &["close", "close_aborted", "close_rejected"]),
    ];
    for (when, given, names) in cases {
        for name in names {
            let message = bad.t.get(name).clone();
            let id = format!("{}-{when}", name.replace('_', "-"));
            let comment = "not what became of the sum";
            bad.message(key_generator(38, given), &id, comment, &message, "ending");
        }
    }
}

/// Makes an upload of a user with another content, correctly sealed, hashed and signed.
fn with_content(bad: &Bad<'_>, user: u32, count: u32, edit: impl FnOnce(&mut Vec<u8>)) -> Message {
    let mut content = bad.t.sealed[&user].content.clone();
    edit(&mut content);
    bad.t.upload(user, count, &content)
}

/// Adds numbers of ciphertexts that are not those of one to three shards and a packed one.
fn counts(bad: &mut Bad<'_>) {
    let case = Case { row: 11, party: Party::Aggregator, given: COLLECTING };
    assert_eq!([1, 2, 5, 9].map(|user| bad.t.sealed[&user].count()), [5, 9, 5, 13]);
    for wrong in [0, 1, 4, 6, 8, 10, 17, u32::MAX] {
        let message = with_content(bad, 1, wrong, |_| ());
        let comment = "not the number of ciphertexts of any number of shards";
        bad.message(case, &format!("upload-count-{wrong}"), comment, &message, "count");
    }
    for (user, wrong) in [(1, 9), (1, 13), (2, 5), (9, 9)] {
        let message = with_content(bad, user, wrong, |_| ());
        let comment = "the number of ciphertexts of more or fewer shards than the body has";
        bad.message(case, &format!("upload-{user}-count-{wrong}"), comment, &message, "size");
    }
}

/// Adds errors in the permuted indices of user 2, who sends two shards.
fn slots(bad: &mut Bad<'_>) {
    let case = Case { row: 12, party: Party::Aggregator, given: COLLECTING };
    let capacity = bad.t.policy().capacity as usize;
    let second = capacity * (4 + bad.t.policy().ciphertext_bytes());
    let positions = bad.t.policy().positions();
    let shards = bad.t.sealed[&2].slots.clone();
    let mut one = |id: &str, comment: &str, at: usize, slots: &[u32], expected: &str| {
        let bytes: Vec<u8> = slots.iter().flat_map(|slot| slot.to_be_bytes()).collect();
        let message =
            with_content(bad, 2, 9, |content| content[at..at + bytes.len()].copy_from_slice(&bytes));
        bad.message(case, &format!("upload-slot-{id}"), comment, &message, expected);
    };
    let last = capacity - 1;
    let with = |shard: usize, i: usize, slot: u32| {
        let mut slots = shards[shard].clone();
        slots[i] = slot;
        slots
    };
    one("p", "a slot beyond the positions", 0, &with(0, last, positions), "index_range");
    one("ones", "a slot beyond the positions", second, &with(1, last, u32::MAX), "index_range");
    one("twice", "twice in a shard", 0, &with(0, 1, shards[0][0]), "index_order");
    one("twice-second", "twice in a shard", second, &with(1, 1, shards[1][0]), "index_order");
    let descending: Vec<u32> = shards[1].iter().rev().copied().collect();
    one("descending", "not ascending", second, &descending, "index_order");
    one("both-shards", "the same slots in both shards, which are independent", second, &shards[0], "ok");
}
