//! Parties as child processes of this program, for `dphe demo` and `dphe bench service`.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dphe::PartyId;
use dphe_service::party::party_name;

use crate::args::{DATABASE_VARIABLE, Database, Storage};
use crate::cli::CliError;

/// A child process that runs one party. It is killed when this is dropped.
pub(crate) struct PartyProcess {
    name: String,
    child: Child,
    log: PathBuf,
}

/// Returns free ports of the loopback interface.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>, CliError> {
    let runtime = |source| CliError::Runtime { source };
    // keep all listeners until all ports are known, so that they differ
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<Result<_, _>>()
        .map_err(runtime)?;
    held.iter().map(|listener| Ok(listener.local_addr().map_err(runtime)?.port())).collect()
}

/// Returns a flag that is set when this process receives a signal to stop.
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

/// Returns the error of a command that was stopped by a signal.
pub(crate) fn stopped() -> CliError {
    CliError::Interrupted {
        hint: "Run the command again. What it has written so far is incomplete.".to_owned(),
    }
}

impl PartyProcess {
    /// Starts this program as a party, with its kit and storage. Its output goes to a log file.
    pub(crate) fn spawn(
        name: &str,
        party: PartyId,
        kit: &Path,
        storage: &Storage,
        more: &[String],
        log: PathBuf,
    ) -> Result<Self, CliError> {
        let runtime = |source| CliError::Runtime { source };
        let file = File::create(&log).map_err(|source| CliError::Output { path: log.clone(), source })?;
        let mut child = Command::new(std::env::current_exe().map_err(runtime)?);
        match party {
            PartyId::Aggregator | PartyId::KeyGenerator => child.arg("serve").arg(party_name(party)),
            PartyId::User(_) => child.arg("join"),
        };
        child.arg("--kit").arg(kit);
        // other users cannot see the environment, unlike the arguments
        let child = match storage {
            Storage::Directory(data) => child.arg("--data").arg(data).env_remove(DATABASE_VARIABLE),
            Storage::Database(Database { url, insecure }) => {
                child.args(insecure.then_some("--insecure-database")).env(DATABASE_VARIABLE, url)
            }
        };
        // as in deploy/: one memory pool per thread would waste memory
        child.env("MALLOC_ARENA_MAX", "2");
        if party == PartyId::Aggregator {
            // return large buffers to the system at once
            child.env("MALLOC_ARENA_MAX", "1").env("MALLOC_MMAP_THRESHOLD_", "65536");
        }
        // Ctrl-C in a terminal reaches all processes of a group; this one stops its children itself
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(child, 0);
        let child = child
            .args(more)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(runtime)?)
            .stderr(file)
            .spawn()
            .map_err(runtime)?;
        Ok(Self { name: name.into(), child, log })
    }

    /// Returns the name of the party.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the process succeeded, if it has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<bool>, CliError> {
        let status = self.child.try_wait().map_err(|source| CliError::Runtime { source })?;
        Ok(status.map(|status| status.success()))
    }

    /// Returns an error with the last line of the process's log.
    pub(crate) fn failed(&self) -> CliError {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no output");
        CliError::Data {
            what: format!("{} stopped: {last}", self.name),
            hint: format!("See its log {}.", self.log.display()),
        }
    }

    /// Kills the process.
    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for PartyProcess {
    fn drop(&mut self) {
        self.stop();
    }
}
