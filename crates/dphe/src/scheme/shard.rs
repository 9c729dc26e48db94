//! Weights are grouped into positions, and positions are distributed over shards (section 2.3 of the paper).

use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::scheme::permutation::below;
use crate::{Error, Profile, TaskParams};

/// Occupied positions, with `block` integers each.
pub(crate) struct Shard {
    pub(crate) positions: Zeroizing<Vec<u32>>,
    pub(crate) values: Zeroizing<Vec<i64>>,
}

/// Groups weights, given at ascending indices, into the occupied positions.
pub(crate) fn occupied(indices: &[u32], integers: &[i64], block: usize) -> Shard {
    let nonzeros = || indices.iter().zip(integers).filter(|&(_, &e)| e != 0);
    let mut positions = Zeroizing::new(Vec::with_capacity(nonzeros().count()));
    for (&index, _) in nonzeros() {
        let position = index / block as u32;
        if positions.last() != Some(&position) {
            positions.push(position);
        }
    }
    let mut values = Zeroizing::new(vec![0; positions.len() * block]);
    let mut at = 0;
    for (&index, &e) in nonzeros() {
        let position = index / block as u32;
        at += usize::from(positions[at] != position);
        values[at * block + index as usize % block] = e;
    }
    Shard { positions, values }
}

impl Shard {
    /// Distributes the positions at random over the task's number of shards. In `paper`, over as many as needed.
    pub(crate) fn into_shards(self, task: &TaskParams, rng: &mut impl CryptoRng) -> Result<Vec<Self>, Error> {
        let (occupied, capacity) = (self.positions.len(), task.capacity());
        let most = task.config().shards as usize;
        if occupied > capacity * most {
            return Err(Error::Capacity { occupied, capacity: capacity * most });
        }
        let count = match task.profile() {
            Profile::Paper => occupied.div_ceil(capacity).max(1),
            _ => most,
        };
        let block = task.block();
        let mut order = Zeroizing::new((0..occupied as u32).collect::<Vec<_>>());
        shuffle(&mut order, rng);
        Ok((0..count)
            .map(|shard| {
                let mine = || order.iter().skip(shard).step_by(count).map(|&i| i as usize);
                let mut values = Zeroizing::new(Vec::with_capacity(mine().count() * block));
                mine().for_each(|i| values.extend_from_slice(&self.values[i * block..][..block]));
                Self { positions: Zeroizing::new(mine().map(|i| self.positions[i]).collect()), values }
            })
            .collect())
    }
}

/// Shuffles items.
pub(crate) fn shuffle(items: &mut [u32], rng: &mut impl CryptoRng) {
    for i in (1..items.len()).rev() {
        items.swap(i, below(i as u32 + 1, || rng.next_u32()) as usize);
    }
}
