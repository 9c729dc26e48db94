//! Crashes and faults: an aggregator, a key generator and a few users on simulated disks and a simulated network.
//!
//! A disk keeps what was synced; of what was written and not synced nothing, a part, or a part and then zeros is left. A
//! replacement is there or it is not. The network loses, doubles, delays and reorders. The program around the parties is
//! played as docs/protocol.md, section 9 wants it: in order, synced before sent, a torn tail cut off.
//!
//! Failure is any of these:
//! * I1: two different requests of one round are decrypted, over all lives of the key generator.
//! * I2: a released sum is not the sum, each once, of the updates of its set. User n adds 4^n, so that every sum says who is in it.
//! * I3: a set below the floor, not ascending, or with somebody who is not in the roster.
//! * I4: a message that is sent again is not the same, byte for byte; an update sealed twice for a round counts.
//! * I6: an upload was acknowledged and the published set does not have it; a user is told something else about its part.
//! * I7: once faults have stopped, the round does not end, or neither of the next two has everybody in it (where the
//!   model changes: where it stays, or a round failed, `set_difference` may refuse the full set again and again).
//! * A party cannot start from what it stored, or refuses what is not merely late, early or known.
//!
//! No failure: a round that is aborted because too few came in time; a user who missed a round, or is not told how one
//! ended because it crashed just then; refusals as `stale`, `future`, `order` and `late`; `set_difference` where the model
//! did not change.
//!
//! Sources of nondeterminism: none. Time, network, training and randomness come from the seed of a run; a failure names it.
//! `DPHE_SIM_SEEDS` sets the number of random schedules; all pairs of crashes are run then, otherwise every twentieth.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "crash/ledger.rs"]
mod ledger;
#[path = "crash/sim.rs"]
mod sim;
#[path = "crash/world.rs"]
mod world;

use std::time::Instant;

use dphe::{Party, Profile, UserId};
use sim::{Chaos, Crash, Mode, Outcome, PREFIX, Plan, Point, Sabotage, Sim};
use world::World;

const PROFILES: [Profile; 2] = [Profile::Sparse, Profile::Full];

fn check(world: &World, plan: Plan) -> Outcome {
    let outcome = Sim::run(world, plan.clone());
    assert!(outcome.violations.is_empty(), "{:#?}\n{plan:?}", outcome.violations);
    outcome
}

/// The writes of two rounds or more without faults.
fn writes(world: &World) -> Vec<Point> {
    let outcome = check(world, Plan { rounds: 1, ..Plan::new(0) });
    assert!(outcome.published >= 2, "{}", outcome.published);
    outcome.writes
}

fn crash(point: Point, mode: Mode, skip: u32) -> Crash {
    Crash { point, mode, skip, away: 300 }
}

#[test]
fn a_crash_at_any_write_sparse() {
    crash_at_any_write(&World::new(Profile::Sparse, 3, false));
}

#[test]
fn a_crash_at_any_write_full() {
    crash_at_any_write(&World::new(Profile::Full, 3, false));
}

#[test]
fn a_crash_at_any_write_of_a_round_that_fails() {
    crash_at_any_write(&World::new(Profile::Sparse, 4, true));
}

fn crash_at_any_write(world: &World) {
    let begin = Instant::now();
    let (mut runs, mut published) = (0, 0);
    let writes = writes_or_failed(world);
    let points = writes.len();
    for (i, &point) in writes.iter().enumerate() {
        let skip = writes[..i].iter().filter(|&&before| before == point).count() as u32;
        let torn = [0, 1023].map(Mode::Torn);
        let blank = [500].map(Mode::Blank);
        let whole = [Mode::BeforeWrite, Mode::Lost, Mode::Synced, Mode::SentOne, Mode::Sent];
        for mode in torn.into_iter().chain(blank).chain(whole) {
            let users_ask = matches!(point.party, Party::User(_));
            for (duplicate, pull) in [(0, users_ask), (400, false)] {
                let plan =
                    Plan { duplicate, pull, crashes: vec![crash(point, mode, skip)], ..Plan::new(runs) };
                let outcome = check(world, plan);
                assert_eq!(outcome.unhappened, 0, "{point:?} was never reached");
                runs += 1;
                published += outcome.published;
            }
        }
    }
    println!(
        "single crashes: {points} points, {runs} runs, {published} rounds published, {:.1?}",
        begin.elapsed()
    );
}

