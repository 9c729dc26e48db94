//! The resources of a process: memory and processor time from `/proc`, if available, and bytes on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

use crate::processes::PartyProcess;

/// The interval of memory samples, and the number of memory samples per disk sample.
const TICK: Duration = Duration::from_millis(100);
const DISK_EVERY: usize = 5;
/// The time unit of `/proc/PID/stat`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// The resource usage of one process. Without `/proc`, most of it is unknown.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ProcessUsage {
    pub(super) name: String,
    /// Peak resident memory, as counted by the kernel.
    pub(super) peak_bytes: Option<u64>,
    /// Resident memory after the start, before the first upload.
    pub(super) rest_bytes: Option<u64>,
    /// Mean resident memory since then.
    pub(super) mean_bytes: Option<u64>,
    /// Resident memory at the end.
    pub(super) end_bytes: Option<u64>,
    /// Total processor time, user and system.
    pub(super) processor_s: Option<f64>,
    /// The largest size of the data directory, and the size at the end.
    pub(super) disk_peak_bytes: u64,
    pub(super) disk_bytes: u64,
}

/// A thread that samples the resources of processes.
pub(super) struct Sampler {
    targets: Vec<Target>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Samples>>>,
}

/// A process and its data directory.
#[derive(Clone)]
pub(super) struct Target {
    name: String,
    id: u32,
    data: PathBuf,
    rest: Option<u64>,
}

#[derive(Clone, Default)]
struct Samples {
    sum: u64,
    count: u64,
    disk: u64,
}

impl Target {
    pub(super) fn new(party: &PartyProcess, data: PathBuf) -> Self {
        Self { name: party.name().to_owned(), id: party.id(), data, rest: None }
    }
}

impl Sampler {
    /// Starts sampling processes that have not received any upload yet.
    pub(super) fn start(mut targets: Vec<Target>) -> Self {
        for target in &mut targets {
            target.rest = memory(target.id, "VmRSS:");
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (sampled, flag) = (targets.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut samples = vec![Samples::default(); sampled.len()];
            for tick in 0.. {
                if flag.load(Ordering::Relaxed) {
                    break;
                }
                for (target, samples) in sampled.iter().zip(&mut samples) {
                    if let Some(bytes) = memory(target.id, "VmRSS:") {
                        samples.sum += bytes;
                        samples.count += 1;
                    }
                    if tick % DISK_EVERY == 0 {
                        samples.disk = samples.disk.max(disk(&target.data));
                    }
                }
                std::thread::sleep(TICK);
            }
            samples
        });
        Self { targets, stop, thread: Some(thread) }
    }

    /// Stops sampling and returns the usage. The processes must still be running.
    pub(super) fn finish(mut self) -> Vec<ProcessUsage> {
        self.stop.store(true, Ordering::Relaxed);
        let samples = self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let samples = samples.into_iter().chain(std::iter::repeat(Samples::default()));
        let figures = self.targets.iter().zip(samples).map(|(target, samples)| {
            let disk_bytes = disk(&target.data);
            ProcessUsage {
                name: target.name.clone(),
                peak_bytes: memory(target.id, "VmHWM:"),
                rest_bytes: target.rest,
                mean_bytes: samples.sum.checked_div(samples.count),
                end_bytes: memory(target.id, "VmRSS:"),
                processor_s: processor_time(target.id),
                disk_peak_bytes: samples.disk.max(disk_bytes),
                disk_bytes,
            }
        });
        figures.collect()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Reads a memory counter of `/proc/PID/status`.
fn memory(id: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    memory_in(&status, name)
}

fn memory_in(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kilobytes)
}

fn processor_time(id: u32) -> Option<f64> {
    processor_time_in(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// Reads `utime` and `stime`. Fields are counted from the end of the process name, which may contain anything.
fn processor_time_in(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// Returns the size of all files in a directory. Files that disappear meanwhile do not count.
fn disk(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_status_and_stat_are_parsed() {
        let status = "Name:\tdphe\nVmPeak:\t  999 kB\nVmHWM:\t   12345 kB\nVmRSS:\t    678 kB\nThreads:\t3\n";
        assert_eq!(memory_in(status, "VmHWM:"), Some(12345 * 1024));
        assert_eq!(memory_in(status, "VmRSS:"), Some(678 * 1024));
        assert_eq!(memory_in(status, "VmSwap:"), None);
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 100 1000 10";
        assert_eq!(processor_time_in(stat), Some(3.0));
        assert_eq!(processor_time_in("42 (cut) S 1"), None);
    }

    #[test]
    fn directory_size_includes_subdirectories() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(disk(directory.path()), 0);
        std::fs::write(directory.path().join("a"), [0; 100]).unwrap();
        std::fs::create_dir(directory.path().join("deep")).unwrap();
        std::fs::write(directory.path().join("deep/b"), [0; 23]).unwrap();
        // the directories themselves do not count
        assert_eq!(disk(directory.path()), 123);
        assert_eq!(disk(&directory.path().join("none")), 0);
    }
}
