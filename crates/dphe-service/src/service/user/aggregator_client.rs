//! The user's client of the aggregator. It polls for messages, fetches models and uploads updates in chunks. Transient
//! errors are retried with growing, random delays.

use std::time::{Duration, Instant};

use axum::http::Method;
use bytes::Bytes;
use dphe::{Digest, ErrorCode, PartyId, Round, UserId};
use tokio::sync::{mpsc, oneshot};

use super::UserCommand;
use crate::hex;
use crate::http::MAX_CHUNK;
use crate::http::client::{Answer, Backoff, Client, ClientError};
use crate::http::problem::{HttpErrorCode, Problem, ProblemCode};
use crate::http::server::timeout_for;
use crate::party::list_of_users;
use crate::reminder::WaitingFor;
use crate::service::aggregator::{AggregatorStatus, phase_label};
use dphe::wire::{Kind, decode_list};

/// The number of seconds that the aggregator may hold a poll open.
pub const POLL_SECONDS: u64 = 25;
/// The timeout of a request, without the time that its length takes.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest pause between two attempts.
pub const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// How long there may be no news before the log output says what the aggregator waits for.
const SILENCE: Duration = Duration::from_secs(50);

/// What the user knows already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PollParams {
    pub(super) after: Round,
    pub(super) seen: Option<Digest>,
}

/// A user's client of the aggregator.
pub struct AggregatorClient {
    client: Client,
    user: UserId,
}

impl AggregatorClient {
    /// Creates the client of `user`, which sends its requests over `client`.
    pub fn new(client: Client, user: UserId) -> Self {
        Self { client, user }
    }

    pub(super) fn new_connection(&self) -> Self {
        Self { client: self.client.new_connection(), user: self.user }
    }

    /// Polls until the task is over.
    pub(super) async fn poll(mut self, mut params: PollParams, actor: mpsc::Sender<UserCommand>) {
        let mut backoff = Backoff::new(MAX_RETRY_DELAY);
        let mut waiting = WaitingFor::new(PartyId::Aggregator);
        let mut news = Instant::now();
        loop {
            let PollParams { after, seen } = params;
            let mut path = format!("/v1/rounds/next?after={after}&wait={POLL_SECONDS}");
            if let Some(seen) = seen {
                path.push_str(&format!("&seen={}", hex::encode(seen.as_bytes())));
            }
            let received = match self.get(&path).await {
                Ok(answer) => messages_of(&answer),
                Err(ClientError::Problem(problem))
                    if problem.code == ProblemCode::Http(HttpErrorCode::TaskOver) =>
                {
                    let _ = actor.send(UserCommand::Over).await;
                    return;
                }
                Err(error) => Err(error),
            };
            let messages = match received {
                Ok(messages) if messages.is_empty() => {
                    backoff.reset();
                    waiting.answered();
                    if news.elapsed() >= SILENCE {
                        news = Instant::now();
                        self.log_status().await;
                    }
                    continue;
                }
                Ok(messages) => messages,
                Err(error) => {
                    let wait = backoff.wait_after(&error);
                    waiting.failed(&error);
                    tokio::time::sleep(wait).await;
                    continue;
                }
            };
            waiting.answered();
            news = Instant::now();
            let (reply, next) = oneshot::channel();
            if actor.send(UserCommand::Heard { messages, reply }).await.is_err() {
                return;
            }
            let Ok(next) = next.await else { return };
            if std::mem::replace(&mut params, next) == params {
                // the messages changed nothing, so polling again at once would return them again
                tokio::time::sleep(backoff.wait()).await;
            } else {
                backoff.reset();
            }
        }
    }

    /// Says what the aggregator waits for, so that a user who hears nothing new knows why.
    async fn log_status(&mut self) {
        let Ok(answer) = self.get("/v1/status").await else { return };
        let Ok(status) = serde_json::from_slice::<AggregatorStatus>(&answer.body) else { return };
        let missing = list_of_users(&status.missing);
        tracing::info!(
            round = status.round,
            phase = status.phase.map(phase_label),
            uploads = status.collected.len(),
            missing,
            "waiting for the aggregator's next message"
        );
    }

