//! Timing on machines that other people use too: many short samples, the best one counts.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Processor time that this process has used, all threads together.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The shortest time of `work` over repetitions that together take about `budget`, at least three.
pub(crate) fn best<E>(budget: Duration, mut work: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    let start = Instant::now();
    let mut best = Duration::MAX;
    let mut samples = 0;
    while samples < 3 || start.elapsed() < budget {
        let sample = Instant::now();
        work()?;
        best = best.min(sample.elapsed());
        samples += 1;
    }
    Ok(best)
}
