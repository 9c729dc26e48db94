//! Rounds of a simulation: they are reproducible, users may be missing, and mismatches are refused.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/toy.rs"]
mod toy;

use core::time::Duration;

use dphe::Profile;
use dphe_federate::{
    Average, DpheAverage, Error, Participation, PlainAverage, Simulation, SimulationParams, Stopwatch,
    Weighting, propose,
};
use dphe_learn::linear::{Schedule, SgdParams, Stable};
use dphe_learn::update::{LONGEST_CHANGE, LocalTrainer, Overflow, Payload};
use dphe_learn::{Dataset, Features, Labels, Seed, Weights};

const BLOCKS: Payload = Payload::LargestBlocks { width: toy::CLASSES, blocks: 4, feedback: 0.9 };

fn with<A: Average>(
    payload: Payload,
    average: A,
    users: Vec<Dataset<f64>>,
    params: SimulationParams,
    seed: u64,
) -> Result<Simulation<A, f64>, Error> {
    Simulation::new(users, toy::initial(), toy::trainer(payload), average, params, Seed::new(seed))
}

fn plain(
    payload: Payload,
    users: usize,
    params: SimulationParams,
    seed: u64,
) -> Simulation<PlainAverage, f64> {
    let profile = if payload == Payload::Rotating { Profile::Full } else { Profile::Sparse };
    let task = toy::task(profile, payload, Weighting::Equal, |_| {});
    let average = toy::plain(&task, Weighting::Equal, users);
    with(payload, average, toy::users(users), params, seed).unwrap()
}

#[test]
fn equal_seeds_give_equal_weights() {
    let run = |seed| {
        let params =
            SimulationParams { participation: Participation::Some(4), ..SimulationParams::default() };
        let task = toy::task(Profile::Sparse, BLOCKS, Weighting::Equal, |_| {});
        let average = toy::encrypted(&task, Weighting::Equal, 6);
        let mut simulation = with(BLOCKS, average, toy::users(6), params, seed).unwrap();
        let reports = simulation.run(4, &mut Stopwatch::none()).unwrap();
        (reports, simulation.global().clone())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).1, run(2).1);
}

#[test]
fn users_may_be_missing_down_to_three() {
    let some =
        |count| SimulationParams { participation: Participation::Some(count), ..SimulationParams::default() };
    let mut simulation = plain(BLOCKS, 6, some(3), 1);
    let reports = simulation.run(5, &mut Stopwatch::none()).unwrap();
    assert!(reports.iter().all(|report| report.users == 3));
    assert_eq!(simulation.next_round().get(), 6);

    let before = simulation.global().clone();
    let refused = simulation.round_of(&[0, 5], &mut Stopwatch::none()).unwrap_err();
    assert_eq!(refused, Error::TooFewUsers { users: 2, needed: 3 });
    for (users, user) in [([0, 1, 6], 6), ([0, 1, 1], 1)] {
        let refused = simulation.round_of(&users, &mut Stopwatch::none()).unwrap_err();
        assert!(matches!(refused, Error::Participant { user: u, users: 6, .. } if u == user), "{refused}");
    }
    assert_eq!((simulation.global(), simulation.next_round().get()), (&before, 6), "nothing has changed");
    simulation.round_of(&[5, 0, 3], &mut Stopwatch::none()).unwrap();
    assert_ne!(simulation.global(), &before);

    assert!(matches!(
        plain(BLOCKS, 6, some(2), 1).round(&mut Stopwatch::none()),
        Err(Error::TooFewUsers { .. })
    ));
    let task = toy::task(Profile::Sparse, BLOCKS, Weighting::Equal, |_| {});
    let rng = <chacha20::ChaCha20Rng as rand_core::SeedableRng>::seed_from_u64(1);
    let refused = DpheAverage::new(task.clone(), Weighting::Equal, 2, rng, dphe::Threads::all()).unwrap_err();
    assert_eq!(refused, Error::TooFewUsers { users: 2, needed: 3 });
    let refused =
        with(BLOCKS, toy::plain(&task, Weighting::Equal, 2), toy::users(2), some(3), 1).unwrap_err();
    assert_eq!(refused, Error::TooFewUsers { users: 2, needed: 3 });
    let small = toy::task(Profile::Sparse, BLOCKS, Weighting::Equal, |config| config.max_users = 4);
    let average = toy::plain(&small, Weighting::Equal, 5);
    let mut crowd = with(BLOCKS, average, toy::users(5), SimulationParams::default(), 1).unwrap();
    let refused = crowd.round(&mut Stopwatch::none()).unwrap_err();
    assert_eq!(refused, Error::TooManyUsers { users: 5, most: 4 });
}

