//! The key generator. In each round it issues one ticket, commits to one sum and opens it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use dphe_paillier::DecryptionKey;
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::context::{OUT_OF_SEQUENCE, ROSTER_TOO_LATE, Record, Recover, Session, stored_seeds};
use super::log::LogPoint;
use super::{Action, Party, PartyContext, Time, history};
use crate::names::named_enum;
use crate::scheme::{MaskSeed, RoundParams, SealedSum, UserSharedSeed};
use crate::wire::{
    Close, DecodeWith as _, Decrypt, Encode as _, Ending, Freeze, FreezeAck, Header, Kind, LastOutcome,
    Message, NewSeeds, Outcome, Participant, ParticipantTree, Reader, RosterChange, RosterEdits, Rosters,
    RoundOpen, RoundResult, RoundTicket, Signed, SumParams, Writer, check_set,
};
use crate::{Digest, Error, KeyGenerator, PartyId, Roster, Round, UserId, UserKeys};

/// An event of a key generator.
#[derive(Debug)]
pub enum KeyGeneratorEvent {
    /// A message has arrived.
    Message(Vec<u8>),
    /// The time that [`Action::Wake`] asked for has come.
    Tick,
}

named_enum! {
    /// The phase of a key generator's round.
    pub enum KeyGeneratorPhase {
        /// No round has a ticket.
        Idle = "idle",
        /// The round has a ticket.
        Ticketed = "ticketed",
        /// The participants and the sealed sum are fixed.
        Frozen = "frozen",
        /// A sum is to be opened; no other sum of the round will be.
        Committed = "committed",
        /// The sum is opened and sent.
        Answered = "answered",
    }
}

/// The key generator of a task as a state machine.
#[derive(Debug)]
pub struct KeyGeneratorParty {
    session: Session,
    key_generator: KeyGenerator,
    /// The current round, or the next one.
    round: Round,
    state: State,
    /// The history of the task before the current round, and what became of the last one.
    history: Digest,
    last: LastOutcome,
    /// How many sums were opened or failed, and how many of them failed.
    opened: u32,
    failures: u32,
    /// The sets of users whose sums were released on the latest model, at most two.
    released: Released,
    /// The seeds of the rosters that come into force later.
    next_seeds: VecDeque<NextSeeds>,
}

/// The seeds of a roster that is not in force yet.
#[derive(Debug)]
struct NextSeeds {
    roster: Digest,
    us: UserSharedSeed,
    /// Of the users with a new identity.
    masks: BTreeMap<UserId, MaskSeed>,
}

/// A new roster that the key generator has signed.
#[derive(Debug)]
pub struct ChangedRoster {
    /// What all parties need to follow.
    pub change: RosterChange,
    /// The keys of the users with a new identity.
    pub user_keys: Vec<UserKeys>,
    /// What makes the change durable. Carry it out before anybody learns of the change.
    pub actions: Vec<Action>,
}

/// The sets of users whose sums were released on one model.
#[derive(Debug)]
struct Released {
    model: Digest,
    sets: Vec<Vec<UserId>>,
}

#[derive(Debug)]
enum State {
    Idle,
    Ticketed(Ticketed),
    Frozen(Ticketed, Frozen),
    /// A request is stored. No other sum of the round will be opened. The sum is absent after a restart.
    Committed(Ticketed, Frozen, Signed<Decrypt>, Option<Box<SealedSum>>),
    /// The request was answered, successfully or not.
    Answered(Ticketed, Frozen, Box<Signed<Decrypt>>, Signed<RoundResult>),
}

#[derive(Clone, Debug)]
struct Ticketed {
    open: Signed<RoundOpen>,
    ticket: Signed<RoundTicket>,
    /// When the ticket was issued. After a restart, when the key generator started.
    since: Time,
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
/// The seeds of a roster that comes into force after the current round.
const ROSTER: u8 = 5;

impl Party for KeyGeneratorParty {
    type Keys = KeyGenerator;
    type Event = KeyGeneratorEvent;
    type Phase = KeyGeneratorPhase;

