//! `derivation.json`: all derived values that need no encryption.

mod masks;
mod parties;

use num_bigint::BigInt;

use super::json::{Json, hex, list, number, numbers, object, text};
use super::rounds::{base_policy, policy_json};
use crate::rng::Rng;
use crate::wire::derive::{
    Stream, h, ratchet, rotation, shuffle, support_digest, user_aggregator, user_shared,
};
use crate::wire::fixed::{encode, pack, unpack};
use crate::wire::log;
use crate::wire::task::{Policy, Profile, Receipts};

const DESCRIPTION: &str = "What docs/protocol.md derives without encrypting: hashes, streams, shuffles, seeds, \
permutations, supports, policies, fixed point, packing, logs, masks, checks, trees of participants, histories, \
sealed uploads, kits, seeds and histories of changed rosters. Bytes are hexadecimal, seeds are those of round 1.";

/// Returns the file.
pub fn file() -> Json {
    let mut rng = Rng::new("derivation");
    object()
        .with("description", text(DESCRIPTION))
        .with("spec", text("docs/protocol.md, sections 2 to 6, 9 and 13"))
        .with("hash", hashes(&mut rng))
        .with("stream", streams(&mut rng))
        .with("shuffle", shuffles(&mut rng))
        .with("ratchet", ratchets(&mut rng))
        .with("user_shared", permutations(&mut rng, false))
        .with("user_aggregator", permutations(&mut rng, true))
        .with("rotation", rotations(&mut rng))
        .with("policy", policies())
        .with("fixed_point", fixed_point())
        .with("packing", packing(&mut rng))
        .with("unpacking", unpacking())
        .with("log", logs(&mut rng))
        .with("mask", masks::masks())
        .with("mask_keys", masks::keys())
        .with("check", masks::checks())
        .with("merkle", parties::trees())
        .with("history", parties::histories())
        .with("hpke", parties::sealed())
        .with("kit", parties::kits())
        .with("roster_seed", parties::roster_seeds())
        .with("roster_history", parties::roster_histories())
}

fn hashes(rng: &mut Rng) -> Json {
    let cases: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("", vec![]),
        ("dphe/v2/policy", vec![]),
        ("dphe/v2/policy", vec![vec![]]),
        ("dphe/v2/model", vec![b"abc".to_vec()]),
        ("dphe/v2/model", vec![b"a".to_vec(), b"bc".to_vec()]),
        ("dphe/v2/model", vec![b"ab".to_vec(), vec![], b"c".to_vec()]),
        ("dphe/v2/ratchet", vec![rng.bytes(32)]),
        ("dphe/v2/user-shared", vec![rng.bytes(32), rng.bytes(16), rng.bytes(8)]),
        ("dphe/v2/sum", vec![rng.bytes(200)]),
    ];
    list(cases.iter().map(|(domain, parts)| {
        let slices: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        object()
            .with("domain", text(*domain))
            .with("parts", list(parts.iter().map(hex)))
            .with("digest", hex(h(domain, &slices)))
    }))
}

/// Bounds just above 2^31 skip every other word. The bound 1 consumes a word and always gives 0.
fn streams(rng: &mut Rng) -> Json {
    let bounds: [&[u32]; 3] = [
        &[1, 2, 3, 7, 10, 256, 1000, 65_537, 206_848],
        &[0x8000_0001; 12],
        &[0xffff_ffff, 0x8000_0000, 0xaaaa_aaab, 0xaaaa_aaab, 0xaaaa_aaab, 5],
    ];
    list(bounds.iter().map(|bounds| {
        let key = rng.digest();
        let mut words = Stream::new(key);
        let mut draws = Stream::new(key);
        object()
            .with("key", hex(key))
            .with("words", numbers((0..20).map(|_| words.word())))
            .with("bounds", numbers(*bounds))
            .with("draws", numbers(bounds.iter().map(|&b| draws.draw(b))))
    }))
}

fn shuffles(rng: &mut Rng) -> Json {
    list([1, 2, 3, 8, 9, 64, 257].map(|positions| {
        let key = rng.digest();
        object()
            .with("key", hex(key))
            .with("positions", number(positions))
            .with("permutation", numbers(shuffle(key, positions)))
    }))
}

fn ratchets(rng: &mut Rng) -> Json {
    let seed = rng.digest();
    list([1, 2, 3, 10, 100].map(|round| {
        object()
            .with("seed", hex(seed))
            .with("round", number(round))
            .with("round_seed", hex(ratchet(seed, round)))
    }))
}

fn permutations(rng: &mut Rng, aggregator: bool) -> Json {
    let mut cases = Vec::new();
    for (paper, positions) in [(false, 16), (false, 41), (true, 16)] {
        let (task, seed) = (rng.id(), rng.digest());
        for (round, user) in [(1, 1), (2, 1), (2, 65_536), (3, 4_294_967_295), (17, 2)] {
            let case = object()
                .with("profile", text(if paper { "paper" } else { "sparse" }))
                .with("task", hex(task))
                .with("seed", hex(seed))
                .with("round", number(round));
            cases.push(if aggregator {
                let permutation = user_aggregator(paper, seed, &task, round, user, positions);
                case.with("user", number(user))
                    .with("positions", number(positions))
                    .with("permutation", numbers(permutation))
            } else {
                case.with("positions", number(positions))
                    .with("permutation", numbers(user_shared(paper, seed, &task, round, positions)))
            });
        }
    }
    list(cases)
}

