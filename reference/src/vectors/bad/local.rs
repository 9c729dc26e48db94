//! Local inputs: keys and logs.

use num_bigint::BigUint;

use super::super::json::{Json, hex, number, text};
use super::super::keys;
use super::Bad;
use crate::rng::Rng;
use crate::wire::log;

/// Adds the vectors.
pub(super) fn add(bad: &mut Bad<'_>) {
    if bad.t.name == "sparse" {
        encryption_keys(bad);
    }
    logs(bad);
}

/// Adds invalid moduli. `bits` is the length in the policy.
fn encryption_keys(bad: &mut Bad<'_>) {
    let n = &bad.t.key.n;
    let (prime_128, prime_256) = (keys::prime(128), keys::prime(256));
    let (prime_1024, prime_2048) = (keys::prime(1024), keys::prime(2048));
    let odd = |x: BigUint| x | BigUint::from(1u8);
    let multiple = |of: u32| {
        let start = &prime_256 - &prime_256 % of;
        // an odd multiple
        if start.bit(0) { start } else { start + of }
    };
    for (id, comment, bits, modulus) in [
        ("even", "even", 256, n + 1u8),
        ("plus-2", "n + 2, which is a multiple of 3", 256, n + 2u8),
        ("255-bits", "one bit too short", 256, odd(n >> 1)),
        ("257-bits", "one bit too long", 256, odd(n << 1)),
        ("128-bits", "half as long", 256, keys::toy_key(128).n),
        ("toy", "a good key, but of 256 bits", 2048, n.clone()),
        ("prime", "prime", 256, prime_256.clone()),
        ("square", "the square of a prime", 256, &prime_128 * &prime_128),
        ("3", "a multiple of 3", 256, multiple(3)),
        ("251", "a multiple of 251", 256, multiple(251)),
        ("zero", "0", 256, BigUint::from(0u8)),
        ("one", "1", 256, BigUint::from(1u8)),
        ("2047-bits", "one bit too short", 2048, odd(&prime_2048 >> 1)),
        ("2048-even", "even", 2048, &prime_2048 + 1u8),
        ("2048-prime", "prime", 2048, prime_2048.clone()),
        ("2048-square", "the square of a prime", 2048, &prime_1024 * &prime_1024),
    ] {
        let vector = bad.start("key", id, 29, comment).with("given", Json::List(vec![]));
        let more = [("bits", number(bits)), ("noise", text("secure"))];
        bad.end(vector.with("input", hex(modulus.to_bytes_be())), &more, "key");
    }
}

