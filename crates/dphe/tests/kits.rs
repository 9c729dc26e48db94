//! Keys that went through a kit do what they did before; what they hold is printed nowhere.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use dphe::{Aggregator, AggregatorKeys, Error, IdentityKey, KeyGenerator, Profile, Round, User, UserKeys};
use support::{ONE, config, key, rng, roles, update, user_id};

#[test]
fn keys_from_kits_seal_sum_and_open() {
    let mut config = config(Profile::Paper);
    config.shards = 1;
    let mut made = roles(config.clone(), 3, 11);
    let generator = made.key_generator.to_kit_bytes();
    let aggregator = made.key_generator.aggregator_keys().to_kit_bytes();
    let users: Vec<_> =
        (1..=3).map(|n| made.key_generator.enroll(user_id(n), &mut made.rng).to_kit_bytes()).collect();

    let decryption = || key(config.key_bits, config.noise);
    let mut generator = KeyGenerator::from_kit_bytes(&generator, decryption()).unwrap();
    let aggregator = Aggregator::new(AggregatorKeys::from_kit_bytes(&aggregator).unwrap()).unwrap();
    let mut collecting = aggregator.begin(Round::FIRST);
    for (n, kit) in (1..).zip(&users) {
        let user = User::new(UserKeys::from_kit_bytes(kit).unwrap()).unwrap();
        assert_eq!(user.id(), user_id(n));
        let update = update(24, &[(n, 0.25), (9, 0.5)], &[f64::from(n) / 16.0, 0.0]);
        collecting.accept(user.seal(Round::FIRST, &update, &mut made.rng, ONE).unwrap(), ONE).unwrap();
    }
    let sum = collecting.close(ONE).unwrap();
    let sum = generator.open(sum, &mut made.rng, ONE).unwrap();
    let average = sum.average();
    assert!((average.weights[9] - 0.5).abs() < 1e-9);
    assert!((1..=3).all(|n| (average.weights[n] - 0.25 / 3.0).abs() < 1e-4));
    assert!((average.dense[0] - 0.125).abs() < 1e-4);
}

#[test]
fn another_key_is_refused() {
    let made = roles(config(Profile::Paper), 3, 11);
    let kit = made.key_generator.to_kit_bytes();
    let other = key(512, made.key_generator.task().config().noise);
    assert!(matches!(KeyGenerator::from_kit_bytes(&kit, other), Err(Error::Key(_))));
}

/// A short key in a profile that promises something is refused, whoever wrote the file.
#[test]
fn short_keys_are_for_paper_alone() {
    let mut made = roles(config(Profile::Sparse), 3, 11);
    let kit = made.key_generator.enroll(user_id(1), &mut made.rng).to_kit_bytes();
    assert!(matches!(UserKeys::from_kit_bytes(&kit), Err(Error::Key(_))));
}

#[test]
fn an_identity_is_the_same_afterwards() {
    let identity = IdentityKey::generate(&mut rng(3));
    let again = IdentityKey::from_kit_bytes(&identity.to_kit_bytes()).unwrap();
    assert_eq!(again.identity(), identity.identity());
}
