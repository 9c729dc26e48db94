//! Clustering: the baseline S10 (Sculley: Web-scale k-means clustering, WWW 2010) without privacy, and rounds in which
//! users send sparse centroids.

use std::num::NonZeroUsize;

use dphe_federate::Scenario;
use dphe_learn::kmeans::{
    CentroidSum, CentroidWeighting, Centroids, DualAveraging, MiniBatch, Sparsifier, lloyd, plus_plus, update,
};
use dphe_learn::metrics::{AdjustedMutualInformation, adjusted_mutual_information};
use dphe_learn::{Features, Seed};

use crate::{Error, Measurement};

/// A way to find centroids.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClusterMethod {
    /// k-means++ on the public samples.
    Initial,
    /// Mini-batches over all private samples in one place, starting from the public centroids.
    S10,
    /// Mini-batches over all private samples in one place, starting from k-means++ on them.
    S10Everywhere,
    /// Full passes over all private samples in one place, as many as there are rounds.
    FullPasses,
    /// Rounds with the paper's learner, which is dual averaging with L1, and a plain mean over users.
    DualAveraging,
    /// Rounds with exact minimisers and a plain mean over users.
    PlainMean,
    /// Rounds with exact minimisers, weighted by the number of samples that each user has in a cluster.
    Counted,
}

impl ClusterMethod {
    /// All methods, baselines first.
    pub const ALL: [Self; 7] = [
        Self::Initial,
        Self::S10,
        Self::S10Everywhere,
        Self::FullPasses,
        Self::DualAveraging,
        Self::PlainMean,
        Self::Counted,
    ];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Initial => "k-means++ on public samples",
            Self::S10 => "S10",
            Self::S10Everywhere => "S10 from k-means++ on all",
            Self::FullPasses => "full passes",
            Self::DualAveraging => "DPHE dual averaging",
            Self::PlainMean => "DPHE plain mean",
            Self::Counted => "DPHE by counts",
        }
    }

    /// Returns true if samples stay with their users.
    pub fn is_private(self) -> bool {
        matches!(self, Self::Initial | Self::DualAveraging | Self::PlainMean | Self::Counted)
    }
}

/// The centroids that a method found.
#[derive(Clone, Debug)]
pub struct Clusters {
    /// The centroids.
    pub centroids: Centroids,
    /// The mean fraction of zeros in a user's message, if users send any.
    pub sparsity: Option<f64>,
}

/// Returns all users' samples and their classes.
///
/// # Errors
/// Returns an error if the labels are attributes.
pub fn private(scenario: &Scenario) -> Result<(Features, Vec<u32>), Error> {
    let mut truth = Vec::new();
    for user in &scenario.users {
        truth.extend_from_slice(user.labels().as_classes("clustering")?);
    }
    let values: Vec<f32> = scenario.users.iter().flat_map(|user| user.features().values()).copied().collect();
    Ok((Features::new(scenario.initial.features().width(), values)?, truth))
}

/// Finds one centroid per class. `share` is the fraction of all numbers that a message with sparse centroids holds.
///
/// # Errors
/// Returns an error if there are fewer public samples than classes.
pub fn find(
    scenario: &Scenario,
    method: ClusterMethod,
    rounds: usize,
    share: f64,
    seed: &Seed,
    threads: NonZeroUsize,
) -> Result<Clusters, Error> {
    let clusters = scenario.initial.labels().class_count();
    let start = plus_plus(scenario.initial.features(), clusters, seed)?;
    let (all, _) = private(scenario)?;
    let batches = MiniBatch { threads, ..MiniBatch::default() };
    let part = Sparsifier::Capacity(((clusters * all.width()) as f64 * share).ceil() as usize);
    let plain = |centroids| Ok(Clusters { centroids, sparsity: None });
    match method {
        ClusterMethod::Initial => plain(start),
        ClusterMethod::S10 => plain(batches.fit(&start, &all, seed)?),
        ClusterMethod::S10Everywhere => plain(batches.fit(&plus_plus(&all, clusters, seed)?, &all, seed)?),
        ClusterMethod::FullPasses => plain(lloyd(&start, &all, rounds, threads)?),
        ClusterMethod::DualAveraging => {
            let strength = strength_for(&lloyd(&start, scenario.initial.features(), 1, threads)?, share);
            let averaging = DualAveraging { strength, gamma: 3.0, iterations: 200 };
            let (sparsifier, rounds) = (Sparsifier::DualAveraging(averaging), rounds.div_ceil(2));
            self::rounds(scenario, start, rounds, sparsifier, CentroidWeighting::Plain, seed, threads)
        }
        ClusterMethod::PlainMean => {
            self::rounds(scenario, start, rounds, part, CentroidWeighting::Plain, seed, threads)
        }
        ClusterMethod::Counted => {
            self::rounds(scenario, start, rounds, part, CentroidWeighting::Counts, seed, threads)
        }
    }
}