#[test]
fn missing_class_is_named_and_accuracy_of_the_others_holds() {
    let task = toy::task(Profile::Full, Payload::Rotating, Weighting::Equal, |_| {});
    let users: Vec<_> = (0..3).map(|user| toy::data_of(user, 30, 3)).collect();
    let average = toy::encrypted(&task, Weighting::Equal, 3);
    let mut simulation = with(Payload::Rotating, average, users, SimulationParams::default(), 1)
        .unwrap()
        .with_held_out_data(toy::data_of(9, 60, 3))
        .unwrap();
    assert_eq!(simulation.missing_classes(), [3]);
    let reports = simulation.run(8, &mut Stopwatch::none()).unwrap();
    assert!(reports.last().unwrap().accuracy > Some(0.9), "{reports:?}");
}

#[test]
fn users_with_one_class_or_one_sample_take_part() {
    let task = toy::task(Profile::Full, Payload::Rotating, Weighting::Samples { most: 64 }, |_| {});
    let users = vec![toy::data_of(1, 30, 1), toy::data(2, 1), toy::data(3, 60)];
    let average = toy::encrypted(&task, Weighting::Samples { most: 64 }, 3);
    let mut simulation = with(Payload::Rotating, average, users, SimulationParams::default(), 1).unwrap();
    simulation.run(4, &mut Stopwatch::none()).unwrap();
}

#[test]
fn mismatched_users_models_and_tasks_are_refused() {
    let params = SimulationParams::default();
    let task = toy::task(Profile::Sparse, BLOCKS, Weighting::Equal, |_| {});
    let average = || toy::plain(&task, Weighting::Equal, 3);

    // A user with other features, or with other classes.
    let narrow = Dataset::new(
        Features::new(2, vec![0.5; 6]).unwrap(),
        Labels::classes(toy::CLASSES, vec![0, 1, 2]).unwrap(),
    )
    .unwrap();
    let mut users = toy::users(3);
    users[1] = narrow;
    let refused = with(BLOCKS, average(), users, params, 1).unwrap_err();
    assert!(matches!(refused, Error::OfUser { user: 1, .. }), "{refused}");
    assert!(refused.to_string().starts_with("user 2: features: expected 20, found 2"), "{refused}");

    // A task for another model.
    let other = Weights::zeros(toy::WIDTH + 1, toy::CLASSES).unwrap();
    let refused =
        Simulation::new(toy::users(3), other, toy::trainer(BLOCKS), average(), params, Seed::new(1))
            .unwrap_err();
    assert_eq!(refused, Error::Shape { what: "weights", task: 80, model: 84 });
    let weighted = toy::task(Profile::Sparse, BLOCKS, Weighting::Samples { most: 64 }, |_| {});
    let refused = with(BLOCKS, toy::plain(&weighted, Weighting::Equal, 3), toy::users(3), params, 1);
    assert!(matches!(refused, Err(Error::Shape { what: "dense values", task: 5, model: 4 })));

    // A payload of another profile.
    let refused = with(Payload::Rotating, average(), toy::users(3), params, 1).unwrap_err();
    assert!(
        matches!(refused, Error::Unsuited { payload: dphe_federate::PayloadName::Rotate, .. }),
        "{refused}"
    );
    let share = toy::task(Profile::Full, Payload::Rotating, Weighting::Equal, |_| {});
    let refused = with(BLOCKS, toy::plain(&share, Weighting::Equal, 3), toy::users(3), params, 1);
    assert!(matches!(refused, Err(Error::Unsuited { payload: dphe_federate::PayloadName::DBlock, .. })));

    // A negative server step.
    let back = SimulationParams { server_step: -1.0, ..params };
    let refused = with(BLOCKS, average(), toy::users(3), back, 1);
    assert!(matches!(refused, Err(Error::Parameter { name: "server step", .. })));

    // Counts that the fixed point cannot represent.
    let coarse = toy::task(Profile::Full, Payload::Rotating, Weighting::Equal, |c| {
        c.clip_exponent = -10;
    });
    assert!(PlainAverage::new(coarse, Weighting::Samples { most: 64 }, 3).is_err());
}

