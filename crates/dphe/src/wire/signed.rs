//! Signed messages: a header, the fields of the message, a signature over both, and for some kinds a body that the
//! fields name by its hash.

use core::fmt;

use super::codec::{DecodeWith, Encode, LEFT_OVER, Reader, Writer};
use super::header::{HEADER_BYTES, Header, UNKNOWN};
use super::{IdentityKey, Kind, PartyId, Roster};
use crate::hash::hash;
use crate::{Digest, Error, Round, TaskId};

const SIGNATURE_BYTES: usize = 64;

/// The fields of one kind of message.
pub trait Message: Encode + DecodeWith<Roster> {
    /// Which kind.
    const KIND: Kind;
}

/// A decoded message whose signature has not been verified. Its fields cannot be read before it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Unverified<M> {
    sender: PartyId,
    round: Round,
    message: M,
    /// Header and fields: what is signed.
    signed: Vec<u8>,
    signature: [u8; SIGNATURE_BYTES],
}

impl<M: Message> Unverified<M> {
    /// Verifies that the party named as the sender signed the message and may send it. The body is taken as it is,
    /// because the fields name its hash.
    ///
    /// # Errors
    /// [`Error::UnknownUser`] or [`Error::Signature`].
    pub fn verify(self, roster: &Roster, body: &[u8]) -> Result<Signed<M>, Error> {
        if !M::KIND.may_be_sent_by(self.sender) {
            return Err(Error::Signature);
        }
        roster.identity(self.sender)?.verify(&self.hash(), &self.signature)?;
        Ok(Signed { head: self, body: body.to_vec() })
    }

    /// Returns the hash by which other messages name this one.
    pub fn hash(&self) -> Digest {
        hash(M::KIND.domain(), &[&self.signed])
    }

    /// Returns the hash of a message with these fields, which is what its sender signs.
    pub(crate) fn digest_of(task: TaskId, sender: PartyId, round: Round, message: &M) -> Digest {
        hash(M::KIND.domain(), &[&write_signed(task, sender, round, message)])
    }
}

/// Returns header and fields: what is signed.
fn write_signed<M: Message>(task: TaskId, sender: PartyId, round: Round, message: &M) -> Vec<u8> {
    let mut out = Writer::new();
    Header::write(&mut out, M::KIND, task, round, sender);
    out.put(message);
    out.into_bytes()
}

impl<M> Encode for Unverified<M> {
    fn encode(&self, out: &mut Writer) {
        out.bytes(&self.signed);
        out.put(&self.signature);
    }
}

impl<M: Message> DecodeWith<Roster> for Unverified<M> {
    fn decode_with(input: &mut Reader<'_>, roster: &Roster) -> Result<Self, Error> {
        let bytes = input.rest();
        let header = Header::peek(bytes)?;
        if header.kind != M::KIND {
            return Err(Error::Version);
        }
        input.take(HEADER_BYTES)?;
        let message = M::decode_with(input, roster)?;
        let signed = bytes[..bytes.len() - input.rest().len()].to_vec();
        let signature = input.get()?;
        let sender = header.sender.ok_or(UNKNOWN)?;
        if header.task != roster.task().id() {
            return Err(Error::OtherTask);
        }
        // 0 comes before all rounds
        let round = header.round.ok_or(Error::Stale { round: Round::FIRST, current: Round::FIRST })?;
        Ok(Self { sender, round, message, signed, signature })
    }
}

impl<M: Message> fmt::Debug for Unverified<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unverified {}({:?}, {:?}, {:?})", M::KIND, self.sender, self.round, self.hash())
    }
}

/// A message whose signature was verified.
#[derive(Clone)]
pub struct Signed<M> {
    head: Unverified<M>,
    body: Vec<u8>,
}

impl<M: Message> Signed<M> {
    pub(crate) fn sign(
        key: &IdentityKey,
        task: TaskId,
        sender: PartyId,
        round: Round,
        message: M,
        body: Vec<u8>,
    ) -> Self {
        let signed = write_signed(task, sender, round, &message);
        let signature = key.sign(&hash(M::KIND.domain(), &[&signed]));
        Self { head: Unverified { sender, round, message, signed, signature }, body }
    }

    /// Reads a message and checks everything that does not depend on the state of the round.
    ///
    /// # Errors
    /// [`Error::Encoding`], [`Error::Version`], [`Error::Size`], [`Error::OtherTask`], [`Error::UnknownUser`] or
    /// [`Error::Signature`].
    pub fn decode(bytes: &[u8], roster: &Roster) -> Result<Self, Error> {
        let mut input = Reader::new(bytes);
        let head: Unverified<M> = Unverified::decode_with(&mut input, roster)?;
        let body = input.rest();
        match M::KIND.max_body_bytes(roster) {
            None if !body.is_empty() => Err(LEFT_OVER),
            Some(most) if body.len() as u64 > most => Err(M::KIND.oversize()),
            _ => head.verify(roster, body),
        }
    }

    /// Returns the sender.
    pub fn from(&self) -> PartyId {
        self.head.sender
    }

    /// Returns the round.
    pub fn round(&self) -> Round {
        self.head.round
    }

    /// Returns the fields.
    pub fn message(&self) -> &M {
        &self.head.message
    }

    /// Returns the body, which is empty for most kinds.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the hash by which other messages name this one.
    pub fn hash(&self) -> Digest {
        self.head.hash()
    }

    /// Returns the signature.
    pub(crate) fn signature(&self) -> [u8; SIGNATURE_BYTES] {
        self.head.signature
    }

    /// Returns the bytes of the whole message.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.head.signed[..], &self.head.signature, &self.body].concat()
    }

    /// Returns the message without its body, to be embedded in another message. Its receiver verifies it again.
    pub(crate) fn head(&self) -> &Unverified<M> {
        &self.head
    }
}

impl<M: Message> fmt::Debug for Signed<M> {
    /// Bodies hold sums and models, so only their length is printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sender, round, hash) = (self.from(), self.round(), self.hash());
        write!(f, "{}({sender:?}, {round:?}, {hash:?}, {} bytes of body)", M::KIND, self.body.len())
    }
}
