//! The uploads of a round: open loop, each user over a connection of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dphe::message::{RoundTicket, Signed, UploadAck};
use dphe::{Digest, Party};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Crowd;
use crate::Error;
use crate::http::client::{Backoff, ClientError};
use crate::service::user::line::{LONGEST_WAIT, Line};

/// How the crowd sends.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Uploads a second that are begun, whatever becomes of those before; 0 for as many as can be.
    pub rate: f64,
    /// Uploads under way at once, at most.
    pub in_flight: usize,
    /// The share of uploads that is sent a second time: every other one at the same time, the others afterwards.
    pub duplicates: f64,
    /// How long one upload is tried for.
    pub patience: Duration,
}

/// What came of the uploads of a round.
#[derive(Debug)]
pub struct Sent {
    /// Users with a valid acknowledgement.
    pub acknowledged: usize,
    /// From the first upload to the last acknowledgement.
    pub took: Duration,
    /// When that was.
    pub last: Instant,
    /// Seconds from the time an upload was due to its acknowledgement.
    pub latencies: Vec<f64>,
    /// Uploads that were sent again, by what they had been refused with; `line` is a connection that failed.
    pub retries: BTreeMap<String, u64>,
    /// Uploads that were sent a second time.
    pub duplicates: usize,
    /// Those of them that were acknowledged like the first.
    pub duplicates_acknowledged: usize,
    /// Those of them that came when the round was over, and were told so.
    pub duplicates_late: usize,
    /// What went wrong.
    pub problems: Vec<String>,
}

/// What came of one upload.
struct Outcome {
    copy: bool,
    at: Instant,
    seconds: f64,
    retries: BTreeMap<String, u64>,
    result: Result<(), String>,
    late: bool,
}

/// Sends the uploads of all honest users for the round of this ticket, spread over these addresses in turn.
///
/// # Errors
/// If an upload cannot be made. What a service does wrong is in the outcome.
pub async fn send(
    crowd: &Arc<Crowd>,
    addresses: &[String],
    ticket: &Arc<Signed<RoundTicket>>,
    pace: Pace,
) -> Result<Sent, Error> {
    let room = Arc::new(Semaphore::new(pace.in_flight.max(1)));
    let mut tasks: JoinSet<Vec<Outcome>> = JoinSet::new();
    let start = Instant::now();
    let mut sent = Sent {
        acknowledged: 0,
        took: Duration::ZERO,
        last: start,
        latencies: Vec::with_capacity(crowd.honest()),
        retries: BTreeMap::new(),
        duplicates: 0,
        duplicates_acknowledged: 0,
        duplicates_late: 0,
        problems: Vec::new(),
    };
    for member in 0..crowd.honest() {
        let due = (pace.rate > 0.0).then(|| start + Duration::from_secs_f64(member as f64 / pace.rate));
        if let Some(due) = due {
            sleep_until(due).await;
        }
        let Ok(place) = room.clone().acquire_owned().await else { break };
        // without a rate an upload is due when there is room for it
        let due = due.unwrap_or_else(Instant::now);
        let upload = crowd.upload(member, ticket)?;
        let letter = Letter {
            crowd: crowd.clone(),
            member,
            ticket: ticket.clone(),
            body: upload.message().body_hash,
            bytes: upload.to_bytes().into(),
            patience: pace.patience,
        };
        let to = |n: usize| addresses[n % addresses.len()].clone();
        // a copy goes to the next service
        let (first, second) = (to(member), to(member + 1));
        let copies = |count: usize| (count as f64 * pace.duplicates) as usize;
        let copy = (copies(member + 1) > copies(member)).then_some(copies(member) % 2 == 0);
        tasks.spawn(async move {
            let outcomes = match copy {
                None => vec![letter.deliver(&first, due, false).await],
                Some(true) => {
                    let again = letter.deliver(&second, due, true);
                    let (first, second) = tokio::join!(letter.deliver(&first, due, false), again);
                    vec![first, second]
                }
                Some(false) => {
                    let first = letter.deliver(&first, due, false).await;
                    vec![first, letter.deliver(&second, Instant::now(), true).await]
                }
            };
            drop(place);
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

/// An upload on its way.
struct Letter {
    crowd: Arc<Crowd>,
    member: usize,
    ticket: Arc<Signed<RoundTicket>>,
    body: Digest,
    bytes: Bytes,
    patience: Duration,
}

impl Letter {
    /// Sends it until it is acknowledged or refused for good, as a user does.
    async fn deliver(&self, address: &str, due: Instant, copy: bool) -> Outcome {
        let mut retries = BTreeMap::new();
        let answer = timeout(self.patience, self.send(address, &mut retries)).await;
        let at = Instant::now();
        let user = self.crowd.user(self.member);
        let mut late = false;
        let result = match answer {
            Ok(Ok(ack)) => self.check(&ack).map_err(|error| format!("user {user}: {error}")),
            // a round may be over before a copy comes, and only then
            Ok(Err(Error::Client(ClientError::Problem(problem)))) if copy && problem.code == "stale" => {
                late = true;
                Ok(())
            }
            Ok(Err(error)) => Err(format!("user {user}: {error}")),
            Err(_) => Err(format!("user {user}: no acknowledgement within {} s", self.patience.as_secs())),
        };
        Outcome { copy, at, seconds: (at - due).as_secs_f64(), retries, result, late }
    }

    async fn send(&self, address: &str, retries: &mut BTreeMap<String, u64>) -> Result<Bytes, Error> {
        let client = self.crowd.client(self.member, address)?;
        let mut line = Line::new(client, self.crowd.user(self.member));
        let mut backoff = Backoff::new(LONGEST_WAIT);
        loop {
            match line.try_upload(self.ticket.round(), &self.bytes).await {
                Err(error) if error.is_passing() => {
                    let code = match &error {
                        ClientError::Problem(problem) => problem.code.as_str(),
                        ClientError::Line { .. } => "line",
                    };
                    *retries.entry(code.to_owned()).or_default() += 1;
                    sleep(backoff.wait()).await;
                }
                ended => return Ok(ended?),
            }
        }
    }

    /// An acknowledgement counts if the aggregator signed it, for this round and this body.
    fn check(&self, ack: &[u8]) -> Result<(), Error> {
        let ack: Signed<UploadAck> = Signed::decode(ack, self.crowd.roster())?;
        let same = ack.round() == self.ticket.round() && ack.message().body_hash == self.body;
        if ack.from() != Party::Aggregator || !same {
            return Err(Error::Protocol(dphe::Error::Conflict { what: "acknowledgement" }));
        }
        Ok(())
    }
}
