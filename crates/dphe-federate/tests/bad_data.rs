//! Unusual and invalid data in a simulation. Invalid data are refused, and a refused round changes nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/toy.rs"]
mod toy;

use dphe::Profile;
use dphe_federate::{
    Average, DpheAverage, Error, Participation, Simulation, SimulationParams, Stopwatch, Weighting,
};
use dphe_learn::update::{Overflow, Payload};
use dphe_learn::{Dataset, Features, Labels, Seed};

const SAMPLES: Weighting = Weighting::Samples { most: 64 };

fn simulation<A: Average>(payload: Payload, average: A, users: Vec<Dataset<f64>>) -> Simulation<A, f64> {
    let params = SimulationParams::default();
    Simulation::new(users, toy::initial(), toy::trainer(payload), average, params, Seed::new(1)).unwrap()
}

fn encrypted(payload: Payload, users: Vec<Dataset<f64>>) -> Simulation<impl Average, f64> {
    let profile =
        if matches!(payload, Payload::Rotating | Payload::All) { Profile::Full } else { Profile::Sparse };
    let task = toy::task(profile, payload, SAMPLES, |_| {});
    simulation(payload, toy::encrypted(&task, SAMPLES, users.len()), users)
}

/// One payload of each kind that can fail differently.
fn payloads() -> [Payload; 5] {
    [
        Payload::Rotating,
        Payload::All,
        Payload::LargestBlocks { width: toy::CLASSES, blocks: 4, feedback: 0.9 },
        Payload::SparseWeights { weights: 60, overflow: Overflow::Truncate },
        Payload::SparseDifferences { weights: 60, overflow: Overflow::Truncate },
    ]
}

/// Returns the data with changed features.
fn changed(data: &Dataset<f64>, change: impl Fn(usize, f64) -> f64) -> Dataset<f64> {
    let values = data.features().values().iter().enumerate().map(|(i, &v)| change(i, v)).collect();
    data.with_features(Features::new(toy::WIDTH, values).unwrap()).unwrap()
}

#[test]
fn features_that_are_not_finite_and_unknown_labels_are_refused() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut values = toy::data(1, 8).features().values().to_vec();
        values[3 * toy::WIDTH + 5] = bad;
        let refused = Features::new(toy::WIDTH, values).unwrap_err();
        assert_eq!(refused, dphe_learn::Error::FeatureNotFinite { sample: 3, feature: 5 });
        assert!(refused.to_string().contains("repair or drop"), "{refused}");
    }
    let refused = Labels::classes(toy::CLASSES, vec![0, 3, 4]).unwrap_err();
    assert_eq!(refused, dphe_learn::Error::LabelRange { sample: 2, label: 4, classes: 4 });
    // Labels of a larger problem are valid there, but not in this model.
    let labels = Labels::classes(5, vec![0, 4]).unwrap();
    let other = Dataset::new(Features::new(toy::WIDTH, vec![0.5; 2 * toy::WIDTH]).unwrap(), labels).unwrap();
    let mut users = toy::users(3);
    users[2] = other;
    let task = toy::task(Profile::Full, Payload::All, Weighting::Equal, |_| {});
    let average = toy::plain(&task, Weighting::Equal, 3);
    let (trainer, params) = (toy::trainer(Payload::All), SimulationParams::default());
    let refused = Simulation::new(users, toy::initial(), trainer, average, params, Seed::new(1)).unwrap_err();
    let source = dphe_learn::Error::Shape { what: "classes", expected: 4, found: 5 };
    assert_eq!(refused, Error::OfUser { user: 2, source });
}

#[test]
fn users_with_unusual_data_take_part_with_every_payload() {
    for payload in payloads() {
        // One class, one sample, constant features, zero features.
        let odd = vec![
            toy::data_of(1, 30, 1),
            toy::data(2, 1),
            changed(&toy::data(3, 24), |i, v| if i % toy::WIDTH < 5 { 1.0 } else { v }),
            changed(&toy::data(4, 24), |_, _| 0.0),
            toy::data(5, 60),
        ];
        let mut simulation = encrypted(payload, odd).with_held_out_data(toy::data(77, 80)).unwrap();
        let reports = simulation.run(4, &mut Stopwatch::none()).unwrap();
        assert_eq!(reports.len(), 4);
        let last = reports.last().unwrap().accuracy.unwrap();
        println!("{payload:?}: {last:.2}");
        assert!(last > 0.5, "{payload:?}: {last}, and guessing gives 0.25");
        assert!(simulation.missing_classes().is_empty());
    }
}

