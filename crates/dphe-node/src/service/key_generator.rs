//! The key generator's service: the aggregator asks, it answers.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use chacha20::ChaCha20Rng;
use dphe::message::{Close, Decrypt, Freeze, Message as _, RoundOpen, RoundResult, Signed, kind};
use dphe::party::{Action, KeyGeneratorEvent, KeyGeneratorParty, Time};
use dphe::{Party, Roster};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tracing::Instrument as _;

use super::{Clock, Machine, ServiceOptions, os_rng, start_observing};
use crate::Error;
use crate::http::openapi;
use crate::http::problem::{HttpCode, Problem};
use crate::http::server::{Limits, Peer, Shutdown, json, read_body, serve_tls};
use crate::http::{max_message_bytes, media_type};
use crate::kit::Kit;
use crate::store::LogStore;
use crate::telemetry::Metrics;

/// How a party stands, for those who may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The party.
    pub party: String,
    /// The task.
    pub task: String,
    /// The round at hand, or the next one.
    pub round: u64,
    /// Where it stands.
    pub phase: &'static str,
    /// Records of its log.
    pub log_records: u64,
}

type Reply = oneshot::Sender<Result<Vec<Vec<u8>>, Problem>>;

struct Ask {
    message: Bytes,
    reply: Reply,
    /// Of the request, so that its name is in all lines about it.
    span: tracing::Span,
}

#[derive(Clone)]
struct Front {
    roster: Arc<Roster>,
    actor: mpsc::Sender<Ask>,
    status: watch::Receiver<Status>,
    limits: Limits,
    metrics: Arc<Metrics>,
    /// Bodies that are read at once: each may be as long as a whole sum.
    room: Arc<Semaphore>,
}

const MESSAGES_AT_ONCE: usize = 4;

