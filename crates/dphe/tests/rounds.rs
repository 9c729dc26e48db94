//! State machines over many rounds: what the key generator stores does not grow, and no noise is used twice.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use dphe::wire::Upload;
use dphe::{Profile, TaskConfig};
use support::world::{End, World};
use support::{MODEL, config, update};

/// The key generator keeps the sets of users of the last model only, not those of all rounds.
#[test]
fn checkpoint_of_the_key_generator_does_not_grow_with_the_rounds() {
    for profile in [Profile::Sparse, Profile::Full] {
        let mut world = World::new(config(profile), 6);
        let mut model = MODEL.to_vec();
        let mut lengths = Vec::new();
        for round in 1..=24u32 {
            let next = format!("model {round}").into_bytes();
            // sets of three to six users; those of two rounds on one model differ by three
            let more = if round % 6 == 0 {
                0
            } else if round % 6 == 1 {
                3
            } else {
                round % 4
            };
            let users: Vec<u32> = (1..=3 + more).collect();
            let end = if round % 6 == 0 { End::Reject } else { End::Publish(&next) };
            world.round(&model, &users, |_| update(24, &[], &[0.0, 0.0]), end).unwrap();
            if round % 6 != 0 {
                model = next;
            }
            lengths.push(world.log.len());
        }
        // the state repeats every twelve rounds;
        // before the first round, no sum was rejected
        assert_eq!(lengths[1..12], lengths[13..], "{profile}");
        let most = lengths.iter().max().unwrap() - lengths.iter().min().unwrap();
        assert!(most <= 2 * (4 + 4 * 6), "two sets at most: {lengths:?}");
    }
}

/// A machine that is restored twice from a snapshot has the same random numbers twice.
#[test]
fn same_random_numbers_give_other_noise_for_another_update_or_ticket() {
    let salt = |seed: u64, value: f64, users: u32| {
        // the number of users changes the roster and with it the ticket
        let mut world = World::with_seed(TaskConfig { max_users: 8, ..config(Profile::Full) }, users, seed);
        let ticket = world.start(MODEL).unwrap();
        let upload = world.upload(1, &ticket, MODEL, update(24, &[], &[value, 0.0])).unwrap();
        let upload = world.read::<Upload>(&upload);
        // drawn from the same generator as the noise; the body begins with a point that is drawn from it too
        (upload.message().salt, upload.body()[..32].to_vec())
    };
    let first = salt(7, 0.5, 4);
    assert_eq!(first, salt(7, 0.5, 4), "the control: everything is the same");
    for (case, other) in [
        ("update", salt(7, 0.25, 4)),
        ("update of zero with another sign", salt(7, -0.0, 4)),
        ("ticket", salt(7, 0.5, 5)),
        ("random numbers", salt(8, 0.5, 4)),
    ] {
        assert_ne!(first.0, other.0, "{case}");
        assert_ne!(first.1, other.1, "{case}");
    }
}
