//! Published sums and models that a user must refuse.

use num_bigint::BigUint;

use super::envelope::ROUND;
use super::{Bad, Case, Party, UPLOADED, hex, number, put};
use crate::wire::derive::Digest;
use crate::wire::mask::{Round, masks, residue_bytes};
use crate::wire::message::{Message, Sender, payload_hash};
use crate::wire::seal::{Refused, check_and_decode, check_of, fixed_width};
use crate::wire::task::Receipts;

/// The user who has not uploaded, so that it needs no inclusion.
const BYSTANDER: Party = Party::User(5);
const TICKETED: &[&str] = &["ticket"];

/// Offsets in the header of a result.
const OUTCOME: usize = 67;
const USERS: usize = 68;
const USERS_ROOT: usize = 72;
const PAYLOAD_HASH: usize = 104;
const LOG: usize = 136;
/// The offset of the sum hash in a publish message.
const SUM_HASH: usize = 307;

/// Adds the vectors.
pub(super) fn add(bad: &mut Bad<'_>) {
    results(bad);
    order(bad);
    not_mine(bad);
    hashes(bad);
    lengths(bad);
    if bad.t.policy().receipts == Receipts::Masked {
        residues(bad);
        checks(bad);
        ranges(bad);
    } else {
        payloads(bad);
    }
    rollbacks(bad);
    models(bad);
}

fn case(row: u8) -> Case<'static> {
    Case { row, party: BYSTANDER, given: TICKETED }
}

/// Makes a publish message with another result, signed by G, and with the sum of the round.
fn with_result(bad: &Bad<'_>, edit: impl FnOnce(&mut Message)) -> Message {
    let result = bad.edited("result", edit);
    bad.t.publish(&result, &bad.t.new_model, &bad.t.get("publish").body)
}

/// Makes a publish message with another sum, correctly hashed.
fn with_sum(bad: &Bad<'_>, sum: &[u8]) -> Message {
    bad.t.publish(bad.t.get("result"), &bad.t.new_model, sum)
}

fn results(bad: &mut Bad<'_>) {
    let good = bad.t.get("result").clone();
    let signed_by = |message: &mut Message, sender| message.sign(bad.t.identity(sender));
    let mut forged = good.clone();
    signed_by(&mut forged, Sender::Aggregator);
    let mut as_aggregator = good.clone();
    put(&mut as_aggregator, 30, &[1]);
    signed_by(&mut as_aggregator, Sender::Aggregator);
    let mut flipped = good.clone();
    flipped.signature[0] ^= 1;
    let zeros = Message { signature: vec![0; 64], ..good.clone() };
    let [mut other_payload, mut other_root, mut other_users] = [(); 3].map(|()| good.clone());
    other_payload.header[PAYLOAD_HASH] ^= 1;
    other_root.header[USERS_ROOT] ^= 1;
    put(&mut other_users, USERS, &4u32.to_be_bytes());
    let mut failed = good.clone();
    put(&mut failed, OUTCOME, &[2]);
    signed_by(&mut failed, Sender::KeyGenerator);
    let mut other_round = good;
    put(&mut other_round, ROUND, &2u64.to_be_bytes());
    signed_by(&mut other_round, Sender::KeyGenerator);
    let other_task = bad.other.get("result").clone();
    for (id, comment, result) in [
        ("forged", "the result is signed by the aggregator", forged),
        ("role", "the result is the aggregator's own", as_aggregator),
        ("signature-bit", "one bit of the result's signature", flipped),
        ("signature-zeros", "the result is not signed", zeros),
        ("payload", "the result names another payload than was signed", other_payload),
        ("root", "the result names other participants than were signed", other_root),
        ("users", "the result names more participants than were signed", other_users),
        ("failed", "the key generator said that the round failed", failed),
        ("other-round", "the result of another round", other_round),
        ("other-task", "the result of another task", other_task),
    ] {
        let message = bad.t.publish(&result, &bad.t.new_model, &bad.t.get("publish").body);
        bad.message(case(33), &format!("publish-result-{id}"), comment, &message, "proof");
    }
    for users in [0u32, 1, 2] {
        let message = with_result(bad, |result| put(result, USERS, &users.to_be_bytes()));
        let comment = "the key generator counted fewer users than the floor";
        bad.message(case(21), &format!("publish-users-{users}"), comment, &message, "set_small");
    }
}

fn order(bad: &mut Bad<'_>) {
    let publish = bad.t.get("publish").clone();
    for user in [1, 5, 9] {
        let case = Case { row: 27, party: Party::User(user), given: &[] };
        let comment = "the user does not know the ticket";
        bad.message(case, &format!("publish-{user}-without-ticket"), comment, &publish, "order");
    }
}

