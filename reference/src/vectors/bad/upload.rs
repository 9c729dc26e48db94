//! Uploads that the aggregator must refuse.

use super::super::corners;
use super::super::keys;
use super::super::transcript::USERS;
use super::envelope::thorough;
use super::{Bad, COLLECTING, Case, FROZEN, Party, REQUESTED};
use crate::rng::Rng;
use crate::wire::derive::h;
use crate::wire::hpke::{KeyPair, UPLOAD_INFO, open, upload_aad};
use crate::wire::mask::Secrets;
use crate::wire::message::{Message, Sender, Type};
use crate::wire::task::{Profile, key_id};

const TICKET: usize = 35;
const KEY_ID: usize = 67;
const COUNT: usize = 99;
const BODY_HASH: usize = 119;
/// The bytes that sealing adds in front of the content: `enc`.
const ENC: usize = 32;

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
    sealing(bad);
    ciphertexts(bad);
    nonces(bad);
    order(bad);
}

/// Makes the upload of user 1 with another body, correctly hashed and signed.
fn with_body(bad: &Bad<'_>, edit: impl FnOnce(&mut Vec<u8>)) -> Message {
    let good = bad.t.get("upload_1");
    let mut body = good.body.clone();
    edit(&mut body);
    bad.t.upload_of(1, count(good), &bad.t.secrets(1).salt, &body)
}

