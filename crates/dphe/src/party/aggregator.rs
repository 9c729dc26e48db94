//! The aggregator. In each round it asks for a ticket, collects uploads, freezes the sum, has it opened, publishes the
//! new model and closes the round.

mod ended;
mod intake;
mod recovery;

pub use ended::{EndedRound, PublishedSum};
pub use intake::{Checked, Intake, IntakeRound};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dphe_paillier::Threads;

use rand_core::CryptoRng;

use super::context::{ROSTER_TOO_LATE, Session};
use super::{Action, Notice, Party, PartyContext, RETRY, RETRY_REQUEST, Time};
use crate::hash::Digest;
use crate::names::named_enum;
use crate::party::log::{Log, LogPoint};
use crate::scheme::RoundParams;
use crate::scheme::permutation::UserAggregatorSeed;
use crate::wire::{
    AgreementKey, Close, Decrypt, Encode as _, Ending, Freeze, FreezeAck, Header, Kind, Participant,
    ParticipantTree, Publish, RosterChange, Rosters, RoundOpen, RoundResult, RoundTicket, SEAL_BYTES, Signed,
    SumContext, Upload, UploadAck, UploadName, UploadParams, Writer,
};
use crate::{
    Aggregator, AggregatorKeys, Blinds, Collecting, Error, IdentityKey, OpenedSum, Overlap, PartyId, Roster,
    Round, SealedUpdate, UserId,
};

/// An event of an aggregator.
#[derive(Debug)]
pub enum AggregatorEvent {
    /// Start the next round.
    Start {
        /// The digest of the model that the round starts from.
        model: Digest,
        /// How long to collect updates, in milliseconds.
        deadline: u64,
    },
    /// A message has arrived.
    Message(Vec<u8>),
    /// A user asks about the round.
    Poll {
        /// The user.
        user: UserId,
        /// The round that the user is in or waits for.
        round: Round,
    },
    /// The new model, computed from the sum of the round.
    NewModel {
        /// The round.
        round: Round,
        /// The model.
        model: Vec<u8>,
    },
    /// Give up the opened sum of a round, because it is too large.
    Reject {
        /// The round.
        round: Round,
    },
    /// Freeze the round with the updates that replicas collected, each with an [`Intake`].
    Collected {
        /// Their sum.
        collected: Box<Collecting>,
        /// The participants.
        uploads: Vec<Participant>,
    },
    /// Freeze the round now, without waiting for more uploads.
    Freeze,
    /// Abort the round, after its ticket and before its sum is requested.
    Abort,
    /// The time that [`Action::Wake`] asked for has come.
    Tick,
}

named_enum! {
    /// The phase of an aggregator's round.
    pub enum AggregatorPhase {
        /// No round is running.
        Idle = "idle",
        /// The round is announced; the key generator has not sent its ticket yet.
        Announced = "announced",
        /// Users upload.
        Collecting = "collecting",
        /// Participants and sealed sum are fixed; the key generator has not confirmed them yet.
        Frozen = "frozen",
        /// The key generator was asked to open the sum.
        Requested = "requested",
        /// The sum is open; the new model has not been made yet.
        Received = "received",
    }
}

/// The aggregator of a task as a state machine.
#[derive(Debug)]
pub struct AggregatorParty {
    session: Session,
    aggregator: Aggregator,
    agreement: AgreementKey,
    /// The current round, or the next one.
    round: Round,
    state: State,
    /// How the last round ended, for users who ask later.
    last: Option<EndedRound>,
    /// The last known point of the key generator's log.
    seen: Option<LogPoint>,
    /// The rosters that come into force later, with the seeds of users with a new identity.
    next_rosters: VecDeque<(Arc<RosterChange>, BTreeMap<UserId, UserAggregatorSeed>)>,
}

