//! The beginning of every message: protocol, version, kind, task, round and sender.

use super::codec::{Decode, Encode, Reader, TRUNCATED, Writer};
use super::{Kind, PartyId};
use crate::{Error, Round, TaskId, UserId};

const MAGIC: [u8; 4] = *b"DPHE";
const VERSION: u8 = 2;
pub(super) const UNKNOWN: Error = Error::Encoding { reason: "the role of the sender does not exist" };
/// The length of a header. The fields of the message follow.
pub(super) const HEADER_BYTES: usize = 35;

/// The header of a message as it was received. Nothing in it can be trusted before the signature is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the message.
    pub kind: Kind,
    /// The task that it says it belongs to.
    pub task: TaskId,
    /// The round that it says it belongs to. Rounds are numbered from 1, so 0 gives `None`.
    pub round: Option<Round>,
    /// The party that it says it is from, or `None` if no such role exists.
    pub sender: Option<PartyId>,
}

impl Header {
    /// Reads the header of a message without verifying anything.
    ///
    /// # Errors
    /// [`Error::Encoding`] if the message is too short, [`Error::Version`] for another protocol, version or kind.
    pub fn peek(message: &[u8]) -> Result<Self, Error> {
        let mut input = Reader::new(message.get(..HEADER_BYTES).ok_or(TRUNCATED)?);
        if input.get::<[u8; 4]>()? != MAGIC || input.u8()? != VERSION {
            return Err(Error::Version);
        }
        let kind = Kind::from_number(input.u8()?).ok_or(Error::Version)?;
        let (task, round) = (input.get()?, Round::new(input.u64()?));
        Ok(Self { kind, task, round, sender: PartyId::decode(&mut input).ok() })
    }

    /// Writes a header that was not received but is about to be signed.
    pub(super) fn write(out: &mut Writer, kind: Kind, task: TaskId, round: Round, sender: PartyId) {
        out.put(&MAGIC);
        out.u8(VERSION);
        out.u8(kind.number());
        out.put(&task);
        out.put(&round);
        out.put(&sender);
    }
}

impl Encode for PartyId {
    fn encode(&self, out: &mut Writer) {
        let (role, user) = match self {
            Self::Aggregator => (1, 0),
            Self::KeyGenerator => (2, 0),
            Self::User(user) => (3, user.get()),
        };
        out.u8(role);
        out.u32(user);
    }
}

impl Decode for PartyId {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Error> {
        match (input.u8()?, input.u32()?) {
            (1, 0) => Ok(Self::Aggregator),
            (2, 0) => Ok(Self::KeyGenerator),
            (3, user) => UserId::new(user).map(Self::User).ok_or(UNKNOWN),
            _ => Err(UNKNOWN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_of_arbitrary_bytes_is_refused_without_panic() {
        for length in 0..HEADER_BYTES {
            assert_eq!(Header::peek(&vec![0; length]), Err(TRUNCATED));
        }
        assert_eq!(Header::peek(&[0; HEADER_BYTES]), Err(Error::Version));
        let mut message = [0; HEADER_BYTES];
        message[..6].copy_from_slice(b"DPHE\x02\x03");
        let header = Header::peek(&message).unwrap();
        assert_eq!((header.kind, header.round, header.sender), (Kind::Upload, None, None));
        message[5] = 7;
        assert_eq!(Header::peek(&message), Err(Error::Version));
    }
}
