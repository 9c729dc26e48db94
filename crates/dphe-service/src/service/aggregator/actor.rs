//! The actor that runs the aggregator's party. It handles one event after the other.
//!
//! | module | content |
//! | --- | --- |
//! | `schedule` | the times at which it has to act |
//! | `answers` | answers of the key generator |
//! | `collect` | uploads of a single aggregator, and the end of collecting |
//! | `shared` | the uploads that all replicas collect |
//! | `model` | the next model, and the end of a round |
//! | `publish` | the snapshot that handlers answer from |

mod answers;
mod collect;
mod model;
mod publish;
mod schedule;
#[cfg_attr(not(feature = "postgres"), path = "actor/no_shared.rs")]
mod shared;

pub(super) use model::last_records;
pub(super) use shared::SharedRound;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use dphe::party::{AggregatorEvent, AggregatorParty, AggregatorPhase, Notice, Party as _, Time};
use dphe::wire::{Ending, Header, Kind, Rosters, Signed, UploadAck};
use dphe::{Digest, PartyId, Roster, Round, UserId};
use schedule::{Schedule, Timer};
use tokio::sync::{mpsc, watch};

use super::super::ServiceOptions;
use super::super::chunks::ChunkFiles;
use super::super::driver::{Clock, Driver, Effect};
use super::super::outbox::Outbox;
use super::past_rounds;
use super::record::{Recording, RoundRecord};
use super::replies::{self, PendingUpload, UploadReply};
use super::spoilers::{SearchRules, Spoilers, Users};
use super::{AggregatorCommand, Snapshot};
use crate::Error;
use crate::http::server::Shutdown;
use crate::kit::{Kit, Start};
use crate::learning::SharedMaker;
use crate::store::{AnyStore, Archive as _};
use crate::task_file::CollectSection;
use crate::telemetry::Metrics;
use crate::tensorboard::EventFile;

pub(super) struct AggregatorActor {
    driver: Driver<AggregatorParty>,
    /// The latest roster, which may not be in force yet.
    roster: Arc<Roster>,
    rosters: Rosters,
    /// The uploads of all replicas. A single aggregator has none; it collects uploads itself.
    shared: Option<SharedRound>,
    maker: SharedMaker,
    schedule: Schedule,
    collect: CollectSection,
    rounds: u64,
    /// The number of rounds that were aborted. They do not count towards the rounds of the task.
    aborted: u64,
    /// Whether the key generator says that it opens no more sums.
    used_up: bool,
    pub(super) outbox: Outbox,
    pub(super) commands: mpsc::Sender<AggregatorCommand>,
    /// Where to send the answer to the upload in the current step.
    waiting: BTreeMap<UserId, UploadReply>,
    pub(super) snapshot: watch::Sender<Arc<Snapshot>>,
    /// When the receivers of the snapshot were last woken.
    announced: Time,
    recording: Recording,
    spoilers: Spoilers,
    rules: SearchRules,
    /// The users who are asked for uploads in the current round, or `None` for all.
    asked: Option<Users>,
    records: Arc<Vec<RoundRecord>>,
    events: Arc<Mutex<Option<EventFile>>>,
    metrics: Arc<Metrics>,
}

