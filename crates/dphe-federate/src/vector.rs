//! Vectors of any kind as updates of a task, and sums as averages. Linear models are summed this way, too.

mod rules;

pub use rules::{VectorRules, VectorSpec, VectorUpdate};

use dphe::{SparseVector, TaskParams, Update};

use crate::{Error, ValueSum, Weighting};

/// How a user's vector becomes an update, and how a sum becomes an average again. It follows from public numbers, and
/// all parties have the same.
///
/// An update consists of the weights, each divided by the scale of its part; the dense values, divided by a scale of
/// their own; the user's factor, if users are weighted; and the fractions.
#[derive(Clone, Debug, PartialEq)]
pub struct Codec {
    dimension: usize,
    dense: usize,
    fractions: usize,
    weighting: Weighting,
    /// The end of each part of the weights, and its scale. Weights after the last part have the scale 1.
    parts: Vec<(usize, f64)>,
    dense_scale: f64,
    /// The factor that maps the numbers from 0 to 1 to half of the task's range, where they are exact.
    fraction: f64,
}

impl Codec {
    /// Creates the codec of a task, with all scales 1 and without fractions.
    ///
    /// # Errors
    /// If the fixed point of the task cannot represent the counts of the weighting, or the task has no dense value for
    /// a user's factor.
    pub fn new(task: &TaskParams, weighting: Weighting) -> Result<Self, Error> {
        weighting.check_task(task)?;
        Self { dense: task.dense(), ..Self::of(task, weighting) }.without_dense(weighting.values())
    }

    fn of(task: &TaskParams, weighting: Weighting) -> Self {
        Self {
            dimension: task.dimension(),
            dense: 0,
            fractions: 0,
            weighting,
            parts: Vec::new(),
            dense_scale: 1.0,
            fraction: 2f64.powi(i32::from(task.config().clip_exponent) - 1),
        }
    }

    /// Reserves the last dense values for this many fractions: numbers from 0 to 1 whose average over all users is
    /// opened, however much they count.
    ///
    /// # Errors
    /// If the task has fewer dense values.
    pub fn with_fractions(self, count: usize) -> Result<Self, Error> {
        Self { fractions: count, ..self }.without_dense(count)
    }

    /// Returns the number of fractions.
    pub fn fractions(&self) -> usize {
        self.fractions
    }

    fn without_dense(self, reserved: usize) -> Result<Self, Error> {
        let dense = self.dense.checked_sub(reserved);
        let (what, task, model) = ("dense values", self.dense, reserved);
        Ok(Self { dense: dense.ok_or(Error::Shape { what, task, model })?, ..self })
    }

    /// Sets the lengths of consecutive parts of the weights, and what each is divided by before it is summed. Powers of
    /// two only change the rounding. A task has one range for all weights, and the layers of a network differ.
    ///
    /// # Errors
    /// If the parts are longer than the vector, or a scale is not positive.
    pub fn with_parts(mut self, parts: &[(usize, f64)]) -> Result<Self, Error> {
        let mut end = 0usize;
        self.parts.clear();
        for &(length, scale) in parts {
            check_scale(scale)?;
            end = end.saturating_add(length);
            if end > self.dimension {
                return Err(Error::Shape { what: "weights", task: self.dimension, model: end });
            }
            self.parts.push((end, scale));
        }
        Ok(self)
    }

    /// Sets what the dense values are divided by before they are summed.
    ///
    /// # Errors
    /// If the scale is not positive.
    pub fn with_dense_scale(self, scale: f64) -> Result<Self, Error> {
        check_scale(scale)?;
        Ok(Self { dense_scale: scale, ..self })
    }

