//! The user. In each round it seals one update once, and sends it until it is acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;

use chacha20::ChaCha20Rng;
use dphe_paillier::EncryptionKey;
use rand_core::{CryptoRng, SeedableRng as _};
use zeroize::Zeroizing;

use super::context::{
    OUT_OF_SEQUENCE, ROSTER_TOO_LATE, Record, Recover, Session, read_point, stored_seeds, write_point,
};
use super::log::LogPoint;
use super::{Action, Notice, Party, PartyContext, PublishedSum, RETRY, Time, history};
use crate::hash::derive;
use crate::names::named_enum;
use crate::scheme::{MaskSeed, UserAggregatorSeed, UserSharedSeed};
use crate::wire::{
    Close, Encode as _, Ending, Header, Inclusion, Kind, Participant, Publish, Reader, RosterChange, Rosters,
    RoundTicket, Signed, Upload, UploadAck, UploadName, Writer, domains, root_of,
};
use crate::{Digest, Error, PartyId, Roster, Round, Update, User, UserId, UserKeys};

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
    /// The model that follows from the sum of [`Notice::Apply`].
    Applied {
        /// The round.
        round: Round,
        /// The model.
        model: Vec<u8>,
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
        /// The sum is published and correct; the user computes the new model.
        Checking = "checking",
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
    /// What follows from the rounds so far. A user with a new identity does not know it before its first ticket.
    lineage: Option<Lineage>,
    /// The rosters that come into force later, with their user-shared seeds.
    next_rosters: VecDeque<(Arc<RosterChange>, UserSharedSeed)>,
    /// The ticket of a current round in which the user does not take part. Not stored, because it is sent again.
    known: Option<Signed<RoundTicket>>,
    /// The aggregator's proof that the user's update is in the sum. Not stored, because it is sent again.
    inclusion: Option<Signed<Inclusion>>,
}

/// What a user knows of the rounds before the current one.
#[derive(Clone, Copy, Debug)]
struct Lineage {
    /// The digest of the model that follows from them.
    model: Digest,
    history: Digest,
}

impl Lineage {
    fn of(ticket: &RoundTicket) -> Self {
        Self { model: ticket.model, history: ticket.history }
    }
}

#[derive(Debug)]
enum State {
    Idle,
    Ticketed(Signed<RoundTicket>),
    /// The upload is stored. No other update is sealed in this round.
    Prepared(Signed<RoundTicket>, Signed<Upload>),
    Uploaded(Signed<RoundTicket>, Signed<Upload>),
    /// The sum was checked. The log holds the state before, so that the sum is fetched again after a restart.
    Checking(Signed<RoundTicket>, Box<CheckedRound>),
}

/// A round whose published sum was checked.
#[derive(Debug)]
struct CheckedRound {
    publish: Digest,
    users_root: Digest,
    model: Digest,
    included: bool,
}

const TICKET: u8 = 1;
const UPLOAD: u8 = 2;
const ACK: u8 = 3;

impl Party for UserParty {
    type Keys = UserKeys;
    type Event = UserEvent;
    type Phase = UserPhase;

    fn start(keys: UserKeys, context: PartyContext<'_>, now: Time) -> Result<(Self, Vec<Action>), Error> {
        context.rosters.first().check_task(&keys.task, &keys.encryption)?;
        Self::start_unchecked(keys, context, now)
    }

    fn start_new(keys: UserKeys, context: PartyContext<'_>, now: Time) -> Result<(Self, Vec<Action>), Error> {
        let (mut party, mut actions) = Self::start(keys, PartyContext { log: &[], ..context }, now)?;
        let state = party.write_checkpoint();
        party.session.begin_with_checkpoint(state, &mut actions);
        Ok((party, actions))
    }

