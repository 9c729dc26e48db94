//! The notes of a curious aggregator: one bit per round for every permuted position and every index. An index and a
//! position with the same bits probably belong together.

/// The largest number of rounds that notes hold, one bit of a word each.
pub const MOST_ROUNDS: usize = 64;

/// The rounds in which each permuted position was sent, and in which each index had a nonzero published sum.
#[derive(Clone, Debug)]
pub struct Notes {
    positions: Vec<u64>,
    indices: Vec<u64>,
    rounds: usize,
}

impl Notes {
    /// Makes empty notes about this many indices.
    pub fn new(dimension: usize) -> Self {
        Self { positions: vec![0; dimension], indices: vec![0; dimension], rounds: 0 }
    }

    /// Returns the number of rounds.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Adds a round: the positions that a user sent and the indices whose sum is not zero. Rounds beyond
    /// [`MOST_ROUNDS`] and numbers beyond the dimension are ignored.
    pub fn add(&mut self, positions: impl IntoIterator<Item = u32>, indices: impl IntoIterator<Item = u32>) {
        if self.rounds == MOST_ROUNDS {
            return;
        }
        let bit = 1 << self.rounds;
        let mark = |traces: &mut [u64], place: u32| {
            if let Some(trace) = traces.get_mut(place as usize) {
                *trace |= bit;
            }
        };
        positions.into_iter().for_each(|place| mark(&mut self.positions, place));
        indices.into_iter().for_each(|place| mark(&mut self.indices, place));
        self.rounds += 1;
    }

    /// Returns true if the position was sent in the latest round.
    pub fn sent_last(&self, position: u32) -> bool {
        let trace = self.positions.get(position as usize);
        self.rounds > 0 && trace.is_some_and(|trace| trace >> (self.rounds - 1) & 1 == 1)
    }

    /// Returns the number of positions that were sent in the latest round.
    pub fn count_last(&self) -> usize {
        (0..).take(self.positions.len()).filter(|&position| self.sent_last(position)).count()
    }

    /// Returns the pairs of an index and a position that have the same bits while no other index or position has
    /// them. They belong together if the permutation was the same in all rounds.
    pub fn pairs(&self) -> Vec<(u32, u32)> {
        let (positions, indices) = (unique(&self.positions), unique(&self.indices));
        let mut pairs = Vec::new();
        let mut positions = positions.into_iter().peekable();
        for (trace, index) in indices {
            while positions.next_if(|&(other, _)| other < trace).is_some() {}
            if let Some((_, position)) = positions.next_if(|&(other, _)| other == trace) {
                pairs.push((index, position));
            }
        }
        pairs
    }
}

/// Returns the traces that occur once, with their places, in ascending order.
fn unique(traces: &[u64]) -> Vec<(u64, u32)> {
    let mut sorted: Vec<(u64, u32)> = traces.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| a.0 == b.0).filter(|chunk| chunk.len() == 1).flatten().copied().collect()
}

/// Returns the expected fraction of a permutation of `dimension` positions that is recovered after this many rounds,
/// if each bit is set with probability `union`.
pub fn predicted_share(dimension: usize, union: f64, rounds: usize) -> f64 {
    let mut choose = 1.0;
    let mut share = 0.0;
    for ones in 0..=rounds {
        let trace = union.powi(ones as i32) * (1.0 - union).powi((rounds - ones) as i32);
        // the probability that no other position has the same trace
        let unique = ((dimension.saturating_sub(1)) as f64 * (-trace).ln_1p()).exp();
        share += choose * trace * unique;
        choose *= (rounds - ones) as f64 / (ones + 1) as f64;
    }
    share
}

/// Returns the number of rounds after which this fraction is expected to be recovered. The whole permutation counts as
/// recovered when less than one pair of equal traces is expected.
pub fn predicted_rounds(dimension: usize, union: f64, share: f64) -> usize {
    let equal = union * union + (1.0 - union) * (1.0 - union);
    let all = dimension as f64 * (dimension as f64 - 1.0) / 2.0;
    let reached = |&rounds: &usize| {
        if share < 1.0 {
            predicted_share(dimension, union, rounds) >= share
        } else {
            all * equal.powi(rounds as i32) <= 1.0
        }
    };
    (1..10_000).find(reached).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_equal_traces_make_a_pair() {
        // index i is sent at position phi[i]
        let phi = [2u32, 0, 3, 1];
        let mut notes = Notes::new(4);
        for union in [vec![0u32, 1], vec![1, 2]] {
            notes.add(union.iter().map(|&i| phi[i as usize]), union.iter().copied());
        }
        // the traces 10, 11, 01 and 00 of the indices 0 to 3 are all different
        let mut pairs = notes.pairs();
        pairs.sort_unstable();
        assert_eq!(pairs, [(0, 2), (1, 0), (2, 3), (3, 1)]);
        assert_eq!((notes.rounds(), notes.count_last()), (2, 2));
        assert!(notes.sent_last(0) && notes.sent_last(3) && !notes.sent_last(2) && !notes.sent_last(9));
        let mut one = Notes::new(4);
        one.add([2, 0, 99], [0, 1, 99]);
        assert_eq!(one.pairs(), []);
    }

    #[test]
    fn notes_ignore_rounds_beyond_the_limit() {
        let mut notes = Notes::new(1);
        (0..70).for_each(|_| notes.add([0], [0]));
        assert_eq!(notes.rounds(), MOST_ROUNDS);
    }

    /// Checks the numbers in docs/leakage.md, section 4.
    #[test]
    fn predicted_rounds_match_the_documentation() {
        let of = |dimension, density: f64| {
            let union = 1.0 - (1.0 - density).powi(5);
            [0.5, 0.9, 0.99, 1.0].map(|share| predicted_rounds(dimension, union, share))
        };
        assert_eq!(of(206_848, 0.10)[..3], [19, 22, 26]);
        assert_eq!(of(206_848, 0.05)[..3], [25, 32, 39]);
        assert_eq!(of(20_000, 0.10)[..3], [16, 19, 22]);
        assert!((35..=37).contains(&of(206_848, 0.10)[3]));
        assert!((54..=57).contains(&of(206_848, 0.05)[3]));
        assert_eq!(predicted_share(1000, 0.0, 20), 0.0);
        assert!(predicted_share(1000, 0.5, 64) > 0.999_999);
    }
}
