//! The messages of a round (docs/protocol.md, section 7): a header, a signature over it, and for some a body that the
//! header names by its hash.

pub(crate) mod codec;

use core::fmt;

use codec::{Reader, Writer};

use crate::hash::{Digest, hash};
use crate::log::LogPoint;
use crate::sealed::{SealedSum, max_body_bytes};
use crate::{Error, IdentityKey, Roster, Round, TaskId, UserId, WeightSum};

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

/// Who took part, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participant {
    /// The user.
    pub user: UserId,
    /// The hash of the body it sent.
    pub body_hash: Digest,
}

/// A begins a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundOpen {
    /// The model everybody starts from.
    pub model: Digest,
    /// The policy.
    pub policy: Digest,
    /// The roster.
    pub roster: Digest,
    /// The public support of the round.
    pub support: Digest,
    /// How long updates are collected, in milliseconds.
    pub deadline: u64,
    /// Makes two openings of one round differ.
    pub nonce: [u8; 16],
}

/// G agrees: the one ticket of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundTicket {
    /// The hash of the round-open.
    pub open: Digest,
    /// As there.
    pub model: Digest,
    /// As there.
    pub policy: Digest,
    /// As there.
    pub roster: Digest,
    /// As there.
    pub support: Digest,
    /// As there.
    pub deadline: u64,
    /// G's log before this ticket.
    pub log: LogPoint,
}

/// A user's update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// The hash of the ticket.
    pub ticket: Digest,
    /// The encryption key.
    pub key_id: [u8; 32],
    /// Ciphertexts of the body.
    pub count: u32,
    /// The hash of the body.
    pub body_hash: Digest,
}

/// A has stored an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadAck {
    /// The hash of the body.
    pub body_hash: Digest,
}

/// A fixes the set and the sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// The hash of the ticket.
    pub ticket: Digest,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// 0: the aggregator adds no mask.
    pub mask: u8,
    /// The hash of the sum.
    pub sum_hash: Digest,
    /// Positions that somebody sent.
    pub occupied: u32,
    /// Whose updates are in it.
    pub users: Vec<Participant>,
}

/// G has stored the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreezeAck {
    /// The hash of the freeze.
    pub freeze: Digest,
    /// Its attempt.
    pub attempt: u32,
    /// G's log before this.
    pub log: LogPoint,
}

/// A asks for the frozen sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decrypt {
    /// The hash of the freeze.
    pub freeze: Digest,
    /// Positions that somebody sent.
    pub occupied: u32,
    /// The hash of the body.
    pub sum_hash: Digest,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The sum is in the body.
    Released,
    /// It could not be opened; there is no body.
    Failed,
}

/// G's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundResult {
    /// The hash of the request.
    pub request: Digest,
    /// What became of it.
    pub outcome: Outcome,
    /// How many users the sum is of.
    pub users: u32,
    /// The hash of the payload.
    pub payload_hash: Digest,
    /// G's log before this.
    pub log: LogPoint,
}

/// The new model.
#[derive(Clone, Debug)]
pub struct Publish {
    /// What G signed.
    pub result: Signed<RoundResult>,
    /// The digest of the new model.
    pub model: Digest,
    /// Its length.
    pub model_bytes: u32,
    /// Whose updates are in it.
    pub users: Vec<Participant>,
}

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a new model.
    Published,
    /// With a failed decryption.
    Failed,
    /// Without a decryption.
    Aborted,
}

/// The round is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// How it ended.
    pub ending: Ending,
    /// The hash of the publish message; zeros if there is none.
    pub publish: Digest,
}

impl FieldWriter<'_> {
    fn digests(&mut self, digests: &[&Digest]) {
        digests.iter().for_each(|digest| self.0.digest(digest));
    }

    fn log(&mut self, log: &LogPoint) {
        self.0.u64(log.seq);
        self.0.digest(&log.head);
    }

    fn users(&mut self, users: &[Participant]) {
        self.0.u32(users.len() as u32);
        for Participant { user, body_hash } in users {
            self.0.u32(user.get());
            self.0.digest(body_hash);
        }
    }
}

impl FieldReader<'_, '_> {
    fn log(&mut self) -> Result<LogPoint, Error> {
        Ok(LogPoint { seq: self.0.u64()?, head: self.0.digest()? })
    }

    /// A number of positions.
    fn occupied(&mut self, roster: &Roster) -> Result<u32, Error> {
        let occupied = self.0.u32()?;
        if occupied <= roster.task().positions() {
            Ok(occupied)
        } else {
            Err(Error::Size { what: "the number of positions" })
        }
    }

    /// A set of users; order and membership are checked where sets are judged.
    fn users(&mut self, roster: &Roster) -> Result<Vec<Participant>, Error> {
        let count = self.0.u32()? as usize;
        if count > roster.users().len() || count > roster.task().max_users() {
            return Err(Error::Size { what: "the set of users" });
        }
        (0..count).map(|_| Ok(Participant { user: self.0.user()?, body_hash: self.0.digest()? })).collect()
    }
}

