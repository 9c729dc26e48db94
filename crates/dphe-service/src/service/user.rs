//! The user's program. It waits for a round, trains, uploads its update, and learns how the round ended.

pub mod aggregator_client;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use aggregator_client::{AggregatorClient, PollParams};
use bytes::Bytes;
use dphe::party::{Notice, Party as _, PartyContext, UserEvent, UserParty};
use dphe::wire::{Ending, Header, Kind, Publish, RoundTicket, Signed};
use dphe::{Digest, ErrorCode, PartyId, PublicSupport, Roster, Round, Update, UserId};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::driver::{Clock, Driver, Effect};
use super::{ServiceOptions, start_observing};
use crate::Error;
use crate::http::client::{Client, ClientError};
use crate::http::max_list_bytes;
use crate::http::server::Shutdown;
use crate::kit::{Kit, KitError};
use crate::learning::Trainer;
use crate::store::{Archive, LogStore};
use crate::telemetry::Metrics;

/// The outcome of taking part in a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UserSummary {
    /// The number of rounds whose end the user learned.
    pub rounds: u64,
    /// The number of rounds whose sum includes the user's update.
    pub included: u64,
    /// True if all rounds are over, false if the program was stopped before.
    pub over: bool,
    /// The latest model.
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
pub async fn run<S: LogStore + Archive>(
    kit: &Kit,
    mut store: S,
    trainer: impl Trainer,
    mut options: ServiceOptions,
    mut shutdown: Shutdown,
) -> Result<UserSummary, Error> {
    let PartyId::User(user) = kit.party() else {
        return Err(KitError::Role { found: kit.party(), wanted: "a user" }.into());
    };
    let roster = kit.roster().clone();
    let clock = Clock::new();
    let log = store.load().await?;
    let (party, actions) = UserParty::start(
        kit.user_keys()?,
        PartyContext {
            identity: kit.identity()?,
            roster: (*roster).clone(),
            log: &log,
            threads: options.threads,
        },
        clock.now(),
    )?;
    let client = Client::new(
        kit.task_file().parties.aggregator.clone(),
        kit.tls().client(PartyId::Aggregator)?,
        max_list_bytes(&roster),
    );
    let (sender, mut commands) = mpsc::channel(16);
    let mut actor = UserActor {
        user,
        driver: Driver::new(party, actions, store, clock, options.metrics.clone())?,
        roster,
        aggregator: AggregatorClient::new(client, user),
        jobs: training_thread(trainer, sender.clone())?,
        commands: sender.clone(),
        uploading: None,
        refused: None,
        heard: 0,
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
    result?;
    if let Some((_, model)) =
        actor.driver.store.latest_model(Round::new(i64::MAX as u64).unwrap_or(Round::FIRST)).await?
    {
        actor.summary.model = Some(model);
    }
    Ok(actor.summary)
}

struct UserActor<S> {
    user: UserId,
    driver: Driver<UserParty, S>,
    roster: Arc<Roster>,
    aggregator: AggregatorClient,
    jobs: std::sync::mpsc::Sender<TrainingJob>,
    commands: mpsc::Sender<UserCommand>,
    uploading: Option<(Round, JoinHandle<()>)>,
    /// The round whose upload was refused, and how often.
    refused: Option<(Round, u8)>,
    /// The latest round whose end was received since the start. The aggregator does not send it again.
    heard: u64,
    summary: UserSummary,
    metrics: Arc<Metrics>,
}

impl<S: LogStore + Archive> UserActor<S> {
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
                        return self.fetch_last_model().await;
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
                for message in messages {
                    self.receive(message).await?;
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
                self.step("update", UserEvent::Update { round, update }).await?;
            }
            UserCommand::Trained { round, update: Err(error) } => {
                tracing::error!(round = round.get(), %error, "training failed; this user skips the round");
            }
        }
        Ok(())
    }

    /// Returns what to poll the aggregator for.
    fn params(&self) -> Result<PollParams, Error> {
        let party = self.driver.party()?;
        Ok(PollParams { after: party.round(), seen: party.ticket(), heard: self.heard })
    }

    async fn receive(&mut self, message: Bytes) -> Result<(), Error> {
        let header = Header::peek(&message).ok();
        if header.is_some_and(|header| header.kind == Kind::RoundTicket) {
            return self.begin(message).await;
        }
        if let Some(round) = header.and_then(|header| header.round) {
            self.heard = self.heard.max(round.get());
        }
        self.step("message", UserEvent::Message(message.to_vec())).await
    }

    /// Fetches the model of a ticket and starts the round.
    async fn begin(&mut self, message: Bytes) -> Result<(), Error> {
        let ticket: Signed<RoundTicket> = match Signed::decode(&message, &self.roster) {
            Ok(ticket) => ticket,
            Err(error) => {
                tracing::warn!(code = error.code().as_str(), %error, "the ticket is invalid");
                return Ok(());
            }
        };
        let digest = ticket.message().model;
        let model = match self.driver.store.model(digest).await? {
            Some(model) => model,
            None => match self.aggregator.model(digest).await {
                Ok(model) => model,
                Err(error) => {
                    // the aggregator sends the ticket again
                    tracing::warn!(%error, "the model could not be fetched");
                    return Ok(());
                }
            },
        };
        if Digest::of_model(&model) != digest {
            tracing::warn!("the model does not have the digest of the ticket");
            return Ok(());
        }
        // stored before the ticket, because training may have to start again after a crash
        self.driver.store.put_model(ticket.round(), digest, &model).await?;
        self.step("ticket", UserEvent::Begin { ticket: message.to_vec(), model }).await
    }

    /// Fetches the last model if the user stopped between the end of the last round and storing its model.
    async fn fetch_last_model(&mut self) -> Result<(), Error> {
        let round = self.driver.party()?.round();
        if self.driver.store.latest_model(round).await?.is_some_and(|(of, _)| of == round) {
            return Ok(());
        }
        let Ok(messages) = self.aggregator.last_end().await else { return Ok(()) };
        for message in messages
            .iter()
            .filter(|message| Header::peek(message).is_ok_and(|header| header.kind == Kind::Publish))
        {
            let Ok(publish) = Signed::<Publish>::decode(message, &self.roster) else { continue };
            let digest = Digest::of_model(publish.body());
            let proven = publish.message().check_result(&self.roster, publish.round()).is_ok();
            if proven && publish.round().next() == round && digest == publish.message().model {
                self.driver.store.put_model(round, digest, publish.body()).await?;
            }
        }
        Ok(())
    }

    async fn step(&mut self, what: &str, event: UserEvent) -> Result<(), Error> {
        match self.driver.step(event).await? {
            Ok(()) => self.carry_out().await,
            Err(error) => {
                self.metrics.refused(error.code());
                // the end of a round may arrive twice
                match error.code() {
                    ErrorCode::Stale => tracing::debug!(what, %error, "refused"),
                    code => tracing::warn!(what, code = code.as_str(), %error, "refused"),
                }
                Ok(())
            }
        }
    }

    async fn carry_out(&mut self) -> Result<(), Error> {
        while let Some(effect) = self.driver.next_effect().await? {
            match effect {
                Effect::Send { message, .. } => self.send(message)?,
                Effect::Notify(Notice::Train { round, support }) => self.train(round, support).await?,
                Effect::Notify(Notice::Finished { round, ending, included, model }) => {
                    self.finished(round, ending, included, model).await?;
                }
                Effect::Notify(Notice::Opened { .. }) => {}
            }
        }
        Ok(())
    }

    async fn train(&mut self, round: Round, support: PublicSupport) -> Result<(), Error> {
        match self.driver.store.latest_model(round).await? {
            Some((of, model)) if of == round => {
                tracing::info!(round = round.get(), "training");
                let _ = self.jobs.send(TrainingJob::Train { round, support, model });
            }
            _ => tracing::error!(
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
        tracing::info!(user = self.user.get(), round = round.get(), ?ending, included, "the round is over");
        self.stop_uploading();
        self.summary.rounds += 1;
        self.summary.included += u64::from(included);
        self.metrics.ended(ending);
        if let Some(model) = model {
            self.driver.store.put_model(round.next(), Digest::of_model(&model), &model).await?;
            self.driver.store.forget_models(round.next()).await?;
        }
        let _ = self.jobs.send(TrainingJob::Finished { round, included });
        Ok(())
    }
}

/// Starts the thread that trains, one job after the other.
fn training_thread(
    mut trainer: impl Trainer,
    commands: mpsc::Sender<UserCommand>,
) -> Result<std::sync::mpsc::Sender<TrainingJob>, Error> {
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
    thread.map(|_| sender).map_err(|_| Error::Unexpected { what: "the training thread could not be started" })
}
