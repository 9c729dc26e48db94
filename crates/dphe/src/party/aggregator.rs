//! The aggregator: opens a round, collects, freezes, asks, publishes, closes.

mod intake;
mod recovery;

pub use intake::{Checked, Intake, IntakeRound};

use std::collections::BTreeMap;

use dphe_paillier::Threads;

use super::{Action, Desk, Found, Notice, RETRY, RETRY_REQUEST, Time};
use crate::aggregator::{Aggregator, Collecting, Overlap};
use crate::hash::Digest;
use crate::log::LogPoint;
use crate::message::{
    Close, Decrypt, Ending, Freeze, FreezeAck, Message, Outcome, Participant, Publish, RoundOpen,
    RoundResult, RoundTicket, Signed, Upload, UploadAck, kind, payload_hash, sum_hash, upload_hash,
};
use crate::sealed::SealedUpdate;
use crate::{AggregatorKeys, Error, IdentityKey, Party, PublicSupport, Roster, Round, UserId, WeightSum};

/// What happens to an aggregator.
#[derive(Debug)]
pub enum AggregatorEvent {
    /// Begin the next round.
    Start {
        /// The digest of the model everybody starts from.
        model: Digest,
        /// How long to collect, in milliseconds.
        deadline: u64,
        /// Random bytes.
        nonce: [u8; 16],
    },
    /// A message came in.
    Message(Vec<u8>),
    /// A user asks how the round stands.
    Poll {
        /// Who asks.
        user: UserId,
        /// The round it is in, or waits for.
        round: Round,
    },
    /// The new model, made from the sum of the round.
    NewModel {
        /// The round.
        round: Round,
        /// The model.
        model: Vec<u8>,
    },
    /// What others collected for it, each an [`Intake`]: the set is fixed with that.
    Gathered {
        /// The sums.
        collected: Box<Collecting>,
        /// Whose updates are in them.
        uploads: Vec<Participant>,
    },
    /// Fix the set now: whoever is missing is not waited for any longer.
    Freeze,
    /// Give the round up, after its ticket and before its sum is asked for.
    Abort,
    /// The time it asked for has come.
    Tick,
}

/// The aggregator of a task, with its state.
#[derive(Debug)]
pub struct AggregatorParty {
    desk: Desk,
    aggregator: Aggregator,
    threads: Threads,
    /// The round at hand, or the next one.
    round: Round,
    state: State,
    /// How the last round ended, for those who ask later.
    last: Option<Ended>,
    /// How far G's log is known.
    seen: Option<LogPoint>,
}

#[derive(Debug)]
enum State {
    Idle,
    Opened(Signed<RoundOpen>),
    Collecting(Box<Gathering>),
    Frozen(InRound, Signed<Freeze>, Vec<u8>),
    Requested(InRound, Signed<Freeze>, Signed<Decrypt>),
    Received(InRound, Signed<Freeze>, Signed<RoundResult>),
    /// Stored as ended; its checkpoint is still to be made.
    Ended,
}

/// What is known of a round from its ticket on.
#[derive(Debug)]
struct InRound {
    ticket: Signed<RoundTicket>,
    overlap: Option<Overlap>,
    uploads: BTreeMap<UserId, Digest>,
}

#[derive(Debug)]
struct Gathering {
    ticket: Signed<RoundTicket>,
    collecting: Collecting,
    uploads: BTreeMap<UserId, Digest>,
    deadline: Time,
}

#[derive(Clone, Debug)]
struct Ended {
    publish: Option<Signed<Publish>>,
    close: Signed<Close>,
}

const OPEN: u8 = 1;
const TICKET: u8 = 2;
const UPLOAD: u8 = 3;
const FREEZE: u8 = 4;
const DECRYPT: u8 = 5;
const RESULT: u8 = 6;
const END: u8 = 7;
/// A freeze, and the sum itself: the uploads are not in this log.
const GATHERED: u8 = 8;