#[derive(Debug)]
enum State {
    Idle,
    Announced(Signed<RoundOpen>),
    Collecting(Box<Collection>),
    Frozen(FrozenRound, Signed<Freeze>, Vec<u8>),
    Requested(FrozenRound, Signed<Freeze>, Signed<Decrypt>),
    /// The sum as it will be published is absent if opening failed.
    Received(FrozenRound, Signed<Freeze>, Signed<RoundResult>, Option<Vec<u8>>),
    /// The end of the round is stored, but its checkpoint is not.
    Ended,
}

/// A round after its freeze.
#[derive(Debug)]
struct FrozenRound {
    ticket: Signed<RoundTicket>,
    overlap: Option<Overlap>,
    uploads: BTreeMap<UserId, Participant>,
    blinds: Blinds,
}

/// A round whose uploads are being collected.
#[derive(Debug)]
struct Collection {
    ticket: Signed<RoundTicket>,
    collecting: Collecting,
    uploads: BTreeMap<UserId, Participant>,
    /// The key generator accepts no freeze before this time.
    earliest: Time,
    deadline: Time,
}

const OPEN: u8 = 1;
const TICKET: u8 = 2;
const UPLOAD: u8 = 3;
const FREEZE: u8 = 4;
const DECRYPT: u8 = 5;
const RESULT: u8 = 6;
const END: u8 = 7;
/// A freeze with its sum, because the log does not hold the uploads.
const COLLECTED: u8 = 8;

impl Party for AggregatorParty {
    type Keys = AggregatorKeys;
    type Event = AggregatorEvent;
    type Phase = AggregatorPhase;

    fn start(
        keys: AggregatorKeys,
        context: PartyContext<'_>,
        now: Time,
    ) -> Result<(Self, Vec<Action>), Error> {
        check_keys(
            &keys,
            &context.rosters,
            Log::roster_of(PartyId::Aggregator, &context.rosters, context.log),
        )?;
        let (session, recovery) = Session::open(PartyId::Aggregator, context)?;
        let agreement = agreement_key(session.identity(), &session.roster)?;
        let party = Self {
            session,
            aggregator: Aggregator::new(keys)?,
            agreement,
            round: Round::FIRST,
            state: State::Idle,
            last: None,
            seen: None,
            next_rosters: VecDeque::new(),
        };
        recovery.run(party, now)
    }

    fn start_new(
        keys: AggregatorKeys,
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
        event: AggregatorEvent,
        now: Time,
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<Action>, Error> {
        match event {
            AggregatorEvent::Start { model, deadline } => self.announce_round(model, deadline, now, rng),
            AggregatorEvent::Poll { user, round } => self.poll(user, round),
            AggregatorEvent::NewModel { round, model } => self.publish(round, &model),
            AggregatorEvent::Reject { round } => self.reject(round),
            AggregatorEvent::Collected { collected, uploads } => {
                self.collected_elsewhere(*collected, &uploads, now)
            }
            AggregatorEvent::Freeze => self.freeze_early(now),
            AggregatorEvent::Abort => self.abort(),
            AggregatorEvent::Tick => self.on_tick(now),
            AggregatorEvent::Message(bytes) => match Header::peek(&bytes)?.kind {
                Kind::RoundTicket => self.ticket(self.session.read(&bytes)?, now),
                Kind::Upload => self.upload(&self.session.read(&bytes)?, now),
                Kind::FreezeAck => self.freeze_ack(&self.session.read(&bytes)?, now),
                Kind::RoundResult => self.result(self.session.read(&bytes)?),
                _ => Err(Error::Version),
            },
        }
    }

    fn message(bytes: Vec<u8>) -> AggregatorEvent {
        AggregatorEvent::Message(bytes)
    }

    fn tick() -> AggregatorEvent {
        AggregatorEvent::Tick
    }

    fn roster(&self) -> &Roster {
        &self.session.roster
    }

    fn round(&self) -> Round {
        self.round
    }

    fn phase(&self) -> AggregatorPhase {
        match self.state {
            State::Idle | State::Ended => AggregatorPhase::Idle,
            State::Announced(_) => AggregatorPhase::Announced,
            State::Collecting(_) => AggregatorPhase::Collecting,
            State::Frozen(..) => AggregatorPhase::Frozen,
            State::Requested(..) => AggregatorPhase::Requested,
            State::Received(..) => AggregatorPhase::Received,
        }
    }
}

/// Checks that the aggregator's keys are those of the task, and of all users of the roster that is in force. Keys from
/// a log do not have the users who left before, and keys from a kit do.
fn check_keys(keys: &AggregatorKeys, rosters: &Rosters, in_force: &Roster) -> Result<(), Error> {
    in_force.check_task(&keys.task, &keys.encryption)?;
    let complete = in_force.users().all(|user| keys.ua.contains_key(&user));
    let known = keys.ua.keys().all(|&user| rosters.first().contains(user));
    if complete && known { Ok(()) } else { Err(Error::Roster) }
}

/// Returns the key that uploads under this roster are decrypted with.
fn agreement_key(identity: &IdentityKey, roster: &Roster) -> Result<AgreementKey, Error> {
    let key = identity.agreement_key();
    if key.public() == *roster.agreement() { Ok(key) } else { Err(Error::Roster) }
}

impl AggregatorParty {
    /// Returns whether no round is running.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Returns the users whose updates of the current round are stored.
    pub fn collected(&self) -> Vec<UserId> {
        self.state.uploads().map(|uploads| uploads.keys().copied().collect()).unwrap_or_default()
    }

