//! Messages of the key generator that the aggregator must refuse.

use num_bigint::BigUint;

use super::super::transcript::{Transcript, UPLOADERS, USERS as ALL};
use super::{Bad, COLLECTING, Case, FROZEN, Party, REQUESTED, put};
use crate::wire::message::{Message, Participant, Sender, payload_hash};
use crate::wire::participants::root;
use crate::wire::seal::fixed_width;
use crate::wire::task::Receipts;

/// Offsets in the header of a result.
const USERS: usize = 68;
const USERS_ROOT: usize = 72;
const PAYLOAD_HASH: usize = 104;
const LOG: usize = 136;

/// Adds the vectors.
pub(super) fn add(bad: &mut Bad<'_>) {
    tickets(bad);
    freeze_acks(bad);
    results(bad);
    roots(bad);
    if bad.t.policy().receipts == Receipts::Masked {
        residues(bad);
    }
}

fn tickets(bad: &mut Bad<'_>) {
    let case = Case { row: 9, party: Party::Aggregator, given: &["start"] };
    for (id, hash) in
        [("zeros", [0; 32]), ("other", bad.other.get("round_open").hash()), ("ones", [0xff; 32])]
    {
        let message = bad.put("ticket", 35, &hash);
        bad.message(case, &format!("ticket-open-{id}"), "for another round-open", &message, "ticket");
    }
    let second = Case { given: COLLECTING, ..case };
    for (id, at) in [("history", 203), ("seq", 243), ("head", 244), ("head-end", 275)] {
        let message = bad.flip("ticket", at);
        let comment = "a second ticket for the same round-open, with another history or log";
        bad.message(second, &format!("ticket-second-{id}"), comment, &message, "conflict");
    }
}

fn freeze_acks(bad: &mut Bad<'_>) {
    let case = Case { row: 22, party: Party::Aggregator, given: FROZEN };
    for (id, hash) in [("zeros", [0; 32]), ("ticket", bad.t.get("ticket").hash()), ("ones", [0xff; 32])] {
        let message = bad.put("freeze_ack", 35, &hash);
        bad.message(case, &format!("freeze-ack-{id}"), "for another freeze", &message, "conflict");
    }
    let other = bad.t.get("freeze_all").hash();
    let message = bad.put("freeze_ack", 35, &other);
    bad.message(case, "freeze-ack-all", "for a freeze that A did not send", &message, "conflict");
    let ack = bad.t.get("freeze_ack").clone();
    for (id, given) in [("ticket", COLLECTING), ("upload", &["start", "ticket", "upload_1"][..])] {
        let case = Case { row: 27, given, ..case };
        bad.message(case, &format!("freeze-ack-after-{id}"), "before the freeze", &ack, "order");
    }
}

/// Makes the result with another payload, correctly hashed and signed, as a broken key generator might send it.
fn with_payload(t: &Transcript, edit: impl FnOnce(&mut Vec<u8>)) -> Message {
    let mut message = t.get("result").clone();
    edit(&mut message.body);
    let hash = payload_hash(&message.body);
    put(&mut message, PAYLOAD_HASH, &hash);
    message.sign(t.identity(Sender::KeyGenerator));
    message
}

