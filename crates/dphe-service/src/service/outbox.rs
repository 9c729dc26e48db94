//! The outbox: sends the aggregator's messages to the key generator in order, and repeats each until it is answered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use dphe::wire::{Header, Kind};
use dphe::{ErrorCode, PartyId};
use tokio::sync::{Notify, mpsc};

use super::aggregator::AggregatorCommand;
use crate::http::client::{Backoff, Client, ClientError};
use crate::http::problem::ProblemCode;
use crate::http::server::timeout_for;
use crate::reminder::WaitingFor;

#[derive(Clone, Default)]
pub(super) struct Outbox {
    queue: Arc<Mutex<VecDeque<Bytes>>>,
    notify: Arc<Notify>,
}

/// The timeout of a message, without the time that its length takes.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of a request to decrypt a sum.
const DECRYPT_TIMEOUT: Duration = Duration::from_secs(300);
/// The longest delay between two attempts.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

impl Outbox {
    /// Queues a message unless it is queued already. The party repeats messages that were not answered.
    pub(super) fn push(&self, message: Vec<u8>) {
        if let Ok(mut queue) = self.queue.lock()
            && !queue.iter().any(|known| *known == message)
        {
            queue.push_back(message.into());
            self.notify.notify_one();
        }
    }

    /// Sends messages until the actor is gone.
    pub(super) async fn run(self, mut client: Client, actor: mpsc::Sender<AggregatorCommand>) {
        let mut backoff = Backoff::new(MAX_RETRY_DELAY);
        let mut waiting = WaitingFor::new(PartyId::KeyGenerator);
        loop {
            let Some(message) = self.first() else {
                self.notify.notified().await;
                continue;
            };
            let kind = Header::peek(&message).ok().map(|header| header.kind);
            let timeout = if kind == Some(Kind::Decrypt) { DECRYPT_TIMEOUT } else { REQUEST_TIMEOUT };
            let timeout = timeout_for(message.len() as u64, timeout);
            let media = kind.map(Kind::media_type);
            let sent = client.send(Method::POST, "/v1/messages", media, message.clone(), timeout).await;
            let command = match sent {
                Ok(answer) if answer.body.is_empty() => None,
                Ok(answer) => Some(AggregatorCommand::Answered(answer.body)),
                Err(ClientError::Problem(problem)) if !problem.is_transient() => {
                    if let Some(reason) = rollback_hint(&message, problem.code) {
                        tracing::error!(
                            code = problem.code.as_str(),
                            reason,
                            "the key generator and this aggregator have different histories"
                        );
                    }
                    Some(AggregatorCommand::Refused { message: message.clone(), problem })
                }
                Err(error) => {
                    let wait = backoff.wait_after(&error);
                    waiting.failed(&error);
                    tokio::time::sleep(wait).await;
                    continue;
                }
            };
            backoff.reset();
            waiting.answered();
            if let Ok(mut queue) = self.queue.lock() {
                queue.pop_front();
            }
            if let Some(command) = command
                && actor.send(command).await.is_err()
            {
                return;
            }
        }
    }

    fn first(&self) -> Option<Bytes> {
        self.queue.lock().ok().and_then(|queue| queue.front().cloned())
    }
}

/// Returns which party was restored from an old copy, if a refusal shows it. Crashes alone never make the two disagree.
fn rollback_hint(message: &[u8], code: ProblemCode) -> Option<&'static str> {
    const GENERATOR: &str =
        "the key generator does not know its own messages: it runs on an old copy of its data directory";
    const AGGREGATOR: &str =
        "this aggregator does not know earlier rounds: it runs on an old copy of its data directory";
    let ProblemCode::Protocol(code) = code else { return None };
    match (Header::peek(message).ok()?.kind, code) {
        (_, ErrorCode::Future) | (Kind::Freeze | Kind::Decrypt, ErrorCode::Order) => Some(GENERATOR),
        (_, ErrorCode::Stale) | (Kind::RoundOpen, ErrorCode::Conflict) => Some(AGGREGATOR),
        _ => None,
    }
}
