//! Long work in chunks, between which Python handles signals, so that Ctrl-C ends a call soon.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use dphe_paillier::Error;
use pyo3::prelude::*;

use crate::errors::{bug, exception};

/// How long a chunk should take.
const TARGET: Duration = Duration::from_millis(50);

/// The shares of threads are cut at multiples of the lanes of a back end, of which there are at most eight.
const GRAIN: usize = 8;

/// Handles `0..count` in consecutive ranges and collects the results. `prepare` reads what a range needs from Python,
/// and `work` computes on it without the global interpreter lock. `first` is the length of the first range. The others
/// take about 50 ms each.
pub(crate) fn in_chunks<I: Send, T: Send>(
    py: Python<'_>,
    count: usize,
    first: usize,
    mut prepare: impl FnMut(Range<usize>) -> PyResult<I>,
    mut work: impl FnMut(I) -> Result<Vec<T>, Error> + Send,
) -> PyResult<Vec<T>> {
    let mut all = Vec::with_capacity(count);
    let (mut start, mut size) = (0, first.max(1));
    while start < count {
        let range = start..count.min(start + size);
        start = range.end;
        let input = prepare(range)?;
        let began = Instant::now();
        let part = uninterrupted(py, || work(input))?;
        all.extend(part.map_err(exception)?);
        py.check_signals()?;
        size = next_size(size, began.elapsed());
    }
    Ok(all)
}

/// Runs `work` without the global interpreter lock. A panic becomes an exception.
pub(crate) fn uninterrupted<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|_| bug())
}

/// Runs `work` in a thread of its own, and looks for signals meanwhile. If a signal raises an exception, the call ends
/// with it, and `work` is told to stop. What it returns later is dropped, so `work` must not change anything that
/// outlives it. A panic becomes an exception.
pub(crate) fn in_background<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> PyResult<T> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let (sender, mut receiver) = sync_channel(1);
    let told = Arc::clone(&cancelled);
    std::thread::Builder::new().name("dphe".into()).spawn(move || {
        // Nobody receives the result of a call that has ended.
        let _ = sender.send(work(&told));
    })?;
    loop {
        let result;
        (receiver, result) = py.detach(move || {
            let result = receiver.recv_timeout(TARGET);
            (receiver, result)
        });
        match result {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Disconnected) => return Err(bug()),
            Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| {
                cancelled.store(true, Ordering::Relaxed);
            })?,
        }
    }
}

/// Returns the length of the next range after one of `size` items took `elapsed`.
pub(crate) fn next_size(size: usize, elapsed: Duration) -> usize {
    if elapsed < TARGET / 2 {
        2 * size
    } else if elapsed > 2 * TARGET {
        (size / 2).next_multiple_of(GRAIN).max(1)
    } else {
        size
    }
}
