//! The messages of a round (docs/protocol.md, section 7): a header, a signature over it, and for some a body that the
//! header names by its hash.

pub(crate) mod codec;
mod kinds;

use core::fmt;

use codec::{Reader, Writer};
pub use kinds::{
    Close, Decrypt, Ending, Freeze, FreezeAck, Outcome, Participant, Publish, RoundOpen, RoundResult,
    RoundTicket, Upload, UploadAck,
};
pub(crate) use kinds::{check_set, payload_hash, sum_hash, upload_hash};

use crate::hash::{Digest, hash};
use crate::{Error, IdentityKey, Roster, Round, TaskId, UserId};

/// Who takes part in a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// The aggregator.
    Aggregator,
    /// The key generator.
    KeyGenerator,
    /// A user.
    User(UserId),
}

impl Party {
    /// Role and number, as written.
    pub(crate) fn tag(self) -> (u8, u32) {
        match self {
            Self::Aggregator => (1, 0),
            Self::KeyGenerator => (2, 0),
            Self::User(user) => (3, user.get()),
        }
    }

    fn from_tag(role: u8, user: u32) -> Option<Self> {
        match (role, user) {
            (1, 0) => Some(Self::Aggregator),
            (2, 0) => Some(Self::KeyGenerator),
            (3, user) => UserId::new(user).map(Self::User),
            _ => None,
        }
    }
}

/// The first bytes of every message.
const MAGIC: [u8; 4] = *b"DPHE";
/// The version of all of them.
const VERSION: u8 = 1;
/// Bytes of what all headers begin with.
const PREFIX_BYTES: usize = 35;
const SIGNATURE_BYTES: usize = 64;

/// The kind of a message, from its first bytes; nothing else is checked.
///
/// # Errors
/// [`Error::Encoding`] if it is too short, [`Error::Version`] for another protocol or version.
pub fn kind(bytes: &[u8]) -> Result<u8, Error> {
    let mut input =
        Reader::new(bytes.get(..PREFIX_BYTES).ok_or(Error::Encoding { reason: "it is cut short" })?);
    if input.array()? != MAGIC || input.u8()? != VERSION {
        return Err(Error::Version);
    }
    input.u8()
}

/// The fields of one kind of message.
pub trait Message: Sized {
    /// Its number.
    const KIND: u8;
    /// Its name, which domain-separates its hash.
    const NAME: &'static str;
    /// What a body that is too long is refused with.
    const OVERSIZE: Error = Error::Size { what: "the body" };

    /// Whether this party may send it.
    fn may_send(from: Party) -> bool;

    /// Bytes of the longest body that may follow, if any may.
    fn max_body(_roster: &Roster) -> Option<u64> {
        None
    }

    #[doc(hidden)]
    fn write(&self, out: &mut FieldWriter<'_>);
    #[doc(hidden)]
    fn read(input: &mut FieldReader<'_, '_>, roster: &Roster) -> Result<Self, Error>;
}

/// Where fields are written.
pub struct FieldWriter<'a>(&'a mut Writer);
/// Where fields are read.
pub struct FieldReader<'a, 'b>(&'a mut Reader<'b>);

/// A message whose signature holds.
#[derive(Clone)]
pub struct Signed<M> {
    from: Party,
    round: Round,
    message: M,
    header: Vec<u8>,
    signature: [u8; SIGNATURE_BYTES],
    body: Vec<u8>,
}

impl<M: Message> Signed<M> {
    pub(crate) fn sign(
        key: &IdentityKey,
        task: TaskId,
        from: Party,
        round: Round,
        message: M,
        body: Vec<u8>,
    ) -> Self {
        let mut out = Writer::new();
        out.bytes(&MAGIC);
        out.u8(VERSION);
        out.u8(M::KIND);
        out.bytes(task.as_bytes());
        out.u64(round.get());
        let (role, user) = from.tag();
        out.u8(role);
        out.u32(user);
        message.write(&mut FieldWriter(&mut out));
        let header = out.into_bytes();
        let signature = key.sign(&hash(&domain::<M>(), &[&header]));
        Self { from, round, message, header, signature, body }
    }

    /// Reads a message and checks all that can be checked without knowing the state of the round.
    ///
    /// # Errors
    /// [`Error::Encoding`], [`Error::Version`], [`Error::Size`], [`Error::OtherTask`], [`Error::UnknownUser`] or
    /// [`Error::Signature`].
    pub fn decode(bytes: &[u8], roster: &Roster) -> Result<Self, Error> {
        let (mut signed, body) = Self::decode_head(bytes, roster)?;
        match M::max_body(roster) {
            None if !body.is_empty() => return Err(Error::Encoding { reason: "there are bytes left over" }),
            Some(most) if body.len() as u64 > most => return Err(M::OVERSIZE),
            _ => {}
        }
        signed.verify(roster)?;
        signed.body = body.to_vec();
        Ok(signed)
    }

    /// Reads header and signature; the signature is not yet verified.
    fn decode_head<'a>(bytes: &'a [u8], roster: &Roster) -> Result<(Self, &'a [u8]), Error> {
        if kind(bytes)? != M::KIND {
            return Err(Error::Version);
        }
        let mut input = Reader::new(&bytes[MAGIC.len() + 2..]);
        let task = TaskId::from_bytes(input.array()?);
        let round = Round::new(input.u64()?);
        let (role, user) = (input.u8()?, input.u32()?);
        let message = M::read(&mut FieldReader(&mut input), roster)?;
        let header = bytes[..bytes.len() - input.rest().len()].to_vec();
        let signature = input.array()?;
        let from = Party::from_tag(role, user).ok_or(Error::Encoding { reason: "there is no such role" })?;
        if task != roster.task().id() {
            return Err(Error::OtherTask);
        }
        // rounds are counted from 1: 0 is before all of them
        let round = round.ok_or(Error::Stale { round: Round::FIRST, current: Round::FIRST })?;
        Ok((Self { from, round, message, header, signature, body: Vec::new() }, input.rest()))
    }

    fn verify(&self, roster: &Roster) -> Result<(), Error> {
        if !M::may_send(self.from) {
            return Err(Error::Signature);
        }
        roster.identity(self.from)?.verify(&self.hash(), &self.signature)
    }

    /// Who sent it.
    pub fn from(&self) -> Party {
        self.from
    }

    /// The round it is of.
    pub fn round(&self) -> Round {
        self.round
    }

    /// Its fields.
    pub fn message(&self) -> &M {
        &self.message
    }

    /// Its body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// What names it.
    pub fn hash(&self) -> Digest {
        hash(&domain::<M>(), &[&self.header])
    }

    /// The whole message.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.header[..], &self.signature, &self.body].concat()
    }

    /// The message without its body.
    fn head_bytes(&self) -> Vec<u8> {
        [&self.header[..], &self.signature].concat()
    }
}

impl<M: Message> fmt::Debug for Signed<M> {
    /// Bodies hold sums and models: their length says enough.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, round, hash) = (self.from, self.round, self.hash());
        write!(f, "{}({from:?}, {round:?}, {hash:?}, {} bytes of body)", M::NAME, self.body.len())
    }
}

fn domain<M: Message>() -> String {
    format!("dphe/v1/{}", M::NAME)
}
