//! Average precision: how early positive samples come when samples are sorted by score.

use super::check_pairs;
use crate::{Error, Labels, Real, Scores};

/// Returns the area under the precision-recall curve, `sum_k (recall_k - recall_(k-1)) precision_k` over *distinct*
/// scores, without interpolation. Samples with equal scores count together. Returns `None` if no sample is positive.
///
/// # Errors
/// If there are no samples, the lengths differ, or a score is not finite.
pub fn average_precision(positive: &[bool], scores: &[f64]) -> Result<Option<f64>, Error> {
    check_pairs("scores", positive.len(), scores.len())?;
    if let Some(index) = scores.iter().position(|s| !s.is_finite()) {
        return Err(Error::NotFinite { what: "score", index });
    }
    let positives = positive.iter().filter(|&&p| p).count();
    if positives == 0 {
        return Ok(None);
    }
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let (mut found, mut seen, mut sum) = (0usize, 0usize, 0.0);
    for equals in order.chunk_by(|&a, &b| scores[a] == scores[b]) {
        let new = equals.iter().filter(|&&i| positive[i]).count();
        found += new;
        seen += equals.len();
        sum += new as f64 / positives as f64 * (found as f64 / seen as f64);
    }
    Ok(Some(sum))
}

/// Returns the area under the receiver operating characteristic: how often a positive sample has a higher score than a
/// negative one, where equal scores count half. Returns `None` unless there are samples of both kinds.
///
/// # Errors
/// As [`average_precision`].
pub fn area_under_roc(positive: &[bool], scores: &[f64]) -> Result<Option<f64>, Error> {
    check_pairs("scores", positive.len(), scores.len())?;
    if let Some(index) = scores.iter().position(|s| !s.is_finite()) {
        return Err(Error::NotFinite { what: "score", index });
    }
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    let (mut lower, mut positives, mut wins) = (0.0, 0.0, 0.0);
    for equals in order.chunk_by(|&a, &b| scores[a] == scores[b]) {
        let new = equals.iter().filter(|&&i| positive[i]).count() as f64;
        let negative = equals.len() as f64 - new;
        wins += new * (lower + negative / 2.0);
        lower += negative;
        positives += new;
    }
    let pairs = positives * lower;
    Ok((pairs > 0.0).then(|| wins / pairs))
}

/// The average precision of several attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct MeanAveragePrecision {
    /// The mean over the attributes that have a positive sample.
    pub mean: f64,
    /// The average precision of each requested attribute, or `None` if it has no positive sample.
    pub each: Vec<Option<f64>>,
}

/// Returns the unweighted mean of [`average_precision`] over these attributes, without those that have no positive
/// sample. For "mAP at K", pass the K attributes that are most frequent in the training data.
///
/// # Errors
/// If the shapes differ, an attribute does not exist, or no attribute has a positive sample.
pub fn mean_average_precision<T: Real>(
    labels: &Labels,
    scores: &Scores<T>,
    attributes: &[usize],
) -> Result<MeanAveragePrecision, Error> {
    check_pairs("scores", labels.len(), scores.len())?;
    check_pairs("classes", labels.class_count(), scores.classes())?;
    let mut each = Vec::with_capacity(attributes.len());
    for &attribute in attributes {
        crate::dataset::check_index("attribute", attribute, scores.classes())?;
        let positive: Vec<bool> = (0..labels.len()).map(|i| labels.is_positive(i, attribute)).collect();
        let column: Vec<f64> = scores.class(attribute).map(Real::to_f64).collect();
        each.push(average_precision(&positive, &column)?);
    }
    let defined: Vec<f64> = each.iter().copied().flatten().collect();
    if defined.is_empty() {
        return Err(Error::Empty { what: "attributes with a positive sample" });
    }
    Ok(MeanAveragePrecision { mean: defined.iter().sum::<f64>() / defined.len() as f64, each })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scores_share_a_threshold() {
        let positive = [true, false, true, true, false];
        let ap = average_precision(&positive, &[0.9, 0.9, 0.8, 0.1, 0.1]).unwrap().unwrap();
        assert!((ap - (0.5 + 2.0 / 3.0 + 0.6) / 3.0).abs() < 1e-15);
        // a constant score gives the fraction of positives; -0.0 and 0.0 are the same score
        let constant = average_precision(&positive, &[0.0, -0.0, 0.0, 0.0, -0.0]).unwrap().unwrap();
        assert!((constant - 0.6).abs() < 1e-15);
    }

    #[test]
    fn area_is_the_share_of_pairs_in_the_right_order() {
        let positive = [true, false, true, true, false];
        let scores = [0.9, 0.9, 0.8, 0.1, 0.1];
        let mut pairs = 0.0;
        for (&a, &high) in positive.iter().zip(&scores).filter(|(a, _)| **a) {
            assert!(a);
            for (_, &low) in positive.iter().zip(&scores).filter(|(b, _)| !**b) {
                pairs += if high > low { 1.0 } else { f64::from(u8::from(high == low)) / 2.0 };
            }
        }
        assert_eq!(area_under_roc(&positive, &scores).unwrap(), Some(pairs / 6.0));
        assert_eq!(area_under_roc(&positive, &[0.0, -0.0, 0.0, -0.0, 0.0]).unwrap(), Some(0.5));
        assert_eq!(area_under_roc(&[false, true], &[1.0, 2.0]).unwrap(), Some(1.0));
        assert_eq!(area_under_roc(&[false, true], &[2.0, 1.0]).unwrap(), Some(0.0));
        assert_eq!(area_under_roc(&[true, true], &[2.0, 1.0]).unwrap(), None);
        assert!(area_under_roc(&[], &[]).is_err() && area_under_roc(&[true], &[f64::NAN]).is_err());
    }

    #[test]
    fn samples_without_positives_and_invalid_scores() {
        assert_eq!(average_precision(&[false, false], &[1.0, 2.0]).unwrap(), None);
        assert_eq!(average_precision(&[true], &[1.0]).unwrap(), Some(1.0));
        assert!(average_precision(&[], &[]).is_err());
        assert!(average_precision(&[true], &[f64::NAN]).is_err());
    }

    #[test]
    fn attributes_without_positives_are_left_out_of_the_mean() {
        let labels = Labels::attributes(2, vec![true, false, false, false]).unwrap();
        let scores = Scores::new(2, vec![0.0f32, 1.0, 1.0, 1.0]).unwrap();
        let map = mean_average_precision(&labels, &scores, &[0, 1]).unwrap();
        assert_eq!((map.mean, map.each), (0.5, vec![Some(0.5), None]));
        assert!(mean_average_precision(&labels, &scores, &[1]).is_err());
        assert!(mean_average_precision(&labels, &scores, &[2]).is_err());
    }
}
