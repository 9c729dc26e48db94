//! Where replicas take uploads, the one who leads looks how far they are, fixes the set, and shows the board to all.

use dphe::message::Participant;
use dphe::party::{AggregatorEvent, Time};
use dphe::{Collecting, Round, Threads, UserId};

use super::super::Board;
use super::super::record::Recording;
use super::Actor;
use crate::Error;
use crate::learning::ModelMaker;
use crate::store::postgres::{BoardRow, Header, Tally};
use crate::store::{Archive, LogStore};

/// What is collected by all replicas, and how this one sees it.
pub(in super::super) struct Shared {
    pub(super) tally: Tally,
    threads: Threads,
    pub(super) collected: Vec<UserId>,
    /// When to look again.
    pub(super) look_at: Option<Time>,
    /// When this was last told to the others.
    shown: Time,
}

/// How often the one who leads looks how many uploads there are, in milliseconds.
const LOOK: u64 = 200;
/// How often the others are told how many there are, in milliseconds.
const SHOW: u64 = 1_000;
/// Noise that is read at once, in bytes.
const PAGE: usize = 1 << 18;

impl Shared {
    pub(in super::super) fn new(tally: Tally, threads: Threads) -> Self {
        Self { tally, threads, collected: Vec::new(), look_at: None, shown: Time(0) }
    }

    /// Notes that the others are told now, unless there is only one more upload and they were told a moment ago; says which.
    pub(super) fn begin_showing(&mut self, only_more: bool, now: Time) -> bool {
        let worth = !only_more || now >= Time(self.shown.0.saturating_add(SHOW));
        if worth {
            self.shown = now;
        }
        worth
    }

    /// Reads back who is in a round that is closed, and the sums. A little at a time: noise takes most of the memory that a
    /// round costs, and where there are many ciphertexts, to check it takes long.
    async fn read_back(
        &self,
        round: Round,
        mut collected: Collecting,
        recording: &mut Recording,
    ) -> Result<Result<(Collecting, Vec<Participant>), dphe::Error>, Error> {
        let (mut uploads, mut most): (Vec<Participant>, u32) = (Vec::new(), 16);
        let mut refused = None;
        loop {
            let page = self.tally.headers(round, uploads.last().map(|last| last.user), most).await?;
            let Some(last) = page.last() else { break };
            most = u32::try_from(PAGE / last.noise.len().max(1)).unwrap_or(u32::MAX).clamp(1, 500);
            for Header { user, body_hash, bytes, .. } in &page {
                recording.upload(*user, usize::try_from(*bytes).unwrap_or(usize::MAX));
                uploads.push(Participant { user: *user, body_hash: *body_hash });
            }
            // also of a round that comes to nothing it is told who was in it
            if refused.is_none() {
                (collected, refused) = add(collected, move |collected| {
                    page.iter().try_for_each(|header| collected.add_user(header.user, &header.noise))
                })
                .await?;
            }
        }
        for shard in Tally::shards() {
            if refused.is_some() {
                break;
            }
            let (partial, threads) = (self.tally.partial(round, shard).await?, self.threads);
            if !partial.is_empty() {
                (collected, refused) =
                    add(collected, move |sums| sums.add_partial(&partial, threads)).await?;
            }
        }
        Ok(refused.map_or(Ok((collected, uploads)), Err))
    }

    /// Shows a board to all replicas, or as much of it as has changed.
    pub(super) async fn show(&self, old: &Board, new: &Board) -> Result<(), Error> {
        let status = serde_json::to_string(&new.status).unwrap_or_default();
        let pages = |board: &Board| {
            let ended = board.ended.as_ref().map(|(round, _)| *round);
            let ticket = board.ticket.as_ref().map(|(hash, _)| *hash);
            let model = board.model.as_ref().map(|(digest, _)| *digest);
            (ended, ticket, model, board.records.len(), board.status.round)
        };
        if pages(old) == pages(new) && old.status.round > 0 {
            self.tally.put_status(&status).await?;
            return Ok(());
        }
        let row = BoardRow {
            status,
            ended: new.ended.as_ref().map(|(round, list)| (*round, list.to_vec())),
            ticket: new.ticket.as_ref().map(|(_, list)| list.to_vec()),
            model: new.model.as_ref().map(|(_, model)| model.to_vec()),
        };
        Ok(self.tally.put_board(&row).await?)
    }
}

/// Adds to what was collected, where it holds up nobody; also says what was wrong with what was added.
async fn add(
    mut collected: Collecting,
    how: impl FnOnce(&mut Collecting) -> Result<(), dphe::Error> + Send + 'static,
) -> Result<(Collecting, Option<dphe::Error>), Error> {
    let added = tokio::task::spawn_blocking(move || {
        let refused = how(&mut collected).err();
        (collected, refused)
    });
    added.await.map_err(|_| Error::Unexpected { what: "a sum that could not be made" })
}

impl<S: LogStore + Archive, M: ModelMaker> Actor<S, M> {
    /// Looks how far the replicas are, and fixes the set when it is time.
    pub(super) async fn look(&mut self, out_of_time: bool) -> Result<(), Error> {
        let (round, Time(now)) = (self.machine.party()?.round(), self.clock.now());
        let soft = self.soft_deadline.is_none_or(|time| time <= Time(now));
        let due = self.soft_deadline.is_some() && soft;
        if soft {
            self.soft_deadline = None;
        }
        let Some(shared) = &mut self.shared else { return Ok(()) };
        if !out_of_time && !due && shared.look_at.is_some_and(|time| time > Time(now)) {
            return Ok(());
        }
        shared.look_at = Some(Time(now.saturating_add(LOOK)));
        let (users, closed) = shared.tally.users(round).await?;
        shared.collected = users;
        let (count, roster) = (shared.collected.len(), &self.roster);
        let all = roster.users().len().min(roster.task().max_users());
        if closed || out_of_time || count >= all || (soft && count >= roster.floor()) {
            self.gather(round).await?;
        }
        Ok(())
    }

    /// Fixes the set: what came until now is in it, and nothing else will be.
    async fn gather(&mut self, round: Round) -> Result<(), Error> {
        (self.alarm, self.soft_deadline) = (None, None);
        let Some(shared) = &mut self.shared else { return Ok(()) };
        shared.look_at = None;
        shared.tally.close(round).await?;
        let collected = self.machine.party()?.empty();
        let refused = match shared.read_back(round, collected, &mut self.recording).await? {
            Ok((collected, uploads)) => {
                let event = AggregatorEvent::Gathered { collected: Box::new(collected), uploads };
                self.step("gathered", event).await?
            }
            Err(error) => Some(error),
        };
        if let Some(error) = refused {
            // too few, noise that appears twice, or rows that do not belong together
            tracing::error!(round = round.get(), %error, "what was collected cannot be used");
            self.recording.problem(error.to_string());
            self.step("abort", AggregatorEvent::Abort).await?;
        }
        Ok(())
    }
}
