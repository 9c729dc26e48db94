//! What leaves a user, and what leaves the aggregator: ciphertexts, and slots that say nothing by themselves
//! (docs/protocol.md, section 6).

use core::fmt;

use crate::index::{DoublyPermuted, IndexMatrix};
use crate::message::codec::{Reader, Writer};
use crate::support::PublicSupport;
use crate::{Error, Profile, Round, TaskParams, UserId};

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

/// `Enc(v)` and `Phi(K)`: one shard of an update, its columns in the order of their slots.
#[derive(Debug)]
pub struct SealedShard {
    slots: IndexMatrix<DoublyPermuted>,
    values: SealedValues,
}

impl SealedShard {
    /// A shard from its parts. The frame of the indices is what makes it safe to send.
    pub fn new(slots: IndexMatrix<DoublyPermuted>, values: SealedValues) -> Self {
        Self { slots, values }
    }

    pub(crate) fn slots(&self) -> &[u32] {
        self.slots.rows()
    }

    pub(crate) fn into_parts(self) -> (IndexMatrix<DoublyPermuted>, SealedValues) {
        (self.slots, self.values)
    }

    pub(crate) fn values(&self) -> &SealedValues {
        &self.values
    }
}

/// One user's update for one round.
#[derive(Debug)]
pub struct SealedUpdate {
    /// The task whose shape it has.
    pub(crate) task: TaskParams,
    pub(crate) user: UserId,
    pub(crate) round: Round,
    pub(crate) shards: Vec<SealedShard>,
    pub(crate) dense: SealedValues,
    pub(crate) clipped: usize,
}

impl SealedUpdate {
    /// Who made it.
    pub fn user(&self) -> UserId {
        self.user
    }

    /// The round it is for.
    pub fn round(&self) -> Round {
        self.round
    }

    /// How many weights had to be clipped. Known to its maker; it does not travel.
    pub fn clipped(&self) -> usize {
        self.clipped
    }

    /// The body of an upload.
    pub fn to_body(&self) -> Vec<u8> {
        let mut out = Writer::new();
        for shard in &self.shards {
            shard.slots().iter().for_each(|&slot| out.u32(slot));
            out.bytes(shard.values.as_wire());
        }
        out.bytes(self.dense.as_wire());
        out.into_bytes()
    }

    /// How many ciphertexts it has.
    pub fn ciphertexts(&self, task: &TaskParams) -> usize {
        let dense = Shape::of(task, self.round).dense_ciphertexts;
        self.shards.iter().map(|shard| shard.slots().len()).sum::<usize>() + dense
    }

    /// Checks the number of ciphertexts and the length of a body, before anything is read of it.
    ///
    /// # Errors
    /// [`Error::Count`] or [`Error::Size`].
    pub(crate) fn check_size(
        task: &TaskParams,
        round: Round,
        user: UserId,
        count: u32,
        bytes: usize,
    ) -> Result<usize, Error> {
        let shape = Shape::of(task, round);
        let shards = shape.shards_of(task, count as usize, user)?;
        if bytes as u64 != shape.body_bytes(task, shards) {
            return Err(Error::Size { what: "the body of an upload" });
        }
        Ok(shards)
    }