    /// Returns empty sums of the current round. Partial sums that replicas collected are added to them and handed in
    /// as [`AggregatorEvent::Collected`].
    pub fn empty(&mut self) -> Collecting {
        let params = match self.state.ticket().cloned() {
            Some(ticket) => self.session.params_of(&ticket),
            None => self.session.params(self.round),
        };
        self.aggregator.begin_in(params)
    }

    /// Returns the ticket of the current round, if it has arrived.
    pub fn current_ticket(&self) -> Option<&Signed<RoundTicket>> {
        self.state.ticket()
    }

    /// Returns the last round that ended.
    pub fn ended(&self) -> Option<&EndedRound> {
        self.last.as_ref()
    }

    fn announce_round(
        &mut self,
        model: Digest,
        deadline: u64,
        now: Time,
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<Action>, Error> {
        if !self.is_idle() {
            return Err(Error::Order { state: "a round is already running" });
        }
        let support = self.session.params(self.round).support().digest();
        let task = self.session.roster.task();
        let mut nonce = [0; 16];
        rng.fill_bytes(&mut nonce);
        let open = RoundOpen {
            model,
            policy: task.policy_hash(),
            roster: self.session.roster.hash(),
            support,
            deadline,
            nonce,
        };
        let open = self.session.sign(self.round, open, Vec::new());
        let mut actions = vec![self.session.append(OPEN, &[&open.to_bytes()])];
        self.state = State::Announced(open);
        self.send_again(now, &mut actions);
        Ok(actions)
    }

    fn ticket(&mut self, ticket: Signed<RoundTicket>, now: Time) -> Result<Vec<Action>, Error> {
        ticket.round().check(self.round)?;
        let State::Announced(open) = &self.state else {
            return match self.state.ticket() {
                Some(known) if known.hash() == ticket.hash() => Ok(Vec::new()),
                Some(_) => Err(Error::Conflict { what: "ticket" }),
                None => Err(Error::Order { state: "no round has been announced" }),
            };
        };
        let (asked, given) = (open.message(), ticket.message());
        let same = given.open == open.hash()
            && given.model == asked.model
            && given.policy == asked.policy
            && given.roster == asked.roster
            && given.support == asked.support
            && given.deadline == asked.deadline;
        if !same {
            return Err(Error::Ticket);
        }
        LogPoint::follow(&mut self.seen, given.log)?;
        let mut actions = vec![self.session.append(TICKET, &[&ticket.to_bytes()])];
        actions.push(Action::Announce(ticket.to_bytes()));
        self.collect(ticket, now);
        self.send_again(now, &mut actions);
        Ok(actions)
    }

    fn collect(&mut self, ticket: Signed<RoundTicket>, now: Time) {
        let least = self.session.roster.task().config().collect_min;
        let deadline = now.after(ticket.message().deadline.max(least.into()));
        let collecting = self.aggregator.begin_in(self.session.params_of(&ticket));
        self.state = State::Collecting(Box::new(Collection {
            ticket,
            collecting,
            uploads: BTreeMap::new(),
            earliest: now.after(least.into()),
            deadline,
        }));
    }

    fn upload(&mut self, upload: &Signed<Upload>, now: Time) -> Result<Vec<Action>, Error> {
        let PartyId::User(user) = upload.from() else { return Err(Error::Signature) };
        upload.round().check(self.round)?;
        let message = upload.message();
        let known = self.state.uploads().and_then(|uploads| uploads.get(&user));
        if known.is_some_and(|known| known.body_hash == message.body_hash)
            && self.state.ticket().map(Signed::hash) == Some(message.ticket)
        {
            return Ok(vec![self.ack(user, message.body_hash)]);
        }
        let round = self.round;
        let collection = match &mut self.state {
            State::Idle | State::Announced(_) => {
                return Err(Error::Order { state: "the round has no ticket yet" });
            }
            State::Collecting(collection) => collection,
            _ => return Err(Error::Late { round }),
        };
        collection.add_upload(upload, user, &self.session.roster, &self.agreement, self.session.threads)?;
        let mut actions =
            vec![self.session.append(UPLOAD, &[&upload.to_bytes()]), self.ack(user, message.body_hash)];
        if self.is_complete() {
            self.freeze_or_wait(now, &mut actions);
        }
        Ok(actions)
    }

    fn ack(&self, user: UserId, body_hash: Digest) -> Action {
        let ack = self.session.sign(self.round, UploadAck { body_hash }, Vec::new());
        Action::Send { to: PartyId::User(user), message: ack.to_bytes() }
    }

    /// Returns whether all users have uploaded.
    fn is_complete(&self) -> bool {
        let roster = &self.session.roster;
        let all = roster.users().len().min(roster.task().max_users());
        matches!(&self.state, State::Collecting(collection) if collection.uploads.len() == all)
    }

    /// Freezes the round, or waits until the key generator accepts it.
    fn freeze_or_wait(&mut self, now: Time, actions: &mut Vec<Action>) {
        match &self.state {
            State::Collecting(collection) if now < collection.earliest => {
                actions.push(Action::Wake(collection.earliest));
            }
            _ => self.freeze(now, actions),
        }
    }

    fn on_tick(&mut self, now: Time) -> Result<Vec<Action>, Error> {
        let mut actions = Vec::new();
        if self.is_complete() {
            self.freeze_or_wait(now, &mut actions);
            return Ok(actions);
        }
        if let State::Collecting(collection) = &self.state
            && now >= collection.deadline
        {
            if collection.uploads.len() >= self.session.roster.floor() {
                self.freeze(now, &mut actions);
            } else {
                self.end(Ending::Aborted, None, &mut actions);
            }
            return Ok(actions);
        }
        self.send_again(now, &mut actions);
        Ok(actions)
    }

    fn freeze_early(&mut self, now: Time) -> Result<Vec<Action>, Error> {
        let State::Collecting(collection) = &self.state else {
            return Err(Error::Order { state: "no updates are being collected" });
        };
        let (users, floor) = (collection.uploads.len(), self.session.roster.floor());
        if users < floor {
            return Err(Error::SetSmall { users, floor });
        }
        if now < collection.earliest {
            return Err(Error::Early { least: self.session.roster.task().config().collect_min });
        }
        let mut actions = Vec::new();
        self.freeze(now, &mut actions);
        Ok(actions)
    }

    /// Freezes the participants and the sum.
    fn freeze(&mut self, now: Time, actions: &mut Vec<Action>) {
        let Some((round, freeze, body)) = self.take_sum() else { return };
        actions.push(self.session.append(FREEZE, &[&freeze.to_bytes()]));
        self.state = State::Frozen(round, freeze, body);
        self.send_again(now, actions);
    }

    fn collected_elsewhere(
        &mut self,
        collected: Collecting,
        uploads: &[Participant],
        now: Time,
    ) -> Result<Vec<Action>, Error> {
        let State::Collecting(collection) = &mut self.state else {
            return Err(Error::Order { state: "no updates are being collected" });
        };
        if !collection.uploads.is_empty() {
            return Err(Error::Order { state: "this aggregator collects the updates of the round itself" });
        }
        collected.round().check(self.round)?;
        let (users, floor) = (collected.users().len(), self.session.roster.floor());
        if users < floor {
            return Err(Error::SetSmall { users, floor });
        }
        collected.check_count()?;
        let by_user: BTreeMap<UserId, Participant> = uploads.iter().map(|p| (p.user, *p)).collect();
        if by_user.len() != uploads.len() || !by_user.keys().copied().eq(collected.users()) {
            return Err(Error::Storage { reason: "the users of the sum are not the listed participants" });
        }
        (collection.collecting, collection.uploads) = (collected, by_user);
        let Some((round, freeze, body)) = self.take_sum() else {
            return Err(Error::SetSmall { users, floor });
        };
        let blinds = round.blinds.to_secret_bytes();
        let mut actions = vec![self.session.append(COLLECTED, &[&freeze.to_bytes(), &body, &blinds])];
        self.state = State::Frozen(round, freeze, body);
        self.send_again(now, &mut actions);
        Ok(actions)
    }

    /// Turns the collected updates into a sum and signs its freeze. Does nothing if they are below the floor.
    fn take_sum(&mut self) -> Option<(FrozenRound, Signed<Freeze>, Vec<u8>)> {
        let State::Collecting(collection) = core::mem::replace(&mut self.state, State::Idle) else {
            return None;
        };
        let Collection { ticket, collecting, uploads, earliest, deadline } = *collection;
        let overlap = Some(collecting.overlap());
        match collecting.finish(self.session.threads) {
            Err(still) => {
                let collecting = *still.collecting;
                self.state = State::Collecting(Box::new(Collection {
                    ticket,
                    collecting,
                    uploads,
                    earliest,
                    deadline,
                }));
                None
            }
            Ok(mut sum) => {
                let (body, blinds) = (sum.to_bytes(), sum.take_blinds());
                let freeze = Freeze {
                    ticket: ticket.hash(),
                    attempt: 1,
                    sum_hash: Digest::of_sum(&body),
                    occupied: sum.occupied() as u32,
                    users: uploads.values().copied().collect(),
                };
                let freeze = self.session.sign(self.round, freeze, Vec::new());
                Some((FrozenRound { ticket, overlap, uploads, blinds }, freeze, body))
            }
        }
    }

    fn freeze_ack(&mut self, ack: &Signed<FreezeAck>, now: Time) -> Result<Vec<Action>, Error> {
        ack.round().check(self.round)?;
        let freeze = match &self.state {
            State::Frozen(_, freeze, _)
            | State::Requested(_, freeze, _)
            | State::Received(_, freeze, _, _) => freeze,
            _ => return Err(Error::Order { state: "the round is not frozen" }),
        };
        if ack.message().freeze != freeze.hash() || ack.message().attempt != freeze.message().attempt {
            return Err(Error::Conflict { what: "freeze" });
        }
        LogPoint::check(self.seen, ack.message().log).or_else(|error| {
            // a delayed acknowledgement may name an earlier point of the log
            if matches!(self.state, State::Frozen(..)) { Err(error) } else { Ok(()) }
        })?;
        let State::Frozen(..) = self.state else { return Ok(Vec::new()) };
        LogPoint::follow(&mut self.seen, ack.message().log)?;
        let State::Frozen(round, freeze, body) = core::mem::replace(&mut self.state, State::Idle) else {
            return Ok(Vec::new());
        };
        let request = Decrypt {
            freeze: freeze.hash(),
            occupied: freeze.message().occupied,
            sum_hash: freeze.message().sum_hash,
        };
        let request = self.session.sign(self.round, request, body);
        let mut actions = vec![self.session.append(DECRYPT, &[&request.to_bytes(), &ack.to_bytes()])];
        self.state = State::Requested(round, freeze, request);
        self.send_again(now, &mut actions);
        Ok(actions)
    }

    fn result(&mut self, result: Signed<RoundResult>) -> Result<Vec<Action>, Error> {
        result.round().check(self.round)?;
        let (freeze, request) = match &self.state {
            State::Requested(_, freeze, request) => (freeze, request),
            State::Received(_, _, known, _) => {
                return if known.hash() == result.hash() {
                    Ok(Vec::new())
                } else {
                    Err(Error::Conflict { what: "result" })
                };
            }
            _ => return Err(Error::Order { state: "no sum has been requested" }),
        };
        let message = result.message();
        if message.request != request.hash() {
            return Err(Error::Conflict { what: "request" });
        }
        let (expected, found) = (freeze.message().users.len(), message.users as usize);
        if expected != found {
            return Err(Error::Count { what: "users", expected, found, user: None });
        }
        if message.users_root != ParticipantTree::new(&freeze.message().users).root() {
            return Err(Error::Proof);
        }
        let ticket = self.state.ticket().cloned().ok_or(Error::Ticket)?;
        let opened = self.read_result(&ticket, &result)?;
        LogPoint::follow(&mut self.seen, result.message().log)?;
        let State::Requested(round, freeze, _) = core::mem::replace(&mut self.state, State::Idle) else {
            return Ok(Vec::new());
        };
        let mut actions = vec![self.session.append(RESULT, &[&result.to_bytes()])];
        self.state = State::Received(round, freeze, result, None);
        self.hand_on(opened, &mut actions);
        Ok(actions)
    }

    fn read_result(
        &mut self,
        ticket: &Signed<RoundTicket>,
        result: &Signed<RoundResult>,
    ) -> Result<Option<OpenedSum>, Error> {
        let params = self.session.params_of(ticket);
        let (users, key) = (result.message().users as usize, self.aggregator.encryption_key());
        result.sum_in(&SumContext { params: &params, users, key })
    }

    /// Removes the masks and hands the sum to the program, or ends a round without a usable one.
    fn hand_on(&mut self, opened: Option<OpenedSum>, actions: &mut Vec<Action>) {
        let State::Received(round, _, _, published) = &mut self.state else { return };
        let Some(opened) = opened else { return self.end(Ending::Failed, None, actions) };
        let read = match opened {
            OpenedSum::Clear(sum) => Ok((sum.to_bytes(), sum)),
            OpenedSum::Masked(masked) => masked
                .unmask(&self.aggregator, &round.blinds)
                .and_then(|sum| Ok((sum.to_bytes(), sum.decode_unchecked(&self.aggregator)?))),
        };
        match read {
            Ok((bytes, sum)) => {
                *published = Some(bytes);
                actions.push(Action::Notify(Notice::Opened { sum, overlap: round.overlap }));
            }
            // an upload was invalid
            Err(_) => self.end(Ending::Rejected, None, actions),
        }
    }

    fn publish(&mut self, round: Round, model: &[u8]) -> Result<Vec<Action>, Error> {
        round.check(self.round)?;
        let State::Received(_, _, result, Some(sum)) = &self.state else {
            return Err(Error::Order { state: "the round has no opened sum" });
        };
        if model.len() > self.session.roster.task().config().max_model_bytes as usize {
            return Err(Error::Size { what: "the model" });
        }
        let publish = Publish {
            result: result.head().clone(),
            model: Digest::of_model(model),
            sum_hash: Digest::of_payload(sum),
        };
        let publish = self.session.sign(self.round, publish, sum.clone());
        let mut actions = Vec::new();
        self.end(Ending::Published, Some(publish), &mut actions);
        Ok(actions)
    }

    fn reject(&mut self, round: Round) -> Result<Vec<Action>, Error> {
        round.check(self.round)?;
        let State::Received(..) = &self.state else {
            return Err(Error::Order { state: "the round has no opened sum" });
        };
        let mut actions = Vec::new();
        self.end(Ending::Rejected, None, &mut actions);
        Ok(actions)
    }

    fn abort(&mut self) -> Result<Vec<Action>, Error> {
        let mut actions = Vec::new();
        match self.state {
            State::Collecting(_) | State::Frozen(..) => {
                self.end(Ending::Aborted, None, &mut actions);
                Ok(actions)
            }
            // the key generator may not know the round yet, and would not follow to the next one
            State::Announced(_) => Err(Error::Order { state: "the ticket of the round has not arrived" }),
            _ => Err(Error::Order { state: "there is no round that can be aborted" }),
        }
    }

    fn end(&mut self, ending: Ending, publish: Option<Signed<Publish>>, actions: &mut Vec<Action>) {
        let Some(ticket) = self.state.ticket().cloned() else { return };
        let users = match (&publish, &self.state) {
            (Some(_), State::Received(_, freeze, ..)) => freeze.message().users.clone(),
            _ => Vec::new(),
        };
        let hash = publish.as_ref().map_or(Digest::ZERO, Signed::hash);
        let close = self.session.sign(self.round, Close { ending, publish: hash }, Vec::new());
        let ended = EndedRound::new(ticket, close, publish, users);
        let mut out = Writer::new();
        ended.write(&mut out);
        actions.push(self.session.append(END, &[out.as_bytes()]));
        self.last = Some(ended);
        self.state = State::Ended;
        self.finish(actions);
    }

    /// Announces the end of the round, and replaces the log by a checkpoint.
    fn finish(&mut self, actions: &mut Vec<Action>) {
        let Some(ended) = &self.last else { return };
        let (close, ending) = (ended.close().to_bytes(), ended.close().message().ending);
        // users fetch the sum themselves, so that not all of them get it at once
        actions.push(Action::Announce(close.clone()));
        actions.push(Action::Send { to: PartyId::KeyGenerator, message: close });
        let round = self.round;
        self.round = round.next();
        self.state = State::Idle;
        self.aggregator.advance(self.round);
        self.follow_rosters();
        let checkpoint = self.write_checkpoint();
        actions.push(self.session.checkpoint(checkpoint));
        actions.push(Action::Notify(Notice::Finished {
            round,
            ending: Some(ending),
            included: false,
            model: None,
        }));
    }

    /// Puts the rosters into force that are due in the current round. Returns whether there were any. The caller
    /// writes a checkpoint.
    fn follow_rosters(&mut self) -> bool {
        let before = self.next_rosters.len();
        let round = self.round;
        let due = |(change, _): &(Arc<RosterChange>, _)| change.roster().first_round() <= round;
        while self.next_rosters.front().is_some_and(due)
            && let Some((change, seeds)) = self.next_rosters.pop_front()
        {
            self.session.put_in_force(&change);
            self.aggregator.renew(change.roster(), seeds);
            self.agreement = self.session.identity().agreement_key();
        }
        self.next_rosters.len() < before
    }

    /// Reads the seeds of later rosters, so that nothing can fail when they come into force.
    fn read_changes(&mut self) -> Result<(), Error> {
        for change in self.session.changes() {
            let roster = change.roster();
            // the key generator gives no ticket under the old roster any more
            let open = matches!(self.state, State::Idle | State::Announced(_));
            if roster.first_round() < self.round || (roster.first_round() == self.round && !open) {
                return Err(ROSTER_TOO_LATE);
            }
            let key = agreement_key(self.session.identity_in(roster)?, roster)?;
            self.next_rosters.push_back((change.clone(), change.user_aggregator_seeds(&key)?));
        }
        Ok(())
    }

    /// Answers a user with the end of the last round if that is the user's round, and with the ticket of the current
    /// one. The program answers users who are farther behind from its archive.
    fn poll(&self, user: UserId, round: Round) -> Result<Vec<Action>, Error> {
        if !self.session.roster.contains(user) {
            return Err(Error::UnknownUser(user));
        }
        let mut messages = Vec::new();
        if let Some(ended) = self.last.as_ref().filter(|ended| ended.round() == round) {
            let roster = self.session.roster_of(round);
            messages.extend(ended.inclusion(user, self.session.identity_in(roster)?, roster));
            messages.extend(ended.messages());
        }
        if let State::Collecting(collection) = &self.state {
            messages.push(collection.ticket.to_bytes());
        }
        let to = PartyId::User(user);
        Ok(messages.into_iter().map(|message| Action::Send { to, message }).collect())
    }

    /// Sends messages again that the key generator has not answered.
    fn send_again(&self, now: Time, actions: &mut Vec<Action>) {
        let to = PartyId::KeyGenerator;
        match &self.state {
            State::Idle | State::Received(..) | State::Ended => return,
            State::Announced(open) => {
                // the close of the previous round may have been lost
                let last = self.last.iter().map(|ended| ended.close().to_bytes());
                actions.extend(last.chain([open.to_bytes()]).map(|message| Action::Send { to, message }));
            }
            State::Collecting(collection) => {
                actions.push(Action::Wake(collection.deadline));
                return;
            }
            State::Frozen(_, freeze, _) => actions.push(Action::Send { to, message: freeze.to_bytes() }),
            State::Requested(_, _, request) => {
                actions.push(Action::Send { to, message: request.to_bytes() });
                actions.push(Action::Wake(now.after(RETRY_REQUEST)));
                return;
            }
        }
        actions.push(Action::Wake(now.after(RETRY)));
    }
}

impl Collection {
    fn add_upload(
        &mut self,
        upload: &Signed<Upload>,
        user: UserId,
        roster: &Roster,
        agreement: &AgreementKey,
        threads: Threads,
    ) -> Result<(), Error> {
        if self.uploads.contains_key(&user) {
            return Err(Error::Conflict { what: "upload of this user" });
        }
        let params = self.collecting.params();
        let update = sealed_update(upload, user, self.ticket.hash(), roster, agreement, params)?;
        self.collecting.accept(update, threads)?;
        self.uploads.insert(user, Participant::of(upload, user));
        Ok(())
    }
}

/// Reads the update of an upload. Everything but the ciphertexts themselves is checked.
fn sealed_update(
    upload: &Signed<Upload>,
    user: UserId,
    ticket: Digest,
    roster: &Roster,
    agreement: &AgreementKey,
    params: &RoundParams,
) -> Result<SealedUpdate, Error> {
    let (message, body) = (upload.message(), upload.body());
    if message.ticket != ticket {
        return Err(Error::Ticket);
    }
    if &message.key_id != roster.key_id() {
        return Err(Error::KeyId { user });
    }
    let content = UploadParams { params, user, count: message.count, salt: message.salt };
    let shards = content.check_size(body.len().saturating_sub(SEAL_BYTES))?;
    if Digest::of_upload(body) != message.body_hash {
        return Err(Error::Encoding { reason: "the body is not the one that the header names" });
    }
    let name = UploadName { task: roster.task().id(), round: upload.round(), user, ticket };
    content.read(shards, &agreement.open(name, body)?)
}

impl State {
    fn ticket(&self) -> Option<&Signed<RoundTicket>> {
        match self {
            Self::Idle | Self::Announced(_) | Self::Ended => None,
            Self::Collecting(collection) => Some(&collection.ticket),
            Self::Frozen(round, ..) | Self::Requested(round, ..) | Self::Received(round, ..) => {
                Some(&round.ticket)
            }
        }
    }

    fn uploads(&self) -> Option<&BTreeMap<UserId, Participant>> {
        match self {
            Self::Idle | Self::Announced(_) | Self::Ended => None,
            Self::Collecting(collection) => Some(&collection.uploads),
            Self::Frozen(round, ..) | Self::Requested(round, ..) | Self::Received(round, ..) => {
                Some(&round.uploads)
            }
        }
    }
}
