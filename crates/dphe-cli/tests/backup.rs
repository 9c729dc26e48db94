//! Backups of data directories, taken at random moments of running parties and restored later. In all cases, no round
//! is opened twice, every published model is the sum of the updates it names, and a party that cannot continue says
//! why.
//!
//! `DPHE_BACKUP_ROUNDS` sets how often a directory is copied and restored (default 3, once per role),
//! `DPHE_BACKUP_SEED` the moments.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dphe::party::{
    Action, AggregatorEvent, AggregatorParty, AggregatorPhase, KeyGeneratorEvent, KeyGeneratorParty,
    KeyGeneratorPhase, Party as _, PartyContext, Time,
};
use dphe::wire::{Close, Ending, Freeze, Kind, Participant, Publish, RoundTicket, Signed};
use dphe::{Aggregator, Digest, ErrorCode, KeyGenerator, PartyId, PublicSupport, Round, User, UserId};
use dphe_learn::Seed;
use dphe_paillier::Threads;
use dphe_service::http::server::{Shutdown, shutdown};
use dphe_service::kit::Kit;
use dphe_service::learning::{LinearModelMaker, LinearTrainer, ModelMaker as _, Trainer as _};
use dphe_service::service::aggregator::{AggregatorService, RoundRecord, Snapshot};
use dphe_service::service::{ServiceOptions, key_generator, user};
use dphe_service::store::{Archive as _, LogStore as _, SqliteStore};
use dphe_service::telemetry::Metrics;
use dphe_service::verify::{MessageSource, Replay, check_rounds};
use rand_core::Rng as _;
use support::process::{Process, processes_with, setting, tail};
use support::{Plan, SEED, Town, key, model_maker, rng, samples};
use tokio::net::TcpListener;
use tokio::time::timeout;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns the error codes in a party's log.
fn codes(process: &Process) -> BTreeSet<String> {
    let events = ["refused", "the key generator refuses"].map(|message| process.events(message));
    events.iter().flatten().filter_map(|event| Some(event["code"].as_str()?.to_owned())).collect()
}

/// Copies as `cp -r` does: one file after the other, in any order, while they change.
fn copy_directory(from: &Path, to: &Path, below: &mut impl FnMut(u64) -> u64) {
    std::fs::create_dir_all(to).unwrap();
    let Ok(entries) = std::fs::read_dir(from) else { return };
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    while !entries.is_empty() {
        let entry = entries.swap_remove(below(entries.len() as u64) as usize);
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy_directory(&entry, &target, below);
        } else if let Err(error) = std::fs::copy(&entry, &target) {
            // a file may disappear meanwhile
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
    let modes = std::fs::metadata(from).map(|metadata| metadata.permissions());
    modes.and_then(|modes| std::fs::set_permissions(to, modes)).unwrap();
}

/// The outcome of restoring a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// All rounds ended.
    Complete,
    /// Somebody refuses to go on, and says why.
    Refused,
    /// The party does not start from the copy, and says why.
    NotStarted,
}

#[test]
fn restored_backups_lose_nothing_or_are_refused() {
    let repetitions = setting("DPHE_BACKUP_ROUNDS", 3);
    let seed = setting("DPHE_BACKUP_SEED", 1);
    let mut outcomes: BTreeMap<(&str, &str, Outcome), u32> = BTreeMap::new();
    for repetition in 0..repetitions {
        // each role in turn, and each way of copying, starting with `dphe backup`
        let role = ["aggregator", "key-generator", "user"][repetition as usize % 3];
        let program = (repetition / 3) % 2 == 0;
        let way = if program { "dphe backup" } else { "cp -r" };
        let outcome = put_back(role, program, seed * 1_000 + repetition, 10);
        println!("{role}, {way}: {outcome:?}");
        assert!(outcome != Outcome::NotStarted || !program, "a copy made by the program is always whole");
        *outcomes.entry((role, way, outcome)).or_default() += 1;
    }
    for ((role, way, outcome), count) in outcomes {
        println!("{count} times: {role}, {way}: {outcome:?}");
    }
}

