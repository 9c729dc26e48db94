//! The bodies of messages (docs/protocol.md, section 6): sealed updates, sealed sums and weight sums as bytes.
//!
//! Everything but the ciphertexts themselves is checked here. The scheme checks ciphertexts when it uses them.

use std::sync::Arc;

use dphe_paillier::{EncryptionKey, Plaintext};

use super::codec::{DecodeWith, Encode, Reader, Writer};
use super::upload_seal::SEAL_BYTES;
use crate::scheme::index::IndexMatrix;
use crate::scheme::mask::Blind;
use crate::scheme::round_params::{max_packed_ciphertexts, max_packed_values};
use crate::scheme::sealed::ciphertext_bytes;
use crate::scheme::{Blinds, MaskedSum, OpenedSum, RoundParams, SealedShard, SealedValues, UncheckedSum};
use crate::{Error, Profile, Receipts, SealedSum, SealedUpdate, TaskParams, UserId, WeightSum};

/// The context of an upload's body, known from its header.
#[derive(Clone, Copy, Debug)]
pub struct UploadParams<'a> {
    /// The round.
    pub params: &'a RoundParams,
    /// The user who sent it.
    pub user: UserId,
    /// The number of ciphertexts.
    pub count: u32,
    /// The salt of the user's masks.
    pub salt: [u8; 16],
}

impl UploadParams<'_> {
    /// Checks the number of ciphertexts and the length of the content, and returns its number of shards.
    pub(crate) fn check_size(&self, length: usize) -> Result<usize, Error> {
        let shards = self.shards()?;
        let bytes = upload_bytes(self.params.task(), shards, self.params.packed_ciphertexts());
        if length as u64 == bytes { Ok(shards) } else { Err(Error::Size { what: "the body of an upload" }) }
    }

    fn shards(&self) -> Result<usize, Error> {
        let (task, count, packed) =
            (self.params.task(), self.count as usize, self.params.packed_ciphertexts());
        let most = task.config().shards as usize;
        let shards = match task.profile() {
            Profile::Full => 0,
            Profile::Sparse => most,
            Profile::Paper => (count.saturating_sub(packed) / task.capacity()).clamp(1, most),
        };
        let expected = shards * task.capacity() + packed;
        if count == expected {
            Ok(shards)
        } else {
            Err(Error::Count { what: "ciphertexts", expected, found: count, user: Some(self.user) })
        }
    }

    /// Reads a body whose size was checked.
    pub(crate) fn read(&self, shard_count: usize, body: &[u8]) -> Result<SealedUpdate, Error> {
        let (task, round, user) = (self.params.task().clone(), self.params.round(), self.user);
        let mut input = Reader::new(body);
        let blind = match task.receipts() {
            Receipts::Masked => Some(Blind::from_bytes(input.get()?)),
            Receipts::None | Receipts::Checked => None,
        };
        let mut shards = Vec::with_capacity(shard_count);
        let mut seen = vec![false; if shard_count > 0 { task.positions() as usize } else { 0 }];
        for _ in 0..shard_count {
            let (indices, _) = input.take(4 * task.capacity())?.as_chunks();
            let indices: Vec<u32> = indices.iter().map(|bytes| u32::from_be_bytes(*bytes)).collect();
            if let Some(&index) = indices.iter().find(|&&index| index >= task.positions()) {
                return Err(Error::IndexRange { index, user });
            }
            if !indices.is_sorted_by(|a, b| a < b) {
                return Err(Error::IndexOrder { user });
            }
            // in `paper`, pads of one shard may be positions of another
            if task.profile() != Profile::Paper
                && indices.iter().any(|&index| core::mem::replace(&mut seen[index as usize], true))
            {
                return Err(Error::IndexOrder { user });
            }
            let values = input.take(ciphertext_bytes(&task) * task.capacity())?.to_vec();
            shards.push(SealedShard::new(IndexMatrix::from_rows(indices), SealedValues::from_wire(values)));
        }
        let packed = SealedValues::from_wire(input.rest().to_vec());
        Ok(SealedUpdate { task, user, round, shards, packed, salt: self.salt, blind, clipped: 0 })
    }
}

impl Encode for SealedUpdate {
    fn encode(&self, out: &mut Writer) {
        self.encode_start(out);
        out.bytes(self.packed.as_wire());
    }
}

impl SealedUpdate {
    /// Writes everything that comes before the packed ciphertexts.
    pub(super) fn encode_start(&self, out: &mut Writer) {
        if let Some(blind) = &self.blind {
            out.bytes(blind.as_bytes());
        }
        for shard in &self.shards {
            shard.permuted_indices().iter().for_each(|&index| out.u32(index));
            out.bytes(shard.values().as_wire());
        }
    }
}

