//! The key generator: one ticket, one commitment, one answer a round.

use dphe_paillier::Threads;
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::{Action, Desk, Found, Time, damaged, read_record, read_round, stored};
use crate::hash::Digest;
use crate::log::LogPoint;
use crate::message::codec::{Reader, Writer};
use crate::message::{
    Close, Decrypt, Freeze, FreezeAck, Message, Outcome, Participant, RoundOpen, RoundResult, RoundTicket,
    Signed, check_set, kind, payload_hash, sum_hash,
};
use crate::permutation::UserSharedSeed;
use crate::sealed::SealedSum;
use crate::{Error, IdentityKey, KeyGenerator, Party, PublicSupport, Roster, Round, UserId};

/// What happens to a key generator.
#[derive(Debug)]
pub enum KeyGeneratorEvent {
    /// A message came in.
    Message(Vec<u8>),
    /// The time it asked for has come.
    Tick,
}

/// The key generator of a task, with its state.
#[derive(Debug)]
pub struct KeyGeneratorParty {
    desk: Desk,
    keys: KeyGenerator,
    threads: Threads,
    /// The round at hand, or the next one.
    round: Round,
    state: State,
    /// The sets whose sums were given out, with the model they started from: what the differencing rule looks at.
    released: Vec<(Digest, Vec<UserId>)>,
}

#[derive(Debug)]
enum State {
    Idle,
    Ticketed(Ticketed),
    Frozen(Ticketed, Frozen),
    /// A request is on the disk: it is the only one that will ever be decrypted in this round.
    Committed(Ticketed, Frozen, Signed<Decrypt>),
    /// It was answered, well or not.
    Answered(Ticketed, Frozen, Box<Signed<Decrypt>>, Signed<RoundResult>),
}

#[derive(Clone, Debug)]
struct Ticketed {
    open: Signed<RoundOpen>,
    ticket: Signed<RoundTicket>,
}

#[derive(Clone, Debug)]
struct Frozen {
    freeze: Signed<Freeze>,
    ack: Signed<FreezeAck>,
}

const TICKET: u8 = 1;
const FREEZE: u8 = 2;
const COMMIT: u8 = 3;
const RESULT: u8 = 4;

impl KeyGeneratorParty {
    /// A key generator, from what its log holds (nothing, the first time), and what it has to do first.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log is damaged or another party's, [`Error::Signature`] or [`Error::Key`] if identity or key are not the
    /// roster's.
    pub fn start(
        keys: KeyGenerator,
        identity: IdentityKey,
        roster: Roster,
        log: &[u8],
        threads: Threads,
        now: Time,
    ) -> Result<(Self, Vec<Action>), Error> {
        roster.check_task(keys.task(), keys.encryption_key())?;
        let Found { desk, checkpoint, records, mut actions } =
            Desk::open(Party::KeyGenerator, identity, roster, log)?;
        let mut party =
            Self { desk, keys, threads, round: Round::FIRST, state: State::Idle, released: Vec::new() };
        if let Some(checkpoint) = checkpoint {
            party.read_checkpoint(checkpoint).map_err(damaged)?;
        }
        for record in records {
            party.replay(record)?;
        }
        if let State::Committed(..) = party.state {
            actions.push(Action::Wake(now));
        }
        Ok((party, actions))
    }

    /// The roster.
    pub fn roster(&self) -> &Roster {
        &self.desk.roster
    }

    /// The round at hand, or the next one.
    pub fn round(&self) -> Round {
        self.round
    }

