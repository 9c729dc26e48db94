//! Keys that were written and read again work as before.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use dphe::hazmat::{paper_keys, short_keys};
use dphe::party::log::Log;
use dphe::party::{Action, AggregatorParty, KeyGeneratorParty, Party, PartyContext, UserParty};
use dphe::wire::Rosters;
use dphe::{
    Aggregator, AggregatorKeys, Error, IdentityKey, KeyGenerator, Profile, Round, TaskConfig, User, UserKeys,
};
use dphe::{KeyLengths, PartyId};
use support::{
    NOW, ONE, Parties, config, config_without_receipts, identity, key, open_checked, rng, roles, update,
    user_id,
};

#[test]
fn keys_read_from_bytes_seal_sum_and_open() {
    let profiles = [Profile::Paper, Profile::Sparse, Profile::Full];
    for config in profiles.map(config).into_iter().chain(profiles.map(config_without_receipts)) {
        // in `full`, all positions
        let config = match config.profile {
            Profile::Full => TaskConfig { capacity: 12, ..config },
            _ => TaskConfig { shards: 1, ..config },
        };
        let mut made = roles(config.clone(), 3, 11);
        let generator = made.key_generator.to_secret_bytes();
        let aggregator = made.key_generator.aggregator_keys().to_secret_bytes();
        let users: Vec<_> =
            (1..=3).map(|n| made.key_generator.enroll(user_id(n), &mut made.rng).to_secret_bytes()).collect();

        let decryption = || key(config.key_bits, config.noise);
        let lengths = || if config.profile == Profile::Paper { paper_keys() } else { short_keys() };
        let mut generator =
            KeyGenerator::from_secret_bytes_with(&generator, decryption(), lengths()).unwrap();
        let aggregator =
            Aggregator::new(AggregatorKeys::from_secret_bytes_with(&aggregator, lengths()).unwrap()).unwrap();
        let read = |kit| User::new(UserKeys::from_secret_bytes_with(kit, lengths()).unwrap()).unwrap();
        let users: Vec<User> = users.iter().map(|kit| read(kit)).collect();
        let mut collecting = aggregator.begin(Round::FIRST);
        for (n, user) in (1..).zip(&users) {
            assert_eq!(user.id(), user_id(n));
            let update = update(24, &[(n, 0.25), (9, 0.5)], &[f64::from(n) / 16.0, 0.0]);
            collecting.accept(user.seal(Round::FIRST, &update, &mut made.rng, ONE).unwrap(), ONE).unwrap();
        }
        let sum = collecting.finish(ONE).unwrap();
        let sum = open_checked(&mut generator, &aggregator, &users[2], sum, &mut made.rng, ONE).unwrap();
        let weights = sum.decode_weights();
        assert!((weights[9] - 1.5).abs() < 1e-9);
        assert!((1..=3).all(|n| (weights[n] - 0.25).abs() < 1e-4));
        assert!((sum.decode_dense()[0] - 0.375).abs() < 1e-4);
    }
}

/// The seeds that a user shares with one party are in the keys of no other.
#[test]
fn keys_of_a_party_hold_its_own_seeds_only() {
    let mut made = roles(config(Profile::Full), 3, 11);
    let (us, ua, mask) = ([1; 32], [2; 32], [3; 32]);
    dphe::hazmat::set_seeds(&mut made.key_generator, us, (1..=3).map(|n| (user_id(n), ua, mask)));
    let user = made.key_generator.enroll(user_id(1), &mut made.rng).to_secret_bytes();
    let aggregator = made.key_generator.aggregator_keys().to_secret_bytes();
    let generator = made.key_generator.to_secret_bytes();
    let seeds = [us, ua, mask];
    for (keys, expected) in
        [(&user, [true, true, true]), (&aggregator, [false, true, false]), (&generator, [true, false, true])]
    {
        let held = seeds.map(|seed| keys.windows(32).any(|bytes| bytes == seed));
        assert_eq!(held, expected);
    }
}

#[test]
fn decryption_key_of_another_task_is_refused() {
    let made = roles(config(Profile::Paper), 3, 11);
    let kit = made.key_generator.to_secret_bytes();
    let other = key(512, made.key_generator.task().config().noise);
    assert!(matches!(KeyGenerator::from_secret_bytes_with(&kit, other, paper_keys()), Err(Error::Key(_))));
}

