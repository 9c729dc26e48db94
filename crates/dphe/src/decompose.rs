//! `w = K v` (equation 3): as many values as the capacity, whatever the number of non-zeros.

use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::index::{IndexMatrix, Original};
use crate::permutation::below;
use crate::shard::{Shard, shuffle};

/// One of the decompositions of a shard, chosen at random.
pub(crate) struct Decomposition {
    /// `v`: `block` integers for each column.
    pub(crate) values: Zeroizing<Vec<i64>>,
    /// `K`.
    pub(crate) indices: IndexMatrix<Original>,
}

/// Positions that a user does not occupy, handed out at random and once.
pub(crate) struct Pads(Zeroizing<Vec<u32>>);

impl Pads {
    /// All positions but those of the shards.
    pub(crate) fn around(shards: &[Shard], positions: u32) -> Self {
        let mut free = Zeroizing::new(vec![true; positions as usize]);
        shards.iter().flat_map(|shard| shard.positions.iter()).for_each(|&p| free[p as usize] = false);
        Self(Zeroizing::new((0..positions).filter(|&p| free[p as usize]).collect()))
    }

    /// The next one. There are enough: capacity times shards is at most the number of positions.
    fn draw(&mut self, rng: &mut impl CryptoRng) -> Option<u32> {
        let bound = u32::try_from(self.0.len()).ok().filter(|&left| left > 0)?;
        Some(self.0.swap_remove(below(bound, || rng.next_u32()) as usize))
    }
}

/// Fills a shard up with zeros at unused positions, and puts its columns into random order.
pub(crate) fn decompose(
    shard: &Shard,
    capacity: usize,
    block: usize,
    pads: &mut Pads,
    rng: &mut impl CryptoRng,
) -> Decomposition {
    // room for all at once: a vector that grows leaves copies behind
    let mut positions = Zeroizing::new(Vec::with_capacity(capacity));
    positions.extend_from_slice(&shard.positions);
    while positions.len() < capacity {
        let Some(pad) = pads.draw(rng) else { break };
        positions.push(pad);
    }
    let mut order = Zeroizing::new((0..positions.len() as u32).collect::<Vec<_>>());
    shuffle(&mut order, rng);
    let mut values = Zeroizing::new(vec![0; positions.len() * block]);
    for (column, &from) in order.iter().enumerate() {
        if let Some(source) = shard.values.get(from as usize * block..).filter(|rest| !rest.is_empty()) {
            values[column * block..][..block].copy_from_slice(&source[..block]);
        }
    }
    let rows = order.iter().map(|&from| positions[from as usize]).collect();
    Decomposition { values, indices: IndexMatrix::from_rows(rows) }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;
    use crate::shard::occupied;

    /// `K v`, the way back, for tests.
    fn compose(decomposition: &Decomposition, positions: usize, block: usize) -> Vec<i64> {
        let mut w = vec![0; positions * block];
        for (column, &row) in decomposition.indices.rows().iter().enumerate() {
            let value = &decomposition.values[column * block..][..block];
            w[row as usize * block..][..block].iter_mut().zip(value).for_each(|(w, v)| *w += v);
        }
        w
    }

    #[test]
    fn composing_gives_the_weights_back_and_rows_are_distinct() {
        let mut rng = chacha20::ChaCha20Rng::seed_from_u64(1);
        let (positions, block) = (40u32, 3usize);
        let indices: Vec<u32> = (0..120).filter(|i| i % 7 == 0 || *i == 1).collect();
        let integers: Vec<i64> = indices.iter().map(|&i| i64::from(i) - 50).collect();
        let shard = occupied(&indices, &integers, block);
        for capacity in [shard.positions.len(), 30, 40] {
            let mut pads = Pads::around(core::slice::from_ref(&shard), positions);
            let decomposition = decompose(&shard, capacity, block, &mut pads, &mut rng);
            assert_eq!(decomposition.indices.columns(), capacity);
            let mut rows = decomposition.indices.rows().to_vec();
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len(), capacity);
            let w = compose(&decomposition, positions as usize, block);
            let mut expected = vec![0; 120];
            indices.iter().zip(&integers).for_each(|(&i, &e)| expected[i as usize] = e);
            assert_eq!(w, expected);
        }
    }
}
