//! Sealed updates, which users send, and sealed sums, which the aggregator sends. They hold ciphertexts, and permuted
//! indices that reveal nothing by themselves.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use dphe_paillier::{EncryptionKey, Plaintext, WireCiphertexts};
use zeroize::Zeroizing;

use super::index::{DoublyPermuted, IndexMatrix};
use super::mask::{Blind, MaskSum, Salt};
use super::round_params::{RoundParams, max_packed_ciphertexts};
use crate::{Error, Round, TaskParams, UserId};

/// Ciphertexts in wire form.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedValues(Vec<u8>);

impl SealedValues {
    pub(crate) fn from_wire(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_wire(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SealedValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedValues({} bytes)", self.0.len())
    }
}

/// `Enc(v)` and `Phi(K)`: one shard of an update, its columns in the order of their permuted indices.
#[derive(Debug)]
pub struct SealedShard {
    indices: IndexMatrix<DoublyPermuted>,
    values: SealedValues,
}

impl SealedShard {
    /// Puts a shard together. The type of the indices guarantees that both permutations were applied.
    pub fn new(indices: IndexMatrix<DoublyPermuted>, values: SealedValues) -> Self {
        Self { indices, values }
    }

    pub(crate) fn permuted_indices(&self) -> &[u32] {
        self.indices.rows()
    }

    pub(crate) fn into_parts(self) -> (IndexMatrix<DoublyPermuted>, SealedValues) {
        (self.indices, self.values)
    }

    pub(crate) fn values(&self) -> &SealedValues {
        &self.values
    }
}

/// A user's update for one round, sealed.
#[derive(Debug)]
pub struct SealedUpdate {
    pub(crate) task: TaskParams,
    pub(crate) user: UserId,
    pub(crate) round: Round,
    pub(crate) shards: Vec<SealedShard>,
    pub(crate) packed: SealedValues,
    pub(crate) salt: Salt,
    /// Only if sums are masked.
    pub(crate) blind: Option<Blind>,
    pub(crate) clipped: usize,
}

impl SealedUpdate {
    /// Returns the user who sealed it.
    pub fn user(&self) -> UserId {
        self.user
    }

    /// Returns the round.
    pub fn round(&self) -> Round {
        self.round
    }

    /// Returns how many weights were clipped. Only the user who sealed it knows: the number is not sent.
    pub fn clipped(&self) -> usize {
        self.clipped
    }

    /// Returns the salt of the user's masks, which is public. It is not part of the bytes of the update.
    pub fn salt(&self) -> [u8; 16] {
        self.salt
    }

    /// Returns the number of ciphertexts.
    pub fn ciphertexts(&self) -> usize {
        let batches = self.shards.iter().map(SealedShard::values).chain([&self.packed]);
        batches.map(|values| values.as_wire().len() / ciphertext_bytes(&self.task)).sum()
    }
}

/// `phi Enc(w_sum)`: the sealed sum of a round with at least as many participants as the task's floor. It can be opened
/// once.
#[derive(Debug)]
pub struct SealedSum {
    pub(crate) params: Arc<RoundParams>,
    /// The participants, ascending.
    pub(crate) users: Vec<UserId>,
    /// The salts of their masks.
    pub(crate) salts: Vec<Salt>,
    /// What the aggregator needs to remove its masks. The key generator has none.
    pub(crate) blinds: Blinds,
    /// The positions that at least one participant sent, ascending, after the user-shared permutation.
    pub(crate) occupied: Vec<u32>,
    pub(crate) values: SealedValues,
    pub(crate) packed: SealedValues,
    /// Both as ciphertexts, once they were checked.
    pub(crate) ciphertexts: Option<(WireCiphertexts, WireCiphertexts)>,
}

impl SealedSum {
    /// Returns the round.
    pub fn round(&self) -> Round {
        self.params.round()
    }

    /// Returns what all parties know about the round.
    pub fn params(&self) -> &Arc<RoundParams> {
        &self.params
    }

    /// Returns the participants, ascending.
    pub fn users(&self) -> &[UserId] {
        &self.users
    }

    /// Returns how many positions at least one participant sent.
    pub fn occupied(&self) -> usize {
        self.occupied.len()
    }
}

impl SealedSum {
    /// Takes out what the aggregator needs to remove its masks once the sum is opened.
    pub fn take_blinds(&mut self) -> Blinds {
        core::mem::take(&mut self.blinds)
    }
}

/// What the aggregator needs to remove its masks from a sum: 32 secret bytes per participant. They are wiped when
/// dropped, and `Debug` prints only their number.
#[derive(Clone, Default)]
pub struct Blinds(pub(crate) BTreeMap<UserId, Blind>);

impl Blinds {
    /// Returns all of them, for the aggregator's log.
    pub(crate) fn to_secret_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(36 * self.0.len()));
        for (user, blind) in &self.0 {
            bytes.extend_from_slice(&user.get().to_be_bytes());
            bytes.extend_from_slice(blind.as_bytes());
        }
        bytes
    }

    pub(crate) fn from_secret_bytes(bytes: &[u8]) -> Result<Self, Error> {
        const DAMAGED: Error = Error::Storage { reason: "the masks of a round cannot be read" };
        let (entries, rest) = bytes.as_chunks::<36>();
        if !rest.is_empty() {
            return Err(DAMAGED);
        }
        let read = |[a, b, c, d, blind @ ..]: &[u8; 36]| {
            let user = UserId::try_from(u32::from_be_bytes([*a, *b, *c, *d])).map_err(|_| DAMAGED)?;
            Ok((user, Blind::from_bytes(*blind)))
        };
        entries.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Removes the aggregator's masks from the residues of a sum.
    pub(crate) fn remove(
        &self,
        params: &RoundParams,
        key: &EncryptionKey,
        residues: &[Plaintext],
    ) -> Result<Vec<Plaintext>, Error> {
        let mut masks = MaskSum::new(key, residues.len());
        for (&user, blind) in &self.0 {
            masks.add(&blind.mask(params.ticket(), user))?;
        }
        masks.remove(residues)
    }
}

impl fmt::Debug for Blinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blinds({} users)", self.0.len())
    }
}

/// The length of a ciphertext under the task's key.
pub(crate) fn ciphertext_bytes(task: &TaskParams) -> usize {
    2 * task.key_bits().get().div_ceil(8) as usize
}

/// Returns the largest number of ciphertexts in an update of the task.
pub fn max_ciphertexts(task: &TaskParams) -> u64 {
    let shards = if task.has_private_support() { u64::from(task.config().shards) } else { 0 };
    shards * task.capacity() as u64 + max_packed_ciphertexts(task) as u64
}
