//! Clustering: the plain baseline S10 (Sculley: Web-scale k-means clustering, WWW 2010), and rounds of sparse centres.

use dphe_federate::Scenario;
use dphe_learn::kmeans::{
    CentroidSum, Centroids, DualAveraging, MiniBatch, Sparsifier, Weighting, lloyd, plus_plus, update,
};
use dphe_learn::metrics::{AdjustedMutualInformation, adjusted_mutual_information};
use dphe_learn::{Dataset, Features, Seed, Threads};

use crate::Error;

/// How centres are found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// k-means++ on the public samples and nothing more.
    Initial,
    /// Mini-batches over all private samples in one place, started from the public centres.
    S10,
    /// The same, started from k-means++ on all private samples.
    S10Everywhere,
    /// Full passes over all private samples in one place: as much work as rounds do.
    FullPasses,
    /// Rounds of the paper's learner: L1-regularised dual averaging, plain mean.
    DualAveraging,
    /// Rounds of the exact minimisers, plain mean.
    PlainMean,
    /// Rounds of the exact minimisers, averaged by how many samples users have in a cluster.
    Counted,
}

impl Method {
    /// All, baselines first.
    pub const ALL: [Self; 7] = [
        Self::Initial,
        Self::S10,
        Self::S10Everywhere,
        Self::FullPasses,
        Self::DualAveraging,
        Self::PlainMean,
        Self::Counted,
    ];

    /// What it is called in tables.
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

    /// Whether samples stay with their users.
    pub fn is_private(self) -> bool {
        matches!(self, Self::Initial | Self::DualAveraging | Self::PlainMean | Self::Counted)
    }
}

/// Centres, and the mean sparsity of the messages that made them.
#[derive(Clone, Debug)]
pub struct Found {
    /// The centres.
    pub centroids: Centroids,
    /// The mean fraction of zeros in a message; none where nothing is sent.
    pub sparsity: Option<f64>,
}

/// All users' samples in one place, with their classes.
///
/// # Errors
/// If labels are attributes.
pub fn private(scenario: &Scenario) -> Result<(Features, Vec<u32>), Error> {
    let mut truth = Vec::new();
    for user in &scenario.users {
        truth.extend_from_slice(user.labels().as_classes("clustering")?);
    }
    let values: Vec<f32> = scenario.users.iter().flat_map(|user| user.features().values()).copied().collect();
    Ok((Features::new(scenario.initial.features().width(), values)?, truth))
}

/// Finds centres, as many as there are classes. Messages of sparse centres hold this share of all numbers.
///
/// # Errors
/// If there are fewer public samples than classes.
pub fn find(
    scenario: &Scenario,
    method: Method,
    rounds: usize,
    share: f64,
    seed: &Seed,
    threads: Threads,
) -> Result<Found, Error> {
    let clusters = scenario.initial.labels().class_count();
    let start = plus_plus(scenario.initial.features(), clusters, seed)?;
    let (all, _) = private(scenario)?;
    let batches = MiniBatch { threads, ..MiniBatch::default() };
    let part = Sparsifier::Capacity(((clusters * all.width()) as f64 * share).ceil() as usize);
    let plain = |centroids| Ok(Found { centroids, sparsity: None });
    match method {
        Method::Initial => plain(start),
        Method::S10 => plain(batches.fit(&start, &all, seed)?),
        Method::S10Everywhere => plain(batches.fit(&plus_plus(&all, clusters, seed)?, &all, seed)?),
        Method::FullPasses => plain(lloyd(&start, &all, rounds, threads)?),
        Method::DualAveraging => {
            let strength = strength_for(&lloyd(&start, scenario.initial.features(), 1, threads)?, share);
            let averaging = DualAveraging { strength, gamma: 3.0, iterations: 200 };
            let (sparsifier, rounds) = (Sparsifier::DualAveraging(averaging), rounds.div_ceil(2));
            self::rounds(scenario, start, rounds, sparsifier, Weighting::Plain, seed, threads)
        }
        Method::PlainMean => self::rounds(scenario, start, rounds, part, Weighting::Plain, seed, threads),
        Method::Counted => self::rounds(scenario, start, rounds, part, Weighting::Counts, seed, threads),
    }
}

/// The strength that would leave this share of the numbers of public centres.
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
    weighting: Weighting,
    seed: &Seed,
    threads: Threads,
) -> Result<Found, Error> {
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
    Ok(Found { centroids, sparsity: Some(sparsity) })
}

/// How well clusters agree with classes.
///
/// # Errors
/// If the samples have another width or attributes for labels.
pub fn agreement(
    centroids: &Centroids,
    features: &Features,
    truth: &[u32],
    threads: Threads,
) -> Result<AdjustedMutualInformation, Error> {
    Ok(adjusted_mutual_information(truth, &centroids.assign(features, threads)?)?)
}

/// The same on samples that nobody learnt from.
///
/// # Errors
/// As [`agreement`].
pub fn agreement_held_out(
    centroids: &Centroids,
    held_out: &Dataset,
    threads: Threads,
) -> Result<AdjustedMutualInformation, Error> {
    agreement(centroids, held_out.features(), held_out.labels().as_classes("clustering")?, threads)
}
