//! What users meet: addresses, limits, refusals.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use dphe::message::Upload;
use dphe::{Party, Roster, Round, UserId};
use serde::Deserialize;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::super::uploads::{Piece, Pieces};
use super::{Arrived, Board, LONGEST_POLL};
use crate::http::openapi;
use crate::http::problem::{HttpCode, Problem};
use crate::http::server::{Limits, Peer, Places, Shutdown, json, read_body};
use crate::http::{MAX_CHUNK, MESSAGES, MODEL, UPLOAD_OFFSET, max_message_bytes, media_type, sender_of};
use crate::kit::digest_from_hex;
use crate::telemetry::Metrics;

#[derive(Clone)]
pub(super) struct Front {
    pub(super) roster: Arc<Roster>,
    pub(super) arrivals: mpsc::Sender<Arrived>,
    pub(super) board: watch::Receiver<Arc<Board>>,
    pub(super) pieces: Pieces,
    pub(super) limits: Limits,
    pub(super) metrics: Arc<Metrics>,
    pub(super) shutdown: Shutdown,
    /// Bodies that are read at once; whoever comes when all are taken is told to come back.
    pub(super) room: Arc<Semaphore>,
    /// And at once of one user.
    pub(super) bodies: Places,
}

/// How long a body waits for its turn.
const ROOM_PATIENCE: Duration = Duration::from_secs(5);
/// How long a replica may be behind the others.
const CATCH_UP: Duration = Duration::from_secs(2);
pub(super) const BODIES_AT_ONCE: usize = 128;
pub(super) const BODIES_OF_ONE: usize = 2;

impl Front {
    fn refuse(&self, problem: Problem) -> Problem {
        self.metrics.refused(&problem.code);
        problem
    }

    /// The round at hand. A user may have heard of the `expected` one from another replica a moment ago: then it will
    /// be heard of here too.
    async fn current_round(&self, expected: Round) -> Round {
        let mut board = self.board.clone();
        let is_there = |board: &Arc<Board>| {
            let status = &board.status;
            let waiting = matches!(status.phase.as_str(), "" | "idle" | "opened");
            status.round > expected.get() || (status.round == expected.get() && !waiting)
        };
        if matches!(self.pieces, Pieces::Rows(_)) {
            let _ = tokio::time::timeout(CATCH_UP, board.wait_for(is_there)).await;
        }
        Round::new(board.borrow().status.round).unwrap_or(Round::FIRST)
    }
}

pub(super) fn router(front: Front) -> Router {
    Router::new()
        .route("/v1/rounds/next", get(next))
        .route("/v1/rounds/{round}/uploads/{user}", get(offset).put(upload))
        .route("/v1/models/{digest}", get(model))
        .route("/v1/status", get(status))
        .route(openapi::PATH, openapi::show(openapi::AGGREGATOR))
        .fallback(|| async { HttpCode::NotFound.because("there is nothing at this address") })
        .method_not_allowed_fallback(|| async { HttpCode::Method.because("not with this method") })
        .with_state(front)
}

async fn status(State(front): State<Front>) -> Response {
    json(&front.board.borrow().status)
}

#[derive(Deserialize)]
struct NextQuery {
    /// The round the user is in, or waits for.
    after: u64,
    /// The latest round whose end it has heard of in this life.
    #[serde(default)]
    heard: u64,
    /// The hash of the ticket it has.
    seen: Option<String>,
    /// Seconds to wait for news.
    #[serde(default)]
    wait: u64,
}

/// How the round ended and what comes next: at once if there is news, else when there is.
async fn next(
    State(mut front): State<Front>,
    Extension(Peer(peer)): Extension<Peer>,
    query: Result<Query<NextQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Party::User(_) = peer else {
        return Err(front.refuse(HttpCode::Forbidden.because("only users take part in rounds")));
    };
    let bad = |what: &str| HttpCode::Request.because(what);
    let Query(query) = query.map_err(|_| front.refuse(bad("after is a round, wait is seconds")))?;
    let after = Round::new(query.after).ok_or_else(|| front.refuse(bad("there is no round 0")))?;
    let seen = query.seen.as_deref().map(|seen| {
        digest_from_hex(seen).ok_or_else(|| front.refuse(bad("seen is a hash of 64 hexadecimal digits")))
    });
    let seen = seen.transpose()?;
    let until = Instant::now() + Duration::from_secs(query.wait).min(LONGEST_POLL);
    loop {
        let board = front.board.borrow_and_update().clone();
        if board.stale {
            return Ok(stale());
        }
        let ended = board.ended.as_ref().filter(|(round, _)| *round >= after && round.get() > query.heard);
        let ticket = board.ticket.as_ref().filter(|(hash, _)| seen != Some(*hash));
        let news = match (ended, ticket) {
            (Some(_), Some(_)) => Some(&board.news),
            (Some((_, list)), None) | (None, Some((_, list))) => Some(list),
            (None, None) => None,
        };
        if let Some(news) = news {
            return Ok(([(header::CONTENT_TYPE, MESSAGES)], news.clone()).into_response());
        }
        if board.status.over {
            return Err(HttpCode::TaskOver.because("all rounds are over"));
        }
        let gone = || HttpCode::Shutdown.because("the aggregator is going down");
        tokio::select! {
            changed = front.board.changed() => changed.map_err(|_| gone())?,
            () = sleep_until(until) => return Ok(StatusCode::NO_CONTENT.into_response()),
            () = front.shutdown.wait() => return Err(gone()),
        }
    }
}

