//! The one that runs the party: it does one thing after the other, and nothing before what it follows from is stored.

mod shared;

pub(super) use shared::Shared;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use dphe::message::{Close, Ending, Freeze, Message as _, Publish, RoundTicket, Signed, UploadAck, kind};
use dphe::party::{Action, AggregatorEvent, AggregatorParty, Notice, Time};
use dphe::{Digest, Party, Roster, Round, UserId, WeightSum};
use rand_core::Rng as _;
use tokio::sync::{mpsc, oneshot, watch};

use super::super::courier::Courier;
use super::super::uploads::Uploads;
use super::super::{Clock, Machine, ServiceOptions, os_rng};
use super::record::Recording;
use super::{Arrived, Board, Command, Made, RoundRecord, Status};
use crate::Error;
use crate::http::problem::{HttpCode, Problem};
use crate::http::server::Shutdown;
use crate::http::write_list;
use crate::kit::Kit;
use crate::learning::ModelMaker;
use crate::store::{Archive, LogStore};
use crate::task_file::CollectSection;
use crate::telemetry::Metrics;
use crate::tensorboard::EventFile;

/// The model of the last round that was published, with the round after it.
async fn last_published<S: Archive>(
    store: &mut S,
    roster: &Roster,
) -> Result<Option<(Round, Vec<u8>)>, Error> {
    let messages = store.messages(Round::FIRST).await?;
    let Some((round, _, message)) = messages.iter().rfind(|(_, kind, _)| *kind == Publish::KIND) else {
        return Ok(None);
    };
    let publish: Signed<Publish> = Signed::decode(message, roster)?;
    Ok(Some((round.next(), publish.body().to_vec())))
}

pub(super) struct Actor<S, M> {
    machine: Machine<AggregatorParty>,
    roster: Arc<Roster>,
    store: S,
    /// Where replicas take uploads: none come here then.
    shared: Option<Shared>,
    maker: Arc<Mutex<M>>,
    clock: Clock,
    alarm: Option<Time>,
    /// From then on the least count is enough.
    soft_deadline: Option<Time>,
    start_at: Option<Time>,
    collect: CollectSection,
    rounds: u64,
    pub(super) courier: Courier,
    pub(super) commands: mpsc::Sender<Command>,
    /// Users whose upload is being taken.
    waiting: BTreeMap<UserId, oneshot::Sender<Result<Vec<u8>, Problem>>>,
    pub(super) board: watch::Sender<Arc<Board>>,
    /// When everybody who waits was last told to look at the board, and when they are to be next.
    told: Time,
    tell_at: Option<Time>,
    recording: Recording,
    records: Arc<Vec<RoundRecord>>,
    events: Arc<Mutex<Option<EventFile>>>,
    metrics: Arc<Metrics>,
}

/// Rounds that are shown, at least; all are in the store.
pub(super) const RECORDS: usize = 500;
/// How long uploads alone are kept from those who wait: each costs as many wake-ups as there are users.
const TELL: u64 = 250;
/// After a round that was given up.
const PAUSE: u64 = 1_000;

/// The last so many records that a store has.
pub(super) async fn last_records<S: Archive>(store: &mut S, round: Round) -> Result<Vec<RoundRecord>, Error> {
    let shown = round.get().saturating_sub(RECORDS as u64);
    let records = store.reports(Round::new(shown).unwrap_or(Round::FIRST)).await?;
    // what an earlier version wrote and this one cannot read is left out of pictures, and stays where it is
    Ok(records.iter().filter_map(|(_, json)| serde_json::from_str(json).ok()).collect())
}

