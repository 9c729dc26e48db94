//! Singles: entries of a published sum that are the value of one user. Encryption cannot hide them.

use dphe_learn::Seed;

use super::random::Subsets;
use crate::Measurement;

/// A round's sum, with the number of users who contributed to each entry.
#[derive(Clone, Debug)]
pub struct Singles {
    holders: Vec<u32>,
    sum: Vec<f64>,
    last: Vec<f64>,
}

impl Singles {
    /// Makes an empty sum of this many entries.
    pub fn new(dimension: usize) -> Self {
        Self { holders: vec![0; dimension], sum: vec![0.0; dimension], last: vec![0.0; dimension] }
    }

    /// Adds a user's update. Entries beyond the dimension are ignored.
    pub fn add(&mut self, entries: impl IntoIterator<Item = (usize, f64)>) {
        for (index, value) in entries {
            if value != 0.0 && index < self.sum.len() {
                self.holders[index] += 1;
                self.sum[index] += value;
                self.last[index] = value;
            }
        }
    }

    /// Returns the number of nonzero entries of the sum.
    pub fn nonzeros(&self) -> usize {
        self.sum.iter().filter(|&&sum| sum != 0.0).count()
    }

    /// Returns the number of entries that are exactly one user's value.
    pub fn singles(&self) -> usize {
        let exact = |i: &usize| self.holders[*i] == 1 && self.sum[*i] == self.last[*i];
        (0..self.sum.len()).filter(exact).count()
    }

    /// Returns the fraction of singles among the nonzero entries.
    pub fn share(&self) -> f64 {
        self.singles() as f64 / self.nonzeros().max(1) as f64
    }

    /// Returns the fraction of entries that are zero. In practice these are zero for every user.
    pub fn zeros(&self) -> f64 {
        1.0 - self.nonzeros() as f64 / self.sum.len().max(1) as f64
    }

    /// Returns the fraction of all users' nonzeros that are singles.
    pub fn exposed(&self) -> f64 {
        let sent: u32 = self.holders.iter().sum();
        self.singles() as f64 / f64::from(sent.max(1))
    }
}

/// Returns the fraction of singles that independent supports of this density have: `N p (1-p)^(N-1) / (1 - (1-p)^N)`.
pub fn expected_singles(users: usize, density: f64) -> f64 {
    let no_other = (1.0 - density).powi(users as i32 - 1);
    users as f64 * density * no_other / (1.0 - no_other * (1.0 - density))
}

/// The numbers of users that are compared.
pub(super) const USERS: [usize; 5] = [3, 5, 10, 25, 50];

/// Counts singles in sums of independent supports of this density, for each number of users.
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
    fn singles_are_counted_as_by_hand() {
        let mut sum = Singles::new(5);
        sum.add([(0, 1.0), (1, 2.0), (2, 3.0), (9, 1.0)]);
        sum.add([(1, 1.0), (2, -3.0), (3, 0.0)]);
        // entry 0 comes from one user, entry 1 from both, entry 2 cancels, entry 3 was sent as zero
        assert_eq!((sum.nonzeros(), sum.singles()), (2, 1));
        assert_eq!((sum.share(), sum.zeros(), sum.exposed()), (0.5, 0.6, 0.2));
        let empty = Singles::new(0);
        assert_eq!((empty.share(), empty.exposed()), (0.0, 0.0));
    }

    /// Checks the closed form in docs/leakage.md, section 5.
    #[test]
    fn expected_singles_match_the_documentation() {
        for (users, density, expected) in
            [(3, 0.1, 0.90), (5, 0.1, 0.80), (10, 0.1, 0.60), (50, 0.1, 0.03), (5, 0.05, 0.90)]
        {
            assert!((expected_singles(users, density) - expected).abs() < 0.006, "{users} {density}");
        }
        assert!((expected_singles(1, 0.3) - 1.0).abs() < 1e-12);
    }
}
