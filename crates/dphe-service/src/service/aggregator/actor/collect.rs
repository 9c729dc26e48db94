//! Collecting: the uploads of a single aggregator, and when a round has enough of them.

use dphe::party::{AggregatorEvent, AggregatorPhase, Party as _};

use super::super::replies::{self, PendingUpload};
use super::super::spoilers::Users;
use super::{AggregatorActor, Timer};
use crate::Error;
use crate::party::list_of_users;

/// How often the log output says whose uploads are missing, in milliseconds.
const REMIND_INTERVAL: u64 = 60_000;

impl AggregatorActor {
    pub(super) async fn start_collecting(&mut self) -> Result<(), Error> {
        let (round, clock) = (self.driver.party()?.round(), self.driver.clock);
        self.schedule.set(Timer::FloorSuffices, clock.after(self.collect.time.min.0));
        if self.asked.is_some() {
            // the key generator accepts no freeze before
            self.schedule.set(Timer::Complete, clock.after(self.collect.least.0));
        }
        self.schedule.set(Timer::Remind, clock.after(REMIND_INTERVAL));
        if let Some(shared) = &self.shared {
            shared.start(round).await?;
            self.schedule.set(Timer::CountShared, clock.now());
        }
        Ok(())
    }

    /// Says whose uploads are missing, once per minute.
    pub(super) fn log_missing(&mut self) -> Result<(), Error> {
        let party = self.driver.party()?;
        if party.phase() != AggregatorPhase::Collecting {
            return Ok(());
        }
        let (floor, status) = (party.roster().floor(), self.status()?);
        // a later roster may not be in force yet
        let missing = list_of_users(&status.missing_of(party.roster().users()));
        let (round, uploads) = (status.round, status.collected.len());
        tracing::warn!(round, uploads, floor, missing, "waiting for the uploads of users");
        self.schedule.set(Timer::Remind, self.driver.clock.after(REMIND_INTERVAL));
        Ok(())
    }

    pub(super) async fn upload(&mut self, upload: PendingUpload) -> Result<(), Error> {
        let PendingUpload { user, message, reply, _permits } = upload;
        let (bytes, before) = (message.len(), self.driver.party()?.collected().len());
        self.waiting.insert(user, reply);
        let result = match self.driver.step(AggregatorEvent::Message(message.into())).await {
            Ok(Ok(())) => self.carry_out().await,
            Ok(Err(error)) => {
                replies::send_refusal(self.waiting.remove(&user), user, &error);
                Ok(())
            }
            Err(error) => Err(error),
        };
        let unanswered = self.waiting.remove(&user);
        if let Err(error) = result {
            unanswered.into_iter().for_each(|reply| reply.send(Err(replies::not_stored())));
            return Err(error);
        }
        if self.driver.party()?.collected().len() > before {
            replies::count(&self.metrics, bytes);
            self.recording.upload(user, bytes);
        }
        if self.schedule.time(Timer::FloorSuffices).is_none() {
            self.freeze_if_enough().await?;
        }
        if self.asked.is_some() && self.schedule.time(Timer::Complete).is_none() {
            self.freeze_if_complete().await?;
        }
        Ok(())
    }

    /// Freezes the participants if all users who were asked have come. The party does so itself if all users were.
    pub(super) async fn freeze_if_complete(&mut self) -> Result<(), Error> {
        if self.driver.party()?.collected().len() >= self.most_uploads()? {
            self.freeze_if_enough().await?;
        }
        Ok(())
    }

    /// Returns the number of uploads after which no more are expected.
    pub(super) fn most_uploads(&self) -> Result<usize, Error> {
        // a later roster may not be in force yet
        let roster = self.driver.party()?.roster();
        let asked = self.asked.as_ref().map_or_else(|| roster.users().len(), Users::len);
        Ok(asked.min(roster.task().max_users()))
    }

    /// Freezes the participants if there are at least as many as the floor.
    pub(super) async fn freeze_if_enough(&mut self) -> Result<(), Error> {
        let party = self.driver.party()?;
        if party.phase() == AggregatorPhase::Collecting && party.collected().len() >= party.roster().floor() {
            self.step("freeze", AggregatorEvent::Freeze).await?;
        }
        Ok(())
    }
}