/// Runs the key generator until told to stop.
///
/// # Errors
/// If it cannot start from its kit and its log, or the disk fails.
pub async fn run<S: LogStore>(
    kit: &Kit,
    passphrase: &[u8],
    mut store: S,
    listener: TcpListener,
    mut options: ServiceOptions,
    shutdown: Shutdown,
) -> Result<(), Error> {
    let roster = kit.roster().clone();
    let keys = kit.key_generator(passphrase)?;
    let clock = Clock::new();
    let log = store.load().await?;
    let (party, actions) = KeyGeneratorParty::start(
        keys,
        kit.identity()?,
        (*roster).clone(),
        &log,
        options.threads,
        clock.now(),
    )?;
    let (status, watcher) = watch::channel(Status::default());
    let mut actor = Actor {
        machine: Machine::new((party, os_rng()?), options.metrics.clone()),
        store,
        clock,
        alarm: None,
        status,
        metrics: options.metrics.clone(),
    };
    actor.carry_out(actions, &mut Vec::new()).await?;
    actor.answer_due(&mut Vec::new()).await?;
    actor.tell()?;
    start_observing(&mut options, None, &shutdown);

    let (sender, receiver) = mpsc::channel(64);
    let front = Front {
        roster: roster.clone(),
        actor: sender,
        status: watcher,
        limits: options.limits,
        metrics: options.metrics.clone(),
        room: Arc::new(Semaphore::new(MESSAGES_AT_ONCE)),
    };
    // itself, so that its own people can ask how it stands
    let tls = kit.tls().server(roster, |party| matches!(party, Party::Aggregator | Party::KeyGenerator))?;
    let server =
        serve_tls(listener, tls, router(front), options.limits, options.metrics.clone(), shutdown.clone());
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

struct Actor<S> {
    machine: Machine<(KeyGeneratorParty, ChaCha20Rng)>,
    store: S,
    clock: Clock,
    alarm: Option<Time>,
    status: watch::Sender<Status>,
    metrics: Arc<Metrics>,
}

impl<S: LogStore> Actor<S> {
    async fn run(&mut self, mut asked: mpsc::Receiver<Ask>, mut shutdown: Shutdown) -> Result<(), Error> {
        loop {
            tokio::select! {
                biased;
                () = shutdown.wait() => return Ok(()),
                ask = asked.recv() => match ask {
                    Some(Ask { message, reply, span }) => self.answer(message, reply).instrument(span).await?,
                    None => return Ok(()),
                },
                () = self.clock.wait_until(self.alarm) => self.answer_due(&mut Vec::new()).await?,
            }
            self.tell()?;
        }
    }

    async fn answer(&mut self, message: Bytes, reply: Reply) -> Result<(), Error> {
        let mut answers = Vec::new();
        let result = match self.step(KeyGeneratorEvent::Message(message.to_vec())).await? {
            Err(error) => {
                self.metrics.refused(error.code());
                tracing::warn!(code = error.code(), %error, "refused");
                Ok(Err(Problem::from(&error)))
            }
            Ok(actions) => match self.carry_out(actions, &mut answers).await {
                // what was committed is decrypted while its sender waits
                Ok(()) => self.answer_due(&mut answers).await.map(|()| Ok(answers)),
                Err(error) => Err(error),
            },
        };
        match result {
            Ok(answer) => {
                let _ = reply.send(answer);
                Ok(())
            }
            Err(error) => {
                let _ = reply.send(Err(HttpCode::Storage.because("it could not be stored")));
                Err(error)
            }
        }
    }

    async fn answer_due(&mut self, answers: &mut Vec<Vec<u8>>) -> Result<(), Error> {
        while self.alarm.is_some_and(|alarm| alarm <= self.clock.now()) {
            self.alarm = None;
            let actions = self.step(KeyGeneratorEvent::Tick).await??;
            self.carry_out(actions, answers).await?;
        }
        Ok(())
    }

    async fn step(&mut self, event: KeyGeneratorEvent) -> Result<Result<Vec<Action>, dphe::Error>, Error> {
        let now = self.clock.now();
        self.machine.run(move |(party, rng)| party.step(event, now, rng)).await
    }

    async fn carry_out(&mut self, actions: Vec<Action>, answers: &mut Vec<Vec<u8>>) -> Result<(), Error> {
        for action in actions {
            match action {
                Action::Append(bytes) => {
                    self.store.append(&bytes).await?;
                    self.metrics.log_bytes.add(bytes.len() as i64);
                }
                Action::Replace(bytes) => self.store.replace(&bytes).await?,
                // it answers; it never calls
                Action::Send { message, .. } => {
                    self.note(&message);
                    answers.push(message);
                }
                Action::Wake(time) => self.alarm = Some(time),
                Action::Announce(_) | Action::Poll(_) | Action::Notify(_) => {}
            }
        }
        Ok(())
    }

    /// Says which request was opened: over all lives, one a round.
    fn note(&self, message: &[u8]) {
        if kind(message) == Ok(RoundResult::KIND)
            && let Ok((party, _)) = self.machine.party()
            && let Ok(result) = Signed::<RoundResult>::decode(message, party.roster())
        {
            let (round, request) = (result.round().get(), result.message().request);
            tracing::info!(round, %request, users = result.message().users, "a sum is given out");
        }
    }

    fn tell(&mut self) -> Result<(), Error> {
        let (party, _) = self.machine.party()?;
        let status = Status {
            party: "key-generator".into(),
            task: party.roster().task().id().to_string(),
            round: party.round().get(),
            phase: party.phase(),
            log_records: party.log_point().seq,
        };
        self.metrics.round.set(status.round as i64);
        if *self.status.borrow() != status {
            tracing::info!(round = status.round, phase = status.phase, "state");
            self.status.send_replace(status);
        }
        Ok(())
    }
}

fn router(front: Front) -> Router {
    Router::new()
        .route("/v1/messages", post(message))
        .route("/v1/status", get(status))
        .route(openapi::PATH, openapi::show(openapi::KEY_GENERATOR))
        .fallback(|| async { HttpCode::NotFound.because("there is nothing at this address") })
        .method_not_allowed_fallback(|| async { HttpCode::Method.because("not with this method") })
        .with_state(front)
}

async fn status(State(front): State<Front>) -> Response {
    json(&*front.status.borrow())
}

async fn message(
    State(front): State<Front>,
    Extension(Peer(peer)): Extension<Peer>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    if peer != Party::Aggregator {
        return Err(HttpCode::Forbidden.because("only the aggregator sends messages here"));
    }
    let media = request.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    let media = media.unwrap_or_default().to_owned();
    let roster = &front.roster;
    // what may come, and how long it may be
    let most = match media.strip_prefix("application/vnd.dphe.v1.") {
        Some(RoundOpen::NAME) => max_message_bytes::<RoundOpen>(roster),
        Some(Freeze::NAME) => max_message_bytes::<Freeze>(roster),
        Some(Decrypt::NAME) => max_message_bytes::<Decrypt>(roster),
        Some(Close::NAME) => max_message_bytes::<Close>(roster),
        _ => return Err(HttpCode::MediaType.because("not a message that the key generator takes")),
    };
    let busy = || HttpCode::Busy.because("too many messages at once");
    let _place = front
        .room
        .try_acquire()
        .map_err(|_| busy())
        .inspect_err(|problem| front.metrics.refused(&problem.code))?;
    let body = read_body(request, most, front.limits.body)
        .await
        .inspect_err(|problem| front.metrics.refused(&problem.code))?;
    if media_type(&body).is_some_and(|found| found != media) {
        return Err(HttpCode::MediaType.because("the message is of another kind than its media type"));
    }
    let (reply, answer) = oneshot::channel();
    let gone = || HttpCode::Shutdown.because("the key generator is going down");
    let ask = Ask { message: body, reply, span: tracing::Span::current() };
    front.actor.send(ask).await.map_err(|_| gone())?;
    let answers = answer.await.map_err(|_| gone())??;
    Ok(match answers.into_iter().next_back() {
        Some(message) => {
            let media = media_type(&message).unwrap_or_default();
            ([(header::CONTENT_TYPE, media)], message).into_response()
        }
        None => StatusCode::NO_CONTENT.into_response(),
    })
}
