//! The public support of a round in `full`: all positions, or a share that rotates (docs/protocol.md, section 5).

use crate::hash::{Digest, hash};
use crate::permutation::Permutation;
use crate::{Round, TaskParams};

/// The positions that everybody sends in a round, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicSupport {
    positions: Vec<u32>,
    block: usize,
    dimension: usize,
}

impl PublicSupport {
    /// The support of a round; of a task with private supports, nothing.
    pub fn of(task: &TaskParams, round: Round) -> Self {
        let mut positions = Vec::new();
        if !task.has_private_support() {
            let (all, share) = (task.positions(), task.capacity() as u64);
            let shares = u64::from(all).div_ceil(share);
            let (pass, s) = ((round.get() - 1) / shares, (round.get() - 1) % shares);
            let key = hash("dphe/v1/rotation", &[task.id().as_bytes(), &pass.to_be_bytes()]);
            let shuffled = Permutation::shuffle(key.as_bytes(), all);
            let from = (s * share) as usize;
            let to = (from + task.capacity()).min(all as usize);
            positions = shuffled.table()[from..to].to_vec();
            positions.sort_unstable();
        }
        Self { positions, block: task.block(), dimension: task.dimension() }
    }

    /// The positions.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// The indices of its weights, ascending.
    pub fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        self.positions.iter().flat_map(|&position| {
            let first = position as usize * self.block;
            first..(first + self.block).min(self.dimension)
        })
    }

    /// How many weights it has.
    pub fn weights(&self) -> usize {
        let full = self.positions.len() * self.block;
        // the last position of all may be short
        let last = self.dimension.div_ceil(self.block) - 1;
        match self.positions.last() {
            Some(&position) if position as usize == last => full - ((last + 1) * self.block - self.dimension),
            _ => full,
        }
    }

    /// What tickets name it by.
    pub fn digest(&self) -> Digest {
        let bytes: Vec<u8> = self.positions.iter().flat_map(|position| position.to_be_bytes()).collect();
        hash("dphe/v1/support", &[&bytes])
    }
}