    fn step(&mut self, event: UserEvent, now: Time, rng: &mut impl CryptoRng) -> Result<Vec<Action>, Error> {
        match event {
            UserEvent::Begin { ticket, model } => self.begin(self.session.read(&ticket)?, &model, now),
            UserEvent::Applied { round, model } => self.applied(round, model, now),
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
                Kind::RoundTicket => self.learn_ticket(self.session.read(&bytes)?, now),
                Kind::Inclusion => self.include(self.session.read(&bytes)?),
                Kind::UploadAck => self.ack(&self.session.read(&bytes)?, now),
                Kind::Publish => self.publish(&self.session.read(&bytes)?, now),
                Kind::Close => self.close(&self.session.read(&bytes)?, now),
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
            State::Checking(..) => UserPhase::Checking,
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
        let first = session.rosters.first();
        // a user that comes with a later roster begins with the next ticket, which all other users check
        let lineage = (first.epoch() == 1)
            .then(|| Lineage { model: first.initial_model(), history: history::first(first) });
        let party = Self {
            round: first.first_round(),
            session,
            user,
            state: State::Idle,
            seen: None,
            lineage,
            next_rosters: VecDeque::new(),
            known: None,
            inclusion: None,
        };
        recovery.run(party, now)
    }

    /// Returns the digest of the model that follows from the rounds so far, if the user has followed them.
    pub fn model(&self) -> Option<Digest> {
        self.lineage.map(|lineage| lineage.model)
    }

    /// Returns the history of the task before the current round, if the user has followed it.
    pub fn history(&self) -> Option<Digest> {
        self.lineage.map(|lineage| lineage.history)
    }

    /// Returns the user with its seeds, for checks of published sums.
    pub fn user(&self) -> &User {
        &self.user
    }

    /// Returns the hash of the current round's ticket, if the user has it.
    pub fn ticket(&self) -> Option<Digest> {
        self.state.ticket().map(Signed::hash)
    }

    fn begin(&mut self, ticket: Signed<RoundTicket>, model: &[u8], now: Time) -> Result<Vec<Action>, Error> {
        if let Some(actions) = self.take_known(&ticket, now)? {
            return Ok(actions);
        }
        self.check_ticket(&ticket)?;
        if ticket.message().model != Digest::of_model(model) {
            return Err(Error::Model);
        }
        self.seen = Some(ticket.message().log);
        let mut actions = vec![self.session.append(TICKET, &[&ticket.to_bytes()])];
        self.lineage = Some(Lineage::of(ticket.message()));
        self.known = None;
        self.state = State::Ticketed(ticket);
        self.proceed(now, &mut actions);
        Ok(actions)
    }

    /// Learns the ticket of a round that ended without this user.
    fn learn_ticket(&mut self, ticket: Signed<RoundTicket>, now: Time) -> Result<Vec<Action>, Error> {
        if let Some(actions) = self.take_known(&ticket, now)? {
            return Ok(actions);
        }
        self.check_ticket(&ticket)?;
        self.known = Some(ticket);
        Ok(Vec::new())
    }

    /// Returns what to do about a ticket that is not new: nothing, or to ask how the current round ended if the ticket
    /// is of a later one.
    fn take_known(&self, ticket: &Signed<RoundTicket>, now: Time) -> Result<Option<Vec<Action>>, Error> {
        let (round, current) = (ticket.round(), self.round);
        if round < current {
            return Err(Error::Stale { round, current });
        }
        if round > current {
            return Ok(Some(vec![Action::Poll(current), Action::Wake(now.after(RETRY))]));
        }
        match self.state.ticket() {
            Some(known) if known.hash() == ticket.hash() => Ok(Some(Vec::new())),
            Some(_) => Err(Error::Ticket),
            None => Ok(None),
        }
    }

    /// Checks a ticket of the current round against everything that this user knows of the task.
    fn check_ticket(&mut self, ticket: &Signed<RoundTicket>) -> Result<(), Error> {
        let support = self.session.params(ticket.round()).support().digest();
        let (roster, message) = (&self.session.roster, ticket.message());
        if message.policy != roster.task().policy_hash() {
            return Err(Error::Policy);
        }
        if message.roster != roster.hash() {
            return Err(Error::Roster);
        }
        if message.support != support {
            return Err(Error::SupportDigest);
        }
        if let Some(lineage) = self.lineage {
            if message.model != lineage.model {
                return Err(Error::Lineage);
            }
            if message.history != lineage.history {
                return Err(Error::History);
            }
        }
        LogPoint::check(self.seen, message.log)
    }

    fn include(&mut self, inclusion: Signed<Inclusion>) -> Result<Vec<Action>, Error> {
        inclusion.round().check(self.round)?;
        match self.state {
            State::Prepared(..) | State::Uploaded(..) => self.inclusion = Some(inclusion),
            State::Checking(..) => {}
            State::Idle | State::Ticketed(_) => {
                return Err(Error::Order { state: "this user has not uploaded anything in this round" });
            }
        }
        Ok(Vec::new())
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
        let params = self.session.params_of(&ticket);
        let rng = &mut self.sealing_rng(&ticket, update, rng);
        let sealed = self.user.seal_in(&params, update, rng, self.session.threads)?;
        let (task, user) = (self.session.roster.task().id(), self.user.id());
        let name = UploadName { task, round, user, ticket: ticket.hash() };
        let content = Zeroizing::new(sealed.to_bytes());
        let body = self.session.roster.agreement().seal(name, &content, rng)?;
        let upload = Upload {
            ticket: ticket.hash(),
            key_id: *self.session.roster.key_id(),
            count: sealed.ciphertexts() as u32,
            salt: sealed.salt,
            body_hash: Digest::of_upload(&body),
        };
        let upload = self.session.sign(self.round, upload, body);
        let mut actions = vec![self.session.append(UPLOAD, &[&upload.to_bytes()])];
        self.state = State::Prepared(ticket, upload);
        self.proceed(now, &mut actions);
        Ok(actions)
    }

    /// Returns the randomness that seals one update. It depends on the update, the ticket and the user's secret key
    /// besides `rng`. So a machine that is restored twice from one snapshot does not use the same noise for two
    /// different updates, which would reveal their difference.
    fn sealing_rng(
        &self,
        ticket: &Signed<RoundTicket>,
        update: &Update,
        rng: &mut impl CryptoRng,
    ) -> ChaCha20Rng {
        let mut fresh = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut fresh[..]);
        let weights = update.weights();
        // allocated at once, so that no copy of the update is left behind
        let length = 12 * weights.indices().len() + 8 * update.dense().len();
        let mut content = Zeroizing::new(Vec::with_capacity(length));
        weights.indices().iter().for_each(|index| content.extend_from_slice(&index.to_be_bytes()));
        for value in weights.values().iter().chain(update.dense()) {
            content.extend_from_slice(&value.to_be_bytes());
        }
        let (secret, ticket) = (self.session.identity().seed(), ticket.hash());
        let parts: [&[u8]; 4] = [&fresh[..], &secret[..], ticket.as_bytes(), &content];
        ChaCha20Rng::from_seed(*derive(domains::SEALING, &parts))
    }

