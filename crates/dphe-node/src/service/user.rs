//! The user's program: waits for a round, trains, uploads, hears how it ended.

pub(crate) mod line;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use chacha20::ChaCha20Rng;
use dphe::message::{Ending, Message as _, Publish, RoundTicket, Signed, kind};
use dphe::party::{Action, Notice, Time, UserEvent, UserParty};
use dphe::{Digest, LocalUpdate, Party, PublicSupport, Roster, Round, UserId};
use line::{Line, Params};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::{Clock, Machine, ServiceOptions, os_rng, start_observing};
use crate::Error;
use crate::certificates::server_name;
use crate::http::client::{Client, ClientError};
use crate::http::max_list_bytes;
use crate::http::server::Shutdown;
use crate::kit::{Kit, KitError};
use crate::learning::Trainer;
use crate::store::{Archive, LogStore};
use crate::telemetry::Metrics;

/// What came of taking part.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UserSummary {
    /// Rounds that it heard the end of.
    pub rounds: u64,
    /// Rounds whose sum has its update.
    pub included: u64,
    /// Whether the task is over; otherwise it was told to stop.
    pub over: bool,
    /// The latest model.
    #[serde(skip)]
    pub model: Option<Vec<u8>>,
}

/// What the actor is told.
enum Command {
    /// The aggregator has news; it wants to know what to ask for next.
    Heard { messages: Vec<Bytes>, reply: oneshot::Sender<Params> },
    /// All rounds are over.
    Over,
    /// An upload ended.
    Uploaded { round: Round, answer: Result<Bytes, ClientError> },
    /// Training ended.
    Trained { round: Round, update: Result<LocalUpdate, Error> },
}

/// What the training thread is told, in order.
/// An upload that was refused so often is not tried again.
const REFUSALS: u8 = 3;

enum Job {
    Train { round: Round, support: PublicSupport, model: Vec<u8> },
    Finished { round: Round, included: bool },
}

/// Takes part until all rounds are over, or told to stop.
///
/// # Errors
/// If it cannot start from its kit and its log, or the disk fails. An aggregator that cannot be reached is waited for.
pub async fn run<S: LogStore + Archive>(
    kit: &Kit,
    mut store: S,
    trainer: impl Trainer,
    mut options: ServiceOptions,
    mut shutdown: Shutdown,
) -> Result<UserSummary, Error> {
    let Party::User(user) = kit.party() else {
        let found = crate::certificates::role_name(kit.party());
        return Err(KitError::Role { found, wanted: "a user" }.into());
    };
    let roster = kit.roster().clone();
    let clock = Clock::new();
    let log = store.load().await?;
    let (party, actions) = UserParty::start(
        kit.user_keys()?,
        kit.identity()?,
        (*roster).clone(),
        &log,
        options.threads,
        clock.now(),
    )?;
    let client = Client::new(
        kit.task_file().parties.aggregator.clone(),
        server_name(&roster, Party::Aggregator)?,
        kit.tls().client()?,
        max_list_bytes(&roster),
    );
    let (sender, mut commands) = mpsc::channel(16);
    let mut actor = Actor {
        user,
        machine: Machine::new((party, os_rng()?), options.metrics.clone()),
        roster,
        store,
        clock,
        alarm: None,
        line: Line::new(client, user),
        jobs: training_thread(trainer, sender.clone())?,
        commands: sender.clone(),
        uploading: None,
        refused: None,
        heard: 0,
        summary: UserSummary::default(),
        metrics: options.metrics.clone(),
    };
    start_observing(&mut options, None, &shutdown);
    actor.carry_out(actions).await?;
    let poller = tokio::spawn(actor.line.again().poll(actor.params()?, sender));
    options.metrics.ready.set(1);
    tracing::info!(user = user.get(), "the user is ready");
    let result = actor.run(&mut commands, &mut shutdown).await;
    options.metrics.ready.set(0);
    poller.abort();
    actor.stop_uploading();
    result?;
    if let Some((_, model)) =
        actor.store.latest_model(Round::new(i64::MAX as u64).unwrap_or(Round::FIRST)).await?
    {
        actor.summary.model = Some(model);
    }
    Ok(actor.summary)
}