/// Copies the data directory of a party at a random moment, and restores it at another.
fn put_back(role: &str, program: bool, seed: u64, tries: u32) -> Outcome {
    let plan = Plan { users: 4, rounds: 14, sparse: false, time: ("1s", "3s") };
    let town = Town::on_free_ports(plan);
    let mut moments = rng(seed);
    let mut below = |n: u64| moments.next_u64() % n;
    let mut all = processes_with(&town, &[]);
    let victim = match role {
        "aggregator" => 0,
        "key-generator" => 1,
        _ => 2 + below(plan.users.into()) as usize,
    };
    let name = all[victim].name.clone();
    let (data, copy) = (town.data(&name), town.path("copy"));
    // moments are chosen by progress, not by time, because machines differ in speed
    let rounds = |all: &[Process]| all[0].events("the round is over").len() as u64;
    let before = below(4);
    // a party that is ready has its seeds in its data directory
    let ready = |all: &[Process]| all[victim].text().contains("is ready");
    wait(&mut all, "rounds go by", |all| ready(all) && rounds(all) >= before);
    std::thread::sleep(Duration::from_millis(below(400)));
    if program {
        let output = Command::new(env!("CARGO_BIN_EXE_dphe"))
            .args([
                "backup",
                "--kit",
                text(&town.kit_directory(&name)),
                "--data",
                text(&data),
                "--output",
                text(&copy),
            ])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    } else {
        copy_directory(&data, &copy, &mut below);
    }
    // often restored at once; then nothing may be lost except what was done in that moment
    let (more, gap) = if below(3) == 0 { (0, 0) } else { (below(3), below(400)) };
    let before = rounds(&all);
    wait(&mut all, "more rounds go by", |all| rounds(all) >= before + more);
    std::thread::sleep(Duration::from_millis(gap));
    if all[2..].iter_mut().any(|user| user.ended().is_some()) {
        // the task is over, or nearly
        assert!(tries > 0, "tasks always end too soon");
        drop(all);
        return put_back(role, program, seed + 500, tries - 1);
    }
    all[victim].kill();
    std::fs::rename(&data, town.path("lost")).unwrap();
    copy_directory(&copy, &data, &mut below);
    let before = all[victim].text().len();
    all[victim].start();

    let (begin, mut moved, mut length) = (Instant::now(), Instant::now(), 0);
    let outcome = loop {
        std::thread::sleep(Duration::from_millis(20));
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "the party neither continues nor refuses: {}",
            tail(&all)
        );
        if all[2..].iter_mut().all(|user| user.ended() == Some(true)) {
            break Outcome::Complete;
        }
        if all[victim].ended() == Some(false) {
            break Outcome::NotStarted;
        }
        // progress means that a round has ended at some party
        let over: usize = all.iter().map(|process| process.events("the round is over").len()).sum();
        if over != length {
            (length, moved) = (over, Instant::now());
        }
        // longer than a round without users takes; without a refusal, the test keeps waiting
        if moved.elapsed() > Duration::from_secs(8) && refusal(role, &all[0]) {
            break Outcome::Refused;
        }
    };
    all.iter_mut().for_each(Process::kill);
    match outcome {
        Outcome::Complete | Outcome::Refused => {}
        Outcome::NotStarted => {
            let text = all[victim].text();
            let said = text[before..].lines().find(|line| line.starts_with("error: ")).map(str::to_owned);
            println!("{name} does not start: {said:?}");
            assert!(said.is_some(), "{}", tail(&all));
        }
    }
    check(&town, &all, victim, outcome);
    println!("{name}: {outcome:?}; refused at A {:?}, here {:?}", codes(&all[0]), codes(&all[victim]));
    outcome
}

/// Returns whether the aggregator's log says that the key generator or itself went back to an older state.
fn refusal(role: &str, aggregator: &Process) -> bool {
    let codes = codes(aggregator);
    let said = |who: &str| {
        let reasons = aggregator.events("the key generator and this aggregator have different histories");
        reasons.iter().any(|event| event["reason"].as_str().is_some_and(|reason| reason.starts_with(who)))
    };
    match role {
        "key-generator" => {
            codes.contains("rollback") || said("the key generator does not know its own messages")
        }
        "aggregator" => said("this aggregator does not know earlier rounds"),
        _ => false,
    }
}

