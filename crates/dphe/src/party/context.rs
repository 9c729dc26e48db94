//! What every party has: its identity, the roster, its log, and how it recovers from that log.

use core::fmt;
use std::sync::Arc;

use dphe_paillier::Threads;
use zeroize::Zeroizing;

use super::log::{Log, LogPoint, Recovered};
use super::{Action, Time};
use crate::scheme::RoundParams;
use crate::wire::{Message, Reader, RoundTicket, Signed, Writer};
use crate::{Digest, Error, IdentityKey, PartyId, Roster, Round};

/// The inputs of [`Party::start`](super::Party::start) besides keys and time.
#[derive(Debug)]
pub struct PartyContext<'a> {
    /// The identity key of the party.
    pub identity: IdentityKey,
    /// The roster of the task.
    pub roster: Roster,
    /// The bytes of the party's log, which is empty if the party has never run.
    pub log: &'a [u8],
    /// How many threads it computes with.
    pub threads: Threads,
}

/// The part of a party's state that all parties share.
#[derive(Debug)]
pub(super) struct Session {
    id: PartyId,
    identity: IdentityKey,
    pub(super) roster: Roster,
    pub(super) log: Log,
    pub(super) threads: Threads,
    params: Memo,
}

/// The parameters of the last round that they were computed for. They follow from the roster, so they are not part of a
/// party's state, and `Debug` omits them.
struct Memo(Arc<RoundParams>);

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl Session {
    /// Checks the identity against the roster and reads the log.
    pub(super) fn open(id: PartyId, context: PartyContext<'_>) -> Result<(Self, Recovery<'_>), Error> {
        let PartyContext { identity, roster, log: bytes, threads } = context;
        if roster.identity(id)? != identity.identity() {
            return Err(Error::Signature);
        }
        let Recovered { log, checkpoint, records, valid } = Log::recover(id, &roster, bytes)?;
        // a new file gets its prefix, and a torn tail is cut off
        let repaired = match valid {
            0 => Some(log.prefix().to_vec()),
            _ if valid < bytes.len() => Some(bytes[..valid].to_vec()),
            _ => None,
        };
        let actions = repaired.into_iter().map(|bytes| Action::Replace(Zeroizing::new(bytes))).collect();
        let params = Memo(Arc::new(RoundParams::new(roster.task(), Round::FIRST)));
        Ok((Self { id, identity, roster, log, threads, params }, Recovery { checkpoint, records, actions }))
    }

    /// Returns the parameters of a round, which are computed once.
    pub(super) fn params(&mut self, round: Round) -> Arc<RoundParams> {
        if self.params.0.round() != round {
            self.params = Memo(Arc::new(RoundParams::new(self.roster.task(), round)));
        }
        self.params.0.clone()
    }

    /// Returns the parameters of the round of a ticket.
    pub(super) fn params_of(&mut self, ticket: &Signed<RoundTicket>) -> Arc<RoundParams> {
        let (params, hash) = (self.params(ticket.round()), ticket.hash());
        if params.ticket() != hash {
            self.params = Memo(Arc::new(params.with_ticket(hash)));
        }
        self.params.0.clone()
    }

    pub(super) fn identity(&self) -> &IdentityKey {
        &self.identity
    }

    pub(super) fn sign<M: Message>(&self, round: Round, message: M, body: Vec<u8>) -> Signed<M> {
        Signed::sign(&self.identity, self.roster.task().id(), self.id, round, message, body)
    }

    /// Appends a record to the log: a tag, and messages each with its length.
    pub(super) fn append(&mut self, tag: u8, messages: &[&[u8]]) -> Action {
        let mut out = Writer::new();
        out.u8(tag);
        for message in messages {
            out.u64(message.len() as u64);
            out.bytes(message);
        }
        Action::Append(self.log.append(out.as_bytes()))
    }

    /// Replaces the log by a checkpoint.
    pub(super) fn checkpoint(&mut self, state: Writer) -> Action {
        Action::Replace(self.log.checkpoint(&Zeroizing::new(state.into_bytes())))
    }

    /// Makes the first actions of a new party store a checkpoint instead of an empty log.
    pub(super) fn begin_with_checkpoint(&mut self, state: Writer, actions: &mut Vec<Action>) {
        actions.retain(|action| !matches!(action, Action::Replace(_)));
        actions.insert(0, self.checkpoint(state));
    }
}

