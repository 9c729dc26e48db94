//! Greedy k-means++ (Arthur and Vassilvitskii, SODA 2007).

use super::Centroids;
use crate::{Error, Features, Real, Seed};

/// Chooses samples that are far from each other as initial centroids. For each centroid, `2 + ln k` candidates are
/// drawn with probability proportional to the squared distance from the centroids so far, and the candidate that
/// lowers the sum of these distances most is kept.
///
/// # Errors
/// If there are no clusters, or fewer samples than clusters.
pub fn plus_plus<T: Real>(features: &Features<T>, clusters: usize, seed: &Seed) -> Result<Centroids, Error> {
    if clusters == 0 {
        return Err(Error::Empty { what: "clusters" });
    }
    if features.len() < clusters {
        return Err(Error::TooFewSamples { what: "k-means++", needed: clusters, found: features.len() });
    }
    let mut stream = seed.derive("k-means++", 0).stream();
    let trials = 2 + (clusters as f64).ln() as usize;
    let first = stream.below(features.len());
    let mut chosen = vec![first];
    let mut distances: Vec<f64> = distances_to(features, first);
    while chosen.len() < clusters {
        let mut best: Option<(f64, usize, Vec<f64>)> = None;
        for _ in 0..trials {
            let candidate = draw(&distances, &mut stream);
            let mut closer = distances_to(features, candidate);
            closer.iter_mut().zip(&distances).for_each(|(new, &old)| *new = new.min(old));
            let sum: f64 = closer.iter().sum();
            if best.as_ref().is_none_or(|(least, ..)| sum < *least) {
                best = Some((sum, candidate, closer));
            }
        }
        if let Some((_, candidate, closer)) = best {
            chosen.push(candidate);
            distances = closer;
        }
    }
    let flat = chosen.iter().flat_map(|&i| features.row(i)).map(|v| v.to_f64()).collect();
    Centroids::new(features.width(), flat)
}

/// Draws a sample with probability proportional to its distance, or any sample if all distances are zero.
fn draw(distances: &[f64], stream: &mut crate::seed::Stream) -> usize {
    let mut sums = Vec::with_capacity(distances.len());
    let mut total = 0.0;
    for distance in distances {
        total += distance;
        sums.push(total);
    }
    if total <= 0.0 {
        return stream.below(distances.len());
    }
    let mark = stream.unit() * total;
    sums.partition_point(|&sum| sum <= mark).min(distances.len() - 1)
}

fn distances_to<T: Real>(features: &Features<T>, centre: usize) -> Vec<f64> {
    let centre = features.row(centre);
    features
        .rows()
        .map(|row| {
            // four independent sums hide the latency of additions
            let mut sums = [T::ZERO; 4];
            for (a, b) in row.chunks(4).zip(centre.chunks(4)) {
                for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
                    *sum += (a - b) * (a - b);
                }
            }
            ((sums[0] + sums[1]) + (sums[2] + sums[3])).to_f64()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    use crate::kmeans::tests::clouds;

    #[test]
    fn every_cluster_gets_an_initial_centroid() {
        let (features, truth) = clouds(12, 10, 20);
        let centroids = plus_plus(&features, 12, &Seed::new(1)).unwrap();
        let assigned = centroids.assign(&features, NonZeroUsize::MIN).unwrap();
        let ami = crate::metrics::adjusted_mutual_information(&truth, &assigned).unwrap();
        assert!(ami.arithmetic > 0.99, "{ami:?}");
        assert_eq!(centroids, plus_plus(&features, 12, &Seed::new(1)).unwrap());
    }

    #[test]
    fn equal_samples_are_accepted_and_too_few_are_refused() {
        let same = Features::new(2, vec![1.0f32; 10]).unwrap();
        assert_eq!(plus_plus(&same, 3, &Seed::new(0)).unwrap().clusters(), 3);
        assert!(matches!(plus_plus(&same, 6, &Seed::new(0)), Err(Error::TooFewSamples { .. })));
        assert!(plus_plus(&same, 0, &Seed::new(0)).is_err());
    }
}
