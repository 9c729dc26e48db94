//! Trees of participants, histories, sealed uploads and kits.

use super::super::json::{Json, hex, list, number, object, text};
use super::super::keys;
use super::super::rounds::base_policy;
use crate::rng::Rng;
use crate::wire::change::{hiding_key, seed_check};
use crate::wire::derive::Digest;
use crate::wire::hpke::{KeyPair, UPLOAD_INFO, agreement_ikm, open, seal, upload_aad};
use crate::wire::kit::{self, KitTask};
use crate::wire::participants::{
    Past, first_history, history_with_roster, leaf, next_history, path, root, root_of,
};
use crate::wire::task::{Profile, Receipts};

/// Trees of one to nine participants and of 33.
pub(super) fn trees() -> Json {
    let mut rng = Rng::new("derivation/merkle");
    list((1..=9).chain([33]).map(|count| {
        let participants: Vec<(u32, Digest, [u8; 16])> =
            (0..count).map(|i| (3 * i as u32 + 1, rng.digest(), rng.id())).collect();
        let leaves: Vec<Digest> =
            participants.iter().map(|(user, body, salt)| leaf(*user, body, salt)).collect();
        let top = root(&leaves);
        let paths: Vec<Vec<Digest>> = (0..count).map(|index| path(&leaves, index)).collect();
        let leads =
            |(index, path): (usize, &Vec<Digest>)| root_of(&leaves[index], index, path, count) == Some(top);
        assert!(paths.iter().enumerate().all(leads));
        let participants = participants.iter().zip(&leaves).map(|((user, body, salt), leaf)| {
            object()
                .with("user", number(user))
                .with("body_hash", hex(body))
                .with("salt", hex(salt))
                .with("leaf", hex(leaf))
        });
        object()
            .with("count", number(count))
            .with("participants", list(participants))
            .with("root", hex(top))
            .with("paths", list(paths.iter().map(|path| list(path.iter().map(hex)))))
    }))
}

/// The history of one task over seven rounds.
pub(super) fn histories() -> Json {
    let mut rng = Rng::new("derivation/history");
    let roster = rng.digest();
    let mut history = first_history(&roster);
    let start = object()
        .with("round", number(0))
        .with("comment", text("before the first round"))
        .with("roster_hash", hex(roster))
        .with("history", hex(history));
    let rounds = [
        ("published", 1),
        ("published", 1),
        ("failed", 2),
        ("aborted", 3),
        ("rejected", 1),
        ("aborted", 3),
        ("published", 1),
    ];
    let mut entries = vec![start];
    for (round, (ending, outcome)) in (1..).zip(rounds) {
        let users_root = if ending == "published" { rng.digest() } else { [0; 32] };
        let past = Past { ticket: rng.digest(), outcome, users_root, close: rng.digest() };
        let before = history;
        history = next_history(&before, &past);
        entries.push(
            object()
                .with("round", number(round))
                .with("comment", text(ending))
                .with("history_before", hex(before))
                .with("ticket", hex(past.ticket))
                .with("outcome", number(past.outcome))
                .with("users_root", hex(past.users_root))
                .with("close", hex(past.close))
                .with("history", hex(history)),
        );
    }
    list(entries)
}

/// How a new user-shared seed is hidden for users who keep their identities.
pub(super) fn roster_seeds() -> Json {
    let mut rng = Rng::new("derivation/roster_seed");
    list([1, 2, 9, 65_536].map(|user| {
        let (mask, roster, salt, seed) = (rng.digest(), rng.digest(), rng.id(), rng.digest());
        let key = hiding_key(&mask, &roster, &salt, user);
        let hidden: Vec<u8> = key.iter().zip(&seed).map(|(a, b)| a ^ b).collect();
        object()
            .with("user", number(user))
            .with("mask_round_seed", hex(mask))
            .with("roster_hash", hex(roster))
            .with("salt", hex(salt))
            .with("user_shared_seed", hex(seed))
            .with("hidden", hex(hidden))
            .with("check", hex(seed_check(&seed, &roster)))
    }))
}

/// The history of a task when three rosters come into force one after the other.
pub(super) fn roster_histories() -> Json {
    let mut rng = Rng::new("derivation/roster_history");
    let mut history = rng.digest();
    list([1, 2, 3].map(|_| {
        let (before, roster) = (history, rng.digest());
        history = history_with_roster(&before, &roster);
        object()
            .with("history_before", hex(before))
            .with("roster_hash", hex(roster))
            .with("history", hex(history))
    }))
}

