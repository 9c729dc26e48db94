//! The user's program. It waits for a round, trains, uploads its update, and learns how the round ended.

pub mod aggregator_client;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use aggregator_client::{AggregatorClient, PollParams};
use bytes::Bytes;
use dphe::party::{Notice, Party as _, UserEvent, UserParty};
use dphe::wire::{Close, Ending, Header, Kind, Rosters, RoundTicket, Signed};
use dphe::{Digest, ErrorCode, PartyId, PublicSupport, Round, Update, UserId, WeightSum};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::driver::{Clock, Driver, Effect};
use super::{BoxFuture, ServiceOptions, start_observing};
use crate::Error;
use crate::command_trainer::TrainerError;
use crate::hex;
use crate::http::client::{Client, ClientError};
use crate::http::max_list_bytes;
use crate::http::server::Shutdown;
use crate::kit::{Kit, KitError, Start};
use crate::learning::{ModelMaker, SharedMaker, StopTraining, Trainer};
use crate::store::{AnyStore, Archive, LogStore};
use crate::telemetry::Metrics;

/// The outcome of taking part in a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UserSummary {
    /// The number of rounds whose end the user learned.
    pub rounds: u64,
    /// The number of rounds whose sum includes the user's update.
    pub included: u64,
    /// The number of rounds of the task that were published, whether or not this program ran then.
    pub published: u64,
    /// True if all rounds are over, false if the program was stopped before.
    pub over: bool,
    /// The current round, or the next one.
    pub round: u64,
    /// The history of the task before that round, in hexadecimal.
    pub history: String,
    /// The model that follows from the rounds so far.
    #[serde(skip)]
    pub model: Option<Vec<u8>>,
}

/// An event for the actor.
enum UserCommand {
    /// Messages of the aggregator arrived. The reply says what to poll for next.
    Heard { messages: Vec<Bytes>, reply: oneshot::Sender<PollParams> },
    /// All rounds are over.
    Over,
    /// An upload was acknowledged or refused.
    Uploaded { round: Round, answer: Result<Bytes, ClientError> },
    /// Training ended.
    Trained { round: Round, update: Result<Update, Error> },
}

/// The number of contradictions in a row after which the user stops.
const MAX_CONTRADICTIONS: u8 = 3;
const LEARNER_PANICKED: Error = Error::Unexpected { what: "the learner panicked" };

/// The number of refusals after which an upload is not repeated.
const MAX_REFUSALS: u8 = 3;

/// A job of the training thread.
enum TrainingJob {
    Train { round: Round, support: PublicSupport, model: Vec<u8> },
    Finished { round: Round, included: bool },
}

/// Takes part until all rounds are over or `shutdown`.
///
/// # Errors
/// If the kit or the log is invalid, or the store fails. An aggregator that cannot be reached is not an error; the user
/// keeps trying.
pub async fn run(
    kit: &Kit,
    store: impl LogStore + Archive,
    trainer: impl Trainer,
    maker: impl ModelMaker,
    options: ServiceOptions,
    shutdown: Shutdown,
) -> Result<UserSummary, Error> {
    let maker: SharedMaker = Arc::new(Mutex::new(Box::new(maker)));
    run_boxed(kit, AnyStore::new(store), Box::new(trainer), maker, options, shutdown).await
}

/// Runs a user with a learner and a store of any type. The future is boxed, so that it is compiled in this crate.
fn run_boxed<'a>(
    kit: &'a Kit,
    store: AnyStore,
    trainer: Box<dyn Trainer>,
    maker: SharedMaker,
    options: ServiceOptions,
    shutdown: Shutdown,
) -> BoxFuture<'a, Result<UserSummary, Error>> {
    Box::pin(run_user(kit, store, trainer, maker, options, shutdown))
}