impl<S: LogStore + Archive, M: ModelMaker> Actor<S, M> {
    /// Takes up where the log ends.
    pub(super) async fn start(
        kit: &Kit,
        mut store: S,
        shared: Option<Shared>,
        maker: Arc<Mutex<M>>,
        events: Arc<Mutex<Option<EventFile>>>,
        options: &ServiceOptions,
    ) -> Result<(Self, mpsc::Receiver<Command>), Error> {
        let (roster, task_file, clock) = (kit.roster().clone(), kit.task_file(), Clock::new());
        let log = store.load().await?;
        let (keys, identity) = (kit.aggregator_keys()?, kit.identity()?);
        let (party, actions) =
            AggregatorParty::start(keys, identity, (*roster).clone(), &log, options.threads, clock.now())?;
        if store.latest_model(party.round()).await?.is_none() {
            let (round, model) =
                last_published(&mut store, &roster).await?.unwrap_or((Round::FIRST, kit.initial_model()?));
            store.put_model(round, Digest::of_model(&model), &model).await?;
        }
        let records = Arc::new(last_records(&mut store, party.round()).await?);
        let (sender, commands) = mpsc::channel(1024);
        let mut actor = Self {
            machine: Machine::new(party, options.metrics.clone()),
            roster,
            store,
            shared,
            maker,
            clock,
            alarm: None,
            soft_deadline: None,
            start_at: None,
            collect: task_file.collect,
            rounds: task_file.task.rounds,
            courier: Courier::default(),
            commands: sender,
            waiting: BTreeMap::new(),
            board: watch::channel(Arc::new(Board::default())).0,
            told: Time(0),
            tell_at: None,
            recording: Recording::default(),
            records,
            events,
            metrics: options.metrics.clone(),
        };
        actor.carry_out(actions).await?;
        // before its ticket is shown
        if let Some(shared) = &actor.shared
            && actor.machine.party()?.phase() == "collecting"
        {
            shared.tally.open_round(actor.machine.party()?.round()).await?;
        }
        actor.refresh().await?;
        Ok((actor, commands))
    }

    pub(super) async fn run(
        &mut self,
        mut commands: mpsc::Receiver<Command>,
        mut arrivals: mpsc::Receiver<Arrived>,
        uploads: Option<Uploads>,
        mut shutdown: Shutdown,
    ) -> Result<(), Error> {
        match self.machine.party()?.phase() {
            "idle" => self.start_at = Some(self.clock.now()),
            // the time starts anew, as the deadline does
            "collecting" => self.collect_anew().await?,
            _ => {}
        }
        let mut round = Round::FIRST;
        loop {
            // pieces of rounds that are over are of no use to anybody
            if std::mem::replace(&mut round, self.machine.party()?.round()) != round
                && let Some(uploads) = &uploads
                && let Err(error) = uploads.keep_only(round).await
            {
                tracing::warn!(%error, "old pieces of uploads could not be removed");
            }
            let look = self.shared.as_ref().and_then(|shared| shared.look_at);
            let times = [self.alarm, self.soft_deadline, self.start_at, look, self.tell_at];
            let next = times.into_iter().flatten().min();
            tokio::select! {
                biased;
                () = shutdown.wait() => return Ok(()),
                command = commands.recv() => match command {
                    Some(command) => self.obey(command).await?,
                    None => return Ok(()),
                },
                Some(arrived) = arrivals.recv() => self.upload(arrived).await?,
                () = self.clock.wait_until(next) => {}
            }
            // also when commands never end: whoever sends many must not hold up a deadline
            self.ring().await?;
            self.refresh().await?;
        }
    }

    async fn obey(&mut self, command: Command) -> Result<(), Error> {
        match command {
            Command::Answered(message) => self.answered(&message).await,
            Command::Refused { message, problem } => self.refused(&message, &problem).await,
            Command::Made { round, model } => self.made(round, model).await,
        }
    }

    /// What is due by now.
    async fn ring(&mut self) -> Result<(), Error> {
        let now = self.clock.now();
        let due = |time: Option<Time>| time.is_some_and(|time| time <= now);
        if due(self.tell_at) {
            (self.told, self.tell_at) = (now, None);
            self.board.send_modify(|_| {});
        }
        if self.shared.is_some() && self.machine.party()?.phase() == "collecting" {
            return self.look(due(self.alarm)).await;
        }
        if due(self.alarm) {
            self.alarm = None;
            self.step("tick", AggregatorEvent::Tick).await?;
        }
        if due(self.soft_deadline) {
            self.soft_deadline = None;
            self.freeze_if_enough().await?;
        }
        if due(self.start_at) {
            self.start_at = None;
            self.begin_round().await?;
        }
        Ok(())
    }

    async fn begin_round(&mut self) -> Result<(), Error> {
        let party = self.machine.party()?;
        let round = party.round();
        if !party.is_idle() || round.get() > self.rounds {
            return Ok(());
        }
        let Some((_, model)) = self.store.latest_model(round).await? else {
            return Err(Error::Unexpected { what: "a round without a model" });
        };
        let mut nonce = [0; 16];
        os_rng()?.fill_bytes(&mut nonce);
        let (model, deadline) = (Digest::of_model(&model), self.collect.time.max.0);
        self.recording = Recording::begin();
        self.step("start", AggregatorEvent::Start { model, deadline, nonce }).await?;
        Ok(())
    }