/// A party that can be brought to the state that its log holds.
pub(super) trait Recover: Sized {
    fn read_checkpoint(&mut self, input: &mut Reader<'_>) -> Result<(), Error>;
    fn replay(&mut self, tag: u8, record: &Record<'_>, now: Time) -> Result<(), Error>;
    /// Takes up the work that the recovered state asks for.
    fn resume(&mut self, now: Time, actions: &mut Vec<Action>) -> Result<(), Error>;
}

/// The content of a log at the start of a party.
pub(super) struct Recovery<'a> {
    checkpoint: Option<&'a [u8]>,
    records: Vec<&'a [u8]>,
    actions: Vec<Action>,
}

impl Recovery<'_> {
    pub(super) fn run<P: Recover>(self, mut party: P, now: Time) -> Result<(P, Vec<Action>), Error> {
        if let Some(checkpoint) = self.checkpoint {
            let mut input = Reader::new(checkpoint);
            party.read_checkpoint(&mut input).and_then(|()| input.finish()).map_err(|error| match error {
                Error::Storage { .. } => error,
                _ => Error::Storage { reason: "the checkpoint cannot be read" },
            })?;
        }
        for payload in self.records {
            let (tag, record) =
                Record::read(payload).map_err(|_| Error::Storage { reason: "a record cannot be read" })?;
            party.replay(tag, &record, now)?;
        }
        let mut actions = self.actions;
        party.resume(now, &mut actions)?;
        Ok((party, actions))
    }
}

/// Reads the seeds that a party's log holds from the checkpoint at its beginning.
pub(super) fn stored_seeds<T>(
    log: &[u8],
    party: PartyId,
    roster: &Roster,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let state = Log::first_checkpoint(party, roster, log)?;
    let state = state.ok_or(Error::Storage { reason: "the log does not hold the seeds" })?;
    read(&mut Reader::new(state)).map_err(|_| Error::Storage { reason: "the checkpoint cannot be read" })
}

/// The messages of a stored record.
pub(super) struct Record<'a>(Vec<&'a [u8]>);

impl<'a> Record<'a> {
    fn read(payload: &'a [u8]) -> Result<(u8, Self), Error> {
        let mut input = Reader::new(payload);
        let tag = input.u8()?;
        let mut messages = Vec::new();
        while !input.rest().is_empty() {
            let length = usize::try_from(input.u64()?).unwrap_or(usize::MAX);
            messages.push(input.take(length)?);
        }
        Ok((tag, Self(messages)))
    }

    pub(super) fn bytes(&self, at: usize) -> Result<&'a [u8], Error> {
        self.0.get(at).copied().ok_or(Error::Storage { reason: "a record lacks a message" })
    }

    /// Reads a message that was valid when it was stored.
    pub(super) fn message<M: Message>(&self, at: usize, roster: &Roster) -> Result<Signed<M>, Error> {
        stored(self.bytes(at)?, roster)
    }
}

pub(super) fn stored<M: Message>(bytes: &[u8], roster: &Roster) -> Result<Signed<M>, Error> {
    Signed::decode(bytes, roster).map_err(|_| Error::Storage { reason: "a stored message is invalid" })
}

pub(super) const OUT_OF_SEQUENCE: Error =
    Error::Storage { reason: "a record does not follow from the one before" };

pub(super) fn write_point(out: &mut Writer, point: Option<LogPoint>) {
    out.u8(u8::from(point.is_some()));
    out.put(&point.unwrap_or(LogPoint { seq: 0, head: Digest::ZERO }));
}

pub(super) fn read_point(input: &mut Reader<'_>) -> Result<Option<LogPoint>, Error> {
    let known = input.u8()? == 1;
    let point = input.get()?;
    Ok(known.then_some(point))
}
