//! Checks that bad inputs are wrong in one respect only, and that there are enough of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use dphe_reference::vectors::{bad, json::Json, messages};
use dphe_reference::wire::derive::h;
use dphe_reference::wire::message::{PREAMBLE, Sender, Type};
use ed25519_dalek::Signature;

fn field<'a>(vector: &'a Json, name: &str) -> Option<&'a Json> {
    let Json::Object(fields) = vector else { return None };
    fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

fn text(vector: &Json, name: &str) -> String {
    match field(vector, name) {
        Some(Json::Text(text) | Json::Plain(text)) => text.clone(),
        _ => String::new(),
    }
}

fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect()
}

#[test]
fn bad_vectors_have_unique_names_and_three_per_row() {
    let vectors = bad::vectors(&messages::transcripts());
    let mut names = BTreeSet::new();
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    for vector in &vectors {
        assert!(names.insert(text(vector, "id")), "{} twice", text(vector, "id"));
        *rows.entry(text(vector, "row")).or_default() += 1;
    }
    let expected = [
        1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 27, 29, 31,
        33,
    ];
    for row in expected {
        assert!(rows.get(&row.to_string()).is_some_and(|&count| count >= 3), "row {row}");
    }
    assert!(vectors.len() >= 220);
}

#[test]
fn given_messages_are_in_the_transcript() {
    let transcripts = messages::transcripts();
    for vector in bad::vectors(&transcripts) {
        let transcript = transcripts.iter().find(|t| t.name == text(&vector, "task")).unwrap();
        let Some(Json::List(given)) = field(&vector, "given") else { panic!("no given") };
        for name in given {
            let Json::Text(name) = name else { panic!("a name is a text") };
            let events = ["start", "update", "ack_own", "deadline", "model"];
            let known = transcript.messages.iter().chain(&transcript.others).any(|named| named.name == *name);
            assert!(known || events.contains(&&**name), "{name}");
        }
    }
}

/// Errors that are checked after the signature come with a valid signature.
#[test]
fn signatures_are_valid_unless_a_bad_signature_is_expected() {
    let transcripts = messages::transcripts();
    let kinds = [
        Type::RoundOpen,
        Type::RoundTicket,
        Type::Upload,
        Type::UploadAck,
        Type::Freeze,
        Type::FreezeAck,
        Type::Decrypt,
        Type::Result,
        Type::Publish,
        Type::Close,
    ];
    let mut checked = 0;
    for vector in bad::vectors(&transcripts) {
        let expected = text(&vector, "expected");
        let message = matches!(&*text(&vector, "party"), "aggregator" | "key_generator" | "user");
        let before = ["encoding", "version", "size", "task", "unknown_user"].contains(&&*expected);
        if !message || before {
            continue;
        }
        let input = bytes(&text(&vector, "input"));
        let kind = kinds.into_iter().find(|kind| *kind as u8 == input[5]).unwrap();
        let count = |at: usize| input[at..at + 4].iter().fold(0usize, |x, &byte| x << 8 | usize::from(byte));
        let fields = match kind {
            Type::RoundOpen => 152,
            Type::RoundTicket => 208,
            Type::Upload => 100,
            Type::UploadAck => 32,
            Type::Freeze => 77 + 36 * count(108),
            Type::FreezeAck => 76,
            Type::Decrypt => 68,
            Type::Result => 109,
            Type::Publish => 248 + 36 * count(279),
            Type::Close => 33,
        };
        let (header, rest) = input.split_at(PREAMBLE + fields);
        let sender = match header[30] {
            1 => Sender::Aggregator,
            2 => Sender::KeyGenerator,
            _ => Sender::User(count(31) as u32),
        };
        let transcript = transcripts.iter().find(|t| t.name == text(&vector, "task")).unwrap();
        let signature = Signature::from_slice(&rest[..64]).unwrap();
        let key = transcript.identity(sender).verifying_key();
        let hash = h(&format!("dphe/v1/{}", kind.name()), &[header]);
        let holds = key.verify_strict(&hash, &signature).is_ok();
        let may_send = sender.role()
            == transcript.messages.iter().find(|n| n.message.kind == kind).unwrap().message.header[30];
        assert_eq!(holds && may_send, expected != "signature", "{}", text(&vector, "id"));
        checked += 1;
    }
    assert!(checked > 200);
}
