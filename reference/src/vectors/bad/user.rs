//! Inputs that a user must refuse: tickets, acknowledgements, inclusions, and its own weights.

use super::super::json::float_bits;
use super::{Bad, Case, FOLLOWED, Party, UPLOADED};
use crate::wire::derive::Digest;
use crate::wire::message::Message;
use crate::wire::participants::{Past, first_history, next_history};
use crate::wire::task::Profile;

/// The user who has not uploaded, so that no published set contains its update.
const BYSTANDER: Party = Party::User(5);

/// Adds the vectors.
pub(super) fn add(bad: &mut Bad<'_>) {
    tickets(bad);
    lineage(bad);
    history(bad);
    models(bad);
    acks(bad);
    inclusions(bad);
    closes(bad);
    rollbacks(bad);
    weights(bad);
}

fn tickets(bad: &mut Bad<'_>) {
    let model = bad.t.model.clone();
    let case = |row| Case { row, party: Party::User(1), given: &[] };
    for (field, at, row, expected) in
        [("policy", 99, 7, "policy"), ("roster", 131, 7, "roster"), ("support", 163, 11, "dimension")]
    {
        let theirs = bad.other.get("ticket").header[at..at + 32].to_vec();
        let comment = format!("not the {field} of the task");
        for (id, bytes) in [("zeros", vec![0; 32]), ("other", theirs), ("ones", vec![0xff; 32])] {
            let message = bad.put("ticket", at, &bytes);
            bad.ticket(case(row), &format!("ticket-{field}-{id}"), &comment, &message, &model, expected);
        }
    }
    let comment = "a second, different ticket for the round";
    let ticketed: &[&str] = &["ticket"];
    let prepared: &[&str] = &["ticket", "update"];
    for (id, at, given) in [
        ("open", 35, ticketed),
        ("deadline", 202, ticketed),
        ("history", 203, ticketed),
        ("seq", 243, ticketed),
        ("head", 275, prepared),
    ] {
        let message = bad.flip("ticket", at);
        let case = Case { given, ..case(9) };
        bad.ticket(case, &format!("ticket-second-{id}"), comment, &message, &model, "ticket");
    }
    for outcome in [4, 255] {
        let message = bad.put("ticket", 235, &[outcome]);
        let id = format!("ticket-outcome-{outcome}");
        bad.ticket(case(1), &id, "an outcome that does not exist", &message, &model, "encoding");
    }
}

/// Makes a ticket of round 2, right but for what the arguments say.
fn ticket_2(bad: &Bad<'_>, model: &[u8], history: &Digest, outcome: u8) -> Message {
    let open = bad.t.round_open(2, model, &[3; 16]);
    bad.t.ticket(2, &open, model, (history, outcome), (9, &[9; 32]))
}

/// The ways in which round 1 can end for a user: `given`, the name of the close message, the outcome, and whether there
/// is a new model.
const ENDS: [(&[&str], &str, u8, bool); 3] = [
    (FOLLOWED, "close", 1, true),
    (&["ticket", "close_aborted"], "close_aborted", 3, false),
    (&["ticket", "close_rejected"], "close_rejected", 1, false),
];

/// Adds tickets for models that do not follow from the earlier rounds. The model bytes have the ticket's digest.
fn lineage(bad: &mut Bad<'_>) {
    let (old, new) = (bad.t.model.clone(), bad.t.new_model.clone());
    let flipped = [&[old[0] ^ 1], &old[1..]].concat();
    let case = Case { row: 41, party: BYSTANDER, given: &[] };
    let history = bad.t.first_history();
    let head = bad.t.get("ticket").header[244..276].to_vec();
    let mut empty_log = [0; 32];
    empty_log.copy_from_slice(&head);
    for (id, model) in [("new", &new), ("bit", &flipped), ("empty", &vec![])] {
        let open = bad.t.round_open(1, model, &bad.t.nonce);
        let ticket = bad.t.ticket(1, &open, model, (&history, 0), (0, &empty_log));
        let comment = "round 1 does not start from the initial model of the roster";
        bad.ticket(case, &format!("ticket-lineage-{id}"), comment, &ticket, model, "lineage");
    }
    for (given, close, outcome, changed) in ENDS {
        let case = Case { given, ..case };
        let history = bad.t.history(close, outcome);
        let (right, wrong) = if changed { (&new, &old) } else { (&old, &new) };
        let close = close.replace('_', "-");
        for (id, model) in [("other", wrong), ("bit", &flipped)] {
            let ticket = ticket_2(bad, model, &history, outcome);
            let id = format!("ticket-2-lineage-{id}-after-{close}");
            let comment = "round 2 does not start from the model that the user computed last";
            bad.ticket(case, &id, comment, &ticket, model, "lineage");
        }
        let ticket = ticket_2(bad, right, &history, outcome);
        let id = format!("ticket-2-after-{close}");
        bad.ticket(case, &id, "as it should be", &ticket, right, "ok");
    }
}

