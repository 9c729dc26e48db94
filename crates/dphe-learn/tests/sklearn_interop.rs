//! Compares weights and metrics with scikit-learn.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/python.rs"]
mod python;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use dphe_learn::linear::{
    Fista, FistaParams, Loss, Penalty, Schedule, Sgd, SgdParams, sklearn_binary_seed, sklearn_class_seeds,
};
use dphe_learn::metrics::{self, ConfusionMatrix};
use dphe_learn::{Dataset, Features, Labels, Standardizer, Weights};

/// The output of the script, with one line `name number number ...` per result.
struct Answer(BTreeMap<String, Vec<f64>>);

impl Answer {
    fn from(part: &str) -> Option<Self> {
        let text = python::ask("sklearn_interop.py", &[part], "")?;
        Some(Self(
            text.lines()
                .map(|line| {
                    let mut words = line.split(' ');
                    let name = words.next().unwrap().to_string();
                    (name, words.map(|w| w.parse().unwrap()).collect())
                })
                .collect(),
        ))
    }

    fn get(&self, name: &str) -> &[f64] {
        self.0.get(name).unwrap_or_else(|| panic!("the script printed no {name}"))
    }

    fn integers(&self, name: &str) -> Vec<u32> {
        self.get(name).iter().map(|&v| v as u32).collect()
    }

    /// Returns the standardised digits data set.
    fn digits(&self) -> Dataset<f64> {
        let raw = Features::new(64, self.get("digits").to_vec()).unwrap();
        let standardizer = Standardizer::fit(&raw).with_clip(f64::INFINITY).unwrap();
        let features = standardizer.apply(raw).unwrap();
        Dataset::new(features, Labels::classes(10, self.integers("labels")).unwrap()).unwrap()
    }
}

fn sgd(loss: Loss, strength: f64, l1_ratio: f64, epochs: usize) -> Sgd {
    SgdParams {
        loss,
        penalty: Penalty::elastic_net(strength, l1_ratio).unwrap(),
        schedule: Schedule::Optimal,
        epochs,
        intercept: true,
        threads: NonZeroUsize::new(2).unwrap(),
    }
    .check()
    .unwrap()
}

fn largest_difference(a: impl IntoIterator<Item = f64>, b: impl IntoIterator<Item = f64>) -> f64 {
    a.into_iter().zip(b).map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, f64::max)
}

#[test]
fn weights_equal_sgd_classifier() {
    let Some(answer) = Answer::from("weights") else { return };
    let data = answer.digits();
    let difference =
        largest_difference(data.features().values().iter().copied(), answer.get("scaled").iter().copied());
    assert!(difference < 1e-12, "StandardScaler: {difference:e}");
    let start = Weights::zeros(64, 10).unwrap();
    let cases = [
        ("hinge_elastic", Loss::Hinge, 0.01, 0.5, 20, 7),
        ("hinge_elastic_strong", Loss::Hinge, 0.03, 0.5, 20, 7),
        ("hinge_l2", Loss::Hinge, 0.001, 0.0, 5, 3),
        ("hinge_l1", Loss::Hinge, 0.01, 1.0, 5, 4),
        ("squared_hinge", Loss::SquaredHinge, 0.01, 0.5, 3, 5),
        ("log", Loss::Logistic, 0.02, 0.5, 5, 6),
    ];
    for (name, loss, strength, ratio, epochs, seed) in cases {
        let learner = sgd(loss, strength, ratio, epochs);
        let weights = learner.fit_like_sklearn(&start, &data, &sklearn_class_seeds(seed, 10)).unwrap();
        let ours = (0..10).flat_map(|class| weights.class(class));
        let difference = largest_difference(ours, answer.get(name).iter().copied());
        let intercepts = largest_difference(
            weights.intercepts().iter().copied(),
            answer.get(&format!("{name}_intercepts")).iter().copied(),
        );
        println!("{name}: weights differ by {difference:.1e}, intercepts by {intercepts:.1e}");
        assert!(difference < 1e-12 && intercepts < 1e-12, "{name}");
    }
    // one class against the rest is a binary problem
    let three = Labels::attributes(1, answer.integers("labels").iter().map(|&l| l == 3).collect()).unwrap();
    let binary = Dataset::new(data.features().clone(), three).unwrap();
    let weights = sgd(Loss::Hinge, 0.01, 0.5, 5)
        .fit_like_sklearn(&Weights::zeros(64, 1).unwrap(), &binary, &[sklearn_binary_seed(9)])
        .unwrap();
    assert!(largest_difference(weights.class(0), answer.get("binary").iter().copied()) < 1e-12);
}

