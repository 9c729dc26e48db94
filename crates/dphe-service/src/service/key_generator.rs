//! The service of the key generator. It answers messages of the aggregator.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use dphe::party::{KeyGeneratorEvent, KeyGeneratorParty, KeyGeneratorPhase, Party as _};
use dphe::wire::{Header, Kind, Outcome, RoundResult, Signed};
use dphe::{ErrorCode, PartyId, Roster};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tracing::Instrument as _;

use super::driver::{Clock, Driver, Effect};
use super::{BoxFuture, ServiceOptions, start_observing};
use crate::Error;
use crate::hex;
use crate::http::openapi;
use crate::http::problem::{HttpErrorCode, Problem};
use crate::http::server::{BodyMemory, Limits, Peer, Shutdown, content_length, json, read_body, serve_tls};
use crate::kit::{Kit, Start};
use crate::party::party_name;
use crate::store::{AnyStore, Archive, LogStore};
use crate::telemetry::Metrics;

/// The status of a key generator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyGeneratorStatus {
    /// `key-generator`.
    pub party: String,
    /// The identifier of the task.
    pub task: String,
    /// The current round, or the next one.
    pub round: u64,
    /// The phase of the round.
    #[serde(serialize_with = "crate::names::serialize")]
    pub phase: KeyGeneratorPhase,
    /// The number of records in its log.
    pub log_records: u64,
    /// The history of the task before the round.
    pub history: String,
}

impl KeyGeneratorStatus {
    fn of(party: &KeyGeneratorParty) -> Self {
        Self {
            party: party_name(PartyId::KeyGenerator),
            task: party.roster().task().id().to_string(),
            round: party.round().get(),
            phase: party.phase(),
            log_records: party.log_point().seq,
            history: hex::encode(party.history().as_bytes()),
        }
    }
}

type Reply = oneshot::Sender<Result<Vec<Vec<u8>>, Problem>>;

/// A message that waits for its answer.
struct MessageRequest {
    message: Bytes,
    reply: Reply,
    /// The span of the HTTP request, so that its identifier is in all log lines about the message.
    span: tracing::Span,
}

/// The state of the handlers.
#[derive(Clone)]
struct KeyGeneratorApi {
    roster: Arc<Roster>,
    actor: mpsc::Sender<MessageRequest>,
    status: watch::Receiver<KeyGeneratorStatus>,
    limits: Limits,
    metrics: Arc<Metrics>,
    /// Limits the bodies in memory. Each may be as long as a whole sealed sum.
    permits: Arc<Semaphore>,
    memory: BodyMemory,
}

/// The largest number of messages that are read at once.
const MAX_MESSAGES: usize = 4;

/// Runs the key generator until `shutdown`.
///
/// # Errors
/// If the kit or the log is invalid, or the store fails.
pub async fn run(
    kit: &Kit,
    passphrase: &[u8],
    store: impl LogStore + Archive,
    listener: TcpListener,
    options: ServiceOptions,
    shutdown: Shutdown,
) -> Result<(), Error> {
    run_boxed(kit, passphrase, AnyStore::new(store), listener, options, shutdown).await
}

/// Runs the key generator with a store of any type. The future is boxed, so that it is compiled in this crate.
fn run_boxed<'a>(
    kit: &'a Kit,
    passphrase: &'a [u8],
    store: AnyStore,
    listener: TcpListener,
    options: ServiceOptions,
    shutdown: Shutdown,
) -> BoxFuture<'a, Result<(), Error>> {
    Box::pin(run_key_generator(kit, passphrase, store, listener, options, shutdown))
}

