//! Checks that bad inputs are wrong in one respect only, and that there are enough of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use dphe_reference::vectors::{bad, json::Json, messages};
use dphe_reference::wire::derive::h;
use dphe_reference::wire::hpke::{UPLOAD_INFO, open, upload_aad};
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
    let old = [
        1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 27, 29, 31,
        33,
    ];
    for row in old.into_iter().chain(34..=50) {
        assert!(rows.get(&row.to_string()).is_some_and(|&count| count >= 3), "row {row}");
    }
    assert!(vectors.len() >= 700);
}

#[test]
fn given_messages_are_in_the_transcript() {
    let transcripts = messages::transcripts();
    for vector in bad::vectors(&transcripts) {
        let transcript = transcripts.iter().find(|t| t.name == text(&vector, "task")).unwrap();
        let Some(Json::List(given)) = field(&vector, "given") else { panic!("no given") };
        for name in given {
            let Json::Text(name) = name else { panic!("a name is a text") };
            let events = ["start", "update", "ack_own", "deadline", "model", "wait"];
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
        Type::Inclusion,
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
            Type::RoundTicket => 241,
            Type::Upload => 116,
            Type::UploadAck => 32,
            Type::Freeze => 76 + 120 * count(107),
            Type::FreezeAck => 76,
            Type::Decrypt => 68,
            Type::Result => 141,
            Type::Publish => 304,
            Type::Close => 33,
            Type::Inclusion => 37 + 32 * usize::from(input[71]),
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
        let hash = h(&format!("dphe/v2/{}", kind.name()), &[header]);
        let holds = key.verify_strict(&hash, &signature).is_ok();
        let may_send = sender.role()
            == transcript.messages.iter().find(|n| n.message.kind == kind).unwrap().message.header[30];
        // the signatures of uploads in a freeze are not those of the message
        let inner = ["37"].contains(&&*text(&vector, "row"));
        assert_eq!(holds && may_send, expected != "signature" || inner, "{}", text(&vector, "id"));
        checked += 1;
    }
    assert!(checked > 400);
}

/// Uploads whose content is wrong are sealed correctly, and those that cannot be decrypted have the right length.
#[test]
fn uploads_can_be_decrypted_unless_that_is_what_they_test() {
    let transcripts = messages::transcripts();
    let mut checked = [0, 0];
    for vector in bad::vectors(&transcripts) {
        let expected = text(&vector, "expected");
        let sealed =
            expected.starts_with("ct_") || expected.starts_with("index_") || expected == "nonce_reuse";
        if text(&vector, "party") != "aggregator" || !(sealed || expected == "body") {
            continue;
        }
        let input = bytes(&text(&vector, "input"));
        let transcript = transcripts.iter().find(|t| t.name == text(&vector, "task")).unwrap();
        let user = u32::from_be_bytes(input[31..35].try_into().unwrap());
        let aad = upload_aad(transcript.task(), 1, user, &transcript.get("ticket").hash());
        let body = &input[PREAMBLE + 116 + 64..];
        let length = transcript.get(&format!("upload_{user}")).body.len();
        assert_eq!(body.len(), length, "{}", text(&vector, "id"));
        let content = open(&transcript.roster.agreement(), UPLOAD_INFO, &aad, body);
        assert_eq!(content.is_some(), sealed, "{}", text(&vector, "id"));
        checked[usize::from(sealed)] += 1;
    }
    assert!(checked[0] > 20 && checked[1] > 100);
}

/// The uploads that a freeze lists are signed, unless that is what the vector tests.
#[test]
fn freezes_list_signed_uploads_unless_that_is_what_they_test() {
    let transcripts = messages::transcripts();
    let mut checked = [0, 0];
    for vector in bad::vectors(&transcripts) {
        let (expected, input) = (text(&vector, "expected"), bytes(&text(&vector, "input")));
        let later = ["early", "ok"].contains(&&*expected) || text(&vector, "row") == "37";
        let freeze = text(&vector, "party") == "key_generator" && input.get(5) == Some(&(Type::Freeze as u8));
        if !freeze || !later || field(&vector, "rebind").is_some() {
            continue;
        }
        let transcript = transcripts.iter().find(|t| t.name == text(&vector, "task")).unwrap();
        let listed = &input[111..input.len() - 64];
        let signed = |entry: &[u8]| {
            let user = u32::from_be_bytes(entry[..4].try_into().unwrap());
            let header = [
                b"DPHE\x02\x03",
                &transcript.task()[..],
                &1u64.to_be_bytes(),
                &[3],
                &entry[..4],
                &transcript.get("ticket").hash(),
                &transcript.roster.key_id,
                &entry[4..56],
            ]
            .concat();
            let signature = Signature::from_slice(&entry[56..]).unwrap();
            let key = transcript.identity(Sender::User(user)).verifying_key();
            key.verify_strict(&h("dphe/v2/upload", &[&header]), &signature).is_ok()
        };
        let all = listed.chunks(120).all(signed);
        assert_eq!(all, expected != "signature", "{}", text(&vector, "id"));
        checked[usize::from(all)] += 1;
    }
    assert!(checked[0] > 20 && checked[1] >= 6);
}
