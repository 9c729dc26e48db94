//! The opened sum of a round: masked, as the key generator hands it out; unchecked, as the aggregator publishes it; and
//! as numbers, once it was checked.

use core::fmt;
use std::sync::Arc;

use dphe_paillier::{Plaintext, SlotLayout};

use super::fixed_point::FixedPoint;
use crate::scheme::RoundParams;
use crate::{Aggregator, Error, PublicSupport, Round, User};

use super::sealed::Blinds;

/// What the key generator hands out.
#[derive(Clone, Debug)]
pub enum OpenedSum {
    /// The sum itself, which the key generator has checked as far as the task says.
    Clear(WeightSum),
    /// The sum under the aggregator's masks.
    Masked(MaskedSum),
}

impl OpenedSum {
    /// Returns the sum as numbers, for a program that runs all parties. The aggregator removes its masks, and a user
    /// checks the result.
    ///
    /// # Errors
    /// [`Error::Check`] or [`Error::Range`] if the sum is not that of the listed users.
    pub fn unmask_and_check(
        self,
        aggregator: &Aggregator,
        blinds: &Blinds,
        user: &User,
    ) -> Result<WeightSum, Error> {
        match self {
            Self::Clear(sum) => Ok(sum),
            Self::Masked(masked) => masked.unmask(aggregator, blinds)?.check(user),
        }
    }
}

/// A sum under the aggregator's masks: numbers that look random to the key generator.
#[derive(Clone)]
pub struct MaskedSum(Residues);

/// A sum as the aggregator publishes it. It becomes a [`WeightSum`] when a user has checked it.
#[derive(Clone)]
pub struct UncheckedSum(Residues);

#[derive(Clone)]
struct Residues {
    params: Arc<RoundParams>,
    users: usize,
    /// One per packed ciphertext. The check is the last.
    residues: Vec<Plaintext>,
}

impl MaskedSum {
    pub(crate) fn new(params: Arc<RoundParams>, users: usize, residues: Vec<Plaintext>) -> Self {
        Self(Residues { params, users, residues })
    }

    pub(crate) fn residues(&self) -> &[Plaintext] {
        &self.0.residues
    }

    /// Removes the aggregator's masks.
    ///
    /// # Errors
    /// [`Error::Key`] for an aggregator of another task.
    pub fn unmask(&self, aggregator: &Aggregator, blinds: &Blinds) -> Result<UncheckedSum, Error> {
        let Residues { params, users, residues } = &self.0;
        let residues = blinds.remove(params, aggregator.encryption_key(), residues)?;
        Ok(UncheckedSum(Residues { params: params.clone(), users: *users, residues }))
    }
}

impl UncheckedSum {
    pub(crate) fn new(params: Arc<RoundParams>, users: usize, residues: Vec<Plaintext>) -> Self {
        Self(Residues { params, users, residues })
    }

    pub(crate) fn residues(&self) -> &[Plaintext] {
        &self.0.residues
    }

    /// Checks that it is the sum of the listed users, and decodes it.
    ///
    /// # Errors
    /// [`Error::Check`] if it is not, [`Error::Range`] if a number is out of range, and [`Error::Stale`] for a round
    /// whose seeds the user has forgotten.
    pub fn check(&self, user: &User) -> Result<WeightSum, Error> {
        let Residues { params, users, residues } = &self.0;
        let (found, packed) = residues.split_last().ok_or(Error::Check)?;
        if user.check_key(params)?.value(*users, packed.iter().enumerate())? != *found {
            return Err(Error::Check);
        }
        self.decode(user.layout())
    }

    /// Decodes the sum for the aggregator, which made it and cannot check it.
    ///
    /// # Errors
    /// [`Error::Range`] if a number is out of range, [`Error::Key`] for an aggregator of another task.
    pub fn decode_unchecked(&self, aggregator: &Aggregator) -> Result<WeightSum, Error> {
        self.decode(&self.0.params.task().layout(aggregator.encryption_key())?)
    }

    pub(crate) fn decode(&self, layout: &SlotLayout) -> Result<WeightSum, Error> {
        let Residues { params, users, residues } = &self.0;
        let (_, packed) = residues.split_last().ok_or(Error::Range)?;
        let count = params.packed_values();
        let mut weights = unpack(layout, packed, count, layout.slots())?;
        let dense = weights.split_off(count - params.task().dense());
        WeightSum::in_range(params, layout, *users, weights, dense)
    }
}

macro_rules! debug_as_count {
    ($($name:ident),+) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Residues { params, users, residues } = &self.0;
                write!(f, "{}({:?}, {users} users, {} residues)", stringify!($name), params.round(), residues.len())
            }
        }
    )+};
}

debug_as_count!(MaskedSum, UncheckedSum);

/// Unpacks the first `count` numbers of plaintexts that hold `width` numbers each. Unused slots must be zero.
pub(super) fn unpack(
    layout: &SlotLayout,
    plaintexts: &[Plaintext],
    count: usize,
    width: usize,
) -> Result<Vec<i64>, Error> {
    if plaintexts.len() != count.div_ceil(width) {
        return Err(Error::Range);
    }
    let mut all = Vec::with_capacity(plaintexts.len() * width);
    for plaintext in plaintexts.chunks(1) {
        let unpacked = layout.unpack(plaintext, layout.slots()).map_err(|_| Error::Range)?;
        let (used, rest) = unpacked.split_at(width);
        if rest.iter().any(|&value| value != 0) {
            return Err(Error::Range);
        }
        all.extend_from_slice(used);
    }
    if all.split_off(count).iter().any(|&value| value != 0) { Err(Error::Range) } else { Ok(all) }
}

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

    /// Creates a sum whose numbers are within what the participants can have sent.
    pub(super) fn in_range(
        params: &RoundParams,
        layout: &SlotLayout,
        users: usize,
        weights: Vec<i64>,
        dense: Vec<i64>,
    ) -> Result<Self, Error> {
        // tighter than the slots: the bound for the participants instead of the largest possible number of users
        let most = layout.bound().saturating_sub(1).saturating_mul(users as i64).unsigned_abs();
        if weights.iter().chain(&dense).any(|sum| sum.unsigned_abs() > most) {
            return Err(Error::Range);
        }
        Ok(Self::new(params, users, weights, dense))
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