async fn run_user(
    kit: &Kit,
    mut store: AnyStore,
    trainer: Box<dyn Trainer>,
    maker: SharedMaker,
    mut options: ServiceOptions,
    mut shutdown: Shutdown,
) -> Result<UserSummary, Error> {
    let PartyId::User(user) = kit.party() else {
        return Err(KitError::Role { found: kit.party(), wanted: "a user" }.into());
    };
    let clock = Clock::new();
    let start = Start::new(kit, &mut store, options.roster.as_ref()).await?;
    let keys = start.user_keys()?;
    let (party, actions) =
        start.party::<UserParty, _>(keys, &mut store, options.threads, clock.now()).await?;
    let client = Client::new(
        kit.task_file().parties.aggregator.clone(),
        kit.tls().client(PartyId::Aggregator)?,
        max_list_bytes(kit.roster()),
    );
    // the initial model is in the kit, so that a user can follow a task from its beginning
    if store.latest_model(Round::FIRST).await?.is_none()
        && party.round() == Round::FIRST
        && party.model().is_some()
    {
        let model = kit.initial_model()?;
        store.put_model(Round::FIRST, Digest::of_model(&model), &model).await?;
    }
    let (sender, mut commands) = mpsc::channel(16);
    let stop_training = trainer.stop();
    let (jobs, training) = training_thread(trainer, sender.clone())?;
    let mut actor = UserActor {
        user,
        driver: Driver::new(party, actions, store, clock, options.metrics.clone())?,
        rosters: kit.rosters().clone(),
        aggregator: AggregatorClient::new(client, user),
        jobs,
        stop_training,
        failed_trainings: 0,
        max_failed_trainings: options.max_failed_trainings,
        commands: sender.clone(),
        uploading: None,
        refused: None,
        maker,
        contradictions: 0,
        told: BTreeMap::new(),
        summary: UserSummary::default(),
        metrics: options.metrics.clone(),
    };
    start_observing(&mut options, None, &shutdown);
    actor.carry_out().await?;
    let poller = tokio::spawn(actor.aggregator.new_connection().poll(actor.params()?, sender));
    options.metrics.ready.set(1);
    tracing::info!(user = user.get(), "the user is ready");
    let result = actor.run(&mut commands, &mut shutdown).await;
    options.metrics.ready.set(0);
    poller.abort();
    actor.stop_uploading();
    if let Some(stop) = &actor.stop_training {
        stop.all();
    }
    // dropping the queue ends the thread, which may still be writing the residual
    actor.jobs = std::sync::mpsc::channel().0;
    drop(commands);
    // a trainer that can be stopped ends soon, and its program must not outlive this one
    if actor.summary.over || actor.stop_training.is_some() {
        let _ = tokio::task::spawn_blocking(|| training.join()).await;
    }
    result?;
    actor.summary.published = actor.count_published().await?;
    let party = actor.driver.party()?;
    actor.summary.round = party.round().get();
    actor.summary.history =
        party.history().map(|history| hex::encode(history.as_bytes())).unwrap_or_default();
    if let Some(digest) = party.model() {
        actor.summary.model = actor.driver.store.model(digest).await?;
    }
    Ok(actor.summary)
}

struct UserActor {
    user: UserId,
    driver: Driver<UserParty>,
    rosters: Rosters,
    aggregator: AggregatorClient,
    jobs: std::sync::mpsc::Sender<TrainingJob>,
    stop_training: Option<StopTraining>,
    /// In how many rounds in a row training failed, and after how many the user stops.
    failed_trainings: u32,
    max_failed_trainings: Option<NonZeroU32>,
    commands: mpsc::Sender<UserCommand>,
    uploading: Option<(Round, JoinHandle<()>)>,
    /// The round whose upload was refused, and how often.
    refused: Option<(Round, u8)>,
    /// Computes the model that follows from a sum.
    maker: SharedMaker,
    /// How often in a row the aggregator's messages contradicted what this user knows.
    contradictions: u8,
    /// The ticket and the publish message of the current round. They are archived when the sum is correct.
    told: BTreeMap<u8, (Round, Bytes)>,
    summary: UserSummary,
    metrics: Arc<Metrics>,
}

impl UserActor {
    async fn run(
        &mut self,
        commands: &mut mpsc::Receiver<UserCommand>,
        shutdown: &mut Shutdown,
    ) -> Result<(), Error> {
        loop {
            tokio::select! {
                biased;
                () = shutdown.wait() => return Ok(()),
                command = commands.recv() => match command {
                    None => return Ok(()),
                    Some(UserCommand::Over) => {
                        self.summary.over = true;
                        return Ok(());
                    }
                    Some(command) => self.handle(command).await?,
                },
                () = self.driver.clock.wait_until(self.driver.alarm()) => {
                    if self.driver.take_alarm() {
                        self.step("tick", UserEvent::Tick).await?;
                    }
                }
            }
            let round = self.driver.party()?.round().get();
            self.metrics.round.set(i64::try_from(round).unwrap_or(i64::MAX));
        }
    }

