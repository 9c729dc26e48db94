//! Polls the aggregator for tickets and ends of rounds, as a user does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::Method;
use bytes::Bytes;
use dphe::wire::{Close, Header, Kind, Publish, RoundTicket, Signed, decode_list};
use dphe::{Digest, Roster, Round};

use super::LoadUsers;
use dphe_federate::GlobalWeights;
use dphe_learn::Weights;
use dphe_service::Error;
use dphe_service::hex;
use dphe_service::http::client::{Backoff, Client, ClientError};
use dphe_service::service::user::aggregator_client::{POLL_SECONDS, REQUEST_TIMEOUT};

/// The longest delay before a request is repeated. It is short, because the time until the answer is measured.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(200);

/// A user that polls and does nothing else.
pub(crate) struct Poller {
    client: Client,
    roster: Arc<Roster>,
}

/// The end of a round, checked against the expected one.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    /// When the answer arrived.
    pub(crate) heard: Instant,
    /// The number of users in the sum.
    pub(crate) counted: usize,
    /// The differences from the expected end.
    pub(crate) problems: Vec<String>,
}

impl Poller {
    /// Creates a poller that uses the first user's key.
    ///
    /// # Errors
    /// Fails if TLS cannot be set up.
    pub(crate) fn new(load_users: &LoadUsers, address: &str) -> Result<Self, Error> {
        Ok(Self { client: load_users.client(0, address)?, roster: load_users.roster().clone() })
    }

    /// Waits for the ticket of a round, also if the services are still starting.
    ///
    /// # Errors
    /// Fails if the aggregator refuses the request, or if its answer is invalid.
    pub(crate) async fn ticket(&mut self, round: Round) -> Result<Signed<RoundTicket>, Error> {
        loop {
            for message in self.messages(round, None).await? {
                if Header::peek(&message).is_ok_and(|header| header.kind == Kind::RoundTicket) {
                    let ticket: Signed<RoundTicket> = Signed::decode(&message, &self.roster)?;
                    if ticket.round() == round {
                        return Ok(ticket);
                    }
                }
            }
        }
    }

    /// Waits for the end of the ticket's round, and checks that the participants are the first `users` users and that
    /// the model has these weights.
    ///
    /// # Errors
    /// Fails if the aggregator refuses the request, or if its answer is invalid.
    pub(crate) async fn end(
        &mut self,
        ticket: &Signed<RoundTicket>,
        users: usize,
        weights: &[f64],
    ) -> Result<Published, Error> {
        let round = ticket.round();
        loop {
            let mut publish: Option<Signed<Publish>> = None;
            for message in self.messages(round, Some(ticket.hash())).await? {
                let heard = Instant::now();
                match Header::peek(&message)?.kind {
                    Kind::Publish => publish = Some(Signed::decode(&message, &self.roster)?),
                    Kind::Close => {
                        let close: Signed<Close> = Signed::decode(&message, &self.roster)?;
                        if close.round() != round {
                            continue;
                        }
                        let (counted, problems) = match &publish {
                            Some(publish) => self.check(publish, round, users, weights),
                            None => (0, vec![format!("round {round} ended without a model")]),
                        };
                        return Ok(Published { heard, counted, problems });
                    }
                    _ => {}
                }
            }
        }
    }

    fn check(
        &self,
        publish: &Signed<Publish>,
        round: Round,
        users: usize,
        weights: &[f64],
    ) -> (usize, Vec<String>) {
        let message = publish.message();
        let mut problems = Vec::new();
        let mut require = |ok: bool, what: &str| {
            if !ok {
                problems.push(format!("round {round}: {what}"));
            }
        };
        require(publish.round() == round, "the published message belongs to another round");
        let result = message.check_result(&self.roster, round);
        require(result.is_ok(), "the result is not signed by the key generator");
        let counted = result.map_or(0, |result| result.message().users as usize);
        require(counted == users, &format!("the sum has {counted} users instead of {users}"));
        let classes = self.roster.task().dense();
        let expected = Weights::new(weights.len() / classes.max(1), weights.to_vec(), vec![0.0; classes]);
        let expected = expected.map(|weights| Digest::of_model(&GlobalWeights::new(weights).to_bytes()));
        let exact = expected.is_ok_and(|expected| expected == message.model);
        require(exact, "the model is not the average of the updates");
        (counted, problems)
    }

    /// Requests the messages from a round on, as a user that has the ends of all rounds before it.
    async fn messages(&mut self, round: Round, seen: Option<Digest>) -> Result<Vec<Bytes>, Error> {
        let mut path = format!("/v1/rounds/next?after={round}&wait={POLL_SECONDS}");
        if let Some(seen) = seen {
            path.push_str(&format!("&seen={}", hex::encode(seen.as_bytes())));
        }
        let mut backoff = Backoff::new(MAX_RETRY_DELAY);
        loop {
            match self.client.send(Method::GET, &path, None, Bytes::new(), REQUEST_TIMEOUT).await {
                Ok(answer) => {
                    let list = decode_list(&answer.body)
                        .map_err(|_| ClientError::broken("the answer is not a list of messages"))?;
                    return Ok(list.into_iter().map(|message| answer.body.slice_ref(message)).collect());
                }
                Err(error) if error.is_transient() => tokio::time::sleep(backoff.wait()).await,
                Err(error) => return Err(error.into()),
            }
        }
    }
}
