//! Warnings about conditions that last: one at the beginning, and one per minute from then on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dphe::PartyId;

use crate::http::client::{ClientError, Fault};
use crate::party::party_name;

/// The pause between two warnings of the same kind.
const INTERVAL: Duration = Duration::from_secs(60);
/// How long a peer may be unreachable before the first warning. Parties that start together need a moment.
const GRACE: Duration = Duration::from_millis(1_500);

/// Says of each kind of event when it may be logged again.
#[derive(Debug)]
pub(crate) struct OncePerMinute<K>(BTreeMap<K, Instant>);

impl<K> Default for OncePerMinute<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> OncePerMinute<K> {
    /// Returns whether an event of this kind should be logged now.
    pub(crate) fn is_due(&mut self, kind: K, now: Instant) -> bool {
        let due = self.0.get(&kind).is_none_or(|last| now.saturating_duration_since(*last) >= INTERVAL);
        if due {
            self.0.insert(kind, now);
        }
        due
    }
}

/// Warns while a party waits for a peer that does not answer.
#[derive(Debug)]
pub(crate) struct WaitingFor {
    peer: PartyId,
    since: Option<Instant>,
    warned: Option<(Instant, Option<Fault>)>,
}

impl WaitingFor {
    pub(crate) fn new(peer: PartyId) -> Self {
        Self { peer, since: None, warned: None }
    }

    /// Notes a failed attempt, and logs a warning if one is due.
    pub(crate) fn failed(&mut self, error: &ClientError) {
        let now = Instant::now();
        let peer = party_name(self.peer);
        if !self.is_due(error.fault(), now) {
            tracing::debug!(peer, reason = %error, "the peer does not answer");
            return;
        }
        let waited =
            self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)).as_secs();
        let hint = error.fault().map_or_else(
            || "The service refuses for now; it will be asked again.".to_owned(),
            |fault| fault.hint(self.peer),
        );
        tracing::warn!(peer, waited, reason = %error, hint, "waiting for a peer that does not answer");
    }

    /// Notes an answer, and says so if a warning came before.
    pub(crate) fn answered(&mut self) {
        self.since = None;
        if self.warned.take().is_some() {
            tracing::info!(peer = party_name(self.peer), "the peer answers again");
        }
    }

    fn is_due(&mut self, fault: Option<Fault>, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let due = match self.warned {
            // nothing heals by itself if the identity is wrong
            None => fault == Some(Fault::Identity) || now.saturating_duration_since(since) >= GRACE,
            Some((last, before)) => fault != before || now.saturating_duration_since(last) >= INTERVAL,
        };
        if due {
            self.warned = Some((now, fault));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_comes_per_kind_and_minute() {
        let (mut reminders, begin) = (OncePerMinute::default(), Instant::now());
        let mut due = |kind, seconds| reminders.is_due(kind, begin + Duration::from_secs(seconds));
        assert!(due("a", 0) && due("b", 0));
        assert!(!due("a", 59) && !due("b", 59));
        assert!(due("a", 60) && !due("a", 61));
        assert!(due("b", 119));
    }

    #[test]
    fn a_peer_that_does_not_answer_gives_a_warning_per_minute_and_kind() {
        let (mut waiting, begin) = (WaitingFor::new(PartyId::Aggregator), Instant::now());
        let due = |waiting: &mut WaitingFor, fault, milliseconds| {
            waiting.is_due(Some(fault), begin + Duration::from_millis(milliseconds))
        };
        assert!(!due(&mut waiting, Fault::Unreachable, 0), "parties that start together need a moment");
        assert!(due(&mut waiting, Fault::Unreachable, 2_000));
        assert!(!due(&mut waiting, Fault::Unreachable, 61_000));
        assert!(due(&mut waiting, Fault::Unreachable, 62_000));
        assert!(due(&mut waiting, Fault::Identity, 63_000), "another kind is news");
        assert!(!due(&mut waiting, Fault::Identity, 64_000));
        waiting.answered();
        assert!(due(&mut waiting, Fault::Identity, 65_000), "a wrong identity is said at once");
    }
}
