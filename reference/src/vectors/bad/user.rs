//! Inputs that a user must refuse: tickets, acknowledgements, published models, and its own weights.

use super::super::json::float_bits;
use super::super::transcript::UPLOADERS;
use super::envelope::{ROUND, replace_users};
use super::key_generator::SETS;
use super::{Bad, Case, Party, put};
use crate::wire::message::{Message, Sender};
use crate::wire::task::Profile;

/// The user who has not uploaded, so that no published set contains its update.
const BYSTANDER: Party = Party::User(5);

/// Adds the vectors.
pub(super) fn add(bad: &mut Bad<'_>) {
    tickets(bad);
    models(bad);
    acks(bad);
    results(bad);
    sets(bad);
    published_models(bad);
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
    for (id, at, given) in
        [("open", 35, ticketed), ("deadline", 202, ticketed), ("seq", 210, ticketed), ("head", 242, prepared)]
    {
        let message = bad.flip("ticket", at);
        let case = Case { given, ..case(9) };
        bad.ticket(case, &format!("ticket-second-{id}"), comment, &message, &model, "ticket");
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
    let message = bad.flip("ticket", 67);
    bad.ticket(case, "ticket-model-digest", "a ticket for another model", &message, &good, "model");
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

fn results(bad: &mut Bad<'_>) {
    let case = Case { row: 33, party: BYSTANDER, given: &["ticket"] };
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
    let mut other_payload = good.clone();
    other_payload.header[72] ^= 1;
    let mut failed = good.clone();
    put(&mut failed, 67, &[2]);
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
        ("failed", "the key generator said that the round failed", failed),
        ("other-round", "the result of another round", other_round),
        ("other-task", "the result of another task", other_task),
    ] {
        let message = bad.t.publish(&result, &bad.t.new_model, &bad.t.set(&UPLOADERS));
        bad.message(case, &format!("publish-result-{id}"), comment, &message, "proof");
    }
    for users in [0u32, 2, 4, u32::MAX] {
        let mut result = bad.t.get("result").clone();
        put(&mut result, 68, &users.to_be_bytes());
        result.sign(bad.t.identity(Sender::KeyGenerator));
        let message = bad.t.publish(&result, &bad.t.new_model, &bad.t.set(&UPLOADERS));
        let comment = "the key generator counted other users than the three that are listed";
        bad.message(
            Case { row: 11, ..case },
            &format!("publish-counted-{users}"),
            comment,
            &message,
            "count",
        );
    }
}

fn sets(bad: &mut Bad<'_>) {
    let case = Case { row: 21, party: BYSTANDER, given: &["ticket"] };
    for (id, users, expected) in SETS {
        let users = bad.t.set(users);
        let message = bad.edited("publish", |message| replace_users(message, 279, &users));
        let comment = format!("a set of {} entries", users.len());
        bad.message(case, &format!("publish-{id}"), &comment, &message, expected);
    }
    for users in [&[1, 2, 5][..], &[1, 5, 9], &[2, 5, 9]] {
        let message = bad.t.publish(bad.t.get("result"), &bad.t.new_model, &bad.t.set(users));
        let id = format!("publish-as-if-uploaded-{}", users[0] + users[2]);
        let comment = "lists the user, who has not uploaded";
        bad.message(Case { row: 24, ..case }, &id, comment, &message, "not_mine");
    }

    let own = |given| Case { row: 24, party: Party::User(1), given };
    let publish = bad.t.get("publish").clone();
    let comment = "lists the user, who has not uploaded";
    bad.message(own(&["ticket"]), "publish-without-upload", comment, &publish, "not_mine");
    for (id, byte) in [("zeros", 0), ("ones", 0xff)] {
        let message = bad.put("publish", 287, &[byte; 32]);
        let comment = "the user's entry has the hash of another body";
        let prepared = own(&["ticket", "update"]);
        bad.message(prepared, &format!("publish-own-{id}"), comment, &message, "not_mine");
        let uploaded = own(&["ticket", "update", "ack_own"]);
        bad.message(uploaded, &format!("publish-own-{id}-acknowledged"), comment, &message, "not_mine");
    }
    let message = bad.t.publish(bad.t.get("result"), &bad.t.new_model, &bad.t.set(&[2, 5, 9]));
    let comment = "the user is missing, and its upload was acknowledged";
    bad.message(own(&["ticket", "update", "ack_own"]), "publish-missing", comment, &message, "not_mine");
}

fn published_models(bad: &mut Bad<'_>) {
    let case = Case { row: 10, party: BYSTANDER, given: &["ticket"] };
    let good = bad.t.get("publish").clone();
    let with = |body: Vec<u8>| Message { body, ..good.clone() };
    let mut flipped = good.body.clone();
    flipped[3] ^= 1;
    let longer = [&good.body[..], &[0]].concat();
    let shorter = good.body[..good.body.len() - 1].to_vec();
    let comment = "not the model that the message names";
    for (id, message) in [
        ("bit", with(flipped)),
        ("longer", with(longer)),
        ("shorter", with(shorter)),
        ("empty", with(vec![])),
        ("old", with(bad.t.model.clone())),
        ("digest", bad.flip("publish", 243)),
        ("length", bad.put("publish", 275, &12u32.to_be_bytes())),
    ] {
        bad.message(case, &format!("publish-model-{id}"), comment, &message, "model");
    }
}

/// Adds logs of G that are shorter than before or have another head.
fn rollbacks(bad: &mut Bad<'_>) {
    let case = |given| Case { row: 31, party: BYSTANDER, given };
    let head = bad.t.get("result").header[112..144].to_vec();
    for (id, head) in [("zeros", vec![0; 32]), ("ones", vec![0xff; 32]), ("later-head", head)] {
        let mut result = bad.t.get("result").clone();
        put(&mut result, 104, &0u64.to_be_bytes());
        put(&mut result, 112, &head);
        result.sign(bad.t.identity(Sender::KeyGenerator));
        let message = bad.t.publish(&result, &bad.t.new_model, &bad.t.set(&UPLOADERS));
        let comment = "the log of G is as long as in the ticket, with another head";
        bad.message(case(&["ticket"]), &format!("publish-log-{id}"), comment, &message, "rollback");
    }
    let open = bad.t.round_open(2, &bad.t.new_model, &[3; 16]);
    for seq in [0, 1, 2, 3] {
        let ticket = bad.t.ticket(2, &open, &bad.t.new_model, seq, &[seq as u8; 32]);
        let comment =
            "the ticket of round 2, when the log of G had three records in round 1; for 3: another head";
        let id = format!("ticket-2-log-{seq}");
        let after = case(&["ticket", "publish"]);
        bad.ticket(after, &id, comment, &ticket, &bad.t.new_model.clone(), "rollback");
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
