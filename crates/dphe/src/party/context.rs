//! What every party has: its identity, the roster, its log, and how it recovers from that log.

use core::fmt;
use std::sync::Arc;

use dphe_paillier::Threads;
use zeroize::Zeroizing;

use super::log::{Log, LogPoint, Recovered};
use super::{Action, Time};
use crate::scheme::RoundParams;
use crate::wire::{Header, Message, Reader, RosterChange, Rosters, RoundTicket, Signed, Writer};
use crate::{Digest, Error, IdentityKey, PartyId, Roster, Round};

/// The inputs of [`Party::start`](super::Party::start) besides keys and time. The log holds seeds, so `Debug` shows
/// only its length.
pub struct PartyContext<'a> {
    /// The identity key of the party, and those that it had under earlier rosters.
    pub identity: IdentityKeys,
    /// The rosters of the task.
    pub rosters: Rosters,
    /// The bytes of the party's log, which is empty if the party has never run.
    pub log: &'a [u8],
    /// How many threads it computes with.
    pub threads: Threads,
}

impl fmt::Debug for PartyContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut context = f.debug_struct("PartyContext");
        context.field("identity", &self.identity).field("log_bytes", &self.log.len()).finish_non_exhaustive()
    }
}

/// The identity keys of a party: the present one, and those that it had under earlier rosters.
#[derive(Debug)]
pub struct IdentityKeys {
    present: IdentityKey,
    former: Vec<IdentityKey>,
}

impl IdentityKeys {
    /// Combines the present key of a party with earlier ones.
    pub fn new(present: IdentityKey, former: Vec<IdentityKey>) -> Self {
        Self { present, former }
    }

    /// Returns the key that a party has under a roster.
    ///
    /// # Errors
    /// [`Error::UnknownUser`] if the party is not in the roster, [`Error::Signature`] if its key is not here.
    pub fn of(&self, party: PartyId, roster: &Roster) -> Result<&IdentityKey, Error> {
        let identity = roster.identity(party)?;
        let keys = [&self.present].into_iter().chain(&self.former);
        keys.into_iter().find(|key| key.identity() == identity).ok_or(Error::Signature)
    }

    /// Returns the key that a party has under a roster for which [`IdentityKeys::of`] has succeeded.
    pub(super) fn known(&self, party: PartyId, roster: &Roster) -> &IdentityKey {
        self.of(party, roster).unwrap_or(&self.present)
    }
}

impl From<IdentityKey> for IdentityKeys {
    fn from(present: IdentityKey) -> Self {
        Self { present, former: Vec::new() }
    }
}

/// The part of a party's state that all parties share.
#[derive(Debug)]
pub(super) struct Session {
    id: PartyId,
    identity: IdentityKeys,
    pub(super) rosters: Rosters,
    /// The roster that is in force.
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
    /// Checks the identity against the rosters and reads the log, which names the roster that is in force.
    pub(super) fn open(id: PartyId, context: PartyContext<'_>) -> Result<(Self, Recovery<'_>), Error> {
        let PartyContext { identity, rosters, log: bytes, threads } = context;
        let roster = Log::roster_of(id, &rosters, bytes).clone();
        for roster in rosters.iter().filter(|later| later.epoch() >= roster.epoch()) {
            identity.of(id, roster)?;
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
        Ok((
            Self { id, identity, rosters, roster, log, threads, params },
            Recovery { checkpoint, records, actions },
        ))
    }

    /// Returns the changes of the roster that is in force, the earliest first.
    pub(super) fn changes(&self) -> impl Iterator<Item = &Arc<RosterChange>> {
        self.rosters.changes().iter().filter(|change| change.roster().epoch() > self.roster.epoch())
    }

    /// Returns the next change, if it comes into force by this round.
    pub(super) fn due(&self, round: Round) -> Option<Arc<RosterChange>> {
        self.changes().next().filter(|change| change.roster().first_round() <= round).cloned()
    }

    /// Puts the roster of a change into force. The caller must write a checkpoint, which makes it durable.
    pub(super) fn put_in_force(&mut self, change: &RosterChange) {
        self.roster = change.roster().clone();
        self.log.change_roster(self.id, &self.roster);
    }

    /// Returns the roster under which messages of a round are signed: one that was in force before, or the present one.
    pub(super) fn roster_of(&self, round: Round) -> &Roster {
        if round >= self.roster.first_round() { &self.roster } else { self.rosters.at(round) }
    }

    /// Reads a message under the roster of its round.
    pub(super) fn read<M: Message>(&self, bytes: &[u8]) -> Result<Signed<M>, Error> {
        let round = Header::peek(bytes)?.round.unwrap_or(Round::FIRST);
        Signed::decode(bytes, self.roster_of(round))
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

    /// Returns the party's identity key under a roster.
    pub(super) fn identity_in(&self, roster: &Roster) -> Result<&IdentityKey, Error> {
        self.identity.of(self.id, roster)
    }

    pub(super) fn sign<M: Message>(&self, round: Round, message: M, body: Vec<u8>) -> Signed<M> {
        Signed::sign(self.identity(), self.roster.task().id(), self.id, round, message, body)
    }

    /// Returns the party's identity key under the present roster.
    pub(super) fn identity(&self) -> &IdentityKey {
        // `open` has checked that it is here, for this roster and all later ones
        self.identity.known(self.id, &self.roster)
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
    rosters: &Rosters,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let state = Log::first_checkpoint(party, Log::roster_of(party, rosters, log), log)?;
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

/// A party has taken part in a round under a roster that had been replaced by then.
pub(super) const ROSTER_TOO_LATE: Error =
    Error::Storage { reason: "the log has passed the first round of a later roster" };

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
