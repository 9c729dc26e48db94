//! Earlier rounds of a task, as the aggregator sends them to members.

use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use dphe::wire::{Header, decode_list};
use dphe::{PartyId, Round};

use super::RoundMessages;
use crate::Error;
use crate::http::client::{Backoff, Client, ClientError};
use crate::http::max_list_bytes;
use crate::http::problem::{HttpErrorCode, ProblemCode};
use crate::http::server::timeout_for;
use crate::kit::Kit;

/// How often a request is sent before the aggregator counts as unreachable.
const ATTEMPTS: u32 = 6;
const TIMEOUT: Duration = Duration::from_secs(60);
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Fetches the messages of rounds that have ended.
pub struct RoundFetcher {
    client: Client,
}

impl RoundFetcher {
    /// Creates a fetcher that connects to the aggregator as the kit's party.
    ///
    /// # Errors
    /// If the kit's identity cannot be used.
    pub fn new(kit: &Kit) -> Result<Self, Error> {
        let address = kit.task_file().parties.aggregator.clone();
        let tls = kit.tls().client(PartyId::Aggregator)?;
        Ok(Self { client: Client::new(address, tls, max_list_bytes(kit.roster())) })
    }

    /// Returns the messages of a round, or `None` if the aggregator says that the round has not ended.
    ///
    /// # Errors
    /// If the aggregator cannot be reached, refuses, or answers with something else.
    pub async fn round(&mut self, round: Round) -> Result<Option<RoundMessages>, Error> {
        let mut backoff = Backoff::new(MAX_DELAY);
        for attempt in 1.. {
            match self.try_round(round).await {
                Err(error) if error.is_transient() && attempt < ATTEMPTS => {
                    tokio::time::sleep(backoff.wait_after(&error)).await;
                }
                Err(ClientError::Problem(problem))
                    if problem.code == ProblemCode::Http(HttpErrorCode::NotFound) =>
                {
                    return Ok(None);
                }
                answer => return Ok(Some(answer?)),
            }
        }
        Ok(None)
    }

    async fn try_round(&mut self, round: Round) -> Result<RoundMessages, ClientError> {
        let path = format!("/v1/rounds/{round}");
        let limit = timeout_for(self.client.max_response(), TIMEOUT);
        let answer = self.client.send(Method::GET, &path, None, Bytes::new(), limit).await?;
        let list = || ClientError::broken("the response is not a list of messages");
        let messages = decode_list(&answer.body).map_err(|_| list())?;
        let kind = |message: &&[u8]| Header::peek(message).map(|header| header.kind.number());
        messages.iter().map(|message| Ok((kind(message).map_err(|_| list())?, message.to_vec()))).collect()
    }
}