/// Makes the upload of user 1 with another content, correctly sealed, hashed and signed.
fn with_content(bad: &Bad<'_>, edit: impl FnOnce(&mut Vec<u8>)) -> Message {
    let sealed = &bad.t.sealed[&1];
    let mut content = sealed.content.clone();
    edit(&mut content);
    bad.t.upload(1, sealed.count(), &content)
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
    let content = bad.t.sealed[&1].content.clone();
    for (id, length) in [("shorter", content.len() - width), ("longer", content.len() + 1)] {
        let message = with_content(bad, |content| content.resize(length, 1));
        let comment = "the content has another length; it is sealed correctly";
        bad.message(case(11), &format!("upload-content-{id}"), comment, &message, "size");
    }
    if bad.t.policy().profile == Profile::Full {
        blinds(bad);
    }
    let message = with_body(bad, |body| *body = content);
    bad.message(case(11), "upload-not-sealed", "the content without a seal", &message, "size");
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

/// Adds contents that do not begin with one a(u) of 32 bytes. Their ciphertexts are complete.
fn blinds(bad: &mut Bad<'_>) {
    let blind = bad.t.sealed[&1].content[..32].to_vec();
    for (id, length) in [("none", 0), ("short", 31), ("long", 33), ("twice", 64)] {
        let bytes: Vec<u8> = blind.iter().copied().cycle().take(length).collect();
        let message = with_content(bad, |content| drop(content.splice(..32, bytes)));
        let comment = "not one a(u) of 32 bytes before the ciphertexts; it is sealed correctly";
        bad.message(case(11), &format!("upload-blind-{id}"), comment, &message, "size");
    }
    // a salt is random, so any is possible
    let sealed = &bad.t.sealed[&1];
    let message = bad.t.upload_of(1, sealed.count(), &[0; 16], &bad.t.encrypt(1, &sealed.content));
    bad.message(case(11), "upload-salt-zeros", "as it should be, with a salt of zeros", &message, "ok");
}

/// Adds bodies that A cannot decrypt. Their lengths and hashes are right.
fn sealing(bad: &mut Bad<'_>) {
    let content = bad.t.sealed[&1].content.clone();
    let (task, ticket) = (*bad.t.task(), bad.t.get("ticket").hash());
    let key = bad.t.roster.agreement().public;
    let aad = upload_aad(&task, 1, 1, &ticket);
    let mut bodies = Vec::new();
    let length = bad.t.get("upload_1").body.len();
    for (id, comment, at) in [
        ("enc", "one bit of enc", 0),
        ("first", "one bit of the first ciphertext", ENC),
        ("middle", "one bit in the middle", length / 2),
        ("tag", "one bit of the tag", length - 1),
    ] {
        let mut body = bad.t.get("upload_1").body.clone();
        body[at] ^= 1;
        bodies.push((id, comment, body));
    }
    let other_key = bad.other.roster.agreement().public;
    let own_key = KeyPair::agreement(bad.t.identity(Sender::User(1))).public;
    for (id, comment, key, info, aad) in [
        ("other-key", "sealed to the key of another task", other_key, UPLOAD_INFO, aad.clone()),
        ("own-key", "sealed to a key of the user", own_key, UPLOAD_INFO, aad.clone()),
        ("info", "sealed for another purpose", key, b"dphe/v1/upload-seal", aad.clone()),
        ("no-info", "sealed for no purpose", key, b"", aad.clone()),
        ("user", "sealed as user 2", key, UPLOAD_INFO, upload_aad(&task, 1, 2, &ticket)),
        ("round", "sealed for round 2", key, UPLOAD_INFO, upload_aad(&task, 2, 1, &ticket)),
        ("ticket", "sealed for another ticket", key, UPLOAD_INFO, upload_aad(&task, 1, 1, &[0; 32])),
        ("task", "sealed for another task", key, UPLOAD_INFO, upload_aad(bad.other.task(), 1, 1, &ticket)),
        ("no-aad", "sealed for no upload", key, UPLOAD_INFO, vec![]),
    ] {
        bodies.push((id, comment, bad.t.encrypt_with(1, &key, info, &aad, &content)));
    }
    for (id, byte) in [("zero-enc", 0), ("one-enc", 1)] {
        let mut body = bad.t.get("upload_1").body.clone();
        body[..ENC].fill(0);
        body[0] = byte;
        bodies.push((id, "enc is a point of small order", body));
    }
    bodies.push(("zeros", "zeros", vec![0; length]));
    let open = |body: &[u8]| open(&bad.t.roster.agreement(), UPLOAD_INFO, &aad, body);
    assert!(bodies.iter().all(|(_, _, body)| body.len() == length && open(body).is_none()));
    let step = if thorough(bad) { 1 } else { 3 };
    for (id, comment, body) in bodies.into_iter().step_by(step) {
        let message = with_body(bad, |old| *old = body);
        bad.message(case(39), &format!("upload-seal-{id}"), comment, &message, "body");
    }
}

/// Adds errors in the permuted indices of two shards, in the sparse task.
fn slots(bad: &mut Bad<'_>) {
    let width = bad.t.policy().ciphertext_bytes();
    let positions = bad.t.policy().positions();
    let second = 2 * (4 + width);
    let read =
        |body: &[u8], at: usize| body[at..at + 4].iter().fold(0u32, |x, &byte| x << 8 | u32::from(byte));
    let good = bad.t.sealed[&1].content.clone();
    let found: Vec<u32> = [0, 4, second, second + 4].map(|at| read(&good, at)).to_vec();
    let mut one = |id: &str, comment: &str, row, places: &[(usize, u32)], expected: &str| {
        let message = with_content(bad, |content| {
            for &(at, slot) in places {
                content[at..at + 4].copy_from_slice(&slot.to_be_bytes());
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

/// Returns the offsets of ciphertexts in the content: the first one, one in the second shard, the last packed one and
/// the check.
fn places(bad: &Bad<'_>) -> Vec<(&'static str, usize)> {
    let width = bad.t.policy().ciphertext_bytes();
    let check = bad.t.sealed[&1].content.len() - width;
    if bad.t.policy().profile == Profile::Sparse {
        let second = 2 * (4 + width) + 8 + width;
        vec![("first", 8), ("second-shard", second), ("dense", check - width), ("check", check)]
    } else {
        vec![("first", 32), ("last", check - width), ("check", check)]
    }
}

fn ciphertexts(bad: &mut Bad<'_>) {
    for (place, at) in places(bad) {
        for corner in corners::ciphertexts(bad.t.policy(), &bad.t.key) {
            // the check is one more packed ciphertext, so a few are enough
            let few = ["zero", "c0_is_n", "n", "two_p", "one", "one_plus_k_n"];
            if place == "check" && !few.contains(&corner.name) {
                continue;
            }
            let message = with_content(bad, |content| {
                content[at..at + corner.bytes.len()].copy_from_slice(&corner.bytes);
            });
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
    let copy = |content: &mut Vec<u8>, from: usize, to: usize| content.copy_within(from..from + width, to);
    let message = with_content(bad, |content| copy(content, first, last));
    bad.message(case(16), "upload-same-ciphertext", "one ciphertext twice", &message, "nonce_reuse");
    let message = with_content(bad, |content| copy(content, last, first));
    bad.message(case(16), "upload-same-ciphertext-back", "one ciphertext twice", &message, "nonce_reuse");
    let message =
        with_content(bad, |content| content.copy_within(first + width / 2..first + width, last + width / 2));
    let comment = "two ciphertexts with the same noise and different plaintexts";
    bad.message(case(16), "upload-same-noise", comment, &message, "nonce_reuse");

    let given = &["start", "ticket", "upload_1"];
    let across = Case { given, ..case(16) };
    let (one, two) = (&bad.t.sealed[&1], &bad.t.sealed[&2]);
    for (id, from, half) in [("ciphertext", 0, false), ("noise", width / 2, true)] {
        let mut content = two.content.clone();
        content[last + from..last + width].copy_from_slice(&one.content[first + from..first + width]);
        let message = bad.t.upload(2, two.count(), &content);
        let comment =
            if half { "the noise of another user's ciphertext" } else { "another user's ciphertext" };
        bad.message(across, &format!("upload-2-{id}-of-1"), comment, &message, "nonce_reuse");
    }
    let copies: [(&[&str], u32, u32); 3] = [
        (&["start", "ticket", "upload_1"], 2, 1),
        (&["start", "ticket", "upload_1", "upload_9", "upload_2"], 5, 2),
        (&["start", "ticket", "upload_2", "upload_1"], 9, 1),
    ];
    for (given, user, from) in copies {
        let case = Case { row: 17, given, ..across };
        let (sealed, body) = (&bad.t.sealed[&from], bad.t.get(&format!("upload_{from}")).body.clone());
        let message = bad.t.upload(user, sealed.count(), &sealed.content);
        let comment = "the content of another user, sealed and signed by this one";
        bad.message(case, &format!("upload-{user}-copies-{from}"), comment, &message, "nonce_reuse");
        let message = bad.t.upload_of(user, sealed.count(), &bad.t.secrets(user).salt, &body);
        let comment = "the body of another user, signed by this one";
        let id = format!("upload-{user}-copies-body-of-{from}");
        bad.message(Case { row: 39, ..case }, &id, comment, &message, "body");
    }
}

fn order(bad: &mut Bad<'_>) {
    let mut rng = Rng::new("bad/second bodies");
    let mut again = |user| {
        let (salt, blind) = (rng.id(), rng.digest());
        let secrets = Secrets { salt, blind, ..bad.t.secrets(user).clone() };
        let sealed = bad.t.seal(&secrets, &mut rng);
        bad.t.upload_of(user, sealed.count(), &salt, &bad.t.encrypt(user, &sealed.content))
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
