//! Accuracies and the confusion matrix.

use super::check_pairs;
use crate::{Error, Labels, Real, Scores};

/// The number of samples per true and predicted class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfusionMatrix {
    // row = truth, column = prediction
    counts: Vec<u64>,
    classes: usize,
}

impl ConfusionMatrix {
    /// Counts pairs of true and predicted classes.
    ///
    /// # Errors
    /// If there are no samples, the lengths differ, or a class is not below `classes`.
    pub fn new(classes: usize, truth: &[u32], predicted: &[u32]) -> Result<Self, Error> {
        check_pairs("predictions", truth.len(), predicted.len())?;
        let mut counts = vec![0; classes * classes];
        for (sample, (&t, &p)) in truth.iter().zip(predicted).enumerate() {
            for label in [t as usize, p as usize] {
                if label >= classes {
                    return Err(Error::LabelRange { sample, label, classes });
                }
            }
            counts[t as usize * classes + p as usize] += 1;
        }
        Ok(Self { counts, classes })
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Returns how often each class was predicted for samples of the class `truth`.
    ///
    /// # Panics
    /// If the class does not exist.
    pub fn row(&self, truth: usize) -> &[u64] {
        &self.counts[truth * self.classes..][..self.classes]
    }

    /// Returns the fraction of correct predictions.
    pub fn accuracy(&self) -> f64 {
        let right: u64 = (0..self.classes).map(|c| self.row(c)[c]).sum();
        right as f64 / self.counts.iter().sum::<u64>() as f64
    }

    /// Returns the fraction of correct predictions per class, or `None` for a class without samples.
    pub fn per_class_accuracy(&self) -> Vec<Option<f64>> {
        (0..self.classes)
            .map(|c| {
                let all: u64 = self.row(c).iter().sum();
                (all > 0).then(|| self.row(c)[c] as f64 / all as f64)
            })
            .collect()
    }

    /// Returns the mean of [`per_class_accuracy`](Self::per_class_accuracy) over the classes that have samples.
    pub fn mean_per_class_accuracy(&self) -> f64 {
        let present: Vec<f64> = self.per_class_accuracy().into_iter().flatten().collect();
        present.iter().sum::<f64>() / present.len() as f64
    }
}

/// Returns the fraction of correct predictions.
///
/// # Errors
/// If there are no samples or the lengths differ.
pub fn accuracy(truth: &[u32], predicted: &[u32]) -> Result<f64, Error> {
    check_pairs("predictions", truth.len(), predicted.len())?;
    Ok(truth.iter().zip(predicted).filter(|(t, p)| t == p).count() as f64 / truth.len() as f64)
}

/// Returns the mean accuracy over the classes that occur in `truth`, as scikit-learn's `balanced_accuracy_score`.
///
/// # Errors
/// If there are no samples or the lengths differ.
pub fn mean_per_class_accuracy(truth: &[u32], predicted: &[u32]) -> Result<f64, Error> {
    check_pairs("predictions", truth.len(), predicted.len())?;
    let mut classes = std::collections::BTreeMap::<u32, (u64, u64)>::new();
    for (t, p) in truth.iter().zip(predicted) {
        let (right, all) = classes.entry(*t).or_default();
        *right += u64::from(t == p);
        *all += 1;
    }
    Ok(classes.values().map(|&(right, all)| right as f64 / all as f64).sum::<f64>() / classes.len() as f64)
}

/// Returns the fraction of attributes that the sign of the score predicts correctly, which is the mean accuracy over
/// attributes.
///
/// # Errors
/// If the shapes of labels and scores differ.
pub fn attribute_accuracy<T: Real>(labels: &Labels, scores: &Scores<T>) -> Result<f64, Error> {
    check_pairs("scores", labels.len(), scores.len())?;
    check_pairs("classes", labels.class_count(), scores.classes())?;
    let classes = scores.classes();
    let right = scores
        .values()
        .iter()
        .enumerate()
        .filter(|(i, score)| (**score > T::ZERO) == labels.is_positive(i / classes, i % classes))
        .count();
    Ok(right as f64 / scores.values().len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confusion_matrix_gives_counts_and_accuracies() {
        let (truth, predicted) = ([0, 0, 0, 1, 3], [0, 1, 0, 1, 0]);
        let matrix = ConfusionMatrix::new(4, &truth, &predicted).unwrap();
        assert_eq!(matrix.row(0), [2, 1, 0, 0]);
        assert_eq!(matrix.accuracy(), 0.6);
        assert_eq!(matrix.per_class_accuracy(), [Some(2.0 / 3.0), Some(1.0), None, Some(0.0)]);
        let mean = (2.0 / 3.0 + 1.0) / 3.0;
        assert!((matrix.mean_per_class_accuracy() - mean).abs() < 1e-15);
        assert!((mean_per_class_accuracy(&truth, &predicted).unwrap() - mean).abs() < 1e-15);
        assert_eq!(accuracy(&truth, &predicted).unwrap(), 0.6);
    }

    #[test]
    fn mismatched_lengths_and_classes_are_refused() {
        assert!(accuracy(&[], &[]).is_err());
        assert!(accuracy(&[0], &[]).is_err());
        assert!(matches!(ConfusionMatrix::new(2, &[0], &[2]), Err(Error::LabelRange { label: 2, .. })));
    }

    #[test]
    fn attribute_accuracy_counts_each_attribute() {
        let labels = Labels::attributes(2, vec![true, false, true, true]).unwrap();
        let scores = Scores::new(2, vec![1.0f32, 0.0, -1.0, 2.0]).unwrap();
        assert_eq!(attribute_accuracy(&labels, &scores).unwrap(), 0.75);
    }
}
