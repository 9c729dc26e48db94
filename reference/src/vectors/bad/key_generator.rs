//! Requests of the aggregator that the key generator must refuse.

use super::super::json::{hex, number, object, text};
use super::super::transcript::{UPLOADERS, USERS};
use super::envelope::replace_users;
use super::{Bad, Case, Party, put};
use crate::wire::message::{Fields, Message, Sender, Type};
use crate::wire::seal::sum_hash;
use crate::wire::task::Profile;

const TICKETED: &[&str] = &["round_open"];
const FROZEN: &[&str] = &["round_open", "freeze"];
const RELEASED: &[&str] = &["round_open", "freeze", "decrypt"];

/// Adds the vectors.
pub(super) fn add(bad: &mut Bad<'_>) {
    opens(bad);
    freezes(bad);
    sets(bad);
    differences(bad);
    attempts(bad);
    decrypts(bad);
    committed(bad);
}

fn case(row: u8, given: &'static [&'static str]) -> Case<'static> {
    Case { row, party: Party::KeyGenerator, given }
}

fn opens(bad: &mut Bad<'_>) {
    for (field, at, row, expected) in
        [("policy", 67, 7, "policy"), ("roster", 99, 7, "roster"), ("support", 131, 11, "dimension")]
    {
        let comment = format!("not the {field} of the task");
        for (id, bytes) in [("zeros", [0; 32]), ("ones", [0xff; 32])] {
            let message = bad.put("round_open", at, &bytes);
            bad.message(case(row, &[]), &format!("open-{field}-{id}"), &comment, &message, expected);
        }
        let message = bad.flip("round_open", at + 31);
        bad.message(case(row, &[]), &format!("open-{field}-bit"), &comment, &message, expected);
        let theirs = bad.other.get("round_open").header[at..at + 32].to_vec();
        let message = bad.put("round_open", at, &theirs);
        bad.message(case(row, &[]), &format!("open-{field}-other"), &comment, &message, expected);
    }
    let message = bad.edited("round_open", |message| message.header[67..131].rotate_left(32));
    bad.message(case(7, &[]), "open-swapped", "policy and roster hash exchanged", &message, "policy");

    let comment = "a second, different round-open for a round that has its ticket";
    for (id, at) in [("model", 35), ("deadline", 170), ("nonce", 171)] {
        let message = bad.flip("round_open", at);
        bad.message(case(18, TICKETED), &format!("open-second-{id}"), comment, &message, "conflict");
        bad.message(case(18, RELEASED), &format!("open-late-{id}"), comment, &message, "conflict");
    }
}

fn freezes(bad: &mut Bad<'_>) {
    for name in ["freeze", "freeze_all", "freeze_2"] {
        let message = bad.t.get(name).clone();
        let id = format!("{}-first", name.replace('_', "-"));
        bad.message(case(27, &[]), &id, "before the round has a ticket", &message, "order");
    }
    for (id, hash) in [("zeros", [0; 32]), ("open", bad.t.get("round_open").hash())] {
        let message = bad.put("freeze", 35, &hash);
        let id = format!("freeze-ticket-{id}");
        bad.message(case(9, TICKETED), &id, "not the ticket of the round", &message, "ticket");
    }
    let message = bad.edited("freeze", |message| {
        let sum: Vec<u8> = message.header[72..104].to_vec();
        let ticket: Vec<u8> = message.header[35..67].to_vec();
        put(message, 35, &sum);
        put(message, 72, &ticket);
    });
    bad.message(
        case(9, TICKETED),
        "freeze-swapped",
        "ticket hash and sum hash exchanged",
        &message,
        "ticket",
    );
    for mask in [1, 2, 255] {
        let message = bad.put("freeze", 71, &[mask]);
        let id = format!("freeze-mask-{mask}");
        bad.message(case(7, TICKETED), &id, "a mask, which no profile has yet", &message, "profile");
    }
    if bad.t.policy().profile == Profile::Sparse {
        for occupied in [u32::MAX, bad.t.policy().positions() + 1] {
            let message = bad.put("freeze", 104, &occupied.to_be_bytes());
            let id = format!("freeze-occupied-{occupied}");
            bad.message(case(3, TICKETED), &id, "more positions than there are", &message, "size");
        }
    }
}

