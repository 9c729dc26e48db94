//! Requests of the aggregator that the key generator must refuse.

use super::super::json::{hex, number, object, text};
use super::super::transcript::{UPLOADERS, USERS};
use super::envelope::{replace_users, thorough};
use super::{Bad, Case, Party, RELEASED, put};
use crate::wire::message::{Fields, Message, Participant, Sender, Type};
use crate::wire::seal::sum_hash;
use crate::wire::task::{Profile, Receipts};

const TICKETED: &[&str] = &["round_open"];
const FROZEN: &[&str] = &["round_open", "freeze"];
const FAILED: &[&str] = &["round_open", "freeze_failing", "decrypt_failing"];

/// Adds the vectors.
pub(super) fn add(bad: &mut Bad<'_>) {
    opens(bad);
    freezes(bad);
    sets(bad);
    differences(bad);
    attempts(bad);
    signatures(bad);
    decrypts(bad);
    committed(bad);
    closes(bad);
    if bad.t.policy().receipts == Receipts::Checked {
        failures(bad);
    }
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
        let sum: Vec<u8> = message.header[71..103].to_vec();
        let ticket: Vec<u8> = message.header[35..67].to_vec();
        put(message, 35, &sum);
        put(message, 71, &ticket);
    });
    bad.message(
        case(9, TICKETED),
        "freeze-swapped",
        "ticket hash and sum hash exchanged",
        &message,
        "ticket",
    );
    if bad.t.policy().profile == Profile::Sparse {
        for occupied in [u32::MAX, bad.t.policy().positions() + 1] {
            let message = bad.put("freeze", 103, &occupied.to_be_bytes());
            let id = format!("freeze-occupied-{occupied}");
            bad.message(case(3, TICKETED), &id, "more positions than there are", &message, "size");
        }
    }
}

/// Sets that must not be opened.
const SETS: &[(&str, &[u32], &str)] = &[
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
        let users = bad.t.participants(users);
        let message = bad.edited("freeze", |message| replace_users(message, &users));
        let comment = format!("a set of {} entries", users.len());
        bad.message(case(21, TICKETED), &format!("freeze-{id}"), &comment, &message, expected);
    }
}

/// Adds round 2 on the model of round 1. The ticket of round 2 names the key generator's log, which the vector cannot
/// predict. A test must insert the hash of the issued ticket and sign again. The signatures of the uploads are those of
/// round 1, but they are checked after the set.
fn differences(bad: &mut Bad<'_>) {
    let three: &[&[u32]] = &[&USERS, &[1, 2, 5], &[1, 5, 9], &[2, 5, 9]];
    let all: &[&[u32]] = &[&[1, 2, 5], &[1, 2, 9], &[1, 5, 9], &[2, 5, 9]];
    let runs = [
        ("freeze", &["round_open", "freeze", "decrypt", "close", "round_open_2"], three),
        ("freeze_all", &["round_open", "freeze_all", "decrypt_all", "close", "round_open_2"], all),
        ("rejected", &["round_open", "freeze", "decrypt", "close_rejected", "round_open_2"], &three[..2]),
    ];
    let comment = "a set that differs by one or two users from the one opened on the same model in round 1";
    for (first, given, sets) in runs {
        for users in sets {
            let id = format!("difference-{}", first.replace('_', "-"));
            of_round_2(bad, case(23, given), &id, comment, users, "set_difference");
        }
    }
    let comment = "the same set as in round 1, with the signatures of the uploads of round 1";
    for (id, given, users) in [
        ("same-set", &["round_open", "freeze", "decrypt", "close", "round_open_2"], &UPLOADERS[..]),
        ("same-set-all", &["round_open", "freeze_all", "decrypt_all", "close", "round_open_2"], &USERS),
        (
            "same-set-rejected",
            &["round_open", "freeze", "decrypt", "close_rejected", "round_open_2"],
            &UPLOADERS,
        ),
    ] {
        of_round_2(bad, case(37, given), id, comment, users, "signature");
    }
    let given = &["round_open", "close_aborted", "round_open_2"];
    let comment = "nothing was opened in round 1, but these are the signatures of its uploads";
    of_round_2(bad, case(37, given), "after-aborted", comment, &USERS, "signature");
}