    async fn handle(&mut self, command: UserCommand) -> Result<(), Error> {
        match command {
            UserCommand::Over => {}
            UserCommand::Heard { messages, reply } => {
                let ended: Vec<Round> = messages.iter().filter_map(|message| ended_round(message)).collect();
                for message in messages {
                    self.receive(message, &ended).await?;
                }
                let _ = reply.send(self.params()?);
            }
            UserCommand::Uploaded { round, answer } => {
                if self.uploading.as_ref().is_some_and(|(of, _)| *of == round) {
                    self.uploading = None;
                }
                match answer {
                    Ok(ack) => self.step("acknowledgement", UserEvent::Message(ack.to_vec())).await?,
                    Err(error) => {
                        tracing::warn!(round = round.get(), %error, "the upload was refused");
                        let before =
                            self.refused.filter(|(of, _)| *of == round).map_or(0, |(_, times)| times);
                        self.refused = Some((round, before + 1));
                    }
                }
            }
            UserCommand::Trained { round, update: Ok(update) } => {
                self.failed_trainings = 0;
                self.step("update", UserEvent::Update { round, update }).await?;
            }
            UserCommand::Trained { round, update: Err(Error::Trainer(error @ TrainerError::Stopped)) } => {
                tracing::warn!(round = round.get(), %error, "this user skips the round");
            }
            UserCommand::Trained { round, update: Err(error) } => {
                tracing::error!(round = round.get(), %error, "training failed; this user skips the round");
                self.failed_trainings += 1;
                if self.max_failed_trainings.is_some_and(|most| self.failed_trainings >= most.get()) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Returns how many rounds of the task were published. Their messages are in the archive.
    async fn count_published(&mut self) -> Result<u64, Error> {
        let next = self.driver.party()?.round().get();
        let mut published = 0;
        for round in (1..next).filter_map(Round::new) {
            let messages = self.driver.store.round_messages(round).await?;
            published += u64::from(messages.iter().any(|(kind, _)| *kind == Kind::Publish.number()));
        }
        Ok(published)
    }

    /// Returns what to poll the aggregator for.
    fn params(&self) -> Result<PollParams, Error> {
        let party = self.driver.party()?;
        Ok(PollParams { after: party.round(), seen: party.ticket() })
    }

    /// Hands on a message. `ended` are the rounds whose end arrived with it: their tickets are not for training.
    async fn receive(&mut self, message: Bytes, ended: &[Round]) -> Result<(), Error> {
        let header = Header::peek(&message).ok();
        let is_open = |header: Header| header.round.is_none_or(|round| !ended.contains(&round));
        if header.is_some_and(|header| header.kind == Kind::RoundTicket && is_open(header)) {
            return self.begin(message).await;
        }
        if let Some(Header { kind, round: Some(round), .. }) = header {
            self.keep(kind, round, &message).await?;
        }
        self.step("message", UserEvent::Message(message.to_vec())).await
    }

    /// Keeps a message with which the user can show later what it was told.
    async fn keep(&mut self, kind: Kind, round: Round, message: &Bytes) -> Result<(), Error> {
        match kind {
            Kind::RoundTicket | Kind::Publish => {
                self.told.insert(kind.number(), (round, message.clone()));
                Ok(())
            }
            // a round that ends without a publication
            Kind::Close if round == self.driver.party()?.round() => {
                let close: Signed<Close> = match Signed::decode(message, self.rosters.at(round)) {
                    Ok(close) => close,
                    Err(_) => return Ok(()),
                };
                match close.message().ending {
                    Ending::Published => Ok(()),
                    Ending::Failed | Ending::Aborted | Ending::Rejected => {
                        self.archive(round).await?;
                        Ok(self.driver.store.put_message(round, kind.number(), message).await?)
                    }
                }
            }
            _ => Ok(()),
        }
    }

    /// Archives what the user was told of a round, before its log says that the round is over.
    async fn archive(&mut self, round: Round) -> Result<(), Error> {
        for (kind, (of, message)) in std::mem::take(&mut self.told) {
            if of == round {
                self.driver.store.put_message(round, kind, &message).await?;
            }
        }
        Ok(())
    }

    /// Fetches the model of a ticket and starts the round.
    async fn begin(&mut self, message: Bytes) -> Result<(), Error> {
        let round = Header::peek(&message).ok().and_then(|header| header.round);
        let roster = round.map_or(self.rosters.latest(), |round| self.rosters.at(round));
        let ticket: Signed<RoundTicket> = match Signed::decode(&message, roster) {
            Ok(ticket) => ticket,
            Err(error) => {
                tracing::warn!(code = error.code().as_str(), %error, "the ticket is invalid");
                return Ok(());
            }
        };
        let (party, digest) = (self.driver.party()?, ticket.message().model);
        let is_current = ticket.round() == party.round();
        if is_current {
            self.told.insert(Kind::RoundTicket.number(), (ticket.round(), message.clone()));
        }
        // no model is stored that does not follow from the rounds so far; the party says what is wrong
        if !is_current || party.model().is_some_and(|known| known != digest) {
            return self.step("ticket", UserEvent::Message(message.to_vec())).await;
        }
        let Some(model) = self.model(digest).await? else { return Ok(()) };
        // stored before the ticket, because training may have to start again after a crash
        self.driver.store.put_model(ticket.round(), digest, &model).await?;
        self.step("ticket", UserEvent::Begin { ticket: message.to_vec(), model }).await
    }

    /// Computes the model that follows from a checked sum, and hands it in.
    async fn apply(&mut self, sum: WeightSum) -> Result<(), Error> {
        let (round, digest) = (sum.round(), self.driver.party()?.model());
        let model = match digest {
            Some(digest) => self.model(digest).await?,
            None => None,
        };
        let Some(model) = model else {
            tracing::warn!(
                round = round.get(),
                "the model of the round is missing, so the sum cannot be applied"
            );
            return Ok(());
        };
        let maker = self.maker.clone();
        let applied = tokio::task::spawn_blocking(move || {
            let mut maker = maker.lock().map_err(|_| LEARNER_PANICKED)?;
            // a sum that gives no model leaves the old one, at the aggregator too
            Ok::<_, Error>(maker.next_model(&sum, &model).unwrap_or(model))
        });
        let model = applied.await.map_err(|_| LEARNER_PANICKED)??;
        // stored before the end of the round, so that a crash in between cannot lose it
        self.archive(round).await?;
        self.driver.store.put_model(round.next(), Digest::of_model(&model), &model).await?;
        match self.driver.step(UserEvent::Applied { round, model }).await? {
            Ok(()) => {
                self.contradictions = 0;
                Ok(())
            }
            // the sum was checked, so the aggregator's model is wrong, and nothing repairs that
            Err(error) => {
                let code = error.code().as_str();
                tracing::error!(round = round.get(), code, %error, "the aggregator published another model");
                Err(error.into())
            }
        }
    }

    /// Returns the model with this digest, from the store or from the aggregator.
    async fn model(&mut self, digest: Digest) -> Result<Option<Vec<u8>>, Error> {
        if let Some(model) = self.driver.store.model(digest).await? {
            return Ok(Some(model));
        }
        match self.aggregator.model(digest).await {
            Ok(model) if Digest::of_model(&model) == digest => Ok(Some(model)),
            Ok(_) => {
                tracing::warn!("the model of the aggregator does not have the digest of the ticket");
                Ok(None)
            }
            Err(error) => {
                // the aggregator sends the ticket again
                tracing::warn!(%error, "the model could not be fetched");
                Ok(None)
            }
        }
    }

    async fn step(&mut self, what: &str, event: UserEvent) -> Result<(), Error> {
        match self.driver.step(event).await? {
            Ok(()) => self.carry_out().await,
            Err(error) => self.refused(what, error).await,
        }
    }

    /// Logs and counts a refusal. A user whom the aggregator contradicts again and again stops: no later message can
    /// repair a wrong model or history.
    async fn refused(&mut self, what: &str, error: dphe::Error) -> Result<(), Error> {
        self.metrics.refused(error.code());
        match error.code() {
            // the end of a round may arrive twice
            ErrorCode::Stale => tracing::debug!(what, %error, "refused"),
            code => tracing::warn!(what, code = code.as_str(), %error, "refused"),
        }
        let contradicts = matches!(
            error.code(),
            ErrorCode::Check
                | ErrorCode::Range
                | ErrorCode::Model
                | ErrorCode::Lineage
                | ErrorCode::History
                | ErrorCode::NotMine
                | ErrorCode::Proof
        );
        if contradicts {
            self.contradictions += 1;
            if self.contradictions >= MAX_CONTRADICTIONS {
                // so that `dphe verify` can show what was wrong
                self.archive(self.driver.party()?.round()).await?;
                return Err(error.into());
            }
        }
        Ok(())
    }

    async fn carry_out(&mut self) -> Result<(), Error> {
        while let Some(effect) = self.driver.next_effect().await? {
            match effect {
                Effect::Send { message, .. } => self.send(message)?,
                Effect::Notify(Notice::Train { round, support }) => self.train(round, support).await?,
                Effect::Notify(Notice::Finished { round, ending, included, model }) => {
                    self.finished(round, ending, included, model).await?;
                }
                Effect::Notify(Notice::Apply { sum }) => self.apply(sum).await?,
                Effect::Notify(Notice::Opened { .. }) => {}
            }
        }
        Ok(())
    }

    async fn train(&mut self, round: Round, support: PublicSupport) -> Result<(), Error> {
        let digest = self.driver.party()?.model();
        let model = match digest {
            Some(digest) => self.driver.store.model(digest).await?,
            None => None,
        };
        match model {
            Some(model) => {
                tracing::info!(round = round.get(), "training");
                let _ = self.jobs.send(TrainingJob::Train { round, support, model });
            }
            None => tracing::error!(
                round = round.get(),
                "the model of the round is missing; this user skips the round"
            ),
        }
        Ok(())
    }

    /// Sends a message of the party, which sends nothing but uploads.
    fn send(&mut self, message: Vec<u8>) -> Result<(), Error> {
        let header = Header::peek(&message)?;
        match header.kind {
            Kind::Upload => self
                .upload(header.round.ok_or(Error::Unexpected { what: "an upload has no round" })?, message),
            Kind::RoundOpen
            | Kind::RoundTicket
            | Kind::UploadAck
            | Kind::Freeze
            | Kind::FreezeAck
            | Kind::Decrypt
            | Kind::RoundResult
            | Kind::Publish
            | Kind::Inclusion
            | Kind::Close => return Err(Error::Unexpected { what: "a user sends no message of this kind" }),
        }
        Ok(())
    }

    /// Starts an upload unless it is running already.
    fn upload(&mut self, round: Round, message: Vec<u8>) {
        // a refused upload is repeated a few times, in case its chunks were damaged on the way
        if self.refused.is_some_and(|(of, times)| of == round && times >= MAX_REFUSALS) {
            return;
        }
        match &self.uploading {
            Some((running, _)) if *running == round => return,
            _ => self.stop_uploading(),
        }
        let (mut aggregator, commands) = (self.aggregator.new_connection(), self.commands.clone());
        tracing::info!(round = round.get(), bytes = message.len(), "uploading");
        let task = tokio::spawn(async move {
            let answer = aggregator.upload(round, message.into()).await;
            let _ = commands.send(UserCommand::Uploaded { round, answer }).await;
        });
        self.uploading = Some((round, task));
    }

    fn stop_uploading(&mut self) {
        if let Some((_, task)) = self.uploading.take() {
            task.abort();
        }
    }

    async fn finished(
        &mut self,
        round: Round,
        ending: Option<Ending>,
        included: bool,
        model: Option<Vec<u8>>,
    ) -> Result<(), Error> {
        let history = self.driver.party()?.history();
        tracing::info!(
            user = self.user.get(),
            round = round.get(),
            ending = ending.map_or("missed", Ending::as_str),
            included,
            history = history.map(tracing::field::display),
            "the round is over"
        );
        self.stop_uploading();
        self.summary.rounds += 1;
        self.summary.included += u64::from(included);
        self.metrics.ended(ending);
        if model.is_some() {
            self.driver.store.forget_models(round.next()).await?;
        }
        if let Some(stop) = &self.stop_training {
            stop.up_to(round);
        }
        let _ = self.jobs.send(TrainingJob::Finished { round, included });
        Ok(())
    }
}

/// Returns the round that a message ends.
fn ended_round(message: &[u8]) -> Option<Round> {
    let header = Header::peek(message).ok()?;
    header.round.filter(|_| header.kind == Kind::Close)
}

/// Starts the thread that trains, one job after the other.
fn training_thread(
    mut trainer: Box<dyn Trainer>,
    commands: mpsc::Sender<UserCommand>,
) -> Result<(std::sync::mpsc::Sender<TrainingJob>, std::thread::JoinHandle<()>), Error> {
    let (sender, jobs) = std::sync::mpsc::channel();
    let work = move || {
        while let Ok(job) = jobs.recv() {
            match job {
                TrainingJob::Train { round, support, model } => {
                    // a learner that panics only misses this round
                    let learn = AssertUnwindSafe(|| trainer.make_update(round, &support, &model));
                    let update = catch_unwind(learn)
                        .unwrap_or(Err(Error::Unexpected { what: "the learner panicked" }));
                    if commands.blocking_send(UserCommand::Trained { round, update }).is_err() {
                        return;
                    }
                }
                TrainingJob::Finished { round, included } => trainer.finished(round, included),
            }
        }
    };
    let thread = std::thread::Builder::new().name("training".into()).spawn(work);
    thread
        .map(|thread| (sender, thread))
        .map_err(|_| Error::Unexpected { what: "the training thread could not be started" })
}
