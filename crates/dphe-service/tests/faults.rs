//! A store that fails at any one write of any party. The party stops without having acknowledged anything that is not
//! stored; started again, it continues, and the weights equal those of the simulation.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use dphe::{Digest, Round};
use dphe_learn::Seed;
use dphe_service::Error;
use dphe_service::http::server::{Shutdown, shutdown};
use dphe_service::learning::{LinearModelMaker, LinearTrainer};
use dphe_service::service::aggregator::AggregatorService;
use dphe_service::service::user::UserSummary;
use dphe_service::service::{ServiceOptions, key_generator, user};
use dphe_service::store::{AboutStore, Archive, LogStore, SqliteStore, StoreError};
use support::{Plan, SEED, Town, model_maker, samples};
use tokio::net::TcpListener;
use tokio::time::timeout;
use zeroize::Zeroizing;

/// A store whose writes fail when the budget is used up. Every second failure happens after the bytes are on disk.
struct Failing {
    store: SqliteStore,
    budget: Arc<AtomicI64>,
    stores_first: bool,
}

impl Failing {
    fn refuses(&self) -> bool {
        self.budget.fetch_sub(1, Ordering::SeqCst) == 0
    }
}

fn full() -> StoreError {
    StoreError::Directory {
        directory: "disk".into(),
        source: std::io::Error::other("no space left on device"),
    }
}

impl LogStore for Failing {
    async fn about(&mut self) -> Result<AboutStore, StoreError> {
        self.store.about().await
    }

    async fn remember_roster(&mut self, hash: Digest) -> Result<(), StoreError> {
        if self.refuses() { Err(full()) } else { self.store.remember_roster(hash).await }
    }

    async fn begin_log(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let refuses = self.refuses();
        if !refuses || self.stores_first {
            self.store.begin_log(bytes).await?;
        }
        if refuses { Err(full()) } else { Ok(()) }
    }

    async fn load(&mut self) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        self.store.load().await
    }

    async fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let refuses = self.refuses();
        if !refuses || self.stores_first {
            self.store.append(bytes).await?;
        }
        if refuses { Err(full()) } else { Ok(()) }
    }

    async fn replace(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let refuses = self.refuses();
        if !refuses || self.stores_first {
            self.store.replace(bytes).await?;
        }
        if refuses { Err(full()) } else { Ok(()) }
    }
}

impl Archive for Failing {
    async fn put_model(&mut self, round: Round, digest: Digest, model: &[u8]) -> Result<(), StoreError> {
        if self.refuses() { Err(full()) } else { self.store.put_model(round, digest, model).await }
    }

    async fn model(&mut self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.model(digest).await
    }

    async fn latest_model(&mut self, round: Round) -> Result<Option<(Round, Vec<u8>)>, StoreError> {
        self.store.latest_model(round).await
    }

    async fn forget_models(&mut self, before: Round) -> Result<(), StoreError> {
        if self.refuses() { Err(full()) } else { self.store.forget_models(before).await }
    }

    async fn put_round_record(&mut self, round: Round, report: &str) -> Result<(), StoreError> {
        if self.refuses() { Err(full()) } else { self.store.put_round_record(round, report).await }
    }

    async fn round_records(&mut self, from: Round) -> Result<Vec<(Round, String)>, StoreError> {
        self.store.round_records(from).await
    }

    async fn put_message(&mut self, round: Round, kind: u8, message: &[u8]) -> Result<(), StoreError> {
        if self.refuses() { Err(full()) } else { self.store.put_message(round, kind, message).await }
    }

    async fn round_messages(&mut self, round: Round) -> Result<Vec<(u8, Vec<u8>)>, StoreError> {
        self.store.round_messages(round).await
    }

    async fn messages(&mut self, from: Round) -> Result<Vec<(Round, u8, Vec<u8>)>, StoreError> {
        self.store.messages(from).await
    }
}

/// Runs a party once.
async fn live(
    town: &Town,
    name: &str,
    budget: Arc<AtomicI64>,
    stores_first: bool,
    stop: Shutdown,
) -> Result<UserSummary, Error> {
    let kit = town.kit(name);
    let store = Failing { store: SqliteStore::open(&town.data(name)).await.unwrap(), budget, stores_first };
    let listen = async |address| loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            // the process before may still hold the lock
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    match name {
        "key-generator" => {
            let listener = listen(town.key_generator).await;
            key_generator::run(&kit, b"", store, listener, ServiceOptions::default(), stop).await?;
        }
        "aggregator" => {
            let listener = listen(town.aggregator).await;
            let maker = LinearModelMaker::new(kit.task_file(), kit.roster().task().clone())?;
            let data = town.data(name);
            let service =
                AggregatorService::start(&kit, store, &data, maker, ServiceOptions::default()).await?;
            service.run(listener, stop).await?;
        }
        _ => {
            let n: u64 = name.trim_start_matches("user-").parse().unwrap();
            let seed = Seed::new(SEED).derive("user", n - 1);
            let task = kit.roster().task().clone();
            let trainer = LinearTrainer::new(kit.task_file(), task, samples(n as usize - 1), seed)?;
            return user::run(&kit, store, trainer, model_maker(&kit), ServiceOptions::default(), stop).await;
        }
    }
    Ok(UserSummary::default())
}

/// Runs a party until it ends without an error, with a store that fails once. Returns whether it failed.
async fn lives(
    town: Arc<Town>,
    name: String,
    budget: i64,
    stores_first: bool,
    stop: Shutdown,
) -> (bool, UserSummary) {
    let budget = Arc::new(AtomicI64::new(budget));
    let mut failed = false;
    loop {
        match live(&town, &name, budget.clone(), stores_first, stop.clone()).await {
            Ok(summary) => return (failed, summary),
            Err(Error::Store(_)) => {
                assert!(!failed, "it failed twice");
                failed = true;
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_failure_at_any_write_loses_no_acknowledged_upload() {
    let begin = Instant::now();
    let plan = Plan { rounds: 1, ..Plan::default() };
    let mut expected = None;
    let mut runs = 0;
    for (victim, stride) in [("key-generator", 1), ("aggregator", 3), ("user-1", 1)] {
        // until the failing write is beyond the last write of a run
        for budget in (0..).step_by(stride) {
            let town = Arc::new(Town::on_free_ports(plan));
            let (switch, stop) = shutdown();
            let start = |name: String| {
                let budget = if name == victim { budget } else { i64::MAX };
                tokio::spawn(lives(town.clone(), name, budget, budget % 2 == 1, stop.clone()))
            };
            let services = ["key-generator", "aggregator"].map(|name| (name, start(name.into())));
            let users: Vec<_> = town.users().into_iter().map(|name| (name.clone(), start(name))).collect();
            let expected = expected.get_or_insert_with(|| town.simulate(1)).clone();
            let mut failed = false;
            for (name, user) in users {
                let result = timeout(Duration::from_secs(60), user).await;
                let (failures, summary) =
                    result.unwrap_or_else(|_| panic!("stuck: {victim}, write {budget}")).unwrap();
                assert!(
                    summary.model.as_ref() == Some(&expected),
                    "{name} has other weights: {victim}, write {budget}"
                );
                failed |= failures;
            }
            switch.stop();
            for (_, service) in services {
                failed |= timeout(Duration::from_secs(20), service).await.unwrap().unwrap().0;
            }
            runs += 1;
            if !failed {
                println!("{victim}: the disk failed at each of {budget} writes");
                assert!(budget >= 5);
                break;
            }
        }
    }
    println!("{runs} runs, {:.1?}", begin.elapsed());
}
