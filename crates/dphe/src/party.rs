//! The three parties as state machines (docs/protocol.md, section 9).
//!
//! `step` takes an event and the time and answers with actions, in order. Whoever runs a party carries them out one
//! after the other: what is to be stored must be on the disk before what follows is sent. If storing fails, the
//! process stops and starts again from its log. An error means that the event was refused and nothing has changed.

mod aggregator;
mod key_generator;
mod user;

pub use aggregator::{AggregatorEvent, AggregatorParty, Checked, Intake, IntakeRound};
pub use key_generator::{KeyGeneratorEvent, KeyGeneratorParty};
pub use user::{UserEvent, UserParty};

use core::fmt;

use zeroize::Zeroizing;

use crate::hash::Digest;
use crate::log::{Log, LogPoint, Recovered};
use crate::message::codec::{Reader, Writer};
use crate::message::{Ending, Message, Signed};
use crate::{Error, IdentityKey, Overlap, Party, PublicSupport, Roster, Round, WeightSum};

/// Milliseconds since some moment, by a clock that never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    fn after(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }
}

/// How long a party waits for an answer before it sends again.
const RETRY: u64 = 2_000;
/// The same for what is long and takes long to answer.
const RETRY_REQUEST: u64 = 30_000;

/// Something to be done. What is stored may hold seeds and sums: it is not printed.
pub enum Action {
    /// Append these bytes to the log.
    Append(Vec<u8>),
    /// Replace the log by these bytes, all or nothing.
    Replace(Zeroizing<Vec<u8>>),
    /// Send a message.
    Send {
        /// To whom.
        to: Party,
        /// The message.
        message: Vec<u8>,
    },
    /// Tell every user. Who is not reached will ask.
    Announce(Vec<u8>),
    /// Ask the aggregator how this round stands.
    Poll(Round),
    /// Send a tick at this time, or later. One alarm is kept: the latest such action replaces it.
    Wake(Time),
    /// Tell the program that runs the party.
    Notify(Notice),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append(bytes) => write!(f, "Append({} bytes)", bytes.len()),
            Self::Replace(bytes) => write!(f, "Replace({} bytes)", bytes.len()),
            Self::Send { to, message } => write!(f, "Send({to:?}, {} bytes)", message.len()),
            Self::Announce(message) => write!(f, "Announce({} bytes)", message.len()),
            Self::Poll(round) => write!(f, "Poll({round:?})"),
            Self::Wake(time) => write!(f, "Wake({time:?})"),
            Self::Notify(notice) => write!(f, "Notify({notice:?})"),
        }
    }
}

/// What the program that runs a party needs to know.
#[derive(Debug)]
pub enum Notice {
    /// To a user: train, and hand in an update.
    Train {
        /// The round.
        round: Round,
        /// The positions to train, if they are public.
        support: PublicSupport,
    },
    /// To the aggregator: the sum of a round; hand in the new model.
    Opened {
        /// The sum.
        sum: WeightSum,
        /// How much the updates overlap; not known any more after a restart.
        overlap: Option<Overlap>,
    },
    /// A round is over.
    Finished {
        /// The round.
        round: Round,
        /// How it ended; not known to a user who heard of a later one first.
        ending: Option<Ending>,
        /// To a user: whether its update is known to be in the sum.
        included: bool,
        /// To a user: the new model.
        model: Option<Vec<u8>>,
    },
}

/// What all parties have.
#[derive(Debug)]
struct Desk {
    party: Party,
    identity: IdentityKey,
    roster: Roster,
    log: Log,
}

/// What a party finds when it starts.
struct Found<'a> {
    desk: Desk,
    checkpoint: Option<&'a [u8]>,
    records: Vec<&'a [u8]>,
    /// What brings the file to what was read of it: a new one gets its prefix, a torn tail goes.
    actions: Vec<Action>,
}

impl Desk {
    fn open(party: Party, identity: IdentityKey, roster: Roster, log: &[u8]) -> Result<Found<'_>, Error> {
        if roster.identity(party)? != identity.identity() {
            return Err(Error::Signature);
        }
        let Recovered { log: read, checkpoint, records, valid } = Log::recover(party, &roster, log)?;
        let restored = match valid {
            0 => Some(read.prefix().to_vec()),
            _ if valid < log.len() => Some(log[..valid].to_vec()),
            _ => None,
        };
        let actions = restored.into_iter().map(|bytes| Action::Replace(Zeroizing::new(bytes))).collect();
        Ok(Found { desk: Self { party, identity, roster, log: read }, checkpoint, records, actions })
    }

    fn sign<M: Message>(&self, round: Round, message: M, body: Vec<u8>) -> Signed<M> {
        Signed::sign(&self.identity, self.roster.task().id(), self.party, round, message, body)
    }

    /// A record: a tag, and messages each with its length.
    fn append(&mut self, tag: u8, messages: &[&[u8]]) -> Action {
        let mut out = Writer::new();
        out.u8(tag);
        for message in messages {
            out.u64(message.len() as u64);
            out.bytes(message);
        }
        Action::Append(self.log.append(&out.into_bytes()))
    }
}

/// A record's tag and messages.
fn read_record(payload: &[u8]) -> Result<(u8, Vec<&[u8]>), Error> {
    let damaged = |_| Error::Storage { reason: "a record cannot be read" };
    let mut input = Reader::new(payload);
    let tag = input.u8().map_err(damaged)?;
    let mut messages = Vec::new();
    while !input.rest().is_empty() {
        let length = usize::try_from(input.u64().map_err(damaged)?).unwrap_or(usize::MAX);
        messages.push(input.take(length).map_err(damaged)?);
    }
    Ok((tag, messages))
}

/// A message that was stored: it was good then.
fn stored<M: Message>(messages: &[&[u8]], at: usize, roster: &Roster) -> Result<Signed<M>, Error> {
    let bytes = messages.get(at).ok_or(Error::Storage { reason: "a record lacks a message" })?;
    Signed::decode(bytes, roster).map_err(|_| Error::Storage { reason: "a stored message does not hold" })
}

fn write_point(out: &mut Writer, point: Option<LogPoint>) {
    out.u8(u8::from(point.is_some()));
    let point = point.unwrap_or(LogPoint { seq: 0, head: Digest::ZERO });
    out.u64(point.seq);
    out.digest(&point.head);
}

fn read_point(input: &mut Reader<'_>) -> Result<Option<LogPoint>, Error> {
    let known = input.u8()? == 1;
    let point = LogPoint { seq: input.u64()?, head: input.digest()? };
    Ok(known.then_some(point))
}

fn read_round(input: &mut Reader<'_>) -> Result<Round, Error> {
    Round::new(input.u64()?).ok_or(Error::Storage { reason: "a checkpoint has no round" })
}

fn damaged(_: Error) -> Error {
    Error::Storage { reason: "its checkpoint cannot be read" }
}
