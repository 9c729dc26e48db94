//! The user: one update a round, sealed once, sent until it is acknowledged.

use dphe_paillier::Threads;
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::{
    Action, Desk, Found, Notice, RETRY, Time, damaged, read_point, read_record, read_round, stored,
    write_point,
};
use crate::hash::Digest;
use crate::log::LogPoint;
use crate::message::codec::{Reader, Writer};
use crate::message::{
    Close, Ending, Message, Publish, RoundTicket, Signed, Upload, UploadAck, check_set, kind, upload_hash,
};
use crate::permutation::{UserAggregatorSeed, UserSharedSeed};
use crate::{Error, IdentityKey, LocalUpdate, Party, PublicSupport, Roster, Round, User, UserKeys};

/// What happens to a user.
#[derive(Debug)]
pub enum UserEvent {
    /// A ticket came in, and the model it names.
    Begin {
        /// The ticket.
        ticket: Vec<u8>,
        /// The model.
        model: Vec<u8>,
    },
    /// The update that was asked for.
    Update {
        /// The round it was asked for in.
        round: Round,
        /// The update.
        update: LocalUpdate,
    },
    /// Another message came in.
    Message(Vec<u8>),
    /// The time it asked for has come.
    Tick,
}

/// A user of a task, with its state.
#[derive(Debug)]
pub struct UserParty {
    desk: Desk,
    user: User,
    threads: Threads,
    /// The round at hand, or the earliest that may come.
    round: Round,
    state: State,
    /// How far G's log is known.
    seen: Option<LogPoint>,
}

#[derive(Debug)]
enum State {
    Idle,
    Ticketed(Signed<RoundTicket>),
    /// The upload is on the disk: nothing else is encrypted in this round.
    Prepared(Signed<RoundTicket>, Signed<Upload>),
    Uploaded(Signed<RoundTicket>, Signed<Upload>),
}

const TICKET: u8 = 1;
const UPLOAD: u8 = 2;
const ACK: u8 = 3;

impl UserParty {
    /// A user, from what its log holds (nothing, the first time), and what it has to do first.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log is damaged or another party's, [`Error::Signature`] or [`Error::Key`] if identity or key are not the
    /// roster's.
    pub fn start(
        keys: UserKeys,
        identity: IdentityKey,
        roster: Roster,
        log: &[u8],
        threads: Threads,
        now: Time,
    ) -> Result<(Self, Vec<Action>), Error> {
        roster.check_task(&keys.task, &keys.encryption)?;
        Self::start_unchecked(keys, identity, roster, log, threads, now)
    }

    /// A user whose keys may be of another task, for tests of what that leads to.
    pub(crate) fn start_unchecked(
        keys: UserKeys,
        identity: IdentityKey,
        roster: Roster,
        log: &[u8],
        threads: Threads,
        now: Time,
    ) -> Result<(Self, Vec<Action>), Error> {
        let Found { desk, checkpoint, records, mut actions } =
            Desk::open(Party::User(keys.user), identity, roster, log)?;
        let mut party = Self {
            desk,
            user: User::new(keys)?,
            threads,
            round: Round::FIRST,
            state: State::Idle,
            seen: None,
        };
        if let Some(checkpoint) = checkpoint {
            party.read_checkpoint(checkpoint).map_err(damaged)?;
        }
        for record in records {
            party.replay(record)?;
        }
        party.go_on(now, &mut actions);
        Ok((party, actions))
    }

    /// The roster.
    pub fn roster(&self) -> &Roster {
        &self.desk.roster
    }

    /// The round at hand, or the earliest that may come.
    pub fn round(&self) -> Round {
        self.round
    }

