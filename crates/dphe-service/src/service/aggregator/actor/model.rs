//! The next model, and the end of a round.

use std::sync::Arc;

use dphe::party::AggregatorEvent;
use dphe::wire::{Ending, Freeze, Header, Kind, Rosters, Signed};
use dphe::{Digest, Round, UserId, WeightSum};
use serde::{Deserialize, Serialize};

use super::super::record::norm_of_average;
use super::super::spoilers::{Spoilers, Users, Verdict};
use super::super::{AggregatorCommand, NewModel, RoundRecord, past_rounds};
use super::{AggregatorActor, Timer};
use crate::Error;
use crate::kit::Kit;
use crate::learning::SharedMaker;
use crate::party::list_of_users;
use crate::store::{AnyStore, Archive};

/// The number of rounds that the dashboard shows at least. All records are in the store.
const SHOWN_RECORDS: usize = 500;
/// The pause after a round without a new model, in milliseconds.
const PAUSE_AFTER_ABORT: u64 = 1_000;

const LEARNER_PANICKED: Error = Error::Unexpected { what: "the learner panicked" };

/// A record as it is stored, with what the aggregator needs to go on with a search after a restart.
#[derive(Serialize)]
struct StoredRecord<'a> {
    #[serde(flatten)]
    record: &'a RoundRecord,
    spoilers: &'a Spoilers,
    aborted: u64,
}

/// What a record keeps for the aggregator itself.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct StoredState {
    /// The state of the search for users who spoil rounds.
    pub(super) spoilers: Spoilers,
    /// The number of aborted rounds up to this one.
    pub(super) aborted: u64,
}

/// Reads what the last record keeps for the aggregator.
pub(super) async fn stored_state(store: &mut impl Archive, round: Round) -> Result<StoredState, Error> {
    let first = Round::new(round.get().saturating_sub(SHOWN_RECORDS as u64)).unwrap_or(Round::FIRST);
    let records = store.round_records(first).await?;
    let last = records.last().and_then(|(_, json)| serde_json::from_str(json).ok());
    Ok(last.unwrap_or_default())
}

/// Reads the records of the last rounds.
pub(in super::super) async fn last_records(
    store: &mut impl Archive,
    round: Round,
) -> Result<Vec<RoundRecord>, Error> {
    let first = round.get().saturating_sub(SHOWN_RECORDS as u64);
    let records = store.round_records(Round::new(first).unwrap_or(Round::FIRST)).await?;
    // a record that another version wrote may be unreadable; it stays in the store and is not shown
    Ok(records.iter().filter_map(|(_, json)| serde_json::from_str(json).ok()).collect())
}

/// Stores the model of a round if it is missing: computes it again from the initial model and the published sums.
pub(super) async fn restore_model(
    store: &mut AnyStore,
    rosters: &Rosters,
    round: Round,
    kit: &Kit,
    maker: &SharedMaker,
) -> Result<(), Error> {
    if store.latest_model(round).await?.is_some() {
        return Ok(());
    }
    let (mut model, mut from, mut at) = (kit.initial_model()?, Round::FIRST, Round::FIRST);
    let key = kit.encryption_key()?;
    while at < round {
        let ended = past_rounds::read(store, rosters, at).await?;
        let sum = ended.map(|ended| ended.sum_unchecked(rosters.at(at), &key)).transpose()?.flatten();
        at = at.next();
        if let Some(sum) = sum {
            let mut maker = maker.lock().map_err(|_| LEARNER_PANICKED)?;
            // a sum that gives no model leaves the old one
            model = maker.next_model(&sum, &model).unwrap_or(model);
            from = at;
        }
    }
    Ok(store.put_model(from, Digest::of_model(&model), &model).await?)
}

impl AggregatorActor {
    /// Returns the model that a round starts from.
    pub(super) async fn current_model(&mut self, round: Round) -> Result<Vec<u8>, Error> {
        match self.driver.store.latest_model(round).await? {
            Some((_, model)) => Ok(model),
            None => Err(Error::Unexpected { what: "a round has no model" }),
        }
    }

