//! Properties of updates: capacities are kept, residuals keep what was not sent, sums become means.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::num::NonZeroUsize;

use dphe_learn::linear::{FistaParams, Penalty, Schedule, Sgd, SgdParams, Stable};
use dphe_learn::update::{
    FitLocal, Learner, LocalTrainer, ModelUpdate, Overflow, Payload, Residual, RoundInput, Support,
    UpdateKind, UpdateSum,
};
use dphe_learn::{Dataset, Error, Features, Labels, Real, Seed, Weights};
use proptest::prelude::*;

const WIDTH: usize = 12;
const CLASSES: usize = 5;
const DIMENSION: usize = WIDTH * CLASSES;

fn data(seed: u64) -> Dataset<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
    };
    let values = (0..40 * WIDTH).map(|_| next()).collect();
    let labels = (0..40).map(|_| ((next() + 1.0) * 2.4999) as u32).collect();
    Dataset::new(Features::new(WIDTH, values).unwrap(), Labels::classes(CLASSES, labels).unwrap()).unwrap()
}

fn sgd(l1_ratio: f64, strength: f64) -> Sgd {
    let penalty = Penalty::elastic_net(strength, l1_ratio).unwrap();
    SgdParams { penalty, ..SgdParams::new(Schedule::Stable(Stable::new(5.0))) }.check().unwrap()
}

fn global() -> Weights {
    let flat = (0..DIMENSION).map(|i| (i as f64 * 0.7).sin() * 0.1).collect();
    Weights::new(WIDTH, flat, vec![0.05; CLASSES]).unwrap()
}

fn run(
    payload: Payload,
    learner: impl Into<Learner>,
    features: &[usize],
    residual: &mut Residual,
) -> Result<ModelUpdate, Error> {
    let global = global();
    let input = RoundInput { global: &global, features };
    LocalTrainer::new(learner, payload)?.train_and_update(input, &data(1), residual, &Seed::new(9))
}

fn dense(update: &ModelUpdate) -> Vec<f64> {
    let mut out = vec![0.0; DIMENSION];
    update.entries().for_each(|(i, v)| out[i] += v);
    out
}

#[test]
fn sparse_weights_keep_their_capacity() {
    let trained = sgd(0.5, 0.02).fit_from(&global(), &data(1), &Seed::new(9)).unwrap();
    let nonzeros = trained.nonzeros();
    assert!((10..DIMENSION).contains(&nonzeros), "{nonzeros}");
    let send = |overflow| {
        let payload = Payload::SparseWeights { weights: 9, overflow };
        run(payload, sgd(0.5, 0.02), &[], &mut Residual::new())
    };
    assert_eq!(send(Overflow::Refuse), Err(Error::Capacity { nonzeros, capacity: 9 }));
    let all = send(Overflow::Shard).unwrap();
    assert_eq!((all.kind(), dense(&all)), (UpdateKind::Weights, trained.flat().to_vec()));
    let cut = send(Overflow::Truncate).unwrap();
    assert_eq!(cut.nonzeros(), 9);
    // the controller sees the density before truncation
    assert_eq!((cut.learnt_nonzeros(), all.learnt_nonzeros()), (nonzeros, nonzeros));
    let smallest = cut.values().iter().map(|v| v.abs()).fold(f64::INFINITY, f64::min);
    let left = dense(&cut)
        .iter()
        .zip(trained.flat())
        .filter(|(c, _)| **c == 0.0)
        .map(|(_, w)| w.abs())
        .fold(0.0, f64::max);
    assert!(left <= smallest);
    let top = run(Payload::LargestWeights { weights: 9 }, sgd(0.5, 0.02), &[], &mut Residual::new()).unwrap();
    assert_eq!(top, cut);
}

#[test]
fn with_strength_changes_only_the_penalty() {
    let payload = Payload::SparseWeights { weights: DIMENSION, overflow: Overflow::Shard };
    let trainer = LocalTrainer::new(sgd(0.5, 0.02), payload).unwrap();
    assert_eq!(trainer.with_strength(0.1).unwrap(), LocalTrainer::new(sgd(0.5, 0.1), payload).unwrap());
    assert!(trainer.with_strength(-1.0).is_err() && trainer.with_strength(f64::NAN).is_err());
    let penalty = Penalty::elastic_net(0.02, 0.5).unwrap();
    let fista = FistaParams { penalty, iterations: 5, grouped: false, threads: NonZeroUsize::MIN };
    let trainer = LocalTrainer::new(fista.check().unwrap(), payload).unwrap();
    assert_eq!(trainer.with_strength(0.1).unwrap().penalty(), Some(penalty.with_strength(0.1).unwrap()));
}

