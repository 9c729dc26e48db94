//! Chi-squared tests without tables.

/// Compares the counts of cells in `runs` draws, each a set of `size` distinct cells, with those of uniform draws.
/// Returns the deviation in standard deviations of a normal distribution (Wilson and Hilferty).
pub(crate) fn uniformity(counts: &[u32], runs: usize, size: usize) -> f64 {
    let cells = counts.len() as f64;
    let share = size as f64 / cells;
    let expected = runs as f64 * share;
    // draws without replacement vary less than independent ones
    let variance = expected * (1.0 - share) * cells / (cells - 1.0);
    let chi: f64 = counts.iter().map(|&count| (f64::from(count) - expected).powi(2)).sum::<f64>() / variance;
    deviation(chi, cells - 1.0)
}

/// Compares two lists of counts, each from `runs` draws as above.
pub(crate) fn homogeneity(a: &[u32], b: &[u32], runs: usize, size: usize) -> f64 {
    let cells = a.len() as f64;
    let share = size as f64 / cells;
    let variance = 2.0 * runs as f64 * share * (1.0 - share) * cells / (cells - 1.0);
    let chi: f64 =
        a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum::<f64>() / variance;
    deviation(chi, cells - 1.0)
}

fn deviation(chi: f64, degrees: f64) -> f64 {
    let spread = 2.0 / (9.0 * degrees);
    ((chi / degrees).cbrt() - (1.0 - spread)) / spread.sqrt()
}

/// Returns the two-sided probability of a deviation at least this large.
pub(crate) fn p_value(z: f64) -> f64 {
    // Abramowitz and Stegun 7.1.26, accurate to 1e-7
    let x = z.abs() / core::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let poly = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592]
        .iter()
        .fold(0.0, |sum, a| (sum + a) * t);
    poly * (-x * x).exp()
}
