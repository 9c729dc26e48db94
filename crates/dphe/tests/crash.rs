//! Crashes and faults: an aggregator, a key generator and a few users on simulated disks and a simulated network.
//!
//! A disk keeps synced writes. Of a write that was not synced, nothing is left, or a part, or a part followed by
//! zeros. A replacement is atomic. The network loses, duplicates, delays and reorders messages. The program around
//! the parties follows docs/protocol.md, section 9: it carries out actions in order, syncs before it sends, and cuts
//! off torn tails.
//!
//! A run fails if one of these invariants is broken:
//! * I1: the key generator decrypts at most one request per round, over all its restarts.
//! * I2: a released sum contains the update of each participant exactly once. User n adds 4^n, so that a sum shows
//!   who is in it.
//! * I3: participants are at least as many as the floor, ascending, and in the roster.
//! * I4: a message that is sent again has the same bytes. In particular, an update is sealed once per round.
//! * I6: an acknowledged upload is in the published set, and users are told the truth about it.
//! * I7: once faults have stopped, the round ends, and one of the next two has all users in it. (This needs a new
//!   model. If the model stays the same, or a round failed, `set_difference` may refuse the full set repeatedly.)
//! * A party can always start from its log, and refuses only messages that are late, early or known.
//!
//! The following is allowed: a round is aborted because too few updates arrived in time. A user misses a round, or is
//! not told how it ended because it crashed. Messages are refused as `stale`, `future`, `order` or `late`, and as
//! `set_difference` if the model did not change.
//!
//! Runs are deterministic: time, network, training and randomness follow from a seed, which a failure names.
//! `DPHE_SIM_SEEDS` sets the number of random schedules, and then all pairs of crashes are run instead of every
//! twentieth. `DPHE_SIM_FIRST` sets the first seed, so that a long run can be divided.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "crash/forge.rs"]
mod forge;
#[path = "crash/ledger.rs"]
mod ledger;
#[path = "crash/rogue.rs"]
mod rogue;
#[path = "crash/sim.rs"]
mod sim;
#[path = "crash/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::time::Instant;

use dphe::{PartyId, Profile, UserId};
use sim::{Chaos, Crash, Mode, Outcome, Plan, Point, Restore, Restored, Sabotage, Sim};
use world::{Spec, World, Wrong};

const PROFILES: [Profile; 2] = [Profile::Sparse, Profile::Full];
const A: PartyId = PartyId::Aggregator;
const G: PartyId = PartyId::KeyGenerator;

fn check(world: &World, plan: Plan) -> Outcome {
    let outcome = Sim::run(world, plan.clone());
    assert!(outcome.violations.is_empty(), "{:#?}\n{plan:?}", outcome.violations);
    outcome
}

/// Returns the writes of the first `rounds` rounds without faults. Those of a third round are like those of the second.
fn writes(world: &World, rounds: usize) -> Vec<Point> {
    let outcome = check(world, Plan { rounds: 1, ..Plan::new(0) });
    let mut tickets =
        outcome.writes.iter().enumerate().filter(|(_, point)| **point == Point { party: A, tag: 2 });
    let (end, _) = tickets.nth(rounds).expect("there is one more round");
    outcome.writes[..end].to_vec()
}

fn crash(point: Point, mode: Mode, skip: u32) -> Crash {
    Crash { point, mode, skip, away: 300 }
}

#[test]
fn crash_at_any_write_of_a_sparse_task() {
    crash_at_any_write(&World::new(Spec::new(Profile::Sparse, 3)), 2);
}

#[test]
fn crash_at_any_write_of_a_full_task() {
    crash_at_any_write(&World::new(Spec::new(Profile::Full, 3)), 2);
}

#[test]
fn crash_at_any_write_of_a_round_whose_sum_cannot_be_opened() {
    let outcome = crash_at_any_write(&World::new(Spec::new(Profile::Sparse, 4).loud()), 1);
    assert!(outcome.failed > 0);
}

#[test]
fn crash_at_any_write_of_a_round_whose_sum_is_rejected() {
    let outcome = crash_at_any_write(&World::new(Spec::new(Profile::Full, 4).loud()), 1);
    assert!(outcome.rejected > 0);
}