    /// Where the round at hand stands, in a word.
    pub fn phase(&self) -> &'static str {
        match self.state {
            State::Idle => "idle",
            State::Ticketed(_) => "ticketed",
            State::Prepared(..) => "prepared",
            State::Uploaded(..) => "uploaded",
        }
    }

    /// The hash of the ticket of the round at hand, if it has one.
    pub fn ticket(&self) -> Option<Digest> {
        self.state.ticket().map(Signed::hash)
    }

    /// Takes one step.
    ///
    /// # Errors
    /// What section 8 of docs/protocol.md lists; nothing has changed then.
    pub fn step(
        &mut self,
        event: UserEvent,
        now: Time,
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<Action>, Error> {
        let roster = &self.desk.roster;
        match event {
            UserEvent::Begin { ticket, model } => self.begin(Signed::decode(&ticket, roster)?, &model, now),
            UserEvent::Update { round, update } => self.update(round, &update, now, rng),
            // training goes on, and is not asked for again; the round may end meanwhile
            UserEvent::Tick if matches!(self.state, State::Ticketed(_)) => {
                Ok(vec![Action::Poll(self.round), Action::Wake(now.after(RETRY))])
            }
            UserEvent::Tick => {
                let mut actions = Vec::new();
                self.go_on(now, &mut actions);
                Ok(actions)
            }
            UserEvent::Message(bytes) => match kind(&bytes)? {
                UploadAck::KIND => self.ack(&Signed::decode(&bytes, roster)?, now),
                Publish::KIND => self.publish(&Signed::decode(&bytes, roster)?, now),
                Close::KIND => self.close(&Signed::decode(&bytes, roster)?, now),
                _ => Err(Error::Version),
            },
        }
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
        let roster = &self.desk.roster;
        let message = ticket.message();
        if message.policy != roster.task().policy_hash() {
            return Err(Error::Policy);
        }
        if message.roster != roster.hash() {
            return Err(Error::Roster);
        }
        if message.support != PublicSupport::of(roster.task(), round).digest() {
            return Err(Error::SupportDigest);
        }
        if message.model != Digest::of_model(model) {
            return Err(Error::Model);
        }
        LogPoint::check(self.seen, message.log)?;
        let mut actions = Vec::new();
        if round > current {
            self.miss(&mut actions);
            self.leave(round, &mut actions);
        }
        self.seen = Some(message.log);
        actions.push(self.desk.append(TICKET, &[&ticket.to_bytes()]));
        self.state = State::Ticketed(ticket);
        self.go_on(now, &mut actions);
        Ok(actions)
    }

    fn update(
        &mut self,
        round: Round,
        update: &LocalUpdate,
        now: Time,
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<Action>, Error> {
        let ticket = match &self.state {
            State::Idle => return Err(Error::Order { expected: "there is no round to take part in" }),
            // training that began in a round that is over starts from a model that is over too
            _ if round != self.round => return round.check(self.round).map(|()| Vec::new()),
            State::Ticketed(ticket) => ticket.clone(),
            _ => return Err(Error::Conflict { what: "update of this round" }),
        };
        let sealed = self.user.seal(self.round, update, rng, self.threads)?;
        let body = sealed.to_body();
        let upload = Upload {
            ticket: ticket.hash(),
            key_id: *self.desk.roster.key_id(),
            count: sealed.ciphertexts(self.desk.roster.task()) as u32,
            body_hash: upload_hash(&body),
        };
        let upload = self.desk.sign(self.round, upload, body);
        let mut actions = vec![self.desk.append(UPLOAD, &[&upload.to_bytes()])];
        self.state = State::Prepared(ticket, upload);
        self.go_on(now, &mut actions);
        Ok(actions)
    }

    fn ack(&mut self, ack: &Signed<UploadAck>, now: Time) -> Result<Vec<Action>, Error> {
        ack.round().check(self.round)?;
        let (ticket, upload) = match &self.state {
            State::Prepared(ticket, upload) | State::Uploaded(ticket, upload) => (ticket, upload),
            _ => return Err(Error::Order { expected: "nothing has been uploaded" }),
        };
        if ack.message().body_hash != upload.message().body_hash {
            return Err(Error::Conflict { what: "upload" });
        }
        let mut actions = Vec::new();
        if let State::Prepared(..) = self.state {
            let (ticket, upload) = (ticket.clone(), upload.clone());
            actions.push(self.desk.append(ACK, &[&ack.to_bytes()]));
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
        let proven = message.check_result(&self.desk.roster, round);
        if round > current && self.state.ticket().is_some() && proven.is_err() {
            return Err(Error::Future { round, current });
        }
        proven?;
        check_set(&message.users, &self.desk.roster)?;
        let result = message.result.message();
        let (expected, found) = (result.users as usize, message.users.len());
        if expected != found {
            return Err(Error::Count { what: "users", expected, found, user: None });
        }
        let mine = message.users.iter().find(|participant| participant.user == self.user.id());
        // of a later round it only says that the one at hand is over
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
            self.miss(&mut actions);
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
        // a round this user knows nothing of, on the aggregator's word alone
        if round > current {
            return Ok(Vec::new());
        }
        if ending == Ending::Published {
            // the new model is still to be fetched
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

    /// The round at hand ended unheard: a later one has begun.
    fn miss(&self, actions: &mut Vec<Action>) {
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

    /// Wipes what was kept for the rounds before `round`, and forgets their permutations.
    fn leave(&mut self, round: Round, actions: &mut Vec<Action>) {
        self.round = round;
        self.state = State::Idle;
        self.user.advance(round);
        let checkpoint = Zeroizing::new(self.write_checkpoint());
        actions.push(Action::Replace(self.desk.log.checkpoint(&checkpoint)));
    }

    /// Takes up what the state asks for.
    fn go_on(&self, now: Time, actions: &mut Vec<Action>) {
        match &self.state {
            State::Idle => actions.push(Action::Poll(self.round)),
            State::Ticketed(ticket) => {
                let (round, support) =
                    (ticket.round(), PublicSupport::of(self.desk.roster.task(), ticket.round()));
                actions.push(Action::Notify(Notice::Train { round, support }));
            }
            State::Prepared(_, upload) => {
                actions.push(Action::Send { to: Party::Aggregator, message: upload.to_bytes() });
                // it may have come too late
                actions.push(Action::Poll(self.round));
            }
            State::Uploaded(..) => actions.push(Action::Poll(self.round)),
        }
        actions.push(Action::Wake(now.after(RETRY)));
    }

    fn write_checkpoint(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u64(self.round.get());
        write_point(&mut out, self.seen);
        let keys = self.user.keys();
        for (round, key) in [keys.us.to_parts(), keys.ua.to_parts()] {
            out.u64(round.get());
            out.bytes(key);
        }
        out.into_bytes()
    }

    fn read_checkpoint(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut input = Reader::new(bytes);
        self.round = read_round(&mut input)?;
        self.seen = read_point(&mut input)?;
        let us = UserSharedSeed::from_parts(read_round(&mut input)?, input.array()?);
        let ua = UserAggregatorSeed::from_parts(read_round(&mut input)?, input.array()?);
        self.user.resume(us, ua);
        input.finish()
    }

    fn replay(&mut self, record: &[u8]) -> Result<(), Error> {
        let (tag, messages) = read_record(record)?;
        let roster = &self.desk.roster;
        self.state = match (tag, core::mem::replace(&mut self.state, State::Idle)) {
            (TICKET, State::Idle) => {
                let ticket: Signed<RoundTicket> = stored(&messages, 0, roster)?;
                self.seen = Some(ticket.message().log);
                self.round = ticket.round();
                State::Ticketed(ticket)
            }
            (UPLOAD, State::Ticketed(ticket)) => State::Prepared(ticket, stored(&messages, 0, roster)?),
            (ACK, State::Prepared(ticket, upload)) => State::Uploaded(ticket, upload),
            _ => return Err(Error::Storage { reason: "a record does not follow from the one before" }),
        };
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