    /// Where the round at hand stands, in a word.
    pub fn phase(&self) -> &'static str {
        match self.state {
            State::Idle => "idle",
            State::Ticketed(_) => "ticketed",
            State::Frozen(..) => "frozen",
            State::Committed(..) => "committed",
            State::Answered(..) => "answered",
        }
    }

    /// Takes one step.
    ///
    /// # Errors
    /// What section 8 of docs/protocol.md lists; nothing has changed then.
    pub fn step(
        &mut self,
        event: KeyGeneratorEvent,
        now: Time,
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<Action>, Error> {
        match event {
            KeyGeneratorEvent::Tick => Ok(self.answer(rng)),
            KeyGeneratorEvent::Message(bytes) => match kind(&bytes)? {
                RoundOpen::KIND => self.open(Signed::decode(&bytes, &self.desk.roster)?),
                Freeze::KIND => self.freeze(Signed::decode(&bytes, &self.desk.roster)?),
                Decrypt::KIND => self.decrypt(Signed::decode(&bytes, &self.desk.roster)?, now),
                Close::KIND => self.close(&Signed::decode(&bytes, &self.desk.roster)?),
                _ => Err(Error::Version),
            },
        }
    }

    fn open(&mut self, open: Signed<RoundOpen>) -> Result<Vec<Action>, Error> {
        open.round().check(self.round)?;
        if let Some(Ticketed { open: known, ticket }) = self.state.ticketed() {
            return if known.hash() == open.hash() {
                Ok(vec![to_aggregator(ticket)])
            } else {
                Err(Error::Conflict { what: "round-open" })
            };
        }
        let roster = &self.desk.roster;
        let message = open.message();
        if message.policy != roster.task().policy_hash() {
            return Err(Error::Policy);
        }
        if message.roster != roster.hash() {
            return Err(Error::Roster);
        }
        if message.support != PublicSupport::of(roster.task(), open.round()).digest() {
            return Err(Error::SupportDigest);
        }
        let ticket = RoundTicket {
            open: open.hash(),
            model: message.model,
            policy: message.policy,
            roster: message.roster,
            support: message.support,
            deadline: message.deadline,
            log: self.desk.log.point(),
        };
        let ticket = self.desk.sign(open.round(), ticket, Vec::new());
        let record = self.desk.append(TICKET, &[&open.to_bytes(), &ticket.to_bytes()]);
        let actions = vec![record, to_aggregator(&ticket)];
        self.state = State::Ticketed(Ticketed { open, ticket });
        Ok(actions)
    }

    fn freeze(&mut self, freeze: Signed<Freeze>) -> Result<Vec<Action>, Error> {
        freeze.round().check(self.round)?;
        let ticketed =
            self.state.ticketed().ok_or(Error::Order { expected: "a round-open comes first" })?.clone();
        let message = freeze.message();
        let last = self.state.frozen();
        if let Some(Frozen { freeze: known, ack }) = last
            && known.hash() == freeze.hash()
        {
            return Ok(vec![to_aggregator(ack)]);
        }
        if matches!(self.state, State::Committed(..) | State::Answered(..)) {
            return Err(Error::Committed);
        }
        if message.ticket != ticketed.ticket.hash() {
            return Err(Error::Ticket);
        }
        if message.mask != 0 {
            return Err(Error::Profile { what: "a mask of the aggregator" });
        }
        let frozen = last.map_or(0, |last| last.freeze.message().attempt);
        let max = self.desk.roster.task().config().max_attempts;
        if message.attempt >= 1 && message.attempt <= frozen {
            return Err(Error::Conflict { what: "freeze" });
        }
        if message.attempt != frozen + 1 || message.attempt > max {
            return Err(Error::Attempts { attempt: message.attempt, max });
        }
        check_set(&message.users, &self.desk.roster)?;
        // more positions than the set can have sent are somebody else's
        let task = self.desk.roster.task();
        let most = (message.users.len() as u64 * u64::from(task.config().shards))
            .saturating_mul(task.capacity() as u64);
        if task.has_private_support() && u64::from(message.occupied) > most {
            let found = message.occupied as usize;
            return Err(Error::Count {
                what: "occupied positions",
                expected: usize::try_from(most).unwrap_or(usize::MAX),
                found,
                user: None,
            });
        }
        self.check_differences(&ticketed.ticket.message().model, &message.users)?;
        let ack = FreezeAck { freeze: freeze.hash(), attempt: message.attempt, log: self.desk.log.point() };
        let ack = self.desk.sign(freeze.round(), ack, Vec::new());
        let record = self.desk.append(FREEZE, &[&freeze.to_bytes(), &ack.to_bytes()]);
        let actions = vec![record, to_aggregator(&ack)];
        self.state = State::Frozen(ticketed, Frozen { freeze, ack });
        Ok(actions)
    }

    /// Two sums on one model whose sets differ by one user would show that user's update.
    fn check_differences(&self, model: &Digest, users: &[Participant]) -> Result<(), Error> {
        let differs_by_one = |set: &[UserId]| {
            let (mut a, mut b) = (set.iter().copied().peekable(), users.iter().map(|p| p.user).peekable());
            let mut differences = 0;
            loop {
                match (a.peek(), b.peek()) {
                    (None, None) => return differences == 1,
                    (Some(x), Some(y)) if x == y => {
                        a.next();
                        b.next();
                        continue;
                    }
                    (Some(x), Some(y)) if x < y => a.next(),
                    (Some(_), None) => a.next(),
                    _ => b.next(),
                };
                differences += 1;
            }
        };
        let mut sets = self.released.iter().filter(|(base, _)| base == model);
        if sets.any(|(_, set)| differs_by_one(set)) { Err(Error::SetDifference) } else { Ok(()) }
    }

    fn decrypt(&mut self, request: Signed<Decrypt>, now: Time) -> Result<Vec<Action>, Error> {
        request.round().check(self.round)?;
        let (ticketed, frozen) = match &self.state {
            State::Idle | State::Ticketed(_) => {
                return Err(Error::Order { expected: "a freeze comes first" });
            }
            State::Committed(_, _, known) if known.hash() == request.hash() => {
                return Ok(vec![Action::Wake(now)]);
            }
            State::Answered(_, _, known, result) if known.hash() == request.hash() => {
                return Ok(vec![to_aggregator(result)]);
            }
            State::Committed(..) | State::Answered(..) => return Err(Error::Committed),
            State::Frozen(ticketed, frozen) => (ticketed, frozen),
        };
        let (message, freeze) = (request.message(), frozen.freeze.message());
        if message.freeze != frozen.freeze.hash() {
            return Err(Error::Order { expected: "the request must name the latest freeze" });
        }
        if message.sum_hash != freeze.sum_hash || sum_hash(request.body()) != message.sum_hash {
            return Err(Error::Equation);
        }
        if message.occupied != freeze.occupied {
            let (expected, found) = (freeze.occupied as usize, message.occupied as usize);
            return Err(Error::Count { what: "occupied positions", expected, found, user: None });
        }
        let sum = self.read_sum(&request, frozen)?;
        self.keys.check(&sum, self.threads)?;
        let record = self.desk.append(COMMIT, &[&request.to_bytes()]);
        let (ticketed, frozen) = (ticketed.clone(), frozen.clone());
        self.state = State::Committed(ticketed, frozen, request);
        Ok(vec![record, Action::Wake(now)])
    }

    fn read_sum(&self, request: &Signed<Decrypt>, frozen: &Frozen) -> Result<SealedSum, Error> {
        let users = frozen.freeze.message().users.iter().map(|participant| participant.user).collect();
        let occupied = request.message().occupied;
        SealedSum::from_body(self.desk.roster.task(), request.round(), users, occupied, request.body())
    }

    /// Keeps the set of a sum that was given out. One that failed told nothing.
    fn remember(&mut self, ticketed: &Ticketed, frozen: &Frozen, result: &Signed<RoundResult>) {
        if result.message().outcome == Outcome::Released {
            let users = frozen.freeze.message().users.iter().map(|participant| participant.user).collect();
            self.released.push((ticketed.ticket.message().model, users));
        }
    }

    /// Opens the committed request. Doing it again after a crash gives the same sum.
    fn answer(&mut self, rng: &mut impl CryptoRng) -> Vec<Action> {
        let (ticketed, frozen, request) = match core::mem::replace(&mut self.state, State::Idle) {
            State::Committed(ticketed, frozen, request) => (ticketed, frozen, request),
            other => {
                self.state = other;
                return Vec::new();
            }
        };
        let opened = self
            .read_sum(&request, &frozen)
            .and_then(|sum| self.keys.open_again(sum, rng, self.threads))
            .map(|sum| Zeroizing::new(sum.to_payload(self.desk.roster.task())));
        // whatever went wrong, one answer
        let (outcome, payload) = match opened {
            Ok(payload) => (Outcome::Released, payload),
            Err(_) => (Outcome::Failed, Zeroizing::new(Vec::new())),
        };
        let result = RoundResult {
            request: request.hash(),
            outcome,
            users: frozen.freeze.message().users.len() as u32,
            payload_hash: payload_hash(&payload),
            log: self.desk.log.point(),
        };
        let result = self.desk.sign(request.round(), result, payload.to_vec());
        let record = self.desk.append(RESULT, &[&result.to_bytes()]);
        self.remember(&ticketed, &frozen, &result);
        let actions = vec![record, to_aggregator(&result)];
        self.state = State::Answered(ticketed, frozen, Box::new(request), result);
        actions
    }

    fn close(&mut self, close: &Signed<Close>) -> Result<Vec<Action>, Error> {
        // the round before this one is closed already: it is so again
        if close.round().next() == self.round {
            return Ok(Vec::new());
        }
        close.round().check(self.round)?;
        match self.state {
            State::Idle => return Err(Error::Order { expected: "the round has not been opened" }),
            State::Committed(..) => return Err(Error::Order { expected: "a request is being answered" }),
            _ => {}
        }
        self.round = self.round.next();
        self.state = State::Idle;
        self.keys.advance(self.round);
        let checkpoint = Zeroizing::new(self.write_checkpoint());
        Ok(vec![Action::Replace(self.desk.log.checkpoint(&checkpoint))])
    }

    fn write_checkpoint(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u64(self.round.get());
        let (round, key) = self.keys.user_shared_seed().to_parts();
        out.u64(round.get());
        out.bytes(key);
        for (model, users) in &self.released {
            out.digest(model);
            out.u32(users.len() as u32);
            users.iter().for_each(|user| out.u32(user.get()));
        }
        out.into_bytes()
    }

    fn read_checkpoint(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut input = Reader::new(bytes);
        self.round = read_round(&mut input)?;
        let round = read_round(&mut input)?;
        self.keys.resume(UserSharedSeed::from_parts(round, input.array()?), self.round);
        while !input.rest().is_empty() {
            let model = input.digest()?;
            let count = input.u32()?;
            let users = (0..count).map(|_| input.user()).collect::<Result<_, _>>()?;
            self.released.push((model, users));
        }
        Ok(())
    }

    fn replay(&mut self, record: &[u8]) -> Result<(), Error> {
        let (tag, messages) = read_record(record)?;
        let roster = &self.desk.roster;
        let state = core::mem::replace(&mut self.state, State::Idle);
        self.state = match (tag, state) {
            (TICKET, State::Idle) => State::Ticketed(Ticketed {
                open: stored(&messages, 0, roster)?,
                ticket: stored(&messages, 1, roster)?,
            }),
            (FREEZE, State::Ticketed(ticketed) | State::Frozen(ticketed, _)) => {
                let frozen =
                    Frozen { freeze: stored(&messages, 0, roster)?, ack: stored(&messages, 1, roster)? };
                State::Frozen(ticketed, frozen)
            }
            (COMMIT, State::Frozen(ticketed, frozen)) => {
                State::Committed(ticketed, frozen, stored(&messages, 0, roster)?)
            }
            (RESULT, State::Committed(ticketed, frozen, request)) => {
                let result = stored(&messages, 0, roster)?;
                self.remember(&ticketed, &frozen, &result);
                State::Answered(ticketed, frozen, Box::new(request), result)
            }
            _ => return Err(Error::Storage { reason: "a record does not follow from the one before" }),
        };
        Ok(())
    }

    /// Where its log stands.
    pub fn log_point(&self) -> LogPoint {
        self.desk.log.point()
    }
}

impl State {
    fn ticketed(&self) -> Option<&Ticketed> {
        match self {
            Self::Idle => None,
            Self::Ticketed(ticketed)
            | Self::Frozen(ticketed, ..)
            | Self::Committed(ticketed, ..)
            | Self::Answered(ticketed, ..) => Some(ticketed),
        }
    }

    fn frozen(&self) -> Option<&Frozen> {
        match self {
            Self::Idle | Self::Ticketed(_) => None,
            Self::Frozen(_, frozen) | Self::Committed(_, frozen, ..) | Self::Answered(_, frozen, ..) => {
                Some(frozen)
            }
        }
    }
}

fn to_aggregator<M: Message>(message: &Signed<M>) -> Action {
    Action::Send { to: Party::Aggregator, message: message.to_bytes() }
}
