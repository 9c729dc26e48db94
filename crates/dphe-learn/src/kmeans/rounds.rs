//! Federated clustering: users send sparse local centroids, and the aggregator averages them.

use std::num::NonZeroUsize;

use super::sparse::{soft, strength_for};
use super::{Centroids, Sparsifier, means};
use crate::{Error, Features, Real, Seed};

/// The weighting of users in the average of centroids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CentroidWeighting {
    /// By the number of samples that each user has in each cluster: `sum count c / sum count`. This sums one more
    /// number per cluster and reveals only the total counts. The default.
    Counts,
    /// The plain mean over users, as in the paper. A user without samples in a cluster sends the global centroid,
    /// made as sparse as the others.
    Plain,
}

/// A user's contribution to a round of clustering. It is secret and must be sealed before it is sent.
#[derive(Clone, PartialEq)]
pub struct CentroidUpdate {
    flat: Vec<f64>,
    counts: Vec<f64>,
}

impl CentroidUpdate {
    /// Returns the values to sum, indexed by `cluster * width + feature`. Most are zero.
    pub fn flat(&self) -> &[f64] {
        &self.flat
    }

    /// Returns one dense value per cluster to sum: the number of samples, or 1 for a plain mean.
    pub fn counts(&self) -> &[f64] {
        &self.counts
    }

    /// Returns the fraction of zeros in [`flat`](Self::flat).
    pub fn sparsity(&self) -> f64 {
        self.flat.iter().filter(|&&v| v == 0.0).count() as f64 / self.flat.len() as f64
    }
}

impl core::fmt::Debug for CentroidUpdate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("CentroidUpdate(..)")
    }
}

/// Computes a user's update: assigns the samples to the global centroids and makes the local centroids sparse.
///
/// # Errors
/// If the number of features per sample differs, or a parameter of the sparsifier is out of range.
pub fn update<T: Real>(
    global: &Centroids,
    features: &Features<T>,
    sparsifier: Sparsifier,
    weighting: CentroidWeighting,
    seed: &Seed,
    threads: NonZeroUsize,
) -> Result<CentroidUpdate, Error> {
    sparsifier.check()?;
    let assigned = global.assign(features, threads)?;
    let (width, clusters) = (global.width(), global.clusters());
    let (counts, mut centres) = means(features, &assigned, clusters);
    let absent = |cluster: usize| counts[cluster] == 0;
    if weighting == CentroidWeighting::Plain {
        for cluster in (0..clusters).filter(|&c| absent(c)) {
            centres[cluster * width..][..width].copy_from_slice(global.centre(cluster));
        }
    }
    match sparsifier {
        Sparsifier::Capacity(capacity) => {
            let strength = strength_for(&centres, capacity);
            centres.iter_mut().for_each(|c| *c = soft(*c, strength));
        }
        Sparsifier::Strength(strength) => centres.iter_mut().for_each(|c| *c = soft(*c, strength)),
        Sparsifier::DualAveraging(averaging) => {
            let mut members = vec![Vec::new(); clusters];
            assigned.iter().enumerate().for_each(|(sample, &cluster)| members[cluster as usize].push(sample));
            for (cluster, members) in members.iter().enumerate() {
                let own = &mut centres[cluster * width..][..width];
                if members.is_empty() {
                    own.iter_mut().for_each(|c| *c = soft(*c, averaging.strength));
                } else {
                    let start = global.centre(cluster).to_vec();
                    let seed = seed.derive("dual averaging", cluster as u64);
                    own.copy_from_slice(&averaging.centre(features, members, start, &seed));
                }
            }
        }
    }
    let counts: Vec<f64> = match weighting {
        CentroidWeighting::Plain => vec![1.0; clusters],
        CentroidWeighting::Counts => counts.iter().map(|&count| count as f64).collect(),
    };
    for (centre, count) in centres.chunks_exact_mut(width).zip(&counts) {
        centre.iter_mut().for_each(|c| *c *= count);
    }
    Ok(CentroidUpdate { flat: centres, counts })
}

/// The sum of users' updates.
#[derive(Clone, Debug, PartialEq)]
pub struct CentroidSum {
    flat: Vec<f64>,
    counts: Vec<f64>,
}

impl CentroidSum {
    /// Creates an empty sum.
    pub fn new(global: &Centroids) -> Self {
        Self { flat: vec![0.0; global.flat().len()], counts: vec![0.0; global.clusters()] }
    }

    /// Creates a sum from opened values.
    ///
    /// # Errors
    /// If a value is not finite.
    pub fn from_parts(flat: Vec<f64>, counts: Vec<f64>) -> Result<Self, Error> {
        match flat.iter().chain(&counts).position(|v| !v.is_finite()) {
            Some(index) => Err(Error::NotFinite { what: "sum", index }),
            None => Ok(Self { flat, counts }),
        }
    }

    /// Adds a user's update.
    ///
    /// # Errors
    /// If the shapes differ.
    pub fn add(&mut self, update: &CentroidUpdate) -> Result<(), Error> {
        self.check(update.flat.len(), update.counts.len())?;
        self.flat.iter_mut().zip(&update.flat).for_each(|(sum, v)| *sum += v);
        self.counts.iter_mut().zip(&update.counts).for_each(|(sum, v)| *sum += v);
        Ok(())
    }

