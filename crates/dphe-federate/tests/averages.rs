//! Encryption changes nothing but the last bits: encrypted and plain averages agree, message by message.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/toy.rs"]
mod toy;

use chacha20::ChaCha20Rng;
use dphe::{Profile, Round, TaskId, TaskParams};
use dphe_federate::{
    Average, Averaged, Contribution, DpheAverage, Error, Participation, PlainAverage, Seconds, Simulation,
    SimulationParams, Stopwatch, Weighting, intercept_scale, propose,
};
use dphe_learn::update::{Message, Overflow};
use dphe_learn::{Seed, Weights};

/// Averages three ways and compares what would become the public weights.
struct Compared {
    encrypted: DpheAverage<ChaCha20Rng>,
    plain: PlainAverage,
    rounded: PlainAverage,
    /// The largest difference to the plain average so far, in half steps of the fixed point.
    worst: f64,
}

impl Average for Compared {
    fn task(&self) -> &TaskParams {
        self.plain.task()
    }

    fn weighting(&self) -> Weighting {
        self.plain.weighting()
    }

    fn average(
        &mut self,
        round: Round,
        global: &Weights,
        contributions: &[Contribution],
        stopwatch: &mut Stopwatch,
        seconds: &mut Seconds,
    ) -> Result<Averaged, Error> {
        let plain = self.plain.average(round, global, contributions, stopwatch, seconds)?;
        let rounded = self.rounded.average(round, global, contributions, stopwatch, seconds)?;
        let encrypted = self.encrypted.average(round, global, contributions, stopwatch, seconds)?;
        assert_eq!(encrypted.sum, rounded.sum, "bit for bit, round {round}");
        assert_eq!(encrypted.density, rounded.density);
        assert_eq!((encrypted.clipped, rounded.clipped, plain.clipped), (Some(0), Some(0), None));
        // half a step for a plain mean; counts below the most make the divisor smaller
        let total: f64 = match self.weighting() {
            Weighting::Equal => contributions.len() as f64,
            Weighting::Samples { most } => {
                let counted = contributions.iter().map(|c| c.samples.min(most as usize));
                counted.sum::<usize>() as f64 / f64::from(most)
            }
        };
        let step = 2f64.powi(-i32::from(self.task().config().scale_bits));
        let half = contributions.len() as f64 * step / 2.0 / total;
        let intercept_half = half * intercept_scale(self.task(), global);
        let (a, b) = (encrypted.sum.apply(global, 1.0)?, plain.sum.apply(global, 1.0)?);
        for (a, b) in a.flat().iter().zip(b.flat()) {
            self.worst = self.worst.max((a - b).abs() / half);
        }
        for (a, b) in a.intercepts().iter().zip(b.intercepts()) {
            self.worst = self.worst.max((a - b).abs() / intercept_half);
        }
        Ok(encrypted)
    }
}

fn messages() -> Vec<(&'static str, Profile, Message)> {
    let feedback = 0.9;
    vec![
        ("rotate", Profile::Full, Message::Rotating),
        ("full", Profile::Full, Message::Full),
        ("d-block", Profile::Sparse, Message::LargestBlocks { width: toy::CLASSES, capacity: 4, feedback }),
        ("d-topk", Profile::Sparse, Message::LargestDifferences { capacity: 12, feedback }),
        ("d-topk", Profile::Paper, Message::LargestDifferences { capacity: 12, feedback }),
        ("w-l1", Profile::Paper, Message::SparseWeights { capacity: 12, overflow: Overflow::Shard }),
        ("w-l1", Profile::Sparse, Message::SparseWeights { capacity: 30, overflow: Overflow::Truncate }),
        ("d-l1", Profile::Sparse, Message::SparseDifferences { capacity: 30, overflow: Overflow::Truncate }),
        ("w-topk", Profile::Full, Message::LargestWeights { capacity: 12 }),
        ("w-topk", Profile::Sparse, Message::LargestWeights { capacity: 12 }),
    ]
}