impl AggregatorActor {
    /// Recovers from the log.
    pub(super) async fn start(
        kit: &Kit,
        mut store: AnyStore,
        shared: Option<SharedRound>,
        maker: SharedMaker,
        events: Arc<Mutex<Option<EventFile>>>,
        options: &ServiceOptions,
    ) -> Result<(Self, mpsc::Receiver<AggregatorCommand>), Error> {
        let (roster, task_file, clock) = (kit.roster().clone(), kit.task_file(), Clock::new());
        let rosters = kit.rosters().clone();
        let start = Start::new(kit, &mut store, options.roster.as_ref()).await?;
        let keys = start.aggregator_keys()?;
        let (party, actions) =
            start.party::<AggregatorParty, _>(keys, &mut store, options.threads, clock.now()).await?;
        model::restore_model(&mut store, &rosters, party.round(), kit, &maker).await?;
        let records = Arc::new(last_records(&mut store, party.round()).await?);
        let model::StoredState { mut spoilers, aborted } =
            model::stored_state(&mut store, party.round()).await?;
        let rules = SearchRules::new(&roster);
        spoilers.keep_users(&rules);
        let asked = spoilers.asked(party.round().get(), &rules);
        let (sender, commands) = mpsc::channel(1024);
        let mut actor = Self {
            driver: Driver::new(party, actions, store, clock, options.metrics.clone())?,
            roster,
            rosters,
            shared,
            maker,
            schedule: Schedule::default(),
            collect: task_file.collect,
            rounds: task_file.task.rounds,
            aborted,
            used_up: false,
            outbox: Outbox::default(),
            commands: sender,
            waiting: BTreeMap::new(),
            snapshot: watch::channel(Arc::new(Snapshot::default())).0,
            announced: Time(0),
            recording: Recording::default(),
            asked,
            spoilers,
            rules,
            records,
            events,
            metrics: options.metrics.clone(),
        };
        actor.carry_out().await?;
        actor.restore_record().await?;
        // a round must be open in the database before replicas see its ticket
        if let Some(shared) = &actor.shared
            && actor.driver.party()?.phase() == AggregatorPhase::Collecting
        {
            shared.start(actor.driver.party()?.round()).await?;
        }
        actor.publish().await?;
        Ok((actor, commands))
    }

    /// Runs until `shutdown`. In a replica, the `UploadBatcher` takes the uploads and chunks instead.
    pub(super) async fn run(
        &mut self,
        mut commands: mpsc::Receiver<AggregatorCommand>,
        mut uploads: mpsc::Receiver<PendingUpload>,
        chunks: Option<ChunkFiles>,
        mut shutdown: Shutdown,
    ) -> Result<(), Error> {
        match self.driver.party()?.phase() {
            AggregatorPhase::Idle => self.schedule.set(Timer::StartRound, self.driver.clock.now()),
            // the collection time starts again, as the party's deadline does
            AggregatorPhase::Collecting => self.start_collecting().await?,
            _ => {}
        }
        let mut round = Round::FIRST;
        loop {
            if std::mem::replace(&mut round, self.driver.party()?.round()) != round
                && let Some(chunks) = &chunks
                && let Err(error) = chunks.keep_only(round).await
            {
                tracing::warn!(%error, "chunks of earlier rounds could not be deleted");
            }
            let next = self.schedule.next().into_iter().chain(self.driver.alarm()).min();
            // in random order, so that a stream of commands cannot keep uploads waiting
            tokio::select! {
                () = shutdown.wait() => return Ok(()),
                command = commands.recv() => match command {
                    Some(command) => self.handle(command).await?,
                    None => return Ok(()),
                },
                Some(upload) = uploads.recv() => self.upload(upload).await?,
                () = self.driver.clock.wait_until(next) => {}
            }
            // runs after every event, so that a stream of events cannot delay a deadline
            self.run_due().await?;
            self.publish().await?;
        }
    }

    async fn handle(&mut self, command: AggregatorCommand) -> Result<(), Error> {
        match command {
            AggregatorCommand::Answered(message) => self.answered(&message).await,
            AggregatorCommand::Refused { message, problem } => self.refused(&message, &problem).await,
            AggregatorCommand::PastRound { round, reply } => {
                let ended = past_rounds::read(&mut self.driver.store, &self.rosters, round).await?;
                let _ = reply.send(ended.map(Arc::new));
                Ok(())
            }
            AggregatorCommand::PastMessages { round, reply } => {
                let messages =
                    past_rounds::read_messages(&mut self.driver.store, &self.rosters, round).await?;
                let _ = reply.send(messages);
                Ok(())
            }
            AggregatorCommand::ModelMade { round, model } => self.model_made(round, model).await,
        }
    }

