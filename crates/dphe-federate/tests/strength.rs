//! The strength of L1, adjusted by the average density of users' weights.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/toy.rs"]
mod toy;

use dphe::Profile;
use dphe_federate::{Average, Error, Simulation, SimulationParams, Stopwatch, Weighting};
use dphe_learn::update::{LocalTrainer, Overflow, Payload};
use dphe_learn::{Seed, Sparsity, StrengthController, Verdict};

const PAPER: Payload = Payload::SparseWeights { weights: 12, overflow: Overflow::Shard };
const CUT: Payload = Payload::SparseDifferences { weights: 8, overflow: Overflow::Truncate };

fn controller(strength: f64) -> StrengthController {
    StrengthController::new(strength, Sparsity::new(0.7).unwrap()).unwrap()
}

fn simulation<A: Average>(payload: Payload, average: A) -> Simulation<A, f64> {
    let (trainer, params) = (toy::trainer(payload), SimulationParams::default());
    Simulation::new(toy::users(4), toy::initial(), trainer, average, params, Seed::new(1)).unwrap()
}

fn profile(payload: Payload) -> Profile {
    if payload == PAPER { Profile::Paper } else { Profile::Sparse }
}

#[test]
fn controller_reaches_the_target_sparsity() {
    for (payload, weighting) in
        [(PAPER, Weighting::Equal), (PAPER, Weighting::Samples { most: 64 }), (CUT, Weighting::Equal)]
    {
        let task = toy::task(profile(payload), payload, weighting, |_| {});
        let run = |encrypted: bool| {
            let stopwatch = &mut Stopwatch::none();
            // Start far too weak.
            let start = controller(0.02);
            if encrypted {
                let average = toy::encrypted(&task, weighting, 4);
                simulation(payload, average).with_controller(start).unwrap().run(12, stopwatch).unwrap()
            } else {
                let average = toy::plain(&task, weighting, 4).rounded();
                simulation(payload, average).with_controller(start).unwrap().run(12, stopwatch).unwrap()
            }
        };
        let (encrypted, plain) = (run(true), run(false));
        let strengths = |reports: &[dphe_federate::RoundReport]| {
            reports.iter().map(|report| report.strength.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(strengths(&encrypted), strengths(&plain));
        assert_eq!(encrypted[0].strength, Some(0.02));
        let settled: f64 = encrypted[8..].iter().map(|report| report.update_sparsity).sum::<f64>() / 4.0;
        println!("{payload:?}: {:?}, sparsity {settled:.3}", strengths(&encrypted));
        assert!(strengths(&encrypted)[11] > 0.08);
        if payload == PAPER {
            assert!((0.65..0.8).contains(&settled), "{settled}");
            assert!(encrypted[0].update_sparsity < 0.4);
        } else {
            // Truncated weights count too. Otherwise the first rounds, all truncated to a tenth, would look sparse.
            assert!(strengths(&encrypted)[1] > 1.9 * 0.02, "{:?}", strengths(&encrypted));
        }
    }
}

#[test]
fn strength_is_halved_once_after_an_alarm() {
    // So strong that hardly a weight is left, with a controller that does not lower it.
    let target = Sparsity::new(0.98).unwrap();
    let strong = StrengthController::new(1.0, target).unwrap();
    let task = toy::task(Profile::Paper, PAPER, Weighting::Equal, |_| {});
    let mut simulation = simulation(PAPER, toy::plain(&task, Weighting::Equal, 4))
        .with_initial_data(toy::data(0, 24))
        .unwrap()
        .with_controller(strong)
        .unwrap();
    let reports = simulation.run(10, &mut Stopwatch::none()).unwrap();
    let alarms: Vec<usize> =
        (0..reports.len()).filter(|&i| reports[i].verdict == Some(Verdict::Diverging)).collect();
    assert_eq!(alarms.len(), 2, "{reports:?}");
    assert_eq!(alarms[1] + 1, reports.len(), "the second ends the run");
    let ceiling = reports[alarms[0]].strength.unwrap() / 2.0 + 1e-12;
    assert!(reports[alarms[0] + 1..].iter().all(|report| report.strength.unwrap() <= ceiling));
    assert_eq!(simulation.global().weights(), &toy::initial(), "the best weights are back");
}

#[test]
fn controller_needs_l1_and_a_dense_value_for_the_density() {
    let blocks = Payload::LargestBlocks { width: toy::CLASSES, blocks: 4, feedback: 0.9 };
    let task = toy::task(Profile::Sparse, blocks, Weighting::Equal, |_| {});
    let refused = simulation(blocks, toy::plain(&task, Weighting::Equal, 4)).with_controller(controller(0.1));
    assert!(refused.unwrap_err().to_string().contains("not d-block"));

    let task = toy::task(Profile::Paper, PAPER, Weighting::Equal, |_| {});
    let average = toy::plain(&task, Weighting::Equal, 4);
    let mut l2 = simulation(PAPER, average.clone());
    l2.set_trainer(LocalTrainer::new(toy::learner(0.0, 0.1), PAPER).unwrap()).unwrap();
    assert!(l2.with_controller(controller(0.1)).unwrap_err().to_string().contains("not L2 alone"));
    // Later trainers need L1 too.
    let mut steered = simulation(PAPER, average).with_controller(controller(0.1)).unwrap();
    assert!(steered.set_trainer(LocalTrainer::new(toy::learner(0.0, 0.1), PAPER).unwrap()).is_err());
    steered.set_trainer(LocalTrainer::new(toy::learner(1.0, 0.1), PAPER).unwrap()).unwrap();

    let silent = toy::task(Profile::Paper, PAPER, Weighting::Equal, |config| config.dense -= 1);
    let simulation = simulation(PAPER, toy::plain(&silent, Weighting::Equal, 4));
    let refused = simulation.with_controller(controller(0.1)).unwrap_err();
    assert_eq!(refused, Error::Shape { what: "dense values", task: 4, model: 5 });
}
