//! The decomposition `w = K v` (equation 3). K always has as many columns as the capacity, however many weights are not
//! zero.

use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::scheme::index::{IndexMatrix, Original};
use crate::scheme::permutation::below;
use crate::scheme::shard::{Shard, shuffle};

/// A random decomposition of a shard.
pub(crate) struct Decomposition {
    /// `v`: `block` integers per column.
    pub(crate) values: Zeroizing<Vec<i64>>,
    /// `K`.
    pub(crate) indices: IndexMatrix<Original>,
}

/// Positions that the user does not occupy, drawn at random without repetition.
pub(crate) struct Pads(Zeroizing<Vec<u32>>);

impl Pads {
    /// Collects all positions except those of the shards.
    pub(crate) fn around(shards: &[Shard], positions: u32) -> Self {
        let mut free = Zeroizing::new(vec![true; positions as usize]);
        shards.iter().flat_map(|shard| shard.positions.iter()).for_each(|&p| free[p as usize] = false);
        Self(Zeroizing::new((0..positions).filter(|&p| free[p as usize]).collect()))
    }

    /// Draws a pad. There are enough, because capacity times shards is at most the number of positions.
    fn draw(&mut self, rng: &mut impl CryptoRng) -> Option<u32> {
        let bound = u32::try_from(self.0.len()).ok().filter(|&left| left > 0)?;
        Some(self.0.swap_remove(below(bound, || rng.next_u32()) as usize))
    }
}

/// Fills a shard with pads up to the capacity, and shuffles its columns.
pub(crate) fn decompose(
    shard: &Shard,
    capacity: usize,
    block: usize,
    pads: &mut Pads,
    rng: &mut impl CryptoRng,
) -> Decomposition {
    // full capacity from the start, because a growing vector leaves copies behind
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
    use crate::scheme::shard::occupied;

    /// Computes `K v`.
    fn compose(decomposition: &Decomposition, positions: usize, block: usize) -> Vec<i64> {
        let mut w = vec![0; positions * block];
        for (column, &row) in decomposition.indices.rows().iter().enumerate() {
            let value = &decomposition.values[column * block..][..block];
            w[row as usize * block..][..block].iter_mut().zip(value).for_each(|(w, v)| *w += v);
        }
        w
    }

    #[test]
    fn decomposition_composes_to_the_weights_and_has_distinct_rows() {
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
