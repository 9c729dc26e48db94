//! Adjusted mutual information of two clusterings of the same samples (Vinh, Epps, Bailey, JMLR 2010).

use std::collections::BTreeMap;

use super::check_pairs;
use crate::Error;

/// The mutual information, corrected for chance. It is 1 for equal clusterings and 0 on average for unrelated ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdjustedMutualInformation {
    /// Normalised by the mean of both entropies, scikit-learn's default since 0.22.
    pub arithmetic: f64,
    /// Normalised by the larger entropy, scikit-learn's earlier default, which papers of that time use.
    pub max: f64,
}

/// Compares two clusterings, independent of the numbering of clusters.
///
/// # Errors
/// If there are no samples or the lengths differ.
pub fn adjusted_mutual_information(a: &[u32], b: &[u32]) -> Result<AdjustedMutualInformation, Error> {
    check_pairs("group numbers", a.len(), b.len())?;
    let mut pairs = BTreeMap::<(u32, u32), u64>::new();
    for pair in a.iter().copied().zip(b.iter().copied()) {
        *pairs.entry(pair).or_default() += 1;
    }
    let (rows, columns) = (sizes(a), sizes(b));
    let both = |value| AdjustedMutualInformation { arithmetic: value, max: value };
    match (rows.len(), columns.len()) {
        (1, 1) => return Ok(both(1.0)),
        // a single cluster carries no information
        (1, _) | (_, 1) => return Ok(both(0.0)),
        _ => {}
    }
    let total = a.len() as f64;
    let mut information = Sum::default();
    for (&(i, j), &count) in &pairs {
        let count = count as f64;
        let (row, column) = (rows[&i] as f64, columns[&j] as f64);
        information.add(count / total * (count.ln() + total.ln() - row.ln() - column.ln()));
    }
    let information = information.value().max(0.0);
    let expected = expected_information(&rows, &columns, a.len() as u64);
    let (entropy_a, entropy_b) = (entropy(&rows, total), entropy(&columns, total));
    let adjust = |norm: f64| {
        // like scikit-learn, keep both parts at least one rounding error away from zero
        let away = |x: f64| if x < 0.0 { x.min(-f64::EPSILON) } else { x.max(f64::EPSILON) };
        away(information - expected) / away(norm - expected)
    };
    Ok(AdjustedMutualInformation {
        arithmetic: adjust((entropy_a + entropy_b) / 2.0),
        max: adjust(entropy_a.max(entropy_b)),
    })
}

/// Returns the number of samples per cluster.
fn sizes(groups: &[u32]) -> BTreeMap<u32, u64> {
    let mut sizes = BTreeMap::new();
    for &group in groups {
        *sizes.entry(group).or_default() += 1;
    }
    sizes
}

fn entropy(sizes: &BTreeMap<u32, u64>, total: f64) -> f64 {
    let mut sum = Sum::default();
    for &size in sizes.values() {
        sum.add(-(size as f64 / total) * (size as f64 / total).ln());
    }
    sum.value()
}

/// Returns the mean mutual information over all clusterings with these sizes:
/// `sum_ij sum_k (k/N) ln(N k / (a_i b_j)) P(k; N, a_i, b_j)` with the hypergeometric probability P.
///
/// Clusters of equal size give equal terms, which are computed once. The first P is computed from factorials, whose
/// logarithms are stored with an error term, and the next ones from ratios.
fn expected_information(rows: &BTreeMap<u32, u64>, columns: &BTreeMap<u32, u64>, total: u64) -> f64 {
    let factorials = LogFactorials::up_to(total);
    let n = total as f64;
    let mut expected = Sum::default();
    for (&a, &rows) in &multiplicities(rows) {
        for (&b, &columns) in &multiplicities(columns) {
            let first = (a + b).saturating_sub(total).max(1);
            let mut log_probability = factorials.hypergeometric(total, a, b, first);
            let mut term = Sum::default();
            for k in first..=a.min(b) {
                let share = k as f64 / n * (n * k as f64 / (a as f64 * b as f64)).ln();
                term.add(share * log_probability.exp());
                let up = (a - k) as f64 * (b - k) as f64;
                // total - a - b + k + 1, ordered so that nothing underflows
                let down = (k + 1) as f64 * (total + k + 1 - a - b) as f64;
                log_probability += (up / down).ln();
            }
            expected.add((rows * columns) as f64 * term.value());
        }
    }
    expected.value()
}

