//! The labels of samples.

use super::check_index;
use crate::Error;

/// One class per sample, or several attributes that a sample has or not.
#[derive(Clone, PartialEq, Eq)]
pub struct Labels(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    // Invariant: not empty, every label < classes.
    Classes { labels: Vec<u32>, classes: usize },
    // Invariant: not empty, one row of `attributes` per sample.
    Attributes { present: Vec<bool>, attributes: usize },
}

impl Labels {
    /// Creates labels with one class per sample, numbered from 0. A class may have no samples, because other users
    /// may have some.
    ///
    /// # Errors
    /// If there are no samples or classes, or a label is not below `classes`.
    pub fn classes(classes: usize, labels: Vec<u32>) -> Result<Self, Error> {
        if classes == 0 {
            return Err(Error::Empty { what: "classes" });
        }
        if labels.is_empty() {
            return Err(Error::Empty { what: "samples" });
        }
        match labels.iter().position(|&label| label as usize >= classes) {
            Some(sample) => Err(Error::LabelRange { sample, label: labels[sample] as usize, classes }),
            None => Ok(Self(Kind::Classes { labels, classes })),
        }
    }

    /// Creates labels with one row of `attributes` per sample. A single attribute makes a binary problem.
    ///
    /// # Errors
    /// If there are no samples or attributes, or the last row is incomplete.
    pub fn attributes(attributes: usize, present: Vec<bool>) -> Result<Self, Error> {
        if attributes == 0 {
            return Err(Error::Empty { what: "attributes" });
        }
        if present.is_empty() {
            return Err(Error::Empty { what: "samples" });
        }
        if !present.len().is_multiple_of(attributes) {
            return Err(Error::Shape {
                what: "attributes of the last sample",
                expected: attributes,
                found: present.len() % attributes,
            });
        }
        Ok(Self(Kind::Attributes { present, attributes }))
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Classes { labels, .. } => labels.len(),
            Kind::Attributes { present, attributes } => present.len() / attributes,
        }
    }

    /// Always returns false, because there is at least one sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of classes or attributes. One linear function is trained for each.
    pub fn class_count(&self) -> usize {
        match self.0 {
            Kind::Classes { classes, .. } => classes,
            Kind::Attributes { attributes, .. } => attributes,
        }
    }

    /// Returns whether the sample has this class or attribute.
    ///
    /// # Panics
    /// If the sample does not exist.
    #[inline(always)]
    pub fn is_positive(&self, sample: usize, class: usize) -> bool {
        match &self.0 {
            Kind::Classes { labels, .. } => labels[sample] as usize == class,
            Kind::Attributes { present, attributes } => {
                class < *attributes && present[sample * attributes + class]
            }
        }
    }

    /// Returns the class of each sample. `what` names the operation that needs classes, for the error.
    ///
    /// # Errors
    /// If the labels are attributes.
    pub fn as_classes(&self, what: &'static str) -> Result<&[u32], Error> {
        match &self.0 {
            Kind::Classes { labels, .. } => Ok(labels),
            Kind::Attributes { .. } => {
                Err(Error::Unsuited { what, needed: "one class per sample", found: "attributes" })
            }
        }
    }

    /// Returns the number of samples per class or attribute.
    pub fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.class_count()];
        match &self.0 {
            Kind::Classes { labels, .. } => labels.iter().for_each(|&label| counts[label as usize] += 1),
            Kind::Attributes { present, attributes } => {
                for row in present.chunks_exact(*attributes) {
                    counts.iter_mut().zip(row).for_each(|(count, &there)| *count += usize::from(there));
                }
            }
        }
        counts
    }

    /// Copies the labels of these samples, in this order.
    pub(super) fn select(&self, samples: &[usize]) -> Result<Self, Error> {
        for &sample in samples {
            check_index("sample", sample, self.len())?;
        }
        match &self.0 {
            Kind::Classes { labels, classes } => {
                Self::classes(*classes, samples.iter().map(|&sample| labels[sample]).collect())
            }
            Kind::Attributes { present, attributes } => Self::attributes(
                *attributes,
                samples
                    .iter()
                    .flat_map(|&sample| &present[sample * attributes..][..*attributes])
                    .copied()
                    .collect(),
            ),
        }
    }

    /// Writes +1 or -1 for the `targets.len()` classes from `first` on. Classes beyond the last get -1.
    #[inline(always)]
    pub(crate) fn write_targets<T: crate::Real>(&self, sample: usize, first: usize, targets: &mut [T]) {
        targets.fill(-T::ONE);
        match &self.0 {
            Kind::Classes { labels, .. } => {
                if let Some(target) = targets.get_mut((labels[sample] as usize).wrapping_sub(first)) {
                    *target = T::ONE;
                }
            }
            Kind::Attributes { present, attributes } => {
                let row = &present[sample * attributes..][..*attributes];
                for (target, &there) in targets.iter_mut().zip(&row[first.min(*attributes)..]) {
                    if there {
                        *target = T::ONE;
                    }
                }
            }
        }
    }
}

impl core::fmt::Debug for Labels {
    /// Shows the sizes only, because the labels are private data.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let kind = match self.0 {
            Kind::Classes { .. } => "classes",
            Kind::Attributes { .. } => "attributes",
        };
        f.debug_struct("Labels").field("samples", &self.len()).field(kind, &self.class_count()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_out_of_range_are_refused() {
        assert_eq!(
            Labels::classes(3, vec![0, 2, 3]),
            Err(Error::LabelRange { sample: 2, label: 3, classes: 3 })
        );
        assert_eq!(Labels::classes(0, vec![]), Err(Error::Empty { what: "classes" }));
        assert_eq!(Labels::classes(1, vec![]), Err(Error::Empty { what: "samples" }));
        assert_eq!(Labels::attributes(0, vec![]), Err(Error::Empty { what: "attributes" }));
        assert!(matches!(Labels::attributes(2, vec![true]), Err(Error::Shape { .. })));
    }

    #[test]
    fn targets_are_plus_or_minus_one_for_a_range_of_classes() {
        let classes = Labels::classes(5, vec![3, 0]).unwrap();
        let mut targets = [0.0f32; 4];
        classes.write_targets(0, 0, &mut targets);
        assert_eq!(targets, [-1.0, -1.0, -1.0, 1.0]);
        classes.write_targets(0, 4, &mut targets);
        assert_eq!(targets, [-1.0; 4]);
        let attributes = Labels::attributes(3, vec![true, false, true, false, true, false]).unwrap();
        attributes.write_targets(0, 1, &mut targets);
        assert_eq!(targets, [-1.0, 1.0, -1.0, -1.0]);
        assert_eq!(attributes.counts(), [1, 1, 1]);
        assert!(attributes.is_positive(0, 2) && !attributes.is_positive(1, 2));
        assert!(attributes.as_classes("accuracy").is_err());
        assert_eq!(
            attributes.select(&[1]).unwrap(),
            Labels::attributes(3, vec![false, true, false]).unwrap()
        );
    }
}
