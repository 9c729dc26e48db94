//! Rosters that must be refused. All are signed by the key generator, unless the vector tests the signature.

use super::super::json::{Json, hex};
use super::Bad;
use crate::wire::message::sign;
use crate::wire::task::Profile;

/// Offsets in a roster.
const EPOCH: usize = 17;
const POLICY: usize = 21;
const PREVIOUS: usize = 202;
const FIRST_ROUND: usize = 234;
const WITNESSES: usize = 338;
const USERS: usize = 343;
/// The length of a user's entry.
const USER: usize = 68;

/// Offsets in a policy.
const PROFILE: usize = 1;
const NOISE: usize = 2;
const RECEIPTS: usize = 3;
const DIMENSION: usize = 8;
const DENSE: usize = 12;
const BLOCK: usize = 16;
const CAPACITY: usize = 20;
const SHARDS: usize = 24;
const SCALE: usize = 28;
const CLIP_RULE: usize = 30;
const MIN_USERS: usize = 31;
const MIN_PERCENT: usize = 35;
const MAX_USERS: usize = 36;
const MAX_ATTEMPTS: usize = 40;
const ROUNDS: usize = 48;
const GROUPS: usize = 57;
const MAX_FAILURES: usize = 58;
const OUTPUT: usize = 59;
const POLICY_WITNESSES: usize = 60;
const PRIVACY: usize = 61;

/// Adds the vectors.
pub(super) fn add(bad: &mut Bad<'_>) {
    let good = bad.t.roster.bytes();
    one(bad, 48, "right", "as it should be", &good, "ok");
    receipts(bad);
    if bad.t.policy().profile == Profile::Sparse {
        rosters(bad);
        identities(bad);
        reserved(bad);
        numbers(bad);
    }
}

fn one(bad: &mut Bad<'_>, row: u8, id: &str, comment: &str, roster: &[u8], expected: &str) {
    let vector = bad.start("roster", id, row, comment).with("given", Json::List(vec![]));
    bad.end(vector.with("input", hex(roster)), &[], expected);
}

/// Writes bytes into the roster and lets G sign it.
fn edited(bad: &Bad<'_>, places: &[(usize, &[u8])]) -> Vec<u8> {
    bad.t.roster.edited(|roster| {
        for (at, bytes) in places {
            roster[*at..at + bytes.len()].copy_from_slice(bytes);
        }
    })
}

/// Adds rosters in which two parties have the same identity.
fn identities(bad: &mut Bad<'_>) {
    const AGGREGATOR: usize = 242;
    const KEY_GENERATOR: usize = 306;
    let good = bad.t.roster.bytes();
    for (id, comment, from, to) in [
        ("users", "two users have one identity", USERS + 4, USERS + USER + 4),
        ("last-users", "two users have one identity", USERS + 3 * USER + 4, USERS + USER + 4),
        ("aggregator", "a user has the aggregator's identity", AGGREGATOR, USERS + 4),
        ("key-generator", "a user has the key generator's identity", KEY_GENERATOR, USERS + 2 * USER + 4),
        ("servers", "aggregator and key generator have one identity", KEY_GENERATOR, AGGREGATOR),
    ] {
        let roster = edited(bad, &[(to, &good[from..from + 32])]);
        one(bad, 48, &format!("identity-{id}"), comment, &roster, "roster");
    }
}

fn rosters(bad: &mut Bad<'_>) {
    for version in [0, 1, 3, 255] {
        let roster = edited(bad, &[(0, &[version])]);
        one(bad, 48, &format!("version-{version}"), "another version of the roster", &roster, "version");
        let roster = edited(bad, &[(POLICY, &[version])]);
        let id = format!("policy-version-{version}");
        one(bad, 49, &id, "another version of the policy", &roster, "version");
    }
    let comment = "the first roster of a task, and yet it replaces another one";
    for (id, hash) in [("hash", bad.other.roster.hash()), ("ones", [0xff; 32])] {
        let roster = edited(bad, &[(PREVIOUS, &hash)]);
        one(bad, 48, &format!("previous-{id}"), comment, &roster, "roster");
    }
    let roster = edited(bad, &[(PREVIOUS + 31, &[1])]);
    one(bad, 48, "previous-bit", comment, &roster, "roster");
    let comment = "the first roster of a task, and yet it is in force from another round on";
    for round in [0, 2, 256] {
        let roster = edited(bad, &[(FIRST_ROUND, &u64::to_be_bytes(round))]);
        one(bad, 48, &format!("first-round-{round}"), comment, &roster, "roster");
    }
    for epoch in [0, 2] {
        let roster = edited(bad, &[(EPOCH, &u32::to_be_bytes(epoch))]);
        let comment = "not the first roster of a task, and yet it replaces none";
        one(bad, 48, &format!("epoch-{epoch}"), comment, &roster, "roster");
    }
    let later: &[(usize, &[u8])] =
        &[(EPOCH, &2u32.to_be_bytes()), (PREVIOUS, &[7; 32]), (FIRST_ROUND, &9u64.to_be_bytes())];
    let roster = edited(bad, later);
    one(bad, 48, "later", "a roster that replaces another one", &roster, "ok");
    for count in [1, 2, 255] {
        let roster = edited(bad, &[(WITNESSES, &[count])]);
        one(bad, 48, &format!("witnesses-{count}"), "witnesses, which are reserved", &roster, "profile");
    }
    let key = bad.t.roster.agreement().public;
    for (id, user) in [("first", 0), ("second", 1), ("last", 3)] {
        let roster = edited(bad, &[(USERS + user * USER + 36, &key)]);
        let comment = "an agreement key of a user, which is reserved";
        one(bad, 48, &format!("agreement-{id}"), comment, &roster, "profile");
    }
    let good = bad.t.roster.bytes();
    let (unsigned, signature) = good.split_at(good.len() - 64);
    for (id, at) in [("r", 0), ("s", 40)] {
        let mut signature = signature.to_vec();
        signature[at] ^= 1;
        let roster = [unsigned, &signature].concat();
        one(bad, 48, &format!("signature-{id}"), "one bit of the signature", &roster, "signature");
    }
    let by_aggregator = sign(&bad.t.roster.aggregator, &bad.t.roster.hash());
    let roster = [unsigned, &by_aggregator].concat();
    one(bad, 48, "signed-by-aggregator", "signed by the aggregator", &roster, "signature");
    for cut in [1, 64, 65] {
        let roster = &good[..good.len() - cut];
        one(bad, 48, &format!("cut-{cut}"), "cut short", roster, "encoding");
    }
    let longer = [&good[..], &[0]].concat();
    one(bad, 48, "longer", "one byte left over", &longer, "encoding");
}