    /// Makes the update of a user from the indices and values of its weights, ascending, its dense values and its
    /// fractions. `samples` says how much the user counts.
    ///
    /// # Errors
    /// If a length is not the task's, or indices are not ascending.
    pub fn encode(
        &self,
        entries: impl IntoIterator<Item = (usize, f64)>,
        dense: &[f64],
        fractions: &[f64],
        samples: usize,
    ) -> Result<Update, Error> {
        for (what, task, model) in
            [("dense values", self.dense, dense.len()), ("fractions", self.fractions, fractions.len())]
        {
            if task != model {
                return Err(Error::Shape { what, task, model });
            }
        }
        let factor = self.weighting.factor(samples);
        let mut scales = self.scales();
        // Indices are below the dimension, which is at most 2^30. A larger one is refused below.
        let narrow = |index| u32::try_from(index).unwrap_or(u32::MAX);
        let scaled = |(index, value): (usize, f64)| (narrow(index), value * factor / scales(index));
        let (indices, values) = entries.into_iter().map(scaled).unzip();
        let mut all: Vec<f64> = dense.iter().map(|value| value * factor / self.dense_scale).collect();
        if self.weighting != Weighting::Equal {
            all.push(factor * self.fraction);
        }
        all.extend(fractions.iter().map(|fraction| fraction * self.fraction));
        Ok(Update::new(SparseVector::new(self.dimension, indices, values)?).with_dense(all))
    }

    /// Undoes the scaling of a sum.
    ///
    /// # Errors
    /// If the sum is of another task.
    pub fn decode(&self, sum: &ValueSum) -> Result<VectorSum, Error> {
        let counted = self.weighting.values();
        for (what, task, model) in [
            ("weights", self.dimension, sum.weights.len()),
            ("dense values", self.dense + counted + self.fractions, sum.dense.len()),
        ] {
            if task != model {
                return Err(Error::Shape { what, task, model });
            }
        }
        let mut scales = self.scales();
        let weights = sum.weights.iter().enumerate().map(|(index, sum)| sum * scales(index)).collect();
        let (dense, rest) = sum.dense.split_at(self.dense);
        let (total, fractions) = rest.split_at(counted);
        let users = sum.users as f64;
        Ok(VectorSum {
            total: total.first().map_or(users, |total| total / self.fraction),
            weights,
            dense: dense.iter().map(|value| value * self.dense_scale).collect(),
            // a rounded sum of ones may be one step more than their number
            fractions: fractions.iter().map(|sum| (sum / self.fraction / users).clamp(0.0, 1.0)).collect(),
        })
    }

    /// Returns the scale of a weight, for calls with ascending indices.
    fn scales(&self) -> impl FnMut(usize) -> f64 + '_ {
        let mut parts = self.parts.iter().peekable();
        move |index| {
            while parts.next_if(|&&(end, _)| end <= index).is_some() {}
            parts.peek().map_or(1.0, |&&(_, scale)| scale)
        }
    }
}

fn check_scale(scale: f64) -> Result<(), Error> {
    if scale > 0.0 && scale.is_finite() {
        return Ok(());
    }
    Err(Error::Parameter {
        name: "scale",
        value: scale,
        remedy: "use a positive number, normally a power of two",
    })
}

/// The sum of users' vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorSum {
    /// The sum of the users' factors: their number if they count equally.
    pub total: f64,
    /// The sums of the weights; zero outside a public support.
    pub weights: Vec<f64>,
    /// The sums of the dense values.
    pub dense: Vec<f64>,
    /// The averages of the fractions over all users.
    pub fractions: Vec<f64>,
}

impl VectorSum {
    /// Returns the averages of the weights and of the dense values.
    ///
    /// # Errors
    /// If no user counts.
    pub fn mean(&self) -> Result<(Vec<f64>, Vec<f64>), Error> {
        if self.total <= 0.0 {
            return Err(Error::Parameter {
                name: "total",
                value: self.total,
                remedy: "at least one user must have a sample",
            });
        }
        let divide = |sums: &[f64]| sums.iter().map(|sum| sum / self.total).collect();
        Ok((divide(&self.weights), divide(&self.dense)))
    }
}

