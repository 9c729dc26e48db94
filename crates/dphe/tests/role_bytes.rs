//! Rounds of roles that exchange bytes: they give the same sums as objects, and bytes that are wrong are refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::fmt::Write as _;
use std::sync::Arc;

use chacha20::ChaCha20Rng;
use dphe::scheme::RoundParams;
use dphe::wire::{
    DecodeWith as _, Encode as _, OpenedBytes, PublishedBytes, RoleKind, SumContext, role_bytes_round,
    sealed_update_bytes, upload_body_bytes,
};
use dphe::{
    Error, ErrorCode, KeyGenerator, OpenedSum, Profile, Receipts, Round, SealedSum, SealedUpdate, TaskConfig,
    TaskId, TaskParams, Update, WeightSum,
};
use rand_core::Rng as _;
use support::{
    ONE, Roles, below, choose, config, config_without_receipts, key, rng, roles, round, task, update,
};

/// All profiles, with and without receipts.
fn configs() -> Vec<TaskConfig> {
    let bound = [Profile::Sparse, Profile::Full].map(config);
    let plain = [Profile::Sparse, Profile::Full, Profile::Paper].map(config_without_receipts);
    let longer = TaskConfig { dimension: 101, block: 3, capacity: 20, dense: 0, ..config(Profile::Full) };
    bound.into_iter().chain(plain).chain([longer]).collect()
}

/// A random vector that a user of the task may send in a round.
fn vector(task: &TaskParams, number: Round, rng: &mut ChaCha20Rng) -> (Vec<f64>, Vec<f64>) {
    let mut draw = |_: usize| below(rng, 1 << 16) as f64 / f64::from(1 << 17) - 0.25;
    let mut weights = vec![0.0; task.dimension()];
    if task.has_private_support() {
        let positions = choose(&mut support::rng(number.get()), task.capacity(), task.positions() as usize);
        positions.into_iter().for_each(|position| weights[position * task.block()] = draw(0));
    } else {
        RoundParams::new(task, number).support().indices().for_each(|index| weights[index] = draw(index));
    }
    (weights, (0..task.dense()).map(draw).collect())
}

fn sparse(weights: &[f64], dense: &[f64]) -> Update {
    let entries: Vec<(u32, f64)> =
        (0..).zip(weights.iter().copied()).filter(|&(_, weight)| weight != 0.0).collect();
    update(weights.len(), &entries, dense)
}

/// The bytes of a round.
struct Bytes {
    updates: Vec<Vec<u8>>,
    sum: Vec<u8>,
    opened: Vec<u8>,
    published: Vec<u8>,
}

/// Seals, adds, opens and publishes, and reads everything from bytes in between. Returns the bytes, and the sums that
/// users get.
fn by_bytes(roles: &mut Roles, number: Round, updates: &[Update]) -> (Bytes, Vec<WeightSum>) {
    let task = roles.aggregator.task().clone();
    let params = Arc::new(RoundParams::new(&task, number));
    let mut collecting = roles.aggregator.begin(number);
    let mut sealed = Vec::new();
    for (user, update) in roles.users.iter().zip(updates) {
        let bytes = user.seal(number, update, &mut roles.rng, ONE).unwrap().to_role_bytes();
        let read = SealedUpdate::from_role_bytes(&bytes, &params).unwrap();
        assert_eq!(read.to_role_bytes(), bytes);
        collecting.accept(read, ONE).unwrap();
        sealed.push(bytes);
    }
    let mut finished = collecting.finish(ONE).unwrap();
    let (blinds, sum) = (finished.take_blinds(), finished.to_role_bytes());
    let read = SealedSum::from_role_bytes(&sum, &task).unwrap();
    assert_eq!(read.to_role_bytes(), sum);
    let (of, users) = (Arc::clone(read.params()), read.users().to_vec());
    let opened = roles.key_generator.open(read, &mut roles.rng, ONE).unwrap();
    let opened = OpenedBytes { users, sum: opened }.to_role_bytes(&of);
    let key = roles.key_generator.encryption_key();
    let read = OpenedBytes::from_role_bytes(&opened, &params, key).unwrap();
    let published = read.unmask(&roles.aggregator, &blinds).unwrap().to_role_bytes(&params);
    let read = PublishedBytes::from_role_bytes(&published, &params, key).unwrap();
    let sums = roles.users.iter().map(|user| read.check(user).unwrap()).collect();
    assert_eq!(read.decode_unchecked(&roles.aggregator).unwrap(), read.check(&roles.users[0]).unwrap());
    (Bytes { updates: sealed, sum, opened, published }, sums)
}

