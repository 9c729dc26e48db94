//! Entries of a sum that are one user's: no encryption repairs this.

use dphe_learn::Seed;

use super::random::Subsets;
use crate::Measurement;

/// Who contributes to the entries of a round's sum.
#[derive(Clone, Debug)]
pub struct Singles {
    holders: Vec<u32>,
    sum: Vec<f64>,
    last: Vec<f64>,
}

impl Singles {
    /// A sum of this many entries, of nobody yet.
    pub fn new(dimension: usize) -> Self {
        Self { holders: vec![0; dimension], sum: vec![0.0; dimension], last: vec![0.0; dimension] }
    }

    /// Adds a user's update; entries beyond the dimension are not counted.
    pub fn add(&mut self, entries: impl IntoIterator<Item = (usize, f64)>) {
        for (index, value) in entries {
            if value != 0.0 && index < self.sum.len() {
                self.holders[index] += 1;
                self.sum[index] += value;
                self.last[index] = value;
            }
        }
    }

    /// Entries of the sum that are not zero.
    pub fn nonzeros(&self) -> usize {
        self.sum.iter().filter(|&&sum| sum != 0.0).count()
    }

    /// Those of them that are exactly one user's value.
    pub fn singles(&self) -> usize {
        let exact = |i: &usize| self.holders[*i] == 1 && self.sum[*i] == self.last[*i];
        (0..self.sum.len()).filter(exact).count()
    }

    /// The share of singles among the entries that are not zero.
    pub fn share(&self) -> f64 {
        self.singles() as f64 / self.nonzeros().max(1) as f64
    }

    /// The share of entries that are zero: zero for everybody, in practice.
    pub fn zeros(&self) -> f64 {
        1.0 - self.nonzeros() as f64 / self.sum.len().max(1) as f64
    }

    /// The share of all users' non-zeros that are singles.
    pub fn exposed(&self) -> f64 {
        let sent: u32 = self.holders.iter().sum();
        self.singles() as f64 / f64::from(sent.max(1))
    }
}

/// The share of singles that independent supports of this density give: `N p (1-p)^(N-1) / (1 - (1-p)^N)`.
pub fn expected_singles(users: usize, density: f64) -> f64 {
    let nobody_else = (1.0 - density).powi(users as i32 - 1);
    users as f64 * density * nobody_else / (1.0 - nobody_else * (1.0 - density))
}

/// Numbers of users that are looked at.
pub(super) const USERS: [usize; 5] = [3, 5, 10, 25, 50];

/// Independent supports of this density, for each number of users.
pub(super) fn independent(dimension: usize, density: f64, rounds: usize, seed: &Seed) -> Measurement {
    let mut subsets = Subsets::new(dimension, &seed.derive("singles", 0));
    let size = (density * dimension as f64).round() as usize;
    let mut measurement = Measurement::new();
    for users in USERS {
        let mut all = Totals::default();
        for _ in 0..rounds {
            let mut round = Singles::new(dimension);
            for _ in 0..users {
                let support: Vec<usize> = subsets.draw(size).iter().map(|&index| index as usize).collect();
                let entries: Vec<_> = support.into_iter().map(|index| (index, subsets.value())).collect();
                round.add(entries);
            }
            all.add(&round);
        }
        all.write(&format!("users_{users:02}_"), &mut measurement);
    }
    measurement
}

/// Means over rounds.
#[derive(Default)]
pub(super) struct Totals {
    rounds: usize,
    share: f64,
    zeros: f64,
    exposed: f64,
}

impl Totals {
    pub(super) fn add(&mut self, round: &Singles) {
        self.rounds += 1;
        self.share += round.share();
        self.zeros += round.zeros();
        self.exposed += round.exposed();
    }

    pub(super) fn write(&self, prefix: &str, measurement: &mut Measurement) {
        let rounds = self.rounds.max(1) as f64;
        let parts = [("singles", self.share), ("zeros", self.zeros), ("exposed", self.exposed)];
        measurement.extend(parts.map(|(name, sum)| (format!("{prefix}{name}"), sum / rounds)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singles_by_hand() {
        let mut sum = Singles::new(5);
        sum.add([(0, 1.0), (1, 2.0), (2, 3.0), (9, 1.0)]);
        sum.add([(1, 1.0), (2, -3.0), (3, 0.0)]);
        // entry 0 is one user's, 1 of both, 2 cancelled, 3 was sent as zero
        assert_eq!((sum.nonzeros(), sum.singles()), (2, 1));
        assert_eq!((sum.share(), sum.zeros(), sum.exposed()), (0.5, 0.6, 0.2));
        let empty = Singles::new(0);
        assert_eq!((empty.share(), empty.exposed()), (0.0, 0.0));
    }

    /// The closed form of docs/leakage.md, section 5.
    #[test]
    fn the_formula() {
        for (users, density, expected) in
            [(3, 0.1, 0.90), (5, 0.1, 0.80), (10, 0.1, 0.60), (50, 0.1, 0.03), (5, 0.05, 0.90)]
        {
            assert!((expected_singles(users, density) - expected).abs() < 0.006, "{users} {density}");
        }
        assert!((expected_singles(1, 0.3) - 1.0).abs() < 1e-12);
    }
}
