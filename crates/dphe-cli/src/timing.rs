//! Time measurements on shared machines: many short samples, of which the best one counts.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Returns the processor time of this process, over all threads.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the shortest time of `work` over at least three repetitions that together take about `budget`.
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
