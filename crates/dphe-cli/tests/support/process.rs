//! Parties as processes.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{SEED, Town, write_samples};

/// A party as a process that can be restarted.
pub struct Process {
    pub name: String,
    pub args: Vec<String>,
    log: PathBuf,
    pub child: Option<Child>,
    started: Instant,
    /// Bytes of the log when this life began.
    before: u64,
    pub waiting: bool,
    pub lives: u32,
    pub recoveries: Vec<Duration>,
}

impl Process {
    pub fn new(town: &Town, name: &str, args: &[&str]) -> Self {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let log = town.path(&format!("{name}.log"));
        let mut process = Self {
            name: name.into(),
            args,
            log,
            child: None,
            started: Instant::now(),
            before: 0,
            waiting: false,
            lives: 0,
            recoveries: Vec::new(),
        };
        process.start();
        process
    }

    pub fn start(&mut self) {
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        self.before = log.metadata().unwrap().len();
        let child = Command::new(env!("CARGO_BIN_EXE_dphe"))
            .args(&self.args)
            .args(["--log-format", "json", "--threads", "1"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        self.started = Instant::now();
        self.waiting = true;
        self.lives += 1;
    }

    /// Notes how long it took until the party was at work again.
    pub fn look(&mut self) {
        if self.waiting {
            let text = std::fs::read(&self.log).unwrap();
            let text = String::from_utf8_lossy(&text[self.before as usize..]).into_owned();
            if text.contains("is ready") {
                self.waiting = false;
                self.recoveries.push(self.started.elapsed());
            }
        }
    }

    pub fn kill(&mut self) {
        let child = self.child.as_mut().unwrap();
        // SIGKILL: no destructor runs, nothing is flushed
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// How it ended by itself, if it did.
    pub fn ended(&mut self) -> Option<bool> {
        self.child.as_mut().unwrap().try_wait().unwrap().map(|status| status.success())
    }

    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// All events of all lives that have this message.
    pub fn events(&self, message: &str) -> Vec<serde_json::Value> {
        let text = self.text();
        let events = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        events.filter(|event| event["message"] == message).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().unwrap())
}

/// Starts the aggregator, the key generator, and then the users.
pub fn processes_with(town: &Town, more: &[&str]) -> Vec<Process> {
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let mut all = Vec::new();
    for name in ["aggregator", "key-generator"] {
        let (kit, data) = (text(town.kit_directory(name)), text(town.data(name)));
        let args = ["serve", name, "--kit", &kit, "--data", &data];
        all.push(Process::new(town, name, &[&args, more].concat()));
    }
    all.extend(users_with(town, more));
    all
}

/// Starts the users with their own samples.
pub fn users_with(town: &Town, more: &[&str]) -> Vec<Process> {
    (0..town.users().len()).map(|n| user_with(town, n, more)).collect()
}

/// Starts one user, numbered from 0, with its own samples.
pub fn user_with(town: &Town, n: usize, more: &[&str]) -> Process {
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let name = format!("user-{}", n + 1);
    let file = town.path(&format!("{name}.csv"));
    write_samples(n, &file);
    let (kit, data, file) = (text(town.kit_directory(&name)), text(town.data(&name)), text(file));
    let (seed, output) = (SEED.to_string(), text(town.path(&format!("{name}.model"))));
    let args =
        ["join", "--kit", &kit, "--data", &data, "--features", &file, "--seed", &seed, "--output", &output];
    Process::new(town, &name, &[&args, more].concat())
}

/// Waits until a condition holds for all processes.
pub fn wait_until(all: &mut [Process], what: &str, done: impl Fn(&mut Process) -> bool) {
    let begin = Instant::now();
    while !all.iter_mut().all(&done) {
        assert!(begin.elapsed() < Duration::from_secs(120), "{what}: {}", tail(all));
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn tail(all: &[Process]) -> String {
    let last = |process: &Process| {
        let text = process.text();
        let lines: Vec<&str> = text.lines().rev().take(12).collect();
        format!(
            "== {} (life {})\n{}",
            process.name,
            process.lives,
            lines.into_iter().rev().collect::<Vec<_>>().join("\n")
        )
    };
    all.iter().map(last).collect::<Vec<_>>().join("\n")
}
