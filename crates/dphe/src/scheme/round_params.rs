//! What all parties know about a round.

use crate::{Digest, PublicSupport, Receipts, Round, TaskParams};

/// A round of a task: what is the same for all parties in it. Computed once per round, because the public support of a
/// round is a shuffle of all positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundParams {
    task: TaskParams,
    round: Round,
    support: PublicSupport,
    ticket: Digest,
}

impl RoundParams {
    /// Computes the parameters of a round.
    pub fn new(task: &TaskParams, round: Round) -> Self {
        Self { task: task.clone(), round, support: PublicSupport::of(task, round), ticket: Digest::ZERO }
    }

    /// Returns the same parameters for the round of this ticket. Masks and checks depend on it.
    #[must_use]
    pub fn with_ticket(&self, ticket: Digest) -> Self {
        Self { ticket, ..self.clone() }
    }

    /// Returns the hash of the ticket, or zeros in a round without one.
    pub fn ticket(&self) -> Digest {
        self.ticket
    }

    /// Returns the task.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    /// Returns the round.
    pub fn round(&self) -> Round {
        self.round
    }

    /// Returns the public support, which is empty in tasks with private supports.
    pub fn support(&self) -> &PublicSupport {
        &self.support
    }

    /// Returns the number of ciphertexts of an update of this round. In `paper`, where users may send fewer shards, it
    /// is the largest number.
    pub fn ciphertexts(&self) -> usize {
        let task = &self.task;
        let shards = if task.has_private_support() { task.config().shards as usize } else { 0 };
        shards * task.capacity() + self.packed_ciphertexts()
    }

    /// Returns how many numbers are packed without indices: the weights of a public support, and the dense values.
    pub(crate) fn packed_values(&self) -> usize {
        let support = if self.task.has_private_support() { 0 } else { self.support.weights() };
        support + self.task.dense()
    }

    /// Returns how many plaintexts they are packed into.
    pub(crate) fn packed_plaintexts(&self) -> usize {
        self.packed_values().div_ceil(self.task.slots())
    }

    /// Returns how many ciphertexts an update has besides its shards: the packed plaintexts and the check.
    pub(crate) fn packed_ciphertexts(&self) -> usize {
        self.packed_plaintexts() + check_ciphertexts(&self.task)
    }
}

/// The largest number of such numbers in any round, known before a message is trusted.
pub(crate) fn max_packed_values(task: &TaskParams) -> usize {
    let support = if task.has_private_support() { 0 } else { task.capacity() * task.block() };
    support + task.dense()
}

pub(crate) fn max_packed_ciphertexts(task: &TaskParams) -> usize {
    max_packed_values(task).div_ceil(task.slots()) + check_ciphertexts(task)
}

fn check_ciphertexts(task: &TaskParams) -> usize {
    usize::from(task.receipts() != Receipts::None)
}