#[test]
fn update_beyond_the_capacity_is_refused_and_changes_nothing() {
    let params = SimulationParams::default();
    let payload = Payload::LargestDifferences { weights: 12, feedback: 0.9 };
    let task = toy::task(Profile::Sparse, payload, Weighting::Equal, |config| config.capacity = 5);
    let average = toy::encrypted(&task, Weighting::Equal, 3);
    let mut simulation = with(payload, average, toy::users(3), params, 1).unwrap();
    let refused = simulation.round(&mut Stopwatch::none()).unwrap_err();
    assert!(
        matches!(refused, Error::Protocol(dphe::Error::Capacity { occupied: 12, capacity: 5 })),
        "{refused}"
    );
    assert!(refused.hint().unwrap().contains("capacity"));
    assert_eq!((simulation.global().weights(), simulation.next_round().get()), (&toy::initial(), 1));
    // The next attempt, with a payload that fits, succeeds.
    let smaller = Payload::LargestDifferences { weights: 5, feedback: 0.9 };
    simulation.set_trainer(toy::trainer(smaller)).unwrap();
    simulation.round(&mut Stopwatch::none()).unwrap();

    // The limit of the payload itself, reported with the user.
    let strict = Payload::SparseWeights { weights: 2, overflow: Overflow::Refuse };
    let refused = plain(strict, 3, params, 1).round(&mut Stopwatch::none()).unwrap_err();
    let capacity =
        matches!(refused, Error::OfUser { user: 0, source: dphe_learn::Error::Capacity { capacity: 2, .. } });
    assert!(capacity, "{refused}");
}

#[test]
fn reports_are_json_with_times_of_the_given_clock() {
    let task = toy::task(Profile::Sparse, BLOCKS, Weighting::Equal, |_| {});
    let average = toy::encrypted(&task, Weighting::Equal, 3);
    let mut simulation = with(BLOCKS, average, toy::users(3), SimulationParams::default(), 1)
        .unwrap()
        .with_initial_data(toy::data(0, 24))
        .unwrap();
    let mut ticks = 0;
    let mut stopwatch = Stopwatch::new(move || {
        ticks += 1;
        Duration::from_secs(ticks)
    });
    let report = simulation.round(&mut stopwatch).unwrap();
    let json = serde_json::to_value(&report).unwrap();
    let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "accuracy",
            "average_sparsity",
            "bytes",
            "ciphertexts",
            "clipped",
            "initial_accuracy",
            "relative_change",
            "round",
            "seconds",
            "server_step",
            "shards",
            "singles",
            "strength",
            "update_sparsity",
            "users",
            "verdict"
        ]
    );
    // One tick for training, one per user for sealing, one per user and one more for adding, one for opening.
    assert_eq!(json["seconds"]["seal"], 3.0);
    assert_eq!(json["seconds"]["aggregate"], 4.0);
    assert_eq!((&json["seconds"]["train"], &json["seconds"]["open"]), (&1.0.into(), &1.0.into()));
    assert_eq!((&json["accuracy"], &json["verdict"]), (&().into(), &"continue".into()));
    // Four blocks, the intercepts and the check at 128 bytes each, and four bytes per index.
    assert_eq!((&json["ciphertexts"], &json["bytes"]), (&6.into(), &(6 * 128 + 4 * 4).into()));
    assert_eq!(report.update_sparsity, 0.8);
}

