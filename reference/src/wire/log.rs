//! Section 9: the log of a party, a chain of hashes.

use super::derive::{Digest, Task, h};

/// Returns the bytes before the records.
pub fn prefix(role: u8, user: u32, task: &Task, roster_hash: &Digest) -> Vec<u8> {
    let mut bytes = b"DPHELOG2".to_vec();
    bytes.push(role);
    bytes.extend(user.to_be_bytes());
    bytes.extend(task);
    bytes.extend(roster_hash);
    bytes
}

/// Computes `head_0`.
pub fn first_head(prefix: &[u8]) -> Digest {
    h("dphe/v2/log", &[prefix])
}

/// Computes `head_i`.
pub fn next_head(head: &Digest, payload: &[u8]) -> Digest {
    h("dphe/v2/log-record", &[head, payload])
}

/// Encodes a record: length, its complement, payload, head.
pub fn record(payload: &[u8], head: &Digest) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut record = length.to_be_bytes().to_vec();
    record.extend((!length).to_be_bytes());
    record.extend(payload);
    record.extend(head);
    record
}

/// Encodes the records that follow a head. Returns them with all heads, starting with this one.
pub fn records(mut head: Digest, payloads: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<Digest>) {
    let mut records = Vec::new();
    let mut heads = vec![head];
    for payload in payloads {
        head = next_head(&head, payload);
        records.push(record(payload, &head));
        heads.push(head);
    }
    (records, heads)
}

/// Encodes the payload of a checkpoint, which continues the log that it replaces.
pub fn checkpoint_payload(seq: u64, head: &Digest, state: &[u8]) -> Vec<u8> {
    let mut payload = vec![0];
    payload.extend(seq.to_be_bytes());
    payload.extend(head);
    payload.extend(state);
    payload
}

/// The contents of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogContents {
    /// Whether the log starts with a checkpoint.
    pub checkpoint: bool,
    /// The number of records besides the checkpoint.
    pub records: usize,
    /// The number of bytes before the torn tail, if there is one.
    pub length: usize,
}

/// Reads a log with this prefix. Returns `None` if it is damaged or has another prefix.
pub fn read(prefix: &[u8], file: &[u8]) -> Option<LogContents> {
    if !file.starts_with(prefix) {
        return None;
    }
    let zeros = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    let mut found = LogContents { checkpoint: false, records: 0, length: prefix.len() };
    let mut head = first_head(prefix);
    loop {
        let rest = &file[found.length..];
        // truncated, or allocated but never written
        if rest.len() < 8 || zeros(rest) {
            return Some(found);
        }
        let length = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
        if !length != u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]) {
            return None;
        }
        let end = 8 + length as usize + 32;
        if rest.len() < end {
            return Some(found);
        }
        let (payload, stored) = (&rest[8..end - 32], &rest[end - 32..end]);
        let last = zeros(&rest[end..]);
        let checkpoint = found.length == prefix.len() && payload.first() == Some(&0);
        // a checkpoint replaces the file atomically, so half of one is damage
        if last && zeros(stored) && (!checkpoint || zeros(payload)) {
            return Some(found);
        }
        if checkpoint {
            head.copy_from_slice(payload.get(9..41)?);
            found.checkpoint = true;
        }
        head = next_head(&head, payload);
        if stored != head {
            // only the beginning of the head was written
            let begun = (1..32).any(|n| stored[..n] == head[..n] && zeros(&stored[n..]));
            return (last && begun && !checkpoint).then_some(found);
        }
        found.records += usize::from(!checkpoint);
        found.length += end;
    }
}
