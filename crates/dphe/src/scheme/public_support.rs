//! The public support of a round in `full`: all positions, or a rotating share of them (docs/protocol.md, section 5).

use std::sync::Arc;

use super::permutation::Permutation;
use crate::hash::{Digest, hash};
use crate::wire::domains;
use crate::{Round, TaskParams};

/// The positions that every user sends in a round, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicSupport {
    positions: Arc<[u32]>,
    block: usize,
    dimension: usize,
}

impl PublicSupport {
    /// Computes the support of a round. It is empty in tasks with private supports.
    pub fn of(task: &TaskParams, round: Round) -> Self {
        let mut positions = Vec::new();
        if !task.has_private_support() {
            let (all, share) = (task.positions(), task.capacity() as u64);
            let shares = u64::from(all).div_ceil(share);
            let (pass, s) = ((round.get() - 1) / shares, (round.get() - 1) % shares);
            let key = hash(domains::ROTATION, &[task.id().as_bytes(), &pass.to_be_bytes()]);
            let shuffled = Permutation::shuffle(key.as_bytes(), all);
            let from = (s * share) as usize;
            let to = (from + task.capacity()).min(all as usize);
            positions = shuffled.table()[from..to].to_vec();
            positions.sort_unstable();
        }
        Self { positions: positions.into(), block: task.block(), dimension: task.dimension() }
    }

    /// Returns the positions.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// Returns the indices of its weights, ascending.
    pub fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        self.positions.iter().flat_map(|&position| {
            let first = position as usize * self.block;
            first..(first + self.block).min(self.dimension)
        })
    }

    /// Returns the number of its weights.
    pub fn weights(&self) -> usize {
        let full = self.positions.len() * self.block;
        // the last position of the task may be short
        let last = self.dimension.div_ceil(self.block) - 1;
        match self.positions.last() {
            Some(&position) if position as usize == last => full - ((last + 1) * self.block - self.dimension),
            _ => full,
        }
    }

    /// Returns the digest by which tickets name it.
    pub fn digest(&self) -> Digest {
        let bytes: Vec<u8> = self.positions.iter().flat_map(|position| position.to_be_bytes()).collect();
        hash(domains::SUPPORT, &[&bytes])
    }
}
