//! Clustering by users who keep their samples: sums of centroids and counts, round after round.

use dphe::{ClipRule, Profile, Round, SparseVector, TaskConfig, TaskId, TaskParams, Update};
use dphe_learn::kmeans::{CentroidSum, CentroidWeighting, Centroids, Sparsifier, update};
use dphe_learn::{Features, Real, Seed, Standardizer};
use std::num::NonZeroUsize;

use crate::average::check_floor;
use crate::start::simulated_id;
use crate::{Average, Cost, EncryptionSpec, Error, Seconds, Stopwatch, UserUpdate};

/// Rounds that follow each split of clusters before the next one.
const ROUNDS_PER_SPLIT: u64 = 2;

/// The parameters of a clustering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusteringParams {
    /// The number of clusters.
    pub clusters: usize,
    /// How many samples a user draws per round; all of them if `None`. With batches, a cluster moves by the share that
    /// the batch has of all samples that it has seen.
    pub batch: Option<usize>,
    /// How many values an update carries, in `sparse`; all of them in `full`.
    pub capacity: Option<usize>,
    /// The number of threads. Results do not depend on it.
    pub threads: NonZeroUsize,
}

impl ClusteringParams {
    /// Returns a simulated task that sums the centroids of standardised samples, of which there are at most `samples`
    /// in a round.
    ///
    /// # Errors
    /// If there are no clusters, or the numbers do not fit a task.
    pub fn task(
        &self,
        encryption: &EncryptionSpec,
        features: usize,
        users: usize,
        samples: f64,
        seed: u64,
    ) -> Result<(TaskId, TaskConfig), Error> {
        let size = |what, count: usize| {
            u32::try_from(count).map_err(|_| Error::Shape { what, task: u32::MAX as usize, model: count })
        };
        if self.clusters == 0 || self.batch == Some(0) || self.capacity == Some(0) {
            return Err(Error::Parameter {
                name: "clusters, batch or capacity",
                value: 0.0,
                remedy: "use at least 1",
            });
        }
        let clusters = size("clusters", self.clusters)?;
        let dimension = size("centroid numbers", self.clusters.saturating_mul(features))?;
        let most = u32::try_from(users.max(3)).unwrap_or(u32::MAX);
        let mut config = TaskConfig::new(encryption.profile, clusters, size("features", features)?, most);
        // for each cluster, the number of its samples and how far they lie from its centroid
        config.dense = 2 * clusters;
        // A value is a sum of samples, each within the bound of the standardisation.
        let largest = Standardizer::CLIP * samples.max(1.0);
        config.clip_exponent = largest.log2().ceil().min(f64::from(i8::MAX)) as i8;
        config.clip_rule = ClipRule::Refuse;
        (config.key_bits, config.noise) = (encryption.key_bits, encryption.noise);
        match (encryption.profile, self.capacity) {
            (Profile::Full, None) => (config.block, config.capacity) = (dimension, 1),
            (Profile::Full, Some(_)) => {
                return Err(Error::Parameter {
                    name: "capacity",
                    value: 0.0,
                    remedy: "use it with `sparse`, because `full` sends everything",
                });
            }
            (_, capacity) => {
                config.block = 1;
                config.capacity = size("values", capacity.unwrap_or(dimension as usize))?.min(dimension);
            }
        }
        Ok((simulated_id(seed), config))
    }
}

/// The report of one round of clustering.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusteringReport {
    /// The round, counted from 1.
    pub round: u64,
    /// How many clusters there were.
    pub clusters: usize,
    /// The change of the centroids relative to their length; infinite if they were zero.
    pub relative_change: f64,
    /// The fraction of zeros in an update, averaged over users.
    pub update_sparsity: f64,
    /// The cost of summing.
    pub cost: Cost,
    /// How long the steps took, if there is a clock.
    pub seconds: Option<Seconds>,
}

/// Users with their standardised samples, and the centroids they compute together.
///
/// Without initial centroids, it starts with the mean of all samples, which is zero. After every few rounds, the half
/// of the clusters whose samples lie farthest apart are split in a random direction, until there are enough. No user
/// proposes centroids, because they would be its samples.
#[derive(Debug)]
pub struct Clustering<A, T = f32> {
    users: Vec<Features<T>>,
    average: A,
    params: ClusteringParams,
    centroids: Centroids,
    /// The samples of each cluster that all rounds of batches have seen.
    seen: Vec<f64>,
    /// How far the samples of each cluster were from its centroid in the last round: the sum of their squared
    /// distances.
    spreads: Vec<f64>,
    seed: Seed,
    round: Round,
    since_split: u64,
}