/// Adds log files of a party. The contents of records are arbitrary here.
fn logs(bad: &mut Bad<'_>) {
    let mut rng = Rng::new(&format!("bad/logs/{}", bad.t.name));
    let (role, user) = if bad.t.name == "sparse" { (2, 0) } else { (3, 9) };
    let task = *bad.t.task();
    let roster = bad.t.roster.hash();
    let prefix = log::prefix(role, user, &task, &roster);
    let payloads: Vec<Vec<u8>> = [40, 7, 90].map(|length| [vec![1], rng.bytes(length)].concat()).into();
    let (records, heads) = log::records(log::first_head(&prefix), &payloads);
    let file = [&prefix[..], &records.concat()].concat();
    let checkpoint = log::checkpoint_payload(3, &heads[3], b"state");
    let (carried, carried_heads) = log::records(heads[3], &[checkpoint, vec![1, 2, 3], vec![1; 50]]);
    let replaced = [&prefix[..], &carried.concat()].concat();
    assert_eq!(carried_heads.len(), 4);

    let starts: Vec<usize> =
        (0..4).map(|i| prefix.len() + records[..i].iter().map(Vec::len).sum::<usize>()).collect();
    let mut one = |id: String, comment: &str, input: &[u8]| {
        let found = log::read(&prefix, input);
        let vector = bad.start("log", &id, 31, comment).with("given", Json::List(vec![]));
        let vector =
            vector.with("role", number(role)).with("user", number(user)).with("prefix", hex(&prefix));
        let vector = vector.with("input", hex(input));
        if let Some(found) = found {
            let more = [
                ("records", number(found.records)),
                ("checkpoint", number(found.checkpoint)),
                ("length", number(found.length)),
            ];
            bad.end(vector, &more, "ok");
        } else {
            bad.end(vector, &[], "storage");
        }
        log::read(&prefix, input)
    };
    let is = |found: Option<log::LogContents>, records: usize, length: usize| {
        assert!(found.is_some_and(|found| found.records == records && found.length == length));
    };
    is(one("whole".into(), "as it should be", &file), 3, file.len());
    is(one("empty".into(), "no records yet", &prefix), 0, prefix.len());
    is(one("checkpoint".into(), "begins with a checkpoint", &replaced), 2, replaced.len());

    let torn = "torn: the last record is cut short";
    for cut in [1, 31, 32, 33, records[2].len() - 8, records[2].len() - 4, records[2].len() - 1] {
        is(one(format!("torn-{cut}"), torn, &file[..file.len() - cut]), 2, starts[2]);
    }
    is(one("torn-first".into(), torn, &file[..starts[0] + 20]), 0, starts[0]);
    let mut input = file[..starts[1]].to_vec();
    input[starts[0] + 8..].fill(0);
    is(
        one("blank-first".into(), "torn: of the first record only the length was written", &input),
        0,
        starts[0],
    );
    let mut input = replaced[..replaced.len() - carried[1].len() - carried[2].len()].to_vec();
    let end = input.len();
    input[end - 32..].fill(0);
    assert!(one("checkpoint-no-head".into(), "half a checkpoint is damage", &input).is_none());
    let blank = "torn: room was made and never written";
    for zeros in [1, 7, 8, 40, 4096] {
        let input = [&file[..], &vec![0; zeros]].concat();
        is(one(format!("zeros-{zeros}"), blank, &input), 3, file.len());
    }
    let mut input = file.clone();
    let end = input.len();
    for left in [1, 2, 3, 4, 31] {
        input[end - left..].fill(0);
        let half = "torn: the end of the head was never written";
        is(one(format!("half-head-{left}"), half, &input), 2, starts[2]);
    }
    input[end - 32..].fill(0);
    is(one("no-head".into(), "torn: the head was never written", &input), 2, starts[2]);
    input.extend([0; 100]);
    is(one("no-head-zeros".into(), "torn: nor what follows", &input), 2, starts[2]);
    input[end - 50..].fill(0);
    is(one("half-payload".into(), "torn: nor the end of the payload", &input), 2, starts[2]);
    let cut = &replaced[..replaced.len() - 5];
    is(one("checkpoint-torn".into(), torn, cut), 1, replaced.len() - carried[2].len());

    for (id, at) in [
        ("magic", 0),
        ("role", 8),
        ("user", 12),
        ("task", 13),
        ("roster", 60),
        ("first-length", starts[0] + 3),
        ("first-length-high", starts[0]),
        ("first-complement", starts[0] + 7),
        ("first-payload", starts[0] + 8),
        ("first-head", starts[1] - 1),
        ("middle-length-high", starts[1]),
        ("middle-payload", starts[1] + 10),
        ("middle-head", starts[2] - 32),
        ("last-length-high", starts[2]),
        ("last-payload", starts[2] + 60),
        ("last-head", starts[3] - 1),
    ] {
        let mut input = file.clone();
        input[at] ^= 0x04;
        assert!(one(format!("bit-{id}"), "one bit is the other way", &input).is_none());
    }
    let without = |i: usize| [&file[..starts[i]], &file[starts[i + 1]..]].concat();
    assert!(one("without-first".into(), "the first record is missing", &without(0)).is_none());
    assert!(one("without-middle".into(), "a record is missing", &without(1)).is_none());
    let exchanged = [&file[..starts[0]], &records[1][..], &records[0], &records[2]].concat();
    assert!(one("exchanged".into(), "two records are exchanged", &exchanged).is_none());
    let twice = [&file[..], &records[2]].concat();
    assert!(one("twice".into(), "the last record twice", &twice).is_none());
    let mut hole = file.clone();
    hole[starts[1]..starts[2]].fill(0);
    assert!(one("hole".into(), "zeros in the place of a record, with another after it", &hole).is_none());
    let carried_hole = [&prefix[..], &carried[0], &carried[2]].concat();
    assert!(
        one("after-checkpoint".into(), "a record after the checkpoint is missing", &carried_hole).is_none()
    );
    let late = [&prefix[..], &records[0], &carried[0]].concat();
    assert!(one("late-checkpoint".into(), "a checkpoint in the middle", &late).is_none());

    for (id, comment, other) in [
        ("other-task", "the log of another task", log::prefix(role, user, bad.other.task(), &roster)),
        ("other-roster", "the log of another roster", log::prefix(role, user, &task, &[1; 32])),
        ("other-role", "the log of another party", log::prefix(1, 0, &task, &roster)),
        ("other-user", "the log of another user", log::prefix(3, 1, &task, &roster)),
    ] {
        let (records, _) = log::records(log::first_head(&other), &payloads);
        let input = [&other[..], &records.concat()].concat();
        let vector = bad.start("log", id, 31, comment).with("given", Json::List(vec![]));
        let vector =
            vector.with("role", number(role)).with("user", number(user)).with("prefix", hex(&prefix));
        assert!(log::read(&prefix, &input).is_none());
        bad.end(vector.with("input", hex(input)), &[], "storage");
    }
}
