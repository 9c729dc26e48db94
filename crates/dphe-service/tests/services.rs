//! The services and their users in one process, with TLS and SQLite. Their weights equal those of the simulation, bit
//! for bit.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use dphe::wire::{Ending, Kind};
use dphe::{Round, WeightSum};
use dphe_learn::Seed;
use dphe_service::Error;
use dphe_service::http::server::shutdown;
use dphe_service::learning::{LinearModelMaker, LinearTrainer, ModelMaker};
use dphe_service::service::aggregator::{AggregatorService, RoundRecord, Snapshot};
use dphe_service::service::user::UserSummary;
use dphe_service::service::{ServiceOptions, key_generator, user};
use dphe_service::store::{Archive as _, SqliteStore};
use dphe_service::verify::{MessageSource, Replay, check_rounds};
use support::{Plan, SEED, Town, model_maker, samples};
use tokio::net::TcpListener;
use tokio::time::timeout;

async fn run(plan: Plan) -> (Town, Vec<UserSummary>) {
    let (town, users) = run_with(plan, |maker| maker).await;
    (town, users.into_iter().map(Result::unwrap).collect())
}

/// Runs a task whose aggregator makes models in its own way.
async fn run_with<M: ModelMaker>(
    plan: Plan,
    aggregator_maker: impl Fn(LinearModelMaker) -> M,
) -> (Town, Vec<Result<UserSummary, Error>>) {
    let a = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let g = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let town = Town::new(plan, a.local_addr().unwrap(), g.local_addr().unwrap());
    let (switch, stop) = shutdown();

    let kit = town.kit("key-generator");
    let store = SqliteStore::open(&town.data("key-generator")).await.unwrap();
    let until = stop.clone();
    let generator = tokio::spawn(async move {
        key_generator::run(&kit, b"", store, g, ServiceOptions::default(), until).await
    });
    let kit = town.kit("aggregator");
    let store = SqliteStore::open(&town.data("aggregator")).await.unwrap();
    let maker = LinearModelMaker::new(kit.task_file(), kit.roster().task().clone()).unwrap();
    let maker = aggregator_maker(maker);
    let data = town.data("aggregator");
    let service =
        AggregatorService::start(&kit, store, &data, maker, ServiceOptions::default()).await.unwrap();
    let aggregator = tokio::spawn(service.run(a, stop.clone()));

    let users: Vec<_> = town
        .users()
        .into_iter()
        .enumerate()
        .map(|(n, name)| {
            let (kit, data, stop) = (town.kit(&name), town.data(&name), stop.clone());
            tokio::spawn(async move {
                let store = SqliteStore::open(&data).await.unwrap();
                let seed = Seed::new(SEED).derive("user", n as u64);
                let trainer =
                    LinearTrainer::new(kit.task_file(), kit.roster().task().clone(), samples(n), seed)
                        .unwrap();
                user::run(&kit, store, trainer, model_maker(&kit), ServiceOptions::default(), stop).await
            })
        })
        .collect();
    let mut summaries = Vec::new();
    for user in users {
        summaries.push(timeout(Duration::from_secs(120), user).await.expect("the task ends").unwrap());
    }
    switch.stop();
    timeout(Duration::from_secs(15), aggregator).await.expect("A stops").unwrap().unwrap();
    timeout(Duration::from_secs(15), generator).await.expect("G stops").unwrap().unwrap();
    (town, summaries)
}

async fn equals_the_simulation(plan: Plan) {
    let begin = Instant::now();
    let (town, summaries) = run(plan).await;
    println!("{} rounds of {} users in {:.1?}", plan.rounds, plan.users, begin.elapsed());
    let expected = town.simulate(plan.rounds as usize);
    for summary in &summaries {
        assert!(summary.over);
        assert_eq!((summary.rounds, summary.included), (plan.rounds, plan.rounds));
        assert_eq!(summary.model.as_ref(), Some(&expected), "the same weights, bit for bit");
    }
    assert_ne!(expected, town.simulate(0), "the users must have changed the model");
    let mut store = SqliteStore::open(&town.data("aggregator")).await.unwrap();
    let reports = store.round_records(Round::FIRST).await.unwrap();
    assert_eq!(reports.len() as u64, plan.rounds);
    for (round, report) in reports {
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(
            (report["round"].as_u64(), report["ending"].as_str()),
            (Some(round.get()), Some("published"))
        );
        assert_eq!(report["users"].as_u64(), Some(u64::from(plan.users)));
        assert_eq!(report["singles"].is_null(), !plan.sparse);
    }
}

/// Makes a model of its own in round 2.
struct DishonestMaker(LinearModelMaker);

impl ModelMaker for DishonestMaker {
    fn next_model(&mut self, sum: &WeightSum, model: &[u8]) -> Result<Vec<u8>, Error> {
        if sum.round().get() == 2 { Ok(model.to_vec()) } else { self.0.next_model(sum, model) }
    }

    fn accuracy(&mut self, _: &[u8]) -> Option<f64> {
        None
    }
}

type Messages = Vec<(Round, u8, Vec<u8>)>;

async fn stored_messages(town: &Town) -> Messages {
    let mut store = SqliteStore::open(&town.data("aggregator")).await.unwrap();
    store.messages(Round::FIRST).await.unwrap()
}

