//! The HTTP handlers of the aggregator.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use bytes::Bytes;
use dphe::party::{AggregatorPhase, IdentityKeys};
use dphe::wire::{Header, Kind, LIST_MEDIA_TYPE, MODEL_MEDIA_TYPE, Rosters, encode_list};
use dphe::{Digest, PartyId, Roster, Round, UserId};
use serde::Deserialize;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::super::chunks::{ChunkOutcome, UploadChunks};
use super::past_rounds::PastRounds;
use super::replies::{PendingUpload, UploadReply};
use super::{AggregatorStatus, MAX_POLL, Snapshot};
use crate::hex;
use crate::http::openapi;
use crate::http::problem::{HttpErrorCode, Problem};
use crate::http::server::{BodyMemory, Limits, PartyPermits, Peer, Shutdown, json, read_body};
use crate::http::{MAX_CHUNK, UPLOAD_OFFSET};
use crate::telemetry::Metrics;

/// The state of the handlers.
#[derive(Clone)]
pub(super) struct AggregatorApi {
    /// The latest roster.
    pub(super) roster: Arc<Roster>,
    pub(super) rosters: Arc<Rosters>,
    pub(super) uploads: mpsc::Sender<PendingUpload>,
    pub(super) snapshot: watch::Receiver<Arc<Snapshot>>,
    pub(super) chunks: UploadChunks,
    pub(super) past: PastRounds,
    /// Sign the proofs that users are in a sum.
    pub(super) identities: Arc<IdentityKeys>,
    pub(super) limits: Limits,
    pub(super) metrics: Arc<Metrics>,
    pub(super) shutdown: Shutdown,
    /// Limits the upload chunks in memory. A request that gets no permit in time is refused.
    pub(super) permits: Arc<Semaphore>,
    /// Limits the chunks per user.
    pub(super) user_permits: PartyPermits,
    /// Limits the bytes of complete uploads that wait for their answers.
    pub(super) memory: BodyMemory,
    /// Limits the earlier rounds that are read at once.
    pub(super) past_permits: Arc<Semaphore>,
}

/// How long a chunk waits for a permit, and a complete upload for memory.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a replica waits for a snapshot that another replica has already shown.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest number of chunks in memory.
pub(super) const MAX_BODIES: usize = 128;
/// The largest number of earlier rounds that are read at once.
pub(super) const MAX_PAST_ROUNDS: usize = 4;
/// The largest number of chunks in memory per user.
pub(super) const MAX_BODIES_PER_USER: usize = 2;

impl AggregatorApi {
    fn count_refusal(&self, problem: Problem) -> Problem {
        self.metrics.refused(problem.code);
        problem
    }

    /// Returns the messages that a user in round `after` does not have yet: the end of that round if it has ended, and
    /// the ticket of the current round unless the user has `seen` it or is behind.
    async fn messages_for(
        &self,
        user: UserId,
        after: Round,
        seen: Option<Digest>,
        snapshot: &Snapshot,
    ) -> Vec<Bytes> {
        let ended = match &snapshot.ended {
            Some(last) if last.round() == after => Some(last.clone()),
            Some(last) if last.round() > after => self.past.get(after, &self.rosters).await,
            _ => None,
        };
        let mut messages = Vec::new();
        if let Some(ended) = &ended {
            // users verify it under the roster of the round
            let roster = self.rosters.at(ended.round());
            if let Ok(identity) = self.identities.of(PartyId::Aggregator, roster) {
                messages.extend(ended.inclusion(user, identity, roster).map(Bytes::from));
            }
            messages.extend(ended.messages().into_iter().map(Bytes::from));
        }
        let is_behind = snapshot.ended.as_ref().is_some_and(|last| last.round() > after);
        if let Some((hash, ticket)) = &snapshot.ticket
            && seen != Some(*hash)
            && !is_behind
            // the others learn of the round when it has ended
            && snapshot.status.asks(user)
        {
            messages.push(ticket.clone());
        }
        messages
    }