    async fn get(&mut self, path: &str) -> Result<Answer, ClientError> {
        let time_limit = timeout_for(self.client.max_response(), REQUEST_TIMEOUT);
        self.client.send(Method::GET, path, None, Bytes::new(), time_limit).await
    }

    /// Fetches the model with this digest.
    pub(super) async fn model(&mut self, digest: Digest) -> Result<Vec<u8>, ClientError> {
        let path = format!("/v1/models/{}", hex::encode(digest.as_bytes()));
        self.get(&path).await.map(|answer| answer.body.to_vec())
    }

    /// Uploads a message chunk by chunk, from where the last attempt stopped, until it is acknowledged or refused.
    pub(super) async fn upload(&mut self, round: Round, message: Bytes) -> Result<Bytes, ClientError> {
        let mut backoff = Backoff::new(MAX_RETRY_DELAY);
        let mut waiting = WaitingFor::new(PartyId::Aggregator);
        loop {
            match self.try_upload(round, &message).await {
                Err(error) if may_upload_later(&error) => {
                    let wait = backoff.wait_after(&error);
                    waiting.failed(&error);
                    tokio::time::sleep(wait).await;
                }
                ended => return ended,
            }
        }
    }

    /// Uploads a message without retrying. The caller retries transient errors.
    pub async fn try_upload(&mut self, round: Round, message: &Bytes) -> Result<Bytes, ClientError> {
        let path = format!("/v1/rounds/{round}/uploads/{}", self.user);
        let total = message.len();
        let mut offset = 0;
        // a short upload fits into one request, so asking for the offset first would only cost a round trip
        if total > MAX_CHUNK {
            let here = self.client.send(Method::HEAD, &path, None, Bytes::new(), REQUEST_TIMEOUT).await?;
            offset = here.upload_offset.map_or(0, |here| here as usize);
        }
        loop {
            if offset >= total {
                offset = 0;
            }
            let chunk = message.slice(offset..total.min(offset + MAX_CHUNK));
            let last = offset + chunk.len() == total;
            let chunk_path = format!("{path}?offset={offset}&total={total}");
            let media = Some(Kind::Upload.media_type());
            match self.client.send(Method::PUT, &chunk_path, media, chunk, REQUEST_TIMEOUT).await {
                Ok(answer) if last && answer.upload_offset.is_none() => return Ok(answer.body),
                Ok(answer) => offset = answer.upload_offset.map_or(0, |here| here as usize),
                Err(ClientError::Problem(problem))
                    if problem.code == ProblemCode::Http(HttpErrorCode::Offset) =>
                {
                    // a response was lost, or another process of this user uploads: continue at the stored offset
                    let here =
                        self.client.send(Method::HEAD, &path, None, Bytes::new(), REQUEST_TIMEOUT).await?;
                    offset = here.upload_offset.map_or(0, |here| here as usize);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns whether an upload that was refused may be accepted later in the same round. The user has the ticket of the
/// round, so an aggregator that does not know the round is about to: it is a replica that has not caught up.
fn may_upload_later(error: &ClientError) -> bool {
    let round_is_unknown = |problem: &Problem| {
        matches!(problem.code, ProblemCode::Protocol(ErrorCode::Order | ErrorCode::Future))
    };
    error.is_transient() || matches!(error, ClientError::Problem(problem) if round_is_unknown(problem))
}

fn messages_of(answer: &Answer) -> Result<Vec<Bytes>, ClientError> {
    decode_list(&answer.body)
        .map(|list| list.into_iter().map(|message| answer.body.slice_ref(message)).collect())
        .map_err(|_| ClientError::broken("the response is not a list of messages"))
}
