//! Real processes with real disks and TLS are killed with `kill -9` at random moments. Everything that a party has
//! promised must hold over all its runs.
//!
//! `DPHE_KILL_ROUNDS` sets the number of rounds (default 8, 50 in the long run), `DPHE_KILL_SEED` the moments.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use dphe::Round;
use dphe::wire::{Close, Ending, Freeze, Kind, Publish, Signed};
use dphe_federate::GlobalWeights;
use dphe_service::model::Model;
use dphe_service::store::{Archive as _, SqliteStore};
use rand_core::Rng as _;
use support::process::{Process, processes_with, setting, tail, wait_until};
use support::{Plan, Town, rng};

#[test]
fn killed_processes_lose_nothing() {
    let rounds = setting("DPHE_KILL_ROUNDS", 8);
    let plan = Plan { users: 4, rounds, sparse: true, time: ("3s", "10s") };
    let town = Town::on_free_ports(plan);
    let mut moments = rng(setting("DPHE_KILL_SEED", 1));
    let mut below = |n: u64| moments.next_u64() % n;
    let begin = Instant::now();
    let patience = Duration::from_secs(60 + 20 * rounds);
    let mut all = processes_with(&town, &[]);
    let mut kills = [0u32; 3];
    let mut next_kill = Instant::now() + Duration::from_millis(200 + below(400));
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
                // the user has finished the task
                Some(true) if process.name.starts_with("user") => *done = true,
                Some(_) => {
                    panic!("{} ended by itself:\n{}", process.name, tail(std::slice::from_ref(process)))
                }
            }
        }
        if Instant::now() >= next_kill {
            // kill each role equally often
            let role = below(3) as usize;
            let victim = if role < 2 { role } else { 2 + below(plan.users.into()) as usize };
            if !done[victim] {
                all[victim].kill();
                std::thread::sleep(Duration::from_millis(below(300)));
                all[victim].start();
                kills[role] += 1;
            }
            next_kill = Instant::now() + Duration::from_millis(50 + below(350));
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

fn dphe(town: &Town, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(town.directory.path()).output().unwrap()
}

/// Returns the forms in which a secret could appear in a log: hexadecimal, or lists of numbers.
fn forms(secret: &[u8]) -> [String; 3] {
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let list: Vec<String> = secret.iter().map(u8::to_string).collect();
    [hex.to_uppercase(), hex, list.join(", ")]
}

#[test]
fn logs_contain_no_secrets() {
    let town = Town::on_free_ports(Plan { rounds: 2, ..Plan::default() });
    let mut canaries: Vec<String> = Vec::new();
    // before the first start, because seeds do not stay in the kit
    for party in ["aggregator", "key-generator"].map(str::to_owned).into_iter().chain(town.users()) {
        let kit = town.kit_directory(&party);
        for name in ["identity.key", "seeds.bin", "paillier.key"] {
            let Ok(bytes) = std::fs::read(kit.join(name)) else { continue };
            // every 16 secret bytes of the file; its beginning and the encryption key are public
            let from = if name == "identity.key" { 9 } else { bytes.len().saturating_sub(200) };
            canaries.extend(bytes[from..].chunks_exact(16).flat_map(forms));
            if let Ok(pem) = std::str::from_utf8(&bytes) {
                canaries.extend(pem.lines().filter(|line| !line.starts_with("--")).map(str::to_owned));
            }
        }
    }
    let mut all = processes_with(&town, &["-vv"]);
    wait_until(&mut all[2..], "the task ends", |user| user.ended().is_some());
    all[..2].iter_mut().for_each(Process::kill);
    for user in town.users() {
        // the users' samples
        let text = std::fs::read_to_string(town.path(&format!("{user}.csv"))).unwrap();
        // the first line has the column names, the last column is the class
        canaries.extend(text.lines().skip(1).flat_map(|line| line.split(',')).map(str::to_owned));
        let model = Model::read(&town.path(&format!("{user}.model"))).unwrap();
        let weights = model.weights.flat().iter().filter(|&&weight| weight != 0.0);
        canaries.extend(weights.map(|weight| format!("{weight:?}")));
    }
    canaries.retain(|canary| canary.len() >= 8);
    assert!(canaries.len() > 1_000);
    let mut lines = 0;
    for process in &all {
        let text = process.text();
        lines += text.lines().count();
        for canary in &canaries {
            assert!(!text.contains(canary.as_str()), "{} logs {canary}", process.name);
        }
    }
    println!("{} canaries, {lines} lines of logs at the finest level, none in them", canaries.len());
    assert!(lines > 30, "something was logged");
    // the search does find text that is in the log
    let task = town.kit("aggregator").roster().task().id();
    assert!(all[1].text().contains("a sum is given out") && forms(task.as_bytes())[1] == task.to_string());
}

#[test]
fn status_metrics_shutdown_and_verify_work_on_running_parties() {
    let town = Town::on_free_ports(Plan { rounds: 2, ..Plan::default() });
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut all = processes_with(&town, &[]);
    all[0].kill();
    all[0].args.extend(["--observe".to_owned(), free.clone()]);
    all[0].start();
    wait_until(&mut all[..2], "they start", |process| {
        process.look();
        !process.waiting
    });
    // a second process on the same data directory is refused, and the first continues
    let data = town.data("aggregator");
    let second = ["serve", "aggregator", "--kit", "kits/aggregator", "--data", data.to_str().unwrap()];
    let second = dphe(&town, &second);
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && error.contains("in use by another process"), "{error}");
    assert!(error.contains("hint: Stop the other process"), "{error}");

    wait_until(&mut all[2..], "the task ends", |user| user.ended().is_some());
    let status = dphe(&town, &["status", "--kit", "kits/aggregator", "--format", "json"]);
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((status[0]["over"].as_bool(), status[0]["round"].as_u64()), (Some(true), Some(3)));
    assert_eq!(status[1]["party"], "key-generator");
    let doctor = dphe(&town, &["doctor", "--kit", "kits/user-1"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("ok    peer") && doctor.contains("ok    clock"), "{doctor}");
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(&free).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(get("/healthz").starts_with("HTTP/1.1 200") && get("/readyz").contains("ready"));
    let figures = get("/metrics");
    assert!(figures.contains("dphe_rounds_total{ending=\"published\"} 2"), "{figures}");

    // SIGTERM stops the services
    for process in &mut all[..2] {
        let pid = process.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }
    wait_until(&mut all[..2], "they stop", |process| process.ended().is_some());
    assert!(all[..2].iter_mut().all(|process| process.ended() == Some(true)));

    // the stored data is valid, and tampered data is not
    let verify = |party: &str| {
        let (kit, data) = (town.kit_directory(party), town.data(party));
        dphe(&town, &["verify", "--kit", kit.to_str().unwrap(), "--data", data.to_str().unwrap()])
    };
    for party in ["aggregator", "key-generator", "user-1"] {
        let output = verify(party);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("ok    log"), "{party}: {text}");
        assert_eq!(text.contains("ok    round 2"), party != "key-generator", "{text}");
    }
    tamper(&town);
    let output = verify("aggregator");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && text.contains("bad   round 1"), "{text}");
    assert!(text.contains("the stored sum is not the published one"), "{text}");
}

