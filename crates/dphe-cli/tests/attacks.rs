//! Attacks of single parties against real processes. Each test says what is attempted and what the others do about it.
//! What an attack would reveal without the defence, `dphe/tests/deviation.rs` shows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse as _;
use bytes::Bytes;
use dphe::hazmat::{open_upload, sign, start_user, with_task};
use dphe::party::log::LogPoint;
use dphe::party::{Action, PartyContext, Time, UserEvent};
use dphe::wire::{
    Close, Decrypt, Ending, Freeze, Inclusion, Kind, LastOutcome, Message, Publish, RoundOpen, RoundTicket,
    Signed, Upload, decode_list, encode_list,
};
use dphe::{
    Digest, PartyId, PublicSupport, Round, SparseVector, TaskConfig, TaskParams, Threads, Update, UserId,
};
use dphe_federate::GlobalWeights;
use dphe_learn::Weights;
use dphe_service::http::client::{Client, ClientError};
use dphe_service::http::problem::HttpErrorCode;
use dphe_service::http::server::{Limits, serve_tls, shutdown};
use dphe_service::service::user::aggregator_client::AggregatorClient;
use dphe_service::store::{Archive as _, SqliteStore};
use dphe_service::telemetry::Metrics;
use support::middle::{Deceit, Deceived, Messages, kind_of};
use support::process::{Process, processes_with, tail, user_with, users_with, wait_until};
use support::{Plan, Town, rng, write_samples};
use tokio::runtime::Runtime;

const SOON: Duration = Duration::from_secs(20);

fn dphe(town: &Town, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(town.directory.path()).output().unwrap()
}