fn rotations(rng: &mut Rng) -> Json {
    let mut cases = Vec::new();
    for (positions, capacity, rounds) in [
        (10, 10, &[1, 2, 3][..]),
        (10, 5, &[1, 2, 3, 4, 5]),
        (23, 7, &[1, 2, 3, 4, 5, 8, 9, 1_000_000_007]),
        (5, 1, &[1, 5, 6, 11]),
        (7, 6, &[1, 2, 3, 4]),
    ] {
        let task = rng.id();
        for &round in rounds {
            let support = rotation(&task, round, positions, capacity);
            cases.push(
                object()
                    .with("task", hex(task))
                    .with("positions", number(positions))
                    .with("capacity", number(capacity))
                    .with("round", number(round))
                    .with("support_digest", hex(support_digest(&support)))
                    .with("support", numbers(support)),
            );
        }
    }
    let private = object().with("comment", text("private support")).with("support", numbers::<u32>([]));
    list(cases.into_iter().chain([private.with("support_digest", hex(support_digest(&[])))]))
}

fn policies() -> Json {
    let (sparse, full, paper) = (
        base_policy(Profile::Sparse, 3072),
        base_policy(Profile::Full, 2048),
        base_policy(Profile::Paper, 1024),
    );
    let cases = [
        Policy { dimension: 206_848, capacity: 20_685, scale_bits: 24, max_users: 100, ..sparse.clone() },
        Policy {
            dimension: 206_848,
            block: 101,
            capacity: 256,
            shards: 4,
            clip_exponent: -1,
            ..sparse.clone()
        },
        Policy { clip: true, dense: 202, min_users: 50, min_percent: 67, max_users: 65_536, ..sparse },
        Policy { capacity: 20, max_attempts: 16, max_model_bytes: 1 << 31, ..full.clone() },
        Policy { dimension: 1 << 30, capacity: 1, dense: 1, scale_bits: 48, clip_exponent: 12, ..full },
        Policy { shards: 4, ..paper },
        Policy {
            receipts: Receipts::Checked,
            rounds: 1,
            max_failures: 1,
            ..base_policy(Profile::Sparse, 2048)
        },
        Policy {
            receipts: Receipts::Masked,
            capacity: 20,
            rounds: 1 << 20,
            collect_min: 3_600_000,
            outsize: 10,
            max_failures: 255,
            ..base_policy(Profile::Full, 3072)
        },
        Policy { collect_min: u32::MAX, outsize: 255, ..base_policy(Profile::Paper, 2048) },
    ];
    list(cases.iter().map(|policy| {
        assert!(policy.is_valid());
        policy_json(policy)
            .with("bytes", hex(policy.bytes()))
            .with("hash", hex(policy.hash()))
            .with("positions", number(policy.positions()))
            .with("value_bits", number(policy.value_bits()))
            .with("slot_bits", number(policy.slot_bits()))
            .with("slots", number(policy.slots()))
            .with("floor_of_100", number(policy.floor(100)))
    }))
}

/// Numbers that different rounding methods treat differently.
fn fixed_point() -> Json {
    let mut cases = Vec::new();
    for (f, c, clip) in
        [(8u8, 2i8, false), (8, 2, true), (0, 1, false), (48, -47, false), (48, 12, true), (4, -3, true)]
    {
        let policy = Policy { scale_bits: f, clip_exponent: c, clip, ..base_policy(Profile::Sparse, 256) };
        let unit = 2f64.powi(-i32::from(f));
        let bound = 2f64.powi(i32::from(c));
        let mut values = vec![0.0, f64::MIN_POSITIVE, f64::from_bits(1), f64::from_bits((1 << 52) - 1)];
        // ties and their neighbours
        for k in [0.5, 1.0, 1.5, 2.5, 3.5] {
            let w = k * unit;
            values.extend([w, w.next_up(), w.next_down()]);
        }
        values.extend([
            bound,
            bound.next_up(),
            bound.next_down(),
            bound - unit / 2.0,
            bound - unit,
            bound * 2.0,
        ]);
        values.extend([
            0.1,
            1.0,
            1e300,
            f64::MAX,
            f64::INFINITY,
            f64::NAN,
            f64::from_bits(0x7ff0_0000_0000_0001),
        ]);
        let negative: Vec<f64> = values.iter().map(|w| -w).collect();
        for w in values.into_iter().chain(negative) {
            let case = object()
                .with("scale_bits", number(f))
                .with("clip_exponent", number(c))
                .with("clip_rule", number(u8::from(clip)))
                .with("value", text(format!("{w:?}")))
                .with("bits", text(format!("{:016x}", w.to_bits())));
            cases.push(match encode(&policy, w) {
                Ok(e) => case.with("encoded", number(e)),
                Err(_) => case.with("error", text("value")),
            });
        }
    }
    list(cases)
}

