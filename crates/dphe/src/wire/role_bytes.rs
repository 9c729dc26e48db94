//! What passes between the roles as bytes that describe themselves (docs/protocol.md, section 14), for programs that
//! use the roles without messages. Nothing here is signed or encrypted: the caller's channel must do that.

use std::sync::Arc;

use dphe_paillier::EncryptionKey;

use super::bodies::{SumContext, SumParams, UploadParams, content_bytes};
use super::codec::{DecodeWith as _, Reader, Writer};
use crate::scheme::{RoundParams, UncheckedSum};
use crate::{
    Aggregator, Blinds, Digest, Error, OpenedSum, Receipts, Round, SealedSum, SealedUpdate, TaskParams, User,
    UserId, WeightSum,
};

const MAGIC: [u8; 8] = *b"DPHEROL2";

/// The length of the header: magic, kind, task, policy hash, round.
const HEADER_BYTES: usize = MAGIC.len() + 1 + 16 + 32 + 8;
/// The length of the fields of an update before its content: user, count, salt.
const UPDATE_FIELD_BYTES: usize = 4 + 4 + 16;

/// What the bytes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleKind {
    /// A [`SealedUpdate`], from a user to the aggregator.
    SealedUpdate = 1,
    /// A [`SealedSum`], from the aggregator to the key generator.
    SealedSum = 2,
    /// An [`OpenedSum`], from the key generator to the aggregator.
    OpenedSum = 3,
    /// A [`PublicSum`], from the aggregator to users.
    PublishedSum = 4,
}

/// Returns the round of bytes that should be of this kind and task.
///
/// # Errors
/// [`Error::Version`] for another kind, [`Error::Encoding`] if the bytes end too early, [`Error::OtherTask`] or
/// [`Error::Policy`] for another task.
pub fn role_bytes_round(bytes: &[u8], kind: RoleKind, task: &TaskParams) -> Result<Round, Error> {
    read_header(&mut Reader::new(bytes), kind, task)
}

fn read_header(input: &mut Reader<'_>, kind: RoleKind, task: &TaskParams) -> Result<Round, Error> {
    if input.take(MAGIC.len())? != MAGIC || input.u8()? != kind as u8 {
        return Err(Error::Version);
    }
    if input.take(16)? != task.id().as_bytes() {
        return Err(Error::OtherTask);
    }
    if input.get::<Digest>()? != task.policy_hash() {
        return Err(Error::Policy);
    }
    input.get()
}

fn write_header(kind: RoleKind, task: &TaskParams, round: Round, room: usize) -> Writer {
    let mut out = Writer::with_capacity(HEADER_BYTES + room);
    out.bytes(&MAGIC);
    out.u8(kind as u8);
    out.put(&task.id());
    out.put(&task.policy_hash());
    out.put(&round);
    out
}

/// Returns the length of [`SealedUpdate::to_role_bytes`] in a round. In `paper`, where users may send fewer shards, it
/// is the largest length.
pub fn sealed_update_bytes(params: &RoundParams) -> u64 {
    (HEADER_BYTES + UPDATE_FIELD_BYTES) as u64 + content_bytes(params)
}

/// Reads a header and checks that it names this round.
fn read_round<'a>(bytes: &'a [u8], kind: RoleKind, params: &RoundParams) -> Result<Reader<'a>, Error> {
    let mut input = Reader::new(bytes);
    read_header(&mut input, kind, params.task())?.check(params.round())?;
    Ok(input)
}

impl SealedUpdate {
    /// Returns the update as bytes. If sums are masked, they contain the user's secret for the aggregator, so they must
    /// reach the aggregator encrypted, and never the key generator.
    pub fn to_role_bytes(&self) -> Vec<u8> {
        let (start, end) = self.role_parts();
        [&start[..], end].concat()
    }

    /// Returns the bytes of [`SealedUpdate::to_role_bytes`] in two parts, so that a caller who writes them elsewhere
    /// needs no second copy of the ciphertexts.
    pub fn role_parts(&self) -> (Vec<u8>, &[u8]) {
        let packed = self.packed.as_wire();
        let mut out = write_header(RoleKind::SealedUpdate, &self.task, self.round, 256);
        out.put(&self.user());
        out.u32(self.ciphertexts() as u32);
        out.bytes(&self.salt);
        self.encode_start(&mut out);
        (out.into_bytes(), packed)
    }