    /// Reads the body of an upload with `count` ciphertexts: everything but the ciphertexts themselves is checked.
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::Size`], [`Error::IndexRange`] or [`Error::IndexOrder`].
    pub fn from_body(
        task: &TaskParams,
        round: Round,
        user: UserId,
        count: u32,
        body: &[u8],
    ) -> Result<Self, Error> {
        let shard_count = Self::check_size(task, round, user, count, body.len())?;
        let width = ciphertext_bytes(task);
        let mut input = Reader::new(body);
        let mut shards = Vec::with_capacity(shard_count);
        let mut taken = vec![false; if shard_count > 0 { task.positions() as usize } else { 0 }];
        for _ in 0..shard_count {
            let slots: Vec<u32> = input.take(4 * task.capacity())?.chunks_exact(4).map(be_u32).collect();
            if let Some(&slot) = slots.iter().find(|&&slot| slot >= task.positions()) {
                return Err(Error::IndexRange { slot, user });
            }
            if !slots.is_sorted_by(|a, b| a < b) {
                return Err(Error::IndexOrder { user });
            }
            // in `paper` each shard pads by itself
            if task.profile() != Profile::Paper
                && slots.iter().any(|&slot| core::mem::replace(&mut taken[slot as usize], true))
            {
                return Err(Error::IndexOrder { user });
            }
            let values = input.take(width * task.capacity())?.to_vec();
            shards.push(SealedShard::new(IndexMatrix::from_rows(slots), SealedValues::from_wire(values)));
        }
        let dense = SealedValues::from_wire(input.rest().to_vec());
        Ok(Self { task: task.clone(), user, round, shards, dense, clipped: 0 })
    }
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |x, &byte| x << 8 | u32::from(byte))
}

/// Bytes of a ciphertext under the task's key.
pub(crate) fn ciphertext_bytes(task: &TaskParams) -> usize {
    2 * task.key_bits().get().div_ceil(8) as usize
}

/// What an upload of a round looks like, the same for everybody (but for the shards in `paper`).
pub(crate) struct Shape {
    /// Values packed densely: those of a public support, and the task's dense values.
    pub(crate) dense_values: usize,
    pub(crate) dense_ciphertexts: usize,
}

impl Shape {
    pub(crate) fn of(task: &TaskParams, round: Round) -> Self {
        let support = if task.has_private_support() { 0 } else { PublicSupport::of(task, round).weights() };
        let dense_values = support + task.dense();
        Self { dense_values, dense_ciphertexts: dense_values.div_ceil(task.slots()) }
    }

    /// The largest of any round; cheap, and known before anything of a message is believed.
    pub(crate) fn largest(task: &TaskParams) -> Self {
        let support = if task.has_private_support() { 0 } else { task.capacity() * task.block() };
        let dense_values = support + task.dense();
        Self { dense_values, dense_ciphertexts: dense_values.div_ceil(task.slots()) }
    }

    /// How many shards an upload of `count` ciphertexts has.
    fn shards_of(&self, task: &TaskParams, count: usize, user: UserId) -> Result<usize, Error> {
        let shards = task.config().shards as usize;
        let expected = |shards: usize| shards * task.capacity() + self.dense_ciphertexts;
        let found = match task.profile() {
            Profile::Full => 0,
            Profile::Sparse => shards,
            Profile::Paper => {
                (count.saturating_sub(self.dense_ciphertexts) / task.capacity()).clamp(1, shards)
            }
        };
        if count == expected(found) {
            Ok(found)
        } else {
            Err(Error::Count {
                what: "ciphertexts",
                expected: expected(found),
                found: count,
                user: Some(user),
            })
        }
    }

    fn body_bytes(&self, task: &TaskParams, shards: usize) -> u64 {
        let width = ciphertext_bytes(task) as u64;
        let columns = shards as u64 * task.capacity() as u64;
        columns * (4 + width) + self.dense_ciphertexts as u64 * width
    }
}

/// The longest body an upload of the task may have: what a transport should let through.
pub fn max_body_bytes(task: &TaskParams) -> u64 {
    let shards = if task.has_private_support() { task.config().shards as usize } else { 0 };
    Shape::largest(task).body_bytes(task, shards)
}

/// The most ciphertexts an upload of the task has.
pub fn max_ciphertexts(task: &TaskParams) -> u64 {
    let shards = if task.has_private_support() { u64::from(task.config().shards) } else { 0 };
    shards * task.capacity() as u64 + Shape::largest(task).dense_ciphertexts as u64
}

/// `phi Enc(w_sum)`: the sum of a round, of at least as many users as the task's floor. It is opened once.
#[derive(Debug)]
pub struct SealedSum {
    /// The task whose shape it has.
    pub(crate) task: TaskParams,
    pub(crate) round: Round,
    /// Ascending.
    pub(crate) users: Vec<UserId>,
    /// The positions that somebody sent, ascending, in the frame of the user-shared permutation.
    pub(crate) occupied: Vec<u32>,
    pub(crate) values: SealedValues,
    pub(crate) dense: SealedValues,
}

impl SealedSum {
    /// The round it is of.
    pub fn round(&self) -> Round {
        self.round
    }

    /// Whose updates are in it.
    pub fn users(&self) -> &[UserId] {
        &self.users
    }

    /// How many positions somebody sent.
    pub fn occupied(&self) -> usize {
        self.occupied.len()
    }

    /// The longest body that a request to open a sum of the task may have.
    pub(crate) fn max_body_bytes(task: &TaskParams) -> u64 {
        let positions = if task.has_private_support() { u64::from(task.positions()) } else { 0 };
        let ciphertexts = positions + Shape::largest(task).dense_ciphertexts as u64;
        positions.div_ceil(8) + ciphertexts * ciphertext_bytes(task) as u64
    }

    /// The body of a request to open it.
    pub fn to_body(&self, task: &TaskParams) -> Vec<u8> {
        let mut out = Writer::new();
        if task.has_private_support() {
            let mut bitmap = vec![0u8; task.positions().div_ceil(8) as usize];
            self.occupied.iter().for_each(|&p| bitmap[p as usize / 8] |= 0x80 >> (p % 8));
            out.bytes(&bitmap);
        }
        out.bytes(self.values.as_wire());
        out.bytes(self.dense.as_wire());
        out.into_bytes()
    }

    /// Reads the body of a request to open the sum of these users: everything but the ciphertexts themselves is checked.
    ///
    /// # Errors
    /// [`Error::Count`] or [`Error::Size`].
    pub(crate) fn from_body(
        task: &TaskParams,
        round: Round,
        users: Vec<UserId>,
        occupied: u32,
        body: &[u8],
    ) -> Result<Self, Error> {
        let mut input = Reader::new(body);
        let width = ciphertext_bytes(task);
        let mut positions = Vec::new();
        if task.has_private_support() {
            let size = |_| Error::Size { what: "the body of a request" };
            let bitmap = input.take(task.positions().div_ceil(8) as usize).map_err(size)?;
            let set = |p: u32| bitmap.get(p as usize / 8).is_some_and(|byte| byte & (0x80 >> (p % 8)) != 0);
            // bits beyond the last position must be zero, so that there is one encoding of a sum
            if (task.positions()..task.positions().next_multiple_of(8)).any(set) {
                return Err(Error::Encoding { reason: "the bitmap has bits beyond the positions" });
            }
            positions = (0..task.positions()).filter(|&p| set(p)).collect();
        }
        if positions.len() != occupied as usize {
            let (expected, found) = (positions.len(), occupied as usize);
            return Err(Error::Count { what: "occupied positions", expected, found, user: None });
        }
        let dense = Shape::of(task, round).dense_ciphertexts;
        if input.rest().len() != (positions.len() + dense) * width {
            return Err(Error::Size { what: "the body of a request" });
        }
        let values = SealedValues::from_wire(input.take(positions.len() * width)?.to_vec());
        let dense = SealedValues::from_wire(input.rest().to_vec());
        Ok(Self { task: task.clone(), round, users, occupied: positions, values, dense })
    }
}