    /// Makes the next model from an opened sum, unless the sum is outsized.
    pub(super) async fn use_sum(&mut self, sum: WeightSum) -> Result<(), Error> {
        let (round, norm) = (sum.round(), norm_of_average(&sum));
        if !self.spoilers.is_outsized(norm, &self.rules) {
            return self.make_model(sum).await;
        }
        tracing::warn!(round = round.get(), "the sum is outsized and is not published");
        self.recording.problem("the average is outsized, compared with those of earlier rounds");
        // its actions are carried out by the caller
        match self.driver.step(AggregatorEvent::Reject { round }).await? {
            Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Remembers the participants of a frozen sum.
    pub(super) fn frozen(&mut self, message: &[u8]) -> Result<(), Error> {
        let round = Header::peek(message)?.round.unwrap_or(Round::FIRST);
        let freeze: Signed<Freeze> = Signed::decode(message, self.rosters.at(round))?;
        let users = freeze.message().users.iter().map(|participant| participant.user.get());
        self.recording.frozen(users.collect());
        Ok(())
    }

    /// Computes the next model in the background.
    pub(super) async fn make_model(&mut self, sum: WeightSum) -> Result<(), Error> {
        let round = sum.round();
        let model = self.current_model(round).await?;
        let (maker, commands) = (self.maker.clone(), self.commands.clone());
        let made = tokio::task::spawn_blocking(move || {
            let mut maker = maker.lock().map_err(|_| LEARNER_PANICKED)?;
            let model = maker.next_model(&sum, &model)?;
            let accuracy = maker.accuracy(&model);
            Ok(NewModel { model, accuracy })
        });
        tokio::spawn(async move {
            let model = made.await.unwrap_or(Err(LEARNER_PANICKED));
            let _ = commands.send(AggregatorCommand::ModelMade { round, model }).await;
        });
        Ok(())
    }

    pub(super) async fn model_made(
        &mut self,
        round: Round,
        made: Result<NewModel, Error>,
    ) -> Result<(), Error> {
        let model = match made {
            Ok(NewModel { model, accuracy }) => {
                self.recording.made(accuracy);
                model
            }
            Err(error) => {
                // the sum cannot be opened again, so the round ends with the model that it started from
                tracing::error!(round = round.get(), %error, "the model could not be computed");
                self.recording.problem(format!("the model could not be computed: {error}"));
                self.current_model(round).await?
            }
        };
        self.driver.store.put_model(round.next(), Digest::of_model(&model), &model).await?;
        match self.step("new model", AggregatorEvent::NewModel { round, model }).await? {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Records the end of a round, deletes what is not needed any more, and schedules the next round.
    pub(super) async fn finished(&mut self, round: Round, ending: Ending) -> Result<(), Error> {
        if self.recording.participants().is_empty() && ending != Ending::Aborted {
            // the aggregator has restarted since the freeze
            let messages = self.driver.store.round_messages(round).await?;
            if let Some((_, freeze)) = messages.into_iter().find(|(kind, _)| *kind == Kind::Freeze.number()) {
                self.frozen(&freeze)?;
            }
        }
        let norm = self.recording.norm();
        if ending == Ending::Aborted {
            self.aborted += 1;
        }
        let expected = self.expected(round);
        let floor = self.rosters.at(round).floor();
        let record = std::mem::take(&mut self.recording).end(round, ending, floor, &expected);
        self.metrics.ended(Some(ending));
        if let Some(accuracy) = record.accuracy {
            self.metrics.measured(accuracy);
        }
        log_end(&record);
        let came: Users = record.participants.iter().copied().collect();
        let verdict = self.spoilers.ended(round.get(), ending, &came, norm, &self.rules);
        log_verdict(round, verdict);
        self.asked = self.spoilers.asked(round.next().get(), &self.rules);
        let stored = StoredRecord { record: &record, spoilers: &self.spoilers, aborted: self.aborted };
        let json = serde_json::to_string(&stored).unwrap_or_default();
        self.driver.store.put_round_record(round, &json).await?;
        self.write_event(&record);
        let records = Arc::make_mut(&mut self.records);
        records.push(record);
        if records.len() > 2 * SHOWN_RECORDS {
            records.drain(..SHOWN_RECORDS);
        }
        // the current model may be many rounds old; earlier models are in their publish messages
        if let Some((current, _)) = self.driver.store.latest_model(round.next()).await? {
            self.driver.store.forget_models(current).await?;
        }
        if let Some(shared) = &self.shared
            && let Err(error) = shared.forget(round.next()).await
        {
            tracing::warn!(%error, "uploads of earlier rounds could not be deleted");
        }
        self.driver.cancel_alarm();
        self.schedule.cancel(Timer::FloorSuffices);
        self.schedule.cancel(Timer::Complete);
        self.schedule.cancel(Timer::Remind);
        let pause = if ending == Ending::Published { 0 } else { PAUSE_AFTER_ABORT };
        self.schedule.set(Timer::StartRound, self.driver.clock.after(pause));
        Ok(())
    }

    /// Returns the users who were asked for an upload in a round.
    fn expected(&self, round: Round) -> Users {
        match &self.asked {
            Some(asked) => asked.clone(),
            None => self.rosters.at(round).users().map(UserId::get).collect(),
        }
    }

    /// Records the end of the last round if a crash has prevented it.
    pub(super) async fn restore_record(&mut self) -> Result<(), Error> {
        let ended = self.driver.party()?.ended().map(|ended| (ended.round(), ended.close().message().ending));
        match ended {
            Some((round, ending)) if self.records.last().is_none_or(|last| last.round < round.get()) => {
                self.finished(round, ending).await
            }
            _ => Ok(()),
        }
    }

    /// Writes a record for TensorBoard. A failure does not stop the task.
    fn write_event(&self, record: &RoundRecord) {
        if let Ok(mut events) = self.events.lock()
            && let Some(events) = events.as_mut()
            && let Err(error) = events.scalars(record.round, &record.scalars())
        {
            tracing::warn!(%error, file = %events.path().display(), "the TensorBoard file could not be written");
        }
    }
}

/// Logs the end of a round: as a warning if its sum could not be used.
fn log_end(record: &RoundRecord) {
    let (round, ending) = (record.round, record.ending.as_str());
    let (users, reason) = (record.participants.len(), record.reason.as_deref());
    match record.ending {
        Ending::Published => {
            let accuracy = record.accuracy.map(|accuracy| format!("{:.1} %", 100.0 * accuracy));
            tracing::info!(round, ending, users, accuracy, reason, "the round is over");
        }
        Ending::Aborted => tracing::warn!(round, ending, users, reason, "the round is over without a model"),
        Ending::Failed | Ending::Rejected => {
            tracing::warn!(
                round,
                ending,
                users,
                reason,
                "the round is over without a model: an upload spoiled it"
            );
        }
    }
}

/// Logs what a search for users who spoil rounds has found.
fn log_verdict(round: Round, verdict: Option<Verdict>) {
    let round = round.get();
    match verdict {
        None => {}
        Some(Verdict::Suspects(users)) => {
            let suspects = users.len();
            tracing::warn!(round, suspects, "the next rounds ask fewer users, to find out who spoils rounds");
        }
        Some(Verdict::Found(users)) => {
            let users = list(&users);
            tracing::error!(round, users, "spoils rounds; rounds go on without this user for a while");
        }
        Some(Verdict::Again(users)) => {
            let users = list(&users);
            tracing::error!(round, users, "the user was asked again, and the round was spoiled again");
        }
        Some(Verdict::Indistinguishable(users)) => {
            let users = list(&users);
            tracing::error!(
                round,
                users,
                "one of these users spoils rounds; the floor forbids to find out which"
            );
        }
        Some(Verdict::OutOfFailures(users)) => {
            let users = list(&users);
            tracing::error!(
                round,
                users,
                "one of these users spoils rounds; the search ends, because a further failure would end the task"
            );
        }
        Some(Verdict::Inconclusive) => {
            tracing::warn!(round, "the search ends: the rounds of fewer users were not spoiled");
        }
    }
}

/// Returns a list of users for the log.
fn list(users: &Users) -> String {
    list_of_users(&users.iter().copied().collect::<Vec<_>>())
}
