//! The user's line to the aggregator: asks for news, fetches models, uploads in pieces. It tries again, at growing and
//! random intervals, whatever may pass.

use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use dphe::{Digest, Round, UserId};
use tokio::sync::{mpsc, oneshot};

use super::Command;
use crate::http::client::{Answer, Backoff, Client, ClientError};
use crate::http::server::patience_for;
use crate::http::{MAX_CHUNK, read_list};
use crate::kit::hex;

/// Seconds that the aggregator may wait for news.
pub(crate) const WAIT: u64 = 25;
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What a user knows already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Params {
    pub(super) after: Round,
    pub(super) seen: Option<Digest>,
    pub(super) heard: u64,
}

pub(crate) struct Line {
    client: Client,
    user: UserId,
}

impl Line {
    pub(crate) fn new(client: Client, user: UserId) -> Self {
        Self { client, user }
    }

    pub(super) fn again(&self) -> Self {
        Self { client: self.client.again(), user: self.user }
    }

    /// Asks for news for ever.
    pub(super) async fn poll(mut self, mut params: Params, actor: mpsc::Sender<Command>) {
        let mut backoff = Backoff::new(LONGEST_WAIT);
        loop {
            let Params { after, seen, heard } = params;
            let mut path = format!("/v1/rounds/next?after={after}&heard={heard}&wait={WAIT}");
            if let Some(seen) = seen {
                path.push_str(&format!("&seen={}", hex(seen.as_bytes())));
            }
            let told = match self.get(&path).await {
                Ok(answer) => messages_of(&answer),
                Err(ClientError::Problem(problem)) if problem.code == "task_over" => {
                    let _ = actor.send(Command::Over).await;
                    return;
                }
                Err(error) => Err(error),
            };
            let messages = match told {
                Ok(messages) if messages.is_empty() => {
                    backoff.reset();
                    continue;
                }
                Ok(messages) => messages,
                Err(error) => {
                    let wait = backoff.wait_after(&error);
                    tracing::debug!(%error, ?wait, "no news");
                    tokio::time::sleep(wait).await;
                    continue;
                }
            };
            let (reply, next) = oneshot::channel();
            if actor.send(Command::Heard { messages, reply }).await.is_err() {
                return;
            }
            let Ok(next) = next.await else { return };
            if std::mem::replace(&mut params, next) == params {
                // it could do nothing with them: not again at once
                tokio::time::sleep(backoff.wait()).await;
            } else {
                backoff.reset();
            }
        }
    }

    async fn get(&mut self, path: &str) -> Result<Answer, ClientError> {
        let patience = patience_for(self.client.most(), PATIENCE);
        self.client.send(Method::GET, path, None, Bytes::new(), patience).await
    }

    /// How the last round ended.
    pub(super) async fn last_end(&mut self) -> Result<Vec<Bytes>, ClientError> {
        messages_of(&self.get("/v1/rounds/next?after=1").await?)
    }

    /// The model with this digest.
    pub(super) async fn model(&mut self, digest: Digest) -> Result<Vec<u8>, ClientError> {
        let path = format!("/v1/models/{}", hex(digest.as_bytes()));
        self.get(&path).await.map(|answer| answer.body.to_vec())
    }

    /// Uploads a message piece by piece, from where the last try ended, until it is acknowledged or refused for good.
    pub(super) async fn upload(&mut self, round: Round, message: Bytes) -> Result<Bytes, ClientError> {
        let mut backoff = Backoff::new(LONGEST_WAIT);
        loop {
            match self.try_upload(round, &message).await {
                Err(error) if error.is_passing() => {
                    let wait = backoff.wait_after(&error);
                    tracing::debug!(%error, ?wait, "the upload waits");
                    tokio::time::sleep(wait).await;
                }
                ended => return ended,
            }
        }
    }

    /// The same, once: whatever may pass is the caller's to try again.
    pub(crate) async fn try_upload(&mut self, round: Round, message: &Bytes) -> Result<Bytes, ClientError> {
        let place = format!("/v1/rounds/{round}/uploads/{}", self.user);
        let total = message.len();
        let mut offset = 0;
        // short ones are sent whole: asking first would cost as much
        if total > MAX_CHUNK {
            let here = self.client.send(Method::HEAD, &place, None, Bytes::new(), PATIENCE).await?;
            offset = here.upload_offset.map_or(0, |here| here as usize);
        }
        loop {
            if offset >= total {
                offset = 0;
            }
            let piece = message.slice(offset..total.min(offset + MAX_CHUNK));
            let last = offset + piece.len() == total;
            let path = format!("{place}?offset={offset}&total={total}");
            let media = Some("application/vnd.dphe.v1.upload");
            match self.client.send(Method::PUT, &path, media, piece, PATIENCE).await {
                Ok(answer) if last && answer.upload_offset.is_none() => return Ok(answer.body),
                Ok(answer) => offset = answer.upload_offset.map_or(0, |here| here as usize),
                Err(ClientError::Problem(problem)) if problem.code == "offset" => {
                    // somebody else's pieces, or a lost answer: ask and go on from there
                    let here = self.client.send(Method::HEAD, &place, None, Bytes::new(), PATIENCE).await?;
                    offset = here.upload_offset.map_or(0, |here| here as usize);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn messages_of(answer: &Answer) -> Result<Vec<Bytes>, ClientError> {
    read_list(&answer.body)
        .map(|list| list.into_iter().map(|message| answer.body.slice_ref(message)).collect())
        .ok_or(ClientError::Line { what: "the answer is not a list of messages".into() })
}