async fn run_key_generator(
    kit: &Kit,
    passphrase: &[u8],
    mut store: AnyStore,
    listener: TcpListener,
    mut options: ServiceOptions,
    shutdown: Shutdown,
) -> Result<(), Error> {
    // messages of a round under an earlier roster may be longer
    let roster = Arc::new(kit.rosters().first().clone());
    let clock = Clock::new();
    let start = Start::new(kit, &mut store, options.roster.as_ref()).await?;
    let keys = start.key_generator(passphrase)?;
    let (party, actions) =
        start.party::<KeyGeneratorParty, _>(keys, &mut store, options.threads, clock.now()).await?;
    let (status, watcher) = watch::channel(KeyGeneratorStatus::of(&party));
    let metrics = options.metrics.clone();
    let driver = Driver::new(party, actions, store, clock, metrics.clone())?;
    let mut actor = KeyGeneratorActor { driver, status, metrics };
    actor.run_due(&mut Vec::new()).await?;
    actor.publish_status()?;
    start_observing(&mut options, None, &shutdown);

    let (sender, receiver) = mpsc::channel(64);
    let api = KeyGeneratorApi {
        roster: roster.clone(),
        actor: sender,
        status: watcher,
        limits: options.limits,
        metrics: options.metrics.clone(),
        permits: Arc::new(Semaphore::new(MAX_MESSAGES)),
        memory: BodyMemory::new(options.message_memory),
    };
    // the key generator's own key is accepted, so that its operator can query the status
    let tls = kit.tls().server(|party| matches!(party, PartyId::Aggregator | PartyId::KeyGenerator))?;
    let server =
        serve_tls(listener, tls, router(api), options.limits, options.metrics.clone(), shutdown.clone());
    options.metrics.ready.set(1);
    tracing::info!("the key generator is ready");
    let server = tokio::spawn(server);
    let result = actor.run(receiver, shutdown).await;
    options.metrics.ready.set(0);
    if result.is_ok() {
        let _ = server.await;
    } else {
        server.abort();
    }
    result
}

struct KeyGeneratorActor {
    driver: Driver<KeyGeneratorParty>,
    status: watch::Sender<KeyGeneratorStatus>,
    metrics: Arc<Metrics>,
}

impl KeyGeneratorActor {
    async fn run(
        &mut self,
        mut requests: mpsc::Receiver<MessageRequest>,
        mut shutdown: Shutdown,
    ) -> Result<(), Error> {
        loop {
            tokio::select! {
                biased;
                () = shutdown.wait() => return Ok(()),
                request = requests.recv() => match request {
                    Some(MessageRequest { message, reply, span }) => {
                        self.answer(message, reply).instrument(span).await?;
                    }
                    None => return Ok(()),
                },
                () = self.driver.clock.wait_until(self.driver.alarm()) => {
                    self.run_due(&mut Vec::new()).await?;
                }
            }
            self.publish_status()?;
        }
    }

    async fn answer(&mut self, message: Bytes, reply: Reply) -> Result<(), Error> {
        let mut answers = Vec::new();
        let result = match self.driver.step(KeyGeneratorEvent::Message(message.to_vec())).await? {
            Err(error) => {
                self.metrics.refused(error.code());
                tracing::warn!(code = error.code().as_str(), %error, "refused");
                Ok(Err(Problem::from(&error)))
            }
            // the sender waits while a committed request is decrypted
            Ok(()) => self.run_due(&mut answers).await.map(|()| Ok(answers)),
        };
        match result {
            Ok(answer) => {
                let _ = reply.send(answer);
                Ok(())
            }
            Err(error) => {
                let _ = reply.send(Err(HttpErrorCode::Storage.because("the answer could not be stored")));
                Err(error)
            }
        }
    }

    /// Carries out all actions, and ticks that are due.
    async fn run_due(&mut self, answers: &mut Vec<Vec<u8>>) -> Result<(), Error> {
        // a result that is sent again was not opened again
        let mut opens = false;
        loop {
            while let Some(effect) = self.driver.next_effect().await? {
                // the key generator only answers; it never calls another party
                if let Effect::Send { message, .. } = effect {
                    if opens {
                        self.log_result(&message);
                    }
                    answers.push(message);
                }
            }
            if !self.driver.take_alarm() {
                return Ok(());
            }
            opens = true;
            self.driver.step(KeyGeneratorEvent::Tick).await??;
        }
    }

