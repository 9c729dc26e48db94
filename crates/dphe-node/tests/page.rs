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
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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

/// What the page's address answers, head and body; an answer that never ends is cut after a while.
async fn ask(page: &str, request: &str) -> String {
    let address = page.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(2), stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(path: &str, cookie: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\ncookie: {cookie}\r\nconnection: close\r\n\r\n")
}

fn post(form: &str) -> String {
    let length = form.len();
    let head = "POST /login HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/x-www-form-urlencoded";
    format!("{head}\r\ncontent-length: {length}\r\n\r\n{form}")
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_token_sees_nothing() {
    let running = start(Plan { time: ("1s", "60s"), ..Plan::default() }).await;
    let (page, kit) = (&running.page, running.town.kit("aggregator"));
    let (token, task) = (kit.watch_token().unwrap().unwrap(), kit.roster().task().id().to_string());
    for cookie in
        ["", "dphe-watch-01010101=", "dphe-watch-01010101=0000", &format!("dphe-watch-01010101={}", *token)]
    {
        let answer = ask(page, &get("/", cookie)).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("<form id=\"login\""), "{answer}");
        assert!(!answer.contains(&task) && !answer.contains("user 1"), "{answer}");
        let answer = ask(page, &get("/events", cookie)).await;
        assert!(answer.starts_with("HTTP/1.1 403") && !answer.contains("text/event-stream"), "{answer}");
    }
    for form in ["", "token=", "token=wrong", "x=1&y", "token=%00%ff"] {
        let answer = ask(page, &post(form)).await;
        assert!(answer.starts_with("HTTP/1.1 401") && !answer.contains("set-cookie"), "{answer}");
    }
    assert!(ask(page, &post(&"x".repeat(5000))).await.starts_with("HTTP/1.1 413"));

    let answer = ask(page, &post(&format!("token={}", *token))).await;
    assert!(answer.starts_with("HTTP/1.1 303") && answer.contains("\r\nlocation: /\r\n"), "{answer}");
    let cookie = answer.split("set-cookie: ").nth(1).unwrap().split(';').next().unwrap();
    let answer = ask(page, &get("/", cookie)).await;
    assert!(answer.contains(&task) && answer.contains("user 1") && !answer.contains(&*token), "{answer}");
    for header in [
        "content-security-policy: default-src 'none'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
    ] {
        assert!(answer.contains(header), "{answer}");
    }
    let news = ask(page, &get("/events", cookie)).await;
    assert!(news.contains("text/event-stream") && news.contains("data: {"), "{news}");
    // figures need no token, and tell nothing of users
    assert!(ask(page, &get("/metrics", "")).await.contains("dphe_round "));
    running.switch.stop();
}

#[tokio::test]
async fn tokens_do_not_cross_the_network() {
    let bind = |address: &'static str| TcpListener::bind(address);
    let (a, g, observe) = (
        bind("127.0.0.1:0").await.unwrap(),
        bind("127.0.0.1:0").await.unwrap(),
        bind("0.0.0.0:0").await.unwrap(),
    );
    let town = Town::new(Plan::default(), a.local_addr().unwrap(), g.local_addr().unwrap());
    let page = format!("http://127.0.0.1:{}/", observe.local_addr().unwrap().port());
    let (kit, data, (switch, stop)) = (town.kit("aggregator"), town.data("aggregator"), shutdown());
    let store = SqliteStore::open(&data).await.unwrap();
    let maker = LinearModelMaker::new(kit.task_file(), kit.roster().task().clone()).unwrap();
    let options = ServiceOptions { observe: Some(observe), ..ServiceOptions::default() };
    let service = AggregatorService::start(&kit, store, &data, maker, options).await.unwrap();
    tokio::spawn(service.run(a, stop));
    assert!(ask(&page, &get("/healthz", "")).await.starts_with("HTTP/1.1 200"));
    for path in ["/", "/login", "/events", "/watch.js"] {
        assert!(ask(&page, &get(path, "")).await.starts_with("HTTP/1.1 404"), "{path}");
    }
    switch.stop();
}
