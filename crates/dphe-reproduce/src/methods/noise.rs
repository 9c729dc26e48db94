//! Noise for differential privacy in floating point. It shows the cost in accuracy but is not secure: the low bits of
//! such noise leak (Mironov, CCS 2012), so real noise must be drawn on a grid.

use chacha20::ChaCha20Rng;
use dphe_learn::Seed;
use rand_core::{Rng, SeedableRng};

/// A generator of noise.
pub struct Noise(ChaCha20Rng);

impl Noise {
    /// Makes a generator from a seed.
    pub fn new(seed: &Seed) -> Self {
        Self(ChaCha20Rng::from_seed(seed.to_bytes()))
    }

    /// Draws a uniform number from the open interval from 0 to 1.
    fn unit(&mut self) -> f64 {
        ((self.0.next_u64() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
    }

    /// Draws Laplace noise of this scale, which is the mean of its magnitude.
    pub fn laplace(&mut self, scale: f64) -> f64 {
        let u = self.unit() - 0.5;
        -scale * u.signum() * (1.0 - 2.0 * u.abs()).ln()
    }

    /// Draws two independent Gaussian numbers of this standard deviation (Box-Muller).
    pub fn gaussians(&mut self, deviation: f64) -> (f64, f64) {
        let radius = deviation * (-2.0 * self.unit().ln()).sqrt();
        let (sin, cos) = (core::f64::consts::TAU * self.unit()).sin_cos();
        (radius * cos, radius * sin)
    }
}

impl core::fmt::Debug for Noise {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Noise(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 40_000;

    #[test]
    fn laplace_noise_has_zero_mean_and_its_scale_as_mean_magnitude() {
        let mut noise = Noise::new(&Seed::new(1));
        for scale in [0.3, 7.0] {
            let draws: Vec<f64> = (0..DRAWS).map(|_| noise.laplace(scale)).collect();
            let magnitude = draws.iter().map(|v| v.abs()).sum::<f64>() / DRAWS as f64;
            let mean = draws.iter().sum::<f64>() / DRAWS as f64;
            // magnitudes are exponentially distributed, so their standard deviation is the scale too
            let error = scale / (DRAWS as f64).sqrt();
            assert!((magnitude - scale).abs() < 3.0 * error, "{magnitude}");
            assert!(mean.abs() < 3.0 * error * f64::sqrt(2.0), "{mean}");
        }
    }

    #[test]
    fn gaussian_noise_has_its_standard_deviation() {
        let mut noise = Noise::new(&Seed::new(2));
        let draws: Vec<f64> =
            (0..DRAWS / 2).map(|_| noise.gaussians(50.74)).flat_map(|(a, b)| [a, b]).collect();
        let square = draws.iter().map(|v| v * v).sum::<f64>() / DRAWS as f64;
        let error = 50.74f64.powi(2) * (2.0 / DRAWS as f64).sqrt();
        assert!((square - 50.74f64.powi(2)).abs() < 3.0 * error, "{square}");
        let beyond = draws.iter().filter(|v| v.abs() > 2.0 * 50.74).count() as f64 / DRAWS as f64;
        assert!((beyond - 0.0455).abs() < 0.004, "{beyond}");
    }
}