    fn ack(&mut self, ack: &Signed<UploadAck>, now: Time) -> Result<Vec<Action>, Error> {
        ack.round().check(self.round)?;
        let (ticket, upload) = match &self.state {
            State::Prepared(ticket, upload) | State::Uploaded(ticket, upload) => (ticket, upload),
            // the sum is known already
            State::Checking(..) => return Ok(Vec::new()),
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
        let round = publish.round();
        round.check(self.round)?;
        if let State::Checking(..) = self.state {
            return Ok(Vec::new());
        }
        let ticket = self.ticket_of_round()?;
        if self.lineage.is_none() {
            // the sum says nothing to a user who does not know the model that it belongs to
            return Ok(Vec::new());
        }
        let message = publish.message();
        let result = message.check_result(&self.session.roster, round)?;
        let result = result.message();
        let (users, floor) = (result.users as usize, self.session.roster.floor());
        if users < floor {
            return Err(Error::SetSmall { users, floor });
        }
        let included = self.check_inclusion(result.users_root, result.users)?;
        let sum = PublishedSum::new(&self.session.roster, &ticket, publish)?.checked(&self.user)?;
        LogPoint::follow(&mut self.seen, result.log)?;
        let (publish, users_root, model) = (publish.hash(), result.users_root, message.model);
        let checked = CheckedRound { publish, users_root, model, included };
        self.state = State::Checking(ticket, Box::new(checked));
        Ok(vec![Action::Notify(Notice::Apply { sum }), Action::Wake(now.after(RETRY))])
    }

    /// Returns the ticket of the current round.
    fn ticket_of_round(&self) -> Result<Signed<RoundTicket>, Error> {
        let known = self.state.ticket().or(self.known.as_ref());
        known.cloned().ok_or(Error::Order { state: "the ticket of the round is not known" })
    }

    /// Returns whether this user's update is in the sum, and checks the aggregator's claim about it.
    fn check_inclusion(&self, users_root: Digest, users: u32) -> Result<bool, Error> {
        let (upload, acknowledged) = match &self.state {
            State::Prepared(_, upload) => (upload, false),
            State::Uploaded(_, upload) => (upload, true),
            _ => return Ok(false),
        };
        let Some(inclusion) = self.inclusion.as_ref().map(Signed::message) else {
            return if acknowledged { Err(Error::NotMine) } else { Ok(false) };
        };
        let leaf = Participant::of(upload, self.user.id()).leaf();
        let root = root_of(leaf, inclusion.index, &inclusion.path, users);
        match root == Some(users_root) {
            true => Ok(true),
            false if acknowledged => Err(Error::NotMine),
            // this user was restored from an older copy, and the upload that it has forgotten is in the sum
            false => Ok(false),
        }
    }

    fn applied(&mut self, round: Round, model: Vec<u8>, now: Time) -> Result<Vec<Action>, Error> {
        round.check(self.round)?;
        let State::Checking(ticket, checked) = &self.state else {
            return Err(Error::Order { state: "no sum of this round was checked" });
        };
        if Digest::of_model(&model) != checked.model {
            return Err(Error::Model);
        }
        let (published, included) = (Some((checked.publish, checked.users_root)), checked.included);
        let roster = &self.session.roster;
        self.lineage = self.lineage.map(|Lineage { history, .. }| Lineage {
            model: checked.model,
            history: history::next(history, roster, ticket, Ending::Published, published),
        });
        Ok(self.finish(Ending::Published, included, Some(model), now))
    }

    fn close(&mut self, close: &Signed<Close>, now: Time) -> Result<Vec<Action>, Error> {
        close.round().check(self.round)?;
        let ending = close.message().ending;
        if let State::Checking(..) = self.state {
            return if ending == Ending::Published { Ok(Vec::new()) } else { Err(Error::Ending) };
        }
        let ticket = self.ticket_of_round()?;
        if ending == Ending::Published && self.lineage.is_some() {
            // the sum must be fetched first
            return Ok(vec![Action::Poll(self.round), Action::Wake(now.after(RETRY))]);
        }
        let roster = &self.session.roster;
        self.lineage = self.lineage.map(|Lineage { model, history }| Lineage {
            model,
            history: history::next(history, roster, &ticket, ending, None),
        });
        Ok(self.finish(ending, false, None, now))
    }

    /// Ends the current round.
    fn finish(&mut self, ending: Ending, included: bool, model: Option<Vec<u8>>, now: Time) -> Vec<Action> {
        let (round, ending) = (self.round, Some(ending));
        let mut actions = Vec::new();
        self.leave(round.next(), &mut actions);
        actions.push(Action::Notify(Notice::Finished { round, ending, included, model }));
        actions.push(Action::Wake(now.after(RETRY)));
        actions
    }

    /// Moves to `round`. Forgets everything about earlier rounds, including their permutations.
    fn leave(&mut self, round: Round, actions: &mut Vec<Action>) {
        self.round = round;
        self.state = State::Idle;
        (self.known, self.inclusion) = (None, None);
        self.user.advance(round);
        self.follow_rosters();
        let checkpoint = self.write_checkpoint();
        actions.push(self.session.checkpoint(checkpoint));
    }

    /// Puts the rosters into force that are due in the current round. Returns whether there were any. The caller
    /// writes a checkpoint.
    fn follow_rosters(&mut self) -> bool {
        let before = self.next_rosters.len();
        let round = self.round;
        let due = |(change, _): &(Arc<RosterChange>, _)| change.roster().first_round() <= round;
        while self.next_rosters.front().is_some_and(due)
            && let Some((change, us)) = self.next_rosters.pop_front()
        {
            self.session.put_in_force(&change);
            self.user.renew(us);
            self.lineage = self.lineage.map(|Lineage { model, history }| Lineage {
                model,
                history: history::with_roster(history, change.roster().hash()),
            });
        }
        self.next_rosters.len() < before
    }

    /// Reads the seeds of later rosters, so that nothing can fail when they come into force.
    fn read_changes(&mut self) -> Result<(), Error> {
        for change in self.session.changes() {
            let first = change.roster().first_round();
            if first < self.round || (first == self.round && !matches!(self.state, State::Idle)) {
                return Err(ROSTER_TOO_LATE);
            }
            let us = change.user_shared_seed(self.user.id(), &self.user.keys().mask)?;
            self.next_rosters.push_back((change.clone(), us));
        }
        Ok(())
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
            State::Checking(..) => {}
        }
        actions.push(Action::Wake(now.after(RETRY)));
    }