fn wait(all: &mut [Process], what: &str, mut done: impl FnMut(&mut [Process]) -> bool) {
    let begin = Instant::now();
    while !done(all) {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}: {}", tail(all));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Checks the invariants that hold in all cases.
#[tokio::main(flavor = "current_thread")]
async fn check(town: &Town, all: &[Process], victim: usize, outcome: Outcome) {
    for process in all {
        assert!(!process.text().contains("panicked"), "{}", tail(std::slice::from_ref(process)));
    }
    // one request per round was opened, over all runs of the key generator
    let mut opened: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for event in all[1].events("a sum is given out") {
        let (round, request) = (event["round"].as_u64().unwrap(), event["request"].as_str().unwrap());
        opened.entry(round).or_default().insert(request.to_owned());
    }
    assert!(opened.values().all(|requests| requests.len() == 1), "two sums of one round: {opened:?}");

    if victim == 0 && outcome == Outcome::NotStarted {
        return;
    }
    let kit = town.kit("aggregator");
    let roster = kit.roster();
    let mut store = SqliteStore::open(&town.data("aggregator")).await.unwrap();
    let messages = store.messages(Round::FIRST).await.unwrap();
    let mut published: BTreeMap<u64, BTreeMap<u32, String>> = BTreeMap::new();
    let mut endings: BTreeMap<u64, Ending> = BTreeMap::new();
    let mut listed: BTreeMap<u64, Vec<Participant>> = BTreeMap::new();
    let mut started: BTreeMap<u64, Digest> = BTreeMap::new();
    let mut models: BTreeMap<Digest, Vec<u8>> = BTreeMap::new();
    let initial = kit.initial_model().unwrap();
    models.insert(Digest::of_model(&initial), initial);
    for (round, kind, bytes) in &messages {
        match Kind::from_number(*kind).unwrap() {
            Kind::RoundTicket => {
                if let Ok(ticket) = Signed::<RoundTicket>::decode(bytes, roster) {
                    started.insert(round.get(), ticket.message().model);
                }
            }
            Kind::Freeze => {
                let freeze: Signed<Freeze> = Signed::decode(bytes, roster).unwrap();
                listed.insert(round.get(), freeze.message().users.clone());
            }
            Kind::Publish => {
                let publish: Signed<Publish> = Signed::decode(bytes, roster).unwrap();
                let listed = &listed[&round.get()];
                let users: Vec<UserId> = listed.iter().map(|one| one.user).collect();
                // each user is counted once, with the update of this round
                let model = &models[&started[&round.get()]];
                let model = expected(town, *round, &users, model);
                assert_eq!(publish.message().model, Digest::of_model(&model), "round {round}: a wrong sum");
                models.insert(Digest::of_model(&model), model);
                let users = listed.iter().map(|one| (one.user.get(), one.body_hash.to_string())).collect();
                published.insert(round.get(), users);
            }
            Kind::Close => {
                let close: Signed<Close> = Signed::decode(bytes, roster).unwrap();
                endings.insert(round.get(), close.message().ending);
            }
            _ => {}
        }
    }
    assert!(endings.values().all(|&ending| ending != Ending::Failed), "{endings:?}");
    // every user that was acknowledged is a participant, or knows that it is not
    for event in all[0].events("acknowledged") {
        let (round, user) = (event["round"].as_u64().unwrap(), event["user"].as_u64().unwrap() as u32);
        let Some(users) = published.get(&round) else { continue };
        if users.get(&user).map(String::as_str) == event["body"].as_str() {
            continue;
        }
        let codes = codes(&all[1 + user as usize]);
        assert!(
            victim == 0 && codes.contains("not_mine"),
            "user {user}, round {round}: {codes:?}\n{}",
            tail(all)
        );
    }
    if outcome != Outcome::Complete {
        return;
    }
    // another round takes the place of an aborted one
    let aborted = endings.values().filter(|&&ending| ending == Ending::Aborted).count() as u64;
    let last = town.plan.rounds + aborted;
    assert_eq!(endings.keys().copied().collect::<Vec<_>>(), (1..=last).collect::<Vec<_>>());
    if victim != 0 {
        let kit = town.kit("aggregator");
        let mut maker = LinearModelMaker::new(kit.task_file(), roster.task().clone()).unwrap();
        let replay = Replay {
            model: kit.initial_model().unwrap(),
            key: kit.encryption_key().unwrap(),
            maker: &mut maker,
            users: Vec::new(),
        };
        for round in check_rounds(roster, MessageSource::Archive, messages, Some(replay)) {
            assert!(round.findings.is_empty(), "{round:?}");
        }
    }
    let everybody = |users: &BTreeMap<u32, String>| users.len() == town.plan.users as usize;
    if aborted == 0 && published.values().all(everybody) {
        let (_, model) =
            store.latest_model(Round::new(town.plan.rounds + 1).unwrap()).await.unwrap().unwrap();
        assert_eq!(model, town.simulate(town.plan.rounds as usize), "as if nothing had happened");
    }
}

/// Returns the model that the updates of these users lead to.
fn expected(town: &Town, round: Round, users: &[UserId], model: &[u8]) -> Vec<u8> {
    let (file, mut random) = (town.task_file(), rng(11));
    let task = town.kit("aggregator").roster().task().clone();
    let mut generator = KeyGenerator::with_key(task.clone(), key(), &mut random).unwrap();
    let enrolled: Vec<_> = (1..=town.plan.users).filter_map(UserId::new).collect();
    let keys: BTreeMap<UserId, _> =
        enrolled.into_iter().map(|user| (user, generator.enroll(user, &mut random))).collect();
    let mut aggregator = Aggregator::new(generator.aggregator_keys()).unwrap();
    aggregator.advance(round);
    let mut checker = User::new(keys.values().next().unwrap().clone()).unwrap();
    checker.advance(round);
    let mut collecting = aggregator.begin(round);
    for (id, keys) in keys.into_iter().filter(|(user, _)| users.contains(user)) {
        let n = id.get() as usize - 1;
        let seed = Seed::new(SEED).derive("user", n as u64);
        let mut trainer = LinearTrainer::new(&file, task.clone(), samples(n), seed).unwrap();
        let update = trainer.make_update(round, &PublicSupport::of(&task, round), model).unwrap();
        let mut user = User::new(keys).unwrap();
        user.advance(round);
        collecting
            .accept(user.seal(round, &update, &mut random, Threads::all()).unwrap(), Threads::all())
            .unwrap();
    }
    let mut sum = collecting.finish(Threads::all()).unwrap();
    let blinds = sum.take_blinds();
    let opened = generator.open(sum, &mut random, Threads::all()).unwrap();
    let sum = opened.unmask_and_check(&aggregator, &blinds, &checker).unwrap();
    LinearModelMaker::new(&file, task).unwrap().next_model(&sum, model).unwrap()
}

/// Carries out the actions of a key generator's step, and returns the messages that it sends.
async fn carry_out(store: &mut SqliteStore, actions: Vec<Action>) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    for action in actions {
        match action {
            Action::Append(bytes) => store.append(&bytes).await.unwrap(),
            Action::Replace(bytes) => store.replace(&bytes).await.unwrap(),
            Action::Send { message, .. } => sent.push(message),
            _ => {}
        }
    }
    sent
}