/// Runs `dphe verify` with a user's kit and data, and returns whether everything is valid, and what it says.
fn verify(town: &Town, user: &str, more: &[&str]) -> (bool, String) {
    let (kit, data) = (format!("kits/{user}"), format!("data/{user}"));
    let output = dphe(town, &[&["verify", "--kit", &kit, "--data", &data], more].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("$ dphe verify --kit {kit} {}\n{said}", more.join(" "));
    (output.status.success(), said)
}

/// Prints the lines of a log that contain a word, so that a reader sees what the operator sees.
fn show(process: &Process, word: &str) {
    let text = process.text();
    let line = text.lines().rev().find(|line| line.contains(word));
    println!(
        "{}: {}",
        process.name,
        line.unwrap_or_else(|| panic!("{word}: {}", tail(std::slice::from_ref(process))))
    );
}

fn ended(all: &mut [Process]) -> Vec<bool> {
    wait_until(all, "the users end", |user| user.ended().is_some());
    all.iter_mut().map(|user| user.ended().unwrap()).collect()
}

/// A thief of the aggregator's identity, or the aggregator itself, talks to the key generator.
struct ToGenerator {
    runtime: Runtime,
    client: Client,
    messages: Messages,
}

impl ToGenerator {
    fn new(town: &Town) -> Self {
        let tls = town.kit("aggregator").tls().client(PartyId::KeyGenerator).unwrap();
        let client = Client::new(town.key_generator.to_string(), tls, 1 << 24);
        Self { runtime: Runtime::new().unwrap(), client, messages: Messages::new(town) }
    }

    /// Sends a message, and returns the code of the refusal.
    fn refused<M: Message>(&mut self, round: Round, message: M, body: &[u8]) -> String {
        let bytes = self.messages.sign(round, message, body.to_vec());
        let send =
            self.client.send(Method::POST, "/v1/messages", Some(M::KIND.media_type()), bytes.into(), SOON);
        match self.runtime.block_on(send) {
            Err(ClientError::Problem(problem)) => {
                println!("to the aggregator: {}: {}", problem.code, problem.detail);
                problem.code.to_string()
            }
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, round: Round, model: Digest) -> String {
        let roster = self.messages.kit().roster().clone();
        let open = RoundOpen {
            model,
            policy: roster.task().policy_hash(),
            roster: roster.hash(),
            support: PublicSupport::of(roster.task(), round).digest(),
            deadline: 1_000,
            nonce: [7; 16],
        };
        self.refused(round, open, &[])
    }
}

fn archived(town: &Town, round: u64, kind: Kind) -> Option<Vec<u8>> {
    let data = town.data("aggregator");
    let read = async { SqliteStore::open(&data).await.unwrap().messages(Round::FIRST).await.unwrap() };
    let all = Runtime::new().unwrap().block_on(read);
    all.into_iter()
        .find(|(of, number, _)| of.get() == round && *number == kind.number())
        .map(|(.., bytes)| bytes)
}

fn round(number: u64) -> Round {
    Round::new(number).unwrap()
}

/// Attack 1. Rounds used to cost the aggregator nothing, so that it could have recorded uploads opened one by one after
/// the task.
#[test]
fn extra_round_after_the_task_is_refused_by_the_key_generator() {
    let town = Town::on_free_ports(Plan { rounds: 1, ..Plan::default() });
    let mut all = processes_with(&town, &[]);
    assert_eq!(ended(&mut all[2..]), [true; 3]);
    all[0].kill();
    let mut aggregator = ToGenerator::new(&town);
    let model = Digest::of_model(&town.kit("aggregator").initial_model().unwrap());
    for _ in 0..2 {
        assert_eq!(aggregator.open(round(2), model), "rounds");
        // a restart does not help
        all[1].kill();
        all[1].start();
        wait_until(&mut all[1..2], "it starts", is_ready);
    }
    show(&all[1], "refused");
}

/// Attack 1, during the task. The list of the first round is frozen again in the second, with its signatures.
#[test]
fn recorded_uploads_are_refused_in_a_later_round_and_no_round_is_shorter_than_its_least_time() {
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let plan = Plan { rounds: 2, ..Plan::default() };
    let town = Town::edited(plan, free(), free(), |text| {
        assert!(text.contains("# least = \"10s\""));
        text.replace("# least = \"10s\"", "least = \"5s\" #")
    });
    let mut all = processes_with(&town, &[]);
    let begins = |process: &mut Process| {
        let states = process.events("state");
        states.iter().any(|state| state["round"] == 2 && state["phase"] == "collecting")
    };
    wait_until(&mut all[..1], "the second round begins", begins);
    let begin = Instant::now();
    all[0].kill();
    all[2..].iter_mut().for_each(Process::kill);

    let mut aggregator = ToGenerator::new(&town);
    let read = |number, kind| archived(&town, number, kind).unwrap();
    let ticket: Signed<RoundTicket> = aggregator.messages.read(&read(2, Kind::RoundTicket)).unwrap();
    let recorded: Signed<Freeze> = aggregator.messages.read(&read(1, Kind::Freeze)).unwrap();
    let freeze = Freeze { ticket: ticket.hash(), attempt: 1, ..recorded.message().clone() };
    assert_eq!(aggregator.refused(round(2), freeze.clone(), &[]), "early");
    show(&all[1], "early");
    std::thread::sleep(Duration::from_secs(5).saturating_sub(begin.elapsed()) + Duration::from_millis(500));
    assert_eq!(aggregator.refused(round(2), freeze.clone(), &[]), "signature");
    show(&all[1], "signature");
    // without a freeze, nothing is decrypted
    let request = Decrypt { freeze: recorded.hash(), occupied: 0, sum_hash: freeze.sum_hash };
    assert_eq!(aggregator.refused(round(2), request, &[]), "order");
    assert_eq!(all[1].events("a sum is given out").len(), 1);
}

/// Attack 2. The key generator hands out the aggregator's address, and listens there itself.
#[test]
fn user_does_not_talk_to_a_key_generator_in_the_place_of_the_aggregator() {
    let runtime = Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let town = Town::new(Plan::default(), address, address);
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let router = Router::new().fallback(async move || {
        count.fetch_add(1, Ordering::Relaxed);
        StatusCode::OK
    });
    let (_switch, stop) = shutdown();
    let tls = town.kit("key-generator").tls().server(|_| true).unwrap();
    runtime.spawn(serve_tls(listener, tls, router, Limits::default(), Arc::new(Metrics::default()), stop));
    let mut users = users_with(&town, &["-vv"]);
    wait_until(&mut users, "they notice", |user| user.text().matches("has another identity").count() >= 2);
    show(&users[0], "has another identity");
    assert_eq!(requests.load(Ordering::Relaxed), 0, "nothing was sent");
}

/// Attack 2. A proxy that ends TLS in the aggregator's place sees bodies that are encrypted to the aggregator.
#[test]
fn proxy_that_ends_tls_sees_only_bodies_that_the_key_generator_cannot_open() {
    let told = Deceit::new(Plan { rounds: 1, ..Plan::default() }, |_, _, messages| messages);
    let Deceived { town, middle, mut all } = told.start();
    assert_eq!(ended(&mut all[2..]), [true; 3], "{}", tail(&all));
    let uploads = middle.uploads.lock().unwrap();
    assert_eq!(uploads.len(), 3);
    let kit = town.kit("aggregator");
    let key_of = |party: &str| town.kit(party).identity().unwrap().agreement_key();
    for upload in &*uploads {
        let upload: Signed<Upload> = Signed::decode(upload, kit.roster()).unwrap();
        let content = open_upload(&key_of("aggregator"), kit.roster(), &upload).unwrap();
        assert_eq!(content.len() + 48, upload.body().len());
        assert!(upload.body().windows(32).all(|bytes| bytes != &content[..32]));
        for other in ["key-generator", "user-1", "user-2", "user-3"] {
            let error = open_upload(&key_of(other), kit.roster(), &upload).unwrap_err();
            assert_eq!(error.code().as_str(), "body", "{other}");
        }
    }
}

/// Signs a publish message again after a change.
fn republish(
    messages: &Messages,
    message: &[u8],
    change: impl FnOnce(&mut Publish, &mut Vec<u8>),
) -> Vec<u8> {
    let publish: Signed<Publish> = messages.read(message).unwrap();
    let (mut fields, mut body) = (publish.message().clone(), publish.body().to_vec());
    change(&mut fields, &mut body);
    messages.sign(publish.round(), fields, body)
}

fn change_publish(
    messages: &Messages,
    told: Vec<Vec<u8>>,
    change: impl Fn(&mut Publish, &mut Vec<u8>),
) -> Vec<Vec<u8>> {
    let one = |message: Vec<u8>| match kind_of(&message) {
        Kind::Publish => republish(messages, &message, &change),
        _ => message,
    };
    told.into_iter().map(one).collect()
}

/// Attack 3. User 2 is told another model, and user 3 another sum, under the same signed result.
#[test]
fn another_model_or_sum_for_one_user_is_noticed_by_that_user_and_by_verify() {
    let deceit = Deceit::new(Plan { rounds: 1, ..Plan::default() }, |messages, user, told| match user {
        2 => change_publish(messages, told, |publish, _| publish.model = Digest::of_model(b"another model")),
        3 => change_publish(messages, told, |publish, body| {
            body[300] ^= 1;
            publish.sum_hash = Digest::of_sum_bytes(body);
        }),
        _ => told,
    });
    let Deceived { town, middle: _middle, mut all } = deceit.start();
    assert_eq!(ended(&mut all[2..]), [true, false, false], "{}", tail(&all));
    show(&all[3], "the aggregator published another model");
    show(&all[4], "\"code\":\"check\"");
    all[2..].iter().for_each(|user| show(user, if user.name == "user-1" { "history" } else { "error: " }));

    // what they kept shows it, and a member whom the aggregator told the truth has another history
    let (good, said) = verify(&town, "user-1", &["--export", "one.json"]);
    // its seeds of the round are forgotten
    assert!(good && said.contains("ok    round 1      published, 3 users, sum only chained"), "{said}");
    let (good, said) = verify(&town, "user-2", &["--compare", "one.json"]);
    assert!(!good && said.contains("the published model does not follow from the sum"), "{said}");
    assert!(said.contains("bad   compared     user-1 has another round 1: history, model"), "{said}");
    let (good, said) = verify(&town, "user-3", &[]);
    assert!(!good && said.contains("the published sum cannot be used"), "{said}");
    // the aggregator tells them the same lie again
    let (good, said) = verify(&town, "user-1", &["--from-aggregator", "--compare", "one.json"]);
    assert!(good && said.contains("ok    own log") && said.contains("ok    compared"), "{said}");
    let (good, said) = verify(&town, "user-2", &["--from-aggregator"]);
    assert!(!good && said.contains("the published model does not follow from the sum"), "{said}");
}

/// An unchanged model would let the aggregator have sums of more sets opened on it.
#[test]
fn unchanged_model_is_noticed_by_every_user() {
    let deceit = Deceit::new(Plan { rounds: 1, ..Plan::default() }, |messages, _, told| {
        let model = messages.kit().roster().initial_model();
        change_publish(messages, told, |publish, _| publish.model = model)
    });
    let Deceived { town: _town, middle: _middle, mut all } = deceit.start();
    assert_eq!(ended(&mut all[2..]), [false; 3], "{}", tail(&all));
    all[2..].iter().for_each(|user| show(user, "the aggregator published another model"));
}

/// An aggregator that withholds the end of a round and sends a ticket for the next one, or sends a ticket with another
/// model, and then says that the task is over. It serves the model of its choice.
fn user_of_false_ticket(number: u64) -> (Vec<u8>, Vec<u8>, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let town = Town::new(Plan { rounds: 2, ..Plan::default() }, address, address);
    let (kit, generator) = (town.kit("aggregator"), town.kit("key-generator"));
    let (roster, initial) = (kit.roster().clone(), kit.initial_model().unwrap());
    let weights = GlobalWeights::from_bytes(&initial).unwrap().into_weights();
    let flat = weights.flat().iter().map(|weight| weight + 1.0).collect();
    let chosen = Weights::new(weights.features(), flat, weights.intercepts().to_vec()).unwrap();
    let chosen = GlobalWeights::new(chosen).to_bytes();
    let ticket = RoundTicket {
        open: Digest::from_bytes([0; 32]),
        model: Digest::of_model(&chosen),
        policy: roster.task().policy_hash(),
        roster: roster.hash(),
        support: PublicSupport::of(roster.task(), round(number)).digest(),
        deadline: 1_000,
        history: Digest::from_bytes([0; 32]),
        last: LastOutcome::None,
        log: LogPoint { seq: 0, head: Digest::from_bytes([0; 32]) },
    };
    let (identity, task) = (generator.identity().unwrap(), roster.task().id());
    let ticket = sign(&identity, task, PartyId::KeyGenerator, round(number), ticket, Vec::new());
    let polls = Arc::new(AtomicUsize::new(0));
    let (list, model) = (encode_list(&[ticket]), chosen);
    let router = Router::new().fallback(async move |request: Request| {
        if request.uri().path().starts_with("/v1/models/") {
            return model.clone().into_response();
        }
        match polls.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => list.clone().into_response(),
            _ => HttpErrorCode::TaskOver.because("all rounds are over").into_response(),
        }
    });
    let runtime = Runtime::new().unwrap();
    let (_switch, stop) = shutdown();
    let tls = kit.tls().server(|_| true).unwrap();
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        serve_tls(listener, tls, router, Limits::default(), Arc::new(Metrics::default()), stop).await
    });
    let mut user = [user_with(&town, 0, &[])];
    assert_eq!(ended(&mut user), [false], "{}", tail(&user));
    assert!(!town.path("user-1.model").exists(), "no round was published");
    let data = town.data("user-1");
    let kept = runtime.block_on(async {
        let mut store = SqliteStore::open(&data).await.unwrap();
        store.latest_model(round(9)).await.unwrap().unwrap().1
    });
    (kept, initial, user[0].text())
}