/// Adds sums of others to a user whose upload was acknowledged. Its own upload has other random values than that of
/// messages.json, so none of the paths leads from its leaf to the root.
fn not_mine(bad: &mut Bad<'_>) {
    let publish = bad.t.get("publish").clone();
    let own = |given| Case { row: 24, party: Party::User(1), given };
    let paths: [(&[&str], &str); 3] = [
        (&["ticket", "update", "ack_own", "inclusion_1"], "the path of another body of the user"),
        (&["ticket", "update", "ack_own", "inclusion_2"], "the path of user 2"),
        (&["ticket", "update", "ack_own", "inclusion_9"], "the path of user 9"),
    ];
    for (given, comment) in paths {
        let id = format!("publish-{}", given[3].replace('_', "-"));
        bad.message(own(given), &id, comment, &publish, "not_mine");
    }
    let comment = "the upload was acknowledged, and no inclusion has come";
    bad.message(own(UPLOADED), "publish-no-inclusion", comment, &publish, "not_mine");
    for user in [2, 9] {
        let case = Case { party: Party::User(user), ..own(UPLOADED) };
        bad.message(case, &format!("publish-missing-{user}"), comment, &publish, "not_mine");
    }
    let prepared = own(&["ticket", "update"]);
    let comment = "the upload was not acknowledged, so no inclusion is needed";
    bad.message(prepared, "publish-not-acknowledged", comment, &publish, "ok");
}

/// Adds bodies that do not have the sum hash.
fn hashes(bad: &mut Bad<'_>) {
    let good = bad.t.get("publish").clone();
    for at in [0, good.body.len() / 2, good.body.len() - 1] {
        let mut message = good.clone();
        message.body[at] ^= 1;
        let comment = "one bit of the sum changed on the way";
        bad.message(case(43), &format!("publish-sum-bit-{at}"), comment, &message, "encoding");
    }
    for (id, hash) in [("zeros", [0; 32]), ("other", [0x5a; 32])] {
        let message = bad.put("publish", SUM_HASH, &hash);
        let comment = "the hash of another sum";
        bad.message(case(43), &format!("publish-sum-hash-{id}"), comment, &message, "encoding");
    }
}

/// Adds sums that are too short. Longer ones than any of the task are refused for their size.
fn lengths(bad: &mut Bad<'_>) {
    let sum = bad.t.get("publish").body.clone();
    for length in [0, 1, sum.len() / 2, sum.len() - 1] {
        let short = sum[..length].to_vec();
        let mut result = bad.t.get("result").clone();
        if bad.t.policy().receipts != Receipts::Masked {
            put(&mut result, PAYLOAD_HASH, &payload_hash(&short));
            result.sign(bad.t.identity(Sender::KeyGenerator));
        }
        let message = bad.t.publish(&result, &bad.t.new_model, &short);
        let comment = "too short for a sum; its hash is right";
        bad.message(case(43), &format!("publish-sum-length-{length}"), comment, &message, "encoding");
    }
}

/// Adds sums that are not the payload of the result.
pub(super) fn payloads(bad: &mut Bad<'_>) {
    let sum = bad.t.get("publish").body.clone();
    let width = bad.t.policy().slot_bits().div_ceil(8) as usize;
    let mut shifted = sum.clone();
    shifted[width - 1] ^= 1;
    let mut swapped = sum.clone();
    swapped.rotate_left(width);
    for (id, comment, sum) in [
        ("shifted", "one weight is another", shifted),
        ("zeros", "nothing", vec![0; sum.len()]),
        ("rotated", "the sums in another order", swapped),
        ("ones", "minus one everywhere", vec![0xff; sum.len()]),
    ] {
        let message = with_sum(bad, &sum);
        let comment = format!("{comment}; the key generator signed another sum");
        bad.message(case(43), &format!("publish-payload-{id}"), &comment, &message, "proof");
    }
    let message = with_result(bad, |result| result.header[PAYLOAD_HASH] ^= 1);
    bad.message(case(43), "publish-payload-hash", "the hash of another payload", &message, "proof");
}

