//! Section 6: the tree of participants and the history of a task.

use super::derive::{Digest, h};
use super::mask::Salt;

/// Computes `leaf(u)`.
pub fn leaf(user: u32, body_hash: &Digest, salt: &Salt) -> Digest {
    h("dphe/v2/participant", &[&user.to_be_bytes(), body_hash, salt])
}

/// Computes the users root of at least one leaf.
pub fn root(leaves: &[Digest]) -> Digest {
    match leaves {
        [leaf] => *leaf,
        _ => {
            let (first, others) = leaves.split_at(split(leaves.len()));
            parent(&root(first), &root(others))
        }
    }
}

/// Returns the siblings on the way from a leaf upwards.
pub fn path(leaves: &[Digest], index: usize) -> Vec<Digest> {
    if leaves.len() == 1 {
        return vec![];
    }
    let k = split(leaves.len());
    let (first, others) = leaves.split_at(k);
    let (mut path, sibling) =
        if index < k { (path(first, index), root(others)) } else { (path(others, index - k), root(first)) };
    path.push(sibling);
    path
}

/// Computes the root of `count` leaves from one of them and its path. Returns `None` if the path has another length.
pub fn root_of(leaf: &Digest, index: usize, path: &[Digest], count: usize) -> Option<Digest> {
    if index >= count {
        return None;
    }
    let Some((sibling, rest)) = path.split_last() else {
        return (count == 1).then_some(*leaf);
    };
    if count == 1 {
        return None;
    }
    let k = split(count);
    if index < k {
        Some(parent(&root_of(leaf, index, rest, k)?, sibling))
    } else {
        Some(parent(sibling, &root_of(leaf, index - k, rest, count - k)?))
    }
}

/// Returns the largest power of two below `count`.
fn split(count: usize) -> usize {
    count.next_power_of_two() / 2
}

fn parent(left: &Digest, right: &Digest) -> Digest {
    h("dphe/v2/participants", &[left, right])
}

/// Computes `history_0`.
pub fn first_history(roster_hash: &Digest) -> Digest {
    h("dphe/v2/history", &[roster_hash])
}

/// Computes the history when another roster comes into force.
pub fn history_with_roster(history: &Digest, roster_hash: &Digest) -> Digest {
    h("dphe/v2/history-roster", &[history, roster_hash])
}

/// What a round adds to the history.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    /// The hash of the ticket.
    pub ticket: Digest,
    /// The outcome: 1 released, 2 failed, 3 nothing opened.
    pub outcome: u8,
    /// The users root if the round was published, else zeros.
    pub users_root: Digest,
    /// The hash of the close message.
    pub close: Digest,
}

/// Computes `history_t` from that of the round before.
pub fn next_history(history: &Digest, past: &Past) -> Digest {
    h("dphe/v2/history", &[history, &past.ticket, &[past.outcome], &past.users_root, &past.close])
}