impl AggregatorParty {
    /// An aggregator, from what its log holds (nothing, the first time), and what it has to do first.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log is damaged or another party's, [`Error::Signature`] or [`Error::Key`] if identity or key are not the
    /// roster's.
    pub fn start(
        keys: AggregatorKeys,
        identity: IdentityKey,
        roster: Roster,
        log: &[u8],
        threads: Threads,
        now: Time,
    ) -> Result<(Self, Vec<Action>), Error> {
        roster.check_task(&keys.task, &keys.encryption)?;
        if !keys.ua.keys().copied().eq(roster.users()) {
            return Err(Error::Roster);
        }
        let Found { desk, checkpoint, records, mut actions } =
            Desk::open(Party::Aggregator, identity, roster, log)?;
        let mut party = Self {
            desk,
            aggregator: Aggregator::new(keys)?,
            threads,
            round: Round::FIRST,
            state: State::Idle,
            last: None,
            seen: None,
        };
        if let Some(checkpoint) = checkpoint {
            party.read_checkpoint(checkpoint)?;
        }
        for record in records {
            party.replay(record, now)?;
        }
        match &party.state {
            State::Received(..) => party.announce(&mut actions)?,
            State::Ended => party.finish(&mut actions),
            _ => party.send_again(now, &mut actions),
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

    /// Whether no round is under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Where the round at hand stands, in a word.
    pub fn phase(&self) -> &'static str {
        match self.state {
            State::Idle | State::Ended => "idle",
            State::Opened(_) => "opened",
            State::Collecting(_) => "collecting",
            State::Frozen(..) => "frozen",
            State::Requested(..) => "requested",
            State::Received(..) => "received",
        }
    }

    /// Whose updates of the round at hand are stored.
    pub fn collected(&self) -> Vec<UserId> {
        self.state.uploads().map(|uploads| uploads.keys().copied().collect()).unwrap_or_default()
    }

    /// Sums of nothing yet, of the round at hand: what others collect is added, and handed in as
    /// [`AggregatorEvent::Gathered`].
    pub fn empty(&self) -> Collecting {
        self.aggregator.begin(self.round)
    }

    /// Takes one step.
    ///
    /// # Errors
    /// What section 8 of docs/protocol.md lists; nothing has changed then.
    pub fn step(&mut self, event: AggregatorEvent, now: Time) -> Result<Vec<Action>, Error> {
        let roster = &self.desk.roster;
        match event {
            AggregatorEvent::Start { model, deadline, nonce } => self.open(model, deadline, nonce, now),
            AggregatorEvent::Poll { user, round } => self.poll(user, round),
            AggregatorEvent::NewModel { round, model } => self.publish(round, &model),
            AggregatorEvent::Gathered { collected, uploads } => self.gathered(*collected, &uploads, now),
            AggregatorEvent::Freeze => self.freeze_early(now),
            AggregatorEvent::Abort => self.abort(),
            AggregatorEvent::Tick => self.tick(now),
            AggregatorEvent::Message(bytes) => match kind(&bytes)? {
                RoundTicket::KIND => self.ticket(Signed::decode(&bytes, roster)?, now),
                Upload::KIND => self.upload(&Signed::decode(&bytes, roster)?, now),
                FreezeAck::KIND => self.freeze_ack(&Signed::decode(&bytes, roster)?, now),
                RoundResult::KIND => self.result(Signed::decode(&bytes, roster)?),
                _ => Err(Error::Version),
            },
        }
    }

    fn open(
        &mut self,
        model: Digest,
        deadline: u64,
        nonce: [u8; 16],
        now: Time,
    ) -> Result<Vec<Action>, Error> {
        if !self.is_idle() {
            return Err(Error::Order { expected: "the round under way must end first" });
        }
        let task = self.desk.roster.task();
        let open = RoundOpen {
            model,
            policy: task.policy_hash(),
            roster: self.desk.roster.hash(),
            support: PublicSupport::of(task, self.round).digest(),
            deadline,
            nonce,
        };
        let open = self.desk.sign(self.round, open, Vec::new());
        let mut actions = vec![self.desk.append(OPEN, &[&open.to_bytes()])];
        self.state = State::Opened(open);
        self.send_again(now, &mut actions);
        Ok(actions)
    }

    fn ticket(&mut self, ticket: Signed<RoundTicket>, now: Time) -> Result<Vec<Action>, Error> {
        ticket.round().check(self.round)?;
        let State::Opened(open) = &self.state else {
            return match self.state.ticket() {
                Some(known) if known.hash() == ticket.hash() => Ok(Vec::new()),
                Some(_) => Err(Error::Conflict { what: "ticket" }),
                None => Err(Error::Order { expected: "a round must be opened first" }),
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
        let mut actions = vec![self.desk.append(TICKET, &[&ticket.to_bytes()])];
        actions.push(Action::Announce(ticket.to_bytes()));
        self.gather(ticket, now);
        self.send_again(now, &mut actions);
        Ok(actions)
    }

    fn gather(&mut self, ticket: Signed<RoundTicket>, now: Time) {
        let deadline = now.after(ticket.message().deadline);
        let collecting = self.aggregator.begin(self.round);
        self.state =
            State::Collecting(Box::new(Gathering { ticket, collecting, uploads: BTreeMap::new(), deadline }));
    }

    fn upload(&mut self, upload: &Signed<Upload>, now: Time) -> Result<Vec<Action>, Error> {
        let Party::User(user) = upload.from() else { return Err(Error::Signature) };
        upload.round().check(self.round)?;
        let message = upload.message();
        let known = self.state.uploads().and_then(|uploads| uploads.get(&user));
        if known == Some(&message.body_hash) && self.state.ticket().map(Signed::hash) == Some(message.ticket)
        {
            return Ok(vec![self.ack(user, message.body_hash)]);
        }
        let round = self.round;
        let gathering = match &mut self.state {
            State::Idle | State::Opened(_) => {
                return Err(Error::Order { expected: "the round has no ticket yet" });
            }
            State::Collecting(gathering) => gathering,
            _ => return Err(Error::Late { round }),
        };
        gathering.fold(upload, user, &self.desk.roster, self.threads)?;
        let mut actions =
            vec![self.desk.append(UPLOAD, &[&upload.to_bytes()]), self.ack(user, message.body_hash)];
        if let State::Collecting(gathering) = &self.state
            && gathering.uploads.len()
                == self.desk.roster.users().len().min(self.desk.roster.task().max_users())
        {
            self.freeze(now, &mut actions);
        }
        Ok(actions)
    }

    fn ack(&self, user: UserId, body_hash: Digest) -> Action {
        let ack = self.desk.sign(self.round, UploadAck { body_hash }, Vec::new());
        Action::Send { to: Party::User(user), message: ack.to_bytes() }
    }

    fn tick(&mut self, now: Time) -> Result<Vec<Action>, Error> {
        let mut actions = Vec::new();
        if let State::Collecting(gathering) = &self.state
            && now >= gathering.deadline
        {
            if gathering.uploads.len() >= self.desk.roster.floor() {
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
        let State::Collecting(gathering) = &self.state else {
            return Err(Error::Order { expected: "no updates are being collected" });
        };
        let (users, floor) = (gathering.uploads.len(), self.desk.roster.floor());
        if users < floor {
            return Err(Error::SetSmall { users, floor });
        }
        let mut actions = Vec::new();
        self.freeze(now, &mut actions);
        Ok(actions)
    }

    /// Fixes the set and the sum.
    fn freeze(&mut self, now: Time, actions: &mut Vec<Action>) {
        let Some((round, freeze, body)) = self.take_sum() else { return };
        actions.push(self.desk.append(FREEZE, &[&freeze.to_bytes()]));
        self.state = State::Frozen(round, freeze, body);
        self.send_again(now, actions);
    }

    fn gathered(
        &mut self,
        collected: Collecting,
        uploads: &[Participant],
        now: Time,
    ) -> Result<Vec<Action>, Error> {
        let State::Collecting(gathering) = &mut self.state else {
            return Err(Error::Order { expected: "no updates are being collected" });
        };
        if !gathering.uploads.is_empty() {
            return Err(Error::Order { expected: "updates of this round are in this log" });
        }
        collected.round().check(self.round)?;
        let (users, floor) = (collected.users().len(), self.desk.roster.floor());
        if users < floor {
            return Err(Error::SetSmall { users, floor });
        }
        collected.check_count()?;
        let by_user: BTreeMap<UserId, Digest> = uploads.iter().map(|p| (p.user, p.body_hash)).collect();
        if by_user.len() != uploads.len() || !by_user.keys().copied().eq(collected.users()) {
            return Err(Error::Storage { reason: "the users of the sum are not those of the list" });
        }
        (gathering.collecting, gathering.uploads) = (collected, by_user);
        let Some((round, freeze, body)) = self.take_sum() else {
            return Err(Error::SetSmall { users, floor });
        };
        let mut actions = vec![self.desk.append(GATHERED, &[&freeze.to_bytes(), &body])];
        self.state = State::Frozen(round, freeze, body);
        self.send_again(now, &mut actions);
        Ok(actions)
    }

    /// Turns what was collected into a sum; if it is not fit for that, below the floor say, nothing happens.
    fn take_sum(&mut self) -> Option<(InRound, Signed<Freeze>, Vec<u8>)> {
        let State::Collecting(gathering) = core::mem::replace(&mut self.state, State::Idle) else {
            return None;
        };
        let Gathering { ticket, collecting, uploads, deadline } = *gathering;
        let overlap = Some(collecting.overlap());
        match collecting.close(self.threads) {
            Err(still) => {
                let collecting = *still.collecting;
                self.state = State::Collecting(Box::new(Gathering { ticket, collecting, uploads, deadline }));
                None
            }
            Ok(sum) => {
                let body = sum.to_body(self.desk.roster.task());
                let freeze = Freeze {
                    ticket: ticket.hash(),
                    attempt: 1,
                    mask: 0,
                    sum_hash: sum_hash(&body),
                    occupied: sum.occupied() as u32,
                    users: uploads
                        .iter()
                        .map(|(&user, &body_hash)| Participant { user, body_hash })
                        .collect(),
                };
                let freeze = self.desk.sign(self.round, freeze, Vec::new());
                Some((InRound { ticket, overlap, uploads }, freeze, body))
            }
        }
    }

    fn freeze_ack(&mut self, ack: &Signed<FreezeAck>, now: Time) -> Result<Vec<Action>, Error> {
        ack.round().check(self.round)?;
        let freeze = match &self.state {
            State::Frozen(_, freeze, _) | State::Requested(_, freeze, _) | State::Received(_, freeze, _) => {
                freeze
            }
            _ => return Err(Error::Order { expected: "nothing is frozen yet" }),
        };
        if ack.message().freeze != freeze.hash() || ack.message().attempt != freeze.message().attempt {
            return Err(Error::Conflict { what: "freeze" });
        }
        LogPoint::check(self.seen, ack.message().log).or_else(|error| {
            // one that was on its way for long is no step back
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
        let request = self.desk.sign(self.round, request, body);
        let mut actions = vec![self.desk.append(DECRYPT, &[&request.to_bytes(), &ack.to_bytes()])];
        self.state = State::Requested(round, freeze, request);
        self.send_again(now, &mut actions);
        Ok(actions)
    }

    fn result(&mut self, result: Signed<RoundResult>) -> Result<Vec<Action>, Error> {
        result.round().check(self.round)?;
        let (freeze, request) = match &self.state {
            State::Requested(_, freeze, request) => (freeze, request),
            State::Received(_, _, known) => {
                return if known.hash() == result.hash() {
                    Ok(Vec::new())
                } else {
                    Err(Error::Conflict { what: "result" })
                };
            }
            _ => return Err(Error::Order { expected: "nothing has been asked yet" }),
        };
        let message = result.message();
        if message.request != request.hash() {
            return Err(Error::Conflict { what: "request" });
        }
        let (expected, found) = (freeze.message().users.len(), message.users as usize);
        if expected != found {
            return Err(Error::Count { what: "users", expected, found, user: None });
        }
        if message.payload_hash != payload_hash(result.body()) {
            return Err(Error::Proof);
        }
        match message.outcome {
            Outcome::Released => {
                WeightSum::from_payload(self.desk.roster.task(), self.round, found, result.body())?;
            }
            Outcome::Failed if result.body().is_empty() => {}
            Outcome::Failed => return Err(Error::Proof),
        }
        LogPoint::follow(&mut self.seen, message.log)?;
        let State::Requested(round, freeze, _) = core::mem::replace(&mut self.state, State::Idle) else {
            return Ok(Vec::new());
        };
        let mut actions = vec![self.desk.append(RESULT, &[&result.to_bytes()])];
        self.state = State::Received(round, freeze, result);
        self.announce(&mut actions)?;
        Ok(actions)
    }

    /// Hands the sum on, or ends a round that failed.
    fn announce(&mut self, actions: &mut Vec<Action>) -> Result<(), Error> {
        let State::Received(round, _, result) = &self.state else { return Ok(()) };
        match result.message().outcome {
            Outcome::Failed => self.end(Ending::Failed, None, actions),
            Outcome::Released => {
                let users = result.message().users as usize;
                let sum = WeightSum::from_payload(self.desk.roster.task(), self.round, users, result.body())?;
                actions.push(Action::Notify(Notice::Opened { sum, overlap: round.overlap }));
            }
        }
        Ok(())
    }

    fn publish(&mut self, round: Round, model: &[u8]) -> Result<Vec<Action>, Error> {
        round.check(self.round)?;
        let State::Received(_, freeze, result) = &self.state else {
            return Err(Error::Order { expected: "there is no sum to make a model of" });
        };
        if model.len() > self.desk.roster.task().config().max_model_bytes as usize {
            return Err(Error::Size { what: "the model" });
        }
        let publish = Publish {
            result: result.clone(),
            model: Digest::of_model(model),
            model_bytes: model.len() as u32,
            users: freeze.message().users.clone(),
        };
        let publish = self.desk.sign(self.round, publish, model.to_vec());
        let mut actions = Vec::new();
        self.end(Ending::Published, Some(publish), &mut actions);
        Ok(actions)
    }

    fn abort(&mut self) -> Result<Vec<Action>, Error> {
        let mut actions = Vec::new();
        match self.state {
            State::Collecting(_) | State::Frozen(..) => {
                self.end(Ending::Aborted, None, &mut actions);
                Ok(actions)
            }
            // the key generator may not have heard of it, and would be left behind
            State::Opened(_) => Err(Error::Order { expected: "the ticket of the round must come first" }),
            _ => Err(Error::Order { expected: "there is no round to give up" }),
        }
    }

    fn end(&mut self, ending: Ending, publish: Option<Signed<Publish>>, actions: &mut Vec<Action>) {
        let hash = publish.as_ref().map_or(Digest::ZERO, Signed::hash);
        let close = self.desk.sign(self.round, Close { ending, publish: hash }, Vec::new());
        let published = publish.as_ref().map(Signed::to_bytes);
        let messages: Vec<&[u8]> = published.as_deref().into_iter().collect();
        let close_bytes = close.to_bytes();
        let messages = [&[&close_bytes[..]], &messages[..]].concat();
        actions.push(self.desk.append(END, &messages));
        self.last = Some(Ended { publish, close });
        self.state = State::Ended;
        self.finish(actions);
    }

    /// Tells everybody, and starts a fresh log.
    fn finish(&mut self, actions: &mut Vec<Action>) {
        let Some(ended) = self.last.clone() else { return };
        let close = ended.close.to_bytes();
        // the model itself is fetched by those who want it, one at a time
        actions.push(Action::Announce(close.clone()));
        actions.push(Action::Send { to: Party::KeyGenerator, message: close });
        let round = self.round;
        self.round = round.next();
        self.state = State::Idle;
        self.aggregator.advance(self.round);
        let checkpoint = zeroize::Zeroizing::new(self.write_checkpoint());
        actions.push(Action::Replace(self.desk.log.checkpoint(&checkpoint)));
        let ending = ended.close.message().ending;
        actions.push(Action::Notify(Notice::Finished {
            round,
            ending: Some(ending),
            included: false,
            model: None,
        }));
    }

    /// What a user who asks may need: the ticket of the round, or how the last one ended.
    fn poll(&self, user: UserId, round: Round) -> Result<Vec<Action>, Error> {
        if !self.desk.roster.contains(user) {
            return Err(Error::UnknownUser(user));
        }
        let to = Party::User(user);
        let mut actions = Vec::new();
        if let Some(ended) = self.last.as_ref().filter(|ended| ended.close.round() >= round) {
            actions.extend(ended.publish.iter().map(|p| Action::Send { to, message: p.to_bytes() }));
            actions.push(Action::Send { to, message: ended.close.to_bytes() });
        }
        if let State::Collecting(gathering) = &self.state {
            actions.push(Action::Send { to, message: gathering.ticket.to_bytes() });
        }
        Ok(actions)
    }

    /// Sends again what the key generator has not answered.
    fn send_again(&self, now: Time, actions: &mut Vec<Action>) {
        let to = Party::KeyGenerator;
        match &self.state {
            State::Idle | State::Received(..) | State::Ended => return,
            State::Opened(open) => {
                // the close of the round before may have been lost
                let last = self.last.iter().map(|ended| ended.close.to_bytes());
                actions.extend(last.chain([open.to_bytes()]).map(|message| Action::Send { to, message }));
            }
            State::Collecting(gathering) => {
                actions.push(Action::Wake(gathering.deadline));
                return;
            }
            State::Frozen(_, freeze, _) => actions.push(Action::Send { to, message: freeze.to_bytes() }),
            State::Requested(_, _, request) => {
                // it is long, and takes long to answer
                actions.push(Action::Send { to, message: request.to_bytes() });
                actions.push(Action::Wake(now.after(RETRY_REQUEST)));
                return;
            }
        }
        actions.push(Action::Wake(now.after(RETRY)));
    }
}

impl Gathering {
    fn fold(
        &mut self,
        upload: &Signed<Upload>,
        user: UserId,
        roster: &Roster,
        threads: Threads,
    ) -> Result<(), Error> {
        if self.uploads.contains_key(&user) {
            return Err(Error::Conflict { what: "upload of this user" });
        }
        let update = sealed_update(upload, user, self.ticket.hash(), roster)?;
        self.collecting.accept(update, threads)?;
        self.uploads.insert(user, upload.message().body_hash);
        Ok(())
    }
}

/// The update of an upload: everything but the ciphertexts themselves is checked.
fn sealed_update(
    upload: &Signed<Upload>,
    user: UserId,
    ticket: Digest,
    roster: &Roster,
) -> Result<SealedUpdate, Error> {
    let message = upload.message();
    if message.ticket != ticket {
        return Err(Error::Ticket);
    }
    if &message.key_id != roster.key_id() {
        return Err(Error::KeyId { user });
    }
    let (task, round, body) = (roster.task(), upload.round(), upload.body());
    SealedUpdate::check_size(task, round, user, message.count, body.len())?;
    if upload_hash(body) != message.body_hash {
        return Err(Error::Encoding { reason: "the body is not the one its header names" });
    }
    SealedUpdate::from_body(task, round, user, message.count, body)
}

impl State {
    fn ticket(&self) -> Option<&Signed<RoundTicket>> {
        match self {
            Self::Idle | Self::Opened(_) | Self::Ended => None,
            Self::Collecting(gathering) => Some(&gathering.ticket),
            Self::Frozen(round, ..) | Self::Requested(round, ..) | Self::Received(round, ..) => {
                Some(&round.ticket)
            }
        }
    }

    fn uploads(&self) -> Option<&BTreeMap<UserId, Digest>> {
        match self {
            Self::Idle | Self::Opened(_) | Self::Ended => None,
            Self::Collecting(gathering) => Some(&gathering.uploads),
            Self::Frozen(round, ..) | Self::Requested(round, ..) | Self::Received(round, ..) => {
                Some(&round.uploads)
            }
        }
    }
}