/// Attack 3. The last ticket that a user hears names a model that nobody computed.
#[test]
fn user_keeps_no_model_that_does_not_follow_from_its_rounds() {
    let (kept, initial, text) = user_of_false_ticket(1);
    assert!(kept == initial, "{text}");
    assert!(text.contains("\"code\":\"lineage\""), "{text}");
    // a ticket of a later round is not refused, because the end of this round may be on its way
    let (kept, initial, text) = user_of_false_ticket(2);
    assert!(kept == initial, "{text}");
}

/// User 2 is told that the first round was aborted. The ticket of the second round says otherwise.
#[test]
fn round_called_aborted_after_its_result_is_noticed_in_the_next_ticket() {
    let plan = Plan { rounds: 2, time: ("1s", "6s"), ..Plan::default() };
    let deceit = Deceit::new(plan, |messages, user, told| {
        let one = |message: Vec<u8>| match messages.read::<Close>(&message) {
            Some(close) if user == 2 && close.round() == Round::FIRST => {
                let aborted = Close { ending: Ending::Aborted, publish: Digest::ZERO };
                vec![messages.sign(close.round(), aborted, Vec::new())]
            }
            _ => vec![message],
        };
        let hidden =
            |message: &Vec<u8>| user == 2 && matches!(kind_of(message), Kind::Publish | Kind::Inclusion);
        told.into_iter().filter(|message| !hidden(message)).flat_map(one).collect()
    });
    let Deceived { town, middle: _middle, mut all } = deceit.start();
    wait_until(&mut all[3..4], "user 2 notices", |user| user.ended().is_some());
    assert_eq!(all[3].ended(), Some(false));
    show(&all[3], "refused");
    show(&all[3], "error: ");
    // what user 2 kept shows it
    let (good, said) = verify(&town, "user-2", &[]);
    assert!(!good && said.contains("bad   round 2      open"), "{said}");
    assert!(said.contains("the history in the ticket does not follow from the rounds before"), "{said}");
}