    /// Reads what [`SealedUpdate::to_role_bytes`] wrote for this round. Ciphertexts are checked when they are added.
    ///
    /// # Errors
    /// As [`role_bytes_round`], [`Error::Future`] or [`Error::Stale`] for another round, and the errors of reading an
    /// upload: [`Error::Count`], [`Error::Size`], [`Error::IndexRange`], [`Error::IndexOrder`].
    pub fn from_role_bytes(bytes: &[u8], params: &RoundParams) -> Result<Self, Error> {
        let mut input = read_round(bytes, RoleKind::SealedUpdate, params)?;
        let (user, count, salt) = (input.get()?, input.u32()?, input.get()?);
        Self::from_bytes(input.rest(), &UploadParams { params, user, count, salt })
    }
}

impl SealedSum {
    /// Returns the sum as bytes for the key generator, without [`SealedSum::take_blinds`].
    pub fn to_role_bytes(&self) -> Vec<u8> {
        let length = self.values.as_wire().len() + self.packed.as_wire().len();
        let room = length + 20 * self.users().len() + self.params.task().positions() as usize / 8 + 16;
        let mut out = write_header(RoleKind::SealedSum, self.params.task(), self.round(), room);
        out.u32(self.users().len() as u32);
        for (user, salt) in self.users().iter().zip(&self.salts) {
            out.put(user);
            out.bytes(salt);
        }
        out.u32(self.occupied() as u32);
        out.put(self);
        out.into_bytes()
    }

    /// Reads what [`SealedSum::to_role_bytes`] wrote. Ciphertexts are checked when the sum is opened.
    ///
    /// # Errors
    /// As [`role_bytes_round`], [`Error::SetOrder`] for users that are not ascending, and the errors of reading a sum:
    /// [`Error::Count`], [`Error::Size`], [`Error::Encoding`].
    pub fn from_role_bytes(bytes: &[u8], task: &TaskParams) -> Result<Self, Error> {
        let mut input = Reader::new(bytes);
        let round = read_header(&mut input, RoleKind::SealedSum, task)?;
        let (mut users, mut salts) = (Vec::new(), Vec::new());
        for _ in 0..user_count(&mut input, task)? {
            push_user(&mut users, &mut input)?;
            salts.push(input.get()?);
        }
        let occupied = input.u32()?;
        let params = Arc::new(RoundParams::new(task, round));
        Self::from_bytes(input.rest(), &SumParams { params, users, salts, occupied })
    }

    /// Returns the same sum for the round of this ticket, which the bytes do not name. Updates that were sealed for
    /// another ticket have other masks, so that their sum opens to random numbers.
    #[must_use]
    pub fn with_ticket(mut self, ticket: Digest) -> Self {
        self.params = Arc::new(self.params.with_ticket(ticket));
        self
    }
}

/// An [`OpenedSum`] with its participants.
#[derive(Debug)]
pub struct OpenedBytes {
    /// The participants, ascending.
    pub users: Vec<UserId>,
    /// The sum.
    pub sum: OpenedSum,
}

impl OpenedBytes {
    /// Returns the sum as bytes.
    pub fn to_role_bytes(&self, params: &RoundParams) -> Vec<u8> {
        let mut out = begin_sum(RoleKind::OpenedSum, params, &self.users);
        out.put(&self.sum);
        out.into_bytes()
    }

    /// Reads what [`OpenedBytes::to_role_bytes`] wrote for this round.
    ///
    /// # Errors
    /// As [`role_bytes_round`], [`Error::Future`] or [`Error::Stale`] for another round, [`Error::SetOrder`] for users
    /// that are not ascending, [`Error::Encoding`] for a sum that is not of the round.
    pub fn from_role_bytes(
        bytes: &[u8],
        params: &Arc<RoundParams>,
        key: &EncryptionKey,
    ) -> Result<Self, Error> {
        let (input, users) = read_sum(bytes, RoleKind::OpenedSum, params)?;
        let context = SumContext { params, users: users.len(), key };
        let sum = OpenedSum::from_bytes(input.rest(), &context)?;
        Ok(Self { users, sum })
    }

    /// Removes the aggregator's masks, if there are any.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the participants are not those of `blinds`, otherwise as
    /// [`MaskedSum::unmask`](crate::scheme::MaskedSum::unmask).
    pub fn unmask(self, aggregator: &Aggregator, blinds: &Blinds) -> Result<PublishedBytes, Error> {
        let sum = match self.sum {
            OpenedSum::Clear(sum) => PublicSum::Clear(sum),
            OpenedSum::Masked(_) if !blinds.0.keys().eq(&self.users) => {
                return Err(Error::Conflict { what: "set of participants" });
            }
            OpenedSum::Masked(masked) => PublicSum::Masked(masked.unmask(aggregator, blinds)?),
        };
        Ok(PublishedBytes { users: self.users, sum })
    }
}

