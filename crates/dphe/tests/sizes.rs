//! What a user downloads per round, at the size of the paper's largest model: 206,848 weights, of which the payload
//! `rotate` carries a tenth per round.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use dphe::hazmat::sign;
use dphe::party::EndedRound;
use dphe::party::log::LogPoint;
use dphe::wire::{
    Close, Ending, Freeze, Kind, LastOutcome, Outcome, Participant, ParticipantTree, Publish, RosterPlan,
    RoundResult, RoundTicket, Signed, encode_list,
};
use dphe::{
    Digest, IdentityKey, NoiseMode, PartyId, Profile, Roster, Round, TaskConfig, TaskId, TaskParams, UserId,
};
use dphe_paillier::EncryptionKey;
use rand_core::SeedableRng as _;

/// The lengths of what the aggregator sends to a user at the end of a round.
#[derive(Debug)]
struct Sizes {
    /// Everything, with the ticket of the next round.
    download: usize,
    publish: usize,
    sum: usize,
    /// What is sent because there are other participants.
    inclusion: usize,
}

fn identity(n: u64) -> IdentityKey {
    IdentityKey::generate(&mut chacha20::ChaCha20Rng::seed_from_u64(n))
}

/// A number of 3,072 bits that the constructor of keys accepts. Nothing is encrypted with it.
fn key() -> EncryptionKey {
    let key = |last: u8| {
        let mut modulus = [0xff; 384];
        modulus[383] = last;
        EncryptionKey::from_modulus(&modulus, NoiseMode::Secure).ok()
    };
    (0..=255).rev().find_map(key).unwrap()
}

fn sizes(users: u32) -> Sizes {
    let config = TaskConfig::new(Profile::Full, 101, 2048, users);
    assert_eq!((config.dimension, config.capacity * config.block), (206_848, 205 * 101));
    let task = TaskParams::new(TaskId::from_bytes([3; 16]), config).unwrap();
    let (aggregator, generator, key) = (identity(1), identity(2), key());
    let id = |n| UserId::new(n).unwrap();
    let plan = RosterPlan {
        task: task.clone(),
        key: &key,
        initial_model: Digest::ZERO,
        task_file: Digest::ZERO,
        aggregator: aggregator.identity(),
        agreement: aggregator.agreement_key().public(),
        users: (1..=users)
            .map(|n| (id(n), identity(100 + u64::from(n)).identity()))
            .collect::<BTreeMap<_, _>>(),
    };
    let roster = Roster::new(plan, &generator).unwrap();
    let (zero, log) = (Digest::ZERO, LogPoint { seq: 1, head: Digest::ZERO });
    let ticket = RoundTicket {
        open: zero,
        model: zero,
        policy: task.policy_hash(),
        roster: roster.hash(),
        support: zero,
        deadline: 1,
        history: zero,
        last: LastOutcome::None,
        log,
    };
    let from_g = PartyId::KeyGenerator;
    let ticket = sign(&generator, task.id(), from_g, Round::FIRST, ticket, Vec::new());
    let participant = |n| Participant {
        user: id(n),
        count: 1,
        salt: [n as u8; 16],
        body_hash: Digest::ZERO,
        signature: [0; 64],
    };
    let participants: Vec<Participant> = (1..=users).map(participant).collect();
    let users_root = ParticipantTree::new(&participants).root();
    let result =
        RoundResult { request: zero, outcome: Outcome::Released, users, users_root, payload_hash: zero, log };
    let result = sign(&generator, task.id(), from_g, Round::FIRST, result, Vec::new());
    let result = dphe::wire::DecodeWith::from_bytes(&result, &roster).unwrap();
    // as long as the sum of every round but the last one of a pass
    let length = Kind::Publish.max_body_bytes(&roster).unwrap() as usize;
    let sum = vec![0; length];
    let publish = Publish { result, model: zero, sum_hash: Digest::of_sum_bytes(&sum) };
    let from_a =
        |freeze: Freeze| sign(&aggregator, task.id(), PartyId::Aggregator, Round::FIRST, freeze, Vec::new());
    let freeze =
        from_a(Freeze { ticket: zero, attempt: 1, sum_hash: zero, occupied: 0, users: participants });
    let publish = sign(&aggregator, task.id(), PartyId::Aggregator, Round::FIRST, publish, sum);
    let close = Close { ending: Ending::Published, publish: zero };
    let close = sign(&aggregator, task.id(), PartyId::Aggregator, Round::FIRST, close, Vec::new());
    let ended = EndedRound::from_messages(&roster, &ticket, &close, Some((&freeze, &publish))).unwrap();
    let inclusion = ended.inclusion(id(users), &aggregator, &roster).unwrap();
    let told: Vec<Vec<u8>> =
        [inclusion.clone()].into_iter().chain(ended.messages()).chain([ticket]).collect();
    assert!(Signed::<Publish>::decode(&publish, &roster).is_ok());
    Sizes {
        download: encode_list(&told).len(),
        publish: publish.len(),
        sum: length,
        inclusion: inclusion.len(),
    }
}

#[test]
fn a_round_of_206848_weights_costs_a_user_at_most_60_kilobytes() {
    let sizes = sizes(5);
    println!("{sizes:?}");
    assert!(sizes.download <= 60_000, "{sizes:?}");
}

/// Slots have to hold the sum of all users, so that the sum itself grows with the logarithm of their number. The list
/// of participants costs a path.
#[test]
fn ten_thousand_participants_cost_a_user_less_than_a_kilobyte() {
    let sizes = sizes(10_000);
    println!("{sizes:?}");
    assert!(sizes.publish - sizes.sum <= 600 && sizes.inclusion <= 700, "{sizes:?}");
    assert!(sizes.download - sizes.sum <= 2_500, "{sizes:?}");
}