    fn start(keys: KeyGenerator, context: PartyContext<'_>, now: Time) -> Result<(Self, Vec<Action>), Error> {
        context.rosters.first().check_task(keys.task(), keys.encryption_key())?;
        let (session, recovery) = Session::open(PartyId::KeyGenerator, context)?;
        let history = history::first(session.rosters.first());
        let party = Self {
            session,
            key_generator: keys,
            round: Round::FIRST,
            state: State::Idle,
            history,
            last: LastOutcome::None,
            opened: 0,
            failures: 0,
            released: Released { model: Digest::ZERO, sets: Vec::new() },
            next_seeds: VecDeque::new(),
        };
        recovery.run(party, now)
    }

    fn start_new(
        keys: KeyGenerator,
        context: PartyContext<'_>,
        now: Time,
    ) -> Result<(Self, Vec<Action>), Error> {
        let (mut party, mut actions) = Self::start(keys, PartyContext { log: &[], ..context }, now)?;
        let state = party.write_checkpoint();
        party.session.begin_with_checkpoint(state, &mut actions);
        Ok((party, actions))
    }

    fn step(
        &mut self,
        event: KeyGeneratorEvent,
        now: Time,
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<Action>, Error> {
        match event {
            KeyGeneratorEvent::Tick => Ok(self.answer(rng)),
            KeyGeneratorEvent::Message(bytes) => match Header::peek(&bytes)?.kind {
                Kind::RoundOpen => self.issue_ticket(self.session.read(&bytes)?, now),
                Kind::Freeze => self.freeze(self.session.read(&bytes)?, now),
                Kind::Decrypt => self.commit(self.session.read(&bytes)?, now),
                Kind::Close => self.close(&self.session.read(&bytes)?),
                _ => Err(Error::Version),
            },
        }
    }

    fn message(bytes: Vec<u8>) -> KeyGeneratorEvent {
        KeyGeneratorEvent::Message(bytes)
    }

    fn tick() -> KeyGeneratorEvent {
        KeyGeneratorEvent::Tick
    }

    fn roster(&self) -> &Roster {
        &self.session.roster
    }

    fn round(&self) -> Round {
        self.round
    }

    fn phase(&self) -> KeyGeneratorPhase {
        match self.state {
            State::Idle => KeyGeneratorPhase::Idle,
            State::Ticketed(_) => KeyGeneratorPhase::Ticketed,
            State::Frozen(..) => KeyGeneratorPhase::Frozen,
            State::Committed(..) => KeyGeneratorPhase::Committed,
            State::Answered(..) => KeyGeneratorPhase::Answered,
        }
    }
}

impl KeyGeneratorParty {
    /// Returns the current end of the log.
    pub fn log_point(&self) -> LogPoint {
        self.session.log.point()
    }

    /// Returns the history of the task before the current round.
    pub fn history(&self) -> Digest {
        self.history
    }

    fn issue_ticket(&mut self, open: Signed<RoundOpen>, now: Time) -> Result<Vec<Action>, Error> {
        open.round().check(self.round)?;
        if let Some(Ticketed { open: known, ticket, .. }) = self.state.ticketed() {
            return if known.hash() == open.hash() {
                Ok(vec![to_aggregator(ticket)])
            } else {
                Err(Error::Conflict { what: "round-open" })
            };
        }
        let support = self.session.params(open.round()).support().digest();
        let roster = &self.session.roster;
        let message = open.message();
        if message.policy != roster.task().policy_hash() {
            return Err(Error::Policy);
        }
        if message.roster != roster.hash() {
            return Err(Error::Roster);
        }
        if message.support != support {
            return Err(Error::SupportDigest);
        }
        self.check_budget()?;
        let ticket = RoundTicket {
            open: open.hash(),
            model: message.model,
            policy: message.policy,
            roster: message.roster,
            support: message.support,
            deadline: message.deadline,
            history: self.history,
            last: self.last,
            log: self.session.log.point(),
        };
        let ticket = self.session.sign(open.round(), ticket, Vec::new());
        let record = self.session.append(TICKET, &[&open.to_bytes(), &ticket.to_bytes()]);
        let actions = vec![record, to_aggregator(&ticket)];
        self.state = State::Ticketed(Ticketed { open, ticket, since: now });
        Ok(actions)
    }

    /// Refuses further rounds once the sums that the policy allows were opened, or too many openings failed.
    fn check_budget(&self) -> Result<(), Error> {
        let config = self.session.roster.task().config();
        if self.opened >= config.rounds {
            return Err(Error::Rounds { most: config.rounds });
        }
        if self.failures >= u32::from(config.max_failures) {
            return Err(Error::Failures { most: config.max_failures });
        }
        Ok(())
    }

