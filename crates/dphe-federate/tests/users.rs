//! Caltech101 with many users, and with users who differ: the accuracy with the server step that follows from the
//! numbers of users, samples and classes. Nothing is encrypted.
//!
//! `DPHE_SPLITS=3 cargo test --release -p dphe-federate --test users -- --ignored --nocapture`
//!
//! Without `DPHE_SPLITS` there is one split.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../dphe-learn/tests/support/caltech.rs"]
mod caltech;

use dphe::{Profile, TaskId, TaskParams};
use dphe_federate::{
    PlainAverage, Scenario, ScenarioParams, Simulation, SimulationParams, Stopwatch, Weighting, propose,
};
use dphe_learn::dataset::Dealing;
use dphe_learn::linear::{Penalty, Schedule, Sgd, SgdParams, Stable};
use dphe_learn::update::{LocalTrainer, Payload};
use dphe_learn::{Dataset, Seed, all_cores};

const ROUNDS: usize = 20;
/// The rounds that are shown.
const MARKS: [usize; 4] = [1, 5, 10, 20];
const BLOCKS: Payload = Payload::LargestBlocks { width: 101, blocks: 205, feedback: 0.9 };
const BY_CLASS: Dealing = Dealing::WholeClasses;

/// Returns the accuracies in percent after each round, and the server step.
fn run(all: &Dataset, users: usize, dealing: Dealing, payload: Payload, split: u64) -> (Vec<f64>, f64) {
    let seed = Seed::new(split);
    let params = ScenarioParams { users, dealing, train_per_class: Some(30), ..ScenarioParams::default() };
    let scenario = Scenario::new(all, &params, &seed).unwrap();
    let schedule = Schedule::Stable(Stable::for_features(scenario.initial.features()));
    let learner = |epochs| -> Sgd {
        let params = SgdParams { penalty: Penalty::DEFAULT, epochs, ..SgdParams::new(schedule) };
        SgdParams { threads: all_cores(), ..params }.check().unwrap()
    };
    let initial = learner(20).fit(&scenario.initial, &seed).unwrap();
    let profile = if payload == BLOCKS { Profile::Sparse } else { Profile::Full };
    let most = users.next_power_of_two().max(8) as u32;
    let config = propose(profile, payload, &initial, most, Weighting::Equal).unwrap();
    let task = TaskParams::new(TaskId::from_bytes([1 + split as u8; 16]), config).unwrap();
    let average = PlainAverage::new(task, Weighting::Equal, users).unwrap();
    let trainer = LocalTrainer::new(learner(5), payload).unwrap();
    let server_step = scenario.user_numbers(users).server_step();
    let params = SimulationParams { server_step, threads: all_cores(), ..SimulationParams::default() };
    let mut simulation = Simulation::new(scenario.users, initial, trainer, average, params, seed)
        .unwrap()
        .with_held_out_data(scenario.held_out)
        .unwrap();
    let reports = simulation.run(ROUNDS, &mut Stopwatch::none()).unwrap();
    (reports.iter().map(|report| 100.0 * report.accuracy.unwrap()).collect(), server_step)
}

/// Returns the mean over splits of the accuracy after the last round, and prints a row.
fn measure(all: &Dataset, users: usize, dealing: Dealing, payload: Payload) -> f64 {
    let splits = std::env::var("DPHE_SPLITS").ok().and_then(|splits| splits.parse().ok()).unwrap_or(1);
    let runs: Vec<_> = (0..splits).map(|split| run(all, users, dealing, payload, split)).collect();
    let mean = |round: usize| runs.iter().map(|(found, _)| found[round - 1]).sum::<f64>() / runs.len() as f64;
    let found = MARKS.map(|round| format!("{:.1}", mean(round))).join(" / ");
    let name = if payload == BLOCKS { "d-block" } else { "rotate" };
    println!("| {users} | {dealing:?} | `{name}` | {} | {found} |", runs[0].1);
    mean(ROUNDS)
}

#[test]
#[ignore = "minutes per split; needs Caltech101 features"]
fn many_users_and_users_who_differ_are_as_accurate_as_few() {
    let Some(directory) = caltech::directory() else { return };
    let all = caltech::load(&directory);
    println!("| users | shares | payload | server step | accuracy after 1 / 5 / 10 / 20 rounds, % |");
    for payload in [Payload::Rotating, BLOCKS] {
        let few = measure(&all, 5, Dealing::Disjoint, payload);
        for (users, dealing, points) in [
            (50, Dealing::Disjoint, 1.0),
            (100, Dealing::Disjoint, 1.0),
            (50, Dealing::Dirichlet { alpha: 0.5 }, 1.0),
            (5, BY_CLASS, 1.5),
            (50, BY_CLASS, 1.5),
            (101, BY_CLASS, 1.5),
            (50, Dealing::ByAmount { ratio: 100.0 }, 1.0),
        ] {
            let found = measure(&all, users, dealing, payload);
            assert!(found >= few - points, "{users} {dealing:?} {payload:?}: {found}, {few} with five users");
        }
    }
}