impl<A: Average, T: Real> Clustering<A, T> {
    /// Starts with these centroids, or with one.
    ///
    /// # Errors
    /// If the task or the centroids do not fit the parameters, or there are fewer users than the task demands.
    pub fn new(
        users: Vec<Features<T>>,
        start: Option<Centroids>,
        average: A,
        params: ClusteringParams,
        seed: Seed,
    ) -> Result<Self, Error> {
        let task = average.task();
        check_floor(task, users.len(), users.len())?;
        let width = users.first().map_or(0, Features::width);
        let centroids = match start {
            Some(start) => start,
            None => Centroids::new(width, vec![0.0; width])?,
        };
        for (what, task, model) in [
            ("centroid numbers", task.dimension(), params.clusters * width),
            ("dense values", task.dense(), 2 * params.clusters),
            ("features", centroids.width(), width),
        ] {
            if task != model {
                return Err(Error::Shape { what, task, model });
            }
        }
        if centroids.clusters() > params.clusters {
            let (what, task, model) = ("clusters", params.clusters, centroids.clusters());
            return Err(Error::Shape { what, task, model });
        }
        let zeros = vec![0.0; centroids.clusters()];
        Ok(Self {
            users,
            average,
            params,
            centroids,
            seen: zeros.clone(),
            spreads: zeros,
            seed,
            round: Round::FIRST,
            since_split: 0,
        })
    }

    /// Continues a clustering whose earlier rounds are over: the next round has this number, and each cluster has seen
    /// so many samples.
    ///
    /// # Errors
    /// If there is not one number per cluster.
    pub fn starting_at(mut self, round: Round, seen: Vec<f64>) -> Result<Self, Error> {
        if seen.len() != self.centroids.clusters() {
            let (what, task, model) = ("clusters", seen.len(), self.centroids.clusters());
            return Err(Error::Shape { what, task, model });
        }
        (self.round, self.seen) = (round, seen);
        Ok(self)
    }

    /// Returns the centroids.
    pub fn centroids(&self) -> &Centroids {
        &self.centroids
    }

    /// Returns how many samples each cluster has seen in batches.
    pub fn seen(&self) -> &[f64] {
        &self.seen
    }

    /// Returns whether there are fewer clusters than asked for, so that rounds split them.
    pub fn is_growing(&self) -> bool {
        self.centroids.clusters() < self.params.clusters
    }

    /// Returns the average.
    pub fn average(&self) -> &A {
        &self.average
    }

    /// Returns the average.
    pub fn into_average(self) -> A {
        self.average
    }

    /// Runs one round. While there are too few clusters, it may split some first.
    ///
    /// # Errors
    /// If a user cannot compute its update, or the sum cannot be opened. Nothing has changed then.
    pub fn round(&mut self, stopwatch: &mut Stopwatch) -> Result<ClusteringReport, Error> {
        let (global, mut seen) = match self.is_growing() && self.since_split >= self.split_after() {
            true => self.split()?,
            false => (self.centroids.clone(), self.seen.clone()),
        };
        let mut train = 0.0;
        let (task, clusters) = (self.average.task().clone(), global.clusters());
        let updates = stopwatch.time(&mut train, || self.updates(&task, &global))?;
        let sent: usize =
            updates.iter().map(|u| u.entries().filter(|&(_, value)| value != 0.0).count()).sum();
        let averaged = self.average.average(self.round, &updates, stopwatch)?;
        let (round, users) = (self.round, updates.len());
        self.round = round.next();
        let mut values = averaged.sum.weights;
        values.truncate(global.flat().len());
        let mut counts = averaged.sum.dense;
        let mut spreads = counts.split_off(self.params.clusters);
        counts.truncate(clusters);
        spreads.truncate(clusters);
        let sum = CentroidSum::from_parts(values, counts)?;
        let next = match self.params.batch {
            Some(_) if !self.is_growing() => sum.apply_to_mean(&global, &mut seen)?,
            _ => sum.apply(&global)?,
        };
        let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
        let moved = squares(&mut next.flat().iter().zip(global.flat()).map(|(a, b)| a - b));
        let length = squares(&mut global.flat().iter().copied());
        self.since_split = if clusters == self.centroids.clusters() { self.since_split + 1 } else { 1 };
        (self.centroids, self.seen, self.spreads) = (next, seen, spreads);
        Ok(ClusteringReport {
            round: round.get(),
            clusters,
            relative_change: if moved == 0.0 { 0.0 } else { moved / length },
            update_sparsity: 1.0 - sent as f64 / (users * task.dimension()) as f64,
            cost: averaged.cost,
            seconds: stopwatch.runs().then_some(Seconds { train, ..averaged.seconds }),
        })
    }

