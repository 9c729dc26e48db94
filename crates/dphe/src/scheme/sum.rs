//! The opened sum of a round.

use core::fmt;

use super::fixed_point::FixedPoint;
use crate::scheme::RoundParams;
use crate::{PublicSupport, Round};

/// `w_sum`: the exact sum of a round in fixed point, with the number of participants. `Debug` omits the values.
#[derive(Clone, PartialEq)]
pub struct WeightSum {
    round: Round,
    users: usize,
    support: Option<PublicSupport>,
    dimension: usize,
    fixed: FixedPoint,
    /// The bits that one sum needs.
    slot_bits: u32,
    /// All weights, or those of the public support.
    weights: Vec<i64>,
    dense: Vec<i64>,
}

impl WeightSum {
    pub(crate) fn new(params: &RoundParams, users: usize, weights: Vec<i64>, dense: Vec<i64>) -> Self {
        let task = params.task();
        Self {
            round: params.round(),
            users,
            support: (!task.has_private_support()).then(|| params.support().clone()),
            dimension: task.dimension(),
            fixed: task.fixed_point(),
            slot_bits: task.slot_bits(),
            weights,
            dense,
        }
    }

    /// Returns the round.
    pub fn round(&self) -> Round {
        self.round
    }

    /// Returns the number of participants. A user who sent several shards counts once.
    pub fn users(&self) -> usize {
        self.users
    }

    /// Returns the public support, if the task has one.
    pub fn support(&self) -> Option<&PublicSupport> {
        self.support.as_ref()
    }

    /// Returns the sums of the weights in fixed point: all of them, or those of the public support, ascending.
    pub fn weights(&self) -> &[i64] {
        &self.weights
    }

    /// Returns the sums of the dense values in fixed point.
    pub fn dense(&self) -> &[i64] {
        &self.dense
    }

    /// Returns the sums of all weights of the task as floating-point numbers. Outside a public support they are zero.
    pub fn decode_weights(&self) -> Vec<f64> {
        let Some(support) = &self.support else { return self.decode(&self.weights) };
        let mut all = vec![0.0; self.dimension];
        support.indices().zip(self.decode(&self.weights)).for_each(|(index, sum)| all[index] = sum);
        all
    }

    /// Returns the sums of the dense values as floating-point numbers.
    pub fn decode_dense(&self) -> Vec<f64> {
        self.decode(&self.dense)
    }

    fn decode(&self, sums: &[i64]) -> Vec<f64> {
        sums.iter().map(|&sum| self.fixed.decode(sum)).collect()
    }

    pub(crate) fn slot_bits(&self) -> u32 {
        self.slot_bits
    }
}

impl fmt::Debug for WeightSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (round, users, weights, dense) = (self.round, self.users, self.weights.len(), self.dense.len());
        write!(f, "WeightSum({round:?}, {users} users, {weights} weights, {dense} dense values)")
    }
}
