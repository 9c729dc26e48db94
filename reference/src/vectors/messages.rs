//! `messages.json`: the round of a transcript, message by message.

use super::json::{Json, float_bits, floats, hex, list, number, object, text};
use super::keys;
use super::rounds::{blind_json, policy_json};
use super::transcript::{Named, TASK_FILE, Transcript};
use crate::wire::task::Profile;

const DESCRIPTION: &str = "A valid round of three tasks, message by message: four users are enrolled, three upload. \
`others` are valid messages that the round does without; bad.json builds on both. The log of the key generator is \
its own affair: the ticket has the empty log (seq 0), later values are arbitrary.";

/// Returns the transcripts.
pub fn transcripts() -> Vec<Transcript> {
    [Profile::Sparse, Profile::Full, Profile::Paper].map(Transcript::new).into()
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
        let secrets = &user.secrets;
        object()
            .with("user", number(id))
            .with("identity_seed", hex(identity.to_bytes()))
            .with("user_aggregator_seed", hex(secrets.seed))
            .with("mask_seed", hex(secrets.mask_seed))
            .with("salt", hex(secrets.salt))
            .with("blind", blind_json(&roster.policy, secrets))
            .with("ephemeral_ikm", hex(transcript.ephemeral_ikm(*id)))
            .with("count", number(transcript.sealed[id].count()))
            .with("content", hex(&transcript.sealed[id].content))
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
        .with("first_round", number(roster.first_round))
        .with("task_file", hex(TASK_FILE))
        .with("roster", hex(roster.bytes()))
        .with("roster_hash", hex(roster.hash()))
        .with("aggregator_seed", hex(roster.aggregator.to_bytes()))
        .with("agreement_key", hex(roster.agreement().public))
        .with("key_generator_seed", hex(roster.key_generator.to_bytes()))
        .with("user_shared_seed", hex(transcript.seed))
        .with("users", list(users))
        .with("round", number(1))
        .with("model", hex(&transcript.model))
        .with("new_model", hex(&transcript.new_model))
        .with("deadline", number(transcript.deadline))
        .with("nonce", hex(transcript.nonce))
        .with("users_root", hex(transcript.users_root()))
        .with("published", hex(&transcript.get("publish").body))
        .with("history_0", hex(transcript.first_history()))
        .with("history_1", hex(transcript.history("close", 1)))
        .with("messages", list(transcript.messages.iter().map(named)))
        .with("others", list(transcript.others.iter().map(named)))
}

/// Returns the file.
pub fn file(transcripts: &[Transcript]) -> Json {
    object()
        .with("description", text(DESCRIPTION))
        .with("spec", text("docs/protocol.md, sections 3, 6, 7 and 9"))
        .with("tasks", list(transcripts.iter().map(task)))
}