    /// Returns after how many rounds the clusters are split. A single one needs none, because its mean is known.
    fn split_after(&self) -> u64 {
        if self.centroids.clusters() == 1 { 0 } else { ROUNDS_PER_SPLIT }
    }

    /// Computes the updates of all users.
    fn updates(&self, task: &TaskParams, global: &Centroids) -> Result<Vec<UserUpdate>, Error> {
        let sparsifier = self.params.capacity.map_or(Sparsifier::Strength(0.0), Sparsifier::Capacity);
        let of_user = |user: usize, features: &Features<T>| {
            let seed = self.seed.derive("user", user as u64).derive("round", self.round.get());
            let batch = match self.params.batch {
                Some(size) if size < features.len() => Some(features.sample(size, &seed)?),
                _ => None,
            };
            let features = batch.as_ref().unwrap_or(features);
            let (weighting, threads) = (CentroidWeighting::Counts, self.params.threads);
            update(global, features, sparsifier, weighting, &seed, threads)
        };
        self.users
            .iter()
            .enumerate()
            .map(|(user, features)| {
                let update = of_user(user, features).map_err(|source| Error::OfUser { user, source })?;
                let mut values = update.flat().to_vec();
                values.resize(task.dimension(), 0.0);
                let mut dense = update.counts().to_vec();
                dense.resize(self.params.clusters, 0.0);
                dense.extend(self.spreads_of(features, global)?);
                dense.resize(task.dense(), 0.0);
                let update = Update::new(SparseVector::from_dense(&values)?).with_dense(dense);
                Ok(UserUpdate { user, update })
            })
            .collect()
    }

    /// Returns how far a user's samples lie from the centroids, as a share of the range of sums. Once there are enough
    /// clusters, nobody needs it.
    fn spreads_of(&self, features: &Features<T>, global: &Centroids) -> Result<Vec<f64>, Error> {
        let mut spreads = vec![0.0; global.clusters()];
        if !self.is_growing() {
            return Ok(spreads);
        }
        // Two standardised values differ by at most twice their bound.
        let share = 4.0 * Standardizer::CLIP * features.width() as f64;
        for (row, cluster) in features.rows().zip(global.assign(features, self.params.threads)?) {
            let centre = global.centre(cluster as usize);
            let square = |(v, c): (&T, &f64)| (v.to_f64() - c) * (v.to_f64() - c);
            spreads[cluster as usize] += row.iter().zip(centre).map(square).sum::<f64>() / share;
        }
        Ok(spreads)
    }

    /// Splits the half of the clusters whose samples lie farthest apart, each in a random direction.
    fn split(&self) -> Result<(Centroids, Vec<f64>), Error> {
        let (clusters, width) = (self.centroids.clusters(), self.centroids.width());
        let mut order: Vec<usize> = (0..clusters).collect();
        order.sort_by(|&a, &b| self.spreads[b].total_cmp(&self.spreads[a]).then(a.cmp(&b)));
        order.truncate((self.params.clusters - clusters).min(clusters.div_ceil(2)));
        let mut flat = self.centroids.flat().to_vec();
        for cluster in order {
            let seed = self.seed.derive("split", self.round.get()).derive("cluster", cluster as u64);
            for (feature, sign) in seed.signs(width).into_iter().enumerate() {
                let at = cluster * width + feature;
                let centre = flat[at];
                // Samples have a deviation of 1, and clusters a smaller one.
                flat[at] = centre + 0.25 * sign;
                flat.push(centre - 0.25 * sign);
            }
        }
        let clusters = flat.len() / width;
        Ok((Centroids::new(width, flat)?, vec![0.0; clusters]))
    }
}

#[cfg(test)]
mod tests {
    use dphe::NoiseMode;
    use dphe_learn::kmeans::lloyd;
    use dphe_learn::metrics::adjusted_mutual_information;

    use super::*;
    use crate::{PlainAverage, Weighting};

    const SAMPLES: usize = 240;

