//! Tests of the OpenAPI descriptions: they agree with the routers and the error codes, and requests that are generated
//! from them get documented responses and no server error.
//!
//! `DPHE_API_REQUESTS` sets the number of requests to both services, during a round and after the task. The default is
//! about 600.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use dphe::{Digest, ErrorCode, PartyId};
use dphe_learn::Seed;
use dphe_service::hex;
use dphe_service::http::client::{Client, ClientError};
use dphe_service::http::openapi;
use dphe_service::http::problem::{HttpErrorCode, ProblemCode, status_of};
use dphe_service::http::server::{Limits, ShutdownSwitch, shutdown};
use dphe_service::learning::{LinearModelMaker, LinearTrainer};
use dphe_service::service::aggregator::AggregatorService;
use dphe_service::service::{ServiceOptions, key_generator, user};
use dphe_service::store::SqliteStore;
use dphe_service::tls::ClientTls;
use serde_json::Value;
use support::{Plan, SEED, Town, model_maker, samples};
use tokio::net::{TcpListener, TcpStream};

/// An aggregator and a key generator in this process.
struct Services {
    town: Town,
    switch: ShutdownSwitch,
}

async fn start(plan: Plan) -> Services {
    let bind = || TcpListener::bind("127.0.0.1:0");
    let (a, g) = (bind().await.unwrap(), bind().await.unwrap());
    let town = Town::new(plan, a.local_addr().unwrap(), g.local_addr().unwrap());
    let (switch, stop) = shutdown();
    // the rate limit would hide all other responses
    let limits = Limits { requests_per_second: 1_000_000, requests_at_once: 1_000_000, ..Limits::default() };
    let options = || ServiceOptions { limits, ..ServiceOptions::default() };
    let (kit, until, mine) = (town.kit("key-generator"), stop.clone(), options());
    let store = SqliteStore::open(&town.data("key-generator")).await.unwrap();
    tokio::spawn(async move { key_generator::run(&kit, b"", store, g, mine, until).await.unwrap() });
    let (kit, data) = (town.kit("aggregator"), town.data("aggregator"));
    let store = SqliteStore::open(&data).await.unwrap();
    let maker = LinearModelMaker::new(kit.task_file(), kit.roster().task().clone()).unwrap();
    let service = AggregatorService::start(&kit, store, &data, maker, options()).await.unwrap();
    tokio::spawn(async move { service.run(a, stop).await.unwrap() });
    Services { town, switch }
}

impl Services {
    fn client(&self, by: &str, to: PartyId) -> Client {
        let address = if to == PartyId::Aggregator { self.town.aggregator } else { self.town.key_generator };
        let kit = self.town.kit(by);
        Client::new(address.to_string(), kit.tls().client(to).unwrap(), 1 << 24)
    }