    fn freeze(&mut self, freeze: Signed<Freeze>, now: Time) -> Result<Vec<Action>, Error> {
        freeze.round().check(self.round)?;
        let ticketed =
            self.state.ticketed().ok_or(Error::Order { state: "the round has no ticket yet" })?.clone();
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
        let frozen = last.map_or(0, |last| last.freeze.message().attempt);
        let max = self.session.roster.task().config().max_attempts;
        if message.attempt >= 1 && message.attempt <= frozen {
            return Err(Error::Conflict { what: "freeze" });
        }
        if message.attempt != frozen + 1 || message.attempt > max {
            return Err(Error::Attempts { attempt: message.attempt, max });
        }
        check_set(&message.users, &self.session.roster)?;
        // the participants cannot have sent more positions than this
        let task = self.session.roster.task();
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
        let least = self.session.roster.task().config().collect_min;
        if now < ticketed.since.after(least.into()) {
            return Err(Error::Early { least });
        }
        // without the floor's worth of users who uploaded for this ticket, there is no sum to open
        let ticket = ticketed.ticket.hash();
        for participant in &message.users {
            participant.verify(&self.session.roster, self.round, ticket)?;
        }
        let ack =
            FreezeAck { freeze: freeze.hash(), attempt: message.attempt, log: self.session.log.point() };
        let ack = self.session.sign(freeze.round(), ack, Vec::new());
        let record = self.session.append(FREEZE, &[&freeze.to_bytes(), &ack.to_bytes()]);
        let actions = vec![record, to_aggregator(&ack)];
        self.state = State::Frozen(ticketed, Frozen { freeze, ack });
        Ok(actions)
    }

    /// Refuses participants whose sum, together with sums released on the same model, could reveal single updates: a
    /// third set, or a second one that differs from the first by fewer users than the floor.
    fn check_differences(&self, model: &Digest, users: &[Participant]) -> Result<(), Error> {
        let users: BTreeSet<UserId> = users.iter().map(|participant| participant.user).collect();
        let difference = |set: &[UserId]| {
            let common = set.iter().filter(|user| users.contains(user)).count();
            set.len() + users.len() - 2 * common
        };
        let sets = if self.released.model == *model { &self.released.sets[..] } else { &[] };
        let differences: Vec<usize> = sets.iter().map(|set| difference(set)).collect();
        match differences[..] {
            _ if differences.contains(&0) => Ok(()),
            [] => Ok(()),
            [one] if one >= self.session.roster.floor() => Ok(()),
            _ => Err(Error::SetDifference),
        }
    }

