//! The kinds of messages, in the order in which a round sends them: their fields, who may send them, how they are
//! written.

use super::{FieldReader, FieldWriter, Message, Party, Signed};
use crate::hash::{Digest, hash};
use crate::log::LogPoint;
use crate::sealed::{SealedSum, max_body_bytes};
use crate::{Error, Roster, Round, UserId, WeightSum};

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

/// A has stored an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadAck {
    /// The hash of the body.
    pub body_hash: Digest,
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
    /// Checks that the key generator signed the result it contains, and that it gives a sum of this round out.
    ///
    /// # Errors
    /// [`Error::Proof`].
    pub fn check_result(&self, roster: &Roster, round: Round) -> Result<(), Error> {
        let signed = self.result.verify(roster).is_ok();
        let released = self.result.message.outcome == Outcome::Released;
        if signed && released && self.result.round == round { Ok(()) } else { Err(Error::Proof) }
    }
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
