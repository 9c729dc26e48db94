//! The user. In each round it seals one update once, and sends it until it is acknowledged.

use rand_core::CryptoRng;

use super::context::{OUT_OF_SEQUENCE, Record, Recover, Session, read_point, write_point};
use super::log::LogPoint;
use super::{Action, Notice, Party, PartyContext, RETRY, Time};
use crate::names::named_enum;
use crate::scheme::{UserAggregatorSeed, UserSharedSeed};
use crate::wire::{
    Close, Encode as _, Ending, Header, Kind, Publish, Reader, RoundTicket, Signed, Upload, UploadAck,
    Writer, check_set,
};
use crate::{Digest, Error, PartyId, Roster, Round, Update, User, UserKeys};

/// An event of a user.
#[derive(Debug)]
pub enum UserEvent {
    /// A ticket has arrived, and the model that it names was fetched.
    Begin {
        /// The ticket.
        ticket: Vec<u8>,
        /// The model.
        model: Vec<u8>,
    },
    /// The update that [`Notice::Train`] asked for.
    Update {
        /// The round of the notice.
        round: Round,
        /// The update.
        update: Update,
    },
    /// Another message has arrived.
    Message(Vec<u8>),
    /// The time that [`Action::Wake`] asked for has come.
    Tick,
}

named_enum! {
    /// The phase of a user's round.
    pub enum UserPhase {
        /// The user waits for a ticket.
        Idle = "idle",
        /// The user has a ticket and trains.
        Ticketed = "ticketed",
        /// The upload is stored and sent; the aggregator has not acknowledged it yet.
        Prepared = "prepared",
        /// The aggregator has acknowledged the upload.
        Uploaded = "uploaded",
    }
}

/// A user of a task as a state machine.
#[derive(Debug)]
pub struct UserParty {
    session: Session,
    user: User,
    /// The current round, or the earliest one that may come next.
    round: Round,
    state: State,
    /// The last known point of the key generator's log.
    seen: Option<LogPoint>,
}

#[derive(Debug)]
enum State {
    Idle,
    Ticketed(Signed<RoundTicket>),
    /// The upload is stored. No other update is sealed in this round.
    Prepared(Signed<RoundTicket>, Signed<Upload>),
    Uploaded(Signed<RoundTicket>, Signed<Upload>),
}

const TICKET: u8 = 1;
const UPLOAD: u8 = 2;
const ACK: u8 = 3;

impl Party for UserParty {
    type Keys = UserKeys;
    type Event = UserEvent;
    type Phase = UserPhase;

    fn start(keys: UserKeys, context: PartyContext<'_>, now: Time) -> Result<(Self, Vec<Action>), Error> {
        context.roster.check_task(&keys.task, &keys.encryption)?;
        Self::start_unchecked(keys, context, now)
    }

    fn step(&mut self, event: UserEvent, now: Time, rng: &mut impl CryptoRng) -> Result<Vec<Action>, Error> {
        let roster = &self.session.roster;
        match event {
            UserEvent::Begin { ticket, model } => self.begin(Signed::decode(&ticket, roster)?, &model, now),
            UserEvent::Update { round, update } => self.update(round, &update, now, rng),
            // training continues and is not asked for again, but the round may end meanwhile
            UserEvent::Tick if matches!(self.state, State::Ticketed(_)) => {
                Ok(vec![Action::Poll(self.round), Action::Wake(now.after(RETRY))])
            }
            UserEvent::Tick => {
                let mut actions = Vec::new();
                self.proceed(now, &mut actions);
                Ok(actions)
            }
            UserEvent::Message(bytes) => match Header::peek(&bytes)?.kind {
                Kind::UploadAck => self.ack(&Signed::decode(&bytes, roster)?, now),
                Kind::Publish => self.publish(&Signed::decode(&bytes, roster)?, now),
                Kind::Close => self.close(&Signed::decode(&bytes, roster)?, now),
                _ => Err(Error::Version),
            },
        }
    }

    fn message(bytes: Vec<u8>) -> UserEvent {
        UserEvent::Message(bytes)
    }

    fn tick() -> UserEvent {
        UserEvent::Tick
    }

    fn roster(&self) -> &Roster {
        &self.session.roster
    }

    fn round(&self) -> Round {
        self.round
    }

    fn phase(&self) -> UserPhase {
        match self.state {
            State::Idle => UserPhase::Idle,
            State::Ticketed(_) => UserPhase::Ticketed,
            State::Prepared(..) => UserPhase::Prepared,
            State::Uploaded(..) => UserPhase::Uploaded,
        }
    }
}

impl UserParty {
    /// Starts a user without checking that its keys belong to the task. Tests use it with mismatched keys.
    pub(crate) fn start_unchecked(
        keys: UserKeys,
        context: PartyContext<'_>,
        now: Time,
    ) -> Result<(Self, Vec<Action>), Error> {
        let (session, recovery) = Session::open(PartyId::User(keys.user), context)?;
        let user = User::new(keys)?;
        recovery.run(Self { session, user, round: Round::FIRST, state: State::Idle, seen: None }, now)
    }