    fn write_checkpoint(&self) -> Writer {
        let mut out = Writer::new();
        out.put(&self.round);
        write_point(&mut out, self.seen);
        let keys = self.user.keys();
        for (round, key) in [keys.us.to_parts(), keys.ua.to_parts(), keys.mask.to_parts()] {
            out.put(&round);
            out.put(key);
        }
        out.u8(u8::from(self.lineage.is_some()));
        if let Some(Lineage { model, history }) = &self.lineage {
            out.put(model);
            out.put(history);
        }
        out
    }
}

/// The seeds in a checkpoint of a user.
struct UserSeeds {
    us: UserSharedSeed,
    ua: UserAggregatorSeed,
    mask: MaskSeed,
}

impl UserSeeds {
    fn read(input: &mut Reader<'_>) -> Result<Self, Error> {
        let us = UserSharedSeed::from_parts(input.get()?, input.get()?);
        let ua = UserAggregatorSeed::from_parts(input.get()?, input.get()?);
        let mask = MaskSeed::from_parts(input.get()?, input.get()?);
        Ok(Self { us, ua, mask })
    }
}

impl UserKeys {
    /// Returns the keys of a user whose seeds are in its log.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log belongs to another party or task, is damaged, or does not begin with a checkpoint.
    pub fn from_log(
        log: &[u8],
        user: UserId,
        encryption: EncryptionKey,
        rosters: &Rosters,
    ) -> Result<Self, Error> {
        stored_seeds(log, PartyId::User(user), rosters, |input| {
            let _round: Round = input.get()?;
            read_point(input)?;
            let UserSeeds { us, ua, mask } = UserSeeds::read(input)?;
            Ok(Self { task: rosters.first().task().clone(), user, encryption, us, ua, mask })
        })
    }
}