/// Adds sets that must not be opened. Users refuse a publish message with such a set in the same way.
pub(super) const SETS: &[(&str, &[u32], &str)] = &[
    ("none", &[], "set_small"),
    ("one", &[1], "set_small"),
    ("two", &[2, 9], "set_small"),
    ("same-twice", &[1, 2, 2], "set_order"),
    ("first-twice", &[1, 1, 2, 9], "set_order"),
    ("last-twice", &[1, 9, 9], "set_order"),
    ("three-of-one", &[1, 1, 1], "set_order"),
    ("descending", &[9, 2, 1], "set_order"),
    ("last-two-exchanged", &[1, 9, 2], "set_order"),
    ("unknown-3", &[1, 2, 3], "set_unknown"),
    ("unknown-last", &[1, 2, 10], "set_unknown"),
    ("unknown-all", &[3, 4, 6], "set_unknown"),
    ("unknown-most", &[1, 2, 9, u32::MAX], "set_unknown"),
];

fn sets(bad: &mut Bad<'_>) {
    for (id, users, expected) in SETS {
        let users = bad.t.set(users);
        let message = bad.edited("freeze", |message| replace_users(message, 108, &users));
        let comment = format!("a set of {} entries", users.len());
        bad.message(case(21, TICKETED), &format!("freeze-{id}"), &comment, &message, expected);
    }
}

/// Adds round 2 on the model of round 1. The ticket of round 2 names the key generator's log, which the vector cannot
/// predict. A test must insert the hash of the issued ticket and sign again.
fn differences(bad: &mut Bad<'_>) {
    let less: &[&[u32]] = &[&[1, 2, 5], &[1, 2, 9], &[1, 5, 9], &[2, 5, 9]];
    let runs = [
        ("freeze", &["round_open", "freeze", "decrypt", "close", "round_open_2"], &[&USERS[..]][..]),
        ("freeze_all", &["round_open", "freeze_all", "decrypt_all", "close", "round_open_2"], less),
    ];
    for (first, given, sets) in runs {
        for users in sets {
            let fields = Fields::new().bytes(&[0; 32]).u32(1).u8(0).bytes(&sum_hash(b"any")).u32(0);
            let message =
                bad.t.message(Type::Freeze, 2, Sender::Aggregator, fields.users(&bad.t.set(users)), &[]);
            let rebind = object()
                .with("offset", number(35))
                .with("length", number(32))
                .with("with", text("ticket_hash"))
                .with("signer", text("aggregator"));
            let names: Vec<String> = users.iter().map(u32::to_string).collect();
            let id = format!("difference-{}-{}", first.replace('_', "-"), names.join("-"));
            let comment = "a set that differs by one user from the one opened on the same model in round 1";
            let more = [("rebind", rebind)];
            bad.with(case(23, given), &id, comment, hex(message.bytes()), &more, "set_difference");
        }
    }
}