struct Actor<S> {
    user: UserId,
    machine: Machine<(UserParty, ChaCha20Rng)>,
    roster: Arc<Roster>,
    store: S,
    clock: Clock,
    alarm: Option<Time>,
    line: Line,
    jobs: std::sync::mpsc::Sender<Job>,
    commands: mpsc::Sender<Command>,
    uploading: Option<(Round, JoinHandle<()>)>,
    /// The round whose upload was refused for good, and how often.
    refused: Option<(Round, u8)>,
    /// The latest round whose end was told in this life: it is not told again.
    heard: u64,
    summary: UserSummary,
    metrics: Arc<Metrics>,
}

impl<S: LogStore + Archive> Actor<S> {
    async fn run(
        &mut self,
        commands: &mut mpsc::Receiver<Command>,
        shutdown: &mut Shutdown,
    ) -> Result<(), Error> {
        loop {
            tokio::select! {
                biased;
                () = shutdown.wait() => return Ok(()),
                command = commands.recv() => match command {
                    None => return Ok(()),
                    Some(Command::Over) => {
                        self.summary.over = true;
                        return self.fetch_last_model().await;
                    }
                    Some(command) => self.obey(command).await?,
                },
                () = self.clock.wait_until(self.alarm) => {
                    self.alarm = None;
                    self.step("tick", UserEvent::Tick).await?;
                }
            }
            let (party, _) = self.machine.party()?;
            self.metrics.round.set(i64::try_from(party.round().get()).unwrap_or(i64::MAX));
        }
    }

    async fn obey(&mut self, command: Command) -> Result<(), Error> {
        match command {
            Command::Over => {}
            Command::Heard { messages, reply } => {
                for message in messages {
                    self.hear(message).await?;
                }
                let _ = reply.send(self.params()?);
            }
            Command::Uploaded { round, answer } => {
                if self.uploading.as_ref().is_some_and(|(of, _)| *of == round) {
                    self.uploading = None;
                }
                match answer {
                    Ok(ack) => self.step("acknowledgement", UserEvent::Message(ack.to_vec())).await?,
                    Err(error) => {
                        tracing::warn!(round = round.get(), %error, "the upload was not taken");
                        let before =
                            self.refused.filter(|(of, _)| *of == round).map_or(0, |(_, times)| times);
                        self.refused = Some((round, before + 1));
                    }
                }
            }
            Command::Trained { round, update: Ok(update) } => {
                self.step("update", UserEvent::Update { round, update }).await?;
            }
            Command::Trained { round, update: Err(error) } => {
                tracing::error!(round = round.get(), %error, "no update: this user sits the round out");
            }
        }
        Ok(())
    }

    /// What to ask the aggregator for.
    fn params(&self) -> Result<Params, Error> {
        let (party, _) = self.machine.party()?;
        Ok(Params { after: party.round(), seen: party.ticket(), heard: self.heard })
    }

    async fn hear(&mut self, message: Bytes) -> Result<(), Error> {
        if kind(&message) == Ok(RoundTicket::KIND) {
            return self.begin(message).await;
        }
        if let Some(round) = crate::http::round_of(&message) {
            self.heard = self.heard.max(round.get());
        }
        self.step("message", UserEvent::Message(message.to_vec())).await
    }

    /// Fetches the model that a ticket names, and begins.
    async fn begin(&mut self, message: Bytes) -> Result<(), Error> {
        let ticket: Signed<RoundTicket> = match Signed::decode(&message, &self.roster) {
            Ok(ticket) => ticket,
            Err(error) => {
                tracing::warn!(code = error.code(), %error, "not a ticket of this task");
                return Ok(());
            }
        };
        let digest = ticket.message().model;
        let model = match self.store.model(digest).await? {
            Some(model) => model,
            None => match self.line.model(digest).await {
                Ok(model) => model,
                Err(error) => {
                    // the ticket will be told again
                    tracing::warn!(%error, "the model cannot be fetched");
                    return Ok(());
                }
            },
        };
        if Digest::of_model(&model) != digest {
            tracing::warn!("the model is not the one that the ticket names");
            return Ok(());
        }
        // on disk before the ticket is: training can be asked for again after a crash
        self.store.put_model(ticket.round(), digest, &model).await?;
        self.step("ticket", UserEvent::Begin { ticket: message.to_vec(), model }).await
    }

