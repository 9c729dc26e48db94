//! The opened sum equals the plain sum exactly, for all profiles, block sizes, shards, orders of arrival and replicas.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use chacha20::ChaCha20Rng;
use dphe::scheme::{RoundParams, UncheckedSum};
use dphe::wire::{DecodeWith as _, Encode as _, SumContext};
use dphe::{
    Aggregator, Blinds, ClipRule, NoiseMode, OpenedSum, Profile, PublicSupport, Receipts, Round,
    SealedUpdate, SparseVector, TaskConfig, Threads, Update, User, WeightSum,
};
use rand_core::Rng as _;
use support::{Roles, below, choose, config, encoded, rng, roles, round, shuffle, upload_params};

/// The update of one user in the clear.
struct Plain {
    indices: Vec<u32>,
    weights: Vec<f64>,
    dense: Vec<f64>,
    /// The occupied positions.
    occupied: usize,
}

impl Plain {
    fn update(&self, dimension: usize) -> Update {
        let weights = SparseVector::new(dimension, self.indices.clone(), self.weights.clone()).unwrap();
        Update::new(weights).with_dense(self.dense.clone())
    }
}

/// A weight that is easy to get wrong: a tie, an end of the range, a zero of either sign, or a tiny number.
fn weight(config: &TaskConfig, rng: &mut ChaCha20Rng) -> f64 {
    let clip = f64::from(config.clip_exponent).exp2();
    let step = (-f64::from(config.scale_bits)).exp2();
    let uniform = (rng.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    let sign = if rng.next_u32() & 1 == 0 { 1.0 } else { -1.0 };
    match below(rng, 12) {
        0 => sign * clip,
        1 => sign * (clip - step / 2.0),
        2 | 3 => {
            // a tie, if it stays within the range
            let most = (clip / step) as i64;
            sign * ((below(rng, most as usize) as f64 + 0.5) * step)
        }
        4 => sign * 0.0,
        5 => sign * f64::MIN_POSITIVE / 3.0,
        6 if config.clip_rule == ClipRule::Clip => sign * clip * 17.5,
        _ => uniform * clip,
    }
}

/// An update that occupies at most `occupied` positions, out of those given.
fn plain(config: &TaskConfig, positions: &[u32], occupied: usize, rng: &mut ChaCha20Rng) -> Plain {
    let mut plain = Plain { indices: Vec::new(), weights: Vec::new(), dense: Vec::new(), occupied: 0 };
    for at in choose(rng, occupied, positions.len()) {
        let first = positions[at] * config.block;
        let mut any = false;
        for index in first..(first + config.block).min(config.dimension) {
            if below(rng, 4) > 0 {
                let w = weight(config, rng);
                plain.indices.push(index);
                plain.weights.push(w);
                any |= encoded(w, config) != 0;
            }
        }
        plain.occupied += usize::from(any);
    }
    plain.dense = (0..config.dense).map(|_| weight(config, rng)).collect();
    plain
}

/// Seals, sums and opens updates, and checks every result.
fn check(config: &TaskConfig, round: Round, users: u32, seed: u64, threads: Threads) {
    let Roles { mut key_generator, aggregator, users, mut rng } = roles(config.clone(), users, seed);
    let task = key_generator.task().clone();
    let support = PublicSupport::of(&task, round);
    let positions: Vec<u32> = if task.has_private_support() {
        (0..task.positions()).collect()
    } else {
        support.positions().to_vec()
    };
    let room = positions.len().min(config.capacity as usize * config.shards as usize);
    let scale = f64::from(config.scale_bits).exp2();

    let mut weights = vec![0i64; task.dimension()];
    let mut dense = vec![0i64; task.dense()];
    let mut sealed = Vec::new();
    let mut sizes = Vec::new();
    for (n, user) in users.iter().enumerate() {
        let occupied = match n {
            0 => 0,
            1 => room,
            _ => below(&mut rng, room + 1),
        };
        let plain = plain(config, &positions, occupied, &mut rng);
        let update = user.seal(round, &plain.update(task.dimension()), &mut rng, threads).unwrap();
        let clip = f64::from(config.clip_exponent).exp2();
        let outside = plain.weights.iter().chain(&plain.dense).filter(|w| w.abs() > clip).count();
        assert_eq!(update.clipped(), outside);
        plain
            .indices
            .iter()
            .zip(&plain.weights)
            .for_each(|(&i, &w)| weights[i as usize] += encoded(w, config));
        dense.iter_mut().zip(&plain.dense).for_each(|(sum, &w)| *sum += encoded(w, config));

        let (body, count) = (update.to_bytes(), update.ciphertexts());
        let shards = plain.occupied.div_ceil(config.capacity as usize).max(1);
        // the number of shards is visible in `paper` only
        sizes.push((body.len(), count, if config.profile == Profile::Paper { shards } else { 0 }));
        // every other update is encoded and decoded
        sealed.push(if n % 2 == 0 {
            update
        } else {
            SealedUpdate::from_bytes(&body, &upload_params(&RoundParams::new(&task, round), &update)).unwrap()
        });
    }
    sizes.sort_unstable_by_key(|&(_, _, shards)| shards);
    for pair in sizes.windows(2) {
        assert!(pair[0].2 != pair[1].2 || pair[0] == pair[1], "sizes differ: {pair:?}");
    }
    assert!(sizes.iter().all(|&(bytes, ..)| bytes as u64 <= dphe::wire::max_upload_bytes(&task)));

    // replicas take updates in any order, and are merged in any order
    shuffle(&mut sealed, &mut rng);
    let mut replicas: Vec<_> = (0..=below(&mut rng, 3)).map(|_| aggregator.begin(round)).collect();
    for update in sealed {
        let at = below(&mut rng, replicas.len());
        replicas[at].accept(update, threads).unwrap();
    }
    shuffle(&mut replicas, &mut rng);
    let mut all = replicas.pop().unwrap();
    replicas.into_iter().for_each(|replica| all.merge(replica, threads).unwrap());
    let mut sum = all.finish(threads).unwrap();
    let blinds = sum.take_blinds();
    let opened = key_generator.open(sum, &mut rng, threads).unwrap();
    let params = Arc::new(RoundParams::new(&task, round));
    let context = SumContext { params: &params, users: users.len(), key: key_generator.encryption_key() };
    let opened = published(opened, &aggregator, &blinds, &users, &context);

    assert_eq!(opened.users(), users.len());
    assert_eq!(opened.round(), round);
    let expected: Vec<i64> = if task.has_private_support() {
        weights.clone()
    } else {
        support.indices().map(|i| weights[i]).collect()
    };
    assert!(opened.weights() == expected, "the weights differ");
    assert_eq!(opened.dense(), dense);
    let decode = |sums: &[i64]| sums.iter().map(|&sum| sum as f64 / scale).collect::<Vec<f64>>();
    assert!(opened.decode_weights() == decode(&weights), "the decoded weights differ");
    assert_eq!(opened.decode_dense(), decode(&dense));
    assert_eq!(WeightSum::from_bytes(&opened.to_bytes(), &context).unwrap(), opened);
}

/// Encodes and decodes the opened sum. If it is masked, the aggregator unmasks and publishes it, and all users find the
/// sum that the aggregator has.
fn published(
    opened: OpenedSum,
    aggregator: &Aggregator,
    blinds: &Blinds,
    users: &[User],
    context: &SumContext<'_>,
) -> WeightSum {
    let payload = opened.to_bytes();
    match OpenedSum::from_bytes(&payload, context).unwrap() {
        OpenedSum::Clear(sum) => {
            assert_ne!(context.params.task().receipts(), Receipts::Masked);
            sum
        }
        OpenedSum::Masked(masked) => {
            assert_eq!(context.params.task().receipts(), Receipts::Masked);
            let sum = masked.unmask(aggregator, blinds).unwrap();
            let own = sum.decode_unchecked(aggregator).unwrap();
            let bytes = sum.to_bytes();
            assert_eq!(bytes.len(), payload.len());
            let received = UncheckedSum::from_bytes(&bytes, context).unwrap();
            assert!(users.iter().all(|user| received.check(user).unwrap() == own));
            // without unmasking, the numbers are useless
            let masked = UncheckedSum::from_bytes(&payload, context).unwrap();
            assert_eq!(masked.check(&users[0]).unwrap_err(), dphe::Error::Check);
            own
        }
    }
}

/// A random small task.
fn any_config(rng: &mut ChaCha20Rng) -> (TaskConfig, Round, u32) {
    let profile = [Profile::Sparse, Profile::Full, Profile::Paper][below(rng, 3)];
    let users = if below(rng, 20) == 0 { 20 + below(rng, 31) } else { 3 + below(rng, 6) } as u32;
    let mut config = TaskConfig {
        noise: if below(rng, 2) == 0 { NoiseMode::Fast } else { NoiseMode::Secure },
        key_bits: if below(rng, 4) == 0 { 512 } else { 256 },
        dense: [0, 1, below(rng, 40) as u32][below(rng, 3)],
        scale_bits: [1, 8, 16, 20, 30][below(rng, 5)],
        clip_exponent: below(rng, 6) as i8 - 2,
        clip_rule: if below(rng, 2) == 0 { ClipRule::Refuse } else { ClipRule::Clip },
        max_users: users + below(rng, 20) as u32,
        block: 1,
        receipts: if below(rng, 4) == 0 { Receipts::None } else { Receipts::of(profile) },
        ..config(profile)
    };
    config.clip_exponent = config.clip_exponent.max(1 - config.scale_bits as i8);
    // classes times features, so that the classes of a feature can be a block
    let (classes, features) = (1 + below(rng, 9) as u32, 1 + below(rng, 60) as u32);
    config.dimension = classes * features;
    let value = i32::from(config.scale_bits) + i32::from(config.clip_exponent) + 1;
    let fits = (config.key_bits - 2) / (value as u32 + config.max_users.next_power_of_two().ilog2());
    config.block = match (profile, below(rng, 4)) {
        (Profile::Paper, _) | (_, 0) => 1,
        (_, 1) => 2,
        (_, 2) => classes,
        // in `full`, a block may be longer than a plaintext
        (Profile::Full, _) => 1 + below(rng, 2 * fits as usize) as u32,
        _ => fits,
    };
    if profile == Profile::Sparse {
        config.block = config.block.min(fits);
    }
    config.block = config.block.clamp(1, config.dimension);
    let positions = config.positions();
    config.shards = if profile == Profile::Full { 1 } else { (1 + below(rng, 3) as u32).min(positions) };
    // sometimes all positions: the whole model in `full`, and no room for pads elsewhere
    let most = positions / config.shards;
    config.capacity = if below(rng, 3) == 0 { most } else { 1 + below(rng, most as usize) as u32 };
    (config, round(1 + below(rng, 7) as u64), users)
}

#[test]
fn opened_sum_equals_plain_sum() {
    let cases = std::env::var("DPHE_SUM_CASES").ok().map_or(300, |cases| cases.parse().unwrap());
    for case in 0..cases {
        let mut rng = rng(1000 + case);
        let (config, round, users) = any_config(&mut rng);
        let outcome = std::panic::catch_unwind(|| check(&config, round, users, case, Threads::ONE));
        assert!(outcome.is_ok(), "case {case}: {users} users in round {round} of {config:?}");
    }
    println!("{cases} cases");
}

/// A task of realistic size, 2048 features and 101 classes, under a toy key.
#[test]
fn opened_sum_equals_plain_sum_at_full_length() {
    let big = |profile| TaskConfig { dimension: 206_848, max_users: 4, dense: 101, ..config(profile) };
    let cases = [
        TaskConfig { block: 1, capacity: 20_685, shards: 1, ..big(Profile::Sparse) },
        TaskConfig { block: 11, capacity: 900, shards: 2, ..big(Profile::Sparse) },
        TaskConfig { block: 1, capacity: 206_848, ..big(Profile::Full) },
        TaskConfig { block: 101, capacity: 205, ..big(Profile::Full) },
        TaskConfig { block: 1, capacity: 6_895, shards: 3, ..big(Profile::Paper) },
    ];
    for (seed, config) in cases.iter().enumerate() {
        check(config, round(3), 3, seed as u64, Threads::all());
    }
    println!("{} cases of 206,848 weights", cases.len());
}

/// The same under a key of realistic length.
#[test]
fn opened_sum_equals_plain_sum_under_a_real_key() {
    let big = |profile| TaskConfig { dimension: 206_848, key_bits: 2048, max_users: 4, ..config(profile) };
    let cases = [
        TaskConfig { block: 101, capacity: 205, shards: 1, dense: 101, ..big(Profile::Sparse) },
        TaskConfig { block: 101, capacity: 137, ..big(Profile::Full) },
        TaskConfig { capacity: 100, shards: 2, ..big(Profile::Paper) },
        TaskConfig { noise: NoiseMode::Secure, block: 50, capacity: 20, shards: 3, ..big(Profile::Sparse) },
    ];
    for (seed, config) in cases.iter().enumerate() {
        check(config, round(2), 3, seed as u64, Threads::all());
    }
    println!("{} cases of 206,848 weights under 2048 bits", cases.len());
}

/// Every weight under a key of realistic length, which takes minutes.
#[test]
#[ignore = "takes minutes"]
fn opened_sum_equals_plain_sum_under_a_real_key_for_every_weight() {
    let big = |profile| TaskConfig { dimension: 206_848, key_bits: 2048, max_users: 4, ..config(profile) };
    check(
        &TaskConfig { block: 1, capacity: 20_685, shards: 1, ..big(Profile::Sparse) },
        round(1),
        3,
        1,
        Threads::all(),
    );
    check(&TaskConfig { block: 101, capacity: 2048, ..big(Profile::Full) }, round(1), 3, 2, Threads::all());
}

#[test]
fn upload_size_does_not_depend_on_its_content() {
    let mut cases = 0;
    for profile in [Profile::Sparse, Profile::Full] {
        for (block, capacity, shards, dense) in [(1, 12, 2, 0), (2, 5, 2, 3), (3, 8, 1, 30)] {
            let shards = if profile == Profile::Full { 1 } else { shards };
            let config = TaskConfig { block, capacity, shards, dense, ..config(profile) };
            let Roles { users, mut rng, .. } = roles(config.clone(), 1, 1);
            let task = users[0].task().clone();
            let support = PublicSupport::of(&task, Round::FIRST);
            let mut sizes = Vec::new();
            for occupied in 0..=(capacity * shards) as usize {
                let positions: Vec<u32> = if profile == Profile::Full {
                    support.positions().to_vec()
                } else {
                    (0..task.positions()).collect()
                };
                let plain = plain(&config, &positions, occupied.min(positions.len()), &mut rng);
                let sealed = users[0].seal(Round::FIRST, &plain.update(24), &mut rng, Threads::ONE).unwrap();
                sizes.push((sealed.to_bytes().len(), sealed.ciphertexts()));
                cases += 1;
            }
            sizes.dedup();
            assert_eq!(sizes.len(), 1, "{config:?}");
        }
    }
    println!("{cases} cases");
}
