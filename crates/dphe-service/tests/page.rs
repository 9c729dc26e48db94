//! The dashboard in a real browser: it follows the rounds, shows problems, and works in dark mode, on a phone and
//! with the keyboard. Screenshots are written to `target/page`.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dphe_learn::Seed;
use dphe_service::http::server::{ShutdownSwitch, shutdown};
use dphe_service::learning::{LinearModelMaker, LinearTrainer};
use dphe_service::service::aggregator::AggregatorService;
use dphe_service::service::{ServiceOptions, key_generator, user};
use dphe_service::store::SqliteStore;
use serde_json::Value;
use support::{Plan, SEED, Town, model_maker, samples};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Returns a Python that has Selenium, if there is one.
fn python() -> Option<PathBuf> {
    let python = std::env::var_os("DPHE_TEST_PYTHON").map(PathBuf::from);
    let chromium = ["chromium", "chromedriver"].iter().all(|name| {
        Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    });
    match python {
        Some(python) if chromium => Some(python),
        _ => {
            println!(
                "SKIPPED: there is no chromium, chromedriver or DPHE_TEST_PYTHON with selenium; run scripts/setup"
            );
            None
        }
    }
}

/// The browser process. It is killed on drop.
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
    /// The stop switch of each user.
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
            user::run(&kit, store, trainer, model_maker(&kit), ServiceOptions::default(), stop).await.unwrap()
        });
    }
    Running { town, page, switch, users }
}

#[tokio::test(flavor = "multi_thread")]
async fn dashboard_shows_rounds_live_in_a_browser() {
    let Some(python) = python() else { return };
    let plan = Plan { users: 4, rounds: 10_000, sparse: true, time: ("1s", "3s") };
    let Running { town, page, switch, mut users } = start(plan).await;
    let token = town.kit("aggregator").dashboard_token().unwrap().unwrap();
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/page");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/page.py");
    let mut browser = Command::new(python)
        .arg(script)
        .args([&page, &*token])
        .arg(&directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map(Browser)
        .unwrap();
    let mut input = browser.0.stdin.take().unwrap();
    let mut lines = BufReader::new(browser.0.stdout.take().unwrap()).lines();
    let mut next = move |step: &str| -> Value {
        let line = lines.next().expect("the browser must continue").unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(said["step"], step, "{said}");
        said
    };
    let watching = tokio::task::spawn_blocking(move || {
        let login = next("login");
        assert_eq!(login["stranger"], true, "nothing must be shown before the login");
        let live = next("live");
        assert_eq!(live["untouched"], true, "the page must not be reloaded");
        let curves = live["curves"].as_array().unwrap();
        let names: Vec<&str> = curves.iter().map(|curve| curve[0].as_str().unwrap()).collect();
        assert_eq!(names, ["Accuracy", "Sparsity and singles", "Seconds per step", "Bytes uploaded"]);
        assert!(curves.iter().all(|curve| curve[1].as_u64().unwrap() >= 3), "{live}");
        let text = live["users"].as_str().unwrap();
        assert!(text.contains("user 4"), "{text}");
        println!("rounds seen growing: {}", live["seen"]);

        // fewer users than the floor remain
        users.truncate(2);
        input.write_all(b"\n").unwrap();
        let failed = next("failed");
        let problems = failed["problems"].as_str().unwrap();
        assert!(problems.contains("of at least 3 users uploaded before the deadline"), "{problems}");
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
        .expect("the test must end in time")
        .unwrap();
    for name in ["login", "light", "dark", "phone"] {
        let picture = directory.join(format!("{name}.png"));
        assert!(picture.metadata().unwrap().len() > 10_000, "{}", picture.display());
    }
    switch.stop();
}

/// Returns head and body of a response. A stream is read for a while only.
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

#[test]
fn dashboard_token_of_an_old_kit_is_read() {
    let town = Town::on_free_ports(Plan::default());
    let (kit, path) = (town.kit("aggregator"), town.kit_directory("aggregator"));
    let token = kit.dashboard_token().unwrap().unwrap();
    std::fs::rename(path.join("dashboard.token"), path.join("watch.token")).unwrap();
    assert_eq!(kit.dashboard_token().unwrap().unwrap(), token);
    std::fs::remove_file(path.join("watch.token")).unwrap();
    assert!(kit.dashboard_token().unwrap().is_none(), "without a token there is no dashboard");
}

#[tokio::test(flavor = "multi_thread")]
async fn dashboard_shows_nothing_without_the_token() {
    let running = start(Plan { time: ("1s", "60s"), ..Plan::default() }).await;
    let (page, kit) = (&running.page, running.town.kit("aggregator"));
    let (token, task) = (kit.dashboard_token().unwrap().unwrap(), kit.roster().task().id().to_string());
    for cookie in [
        "",
        "dphe-dashboard-01010101=",
        "dphe-dashboard-01010101=0000",
        &format!("dphe-dashboard-01010101={}", *token),
    ] {
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
    // a second login has a cookie of its own, and a logout ends one session only
    let answer = ask(page, &post(&format!("token={}", *token))).await;
    let second = answer.split("set-cookie: ").nth(1).unwrap().split(';').next().unwrap().to_owned();
    assert_ne!(second, cookie);
    let logout = "POST /logout HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0";
    let answer = ask(page, &format!("{logout}\r\ncookie: {cookie}\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 303") && answer.contains("Max-Age=0"), "{answer}");
    assert!(ask(page, &get("/", cookie)).await.contains("<form id=\"login\""));
    assert!(ask(page, &get("/events", cookie)).await.starts_with("HTTP/1.1 403"));
    assert!(ask(page, &get("/", &second)).await.contains("user 1"));
    let foreign = format!("{logout}\r\nsec-fetch-site: cross-site\r\ncookie: {second}\r\n\r\n");
    assert!(ask(page, &foreign).await.starts_with("HTTP/1.1 403"));
    assert!(ask(page, &get("/", &second)).await.contains("user 1"), "another site cannot log out");
    // metrics need no token and reveal nothing about users
    assert!(ask(page, &get("/metrics", "")).await.contains("dphe_round "));
    running.switch.stop();
}

#[tokio::test]
async fn dashboard_is_off_on_addresses_other_than_loopback() {
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
    for path in ["/", "/login", "/events", "/dashboard.js"] {
        assert!(ask(&page, &get(path, "")).await.starts_with("HTTP/1.1 404"), "{path}");
    }
    switch.stop();
}
