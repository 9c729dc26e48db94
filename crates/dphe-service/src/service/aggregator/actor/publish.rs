//! Publishing the state of the task in the snapshot that handlers answer from.

use std::sync::Arc;

use dphe::party::{Action, AggregatorEvent, AggregatorPhase, Party as _, Time};
use dphe::wire::{Kind, RoundTicket, Signed};
use dphe::{Digest, PartyId, UserId};

use super::super::{AggregatorStatus, Snapshot};
use super::{AggregatorActor, Timer};
use crate::Error;
use crate::hex;
use crate::party::party_name;
use crate::store::Archive as _;

/// The interval at which new uploads alone wake the receivers, in milliseconds. Every wake-up reaches all waiting
/// users.
const WAKE_INTERVAL: u64 = 250;

impl AggregatorActor {
    /// Publishes a new snapshot if something has changed.
    pub(super) async fn publish(&mut self) -> Result<(), Error> {
        let (status, old) = (self.status()?, self.snapshot.borrow().clone());
        let same_records =
            old.records.last().map(|record| record.round) == self.records.last().map(|record| record.round);
        if old.status == status && same_records {
            return Ok(());
        }
        let same_state = status.state() == old.status.state();
        if let Some(shared) = &mut self.shared
            && !shared.should_publish(same_state, self.driver.clock.now())
        {
            return Ok(());
        }
        self.metrics.round.set(i64::try_from(status.round).unwrap_or(i64::MAX));
        self.metrics.suspects.set(i64::try_from(status.suspects.len()).unwrap_or(i64::MAX));
        let new_phase = (status.round, status.phase) != (old.status.round, old.status.phase);
        let mut snapshot = Snapshot { status, records: self.records.clone(), ..(*old).clone() };
        if new_phase {
            let party = self.driver.party()?;
            tracing::info!(round = party.round().get(), phase = party.phase().as_str(), "state");
            self.poll_party(&mut snapshot).await?;
            let round = self.driver.party()?.round();
            let model = self.driver.store.latest_model(round).await?;
            snapshot.model = model.map(|(_, model)| (Digest::of_model(&model), model.into()));
        }
        if let Some(shared) = &self.shared {
            shared.publish(&old, &snapshot).await?;
        }
        let (now, next) = (self.driver.clock.now(), Time(self.announced.0.saturating_add(WAKE_INTERVAL)));
        let wake = !same_state || !Arc::ptr_eq(&snapshot.records, &old.records) || now >= next;
        if wake {
            self.announced = now;
            self.schedule.cancel(Timer::WakeReceivers);
        } else {
            self.schedule.set(Timer::WakeReceivers, next);
        }
        self.snapshot.send_if_modified(|published| {
            *published = Arc::new(snapshot);
            wake
        });
        Ok(())
    }

    pub(super) fn status(&self) -> Result<AggregatorStatus, Error> {
        let party = self.driver.party()?;
        let collected = match &self.shared {
            Some(shared) if party.phase() == AggregatorPhase::Collecting => shared.collected().to_vec(),
            _ => party.collected(),
        };
        Ok(AggregatorStatus {
            party: party_name(PartyId::Aggregator),
            task: self.roster.task().id().to_string(),
            round: party.round().get(),
            rounds: self.rounds,
            aborted: self.aborted,
            phase: Some(party.phase()),
            collected: collected.into_iter().map(UserId::get).collect(),
            // handlers add them, because this status is made for every upload
            missing: Vec::new(),
            asked: self.asked.as_ref().map(|asked| asked.iter().copied().collect()),
            suspects: self.spoilers.suspects(party.round().get()).into_iter().collect(),
            searching: self.spoilers.is_searching(),
            users: self.roster.users().len(),
            over: (party.is_idle() || self.used_up) && self.is_over()?,
            history: self.history()?.map(|history| hex::encode(history.as_bytes())),
        })
    }

    /// Returns the history before the current round, from its ticket or from the round before.
    fn history(&self) -> Result<Option<Digest>, Error> {
        let party = self.driver.party()?;
        let ended = party.ended().map(|ended| ended.history(&self.roster));
        Ok(party.current_ticket().map(|ticket| ticket.message().history).or(ended))
    }

    /// Asks the party for the ticket and the end of the last round, which users poll for.
    async fn poll_party(&mut self, snapshot: &mut Snapshot) -> Result<(), Error> {
        let Some(user) = self.roster.users().next() else { return Ok(()) };
        let round = self.driver.party()?.round();
        let actions = self.driver.ask(AggregatorEvent::Poll { user, round }).await??;
        snapshot.ticket = None;
        for action in actions {
            let Action::Send { message, .. } = action else { continue };
            let ticket: Signed<RoundTicket> = Signed::decode(&message, &self.roster)?;
            snapshot.ticket = Some((ticket.hash(), message.into()));
        }
        let ended = self.driver.party()?.ended().cloned();
        if let Some(ended) = ended
            && snapshot.ended.as_ref().is_none_or(|known| known.round() != ended.round())
        {
            if let Some(publish) = ended.publish() {
                let (round, bytes) = (ended.round(), publish.to_bytes());
                self.driver.store.put_message(round, Kind::Publish.number(), &bytes).await?;
            }
            snapshot.ended = Some(Arc::new(ended));
        }
        Ok(())
    }
}
