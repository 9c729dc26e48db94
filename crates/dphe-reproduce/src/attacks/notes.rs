//! A curious aggregator's notes: one bit a round for every position and every index, and what follows from equal bits.

/// Most rounds that notes hold: a word of bits.
pub const MOST_ROUNDS: usize = 64;

/// In which rounds a permuted position was sent, and in which the published sum of an index was not zero.
#[derive(Clone, Debug)]
pub struct Notes {
    positions: Vec<u64>,
    indices: Vec<u64>,
    rounds: usize,
}

impl Notes {
    /// Empty notes about this many indices.
    pub fn new(dimension: usize) -> Self {
        Self { positions: vec![0; dimension], indices: vec![0; dimension], rounds: 0 }
    }

    /// Rounds that are written down.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Writes a round down: the positions that somebody sent, the indices whose sum is not zero. Rounds beyond
    /// [`MOST_ROUNDS`], and numbers beyond the dimension, are not written down.
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

    /// Whether the position was sent in the latest round.
    pub fn sent_last(&self, position: u32) -> bool {
        let trace = self.positions.get(position as usize);
        self.rounds > 0 && trace.is_some_and(|trace| trace >> (self.rounds - 1) & 1 == 1)
    }

    /// How many positions were sent in the latest round.
    pub fn count_last(&self) -> usize {
        (0..).take(self.positions.len()).filter(|&position| self.sent_last(position)).count()
    }

    /// Pairs of an index and a position whose notes agree, and with nobody else's: they belong together, if the
    /// permutation was the same in all rounds.
    pub fn pairs(&self) -> Vec<(u32, u32)> {
        let (positions, indices) = (alone(&self.positions), alone(&self.indices));
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

/// Traces that occur once, with their places, ascending.
fn alone(traces: &[u64]) -> Vec<(u64, u32)> {
    let mut sorted: Vec<(u64, u32)> = traces.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let alone = sorted.chunk_by(|a, b| a.0 == b.0).filter(|chunk| chunk.len() == 1);
    alone.flatten().copied().collect()
}

/// The share of a permutation of `dimension` positions that bits of this many rounds single out, if each is set with
/// probability `union`.
pub fn predicted_share(dimension: usize, union: f64, rounds: usize) -> f64 {
    let mut choose = 1.0;
    let mut share = 0.0;
    for ones in 0..=rounds {
        let trace = union.powi(ones as i32) * (1.0 - union).powi((rounds - ones) as i32);
        // nobody else has the same one
        let alone = ((dimension.saturating_sub(1)) as f64 * (-trace).ln_1p()).exp();
        share += choose * trace * alone;
        choose *= (rounds - ones) as f64 / (ones + 1) as f64;
    }
    share
}

/// The rounds after which this share is to be expected; the whole, where fewer than one pair of equal notes is.
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
    fn equal_notes_that_nobody_shares_make_a_pair() {
        // index i goes to position phi[i]
        let phi = [2u32, 0, 3, 1];
        let mut notes = Notes::new(4);
        for union in [vec![0u32, 1], vec![1, 2]] {
            notes.add(union.iter().map(|&i| phi[i as usize]), union.iter().copied());
        }
        // notes: 0 -> 10, 1 -> 11, 2 -> 01, 3 -> 00: all different
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
    fn notes_are_bounded() {
        let mut notes = Notes::new(1);
        (0..70).for_each(|_| notes.add([0], [0]));
        assert_eq!(notes.rounds(), MOST_ROUNDS);
    }

    /// The figures of docs/leakage.md, section 4.
    #[test]
    fn predictions() {
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
