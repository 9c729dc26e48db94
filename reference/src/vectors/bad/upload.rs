//! Uploads that the aggregator must refuse.

use super::super::corners;
use super::super::keys;
use super::super::transcript::USERS;
use super::{Bad, COLLECTING, Case, FROZEN, Party, REQUESTED};
use crate::rng::Rng;
use crate::wire::derive::h;
use crate::wire::message::{Message, Sender, Type};
use crate::wire::task::{Profile, key_id};

const TICKET: usize = 35;
const KEY_ID: usize = 67;
const COUNT: usize = 99;
const BODY_HASH: usize = 103;

fn case(row: u8) -> Case<'static> {
    Case { row, party: Party::Aggregator, given: COLLECTING }
}

/// Adds the vectors.
pub(super) fn add(bad: &mut Bad<'_>) {
    strangers(bad);
    header(bad);
    body(bad);
    if bad.t.policy().profile == Profile::Sparse {
        slots(bad);
    }
    ciphertexts(bad);
    nonces(bad);
    order(bad);
}

/// Makes the upload of user 1 with another body, correctly hashed and signed.
fn with_body(bad: &Bad<'_>, edit: impl FnOnce(&mut Vec<u8>)) -> Message {
    let good = bad.t.get("upload_1");
    let mut body = good.body.clone();
    edit(&mut body);
    bad.t.upload(1, count(good), &body)
}

fn count(upload: &Message) -> u32 {
    upload.header[COUNT..COUNT + 4].iter().fold(0, |x, &byte| x << 8 | u32::from(byte))
}

fn strangers(bad: &mut Bad<'_>) {
    let good = bad.t.get("upload_1").clone();
    for user in [3u32, 4, 10, u32::MAX] {
        let mut message = good.clone();
        super::put(&mut message, 31, &user.to_be_bytes());
        // the identity is not in the roster
        message.sign(&ed25519_dalek::SigningKey::from_bytes(&[user as u8; 32]));
        let id = format!("upload-from-{user}");
        bad.message(case(6), &id, "a user who is not enrolled", &message, "unknown_user");
    }
    let mut message = good;
    super::put(&mut message, 31, &2u32.to_be_bytes());
    message.sign(bad.t.identity(Sender::User(1)));
    bad.message(case(5), "upload-as-2", "user 1 says that it is user 2", &message, "signature");
}

fn header(bad: &mut Bad<'_>) {
    for (id, hash) in [("zeros", [0; 32]), ("open", bad.t.get("round_open").hash()), ("other", [0x5a; 32])] {
        let message = bad.put("upload_1", TICKET, &hash);
        bad.message(
            case(9),
            &format!("upload-ticket-{id}"),
            "not the ticket of the round",
            &message,
            "ticket",
        );
    }
    let message = bad.flip("upload_1", TICKET + 31);
    bad.message(case(9), "upload-ticket-bit", "one bit of the ticket's hash", &message, "ticket");

    let (n, other) = (bad.t.key.n.to_bytes_be(), key_id(&keys::other_key()));
    let fast = h("dphe/paillier/key-id/v1", &[&[2], &n]);
    for (id, key) in [("zeros", [0; 32]), ("other", other), ("hashed-otherwise", fast)] {
        let message = bad.put("upload_1", KEY_ID, &key);
        bad.message(case(7), &format!("upload-key-{id}"), "not the key of the task", &message, "key_id");
    }
    let message = bad.edited("upload_1", |message| message.header[TICKET..COUNT].rotate_left(32));
    bad.message(case(9), "upload-swapped", "ticket hash and key id exchanged", &message, "ticket");

    let right = count(bad.t.get("upload_1"));
    for wrong in [0, right - 1, right + 1, 2 * right, 1 << 31, u32::MAX] {
        let message = bad.put("upload_1", COUNT, &wrong.to_be_bytes());
        let comment = "not the number of ciphertexts that everybody sends; the body is right";
        bad.message(case(11), &format!("upload-count-{wrong}"), comment, &message, "count");
    }
}