    async fn upload(&mut self, arrived: Arrived) -> Result<(), Error> {
        let Arrived { user, message, reply, _places } = arrived;
        let (bytes, before) = (message.len(), self.machine.party()?.collected().len());
        self.waiting.insert(user, reply);
        let result = self.step("upload", AggregatorEvent::Message(message.into())).await;
        let waiting = self.waiting.remove(&user);
        match (result, waiting) {
            (Ok(Some(error)), Some(reply)) => {
                let _ = reply.send(Err(Problem::from(&error)));
            }
            (Err(error), waiting) => {
                if let Some(reply) = waiting {
                    let _ = reply.send(Err(HttpCode::Storage.because("it could not be stored")));
                }
                return Err(error);
            }
            _ => {}
        }
        if self.machine.party()?.collected().len() > before {
            self.metrics.uploads.add(1);
            self.metrics.upload_bytes.add(bytes as i64);
            self.recording.upload(user, bytes);
        }
        if self.soft_deadline.is_none() {
            self.freeze_if_enough().await?;
        }
        Ok(())
    }

    async fn collect_anew(&mut self) -> Result<(), Error> {
        let (round, Time(now)) = (self.machine.party()?.round(), self.clock.now());
        self.soft_deadline = Some(Time(now.saturating_add(self.collect.time.min.0)));
        if let Some(shared) = &mut self.shared {
            shared.tally.open_round(round).await?;
            shared.look_at = Some(Time(now));
        }
        Ok(())
    }

    /// After the least time the least count is enough.
    async fn freeze_if_enough(&mut self) -> Result<(), Error> {
        let party = self.machine.party()?;
        if party.phase() == "collecting" && party.collected().len() >= self.roster.floor() {
            self.step("freeze", AggregatorEvent::Freeze).await?;
        }
        Ok(())
    }

    async fn answered(&mut self, message: &Bytes) -> Result<(), Error> {
        let found = (kind(message), crate::http::round_of(message));
        // kept before it has an effect: a crash in between must not lose it, and `dphe verify` checks it anyway
        if let (Ok(kind), Some(round)) = found
            && round == self.machine.party()?.round()
        {
            self.store.put_message(round, kind, message).await?;
        }
        let refused = self.step("answer", AggregatorEvent::Message(message.to_vec())).await?;
        if refused.is_none()
            && found.0 == Ok(RoundTicket::KIND)
            && self.machine.party()?.phase() == "collecting"
        {
            self.collect_anew().await?;
        }
        Ok(())
    }

    async fn refused(&mut self, message: &Bytes, problem: &Problem) -> Result<(), Error> {
        tracing::error!(code = problem.code, detail = problem.detail, "the key generator refuses");
        self.metrics.refused(&problem.code);
        // a set that must not be opened: the round is given up
        if kind(message) == Ok(Freeze::KIND)
            && crate::http::round_of(message) == Some(self.machine.party()?.round())
        {
            let detail: String = problem.detail.chars().take(200).collect();
            self.recording.problem(format!("the key generator refuses: {detail}"));
            self.step("abort", AggregatorEvent::Abort).await?;
        }
        Ok(())
    }

    /// Makes the next model, somewhere else.
    async fn make(&mut self, sum: WeightSum) -> Result<(), Error> {
        let round = sum.round();
        let Some((_, model)) = self.store.latest_model(round).await? else {
            return Err(Error::Unexpected { what: "a round without a model" });
        };
        let (maker, commands) = (self.maker.clone(), self.commands.clone());
        const PANICKED: Error = Error::Unexpected { what: "a learner that panicked" };
        let made = tokio::task::spawn_blocking(move || {
            let mut maker = maker.lock().map_err(|_| PANICKED)?;
            let model = maker.next_model(round, &sum, &model)?;
            let accuracy = maker.accuracy(&model);
            Ok(Made { model, accuracy })
        });
        tokio::spawn(async move {
            let made = made.await.unwrap_or(Err(PANICKED));
            let _ = commands.send(Command::Made { round, model: made }).await;
        });
        Ok(())
    }