impl Recover for UserParty {
    fn read_checkpoint(&mut self, input: &mut Reader<'_>) -> Result<(), Error> {
        self.round = input.get()?;
        self.seen = read_point(input)?;
        let UserSeeds { us, ua, mask } = UserSeeds::read(input)?;
        self.user.resume(us, ua, mask);
        self.lineage = match input.u8()? {
            0 => None,
            _ => Some(Lineage { model: input.get()?, history: input.get()? }),
        };
        Ok(())
    }

    fn replay(&mut self, tag: u8, record: &Record<'_>, _: Time) -> Result<(), Error> {
        let roster = &self.session.roster;
        self.state = match (tag, core::mem::replace(&mut self.state, State::Idle)) {
            (TICKET, State::Idle) => {
                let ticket: Signed<RoundTicket> = record.message(0, roster)?;
                self.seen = Some(ticket.message().log);
                self.round = ticket.round();
                self.lineage = Some(Lineage::of(ticket.message()));
                State::Ticketed(ticket)
            }
            (UPLOAD, State::Ticketed(ticket)) => State::Prepared(ticket, record.message(0, roster)?),
            (ACK, State::Prepared(ticket, upload)) => State::Uploaded(ticket, upload),
            _ => return Err(OUT_OF_SEQUENCE),
        };
        Ok(())
    }

    fn resume(&mut self, now: Time, actions: &mut Vec<Action>) -> Result<(), Error> {
        self.read_changes()?;
        if self.follow_rosters() {
            let checkpoint = self.write_checkpoint();
            actions.push(self.session.checkpoint(checkpoint));
        }
        self.proceed(now, actions);
        Ok(())
    }
}

impl State {
    fn ticket(&self) -> Option<&Signed<RoundTicket>> {
        match self {
            Self::Idle => None,
            Self::Ticketed(ticket)
            | Self::Prepared(ticket, _)
            | Self::Uploaded(ticket, _)
            | Self::Checking(ticket, _) => Some(ticket),
        }
    }
}
