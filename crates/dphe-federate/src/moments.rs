//! Standardisation without public data: the numbers, sums and squares of all users' samples, summed like updates.
//!
//! Nobody knows the range of raw features in advance, so a fixed point would not fit them. Each moment is sent as an
//! integer of [`DIGITS`] digits, which are summed one by one.

use dphe::{Profile, Round, SparseVector, TaskConfig, TaskId, Update};
use dphe_learn::{Features, Moments, Real, Standardizer};

use crate::start::simulated_id;
use crate::{Average, EncryptionSpec, Error, Stopwatch, UserUpdate};

/// Bits of a digit.
const DIGIT_BITS: u32 = 24;
/// Digits of a moment.
const DIGITS: usize = 5;
/// Fractional bits of moments in the first round, when the range of the features is unknown.
const FIRST_FRACTION: i32 = 20;
/// The fewest and the most fractional bits in the second round.
const SECOND_FRACTION: [i32; 2] = [40, 100];
/// The sum of a moment over users has at most this many bits, except of features that are large from the beginning.
const SUM_BITS: i32 = 100;
/// The samples of one user may be this many, as two to this power.
const COUNT_BITS: i8 = 25;

/// What the users' moments say about their samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Standardization {
    /// Means and deviations over all users.
    pub standardizer: Standardizer,
    /// `1 + mean |x|^2` of the standardised samples, which scales the steps of the learner.
    pub squared_radius: f64,
    /// The number of samples of all users.
    pub samples: f64,
}

impl Standardization {
    /// The rounds that [`Standardization::of`] takes.
    pub const ROUNDS: u32 = 2;

    /// Returns a simulated task that sums the moments of this many features.
    ///
    /// # Errors
    /// If there are more features than a task has weights.
    pub fn task(
        encryption: &EncryptionSpec,
        features: usize,
        users: usize,
        seed: u64,
    ) -> Result<(TaskId, TaskConfig), Error> {
        let numbers = features.saturating_mul(2 * DIGITS);
        let what = "moments";
        let numbers = u32::try_from(numbers).map_err(|_| Error::Shape {
            what,
            task: u32::MAX as usize,
            model: numbers,
        })?;
        let most = u32::try_from(users.max(3)).unwrap_or(u32::MAX);
        let mut config = TaskConfig::new(Profile::Full, 1, numbers, most);
        // One position holds everything, so nothing is left out and nothing has to be put in order.
        (config.block, config.capacity) = (numbers, 1);
        config.dense = 1;
        (config.scale_bits, config.clip_exponent) = (0, COUNT_BITS);
        (config.key_bits, config.noise) = (encryption.key_bits, encryption.noise);
        config.rounds = Self::ROUNDS;
        Ok((simulated_id(seed), config))
    }

    /// Sums the moments of all users' raw features in two rounds: around zero, then around the means of the first
    /// round, which avoids the cancellation of large numbers.
    ///
    /// # Errors
    /// As [`Average::average`], or if a feature is too large for a moment.
    pub fn of<A: Average, T: Real>(average: &mut A, users: &[&Features<T>]) -> Result<Self, Error> {
        let width = users.first().map_or(0, |features| features.width());
        // no clipping in the first round
        let zero =
            Standardizer::from_parts(vec![0.0; width], vec![2f64.powi(60); width], Standardizer::CLIP)?;
        let first = total(average, Round::FIRST, users, &zero, &vec![FIRST_FRACTION; width])?;
        let found = zero.refit(&first)?;
        // A deviation that is small beside the mean is not yet known, and must not clip the second round.
        let least = found.mean().iter().map(|mean| 1e-6 * mean.abs().max(1.0));
        let bounds = found.deviation().iter().zip(least).map(|(deviation, least)| deviation.max(least));
        let around = Standardizer::from_parts(found.mean().to_vec(), bounds.collect(), Standardizer::CLIP)?;
        let fractions: Vec<i32> =
            first.squares.iter().map(|&squares| second_fraction(first.count, squares, users.len())).collect();
        let sum = total(average, Round::FIRST.next(), users, &around, &fractions)?;
        let mean = around.refit(&sum)?.mean().to_vec();
        let variances: Vec<f64> = (0..width)
            .map(|j| {
                let shift = sum.sums[j] / sum.count;
                let variance = sum.squares[j] / sum.count - shift * shift;
                // the rounding of the fixed point, of the sums, and of the features themselves
                let fixed = 4.0 * users.len() as f64 / sum.count * 2f64.powi(-fractions[j]);
                let sums = 4.0 * f64::EPSILON * sum.count * shift * shift;
                let features = (4.0 * f64::EPSILON * mean[j]).powi(2);
                if variance <= fixed.max(sums).max(features) { 0.0 } else { variance }
            })
            .collect();
        let squared_radius = 1.0 + variances.iter().filter(|&&variance| variance > 0.0).count() as f64;
        // A constant feature gets deviation 1, so it becomes 0.
        let deviation =
            variances.iter().map(|&variance| if variance > 0.0 { variance.sqrt() } else { 1.0 }).collect();
        let standardizer = Standardizer::from_parts(mean, deviation, Standardizer::CLIP)?;
        Ok(Self { standardizer, squared_radius, samples: sum.count })
    }
}