/// The built-in learner, from outside the crate.
#[derive(Debug)]
struct Outside(Sgd);

impl FitLocal for Outside {
    fn fit_local<T: Real>(
        &self,
        round: RoundInput<'_>,
        data: &Dataset<T>,
        seed: &Seed,
    ) -> Result<Weights, Error> {
        if round.features.len() == 1 {
            return Err(Error::custom("one feature is too few"));
        }
        LocalTrainer::new(self.0.clone(), Payload::All)?.train(round, data, seed)
    }
}

#[test]
fn custom_learner_fills_every_payload() {
    let learner = Learner::custom(Outside(sgd(0.0, 1e-3)));
    let all = run(Payload::All, learner.clone(), &[], &mut Residual::new()).unwrap();
    assert_eq!(all, run(Payload::All, sgd(0.0, 1e-3), &[], &mut Residual::new()).unwrap());
    let blocks = Payload::LargestBlocks { width: 2, blocks: 3, feedback: 0.9 };
    let chosen = run(blocks, learner.clone(), &[], &mut Residual::new()).unwrap();
    assert_eq!(chosen, run(blocks, sgd(0.0, 1e-3), &[], &mut Residual::new()).unwrap());
    // of a learner that trains all features, only those of the round are sent
    let rotating = run(Payload::Rotating, learner.clone(), &[1, 3], &mut Residual::new()).unwrap();
    let (sent, trained) = (dense(&rotating), dense(&all));
    let classes = rotating.intercepts().len();
    for (index, value) in sent.iter().enumerate() {
        let expected = if [1, 3].contains(&(index / classes)) { trained[index] } else { 0.0 };
        assert_eq!(*value, expected, "{index}");
    }
    let failed = run(Payload::Rotating, learner.clone(), &[1], &mut Residual::new()).unwrap_err();
    assert_eq!(failed.to_string(), "the learner failed: one feature is too few");
    let trainer = LocalTrainer::new(learner, Payload::All).unwrap();
    assert_eq!((trainer.clone(), trainer.penalty()), (trainer.clone(), None));
    assert!(matches!(trainer.with_strength(0.1), Err(Error::Unsuited { .. })));
}

#[test]
fn l1_on_differences_leaves_most_weights_where_they_are() {
    let payload = Payload::SparseDifferences { weights: DIMENSION, overflow: Overflow::Refuse };
    let update = run(payload, sgd(1.0, 0.1), &[], &mut Residual::new()).unwrap();
    assert!((1..DIMENSION / 2).contains(&update.nonzeros()), "{}", update.nonzeros());
    // nothing but the penalty differs from a full message
    let full = run(Payload::All, sgd(1.0, 0.0), &[], &mut Residual::new()).unwrap();
    assert!(update.nonzeros() < full.nonzeros());
}

#[test]
fn residual_keeps_what_was_not_sent() {
    for feedback in [0.0, 0.9, 1.0] {
        let full = dense(&run(Payload::All, sgd(0.0, 1e-3), &[], &mut Residual::new()).unwrap());
        let mut residual = Residual::new();
        let payload = Payload::LargestDifferences { weights: 7, feedback };
        let first = run(payload, sgd(0.0, 1e-3), &[], &mut residual).unwrap();
        assert_eq!(first.values().len(), 7);
        let unsent: f64 = full.iter().zip(dense(&first)).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
        assert!((residual.norm() - feedback * unsent).abs() < 1e-12);
        // the same round again: what was left out comes on top of what is learnt anew
        let second = run(payload, sgd(0.0, 1e-3), &[], &mut residual).unwrap();
        for (index, value) in second.entries() {
            let left = feedback * (full[index] - dense(&first)[index]);
            assert!((value - (full[index] + left)).abs() < 1e-12);
        }
        residual.reset();
        assert_eq!(residual.norm(), 0.0);
        assert_eq!(format!("{residual:?}"), "Residual(..)");
    }
}

#[test]
fn blocks_may_have_any_width() {
    let full = dense(&run(Payload::All, sgd(0.0, 1e-3), &[], &mut Residual::new()).unwrap());
    // 7 does not divide 60, so the last block is shorter
    for (width, capacity) in [(1, 6), (5, 3), (7, 9), (60, 1)] {
        let payload = Payload::LargestBlocks { width, blocks: capacity, feedback: 0.9 };
        let mut residual = Residual::new();
        let update = run(payload, sgd(0.0, 1e-3), &[], &mut residual).unwrap();
        let Support::Blocks { blocks, .. } = update.support() else { panic!("blocks were asked for") };
        assert_eq!(blocks.len(), capacity);
        for (index, value) in update.entries() {
            assert_eq!(value, full[index]);
            assert!(blocks.contains(&(index / width)));
        }
    }
}