    /// Returns the current round. A user may have learned of round `expected` from another replica a moment ago; this
    /// one then waits until it has caught up.
    async fn current_round(&self, expected: Round) -> Round {
        let mut snapshot = self.snapshot.clone();
        let has_caught_up = |snapshot: &Arc<Snapshot>| {
            let status = &snapshot.status;
            let waiting =
                matches!(status.phase, None | Some(AggregatorPhase::Idle | AggregatorPhase::Announced));
            status.round > expected.get() || (status.round == expected.get() && !waiting)
        };
        if self.chunks.are_shared() {
            let _ = tokio::time::timeout(CATCH_UP_TIMEOUT, snapshot.wait_for(has_caught_up)).await;
        }
        Round::new(snapshot.borrow().status.round).unwrap_or(Round::FIRST)
    }
}

pub(super) fn router(api: AggregatorApi) -> Router {
    Router::new()
        .route("/v1/rounds/next", get(next))
        .route("/v1/rounds/{round}", get(past_round))
        .route("/v1/rounds/{round}/uploads/{user}", get(offset).put(upload))
        .route("/v1/models/{digest}", get(model))
        .route("/v1/status", get(status))
        .route(openapi::PATH, openapi::route(openapi::AGGREGATOR))
        .fallback(|| async { HttpErrorCode::NotFound.because("no such resource") })
        .method_not_allowed_fallback(|| async {
            HttpErrorCode::Method.because("the resource does not support this method")
        })
        .with_state(api)
}

async fn status(State(api): State<AggregatorApi>) -> Response {
    let status = api.snapshot.borrow().status.clone();
    let roster = api.rosters.at(Round::new(status.round).unwrap_or(Round::FIRST));
    json(&AggregatorStatus { missing: status.missing_of(roster.users()), ..status })
}

#[derive(Deserialize)]
struct NextQuery {
    /// The round that the user is in or waits for.
    after: u64,
    /// The hash of the ticket that the user has.
    seen: Option<String>,
    /// How many seconds to hold the request open if there is nothing new.
    #[serde(default)]
    wait: u64,
}

/// Returns the messages that the user does not have yet: the end of its round, and the ticket of the next one. Waits
/// until there are any.
async fn next(
    State(mut api): State<AggregatorApi>,
    Extension(Peer(peer)): Extension<Peer>,
    query: Result<Query<NextQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let PartyId::User(user) = peer else {
        return Err(api.count_refusal(HttpErrorCode::Forbidden.because("only users may poll for rounds")));
    };
    let bad = |what: &str| HttpErrorCode::Request.because(what);
    let Query(query) = query
        .map_err(|_| api.count_refusal(bad("`after` must be a round and `wait` a number of seconds")))?;
    let after =
        Round::new(query.after).ok_or_else(|| api.count_refusal(bad("rounds are numbered from 1")))?;
    let seen = query.seen.as_deref().map(|seen| {
        hex::decode(seen)
            .map(Digest::from_bytes)
            .ok_or_else(|| api.count_refusal(bad("`seen` must be a hash of 64 hexadecimal digits")))
    });
    let seen = seen.transpose()?;
    let until = Instant::now() + Duration::from_secs(query.wait).min(MAX_POLL);
    loop {
        let snapshot = api.snapshot.borrow_and_update().clone();
        if snapshot.stale {
            return Ok(stale());
        }
        let messages = api.messages_for(user, after, seen, &snapshot).await;
        if !messages.is_empty() {
            let list = encode_list(&messages);
            return Ok(([(header::CONTENT_TYPE, LIST_MEDIA_TYPE)], list).into_response());
        }
        if snapshot.status.over {
            return Err(HttpErrorCode::TaskOver.because("all rounds are over"));
        }
        let stopping = || HttpErrorCode::Shutdown.because("the aggregator is stopping");
        tokio::select! {
            changed = api.snapshot.changed() => changed.map_err(|_| stopping())?,
            () = sleep_until(until) => return Ok(StatusCode::NO_CONTENT.into_response()),
            () = api.shutdown.wait() => return Err(stopping()),
        }
    }
}