fn simulation<A: Average>(
    message: Message,
    average: A,
    users: usize,
    participation: Participation,
) -> Simulation<A, f64> {
    let params = SimulationParams { participation, ..SimulationParams::default() };
    let users = toy::users(users);
    Simulation::new(users, toy::initial(), toy::trainer(message), average, params, Seed::new(3))
        .unwrap()
        .with_held_out_data(toy::data(77, 80))
        .unwrap()
}

#[test]
fn encrypted_and_plain_agree_to_the_fixed_point_step_on_every_weight_of_ten_rounds() {
    for (name, profile, message) in messages() {
        for (weighting, participation) in [
            (Weighting::Equal, Participation::Everyone),
            (Weighting::Equal, Participation::Some(3)),
            (Weighting::Samples { most: 64 }, Participation::Some(4)),
        ] {
            let task = toy::task(profile, message, weighting, |_| {});
            let compared = Compared {
                encrypted: toy::encrypted(&task, weighting, 5),
                plain: toy::plain(&task, weighting, 5),
                rounded: toy::plain(&task, weighting, 5).rounded(),
                worst: 0.0,
            };
            let mut simulation = simulation(message, compared, 5, participation);
            let reports = simulation.run(10, &mut Stopwatch::none()).unwrap();
            let (last, worst) = (reports.last().unwrap(), simulation.average().worst);
            println!(
                "{name} {profile} {weighting:?} {participation:?}: off by {worst:.2} half steps; {last:?}"
            );
            assert!(worst > 0.0 && worst <= 1.0 + 1e-9, "{name} {profile}: {worst} half steps");
            assert_eq!(reports.len(), 10);
            let cost = last.cost;
            assert_eq!(cost.singles.is_some(), profile != Profile::Full);
            assert!(cost.singles.is_none_or(|share| (0.0..=1.0).contains(&share)));
            // only the paper's way needs several shards: more non-zeros than a message holds
            assert_eq!(cost.shards > 1, name == "w-l1" && profile == Profile::Paper, "{cost:?}");
        }
    }
}

#[test]
fn whole_runs_with_rounding_are_the_same_bit_for_bit() {
    for (name, profile, message) in messages() {
        for (weighting, participation) in [
            (Weighting::Equal, Participation::Everyone),
            (Weighting::Samples { most: 64 }, Participation::Some(3)),
        ] {
            let task = toy::task(profile, message, weighting, |_| {});
            let mut a = simulation(message, toy::encrypted(&task, weighting, 4), 4, participation);
            let mut b = simulation(message, toy::plain(&task, weighting, 4).rounded(), 4, participation);
            let mut c = simulation(message, toy::plain(&task, weighting, 4), 4, participation);
            for simulation in [&mut b, &mut c] {
                simulation.run(10, &mut Stopwatch::none()).unwrap();
            }
            let reports = a.run(10, &mut Stopwatch::none()).unwrap();
            assert_eq!(a.global(), b.global(), "{name} {profile}");
            // rounds build on each other: where a step of rounding makes a user choose another block, the runs
            // part, and only runs that choose nothing stay together
            let far = a.global().relative_change(c.global()).unwrap();
            println!(
                "{name} {profile}: {far:.1e} from plain, accuracy {:?}",
                reports.last().unwrap().accuracy
            );
            assert!(far < 1e-3 || !matches!(message, Message::Rotating | Message::Full), "{name}: {far}");
        }
    }
}

#[test]
fn intercepts_do_not_widen_the_slots() {
    let with_intercepts = |b: f64| Weights::new(20, vec![0.03; 80], vec![b; 4]).unwrap();
    let task = |b: f64| {
        let model = with_intercepts(b);
        let config = propose(Profile::Full, Message::Rotating, &model, 8, Weighting::Equal).unwrap();
        TaskParams::new(TaskId::from_bytes([3; 16]), config).unwrap()
    };
    assert_eq!(task(0.1).slot_bits(), task(900.0).slot_bits());
    assert_eq!(task(0.1).config().clip_exponent, -2);
    // four times the largest, over the range of a quarter
    assert_eq!(intercept_scale(&task(0.1), &with_intercepts(0.1)), 16.0);
    assert_eq!(intercept_scale(&task(0.1), &with_intercepts(-900.0)), 4096.0 * 4.0);
    assert!(intercept_scale(&task(0.1), &with_intercepts(f64::MAX)).is_finite());
    // whole classifiers may be so large that intercepts need no help
    let message = Message::LargestWeights { capacity: 4 };
    let large = Weights::new(20, vec![100.0; 80], vec![1.0; 4]).unwrap();
    let config = propose(Profile::Sparse, message, &large, 8, Weighting::Equal).unwrap();
    let large_task = TaskParams::new(TaskId::from_bytes([3; 16]), config).unwrap();
    assert_eq!(intercept_scale(&large_task, &large), 1.0);
}

