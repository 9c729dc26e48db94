//! Section 9: the log of a party, a chain of heads.

use super::derive::{Digest, Task, h};

/// What stands before the records.
pub fn prefix(role: u8, user: u32, task: &Task, roster_hash: &Digest) -> Vec<u8> {
    let mut bytes = b"DPHELOG1".to_vec();
    bytes.push(role);
    bytes.extend(user.to_be_bytes());
    bytes.extend(task);
    bytes.extend(roster_hash);
    bytes
}

/// `head_0`.
pub fn first_head(prefix: &[u8]) -> Digest {
    h("dphe/v1/log", &[prefix])
}

/// `head_i`.
pub fn next_head(head: &Digest, payload: &[u8]) -> Digest {
    h("dphe/v1/log-record", &[head, payload])
}

/// The records, each with its head, and the heads.
pub fn records(prefix: &[u8], payloads: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<Digest>) {
    let mut head = first_head(prefix);
    let mut records = Vec::new();
    let mut heads = vec![head];
    for payload in payloads {
        head = next_head(&head, payload);
        let mut record = (payload.len() as u32).to_be_bytes().to_vec();
        record.extend(payload);
        record.extend(head);
        records.push(record);
        heads.push(head);
    }
    (records, heads)
}

/// How many records a log has and how long it is without its torn tail; nothing if it is damaged.
pub fn read(expected_prefix: &[u8], file: &[u8]) -> Option<(usize, usize)> {
    let mut at = expected_prefix.len();
    if !file.starts_with(expected_prefix) {
        return None;
    }
    let mut head = first_head(expected_prefix);
    let mut count = 0;
    loop {
        let rest = &file[at..];
        if rest.len() < 4 {
            return Some((count, at));
        }
        let length = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        if rest.len() < 4 + length + 32 {
            return Some((count, at));
        }
        let (payload, stored) = (&rest[4..4 + length], &rest[4 + length..4 + length + 32]);
        head = next_head(&head, payload);
        if stored != head {
            // Never finished: what had not reached the disk reads as zeros, to the end of the file.
            let after = &rest[4 + length + 32..];
            let torn = stored.last() == Some(&0) && after.iter().all(|&byte| byte == 0);
            return torn.then_some((count, at));
        }
        at += 4 + length + 32;
        count += 1;
    }
}
