//! Clustering: k-means++ initialisation, plain baselines, and rounds of sparse centroids.
//!
//! Features must be standardised. Zero is then the mean of all samples, and a sparse centroid differs from the mean
//! in few features.

mod init;
mod minibatch;
mod rounds;
mod sparse;

pub use init::plus_plus;
pub use minibatch::{MiniBatch, lloyd};
pub use rounds::{CentroidSum, CentroidUpdate, CentroidWeighting, update};
pub use sparse::{DualAveraging, Sparsifier};

use std::num::NonZeroUsize;

use crate::{Error, Features, Real, Weights};

/// The centres of clusters.
#[derive(Clone, PartialEq)]
pub struct Centroids {
    // Invariant: clusters * width numbers, both > 0, all finite; `cluster * width + feature`.
    flat: Vec<f64>,
    width: usize,
}

impl Centroids {
    /// Creates centroids from their values, `width` features each, one after the other.
    ///
    /// # Errors
    /// If there are no values, the last centroid is incomplete, or a value is not finite.
    pub fn new(width: usize, flat: Vec<f64>) -> Result<Self, Error> {
        if width == 0 {
            return Err(Error::Empty { what: "features" });
        }
        if flat.is_empty() {
            return Err(Error::Empty { what: "clusters" });
        }
        if !flat.len().is_multiple_of(width) {
            let found = flat.len() % width;
            return Err(Error::Shape { what: "features of the last centroid", expected: width, found });
        }
        match flat.iter().position(|v| !v.is_finite()) {
            Some(index) => Err(Error::NotFinite { what: "centroid number", index }),
            None => Ok(Self { flat, width }),
        }
    }

    /// Returns the number of clusters.
    pub fn clusters(&self) -> usize {
        self.flat.len() / self.width
    }

    /// Returns the number of features per centroid.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns all values, indexed by `cluster * width + feature`.
    pub fn flat(&self) -> &[f64] {
        &self.flat
    }

    /// Returns one centroid.
    ///
    /// # Panics
    /// If the cluster does not exist.
    pub fn centre(&self, cluster: usize) -> &[f64] {
        &self.flat[cluster * self.width..][..self.width]
    }

    /// Returns the fraction of values that are exactly zero.
    pub fn sparsity(&self) -> f64 {
        self.flat.iter().filter(|&&v| v == 0.0).count() as f64 / self.flat.len() as f64
    }

    /// Returns the nearest centroid of every sample, or the first of several equally near ones.
    ///
    /// # Errors
    /// If the number of features per sample differs.
    pub fn assign<T: Real>(&self, features: &Features<T>, threads: NonZeroUsize) -> Result<Vec<u32>, Error> {
        // |x - c|^2 is minimal where x.c - |c|^2/2 is maximal, which is a linear classifier
        let clusters = self.clusters();
        let mut flat = vec![0.0; self.flat.len()];
        for (cluster, centre) in self.flat.chunks_exact(self.width).enumerate() {
            flat.iter_mut().skip(cluster).step_by(clusters).zip(centre).for_each(|(w, c)| *w = *c);
        }
        let halves =
            self.flat.chunks_exact(self.width).map(|c| -c.iter().map(|v| v * v).sum::<f64>() / 2.0).collect();
        Ok(Weights::new(self.width, flat, halves)?.scores(features, threads)?.best())
    }

    fn check_width(&self, found: usize) -> Result<(), Error> {
        match found == self.width {
            true => Ok(()),
            false => Err(Error::Shape { what: "features", expected: self.width, found }),
        }
    }
}

impl core::fmt::Debug for Centroids {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Centroids")
            .field("clusters", &self.clusters())
            .field("width", &self.width)
            .finish_non_exhaustive()
    }
}

/// Returns the number of samples per cluster and their means. The mean of an empty cluster is zero.
fn means<T: Real>(features: &Features<T>, assigned: &[u32], clusters: usize) -> (Vec<usize>, Vec<f64>) {
    let width = features.width();
    let (mut counts, mut sums) = (vec![0usize; clusters], vec![0.0; clusters * width]);
    for (row, &cluster) in features.rows().zip(assigned) {
        let cluster = cluster as usize;
        counts[cluster] += 1;
        sums[cluster * width..][..width].iter_mut().zip(row).for_each(|(s, v)| *s += v.to_f64());
    }
    for (sum, &count) in sums.chunks_exact_mut(width).zip(&counts) {
        sum.iter_mut().for_each(|s| *s /= count.max(1) as f64);
    }
    (counts, sums)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Seed;

    /// Returns samples around `clusters` random corners, with the corner of each sample.
    pub(crate) fn clouds(clusters: usize, each: usize, width: usize) -> (Features<f64>, Vec<u32>) {
        let mut stream = Seed::new(8).stream();
        let corners: Vec<f64> = (0..clusters * width).map(|_| 8.0 * (stream.unit() - 0.5)).collect();
        let truth: Vec<u32> = (0..clusters * each).map(|i| (i % clusters) as u32).collect();
        let values = truth
            .iter()
            .flat_map(|&c| corners[c as usize * width..][..width].to_vec())
            .map(|corner| corner + stream.unit() - 0.5)
            .collect();
        (Features::new(width, values).unwrap(), truth)
    }

    #[test]
    fn samples_are_assigned_to_the_nearest_centroid() {
        let centroids = Centroids::new(2, vec![0.0, 0.0, 10.0, 0.0, 0.0, 10.0]).unwrap();
        let features = Features::new(2, vec![1.0, 1.0, 9.0, 1.0, 2.0, 8.5, 5.0, 0.0]).unwrap();
        assert_eq!(centroids.assign(&features, NonZeroUsize::MIN).unwrap(), [0, 1, 2, 0]);
        assert_eq!(
            centroids.assign(&features.convert::<f32>(), NonZeroUsize::new(2).unwrap()).unwrap(),
            [0, 1, 2, 0]
        );
        let (counts, means) = means(&features, &[0, 1, 2, 0], 4);
        assert_eq!(counts, [2, 1, 1, 0]);
        assert_eq!(means, [3.0, 0.5, 9.0, 1.0, 2.0, 8.5, 0.0, 0.0]);
    }

    #[test]
    fn invalid_centroids_are_refused() {
        assert!(Centroids::new(0, vec![]).is_err());
        assert!(Centroids::new(2, vec![]).is_err());
        assert!(Centroids::new(2, vec![0.0; 3]).is_err());
        assert!(matches!(Centroids::new(1, vec![f64::NAN]), Err(Error::NotFinite { .. })));
        let narrow = Features::new(1, vec![0.0f32]).unwrap();
        assert!(Centroids::new(2, vec![0.0; 2]).unwrap().assign(&narrow, NonZeroUsize::MIN).is_err());
    }
}