#[test]
fn differences_beyond_the_range_are_cut_and_counted() {
    let message = Message::Full;
    // a range of 1/64, less than a first round learns
    let task = toy::task(Profile::Full, message, Weighting::Equal, |config| config.clip_exponent = -6);
    let mut encrypted =
        simulation(message, toy::encrypted(&task, Weighting::Equal, 3), 3, Participation::Everyone);
    let mut rounded =
        simulation(message, toy::plain(&task, Weighting::Equal, 3).rounded(), 3, Participation::Everyone);
    let (a, b) =
        (encrypted.round(&mut Stopwatch::none()).unwrap(), rounded.round(&mut Stopwatch::none()).unwrap());
    assert_eq!(a.clipped, b.clipped);
    assert!(a.clipped.unwrap() > 0);
    assert_eq!(encrypted.global(), rounded.global());
    let most = 2f64.powi(-6);
    let initial = toy::initial();
    assert!(encrypted.global().flat().iter().zip(initial.flat()).all(|(new, old)| (new - old).abs() < most));
}

#[test]
fn counts_weigh_and_equal_counts_do_not() {
    let message = Message::Rotating;
    let samples = Weighting::Samples { most: 64 };
    let contributions = |sizes: &[usize]| -> Vec<Contribution> {
        let average = toy::plain(&toy::task(Profile::Full, message, samples, |_| {}), samples, 3);
        let (global, users) = (toy::initial(), toy::users(3));
        let features = average.features(Round::FIRST, &global);
        let input = dphe_learn::update::RoundInput { global: &global, features: &features };
        let trainer = toy::trainer(message);
        (0..3)
            .map(|user| Contribution {
                user,
                update: trainer
                    .update(input, &users[user], &mut Default::default(), &Seed::new(user as u64))
                    .unwrap(),
                samples: sizes[user],
            })
            .collect()
    };
    let next = |weighting, sizes: &[usize]| -> Weights {
        let task = toy::task(Profile::Full, message, weighting, |_| {});
        let mut average = toy::encrypted(&task, weighting, 3);
        let (mut none, mut seconds) = (Stopwatch::none(), Seconds::default());
        let global = toy::initial();
        let averaged =
            average.average(Round::FIRST, &global, &contributions(sizes), &mut none, &mut seconds).unwrap();
        averaged.sum.apply(&global, 1.0).unwrap()
    };
    let far = |a: &Weights, b: &Weights| {
        a.flat().iter().zip(b.flat()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    let equal = next(Weighting::Equal, &[1, 1, 1]);
    assert!(far(&equal, &next(samples, &[7, 7, 7])) < 2f64.powi(-16));
    // the mean by hand
    let (sizes, mut mean) = ([3.0, 50.0, 11.0], vec![0.0; toy::WIDTH * toy::CLASSES]);
    for (contribution, size) in contributions(&[3, 50, 11]).iter().zip(sizes) {
        contribution.update.entries().for_each(|(i, v)| mean[i] += size * v / 64.0);
    }
    let weighted = next(samples, &[3, 50, 11]);
    for ((w, old), m) in weighted.flat().iter().zip(toy::initial().flat()).zip(&mean) {
        assert!((w - old - m).abs() <= 3.0 / (2.0 * 2f64.powi(22)) / (64.0 / 64.0) + 1e-12);
    }
    assert!(far(&equal, &weighted) > 1e-3);
    assert_eq!(format!("{:?}", contributions(&[3, 50, 11])[1]), "Contribution { user: 1, .. }");
    // more than the most count as the most
    assert_eq!(next(samples, &[64, 64, 1000]), next(samples, &[64, 64, 64]));
}