/// Returns the number of clusters per size.
fn multiplicities(sizes: &BTreeMap<u32, u64>) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for &size in sizes.values() {
        *counts.entry(size).or_default() += 1;
    }
    counts
}

/// The logarithms `ln 0!, ln 1!, ...` as unevaluated sums of two doubles, because their small differences must be
/// exact.
struct LogFactorials(Vec<Sum>);

impl LogFactorials {
    fn up_to(last: u64) -> Self {
        let mut sum = Sum::default();
        let mut all = vec![sum];
        for k in 1..=last {
            sum.add((k as f64).ln());
            all.push(sum);
        }
        Self(all)
    }

    /// Returns `ln [C(a, k) C(n - a, b - k) / C(n, b)]`.
    fn hypergeometric(&self, n: u64, a: u64, b: u64, k: u64) -> f64 {
        let mut sum = Sum::default();
        let mut add = |k: u64, sign: f64| {
            let Sum { high, low } = self.0[k as usize];
            sum.add(sign * high);
            sum.add(sign * low);
        };
        [a, b, n - a, n - b].into_iter().for_each(|k| add(k, 1.0));
        [n, k, a - k, b - k, n + k - a - b].into_iter().for_each(|k| add(k, -1.0));
        sum.value()
    }
}

/// A compensated sum (Neumaier 1974).
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    high: f64,
    low: f64,
}

impl Sum {
    fn add(&mut self, term: f64) {
        let sum = self.high + term;
        self.low +=
            if self.high.abs() >= term.abs() { (self.high - sum) + term } else { (term - sum) + self.high };
        self.high = sum;
    }

    fn value(self) -> f64 {
        self.high + self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ami(a: &[u32], b: &[u32]) -> AdjustedMutualInformation {
        adjusted_mutual_information(a, b).unwrap()
    }

    #[test]
    fn adjusted_mutual_information_equals_a_known_value() {
        let result = ami(&[0, 0, 0, 1, 1, 1, 2, 2, 2, 2], &[0, 0, 1, 1, 1, 2, 2, 2, 2, 0]);
        assert!((result.arithmetic - 0.23728877770133558).abs() < 1e-12, "{result:?}");
        assert!((result.max - result.arithmetic).abs() < 1e-12);
    }

    #[test]
    fn single_cluster_and_singletons() {
        assert_eq!(ami(&[4, 4], &[1, 1]).arithmetic, 1.0);
        assert_eq!(ami(&[4, 4], &[1, 2]).arithmetic, 0.0);
        assert_eq!(ami(&[1, 2], &[4, 4]).max, 0.0);
        // only singletons: every other clustering of this size is equal
        assert_eq!(ami(&[0, 1, 2], &[5, 3, 9]).arithmetic, 1.0);
        assert!(adjusted_mutual_information(&[], &[]).is_err());
        assert!(adjusted_mutual_information(&[0], &[]).is_err());
    }

    #[test]
    fn result_is_independent_of_numbering_and_order() {
        let (a, b) = ([0, 0, 1, 1, 2, 2, 2], [5, 5, 5, 1, 1, 0, 0]);
        let renamed = a.map(|g| 9 - g);
        assert!((ami(&a, &b).max - ami(&renamed, &b).max).abs() < 1e-14);
        assert!((ami(&a, &b).arithmetic - ami(&b, &a).arithmetic).abs() < 1e-14);
        assert!((ami(&a, &renamed).arithmetic - 1.0).abs() < 1e-12);
    }

    #[test]
    fn hypergeometric_probabilities_sum_to_one() {
        let factorials = LogFactorials::up_to(100_000);
        let (n, a, b) = (100_000u64, 300, 40_000);
        let sum: f64 = (0..=a).map(|k| factorials.hypergeometric(n, a, b, k).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
    }
}
