//! Whole rounds against the vectors that `reference/` generated, byte for byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/json.rs"]
mod json;

use std::sync::Arc;

use chacha20::ChaCha20Rng;
use dphe::scheme::RoundParams;
use dphe::wire::{DecodeWith as _, Encode as _, UploadParams};
use dphe::{
    Aggregator, ClipRule, Digest, KeyGenerator, NoiseMode, OpenedSum, Profile, PublicSupport, Receipts,
    Round, SealedUpdate, SparseVector, TaskConfig, TaskId, TaskParams, Threads, Update, User, UserId, hazmat,
};
use dphe_paillier::DecryptionKey;
use json::{array, floats, hex, list, load, number, table};
use rand_core::SeedableRng;
use serde_json::Value;

fn config(policy: &Value) -> TaskConfig {
    TaskConfig {
        profile: profile(&policy["profile"]),
        noise: if policy["noise"] == "fast" { NoiseMode::Fast } else { NoiseMode::Secure },
        receipts: receipts(&policy["receipts"]),
        key_bits: number(&policy["key_bits"]),
        dimension: number(&policy["dimension"]),
        dense: number(&policy["dense"]),
        block: number(&policy["block"]),
        capacity: number(&policy["capacity"]),
        shards: number(&policy["shards"]),
        scale_bits: number(&policy["scale_bits"]),
        clip_exponent: number(&policy["clip_exponent"]),
        clip_rule: if policy["clip_rule"] == 1 { ClipRule::Clip } else { ClipRule::Refuse },
        min_users: number(&policy["min_users"]),
        min_percent: number(&policy["min_percent"]),
        max_users: number(&policy["max_users"]),
        max_attempts: number(&policy["max_attempts"]),
        max_model_bytes: number(&policy["max_model_bytes"]),
        rounds: number(&policy["rounds"]),
        collect_min: number(&policy["collect_min"]),
        outsize: number(&policy["outsize"]),
        max_failures: number(&policy["max_failures"]),
    }
}

fn profile(name: &Value) -> Profile {
    [Profile::Sparse, Profile::Full, Profile::Paper].into_iter().find(|p| p.as_str() == name).unwrap()
}

fn receipts(name: &Value) -> Receipts {
    match name.as_str().unwrap() {
        "none" => Receipts::None,
        "checked" => Receipts::Checked,
        "masked" => Receipts::Masked,
        other => panic!("{other}"),
    }
}

fn round(value: &Value) -> Round {
    Round::new(number(value)).unwrap()
}

fn user(value: &Value) -> UserId {
    UserId::new(number(value)).unwrap()
}

fn secret_key(key: &Value) -> DecryptionKey {
    let mode = if key["noise"] == "fast" { NoiseMode::Fast } else { NoiseMode::Secure };
    let secret = dphe_paillier::hazmat::decryption_key(&hex(&key["p"]), &hex(&key["q"]), mode).unwrap();
    assert_eq!(secret.encryption_key().id().as_bytes()[..], hex(&key["key_id"]));
    secret
}

#[test]
fn permutations_and_supports_match_the_vectors() {
    let all = load("derivation.json");
    for entry in list(&all, "user_shared").iter().chain(list(&all, "user_aggregator")) {
        let mut config = TaskConfig::new(profile(&entry["profile"]), 1, number(&entry["positions"]), 3);
        config.capacity = 1;
        let task = TaskParams::new(TaskId::from_bytes(array(&entry["task"])), config).unwrap();
        let (seed, round) = (array(&entry["seed"]), round(&entry["round"]));
        let found = if entry["user"].is_null() {
            hazmat::user_shared_table(&task, seed, round)
        } else {
            hazmat::user_aggregator_table(&task, seed, round, user(&entry["user"]))
        };
        assert_eq!(found.unwrap(), table(&entry["permutation"]));
    }
    for entry in list(&all, "rotation") {
        let support = if entry["task"].is_null() {
            // tasks with private supports have an empty public support
            let config = TaskConfig::new(Profile::Sparse, 1, 10, 3);
            let task = TaskParams::new(TaskId::from_bytes([0; 16]), config).unwrap();
            PublicSupport::of(&task, Round::FIRST)
        } else {
            let mut config = TaskConfig::new(Profile::Full, 1, number(&entry["positions"]), 3);
            config.capacity = number(&entry["capacity"]);
            let task = TaskParams::new(TaskId::from_bytes(array(&entry["task"])), config).unwrap();
            PublicSupport::of(&task, round(&entry["round"]))
        };
        assert_eq!(support.positions(), table(&entry["support"]));
        assert_eq!(support.digest().as_bytes()[..], hex(&entry["support_digest"]));
    }
}

#[test]
fn policy_hashes_match_the_vectors() {
    let all = load("derivation.json");
    for entry in list(&all, "policy") {
        let task = hazmat::task_params(TaskId::from_bytes([0; 16]), config(entry)).unwrap();
        assert_eq!(task.policy_hash().as_bytes()[..], hex(&entry["hash"]));
        assert_eq!(task.slot_bits(), number::<u32>(&entry["slot_bits"]));
        assert_eq!(task.slots(), number::<usize>(&entry["slots"]));
        assert_eq!(task.floor(100), number::<usize>(&entry["floor_of_100"]));
    }
}

