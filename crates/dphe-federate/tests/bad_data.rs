//! Data that somebody might bring to a simulation: refused by name where it cannot work, harmless where it can. A
//! refused round changes nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/toy.rs"]
mod toy;

use dphe::Profile;
use dphe_federate::{
    Average, DpheAverage, Error, Participation, Simulation, SimulationParams, Stopwatch, Weighting,
};
use dphe_learn::update::{Message, Overflow};
use dphe_learn::{Dataset, Features, Labels, Seed};

const SAMPLES: Weighting = Weighting::Samples { most: 64 };

fn simulation<A: Average>(message: Message, average: A, users: Vec<Dataset<f64>>) -> Simulation<A, f64> {
    let params = SimulationParams::default();
    Simulation::new(users, toy::initial(), toy::trainer(message), average, params, Seed::new(1)).unwrap()
}

fn encrypted(message: Message, users: Vec<Dataset<f64>>) -> Simulation<impl Average, f64> {
    let profile =
        if matches!(message, Message::Rotating | Message::Full) { Profile::Full } else { Profile::Sparse };
    let task = toy::task(profile, message, SAMPLES, |_| {});
    simulation(message, toy::encrypted(&task, SAMPLES, users.len()), users)
}

/// The messages of all kinds, by what can go wrong in them.
fn messages() -> [Message; 5] {
    [
        Message::Rotating,
        Message::Full,
        Message::LargestBlocks { width: toy::CLASSES, capacity: 4, feedback: 0.9 },
        Message::SparseWeights { capacity: 60, overflow: Overflow::Truncate },
        Message::SparseDifferences { capacity: 60, overflow: Overflow::Truncate },
    ]
}

/// A user's features, changed.
fn changed(data: &Dataset<f64>, change: impl Fn(usize, f64) -> f64) -> Dataset<f64> {
    let values = data.features().values().iter().enumerate().map(|(i, &v)| change(i, v)).collect();
    data.with_features(Features::new(toy::WIDTH, values).unwrap()).unwrap()
}

#[test]
fn features_that_are_no_numbers_and_labels_that_name_no_class_get_no_further_than_their_file() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut values = toy::data(1, 8).features().values().to_vec();
        values[3 * toy::WIDTH + 5] = bad;
        let refused = Features::new(toy::WIDTH, values).unwrap_err();
        assert_eq!(refused, dphe_learn::Error::FeatureNotFinite { sample: 3, feature: 5 });
        assert!(refused.to_string().contains("repair or drop"), "{refused}");
    }
    let refused = Labels::classes(toy::CLASSES, vec![0, 3, 4]).unwrap_err();
    assert_eq!(refused, dphe_learn::Error::LabelRange { sample: 2, label: 4, classes: 4 });
    // labels of a larger problem are in range there, but not in this model
    let labels = Labels::classes(5, vec![0, 4]).unwrap();
    let other = Dataset::new(Features::new(toy::WIDTH, vec![0.5; 2 * toy::WIDTH]).unwrap(), labels).unwrap();
    let mut users = toy::users(3);
    users[2] = other;
    let task = toy::task(Profile::Full, Message::Full, Weighting::Equal, |_| {});
    let average = toy::plain(&task, Weighting::Equal, 3);
    let (trainer, params) = (toy::trainer(Message::Full), SimulationParams::default());
    let refused = Simulation::new(users, toy::initial(), trainer, average, params, Seed::new(1)).unwrap_err();
    let source = dphe_learn::Error::Shape { what: "classes", expected: 4, found: 5 };
    assert_eq!(refused, Error::OfUser { user: 2, source });
}

#[test]
fn odd_users_take_part_in_every_message() {
    for message in messages() {
        // one class, one sample, features that never change, features that are all zero
        let odd = vec![
            toy::data_of(1, 30, 1),
            toy::data(2, 1),
            changed(&toy::data(3, 24), |i, v| if i % toy::WIDTH < 5 { 1.0 } else { v }),
            changed(&toy::data(4, 24), |_, _| 0.0),
            toy::data(5, 60),
        ];
        let mut simulation = encrypted(message, odd).with_held_out_data(toy::data(77, 80)).unwrap();
        let reports = simulation.run(4, &mut Stopwatch::none()).unwrap();
        assert_eq!(reports.len(), 4);
        let last = reports.last().unwrap().accuracy.unwrap();
        println!("{message:?}: {last:.2}");
        assert!(last > 0.5, "{message:?}: {last}, and guessing gives 0.25");
        assert!(simulation.missing_classes().is_empty());
    }
}

