//! Plain baselines: mini-batch k-means (Sculley, WWW 2010) and Lloyd's algorithm.

use std::num::NonZeroUsize;

use super::{Centroids, means};
use crate::{Error, Features, Real, Seed};

/// Mini-batch k-means. Every batch is assigned first; then every sample moves its centroid by one over the number of
/// samples that the centroid has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MiniBatch {
    /// The number of samples per batch, drawn with replacement. The default is 300.
    pub batch: usize,
    /// The number of batches. The default is 60.
    pub iterations: usize,
    /// The number of threads. Results do not depend on it.
    pub threads: NonZeroUsize,
}

impl Default for MiniBatch {
    fn default() -> Self {
        Self { batch: 300, iterations: 60, threads: NonZeroUsize::MIN }
    }
}

impl MiniBatch {
    /// Improves centroids. The first sample of a centroid replaces it.
    ///
    /// # Errors
    /// If a parameter is zero or the number of features per sample differs.
    pub fn fit<T: Real>(
        &self,
        start: &Centroids,
        features: &Features<T>,
        seed: &Seed,
    ) -> Result<Centroids, Error> {
        for (name, value) in [("batch", self.batch), ("iterations", self.iterations)] {
            if value == 0 {
                return Err(Error::Parameter { name, value: 0.0, remedy: "use at least 1" });
            }
        }
        start.check_width(features.width())?;
        let mut stream = seed.derive("mini-batches", 0).stream();
        let mut centroids = start.clone();
        let mut seen = vec![0u64; start.clusters()];
        for _ in 0..self.iterations {
            let chosen: Vec<usize> = (0..self.batch).map(|_| stream.below(features.len())).collect();
            let batch = features.select(&chosen)?;
            let assigned = centroids.assign(&batch, self.threads)?;
            for (row, &cluster) in batch.rows().zip(&assigned) {
                let cluster = cluster as usize;
                seen[cluster] += 1;
                let rate = 1.0 / seen[cluster] as f64;
                let centre = &mut centroids.flat[cluster * features.width()..][..features.width()];
                centre.iter_mut().zip(row).for_each(|(c, x)| *c = (1.0 - rate) * *c + rate * x.to_f64());
            }
        }
        Ok(centroids)
    }
}

/// Runs Lloyd's algorithm: every centroid becomes the mean of its samples, until no assignment changes or `passes`
/// are done. An empty cluster keeps its centroid.
///
/// # Errors
/// If the number of features per sample differs.
pub fn lloyd<T: Real>(
    start: &Centroids,
    features: &Features<T>,
    passes: usize,
    threads: NonZeroUsize,
) -> Result<Centroids, Error> {
    let mut centroids = start.clone();
    let mut assigned = centroids.assign(features, threads)?;
    for _ in 0..passes {
        let (counts, means) = means(features, &assigned, centroids.clusters());
        for (cluster, &count) in counts.iter().enumerate() {
            if count > 0 {
                let range = cluster * features.width()..(cluster + 1) * features.width();
                centroids.flat[range.clone()].copy_from_slice(&means[range]);
            }
        }
        let next = centroids.assign(features, threads)?;
        if next == assigned {
            break;
        }
        assigned = next;
    }
    Ok(centroids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kmeans::plus_plus;
    use crate::kmeans::tests::clouds;

    #[test]
    fn one_cluster_equals_the_running_mean() {
        let (features, _) = clouds(3, 20, 4);
        let start = Centroids::new(4, vec![100.0; 4]).unwrap();
        let params = MiniBatch { batch: 7, iterations: 5, ..MiniBatch::default() };
        let found = params.fit(&start, &features, &Seed::new(4)).unwrap();
        let mut stream = Seed::new(4).derive("mini-batches", 0).stream();
        let mut mean = vec![0.0; 4];
        for _ in 0..35 {
            let row = features.row(stream.below(features.len()));
            mean.iter_mut().zip(row).for_each(|(m, x)| *m += x / 35.0);
        }
        for (found, mean) in found.flat().iter().zip(mean) {
            assert!((found - mean).abs() < 1e-12);
        }
    }

    #[test]
    fn baselines_recover_the_clusters() {
        let (features, truth) = clouds(6, 30, 10);
        let start = plus_plus(&features, 6, &Seed::new(2)).unwrap();
        let batches = MiniBatch { batch: 30, iterations: 20, ..MiniBatch::default() };
        for found in [
            batches.fit(&start, &features, &Seed::new(3)).unwrap(),
            lloyd(&start, &features, 20, NonZeroUsize::MIN).unwrap(),
        ] {
            let assigned = found.assign(&features, NonZeroUsize::MIN).unwrap();
            let ami = crate::metrics::adjusted_mutual_information(&truth, &assigned).unwrap();
            assert!(ami.max > 0.95, "{ami:?}");
        }
        assert!(MiniBatch { batch: 0, ..batches }.fit(&start, &features, &Seed::new(3)).is_err());
    }
}