fn attempts(bad: &mut Bad<'_>) {
    let (sum, occupied) = bad.t.sum_of(&UPLOADERS);
    let attempt = |bad: &Bad<'_>, attempt| bad.t.freeze(attempt, &sum, occupied, &UPLOADERS);
    for skipped in [2, 3, 17, u32::MAX] {
        let message = attempt(bad, skipped);
        let id = format!("freeze-attempt-{skipped}-first");
        bad.message(case(22, TICKETED), &id, "the first attempt is 1", &message, "attempts");
    }
    for skipped in [3, u32::MAX] {
        let message = attempt(bad, skipped);
        let id = format!("freeze-attempt-{skipped}-second");
        bad.message(case(22, FROZEN), &id, "the second attempt is 2", &message, "attempts");
    }
    let message = attempt(bad, 3);
    let twice = case(22, &["round_open", "freeze", "freeze_2"]);
    bad.message(twice, "freeze-attempt-3-of-2", "the policy allows two attempts", &message, "attempts");

    let other_sum = bad.put("freeze", 72, &[1; 32]);
    let other_body = bad.flip("freeze", 120);
    let comment = "an attempt that was frozen with other bytes";
    let all = bad.t.get("freeze_all").clone();
    for (id, message) in [("set", all), ("sum", other_sum), ("body", other_body)] {
        bad.message(case(22, FROZEN), &format!("freeze-1-other-{id}"), comment, &message, "conflict");
    }
    let message = attempt(bad, 2);
    bad.message(twice, "freeze-2-other-set", comment, &message, "conflict");
}

fn decrypts(bad: &mut Bad<'_>) {
    let good = bad.t.get("decrypt").clone();
    bad.message(case(27, &[]), "decrypt-first", "before anything", &good, "order");
    bad.message(case(27, TICKETED), "decrypt-unfrozen", "before the freeze", &good, "order");
    let twice = case(27, &["round_open", "freeze", "freeze_2"]);
    bad.message(twice, "decrypt-older", "the freeze before the latest", &good, "order");
    let all = bad.t.get("decrypt_all").clone();
    bad.message(case(27, FROZEN), "decrypt-all", "for a freeze that never was", &all, "order");
    let message = bad.put("decrypt", 35, &[0; 32]);
    bad.message(case(27, FROZEN), "decrypt-no-freeze", "for no freeze", &message, "order");

    sums(bad);

    let occupied = good.header[67..71].iter().fold(0u32, |x, &byte| x << 8 | u32::from(byte));
    for wrong in [occupied + 1, occupied + 2] {
        let message = bad.put("decrypt", 67, &wrong.to_be_bytes());
        let id = format!("decrypt-occupied-{wrong}");
        bad.message(case(11, FROZEN), &id, "not the frozen number of positions", &message, "count");
    }
    if bad.t.policy().profile == Profile::Sparse {
        let (sum, occupied) = bad.t.sum_of(&UPLOADERS);
        let message = bad.t.decrypt(bad.t.get("freeze_wrong_occupied"), &sum, occupied);
        let given = case(11, &["round_open", "freeze_wrong_occupied"]);
        let comment = "right for the sum, but not the number that was frozen";
        bad.message(given, "decrypt-occupied-frozen-otherwise", comment, &message, "count");
    }

    let (_, occupied) = bad.t.sum_of(&UPLOADERS);
    for (name, expected, sum) in bad.t.bad_sums() {
        let freeze = format!("freeze_{name}");
        let message = bad.t.decrypt(bad.t.get(&freeze), &sum, occupied);
        let row = if expected == "ct_range" { 13 } else { 14 };
        let given = ["round_open", &*freeze];
        let case = Case { row, party: Party::KeyGenerator, given: &given };
        let id = format!("decrypt-{}", name.replace('_', "-"));
        bad.message(case, &id, "the last ciphertext of the frozen sum is none", &message, expected);
    }
}