/// Returns the fractional bits of a feature's moments in the second round: as many as the sums over all users, which
/// those of the first round bound, leave room for.
fn second_fraction(count: f64, squares: f64, users: usize) -> i32 {
    let squares = squares.max(0.0) + users as f64 * 2f64.powi(-FIRST_FRACTION);
    let largest = squares.max((count * squares).sqrt());
    let [fewest, most] = SECOND_FRACTION;
    (SUM_BITS - largest.log2().ceil() as i32).clamp(fewest, most)
}

/// Sums the moments of all users around the means of `around`, with fractional bits per feature.
fn total<A: Average, T: Real>(
    average: &mut A,
    round: Round,
    users: &[&Features<T>],
    around: &Standardizer,
    fractions: &[i32],
) -> Result<Moments, Error> {
    let all = users.len();
    let updates = users
        .iter()
        .enumerate()
        .map(|(user, features)| {
            let moments = around.moments(features).map_err(|source| Error::OfUser { user, source })?;
            let mut values = Vec::with_capacity(2 * DIGITS * moments.sums.len());
            let width = moments.sums.len();
            for (index, &moment) in moments.sums.iter().chain(&moments.squares).enumerate() {
                let digits = digits(moment, fractions[index % width], all);
                values.extend(digits.ok_or(Error::Protocol(dphe::Error::Value {
                    index: index % width,
                    reason: "so large that its moments cannot be summed; divide the feature by a power of ten",
                }))?);
            }
            let indices = (0..values.len() as u32).collect();
            let weights = SparseVector::new(values.len(), indices, values)?;
            Ok(UserUpdate { user, update: Update::new(weights).with_dense(vec![moments.count]) })
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let sum = average.average(round, &updates, &mut Stopwatch::none())?.sum;
    let moments = sum.weights.chunks_exact(DIGITS).zip(fractions.iter().cycle());
    let mut numbers: Vec<f64> = moments.map(|(sums, &fraction)| number(sums, fraction)).collect();
    let squares = numbers.split_off(numbers.len() / 2);
    Ok(Moments { count: sum.dense.first().copied().unwrap_or(0.0), sums: numbers, squares })
}

/// Returns the digits of a number with this many fractional bits, the lowest first, or `None` if it is so large that
/// the sum over all users might not fit. Digits lie between plus and minus half their base.
fn digits(value: f64, fraction: i32, users: usize) -> Option<[f64; DIGITS]> {
    let scaled = (value * 2f64.powi(fraction)).round_ties_even();
    // There is room for the carry of the last digit, and all sums fit into 128 bits.
    let room = (DIGIT_BITS as usize * DIGITS) as i32 - 2;
    if scaled.abs() >= 2f64.powi(room).min(2f64.powi(126) / users as f64) {
        return None;
    }
    let (mut rest, half) = (scaled as i128, 1 << (DIGIT_BITS - 1));
    Some(core::array::from_fn(|_| {
        let digit = (rest + half).rem_euclid(2 * half) - half;
        rest = (rest - digit) >> DIGIT_BITS;
        digit as f64
    }))
}

/// Returns the number whose digits were summed.
fn number(sums: &[f64], fraction: i32) -> f64 {
    let total = sums.iter().rev().fold(0i128, |total, &sum| (total << DIGIT_BITS) + sum as i128);
    total as f64 * 2f64.powi(-fraction)
}

#[cfg(test)]
mod tests {
    use dphe::{NoiseMode, TaskParams};

    use super::*;
    use crate::{PlainAverage, Weighting};

    fn standardization(users: &[Features<f64>]) -> Result<Standardization, Error> {
        let encryption = EncryptionSpec::new(Profile::Full, 2048, NoiseMode::Fast);
        let (id, config) = Standardization::task(&encryption, users[0].width(), users.len(), 1)?;
        let task = TaskParams::new(id, config)?;
        let mut average = PlainAverage::new(task, Weighting::Equal, users.len())?.rounded();
        Standardization::of(&mut average, &users.iter().collect::<Vec<_>>())
    }

    #[test]
    fn digits_are_summed_exactly() {
        for (fraction, values) in [(40, [0.1, -3e10, 1e-9, -0.0, 2e23]), (20, [5.0, -1e27, -1e-3, 0.25, 3.0])]
        {
            let mut sums = [0.0; DIGITS];
            let mut expected = 0i128;
            for value in values {
                let digits = digits(value, fraction, 5).unwrap();
                assert!(digits.iter().all(|digit| digit.abs() <= 2f64.powi(23)));
                sums.iter_mut().zip(digits).for_each(|(sum, digit)| *sum += digit);
                expected += (value * 2f64.powi(fraction)).round_ties_even() as i128;
            }
            assert_eq!(number(&sums, fraction), expected as f64 * 2f64.powi(-fraction));
        }
        assert!(digits(1e26, 40, 3).is_none() && digits(f64::NAN, 40, 3) == Some([0.0; DIGITS]));
    }

    #[test]
    fn many_users_get_room_for_their_sum() {
        let (most, users) = (2f64.powi(117), 1 << 20);
        assert!(digits(most, 0, 256).is_some() && digits(most, 0, users).is_none());
        let largest = digits(2f64.powi(105), 0, users).unwrap().map(|digit| digit * users as f64);
        assert_eq!(number(&largest, 0), 2f64.powi(125));
    }

    #[test]
    fn deviations_far_below_one_or_the_mean_are_found() {
        let wave = |i: i32| (f64::from(i) * 1.7).sin();
        let rows: Vec<[f64; 6]> = (0..60)
            .map(|i| {
                [1e-7 * wave(i), 1e-12 * wave(i), 1e6 + 0.7 * wave(i), 1.7e9 + 300.0 * wave(i), 0.1, 1e9]
            })
            .collect();
        let features = |rows: &[[f64; 6]]| Features::new(6, rows.concat()).unwrap();
        let users = [features(&rows[..7]), features(&rows[7..30]), features(&rows[30..])];
        let found = standardization(&users).unwrap();
        for (j, scale) in [1e-7, 1e-12, 0.7, 300.0].into_iter().enumerate() {
            let mean = rows.iter().map(|row| row[j]).sum::<f64>() / 60.0;
            let variance = rows.iter().map(|row| (row[j] - mean).powi(2)).sum::<f64>() / 60.0;
            let deviation = found.standardizer.deviation()[j];
            assert!((deviation / variance.sqrt() - 1.0).abs() < 1e-5, "{scale}: {deviation} {variance}");
        }
        assert_eq!(found.standardizer.deviation()[4..], [1.0, 1.0], "constant features");
        assert_eq!(found.squared_radius, 5.0);
    }

    #[test]
    fn users_get_the_statistics_of_pooled_data() {
        let rows: Vec<[f64; 4]> = (0..60)
            .map(|i| {
                let i = f64::from(i);
                [1e5 + (i * 1.7).sin(), 1e-3 * (i * 0.9).cos(), 3.0, 1e8 * (i - 20.0)]
            })
            .collect();
        let features = |rows: &[[f64; 4]]| Features::new(4, rows.concat()).unwrap();
        let users = [features(&rows[..7]), features(&rows[7..8]), features(&rows[8..])];
        let found = standardization(&users).unwrap();
        let pooled = Standardizer::fit(&features(&rows));
        for (found, expected) in
            [(found.standardizer.mean(), pooled.mean()), (found.standardizer.deviation(), pooled.deviation())]
        {
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{found} {expected}");
            }
        }
        assert_eq!(found.standardizer.deviation()[2], 1.0, "a constant feature");
        assert!((found.squared_radius - 4.0).abs() < 1e-3 && found.samples == 60.0);
    }

    #[test]
    fn features_that_are_too_large_are_refused() {
        let large = Features::new(1, vec![1e15, 1.0]).unwrap();
        let error = standardization(&[large.clone(), large.clone(), large]).unwrap_err().to_string();
        assert!(error.contains("power of ten"), "{error}");
    }
}