    /// Waits until the aggregator's status satisfies a condition.
    async fn status(&self, what: impl Fn(&Value) -> bool) -> Value {
        let mut client = self.client("user-1", PartyId::Aggregator);
        for _ in 0..600 {
            let answer = client.send(Method::GET, "/v1/status", None, Bytes::new(), SOON).await.unwrap();
            let status: Value = serde_json::from_slice(&answer.body).unwrap();
            if what(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the status never satisfied the condition");
    }
}

const SOON: Duration = Duration::from_secs(20);
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

fn descriptions() -> [(PartyId, Value); 2] {
    let read = |text| serde_json::from_str(text).unwrap();
    [(PartyId::Aggregator, read(openapi::AGGREGATOR)), (PartyId::KeyGenerator, read(openapi::KEY_GENERATOR))]
}

/// Returns the methods that are described for a path. GET implies HEAD.
fn methods(item: &Value) -> BTreeSet<String> {
    let described = METHODS.iter().map(Method::as_str).filter(|name| item.get(name.to_lowercase()).is_some());
    let mut methods: BTreeSet<String> = described.map(str::to_owned).collect();
    if methods.contains("GET") {
        methods.insert("HEAD".into());
    }
    methods
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openapi_describes_every_route() {
    let services = start(Plan { time: ("60s", "120s"), ..Plan::default() }).await;
    services.status(|status| status["phase"] == "collecting").await;
    let model = services.town.kit("aggregator").initial_model().unwrap();
    let digest = hex::encode(Digest::of_model(&model).as_bytes());
    let sources = [
        include_str!("../src/service/aggregator/handlers.rs"),
        include_str!("../src/service/key_generator.rs"),
    ];
    for ((service, description), source) in descriptions().into_iter().zip(sources) {
        let paths = description["paths"].as_object().unwrap();
        let routes = source.split(".route(").skip(1).map(|rest| match rest.strip_prefix('"') {
            Some(path) => path.split('"').next().unwrap(),
            None => openapi::PATH,
        });
        let described: BTreeSet<&str> = paths.keys().map(String::as_str).collect();
        assert_eq!(
            routes.collect::<BTreeSet<_>>(),
            described,
            "{service:?}: the description must list exactly the routes"
        );

        let by = if service == PartyId::Aggregator { "user-1" } else { "aggregator" };
        for (path, item) in paths {
            let methods = methods(item);
            let mut place = path.replace("{round}", "1").replace("{user}", "1").replace("{digest}", &digest);
            if path.ends_with("/next") {
                place += "?after=1";
            }
            for method in METHODS {
                let mut client = services.client(by, service);
                let answer = client.send(method.clone(), &place, None, Bytes::new(), SOON).await;
                let status = match &answer {
                    Ok(answer) => answer.status.as_u16(),
                    Err(ClientError::Problem(problem)) => problem.status,
                    // a response to HEAD has no body, so the status is in the text
                    Err(ClientError::Transport { what, .. }) if method == Method::HEAD => {
                        let digits = what.split("answered ").nth(1).unwrap();
                        digits[..3].parse().unwrap()
                    }
                    Err(error) => panic!("{method} {path}: {error}"),
                };
                if methods.contains(method.as_str()) {
                    // the only round has not ended
                    let absent = status == 404 && path != "/v1/rounds/{round}";
                    assert!(!absent && status != 405, "{method} {path}: {status}");
                    let operation = &item[method.as_str().to_lowercase()];
                    if !operation.is_null() {
                        let described = operation["responses"].get(status.to_string());
                        assert!(
                            described.is_some(),
                            "{method} {path} answers {status}, which is not described"
                        );
                    }
                } else {
                    assert_eq!(status, 405, "{method} {path} is served but not described");
                }
            }
        }
        // every party that can connect gets this description
        let all: &[&str] = if service == PartyId::Aggregator {
            &["user-1", "key-generator"]
        } else {
            &["aggregator", "key-generator"]
        };
        for by in all {
            let mut client = services.client(by, service);
            let shown = client.send(Method::GET, openapi::PATH, None, Bytes::new(), SOON).await.unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&shown.body).unwrap(), description);
        }
    }
    services.switch.stop();
}

/// All objects in a value.
fn objects<'a>(value: &'a Value, found: &mut Vec<&'a serde_json::Map<String, Value>>) {
    match value {
        Value::Object(object) => {
            found.push(object);
            object.values().for_each(|value| objects(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| objects(value, found)),
        _ => {}
    }
}

fn strings(value: &Value) -> BTreeSet<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn openapi_lists_every_error_code_with_its_status() {
    let protocol = ErrorCode::ALL.iter().map(|code| code.as_str());
    let of_http = HttpErrorCode::ALL.iter().map(|code| code.as_str());
    let all: BTreeSet<String> = protocol.chain(of_http).map(str::to_owned).collect();
    assert!(all.len() > 45, "{all:?}");
    let status = |code: &str| match ProblemCode::parse(code) {
        ProblemCode::Http(code) => code.status().as_u16(),
        ProblemCode::Protocol(code) => status_of(code).as_u16(),
        ProblemCode::Unknown => panic!("{code} is not a code"),
    };
    for (service, description) in descriptions() {
        let schemas = &description["components"]["schemas"];
        assert_eq!(strings(&schemas["Problem"]["properties"]["code"]["enum"]), all, "{service:?}");
        // every response that is a problem lists its codes, and they have its status
        let mut answers: Vec<(String, &Value)> = Vec::new();
        for (path, item) in description["paths"].as_object().unwrap() {
            for (method, operation) in
                item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters")
            {
                for (status, answer) in operation["responses"].as_object().unwrap() {
                    assert!(
                        answer.get("$ref").is_some() || answer["headers"].get("x-request-id").is_some(),
                        "{method} {path} {status}: every response has a request identifier"
                    );
                    answers.push((status.clone(), answer));
                }
            }
        }
        let shared = &description["components"]["responses"];
        for (status, name) in [("404", "NotFound"), ("405", "Method"), ("429", "Rate")] {
            answers.push((status.into(), &shared[name]));
        }
        let mut named = BTreeSet::new();
        for (number, answer) in &answers {
            let problem = &answer["content"]["application/problem+json"]["schema"];
            if problem.is_null() {
                let good = number.starts_with('2') || answer["$ref"] == "#/components/responses/Rate";
                // a response to HEAD has no body
                assert!(good || answer.get("content").is_none(), "{answer}");
                continue;
            }
            for code in strings(&problem["allOf"][1]["properties"]["code"]["enum"]) {
                assert_eq!(status(&code).to_string(), *number, "{code}");
                named.insert(code);
            }
        }
        for code in ["not_found", "method", "rate", "forbidden"] {
            assert!(named.contains(code), "{code}");
        }
        // all references resolve
        let mut found = Vec::new();
        objects(&description, &mut found);
        for reference in found.iter().filter_map(|object| object.get("$ref")?.as_str()) {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(description.pointer(pointer).is_some(), "{reference}");
        }
    }
}

/// Returns a Python that has schemathesis, if there is one.
fn python() -> Option<PathBuf> {
    let python = std::env::var_os("DPHE_TEST_PYTHON").map(PathBuf::from).filter(|python| {
        let imports = Command::new(python).args(["-c", "import schemathesis"]).stderr(Stdio::null()).status();
        imports.is_ok_and(|status| status.success())
    });
    if python.is_none() {
        println!("SKIPPED: DPHE_TEST_PYTHON names no Python that has schemathesis; run scripts/setup python");
    }
    python
}

/// A series of generated requests of a party to a service.
struct Run {
    by: &'static str,
    to: PartyId,
    round: u64,
    count: u64,
    seed: u64,
}

/// Forwards plain connections to a service over TLS, because Python's TLS does not know raw public keys.
async fn proxy(tls: ClientTls, service: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut plain, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let stream = TcpStream::connect(service).await?;
                let mut secure = tls.connect(stream).await?;
                tokio::io::copy_bidirectional(&mut plain, &mut secure).await
            });
        }
    });
    address
}

