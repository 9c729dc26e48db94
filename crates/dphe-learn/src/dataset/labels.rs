//! What is to be learnt about each sample.

use super::check_index;
use crate::Error;

/// One class for every sample, or several attributes that each are there or not.
#[derive(Clone, PartialEq, Eq)]
pub struct Labels(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    // Invariant: not empty, every label < classes.
    Classes { labels: Vec<u32>, classes: usize },
    // Invariant: not empty, one row of `attributes` a sample.
    Attributes { present: Vec<bool>, attributes: usize },
}

impl Labels {
    /// One class a sample, counted from 0. A class without any sample is fine: others may have it.
    ///
    /// # Errors
    /// No samples, no classes, or a label that is not below `classes`.
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

    /// Attributes, each present or not, one row of `attributes` a sample. One attribute makes a binary problem.
    ///
    /// # Errors
    /// No samples, no attributes, or a last row that is not whole.
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

    /// How many samples there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Classes { labels, .. } => labels.len(),
            Kind::Attributes { present, attributes } => present.len() / attributes,
        }
    }

    /// Never true: there is at least one sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many classes or attributes there are: one linear function is learnt for each.
    pub fn class_count(&self) -> usize {
        match self.0 {
            Kind::Classes { classes, .. } => classes,
            Kind::Attributes { attributes, .. } => attributes,
        }
    }

    /// Whether the sample has this class or attribute.
    ///
    /// # Panics
    /// If there is no such sample.
    #[inline(always)]
    pub fn is_positive(&self, sample: usize, class: usize) -> bool {
        match &self.0 {
            Kind::Classes { labels, .. } => labels[sample] as usize == class,
            Kind::Attributes { present, attributes } => {
                class < *attributes && present[sample * attributes + class]
            }
        }
    }

    /// The classes, one a sample, or an error that names `what` needs them.
    ///
    /// # Errors
    /// If these are attributes.
    pub fn as_classes(&self, what: &'static str) -> Result<&[u32], Error> {
        match &self.0 {
            Kind::Classes { labels, .. } => Ok(labels),
            Kind::Attributes { .. } => {
                Err(Error::Unsuited { what, needed: "one class a sample", found: "attributes" })
            }
        }
    }

    /// How many samples have each class or attribute.
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

    /// The labels of these samples, in this order.
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

    /// Writes +1 or -1 for the `targets.len()` classes from `first` on; classes beyond the end get -1.
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
    /// The sizes only: the labels are somebody's data.
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
    fn targets_are_signs_of_a_window_of_classes() {
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