    /// Logs and counts how opening a request ended. There is one per round, over all restarts.
    fn log_result(&self, message: &[u8]) {
        if Header::peek(message).is_ok_and(|header| header.kind == Kind::RoundResult)
            && let Ok(party) = self.driver.party()
            && let Ok(result) = Signed::<RoundResult>::decode(message, party.roster())
        {
            let (round, request) = (result.round().get(), result.message().request);
            let users = result.message().users;
            self.metrics.opened(result.message().outcome);
            match result.message().outcome {
                Outcome::Released => tracing::info!(round, %request, users, "a sum is given out"),
                Outcome::Failed => {
                    self.metrics.refused(ErrorCode::RoundFailed);
                    tracing::warn!(round, %request, users, "a sum could not be opened: an upload was invalid");
                }
            }
        }
    }

    fn publish_status(&mut self) -> Result<(), Error> {
        let status = KeyGeneratorStatus::of(self.driver.party()?);
        self.metrics.round.set(status.round as i64);
        if *self.status.borrow() != status {
            tracing::info!(round = status.round, phase = status.phase.as_str(), "state");
            self.status.send_replace(status);
        }
        Ok(())
    }
}

fn router(api: KeyGeneratorApi) -> Router {
    Router::new()
        .route("/v1/messages", post(message))
        .route("/v1/status", get(status))
        .route(openapi::PATH, openapi::route(openapi::KEY_GENERATOR))
        .fallback(|| async { HttpErrorCode::NotFound.because("no such resource") })
        .method_not_allowed_fallback(|| async {
            HttpErrorCode::Method.because("the resource does not support this method")
        })
        .with_state(api)
}

async fn status(State(api): State<KeyGeneratorApi>) -> Response {
    json(&*api.status.borrow())
}

async fn message(
    State(api): State<KeyGeneratorApi>,
    Extension(Peer(peer)): Extension<Peer>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    if peer != PartyId::Aggregator {
        return Err(HttpErrorCode::Forbidden.because("only the aggregator may send messages"));
    }
    let media = request.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    let kind = match media.and_then(Kind::from_media_type) {
        Some(kind @ (Kind::RoundOpen | Kind::Freeze | Kind::Decrypt | Kind::Close)) => kind,
        _ => {
            return Err(HttpErrorCode::MediaType
                .because("the key generator does not accept messages of this media type"));
        }
    };
    let busy = || HttpErrorCode::Busy.because("too many messages are being read");
    let _permit = api
        .permits
        .try_acquire()
        .map_err(|_| busy())
        .inspect_err(|problem| api.metrics.refused(problem.code))?;
    let _memory = api
        .memory
        .try_take(content_length(&request)?)
        .ok_or_else(busy)
        .inspect_err(|problem| api.metrics.refused(problem.code))?;
    let body = read_body(request, kind.max_message_bytes(&api.roster), api.limits.body)
        .await
        .inspect_err(|problem| api.metrics.refused(problem.code))?;
    if Header::peek(&body).is_ok_and(|header| header.kind != kind) {
        return Err(HttpErrorCode::MediaType.because("the message does not match its media type"));
    }
    let (reply, answer) = oneshot::channel();
    let stopping = || HttpErrorCode::Shutdown.because("the key generator is stopping");
    let request = MessageRequest { message: body, reply, span: tracing::Span::current() };
    api.actor.send(request).await.map_err(|_| stopping())?;
    let answers = answer.await.map_err(|_| stopping())??;
    Ok(match answers.into_iter().next_back() {
        Some(message) => {
            let media = Header::peek(&message).map_or("", |header| header.kind.media_type());
            ([(header::CONTENT_TYPE, media)], message).into_response()
        }
        None => StatusCode::NO_CONTENT.into_response(),
    })
}
