//! Key files that must be refused. Their checksums are right, unless the vector tests the checksum.

use super::super::json::hex;
use super::{Bad, list, number};
use crate::wire::kit::{KitTask, Seed, aggregator, identity, key_generator, user, with_checksum};

/// The length of the checksum, and of an entry in a list of users.
const CHECKSUM: usize = 32;
const ENTRY: usize = 44;

/// Adds the vectors.
pub(super) fn add(bad: &mut Bad<'_>) {
    for (kind, name) in [(1, "identity"), (2, "key-generator"), (3, "aggregator"), (4, "user")] {
        let good = kit(bad, kind);
        let mut all = Vec::new();
        all.push(("right".into(), "as it should be", good.clone(), "ok"));
        beginnings(&good, kind, &mut all);
        lengths(&good, &mut all);
        bits(&good, &mut all);
        if kind == 2 || kind == 3 {
            users(&good, &mut all);
        }
        for (id, comment, bytes, expected) in all {
            let vector = bad.start("kit", &format!("{name}-{id}"), 51, comment);
            let vector = vector.with("kind", number(kind)).with("given", list([])).with("input", hex(bytes));
            bad.end(vector, &[], expected);
        }
    }
}

/// An id, a comment, the bytes and the expected outcome.
type Case = (String, &'static str, Vec<u8>, &'static str);

fn kit(bad: &Bad<'_>, kind: u8) -> Vec<u8> {
    let task = KitTask { id: *bad.t.task(), policy: bad.t.policy(), key: &bad.t.key };
    let seed = |byte: u8| -> Seed { (1, [byte; 32]) };
    let users = [(1, seed(1)), (2, seed(2)), (5, seed(5)), (9, seed(9))];
    match kind {
        1 => identity(&[7; 32]),
        2 => key_generator(&task, 1, &seed(8), &users),
        3 => aggregator(&task, &users),
        _ => user(&task, 5, &[seed(8), seed(5), seed(6)]),
    }
}

/// Changes the bytes that the checksum covers, and computes it again.
fn edited(good: &[u8], edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut covered = good[..good.len() - CHECKSUM].to_vec();
    edit(&mut covered);
    with_checksum(covered)
}

fn beginnings(good: &[u8], kind: u8, all: &mut Vec<Case>) {
    for version in *b"013" {
        let bytes = edited(good, |kit| kit[7] = version);
        let id = format!("version-{}", char::from(version));
        all.push((id, "another version of the format", bytes, "version"));
    }
    for other in [0, kind % 4 + 1, 5, 255] {
        let bytes = edited(good, |kit| kit[8] = other);
        all.push((format!("kind-{other}"), "the keys of another kind of party", bytes, "version"));
    }
}

fn lengths(good: &[u8], all: &mut Vec<Case>) {
    for length in [0, 8, 9, 40, good.len() - CHECKSUM, good.len() - 1] {
        let bytes = good[..length].to_vec();
        all.push((format!("cut-{length}"), "the end is missing", bytes, "encoding"));
    }
    all.push(("one-more".into(), "a byte after the checksum", [good, &[0]].concat(), "encoding"));
    let bytes = edited(good, |kit| kit.push(0));
    all.push(("longer".into(), "a byte after the last field", bytes, "encoding"));
    let bytes = edited(good, |kit| kit.truncate(kit.len() - 1));
    all.push(("shorter".into(), "the last field lacks a byte", bytes, "encoding"));
}

/// Adds damage, which would otherwise spoil sums unnoticed.
fn bits(good: &[u8], all: &mut Vec<Case>) {
    for at in [9, good.len() / 2, good.len() - CHECKSUM - 1, good.len() - 1] {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1;
        all.push((format!("bit-{at}"), "one bit changed, and the checksum did not", bytes, "encoding"));
    }
}

fn users(good: &[u8], all: &mut Vec<Case>) {
    let first = good.len() - CHECKSUM - 4 * ENTRY;
    let exchanged = edited(good, |kit| {
        let (one, two) = kit[first..first + 2 * ENTRY].split_at_mut(ENTRY);
        one.swap_with_slice(two);
    });
    all.push(("users-descending".into(), "the first two users exchanged", exchanged, "set_order"));
    let repeated = edited(good, |kit| kit.copy_within(first..first + ENTRY, first + ENTRY));
    all.push(("users-twice".into(), "one user twice", repeated, "set_order"));
    let last = edited(good, |kit| kit.copy_within(first..first + ENTRY, first + 3 * ENTRY));
    all.push(("users-last".into(), "the last user is the first", last, "set_order"));
    for (count, expected) in [(3u32, "encoding"), (5, "encoding"), (65_537, "size"), (u32::MAX, "size")] {
        let bytes = edited(good, |kit| kit[first - 4..first].copy_from_slice(&count.to_be_bytes()));
        let comment = "not the number of users that follow";
        all.push((format!("users-{count}"), comment, bytes, expected));
    }
}