/// Adds a freeze of round 2 that lists these users.
fn of_round_2(bad: &mut Bad<'_>, case: Case<'_>, id: &str, comment: &str, users: &[u32], expected: &str) {
    let fields = Fields::new().bytes(&[0; 32]).u32(1).bytes(&sum_hash(b"any")).u32(0);
    let fields = fields.participants(&bad.t.participants(users));
    let message = bad.t.message(Type::Freeze, 2, Sender::Aggregator, fields, &[]);
    let rebind = object()
        .with("offset", number(35))
        .with("length", number(32))
        .with("with", text("ticket_hash"))
        .with("signer", text("aggregator"));
    let names: Vec<String> = users.iter().map(u32::to_string).collect();
    let id = format!("{id}-{}", names.join("-"));
    bad.with(case, &id, comment, hex(message.bytes()), &[("rebind", rebind)], expected);
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

    let other_sum = bad.put("freeze", 71, &[1; 32]);
    let other_body = bad.flip("freeze", 140);
    let comment = "an attempt that was frozen with other bytes";
    let all = bad.t.get("freeze_all").clone();
    for (id, message) in [("set", all), ("sum", other_sum), ("body", other_body)] {
        bad.message(case(22, FROZEN), &format!("freeze-1-other-{id}"), comment, &message, "conflict");
    }
    let message = attempt(bad, 2);
    bad.message(twice, "freeze-2-other-set", comment, &message, "conflict");
}

/// Adds freezes that list an upload that the user has not signed in this way.
fn signatures(bad: &mut Bad<'_>) {
    let step = if thorough(bad) { 1 } else { 3 };
    for (id, comment, participants) in unsigned(bad).into_iter().step_by(step) {
        let message = bad.edited("freeze", |message| replace_users(message, &participants));
        bad.message(case(37, TICKETED), &format!("freeze-upload-{id}"), comment, &message, "signature");
    }
}

/// Returns participants of whom one upload is not signed in this way.
pub(super) fn unsigned(bad: &Bad<'_>) -> Vec<(&'static str, &'static str, Vec<Participant>)> {
    let good = bad.t.participants(&UPLOADERS);
    let with = |i: usize, edit: &dyn Fn(&mut Participant)| {
        let mut participants = good.clone();
        edit(&mut participants[i]);
        participants
    };
    // the upload of user 1 with other fields, signed by user 1
    let signed = |at: usize, bytes: &[u8]| bad.put("upload_1", at, bytes).signature;
    let again = |signature: Vec<u8>| with(0, &|participant| participant.signature.clone_from(&signature));
    let mut by_2 = bad.t.get("upload_1").clone();
    by_2.sign(bad.t.identity(Sender::User(2)));
    let ack = bad.t.get("ack_1").signature.clone();
    let mut swapped = good.clone();
    let first = swapped[0].signature.clone();
    swapped[0].signature = swapped[1].signature.clone();
    swapped[1].signature = first;
    let mut exchanged = good.clone();
    exchanged.swap(0, 1);
    (exchanged[0].user, exchanged[1].user) = (good[0].user, good[1].user);
    vec![
        ("bit-first", "one bit of the first signature", with(0, &|p| p.signature[5] ^= 1)),
        ("bit-last", "one bit of the last signature", with(2, &|p| p.signature[63] ^= 1)),
        ("zeros", "no signature", with(1, &|p| p.signature.fill(0))),
        ("count", "one ciphertext more than signed", with(0, &|p| p.count += 1)),
        ("count-zero", "no ciphertexts", with(2, &|p| p.count = 0)),
        ("salt", "another salt than signed", with(0, &|p| p.salt[15] ^= 1)),
        ("salt-zeros", "no salt", with(1, &|p| p.salt = [0; 16])),
        ("body", "another body than signed", with(0, &|p| p.body_hash[0] ^= 1)),
        ("body-zeros", "no body", with(2, &|p| p.body_hash = [0; 32])),
        ("swapped", "two signatures exchanged", swapped),
        ("exchanged", "two uploads exchanged, with their signatures", exchanged),
        ("other-ticket", "signed for another ticket", again(signed(35, &[0x5a; 32]))),
        ("open", "signed for the round-open", again(signed(35, &bad.t.get("round_open").hash()))),
        ("other-key", "signed for another key", again(signed(67, &[0x5a; 32]))),
        ("other-round", "signed for round 2", again(signed(22, &2u64.to_be_bytes()))),
        ("other-task", "signed for another task", again(signed(6, bad.other.task()))),
        ("version-1", "signed as version 1", again(signed(4, &[1]))),
        ("other-user", "signed by another user", again(by_2.signature)),
        ("ack", "the signature of the acknowledgement", again(ack)),
    ]
}

