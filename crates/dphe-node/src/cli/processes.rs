//! Parties as processes of this program on this machine: started, looked after, and ended by their own number.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::CliError;
use super::place::{DATABASE, Place};

/// A process; it ends with this.
pub(crate) struct Party {
    name: String,
    child: Child,
    log: PathBuf,
}

/// Ports that nobody listens on now.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>, CliError> {
    let runtime = |source| CliError::Runtime { source };
    // all are held until all are known, so that they differ
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<Result<_, _>>()
        .map_err(runtime)?;
    held.iter().map(|listener| Ok(listener.local_addr().map_err(runtime)?.port())).collect()
}

/// Whether somebody asked this program to stop; set once a signal came.
pub(crate) fn stopped_by_signal() -> Result<Arc<AtomicBool>, CliError> {
    use tokio::signal::unix::{SignalKind, signal};
    let flag = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| CliError::Runtime { source })?;
    let signals = {
        let _inside = runtime.enter();
        [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal)
    };
    let mut signals =
        signals.into_iter().collect::<Result<Vec<_>, _>>().map_err(|source| CliError::Runtime { source })?;
    let set = Arc::clone(&flag);
    std::thread::spawn(move || {
        runtime.block_on(async {
            let [terminate, interrupt, hangup] = &mut signals[..] else { return };
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        set.store(true, Ordering::Relaxed);
    });
    Ok(flag)
}

/// What a command that was stopped by a signal says.
pub(crate) fn stopped() -> CliError {
    CliError::Data { what: "stopped by a signal".to_owned(), hint: "run it again".to_owned() }
}

impl Party {
    /// Starts this program with a command for a party's kit and data folder; what it says goes into a log.
    pub(crate) fn spawn(
        name: &str,
        command: &[&str],
        kit: &Path,
        place: &Place,
        more: &[String],
        log: PathBuf,
    ) -> Result<Self, CliError> {
        let runtime = |source| CliError::Runtime { source };
        let file = File::create(&log).map_err(|source| CliError::Output { path: log.clone(), source })?;
        let mut child = Command::new(std::env::current_exe().map_err(runtime)?);
        child.args(command).arg("--kit").arg(kit);
        // nobody sees the environment of others
        let child = match place {
            Place::Folder(data) => child.arg("--data").arg(data).env_remove(DATABASE),
            Place::Database(url) => child.env(DATABASE, url),
        };
        // as deploy/ has it: pools of memory for every thread are a waste here
        child.env("MALLOC_ARENA_MAX", "2");
        if command.contains(&"aggregator") {
            // long lists go back to the system when they are done with
            child.env("MALLOC_ARENA_MAX", "1").env("MALLOC_MMAP_THRESHOLD_", "65536");
        }
        let child = child
            .args(more)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(runtime)?)
            .stderr(file)
            .spawn()
            .map_err(runtime)?;
        Ok(Self { name: name.into(), child, log })
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, and well.
    pub(crate) fn ended(&mut self) -> Result<Option<bool>, CliError> {
        let status = self.child.try_wait().map_err(|source| CliError::Runtime { source })?;
        Ok(status.map(|status| status.success()))
    }

    /// The last thing it said.
    pub(crate) fn failed(&self) -> CliError {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        CliError::Data {
            what: format!("{} stopped: {last}", self.name),
            hint: format!("its log is {}", self.log.display()),
        }
    }

    /// Ends it, by its own number and no other.
    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        self.stop();
    }
}
