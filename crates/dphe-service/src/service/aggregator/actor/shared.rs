//! Rounds whose uploads all replicas collect: the leader counts them, freezes the participants, and publishes snapshots
//! to all replicas.

use dphe::party::{AggregatorEvent, Party as _, Time};
use dphe::wire::Participant;
use dphe::{Collecting, Round, Threads, UserId};

use super::super::Snapshot;
use super::super::record::Recording;
use super::super::spoilers::Users;
use super::{AggregatorActor, Timer};
use crate::Error;
use crate::store::StoreError;
use crate::store::postgres::{RoundStore, SnapshotRow, UploadRecord};

/// The uploads that all replicas collect, as the leader sees them.
pub(in super::super) struct SharedRound {
    round_store: RoundStore,
    threads: Threads,
    /// The users that were counted last.
    collected: Vec<UserId>,
    /// When a snapshot was last published to the other replicas.
    published: Time,
}

/// The interval at which the leader counts uploads, in milliseconds.
const COUNT_INTERVAL: u64 = 200;
/// The interval at which new uploads alone are published to the other replicas, in milliseconds.
const PUBLISH_INTERVAL: u64 = 1_000;
/// The length of the fingerprints that are read from the database at once, in bytes.
const PAGE_BYTES: usize = 1 << 18;

impl SharedRound {
    pub(in super::super) fn new(round_store: RoundStore, threads: Threads) -> Self {
        Self { round_store, threads, collected: Vec::new(), published: Time(0) }
    }

    /// Returns the users that were counted last.
    pub(super) fn collected(&self) -> &[UserId] {
        &self.collected
    }

    pub(super) async fn start(&self, round: Round) -> Result<(), StoreError> {
        self.round_store.start_round(round).await
    }

    pub(super) async fn forget(&self, before: Round) -> Result<(), StoreError> {
        self.round_store.forget(before).await
    }

    /// Returns whether to publish now, and notes the time if so. New uploads alone are published at intervals.
    pub(super) fn should_publish(&mut self, only_uploads: bool, now: Time) -> bool {
        let publish = !only_uploads || now >= Time(self.published.0.saturating_add(PUBLISH_INTERVAL));
        if publish {
            self.published = now;
        }
        publish
    }

    /// Reads the participants and sums of a frozen round, page by page. Fingerprints take most of the memory of a
    /// round, and comparing them takes long where there are many ciphertexts.
    async fn read_back(
        &self,
        round: Round,
        mut collected: Collecting,
        recording: &mut Recording,
    ) -> Result<Result<(Collecting, Vec<Participant>), dphe::Error>, Error> {
        let (mut uploads, mut limit): (Vec<Participant>, u32) = (Vec::new(), 16);
        let mut refused = None;
        loop {
            let page =
                self.round_store.upload_records(round, uploads.last().map(|last| last.user), limit).await?;
            let Some(last) = page.last() else { break };
            limit =
                u32::try_from(PAGE_BYTES / last.fingerprints.len().max(1)).unwrap_or(u32::MAX).clamp(1, 500);
            for UploadRecord { participant, bytes, .. } in &page {
                recording.upload(participant.user, usize::try_from(*bytes).unwrap_or(usize::MAX));
                uploads.push(*participant);
            }
            // the record of a round names its participants even if the round fails
            if refused.is_none() {
                (collected, refused) = add(collected, move |collected| {
                    page.iter().try_for_each(|UploadRecord { participant, masks, fingerprints, .. }| {
                        collected.add_user(participant.user, fingerprints, masks)
                    })
                })
                .await?;
            }
        }
        for number in RoundStore::partial_sum_numbers() {
            if refused.is_some() {
                break;
            }
            let (partial, threads) = (self.round_store.partial_sum(round, number).await?, self.threads);
            if !partial.is_empty() {
                (collected, refused) =
                    add(collected, move |sums| sums.add_partial_sum(&partial, threads)).await?;
            }
        }
        Ok(refused.map_or(Ok((collected, uploads)), Err))
    }

    /// Returns the users of a frozen round whose noise is that of another user.
    async fn users_of_repeated_noise(&self, round: Round, user: UserId) -> Result<Users, Error> {
        let before = UserId::new(user.get() - 1);
        let one = self.round_store.upload_records(round, before, 1).await?;
        let Some(UploadRecord { fingerprints: repeated, .. }) =
            one.into_iter().find(|record| record.participant.user == user)
        else {
            return Ok(Users::new());
        };
        let (mut users, mut last) = (Users::from([user.get()]), None);
        loop {
            let page = self.round_store.upload_records(round, last, 16).await?;
            let Some(end) = page.last() else { return Ok(users) };
            last = Some(end.participant.user);
            let same = page.iter().filter(|record| {
                record.participant.user != user && Collecting::share_noise(&repeated, &record.fingerprints)
            });
            users.extend(same.map(|record| record.participant.user.get()));
        }
    }

