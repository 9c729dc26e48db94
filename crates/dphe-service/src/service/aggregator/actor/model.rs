//! The next model, and the end of a round.

use std::sync::Arc;

use dphe::party::AggregatorEvent;
use dphe::wire::{Ending, Rosters};
use dphe::{Digest, Round, WeightSum};

use super::super::{AggregatorCommand, NewModel, RoundRecord, past_rounds};
use super::{AggregatorActor, Timer};
use crate::Error;
use crate::kit::Kit;
use crate::learning::SharedMaker;
use crate::store::{AnyStore, Archive};

/// The number of rounds that the dashboard shows at least. All records are in the store.
const SHOWN_RECORDS: usize = 500;
/// The pause after a round without a new model, in milliseconds.
const PAUSE_AFTER_ABORT: u64 = 1_000;

const LEARNER_PANICKED: Error = Error::Unexpected { what: "the learner panicked" };

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
        let record = std::mem::take(&mut self.recording).end(round, ending, self.rosters.at(round).floor());
        self.metrics.ended(Some(ending));
        let (name, reason) = (ending.as_str(), record.reason.as_deref());
        tracing::info!(round = round.get(), ending = name, users = record.users, reason, "the round is over");
        let json = serde_json::to_string(&record).unwrap_or_default();
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
        let pause = if ending == Ending::Published { 0 } else { PAUSE_AFTER_ABORT };
        self.schedule.set(Timer::StartRound, self.driver.clock.after(pause));
        Ok(())
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
