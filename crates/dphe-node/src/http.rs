//! HTTP as the services speak it: media types, lists of messages, problems, limits (docs/api.md).

pub mod client;
mod gate;
pub mod open_files;
pub mod openapi;
pub mod problem;
pub mod request_id;
pub mod server;

use dphe::message::{
    Close, Decrypt, Freeze, FreezeAck, Message, Publish, RoundOpen, RoundResult, RoundTicket, Upload,
    UploadAck, kind,
};
use dphe::{Party, Roster, Round};

/// The media type of a list of messages.
pub const MESSAGES: &str = "application/vnd.dphe.v1.messages";
/// The media type of a model.
pub const MODEL: &str = "application/vnd.dphe.v1.model";
/// The header that says how much of an upload has arrived.
pub const UPLOAD_OFFSET: &str = "upload-offset";
/// The longest piece of an upload in one request.
pub const MAX_CHUNK: usize = 1 << 20;

/// The media type of a message, from its first bytes.
pub fn media_type(message: &[u8]) -> Option<String> {
    let name = match kind(message).ok()? {
        RoundOpen::KIND => RoundOpen::NAME,
        RoundTicket::KIND => RoundTicket::NAME,
        Upload::KIND => Upload::NAME,
        UploadAck::KIND => UploadAck::NAME,
        Freeze::KIND => Freeze::NAME,
        FreezeAck::KIND => FreezeAck::NAME,
        Decrypt::KIND => Decrypt::NAME,
        RoundResult::KIND => RoundResult::NAME,
        Publish::KIND => Publish::NAME,
        Close::KIND => Close::NAME,
        _ => return None,
    };
    Some(format!("application/vnd.dphe.v1.{name}"))
}

/// The round in the header of a message; only its length is checked.
pub fn round_of(message: &[u8]) -> Option<Round> {
    let mut digits = [0; 8];
    digits.copy_from_slice(message.get(22..30)?);
    Round::new(u64::from_be_bytes(digits))
}

/// The sender in the header of a message; only its length is checked.
pub fn sender_of(message: &[u8]) -> Option<Party> {
    let role = *message.get(30)?;
    let mut digits = [0; 4];
    digits.copy_from_slice(message.get(31..35)?);
    match (role, u32::from_be_bytes(digits)) {
        (1, 0) => Some(Party::Aggregator),
        (2, 0) => Some(Party::KeyGenerator),
        (3, user) => dphe::UserId::new(user).map(Party::User),
        _ => None,
    }
}

/// Bytes of the longest header and signature: a freeze or a publish message names every user.
fn max_head_bytes(roster: &Roster) -> u64 {
    1024 + 36 * roster.users().len() as u64
}

/// Bytes of the longest message of a kind.
pub fn max_message_bytes<M: Message>(roster: &Roster) -> u64 {
    max_head_bytes(roster) + M::max_body(roster).unwrap_or(0)
}

/// Bytes of the longest list of messages that a user gets: how a round ended, and the next ticket.
pub fn max_list_bytes(roster: &Roster) -> u64 {
    max_message_bytes::<Publish>(roster) + 2 * max_head_bytes(roster)
}

/// A list of messages: each with its length before it, 8 bytes, big-endian.
pub fn write_list(messages: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(messages.iter().map(|message| 8 + message.as_ref().len()).sum());
    for message in messages {
        out.extend((message.as_ref().len() as u64).to_be_bytes());
        out.extend_from_slice(message.as_ref());
    }
    out
}

/// Reads a list of messages.
pub fn read_list(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let (message, rest) = rest.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)?;
        messages.push(message);
        bytes = rest;
    }
    Some(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_were_written_and_lies_are_refused() {
        let list = write_list(&[b"one".to_vec(), Vec::new(), vec![7; 300]]);
        assert_eq!(read_list(&list).unwrap(), [&b"one"[..], b"", &[7; 300]]);
        assert_eq!(read_list(&[]), Some(Vec::new()));
        for length in 1..list.len() {
            // a cut is noticed, unless it is between two messages
            assert_eq!(read_list(&list[..length]).is_some(), [11, 19].contains(&length), "{length}");
        }
        let mut lie = list.clone();
        lie[0] = 255;
        assert_eq!(read_list(&lie), None);
    }

    #[test]
    fn headers_are_read_without_trust() {
        for length in 0..35 {
            assert_eq!(sender_of(&vec![0; length]), None);
        }
        assert_eq!(round_of(&[0; 35]), None);
        assert_eq!(media_type(b"DPHE"), None);
    }
}
