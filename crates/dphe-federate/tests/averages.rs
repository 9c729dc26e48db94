//! Encrypted and plain sums agree up to rounding, for every payload.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/toy.rs"]
mod toy;

use chacha20::ChaCha20Rng;
use dphe::{Profile, PublicSupport, Round, TaskId, TaskParams};
use dphe_federate::{
    Average, Averaged, DpheAverage, Error, GlobalWeights, LocalRound, Participation, PlainAverage,
    RoundResidual, RoundRules, Simulation, SimulationParams, Stopwatch, UserUpdate, ValueSum, Weighting,
    intercept_scale, propose,
};
use dphe_learn::update::{Overflow, Payload};
use dphe_learn::{Seed, Weights};

/// Sums in three ways and compares the results.
struct Compared {
    encrypted: DpheAverage<ChaCha20Rng>,
    plain: PlainAverage,
    rounded: PlainAverage,
    /// The largest difference to the plain sum so far, relative to half a fixed-point step per user.
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
        updates: &[UserUpdate],
        stopwatch: &mut Stopwatch,
    ) -> Result<Averaged, Error> {
        let plain = self.plain.average(round, updates, stopwatch)?;
        let rounded = self.rounded.average(round, updates, stopwatch)?;
        let encrypted = self.encrypted.average(round, updates, stopwatch)?;
        assert_eq!(encrypted.sum, rounded.sum, "bit for bit, round {round}");
        assert_eq!((encrypted.clipped, rounded.clipped, plain.clipped), (Some(0), Some(0), None));
        // Every user's value is rounded by at most half a step.
        let step = 2f64.powi(-i32::from(self.task().config().scale_bits));
        let most = updates.len() as f64 * step / 2.0;
        let values = |sum: &ValueSum| -> Vec<f64> { [&sum.weights[..], &sum.dense[..]].concat() };
        for (a, b) in values(&encrypted.sum).iter().zip(&values(&plain.sum)) {
            self.worst = self.worst.max((a - b).abs() / most);
        }
        Ok(encrypted)
    }
}

fn payloads() -> Vec<(&'static str, Profile, Payload)> {
    let feedback = 0.9;
    vec![
        ("rotate", Profile::Full, Payload::Rotating),
        ("all", Profile::Full, Payload::All),
        ("d-block", Profile::Sparse, Payload::LargestBlocks { width: toy::CLASSES, blocks: 4, feedback }),
        ("d-topk", Profile::Sparse, Payload::LargestDifferences { weights: 12, feedback }),
        ("d-topk", Profile::Paper, Payload::LargestDifferences { weights: 12, feedback }),
        ("w-l1", Profile::Paper, Payload::SparseWeights { weights: 12, overflow: Overflow::Shard }),
        ("w-l1", Profile::Sparse, Payload::SparseWeights { weights: 30, overflow: Overflow::Truncate }),
        ("d-l1", Profile::Sparse, Payload::SparseDifferences { weights: 30, overflow: Overflow::Truncate }),
        ("w-topk", Profile::Full, Payload::LargestWeights { weights: 12 }),
        ("w-topk", Profile::Sparse, Payload::LargestWeights { weights: 12 }),
    ]
}

fn simulation<A: Average>(
    payload: Payload,
    average: A,
    users: usize,
    participation: Participation,
) -> Simulation<A, f64> {
    let params = SimulationParams { participation, ..SimulationParams::default() };
    let users = toy::users(users);
    Simulation::new(users, toy::initial(), toy::trainer(payload), average, params, Seed::new(3))
        .unwrap()
        .with_held_out_data(toy::data(77, 80))
        .unwrap()
}

#[test]
fn encrypted_and_plain_agree_to_the_fixed_point_step_on_every_weight_of_ten_rounds() {
    for (name, profile, payload) in payloads() {
        for (weighting, participation) in [
            (Weighting::Equal, Participation::Everyone),
            (Weighting::Equal, Participation::Some(3)),
            (Weighting::Samples { most: 64 }, Participation::Some(4)),
        ] {
            let task = toy::task(profile, payload, weighting, |_| {});
            let compared = Compared {
                encrypted: toy::encrypted(&task, weighting, 5),
                plain: toy::plain(&task, weighting, 5),
                rounded: toy::plain(&task, weighting, 5).rounded(),
                worst: 0.0,
            };
            let mut simulation = simulation(payload, compared, 5, participation);
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
            // Only the paper's payload has more non-zeros than fit one shard.
            assert_eq!(cost.shards > 1, name == "w-l1" && profile == Profile::Paper, "{cost:?}");
        }
    }
}

#[test]
fn whole_runs_with_rounding_are_the_same_bit_for_bit() {
    for (name, profile, payload) in payloads() {
        for (weighting, participation) in [
            (Weighting::Equal, Participation::Everyone),
            (Weighting::Samples { most: 64 }, Participation::Some(3)),
        ] {
            let task = toy::task(profile, payload, weighting, |_| {});
            let mut a = simulation(payload, toy::encrypted(&task, weighting, 4), 4, participation);
            let mut b = simulation(payload, toy::plain(&task, weighting, 4).rounded(), 4, participation);
            let mut c = simulation(payload, toy::plain(&task, weighting, 4), 4, participation);
            for simulation in [&mut b, &mut c] {
                simulation.run(10, &mut Stopwatch::none()).unwrap();
            }
            let reports = a.run(10, &mut Stopwatch::none()).unwrap();
            assert_eq!(a.global(), b.global(), "{name} {profile}");
            // Rounding can make a user choose another block, and the difference compounds over rounds. Only runs
            // without choices stay close.
            let far = a.global().relative_change(c.global()).unwrap();
            println!(
                "{name} {profile}: {far:.1e} from plain, accuracy {:?}",
                reports.last().unwrap().accuracy
            );
            assert!(far < 1e-3 || !matches!(payload, Payload::Rotating | Payload::All), "{name}: {far}");
        }
    }
}