fn body(bad: &mut Bad<'_>) {
    let width = bad.t.policy().ciphertext_bytes();
    let length = bad.t.get("upload_1").body.len();
    for cut in [1, 4, width, length - 1, length] {
        let message = with_body(bad, |body| body.truncate(length - cut));
        let comment = "the body is too short; its hash is right";
        bad.message(case(11), &format!("upload-body-minus-{cut}"), comment, &message, "size");
    }
    for more in [1, width, length] {
        let message = with_body(bad, |body| body.resize(length + more, 1));
        let comment = "the body is too long; its hash is right";
        bad.message(case(11), &format!("upload-body-plus-{more}"), comment, &message, "size");
    }
    for at in [0, length / 2, length - 1] {
        let mut message = bad.t.get("upload_1").clone();
        message.body[at] ^= 1;
        let comment = "one bit of the body changed on the way";
        bad.message(case(1), &format!("upload-body-bit-{at}"), comment, &message, "encoding");
    }
    for (id, hash) in [("zeros", [0; 32]), ("other", [0x5a; 32])] {
        let message = bad.put("upload_1", BODY_HASH, &hash);
        bad.message(
            case(1),
            &format!("upload-body-hash-{id}"),
            "another body is named",
            &message,
            "encoding",
        );
    }
    let mut message = bad.t.get("upload_1").clone();
    message.body.clone_from(&bad.t.get("upload_2").body);
    bad.message(case(1), "upload-body-of-2", "the body of another upload", &message, "encoding");
}

/// Adds errors in the permuted indices of two shards, in the sparse task.
fn slots(bad: &mut Bad<'_>) {
    let width = bad.t.policy().ciphertext_bytes();
    let positions = bad.t.policy().positions();
    let second = 2 * (4 + width);
    let read =
        |body: &[u8], at: usize| body[at..at + 4].iter().fold(0u32, |x, &byte| x << 8 | u32::from(byte));
    let good = bad.t.get("upload_1").body.clone();
    let found: Vec<u32> = [0, 4, second, second + 4].map(|at| read(&good, at)).to_vec();
    let mut one = |id: &str, comment: &str, row, places: &[(usize, u32)], expected: &str| {
        let message = with_body(bad, |body| {
            for &(at, slot) in places {
                body[at..at + 4].copy_from_slice(&slot.to_be_bytes());
            }
        });
        bad.message(case(row), &format!("upload-slot-{id}"), comment, &message, expected);
    };
    let range = "a slot beyond the positions";
    one("p", range, 12, &[(4, positions)], "index_range");
    one("p-plus-1", range, 12, &[(second + 4, positions + 1)], "index_range");
    one("2-to-31", range, 12, &[(second + 4, 1 << 31)], "index_range");
    one("ones", range, 12, &[(4, u32::MAX)], "index_range");
    one("both", range, 12, &[(0, u32::MAX - 1), (4, u32::MAX)], "index_range");
    let order = "not ascending";
    one("descending", order, 12, &[(0, found[1]), (4, found[0])], "index_order");
    one("descending-second", order, 12, &[(second, found[3]), (second + 4, found[2])], "index_order");
    one("twice", "twice in a shard", 12, &[(4, found[0])], "index_order");
    one("twice-second", "twice in a shard", 12, &[(second, found[3])], "index_order");
    let both = "twice in the upload: in one shard and in the other";
    one("two-shards", both, 12, &[(second, found[0]), (second + 4, found[1])], "index_order");
    let (low, high) = (found[0].min(found[3]), found[0].max(found[3]));
    one("one-in-both-shards", both, 12, &[(second, low), (second + 4, high)], "index_order");
    one("zeros", "all slots 0", 12, &[(0, 0), (4, 0), (second, 0), (second + 4, 0)], "index_order");
}

/// Returns the offsets of ciphertexts in the body: two in different shards, and the last dense one.
fn places(bad: &Bad<'_>) -> Vec<(&'static str, usize)> {
    let width = bad.t.policy().ciphertext_bytes();
    let last = bad.t.get("upload_1").body.len() - width;
    if bad.t.policy().profile == Profile::Sparse {
        vec![("first", 8), ("second-shard", 2 * (4 + width) + 8 + width), ("dense", last)]
    } else {
        vec![("first", 0), ("last", last)]
    }
}

fn ciphertexts(bad: &mut Bad<'_>) {
    for (place, at) in places(bad) {
        for corner in corners::ciphertexts(bad.t.policy(), &bad.t.key) {
            let message =
                with_body(bad, |body| body[at..at + corner.bytes.len()].copy_from_slice(&corner.bytes));
            let row = match corner.expected {
                "ct_range" => 13,
                "ct_unit" => 14,
                _ => 15,
            };
            let id = format!("upload-{place}-{}", corner.name.replace('_', "-"));
            bad.message(case(row), &id, corner.comment, &message, corner.expected);
        }
    }
}