    /// Returns the hash of the current round's ticket, if the user has it.
    pub fn ticket(&self) -> Option<Digest> {
        self.state.ticket().map(Signed::hash)
    }

    fn begin(&mut self, ticket: Signed<RoundTicket>, model: &[u8], now: Time) -> Result<Vec<Action>, Error> {
        let (round, current) = (ticket.round(), self.round);
        if round < current {
            return Err(Error::Stale { round, current });
        }
        self.user.check_ahead(round)?;
        if let Some(known) = self.state.ticket()
            && round == current
        {
            return if known.hash() == ticket.hash() { Ok(Vec::new()) } else { Err(Error::Ticket) };
        }
        let support = self.session.params(round).support().digest();
        let roster = &self.session.roster;
        let message = ticket.message();
        if message.policy != roster.task().policy_hash() {
            return Err(Error::Policy);
        }
        if message.roster != roster.hash() {
            return Err(Error::Roster);
        }
        if message.support != support {
            return Err(Error::SupportDigest);
        }
        if message.model != Digest::of_model(model) {
            return Err(Error::Model);
        }
        LogPoint::check(self.seen, message.log)?;
        let mut actions = Vec::new();
        if round > current {
            self.report_missed(&mut actions);
            self.leave(round, &mut actions);
        }
        self.seen = Some(message.log);
        actions.push(self.session.append(TICKET, &[&ticket.to_bytes()]));
        self.state = State::Ticketed(ticket);
        self.proceed(now, &mut actions);
        Ok(actions)
    }

