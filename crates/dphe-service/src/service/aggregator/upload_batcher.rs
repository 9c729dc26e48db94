//! The uploads of a replica. They are checked, added to a partial sum in the database, and then acknowledged. Uploads
//! that arrive while a batch is being stored form the next batch, so the cost per upload falls as the load rises.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use dphe::party::{AggregatorPhase, Checked, Intake, IntakeRound};
use dphe::{Collecting, Digest, Round, UserId};
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};

use super::Snapshot;
use super::replies::{self, PendingUpload, UploadReply};
use crate::Error;
use crate::http::problem::{HttpErrorCode, Problem};
use crate::store::postgres::{BatchOutcome, RoundStore, UploadRecord};
use crate::telemetry::Metrics;

/// The number of batches in progress: one is checked while another is stored.
const WORKERS: usize = 2;
/// The largest number of uploads in a batch.
const MAX_BATCH: usize = 64;
/// The total length after which a batch takes no further uploads, in bytes.
const MAX_BATCH_BYTES: usize = 64 << 20;

/// Checks the uploads that a replica receives, and stores them in batches.
#[derive(Clone)]
pub(super) struct UploadBatcher {
    pub(super) round_store: RoundStore,
    pub(super) intake: Arc<Intake>,
    /// The largest number of participants, if the roster has more users.
    pub(super) max_users: Option<usize>,
    pub(super) threads: dphe::Threads,
    pub(super) snapshot: watch::Receiver<Arc<Snapshot>>,
    pub(super) metrics: Arc<Metrics>,
    /// The round of the last ticket.
    pub(super) round: Arc<Mutex<Option<LastRound>>>,
}

/// The hash of a ticket, and its round.
type LastRound = (Digest, Arc<IntakeRound>);

/// The requests that wait for the answer to one upload. There are several if a user sent it again.
struct Waiting {
    requests: Vec<PendingUpload>,
}

impl Waiting {
    fn replies(self) -> impl Iterator<Item = UploadReply> {
        self.requests.into_iter().map(|request| request.reply)
    }

    fn fail(self, problem: &Problem) {
        self.replies().for_each(|reply| reply.send(Err(problem.clone())));
    }
}

/// The valid uploads of a batch, and their sum.
struct Batch {
    records: Vec<UploadRecord>,
    sum: Collecting,
}

const CONFLICT: dphe::Error = dphe::Error::Conflict { what: "upload of this user" };

type Refusals = Vec<(UserId, dphe::Error)>;

impl UploadBatcher {
    /// Handles uploads until their sender is dropped.
    pub(super) fn start(self, uploads: mpsc::Receiver<PendingUpload>) {
        let uploads = Arc::new(AsyncMutex::new(uploads));
        for _ in 0..WORKERS {
            let (batcher, uploads) = (self.clone(), uploads.clone());
            tokio::spawn(async move {
                while let Some(batch) = next_batch(&uploads).await {
                    batcher.take(batch).await;
                }
            });
        }
    }

    async fn take(&self, batch: Vec<PendingUpload>) {
        let mut waiting: HashMap<UserId, Waiting> = HashMap::new();
        for upload in batch {
            let same = waiting.entry(upload.user).or_insert_with(|| Waiting { requests: Vec::new() });
            match same.requests.first() {
                Some(first) if first.message != upload.message => {
                    replies::send_refusal([upload.reply], upload.user, &CONFLICT);
                }
                _ => same.requests.push(upload),
            }
        }
        let round = match self.intake_round() {
            Ok(round) => round,
            Err(error) => return self.refuse_all(&mut waiting, &error),
        };
        if let Err(problem) = self.store(&round, &mut waiting).await {
            waiting.into_values().for_each(|waiting| waiting.fail(&problem));
        }
    }

