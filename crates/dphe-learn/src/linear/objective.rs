//! The objective function of the learners, for reports and tests.

use std::num::NonZeroUsize;

use super::loss::softmax;
use super::{Loss, Penalty};
use crate::{Dataset, Error, Real, Weights};

/// Returns the mean of `J_c` over the classes (see the [module](super)). For [`Loss::Multinomial`] it is the mean
/// loss per sample plus the penalty of all classes.
///
/// # Errors
/// If the shapes of weights and data differ, or the loss is multinomial and the labels are attributes.
pub fn objective<T: Real>(
    loss: Loss,
    penalty: Penalty,
    weights: &Weights,
    data: &Dataset<T>,
    threads: NonZeroUsize,
) -> Result<f64, Error> {
    weights.check_shape(data.features().width(), data.labels().class_count())?;
    let scores = weights.scores(data.features(), threads)?;
    let cost = penalty.value(weights.flat());
    if loss == Loss::Multinomial {
        let labels = data.labels().as_classes("the multinomial loss")?;
        let mut sum = 0.0;
        for (row, &label) in scores.rows().zip(labels) {
            let mut row: Vec<f64> = row.iter().map(|s| s.to_f64()).collect();
            softmax(&mut row);
            sum -= row[label as usize].max(f64::MIN_POSITIVE).ln();
        }
        return Ok(sum / data.len() as f64 + cost);
    }
    let mut sum = 0.0;
    for (sample, row) in scores.rows().enumerate() {
        for (class, score) in row.iter().enumerate() {
            let target = if data.labels().is_positive(sample, class) { 1.0 } else { -1.0 };
            sum += loss.value(target, score.to_f64());
        }
    }
    Ok((sum / data.len() as f64 + cost) / weights.classes() as f64)
}