impl DecodeWith<UploadParams<'_>> for SealedUpdate {
    /// Reads the rest of the input.
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::Size`], [`Error::IndexRange`] or [`Error::IndexOrder`].
    fn decode_with(input: &mut Reader<'_>, upload: &UploadParams<'_>) -> Result<Self, Error> {
        let body = input.take(input.rest().len())?;
        upload.read(upload.check_size(body.len())?, body)
    }
}

fn upload_bytes(task: &TaskParams, shards: usize, packed: usize) -> u64 {
    let width = ciphertext_bytes(task) as u64;
    let blind = if task.receipts() == Receipts::Masked { Blind::BYTES as u64 } else { 0 };
    blind + shards as u64 * task.capacity() as u64 * (4 + width) + packed as u64 * width
}

/// Returns the length of the body of an upload of this round, encrypted to the aggregator. In `paper`, where users may
/// send fewer shards, it is the largest length.
pub fn upload_body_bytes(params: &RoundParams) -> u64 {
    SEAL_BYTES as u64 + content_bytes(params)
}

/// Returns the length of a sealed update of this round before it is encrypted to the aggregator.
pub(super) fn content_bytes(params: &RoundParams) -> u64 {
    let task = params.task();
    let shards = if task.has_private_support() { task.config().shards as usize } else { 0 };
    upload_bytes(task, shards, params.packed_ciphertexts())
}

/// Returns the length of the longest body of an upload of the task, encrypted to the aggregator.
pub fn max_upload_bytes(task: &TaskParams) -> u64 {
    let shards = if task.has_private_support() { task.config().shards as usize } else { 0 };
    SEAL_BYTES as u64 + upload_bytes(task, shards, max_packed_ciphertexts(task))
}

/// The context of a sealed sum, known from its freeze.
#[derive(Clone, Debug)]
pub struct SumParams {
    /// The round.
    pub params: Arc<RoundParams>,
    /// The participants, ascending.
    pub users: Vec<UserId>,
    /// The salts of their masks.
    pub salts: Vec<[u8; 16]>,
    /// The number of positions that at least one of them sent.
    pub occupied: u32,
}

impl Encode for SealedSum {
    fn encode(&self, out: &mut Writer) {
        let task = self.params.task();
        if task.has_private_support() {
            let mut bitmap = vec![0u8; task.positions().div_ceil(8) as usize];
            self.occupied.iter().for_each(|&p| bitmap[p as usize / 8] |= 0x80 >> (p % 8));
            out.bytes(&bitmap);
        }
        out.bytes(self.values.as_wire());
        out.bytes(self.packed.as_wire());
    }
}

impl DecodeWith<SumParams> for SealedSum {
    /// Reads the rest of the input.
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::Size`] or [`Error::Encoding`].
    fn decode_with(input: &mut Reader<'_>, sum: &SumParams) -> Result<Self, Error> {
        const SIZE: Error = Error::Size { what: "the body of a request" };
        let (task, mut occupied) = (sum.params.task(), Vec::new());
        if task.has_private_support() {
            let bitmap = input.take(task.positions().div_ceil(8) as usize).map_err(|_| SIZE)?;
            let set = |p: u32| bitmap.get(p as usize / 8).is_some_and(|byte| byte & (0x80 >> (p % 8)) != 0);
            // bits beyond the last position must be zero, so that a sum has one encoding
            if (task.positions()..task.positions().next_multiple_of(8)).any(set) {
                return Err(Error::Encoding { reason: "the bitmap has bits beyond the positions" });
            }
            occupied = (0..task.positions()).filter(|&p| set(p)).collect();
        }
        if occupied.len() != sum.occupied as usize {
            let (expected, found) = (occupied.len(), sum.occupied as usize);
            return Err(Error::Count { what: "occupied positions", expected, found, user: None });
        }
        let width = ciphertext_bytes(task);
        if input.rest().len() != (occupied.len() + sum.params.packed_ciphertexts()) * width {
            return Err(SIZE);
        }
        let values = SealedValues::from_wire(input.take(occupied.len() * width)?.to_vec());
        let packed = SealedValues::from_wire(input.take(input.rest().len())?.to_vec());
        let (params, users, salts) = (sum.params.clone(), sum.users.clone(), sum.salts.clone());
        let blinds = Blinds::default();
        Ok(Self { params, users, salts, blinds, occupied, values, packed, ciphertexts: None })
    }
}

/// Returns the length of the longest sealed sum of the task.
pub fn max_sum_bytes(task: &TaskParams) -> u64 {
    let positions = if task.has_private_support() { u64::from(task.positions()) } else { 0 };
    let ciphertexts = positions + max_packed_ciphertexts(task) as u64;
    positions.div_ceil(8) + ciphertexts * ciphertext_bytes(task) as u64
}