/// Returns the strength of L1 that leaves this fraction of the numbers in the public centroids.
fn strength_for(public: &Centroids, share: f64) -> f64 {
    let mut magnitudes: Vec<f64> = public.flat().iter().map(|c| c.abs()).collect();
    magnitudes.sort_by(|a, b| b.total_cmp(a));
    let left = (magnitudes.len() as f64 * share) as usize;
    magnitudes.get(left).copied().unwrap_or(0.0)
}

fn rounds(
    scenario: &Scenario,
    start: Centroids,
    rounds: usize,
    sparsifier: Sparsifier,
    weighting: CentroidWeighting,
    seed: &Seed,
    threads: NonZeroUsize,
) -> Result<Clusters, Error> {
    let (mut centroids, mut sparsity) = (start, 0.0);
    for round in 0..rounds {
        let mut sum = CentroidSum::new(&centroids);
        for (user, data) in scenario.users.iter().enumerate() {
            let seed = seed.derive("user", user as u64).derive("round", round as u64);
            let message = update(&centroids, data.features(), sparsifier, weighting, &seed, threads)?;
            sparsity += message.sparsity() / (rounds * scenario.users.len()) as f64;
            sum.add(&message)?;
        }
        centroids = sum.apply(&centroids)?;
    }
    Ok(Clusters { centroids, sparsity: Some(sparsity) })
}

/// The default number of rounds.
const ROUNDS: usize = 6;

/// Finds centroids and measures how well they agree with the classes, on the users' samples and on held-out ones.
pub(crate) fn measure(
    scenario: &Scenario,
    method: ClusterMethod,
    rounds: Option<usize>,
    share: f64,
    seed: &Seed,
    threads: NonZeroUsize,
) -> Result<Measurement, Error> {
    let found = find(scenario, method, rounds.unwrap_or(ROUNDS), share, seed, threads)?;
    let (features, truth) = private(scenario)?;
    let inside = agreement(&found.centroids, &features, &truth, threads)?;
    let (held_out, classes) = (&scenario.held_out, scenario.held_out.labels().as_classes("clustering")?);
    let outside = agreement(&found.centroids, held_out.features(), classes, threads)?;
    let mut measurement = Measurement::from([
        ("arithmetic".to_owned(), inside.arithmetic),
        ("max".to_owned(), inside.max),
        ("held-out arithmetic".to_owned(), outside.arithmetic),
        ("held-out max".to_owned(), outside.max),
    ]);
    if let Some(sparsity) = found.sparsity {
        measurement.insert("sparsity".to_owned(), 100.0 * sparsity);
    }
    Ok(measurement)
}

/// Measures how well clusters agree with classes.
///
/// # Errors
/// Returns an error if the samples have another width.
pub fn agreement(
    centroids: &Centroids,
    features: &Features,
    truth: &[u32],
    threads: NonZeroUsize,
) -> Result<AdjustedMutualInformation, Error> {
    Ok(adjusted_mutual_information(truth, &centroids.assign(features, threads)?)?)
}
