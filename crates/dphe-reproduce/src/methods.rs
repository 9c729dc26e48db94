//! The methods that the paper compares. Each learns a classifier from data that are split among users: training on all
//! data in one place, two methods that add noise, and encrypted averages.

pub mod baseline;
pub mod clusters;
pub mod dphe;
pub mod logistic;
pub mod noise;
pub mod noisy;
mod product;
pub mod prr10;
pub mod ra12;

use std::num::NonZeroUsize;

use dphe_learn::metrics::{attribute_accuracy, mean_per_class_accuracy};
use dphe_learn::{Dataset, Features, Labels, Weights};

use crate::Error;

/// Returns the samples of both data sets, in this order.
pub(crate) fn join(first: &Dataset, second: &Dataset) -> Result<Dataset, Error> {
    let values = [first.features().values(), second.features().values()].concat();
    let features = Features::new(first.features().width(), values)?;
    let classes = first.labels().class_count();
    let labels = match (first.labels().as_classes(""), second.labels().as_classes("")) {
        (Ok(a), Ok(b)) => Labels::classes(classes, [a, b].concat())?,
        _ => {
            let present = |data: &Dataset| {
                let labels = data.labels();
                (0..data.len() * classes)
                    .map(|i| labels.is_positive(i / classes, i % classes))
                    .collect::<Vec<_>>()
            };
            Labels::attributes(classes, [present(first), present(second)].concat())?
        }
    };
    Ok(Dataset::new(features, labels)?)
}

/// Returns the accuracy on some samples in per cent, averaged over classes or attributes.
///
/// # Errors
/// Returns an error if the samples do not fit the classifier.
pub fn accuracy(weights: &Weights, data: &Dataset, threads: NonZeroUsize) -> Result<f64, Error> {
    let scores = weights.scores(data.features(), threads)?;
    let share = match data.labels().as_classes("accuracy") {
        Ok(truth) => mean_per_class_accuracy(truth, &scores.best())?,
        Err(_) => attribute_accuracy(data.labels(), &scores)?,
    };
    Ok(100.0 * share)
}

/// Returns the balanced accuracy in per cent, averaged over attributes. Attributes that all samples or no sample have
/// are left out.
pub(crate) fn balanced_accuracy(data: &Dataset, predicted: &[bool]) -> f64 {
    let attributes = data.labels().class_count();
    let mut shares = Vec::new();
    for attribute in 0..attributes {
        let (mut right, mut all) = ([0usize; 2], [0usize; 2]);
        for sample in 0..data.len() {
            let truth = data.labels().is_positive(sample, attribute);
            all[usize::from(truth)] += 1;
            right[usize::from(truth)] += usize::from(predicted[sample * attributes + attribute] == truth);
        }
        if all.iter().all(|&count| count > 0) {
            shares.push((right[0] as f64 / all[0] as f64 + right[1] as f64 / all[1] as f64) / 2.0);
        }
    }
    100.0 * shares.iter().sum::<f64>() / shares.len().max(1) as f64
}