    /// Samples around six corners of a hexagon, dealt to four users, with the corner of each.
    fn users() -> (Vec<Features<f64>>, Features<f64>, Vec<u32>) {
        let truth: Vec<u32> = (0..SAMPLES as u32).map(|i| i % 6).collect();
        let rows: Vec<[f64; 2]> = truth
            .iter()
            .enumerate()
            .map(|(i, &corner)| {
                let (angle, i) = (f64::from(corner) * core::f64::consts::PI / 3.0, i as f64);
                [1.4 * angle.cos() + 0.2 * (1.3 * i).sin(), 1.4 * angle.sin() + 0.2 * (0.7 * i).cos()]
            })
            .collect();
        let users = rows.chunks(SAMPLES / 4).map(|rows| Features::new(2, rows.concat()).unwrap()).collect();
        (users, Features::new(2, rows.concat()).unwrap(), truth)
    }

    fn clustering(
        params: ClusteringParams,
        profile: Profile,
        start: Option<Centroids>,
    ) -> Result<Clustering<PlainAverage, f64>, Error> {
        let encryption = EncryptionSpec::new(profile, 2048, NoiseMode::Fast);
        let (id, config) = params.task(&encryption, 2, 4, SAMPLES as f64, 1)?;
        let average = PlainAverage::new(TaskParams::new(id, config)?, Weighting::Equal, 4)?.rounded();
        Clustering::new(users().0, start, average, params, Seed::new(3))
    }

    fn params(clusters: usize) -> ClusteringParams {
        ClusteringParams { clusters, batch: None, capacity: None, threads: NonZeroUsize::MIN }
    }

    fn agreement(centroids: &Centroids) -> f64 {
        let (_, all, truth) = users();
        let found = centroids.assign(&all, NonZeroUsize::MIN).unwrap();
        adjusted_mutual_information(&truth, &found).unwrap().max
    }

    #[test]
    fn clusters_grow_until_there_are_enough() {
        let mut clustering = clustering(params(6), Profile::Full, None).unwrap();
        let mut counts = Vec::new();
        while clustering.is_growing() {
            counts.push(clustering.round(&mut Stopwatch::none()).unwrap().clusters);
        }
        assert_eq!(counts, [2, 2, 3, 3, 5, 5, 6]);
        for _ in 0..10 {
            clustering.round(&mut Stopwatch::none()).unwrap();
        }
        assert!(agreement(clustering.centroids()) > 0.8, "{}", agreement(clustering.centroids()));
    }

    #[test]
    fn rounds_with_all_samples_equal_full_passes() {
        let (_, all, _) = users();
        let start = Centroids::new(2, (0..12).map(|i| f64::from(i * 7 % 5) / 2.0 - 1.0).collect()).unwrap();
        let mut clustering = clustering(params(6), Profile::Full, Some(start.clone())).unwrap();
        for _ in 0..3 {
            clustering.round(&mut Stopwatch::none()).unwrap();
        }
        let expected = lloyd(&start, &all, 3, NonZeroUsize::MIN).unwrap();
        for (found, expected) in clustering.centroids().flat().iter().zip(expected.flat()) {
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
    }

    #[test]
    fn batches_and_sparse_updates_find_the_clusters_too() {
        let corners = |i: u32| f64::from(i) * core::f64::consts::PI / 3.0 + 0.3;
        let start = (0..6).flat_map(|i| [corners(i).cos(), corners(i).sin()]).collect();
        let start = Centroids::new(2, start).unwrap();
        let batches = ClusteringParams { batch: Some(20), ..params(6) };
        let sparse = ClusteringParams { capacity: Some(10), ..params(6) };
        for (params, profile) in [(batches, Profile::Full), (sparse, Profile::Sparse)] {
            let mut clustering = clustering(params, profile, Some(start.clone())).unwrap();
            for _ in 0..8 {
                clustering.round(&mut Stopwatch::none()).unwrap();
            }
            assert!(agreement(clustering.centroids()) > 0.9, "{params:?}");
            assert_eq!(clustering.seen().iter().sum::<f64>() > 0.0, params.batch.is_some());
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert!(clustering(params(0), Profile::Full, None).is_err());
        let full = ClusteringParams { capacity: Some(3), ..params(2) };
        assert!(matches!(
            clustering(full, Profile::Full, None),
            Err(Error::Parameter { name: "capacity", .. })
        ));
        let three = Centroids::new(2, vec![0.0; 6]).unwrap();
        assert!(matches!(clustering(params(2), Profile::Full, Some(three)), Err(Error::Shape { .. })));
        let wide = Centroids::new(3, vec![0.0; 6]).unwrap();
        assert!(matches!(clustering(params(2), Profile::Full, Some(wide)), Err(Error::Shape { .. })));
    }
}