/// As [`writes`], where the first round may fail.
fn writes_or_failed(world: &World) -> Vec<Point> {
    check(world, Plan { rounds: 1, ..Plan::new(0) }).writes
}

#[test]
fn two_crashes_at_any_writes() {
    let begin = Instant::now();
    let (mut pairs, mut runs, mut published, mut unhappened) = (0, 0, 0, 0);
    let stride = if seeds().is_some() { 1 } else { 20 };
    for (world, duplicate) in PROFILES.map(|profile| World::new(profile, 3, false)).iter().zip([0, 400]) {
        let mut points = writes(world);
        points.retain(|point| {
            point.tag != PREFIX && !matches!(point.party, Party::User(user) if user.get() > 1)
        });
        points.sort_unstable();
        points.dedup();
        let modes = [Mode::Lost, Mode::Torn(700), Mode::Synced, Mode::Sent];
        let crashes: Vec<Crash> =
            points.iter().flat_map(|&point| modes.map(|mode| crash(point, mode, 0))).collect();
        for first in &crashes {
            for second in &crashes {
                pairs += 1;
                if !u64::is_multiple_of(pairs, stride) {
                    continue;
                }
                let plan = Plan { duplicate, crashes: vec![*first, *second], ..Plan::new(pairs) };
                let outcome = check(world, plan);
                runs += 1;
                published += outcome.published;
                unhappened += outcome.unhappened;
            }
        }
    }
    assert_eq!(unhappened, 0);
    println!(
        "pairs of crashes: {runs} of {pairs} pairs, {published} rounds published, {:.1?}",
        begin.elapsed()
    );
}

#[test]
fn random_schedules() {
    let begin = Instant::now();
    let seeds = seeds().unwrap_or(400);
    let worlds: Vec<World> = [
        (Profile::Sparse, 3, false),
        (Profile::Full, 4, false),
        (Profile::Sparse, 5, false),
        (Profile::Full, 5, false),
        (Profile::Sparse, 5, true),
    ]
    .map(|(profile, users, loud)| World::new(profile, users, loud))
    .into();
    let mut all = Outcome::default();
    for seed in 0..seeds {
        let outcome = check(&worlds[seed as usize % worlds.len()], random_plan(seed));
        all.published += outcome.published;
        all.failed += outcome.failed;
        all.aborted += outcome.aborted;
        all.crashes += outcome.crashes;
        all.lost += outcome.lost;
        all.duplicated += outcome.duplicated;
        all.slow += outcome.slow;
        all.vanished += outcome.vanished;
        all.steps += outcome.steps;
        all.steps_to_end = all.steps_to_end.max(outcome.steps_to_end);
        all.trained_twice += outcome.trained_twice;
    }
    let Outcome { published, failed, aborted, crashes, lost, duplicated, slow, vanished, steps, .. } = all;
    println!(
        "random schedules: {seeds} seeds, {steps} steps, {published} rounds published, {failed} failed, {aborted} aborted; \
         {crashes} crashes ({vanished} of users for long), {lost} messages lost, {duplicated} doubled, {slow} late; \
         at most {} steps to the end, {} trainings asked for twice; {:.1?}",
        all.steps_to_end,
        all.trained_twice,
        begin.elapsed()
    );
    assert_eq!(all.trained_twice, 0, "a user trains once in a life for a round");
    if seeds >= 100 {
        assert!(published > seeds && failed > 0 && aborted > 0, "the schedules are too rough or too smooth");
    }
}