    /// Returns the next global centroids. A cluster without samples keeps its centroid.
    ///
    /// # Errors
    /// If the shapes differ.
    pub fn apply(&self, global: &Centroids) -> Result<Centroids, Error> {
        self.check(global.flat().len(), global.clusters())?;
        let mut flat = global.flat().to_vec();
        for (cluster, &count) in self.counts.iter().enumerate() {
            // counts are not exactly whole after fixed-point rounding
            if count > 0.5 {
                let range = cluster * global.width()..(cluster + 1) * global.width();
                flat[range.clone()].iter_mut().zip(&self.flat[range]).for_each(|(c, sum)| *c = sum / count);
            }
        }
        Centroids::new(global.width(), flat)
    }

    /// Returns the next global centroids of rounds in which users send batches: a centroid is the mean of all samples
    /// that it has `seen` in any round. The first samples of a centroid replace it.
    ///
    /// # Errors
    /// If the shapes differ.
    pub fn apply_to_mean(&self, global: &Centroids, seen: &mut [f64]) -> Result<Centroids, Error> {
        self.check(global.flat().len(), global.clusters())?;
        if seen.len() != self.counts.len() {
            let (expected, found) = (self.counts.len(), seen.len());
            return Err(Error::Shape { what: "clusters", expected, found });
        }
        let mut flat = global.flat().to_vec();
        for (cluster, (&count, seen)) in self.counts.iter().zip(seen).enumerate() {
            if count > 0.5 {
                let (before, after) = (*seen, *seen + count);
                let range = cluster * global.width()..(cluster + 1) * global.width();
                let sums = &self.flat[range.clone()];
                flat[range].iter_mut().zip(sums).for_each(|(c, sum)| *c = (*c * before + sum) / after);
                *seen = after;
            }
        }
        Centroids::new(global.width(), flat)
    }

    fn check(&self, numbers: usize, clusters: usize) -> Result<(), Error> {
        if self.flat.len() != numbers {
            return Err(Error::Shape { what: "centroid numbers", expected: self.flat.len(), found: numbers });
        }
        if self.counts.len() != clusters {
            return Err(Error::Shape { what: "clusters", expected: self.counts.len(), found: clusters });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kmeans::tests::clouds;
    use crate::kmeans::{DualAveraging, lloyd, plus_plus};

    #[test]
    fn dense_rounds_by_counts_equal_lloyd_on_pooled_data() {
        let (features, _) = clouds(4, 15, 6);
        let start =
            plus_plus(&features.select(&[0, 1, 2, 3, 4, 5, 6, 7]).unwrap(), 4, &Seed::new(0)).unwrap();
        let users = [
            features.select(&(0..20).collect::<Vec<_>>()).unwrap(),
            features.select(&(20..60).collect::<Vec<_>>()).unwrap(),
        ];
        let mut sum = CentroidSum::new(&start);
        for user in &users {
            let dense = Sparsifier::Strength(0.0);
            sum.add(
                &update(&start, user, dense, CentroidWeighting::Counts, &Seed::new(1), NonZeroUsize::MIN)
                    .unwrap(),
            )
            .unwrap();
        }
        let (found, pooled) =
            (sum.apply(&start).unwrap(), lloyd(&start, &features, 1, NonZeroUsize::MIN).unwrap());
        for (a, b) in found.flat().iter().zip(pooled.flat()) {
            assert!((a - b).abs() < 1e-12);
        }
    }

    #[test]
    fn empty_clusters_keep_their_centroid_and_capacity_is_kept() {
        let global = Centroids::new(2, vec![0.0, 1.0, 50.0, -60.0]).unwrap();
        let features = Features::new(2, vec![1.0, 3.0, 2.0, 4.0]).unwrap();
        let run = |sparsifier, weighting| {
            update(&global, &features, sparsifier, weighting, &Seed::new(0), NonZeroUsize::MIN).unwrap()
        };
        let counted = run(Sparsifier::Capacity(1), CentroidWeighting::Counts);
        assert_eq!((counted.flat(), counted.counts()), (&[0.0, 4.0, 0.0, 0.0][..], &[2.0, 0.0][..]));
        let mut sum = CentroidSum::new(&global);
        sum.add(&counted).unwrap();
        assert_eq!(sum.apply(&global).unwrap().flat(), [0.0, 2.0, 50.0, -60.0]);
        let mut seen = [0.0, 0.0];
        let first = sum.apply_to_mean(&global, &mut seen).unwrap();
        assert_eq!((first.flat(), seen), (&[0.0, 2.0, 50.0, -60.0][..], [2.0, 0.0]));
        let mut seen = [6.0, 0.0];
        assert_eq!(sum.apply_to_mean(&global, &mut seen).unwrap().flat(), [0.0, 1.25, 50.0, -60.0]);
        assert_eq!(seen, [8.0, 0.0]);
        assert!(sum.apply_to_mean(&global, &mut [0.0]).is_err());
        // the global centroid replaces the user's missing one, with the same capacity
        let plain = run(Sparsifier::Capacity(2), CentroidWeighting::Plain);
        assert_eq!((plain.flat(), plain.counts()), (&[0.0, 0.0, 46.5, -56.5][..], &[1.0, 1.0][..]));
        let averaged = run(
            Sparsifier::DualAveraging(DualAveraging { strength: 55.0, gamma: 3.0, iterations: 50 }),
            CentroidWeighting::Plain,
        );
        assert_eq!(averaged.flat(), [0.0, 0.0, 0.0, -5.0]);
        assert_eq!(averaged.sparsity(), 0.75);
    }
}
