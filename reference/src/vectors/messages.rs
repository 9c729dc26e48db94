//! `messages.json`: the round of a transcript, message by message.

use super::json::{Json, float_bits, floats, hex, list, number, object, text};
use super::keys;
use super::rounds::policy_json;
use super::transcript::{Named, Transcript};
use crate::wire::task::Profile;

const DESCRIPTION: &str = "A valid round of two tasks, message by message: four users are enrolled, three upload. \
`others` are valid messages that the round does without; bad.json builds on both. The log of the key generator is \
its own affair: the ticket has the empty log (seq 0), later values are arbitrary.";

/// Returns the two transcripts.
pub fn transcripts() -> Vec<Transcript> {
    [Profile::Sparse, Profile::Full].map(Transcript::new).into()
}

fn named(named: &Named) -> Json {
    let message = &named.message;
    object()
        .with("name", text(&*named.name))
        .with("type", text(message.kind.name()))
        .with("to", text(named.to))
        .with("comment", text(named.comment))
        .with("hash", hex(message.hash()))
        .with("message", hex(message.bytes()))
}

fn task(transcript: &Transcript) -> Json {
    let roster = &transcript.roster;
    let users = roster.users.iter().zip(&transcript.users).map(|((id, identity), user)| {
        object()
            .with("user", number(id))
            .with("identity_seed", hex(identity.to_bytes()))
            .with("user_aggregator_seed", hex(user.seed))
            .with("weights", floats(&user.weights))
            .with("weights_bits", float_bits(&user.weights))
            .with("dense", floats(&user.dense))
            .with("dense_bits", float_bits(&user.dense))
    });
    object()
        .with("name", text(transcript.name))
        .with("policy", policy_json(&roster.policy))
        .with("policy_bytes", hex(roster.policy.bytes()))
        .with("policy_hash", hex(roster.policy.hash()))
        .with("key", keys::json(&transcript.key))
        .with("task", hex(roster.task))
        .with("epoch", number(roster.epoch))
        .with("roster", hex(roster.bytes()))
        .with("roster_hash", hex(roster.hash()))
        .with("aggregator_seed", hex(roster.aggregator.to_bytes()))
        .with("key_generator_seed", hex(roster.key_generator.to_bytes()))
        .with("user_shared_seed", hex(transcript.seed))
        .with("users", list(users))
        .with("round", number(1))
        .with("model", hex(&transcript.model))
        .with("new_model", hex(&transcript.new_model))
        .with("deadline", number(transcript.deadline))
        .with("nonce", hex(transcript.nonce))
        .with("messages", list(transcript.messages.iter().map(named)))
        .with("others", list(transcript.others.iter().map(named)))
}

/// Returns the file.
pub fn file(transcripts: &[Transcript]) -> Json {
    object()
        .with("description", text(DESCRIPTION))
        .with("spec", text("docs/protocol.md, sections 3, 7 and 9"))
        .with("tasks", list(transcripts.iter().map(task)))
}
