//! Plain baselines: mini-batches (Sculley, WWW 2010) and full passes (Lloyd).

use super::{Centroids, means};
use crate::{Error, Features, Real, Seed, Threads};

/// Mini-batch k-means: every batch is assigned first, then every sample pulls its centre by one over the number of
/// samples the centre has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MiniBatch {
    /// Samples in a batch, drawn with replacement; normally 300.
    pub batch: usize,
    /// Batches; normally 60.
    pub iterations: usize,
    /// Threads a call may use.
    pub threads: Threads,
}

impl Default for MiniBatch {
    fn default() -> Self {
        Self { batch: 300, iterations: 60, threads: Threads::ONE }
    }
}

impl MiniBatch {
    /// Improves centres. The first sample that a centre gets replaces it.
    ///
    /// # Errors
    /// No batch, no iterations, or samples of another width.
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

/// Full passes: every centre becomes the mean of its samples, until none changes its centre or `passes` are done.
/// An empty cluster keeps its centre.
///
/// # Errors
/// If the samples have another width.
pub fn lloyd<T: Real>(
    start: &Centroids,
    features: &Features<T>,
    passes: usize,
    threads: Threads,
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
    fn one_cluster_is_the_running_mean() {
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
    fn baselines_find_the_clouds() {
        let (features, truth) = clouds(6, 30, 10);
        let start = plus_plus(&features, 6, &Seed::new(2)).unwrap();
        let batches = MiniBatch { batch: 30, iterations: 20, ..MiniBatch::default() };
        for found in [
            batches.fit(&start, &features, &Seed::new(3)).unwrap(),
            lloyd(&start, &features, 20, Threads::ONE).unwrap(),
        ] {
            let assigned = found.assign(&features, Threads::ONE).unwrap();
            let ami = crate::metrics::adjusted_mutual_information(&truth, &assigned).unwrap();
            assert!(ami.max > 0.95, "{ami:?}");
        }
        assert!(MiniBatch { batch: 0, ..batches }.fit(&start, &features, &Seed::new(3)).is_err());
    }
}