/// The context of an opened sum, known from the key generator's result.
#[derive(Clone, Copy, Debug)]
pub struct SumContext<'a> {
    /// The round.
    pub params: &'a Arc<RoundParams>,
    /// The number of participants.
    pub users: usize,
    /// The encryption key.
    pub key: &'a EncryptionKey,
}

impl Encode for OpenedSum {
    fn encode(&self, out: &mut Writer) {
        match self {
            Self::Clear(sum) => out.put(sum),
            Self::Masked(sum) => write_residues(out, sum.residues()),
        }
    }
}

impl DecodeWith<SumContext<'_>> for OpenedSum {
    /// Reads the rest of the input.
    ///
    /// # Errors
    /// [`Error::Encoding`] if it does not have the length of a sum of the round, or a residue is not below the modulus.
    fn decode_with(input: &mut Reader<'_>, sum: &SumContext<'_>) -> Result<Self, Error> {
        match sum.params.task().receipts() {
            Receipts::None | Receipts::Checked => WeightSum::decode_with(input, sum).map(Self::Clear),
            Receipts::Masked => {
                let residues = read_residues(input, sum)?;
                Ok(Self::Masked(MaskedSum::new(sum.params.clone(), sum.users, residues)))
            }
        }
    }
}

impl Encode for UncheckedSum {
    fn encode(&self, out: &mut Writer) {
        write_residues(out, self.residues());
    }
}

impl DecodeWith<SumContext<'_>> for UncheckedSum {
    /// Reads the rest of the input.
    ///
    /// # Errors
    /// As for [`OpenedSum`].
    fn decode_with(input: &mut Reader<'_>, sum: &SumContext<'_>) -> Result<Self, Error> {
        Ok(Self::new(sum.params.clone(), sum.users, read_residues(input, sum)?))
    }
}

fn write_residues(out: &mut Writer, residues: &[Plaintext]) {
    residues.iter().for_each(|residue| out.bytes(&residue.to_residue_bytes()));
}

fn read_residues(input: &mut Reader<'_>, sum: &SumContext<'_>) -> Result<Vec<Plaintext>, Error> {
    let (width, bytes) = (sum.key.modulus_bytes(), input.take(input.rest().len())?);
    if bytes.len() != sum.params.packed_ciphertexts() * width {
        return Err(SUM_LENGTH);
    }
    let read = |residue| Plaintext::from_residue_bytes(sum.key, residue);
    let residues = bytes.chunks_exact(width).map(read).collect::<Result<_, _>>();
    residues.map_err(|_| Error::Encoding { reason: "a residue is not below the modulus" })
}

const SUM_LENGTH: Error = Error::Encoding { reason: "the sum does not have the length of the round's" };

impl Encode for WeightSum {
    fn encode(&self, out: &mut Writer) {
        let width = value_bytes(self.slot_bits());
        self.weights().iter().chain(self.dense()).for_each(|sum| out.bytes(&sum.to_be_bytes()[8 - width..]));
    }
}

impl DecodeWith<SumContext<'_>> for WeightSum {
    /// Reads the rest of the input.
    ///
    /// # Errors
    /// [`Error::Encoding`] if it does not have the length of a sum of the round.
    fn decode_with(input: &mut Reader<'_>, result: &SumContext<'_>) -> Result<Self, Error> {
        let (task, payload) = (result.params.task(), input.take(input.rest().len())?);
        let width = value_bytes(task.slot_bits());
        let weights = if task.has_private_support() { task.dimension() } else { 0 };
        if payload.len() != (weights + result.params.packed_values()) * width {
            return Err(SUM_LENGTH);
        }
        let sign_extended = |bytes: &[u8]| {
            let sign = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { -1 } else { 0 };
            bytes.iter().fold(sign, |x, &byte| x << 8 | i64::from(byte))
        };
        let mut weights: Vec<i64> = payload.chunks_exact(width).map(sign_extended).collect();
        let dense = weights.split_off(weights.len() - task.dense());
        Ok(Self::new(result.params, result.users, weights, dense))
    }
}

/// The length of one sum.
fn value_bytes(slot_bits: u32) -> usize {
    slot_bits.div_ceil(8) as usize
}

/// Returns the length of the longest opened sum of the task.
pub(super) fn max_result_bytes(task: &TaskParams) -> u64 {
    if task.receipts() == Receipts::Masked {
        return max_packed_ciphertexts(task) as u64 * (ciphertext_bytes(task) / 2) as u64;
    }
    let weights = if task.has_private_support() { task.dimension() } else { 0 };
    (weights + max_packed_values(task)) as u64 * value_bytes(task.slot_bits()) as u64
}