#[test]
fn rounds_over_bytes_equal_rounds_of_objects() {
    for config in configs() {
        let (mut one, mut other) = (roles(config.clone(), 4, 9), roles(config.clone(), 4, 9));
        let task = one.aggregator.task().clone();
        let mut draw = rng(5);
        for number in [1, 2].map(round) {
            let vectors: Vec<_> = (0..4).map(|_| vector(&task, number, &mut draw)).collect();
            let updates: Vec<Update> = vectors.iter().map(|(w, d)| sparse(w, d)).collect();
            let (bytes, sums) = by_bytes(&mut one, number, &updates);
            let params = RoundParams::new(&task, number);
            let exact = sealed_update_bytes(&params) as usize;
            let lengths: Vec<usize> = bytes.updates.iter().map(Vec::len).collect();
            if config.profile == Profile::Paper {
                assert!(lengths.iter().all(|&length| length <= exact), "{lengths:?}");
            } else {
                assert_eq!(lengths, [exact; 4], "{config:?}");
                // an upload has no header, and is encrypted to the aggregator
                assert_eq!(exact as u64 - 65 - 24 + 48, upload_body_bytes(&params));
            }

            let mut collecting = other.aggregator.begin(number);
            for (user, (weights, dense)) in other.users.iter().zip(&vectors) {
                let sealed = user.seal_dense(&params, weights, dense, &mut other.rng, ONE).unwrap();
                assert!(sealed.ciphertexts() <= params.ciphertexts());
                // the same randomness gives the same bytes, whichever way the vector is given
                assert_eq!(sealed.to_role_bytes(), bytes.updates[user.id().get() as usize - 1]);
                collecting.accept(sealed, ONE).unwrap();
            }
            let sum = collecting.finish(ONE).unwrap();
            assert_eq!(sum.to_role_bytes(), bytes.sum);
            let opened = other.open(sum).unwrap();
            assert!(sums.iter().all(|sum| *sum == opened));
            let (weights, dense) = (opened.decode_weights(), opened.decode_dense());
            let expected = |index: usize, dense: bool| -> f64 {
                vectors.iter().map(|(w, d)| if dense { d[index] } else { w[index] }).sum()
            };
            assert!(weights.iter().enumerate().all(|(i, &sum)| (sum - expected(i, false)).abs() < 1e-4));
            assert!(dense.iter().enumerate().all(|(i, &sum)| (sum - expected(i, true)).abs() < 1e-4));
        }
    }
}

#[test]
fn published_sums_of_rounds_that_are_over_or_far_ahead_are_refused() {
    for config in configs().into_iter().filter(|config| config.profile != Profile::Paper) {
        let mut roles = roles(config.clone(), 3, 4);
        let task = roles.aggregator.task().clone();
        let masked = task.receipts() == Receipts::Masked;
        let mut draw = rng(6);
        let updates: Vec<Update> = (0..3)
            .map(|_| {
                let (weights, dense) = vector(&task, round(1), &mut draw);
                sparse(&weights, &dense)
            })
            .collect();
        let (bytes, _) = by_bytes(&mut roles, round(1), &updates);
        let key = roles.key_generator.encryption_key();
        for number in [2, (1 << 20) + 2, u64::MAX] {
            let forged = [&bytes.published[..57], &number.to_be_bytes()[..], &bytes.published[65..]].concat();
            let checked = role_bytes_round(&forged, RoleKind::PublishedSum, &task).and_then(|number| {
                let params = Arc::new(RoundParams::new(&task, number));
                let sum = PublishedBytes::from_role_bytes(&forged, &params, key)?;
                sum.check(&roles.users[0])
            });
            if number == 2 {
                // Who writes a sum that is not masked also chooses its round.
                assert_eq!(checked.is_err(), masked, "{config:?}");
            } else {
                assert!(checked.is_err(), "{config:?} {number}");
            }
        }
        let read = PublishedBytes::from_role_bytes(
            &bytes.published,
            &Arc::new(RoundParams::new(&task, round(1))),
            key,
        );
        roles.users[0].advance(round(2));
        assert_eq!(read.unwrap().check(&roles.users[0]).unwrap_err().code(), ErrorCode::Stale);
    }
}