/// Adds endings that contradict what became of the sum.
fn closes(bad: &mut Bad<'_>) {
    let published = bad.t.get("close").clone();
    let [failed, aborted, rejected] =
        ["close_failed", "close_aborted", "close_rejected"].map(|name| bad.t.get(name).clone());
    for (id, message) in [("published", &published), ("aborted", &aborted), ("rejected", &rejected)] {
        let id = format!("close-{id}-first");
        bad.message(case(27, &[]), &id, "before the round has a ticket", message, "order");
    }
    for (when, given) in [("ticketed", TICKETED), ("frozen", FROZEN)] {
        for (id, message) in [("published", &published), ("failed", &failed), ("rejected", &rejected)] {
            let id = format!("close-{id}-{when}");
            bad.message(case(38, given), &id, "nothing was opened", message, "ending");
        }
    }
    for (id, message) in [("failed", &failed), ("aborted", &aborted)] {
        let id = format!("close-{id}-released");
        bad.message(case(38, RELEASED), &id, "the sum was released", message, "ending");
    }
    let mut control = |given, id: &str, message: &Message| {
        bad.message(case(38, given), id, "as it should be", message, "ok");
    };
    control(TICKETED, "close-aborted-ticketed", &aborted);
    control(FROZEN, "close-aborted-frozen", &aborted);
    control(RELEASED, "close-rejected-released", &rejected);
    for ending in [0, 5, 255] {
        let message = bad.put("close", 35, &[ending]);
        let id = format!("close-ending-{ending}");
        bad.message(case(1, RELEASED), &id, "an ending that does not exist", &message, "encoding");
    }
}

/// Adds rounds after a sum that could not be opened. The policy allows one.
fn failures(bad: &mut Bad<'_>) {
    for name in ["close", "close_aborted", "close_rejected"] {
        let message = bad.t.get(name).clone();
        let id = format!("{}-failed", name.replace('_', "-"));
        bad.message(case(38, FAILED), &id, "opening the sum failed", &message, "ending");
    }
    let failed = bad.t.get("close_failed").clone();
    bad.message(case(38, FAILED), "close-failed-failed", "as it should be", &failed, "ok");

    let given = &["round_open", "freeze_failing", "decrypt_failing", "close_failed"];
    let comment = "one opening failed, and the policy allows no more";
    for (id, model, nonce) in [
        ("again", &bad.t.model, [2; 16]),
        ("nonce", &bad.t.model, [3; 16]),
        ("new-model", &bad.t.new_model, [2; 16]),
    ] {
        let message = bad.t.round_open(2, model, &nonce);
        bad.message(case(35, given), &format!("open-2-failures-{id}"), comment, &message, "failures");
    }
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
    let wrong = if occupied > 2 { [occupied - 1, occupied - 2] } else { [occupied + 1, occupied + 2] };
    for wrong in wrong {
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