/// Adds numbers that are not below n.
fn residues(bad: &mut Bad<'_>) {
    let (n, width) = (bad.t.key.n.clone(), bad.t.key.n.bits() as usize / 8);
    let ones = BigUint::from_bytes_be(&vec![0xff; width]);
    let residues = &bad.t.residues;
    let mut one = |id: &str, i: usize, z: &BigUint| {
        let mut sum = bad.t.get("publish").body.clone();
        sum[i * width..][..width].copy_from_slice(&fixed_width(z, width));
        let message = with_sum(bad, &sum);
        let comment = "a number that is not below n; the hash is right";
        bad.message(case(43), &format!("publish-residue-{i}-{id}"), comment, &message, "encoding");
    };
    for (i, z) in residues.iter().enumerate() {
        one("n", i, &n);
        one("ones", i, &ones);
        if z + &n <= ones {
            one("plus-n", i, &(z + &n));
        }
    }
}

/// Makes a publish message with these residues. Makes sure that the reference refuses them with this code.
fn refused(bad: &Bad<'_>, z: &[BigUint], expected: Refused) -> Message {
    let found = check_and_decode(bad.t.policy(), &bad.t.key, &bad.t.round(), 3, z);
    assert_eq!(found.err(), Some(expected));
    with_sum(bad, &residue_bytes(bad.t.policy(), z))
}

/// Adds sums that are not those of the listed users.
fn checks(bad: &mut Bad<'_>) {
    let (n, z) = (bad.t.key.n.clone(), bad.t.residues.clone());
    let (policy, round) = (bad.t.policy().clone(), bad.t.round());
    let last = z.len() - 1;
    let one = BigUint::from(1u8);
    let plus = |i: usize, x: &BigUint| {
        let mut z = z.clone();
        z[i] = (&z[i] + x) % &n;
        z
    };
    let times = |x: &BigUint| -> Vec<BigUint> { z.iter().map(|z| z * x % &n).collect() };
    let swapped = |i: usize, j: usize| {
        let mut z = z.clone();
        z.swap(i, j);
        z
    };
    let check_of_round = |round: &Round| {
        let mut z = z.clone();
        z[last] = check_of(&policy, &bad.t.key, round, 3, &z[..last]);
        z
    };
    let check_of_users = |users: usize| {
        let mut z = z.clone();
        z[last] = check_of(&policy, &bad.t.key, &round, users, &z[..last]);
        z
    };
    let masked: Vec<BigUint> = {
        let masks = masks(&bad.t.secrets(9).aggregator_key(&round), &n, z.len());
        z.iter().zip(masks).map(|(z, mask)| (z + mask) % &n).collect()
    };
    let minus_one = &n - &one;
    let half = (&n + &one) / 2u8;
    let slot = &one << policy.slot_bits();
    let (number, ticket, task) = (2, [0; 32], *bad.other.task());
    let sums = vec![
        ("shift-first", "one more in the first slot", plus(0, &one)),
        ("shift-second", "one more in the second slot", plus(0, &slot)),
        ("shift-minus", "one less in the first slot", plus(0, &minus_one)),
        ("shift-last", "one more in the last packed number", plus(last - 1, &one)),
        ("shift-check", "one more in the check", plus(last, &one)),
        ("scale-0", "all numbers are 0", times(&BigUint::from(0u8))),
        ("scale-2", "all numbers doubled", times(&BigUint::from(2u8))),
        ("scale-3", "all numbers tripled", times(&BigUint::from(3u8))),
        ("scale-minus-1", "all numbers times n - 1", times(&minus_one)),
        ("scale-half", "all numbers halved", times(&half)),
        ("swap-0-1", "the first two numbers exchanged", swapped(0, 1)),
        ("swap-check", "the first number and the check exchanged", swapped(0, last)),
        ("round", "the check of round 2", check_of_round(&Round { number, ..round.clone() })),
        ("ticket", "the check of another ticket", check_of_round(&Round { ticket, ..round.clone() })),
        ("task", "the check of another task", check_of_round(&Round { task, ..round.clone() })),
        (
            "seed",
            "the check of another seed",
            check_of_round(&Round { seed: bad.other.seed, ..round.clone() }),
        ),
        ("no-users", "the check of no users", check_of_users(0)),
        ("two-users", "the check of two users", check_of_users(2)),
        ("four-users", "the check of four users", check_of_users(4)),
        ("missing", "the sum of users 1 and 2", bad.t.residues_of(&[1, 2])),
        ("more", "the sum of all four users", bad.t.residues_of(&[1, 2, 5, 9])),
        ("twice", "the sum with user 9 twice", bad.t.residues_of(&[1, 2, 9, 9])),
        ("masked", "the aggregator's masks of user 9 are still in the sum", masked),
    ];
    for (id, comment, z) in sums {
        let message = refused(bad, &z, Refused::Check);
        bad.message(case(44), &format!("publish-check-{id}"), comment, &message, "check");
    }
    let message = with_result(bad, |result| put(result, USERS, &4u32.to_be_bytes()));
    let comment = "the key generator counted more users than the sum has";
    bad.message(case(44), "publish-check-counted-4", comment, &message, "check");
}