/// Adds tickets whose history is not the user's own.
fn history(bad: &mut Bad<'_>) {
    let model = bad.t.model.clone();
    let case = Case { row: 42, party: BYSTANDER, given: &[] };
    let comment = "not the history before round 1";
    let (roster, theirs) = (bad.t.roster.hash(), first_history(&bad.other.roster.hash()));
    for (id, history) in [("zeros", [0; 32]), ("roster", roster), ("other-task", theirs)] {
        let message = bad.put("ticket", 203, &history);
        bad.ticket(case, &format!("ticket-history-{id}"), comment, &message, &model, "history");
    }
    let message = bad.flip("ticket", 234);
    bad.ticket(case, "ticket-history-bit", comment, &message, &model, "history");

    let (ticket, root) = (bad.t.get("ticket").hash(), bad.t.users_root());
    for (given, close, outcome, changed) in ENDS {
        let case = Case { given, ..case };
        let model = if changed { bad.t.new_model.clone() } else { bad.t.model.clone() };
        let users_root = if changed { root } else { [0; 32] };
        let past = Past { ticket, outcome, users_root, close: bad.t.get(close).hash() };
        let other_close = if changed { "close_aborted" } else { "close" };
        let first = bad.t.first_history();
        let next = |past: &Past| next_history(&first, past);
        for (id, history) in [
            ("first", first),
            ("outcome", next(&Past { outcome: 2, ..past })),
            ("root", next(&Past { users_root: [1; 32], ..past })),
            ("close", next(&Past { close: bad.t.get(other_close).hash(), ..past })),
            ("ticket", next(&Past { ticket: [1; 32], ..past })),
            ("twice", next_history(&next(&past), &past)),
        ] {
            let message = ticket_2(bad, &model, &history, outcome);
            let id = format!("ticket-2-history-{id}-after-{}", close.replace('_', "-"));
            let comment = "the key generator tells another story of round 1";
            bad.ticket(case, &id, comment, &message, &model, "history");
        }
    }
}

fn models(bad: &mut Bad<'_>) {
    let case = Case { row: 10, party: Party::User(1), given: &[] };
    let (good, ticket) = (bad.t.model.clone(), bad.t.get("ticket").clone());
    let mut flipped = good.clone();
    flipped[0] ^= 1;
    let longer = [&good[..], &[0]].concat();
    let new = bad.t.new_model.clone();
    for (id, model) in [
        ("bit", &flipped[..]),
        ("longer", &longer),
        ("shorter", &good[..good.len() - 1]),
        ("empty", &[]),
        ("other", &new),
    ] {
        let comment = "not the model that the ticket names";
        bad.ticket(case, &format!("ticket-model-{id}"), comment, &ticket, model, "model");
    }
}

fn acks(bad: &mut Bad<'_>) {
    let case = Case { row: 18, party: Party::User(1), given: &["ticket", "update"] };
    for (id, hash) in [("zeros", [0; 32]), ("ones", [0xff; 32]), ("ticket", bad.t.get("ticket").hash())] {
        let message = bad.put("ack_1", 35, &hash);
        bad.message(case, &format!("ack-{id}"), "for another body", &message, "conflict");
    }
    let theirs = bad.t.get("ack_2").clone();
    bad.message(case, "ack-of-2", "for the body of user 2", &theirs, "conflict");
}

/// Adds inclusions that come at the wrong time or have a path that is too long.
fn inclusions(bad: &mut Bad<'_>) {
    let case = |given| Case { row: 46, party: Party::User(1), given };
    let good = bad.t.get("inclusion_1").clone();
    let comment = "the user has not uploaded";
    bad.message(case(&[]), "inclusion-first", comment, &good, "order");
    bad.message(case(&["ticket"]), "inclusion-ticketed", comment, &good, "order");
    let bystander = Case { party: BYSTANDER, ..case(&["ticket"]) };
    bad.message(bystander, "inclusion-bystander", comment, &good, "order");
    let root = bad.t.users_root();
    for length in [17, 18] {
        let message = bad.t.inclusion_of(&root, 0, &vec![[7; 32]; length]);
        let comment = "a path of more than 16 digests";
        bad.message(case(UPLOADED), &format!("inclusion-path-{length}"), comment, &message, "size");
    }
    for length in [17, 255] {
        let message = bad.put("inclusion_1", 71, &[length]);
        let comment = "a path of more than 16 digests, by its length; there are fewer";
        bad.message(case(UPLOADED), &format!("inclusion-length-{length}"), comment, &message, "size");
    }
    let right = good.header[71];
    for length in [0, right - 1, right + 1, 16] {
        let message = bad.put("inclusion_1", 71, &[length]);
        let comment = "not as many digests as the length says";
        bad.message(case(UPLOADED), &format!("inclusion-length-{length}"), comment, &message, "encoding");
    }
}

fn closes(bad: &mut Bad<'_>) {
    let case = Case { row: 27, party: BYSTANDER, given: &[] };
    for name in ["close", "close_aborted", "close_failed", "close_rejected"] {
        let message = bad.t.get(name).clone();
        let id = format!("{}-without-ticket", name.replace('_', "-"));
        bad.message(case, &id, "the user does not know the ticket", &message, "order");
    }
}