    async fn made(&mut self, round: Round, made: Result<Made, Error>) -> Result<(), Error> {
        let model = match made {
            Ok(Made { model, accuracy }) => {
                self.recording.made(accuracy);
                model
            }
            Err(error) => {
                // the sum was opened and cannot be again: the round ends with what it began with
                tracing::error!(round = round.get(), %error, "no model can be made of the sum");
                self.recording.problem(format!("no model can be made of the sum: {error}"));
                let Some((_, model)) = self.store.latest_model(round).await? else {
                    return Err(Error::Unexpected { what: "a round without a model" });
                };
                model
            }
        };
        self.store.put_model(round.next(), Digest::of_model(&model), &model).await?;
        if let Some(error) = self.step("new model", AggregatorEvent::NewModel { round, model }).await? {
            return Err(error.into());
        }
        Ok(())
    }

    /// Takes a step and does what it says. A refusal is returned: nothing has changed then.
    async fn step(&mut self, what: &str, event: AggregatorEvent) -> Result<Option<dphe::Error>, Error> {
        let now = self.clock.now();
        match self.machine.run(move |party| party.step(event, now)).await? {
            Ok(actions) => {
                self.carry_out(actions).await?;
                Ok(None)
            }
            Err(error) => {
                // those of uploads are counted where they are answered
                if what != "upload" {
                    self.metrics.refused(error.code());
                }
                tracing::warn!(what, code = error.code(), %error, "refused");
                Ok(Some(error))
            }
        }
    }

    async fn carry_out(&mut self, actions: Vec<Action>) -> Result<(), Error> {
        for action in actions {
            match action {
                Action::Append(bytes) => {
                    self.store.append(&bytes).await?;
                    self.metrics.log_bytes.add(bytes.len() as i64);
                }
                Action::Replace(bytes) => self.store.replace(&bytes).await?,
                Action::Send { to: Party::KeyGenerator, message } => {
                    if let (Ok(kind @ (Freeze::KIND | Close::KIND)), Some(round)) =
                        (kind(&message), crate::http::round_of(&message))
                    {
                        self.store.put_message(round, kind, &message).await?;
                    }
                    self.courier.take(message);
                }
                // who has not asked will find it on the board
                Action::Send { to: Party::User(user), message } => {
                    if let Some(reply) = self.waiting.remove(&user) {
                        if let Ok(ack) = Signed::<UploadAck>::decode(&message, &self.roster) {
                            let (round, body) = (ack.round().get(), ack.message().body_hash);
                            tracing::info!(round, user = user.get(), %body, "acknowledged");
                        }
                        let _ = reply.send(Ok(message));
                    }
                }
                // users find it on the board
                Action::Announce(_) | Action::Send { .. } | Action::Poll(_) => {}
                Action::Wake(time) => self.alarm = Some(time),
                Action::Notify(Notice::Opened { sum, overlap }) => {
                    self.recording.opened(&sum, overlap.map(|overlap| overlap.share_of_singles()));
                    self.make(sum).await?;
                }
                Action::Notify(Notice::Finished { round, ending, .. }) => {
                    self.finished(round, ending.unwrap_or(Ending::Aborted)).await?;
                }
                Action::Notify(Notice::Train { .. }) => {}
            }
        }
        Ok(())
    }

    async fn finished(&mut self, round: Round, ending: Ending) -> Result<(), Error> {
        let record = std::mem::take(&mut self.recording).end(round, ending, self.roster.floor());
        let (name, reason) = (record.ending.name(), record.reason.as_deref());
        self.metrics.ended(name);
        tracing::info!(round = round.get(), ending = name, users = record.users, reason, "the round is over");
        let json = serde_json::to_string(&record).unwrap_or_default();
        self.store.put_report(round, &json).await?;
        // pictures are no reason to stop
        if let Ok(mut events) = self.events.lock()
            && let Some(events) = events.as_mut()
            && let Err(error) = events.scalars(record.round, &record.scalars())
        {
            tracing::warn!(%error, file = %events.path().display(), "figures for TensorBoard could not be written");
        }
        let records = Arc::make_mut(&mut self.records);
        records.push(record);
        if records.len() > 2 * RECORDS {
            records.drain(..RECORDS);
        }
        // earlier models than the one in use, which may be many rounds old, are in their publish messages
        if let Some((in_use, _)) = self.store.latest_model(round.next()).await? {
            self.store.forget_models(in_use).await?;
        }
        if let Some(shared) = &self.shared
            && let Err(error) = shared.tally.forget(round.next()).await
        {
            tracing::warn!(%error, "what is left of old rounds could not be removed");
        }
        (self.alarm, self.soft_deadline) = (None, None);
        let Time(now) = self.clock.now();
        let pause = if ending == Ending::Published { 0 } else { PAUSE };
        self.start_at = Some(Time(now.saturating_add(pause)));
        Ok(())
    }

