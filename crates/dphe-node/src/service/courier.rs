//! Carries the aggregator's messages to the key generator, in order, again and again until each is answered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use dphe::message::{Decrypt, Freeze, Message as _, RoundOpen, kind};
use tokio::sync::{Notify, mpsc};

use super::aggregator::Command;
use crate::http::client::{Backoff, Client, ClientError};
use crate::http::media_type;
use crate::http::server::patience_for;

#[derive(Clone, Default)]
pub(super) struct Courier {
    queue: Arc<Mutex<VecDeque<Bytes>>>,
    notify: Arc<Notify>,
}

/// How long an answer may take; a sum takes longer to decrypt than anything else takes.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_DECRYPT: Duration = Duration::from_secs(300);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl Courier {
    /// Takes a message along, unless it waits here already: the party sends again what was not answered.
    pub(super) fn take(&self, message: Vec<u8>) {
        if let Ok(mut queue) = self.queue.lock()
            && !queue.iter().any(|known| *known == message)
        {
            queue.push_back(message.into());
            self.notify.notify_one();
        }
    }

    /// Works for ever.
    pub(super) async fn run(self, mut client: Client, actor: mpsc::Sender<Command>) {
        let mut backoff = Backoff::new(LONGEST_WAIT);
        loop {
            let Some(message) = self.first() else {
                self.notify.notified().await;
                continue;
            };
            let patience = match kind(&message) {
                Ok(Decrypt::KIND) => PATIENCE_DECRYPT,
                _ => PATIENCE,
            };
            let patience = patience_for(message.len() as u64, patience);
            let media = media_type(&message);
            let sent =
                client.send(Method::POST, "/v1/messages", media.as_deref(), message.clone(), patience).await;
            let command = match sent {
                Ok(answer) if answer.body.is_empty() => None,
                Ok(answer) => Some(Command::Answered(answer.body)),
                Err(ClientError::Problem(problem)) if !problem.is_passing() => {
                    if let Some(reason) = out_of_step(&message, &problem.code) {
                        tracing::error!(
                            code = problem.code,
                            reason,
                            "the key generator and this aggregator are out of step"
                        );
                    }
                    Some(Command::Refused { message: message.clone(), problem })
                }
                Err(error) => {
                    let wait = backoff.wait_after(&error);
                    tracing::debug!(%error, ?wait, "the key generator does not answer");
                    tokio::time::sleep(wait).await;
                    continue;
                }
            };
            backoff.reset();
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

/// Who has forgotten something, if a refusal tells. The two agree on what was opened and frozen, whatever crashes, unless
/// one of them went back.
fn out_of_step(message: &[u8], code: &str) -> Option<&'static str> {
    const GENERATOR: &str =
        "the key generator has forgotten what it said: it runs on an older copy of its data folder";
    const AGGREGATOR: &str =
        "this aggregator has forgotten rounds: it runs on an older copy of its data folder";
    match (kind(message).ok()?, code) {
        (_, "future") | (Freeze::KIND | Decrypt::KIND, "order") => Some(GENERATOR),
        (_, "stale") | (RoundOpen::KIND, "conflict") => Some(AGGREGATOR),
        _ => None,
    }
}
