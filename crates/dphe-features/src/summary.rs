//! Statistics of a table that help to judge it before training.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{FeatureTable, TableLabels};

/// The statistics of a [`FeatureTable`].
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The number of samples per class or attribute. Empty if there are no labels.
    pub class_counts: Vec<usize>,
    /// The number of values that are NaN.
    pub nan: usize,
    /// The number of values that are infinite.
    pub infinite: usize,
    /// The number of samples with a value that is not finite.
    pub samples_not_finite: usize,
    /// The number of samples whose features all equal those of an earlier sample.
    pub duplicates: usize,
    /// The number of these duplicates whose label differs from the earlier sample's.
    pub contradictions: usize,
    /// The number of features that have the same value in all samples.
    pub constant_features: usize,
    /// The fraction of values that are exactly zero.
    pub zeros: f64,
    /// The smallest finite value.
    pub min: f32,
    /// The largest finite value.
    pub max: f32,
    /// The mean of the finite values.
    pub mean: f64,
    /// The smallest, median and largest standard deviation of a feature.
    pub deviations: [f64; 3],
}

impl FeatureTable {
    /// Computes the statistics of the whole table.
    pub fn summary(&self) -> Summary {
        let (duplicates, contradictions) = self.duplicates();
        let columns = Columns::of(self);
        let finite: usize = columns.counts.iter().sum();
        let values = self.values();
        let mut deviations = columns.deviations();
        deviations.sort_unstable_by(f64::total_cmp);
        let deviation = |place: usize| deviations.get(place).copied().unwrap_or(0.0);
        Summary {
            class_counts: self.class_counts(),
            nan: values.iter().filter(|value| value.is_nan()).count(),
            infinite: values.iter().filter(|value| value.is_infinite()).count(),
            samples_not_finite: self.rows().filter(|row| row.iter().any(|value| !value.is_finite())).count(),
            duplicates,
            contradictions,
            constant_features: columns.constant(),
            zeros: values.iter().filter(|&&value| value == 0.0).count() as f64 / values.len() as f64,
            min: columns.min.iter().copied().fold(f32::INFINITY, f32::min),
            max: columns.max.iter().copied().fold(f32::NEG_INFINITY, f32::max),
            mean: columns.sums.iter().sum::<f64>() / finite.max(1) as f64,
            deviations: [
                deviation(0),
                deviation(deviations.len() / 2),
                deviation(deviations.len().saturating_sub(1)),
            ],
        }
    }

    fn class_counts(&self) -> Vec<usize> {
        let classes = self.classes().len();
        let mut counts = vec![0; classes];
        match self.labels() {
            Some(TableLabels::Classes(labels)) => labels.iter().for_each(|&label| counts[label] += 1),
            Some(TableLabels::Attributes(labels)) => {
                for row in labels.chunks_exact(classes) {
                    row.iter().zip(&mut counts).for_each(|(&has, count)| *count += usize::from(has));
                }
            }
            None => (),
        }
        counts
    }

    /// Counts the samples that equal an earlier one, and how many of them have another label.
    fn duplicates(&self) -> (usize, usize) {
        let same = |a: &[f32], b: &[f32]| a.iter().map(|v| v.to_bits()).eq(b.iter().map(|v| v.to_bits()));
        let row = |sample: usize| &self.values()[sample * self.width()..][..self.width()];
        let mut seen: HashMap<u64, Vec<usize>> = HashMap::new();
        let (mut duplicates, mut contradictions) = (0, 0);
        for (sample, values) in self.rows().enumerate() {
            let mut hasher = DefaultHasher::new();
            values.iter().for_each(|value| value.to_bits().hash(&mut hasher));
            let earlier = seen.entry(hasher.finish()).or_default();
            match earlier.iter().find(|&&earlier| same(row(earlier), values)) {
                Some(&earlier) => {
                    duplicates += 1;
                    contradictions += usize::from(!self.same_label(earlier, sample));
                }
                None => earlier.push(sample),
            }
        }
        (duplicates, contradictions)
    }

    fn same_label(&self, a: usize, b: usize) -> bool {
        let classes = self.classes().len();
        match self.labels() {
            Some(TableLabels::Classes(labels)) => labels[a] == labels[b],
            Some(TableLabels::Attributes(labels)) => {
                labels[a * classes..][..classes] == labels[b * classes..][..classes]
            }
            None => true,
        }
    }
}

/// Statistics per feature, over its finite values.
struct Columns {
    counts: Vec<usize>,
    sums: Vec<f64>,
    squares: Vec<f64>,
    min: Vec<f32>,
    max: Vec<f32>,
}

impl Columns {
    fn of(table: &FeatureTable) -> Self {
        let width = table.width();
        let mut columns = Self {
            counts: vec![0; width],
            sums: vec![0.0; width],
            squares: vec![0.0; width],
            min: vec![f32::INFINITY; width],
            max: vec![f32::NEG_INFINITY; width],
        };
        // distances from the first sample: squares of values far from zero would cancel
        let first = |j: usize| f64::from(table.values()[j]);
        for row in table.rows() {
            for (j, &value) in row.iter().enumerate().filter(|(_, value)| value.is_finite()) {
                columns.counts[j] += 1;
                columns.sums[j] += f64::from(value);
                let origin = if first(j).is_finite() { first(j) } else { 0.0 };
                columns.squares[j] += (f64::from(value) - origin).powi(2);
                columns.min[j] = columns.min[j].min(value);
                columns.max[j] = columns.max[j].max(value);
            }
        }
        for j in 0..width {
            let origin = if first(j).is_finite() { first(j) } else { 0.0 };
            let count = columns.counts[j].max(1) as f64;
            let shift = columns.sums[j] / count - origin;
            columns.squares[j] = (columns.squares[j] / count - shift * shift).max(0.0);
        }
        columns
    }

    fn constant(&self) -> usize {
        self.min.iter().zip(&self.max).filter(|(min, max)| min >= max).count()
    }

    fn deviations(&self) -> Vec<f64> {
        self.squares.iter().map(|square| square.sqrt()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_counts_bad_values_duplicates_and_classes() {
        let values = vec![1.0, 5.0, 0.0, 3.0, 5.0, f32::NAN, 1.0, 5.0, 0.0, 1.0, 5.0, f32::INFINITY];
        let classes = vec!["a".into(), "b".into(), "c".into()];
        let table = FeatureTable::new(3, values)
            .unwrap()
            .with_labels(TableLabels::Classes(vec![0, 0, 1, 0]), classes)
            .unwrap();
        let summary = table.summary();
        assert_eq!(summary.class_counts, [3, 1, 0]);
        assert_eq!((summary.nan, summary.infinite, summary.samples_not_finite), (1, 1, 2));
        assert_eq!((summary.duplicates, summary.contradictions), (1, 1));
        assert_eq!(summary.constant_features, 2, "all fives, and zero where there is a number");
        assert_eq!((summary.min, summary.max, summary.mean), (0.0, 5.0, 2.6));
        assert_eq!(summary.deviations, [0.0, 0.0, 0.75f64.sqrt()]);
        assert!((summary.zeros - 2.0 / 12.0).abs() < 1e-12);
    }
}