#[test]
fn short_keys_are_refused_without_an_explicit_argument() {
    for (profile, in_paper) in [(Profile::Sparse, false), (Profile::Full, false), (Profile::Paper, true)] {
        let mut made = roles(config(profile), 3, 11);
        let bytes = made.key_generator.enroll(user_id(1), &mut made.rng).to_secret_bytes();
        assert!(matches!(UserKeys::from_secret_bytes(&bytes), Err(Error::Key(_))));
        let read = |lengths| UserKeys::from_secret_bytes_with(&bytes, lengths);
        assert!(matches!(read(KeyLengths::default()), Err(Error::Key(_))));
        assert_eq!(read(paper_keys()).is_ok(), in_paper);
        assert!(read(short_keys()).is_ok());
    }
}

#[test]
fn identity_key_survives_bytes() {
    let identity = IdentityKey::generate(&mut rng(3));
    let again = IdentityKey::from_secret_bytes(&identity.to_secret_bytes()).unwrap();
    assert_eq!(again.identity(), identity.identity());
}

/// Starts a new party, and returns its log.
fn first_log<P: Party>(keys: P::Keys, party: PartyId, parties: &Parties) -> Vec<u8> {
    let (identity, rosters) = (identity(party).into(), parties.roster.clone().into());
    let context = PartyContext { identity, rosters, log: b"ignored", threads: ONE };
    let (_, actions) = P::start_new(keys, context, NOW).unwrap();
    let replaced = actions.iter().filter(|action| matches!(action, Action::Replace(_))).count();
    assert_eq!(replaced, 1, "no other action may replace the seeds");
    match &actions[0] {
        Action::Replace(log) => log.to_vec(),
        other => panic!("the first action is {other:?}"),
    }
}

#[test]
fn keys_of_a_party_that_has_started_are_in_its_log() {
    let parties = Parties::new(config(Profile::Full), 3);
    let rosters = &Rosters::from(parties.roster.clone());
    let user = parties.user_keys[&user_id(2)].clone();
    let encryption = user.encryption_key().clone();
    let log = first_log::<UserParty>(user.clone(), PartyId::User(user_id(2)), &parties);
    let stored = UserKeys::from_log(&log, user_id(2), encryption.clone(), rosters).unwrap();
    assert_eq!(stored.to_secret_bytes(), user.to_secret_bytes());
    parties.start_user(2, &log).unwrap();

    let aggregator = parties.roles.key_generator.aggregator_keys();
    let aggregator_log = first_log::<AggregatorParty>(aggregator.clone(), PartyId::Aggregator, &parties);
    let stored = AggregatorKeys::from_log(&aggregator_log, encryption.clone(), rosters).unwrap();
    assert_eq!(stored.to_secret_bytes(), aggregator.to_secret_bytes());
    parties.start_aggregator(&aggregator_log).unwrap();

    let generator = parties.key_generator();
    let secret = generator.to_secret_bytes();
    let generator_log = first_log::<KeyGeneratorParty>(generator, PartyId::KeyGenerator, &parties);
    let stored = KeyGenerator::from_log(&generator_log, parties.key_generator().into_key(), rosters).unwrap();
    assert_eq!(stored.to_secret_bytes(), secret);
    parties.start_key_generator(&generator_log).unwrap();

    // logs without seeds, of other parties, and damaged logs
    let prefix = Log::new(PartyId::User(user_id(2)), rosters.first()).prefix().to_vec();
    let flipped: Vec<u8> = log
        .iter()
        .enumerate()
        .map(|(at, byte)| if at == log.len() - 40 { byte ^ 1 } else { *byte })
        .collect();
    let logs = [
        &[][..],
        &prefix,
        &log[..log.len() - 1],
        &log[..prefix.len() + 20],
        &flipped,
        &aggregator_log,
        &generator_log,
    ];
    for bad in logs {
        let read = UserKeys::from_log(bad, user_id(2), encryption.clone(), rosters);
        assert!(matches!(read, Err(Error::Storage { .. })), "{read:?}");
    }
    let read = UserKeys::from_log(&log, user_id(1), encryption.clone(), rosters);
    assert!(matches!(read, Err(Error::Storage { .. })), "another user's log");
    assert!(AggregatorKeys::from_log(&log, encryption, rosters).is_err());
    assert!(KeyGenerator::from_log(&log, parties.key_generator().into_key(), rosters).is_err());
}