/// Creates the data directory of a key generator of this task that has issued tickets for all rounds up to `last`,
/// which were all aborted.
async fn another_past(kits: &Path, directory: &Path, last: u64) -> SqliteStore {
    let mut store = SqliteStore::open(directory).await.unwrap();
    let read = |party: &str| Kit::read(&kits.join(party)).unwrap();
    let (kit, aggregator) = (read("key-generator"), read("aggregator"));
    let roster = (**kit.roster()).clone();
    let now = Time(0);
    let context = |kit: &Kit| PartyContext {
        identity: kit.identity().unwrap().into(),
        rosters: roster.clone().into(),
        log: &[],
        threads: Threads::all(),
    };
    let keys = kit.key_generator(b"").unwrap();
    let (mut generator, actions) = KeyGeneratorParty::start(keys, context(&kit), now).unwrap();
    carry_out(&mut store, actions).await;
    let keys = aggregator.aggregator_keys().unwrap();
    let (mut asking, _) = AggregatorParty::start(keys, context(&aggregator), now).unwrap();
    let to_generator = |actions: Vec<Action>| {
        actions.into_iter().filter_map(|action| match action {
            Action::Send { to: PartyId::KeyGenerator, message } => Some(message),
            _ => None,
        })
    };
    for round in 1..=last {
        let model = Digest::of_model(b"another model");
        let open = AggregatorEvent::Start { model, deadline: 1_000 };
        let mut messages: Vec<_> = to_generator(asking.step(open, now, &mut rng(round)).unwrap()).collect();
        while let Some(message) = messages.pop() {
            let actions = generator.step(KeyGeneratorEvent::Message(message), now, &mut rng(round));
            // the close message of the previous round, which is repeated
            let Ok(actions) = actions else { continue };
            for answer in carry_out(&mut store, actions).await {
                asking.step(AggregatorEvent::Message(answer), now, &mut rng(round)).unwrap();
                if round < last {
                    messages.extend(to_generator(
                        asking.step(AggregatorEvent::Abort, now, &mut rng(round)).unwrap(),
                    ));
                }
            }
        }
    }
    assert_eq!((generator.round().get(), generator.phase()), (last, KeyGeneratorPhase::Ticketed));
    store
}