fn findings(town: &Town, messages: &Messages) -> Vec<(u64, Vec<String>)> {
    let kit = town.kit("aggregator");
    let mut maker = LinearModelMaker::new(kit.task_file(), kit.roster().task().clone()).unwrap();
    let replay = Replay {
        model: kit.initial_model().unwrap(),
        key: kit.encryption_key().unwrap(),
        maker: &mut maker,
        users: Vec::new(),
    };
    let rounds = check_rounds(kit.rosters(), MessageSource::Archive, messages.clone(), Some(replay));
    rounds.into_iter().map(|round| (round.round, round.findings)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_and_verify_find_models_that_do_not_follow_from_the_sums() {
    let (town, users) = run_with(Plan { rounds: 3, ..Plan::default() }, DishonestMaker).await;
    for user in users {
        let error = user.unwrap_err();
        assert!(matches!(error, Error::Protocol(dphe::Error::Model)), "{error:?}");
    }
    let messages = stored_messages(&town).await;
    let follow = "the published model does not follow from the sum".to_owned();
    assert_eq!(findings(&town, &messages)[..2], [(1, vec![]), (2, vec![follow])]);

    let (town, _) = run(Plan { rounds: 2, ..Plan::default() }).await;
    let messages = stored_messages(&town).await;
    assert_eq!(findings(&town, &messages), [(1, vec![]), (2, vec![])]);
    // the beginning is missing
    let late: Messages = messages.iter().filter(|(round, ..)| *round != Round::FIRST).cloned().collect();
    let found = findings(&town, &late).remove(0).1;
    assert!(found.iter().any(|finding| finding == "the round before it is missing"), "{found:?}");
    // another sum under the key generator's signature
    let mut altered = messages.clone();
    let result = |(round, kind, _): &&mut (Round, u8, Vec<u8>)| {
        *round == Round::FIRST && *kind == Kind::RoundResult.number()
    };
    *altered.iter_mut().find(result).unwrap().2.last_mut().unwrap() ^= 1;
    let signed = "the stored sum is not the one that the key generator signed".to_owned();
    assert_eq!(findings(&town, &altered), [(1, vec![signed]), (2, vec![])]);
    // without its result and its close, a published model cannot be checked
    let without = |round: u64, kinds: &[Kind]| -> Messages {
        let dropped = |kind: u8| kinds.iter().any(|one| one.number() == kind);
        messages.iter().filter(|(r, kind, _)| r.get() != round || !dropped(*kind)).cloned().collect()
    };
    for kinds in
        [&[Kind::RoundResult][..], &[Kind::RoundResult, Kind::Close], &[Kind::Freeze], &[Kind::RoundTicket]]
    {
        for round in [1, 2] {
            let found = findings(&town, &without(round, kinds));
            let bad = found.iter().find(|(number, _)| *number == round).unwrap();
            assert!(bad.1.iter().any(|finding| finding.contains("is missing")), "{kinds:?}: {found:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_equal_the_simulation_in_profile_full() {
    equals_the_simulation(Plan { rounds: 5, ..Plan::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_equal_the_simulation_in_profile_sparse() {
    equals_the_simulation(Plan { rounds: 3, users: 4, sparse: true, ..Plan::default() }).await;
}

/// A series of rounds without users, with a restart in between, keeps the model that was learned before.
#[tokio::test(flavor = "multi_thread")]
async fn aborted_rounds_keep_the_model() {
    let a = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let g = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = a.local_addr().unwrap();
    let plan = Plan { rounds: 1_000, time: ("200ms", "600ms"), ..Plan::default() };
    let town = Town::new(plan, address, g.local_addr().unwrap());
    let (switch, stop) = shutdown();
    let (kit, until) = (town.kit("key-generator"), stop.clone());
    let store = SqliteStore::open(&town.data("key-generator")).await.unwrap();
    tokio::spawn(
        async move { key_generator::run(&kit, b"", store, g, ServiceOptions::default(), until).await },
    );
    let start = |listener: TcpListener| {
        let (kit, data) = (town.kit("aggregator"), town.data("aggregator"));
        async move {
            let (switch, stop) = shutdown();
            let store = SqliteStore::open(&data).await.unwrap();
            let maker = LinearModelMaker::new(kit.task_file(), kit.roster().task().clone()).unwrap();
            let service =
                AggregatorService::start(&kit, store, &data, maker, ServiceOptions::default()).await.unwrap();
            let snapshot = service.snapshot();
            (snapshot, switch, tokio::spawn(service.run(listener, stop)))
        }
    };
    let (mut snapshot, leave, running) = start(a).await;
    let first = snapshot.borrow().model.clone().unwrap().0;

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
    let wait = Duration::from_secs(60);
    let is = |ending| move |record: &RoundRecord| record.ending == ending;
    let published = is(Ending::Published);
    timeout(wait, snapshot.wait_for(|snapshot| snapshot.records.iter().any(published)))
        .await
        .unwrap()
        .unwrap();
    users_leave.stop();

    /// Returns the number of aborted rounds at the end.
    fn aborted(snapshot: &Snapshot) -> usize {
        snapshot.records.iter().rev().take_while(|record| record.ending == Ending::Aborted).count()
    }
    timeout(wait, snapshot.wait_for(|snapshot| aborted(snapshot) >= 3)).await.unwrap().unwrap();
    let learnt = snapshot.borrow().model.clone().unwrap().0;
    assert_ne!(learnt, first, "the users must have changed the model");
    leave.stop();
    timeout(Duration::from_secs(15), running).await.unwrap().unwrap().unwrap();

    let (mut snapshot, leave, running) = start(TcpListener::bind(address).await.unwrap()).await;
    timeout(wait, snapshot.wait_for(|snapshot| aborted(snapshot) >= 6)).await.unwrap().unwrap();
    assert_eq!(
        snapshot.borrow().model.clone().unwrap().0,
        learnt,
        "the model must survive aborted rounds and a restart"
    );
    leave.stop();
    timeout(Duration::from_secs(15), running).await.unwrap().unwrap().unwrap();
    switch.stop();
}