#[test]
fn intercepts_do_not_widen_the_slots() {
    let with_intercepts = |b: f64| Weights::new(20, vec![0.03; 80], vec![b; 4]).unwrap();
    let task = |b: f64| {
        let model = with_intercepts(b);
        let config = propose(Profile::Full, Payload::Rotating, &model, 8, Weighting::Equal).unwrap();
        TaskParams::new(TaskId::from_bytes([3; 16]), config).unwrap()
    };
    assert_eq!(task(0.1).slot_bits(), task(900.0).slot_bits());
    assert_eq!(task(0.1).config().clip_exponent, -2);
    // Four times the largest intercept, divided by the range of a quarter.
    assert_eq!(intercept_scale(&task(0.1), &with_intercepts(0.1)), 16.0);
    assert_eq!(intercept_scale(&task(0.1), &with_intercepts(-900.0)), 4096.0 * 4.0);
    assert!(intercept_scale(&task(0.1), &with_intercepts(f64::MAX)).is_finite());
    // The range of large classifiers has room for intercepts.
    let payload = Payload::LargestWeights { weights: 4 };
    let large = Weights::new(20, vec![100.0; 80], vec![1.0; 4]).unwrap();
    let config = propose(Profile::Sparse, payload, &large, 8, Weighting::Equal).unwrap();
    let large_task = TaskParams::new(TaskId::from_bytes([3; 16]), config).unwrap();
    assert_eq!(intercept_scale(&large_task, &large), 1.0);
}

#[test]
fn differences_outside_the_range_are_clipped_and_counted() {
    let payload = Payload::All;
    // The range of 1/64 is less than a first round learns.
    let task = toy::task(Profile::Full, payload, Weighting::Equal, |config| config.clip_exponent = -6);
    let mut encrypted =
        simulation(payload, toy::encrypted(&task, Weighting::Equal, 3), 3, Participation::Everyone);
    let mut rounded =
        simulation(payload, toy::plain(&task, Weighting::Equal, 3).rounded(), 3, Participation::Everyone);
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
fn users_are_weighted_by_their_samples() {
    let payload = Payload::Rotating;
    let samples = Weighting::Samples { most: 64 };
    let rules = |weighting| {
        RoundRules::new(
            toy::task(Profile::Full, payload, weighting, |_| {}),
            weighting,
            toy::trainer(payload),
        )
        .unwrap()
    };
    let global = GlobalWeights::new(toy::initial());
    let updates = |rules: &RoundRules, sizes: &[usize]| -> Vec<UserUpdate> {
        let support = PublicSupport::of(rules.task(), Round::FIRST);
        let round = LocalRound::new(rules, Round::FIRST, &support, &global).unwrap();
        (0..3)
            .map(|user| {
                let local = round.train(&toy::users(3)[user], &Seed::new(user as u64)).unwrap();
                let update = round.update(&local, sizes[user], &mut RoundResidual::default()).unwrap();
                UserUpdate { user, update }
            })
            .collect()
    };
    let next = |weighting, sizes: &[usize]| -> Weights {
        let rules = rules(weighting);
        let mut average = toy::encrypted(rules.task(), weighting, 3);
        let updates = updates(&rules, sizes);
        let averaged = average.average(Round::FIRST, &updates, &mut Stopwatch::none()).unwrap();
        rules.apply_values(Round::FIRST, &global, &averaged.sum).unwrap().global.into_weights()
    };
    let far = |a: &Weights, b: &Weights| {
        a.flat().iter().zip(b.flat()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    let equal = next(Weighting::Equal, &[1, 1, 1]);
    assert!(far(&equal, &next(samples, &[7, 7, 7])) < 2f64.powi(-16));
    // The weighted average, computed directly.
    let (sizes, mut mean) = ([3.0, 50.0, 11.0], vec![0.0; toy::WIDTH * toy::CLASSES]);
    for (update, size) in updates(&rules(Weighting::Equal), &[1, 1, 1]).iter().zip(sizes) {
        update.entries().for_each(|(i, v)| mean[i] += size * v / 64.0);
    }
    let weighted = next(samples, &[3, 50, 11]);
    for ((w, old), m) in weighted.flat().iter().zip(toy::initial().flat()).zip(&mean) {
        assert!((w - old - m).abs() <= 3.0 / (2.0 * 2f64.powi(22)) / (64.0 / 64.0) + 1e-12);
    }
    assert!(far(&equal, &weighted) > 1e-3);
    let shown = format!("{:?}", updates(&rules(samples), &[3, 50, 11])[1]);
    assert!(shown.contains("redacted") && !shown.contains("0."), "{shown}");
    // Users with more than the most samples count as having the most.
    assert_eq!(next(samples, &[64, 64, 1000]), next(samples, &[64, 64, 64]));
}