/// Returns the messages of a round that has ended, so that members can verify it.
async fn past_round(
    State(api): State<AggregatorApi>,
    round: Result<Path<u64>, PathRejection>,
) -> Result<Response, Problem> {
    let unknown = || api.count_refusal(HttpErrorCode::NotFound.because("no such round has ended"));
    let round = round.ok().and_then(|Path(round)| Round::new(round)).ok_or_else(unknown)?;
    // several answers with long sums must not fill the memory
    let permit = tokio::time::timeout(PERMIT_TIMEOUT, api.past_permits.clone().acquire_owned()).await;
    let busy = || HttpErrorCode::Busy.because("too many earlier rounds are being read");
    let _permit = permit.ok().and_then(Result::ok).ok_or_else(|| api.count_refusal(busy()))?;
    let messages = api.past.messages(round, &api.rosters).await;
    if messages.is_empty() {
        return Err(unknown());
    }
    Ok(([(header::CONTENT_TYPE, LIST_MEDIA_TYPE)], encode_list(&messages)).into_response())
}

async fn model(
    State(api): State<AggregatorApi>,
    digest: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let snapshot = api.snapshot.borrow().clone();
    let digest = digest.ok().and_then(|Path(digest)| hex::decode(&digest)).map(Digest::from_bytes);
    match &snapshot.model {
        Some((known, model)) if digest == Some(*known) => {
            Ok(([(header::CONTENT_TYPE, MODEL_MEDIA_TYPE)], model.clone()).into_response())
        }
        _ => {
            Err(api
                .count_refusal(HttpErrorCode::NotFound.because("this is not the model of the current round")))
        }
    }
}

type UploadPath = Result<Path<(u64, u32)>, PathRejection>;

/// Returns round and user of an upload's path. Users may only access their own uploads.
fn own_upload(peer: PartyId, path: UploadPath) -> Result<(Round, UserId), Problem> {
    let Path((round, user)) =
        path.map_err(|_| HttpErrorCode::NotFound.because("rounds and users must be numbers"))?;
    match (Round::new(round), UserId::new(user)) {
        (Some(round), Some(user)) if peer == PartyId::User(user) => Ok((round, user)),
        (Some(_), Some(_)) => {
            Err(HttpErrorCode::Forbidden.because("the connection belongs to another party"))
        }
        _ => Err(HttpErrorCode::NotFound.because("rounds and users are numbered from 1")),
    }
}

fn offset_header(here: u64) -> [(HeaderName, String); 1] {
    [(HeaderName::from_static(UPLOAD_OFFSET), here.to_string())]
}

/// Returns how many bytes of an upload are stored.
async fn offset(
    State(api): State<AggregatorApi>,
    Extension(Peer(peer)): Extension<Peer>,
    path: UploadPath,
) -> Result<Response, Problem> {
    let (round, user) = own_upload(peer, path).map_err(|problem| api.count_refusal(problem))?;
    let here = api.chunks.offset(round, user).await;
    let here = here.map_err(|error| api.count_refusal(storage_problem(&error)))?;
    Ok((StatusCode::NO_CONTENT, offset_header(here)).into_response())
}

#[derive(Deserialize)]
struct UploadQuery {
    offset: u64,
    total: u64,
}

/// Stores a chunk of an upload. The last chunk is answered with the acknowledgement.
async fn upload(
    State(api): State<AggregatorApi>,
    Extension(Peer(peer)): Extension<Peer>,
    path: UploadPath,
    query: Result<Query<UploadQuery>, QueryRejection>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    receive_chunk(&api, peer, path, query, request).await.map_err(|problem| api.count_refusal(problem))
}

