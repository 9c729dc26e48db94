//! The attack of a curious aggregator on the user-shared permutation, from its records of several rounds. The code is
//! the same for all profiles. Whether it succeeds depends on the permutations.

use std::collections::HashMap;

use crate::transcript::Seen;

/// The largest number of rounds in a trace.
pub(crate) const MOST_ROUNDS: usize = 128;

/// The rounds in which something happened, as bits.
type Trace = u128;

/// What the aggregator has recorded.
pub(crate) struct Notes {
    users: usize,
    /// For each permuted index and each number of users from 0, the rounds in which that many users sent it.
    positions: Vec<Vec<Trace>>,
    /// For each position, the rounds in which its published sum was not zero.
    indices: Vec<Trace>,
}

impl Notes {
    pub(crate) fn new(users: usize, dimension: usize) -> Self {
        Self { users, positions: vec![vec![0; users + 1]; dimension], indices: vec![0; dimension] }
    }

    /// Records round `t`.
    pub(crate) fn add(&mut self, t: usize, seen: &Seen) {
        assert!(t < MOST_ROUNDS);
        let mut counts = vec![0; self.positions.len()];
        seen.sent.iter().flatten().for_each(|&position| counts[position as usize] += 1);
        counts.iter().zip(&mut self.positions).for_each(|(&count, traces)| traces[count] |= 1 << t);
        seen.sum.iter().zip(&mut self.indices).for_each(|(&sum, trace)| *trace |= Trace::from(sum != 0) << t);
    }

    /// Guesses by equal traces over the first `rounds`. A position and a permuted index belong together if no others
    /// have their trace.
    pub(crate) fn by_signature(&self, rounds: usize) -> Vec<Option<u32>> {
        let known = known(rounds);
        let mut table: HashMap<Trace, (usize, usize, u32)> = HashMap::new();
        for (position, traces) in (0..).zip(&self.positions) {
            let entry = table.entry(!traces[0] & known).or_default();
            *entry = (entry.0 + 1, entry.1, position);
        }
        self.indices.iter().for_each(|trace| table.entry(trace & known).or_default().1 += 1);
        self.indices
            .iter()
            .map(|trace| match table[&(trace & known)] {
                (1, 1, position) => Some(position),
                _ => None,
            })
            .collect()
    }

    /// Guesses by likelihood, for uploads with pads: for each position the permuted index whose counts fit best. The
    /// aggregator is assumed to know the density of the weights and of the uploads.
    pub(crate) fn by_likelihood(&self, rounds: usize, density: f64, sent: f64) -> Vec<Option<u32>> {
        let known = known(rounds);
        let scores = self.scores(density, sent);
        self.indices
            .iter()
            .map(|index| {
                let score = |traces: &[Trace]| -> f64 {
                    let of_count = |(trace, [zero, nonzero]): (&Trace, &[f64; 2])| {
                        let all = (trace & known).count_ones();
                        let both = (trace & known & index).count_ones();
                        f64::from(both) * nonzero + f64::from(all - both) * zero
                    };
                    traces.iter().zip(&scores).map(of_count).sum()
                };
                let scored = (0..).zip(&self.positions).map(|(position, traces)| (position, score(traces)));
                scored.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(position, _)| position)
            })
            .collect()
    }

    /// For each number of users who sent a position, the evidence for a sum that is zero or not.
    fn scores(&self, density: f64, sent: f64) -> Vec<[f64; 2]> {
        let pad = (sent - density) / (1.0 - density);
        let no_user = (1.0 - density).powi(self.users as i32);
        (0..=self.users)
            .map(|count| {
                let all = binomial(self.users, count, sent);
                let zero = no_user * binomial(self.users, count, pad);
                // never impossible, because terms of a sum may cancel
                let weigh = |p: f64| (p.max(1e-9) / all).ln();
                [weigh(zero / no_user), weigh((all - zero) / (1.0 - no_user))]
            })
            .collect()
    }
}

fn known(rounds: usize) -> Trace {
    Trace::MAX >> (MOST_ROUNDS - rounds)
}

fn binomial(n: usize, k: usize, p: f64) -> f64 {
    let choose: f64 = (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product();
    choose * p.powi(k as i32) * (1.0 - p).powi((n - k) as i32)
}

/// Counts the guesses that are right.
pub(crate) fn hits(guesses: &[Option<u32>], phi: &[u32]) -> usize {
    guesses.iter().zip(phi).filter(|&(&guess, &position)| guess == Some(position)).count()
}

/// The share of a permutation of `dimension` positions that traces of this many rounds identify, if each bit is set
/// with probability `union`.
pub(crate) fn expected_share(dimension: usize, union: f64, rounds: usize) -> f64 {
    (0..=rounds)
        .map(|ones| {
            let signature = union.powi(ones as i32) * (1.0 - union).powi((rounds - ones) as i32);
            let alone = ((dimension - 1) as f64 * (-signature).ln_1p()).exp();
            binomial(rounds, ones, union) * alone
        })
        .sum()
}
