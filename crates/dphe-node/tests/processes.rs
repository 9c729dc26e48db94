//! Real processes, real disks, real TLS, and `kill -9` at random moments. Everything a party ever promised must hold over
//! all its lives.
//!
//! `DPHE_KILL_ROUNDS` sets the number of rounds (8 unless told, 50 in the long run), `DPHE_KILL_SEED` the moments.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dphe::Round;
use dphe::message::{Close, Ending, Message as _, Publish, Signed};
use dphe_node::store::{Archive as _, SqliteStore};
use rand_core::Rng as _;
use support::{Plan, SEED, Town, rng, write_samples};

/// A party as a process that is started again whenever it dies.
struct Process {
    name: String,
    args: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
    started: Instant,
    /// Bytes of the log when this life began.
    before: u64,
    waiting: bool,
    lives: u32,
    recoveries: Vec<Duration>,
}

impl Process {
    fn new(town: &Town, name: &str, args: &[&str]) -> Self {
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

    fn start(&mut self) {
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
    fn look(&mut self) {
        if self.waiting {
            let text = std::fs::read(&self.log).unwrap();
            let text = String::from_utf8_lossy(&text[self.before as usize..]).into_owned();
            if text.contains("is ready") {
                self.waiting = false;
                self.recoveries.push(self.started.elapsed());
            }
        }
    }

    fn kill(&mut self) {
        let child = self.child.as_mut().unwrap();
        // SIGKILL: no destructor runs, nothing is flushed
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// How it ended by itself, if it did.
    fn ended(&mut self) -> Option<bool> {
        self.child.as_mut().unwrap().try_wait().unwrap().map(|status| status.success())
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// All events of all lives that have this message.
    fn events(&self, message: &str) -> Vec<serde_json::Value> {
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

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().unwrap())
}

/// A, G, then the users.
fn processes(town: &Town) -> Vec<Process> {
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let mut all = Vec::new();
    for name in ["aggregator", "key-generator"] {
        let (kit, data) = (text(town.kit_folder(name)), text(town.data(name)));
        all.push(Process::new(town, name, &["serve", name, "--kit", &kit, "--data", &data]));
    }
    for (n, name) in town.users().into_iter().enumerate() {
        let (kit, data, file) =
            (text(town.kit_folder(&name)), text(town.data(&name)), text(town.path(&format!("{name}.csv"))));
        write_samples(n, town.path(&format!("{name}.csv")).as_path());
        let (seed, output) = (SEED.to_string(), text(town.path(&format!("{name}.model"))));
        let args = [
            "join",
            "--kit",
            &kit,
            "--data",
            &data,
            "--features",
            &file,
            "--seed",
            &seed,
            "--output",
            &output,
        ];
        all.push(Process::new(town, &name, &args));
    }
    all
}

#[test]
fn processes_that_are_killed_lose_nothing() {
    let rounds = setting("DPHE_KILL_ROUNDS", 8);
    let plan = Plan { users: 4, rounds, sparse: true, time: ("3s", "10s") };
    let town = Town::on_free_ports(plan);
    let mut moments = rng(setting("DPHE_KILL_SEED", 1));
    let mut below = |n: u64| moments.next_u64() % n;
    let begin = Instant::now();
    let patience = Duration::from_secs(60 + 20 * rounds);
    let mut all = processes(&town);
    let mut kills = [0u32; 3];
    let mut next_kill = Instant::now() + Duration::from_millis(500 + below(1_000));
    let mut done = vec![false; all.len()];
    while !done[2..].iter().all(|&done| done) {
        assert!(begin.elapsed() < patience, "stuck: {}", tail(&all));
        std::thread::sleep(Duration::from_millis(20));
        for (process, done) in all.iter_mut().zip(&mut done) {
            if *done {
                continue;
            }
            process.look();
            match process.ended() {
                None => {}
                // a user whose task is over
                Some(true) if process.name.starts_with("user") => *done = true,
                Some(_) => {
                    panic!("{} ended by itself:\n{}", process.name, tail(std::slice::from_ref(process)))
                }
            }
        }
        if Instant::now() >= next_kill {
            // each role as often as the others
            let role = below(3) as usize;
            let victim = if role < 2 { role } else { 2 + below(plan.users.into()) as usize };
            if !done[victim] {
                all[victim].kill();
                std::thread::sleep(Duration::from_millis(below(300)));
                all[victim].start();
                kills[role] += 1;
            }
            next_kill = Instant::now() + Duration::from_millis(200 + below(1_800));
        }
    }
    let elapsed = begin.elapsed();
    all[..2].iter_mut().for_each(Process::kill);
    check(&town, &all);
    let mut recoveries: Vec<Duration> =
        all.iter().flat_map(|process| process.recoveries.iter().copied()).collect();
    recoveries.sort();
    let at = |share: usize| recoveries[(recoveries.len() - 1) * share / 100];
    println!(
        "{rounds} rounds in {elapsed:.1?}; killed: aggregator {}, key generator {}, users {}; \
         at work again after {:.0?} (median), {:.0?} (99 of 100), {:.0?} (longest)",
        kills[0],
        kills[1],
        kills[2],
        at(50),
        at(99),
        at(100)
    );
    assert!(kills.iter().sum::<u32>() as u64 >= rounds / 2, "too few kills to say anything: {kills:?}");
}

fn tail(all: &[Process]) -> String {
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

/// What must hold of all lives together.
#[tokio::main(flavor = "current_thread")]
async fn check(town: &Town, all: &[Process]) {
    for process in all {
        let text = process.text();
        for bad in
            ["panicked", "not_mine", "rollback", "\"code\":\"conflict\"", "\"code\":\"storage\"", "error:"]
        {
            assert!(!text.contains(bad), "{}: {bad}\n{}", process.name, tail(std::slice::from_ref(process)));
        }
    }
    // one request a round was opened, over all lives of the key generator
    let mut opened: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for event in all[1].events("a sum is given out") {
        let (round, request) = (event["round"].as_u64().unwrap(), event["request"].as_str().unwrap());
        opened.entry(round).or_default().insert(request.to_owned());
    }
    assert!(!opened.is_empty());
    assert!(opened.values().all(|requests| requests.len() == 1), "two sums of one round: {opened:?}");

    // every round ended, and whoever was acknowledged is in the set that was published
    let kit = town.kit("aggregator");
    let roster = kit.roster();
    let mut store = SqliteStore::open(&town.data("aggregator")).await.unwrap();
    let messages = store.messages(Round::FIRST).await.unwrap();
    let mut published: BTreeMap<u64, BTreeMap<u32, String>> = BTreeMap::new();
    let mut endings: BTreeMap<u64, Ending> = BTreeMap::new();
    for (round, kind, bytes) in &messages {
        match *kind {
            Publish::KIND => {
                let publish: Signed<Publish> = Signed::decode(bytes, roster).unwrap();
                let users = publish.message().users.iter();
                let users = users.map(|one| (one.user.get(), one.body_hash.to_string())).collect();
                published.insert(round.get(), users);
            }
            Close::KIND => {
                let close: Signed<Close> = Signed::decode(bytes, roster).unwrap();
                endings.insert(round.get(), close.message().ending);
            }
            _ => {}
        }
    }
    let expected: Vec<u64> = (1..=town.plan.rounds).collect();
    assert_eq!(endings.keys().copied().collect::<Vec<_>>(), expected, "every round ends");
    let count = |ending| endings.values().filter(|&&found| found == ending).count();
    assert_eq!(count(Ending::Failed), 0);
    assert_eq!(count(Ending::Published), published.len());
    assert!(!published.is_empty());
    let mut acknowledged = 0;
    for event in all[0].events("acknowledged") {
        let round = event["round"].as_u64().unwrap();
        if let Some(users) = published.get(&round) {
            let user = event["user"].as_u64().unwrap() as u32;
            assert_eq!(
                users.get(&user).map(String::as_str),
                event["body"].as_str(),
                "user {user}, round {round}"
            );
            acknowledged += 1;
        }
    }
    assert!(acknowledged > 0);
    println!(
        "{} rounds published, {} given up; {acknowledged} acknowledgements, all of them kept",
        published.len(),
        count(Ending::Aborted)
    );
    // users who heard the end have the aggregator's model
    let (_, model) = store.latest_model(Round::new(town.plan.rounds + 1).unwrap()).await.unwrap().unwrap();
    for user in town.users() {
        assert!(
            std::fs::read(town.path(&format!("{user}.model"))).unwrap() == model,
            "{user} has another model"
        );
    }
}
