//! A PostgreSQL server per test, and proxies to it that can be blocked.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A server in a temporary directory, on a free port. It is stopped on drop.
pub struct Server {
    directory: TempDir,
    bin: PathBuf,
    child: Option<Child>,
    pub port: u16,
}

/// Returns the directory of the PostgreSQL programs: the newest of Debian's packages, or that in the search path.
fn programs() -> Option<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin")))
        })
        .collect();
    found.sort();
    let others = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let all = found.into_iter().rev().map(|(_, path)| path).chain(others.into_iter().flatten());
    all.into_iter().find(|bin| bin.join("initdb").is_file() && bin.join("postgres").is_file())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns a command that runs as the user `postgres` if the test runs as root, because PostgreSQL refuses to run as
/// root.
fn command(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command
}

impl Server {
    /// Starts a new server, or prints that the test is skipped.
    pub fn start() -> Option<Self> {
        let Some(bin) = programs() else {
            println!("SKIPPED: PostgreSQL is not installed; run scripts/setup postgres");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        if is_root() {
            let owner = Command::new("chown").arg("postgres:postgres").arg(directory.path()).status();
            if !owner.is_ok_and(|status| status.success()) {
                println!("SKIPPED: there is no user postgres");
                return None;
            }
        }
        let made = command(&bin.join("initdb"))
            .current_dir(directory.path())
            .args(["-D", "data", "-U", "dphe", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut server = Self { directory, bin, child: None, port: 0 };
        server.resume();
        Some(server)
    }

    /// Starts the server, for the first time or again.
    pub fn resume(&mut self) {
        for _ in 0..5 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if self.port == 0 || self.child.is_none() && TcpStream::connect(("127.0.0.1", self.port)).is_ok()
            {
                self.port = free;
            }
            let log = std::fs::File::create(self.directory.path().join("server.log")).unwrap();
            let settings = [
                format!("port={}", self.port),
                "listen_addresses=127.0.0.1".into(),
                "unix_socket_directories=".into(),
                "shared_buffers=64MB".into(),
                "max_connections=60".into(),
            ];
            let mut command = command(&self.bin.join("postgres"));
            command.current_dir(self.directory.path()).args(["-D", "data"]);
            for setting in &settings {
                command.args(["-c", setting]);
            }
            let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn();
            self.child = Some(child.unwrap());
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(30) {
                let ready = Command::new(self.bin.join("pg_isready"))
                    .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "dphe", "-q"])
                    .status();
                if ready.unwrap().success() {
                    return;
                }
                if self.child.as_mut().unwrap().try_wait().unwrap().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            self.stop();
        }
        let log = std::fs::read_to_string(self.directory.path().join("server.log")).unwrap_or_default();
        panic!("PostgreSQL does not start: {log}");
    }

    /// Stops the server at once. Connections break; committed data stays.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let stopped = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
            if !stopped.is_ok_and(|status| status.success()) {
                let _ = child.kill();
            }
            let _ = child.wait();
        }
    }

    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// Returns the URL with another port.
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://dphe@127.0.0.1:{port}/postgres?sslmode=disable")
    }

    /// Runs statements as the superuser.
    pub fn sql(&self, statements: &str) -> String {
        let output = Command::new(self.bin.join("psql"))
            .env("PGOPTIONS", "-c default_transaction_read_only=off")
            .args([&self.url(), "-v", "ON_ERROR_STOP=1", "-At", "-c", statements])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A TCP proxy that forwards connections to its reachable targets in turn. While it is blocked, nothing passes in
/// either direction, and neither end notices.
pub struct Proxy {
    pub address: SocketAddr,
    cut: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl Proxy {
    pub fn to(targets: Vec<SocketAddr>) -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").unwrap(), targets)
    }

    pub fn at(listener: TcpListener, targets: Vec<SocketAddr>) -> Self {
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let (cut, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let turn = Arc::new(AtomicUsize::new(0));
        let (cut_here, stop_here) = (cut.clone(), stop.clone());
        std::thread::spawn(move || {
            // kept open, so that neither end notices
            let held = Arc::new(Mutex::new(Vec::new()));
            while !stop_here.load(Ordering::Relaxed) {
                let Ok((client, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                };
                let (cut, stop, turn) = (cut_here.clone(), stop_here.clone(), turn.clone());
                if cut.load(Ordering::Relaxed) {
                    held.lock().unwrap().push(client);
                    continue;
                }
                let targets = targets.clone();
                std::thread::spawn(move || {
                    client.set_nonblocking(false).unwrap();
                    let first = turn.fetch_add(1, Ordering::Relaxed);
                    let reached = (0..targets.len()).find_map(|i| {
                        let target = targets[(first + i) % targets.len()];
                        TcpStream::connect_timeout(&target, Duration::from_secs(1)).ok()
                    });
                    let Some(server) = reached else { return };
                    let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                    let (cut_too, stop_too) = (cut.clone(), stop.clone());
                    let other = std::thread::spawn(move || pass(back.0, back.1, &cut_too, &stop_too));
                    pass(client, server, &cut, &stop);
                    let _ = other.join();
                });
            }
        });
        Self { address, cut, stop }
    }

    pub fn block(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    pub fn unblock(&self) {
        self.cut.store(false, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, cut: &AtomicBool, stop: &AtomicBool) {
    from.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut buffer = vec![0; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        if cut.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        }
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                // bytes that were read just before the block are not forwarded either
                while cut.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                if to.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
