//! Sparse centroids: the minimiser of `1/2 mean |w - x|^2 + strength |w|_1`, exactly or by dual averaging.

use crate::{Error, Features, Real, Seed};

/// The method that makes local means sparse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sparsifier {
    /// The exact minimiser `soft(mean, strength)`, with the strength that leaves at most this many non-zeros in all
    /// centroids together. The default.
    Capacity(usize),
    /// The exact minimiser for a given strength.
    Strength(f64),
    /// Regularised dual averaging over samples (Jumutc, Langone, Suykens, BigData 2015), as in the paper. It
    /// converges to the minimiser.
    DualAveraging(DualAveraging),
}

/// The parameters of regularised dual averaging.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DualAveraging {
    /// The L1 strength.
    pub strength: f64,
    /// The step scale, normally 3.
    pub gamma: f64,
    /// The number of samples drawn per cluster, normally 200 to 1000.
    pub iterations: usize,
}

impl DualAveraging {
    /// Computes the centroid of some samples, starting from `w`.
    pub(super) fn centre<T: Real>(
        &self,
        features: &Features<T>,
        members: &[usize],
        mut w: Vec<f64>,
        seed: &Seed,
    ) -> Vec<f64> {
        let mut stream = seed.stream();
        let mut slope = vec![0.0; w.len()];
        for t in 1..=self.iterations {
            let t = t as f64;
            let x = features.row(members[stream.below(members.len())]);
            let mut change = 0.0;
            for ((w, g), x) in w.iter_mut().zip(&mut slope).zip(x) {
                *g = (t - 1.0) / t * *g + (*w - x.to_f64()) / t;
                let next = -(t.sqrt() / self.gamma) * soft(*g, self.strength);
                change += (next - *w) * (next - *w);
                *w = next;
            }
            if change.sqrt() < 1e-5 {
                break;
            }
        }
        w
    }
}

impl Sparsifier {
    pub(super) fn check(&self) -> Result<(), Error> {
        let strength = |value: f64| match value >= 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(Error::Parameter {
                name: "strength",
                value,
                remedy: "use a number of at least 0, such as 0.6",
            }),
        };
        match self {
            Self::Capacity(0) => {
                Err(Error::Parameter { name: "capacity", value: 0.0, remedy: "use at least 1" })
            }
            Self::Capacity(_) => Ok(()),
            Self::Strength(value) => strength(*value),
            Self::DualAveraging(d) => {
                strength(d.strength)?;
                if !(d.gamma > 0.0 && d.gamma.is_finite()) || d.iterations == 0 {
                    return Err(Error::Parameter {
                        name: "gamma or iterations",
                        value: d.gamma,
                        remedy: "use a positive gamma, normally 3, and at least one iteration",
                    });
                }
                Ok(())
            }
        }
    }
}

/// Returns the strength that leaves at most `capacity` non-zeros, which is the next largest magnitude.
pub(super) fn strength_for(values: &[f64], capacity: usize) -> f64 {
    if capacity >= values.len() {
        return 0.0;
    }
    let mut magnitudes: Vec<f64> = values.iter().map(|v| v.abs()).collect();
    let (_, strength, _) = magnitudes.select_nth_unstable_by(capacity, |a, b| b.total_cmp(a));
    *strength
}

/// Returns `sign(value) max(|value| - threshold, 0)`.
pub(super) fn soft(value: f64, threshold: f64) -> f64 {
    value - value.clamp(-threshold, threshold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_zeros_never_exceed_the_capacity() {
        let values = [3.0, -1.0, 2.0, 0.5, -2.5];
        let strength = strength_for(&values, 2);
        assert_eq!(strength, 2.0);
        assert_eq!(values.map(|v| soft(v, strength)), [1.0, 0.0, 0.0, 0.0, -0.5]);
        assert_eq!(strength_for(&values, 5), 0.0);
        // ties leave fewer non-zeros, never more
        assert_eq!([1.0, 1.0, 1.0].map(|v| soft(v, strength_for(&[1.0, 1.0, 1.0], 2))), [0.0; 3]);
    }

    #[test]
    fn dual_averaging_converges_to_the_minimiser() {
        let mut stream = Seed::new(6).stream();
        let width = 200;
        let centre: Vec<f64> = (0..width).map(|_| 3.0 * (stream.unit() - 0.5)).collect();
        let values =
            (0..100).flat_map(|_| centre.clone()).map(|c| c + stream.unit() - 0.5).collect::<Vec<f64>>();
        let features = Features::new(width, values).unwrap();
        let mut mean = vec![0.0; width];
        features.rows().for_each(|row| mean.iter_mut().zip(row).for_each(|(m, x)| *m += x / 100.0));
        let best: Vec<f64> = mean.iter().map(|&m| soft(m, 0.5)).collect();
        let members: Vec<usize> = (0..100).collect();
        let length = best.iter().map(|v| v * v).sum::<f64>().sqrt();
        let distance = |iterations| {
            let averaging = DualAveraging { strength: 0.5, gamma: 3.0, iterations };
            let w = averaging.centre(&features, &members, vec![0.0; width], &Seed::new(1));
            w.iter().zip(&best).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt() / length
        };
        let (few, many) = (distance(100), distance(10_000));
        assert!(many < few / 2.0 && many < 0.05, "{few} {many}");
    }

    #[test]
    fn invalid_parameters_are_refused() {
        let averaging = DualAveraging { strength: 0.5, gamma: 3.0, iterations: 10 };
        for bad in [
            Sparsifier::Capacity(0),
            Sparsifier::Strength(-1.0),
            Sparsifier::DualAveraging(DualAveraging { gamma: 0.0, ..averaging }),
            Sparsifier::DualAveraging(DualAveraging { iterations: 0, ..averaging }),
            Sparsifier::DualAveraging(DualAveraging { strength: f64::NAN, ..averaging }),
        ] {
            assert!(bad.check().is_err());
        }
    }
}