async fn model(
    State(front): State<Front>,
    digest: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let board = front.board.borrow().clone();
    // what is no text is no digest either
    let digest = digest.ok().and_then(|Path(digest)| digest_from_hex(&digest));
    match &board.model {
        Some((known, model)) if digest == Some(*known) => {
            Ok(([(header::CONTENT_TYPE, MODEL)], model.clone()).into_response())
        }
        _ => Err(front.refuse(HttpCode::NotFound.because("that is not the model of the round at hand"))),
    }
}

type Place = Result<Path<(u64, u32)>, PathRejection>;

/// Whose upload of which round: only one's own.
fn own(peer: Party, place: Place) -> Result<(Round, UserId), Problem> {
    let Path((round, user)) =
        place.map_err(|_| HttpCode::NotFound.because("rounds and users are numbers"))?;
    match (Round::new(round), UserId::new(user)) {
        (Some(round), Some(user)) if peer == Party::User(user) => Ok((round, user)),
        (Some(_), Some(_)) => Err(HttpCode::Forbidden.because("the certificate is another party's")),
        _ => Err(HttpCode::NotFound.because("rounds and users are counted from 1")),
    }
}

fn offset_header(here: u64) -> [(HeaderName, String); 1] {
    [(HeaderName::from_static(UPLOAD_OFFSET), here.to_string())]
}

/// How much of an upload is here.
async fn offset(
    State(front): State<Front>,
    Extension(Peer(peer)): Extension<Peer>,
    place: Place,
) -> Result<Response, Problem> {
    let (round, user) = own(peer, place).map_err(|problem| front.refuse(problem))?;
    let here = front.pieces.offset(round, user).await;
    let here = here.map_err(|error| front.refuse(disk(&error)))?;
    Ok((StatusCode::NO_CONTENT, offset_header(here)).into_response())
}

#[derive(Deserialize)]
struct UploadQuery {
    offset: u64,
    total: u64,
}

/// A piece of an upload; the last one is answered with the acknowledgement.
async fn upload(
    State(front): State<Front>,
    Extension(Peer(peer)): Extension<Peer>,
    place: Place,
    query: Result<Query<UploadQuery>, QueryRejection>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    take(&front, peer, place, query, request).await.map_err(|problem| front.refuse(problem))
}

async fn take(
    front: &Front,
    peer: Party,
    place: Place,
    query: Result<Query<UploadQuery>, QueryRejection>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (round, user) = own(peer, place)?;
    let Query(UploadQuery { offset, total }) =
        query.map_err(|_| HttpCode::Request.because("offset and total are numbers of bytes"))?;
    let most = max_message_bytes::<Upload>(&front.roster);
    if total == 0 || total > most || offset >= total {
        return Err(HttpCode::Size.because(format!("{offset} of {total} bytes, and {most} are allowed")));
    }
    let current = front.current_round(round).await;
    if front.board.borrow().stale {
        return Ok(stale());
    }
    let over = front.board.borrow().status.over;
    if round < current {
        return Err(Problem::from(&dphe::Error::Stale { round, current }));
    }
    if over {
        return Err(HttpCode::TaskOver.because("all rounds are over"));
    }
    if round > current {
        return Err(Problem::from(&dphe::Error::Future { round, current }));
    }
    let media = request.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    if media != Some("application/vnd.dphe.v1.upload") {
        return Err(HttpCode::MediaType.because("not an upload"));
    }
    let busy = || HttpCode::Busy.because("too many uploads at once");
    let own_place = front.bodies.take(peer).ok_or_else(busy)?;
    // to turn somebody away with a whole upload costs more than a moment's patience
    let place = tokio::time::timeout(ROOM_PATIENCE, front.room.clone().acquire_owned()).await;
    let place = place.ok().and_then(Result::ok).ok_or_else(busy)?;
    let piece = read_body(request, (total - offset).min(MAX_CHUNK as u64), front.limits.body).await?;
    if piece.is_empty() {
        return Err(HttpCode::Request.because("the piece is empty"));
    }
    let stored = front.pieces.put(round, user, offset, total, piece).await;
    let message = match stored.map_err(|error| disk(&error))? {
        Piece::Stored(here) => return Ok((StatusCode::ACCEPTED, offset_header(here)).into_response()),
        Piece::Misplaced(here) => {
            let problem = HttpCode::Offset.because(format!("{here} bytes are here, go on from there"));
            return Ok((offset_header(here), problem).into_response());
        }
        Piece::Whole(message) => message,
    };
    if sender_of(&message) != Some(Party::User(user)) {
        return Err(HttpCode::Forbidden.because("the upload is another user's"));
    }
    let (reply, answer) = oneshot::channel();
    let gone = || HttpCode::Shutdown.because("the aggregator is going down");
    front
        .arrivals
        .send(Arrived { user, message, reply, _places: (own_place, place) })
        .await
        .map_err(|_| gone())?;
    let ack = answer.await.map_err(|_| gone())??;
    let media = media_type(&ack).unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, media)], ack).into_response())
}

/// This replica knows nothing for certain; the connection ends, so that the next one may find another.
fn stale() -> Response {
    let problem = HttpCode::Storage.because("this replica is out of touch with the database");
    ([(header::CONNECTION, "close")], problem).into_response()
}

fn disk(error: &std::io::Error) -> Problem {
    tracing::error!(%error, "a piece of an upload could not be stored");
    HttpCode::Storage.because("it could not be stored")
}
