//! The driver of a party. It runs the steps of the state machine on threads for blocking work, makes the log durable,
//! and hands messages and notices to the service, all in the order that the party asked for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dphe::PartyId;
use dphe::party::{Action, Notice, Party, Time};

use super::os_rng;
use crate::Error;
use crate::store::{AnyStore, LogStore as _};
use crate::telemetry::{Metrics, Phase};

/// An action that the driver leaves to the service.
pub(super) enum Effect {
    Send { to: PartyId, message: Vec<u8> },
    Notify(Notice),
}

/// A party with its store.
pub(super) struct Driver<P> {
    /// Absent while a step runs.
    party: Option<Box<P>>,
    pub(super) store: AnyStore,
    pub(super) clock: Clock,
    alarm: Option<Time>,
    /// Actions that were not carried out yet.
    actions: VecDeque<Action>,
    metrics: Arc<Metrics>,
}

const STEP_PANICKED: Error = Error::Unexpected { what: "a step of the protocol panicked" };

impl<P> Driver<P>
where
    P: Party<Event: Send, Phase: Into<Phase>> + Send + 'static,
{
    /// Drives a party that was started from its log with these first actions.
    pub(super) fn new(
        party: P,
        actions: Vec<Action>,
        store: AnyStore,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Result<Self, Error> {
        metrics.set_phase(Some(party.phase().into()));
        let party = Some(Box::new(party));
        Ok(Self { party, store, clock, alarm: None, actions: actions.into(), metrics })
    }

    pub(super) fn party(&self) -> Result<&P, Error> {
        self.party.as_deref().ok_or(STEP_PANICKED)
    }

    #[cfg(feature = "postgres")]
    pub(super) fn party_mut(&mut self) -> Result<&mut P, Error> {
        self.party.as_deref_mut().ok_or(STEP_PANICKED)
    }

    /// Runs a step and queues its actions. The inner error is a refusal, which changes nothing.
    pub(super) async fn step(&mut self, event: P::Event) -> Result<Result<(), dphe::Error>, Error> {
        Ok(self.ask(event).await?.map(|actions| self.actions.extend(actions)))
    }

    /// Runs a step and returns its actions without carrying them out.
    pub(super) async fn ask(&mut self, event: P::Event) -> Result<Result<Vec<Action>, dphe::Error>, Error> {
        // new for every step: a virtual machine that is restored twice must not draw the same numbers twice
        let mut rng = os_rng()?;
        let mut party = self.party.take().ok_or(STEP_PANICKED)?;
        let (now, start) = (self.clock.now(), Instant::now());
        let stepped = tokio::task::spawn_blocking(move || {
            let result = party.step(event, now, &mut rng);
            (party, result)
        });
        let (party, result) = stepped.await.map_err(|_| STEP_PANICKED)?;
        self.metrics.step_milliseconds.add(i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX));
        self.metrics.set_phase(Some(party.phase().into()));
        self.party = Some(party);
        Ok(result)
    }

    /// Carries out actions up to the next one that the service has to carry out, and returns that one. What the party
    /// wants stored before a message is durable when the message is returned.
    pub(super) async fn next_effect(&mut self) -> Result<Option<Effect>, Error> {
        while let Some(action) = self.actions.pop_front() {
            match action {
                Action::Append(bytes) => {
                    self.store.append(&bytes).await?;
                    self.metrics.log_bytes.add(bytes.len() as i64);
                }
                Action::Replace(bytes) => self.store.replace(&bytes).await?,
                Action::Wake(time) => self.alarm = Some(time),
                Action::Send { to, message } => return Ok(Some(Effect::Send { to, message })),
                Action::Notify(notice) => return Ok(Some(Effect::Notify(notice))),
                // users poll the aggregator all the time, and find announcements in its snapshot
                Action::Announce(_) | Action::Poll(_) => {}
            }
        }
        Ok(None)
    }

    /// Returns when the party wants its next tick.
    pub(super) fn alarm(&self) -> Option<Time> {
        self.alarm
    }

    /// Clears the alarm if it is due, and returns whether it was.
    pub(super) fn take_alarm(&mut self) -> bool {
        self.alarm.take_if(|alarm| *alarm <= self.clock.now()).is_some()
    }

    pub(super) fn cancel_alarm(&mut self) {
        self.alarm = None;
    }
}

/// Milliseconds since the party started. The clock is monotonic: setting the time of day does not change it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(&self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns the time that is `milliseconds` from now.
    pub(super) fn after(&self, milliseconds: u64) -> Time {
        Time(self.now().0.saturating_add(milliseconds))
    }

    /// Waits until this time, or indefinitely without one.
    pub(super) async fn wait_until(&self, time: Option<Time>) {
        let Some(Time(at)) = time else { return std::future::pending().await };
        tokio::time::sleep(Duration::from_millis(at.saturating_sub(self.now().0))).await;
    }
}
