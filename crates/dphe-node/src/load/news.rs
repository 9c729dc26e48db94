//! Tickets and ends of rounds, as a user hears of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::Method;
use bytes::Bytes;
use dphe::message::{Close, Message as _, Publish, RoundTicket, Signed, kind};
use dphe::{Digest, Roster, Round};

use super::Crowd;
use crate::Error;
use crate::http::client::{Backoff, Client, ClientError};
use crate::http::read_list;
use crate::kit::hex;
use crate::learning::model_from_bytes;
use crate::service::user::line::{PATIENCE, WAIT};

/// Short, because what is measured is how soon the news is there.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// A user that listens, and does nothing else.
pub struct Watcher {
    client: Client,
    roster: Arc<Roster>,
}

/// How a round ended, compared with how it should have.
#[derive(Clone, Debug)]
pub struct Published {
    /// When it was heard of.
    pub heard: Instant,
    /// Users in the sum.
    pub counted: usize,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

impl Watcher {
    /// The first user of the crowd, listening at this address.
    ///
    /// # Errors
    /// If its certificate cannot be used.
    pub fn new(crowd: &Crowd, address: &str) -> Result<Self, Error> {
        Ok(Self { client: crowd.client(0, address)?, roster: crowd.roster().clone() })
    }

    /// Waits for the ticket of a round; services that are not up yet are waited for.
    ///
    /// # Errors
    /// If the aggregator refuses, or says what is no ticket of this task.
    pub async fn ticket(&mut self, round: Round) -> Result<Signed<RoundTicket>, Error> {
        loop {
            for message in self.news(round, None).await? {
                if kind(&message) == Ok(RoundTicket::KIND) {
                    let ticket: Signed<RoundTicket> = Signed::decode(&message, &self.roster)?;
                    if ticket.round() == round {
                        return Ok(ticket);
                    }
                }
            }
        }
    }

    /// Waits for the end of the round of this ticket. It must count these users, the first ones, and nobody else, and
    /// its model must be these weights.
    ///
    /// # Errors
    /// If the aggregator refuses, or says what is no end of this task's.
    pub async fn end(
        &mut self,
        ticket: &Signed<RoundTicket>,
        users: usize,
        weights: &[f64],
    ) -> Result<Published, Error> {
        let round = ticket.round();
        loop {
            let mut publish: Option<Signed<Publish>> = None;
            for message in self.news(round, Some(ticket.hash())).await? {
                let heard = Instant::now();
                match kind(&message)? {
                    Publish::KIND => publish = Some(Signed::decode(&message, &self.roster)?),
                    Close::KIND => {
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
        require(publish.round() == round, "what was published is another round's");
        require(
            message.check_result(&self.roster, round).is_ok(),
            "the key generator did not sign its result",
        );
        let expected = self.roster.users().take(users);
        let found = message.users.iter().map(|participant| participant.user);
        require(found.eq(expected), "other users are in the sum than those who uploaded");
        let counted = message.result.message().users as usize;
        require(counted == users, &format!("{counted} users are in the sum instead of {users}"));
        require(Digest::of_model(publish.body()) == message.model, "the model is not the one that is named");
        let model = model_from_bytes(publish.body());
        let exact =
            model.is_ok_and(|model| model.flat() == weights && model.intercepts().iter().all(|&b| b == 0.0));
        require(exact, "the model is not the average of what was sent");
        (counted, problems)
    }

    /// What there is to say from a round on, to somebody who has heard the ends of all before it.
    async fn news(&mut self, round: Round, seen: Option<Digest>) -> Result<Vec<Bytes>, Error> {
        let mut path = format!("/v1/rounds/next?after={round}&heard={}&wait={WAIT}", round.get() - 1);
        if let Some(seen) = seen {
            path.push_str(&format!("&seen={}", hex(seen.as_bytes())));
        }
        let mut backoff = Backoff::new(LONGEST_WAIT);
        loop {
            match self.client.send(Method::GET, &path, None, Bytes::new(), PATIENCE).await {
                Ok(answer) => {
                    let list = read_list(&answer.body)
                        .ok_or(ClientError::Line { what: "the answer is not a list of messages".into() })?;
                    return Ok(list.into_iter().map(|message| answer.body.slice_ref(message)).collect());
                }
                Err(error) if error.is_passing() => tokio::time::sleep(backoff.wait()).await,
                Err(error) => return Err(error.into()),
            }
        }
    }
}