/// Changes the last byte of the first published sum.
#[tokio::main(flavor = "current_thread")]
async fn tamper(town: &Town) {
    let mut store = SqliteStore::open(&town.data("aggregator")).await.unwrap();
    let messages = store.messages(Round::FIRST).await.unwrap();
    let (round, kind, mut bytes) =
        messages.into_iter().find(|(_, kind, _)| *kind == Kind::Publish.number()).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    store.put_message(round, kind, &bytes).await.unwrap();
    store.close().await.unwrap();
}

/// Checks the invariants over all runs of all processes.
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
    // one request per round was opened, over all runs of the key generator
    let mut opened: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for event in all[1].events("a sum is given out") {
        let (round, request) = (event["round"].as_u64().unwrap(), event["request"].as_str().unwrap());
        opened.entry(round).or_default().insert(request.to_owned());
    }
    assert!(!opened.is_empty());
    assert!(opened.values().all(|requests| requests.len() == 1), "two sums of one round: {opened:?}");

    // every round ended, and every user that was acknowledged is a participant
    let kit = town.kit("aggregator");
    let roster = kit.roster();
    let mut store = SqliteStore::open(&town.data("aggregator")).await.unwrap();
    let messages = store.messages(Round::FIRST).await.unwrap();
    let mut published: BTreeMap<u64, BTreeMap<u32, String>> = BTreeMap::new();
    let mut endings: BTreeMap<u64, Ending> = BTreeMap::new();
    let mut listed: BTreeMap<u64, BTreeMap<u32, String>> = BTreeMap::new();
    for (round, kind, bytes) in &messages {
        match Kind::from_number(*kind).unwrap() {
            Kind::Freeze => {
                let freeze: Signed<Freeze> = Signed::decode(bytes, roster).unwrap();
                let users = freeze.message().users.iter();
                let users = users.map(|one| (one.user.get(), one.body_hash.to_string())).collect();
                listed.insert(round.get(), users);
            }
            Kind::Publish => {
                let publish: Signed<Publish> = Signed::decode(bytes, roster).unwrap();
                assert!(publish.message().check_result(roster, *round).is_ok());
                published.insert(round.get(), listed.remove(&round.get()).unwrap());
            }
            Kind::Close => {
                let close: Signed<Close> = Signed::decode(bytes, roster).unwrap();
                endings.insert(round.get(), close.message().ending);
            }
            _ => {}
        }
    }
    let count = |ending| endings.values().filter(|&&found| found == ending).count();
    // another round takes the place of an aborted one
    let last = town.plan.rounds + count(Ending::Aborted) as u64;
    let expected: Vec<u64> = (1..=last).collect();
    assert_eq!(endings.keys().copied().collect::<Vec<_>>(), expected, "every round ends");
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
        "{} rounds published, {} aborted; {acknowledged} acknowledgements, all kept",
        published.len(),
        count(Ending::Aborted)
    );
    // users that finished have the aggregator's model
    let (_, model) = store.latest_model(Round::new(last + 1).unwrap()).await.unwrap().unwrap();
    let weights = GlobalWeights::from_bytes(&model).unwrap();
    for user in town.users() {
        let kept = Model::read(&town.path(&format!("{user}.model"))).unwrap();
        assert!(kept.weights == *weights, "{user} has another model");
    }
}