/// Adds the uploads of the reference in two orders, and seals the same weights again.
#[test]
fn rounds_match_the_vectors() {
    let all = load("rounds.json");
    let cases = list(&all, "cases");
    for case in cases {
        let id = case["id"].as_str().unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let task =
            hazmat::task_params(TaskId::from_bytes(array(&case["task"])), config(&case["policy"])).unwrap();
        let users = list(case, "users");
        let seeds: Vec<_> = users
            .iter()
            .map(|entry| {
                let seed = |name: &str| array(&entry[name]);
                (user(&entry["user"]), seed("user_aggregator_seed"), seed("mask_seed"))
            })
            .collect();
        let key_generator = || {
            let mut rng = ChaCha20Rng::seed_from_u64(2);
            let mut keys = KeyGenerator::with_key(task.clone(), secret_key(&case["key"]), &mut rng).unwrap();
            hazmat::set_seeds(&mut keys, array(&case["user_shared_seed"]), seeds.clone());
            keys
        };
        let params = RoundParams::new(&task, round(&case["round"]));
        let params = Arc::new(params.with_ticket(Digest::from_bytes(array(&case["ticket"]))));
        let aggregator = Aggregator::new(key_generator().aggregator_keys()).unwrap();
        let mut keys = key_generator();
        let sealers: Vec<User> =
            seeds.iter().map(|(user, ..)| User::new(keys.enroll(*user, &mut rng)).unwrap()).collect();
        for reverse in [false, true] {
            let mut order: Vec<&Value> = users.iter().collect();
            if reverse {
                order.reverse();
            }
            let mut collecting = aggregator.begin_in(params.clone());
            for entry in order {
                let body = hex(&entry["body"]);
                let update = SealedUpdate::from_bytes(
                    &body,
                    &UploadParams {
                        params: &params,
                        user: user(&entry["user"]),
                        count: number(&entry["count"]),
                        salt: array(&entry["salt"]),
                    },
                )
                .unwrap();
                assert_eq!(update.to_bytes(), body, "{id}");
                collecting.accept(update, Threads::ONE).unwrap();
            }
            let mut sum = collecting.finish(Threads::ONE).unwrap();
            assert_eq!(sum.occupied(), number::<usize>(&case["occupied"]), "{id}");
            assert_eq!(sum.to_bytes(), hex(&case["sum"]), "{id}");
            let blinds = sum.take_blinds();
            let opened = key_generator().open(sum, &mut rng, Threads::ONE).unwrap();
            assert_eq!(opened.to_bytes(), hex(&case["payload"]), "{id}");
            let published = match &opened {
                OpenedSum::Clear(sum) => sum.to_bytes(),
                OpenedSum::Masked(masked) => masked.unmask(&aggregator, &blinds).unwrap().to_bytes(),
            };
            assert_eq!(published, hex(&case["published"]), "{id}");
            let sum = opened.unmask_and_check(&aggregator, &blinds, &sealers[0]).unwrap();
            let average = |sums: Vec<f64>| -> Vec<f64> {
                sums.into_iter().map(|one| one / sum.users() as f64).collect()
            };
            let weights = average(sum.decode_weights());
            let expected = floats(&case["average_bits"]);
            // in `full`, the vectors list only the weights of the support
            let found: Vec<f64> = match sum.support() {
                Some(support) if expected.len() != weights.len() => {
                    support.indices().map(|index| weights[index]).collect()
                }
                _ => weights,
            };
            assert_eq!(found, expected, "{id}");
            assert_eq!(average(sum.decode_dense()), floats(&case["dense_average_bits"]), "{id}");
        }
        // updates that this crate seals, with salts and blinds of its own, give the same sum
        let mut collecting = aggregator.begin_in(params.clone());
        for (entry, sealer) in users.iter().zip(&sealers) {
            let weights = SparseVector::from_dense(&floats(&entry["weights_bits"])).unwrap();
            let update = Update::new(weights).with_dense(floats(&entry["dense_bits"]));
            let sealed = sealer.seal_in(&params, &update, &mut rng, Threads::ONE).unwrap();
            assert_eq!(sealed.to_bytes().len(), hex(&entry["body"]).len(), "{id}");
            collecting.accept(sealed, Threads::ONE).unwrap();
        }
        let mut sum = collecting.finish(Threads::ONE).unwrap();
        let blinds = sum.take_blinds();
        let published = match keys.open(sum, &mut rng, Threads::ONE).unwrap() {
            OpenedSum::Clear(sum) => sum.to_bytes(),
            OpenedSum::Masked(masked) => masked.unmask(&aggregator, &blinds).unwrap().to_bytes(),
        };
        assert_eq!(published, hex(&case["published"]), "{id}");
    }
    println!("{} rounds of the reference", cases.len());
}