/// How many random schedules somebody asked for.
fn seeds() -> Option<u64> {
    std::env::var("DPHE_SIM_SEEDS").ok().and_then(|n| n.parse().ok())
}

fn random_plan(seed: u64) -> Plan {
    let pick = |values: &[u64], step: u64| values[(seed / step) as usize % values.len()];
    let chaos = Chaos {
        loss: pick(&[0, 50, 150, 300], 1),
        slow: pick(&[0, 30, 100], 4),
        crash: pick(&[30, 0, 80], 3),
        vanish: pick(&[0, 20, 5], 2),
        abort: pick(&[0, 300, 0], 5),
        idle: pick(&[0, 100], 6),
    };
    Plan {
        duplicate: pick(&[0, 300, 100], 2),
        chaos,
        rounds: 3,
        pull: pick(&[0, 1], 7) == 1,
        latest_alarm: pick(&[0, 1], 11) == 1,
        same_model: pick(&[0, 0, 0, 1], 13) == 1,
        ..Plan::new(seed)
    }
}

// --- the harness itself: what must be found ---

const A: Party = Party::Aggregator;
const G: Party = Party::KeyGenerator;

/// Asserts that a sabotaged run breaks this invariant.
fn caught(users: u32, sabotage: Sabotage, crashes: &[Crash], expected: &str) {
    let world = World::new(Profile::Sparse, users, false);
    let (seeds, mut found) = (6, 0);
    for seed in 0..seeds {
        // users take their time
        let plan = Plan { rounds: 2, crashes: crashes.to_vec(), ..Plan::new(seed) };
        // it is the sabotage, not the crashes
        check(&world, plan.clone());
        let violations = Sim::run(&world, Plan { sabotage, ..plan }).violations;
        found += u32::from(violations.iter().any(|text| text.contains(expected)));
    }
    println!("{sabotage:?}: {expected} found with {found} of {seeds} seeds");
    assert!(found > 0, "{sabotage:?} was not caught");
}

#[test]
fn sending_before_storing_is_caught() {
    let upload = Point { party: A, tag: 3 };
    // acknowledged and lost: the round goes on without it, or the user seals again
    caught(4, Sabotage::SendBeforeSync, &[crash(upload, Mode::Lost, 0)], "I6");
    let own = Point { party: Party::User(UserId::new(1).unwrap()), tag: 2 };
    caught(3, Sabotage::SendBeforeSync, &[Crash { away: 0, ..crash(own, Mode::Lost, 0) }], "I4");
}

#[test]
fn a_forgotten_upload_is_caught() {
    caught(4, Sabotage::ForgetUpload, &[crash(Point { party: A, tag: 3 }, Mode::Sent, 0)], "I6");
}

#[test]
fn a_forgotten_commitment_is_caught() {
    // G goes on from before its answer: its log forks, and A refuses it
    caught(3, Sabotage::ForgetCommit, &[crash(Point { party: G, tag: 4 }, Mode::Sent, 0)], "rollback");
}

#[test]
fn a_second_decryption_is_caught() {
    let request = Crash { away: 5_000, ..crash(Point { party: A, tag: 5 }, Mode::Sent, 0) };
    caught(4, Sabotage::ForgetBoth, &[request, crash(Point { party: G, tag: 4 }, Mode::Sent, 0)], "I1");
}

#[test]
fn a_torn_tail_that_stays_is_caught() {
    caught(
        3,
        Sabotage::KeepTail,
        &[
            crash(Point { party: A, tag: 4 }, Mode::Torn(500), 0),
            crash(Point { party: A, tag: 5 }, Mode::Synced, 0),
        ],
        "cannot read its log",
    );
}

#[test]
fn a_program_that_sleeps_is_caught() {
    caught(3, Sabotage::Sleep, &[crash(Point { party: A, tag: 3 }, Mode::Synced, 2)], "I7");
}

#[test]
fn an_update_of_another_user_is_caught() {
    caught(3, Sabotage::WrongUpdate, &[], "I2: user 1 is 2 times");
}
