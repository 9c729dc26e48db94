//! Small data sets and small keys.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use chacha20::ChaCha20Rng;
use dphe::{Profile, TaskConfig, TaskId, TaskParams, Threads, hazmat};
use dphe_federate::{DpheAverage, PlainAverage, Weighting, propose};
use dphe_learn::linear::{Penalty, Schedule, Sgd, SgdParams, Stable};
use dphe_learn::update::{LocalTrainer, Payload};
use dphe_learn::{Dataset, Features, Labels, Seed, Weights};
use rand_core::SeedableRng;

pub(crate) const WIDTH: usize = 20;
pub(crate) const CLASSES: usize = 4;

/// Samples around one centre per class, with much noise.
pub(crate) fn data(seed: u64, samples: usize) -> Dataset<f64> {
    data_of(seed, samples, CLASSES as u32)
}

/// The same with samples of the first few classes only.
pub(crate) fn data_of(seed: u64, samples: usize, present: u32) -> Dataset<f64> {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
    };
    let labels: Vec<u32> = (0..samples as u32).map(|i| i % present).collect();
    let values = labels
        .iter()
        .flat_map(|&label| (0..WIDTH).map(move |j| ((label + 1) as f64 * (j + 1) as f64 * 1.7).sin()))
        .map(|centre| centre + 1.5 * next())
        .collect();
    Dataset::new(Features::new(WIDTH, values).unwrap(), Labels::classes(CLASSES, labels).unwrap()).unwrap()
}

pub(crate) fn users(count: usize) -> Vec<Dataset<f64>> {
    (0..count).map(|user| data(100 + user as u64, 24 + 8 * user)).collect()
}

pub(crate) fn learner(l1_ratio: f64, strength: f64) -> Sgd {
    let penalty = Penalty::elastic_net(strength, l1_ratio).unwrap();
    let schedule = Schedule::Stable(Stable::for_features(data(0, 24).features()));
    SgdParams { penalty, epochs: 3, ..SgdParams::new(schedule) }.check().unwrap()
}

pub(crate) fn trainer(payload: Payload) -> LocalTrainer {
    let l1 = matches!(payload, Payload::SparseWeights { .. } | Payload::SparseDifferences { .. });
    let learner = if l1 { learner(0.5, 0.05) } else { learner(0.0, 1e-3) };
    LocalTrainer::new(learner, payload).unwrap()
}

pub(crate) fn initial() -> Weights {
    learner(0.0, 1e-3).fit(&data(0, 24), &Seed::new(0)).unwrap()
}

/// A proposed task with a key too short to protect anything.
pub(crate) fn task(
    profile: Profile,
    payload: Payload,
    weighting: Weighting,
    change: impl FnOnce(&mut TaskConfig),
) -> TaskParams {
    let mut config = propose(profile, payload, &initial(), 16, weighting).unwrap();
    config.key_bits = 512;
    if payload == Payload::Rotating {
        config.capacity = 5;
    }
    change(&mut config);
    hazmat::task_params(TaskId::from_bytes([9; 16]), config).unwrap()
}

pub(crate) fn encrypted(task: &TaskParams, weighting: Weighting, users: usize) -> DpheAverage<ChaCha20Rng> {
    DpheAverage::new(task.clone(), weighting, users, ChaCha20Rng::seed_from_u64(5), Threads::all()).unwrap()
}

pub(crate) fn plain(task: &TaskParams, weighting: Weighting, users: usize) -> PlainAverage {
    PlainAverage::new(task.clone(), weighting, users).unwrap()
}