    /// The model of the last round, if this user heard of its end and died before it was stored.
    async fn fetch_last_model(&mut self) -> Result<(), Error> {
        let round = self.machine.party()?.0.round();
        if self.store.latest_model(round).await?.is_some_and(|(of, _)| of == round) {
            return Ok(());
        }
        let Ok(messages) = self.line.last_end().await else { return Ok(()) };
        for message in messages.iter().filter(|message| kind(message) == Ok(Publish::KIND)) {
            let Ok(publish) = Signed::<Publish>::decode(message, &self.roster) else { continue };
            let digest = Digest::of_model(publish.body());
            let proven = publish.message().check_result(&self.roster, publish.round()).is_ok();
            if proven && publish.round().next() == round && digest == publish.message().model {
                self.store.put_model(round, digest, publish.body()).await?;
            }
        }
        Ok(())
    }

    async fn step(&mut self, what: &str, event: UserEvent) -> Result<(), Error> {
        let now = self.clock.now();
        match self.machine.run(move |(party, rng)| party.step(event, now, rng)).await? {
            Ok(actions) => self.carry_out(actions).await,
            Err(error) => {
                self.metrics.refused(error.code());
                // an end that is told twice is no trouble
                match error.code() {
                    "stale" => tracing::debug!(what, %error, "refused"),
                    code => tracing::warn!(what, code, %error, "refused"),
                }
                Ok(())
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
                Action::Send { message, .. } => self.upload(message),
                // the poller asks all the time
                Action::Announce(_) | Action::Poll(_) => {}
                Action::Wake(time) => self.alarm = Some(time),
                Action::Notify(Notice::Train { round, support }) => self.train(round, support).await?,
                Action::Notify(Notice::Finished { round, ending, included, model }) => {
                    self.finished(round, ending, included, model).await?;
                }
                Action::Notify(Notice::Opened { .. }) => {}
            }
        }
        Ok(())
    }

    async fn train(&mut self, round: Round, support: PublicSupport) -> Result<(), Error> {
        match self.store.latest_model(round).await? {
            Some((of, model)) if of == round => {
                tracing::info!(round = round.get(), "training");
                let _ = self.jobs.send(Job::Train { round, support, model });
            }
            _ => tracing::error!(round = round.get(), "the model of the round is gone: it is sat out"),
        }
        Ok(())
    }

    /// Starts an upload, unless it is under way.
    fn upload(&mut self, message: Vec<u8>) {
        let Some(round) = crate::http::round_of(&message) else { return };
        // what was refused for good would be again, unless its pieces were spoilt on the way
        if self.refused.is_some_and(|(of, times)| of == round && times >= REFUSALS) {
            return;
        }
        match &self.uploading {
            Some((under_way, _)) if *under_way == round => return,
            _ => self.stop_uploading(),
        }
        let (mut line, commands) = (self.line.again(), self.commands.clone());
        tracing::info!(round = round.get(), bytes = message.len(), "uploading");
        let task = tokio::spawn(async move {
            let answer = line.upload(round, message.into()).await;
            let _ = commands.send(Command::Uploaded { round, answer }).await;
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
        self.metrics.ended(match ending {
            Some(Ending::Published) => "published",
            Some(Ending::Failed) => "failed",
            Some(Ending::Aborted) => "aborted",
            None => "missed",
        });
        if let Some(model) = model {
            self.store.put_model(round.next(), Digest::of_model(&model), &model).await?;
            self.store.forget_models(round.next()).await?;
        }
        let _ = self.jobs.send(Job::Finished { round, included });
        Ok(())
    }
}

/// One thread that trains, one job after the other.
fn training_thread(
    mut trainer: impl Trainer,
    commands: mpsc::Sender<Command>,
) -> Result<std::sync::mpsc::Sender<Job>, Error> {
    let (sender, jobs) = std::sync::mpsc::channel();
    let work = move || {
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Train { round, support, model } => {
                    // a learner that panics sits the round out, and may do better in the next
                    let learn = AssertUnwindSafe(|| trainer.train(round, &support, &model));
                    let update = catch_unwind(learn)
                        .unwrap_or(Err(Error::Unexpected { what: "a learner that panicked" }));
                    if commands.blocking_send(Command::Trained { round, update }).is_err() {
                        return;
                    }
                }
                Job::Finished { round, included } => trainer.finished(round, included),
            }
        }
    };
    let thread = std::thread::Builder::new().name("training".into()).spawn(work);
    thread.map(|_| sender).map_err(|_| Error::Unexpected { what: "no thread to train on" })
}