    fn commit(&mut self, request: Signed<Decrypt>, now: Time) -> Result<Vec<Action>, Error> {
        request.round().check(self.round)?;
        let ticket = self.state.ticketed().map(|ticketed| ticketed.ticket.clone());
        let params = match &ticket {
            Some(ticket) => self.session.params_of(ticket),
            None => self.session.params(self.round),
        };
        let (ticketed, frozen) = match &self.state {
            State::Idle | State::Ticketed(_) => {
                return Err(Error::Order { state: "the round is not frozen" });
            }
            State::Committed(_, _, known, _) if known.hash() == request.hash() => {
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
            return Err(Error::Order { state: "a later freeze is in force" });
        }
        if message.sum_hash != freeze.sum_hash || Digest::of_sum(request.body()) != message.sum_hash {
            return Err(Error::Equation);
        }
        if message.occupied != freeze.occupied {
            let (expected, found) = (freeze.occupied as usize, message.occupied as usize);
            return Err(Error::Count { what: "occupied positions", expected, found, user: None });
        }
        let mut sum = read_sum(params, &request, frozen)?;
        self.key_generator.check(&mut sum, self.session.threads)?;
        let record = self.session.append(COMMIT, &[&request.to_bytes()]);
        let (ticketed, frozen) = (ticketed.clone(), frozen.clone());
        self.state = State::Committed(ticketed, frozen, request, Some(Box::new(sum)));
        Ok(vec![record, Action::Wake(now)])
    }

    /// Remembers the participants of an opened sum. A failed result reveals nothing but that it failed.
    fn remember(&mut self, ticketed: &Ticketed, frozen: &Frozen, result: &Signed<RoundResult>) {
        self.opened = self.opened.saturating_add(1);
        if result.message().outcome == Outcome::Failed {
            self.failures = self.failures.saturating_add(1);
            return;
        }
        let model = ticketed.ticket.message().model;
        if self.released.model != model {
            self.released = Released { model, sets: Vec::new() };
        }
        let users = frozen.freeze.message().users.iter().map(|participant| participant.user).collect();
        if !self.released.sets.contains(&users) {
            self.released.sets.push(users);
        }
    }

    /// Opens the committed sum. After a crash, opening it again gives the same result.
    fn answer(&mut self, rng: &mut impl CryptoRng) -> Vec<Action> {
        let (ticketed, frozen, request, sum) = match core::mem::replace(&mut self.state, State::Idle) {
            State::Committed(ticketed, frozen, request, sum) => (ticketed, frozen, request, sum),
            other => {
                self.state = other;
                return Vec::new();
            }
        };
        let params = self.session.params_of(&ticketed.ticket);
        let sum = sum.map_or_else(|| read_sum(params, &request, &frozen), |sum| Ok(*sum));
        let opened = sum
            .and_then(|sum| self.key_generator.open(sum, rng, self.session.threads))
            .map(|sum| Zeroizing::new(sum.to_bytes()));
        // every failure has the same answer
        let (outcome, payload) = match opened {
            Ok(payload) => (Outcome::Released, payload),
            Err(_) => (Outcome::Failed, Zeroizing::new(Vec::new())),
        };
        let result = RoundResult {
            request: request.hash(),
            outcome,
            users: frozen.freeze.message().users.len() as u32,
            users_root: ParticipantTree::new(&frozen.freeze.message().users).root(),
            payload_hash: Digest::of_payload(&payload),
            log: self.session.log.point(),
        };
        let result = self.session.sign(request.round(), result, payload.to_vec());
        let record = self.session.append(RESULT, &[&result.to_bytes()]);
        self.remember(&ticketed, &frozen, &result);
        let actions = vec![record, to_aggregator(&result)];
        self.state = State::Answered(ticketed, frozen, Box::new(request), result);
        actions
    }

    fn close(&mut self, close: &Signed<Close>) -> Result<Vec<Action>, Error> {
        // the previous round is closed already, and its close was repeated
        if close.round().next() == self.round {
            return Ok(Vec::new());
        }
        close.round().check(self.round)?;
        let &Close { ending, publish } = close.message();
        let (ticket, outcome, root) = match &self.state {
            State::Idle => return Err(Error::Order { state: "the round has no ticket yet" }),
            State::Committed(..) => return Err(Error::Order { state: "a sum is being opened" }),
            State::Ticketed(ticketed) | State::Frozen(ticketed, _) => {
                (&ticketed.ticket, LastOutcome::NotOpened, Digest::ZERO)
            }
            State::Answered(ticketed, _, _, result) => {
                let message = result.message();
                let outcome = match message.outcome {
                    Outcome::Released => LastOutcome::Released,
                    Outcome::Failed => LastOutcome::Failed,
                };
                (&ticketed.ticket, outcome, message.users_root)
            }
        };
        if ending.outcome() != outcome || (ending == Ending::Published) == (publish == Digest::ZERO) {
            return Err(Error::Ending);
        }
        let published = (ending == Ending::Published).then_some((publish, root));
        self.history = history::next(self.history, &self.session.roster, ticket, ending, published);
        self.last = outcome;
        self.round = self.round.next();
        self.state = State::Idle;
        self.key_generator.advance(self.round);
        self.follow_rosters();
        let checkpoint = self.write_checkpoint();
        Ok(vec![self.session.checkpoint(checkpoint)])
    }

    /// Signs a roster that replaces the latest one from the next round on, and draws the seeds that come with it.
    ///
    /// # Errors
    /// The errors of [`Roster::changed`]. Nothing has changed then.
    pub fn change_roster(
        &mut self,
        edits: &RosterEdits,
        rng: &mut impl CryptoRng,
    ) -> Result<ChangedRoster, Error> {
        let previous = self.session.rosters.latest();
        let next = if matches!(self.state, State::Idle) { self.round } else { self.round.next() };
        let roster = previous.changed(edits, next.max(previous.first_round()), self.session.identity())?;
        let seeds = NewSeeds::generate(&roster, previous, rng);
        let mut masks = self.key_generator.mask_seeds().clone();
        masks.extend(self.next_seeds.iter().flat_map(|next| next.masks.clone()));
        let change = RosterChange::new(roster, previous, &masks, &seeds, self.session.identity(), rng)?;
        let user_keys = self.user_keys(&seeds);
        let NewSeeds { us, masks, .. } = seeds;
        let mut stored = Writer::new();
        for (user, seed) in &masks {
            stored.put(user);
            stored.bytes(seed.to_parts().1);
        }
        let (stored, hash) = (Zeroizing::new(stored.into_bytes()), change.roster().hash());
        self.session.rosters.push(change.clone());
        self.next_seeds.push_back(NextSeeds { roster: hash, us: us.clone(), masks });
        let action = if matches!(self.state, State::Idle) && self.follow_rosters() {
            let checkpoint = self.write_checkpoint();
            self.session.checkpoint(checkpoint)
        } else {
            self.session.append(ROSTER, &[hash.as_bytes(), us.to_parts().1, &stored])
        };
        Ok(ChangedRoster { change, user_keys, actions: vec![action] })
    }

    /// Returns the keys of the users with a new identity.
    fn user_keys(&self, seeds: &NewSeeds) -> Vec<UserKeys> {
        let keys = |(&user, mask): (&UserId, &MaskSeed)| {
            let (ua, mask) = (seeds.ua.get(&user)?.clone(), mask.clone());
            let (task, encryption) =
                (self.key_generator.task().clone(), self.key_generator.encryption_key().clone());
            Some(UserKeys { task, user, encryption, us: seeds.us.clone(), ua, mask })
        };
        seeds.masks.iter().filter_map(keys).collect()
    }

    /// Puts the rosters into force that are due in the current round. Returns whether there were any. The caller
    /// writes a checkpoint.
    fn follow_rosters(&mut self) -> bool {
        let before = self.next_seeds.len();
        while let Some(change) = self.session.due(self.round) {
            // `check_changes` has compared the seeds with the rosters
            let Some(NextSeeds { us, masks, .. }) = self.next_seeds.pop_front() else { break };
            self.session.put_in_force(&change);
            self.key_generator.renew(change.roster(), us, masks);
            self.history = history::with_roster(self.history, change.roster().hash());
        }
        self.next_seeds.len() < before
    }

    /// Checks that the log holds the seeds of all later rosters, and of no others.
    fn check_changes(&self) -> Result<(), Error> {
        let mut later = self.session.changes().map(|change| change.roster());
        let idle = matches!(self.state, State::Idle);
        if later
            .any(|roster| roster.first_round() < self.round || (roster.first_round() == self.round && !idle))
        {
            return Err(ROSTER_TOO_LATE);
        }
        let later = self.session.changes().map(|change| change.roster().hash());
        if later.eq(self.next_seeds.iter().map(|next| next.roster)) {
            Ok(())
        } else {
            Err(Error::Storage { reason: "the log does not hold the seeds of a later roster" })
        }
    }

    /// Reads the seeds of a roster that is not in force yet.
    fn read_seeds(&self, record: &Record<'_>) -> Result<NextSeeds, Error> {
        let hash: Digest = Reader::new(record.bytes(0)?).get()?;
        let unknown = Error::Storage { reason: "the log belongs to another roster of this task" };
        let roster = self.session.rosters.iter().find(|roster| roster.hash() == hash).ok_or(unknown)?;
        let first = roster.first_round();
        let us = UserSharedSeed::from_parts(first, Reader::new(record.bytes(1)?).get()?);
        let (mut input, mut masks) = (Reader::new(record.bytes(2)?), BTreeMap::new());
        while !input.rest().is_empty() {
            masks.insert(input.get()?, MaskSeed::from_parts(first, input.get()?));
        }
        Ok(NextSeeds { roster: hash, us, masks })
    }

    fn write_checkpoint(&self) -> Writer {
        let mut out = Writer::new();
        out.put(&self.round);
        let (round, key) = self.key_generator.user_shared_seed().to_parts();
        out.put(&round);
        out.put(key);
        let masks = self.key_generator.mask_seeds();
        out.u32(masks.len() as u32);
        for (user, seed) in masks {
            let (round, key) = seed.to_parts();
            out.put(user);
            out.put(&round);
            out.put(key);
        }
        out.put(&self.history);
        out.put(&self.last);
        out.u32(self.opened);
        out.u32(self.failures);
        out.put(&self.released.model);
        for users in &self.released.sets {
            out.u32(users.len() as u32);
            users.iter().for_each(|user| out.put(user));
        }
        out
    }
}

/// Reads the seeds in a checkpoint.
fn read_seeds(input: &mut Reader<'_>) -> Result<(UserSharedSeed, BTreeMap<UserId, MaskSeed>), Error> {
    let us = UserSharedSeed::from_parts(input.get()?, input.get()?);
    let count = input.u32()?;
    let mut masks = BTreeMap::new();
    for _ in 0..count {
        masks.insert(input.get()?, MaskSeed::from_parts(input.get()?, input.get()?));
    }
    Ok((us, masks))
}

impl KeyGenerator {
    /// Returns the key generator whose seeds are in its log.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log belongs to another party or task, is damaged, or does not begin with a checkpoint.
    /// [`Error::Key`] if the decryption key does not have the task's length and noise mode.
    pub fn from_log(log: &[u8], key: DecryptionKey, rosters: &Rosters) -> Result<Self, Error> {
        let (round, us, masks) = stored_seeds(log, PartyId::KeyGenerator, rosters, |input| {
            let round = input.get()?;
            let (us, masks) = read_seeds(input)?;
            Ok((round, us, masks))
        })?;
        Self::from_parts(rosters.first().task().clone(), key, us, masks, round)
    }
}

impl Recover for KeyGeneratorParty {
    fn read_checkpoint(&mut self, input: &mut Reader<'_>) -> Result<(), Error> {
        self.round = input.get()?;
        let (us, masks) = read_seeds(input)?;
        self.key_generator.resume(us, masks, self.round);
        self.history = input.get()?;
        self.last = input.get()?;
        self.opened = input.get()?;
        self.failures = input.get()?;
        self.released = Released { model: input.get()?, sets: Vec::new() };
        while !input.rest().is_empty() {
            let count = input.u32()?;
            let users = (0..count).map(|_| input.get()).collect::<Result<_, _>>()?;
            self.released.sets.push(users);
        }
        Ok(())
    }