#[test]
fn long_vectors_are_sealed_in_parts_of_any_length() {
    let config = TaskConfig { dimension: 9000, block: 7, capacity: 1286, dense: 3, ..config(Profile::Full) };
    let roles = roles(config, 3, 2);
    let (user, task) = (&roles.users[0], roles.aggregator.task());
    let params = RoundParams::new(task, Round::FIRST);
    let (weights, dense) = vector(task, Round::FIRST, &mut rng(1));
    let whole = user.seal_dense(&params, &weights, &dense, &mut rng(3), ONE).unwrap().to_role_bytes();
    let all = [&weights[..], &dense].concat();
    for size in [1, 100, 1024, 9003] {
        let mut draw = rng(3);
        let mut sealing = user.begin_seal(&params, &mut draw).unwrap();
        for part in all.chunks(size) {
            sealing.push(part, &mut draw, ONE).unwrap();
        }
        assert_eq!(sealing.missing(), 0);
        assert_eq!(sealing.finish(&mut draw, ONE).unwrap().to_role_bytes(), whole, "{size}");
    }
    // single precision is exact in double precision
    let single: Vec<f32> = weights.iter().map(|&weight| weight as f32).collect();
    let double: Vec<f64> = single.iter().map(|&weight| weight.into()).collect();
    let of_single = user.seal_dense(&params, &single, &dense, &mut rng(4), ONE).unwrap();
    let of_double = user.seal_dense(&params, &double, &dense, &mut rng(4), ONE).unwrap();
    assert_eq!(of_single.to_role_bytes(), of_double.to_role_bytes());
}

#[test]
fn vectors_that_do_not_fit_are_refused() {
    let code = |error: Error| error.code();
    let full = TaskConfig { dimension: 40, block: 4, capacity: 5, dense: 2, ..config(Profile::Full) };
    let roles = roles(full, 3, 2);
    let (user, task) = (&roles.users[0], roles.aggregator.task());
    let params = RoundParams::new(task, Round::FIRST);
    let seal = |weights: &[f64], dense: &[f64]| {
        user.seal_dense(&params, weights, dense, &mut rng(3), ONE).map(|_| ()).map_err(code)
    };
    let (weights, dense) = vector(task, Round::FIRST, &mut rng(1));
    let with = |index: usize, value: f64| {
        let mut changed = weights.clone();
        changed[index] = value;
        changed
    };
    assert_eq!(seal(&weights, &dense), Ok(()));
    assert_eq!(seal(&weights[1..], &dense), Err(ErrorCode::Dimension));
    assert_eq!(seal(&weights, &dense[1..]), Err(ErrorCode::Dimension));
    assert_eq!(seal(&weights, &[0.0, f64::NAN]), Err(ErrorCode::Value));
    let inside = params.support().indices().last().unwrap();
    let outside = (0..40).find(|&index| params.support().indices().all(|i| i != index)).unwrap();
    assert_eq!(seal(&with(inside, 1.5), &dense), Err(ErrorCode::Value));
    assert_eq!(seal(&with(outside, 0.5), &dense), Err(ErrorCode::Support));
    assert_eq!(seal(&with(outside, f64::NAN), &dense), Err(ErrorCode::Support));
    // the error names the weight, not its place in the support
    let error = user.seal_dense(&params, &with(inside, 1.5), &dense, &mut rng(3), ONE).unwrap_err();
    assert!(matches!(error, Error::Value { index, .. } if index == inside), "{error}");

    let mut draw = rng(3);
    let mut sealing = user.begin_seal(&params, &mut draw).unwrap();
    assert_eq!(sealing.push(&[0.0; 23], &mut draw, ONE).map_err(code), Err(ErrorCode::Dimension));
    sealing.push(&[0.0; 21], &mut draw, ONE).unwrap();
    assert_eq!(sealing.finish(&mut draw, ONE).map(|_| ()).map_err(code), Err(ErrorCode::Dimension));
    let sparse = support::roles(config(Profile::Sparse), 3, 2);
    let params = RoundParams::new(sparse.aggregator.task(), Round::FIRST);
    let refused = sparse.users[0].begin_seal(&params, &mut draw).map(|_| ()).map_err(code);
    assert_eq!(refused, Err(ErrorCode::Profile));
}

