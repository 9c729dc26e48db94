//! Changes of the roster that must be refused. All are signed by the key generator, unless the vector tests the
//! signature.

use ed25519_dalek::SigningKey;

use super::super::json::{Json, hex};
use super::Bad;
use crate::rng::Rng;
use crate::wire::change::Change;
use crate::wire::derive::Digest;
use crate::wire::hpke::KeyPair;
use crate::wire::task::{Profile, Roster};

/// Adds the vectors. The profile `paper` allows no change at all.
pub(super) fn add(bad: &mut Bad<'_>) {
    let first = bad.t.roster.clone();
    let mut rng = Rng::new(&format!("bad/change/{}", bad.t.name));
    let new_key = SigningKey::from_bytes(&rng.digest());
    let ephemeral = KeyPair::derive(&rng.digest());
    let (salt, user_shared, own) = (rng.id(), rng.digest(), rng.digest());
    let users: Vec<u32> = first.users.iter().map(|(user, _)| *user).collect();
    let masks: Vec<(u32, Digest)> = users.iter().map(|user| (*user, rng.digest())).collect();
    let replaced = users[1];
    let mut next = next_of(&first);
    next.users[1].1 = new_key.clone();
    let user_aggregator = [(replaced, own)];
    let change = |roster: &Roster, previous: &Roster| {
        let change = Change {
            previous,
            roster,
            salt,
            user_shared,
            masks: &masks,
            user_aggregator: &user_aggregator,
            ephemeral: &ephemeral,
        };
        change.bytes()
    };
    let good = change(&next, &first);
    let is_paper = bad.t.policy().profile == Profile::Paper;
    let expected = if is_paper { "profile" } else { "ok" };
    one(bad, "right", "one user has a new identity", &good, &first, expected);
    if is_paper {
        return;
    }
    let mut third = next_of(&next);
    third.users.remove(0);
    let valid = change(&third, &next);
    one(bad, "removed", "one user leaves, after another change", &valid, &next, "ok");
    one(bad, "skipped", "the change before is missing", &valid, &first, "roster");
    one(bad, "repeated", "the change is in force already", &good, &next, "roster");
    members(bad, &first, &next, &change, new_key);
    // only A needs a change that replaces A
    let mut aggregator = next_of(&first);
    aggregator.aggregator = SigningKey::from_bytes(&rng.digest());
    one(bad, "aggregator", "A has a new identity", &change(&aggregator, &first), &first, "ok");
    damaged(bad, &good, &first);
}

/// Returns the roster that follows without any difference.
fn next_of(roster: &Roster) -> Roster {
    let (epoch, previous) = (roster.epoch + 1, roster.hash());
    Roster { epoch, previous, first_round: roster.first_round + 1, ..roster.clone() }
}

fn one(bad: &mut Bad<'_>, id: &str, comment: &str, bytes: &[u8], previous: &Roster, expected: &str) {
    let vector = bad.start("roster_change", &format!("change-{id}"), 50, comment);
    let vector = vector.with("given", Json::List(vec![])).with("input", hex(bytes));
    let more: Vec<(&str, Json)> = match previous.epoch {
        1 => vec![],
        // the roster before is not that of messages.json
        _ => vec![("previous", hex(previous.bytes()))],
    };
    bad.end(vector, &more, expected);
}

fn members(
    bad: &mut Bad<'_>,
    first: &Roster,
    next: &Roster,
    change: &dyn Fn(&Roster, &Roster) -> Vec<u8>,
    new_key: SigningKey,
) {
    let mut wrong = |id: &str, comment: &str, roster: Roster, expected: &str| {
        one(bad, id, comment, &change(&roster, first), first, expected);
    };
    let base = || next_of(first);
    let comment = "the hash of another roster";
    wrong("previous", comment, Roster { previous: next.hash(), ..base() }, "roster");
    wrong("epoch", "a number is skipped", Roster { epoch: 3, ..base() }, "roster");
    wrong("model", "another initial model", Roster { initial_model: [1; 32], ..base() }, "roster");
    wrong("task-file", "another task file", Roster { task_file: [1; 32], ..base() }, "roster");
    wrong("key", "another encryption key", Roster { key_id: [1; 32], ..base() }, "roster");
    wrong("task", "another task", Roster { task: [1; 16], ..base() }, "task");
    let mut policy = base();
    policy.policy.collect_min += 1;
    wrong("policy", "another policy", policy, "policy");
    let key_generator = Roster { key_generator: new_key.clone(), ..base() };
    wrong("key-generator", "another key generator", key_generator, "roster");
    let mut few = base();
    few.users.truncate(2);
    wrong("floor", "fewer users than the floor", few, "set_small");
    let mut later = next_of(next);
    later.first_round = next.first_round - 1;
    let comment = "in force before the roster that it replaces";
    one(bad, "first-round", comment, &change(&later, next), next, "roster");
    // a user who was removed cannot come back
    let mut removed = next_of(first);
    let gone = removed.users.remove(0);
    let mut back = next_of(&removed);
    back.users.insert(0, gone);
    let added = change_of(&back, &removed, first);
    one(bad, "added", "a user who is not in the roster before", &added, &removed, "roster");
}

/// A change that adds a user: the user gets a seed that nobody uses.
fn change_of(roster: &Roster, previous: &Roster, first: &Roster) -> Vec<u8> {
    let masks: Vec<(u32, Digest)> = first.users.iter().map(|(user, _)| (*user, [5; 32])).collect();
    let change = Change {
        previous,
        roster,
        salt: [6; 16],
        user_shared: [7; 32],
        masks: &masks,
        user_aggregator: &[(roster.users[0].0, [8; 32])],
        ephemeral: &KeyPair::derive(&[9; 32]),
    };
    change.bytes()
}

fn damaged(bad: &mut Bad<'_>, good: &[u8], first: &Roster) {
    for (id, at) in [("salt", good.len() - 280), ("sealed", good.len() - 70), ("end", good.len() - 1)] {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1;
        one(bad, &format!("bit-{id}"), "one bit differs", &bytes, first, "signature");
    }
    let mut magic = good.to_vec();
    magic[7] = b'1';
    one(bad, "magic", "another format", &magic, first, "version");
    let cut = &good[..good.len() - 1];
    one(bad, "cut", "cut short", cut, first, "encoding");
    let longer = [good, &[0]].concat();
    one(bad, "longer", "one byte left over", &longer, first, "encoding");
}