/// Adds reused noise. It is recognised by c mod n, the second half of a ciphertext.
fn nonces(bad: &mut Bad<'_>) {
    let width = bad.t.policy().ciphertext_bytes();
    let places = places(bad);
    let (first, last) = (places[0].1, places[places.len() - 1].1);
    let copy = |body: &mut Vec<u8>, from: usize, to: usize| body.copy_within(from..from + width, to);
    let message = with_body(bad, |body| copy(body, first, last));
    bad.message(case(16), "upload-same-ciphertext", "one ciphertext twice", &message, "nonce_reuse");
    let message = with_body(bad, |body| copy(body, last, first));
    bad.message(case(16), "upload-same-ciphertext-back", "one ciphertext twice", &message, "nonce_reuse");
    let message = with_body(bad, |body| body.copy_within(first + width / 2..first + width, last + width / 2));
    let comment = "two ciphertexts with the same noise and different plaintexts";
    bad.message(case(16), "upload-same-noise", comment, &message, "nonce_reuse");

    let given = &["start", "ticket", "upload_1"];
    let across = Case { given, ..case(16) };
    let (one, two) = (bad.t.get("upload_1").clone(), bad.t.get("upload_2").clone());
    for (id, from, half) in [("ciphertext", 0, false), ("noise", width / 2, true)] {
        let mut body = two.body.clone();
        body[last + from..last + width].copy_from_slice(&one.body[first + from..first + width]);
        let message = bad.t.upload(2, count(&two), &body);
        let comment =
            if half { "the noise of another user's ciphertext" } else { "another user's ciphertext" };
        bad.message(across, &format!("upload-2-{id}-of-1"), comment, &message, "nonce_reuse");
    }
    let message = bad.t.upload(2, count(&one), &one.body);
    let comment = "the body of user 1, signed by user 2";
    bad.message(Case { row: 17, ..across }, "upload-2-copies-1", comment, &message, "nonce_reuse");
    let message = bad.t.upload(5, count(&two), &two.body);
    let three = Case { row: 17, given: &["start", "ticket", "upload_1", "upload_9", "upload_2"], ..across };
    bad.message(three, "upload-5-copies-2", "the body of user 2, signed by user 5", &message, "nonce_reuse");
    let message = bad.t.upload(9, count(&one), &one.body);
    let given = &["start", "ticket", "upload_2", "upload_1"];
    bad.message(Case { row: 17, given, ..across }, "upload-9-copies-1", comment, &message, "nonce_reuse");
}

fn order(bad: &mut Bad<'_>) {
    let mut rng = Rng::new("bad/second bodies");
    let mut again = |user| {
        let sealed = bad.t.seal(user, &mut rng);
        bad.t.upload(user, sealed.count(), &sealed.body)
    };
    let (one, two, other_one) = (again(1), again(2), again(1));
    let conflict = |given| Case { row: 18, party: Party::Aggregator, given };
    let comment = "the same weights sealed again: another body";
    let given = &["start", "ticket", "upload_1"];
    bad.message(conflict(given), "upload-1-again", comment, &one, "conflict");
    let given = &["start", "ticket", "upload_1", "upload_2", "upload_9"];
    bad.message(conflict(given), "upload-2-again", comment, &two, "conflict");
    let given = &["start", "ticket", "upload_2", "upload_1"];
    bad.message(conflict(given), "upload-1-once-more", comment, &other_one, "conflict");

    let upload_5 = bad.t.get("upload_5").clone();
    let late = |given| Case { row: 19, party: Party::Aggregator, given };
    bad.message(late(FROZEN), "upload-5-late", "after the freeze", &upload_5, "late");
    bad.message(late(REQUESTED), "upload-5-later", "after the request", &upload_5, "late");
    bad.message(late(FROZEN), "upload-1-again-late", "another body after the freeze", &one, "late");
    let received = [REQUESTED, &["result"]].concat();
    bad.message(late(&received), "upload-5-too-late", "after the result", &upload_5, "late");

    for user in USERS {
        let upload = bad.t.get(&format!("upload_{user}")).clone();
        assert_eq!(upload.kind, Type::Upload);
        let before = Case { row: 27, party: Party::Aggregator, given: &["start"] };
        bad.message(before, &format!("upload-{user}-early"), "before the ticket", &upload, "order");
    }
}
