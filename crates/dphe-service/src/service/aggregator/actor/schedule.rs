//! The times at which the actor has to act, besides the party's own alarm.

use dphe::party::Time;

/// Something that the actor does at a set time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Timer {
    /// Start the next round.
    StartRound,
    /// From this time on, the floor suffices to freeze the participants.
    FloorSuffices,
    /// From this time on, the uploads of all users who were asked suffice, if not all users were asked.
    Complete,
    /// Count the uploads that all replicas have collected.
    CountShared,
    /// Wake the receivers of the snapshot.
    WakeReceivers,
    /// Say in the log output whose uploads are missing.
    Remind,
}

/// The time of each timer that is set.
#[derive(Debug, Default)]
pub(super) struct Schedule([Option<Time>; 6]);

impl Schedule {
    pub(super) fn set(&mut self, timer: Timer, time: Time) {
        self.0[timer as usize] = Some(time);
    }

    pub(super) fn cancel(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(super) fn time(&self, timer: Timer) -> Option<Time> {
        self.0[timer as usize]
    }

    /// Returns the earliest time.
    pub(super) fn next(&self) -> Option<Time> {
        self.0.into_iter().flatten().min()
    }

    /// Cancels a timer if it is due, and returns whether it was.
    pub(super) fn take_due(&mut self, timer: Timer, now: Time) -> bool {
        self.0[timer as usize].take_if(|time| *time <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_timers_are_taken_once_and_the_earliest_is_next() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.next(), None);
        schedule.set(Timer::StartRound, Time(7));
        schedule.set(Timer::CountShared, Time(5));
        assert_eq!(schedule.next(), Some(Time(5)));
        assert!(!schedule.take_due(Timer::CountShared, Time(4)));
        assert!(
            schedule.take_due(Timer::CountShared, Time(5)) && !schedule.take_due(Timer::CountShared, Time(9))
        );
        assert_eq!((schedule.next(), schedule.time(Timer::CountShared)), (Some(Time(7)), None));
        schedule.cancel(Timer::StartRound);
        assert_eq!(schedule.next(), None);
    }
}
