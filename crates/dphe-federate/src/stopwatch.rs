//! Time, for those who have a clock: this crate has none.

use core::time::Duration;

/// Measures steps by a clock that the caller brings, or does not measure.
#[derive(Default)]
pub struct Stopwatch(Option<Box<dyn FnMut() -> Duration + Send>>);

impl Stopwatch {
    /// Measures nothing.
    pub fn none() -> Self {
        Self(None)
    }

    /// Measures by a clock that tells the time since some moment.
    pub fn new(clock: impl FnMut() -> Duration + Send + 'static) -> Self {
        Self(Some(Box::new(clock)))
    }

    /// Whether it measures.
    pub fn runs(&self) -> bool {
        self.0.is_some()
    }

    /// Does the work and adds the seconds it took.
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