fn crash_at_any_write(world: &World, rounds: usize) -> Outcome {
    let begin = Instant::now();
    let (mut runs, mut all) = (0, Outcome::default());
    let writes = writes(world, rounds);
    let points = writes.len();
    for (i, &point) in writes.iter().enumerate() {
        let skip = writes[..i].iter().filter(|&&before| before == point).count() as u32;
        let torn = [0, 1023].map(Mode::Torn);
        let blank = [500].map(Mode::Blank);
        let whole = [Mode::Lost, Mode::Full(700), Mode::Synced, Mode::SentOne, Mode::Sent];
        for mode in torn.into_iter().chain(blank).chain(whole) {
            let users_ask = matches!(point.party, PartyId::User(_));
            for (duplicate, pull) in [(0, users_ask), (400, false)] {
                let plan =
                    Plan { duplicate, pull, crashes: vec![crash(point, mode, skip)], ..Plan::new(runs) };
                let outcome = check(world, plan);
                assert_eq!(outcome.unhappened, 0, "{point:?} was never reached");
                runs += 1;
                all.published += outcome.published;
                all.failed += outcome.failed;
                all.rejected += outcome.rejected;
            }
        }
    }
    println!(
        "single crashes: {points} points, {runs} runs, {} rounds published, {:.1?}",
        all.published,
        begin.elapsed()
    );
    all
}