/// A sum as users get it.
#[derive(Debug)]
pub enum PublicSum {
    /// The sum that the key generator opened and checked as far as the task says.
    Clear(WeightSum),
    /// A sum that users check.
    Masked(UncheckedSum),
}

/// A [`PublicSum`] with its participants.
#[derive(Debug)]
pub struct PublishedBytes {
    /// The participants, ascending.
    pub users: Vec<UserId>,
    /// The sum.
    pub sum: PublicSum,
}

impl PublishedBytes {
    /// Returns the sum as bytes.
    pub fn to_role_bytes(&self, params: &RoundParams) -> Vec<u8> {
        let mut out = begin_sum(RoleKind::PublishedSum, params, &self.users);
        match &self.sum {
            PublicSum::Clear(sum) => out.put(sum),
            PublicSum::Masked(sum) => out.put(sum),
        }
        out.into_bytes()
    }

    /// Reads what [`PublishedBytes::to_role_bytes`] wrote for this round.
    ///
    /// # Errors
    /// As [`OpenedBytes::from_role_bytes`].
    pub fn from_role_bytes(
        bytes: &[u8],
        params: &Arc<RoundParams>,
        key: &EncryptionKey,
    ) -> Result<Self, Error> {
        let (input, users) = read_sum(bytes, RoleKind::PublishedSum, params)?;
        let context = SumContext { params, users: users.len(), key };
        let sum = match params.task().receipts() {
            Receipts::Masked => PublicSum::Masked(UncheckedSum::from_bytes(input.rest(), &context)?),
            Receipts::None | Receipts::Checked => {
                PublicSum::Clear(WeightSum::from_bytes(input.rest(), &context)?)
            }
        };
        Ok(Self { users, sum })
    }

    /// Returns the sum as numbers, after the user's check if it is masked. The check covers the round, the numbers and
    /// how many users there are, but not which: their names are what the aggregator wrote.
    ///
    /// # Errors
    /// As [`UncheckedSum::check`], [`Error::Stale`] or [`Error::Future`] for a round that the user has forgotten or
    /// that is too far ahead, and [`Error::SetSmall`] for fewer users than the smallest floor of the task.
    pub fn check(&self, user: &User) -> Result<WeightSum, Error> {
        let floor = user.task().floor(0);
        if self.users.len() < floor {
            return Err(Error::SetSmall { users: self.users.len(), floor });
        }
        match &self.sum {
            PublicSum::Clear(sum) => {
                user.check_round(sum.round())?;
                Ok(sum.clone())
            }
            PublicSum::Masked(sum) => sum.check(user),
        }
    }

    /// Returns the sum as numbers for the aggregator, which cannot check it.
    ///
    /// # Errors
    /// As [`UncheckedSum::decode_unchecked`].
    pub fn decode_unchecked(&self, aggregator: &Aggregator) -> Result<WeightSum, Error> {
        match &self.sum {
            PublicSum::Clear(sum) => Ok(sum.clone()),
            PublicSum::Masked(sum) => sum.decode_unchecked(aggregator),
        }
    }
}

fn begin_sum(kind: RoleKind, params: &RoundParams, users: &[UserId]) -> Writer {
    let mut out = write_header(kind, params.task(), params.round(), 4 + 4 * users.len());
    out.u32(users.len() as u32);
    users.iter().for_each(|user| out.put(user));
    out
}

fn read_sum<'a>(
    bytes: &'a [u8],
    kind: RoleKind,
    params: &RoundParams,
) -> Result<(Reader<'a>, Vec<UserId>), Error> {
    let mut input = read_round(bytes, kind, params)?;
    let mut users = Vec::new();
    for _ in 0..user_count(&mut input, params.task())? {
        push_user(&mut users, &mut input)?;
    }
    Ok((input, users))
}

/// Reads a number of users, before memory is reserved for them.
fn user_count(input: &mut Reader<'_>, task: &TaskParams) -> Result<u32, Error> {
    let count = input.u32()?;
    if count as usize > task.max_users() {
        return Err(Error::Size { what: "the number of users" });
    }
    Ok(count)
}

fn push_user(users: &mut Vec<UserId>, input: &mut Reader<'_>) -> Result<(), Error> {
    let user = input.get()?;
    if users.last().is_some_and(|&last| last >= user) {
        return Err(Error::SetOrder);
    }
    users.push(user);
    Ok(())
}