async fn receive_chunk(
    api: &AggregatorApi,
    peer: PartyId,
    path: UploadPath,
    query: Result<Query<UploadQuery>, QueryRejection>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (round, user) = own_upload(peer, path)?;
    let Query(UploadQuery { offset, total }) =
        query.map_err(|_| HttpErrorCode::Request.because("`offset` and `total` must be numbers of bytes"))?;
    let max = Kind::Upload.max_message_bytes(&api.roster);
    if total == 0 || total > max || offset >= total {
        return Err(HttpErrorCode::Size
            .because(format!("offset {offset} of {total} bytes; at most {max} bytes are allowed")));
    }
    let current = api.current_round(round).await;
    if api.snapshot.borrow().stale {
        return Ok(stale());
    }
    let over = api.snapshot.borrow().status.over;
    if round < current {
        return Err(Problem::from(&dphe::Error::Stale { round, current }));
    }
    if over {
        return Err(HttpErrorCode::TaskOver.because("all rounds are over"));
    }
    if round > current {
        return Err(Problem::from(&dphe::Error::Future { round, current }));
    }
    if !api.snapshot.borrow().status.asks(user) {
        return Err(HttpErrorCode::NotAsked.because("this round is for other users"));
    }
    let media = request.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    if media != Some(Kind::Upload.media_type()) {
        return Err(HttpErrorCode::MediaType.because("the media type is not that of an upload"));
    }
    let busy = || HttpErrorCode::Busy.because("too many uploads are being received");
    let user_permit = api.user_permits.take(peer).ok_or_else(busy)?;
    // repeating a refused chunk would cost more than waiting a moment
    let permit = tokio::time::timeout(PERMIT_TIMEOUT, api.permits.clone().acquire_owned()).await;
    let permit = permit.ok().and_then(Result::ok).ok_or_else(busy)?;
    let chunk = read_body(request, (total - offset).min(MAX_CHUNK as u64), api.limits.body).await?;
    if chunk.is_empty() {
        return Err(HttpErrorCode::Request.because("the chunk is empty"));
    }
    // taken after the chunk has arrived, so that a slow sender does not keep others out
    let completes = offset.saturating_add(chunk.len() as u64) >= total;
    let memory =
        tokio::time::timeout(PERMIT_TIMEOUT, api.memory.take(if completes { total } else { 0 })).await;
    let memory = memory.ok().flatten().ok_or_else(busy)?;
    let stored = api.chunks.put(round, user, offset, total, chunk).await;
    let message = match stored.map_err(|error| storage_problem(&error))? {
        ChunkOutcome::Stored(here) => return Ok((StatusCode::ACCEPTED, offset_header(here)).into_response()),
        ChunkOutcome::WrongOffset(here) => {
            let problem =
                HttpErrorCode::Offset.because(format!("{here} bytes are stored; continue at that offset"));
            return Ok((offset_header(here), problem).into_response());
        }
        ChunkOutcome::Complete(message) => message,
    };
    let sender = Header::peek(&message).map_err(|error| Problem::from(&error))?.sender;
    if sender != Some(PartyId::User(user)) {
        return Err(HttpErrorCode::Forbidden.because("the upload was signed by another user"));
    }
    let (reply, answer) = UploadReply::new();
    let stopping = || HttpErrorCode::Shutdown.because("the aggregator is stopping");
    api.uploads
        .send(PendingUpload { user, message, reply, _permits: (user_permit, permit, memory) })
        .await
        .map_err(|_| stopping())?;
    let ack = answer.await.map_err(|_| stopping())??;
    Ok(([(header::CONTENT_TYPE, Kind::UploadAck.media_type())], ack).into_response())
}

/// Returns the answer of a replica whose snapshot may be out of date. It closes the connection, so that the client may
/// reach another replica.
fn stale() -> Response {
    let problem = HttpErrorCode::Storage.because("this replica has no contact with the database");
    ([(header::CONNECTION, "close")], problem).into_response()
}

fn storage_problem(error: &std::io::Error) -> Problem {
    tracing::error!(%error, "a chunk of an upload could not be stored");
    HttpErrorCode::Storage.because("the chunk could not be stored")
}