/// Two key generators use one kit. On the same data directory the second does not start. On its own directory it has
/// another history, which the aggregator notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_key_generator_is_refused() {
    let a = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let g = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = g.local_addr().unwrap();
    let plan = Plan { rounds: 1_000, time: ("200ms", "2s"), ..Plan::default() };
    let town = Town::new(plan, a.local_addr().unwrap(), address);
    let (_switch, stop) = shutdown();
    // a copy from before the first start still has the seeds
    let kept = town.path("kept");
    let copied = Command::new("cp").arg("-a").args([town.path("kits"), kept.clone()]).status().unwrap();
    assert!(copied.success());
    let serve = |kit: Arc<Kit>, store: SqliteStore, listener: TcpListener, until: Shutdown| {
        tokio::spawn(async move {
            key_generator::run(&kit, b"", store, listener, ServiceOptions::default(), until).await
        })
    };
    let (leave, until) = shutdown();
    let kit = town.kit("key-generator");
    let first = serve(kit, SqliteStore::open(&town.data("key-generator")).await.unwrap(), g, until);
    let metrics = Arc::new(Metrics::default());
    let (kit, data) = (town.kit("aggregator"), town.data("aggregator"));
    let maker = LinearModelMaker::new(kit.task_file(), kit.roster().task().clone()).unwrap();
    let options = ServiceOptions { metrics: metrics.clone(), ..ServiceOptions::default() };
    let store = SqliteStore::open(&data).await.unwrap();
    let service = AggregatorService::start(&kit, store, &data, maker, options).await.unwrap();
    let mut snapshot = service.snapshot();
    tokio::spawn(service.run(a, stop.clone()));
    let (users_leave, users_stop) = shutdown();
    for (n, name) in town.users().into_iter().enumerate() {
        let (kit, data, stop) = (town.kit(&name), town.data(&name), users_stop.clone());
        tokio::spawn(async move {
            let store = SqliteStore::open(&data).await.unwrap();
            let (task, seed) = (kit.roster().task().clone(), Seed::new(SEED).derive("user", n as u64));
            let trainer = LinearTrainer::new(kit.task_file(), task, samples(n), seed).unwrap();
            user::run(&kit, store, trainer, model_maker(&kit), ServiceOptions::default(), stop).await.unwrap()
        });
    }
    let patience = Duration::from_secs(60);
    let published = |record: &&RoundRecord| record.ending == Ending::Published;
    let two = |snapshot: &Arc<Snapshot>| snapshot.records.iter().filter(published).count() >= 2;
    timeout(patience, snapshot.wait_for(two)).await.unwrap().unwrap();
    let second = SqliteStore::open(&town.data("key-generator")).await;
    assert!(second.is_err_and(|error| error.to_string().contains("in use by another process")));

    // no user takes part any more, so rounds start and are aborted
    users_leave.stop();
    let waits = |snapshot: &Arc<Snapshot>| {
        let given_up = snapshot.records.last().is_some_and(|record| record.ending == Ending::Aborted);
        given_up && snapshot.status.phase == Some(AggregatorPhase::Collecting)
    };
    timeout(patience, snapshot.wait_for(waits)).await.unwrap().unwrap();
    leave.stop();
    timeout(patience, first).await.unwrap().unwrap().unwrap();
    assert_eq!(metrics.refusals(ErrorCode::Rollback), 0);
    let round = snapshot.borrow().status.round;
    let store = another_past(&kept, &town.data("second"), round).await;
    let kit = Arc::new(Kit::read(&kept.join("key-generator")).unwrap());
    serve(kit, store, TcpListener::bind(address).await.unwrap(), stop);
    let begin = Instant::now();
    while metrics.refusals(ErrorCode::Rollback) == 0 {
        assert!(begin.elapsed() < patience, "the second key generator was not noticed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // no user ever gets a ticket of the second key generator
    tokio::time::sleep(Duration::from_secs(3)).await;
    let now = snapshot.borrow().clone();
    assert_eq!(
        (now.status.phase, now.ticket.is_none()),
        (Some(AggregatorPhase::Announced), true),
        "{:?}",
        now.status
    );
    assert_eq!(now.status.round, round + 1);
}

#[test]
fn backup_is_complete_and_private_or_does_not_exist() {
    let town = Town::on_free_ports(Plan::default());
    let dphe = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_dphe"))
            .args(args)
            .current_dir(town.directory.path())
            .output()
            .unwrap();
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let backup = |party: &str, data: &str, to: &str| {
        dphe(&["backup", "--kit", &format!("kits/{party}"), "--data", data, "--output", to])
    };
    let (done, said) = backup("user-1", "nowhere", "copy");
    assert!(!done && said.contains("cannot be read"), "{said}");
    assert!(!town.path("copy").exists(), "nothing is left of it");

    let data = town.data("user-1");
    begin_log(&town, &data);
    std::fs::write(data.join("residual.bin"), "what was left out").unwrap();
    // files of an interrupted backup do not disturb the next one, and are not in it
    std::fs::create_dir(town.path(".copy.partial")).unwrap();
    for name in ["dphe.sqlite", "dphe.sqlite-wal", "other"] {
        std::fs::write(town.path(".copy.partial").join(name), "half a file").unwrap();
    }
    let (done, said) = backup("user-1", text(&data), "copy");
    assert!(done && said.contains("log          1 records"), "{said}");
    assert!(!town.path(".copy.partial").exists());
    let copied: BTreeSet<String> = std::fs::read_dir(town.path("copy"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(copied, ["dphe.sqlite", "residual.bin"].map(str::to_owned).into());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |name: &str| std::fs::metadata(town.path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode("copy"), mode("copy/dphe.sqlite"), mode("copy/residual.bin")),
            (0o700, 0o600, 0o600)
        );
    }
    // the copy has the same log, which no party would have written
    let (good, said) = dphe(&["verify", "--kit", "kits/user-1", "--data", "copy"]);
    assert!(!good && said.contains("a record cannot be read"), "{said}");
    // an older copy is not overwritten
    let (done, said) = backup("user-1", text(&data), "copy");
    assert!(!done && said.contains("copy cannot be written"), "{said}");
    // a backup that is still being made is not touched
    std::fs::create_dir(town.path(".busy.partial")).unwrap();
    let lock = std::fs::File::open(town.path(".busy.partial")).unwrap();
    lock.lock().unwrap();
    let (done, said) = backup("user-1", text(&data), "busy");
    assert!(!done && said.contains("another backup to this directory is running"), "{said}");
    assert!(town.path(".busy.partial").exists() && !town.path("busy").exists());
    lock.unlock().unwrap();
    assert!(backup("user-1", text(&data), "busy").0);
    // the data directory of another party is refused
    let (done, said) = backup("user-2", text(&data), "other");
    assert!(!done && said.contains("belongs to another party or task"), "{said}");
    assert!(!town.path("other").exists() && !town.path(".other.partial").exists());
    // damage is found when the backup is made, not when it is needed
    let mut bytes = std::fs::read(data.join("dphe.sqlite")).unwrap();
    let at = bytes.len() - 40;
    bytes[at] ^= 1;
    std::fs::write(data.join("dphe.sqlite"), bytes).unwrap();
    let (done, said) = backup("user-1", text(&data), "damaged");
    assert!(!done && !town.path("damaged").exists() && !town.path(".damaged.partial").exists(), "{said}");
}

/// Stores a log with one record that no party would write, and whose last bytes are at the end of the file.
#[tokio::main(flavor = "current_thread")]
async fn begin_log(town: &Town, data: &Path) {
    let kit = town.kit("user-1");
    let mut log = dphe::party::log::Log::new(kit.party(), kit.roster());
    let prefix = log.prefix().to_vec();
    let bytes = [prefix, log.append(&[9; 30_000])].concat();
    let mut store = SqliteStore::open(data).await.unwrap();
    store.append(&bytes).await.unwrap();
    store.close().await.unwrap();
}

/// Backups are made while another task writes as fast as the disk allows, with checkpoints of the log and the database
/// meanwhile. Each backup is complete and contains everything that was stored when it started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_of_a_busy_data_directory_are_complete() {
    let town = Town::on_free_ports(Plan::default());
    let (kit, data) = (town.kit("user-1"), town.data("user-1"));
    let stored = Arc::new(AtomicU64::new(0));
    let (switch, mut stop) = shutdown();
    let mut store = SqliteStore::open(&data).await.unwrap();
    let (count, roster) = (stored.clone(), kit.roster().clone());
    let writer = tokio::spawn(async move {
        let mut log = dphe::party::log::Log::new(kit.party(), &roster);
        let mut random = rng(3);
        store.append(log.prefix()).await.unwrap();
        loop {
            // large records fill the write-ahead log, so that SQLite also makes checkpoints itself
            let length = 1 << (6 + random.next_u64() % 12);
            if random.next_u64().is_multiple_of(40) {
                store.replace(&log.checkpoint(&vec![7; length])).await.unwrap();
            } else {
                store.append(&log.append(&vec![9; length])).await.unwrap();
            }
            count.store(log.point().seq, Ordering::SeqCst);
            if timeout(Duration::ZERO, stop.wait()).await.is_ok() {
                return;
            }
        }
    });
    let (begin, mut copies, mut again, mut mixed) = (Instant::now(), 0, 0, 0);
    // three backups may take longer on a slow machine
    while copies < 3 || begin.elapsed() < Duration::from_secs(5) {
        assert!(begin.elapsed() < Duration::from_secs(60), "only {copies} copies in a minute");
        let before = stored.load(Ordering::SeqCst);
        let to = town.path(&format!("copy-{copies}"));
        let kit = town.kit_directory("user-1");
        let args =
            ["backup", "--kit", text(&kit), "--data", text(&data), "--output", text(&to)].map(str::to_owned);
        // in another process, because closing a file releases all locks of the process on it
        let run = move || Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).output().unwrap();
        let output = tokio::task::spawn_blocking(run).await.unwrap();
        let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
        assert!(output.status.success(), "{said}");
        let number = |name: &str| -> Option<u64> {
            said.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
        };
        let records = number("log ").unwrap();
        assert!(records >= before, "{records} records in the copy, {before} had been stored");
        copies += 1;
        again += number("repeated ").unwrap_or(0);
        // for comparison, copy the files one after the other
        let plain = town.path(&format!("plain-{copies}"));
        copy_directory(&data, &plain, &mut |n| n - 1);
        mixed += u32::from(!holds(&town, &plain).await);
        for directory in [to, plain] {
            std::fs::remove_dir_all(directory).unwrap();
        }
    }
    switch.stop();
    writer.await.unwrap();
    let records = stored.load(Ordering::SeqCst);
    println!(
        "{copies} backups of {records} records, repeated {again} times; {mixed} plain copies were inconsistent"
    );
    assert!(records > 100);
}

/// Returns whether the log of a copy can be read.
async fn holds(town: &Town, directory: &Path) -> bool {
    let kit = town.kit("user-1");
    let Ok(mut store) = SqliteStore::open(directory).await else { return false };
    let Ok(log) = store.load().await else { return false };
    dphe_service::verify::check_log(kit.party(), kit.roster(), &log).is_ok()
}
