//! Caltech101 by the paper's protocol, five users, real keys.
//!
//! `cargo test --release -p dphe-federate --test caltech -- --ignored --nocapture`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../dphe-learn/tests/support/caltech.rs"]
mod caltech;

use std::time::Instant;

use chacha20::ChaCha20Rng;
use dphe::{NoiseMode, Profile, TaskId, TaskParams};
use dphe_federate::{
    Average, DpheAverage, PlainAverage, RoundReport, Simulation, SimulationParams, Stopwatch, Weighting,
    propose,
};
use dphe_learn::linear::{Schedule, SgdParams, Stable};
use dphe_learn::metrics::mean_per_class_accuracy;
use dphe_learn::update::{LocalTrainer, Message};
use dphe_learn::{Seed, Threads, Weights};
use rand_core::SeedableRng;

const USERS: usize = 5;

fn run<A: Average>(
    task: &caltech::Task,
    trainer: &LocalTrainer,
    initial: &Weights,
    average: A,
    rounds: usize,
) -> (Vec<RoundReport>, Weights) {
    let params = SimulationParams { threads: Threads::all(), ..SimulationParams::default() };
    let (users, seed) = (task.users.clone(), Seed::new(0));
    let mut simulation = Simulation::new(users, initial.clone(), trainer.clone(), average, params, seed)
        .unwrap()
        .with_held_out_data(task.test.clone())
        .unwrap();
    let start = Instant::now();
    let reports = simulation.run(rounds, &mut Stopwatch::new(move || start.elapsed())).unwrap();
    (reports, simulation.global().clone())
}

/// Plain, rounded and encrypted runs of a message; returns the accuracy of all data in one place, and the reports.
fn compare(profile: Profile, message: Message, rounds: usize) -> Option<(f64, Vec<RoundReport>)> {
    let task = caltech::Task::new(&caltech::load(&caltech::folder()?), USERS, 0);
    let schedule = Schedule::Stable(Stable::for_features(task.initial.features()));
    let learner =
        |epochs| SgdParams { epochs, threads: Threads::all(), ..SgdParams::new(schedule) }.check().unwrap();
    let initial = learner(20).fit(&task.initial, &Seed::new(0)).unwrap();
    let pooled = learner(10).fit(&task.train, &Seed::new(0)).unwrap();
    let pooled = pooled.scores(task.test.features(), Threads::all()).unwrap().best();
    let pooled =
        mean_per_class_accuracy(task.test.labels().as_classes("accuracy").unwrap(), &pooled).unwrap();
    println!("{message:?}; all data in one place: {:.2} %", 100.0 * pooled);

    let trainer = LocalTrainer::new(learner(5), message).unwrap();
    let mut config = propose(profile, message, &initial, 8, Weighting::Equal).unwrap();
    config.key_bits = 2048;
    config.noise = NoiseMode::Fast;
    let params = TaskParams::new(TaskId::from_bytes([1; 16]), config).unwrap();
    let plain = PlainAverage::new(params.clone(), Weighting::Equal, USERS).unwrap();
    let (plain_reports, plain_weights) = run(&task, &trainer, &initial, plain.clone(), rounds);
    let (_, rounded_weights) = run(&task, &trainer, &initial, plain.rounded(), rounds);
    let (rng, threads) = (ChaCha20Rng::seed_from_u64(1), dphe::Threads::all());
    let encrypted = DpheAverage::new(params, Weighting::Equal, USERS, rng, threads).unwrap();
    let (reports, weights) = run(&task, &trainer, &initial, encrypted, rounds);
    for report in &reports {
        let (cost, seconds) = (report.cost, report.seconds.unwrap());
        println!(
            "round {:2}: {:.2} %, {} ciphertexts, {} bytes, singles {:.2?}; \
             train {:.2} s, seal {:.2} s, add {:.3} s, open {:.2} s",
            report.round,
            100.0 * report.accuracy.unwrap(),
            cost.ciphertexts,
            cost.bytes,
            cost.singles,
            seconds.train,
            seconds.seal,
            seconds.aggregate,
            seconds.open
        );
    }
    println!(
        "from the plain run: {:.1e}; it ends with {:.2} %",
        weights.relative_change(&plain_weights).unwrap(),
        100.0 * plain_reports.last().unwrap().accuracy.unwrap()
    );
    assert_eq!(weights, rounded_weights);
    Some((pooled, reports))
}

#[test]
#[ignore = "a minute; needs Caltech101 features"]
fn rotating_blocks_under_a_real_key() {
    let Some((pooled, reports)) = compare(Profile::Full, Message::Rotating, 15) else { return };
    assert!(reports[5].accuracy.unwrap() > pooled - 0.025, "one split only, so with a margin");
    assert!(reports[14].accuracy.unwrap() > pooled - 0.015, "one split only, so with a margin");
}

#[test]
#[ignore = "a minute; needs Caltech101 features"]
fn hidden_blocks_under_a_real_key() {
    let message = Message::LargestBlocks { width: 51, capacity: 406, feedback: 0.9 };
    let Some((_, reports)) = compare(Profile::Sparse, message, 2) else { return };
    assert!(reports[1].accuracy > reports[0].accuracy);
}