#[test]
fn a_class_that_nobody_has_is_named_in_every_message() {
    for message in messages() {
        let users = (0..3).map(|user| toy::data_of(user, 30, 3)).collect();
        let mut simulation = encrypted(message, users).with_held_out_data(toy::data_of(9, 60, 3)).unwrap();
        assert_eq!(simulation.missing_classes(), [3]);
        let reports = simulation.run(4, &mut Stopwatch::none()).unwrap();
        assert!(reports.last().unwrap().accuracy > Some(0.6), "{message:?}: {reports:?}");
    }
}

#[test]
fn more_non_zeros_than_one_shard_holds_are_refused_where_shards_are_forbidden() {
    // the paper's message with room for one shard
    let message = Message::SparseWeights { capacity: 12, overflow: Overflow::Shard };
    let task = toy::task(Profile::Paper, message, Weighting::Equal, |config| config.shards = 1);
    let mut simulation = simulation(message, toy::encrypted(&task, Weighting::Equal, 3), toy::users(3));
    let refused = simulation.round(&mut Stopwatch::none()).unwrap_err();
    let capacity =
        matches!(refused, Error::Protocol(dphe::Error::Capacity { capacity: 12, occupied }) if occupied > 12);
    assert!(capacity, "{refused}");
    assert!(refused.advice().unwrap().contains("shards"));
    assert_eq!((simulation.global(), simulation.next_round().get()), (&toy::initial(), 1));
    // or none at all, which the user's own learner says
    let strict = Message::SparseDifferences { capacity: 2, overflow: Overflow::Refuse };
    let refused = encrypted(strict, toy::users(3)).round(&mut Stopwatch::none()).unwrap_err();
    assert!(refused.to_string().starts_with("user 0: the classifier has"), "{refused}");
    assert!(refused.to_string().contains("raise the capacity"), "{refused}");
}

#[test]
fn fewer_than_three_users_are_refused_wherever_they_turn_up() {
    let task = toy::task(Profile::Full, Message::Rotating, Weighting::Equal, |_| {});
    let too_few = Error::TooFewUsers { users: 2, needed: 3 };
    let rng = <chacha20::ChaCha20Rng as rand_core::SeedableRng>::seed_from_u64(1);
    let refused = DpheAverage::new(task.clone(), Weighting::Equal, 2, rng, dphe::Threads::all());
    assert_eq!(refused.unwrap_err(), too_few);
    let average = || toy::plain(&task, Weighting::Equal, 5);
    let (trainer, params) = (toy::trainer(Message::Rotating), SimulationParams::default());
    let refused =
        Simulation::new(toy::users(2), toy::initial(), trainer.clone(), average(), params, Seed::new(1));
    assert_eq!(refused.unwrap_err(), too_few);
    let params = SimulationParams { participation: Participation::Some(2), ..params };
    let mut few =
        Simulation::new(toy::users(5), toy::initial(), trainer, average(), params, Seed::new(1)).unwrap();
    assert_eq!(few.round(&mut Stopwatch::none()).unwrap_err(), too_few);
    // nor may a task be made that would allow it
    let mut config = task.config().clone();
    config.min_users = 2;
    assert!(dphe::hazmat::task_params(task.id(), config).is_err());
}

#[test]
fn weights_that_diverge_are_noticed_in_the_epoch_they_do_with_the_user_and_a_remedy() {
    for message in messages() {
        // features that nobody standardised
        let mut users = toy::users(3);
        users[1] = changed(&users[1], |_, v| v * 1e200);
        let mut simulation = encrypted(message, users);
        let refused = simulation.round(&mut Stopwatch::none()).unwrap_err();
        println!("{message:?}: {refused}");
        let Error::OfUser { user: 1, source: dphe_learn::Error::Diverged { epoch: 1, remedy, .. } } = refused
        else {
            panic!("{message:?}: {refused}")
        };
        assert!(remedy.contains("standardise"), "{remedy}");
        assert_eq!((simulation.global(), simulation.next_round().get()), (&toy::initial(), 1));
        // the round goes on without that user, if enough are left
        let mut users = toy::users(4);
        users[1] = changed(&users[1], |_, v| v * 1e200);
        let mut simulation = encrypted(message, users);
        assert!(simulation.round(&mut Stopwatch::none()).is_err());
        simulation.round_of(&[0, 2, 3], &mut Stopwatch::none()).unwrap();
        assert_eq!(simulation.next_round().get(), 2);
    }
}