async fn requests(services: &Services, python: &std::path::Path, run: Run) -> u64 {
    let Run { by, to, round, count, seed } = run;
    let town = &services.town;
    let address = if to == PartyId::Aggregator { town.aggregator } else { town.key_generator };
    let address = proxy(town.kit(by).tls().client(to).unwrap(), address).await;
    let model = town.kit("aggregator").initial_model().unwrap();
    let user = by.strip_prefix("user-").unwrap_or("1").to_owned();
    let mut command = Command::new(python);
    command
        .arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/api.py"))
        .arg(address.to_string())
        .args([&round.to_string(), &user, &hex::encode(Digest::of_model(&model).as_bytes())])
        .args([&count.to_string(), &seed.to_string()])
        .current_dir(town.directory.path())
        .stdin(Stdio::null());
    let ended = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{said}\n{errors}");
    let said: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert!(said["failures"].as_array().unwrap().is_empty(), "{by} to {to:?}: {said:#}");
    let made = said["requests"].as_u64().unwrap();
    println!(
        "{by} to {to:?}, round {round}: {made} requests; statuses {}; codes {}; not HTTP {}; could not be sent {}; \
         could not be made {}",
        said["statuses"], said["codes"], said["bare"], said["unsent"], said["skipped"]
    );
    assert!(made >= count, "{said}");
    let statuses = said["statuses"].as_object().unwrap();
    assert!(statuses.keys().all(|status| !status.starts_with('5')), "{said}");
    assert!(statuses.contains_key("200") && statuses.keys().any(|status| status.starts_with('4')), "{said}");
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_requests_get_documented_responses() {
    let Some(python) = python() else { return };
    let count = std::env::var("DPHE_API_REQUESTS").ok().and_then(|count| count.parse().ok()).unwrap_or(600);
    let plan = Plan { rounds: 1, time: ("1h", "2h"), ..Plan::default() };
    let services = start(plan).await;
    services.status(|status| status["phase"] == "collecting").await;
    let part = u64::div_ceil(count, 8);
    let run = |by, to, round, parts: u64, seed| Run { by, to, round, count: parts * part, seed };
    let (one, two, three) = tokio::join!(
        requests(&services, &python, run("user-1", PartyId::Aggregator, 1, 2, 1)),
        requests(&services, &python, run("aggregator", PartyId::KeyGenerator, 1, 2, 2)),
        requests(&services, &python, run("key-generator", PartyId::Aggregator, 1, 1, 3)),
    );
    let mut made = one + two + three;
    let status = services.status(|_| true).await;
    assert_eq!(
        (&status["phase"], &status["round"]),
        (&"collecting".into(), &1.into()),
        "nothing has changed"
    );
    assert_eq!(status["collected"], Value::Array(Vec::new()));

    // the round continues undisturbed, with the same user
    let mut users = Vec::new();
    for (n, name) in services.town.users().into_iter().enumerate() {
        let (kit, data) = (services.town.kit(&name), services.town.data(&name));
        users.push(tokio::spawn(async move {
            let (_leave, stop) = shutdown();
            let store = SqliteStore::open(&data).await.unwrap();
            let seed = Seed::new(SEED).derive("user", n as u64);
            let task = kit.roster().task().clone();
            let trainer = LinearTrainer::new(kit.task_file(), task, samples(n), seed).unwrap();
            user::run(&kit, store, trainer, model_maker(&kit), ServiceOptions::default(), stop).await.unwrap()
        }));
    }
    for user in users {
        let summary = tokio::time::timeout(Duration::from_secs(120), user).await.expect("an end").unwrap();
        assert!(summary.over && summary.included == 1, "{summary:?}");
    }
    services.status(|status| status["over"] == true).await;
    let (one, two) = tokio::join!(
        requests(&services, &python, run("user-1", PartyId::Aggregator, 2, 2, 4)),
        requests(&services, &python, run("aggregator", PartyId::KeyGenerator, 2, 1, 5)),
    );
    made += one + two;
    println!("{made} requests in all");
    assert!(made >= count);
    services.switch.stop();
}