/// Adds values of the policy that are reserved, and their neighbours that are invalid.
fn reserved(bad: &mut Bad<'_>) {
    for (name, at, value, expected) in [
        ("groups", GROUPS, 0, "policy"),
        ("groups", GROUPS, 2, "profile"),
        ("groups", GROUPS, 64, "profile"),
        ("groups", GROUPS, 65, "policy"),
        ("groups", GROUPS, 255, "policy"),
        ("output", OUTPUT, 2, "profile"),
        ("output", OUTPUT, 3, "policy"),
        ("output", OUTPUT, 255, "policy"),
        ("witnesses", POLICY_WITNESSES, 1, "profile"),
        ("witnesses", POLICY_WITNESSES, 2, "profile"),
        ("witnesses", POLICY_WITNESSES, 255, "profile"),
        ("dp", PRIVACY, 1, "profile"),
        ("dp-clip", PRIVACY + 1, 1, "profile"),
        ("dp-sigma", PRIVACY + 16, 1, "profile"),
        ("dp-honest", PRIVACY + 20, 1, "profile"),
        ("dp-delta", PRIVACY + 21, 1, "profile"),
        ("dp-epsilon", PRIVACY + 23, 1, "profile"),
    ] {
        let roster = edited(bad, &[(POLICY + at, &[value])]);
        let comment =
            if expected == "profile" { "a value that is reserved" } else { "a value that does not exist" };
        one(bad, 49, &format!("policy-{name}-{value}"), comment, &roster, expected);
    }
}

/// Adds numbers of the policy that are out of their range.
fn numbers(bad: &mut Bad<'_>) {
    for (name, at, value) in [
        ("profile", PROFILE, 0),
        ("profile", PROFILE, 4),
        ("noise", NOISE, 0),
        ("noise", NOISE, 3),
        ("scale", SCALE, 49),
        ("clip-rule", CLIP_RULE, 2),
        ("min-percent", MIN_PERCENT, 101),
        ("max-failures", MAX_FAILURES, 0),
    ] {
        let roster = edited(bad, &[(POLICY + at, &[value])]);
        one(bad, 49, &format!("policy-{name}-{value}"), "out of range", &roster, "policy");
    }
    for (name, at, value) in [
        ("dimension", DIMENSION, 0),
        ("dimension", DIMENSION, (1 << 30) + 1),
        ("dense", DENSE, (1 << 24) + 1),
        ("block", BLOCK, 0),
        ("block", BLOCK, 23),
        ("capacity", CAPACITY, 0),
        ("capacity", CAPACITY, 6),
        ("shards", SHARDS, 0),
        ("shards", SHARDS, 6),
        ("min-users", MIN_USERS, 2),
        ("min-users", MIN_USERS, 9),
        ("max-users", MAX_USERS, 2),
        ("max-users", MAX_USERS, 65_537),
        ("max-attempts", MAX_ATTEMPTS, 0),
        ("max-attempts", MAX_ATTEMPTS, 17),
        ("rounds", ROUNDS, 0),
    ] {
        let roster = edited(bad, &[(POLICY + at, &u32::to_be_bytes(value))]);
        one(bad, 49, &format!("policy-{name}-{value}"), "out of range", &roster, "policy");
    }
}

/// Adds receipts that the profile does not have. The output is that of the receipts.
fn receipts(bad: &mut Bad<'_>) {
    let right = bad.t.policy().receipts as u8;
    let profile = bad.t.policy().profile;
    for receipts in [0, 1, 2, 3, 255] {
        let (output, valid) = (u8::from(receipts == 2), receipts == right || receipts == 0);
        if valid {
            continue;
        }
        let roster = edited(bad, &[(POLICY + RECEIPTS, &[receipts]), (POLICY + OUTPUT, &[output])]);
        let comment = "receipts that the profile does not have";
        one(bad, 49, &format!("policy-receipts-{receipts}"), comment, &roster, "policy");
    }
    let other = u8::from(profile != Profile::Full);
    let roster = edited(bad, &[(POLICY + OUTPUT, &[other])]);
    one(bad, 49, "policy-output-other", "not the output of the receipts", &roster, "policy");
    let roster = edited(bad, &[(POLICY + OUTPUT, &[2])]);
    if profile == Profile::Full {
        one(bad, 49, "policy-output-2", "a value that is reserved", &roster, "profile");
    }
}