/// Adds logs of G that are shorter than before or have another head.
fn rollbacks(bad: &mut Bad<'_>) {
    let case = Case { row: 31, party: BYSTANDER, given: FOLLOWED };
    let model = bad.t.new_model.clone();
    let open = bad.t.round_open(2, &model, &[3; 16]);
    let history = bad.t.history("close", 1);
    for seq in [0, 1, 2, 3] {
        let ticket = bad.t.ticket(2, &open, &model, (&history, 1), (seq, &[seq as u8; 32]));
        let comment =
            "the ticket of round 2, when the log of G had three records in round 1; for 3: another head";
        bad.ticket(case, &format!("ticket-2-log-{seq}"), comment, &ticket, &model, "rollback");
    }
}

/// Adds weights of a faulty learner.
struct Update {
    weights: Vec<f64>,
    dense: Vec<f64>,
}

fn weights(bad: &mut Bad<'_>) {
    let t = bad.t;
    let good = || Update { weights: t.users[0].weights.clone(), dense: t.users[0].dense.clone() };
    let mut one = |given: &[&str], id: &str, comment: &str, update: Update, expected: &str| {
        let vector = bad.start("weights", id, 20, comment).with("user", super::number(1));
        let given = super::list(given.iter().map(|name| super::text(*name)));
        let vector = vector.with("given", given).with("input", float_bits(&update.weights));
        bad.end(vector, &[("dense", float_bits(&update.dense))], expected);
    };
    let ticketed: &[&str] = &["ticket"];
    // an occupied index, which is inside the support
    let place = t.users[0].weights.iter().position(|&w| w != 0.0).unwrap_or(0);
    let signalling = f64::from_bits(0x7ff0_0000_0000_0001);
    for (id, w, expected) in [
        ("nan", f64::NAN, "value"),
        ("nan-negative", -f64::NAN, "value"),
        ("nan-signalling", signalling, "value"),
        ("infinity", f64::INFINITY, "value"),
        ("infinity-negative", f64::NEG_INFINITY, "value"),
        ("above", 4f64.next_up(), "value"),
        ("below", (-4f64).next_down(), "value"),
        ("much-above", 1e300, "value"),
        ("largest", f64::MAX, "value"),
        ("bound", 4.0, "ok"),
        ("bound-negative", -4.0, "ok"),
        ("negative-zero", -0.0, "ok"),
        ("subnormal", f64::from_bits(1), "ok"),
    ] {
        let mut update = good();
        update.weights[place] = w;
        one(ticketed, &format!("weight-{id}"), "one weight; weights lie within 4", update, expected);
        let mut update = good();
        update.dense[1] = w;
        one(ticketed, &format!("dense-{id}"), "one dense value; values lie within 4", update, expected);
    }
    let (d, dense) = (t.users[0].weights.len(), t.users[0].dense.len());
    for length in [0, d - 1, d + 1, 2 * d] {
        let mut update = good();
        update.weights = vec![0.0; length];
        one(
            ticketed,
            &format!("weights-{length}"),
            "not as many weights as the policy says",
            update,
            "dimension",
        );
    }
    for length in [0, dense - 1, dense + 1] {
        let mut update = good();
        update.dense = vec![0.5; length];
        one(
            ticketed,
            &format!("dense-{length}"),
            "not as many dense values as the policy says",
            update,
            "dimension",
        );
    }
    if t.policy().profile == Profile::Sparse {
        for positions in [5, 6, 11] {
            let mut update = good();
            update.weights = (0..d).map(|i| if i / 2 < positions { 0.5 } else { 0.0 }).collect();
            let comment = "more occupied positions than four";
            one(ticketed, &format!("occupied-{positions}"), comment, update, "capacity");
        }
        let mut update = good();
        update.weights = (0..d).map(|i| if i < 8 { 0.5 } else { 1e-9 }).collect();
        one(ticketed, "occupied-4", "all other positions round to zero", update, "ok");
    } else {
        let support = t.support(1).unwrap_or_default();
        let outside: Vec<usize> = (0..d).filter(|&i| !support.contains(&(i as u32))).collect();
        for at in [outside[0], outside[outside.len() / 2], outside[outside.len() - 1]] {
            let mut update = good();
            update.weights[at] = 0.5;
            let comment = "a weight outside the public support of the round";
            one(ticketed, &format!("outside-{at}"), comment, update, "support");
        }
        let mut update = good();
        update.weights[outside[0]] = -0.0;
        one(ticketed, "outside-zero", "a zero outside the public support", update, "ok");
    }
    one(&[], "no-ticket", "before a ticket", good(), "order");
    one(&["ticket", "update"], "second", "a second update for the round", good(), "conflict");
    one(&["ticket", "update", "ack_own"], "third", "a second update for the round", good(), "conflict");
    one(&["ticket", "close_aborted"], "over", "after the round was aborted", good(), "order");
}
