//! Compares the speed with scikit-learn's SGDClassifier on Caltech101, with the same objective, epochs and data on
//! one core.
//!
//! Takes minutes, mostly for scikit-learn: `cargo test --release -p dphe-learn --test speed -- --ignored --nocapture`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/caltech.rs"]
mod caltech;
#[path = "support/python.rs"]
mod python;

use std::num::NonZeroUsize;

use dphe_learn::dataset::split_per_class;
use dphe_learn::linear::{Loss, Penalty, Schedule, SgdParams, objective};
use dphe_learn::metrics::mean_per_class_accuracy;
use dphe_learn::{Dataset, Seed, Standardizer};

const SEEDS: u64 = 5;

/// Returns the CPU time of this process, which excludes other load on the machine.
fn processor_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

#[derive(Clone, Copy, Default)]
struct Outcome {
    seconds: f64,
    objective: f64,
    accuracy: f64,
    sparsity: f64,
}

impl Outcome {
    fn mean(all: &[Self]) -> Self {
        let mean = |f: fn(&Self) -> f64| all.iter().map(f).sum::<f64>() / all.len() as f64;
        Self {
            seconds: mean(|o| o.seconds),
            objective: mean(|o| o.objective),
            accuracy: mean(|o| o.accuracy),
            sparsity: mean(|o| o.sparsity),
        }
    }
}

#[test]
#[ignore = "minutes of scikit-learn; needs Caltech101 features"]
fn faster_than_sklearn_with_the_same_result() {
    let Some(directory) = caltech::directory() else { return };
    let all = caltech::load(&directory);
    let parts = split_per_class(all.labels(), 30, 50, &Seed::new(0)).unwrap();
    let standardizer = Standardizer::fit(&all.features().select(&parts.train).unwrap());
    let pick = |samples: &[usize]| -> Dataset<f32> {
        let part = all.select(samples).unwrap();
        part.standardized(&standardizer).unwrap()
    };
    let (train, test) = (pick(&parts.train), pick(&parts.test));
    println!(
        "{} samples, {} features, {} classes, 10 epochs, mean of {SEEDS} seeds, one thread",
        train.len(),
        train.features().width(),
        train.labels().class_count()
    );

    for (name, penalty, wanted) in [
        ("l2", Penalty::l2(1e-3).unwrap(), 4.0),
        ("elasticnet", Penalty::elastic_net(2e-3, 0.5).unwrap(), 10.0),
    ] {
        let params = SgdParams {
            loss: Loss::Hinge,
            penalty,
            schedule: Schedule::Optimal,
            epochs: 10,
            intercept: true,
            threads: NonZeroUsize::MIN,
        };
        let sgd = params.check().unwrap();
        let ours: Vec<Outcome> = (0..SEEDS)
            .map(|seed| {
                let clock = processor_seconds();
                let weights = sgd.fit(&train, &Seed::new(seed)).unwrap();
                let seconds = processor_seconds() - clock;
                let scores = weights.scores(test.features(), NonZeroUsize::MIN).unwrap();
                let truth = test.labels().as_classes("accuracy").unwrap();
                Outcome {
                    seconds,
                    objective: objective(Loss::Hinge, penalty, &weights, &train, NonZeroUsize::MIN).unwrap(),
                    accuracy: mean_per_class_accuracy(truth, &scores.best()).unwrap(),
                    sparsity: weights.sparsity(),
                }
            })
            .collect();
        let list = |samples: &[usize]| samples.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        let arguments = [
            directory.to_str().unwrap(),
            name,
            &penalty.strength().to_string(),
            &penalty.l1_ratio().to_string(),
            &SEEDS.to_string(),
        ];
        let input = format!("{}\n{}\n", list(&parts.train), list(&parts.test));
        let show = |who: &str, o: Outcome| {
            println!(
                "{name:>10} {who:>8}: {:7.3} s, objective {:.5}, accuracy {:.2} %, sparsity {:.1} %",
                o.seconds,
                o.objective,
                100.0 * o.accuracy,
                100.0 * o.sparsity
            );
        };
        let ours = Outcome::mean(&ours);
        show("dphe", ours);
        let Some(answer) = python::ask("speed.py", &arguments, &input) else { continue };
        let theirs: Vec<Outcome> = answer
            .lines()
            .map(|line| {
                let v: Vec<f64> = line.split(' ').map(|v| v.parse().unwrap()).collect();
                Outcome { seconds: v[0], objective: v[1], accuracy: v[2], sparsity: v[3] }
            })
            .collect();
        let theirs = Outcome::mean(&theirs);
        show("sklearn", theirs);
        println!(
            "{name:>10}    ratio: {:.1} times faster, objective {:+.2} %, accuracy {:+.2} points",
            theirs.seconds / ours.seconds,
            100.0 * (ours.objective / theirs.objective - 1.0),
            100.0 * (ours.accuracy - theirs.accuracy)
        );
        assert!((ours.objective / theirs.objective - 1.0).abs() < 0.01);
        assert!((ours.accuracy - theirs.accuracy).abs() < 0.005);
        // the ratio within one run is checked, not absolute times, and only in optimised builds
        if !cfg!(debug_assertions) {
            assert!(theirs.seconds / ours.seconds > wanted);
        }
    }
}
