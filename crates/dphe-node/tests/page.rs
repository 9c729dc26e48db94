//! The page to watch a task on, in a real browser: it grows with the rounds, says what went wrong, and works in the dark,
//! on a telephone and by keyboard. Screenshots are put into `target/page`.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dphe_learn::Seed;
use dphe_node::http::server::{ShutdownSwitch, shutdown};
use dphe_node::learning::{LinearModelMaker, LinearTrainer};
use dphe_node::service::aggregator::AggregatorService;
use dphe_node::service::{ServiceOptions, key_generator, user};
use dphe_node::store::SqliteStore;
use serde_json::Value;
use support::{Plan, SEED, Town, samples};
use tokio::net::TcpListener;

/// What the task is watched with, if it is there.
fn python() -> Option<PathBuf> {
    let python = std::env::var_os("DPHE_TEST_PYTHON").map(PathBuf::from);
    let chromium = ["chromium", "chromedriver"].iter().all(|name| {
        Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    });
    match python {
        Some(python) if chromium => Some(python),
        _ => {
            println!(
                "SKIPPED: needs chromium, chromedriver and DPHE_TEST_PYTHON with selenium (scripts/test has them)"
            );
            None
        }
    }
}

/// The browser, which ends with this.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Services in this process.
struct Running {
    town: Town,
    page: String,
    switch: ShutdownSwitch,
    /// Each user can leave alone.
    users: Vec<ShutdownSwitch>,
}

async fn start(plan: Plan) -> Running {
    let bind = || TcpListener::bind("127.0.0.1:0");
    let (a, g, observe) = (bind().await.unwrap(), bind().await.unwrap(), bind().await.unwrap());
    let town = Town::new(plan, a.local_addr().unwrap(), g.local_addr().unwrap());
    let page = format!("http://{}/", observe.local_addr().unwrap());
    let (switch, stop) = shutdown();

    let (kit, until) = (town.kit("key-generator"), stop.clone());
    let store = SqliteStore::open(&town.data("key-generator")).await.unwrap();
    tokio::spawn(
        async move { key_generator::run(&kit, b"", store, g, ServiceOptions::default(), until).await },
    );
    let (kit, data) = (town.kit("aggregator"), town.data("aggregator"));
    let store = SqliteStore::open(&data).await.unwrap();
    let maker = LinearModelMaker::new(kit.task_file(), kit.roster().task().clone()).unwrap();
    let maker = maker.with_held_out_data(samples(100));
    let options = ServiceOptions { observe: Some(observe), ..ServiceOptions::default() };
    let service = AggregatorService::start(&kit, store, &data, maker, options).await.unwrap();
    tokio::spawn(service.run(a, stop));

    let mut users = Vec::new();
    for (n, name) in town.users().into_iter().enumerate() {
        let (kit, data) = (town.kit(&name), town.data(&name));
        let (leave, stop) = shutdown();
        users.push(leave);
        tokio::spawn(async move {
            let store = SqliteStore::open(&data).await.unwrap();
            let seed = Seed::new(SEED).derive("user", n as u64);
            let task = kit.roster().task().clone();
            let trainer = LinearTrainer::new(kit.task_file(), task, samples(n), seed).unwrap();
            user::run(&kit, store, trainer, ServiceOptions::default(), stop).await.unwrap()
        });
    }
    Running { town, page, switch, users }
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_are_watched_in_a_browser() {
    let Some(python) = python() else { return };
    let plan = Plan { users: 4, rounds: 10_000, sparse: true, time: ("1s", "3s") };
    let Running { town, page, switch, mut users } = start(plan).await;
    let token = town.kit("aggregator").watch_token().unwrap().unwrap();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/page");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/page.py");
    let mut browser = Command::new(python)
        .arg(script)
        .args([&page, &*token])
        .arg(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map(Browser)
        .unwrap();
    let mut input = browser.0.stdin.take().unwrap();
    let mut lines = BufReader::new(browser.0.stdout.take().unwrap()).lines();
    let mut next = move |step: &str| -> Value {
        let line = lines.next().expect("the browser goes on").unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(said["step"], step, "{said}");
        said
    };
    let watching = tokio::task::spawn_blocking(move || {
        let login = next("login");
        assert_eq!(login["stranger"], true, "nothing is shown before the login");
        let live = next("live");
        assert_eq!(live["untouched"], true, "the page was not loaded again");
        let curves = live["curves"].as_array().unwrap();
        let names: Vec<&str> = curves.iter().map(|curve| curve[0].as_str().unwrap()).collect();
        assert_eq!(names, ["Accuracy", "Sparsity and singles", "Seconds a step", "Bytes uploaded"]);
        assert!(curves.iter().all(|curve| curve[1].as_u64().unwrap() >= 3), "{live}");
        let text = live["users"].as_str().unwrap();
        assert!(text.contains("user 4"), "{text}");
        println!("rounds seen growing: {}", live["seen"]);

        // too few are left for a sum
        users.truncate(2);
        input.write_all(b"\n").unwrap();
        let failed = next("failed");
        let problems = failed["problems"].as_str().unwrap();
        assert!(problems.contains("of at least 3 users came before the deadline"), "{problems}");
        let phone = next("phone");
        assert!(phone["widths"][0].as_u64() <= phone["widths"][1].as_u64(), "{phone}");
        let keyboard = next("keyboard")["reached"].to_string();
        assert!(["skip", "rounds", "problems"].iter().all(|name| keyboard.contains(name)), "{keyboard}");
        let end = next("end");
        assert_eq!(end["errors"].as_array().unwrap().len(), 0, "{end}");
        assert!(browser.0.wait().unwrap().success());
    });
    tokio::time::timeout(Duration::from_secs(240), watching)
        .await
        .expect("it does not take for ever")
        .unwrap();
    for name in ["login", "light", "dark", "phone"] {
        let picture = folder.join(format!("{name}.png"));
        assert!(picture.metadata().unwrap().len() > 10_000, "{}", picture.display());
    }
    switch.stop();
}
