//! `bad.json`: inputs that must be refused, each with the expected error code.
//!
//! An input is wrong in one respect only, and correct in all others, including signatures. If several things are wrong,
//! the order of section 8 decides. Such inputs are avoided.

mod aggregator;
mod change;
mod envelope;
mod key_generator;
mod kit;
mod local;
mod paper;
mod publish;
mod roster;
mod upload;
mod user;

use super::json::{Json, hex, list, number, object, text};
use super::transcript::Transcript;
use crate::wire::message::{Message, Sender};
use crate::wire::task::Profile;

const DESCRIPTION: &str = "Inputs that must be refused, with the code of the refusal (section 10). `given` is what the \
party has processed before, in order: names of messages.json, or the events start, update, ack_own, deadline, model, \
wait. See README.md. A few are controls: their `expected` is ok.";

/// The party that receives the input.
#[derive(Clone, Copy)]
pub enum Party {
    /// A.
    Aggregator,
    /// G.
    KeyGenerator,
    /// A user.
    User(u32),
}

impl Party {
    fn name(self) -> &'static str {
        match self {
            Self::Aggregator => "aggregator",
            Self::KeyGenerator => "key_generator",
            Self::User(_) => "user",
        }
    }
}

/// The messages until A collects.
pub const COLLECTING: &[&str] = &["start", "ticket"];
/// The messages until A has frozen the sum.
pub const FROZEN: &[&str] = &["start", "ticket", "upload_1", "upload_2", "upload_9", "deadline"];
/// The messages until A has asked for the sum.
pub const REQUESTED: &[&str] =
    &["start", "ticket", "upload_1", "upload_2", "upload_9", "deadline", "freeze_ack"];
/// The messages until G has released the sum.
pub const RELEASED: &[&str] = &["round_open", "freeze", "decrypt"];
/// The messages until G has closed round 1.
pub const CLOSED: &[&str] = &["round_open", "freeze", "decrypt", "close"];
/// The messages until A has acknowledged a user's upload.
pub const UPLOADED: &[&str] = &["ticket", "update", "ack_own"];
/// The messages until a user who did not take part has finished round 1.
pub const FOLLOWED: &[&str] = &["ticket", "publish", "model"];

/// The vectors of one task under construction.
pub struct Bad<'a> {
    /// The task.
    pub t: &'a Transcript,
    /// Another task.
    pub other: &'a Transcript,
    vectors: Vec<Json>,
}

/// The context of an input.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The row of the table of bad inputs in the security design.
    pub row: u8,
    /// The party that receives it.
    pub party: Party,
    /// The messages that the party has processed before.
    pub given: &'a [&'a str],
}

impl Bad<'_> {
    /// Adds a message.
    pub fn message(&mut self, case: Case<'_>, id: &str, comment: &str, message: &Message, expected: &str) {
        self.bytes(case, id, comment, &message.bytes(), expected);
    }

    /// Adds bytes.
    pub fn bytes(&mut self, case: Case<'_>, id: &str, comment: &str, bytes: &[u8], expected: &str) {
        self.with(case, id, comment, hex(bytes), &[], expected);
    }

    /// Adds a ticket for a user, with the model that came with it.
    pub fn ticket(
        &mut self,
        case: Case<'_>,
        id: &str,
        comment: &str,
        message: &Message,
        model: &[u8],
        expected: &str,
    ) {
        self.with(case, id, comment, hex(message.bytes()), &[("model", hex(model))], expected);
    }

    /// Adds an input of any kind.
    pub fn with(
        &mut self,
        case: Case<'_>,
        id: &str,
        comment: &str,
        input: Json,
        more: &[(&str, Json)],
        expected: &str,
    ) {
        let start = self.start(case.party.name(), id, case.row, comment);
        let start = if let Party::User(user) = case.party { start.with("user", number(user)) } else { start };
        let given = list(case.given.iter().map(|name| text(*name)));
        self.end(start.with("given", given).with("input", input), more, expected);
    }

    fn start(&self, party: &str, id: &str, row: u8, comment: &str) -> Json {
        object()
            .with("id", text(format!("{}-{}-{id}", self.t.name, party.replace('_', "-"))))
            .with("row", number(row))
            .with("comment", text(comment))
            .with("task", text(self.t.name))
            .with("party", text(party))
    }

    fn end(&mut self, start: Json, more: &[(&str, Json)], expected: &str) {
        let vector = more.iter().fold(start, |vector, (name, value)| vector.with(name, value.clone()));
        self.vectors.push(vector.with("expected", text(expected)));
    }

    /// Changes a message of the transcript and lets its sender sign it again.
    pub fn edited(&self, name: &str, edit: impl FnOnce(&mut Message)) -> Message {
        let mut message = self.t.get(name).clone();
        let sender = sender(&message);
        edit(&mut message);
        message.sign(self.t.identity(sender));
        message
    }

    /// Replaces bytes of the header and signs again.
    pub fn put(&self, name: &str, at: usize, bytes: &[u8]) -> Message {
        self.edited(name, |message| put(message, at, bytes))
    }

    /// Flips one bit of the header and signs again.
    pub fn flip(&self, name: &str, at: usize) -> Message {
        self.edited(name, |message| message.header[at] ^= 0x10)
    }
}

/// Returns the sender of a message.
pub fn sender(message: &Message) -> Sender {
    match message.header[30] {
        1 => Sender::Aggregator,
        2 => Sender::KeyGenerator,
        _ => Sender::User(message.header[31..35].iter().fold(0, |x, &byte| x << 8 | u32::from(byte))),
    }
}

/// Writes bytes into a header.
pub fn put(message: &mut Message, at: usize, bytes: &[u8]) {
    message.header[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Returns the vectors of all tasks. The task `paper` has only those that the others cannot have.
pub fn vectors(transcripts: &[Transcript]) -> Vec<Json> {
    let mut all = Vec::new();
    for (i, t) in transcripts.iter().enumerate() {
        let other = &transcripts[usize::from(i == 0)];
        let mut bad = Bad { t, other, vectors: Vec::new() };
        if t.policy().profile == Profile::Paper {
            paper::add(&mut bad);
        } else {
            envelope::add(&mut bad);
            upload::add(&mut bad);
            aggregator::add(&mut bad);
            key_generator::add(&mut bad);
            user::add(&mut bad);
            publish::add(&mut bad);
            local::add(&mut bad);
        }
        roster::add(&mut bad);
        change::add(&mut bad);
        kit::add(&mut bad);
        all.extend(bad.vectors);
    }
    all
}

/// Returns the file.
pub fn file(transcripts: &[Transcript]) -> Json {
    let vectors = vectors(transcripts);
    object()
        .with("description", text(DESCRIPTION))
        .with("spec", text("docs/protocol.md, sections 3, 8, 9 and 10"))
        .with("count", number(vectors.len()))
        .with("vectors", list(vectors))
}