#[test]
fn two_crashes_at_any_two_writes() {
    let begin = Instant::now();
    let (mut pairs, mut runs, mut published, mut unhappened) = (0, 0, 0, 0);
    let stride = if seeds().is_some() { 1 } else { 20 };
    for (world, duplicate) in PROFILES.map(|profile| World::new(Spec::new(profile, 3))).iter().zip([0, 400]) {
        let mut points = writes(world, 2);
        points.retain(|point| !matches!(point.party, PartyId::User(user) if user.get() > 1));
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
fn random_faults_break_no_invariant() {
    let begin = Instant::now();
    let seeds = seeds().unwrap_or(400);
    let worlds: Vec<World> = [
        Spec::new(Profile::Sparse, 3),
        Spec::new(Profile::Full, 4),
        Spec { collect_min: 1_500, ..Spec::new(Profile::Sparse, 5) },
        Spec::new(Profile::Full, 5),
        Spec::new(Profile::Paper, 4),
        Spec::new(Profile::Sparse, 5).loud(),
        Spec::new(Profile::Full, 5).loud(),
    ]
    .map(World::new)
    .into();
    let mut all = Outcome::default();
    for seed in first()..first() + seeds {
        let outcome = check(&worlds[seed as usize % worlds.len()], random_plan(seed));
        all.published += outcome.published;
        all.failed += outcome.failed;
        all.aborted += outcome.aborted;
        all.crashes += outcome.crashes;
        all.full += outcome.full;
        all.lost += outcome.lost;
        all.duplicated += outcome.duplicated;
        all.slow += outcome.slow;
        all.vanished += outcome.vanished;
        all.steps += outcome.steps;
        all.steps_to_end = all.steps_to_end.max(outcome.steps_to_end);
        all.trained_twice += outcome.trained_twice;
    }
    let Outcome {
        published, failed, aborted, crashes, full, lost, duplicated, slow, vanished, steps, ..
    } = all;
    println!(
        "random schedules: {seeds} seeds, {steps} steps, {published} rounds published, {failed} failed, {aborted} aborted; \
         {crashes} crashes ({vanished} of users for long), {full} writes to full disks, {lost} messages lost, {duplicated} doubled, {slow} late; \
         at most {} steps to the end, {} trainings asked for twice; {:.1?}",
        all.steps_to_end,
        all.trained_twice,
        begin.elapsed()
    );
    assert_eq!(all.trained_twice, 0, "a user trains once in a life for a round");
    if seeds >= 100 {
        let smooth = failed == 0 || aborted == 0 || full == 0;
        assert!(published > seeds && !smooth, "the schedules are too rough or too smooth");
    }
}

/// Returns the number of random schedules that was asked for.
fn seeds() -> Option<u64> {
    setting("DPHE_SIM_SEEDS")
}

/// Returns the first seed of random schedules.
fn first() -> u64 {
    setting("DPHE_SIM_FIRST").unwrap_or(0)
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
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
        full: pick(&[0, 0, 10], 5),
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

/// Restored from a copy: the party, whose task may then be over, but no promise of another party is broken.
#[test]
fn restored_copies_break_no_promise_of_other_parties() {
    let begin = Instant::now();
    let seeds = seeds().unwrap_or(400) / 4;
    let worlds: Vec<World> =
        [(Profile::Sparse, 4), (Profile::Full, 4), (Profile::Paper, 4), (Profile::Full, 5)]
            .map(|(profile, users)| World::new(Spec::new(profile, users)))
            .into();
    let user = |number| Restored::User(UserId::new(number).unwrap());
    let everyone = [Restored::KeyGenerator, Restored::Aggregator, user(1), Restored::Both, user(2)];
    let (mut restored, mut well, mut refusals) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for seed in first()..first() + seeds {
        let who = everyone[seed as usize % everyone.len()];
        let (at, age) = (2_000 + seed * 7_919 % 25_000, 20 + seed * 104_729 % 9_000);
        let mut plan = random_plan(seed);
        // half of them without other faults
        plan.chaos = if seed % 2 == 0 { Chaos::default() } else { plan.chaos };
        plan = Plan { restore: Some(Restore { at, age, who }), same_model: false, ..plan };
        let outcome = check(&worlds[(seed / 5) as usize % worlds.len()], plan);
        if outcome.restored {
            *restored.entry(who).or_insert(0) += 1;
            *well.entry(who).or_insert(0) += u64::from(outcome.well);
        }
        outcome.refusals.into_iter().for_each(|(code, n)| *refusals.entry(code).or_insert(0) += n);
    }
    println!(
        "restored copies: {seeds} seeds, restored {restored:?}, went on {well:?}; {:.1?}\n{refusals:?}",
        begin.elapsed()
    );
    if seeds >= 100 {
        assert_eq!(restored.len(), everyone.len());
    }
}

#[test]
fn byzantine_users_spoil_sums_but_forge_none() {
    let begin = Instant::now();
    let seeds = seeds().unwrap_or(400) / 4;
    let wrong = |profile, wrong| Spec { wrong, ..Spec::new(profile, 4) };
    let garbage = |profile| Spec { garbage: true, ..Spec::new(profile, 4) };
    let worlds: Vec<World> = [
        wrong(Profile::Sparse, Wrong::Masks),
        wrong(Profile::Full, Wrong::Masks),
        wrong(Profile::Sparse, Wrong::Check),
        wrong(Profile::Full, Wrong::Check),
        garbage(Profile::Sparse),
        garbage(Profile::Full),
        garbage(Profile::Paper),
        Spec::new(Profile::Full, 5).loud(),
    ]
    .map(World::new)
    .into();
    let (mut all, mut refusals) = (Outcome::default(), BTreeMap::new());
    for seed in first()..first() + seeds {
        let outcome = check(&worlds[seed as usize % worlds.len()], random_plan(seed));
        all.published += outcome.published;
        all.failed += outcome.failed;
        all.rejected += outcome.rejected;
        all.accepted += outcome.accepted;
        outcome.refusals.into_iter().for_each(|(code, n)| *refusals.entry(code).or_insert(0) += n);
    }
    println!(
        "byzantine users: {seeds} seeds, {} rounds published, {} failed, {} rejected; users accepted {} sums; {:.1?}\n{refusals:?}",
        all.published,
        all.failed,
        all.rejected,
        all.accepted,
        begin.elapsed()
    );
    if seeds >= 100 {
        assert!(all.failed > 0 && all.rejected > 0 && all.accepted > 0);
        assert!(refusals.contains_key(&("user", "check")), "users notice a wrong check");
    }
}

/// Two runs of one schedule, in which two users send other numbers with the same sum. The key generator answers the
/// same in every round with both or none of them.
#[test]
fn answers_of_the_key_generator_depend_on_updates_through_their_sum_only() {
    let seeds = seeds().unwrap_or(400) / 20;
    let worlds = PROFILES.map(|profile| World::new(Spec::new(profile, 4)));
    let (mut same, mut different) = (0, 0);
    for seed in first()..first() + seeds {
        for world in &worlds {
            let plan = random_plan(seed);
            let first = check(world, plan.clone());
            let second = check(world, Plan { shift: 1 << 14, ..plan });
            assert_eq!((first.steps, &first.writes), (second.steps, &second.writes), "another schedule");
            assert_eq!(first.answers.len(), second.answers.len());
            for (first, second) in first.answers.iter().zip(&second.answers) {
                assert_eq!((first.0, &first.1, first.2), (second.0, &second.1, second.2));
                let shifted = first.1.iter().filter(|user| user.get() <= 2).count();
                // a masked sum is random, because the aggregator's masks are drawn anew for every update
                if world.spec.profile == Profile::Full {
                    continue;
                }
                let equal = first.3 == second.3;
                assert_eq!(equal, shifted != 1, "round {} of seed {seed}", first.0);
                if equal { same += 1 } else { different += 1 }
            }
        }
    }
    println!("answers that are equal: {same}; answers with one of two users, which differ: {different}");
    assert!(same > 0 && (different > 0 || seeds < 20));
}

#[test]
fn byzantine_aggregator_cannot_make_users_accept_a_wrong_model() {
    let begin = Instant::now();
    let seeds = seeds().unwrap_or(400) / 5;
    let worlds: Vec<World> = [
        (Profile::Sparse, 4),
        (Profile::Full, 4),
        (Profile::Sparse, 5),
        (Profile::Full, 5),
        (Profile::Paper, 5),
    ]
    .map(|(profile, users)| World::new(Spec { rounds: 6, collect_min: 1_500, ..Spec::new(profile, users) }))
    .into();
    let (mut all, mut attacks, mut refusals) = (Outcome::default(), BTreeMap::new(), BTreeMap::new());
    for seed in first()..first() + seeds {
        let chaos = Chaos { crash: [0, 15, 30][seed as usize % 3], ..random_plan(seed).chaos };
        let chaos =
            Chaos { loss: chaos.loss / 6, slow: chaos.slow / 3, vanish: 0, idle: chaos.idle / 4, ..chaos };
        let accomplices = (seed / 5 % 3) as u32;
        let mut plan = Plan { rogue: true, accomplices, rounds: 1, chaos, ..random_plan(seed) };
        if seed % 4 == 3 {
            let who = Restored::User(UserId::new(3).unwrap());
            plan.restore =
                Some(Restore { at: 3_000 + seed * 7_919 % 25_000, age: 20 + seed * 104_729 % 9_000, who });
        }
        let outcome = check(&worlds[seed as usize % worlds.len()], plan);
        all.accepted += outcome.accepted;
        all.crashes += outcome.crashes;
        all.openings.0 += outcome.openings.0;
        all.openings.1 += outcome.openings.1;
        all.full += outcome.full;
        outcome.attacks.into_iter().for_each(|(attack, n)| *attacks.entry(attack).or_insert(0) += n);
        outcome.refusals.into_iter().for_each(|(code, n)| *refusals.entry(code).or_insert(0) += n);
    }
    println!(
        "byzantine aggregator: {seeds} seeds, {} openings, {} failed; users accepted {} sums; {} crashes, {} writes to full disks; {:.1?}\n{attacks:?}\n{refusals:?}",
        all.openings.0,
        all.openings.1,
        all.accepted,
        all.crashes,
        all.full,
        begin.elapsed()
    );
}

// --- the simulator itself must detect sabotage ---

/// Asserts that a sabotaged run breaks this invariant.
fn caught(users: u32, sabotage: Sabotage, crashes: &[Crash], expected: &str) {
    let world = World::new(Spec::new(Profile::Sparse, users));
    let (seeds, mut found) = (6, 0);
    for seed in 0..seeds {
        // users are slow
        let plan = Plan { rounds: 2, crashes: crashes.to_vec(), ..Plan::new(seed) };
        // the crashes alone break nothing
        check(&world, plan.clone());
        let violations = Sim::run(&world, Plan { sabotage, ..plan }).violations;
        found += u32::from(violations.iter().any(|text| text.contains(expected)));
    }
    println!("{sabotage:?}: {expected} found with {found} of {seeds} seeds");
    assert!(found > 0, "{sabotage:?} was not caught");
}

#[test]
fn sabotage_by_sending_before_storing_is_detected() {
    let upload = Point { party: A, tag: 3 };
    // an acknowledged upload is lost: the round continues without it, or the user seals again
    caught(4, Sabotage::SendBeforeSync, &[crash(upload, Mode::Lost, 0)], "I6");
    let own = Point { party: PartyId::User(UserId::new(1).unwrap()), tag: 2 };
    caught(3, Sabotage::SendBeforeSync, &[Crash { away: 0, ..crash(own, Mode::Lost, 0) }], "I4");
}

#[test]
fn sabotage_by_a_lost_upload_is_detected() {
    caught(4, Sabotage::ForgetUpload, &[crash(Point { party: A, tag: 3 }, Mode::Sent, 0)], "I6");
}

#[test]
fn sabotage_by_a_lost_commitment_is_detected() {
    // the key generator continues from before its answer, and refuses that the round was published
    caught(3, Sabotage::ForgetCommit, &[crash(Point { party: G, tag: 4 }, Mode::Sent, 0)], "ending");
}

#[test]
fn sabotage_by_a_second_decryption_is_detected() {
    let request = Crash { away: 5_000, ..crash(Point { party: A, tag: 5 }, Mode::Sent, 0) };
    caught(4, Sabotage::ForgetBoth, &[request, crash(Point { party: G, tag: 4 }, Mode::Sent, 0)], "I1");
}

#[test]
fn sabotage_by_keeping_a_torn_tail_is_detected() {
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
fn sabotage_by_ignoring_wake_ups_is_detected() {
    caught(3, Sabotage::Sleep, &[crash(Point { party: A, tag: 3 }, Mode::Synced, 2)], "I7");
}

#[test]
fn sabotage_by_a_wrong_update_is_detected() {
    caught(3, Sabotage::WrongUpdate, &[], "I2: user 1 is 2 times");
}
