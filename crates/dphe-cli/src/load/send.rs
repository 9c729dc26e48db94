//! Sends the uploads of a round in an open loop, each user over its own connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dphe::wire::{RoundTicket, Signed, UploadAck};
use dphe::{Digest, ErrorCode, PartyId};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::LoadUsers;
use dphe_service::Error;
use dphe_service::http::client::{Backoff, ClientError};
use dphe_service::http::problem::ProblemCode;
use dphe_service::service::user::aggregator_client::{AggregatorClient, MAX_RETRY_DELAY};

/// How uploads are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Uploads started per second, independent of the ones before, or 0 for no limit.
    pub(crate) rate: f64,
    /// The most uploads at the same time.
    pub(crate) in_flight: usize,
    /// The fraction of uploads that are sent twice. Half of the copies are sent at the same time, the others
    /// afterwards.
    pub(crate) duplicates: f64,
    /// How long an upload is retried.
    pub(crate) timeout_after: Duration,
}

/// The outcome of a round's uploads.
#[derive(Debug)]
pub(crate) struct Sent {
    /// The number of users with a valid acknowledgement.
    pub(crate) acknowledged: usize,
    /// The time from the first upload to the last acknowledgement.
    pub(crate) took: Duration,
    /// When the last acknowledgement arrived.
    pub(crate) last: Instant,
    /// Seconds from when each upload was due to its acknowledgement.
    pub(crate) latencies: Vec<f64>,
    /// Retries by error code. `line` stands for a failed connection.
    pub(crate) retries: BTreeMap<String, u64>,
    /// Uploads that were sent twice.
    pub(crate) duplicates: usize,
    /// Copies that were acknowledged.
    pub(crate) duplicates_acknowledged: usize,
    /// Copies that were refused because the round was over.
    pub(crate) duplicates_late: usize,
    /// Problems, in words.
    pub(crate) problems: Vec<String>,
}

/// The outcome of one upload.
struct Outcome {
    copy: bool,
    at: Instant,
    seconds: f64,
    retries: BTreeMap<String, u64>,
    result: Result<(), String>,
    late: bool,
}

/// Sends the uploads of all honest users for the ticket's round, distributed over these addresses.
///
/// # Errors
/// Fails if an upload cannot be created. Faults of a service are in the outcome.
pub(crate) async fn send(
    load_users: &Arc<LoadUsers>,
    addresses: &[String],
    ticket: &Arc<Signed<RoundTicket>>,
    pace: Pace,
) -> Result<Sent, Error> {
    let permits = Arc::new(Semaphore::new(pace.in_flight.max(1)));
    let mut tasks: JoinSet<Vec<Outcome>> = JoinSet::new();
    let start = Instant::now();
    let mut sent = Sent {
        acknowledged: 0,
        took: Duration::ZERO,
        last: start,
        latencies: Vec::with_capacity(load_users.honest()),
        retries: BTreeMap::new(),
        duplicates: 0,
        duplicates_acknowledged: 0,
        duplicates_late: 0,
        problems: Vec::new(),
    };
    for member in 0..load_users.honest() {
        let due = (pace.rate > 0.0).then(|| start + Duration::from_secs_f64(member as f64 / pace.rate));
        if let Some(due) = due {
            sleep_until(due).await;
        }
        let Ok(permit) = permits.clone().acquire_owned().await else { break };
        // without a rate, an upload is due when it may start
        let due = due.unwrap_or_else(Instant::now);
        let upload = load_users.upload(member, ticket)?;
        let job = UploadJob {
            load_users: load_users.clone(),
            member,
            ticket: ticket.clone(),
            body: upload.message().body_hash,
            bytes: upload.to_bytes().into(),
            timeout_after: pace.timeout_after,
        };
        let to = |n: usize| addresses[n % addresses.len()].clone();
        // a copy goes to the next service
        let (first, second) = (to(member), to(member + 1));
        let copies = |count: usize| (count as f64 * pace.duplicates) as usize;
        let copy = (copies(member + 1) > copies(member)).then_some(copies(member) % 2 == 0);
        tasks.spawn(async move {
            let outcomes = match copy {
                None => vec![job.deliver(&first, due, false).await],
                Some(true) => {
                    let again = job.deliver(&second, due, true);
                    let (first, second) = tokio::join!(job.deliver(&first, due, false), again);
                    vec![first, second]
                }
                Some(false) => {
                    let first = job.deliver(&first, due, false).await;
                    vec![first, job.deliver(&second, Instant::now(), true).await]
                }
            };
            drop(permit);
            outcomes
        });
        while let Some(ended) = tasks.try_join_next() {
            sent.add(ended);
        }
    }
    while let Some(ended) = tasks.join_next().await {
        sent.add(ended);
    }
    sent.took = sent.last - start;
    sent.latencies.sort_by(f64::total_cmp);
    Ok(sent)
}