    fn update(
        &mut self,
        round: Round,
        update: &Update,
        now: Time,
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<Action>, Error> {
        let ticket = match &self.state {
            State::Idle => return Err(Error::Order { state: "this user has no ticket" }),
            // an update of an earlier round was trained from an outdated model
            _ if round != self.round => return round.check(self.round).map(|()| Vec::new()),
            State::Ticketed(ticket) => ticket.clone(),
            _ => return Err(Error::Conflict { what: "update of this round" }),
        };
        let params = self.session.params(self.round);
        let sealed = self.user.seal_in(&params, update, rng, self.session.threads)?;
        let body = sealed.to_bytes();
        let upload = Upload {
            ticket: ticket.hash(),
            key_id: *self.session.roster.key_id(),
            count: sealed.ciphertexts() as u32,
            body_hash: Digest::of_upload(&body),
        };
        let upload = self.session.sign(self.round, upload, body);
        let mut actions = vec![self.session.append(UPLOAD, &[&upload.to_bytes()])];
        self.state = State::Prepared(ticket, upload);
        self.proceed(now, &mut actions);
        Ok(actions)
    }

    fn ack(&mut self, ack: &Signed<UploadAck>, now: Time) -> Result<Vec<Action>, Error> {
        ack.round().check(self.round)?;
        let (ticket, upload) = match &self.state {
            State::Prepared(ticket, upload) | State::Uploaded(ticket, upload) => (ticket, upload),
            _ => return Err(Error::Order { state: "this user has not uploaded anything in this round" }),
        };
        if ack.message().body_hash != upload.message().body_hash {
            return Err(Error::Conflict { what: "upload" });
        }
        let mut actions = Vec::new();
        if let State::Prepared(..) = self.state {
            let (ticket, upload) = (ticket.clone(), upload.clone());
            actions.push(self.session.append(ACK, &[&ack.to_bytes()]));
            self.state = State::Uploaded(ticket, upload);
        }
        actions.push(Action::Wake(now.after(RETRY)));
        Ok(actions)
    }

    fn publish(&mut self, publish: &Signed<Publish>, now: Time) -> Result<Vec<Action>, Error> {
        let (round, current) = (publish.round(), self.round);
        if round < current {
            return Err(Error::Stale { round, current });
        }
        self.user.check_ahead(round)?;
        let message = publish.message();
        let proven = message.check_result(&self.session.roster, round);
        if round > current && self.state.ticket().is_some() && proven.is_err() {
            return Err(Error::Future { round, current });
        }
        let result = proven?;
        check_set(&message.users, &self.session.roster)?;
        let result = result.message();
        let (expected, found) = (result.users as usize, message.users.len());
        if expected != found {
            return Err(Error::Count { what: "users", expected, found, user: None });
        }
        let mine = message.users.iter().find(|participant| participant.user == self.user.id());
        // the publish message of a later round only shows that the current round is over
        let (sent, acknowledged) = match &self.state {
            State::Prepared(_, upload) if round == current => (Some(upload.message().body_hash), false),
            State::Uploaded(_, upload) if round == current => (Some(upload.message().body_hash), true),
            _ => (None, false),
        };
        match mine {
            Some(participant) if sent != Some(participant.body_hash) => return Err(Error::NotMine),
            None if acknowledged => return Err(Error::NotMine),
            _ => {}
        }
        let model = publish.body();
        if model.len() != message.model_bytes as usize || Digest::of_model(model) != message.model {
            return Err(Error::Model);
        }
        LogPoint::follow(&mut self.seen, result.log)?;
        let mut actions = Vec::new();
        if round > current {
            self.report_missed(&mut actions);
        }
        self.leave(round.next(), &mut actions);
        actions.push(Action::Notify(Notice::Finished {
            round,
            ending: Some(Ending::Published),
            included: mine.is_some(),
            model: Some(model.to_vec()),
        }));
        actions.push(Action::Wake(now.after(RETRY)));
        Ok(actions)
    }

    fn close(&mut self, close: &Signed<Close>, now: Time) -> Result<Vec<Action>, Error> {
        let (round, current) = (close.round(), self.round);
        let ending = close.message().ending;
        if round < current {
            return Err(Error::Stale { round, current });
        }
        self.user.check_ahead(round)?;
        if round > current && self.state.ticket().is_some() {
            return Err(Error::Future { round, current });
        }
        // without a ticket, only the aggregator's word says that this round exists, so the message is ignored
        if round > current {
            return Ok(Vec::new());
        }
        if ending == Ending::Published {
            // the new model must be fetched first
            return Ok(vec![Action::Poll(round), Action::Wake(now.after(RETRY))]);
        }
        let mut actions = Vec::new();
        self.leave(round.next(), &mut actions);
        actions.push(Action::Notify(Notice::Finished {
            round,
            ending: Some(ending),
            included: false,
            model: None,
        }));
        actions.push(Action::Wake(now.after(RETRY)));
        Ok(actions)
    }

    /// Reports that the current round ended without this user, because a later one has started.
    fn report_missed(&self, actions: &mut Vec<Action>) {
        if self.state.ticket().is_some() {
            let round = self.round;
            actions.push(Action::Notify(Notice::Finished {
                round,
                ending: None,
                included: false,
                model: None,
            }));
        }
    }

    /// Moves to `round`. Forgets everything about earlier rounds, including their permutations.
    fn leave(&mut self, round: Round, actions: &mut Vec<Action>) {
        self.round = round;
        self.state = State::Idle;
        self.user.advance(round);
        let checkpoint = self.write_checkpoint();
        actions.push(self.session.checkpoint(checkpoint));
    }

    /// Does what the current state asks for.
    fn proceed(&mut self, now: Time, actions: &mut Vec<Action>) {
        match &self.state {
            State::Idle => actions.push(Action::Poll(self.round)),
            State::Ticketed(ticket) => {
                let round = ticket.round();
                let support = self.session.params(round).support().clone();
                actions.push(Action::Notify(Notice::Train { round, support }));
            }
            State::Prepared(_, upload) => {
                actions.push(Action::Send { to: PartyId::Aggregator, message: upload.to_bytes() });
                // the upload may have arrived too late
                actions.push(Action::Poll(self.round));
            }
            State::Uploaded(..) => actions.push(Action::Poll(self.round)),
        }
        actions.push(Action::Wake(now.after(RETRY)));
    }

    fn write_checkpoint(&self) -> Writer {
        let mut out = Writer::new();
        out.put(&self.round);
        write_point(&mut out, self.seen);
        let keys = self.user.keys();
        for (round, key) in [keys.us.to_parts(), keys.ua.to_parts()] {
            out.put(&round);
            out.put(key);
        }
        out
    }
}

impl Recover for UserParty {
    fn read_checkpoint(&mut self, input: &mut Reader<'_>) -> Result<(), Error> {
        self.round = input.get()?;
        self.seen = read_point(input)?;
        let us = UserSharedSeed::from_parts(input.get()?, input.get()?);
        let ua = UserAggregatorSeed::from_parts(input.get()?, input.get()?);
        self.user.resume(us, ua);
        Ok(())
    }

    fn replay(&mut self, tag: u8, record: &Record<'_>, _: Time) -> Result<(), Error> {
        let roster = &self.session.roster;
        self.state = match (tag, core::mem::replace(&mut self.state, State::Idle)) {
            (TICKET, State::Idle) => {
                let ticket: Signed<RoundTicket> = record.message(0, roster)?;
                self.seen = Some(ticket.message().log);
                self.round = ticket.round();
                State::Ticketed(ticket)
            }
            (UPLOAD, State::Ticketed(ticket)) => State::Prepared(ticket, record.message(0, roster)?),
            (ACK, State::Prepared(ticket, upload)) => State::Uploaded(ticket, upload),
            _ => return Err(OUT_OF_SEQUENCE),
        };
        Ok(())
    }

    fn resume(&mut self, now: Time, actions: &mut Vec<Action>) -> Result<(), Error> {
        self.proceed(now, actions);
        Ok(())
    }
}

impl State {
    fn ticket(&self) -> Option<&Signed<RoundTicket>> {
        match self {
            Self::Idle => None,
            Self::Ticketed(ticket) | Self::Prepared(ticket, _) | Self::Uploaded(ticket, _) => Some(ticket),
        }
    }
}