    async fn run_due(&mut self) -> Result<(), Error> {
        let now = self.driver.clock.now();
        if self.schedule.take_due(Timer::WakeReceivers, now) {
            self.announced = now;
            self.snapshot.send_modify(|_| {});
        }
        if self.shared.is_some() && self.driver.party()?.phase() == AggregatorPhase::Collecting {
            return self.count_shared_uploads(self.driver.alarm().is_some_and(|alarm| alarm <= now)).await;
        }
        if self.driver.take_alarm() {
            self.step("tick", AggregatorEvent::Tick).await?;
        }
        if self.schedule.take_due(Timer::FloorSuffices, now) {
            self.freeze_if_enough().await?;
        }
        if self.schedule.take_due(Timer::Remind, now) {
            self.log_missing()?;
        }
        if self.schedule.take_due(Timer::Complete, now) {
            self.freeze_if_complete().await?;
        }
        if self.schedule.take_due(Timer::StartRound, now) {
            self.start_round().await?;
        }
        Ok(())
    }

    /// Returns whether the task needs no further round. An aborted round has opened no sum, so another one replaces it.
    fn is_over(&self) -> Result<bool, Error> {
        let ended = self.driver.party()?.round().get() - 1;
        Ok(self.used_up || ended.saturating_sub(self.aborted) >= self.rounds)
    }

    async fn start_round(&mut self) -> Result<(), Error> {
        let party = self.driver.party()?;
        let round = party.round();
        if !party.is_idle() || self.is_over()? {
            return Ok(());
        }
        let model = Digest::of_model(&self.current_model(round).await?);
        let deadline = self.collect.time.max.0;
        self.recording = Recording::begin();
        self.step("start", AggregatorEvent::Start { model, deadline }).await?;
        Ok(())
    }

    /// Runs a step and carries out its actions. Returns the error if the party refuses the event.
    async fn step(&mut self, what: &str, event: AggregatorEvent) -> Result<Option<dphe::Error>, Error> {
        match self.driver.step(event).await? {
            Ok(()) => self.carry_out().await.map(|()| None),
            Err(error) => {
                self.log_refused(what, &error);
                Ok(Some(error))
            }
        }
    }

    fn log_refused(&self, what: &str, error: &dphe::Error) {
        self.metrics.refused(error.code());
        tracing::warn!(what, code = error.code().as_str(), %error, "refused");
    }

    async fn carry_out(&mut self) -> Result<(), Error> {
        while let Some(effect) = self.driver.next_effect().await? {
            match effect {
                Effect::Send { to: PartyId::KeyGenerator, message } => {
                    if let Ok(Header {
                        kind: kind @ (Kind::Freeze | Kind::Close), round: Some(round), ..
                    }) = Header::peek(&message)
                    {
                        self.driver.store.put_message(round, kind.number(), &message).await?;
                        if kind == Kind::Freeze {
                            self.frozen(&message)?;
                        }
                    }
                    self.outbox.push(message);
                }
                Effect::Send { to: PartyId::User(user), message } => self.answer_user(user, &message)?,
                Effect::Notify(Notice::Opened { sum, overlap }) => {
                    self.recording.opened(&sum, overlap.map(|overlap| overlap.share_of_singles()));
                    self.use_sum(sum).await?;
                }
                Effect::Notify(Notice::Finished { round, ending, .. }) => {
                    self.finished(round, ending.unwrap_or(Ending::Aborted)).await?;
                }
                Effect::Send { to: PartyId::Aggregator, .. }
                | Effect::Notify(Notice::Train { .. } | Notice::Apply { .. }) => {}
            }
        }
        Ok(())
    }

    /// Hands a message to the request of a user that waits for it. Nothing can be sent to a user who does not wait:
    /// tickets and the ends of rounds are in the snapshot, which users poll.
    fn answer_user(&mut self, user: UserId, message: &[u8]) -> Result<(), Error> {
        match Header::peek(message)?.kind {
            Kind::UploadAck => {
                if let Some(reply) = self.waiting.remove(&user) {
                    let ack: Signed<UploadAck> = Signed::decode(message, self.driver.party()?.roster())?;
                    let upload = (ack.round(), user, ack.message().body_hash);
                    replies::send_ack([reply], upload, message);
                }
                Ok(())
            }
            Kind::RoundOpen
            | Kind::RoundTicket
            | Kind::Upload
            | Kind::Freeze
            | Kind::FreezeAck
            | Kind::Decrypt
            | Kind::RoundResult
            | Kind::Publish
            | Kind::Inclusion
            | Kind::Close => Err(Error::Unexpected { what: "a message to a user answers no request" }),
        }
    }
}
