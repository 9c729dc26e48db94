//! Takes uploads for all replicas: checks them, adds them to a partial sum in the database, and acknowledges them when
//! they are there. What arrives while one batch is on its way makes up the next: the more there is to do, the less each
//! upload costs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use dphe::message::Participant;
use dphe::party::{Checked, Intake, IntakeRound};
use dphe::{Collecting, Digest, Round, UserId};
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};

use super::{Arrived, Board};
use crate::Error;
use crate::http::problem::{HttpCode, Problem};
use crate::http::read_list;
use crate::store::postgres::{Committed, Header, Tally};
use crate::telemetry::Metrics;

/// Batches on their way at once: one is checked while another is stored.
const WORKERS: usize = 2;
/// The most uploads of a batch, and the most bytes.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 64 << 20;

#[derive(Clone)]
pub(super) struct Collector {
    pub(super) tally: Tally,
    pub(super) intake: Arc<Intake>,
    /// The most users a round has room for, where more are enrolled.
    pub(super) most: Option<usize>,
    pub(super) threads: dphe::Threads,
    pub(super) board: watch::Receiver<Arc<Board>>,
    pub(super) metrics: Arc<Metrics>,
    /// The round of the last ticket that was seen.
    pub(super) round: Arc<Mutex<Option<LastRound>>>,
}

/// A round, by the hash of its ticket.
type LastRound = (Digest, Arc<IntakeRound>);

/// One upload on its way, and who waits for an answer: more than one where it was sent twice.
struct Waiting {
    arrived: Vec<Arrived>,
}

impl Waiting {
    fn answer(self, answer: &Result<Vec<u8>, Problem>) {
        for Arrived { reply, .. } in self.arrived {
            let _ = reply.send(answer.clone());
        }
    }
}

/// A batch that can be stored.
struct Batch {
    headers: Vec<Header>,
    sum: Collecting,
}

type Refusals = Vec<(UserId, dphe::Error)>;

impl Collector {
    /// Works until nobody sends any more.
    pub(super) fn start(self, arrivals: mpsc::Receiver<Arrived>) {
        let arrivals = Arc::new(AsyncMutex::new(arrivals));
        for _ in 0..WORKERS {
            let (collector, arrivals) = (self.clone(), arrivals.clone());
            tokio::spawn(async move {
                while let Some(batch) = next_batch(&arrivals).await {
                    collector.take(batch).await;
                }
            });
        }
    }

    async fn take(&self, batch: Vec<Arrived>) {
        let mut waiting: HashMap<UserId, Waiting> = HashMap::new();
        for arrived in batch {
            let same = waiting.entry(arrived.user).or_insert_with(|| Waiting { arrived: Vec::new() });
            match same.arrived.first() {
                Some(first) if first.message != arrived.message => {
                    let error = dphe::Error::Conflict { what: "upload of this user" };
                    let _ = arrived.reply.send(Err(Problem::from(&error)));
                }
                _ => same.arrived.push(arrived),
            }
        }
        let intake = match self.intake_round() {
            Ok(intake) => intake,
            Err(error) => {
                let answer = Err(Problem::from(&error));
                waiting.into_values().for_each(|waiting| waiting.answer(&answer));
                return;
            }
        };
        if let Err(problem) = self.store(&intake, &mut waiting).await {
            waiting.into_values().for_each(|waiting| waiting.answer(&Err(problem.clone())));
        }
    }

    /// Stores what is waiting. Whoever was answered waits no more.
    async fn store(
        &self,
        intake: &Arc<IntakeRound>,
        waiting: &mut HashMap<UserId, Waiting>,
    ) -> Result<(), Problem> {
        let round = intake.round();
        while !waiting.is_empty() {
            let messages: Vec<Bytes> =
                waiting.values().filter_map(|one| Some(one.arrived.first()?.message.clone())).collect();
            let users: Vec<UserId> = waiting.keys().copied().collect();
            let (of, threads) = (intake.clone(), self.threads);
            let checked = tokio::task::spawn_blocking(move || check(&of, &users, &messages, threads)).await;
            let (batch, refusals) = checked.map_err(|_| broken())?;
            for (user, error) in refusals {
                self.refuse(waiting, user, &error);
            }
            let Some(Batch { headers, sum }) = batch else { continue };
            let of = intake.clone();
            let add = |partial: Vec<u8>| async move {
                let added = tokio::task::spawn_blocking(move || of.add_to(&partial, sum)).await;
                added
                    .map_err(|_| Error::Unexpected { what: "a sum that could not be made" })?
                    .map_err(Error::from)
            };
            match self.tally.commit(round, &headers, self.most, add).await {
                Ok(Ok(Committed::All)) => {
                    for Header { user, body_hash, bytes, .. } in headers {
                        self.metrics.uploads.add(1);
                        self.metrics.upload_bytes.add(bytes.cast_signed());
                        self.acknowledge(intake, waiting, user, body_hash);
                    }
                }
                // sent twice, to two replicas say: the others are tried again without them
                Ok(Ok(Committed::Known(known))) => {
                    for Participant { user, body_hash } in known {
                        let same = headers.iter().any(|one| one.user == user && one.body_hash == body_hash);
                        match same {
                            true => self.acknowledge(intake, waiting, user, body_hash),
                            false => {
                                let error = dphe::Error::Conflict { what: "upload of this user" };
                                self.refuse(waiting, user, &error);
                            }
                        }
                    }
                }
                Ok(Ok(Committed::Closed)) => self.refuse_all(waiting, round),
                Ok(Ok(Committed::Full(room))) => {
                    for late in headers.iter().skip(room) {
                        self.refuse(waiting, late.user, &dphe::Error::Late { round });
                    }
                }
                Ok(Err(error)) => {
                    tracing::error!(%error, "uploads could not be added");
                    return Err(HttpCode::Storage.because("it could not be stored"));
                }
                Err(error) => {
                    tracing::error!(%error, "uploads could not be stored");
                    return Err(HttpCode::Storage.because("it could not be stored"));
                }
            }
        }
        Ok(())
    }