    /// Publishes a snapshot to all replicas. Only the status is written if nothing else has changed.
    pub(super) async fn publish(&self, old: &Snapshot, new: &Snapshot) -> Result<(), Error> {
        let status = serde_json::to_string(&new.status).unwrap_or_default();
        let content = |snapshot: &Snapshot| {
            let ended = snapshot.ended.as_ref().map(|ended| ended.round());
            let ticket = snapshot.ticket.as_ref().map(|(hash, _)| *hash);
            let model = snapshot.model.as_ref().map(|(digest, _)| *digest);
            (ended, ticket, model, snapshot.records.len(), snapshot.status.round)
        };
        if content(old) == content(new) && old.status.round > 0 {
            return Ok(self.round_store.put_status(&status).await?);
        }
        let row = SnapshotRow {
            status,
            ended: new.ended.as_ref().map(|ended| (ended.round(), ended.to_bytes())),
            ticket: new.ticket.as_ref().map(|(_, list)| list.to_vec()),
            model: new.model.as_ref().map(|(_, model)| model.to_vec()),
        };
        Ok(self.round_store.put_snapshot(&row).await?)
    }
}

/// Adds to the collected sums on a thread for blocking work. Returns the sums, and the error if the addition was
/// refused.
async fn add(
    mut collected: Collecting,
    add: impl FnOnce(&mut Collecting) -> Result<(), dphe::Error> + Send + 'static,
) -> Result<(Collecting, Option<dphe::Error>), Error> {
    let added = tokio::task::spawn_blocking(move || {
        let refused = add(&mut collected).err();
        (collected, refused)
    });
    added.await.map_err(|_| Error::Unexpected { what: "adding uploads panicked" })
}

impl AggregatorActor {
    /// Counts the uploads of all replicas if it is time, and freezes the participants if there are enough.
    pub(super) async fn count_shared_uploads(&mut self, out_of_time: bool) -> Result<(), Error> {
        let (round, now) = (self.driver.party()?.round(), self.driver.clock.now());
        let due = self.schedule.take_due(Timer::FloorSuffices, now);
        let floor_suffices = self.schedule.time(Timer::FloorSuffices).is_none();
        let Some(shared) = &mut self.shared else { return Ok(()) };
        if !out_of_time && !due && self.schedule.time(Timer::CountShared).is_some_and(|time| time > now) {
            return Ok(());
        }
        self.schedule.set(Timer::CountShared, self.driver.clock.after(COUNT_INTERVAL));
        let (users, frozen) = shared.round_store.users(round).await?;
        shared.collected = users;
        let count = shared.collected.len();
        let (all, roster) = (self.most_uploads()?, self.driver.party()?.roster());
        let complete = count >= all
            && (self.asked.is_none() || self.schedule.time(Timer::Complete).is_none_or(|t| t <= now));
        if frozen || out_of_time || complete || (floor_suffices && count >= roster.floor()) {
            self.freeze_shared(round).await?;
        }
        Ok(())
    }

    /// Freezes a round in the database, reads it back, and hands its participants and sums to the party.
    async fn freeze_shared(&mut self, round: Round) -> Result<(), Error> {
        self.driver.cancel_alarm();
        self.schedule.cancel(Timer::FloorSuffices);
        self.schedule.cancel(Timer::CountShared);
        self.schedule.cancel(Timer::Complete);
        let Some(shared) = &mut self.shared else { return Ok(()) };
        shared.round_store.freeze(round).await?;
        let collected = self.driver.party_mut()?.empty();
        let refused = match shared.read_back(round, collected, &mut self.recording).await? {
            Ok((collected, uploads)) => {
                let event = AggregatorEvent::Collected { collected: Box::new(collected), uploads };
                self.step("collected", event).await?
            }
            Err(error) => Some(error),
        };
        if let Some(error) = refused {
            // too few participants, repeated noise, or inconsistent rows
            tracing::error!(round = round.get(), %error, "the collected uploads cannot be used");
            self.recording.problem(error.to_string());
            if let (dphe::Error::NonceReuse { user }, Some(shared)) = (&error, &self.shared) {
                // both take part in the partial sums, so this round is lost; the next ones do not ask them
                let users = shared.users_of_repeated_noise(round, *user).await?;
                tracing::error!(
                    round = round.get(),
                    ?users,
                    "users agree on noise, and are not asked for a while"
                );
                self.spoilers.repeated_noise(&users, round.get());
            }
            self.step("abort", AggregatorEvent::Abort).await?;
        }
        Ok(())
    }
}