#[test]
fn missing_classes_are_named_with_every_payload() {
    for payload in payloads() {
        let users = (0..3).map(|user| toy::data_of(user, 30, 3)).collect();
        let mut simulation = encrypted(payload, users).with_held_out_data(toy::data_of(9, 60, 3)).unwrap();
        assert_eq!(simulation.missing_classes(), [3]);
        let reports = simulation.run(4, &mut Stopwatch::none()).unwrap();
        assert!(reports.last().unwrap().accuracy > Some(0.6), "{payload:?}: {reports:?}");
    }
}

#[test]
fn nonzeros_that_do_not_fit_the_allowed_shards_are_refused() {
    // The paper's payload with room for one shard.
    let payload = Payload::SparseWeights { weights: 12, overflow: Overflow::Shard };
    let task = toy::task(Profile::Paper, payload, Weighting::Equal, |config| config.shards = 1);
    let mut simulation = simulation(payload, toy::encrypted(&task, Weighting::Equal, 3), toy::users(3));
    let refused = simulation.round(&mut Stopwatch::none()).unwrap_err();
    let capacity =
        matches!(refused, Error::Protocol(dphe::Error::Capacity { capacity: 12, occupied }) if occupied > 12);
    assert!(capacity, "{refused}");
    assert!(refused.hint().unwrap().contains("shards"));
    assert_eq!((simulation.global().weights(), simulation.next_round().get()), (&toy::initial(), 1));
    // With `Overflow::Refuse`, the user's own payload refuses.
    let strict = Payload::SparseDifferences { weights: 2, overflow: Overflow::Refuse };
    let refused = encrypted(strict, toy::users(3)).round(&mut Stopwatch::none()).unwrap_err();
    assert!(refused.to_string().starts_with("user 1: the classifier has"), "{refused}");
    assert!(refused.to_string().contains("raise the strength or the capacity"), "{refused}");
}

#[test]
fn fewer_than_three_users_are_refused() {
    let task = toy::task(Profile::Full, Payload::Rotating, Weighting::Equal, |_| {});
    let too_few = Error::TooFewUsers { users: 2, needed: 3 };
    let rng = <chacha20::ChaCha20Rng as rand_core::SeedableRng>::seed_from_u64(1);
    let refused = DpheAverage::new(task.clone(), Weighting::Equal, 2, rng, dphe::Threads::all());
    assert_eq!(refused.unwrap_err(), too_few);
    let average = || toy::plain(&task, Weighting::Equal, 5);
    let (trainer, params) = (toy::trainer(Payload::Rotating), SimulationParams::default());
    let refused =
        Simulation::new(toy::users(2), toy::initial(), trainer.clone(), average(), params, Seed::new(1));
    assert_eq!(refused.unwrap_err(), too_few);
    let params = SimulationParams { participation: Participation::Some(2), ..params };
    let mut few =
        Simulation::new(toy::users(5), toy::initial(), trainer, average(), params, Seed::new(1)).unwrap();
    assert_eq!(few.round(&mut Stopwatch::none()).unwrap_err(), too_few);
    // No task allows fewer.
    let mut config = task.config().clone();
    config.min_users = 2;
    assert!(dphe::hazmat::task_params(task.id(), config).is_err());
}

#[test]
fn divergence_is_reported_with_the_user_and_a_remedy() {
    for payload in payloads() {
        // Features that are not standardised.
        let mut users = toy::users(3);
        users[1] = changed(&users[1], |_, v| v * 1e200);
        let mut simulation = encrypted(payload, users);
        let refused = simulation.round(&mut Stopwatch::none()).unwrap_err();
        println!("{payload:?}: {refused}");
        let Error::OfUser { user: 1, source: dphe_learn::Error::Diverged { epoch: 1, remedy, .. } } = refused
        else {
            panic!("{payload:?}: {refused}")
        };
        assert!(remedy.contains("standardise"), "{remedy}");
        assert_eq!((simulation.global().weights(), simulation.next_round().get()), (&toy::initial(), 1));
        // The round continues without that user if enough are left.
        let mut users = toy::users(4);
        users[1] = changed(&users[1], |_, v| v * 1e200);
        let mut simulation = encrypted(payload, users);
        assert!(simulation.round(&mut Stopwatch::none()).is_err());
        simulation.round_of(&[0, 2, 3], &mut Stopwatch::none()).unwrap();
        assert_eq!(simulation.next_round().get(), 2);
    }
}