#[test]
fn tasks_are_read_back_from_their_bytes() {
    for profile in [Profile::Sparse, Profile::Full] {
        let config = TaskConfig::new(profile, 101, 2048, 8);
        let task = TaskParams::new(TaskId::from_bytes([9; 16]), config).unwrap();
        let bytes = task.to_bytes();
        assert_eq!(TaskParams::from_bytes(&bytes), Ok(task));
        assert!((0..bytes.len()).all(|length| TaskParams::from_bytes(&bytes[..length]).is_err()));
        assert!(TaskParams::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    }
}

#[test]
fn bytes_that_are_cut_mixed_up_or_from_elsewhere_are_refused() {
    let code = |error: Error| error.code();
    for config in configs() {
        let mut roles = roles(config.clone(), 3, 9);
        let task = roles.aggregator.task().clone();
        let mut draw = rng(5);
        let updates: Vec<Update> = (0..3)
            .map(|_| vector(&task, Round::FIRST, &mut draw))
            .map(|(weights, dense)| sparse(&weights, &dense))
            .collect();
        let (bytes, _) = by_bytes(&mut roles, Round::FIRST, &updates);
        let params = Arc::new(RoundParams::new(&task, Round::FIRST));
        let key = roles.key_generator.encryption_key().clone();
        let read = |kind: usize, bytes: &[u8], params: &Arc<RoundParams>| match kind {
            0 => SealedUpdate::from_role_bytes(bytes, params).map(|_| ()),
            1 => SealedSum::from_role_bytes(bytes, params.task()).map(|_| ()),
            2 => OpenedBytes::from_role_bytes(bytes, params, &key).map(|_| ()),
            _ => PublishedBytes::from_role_bytes(bytes, params, &key).map(|_| ()),
        };
        let all = [&bytes.updates[0], &bytes.sum, &bytes.opened, &bytes.published];
        for (kind, whole) in all.into_iter().enumerate() {
            read(kind, whole, &params).unwrap();
            for length in (0..whole.len()).step_by(7).chain([whole.len() - 1]) {
                assert!(read(kind, &whole[..length], &params).is_err(), "{kind} {length}");
            }
            assert!(read(kind, &[&whole[..], &[0]].concat(), &params).is_err(), "{kind}");
            for other in (0..4).filter(|&other| other != kind) {
                assert_eq!(read(other, whole, &params).map_err(code), Err(ErrorCode::Version));
            }
            let elsewhere = TaskParams::clone(&support::task(config.clone()));
            let renamed =
                dphe::hazmat::task_params(TaskId::from_bytes([8; 16]), elsewhere.config().clone()).unwrap();
            let renamed = Arc::new(RoundParams::new(&renamed, Round::FIRST));
            assert_eq!(read(kind, whole, &renamed).map_err(code), Err(ErrorCode::Task));
            let changed = TaskConfig { max_model_bytes: 999, ..config.clone() };
            let changed = Arc::new(RoundParams::new(&support::task(changed), Round::FIRST));
            assert_eq!(read(kind, whole, &changed).map_err(code), Err(ErrorCode::Policy));
            if kind != 1 {
                let later = Arc::new(RoundParams::new(&task, round(2)));
                assert_eq!(read(kind, whole, &later).map_err(code), Err(ErrorCode::Stale));
            }
            // any byte changed: refused or something else, but no panic, and never a round or task it does not name
            for position in (0..whole.len()).step_by(5) {
                let mut mutated = whole.clone();
                mutated[position] ^= 1 << below(&mut draw, 8);
                let outcome = read(kind, &mutated, &params);
                assert!(outcome.is_err() || position >= 57, "{kind} {position}");
            }
        }
        let mut twice = bytes.sum.clone();
        twice.copy_within(69..89, 89);
        let refused = SealedSum::from_role_bytes(&twice, &task).map(|_| ()).map_err(code);
        assert_eq!(refused, Err(ErrorCode::SetOrder));
        let mut many = bytes.sum.clone();
        many[65..69].copy_from_slice(&9u32.to_be_bytes());
        let refused = SealedSum::from_role_bytes(&many, &task).map(|_| ()).map_err(code);
        assert_eq!(refused, Err(ErrorCode::Size));
        assert_eq!(role_bytes_round(&bytes.sum, RoleKind::SealedSum, &task), Ok(Round::FIRST));
        if task.receipts() == Receipts::Masked {
            // one residue changed: the check notices
            let mut forged = bytes.published.clone();
            *forged.last_mut().unwrap() ^= 1;
            let forged = PublishedBytes::from_role_bytes(&forged, &params, &key).unwrap();
            assert_eq!(forged.check(&roles.users[1]).map_err(code), Err(ErrorCode::Check));
            // and so does it if a participant is left out of the list
            let mut fewer = PublishedBytes::from_role_bytes(&bytes.published, &params, &key).unwrap();
            fewer.users.pop();
            assert_eq!(fewer.check(&roles.users[1]).map_err(code), Err(ErrorCode::SetSmall));
        }
    }
}

/// The file that the tests of the Python package compare with: kits, and the bytes of a round. `DPHE_WRITE=1` writes
/// it.
const ROUND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/python/tests/rounds.json");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// A round of three users under a key of 2048 bits, as JSON.
fn example(profile: Profile) -> serde_json::Value {
    let config = TaskConfig { key_bits: 2048, ..config(profile) };
    let mut draw = rng(profile as u64 + 20);
    let mut generator =
        KeyGenerator::with_key(task(config.clone()), key(2048, config.noise), &mut draw).unwrap();
    let kits: Vec<_> = (1..=3).map(|n| generator.enroll(support::user_id(n), &mut draw)).collect();
    let seeds = hex(&generator.to_secret_bytes());
    let aggregator_keys = generator.aggregator_keys();
    let users = kits.iter().map(|kit| dphe::User::new(kit.clone()).unwrap()).collect();
    let aggregator = dphe::Aggregator::new(aggregator_keys.clone()).unwrap();
    let mut roles = Roles { key_generator: generator, aggregator, users, rng: draw };
    let mut draw = rng(6);
    let task = roles.aggregator.task().clone();
    let vectors: Vec<_> = (0..3).map(|_| vector(&task, Round::FIRST, &mut draw)).collect();
    let updates: Vec<Update> = vectors.iter().map(|(weights, dense)| sparse(weights, dense)).collect();
    let (bytes, sums) = by_bytes(&mut roles, Round::FIRST, &updates);
    serde_json::json!({
        "task": hex(&task.to_bytes()),
        "seeds": seeds,
        "kits": kits.iter().map(|kit| hex(&kit.to_secret_bytes())).collect::<Vec<_>>(),
        "aggregator_kit": hex(&aggregator_keys.to_secret_bytes()),
        "vectors": vectors.iter().map(|(weights, _)| weights).collect::<Vec<_>>(),
        "dense": vectors.iter().map(|(_, dense)| dense).collect::<Vec<_>>(),
        "updates": bytes.updates.iter().map(|update| hex(update)).collect::<Vec<_>>(),
        "sealed_sum": hex(&bytes.sum),
        "opened_sum": hex(&bytes.opened),
        "published_sum": hex(&bytes.published),
        "integers": sums[0].weights(),
        "dense_integers": sums[0].dense(),
    })
}

#[test]
fn rounds_of_the_python_tests_are_those_of_rust() {
    let (p, q) = support::factors(2048);
    let file = serde_json::json!({
        "p": hex(&p), "q": hex(&q), "noise": "fast",
        "full": example(Profile::Full), "sparse": example(Profile::Sparse),
    });
    let text = serde_json::to_string_pretty(&file).unwrap() + "\n";
    if std::env::var_os("DPHE_WRITE").is_some() {
        std::fs::write(ROUND, &text).unwrap();
    }
    assert!(std::fs::read_to_string(ROUND).unwrap() == text, "run this test with DPHE_WRITE=1");
}

#[test]
fn opened_sums_of_either_kind_are_read_back() {
    let mut roles = roles(config(Profile::Full), 3, 4);
    let task = roles.aggregator.task().clone();
    let mut draw = rng(1);
    let updates: Vec<Update> = (0..3)
        .map(|_| vector(&task, Round::FIRST, &mut draw))
        .map(|(weights, dense)| sparse(&weights, &dense))
        .collect();
    let (bytes, _) = by_bytes(&mut roles, Round::FIRST, &updates);
    let params = Arc::new(RoundParams::new(&task, Round::FIRST));
    let key = roles.key_generator.encryption_key();
    let read = OpenedBytes::from_role_bytes(&bytes.opened, &params, key).unwrap();
    assert!(matches!(read.sum, OpenedSum::Masked(_)));
    let context = SumContext { params: &params, users: 3, key };
    let again = OpenedSum::from_bytes(&read.sum.to_bytes(), &context).unwrap();
    assert_eq!(again.to_bytes(), read.sum.to_bytes());
    let mut noise = vec![0; bytes.opened.len()];
    draw.fill_bytes(&mut noise);
    assert_eq!(
        OpenedBytes::from_role_bytes(&noise, &params, key).map(|_| ()).map_err(|e| e.code()),
        Err(ErrorCode::Version)
    );
}