fn packing(rng: &mut Rng) -> Json {
    let base = base_policy(Profile::Sparse, 256);
    let wide = Policy { scale_bits: 40, clip_exponent: 20, max_users: 8, ..base.clone() };
    let mut cases = Vec::new();
    for policy in [&base, &wide] {
        let (bound, most) = (policy.bound(), i64::from(policy.max_users) * policy.bound());
        let random = |rng: &mut Rng, bound: i64| {
            (rng.below(2 * bound as usize + 1) as i128 - i128::from(bound)) as i64
        };
        let slots = policy.slots();
        for values in [
            vec![0; slots],
            vec![1],
            vec![-1],
            vec![bound; slots],
            vec![-bound; slots],
            // sums of the maximum number of users
            vec![most; slots],
            vec![-most; slots],
            (0..slots).map(|k| if k % 2 == 0 { -1 } else { 0 }).collect(),
            (0..slots).map(|k| if k % 2 == 0 { most } else { -most }).collect(),
            (0..slots).map(|_| random(rng, bound)).collect(),
            (0..slots / 2).map(|_| random(rng, most)).collect(),
        ] {
            let plaintext = pack(policy, &values);
            let users = policy.max_users as usize;
            assert_eq!(unpack(policy, &plaintext, values.len(), users).as_ref(), Some(&values));
            cases.push(
                slot_json(policy)
                    .with("values", numbers(values))
                    .with("plaintext", text(plaintext.to_string())),
            );
        }
    }
    list(cases)
}

fn slot_json(policy: &Policy) -> Json {
    object()
        .with("key_bits", number(policy.key_bits))
        .with("scale_bits", number(policy.scale_bits))
        .with("clip_exponent", number(policy.clip_exponent))
        .with("max_users", number(policy.max_users))
        .with("slot_bits", number(policy.slot_bits()))
}

/// Plaintexts that are not a sum of honest users. `values` is null if decoding fails.
fn unpacking() -> Json {
    let policy = base_policy(Profile::Sparse, 256);
    let beta = policy.slot_bits();
    let most = |users: i64| BigInt::from(users * policy.bound());
    let all = most(8);
    let one = BigInt::from(1);
    let cases = [
        ("zero", 3, 8, BigInt::from(0)),
        ("most in one slot", 1, 8, all.clone()),
        ("one more", 1, 8, &all + 1),
        ("one less than least", 1, 8, -&all - 1),
        ("one more, in the middle", 3, 8, (&all + 1) << beta),
        ("something above the last slot", 2, 8, &one << (2 * beta)),
        ("something far above the last slot", 2, 8, &one << 250),
        ("minus one above the last slot", 2, 8, -(&one << (2 * beta))),
        ("minus one below", 2, 8, BigInt::from(-1)),
        ("half of a slot, which reads as negative", 2, 8, &one << (beta - 1)),
        ("most of three users", 1, 3, most(3)),
        ("one more than three users can have", 1, 3, most(3) + 1),
        ("least of three users", 2, 3, -most(3) << beta),
        ("one less than three users can have", 2, 3, (-most(3) - 1) << beta),
        ("what only four users can have", 1, 3, most(4)),
    ];
    list(cases.map(|(comment, count, users, plaintext)| {
        let values = unpack(&policy, &plaintext, count, users).map_or_else(|| number("null"), numbers);
        slot_json(&policy)
            .with("comment", text(comment))
            .with("count", number(count))
            .with("users", number(users))
            .with("plaintext", text(plaintext.to_string()))
            .with("values", values)
    }))
}

fn logs(rng: &mut Rng) -> Json {
    list([(1u8, 0u32, 3usize), (2, 0, 1), (3, 7, 2), (3, 4_294_967_295, 0)].map(|(role, user, count)| {
        let (task, roster_hash) = (rng.id(), rng.digest());
        let prefix = log::prefix(role, user, &task, &roster_hash);
        // only checkpoints start with 0
        let payloads: Vec<Vec<u8>> = (0..count).map(|i| [vec![1], rng.bytes(17 * i)].concat()).collect();
        let (records, heads) = log::records(log::first_head(&prefix), &payloads);
        let last = heads.last().copied().unwrap_or_default();
        let checkpoint = log::checkpoint_payload(count as u64, &last, &rng.bytes(9));
        let (checkpoint_record, _) = log::records(last, std::slice::from_ref(&checkpoint));
        object()
            .with("role", number(role))
            .with("user", number(user))
            .with("task", hex(task))
            .with("roster_hash", hex(roster_hash))
            .with("prefix", hex(&prefix))
            .with("payloads", list(payloads.iter().map(hex)))
            .with("records", list(records.iter().map(hex)))
            .with("heads", list(heads.iter().map(hex)))
            .with("file", hex([prefix.clone(), records.concat()].concat()))
            .with("checkpoint_payload", hex(checkpoint))
            .with("checkpoint_file", hex([prefix, checkpoint_record.concat()].concat()))
    }))
}