/// Adds sums whose check is right and of which a slot is out of range.
fn ranges(bad: &mut Bad<'_>) {
    let (n, policy) = (bad.t.key.n.clone(), bad.t.policy().clone());
    let (beta, slots) = (policy.slot_bits(), policy.slots());
    let most = BigUint::from(3 * policy.bound() as u64);
    let (one, zero) = (BigUint::from(1u8), BigUint::from(0u8));
    let all = BigUint::from(8 * policy.bound() as u64);
    for (id, comment, i, m) in [
        ("most-plus-1", "one more than three users can have", 0, &most + &one),
        ("least-minus-1", "one less than three users can have", 0, &n - &most - &one),
        ("eight-users", "what only eight users can have", 0, all),
        (
            "middle",
            "one more than three users can have, in a slot in the middle",
            0,
            (&most + &one) << (5 * beta),
        ),
        ("second", "one more than three users can have, in the second number", 1, &most + &one),
        ("above", "one above the last slot", 0, &one << (slots as u32 * beta)),
        ("minus-above", "minus one above the last slot", 0, &n - (&one << (slots as u32 * beta))),
        ("half", "about n / 2", 1, &n / 2u8),
        ("random", "a random number", 0, bad.t.residues[2].clone()),
    ] {
        let mut z = vec![zero.clone(); bad.t.residues.len()];
        z[i] = m;
        let last = z.len() - 1;
        z[last] = check_of(&policy, &bad.t.key, &bad.t.round(), 3, &z[..last]);
        let message = refused(bad, &z, Refused::Range);
        let comment = format!("{comment}; the check is right");
        bad.message(case(45), &format!("publish-range-{id}"), &comment, &message, "range");
    }
    let mut z = vec![zero; bad.t.residues.len()];
    let last = z.len() - 1;
    z[0] = most;
    z[last] = check_of(&policy, &bad.t.key, &bad.t.round(), 3, &z[..last]);
    let message = with_sum(bad, &residue_bytes(&policy, &z));
    bad.message(case(45), "publish-range-most", "the most that three users can have", &message, "ok");
}

/// Adds logs of G that have another head than in the ticket.
fn rollbacks(bad: &mut Bad<'_>) {
    let later: Vec<u8> = bad.t.get("result").header[LOG + 8..LOG + 40].to_vec();
    for (id, head) in [("zeros", vec![0; 32]), ("ones", vec![0xff; 32]), ("later-head", later)] {
        let message = with_result(bad, |result| {
            put(result, LOG, &0u64.to_be_bytes());
            put(result, LOG + 8, &head);
        });
        let comment = "the log of G is as long as in the ticket, with another head";
        bad.message(case(31), &format!("publish-log-{id}"), comment, &message, "rollback");
    }
}

/// Adds models that a user's learner computed and that do not have the digest of the publish message.
fn models(bad: &mut Bad<'_>) {
    let (old, new) = (bad.t.model.clone(), bad.t.new_model.clone());
    let flipped = [&[new[0] ^ 1], &new[1..]].concat();
    let longer = [&new[..], &[0]].concat();
    let published: &[&str] = &["ticket", "publish"];
    let wrong = "not the model of the publish message";
    let early = "there is no checked sum";
    for (id, comment, given, model, expected) in [
        ("bit", wrong, published, &flipped[..], "model"),
        ("longer", wrong, published, &longer, "model"),
        ("shorter", wrong, published, &new[..new.len() - 1], "model"),
        ("empty", wrong, published, &[], "model"),
        ("old", wrong, published, &old, "model"),
        ("first", early, &[], &new, "order"),
        ("ticketed", early, TICKETED, &new, "order"),
        ("prepared", early, &["ticket", "update"], &new, "order"),
        ("aborted", early, &["ticket", "close_aborted"], &new, "order"),
        ("right", "as it should be", published, &new, "ok"),
    ] {
        let vector = bad.start("model", id, 47, comment).with("user", number(5));
        let given = super::list(given.iter().map(|name| super::text(*name)));
        bad.end(vector.with("given", given).with("input", hex(model)), &[], expected);
    }
    let digest: Digest = [0x5a; 32];
    let other = bad.put("publish", SUM_HASH - 32, &digest);
    bad.message(
        case(47),
        "publish-other-digest",
        "another digest, which the sum does not show",
        &other,
        "ok",
    );
}