#[test]
fn rotating_payload_treats_other_features_as_constants() {
    let features = [3, 1, 8];
    let update = run(Payload::Rotating, sgd(0.0, 1e-3), &features, &mut Residual::new()).unwrap();
    assert_eq!(update.support(), &Support::Blocks { width: CLASSES, blocks: features.to_vec() });
    let changed = dense(&update);
    for feature in 0..WIDTH {
        let moved = changed[feature * CLASSES..][..CLASSES].iter().any(|&v| v != 0.0);
        assert_eq!(moved, features.contains(&feature));
    }
    // all features at once equal a round with all differences, in any order
    let all: Vec<usize> = (0..WIDTH).collect();
    let whole = dense(&run(Payload::Rotating, sgd(0.0, 1e-3), &all, &mut Residual::new()).unwrap());
    let full = dense(&run(Payload::All, sgd(0.0, 1e-3), &[], &mut Residual::new()).unwrap());
    for (a, b) in whole.iter().zip(&full) {
        assert!((a - b).abs() < 1e-12);
    }
    for bad in [&[][..], &[WIDTH][..]] {
        assert!(run(Payload::Rotating, sgd(0.0, 1e-3), bad, &mut Residual::new()).is_err());
    }
}

#[test]
fn invalid_trainers_are_refused() {
    for bad in [
        Payload::LargestWeights { weights: 0 },
        Payload::LargestDifferences { weights: 0, feedback: 0.9 },
        Payload::LargestDifferences { weights: 1, feedback: 1.1 },
        Payload::LargestBlocks { width: 0, blocks: 1, feedback: 0.9 },
        Payload::LargestBlocks { width: 1, blocks: 1, feedback: f64::NAN },
    ] {
        assert!(LocalTrainer::new(sgd(0.0, 1e-3), bad).is_err());
    }
    let fista = FistaParams {
        penalty: Penalty::l2(0.1).unwrap(),
        iterations: 5,
        grouped: false,
        threads: NonZeroUsize::MIN,
    };
    assert!(LocalTrainer::new(fista.check().unwrap(), Payload::Rotating).is_err());
    assert!(LocalTrainer::new(fista.check().unwrap(), Payload::All).is_ok());
}

proptest! {
    /// Applying a weighted sum of updates gives their weighted mean.
    #[test]
    fn sums_become_weighted_means(weights in proptest::collection::vec(0.5f64..100.0, 1..4), step in 0.1f64..4.0) {
        let global = global();
        let trainer = LocalTrainer::new(sgd(0.0, 1e-3), Payload::All).unwrap();
        let mut sum = UpdateSum::new(UpdateKind::Difference, &global);
        let mut expected = vec![0.0; DIMENSION];
        let total: f64 = weights.iter().sum();
        for (user, weight) in weights.iter().enumerate() {
            let input = RoundInput { global: &global, features: &[] };
            let update = trainer.train_and_update(input, &data(user as u64), &mut Residual::new(), &Seed::new(0)).unwrap();
            expected.iter_mut().zip(update.values()).for_each(|(e, v)| *e += v * weight / total);
            sum.add(&update, *weight).unwrap();
        }
        let next = sum.apply(&global, step).unwrap();
        for ((next, old), expected) in next.flat().iter().zip(global.flat()).zip(&expected) {
            prop_assert!((next - old - step * expected).abs() < 1e-12);
        }
    }
}

#[test]
fn invalid_sums_are_refused() {
    let global = global();
    let empty = UpdateSum::new(UpdateKind::Weights, &global);
    assert!(matches!(empty.apply(&global, 1.0), Err(Error::Empty { .. })));
    let difference = run(Payload::All, sgd(0.0, 1e-3), &[], &mut Residual::new()).unwrap();
    assert!(empty.clone().add(&difference, 1.0).is_err());
    let parts = |flat, total| UpdateSum::from_parts(UpdateKind::Difference, flat, vec![0.0; CLASSES], total);
    assert!(parts(vec![0.0; DIMENSION], 0.0).is_err());
    assert!(matches!(parts(vec![f64::NAN], 3.0), Err(Error::NotFinite { .. })));
    assert!(parts(vec![0.0; 3], 3.0).unwrap().apply(&global, 1.0).is_err());
    let good = parts(vec![3.0; DIMENSION], 3.0).unwrap();
    assert!(good.apply(&global, 0.0).is_err());
    assert!((good.apply(&global, 1.0).unwrap().flat()[0] - (global.flat()[0] + 1.0)).abs() < 1e-15);
}