    fn acknowledge(
        &self,
        intake: &IntakeRound,
        waiting: &mut HashMap<UserId, Waiting>,
        user: UserId,
        body_hash: Digest,
    ) {
        if let Some(one) = waiting.remove(&user) {
            tracing::info!(round = intake.round().get(), user = user.get(), body = %body_hash, "acknowledged");
            one.answer(&Ok(intake.acknowledge(body_hash)));
        }
    }

    fn refuse(&self, waiting: &mut HashMap<UserId, Waiting>, user: UserId, error: &dphe::Error) {
        if let Some(one) = waiting.remove(&user) {
            tracing::warn!(what = "upload", user = user.get(), code = error.code(), %error, "refused");
            one.answer(&Err(Problem::from(error)));
        }
    }

    fn refuse_all(&self, waiting: &mut HashMap<UserId, Waiting>, round: Round) {
        let users: Vec<UserId> = waiting.keys().copied().collect();
        users.into_iter().for_each(|user| self.refuse(waiting, user, &dphe::Error::Late { round }));
    }

    /// What uploads of the round at hand are checked with; after its freeze still, for those who ask again.
    fn intake_round(&self) -> Result<Arc<IntakeRound>, dphe::Error> {
        let board = self.board.borrow().clone();
        let none = || match (board.status.phase.as_str(), Round::new(board.status.round)) {
            ("" | "idle" | "opened", _) | (_, None) => {
                dphe::Error::Order { expected: "the round has no ticket yet" }
            }
            (_, Some(round)) => dphe::Error::Late { round },
        };
        let ticket: Option<(Digest, Bytes)> = board.ticket.clone();
        let mut known = self.round.lock().map_err(|_| none())?;
        if let Some((hash, list)) = ticket
            && known.as_ref().is_none_or(|(known, _)| *known != hash)
        {
            let messages = read_list(&list).unwrap_or_default();
            let ticket = messages.first().copied().unwrap_or_default();
            // from where the last round was: seeds move on one way
            let round = match known.as_ref() {
                Some((_, last)) => last.follow(ticket).or_else(|_| self.intake.begin(ticket))?,
                None => self.intake.begin(ticket)?,
            };
            *known = Some((hash, Arc::new(round)));
        }
        known.as_ref().map(|(_, round)| round.clone()).ok_or_else(none)
    }
}

fn broken() -> Problem {
    HttpCode::Storage.because("it could not be checked")
}

/// Waits for an upload, and takes all that are there by then.
async fn next_batch(arrivals: &AsyncMutex<mpsc::Receiver<Arrived>>) -> Option<Vec<Arrived>> {
    let mut arrivals = arrivals.lock().await;
    let first = arrivals.recv().await?;
    let mut bytes = first.message.len();
    let mut batch = vec![first];
    while batch.len() < BATCH && bytes < BATCH_BYTES {
        let Ok(next) = arrivals.try_recv() else { break };
        bytes += next.message.len();
        batch.push(next);
    }
    Some(batch)
}

/// Checks uploads and adds up those that are right.
fn check(
    intake: &IntakeRound,
    users: &[UserId],
    messages: &[Bytes],
    threads: dphe::Threads,
) -> (Option<Batch>, Refusals) {
    let (mut batch, mut refusals): (Option<Batch>, Refusals) = (None, Vec::new());
    for (&from, message) in users.iter().zip(messages) {
        let added = intake.check(message).and_then(|Checked { user, body_hash, collecting }| {
            if user != from {
                return Err(dphe::Error::Signature);
            }
            let header = Header { user, body_hash, noise: collecting.noise(), bytes: message.len() as u64 };
            match &mut batch {
                None => batch = Some(Batch { headers: vec![header], sum: collecting }),
                Some(batch) => {
                    batch.sum.merge(collecting, threads)?;
                    batch.headers.push(header);
                }
            }
            Ok(())
        });
        if let Err(error) = added {
            refusals.push((from, error));
        }
    }
    (batch, refusals)
}