/// Checks that a set is ascending and of users of the roster.
pub(crate) fn check_set(users: &[Participant], roster: &Roster) -> Result<(), Error> {
    let floor = roster.floor();
    if users.len() < floor {
        return Err(Error::SetSmall { users: users.len(), floor });
    }
    if !users.is_sorted_by(|a, b| a.user < b.user) {
        return Err(Error::SetOrder);
    }
    match users.iter().find(|participant| !roster.contains(participant.user)) {
        Some(participant) => Err(Error::SetUnknown(participant.user)),
        None => Ok(()),
    }
}

impl Message for RoundOpen {
    const KIND: u8 = 1;
    const NAME: &'static str = "round-open";

    fn may_send(from: Party) -> bool {
        from == Party::Aggregator
    }

    fn write(&self, out: &mut FieldWriter<'_>) {
        out.digests(&[&self.model, &self.policy, &self.roster, &self.support]);
        out.0.u64(self.deadline);
        out.0.bytes(&self.nonce);
    }

    fn read(input: &mut FieldReader<'_, '_>, _: &Roster) -> Result<Self, Error> {
        Ok(Self {
            model: input.0.digest()?,
            policy: input.0.digest()?,
            roster: input.0.digest()?,
            support: input.0.digest()?,
            deadline: input.0.u64()?,
            nonce: input.0.array()?,
        })
    }
}

impl Message for RoundTicket {
    const KIND: u8 = 2;
    const NAME: &'static str = "round-ticket";

    fn may_send(from: Party) -> bool {
        from == Party::KeyGenerator
    }

    fn write(&self, out: &mut FieldWriter<'_>) {
        out.digests(&[&self.open, &self.model, &self.policy, &self.roster, &self.support]);
        out.0.u64(self.deadline);
        out.log(&self.log);
    }

    fn read(input: &mut FieldReader<'_, '_>, _: &Roster) -> Result<Self, Error> {
        Ok(Self {
            open: input.0.digest()?,
            model: input.0.digest()?,
            policy: input.0.digest()?,
            roster: input.0.digest()?,
            support: input.0.digest()?,
            deadline: input.0.u64()?,
            log: input.log()?,
        })
    }
}

impl Message for Upload {
    const KIND: u8 = 3;
    const NAME: &'static str = "upload";

    fn may_send(from: Party) -> bool {
        matches!(from, Party::User(_))
    }

    fn max_body(roster: &Roster) -> Option<u64> {
        Some(max_body_bytes(roster.task()))
    }

    fn write(&self, out: &mut FieldWriter<'_>) {
        out.0.digest(&self.ticket);
        out.0.bytes(&self.key_id);
        out.0.u32(self.count);
        out.0.digest(&self.body_hash);
    }

    fn read(input: &mut FieldReader<'_, '_>, _: &Roster) -> Result<Self, Error> {
        Ok(Self {
            ticket: input.0.digest()?,
            key_id: input.0.array()?,
            count: input.0.u32()?,
            body_hash: input.0.digest()?,
        })
    }
}

impl Message for UploadAck {
    const KIND: u8 = 4;
    const NAME: &'static str = "upload-ack";

    fn may_send(from: Party) -> bool {
        from == Party::Aggregator
    }

    fn write(&self, out: &mut FieldWriter<'_>) {
        out.0.digest(&self.body_hash);
    }

    fn read(input: &mut FieldReader<'_, '_>, _: &Roster) -> Result<Self, Error> {
        Ok(Self { body_hash: input.0.digest()? })
    }
}

impl Message for Freeze {
    const KIND: u8 = 5;
    const NAME: &'static str = "freeze";

    fn may_send(from: Party) -> bool {
        from == Party::Aggregator
    }

    fn write(&self, out: &mut FieldWriter<'_>) {
        out.0.digest(&self.ticket);
        out.0.u32(self.attempt);
        out.0.u8(self.mask);
        out.0.digest(&self.sum_hash);
        out.0.u32(self.occupied);
        out.users(&self.users);
    }

    fn read(input: &mut FieldReader<'_, '_>, roster: &Roster) -> Result<Self, Error> {
        Ok(Self {
            ticket: input.0.digest()?,
            attempt: input.0.u32()?,
            mask: input.0.u8()?,
            sum_hash: input.0.digest()?,
            occupied: input.occupied(roster)?,
            users: input.users(roster)?,
        })
    }
}

impl Message for FreezeAck {
    const KIND: u8 = 6;
    const NAME: &'static str = "freeze-ack";

    fn may_send(from: Party) -> bool {
        from == Party::KeyGenerator
    }

    fn write(&self, out: &mut FieldWriter<'_>) {
        out.0.digest(&self.freeze);
        out.0.u32(self.attempt);
        out.log(&self.log);
    }

    fn read(input: &mut FieldReader<'_, '_>, _: &Roster) -> Result<Self, Error> {
        Ok(Self { freeze: input.0.digest()?, attempt: input.0.u32()?, log: input.log()? })
    }
}

