//! Time measurement with a clock of the caller. This crate has no clock.

use core::time::Duration;

/// A stopwatch with a clock of the caller, or without one.
#[derive(Default)]
pub struct Stopwatch(Option<Box<dyn FnMut() -> Duration + Send>>);

impl Stopwatch {
    /// Creates a stopwatch that measures nothing.
    pub fn none() -> Self {
        Self(None)
    }

    /// Creates a stopwatch from a clock that returns the time since a fixed moment.
    pub fn new(clock: impl FnMut() -> Duration + Send + 'static) -> Self {
        Self(Some(Box::new(clock)))
    }

    /// Returns whether it measures.
    pub fn runs(&self) -> bool {
        self.0.is_some()
    }

    /// Does the work and adds the seconds it took to `seconds`.
    pub fn time<R>(&mut self, seconds: &mut f64, work: impl FnOnce() -> R) -> R {
        let Some(clock) = &mut self.0 else { return work() };
        let before = clock();
        let result = work();
        *seconds += clock().saturating_sub(before).as_secs_f64();
        result
    }
}

impl core::fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Stopwatch({})", if self.runs() { "runs" } else { "none" })
    }
}