impl Sent {
    fn add(&mut self, ended: Result<Vec<Outcome>, tokio::task::JoinError>) {
        let Ok(outcomes) = ended else {
            self.problems.push("a sender panicked".into());
            return;
        };
        for outcome in outcomes {
            for (code, count) in outcome.retries {
                *self.retries.entry(code).or_default() += count;
            }
            self.duplicates += usize::from(outcome.copy);
            self.duplicates_late += usize::from(outcome.late);
            match outcome.result {
                Ok(()) if outcome.late => {}
                Ok(()) if outcome.copy => self.duplicates_acknowledged += 1,
                Ok(()) => {
                    self.acknowledged += 1;
                    self.latencies.push(outcome.seconds);
                    self.last = self.last.max(outcome.at);
                }
                Err(problem) => self.problems.push(problem),
            }
        }
    }
}

/// An upload that is being sent.
struct UploadJob {
    load_users: Arc<LoadUsers>,
    member: usize,
    ticket: Arc<Signed<RoundTicket>>,
    body: Digest,
    bytes: Bytes,
    timeout_after: Duration,
}

impl UploadJob {
    /// Sends the upload until it is acknowledged or finally refused, as a user does.
    async fn deliver(&self, address: &str, due: Instant, copy: bool) -> Outcome {
        let mut retries = BTreeMap::new();
        let answer = timeout(self.timeout_after, self.send(address, &mut retries)).await;
        let at = Instant::now();
        let user = self.load_users.user(self.member);
        let mut late = false;
        let result = match answer {
            Ok(Ok(ack)) => self.check(&ack).map_err(|error| format!("user {user}: {error}")),
            // a copy may arrive after the end of the round
            Ok(Err(Error::Client(ClientError::Problem(problem))))
                if copy && problem.code == ProblemCode::Protocol(ErrorCode::Stale) =>
            {
                late = true;
                Ok(())
            }
            Ok(Err(error)) => Err(format!("user {user}: {error}")),
            Err(_) => {
                Err(format!("user {user}: no acknowledgement within {} s", self.timeout_after.as_secs()))
            }
        };
        Outcome { copy, at, seconds: (at - due).as_secs_f64(), retries, result, late }
    }

    async fn send(&self, address: &str, retries: &mut BTreeMap<String, u64>) -> Result<Bytes, Error> {
        let client = self.load_users.client(self.member, address)?;
        let mut aggregator = AggregatorClient::new(client, self.load_users.user(self.member));
        let mut backoff = Backoff::new(MAX_RETRY_DELAY);
        loop {
            match aggregator.try_upload(self.ticket.round(), &self.bytes).await {
                Err(error) if error.is_transient() => {
                    let code = match &error {
                        ClientError::Problem(problem) => problem.code.as_str(),
                        ClientError::Transport { .. } => "line",
                    };
                    *retries.entry(code.to_owned()).or_default() += 1;
                    sleep(backoff.wait()).await;
                }
                ended => return Ok(ended?),
            }
        }
    }

    /// Fails unless the aggregator signed the acknowledgement, for this round and this body.
    fn check(&self, ack: &[u8]) -> Result<(), Error> {
        let ack: Signed<UploadAck> = Signed::decode(ack, self.load_users.roster())?;
        let same = ack.round() == self.ticket.round() && ack.message().body_hash == self.body;
        if ack.from() != PartyId::Aggregator || !same {
            return Err(Error::Protocol(dphe::Error::Conflict { what: "acknowledgement" }));
        }
        Ok(())
    }
}