#[cfg(test)]
mod tests {
    use dphe::{Profile, TaskConfig, TaskId};

    use super::*;

    fn task(dense: u32) -> TaskParams {
        let mut config = TaskConfig::new(Profile::Full, 1, 6, 8);
        (config.dense, config.capacity, config.scale_bits, config.clip_exponent) = (dense, 6, 24, 2);
        TaskParams::new(TaskId::from_bytes([1; 16]), config).unwrap()
    }

    /// Adds updates without rounding.
    fn sum(updates: &[Update]) -> ValueSum {
        let first = &updates[0];
        let mut sum = ValueSum {
            users: updates.len(),
            weights: vec![0.0; first.weights().dimension()],
            dense: vec![0.0; first.dense().len()],
        };
        for update in updates {
            for (&index, value) in update.weights().indices().iter().zip(update.weights().values()) {
                sum.weights[index as usize] += value;
            }
            sum.dense.iter_mut().zip(update.dense()).for_each(|(sum, value)| *sum += value);
        }
        sum
    }

    #[test]
    fn weighted_averages_of_scaled_parts_come_back() {
        let codec = Codec::new(&task(4), Weighting::Samples { most: 8 }).unwrap();
        let codec = codec.with_fractions(1).unwrap().with_dense_scale(16.0).unwrap();
        let codec = codec.with_parts(&[(2, 4.0), (0, 9.0), (3, 0.5)]).unwrap();
        let vector = |x: f64| [(0, x), (1, 2.0), (2, -x), (4, 0.25), (5, 1.0)];
        let one = codec.encode(vector(8.0), &[3.0, 1.0], &[1.0], 2).unwrap();
        // the user's factor is a quarter, and the parts are divided by 4, 1/2 and 1
        assert_eq!(one.weights().values(), [0.5, 0.125, -4.0, 0.125, 0.25]);
        assert_eq!(one.dense(), [0.046875, 0.015625, 0.5, 2.0]);
        // more samples than the largest count do not count
        let two = codec.encode(vector(4.0), &[7.0, 1.0], &[0.5], 100).unwrap();
        let sum = codec.decode(&sum(&[one, two])).unwrap();
        assert_eq!((sum.total, &sum.fractions[..]), (1.25, &[0.75][..]));
        let (weights, dense) = sum.mean().unwrap();
        assert_eq!(weights, [4.8, 2.0, -4.8, 0.0, 0.25, 1.0]);
        assert_eq!(dense, [6.2, 1.0]);
    }

    #[test]
    fn lengths_and_scales_that_do_not_fit_are_refused() {
        let codec = Codec::new(&task(1), Weighting::Equal).unwrap();
        assert!(Codec::new(&task(0), Weighting::Samples { most: 8 }).is_err());
        assert!(Codec::new(&task(0), Weighting::Samples { most: 7 }).is_err());
        assert!(codec.clone().with_fractions(2).is_err());
        assert!(codec.clone().with_parts(&[(4, 1.0), (3, 1.0)]).is_err());
        assert!(codec.clone().with_parts(&[(4, 0.0)]).is_err());
        assert!(codec.clone().with_dense_scale(f64::NAN).is_err());
        assert!(codec.encode([(0, 1.0)], &[], &[], 1).is_err());
        assert!(codec.encode([(0, 1.0)], &[0.0], &[1.0], 1).is_err());
        assert!(codec.encode([(6, 1.0)], &[0.0], &[], 1).is_err());
        assert!(codec.encode([(1, 1.0), (0, 1.0)], &[0.0], &[], 1).is_err());
        let short = ValueSum { users: 3, weights: vec![0.0; 5], dense: vec![0.0] };
        assert!(codec.decode(&short).is_err());
        let nobody = VectorSum { total: 0.0, weights: vec![0.0], dense: Vec::new(), fractions: Vec::new() };
        assert!(nobody.mean().is_err());
    }
}