    fn replay(&mut self, tag: u8, record: &Record<'_>, now: Time) -> Result<(), Error> {
        if tag == ROSTER {
            let seeds = self.read_seeds(record)?;
            self.next_seeds.push_back(seeds);
            return Ok(());
        }
        let roster = &self.session.roster;
        let state = core::mem::replace(&mut self.state, State::Idle);
        self.state = match (tag, state) {
            (TICKET, State::Idle) => State::Ticketed(Ticketed {
                open: record.message(0, roster)?,
                ticket: record.message(1, roster)?,
                since: now,
            }),
            (FREEZE, State::Ticketed(ticketed) | State::Frozen(ticketed, _)) => {
                let frozen = Frozen { freeze: record.message(0, roster)?, ack: record.message(1, roster)? };
                State::Frozen(ticketed, frozen)
            }
            (COMMIT, State::Frozen(ticketed, frozen)) => {
                State::Committed(ticketed, frozen, record.message(0, roster)?, None)
            }
            (RESULT, State::Committed(ticketed, frozen, request, _)) => {
                let result = record.message(0, roster)?;
                self.remember(&ticketed, &frozen, &result);
                State::Answered(ticketed, frozen, Box::new(request), result)
            }
            _ => return Err(OUT_OF_SEQUENCE),
        };
        Ok(())
    }

    fn resume(&mut self, now: Time, actions: &mut Vec<Action>) -> Result<(), Error> {
        self.check_changes()?;
        if self.follow_rosters() {
            let checkpoint = self.write_checkpoint();
            actions.push(self.session.checkpoint(checkpoint));
        }
        if let State::Committed(..) = self.state {
            actions.push(Action::Wake(now));
        }
        Ok(())
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
    Action::Send { to: PartyId::Aggregator, message: message.to_bytes() }
}

fn read_sum(
    params: Arc<RoundParams>,
    request: &Signed<Decrypt>,
    frozen: &Frozen,
) -> Result<SealedSum, Error> {
    let listed = &frozen.freeze.message().users;
    let (users, salts) = listed.iter().map(|participant| (participant.user, participant.salt)).unzip();
    let occupied = request.message().occupied;
    SealedSum::from_bytes(request.body(), &SumParams { params, users, salts, occupied })
}
