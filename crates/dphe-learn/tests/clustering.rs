//! Compares rounds of sparse centroids with plain baselines on Caltech101, without encryption.
//!
//! `DPHE_SPLITS=10 cargo test --release -p dphe-learn --test clustering -- --ignored --nocapture`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/caltech.rs"]
mod caltech;

use caltech::Task;
use dphe_learn::kmeans::{
    CentroidSum, CentroidWeighting, Centroids, DualAveraging, MiniBatch, Sparsifier, lloyd, plus_plus, update,
};
use dphe_learn::metrics::adjusted_mutual_information;
use dphe_learn::{Features, Seed, all_cores};

/// Runs rounds with all users and returns the centroids and the mean sparsity of the updates.
fn rounds(
    task: &Task,
    start: &Centroids,
    count: u64,
    sparsifier: Sparsifier,
    weighting: CentroidWeighting,
) -> (Centroids, f64) {
    let mut global = start.clone();
    let mut sparsity = 0.0;
    for round in 0..count {
        let mut sum = CentroidSum::new(&global);
        for (user, data) in task.users.iter().enumerate() {
            let seed = Seed::new(user as u64).derive("round", round);
            let message =
                update(&global, data.features(), sparsifier, weighting, &seed, all_cores()).unwrap();
            sparsity += message.sparsity() / (count as usize * task.users.len()) as f64;
            sum.add(&message).unwrap();
        }
        global = sum.apply(&global).unwrap();
    }
    (global, sparsity)
}

#[test]
#[ignore = "minutes; needs Caltech101 features"]
fn sparse_centroids_match_the_baselines() {
    let Some(directory) = caltech::directory() else { return };
    let all = caltech::load(&directory);
    let splits: u64 = std::env::var("DPHE_SPLITS").ok().and_then(|s| s.parse().ok()).unwrap_or(2);
    let mut rows: Vec<(String, Vec<[f64; 3]>)> = Vec::new();
    for split in 0..splits {
        let task = Task::new(&all, 5, split);
        let (mut values, mut truth) = (Vec::new(), Vec::new());
        for user in &task.users {
            values.extend_from_slice(user.features().values());
            truth.extend_from_slice(user.labels().as_classes("AMI").unwrap());
        }
        let private = Features::new(task.initial.features().width(), values).unwrap();
        let mut put = |name: &str, centroids: &Centroids, sparsity: f64| {
            let ami = adjusted_mutual_information(&truth, &centroids.assign(&private, all_cores()).unwrap())
                .unwrap();
            let row = [ami.arithmetic, ami.max, sparsity];
            match rows.iter_mut().find(|(n, _)| n == name) {
                Some((_, values)) => values.push(row),
                None => rows.push((name.to_string(), vec![row])),
            }
        };
        let seed = Seed::new(split);
        let start = plus_plus(task.initial.features(), 101, &seed).unwrap();
        let tenth = (101usize * 2048).div_ceil(10);
        put("k-means++ on initial data", &start, 0.0);
        let batches = MiniBatch { threads: all_cores(), ..MiniBatch::default() };
        put("mini-batch from there", &batches.fit(&start, &private, &seed).unwrap(), 0.0);
        let everywhere = plus_plus(&private, 101, &seed).unwrap();
        put(
            "mini-batch from k-means++ on all data",
            &batches.fit(&everywhere, &private, &seed).unwrap(),
            0.0,
        );
        put("full passes from initial data", &lloyd(&start, &private, 6, all_cores()).unwrap(), 0.0);
        for (name, count, sparsifier, weighting) in [
            ("rounds, dense, plain mean", 6, Sparsifier::Strength(0.0), CentroidWeighting::Plain),
            ("rounds, 10 %, plain mean", 6, Sparsifier::Capacity(tenth), CentroidWeighting::Plain),
            ("rounds, 10 %, by counts", 6, Sparsifier::Capacity(tenth), CentroidWeighting::Counts),
            ("rounds, 5 %, by counts", 6, Sparsifier::Capacity(tenth / 2), CentroidWeighting::Counts),
            (
                "rounds, dual averaging 0.6, plain mean",
                3,
                Sparsifier::DualAveraging(DualAveraging { strength: 0.6, gamma: 3.0, iterations: 200 }),
                CentroidWeighting::Plain,
            ),
        ] {
            let (centroids, sparsity) = rounds(&task, &start, count, sparsifier, weighting);
            put(name, &centroids, sparsity);
        }
    }
    let mean = |name: &str, column: usize| {
        let (_, values) = rows.iter().find(|(n, _)| n == name).unwrap();
        values.iter().map(|row| row[column]).sum::<f64>() / values.len() as f64
    };
    println!("{splits} splits, mean adjusted mutual information (arithmetic, max), sparsity of messages");
    for (name, _) in &rows {
        println!("{name:<42} {:.3} {:.3} {:.3}", mean(name, 0), mean(name, 1), mean(name, 2));
    }
    for column in 0..2 {
        for baseline in ["mini-batch from there", "mini-batch from k-means++ on all data"] {
            assert!(mean("rounds, 10 %, by counts", column) >= mean(baseline, column));
            assert!(mean("rounds, 10 %, plain mean", column) >= mean(baseline, column));
        }
    }
}