#[test]
fn diverging_run_ends_with_the_best_weights() {
    let params = SimulationParams::default();
    let mut simulation = plain(BLOCKS, 4, params, 1).with_initial_data(toy::data(0, 24)).unwrap();
    let wild = Stable { step: 1e3, ..Stable::for_features(toy::data(0, 24).features()) };
    let wild = SgdParams { epochs: 1, ..SgdParams::new(Schedule::Stable(wild)) }.check().unwrap();
    simulation.set_trainer(LocalTrainer::new(wild, BLOCKS).unwrap()).unwrap();
    let reports = simulation.run(10, &mut Stopwatch::none()).unwrap();
    assert!(reports.len() < 10, "{reports:?}");
    assert_eq!(simulation.global().weights(), &toy::initial());
}

#[test]
fn server_steps_that_would_diverge_are_shortened() {
    for payload in [BLOCKS, Payload::Rotating] {
        let params = SimulationParams { server_step: 50.0, ..SimulationParams::default() };
        let mut simulation = plain(payload, 4, params, 1).with_initial_data(toy::data(0, 24)).unwrap();
        for _ in 0..10 {
            let report = simulation.round(&mut Stopwatch::none()).unwrap();
            assert!((1.0..50.0).contains(&report.server_step), "{report:?}");
            let most = LONGEST_CHANGE / (report.round as f64).sqrt();
            assert!(report.server_step == 1.0 || report.relative_change <= most * (1.0 + 1e-9), "{report:?}");
            // the initial weights know all initial samples, and one answer in four is right by chance
            assert!(report.initial_accuracy.unwrap() > 0.5, "{report:?}");
        }
    }
    // Plain steps are never shortened, and averages of whole classifiers have none.
    let params = SimulationParams { server_step: 1.0, ..SimulationParams::default() };
    let report = plain(BLOCKS, 4, params, 1).round(&mut Stopwatch::none()).unwrap();
    assert_eq!(report.server_step, 1.0);
    let params = SimulationParams { server_step: 50.0, ..SimulationParams::default() };
    let whole = Payload::LargestWeights { weights: 40 };
    let report = plain(whole, 4, params, 1).round(&mut Stopwatch::none()).unwrap();
    assert_eq!(report.server_step, 1.0);
}

#[test]
fn steps_shrink_with_every_pass_over_the_features() {
    // Four shares of five features, so the second pass starts with round 5.
    let change = |shrink_steps| {
        let params = SimulationParams { shrink_steps, ..SimulationParams::default() };
        let mut simulation = plain(Payload::Rotating, 3, params, 1);
        let reports = simulation.run(8, &mut Stopwatch::none()).unwrap();
        reports.iter().map(|report| report.relative_change).collect::<Vec<_>>()
    };
    let (shrinking, plain) = (change(true), change(false));
    assert_eq!(shrinking[..4], plain[..4]);
    assert!(shrinking[4] < plain[4]);
}

#[test]
fn unsuited_payloads_are_refused_by_proposals() {
    let trainer = LocalTrainer::new(toy::learner(0.0, 1e-3), Payload::Rotating).unwrap();
    let refused =
        propose(Profile::Paper, trainer.payload(), &toy::initial(), 8, Weighting::Equal).unwrap_err();
    assert!(refused.to_string().contains("`paper`"), "{refused}");
}