impl Message for Decrypt {
    const KIND: u8 = 9;
    const NAME: &'static str = "decrypt";

    fn may_send(from: Party) -> bool {
        from == Party::Aggregator
    }

    fn max_body(roster: &Roster) -> Option<u64> {
        Some(SealedSum::max_body_bytes(roster.task()))
    }

    fn write(&self, out: &mut FieldWriter<'_>) {
        out.0.digest(&self.freeze);
        out.0.u32(self.occupied);
        out.0.digest(&self.sum_hash);
    }

    fn read(input: &mut FieldReader<'_, '_>, roster: &Roster) -> Result<Self, Error> {
        Ok(Self { freeze: input.0.digest()?, occupied: input.occupied(roster)?, sum_hash: input.0.digest()? })
    }
}

impl Message for RoundResult {
    const KIND: u8 = 10;
    const NAME: &'static str = "result";
    const OVERSIZE: Error = Error::Proof;

    fn may_send(from: Party) -> bool {
        from == Party::KeyGenerator
    }

    fn max_body(roster: &Roster) -> Option<u64> {
        Some(WeightSum::max_payload_bytes(roster.task()))
    }

    fn write(&self, out: &mut FieldWriter<'_>) {
        out.0.digest(&self.request);
        out.0.u8(match self.outcome {
            Outcome::Released => 1,
            Outcome::Failed => 2,
        });
        out.0.u32(self.users);
        out.0.digest(&self.payload_hash);
        out.log(&self.log);
    }

    fn read(input: &mut FieldReader<'_, '_>, _: &Roster) -> Result<Self, Error> {
        Ok(Self {
            request: input.0.digest()?,
            outcome: match input.0.u8()? {
                1 => Outcome::Released,
                2 => Outcome::Failed,
                _ => return Err(Error::Encoding { reason: "there is no such outcome" }),
            },
            users: input.0.u32()?,
            payload_hash: input.0.digest()?,
            log: input.log()?,
        })
    }
}

impl Message for Publish {
    const KIND: u8 = 11;
    const NAME: &'static str = "publish";

    fn may_send(from: Party) -> bool {
        from == Party::Aggregator
    }

    fn max_body(roster: &Roster) -> Option<u64> {
        Some(roster.task().config().max_model_bytes.into())
    }

    fn write(&self, out: &mut FieldWriter<'_>) {
        out.0.bytes(&self.result.head_bytes());
        out.0.digest(&self.model);
        out.0.u32(self.model_bytes);
        out.users(&self.users);
    }

    fn read(input: &mut FieldReader<'_, '_>, roster: &Roster) -> Result<Self, Error> {
        // whether G signed it is judged together with the rest of the message
        let bytes = input.0.rest();
        let (result, rest) = Signed::decode_head(bytes, roster).map_err(|error| match error {
            Error::Encoding { .. } => error,
            _ => Error::Proof,
        })?;
        input.0.take(bytes.len() - rest.len())?;
        let (model, model_bytes) = (input.0.digest()?, input.0.u32()?);
        if model_bytes > roster.task().config().max_model_bytes {
            return Err(Error::Size { what: "the model" });
        }
        Ok(Self { result, model, model_bytes, users: input.users(roster)? })
    }
}

impl Publish {
    /// Checks that the key generator signed the result it contains.
    pub(crate) fn check_result(&self, roster: &Roster, round: Round) -> Result<(), Error> {
        let signed = self.result.verify(roster).is_ok();
        let released = self.result.message.outcome == Outcome::Released;
        if signed && released && self.result.round == round { Ok(()) } else { Err(Error::Proof) }
    }
}

impl Message for Close {
    const KIND: u8 = 12;
    const NAME: &'static str = "close";

    fn may_send(from: Party) -> bool {
        from == Party::Aggregator
    }

    fn write(&self, out: &mut FieldWriter<'_>) {
        out.0.u8(match self.ending {
            Ending::Published => 1,
            Ending::Failed => 2,
            Ending::Aborted => 3,
        });
        out.0.digest(&self.publish);
    }

    fn read(input: &mut FieldReader<'_, '_>, _: &Roster) -> Result<Self, Error> {
        Ok(Self {
            ending: match input.0.u8()? {
                1 => Ending::Published,
                2 => Ending::Failed,
                3 => Ending::Aborted,
                _ => return Err(Error::Encoding { reason: "there is no such ending" }),
            },
            publish: input.0.digest()?,
        })
    }
}

/// The hash of an upload's body.
pub(crate) fn upload_hash(body: &[u8]) -> Digest {
    hash("dphe/v1/upload-body", &[body])
}

/// The hash of a sum.
pub(crate) fn sum_hash(body: &[u8]) -> Digest {
    hash("dphe/v1/sum", &[body])
}

/// The hash of an opened sum.
pub(crate) fn payload_hash(payload: &[u8]) -> Digest {
    hash("dphe/v1/payload", &[payload])
}