/// Adds sums that differ from the frozen one.
fn sums(bad: &mut Bad<'_>) {
    let width = bad.t.policy().ciphertext_bytes();
    let (sum, occupied) = bad.t.sum_of(&UPLOADERS);
    let freeze = bad.t.get("freeze").clone();
    let last = sum.len() - width;
    let mut swapped = sum.clone();
    swapped[last - width..].rotate_left(width);
    let square = |bytes: &[u8], k: u32| {
        let n = &bad.t.key.n;
        let (c1, c0) = bytes.split_at(width / 2);
        let c = num_bigint::BigUint::from_bytes_be(c0) + num_bigint::BigUint::from_bytes_be(c1) * n;
        let c = c.pow(k) % (n * n);
        crate::wire::seal::ciphertext_bytes(bad.t.policy(), &bad.t.key, &c)
    };
    let scaled = [&sum[..last], &square(&sum[last..], 2)].concat();
    // c (1 + n) adds one to the lowest slot, which is c1 + c0 mod n
    let tagged = {
        let n = &bad.t.key.n;
        let (c1, c0) = sum[last..].split_at(width / 2);
        let (c1, c0) = (num_bigint::BigUint::from_bytes_be(c1), num_bigint::BigUint::from_bytes_be(c0));
        let c = &c0 + ((&c1 + &c0) % n) * n;
        [&sum[..last], &crate::wire::seal::ciphertext_bytes(bad.t.policy(), &bad.t.key, &c)].concat()
    };
    let mut flipped = sum.clone();
    flipped[last + 5] ^= 4;
    let of = |users: &[u32]| bad.t.sum_of(users);
    let altered = [
        ("bit", "one bit changed", (flipped, occupied)),
        ("swapped", "two ciphertexts exchanged", (swapped, occupied)),
        ("scaled", "one ciphertext squared", (scaled, occupied)),
        ("tagged", "one more in one slot", (tagged, occupied)),
        ("dropped", "without user 9", of(&[1, 2])),
        ("single", "user 1 alone", of(&[1])),
        ("twice", "user 2 twice", of(&[1, 2, 2, 9])),
        ("more", "user 5 too", of(&USERS)),
        ("replaced", "user 5 in the place of 9", of(&[1, 2, 5])),
        ("empty", "nothing", (vec![], 0)),
    ];
    for (id, comment, (body, occupied_now)) in altered {
        // changed in transport: the header is right, the body is not
        let message = Message { body: body.clone(), ..bad.t.get("decrypt").clone() };
        bad.message(case(26, FROZEN), &format!("decrypt-body-{id}"), comment, &message, "equation");
        // sent by A: the header matches the body
        let message: Message = bad.t.decrypt(&freeze, &body, occupied_now);
        let comment = format!("{comment}; the request names it");
        bad.message(case(26, FROZEN), &format!("decrypt-sum-{id}"), &comment, &message, "equation");
    }
    for cut in [1, width] {
        let message = Message { body: sum[..sum.len() - cut].to_vec(), ..bad.t.get("decrypt").clone() };
        bad.message(case(26, FROZEN), &format!("decrypt-body-cut-{cut}"), "cut short", &message, "equation");
    }
    let message = bad.flip("decrypt", 71);
    let comment = "the right body under another hash";
    bad.message(case(26, FROZEN), "decrypt-hash", comment, &message, "equation");
}

/// Adds requests after another request has been committed.
fn committed(bad: &mut Bad<'_>) {
    let case = case(27, RELEASED);
    let (sum, occupied) = bad.t.sum_of(&[1, 2]);
    let other = bad.t.decrypt(bad.t.get("freeze"), &sum, occupied);
    bad.message(case, "decrypt-other-committed", "another sum after the commitment", &other, "committed");
    let all = bad.t.get("decrypt_all").clone();
    bad.message(case, "decrypt-all-committed", "another freeze after the commitment", &all, "committed");
    let message = bad.flip("decrypt", 71);
    bad.message(case, "decrypt-hash-committed", "another hash after the commitment", &message, "committed");
    // the same set, because another set would be refused for its difference
    let (sum, occupied) = bad.t.sum_of(&UPLOADERS);
    let comment = "a new attempt with the same set after the commitment";
    let message = bad.t.freeze(2, &sum, occupied, &UPLOADERS);
    bad.message(case, "freeze-2-committed", comment, &message, "committed");
    let message = bad.t.freeze(2, b"another sum", occupied, &UPLOADERS);
    bad.message(case, "freeze-2-sum-committed", "the same with another sum", &message, "committed");
}