/// User 3's upload was acknowledged, and the aggregator does not show that it is in the sum.
#[test]
fn list_without_a_user_whose_upload_was_acknowledged_is_noticed_by_that_user() {
    let deceit = Deceit::new(Plan { rounds: 1, ..Plan::default() }, |messages, user, told| {
        let keep = |message: &Vec<u8>| messages.read::<Inclusion>(message).is_none() || user != 3;
        told.into_iter().filter(keep).collect()
    });
    let Deceived { town: _town, middle: _middle, mut all } = deceit.start();
    assert_eq!(ended(&mut all[2..]), [true, true, false], "{}", tail(&all));
    show(&all[4], "not_mine");
}

/// The key generator starts again from a copy of its data from before the first round, so that it would open another
/// sum of that round.
#[test]
fn key_generator_started_from_a_copy_is_noticed_by_the_aggregator() {
    let town = Town::on_free_ports(Plan { rounds: 2, ..Plan::default() });
    let (kit, data) = (town.kit_directory("key-generator"), town.data("key-generator"));
    let args = ["serve", "key-generator", "--kit", kit.to_str().unwrap(), "--data", data.to_str().unwrap()];
    let mut alone = [Process::new(&town, "key-generator-alone", &args)];
    wait_until(&mut alone, "it starts", is_ready);
    alone[0].kill();
    let copy = town.path("copy");
    copy_files(&data, &copy);

    let mut all = processes_with(&town, &[]);
    wait_until(&mut all[2..3], "the first round ends", |user| !user.events("the round is over").is_empty());
    all[1].kill();
    std::fs::remove_dir_all(&data).unwrap();
    copy_files(&copy, &data);
    all[1].start();
    let words = ["have different histories", "does not know its own messages", "rollback"];
    let notices = |process: &mut Process| words.iter().any(|word| process.text().contains(word));
    wait_until(&mut all[..1], "the aggregator notices", notices);
    for word in words {
        if all[0].text().contains(word) {
            show(&all[0], word);
        }
    }
    // without the users' uploads for its ticket, it opens no second sum of the first round
    assert_eq!(all[1].events("a sum is given out").iter().filter(|sum| sum["round"] == 1).count(), 1);
}