    /// Stores the waiting uploads and answers them. Those that were answered are removed from `waiting`.
    async fn store(
        &self,
        intake_round: &Arc<IntakeRound>,
        waiting: &mut HashMap<UserId, Waiting>,
    ) -> Result<(), Problem> {
        let round = intake_round.round();
        while !waiting.is_empty() {
            let messages: Vec<Bytes> =
                waiting.values().filter_map(|one| Some(one.requests.first()?.message.clone())).collect();
            let users: Vec<UserId> = waiting.keys().copied().collect();
            let (of, threads) = (intake_round.clone(), self.threads);
            let checked = tokio::task::spawn_blocking(move || check(&of, &users, &messages, threads)).await;
            let (batch, refusals) =
                checked.map_err(|_| HttpErrorCode::Storage.because("the upload could not be checked"))?;
            for (user, error) in refusals {
                self.refuse_user(waiting, user, &error);
            }
            let Some(Batch { records, sum }) = batch else { continue };
            let of = intake_round.clone();
            let add = |partial: Vec<u8>| async move {
                let added = tokio::task::spawn_blocking(move || of.add_to(&partial, sum)).await;
                added.map_err(|_| Error::Unexpected { what: "adding uploads panicked" })?.map_err(Error::from)
            };
            match self.round_store.store_batch(round, &records, self.max_users, add).await {
                Ok(Ok(BatchOutcome::Stored)) => {
                    for UploadRecord { participant, bytes, .. } in records {
                        replies::count(&self.metrics, usize::try_from(bytes).unwrap_or(usize::MAX));
                        self.acknowledge(intake_round, waiting, participant.user, participant.body_hash);
                    }
                }
                // some users have uploaded before, perhaps to another replica; the others are tried again without them
                Ok(Ok(BatchOutcome::Known(known))) => {
                    for (user, body_hash) in known {
                        let same = records.iter().map(|one| &one.participant);
                        let same = same.into_iter().any(|one| one.user == user && one.body_hash == body_hash);
                        match same {
                            true => self.acknowledge(intake_round, waiting, user, body_hash),
                            false => self.refuse_user(waiting, user, &CONFLICT),
                        }
                    }
                }
                Ok(Ok(BatchOutcome::NotCollecting)) => self.refuse_all(waiting, &dphe::Error::Late { round }),
                Ok(Ok(BatchOutcome::Full(room))) => {
                    for late in records.iter().skip(room) {
                        self.refuse_user(waiting, late.participant.user, &dphe::Error::Late { round });
                    }
                }
                Ok(Err(error)) => {
                    tracing::error!(%error, "uploads could not be added");
                    return Err(replies::not_stored());
                }
                Err(error) => {
                    tracing::error!(%error, "uploads could not be stored");
                    return Err(replies::not_stored());
                }
            }
        }
        Ok(())
    }

    fn acknowledge(
        &self,
        round: &IntakeRound,
        waiting: &mut HashMap<UserId, Waiting>,
        user: UserId,
        body_hash: Digest,
    ) {
        if let Some(one) = waiting.remove(&user) {
            let upload = (round.round(), user, body_hash);
            replies::send_ack(one.replies(), upload, &round.acknowledge(body_hash));
        }
    }

    fn refuse_user(&self, waiting: &mut HashMap<UserId, Waiting>, user: UserId, error: &dphe::Error) {
        if let Some(one) = waiting.remove(&user) {
            replies::send_refusal(one.replies(), user, error);
        }
    }

    fn refuse_all(&self, waiting: &mut HashMap<UserId, Waiting>, error: &dphe::Error) {
        for (user, one) in waiting.drain() {
            replies::send_refusal(one.replies(), user, error);
        }
    }

    /// Returns the checks of the current round's uploads. They stay valid after the freeze, for uploads that are
    /// repeated.
    fn intake_round(&self) -> Result<Arc<IntakeRound>, dphe::Error> {
        let snapshot = self.snapshot.borrow().clone();
        let none = || match (snapshot.status.phase, Round::new(snapshot.status.round)) {
            (None | Some(AggregatorPhase::Idle | AggregatorPhase::Announced), _) | (_, None) => {
                dphe::Error::Order { state: "the round has no ticket yet" }
            }
            (_, Some(round)) => dphe::Error::Late { round },
        };
        let ticket: Option<(Digest, Bytes)> = snapshot.ticket.clone();
        let mut known = self.round.lock().map_err(|_| none())?;
        if let Some((hash, ticket)) = ticket
            && known.as_ref().is_none_or(|(known, _)| *known != hash)
        {
            // starts from the last round, because seeds only move forward
            let round = match known.as_ref() {
                Some((_, last)) => last.follow(&ticket).or_else(|_| self.intake.begin(&ticket))?,
                None => self.intake.begin(&ticket)?,
            };
            *known = Some((hash, Arc::new(round)));
        }
        known.as_ref().map(|(_, round)| round.clone()).ok_or_else(none)
    }
}

/// Waits for an upload, and takes all others that have arrived by then.
async fn next_batch(uploads: &AsyncMutex<mpsc::Receiver<PendingUpload>>) -> Option<Vec<PendingUpload>> {
    let mut uploads = uploads.lock().await;
    let first = uploads.recv().await?;
    let mut bytes = first.message.len();
    let mut batch = vec![first];
    while batch.len() < MAX_BATCH && bytes < MAX_BATCH_BYTES {
        let Ok(next) = uploads.try_recv() else { break };
        bytes += next.message.len();
        batch.push(next);
    }
    Some(batch)
}

/// Checks uploads and adds up the valid ones.
fn check(
    round: &IntakeRound,
    users: &[UserId],
    messages: &[Bytes],
    threads: dphe::Threads,
) -> (Option<Batch>, Refusals) {
    let (mut batch, mut refusals): (Option<Batch>, Refusals) = (None, Vec::new());
    for (&from, message) in users.iter().zip(messages) {
        let added = round.check(message).and_then(|Checked { participant, collecting }| {
            if participant.user != from {
                return Err(dphe::Error::Signature);
            }
            let record = UploadRecord {
                participant,
                masks: collecting.mask_parts(),
                fingerprints: collecting.fingerprints(),
                bytes: message.len() as u64,
            };
            match &mut batch {
                None => batch = Some(Batch { records: vec![record], sum: collecting }),
                Some(batch) => {
                    batch.sum.merge(collecting, threads)?;
                    batch.records.push(record);
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
