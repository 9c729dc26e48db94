//! What a process takes: memory and processor time from `/proc`, where there is one, and bytes on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

use crate::cli::processes::Party;

/// How often memory is looked at, and every how many times the disk is.
const TICK: Duration = Duration::from_millis(100);
const DISK_EVERY: usize = 5;
/// Parts of a second that `/proc/PID/stat` counts in: the same on every Linux.
const TICKS_A_SECOND: f64 = 100.0;

/// What one process took. Without `/proc` most of it is unknown.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ProcessFigures {
    pub(super) name: String,
    /// Resident memory at its highest, by the kernel's own account.
    pub(super) peak_bytes: Option<u64>,
    /// Resident memory when it was up and nobody had uploaded.
    pub(super) rest_bytes: Option<u64>,
    /// Resident memory on average, from then on.
    pub(super) mean_bytes: Option<u64>,
    /// Resident memory at the end.
    pub(super) end_bytes: Option<u64>,
    /// Processor time in all, in and for the process.
    pub(super) processor_s: Option<f64>,
    /// Its data folder at its largest, and at the end.
    pub(super) disk_peak_bytes: u64,
    pub(super) disk_bytes: u64,
}

/// Looks at processes now and then, in a thread of its own.
pub(super) struct Sampler {
    targets: Vec<Watched>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Samples>>>,
}

/// A process with its data folder.
#[derive(Clone)]
pub(super) struct Watched {
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

impl Watched {
    pub(super) fn new(party: &Party, data: PathBuf) -> Self {
        Self { name: party.name().to_owned(), id: party.id(), data, rest: None }
    }
}

impl Sampler {
    /// Processes that nobody has asked for anything yet.
    pub(super) fn start(mut targets: Vec<Watched>) -> Self {
        for target in &mut targets {
            target.rest = memory(target.id, "VmRSS:");
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (watched, flag) = (targets.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut samples = vec![Samples::default(); watched.len()];
            for tick in 0.. {
                if flag.load(Ordering::Relaxed) {
                    break;
                }
                for (target, samples) in watched.iter().zip(&mut samples) {
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

    /// The figures of processes that are still there.
    pub(super) fn finish(mut self) -> Vec<ProcessFigures> {
        self.stop.store(true, Ordering::Relaxed);
        let samples = self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let samples = samples.into_iter().chain(std::iter::repeat(Samples::default()));
        let figures = self.targets.iter().zip(samples).map(|(target, samples)| {
            let disk_bytes = disk(&target.data);
            ProcessFigures {
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

/// A line of `/proc/PID/status` that counts memory.
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

/// `utime` and `stime`, counted from behind the name, in which anything may stand.
fn processor_time_in(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_A_SECOND)
}

/// Bytes of all files in a folder; what goes away meanwhile does not count.
fn disk(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
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
    fn lines_of_the_kernel_are_read() {
        let status = "Name:\tdphe\nVmPeak:\t  999 kB\nVmHWM:\t   12345 kB\nVmRSS:\t    678 kB\nThreads:\t3\n";
        assert_eq!(memory_in(status, "VmHWM:"), Some(12345 * 1024));
        assert_eq!(memory_in(status, "VmRSS:"), Some(678 * 1024));
        assert_eq!(memory_in(status, "VmSwap:"), None);
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 100 1000 10";
        assert_eq!(processor_time_in(stat), Some(3.0));
        assert_eq!(processor_time_in("42 (cut) S 1"), None);
    }

    #[test]
    fn folders_are_weighed_with_what_is_in_them() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(disk(folder.path()), 0);
        std::fs::write(folder.path().join("a"), [0; 100]).unwrap();
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        std::fs::write(folder.path().join("deep/b"), [0; 23]).unwrap();
        // a folder's own bytes do not count
        assert_eq!(disk(folder.path()), 123);
        assert_eq!(disk(&folder.path().join("none")), 0);
    }
}