/// The expected values come from another implementation of the same rules.
#[test]
fn digits_have_the_known_weights() {
    let Some(answer) = Answer::from("digits") else { return };
    let data = answer.digits();
    let start = Weights::zeros(64, 10).unwrap();
    for (strength, nonzeros, sum_abs, accuracy) in [
        (0.01, [27, 31, 31, 26, 37, 27, 33, 32, 32, 26], 273.5805314704124, 0.9499165275459098),
        (0.03, [18, 21, 25, 19, 26, 19, 19, 25, 19, 17], 95.2910082889934, 0.9337785197551475),
    ] {
        let weights = sgd(Loss::Hinge, strength, 0.5, 20)
            .fit_like_sklearn(&start, &data, &sklearn_class_seeds(7, 10))
            .unwrap();
        let found: Vec<usize> = (0..10).map(|c| weights.class(c).filter(|&w| w != 0.0).count()).collect();
        assert_eq!(found, nonzeros);
        let sum: f64 = (0..10).flat_map(|c| weights.class(c)).map(f64::abs).sum();
        assert!((sum - sum_abs).abs() < 1e-10);
        let best = weights.scores(data.features(), NonZeroUsize::MIN).unwrap().best();
        let truth = data.labels().as_classes("accuracy").unwrap();
        assert_eq!(metrics::accuracy(truth, &best).unwrap(), accuracy);
    }
}

#[test]
fn fista_reaches_the_known_optima() {
    let Some(answer) = Answer::from("digits") else { return };
    let data = answer.digits();
    let start = Weights::zeros(64, 10).unwrap();
    let solver = |strength, ratio| -> Fista {
        FistaParams {
            penalty: Penalty::elastic_net(strength, ratio).unwrap(),
            iterations: 2000,
            grouped: false,
            threads: NonZeroUsize::new(2).unwrap(),
        }
        .check()
        .unwrap()
    };
    let sparse = solver(0.03, 0.5);
    let weights = sparse.fit_from(&start, &data).unwrap();
    let objective = sparse.objective(&weights, &data).unwrap();
    let residual = sparse.kkt_residual(&weights, &data).unwrap();
    println!(
        "L1 and L2: objective {objective:.7}, sparsity {:.3}, residual {residual:?}",
        weights.sparsity()
    );
    assert!((objective - 0.9153766).abs() < 1e-6);
    assert!((weights.sparsity() - 0.588).abs() < 0.005);
    assert!(residual.support < 1e-3 && residual.zeros < 1e-3);
    let dense = solver(0.01, 0.0);
    let weights = dense.fit_from(&start, &data).unwrap();
    let objective = dense.objective(&weights, &data).unwrap();
    println!("L2: objective {objective:.7}");
    assert!((objective - 0.3081730431).abs() < 1e-6);
}

#[test]
fn metrics_equal_sklearn() {
    let Some(answer) = Answer::from("metrics") else { return };
    let mut largest: f64 = 0.0;
    let mut close = |what: &str, ours: f64, theirs: f64| {
        let difference = (ours - theirs).abs();
        assert!(difference < 1e-9, "{what}: {ours} and {theirs}");
        largest = largest.max(difference);
    };
    let cases = answer.get("cases")[0] as usize;
    for case in 0..cases {
        let name = |what: &str| format!("{what}{case}");
        let (truth, predicted) = (answer.integers(&name("truth")), answer.integers(&name("predicted")));
        let classes = truth.iter().chain(&predicted).max().unwrap() + 1;
        let theirs = answer.get(&name("classification"));
        close("accuracy", metrics::accuracy(&truth, &predicted).unwrap(), theirs[0]);
        close("mean per class", metrics::mean_per_class_accuracy(&truth, &predicted).unwrap(), theirs[1]);
        let matrix = ConfusionMatrix::new(classes as usize, &truth, &predicted).unwrap();
        let counts: Vec<f64> = (0..classes as usize).flat_map(|c| matrix.row(c)).map(|&n| n as f64).collect();
        assert_eq!(counts, answer.get(&name("confusion")));
        let ami = metrics::adjusted_mutual_information(&truth, &predicted).unwrap();
        close("AMI, arithmetic", ami.arithmetic, theirs[2]);
        close("AMI, max", ami.max, theirs[3]);
        let positive: Vec<bool> = answer.get(&name("positive")).iter().map(|&p| p > 0.0).collect();
        let ap = metrics::average_precision(&positive, answer.get(&name("scores"))).unwrap();
        // scikit-learn returns 0 if no sample is positive
        close("average precision", ap.unwrap_or(0.0), theirs[4]);
    }
    println!("{cases} random and degenerate cases, largest difference {largest:.1e}");
}
