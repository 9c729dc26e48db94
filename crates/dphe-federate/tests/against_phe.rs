//! Compares a whole round with python-paillier's encryption of one user's values. Both use the same key length and one
//! thread, in the same run.
//!
//! `DPHE_TEST_PYTHON=... cargo test --release -p dphe-federate --test against_phe -- --ignored --nocapture`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../dphe-learn/tests/support/caltech.rs"]
mod caltech;
#[path = "../../dphe-learn/tests/support/python.rs"]
mod python;

use core::time::Duration;

use caltech::Task;
use chacha20::ChaCha20Rng;
use dphe::{NoiseMode, Profile, TaskId, TaskParams};
use dphe_federate::{DpheAverage, RoundReport, Simulation, SimulationParams, Stopwatch, Weighting, propose};
use dphe_learn::Seed;
use dphe_learn::linear::{Schedule, SgdParams, Stable};
use dphe_learn::update::{LocalTrainer, Payload};
use rand_core::SeedableRng;

const USERS: usize = 5;
const KEY_BITS: u32 = 2048;
/// The paper's M: a tenth of 2,048 features of 101 classes.
const VALUES: usize = 20_685;
/// How many values phe encrypts. The time of all follows by multiplication, because each takes equally long.
const SAMPLE: usize = 200;

/// Returns the processor time of this process, so that other work on the machine does not count.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn phe_seconds() -> Option<f64> {
    let answer = python::ask("phe_encrypt.py", &[&KEY_BITS.to_string(), &SAMPLE.to_string()], "")?;
    Some(VALUES as f64 * answer.trim().parse::<f64>().unwrap())
}

/// Runs two rounds and returns the second, because the first has extra work.
fn round(task: &Task, profile: Profile, payload: Payload) -> (f64, RoundReport) {
    let schedule = Schedule::Stable(Stable::for_features(task.initial.features()));
    let learner = |epochs| SgdParams { epochs, ..SgdParams::new(schedule) }.check().unwrap();
    let initial = learner(20).fit(&task.initial, &Seed::new(0)).unwrap();
    let mut config = propose(profile, payload, &initial, 8, Weighting::Equal).unwrap();
    (config.key_bits, config.noise) = (KEY_BITS, NoiseMode::Fast);
    let params = TaskParams::new(TaskId::from_bytes([1; 16]), config).unwrap();
    let rng = ChaCha20Rng::seed_from_u64(1);
    let average = DpheAverage::new(params, Weighting::Equal, USERS, rng, dphe::Threads::ONE).unwrap();
    let (users, trainer) = (task.users.clone(), LocalTrainer::new(learner(5), payload).unwrap());
    let params = SimulationParams::default();
    let mut simulation = Simulation::new(users, initial, trainer, average, params, Seed::new(0)).unwrap();
    let mut stopwatch = Stopwatch::new(processor_time);
    simulation.round(&mut stopwatch).unwrap();
    // The whole round, including the time between steps.
    let before = processor_time();
    let report = simulation.round(&mut stopwatch).unwrap();
    ((processor_time() - before).as_secs_f64(), report)
}

#[test]
#[ignore = "a minute; needs Caltech101 features, and a Python with phe"]
fn round_takes_less_than_a_tenth_of_the_time_in_which_phe_encrypts_one_users_values() {
    let Some(directory) = caltech::directory() else { return };
    let Some(before) = phe_seconds() else { return };
    let task = Task::new(&caltech::load(&directory), USERS, 0);
    let rotate = round(&task, Profile::Full, Payload::Rotating);
    let largest = Payload::LargestDifferences { weights: VALUES, feedback: 0.9 };
    let largest = round(&task, Profile::Sparse, largest);
    let phe = before.min(phe_seconds().unwrap());
    println!(
        "phe encrypts {VALUES} numbers with {KEY_BITS} bits in {phe:.1} s of processor time \
         ({SAMPLE} measured, the rest multiplied; the better of two samples around ours)"
    );
    for (name, (seconds, report)) in [("rotate, a tenth", &rotate), ("d-topk, 10 %", &largest)] {
        let steps = report.seconds.unwrap();
        println!(
            "{name}: {USERS} users, {} ciphertexts each: a round takes {seconds:.2} s, 1/{:.0} of that \
             (train {:.2}, seal {:.2}, add {:.2}, open {:.2})",
            report.cost.ciphertexts,
            phe / seconds,
            steps.train,
            steps.seal,
            steps.aggregate,
            steps.open
        );
    }
    assert!(rotate.0 < phe / 10.0);
    assert!(largest.0 < phe / 10.0);
}
