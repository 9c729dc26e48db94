//! The opened sum of a round, and its average.

use crate::fixed::FixedPoint;
use crate::message::codec::Writer;
use crate::sealed::Shape;
use crate::support::PublicSupport;
use crate::{Error, Round, TaskParams};

/// `w_sum`: exact sums in fixed point, with the number of users they are of.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightSum {
    round: Round,
    users: usize,
    support: Option<PublicSupport>,
    dimension: usize,
    fixed: FixedPoint,
    /// All weights, or those of the public support.
    weights: Vec<i64>,
    dense: Vec<i64>,
}

impl WeightSum {
    pub(crate) fn new(
        task: &TaskParams,
        round: Round,
        users: usize,
        weights: Vec<i64>,
        dense: Vec<i64>,
    ) -> Self {
        let support = (!task.has_private_support()).then(|| PublicSupport::of(task, round));
        Self { round, users, support, dimension: task.dimension(), fixed: task.fixed_point(), weights, dense }
    }

    /// The round it is of.
    pub fn round(&self) -> Round {
        self.round
    }

    /// How many users it is of: users, never shards.
    pub fn users(&self) -> usize {
        self.users
    }

    /// The public support, if the task has one.
    pub fn support(&self) -> Option<&PublicSupport> {
        self.support.as_ref()
    }

    /// The sums of the weights in fixed point: all of them, or those of the public support, ascending.
    pub fn weights(&self) -> &[i64] {
        &self.weights
    }

    /// The sums of the dense values in fixed point.
    pub fn dense(&self) -> &[i64] {
        &self.dense
    }

    /// The averages over the users; zero outside a public support.
    pub fn average(&self) -> Average {
        let users = self.users as f64;
        let average = |&sum: &i64| self.fixed.decode(sum) / users;
        let weights = match &self.support {
            None => self.weights.iter().map(average).collect(),
            Some(support) => {
                let mut all = vec![0.0; self.dimension];
                support.indices().zip(&self.weights).for_each(|(index, sum)| all[index] = average(sum));
                all
            }
        };
        Average { weights, dense: self.dense.iter().map(average).collect() }
    }

    /// The payload of a result.
    pub fn to_payload(&self, task: &TaskParams) -> Vec<u8> {
        let width = value_bytes(task);
        let mut out = Writer::new();
        self.weights.iter().chain(&self.dense).for_each(|sum| out.bytes(&sum.to_be_bytes()[8 - width..]));
        out.into_bytes()
    }

    /// Bytes of the longest payload of the task.
    pub(crate) fn max_payload_bytes(task: &TaskParams) -> u64 {
        let weights = if task.has_private_support() { task.dimension() } else { 0 };
        (weights + Shape::largest(task).dense_values) as u64 * value_bytes(task) as u64
    }

    /// Bytes of the payload of a round.
    fn payload_bytes(task: &TaskParams, round: Round) -> u64 {
        payload_values(task, round) as u64 * value_bytes(task) as u64
    }

    /// Reads the payload of a result.
    ///
    /// # Errors
    /// [`Error::Proof`] if it does not have the length that the task's sums have.
    pub fn from_payload(
        task: &TaskParams,
        round: Round,
        users: usize,
        payload: &[u8],
    ) -> Result<Self, Error> {
        let width = value_bytes(task);
        if payload.len() as u64 != Self::payload_bytes(task, round) {
            return Err(Error::Proof);
        }
        let mut weights: Vec<i64> = payload
            .chunks_exact(width)
            .map(|bytes| {
                let sign = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { -1 } else { 0 };
                bytes.iter().fold(sign, |x, &byte| x << 8 | i64::from(byte))
            })
            .collect();
        let dense = weights.split_off(weights.len() - task.dense());
        Ok(Self::new(task, round, users, weights, dense))
    }
}

/// The average of a round.
#[derive(Clone, Debug, PartialEq)]
pub struct Average {
    /// All weights; those outside a public support are zero.
    pub weights: Vec<f64>,
    /// The dense values.
    pub dense: Vec<f64>,
}

/// How many sums a round has.
fn payload_values(task: &TaskParams, round: Round) -> usize {
    let weights = if task.has_private_support() { task.dimension() } else { 0 };
    weights + Shape::of(task, round).dense_values
}

fn value_bytes(task: &TaskParams) -> usize {
    task.slot_bits().div_ceil(8) as usize
}