/// Sealed uploads with contents of several lengths. The ephemeral key is derived from `ephemeral_ikm`.
pub(super) fn sealed() -> Json {
    let mut rng = Rng::new("derivation/hpke");
    list([0, 1, 16, 64, 1000].map(|length| {
        let (identity, ephemeral_ikm) = (rng.digest(), rng.digest());
        let (task, round, user, ticket) = (rng.id(), 1 + rng.below(1000) as u64, 7, rng.digest());
        let keys = KeyPair::derive(&agreement_ikm(&identity));
        let ephemeral = KeyPair::derive(&ephemeral_ikm);
        let aad = upload_aad(&task, round, user, &ticket);
        let plaintext = rng.bytes(length);
        let body = seal(&keys.public, &ephemeral, UPLOAD_INFO, &aad, &plaintext);
        assert_eq!(open(&keys, UPLOAD_INFO, &aad, &body).as_ref(), Some(&plaintext));
        object()
            .with("identity_seed", hex(identity))
            .with("agreement_ikm", hex(agreement_ikm(&identity)))
            .with("agreement_secret", hex(keys.secret))
            .with("agreement_key", hex(keys.public))
            .with("ephemeral_ikm", hex(ephemeral_ikm))
            .with("ephemeral_secret", hex(ephemeral.secret))
            .with("enc", hex(ephemeral.public))
            .with("task", hex(task))
            .with("round", number(round))
            .with("user", number(user))
            .with("ticket", hex(ticket))
            .with("info", hex(UPLOAD_INFO))
            .with("aad", hex(aad))
            .with("plaintext", hex(plaintext))
            .with("body", hex(body))
    }))
}

/// One kit of each kind, and a second one of users in a later round.
pub(super) fn kits() -> Json {
    let mut rng = Rng::new("derivation/kit");
    let key = keys::toy_key(256);
    let mut policy = base_policy(Profile::Sparse, 256);
    policy.receipts = Receipts::Checked;
    let task = KitTask { id: rng.id(), policy: &policy, key: &key };
    let mut seed = |round| (round, rng.digest());
    let (identity, shared) = (seed(1).1, seed(1));
    let users: Vec<(u32, kit::Seed, kit::Seed)> = [1, 2, 5].map(|user| (user, seed(1), seed(1))).into();
    let own: Vec<(u32, kit::Seed)> = users.iter().map(|(user, own, _)| (*user, *own)).collect();
    let masks: Vec<(u32, kit::Seed)> = users.iter().map(|(user, _, mask)| (*user, *mask)).collect();
    let later = [seed(4), seed(4), seed(4)];
    let seed_json = |(round, seed): &kit::Seed| object().with("round", number(round)).with("seed", hex(seed));
    let users_json = |users: &[(u32, kit::Seed)]| {
        list(users.iter().map(|(user, (round, seed))| {
            object().with("user", number(user)).with("round", number(round)).with("seed", hex(seed))
        }))
    };
    let start = |kind: u8| {
        object()
            .with("kind", number(kind))
            .with("task", hex(task.id))
            .with("policy_bytes", hex(policy.bytes()))
            .with("key", keys::json(&key))
    };
    let user_json = |user: u32, seeds: &[kit::Seed; 3]| {
        start(4)
            .with("user", number(user))
            .with("user_shared_seed", seed_json(&seeds[0]))
            .with("user_aggregator_seed", seed_json(&seeds[1]))
            .with("mask_seed", seed_json(&seeds[2]))
            .with("bytes", hex(kit::user(&task, user, seeds)))
    };
    list([
        object()
            .with("kind", number(1))
            .with("identity_seed", hex(identity))
            .with("bytes", hex(kit::identity(&identity))),
        start(2)
            .with("next_round", number(1))
            .with("user_shared_seed", seed_json(&shared))
            .with("mask_seeds", users_json(&masks))
            .with("bytes", hex(kit::key_generator(&task, 1, &shared, &masks))),
        start(3)
            .with("user_aggregator_seeds", users_json(&own))
            .with("bytes", hex(kit::aggregator(&task, &own))),
        user_json(5, &[shared, users[2].1, users[2].2]),
        user_json(9, &later),
    ])
}