fn is_ready(process: &mut Process) -> bool {
    process.look();
    !process.waiting
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    for file in files(from) {
        std::fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}

/// A user that does not follow the protocol, and two that do.
struct Spoiled {
    town: Town,
    all: Vec<Process>,
    observe: [String; 2],
}

impl Spoiled {
    /// Starts a task in which user 1 sends numbers of this many times the bound, with alternating signs.
    fn start(sparse: bool, times: f64) -> Self {
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let plan = Plan { rounds: 1, sparse, ..Plan::default() };
        // slots with room for more users, so that the attacker's own limits can be wider and its slots as long
        let town = Town::edited(plan, free(), free(), |text| text.replace("max = 3 }", "max = 12 }"));
        let observe = [free().to_string(), free().to_string()];
        let path = |path: PathBuf| path.to_str().unwrap().to_owned();
        let mut all = Vec::new();
        for (name, observe) in ["aggregator", "key-generator"].into_iter().zip(&observe) {
            let (kit, data) = (path(town.kit_directory(name)), path(town.data(name)));
            let args = ["serve", name, "--kit", &kit, "--data", &data, "--observe", observe];
            all.push(Process::new(&town, name, &args));
        }
        all.extend([1, 2].map(|n| user_with(&town, n, &[])));
        let spoiled = Self { town, all, observe };
        Runtime::new().unwrap().block_on(spoiled.upload(times));
        spoiled
    }

    async fn upload(&self, times: f64) {
        let kit = self.town.kit("user-1");
        let client = || {
            let tls = kit.tls().client(PartyId::Aggregator).unwrap();
            Client::new(self.town.aggregator.to_string(), tls, 1 << 24)
        };
        let begin = Instant::now();
        let ticket = loop {
            let path = "/v1/rounds/next?after=1&wait=5";
            match client().send(Method::GET, path, None, Bytes::new(), SOON).await {
                Ok(answer) if !answer.body.is_empty() => {
                    break decode_list(&answer.body).unwrap()[0].to_vec();
                }
                _ => assert!(begin.elapsed() < SOON, "{}", tail(&self.all)),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let task = kit.roster().task();
        let config = task.config().clone();
        let bound = f64::from(config.clip_exponent).exp2();
        let wide = TaskConfig { clip_exponent: config.clip_exponent + 2, max_users: 3, ..config };
        let wide = TaskParams::new(task.id(), wide).unwrap();
        let keys = with_task(kit.user_keys().unwrap(), wide);
        let (identity, rosters) = (kit.identities().unwrap(), kit.rosters().clone());
        let context = PartyContext { identity, rosters, log: &[], threads: Threads::ONE };
        let (mut party, _) = start_user(keys, context, Time(0)).unwrap();
        let mut rng = rng(3);
        let model = kit.initial_model().unwrap();
        let mut step = |event| dphe::party::Party::step(&mut party, event, Time(0), &mut rng).unwrap();
        step(UserEvent::Begin { ticket, model });
        let indices: Vec<u32> = if task.has_private_support() {
            (0..task.block() as u32).collect()
        } else {
            PublicSupport::of(task, Round::FIRST).indices().map(|index| index as u32).collect()
        };
        let sign = |at: usize| if at.is_multiple_of(2) { 1.0 } else { -1.0 };
        let values = (0..indices.len()).map(|at| times * bound * sign(at)).collect();
        let weights = SparseVector::new(task.dimension(), indices, values).unwrap();
        let update = Update::new(weights).with_dense(vec![0.0; task.dense()]);
        let actions = step(UserEvent::Update { round: Round::FIRST, update });
        let upload = actions.into_iter().find_map(|action| match action {
            Action::Send { message, .. } => Some(message),
            _ => None,
        });
        let mut aggregator = AggregatorClient::new(client(), UserId::new(1).unwrap());
        aggregator.try_upload(Round::FIRST, &upload.unwrap().into()).await.unwrap();
    }

    fn metrics(&self, of: usize) -> String {
        let mut stream = std::net::TcpStream::connect(&self.observe[of]).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

/// What the aggregator logs.
const SPOILED: &str = "the round is over without a model: an upload spoiled it";

/// Attack 4. With masks, only the aggregator and users see that a sum is out of range. The range check bounds the sum
/// and not the share of one user: nothing refuses a larger share that leaves room for the others.
#[test]
fn upload_out_of_range_makes_the_round_rejected_and_the_aggregator_says_so() {
    let mut spoiled = Spoiled::start(false, 3.9);
    wait_until(&mut spoiled.all[2..], "the round ends", |user| !user.events("the round is over").is_empty());
    show(&spoiled.all[0], "the round is over");
    show(&spoiled.all[2], "the round is over");
    let over = spoiled.all[0].events(SPOILED);
    assert_eq!(over[0]["ending"], "rejected", "{over:?}");
    let counted = spoiled.metrics(0);
    assert!(counted.contains("dphe_rounds_total{ending=\"rejected\"}"), "{counted}");
}

/// Attack 4. Without masks on the weights, the key generator finds it out, and both services count it.
#[test]
fn upload_out_of_range_in_sparse_makes_opening_fail_and_both_services_count_it() {
    let mut spoiled = Spoiled::start(true, 3.9);
    wait_until(&mut spoiled.all[2..], "the round ends", |user| !user.events("the round is over").is_empty());
    show(&spoiled.all[0], "the round is over");
    show(&spoiled.all[1], "could not be opened");
    assert_eq!(spoiled.all[0].events(SPOILED)[0]["ending"], "failed");
    let (aggregator, generator) = (spoiled.metrics(0), spoiled.metrics(1));
    assert!(aggregator.contains("dphe_rounds_total{ending=\"failed\"} 1"), "{aggregator}");
    assert!(generator.contains("dphe_refusals_total{code=\"round_failed\"} 1"), "{generator}");
}

/// Returns the files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Attack 5. A thief of a user's disk after two rounds finds no seed of the first round in kit or data.
#[test]
fn seeds_of_the_first_round_are_gone_after_it() {
    let town = Town::on_free_ports(Plan { rounds: 2, ..Plan::default() });
    // three seeds with their rounds, and the check of the file
    let first = std::fs::read(town.kit_directory("user-1").join("seeds.bin")).unwrap();
    let seeds: Vec<[u8; 32]> = (0..3)
        .map(|n| {
            let at = first.len() - 32 - 40 * (3 - n) + 8;
            first[at..at + 32].try_into().unwrap()
        })
        .collect();
    let found = || {
        let all = files(&town.kit_directory("user-1")).into_iter();
        let data = town.data("user-1");
        let all = all.chain(if data.exists() { files(&data) } else { Vec::new() });
        let has = |bytes: &[u8]| seeds.iter().any(|seed| bytes.windows(32).any(|known| known == seed));
        all.filter(|path| has(&std::fs::read(path).unwrap())).collect::<Vec<_>>()
    };
    assert!(!found().is_empty(), "the search finds what is there");
    let mut all = processes_with(&town, &[]);
    assert_eq!(ended(&mut all[2..]), [true; 3]);
    assert_eq!(found(), Vec::<PathBuf>::new());
}

/// Attack 7. The text of a refusal forges a line of the log and controls the terminal.
#[test]
fn text_of_a_refusal_cannot_forge_a_line_of_a_users_log() {
    let forged = "x\n2026-11-18T00:00:00.000000Z  INFO the round is over ending=\"published\"\n\x1b]0;owned\x07\x1b[2J";
    let detail = format!("{forged}{}", "y".repeat(2_000));
    let mut deceit = Deceit::new(Plan { rounds: 1, ..Plan::default() }, |_, _, messages| messages);
    deceit.refuse = Some(HttpErrorCode::Forbidden.because(detail));
    let Deceived { town, middle: _middle, mut all } = deceit.start();
    all[2].kill();
    // as an operator starts it: the log as text
    write_samples(0, &town.path("user-1.csv"));
    let log = town.path("user-1.text");
    let mut user = Command::new(env!("CARGO_BIN_EXE_dphe"))
        .args(["join", "--kit", "kits/user-1", "--data", "data/user-1", "--features", "user-1.csv"])
        .current_dir(town.directory.path())
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(town.path("user-1.out")).unwrap())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let text = loop {
        let text = String::from_utf8_lossy(&std::fs::read(&log).unwrap()).into_owned();
        if text.contains("the upload was refused") {
            break text;
        }
        assert!(begin.elapsed() < 6 * SOON, "{text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    user.kill().unwrap();
    user.wait().unwrap();
    let line = text.lines().find(|line| line.contains("the upload was refused")).unwrap();
    println!("{line}");
    assert!(!text.contains('\x1b') && !text.contains('\x07'), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("2026-11-18T00:00:00")), "{text}");
    assert!(line.len() < 1_000, "{} bytes", line.len());
}