    /// Puts on the board what has changed.
    async fn refresh(&mut self) -> Result<(), Error> {
        let party = self.machine.party()?;
        let collected = match &self.shared {
            Some(shared) if party.phase() == "collecting" => shared.collected.clone(),
            _ => party.collected(),
        };
        let status = Status {
            party: "aggregator".into(),
            task: self.roster.task().id().to_string(),
            round: party.round().get(),
            rounds: self.rounds,
            phase: party.phase().to_owned(),
            collected: collected.into_iter().map(UserId::get).collect(),
            users: self.roster.users().len(),
            over: party.is_idle() && party.round().get() > self.rounds,
        };
        let old = self.board.borrow().clone();
        if old.status == status
            && old.records.last().map(|record| record.round) == self.records.last().map(|record| record.round)
        {
            return Ok(());
        }
        let now = self.clock.now();
        if let Some(shared) = &mut self.shared {
            let stands = |status: &Status| (status.round, status.phase.clone(), status.over);
            let only_more = stands(&status) == stands(&old.status);
            if !shared.begin_showing(only_more, now) {
                return Ok(());
            }
        }
        self.metrics.round.set(i64::try_from(status.round).unwrap_or(i64::MAX));
        let mut board = Board { status, records: self.records.clone(), ..(*old).clone() };
        if (board.status.round, &board.status.phase) != (old.status.round, &old.status.phase) {
            tracing::info!(round = board.status.round, phase = board.status.phase.as_str(), "state");
            let Some(user) = self.roster.users().next() else { return Ok(()) };
            let poll = AggregatorEvent::Poll { user, round: Round::FIRST };
            let now = self.clock.now();
            let actions = self.machine.run(move |party| party.step(poll, now)).await??;
            self.read_poll(actions, &mut board).await?;
            let round = self.machine.party()?.round();
            let model = self.store.latest_model(round).await?;
            board.model = model.map(|(_, model)| (Digest::of_model(&model), model.into()));
        }
        if let Some(shared) = &self.shared {
            shared.show(&old, &board).await?;
        }
        let stands = |board: &Board| (board.status.round, board.status.phase.clone(), board.status.over);
        let soon = Time(self.told.0.saturating_add(TELL));
        let now = self.clock.now();
        // one more upload is no news for the thousands who wait for the end of the round
        let may_wait =
            stands(&board) == stands(&old) && Arc::ptr_eq(&board.records, &old.records) && now < soon;
        (self.told, self.tell_at) = if may_wait { (self.told, Some(soon)) } else { (now, None) };
        self.board.send_if_modified(|shown| {
            *shown = Arc::new(board);
            !may_wait
        });
        Ok(())
    }

    async fn read_poll(&mut self, actions: Vec<Action>, board: &mut Board) -> Result<(), Error> {
        board.ticket = None;
        let mut closing: Vec<Bytes> = Vec::new();
        for action in actions {
            let Action::Send { message, .. } = action else { continue };
            match kind(&message)? {
                RoundTicket::KIND => {
                    let ticket: Signed<RoundTicket> = Signed::decode(&message, &self.roster)?;
                    board.ticket = Some((ticket.hash(), write_list(&[message]).into()));
                }
                _ => closing.push(message.into()),
            }
        }
        let round = closing.last().and_then(|message| crate::http::round_of(message));
        if let Some(round) = round {
            let known = board.ended.as_ref().is_some_and(|(known, _)| *known == round);
            if !known && let Some(publish) = closing.iter().find(|message| kind(message) == Ok(Publish::KIND))
            {
                self.store.put_message(round, Publish::KIND, publish).await?;
            }
            board.ended = Some((round, write_list(&closing).into()));
        }
        board.gather_news();
        Ok(())
    }
}