fn results(bad: &mut Bad<'_>) {
    let case = Case { row: 33, party: Party::Aggregator, given: REQUESTED };
    let freeze = bad.t.get("freeze").hash();
    for (id, hash) in [("zeros", [0; 32]), ("freeze", freeze), ("all", bad.t.get("decrypt_all").hash())] {
        let message = bad.put("result", 35, &hash);
        bad.message(
            case,
            &format!("result-request-{id}"),
            "the answer to another request",
            &message,
            "conflict",
        );
    }
    for users in [0u32, 1, 2, 4, u32::MAX] {
        let message = bad.put("result", USERS, &users.to_be_bytes());
        let comment = "not as many users as were frozen";
        bad.message(Case { row: 11, ..case }, &format!("result-users-{users}"), comment, &message, "count");
    }

    let payload = bad.t.get("result").body.len();
    for at in [0, payload / 2, payload - 1] {
        let mut message = bad.t.get("result").clone();
        message.body[at] ^= 1;
        bad.message(case, &format!("result-bit-{at}"), "one bit of the payload changed", &message, "proof");
    }
    for cut in [1, 2, payload] {
        let mut message = bad.t.get("result").clone();
        message.body.truncate(payload - cut);
        bad.message(
            case,
            &format!("result-payload-cut-{cut}"),
            "the payload is cut short",
            &message,
            "proof",
        );
    }
    let mut message = bad.t.get("result").clone();
    message.body.push(0);
    bad.message(case, "result-longer", "a byte left over after the payload", &message, "proof");
    let message = bad.flip("result", PAYLOAD_HASH);
    bad.message(case, "result-hash", "the hash of another payload", &message, "proof");
    for cut in [1, 2, payload] {
        let message = with_payload(bad.t, |body| body.truncate(payload - cut));
        let comment = "too short for the sums of the round, and well signed";
        bad.message(case, &format!("result-short-{cut}"), comment, &message, "proof");
    }
    for more in [1, 2, payload] {
        let message = with_payload(bad.t, |body| body.resize(payload + more, 0));
        let comment = "too long for the sums of the round, and well signed";
        bad.message(case, &format!("result-long-{more}"), comment, &message, "proof");
    }

    let message = bad.put("result", LOG, &0u64.to_be_bytes());
    let comment = "the log of G is shorter than it was";
    bad.message(case, "result-log-shorter", comment, &message, "rollback");
    let message = bad.put("result", LOG, &1u64.to_be_bytes());
    let comment = "the log of G is as long as in the freeze-ack, with another head";
    bad.message(case, "result-log-forked", comment, &message, "rollback");
    let message = bad.edited("result", |message| {
        put(message, LOG, &0u64.to_be_bytes());
        put(message, LOG + 8, &[0; 32]);
    });
    bad.message(case, "result-log-zeros", "the log of G has been emptied", &message, "rollback");

    let result = bad.t.get("result").clone();
    for (id, given) in [("ticket", COLLECTING), ("freeze", FROZEN)] {
        let case = Case { row: 27, given, ..case };
        bad.message(case, &format!("result-after-{id}"), "before the request", &result, "order");
    }
}

/// Adds results for other participants than A froze.
fn roots(bad: &mut Bad<'_>) {
    let case = Case { row: 40, party: Party::Aggregator, given: REQUESTED };
    let of = |users: &[u32]| -> Vec<_> { bad.t.participants(users).iter().map(Participant::leaf).collect() };
    let [mut reversed, mut salted] = [of(&UPLOADERS), of(&UPLOADERS)];
    reversed.reverse();
    let mut participant = bad.t.participants(&[2]).remove(0);
    participant.salt[0] ^= 1;
    salted[1] = participant.leaf();
    let leaves = of(&UPLOADERS);
    for (id, comment, root) in [
        ("zeros", "no root", [0; 32]),
        ("all", "the root of all four users", root(&of(&ALL))),
        ("fewer", "the root of two users", root(&of(&[1, 2]))),
        ("other", "the root with user 5 in the place of 9", root(&of(&[1, 2, 5]))),
        ("descending", "the root of the users in another order", root(&reversed)),
        ("salt", "the root with another salt of user 2", root(&salted)),
        ("leaf", "a leaf in the place of the root", leaves[0]),
    ] {
        let message = bad.put("result", USERS_ROOT, &root);
        bad.message(case, &format!("result-root-{id}"), comment, &message, "proof");
    }
}

/// Adds payloads with numbers that are not residues.
fn residues(bad: &mut Bad<'_>) {
    let case = Case { row: 40, party: Party::Aggregator, given: REQUESTED };
    let (n, width) = (bad.t.key.n.clone(), bad.t.key.n.bits() as usize / 8);
    let count = bad.t.get("result").body.len() / width;
    let ones = BigUint::from_bytes_be(&vec![0xff; width]);
    let mut one = |id: String, i: usize, z: &BigUint| {
        let bytes = fixed_width(z, width);
        let message = with_payload(bad.t, |body| body[i * width..][..width].copy_from_slice(&bytes));
        bad.message(case, &id, "a number that is not below n, and well signed", &message, "proof");
    };
    for i in 0..count {
        one(format!("result-residue-{i}-n"), i, &n);
        one(format!("result-residue-{i}-above-n"), i, &(&n + 1u8));
        one(format!("result-residue-{i}-ones"), i, &ones);
    }
}
