//! A user whose updates are far larger than everybody else's: its sums are rejected before they are published, and the
//! aggregator finds out who it is, over a restart.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use dphe::wire::{Ending, Outcome};
use dphe::{PublicSupport, Round, SparseVector, Update};
use dphe_learn::Seed;
use dphe_service::Error;
use dphe_service::http::server::{ShutdownSwitch, shutdown};
use dphe_service::learning::{LinearTrainer, Trainer};
use dphe_service::service::aggregator::{AggregatorService, Snapshot};
use dphe_service::service::{ServiceOptions, key_generator, user};
use dphe_service::store::SqliteStore;
use dphe_service::telemetry::Metrics;
use support::{Plan, SEED, Town, model_maker, samples};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const USERS: u32 = 9;
/// The user who spoils rounds. The first test asks users 1 to 3.
const SPOILER: u32 = 8;
const SOON: Duration = Duration::from_secs(240);
/// Updates are scaled down, so that one that is clipped at the largest weight is outsized even among nine.
const HONEST: f64 = 0.001;

/// Scales the updates of a trainer from the second round on. The first sum is what later ones are compared with.
struct Scaled(LinearTrainer, f64);

impl Trainer for Scaled {
    fn make_update(&mut self, round: Round, support: &PublicSupport, model: &[u8]) -> Result<Update, Error> {
        let update = self.0.make_update(round, support, model)?;
        let factor = if round == Round::FIRST { HONEST } else { self.1 };
        let scale = |values: &[f64]| values.iter().map(|value| value * factor).collect::<Vec<_>>();
        let (weights, dense) = (update.weights(), scale(update.dense()));
        let values = scale(weights.values());
        let weights = SparseVector::new(weights.dimension(), weights.indices().to_vec(), values)?;
        Ok(Update::new(weights).with_dense(dense))
    }
}

struct Aggregator {
    snapshot: watch::Receiver<Arc<Snapshot>>,
    metrics: Arc<Metrics>,
    switch: ShutdownSwitch,
    running: JoinHandle<Result<(), Error>>,
}

impl Aggregator {
    async fn start(town: &Town, listener: TcpListener) -> Self {
        let (kit, data, (switch, stop)) = (town.kit("aggregator"), town.data("aggregator"), shutdown());
        let store = SqliteStore::open(&data).await.unwrap();
        let options = ServiceOptions::default();
        let metrics = options.metrics.clone();
        let service = AggregatorService::start(&kit, store, &data, model_maker(&kit), options).await.unwrap();
        Self {
            snapshot: service.snapshot(),
            metrics,
            switch,
            running: tokio::spawn(service.run(listener, stop)),
        }
    }

    async fn wait(&mut self, what: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let seen = timeout(SOON, self.snapshot.wait_for(|snapshot| what(snapshot))).await;
        seen.expect("in time").unwrap().clone()
    }

    async fn stop(self) {
        self.switch.stop();
        timeout(Duration::from_secs(15), self.running).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outsized_sums_are_not_published_and_their_user_is_found_over_a_restart() {
    let (a, g) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = a.local_addr().unwrap();
    let plan = Plan { users: USERS, rounds: 1_000, time: ("60s", "120s"), ..Plan::default() };
    let town = Town::new(plan, address, g.local_addr().unwrap());
    let (switch, stop) = shutdown();
    let (kit, until, options) = (town.kit("key-generator"), stop.clone(), ServiceOptions::default());
    let generator = options.metrics.clone();
    let store = SqliteStore::open(&town.data("key-generator")).await.unwrap();
    tokio::spawn(async move { key_generator::run(&kit, b"", store, g, options, until).await });
    for (n, name) in town.users().into_iter().enumerate() {
        let (kit, data, stop) = (town.kit(&name), town.data(&name), stop.clone());
        let factor = if n as u32 + 1 == SPOILER { 1e6 } else { HONEST };
        tokio::spawn(async move {
            let store = SqliteStore::open(&data).await.unwrap();
            let (task, seed) = (kit.roster().task().clone(), Seed::new(SEED).derive("user", n as u64));
            let trainer = LinearTrainer::new(kit.task_file(), task, samples(n), seed).unwrap();
            let options = ServiceOptions::default();
            user::run(&kit, store, Scaled(trainer, factor), model_maker(&kit), options, stop).await
        });
    }

    let mut aggregator = Aggregator::start(&town, a).await;
    let seen = aggregator.wait(|snapshot| snapshot.status.searching).await;
    let (first, second) = (&seen.records[0], &seen.records[1]);
    assert_eq!((first.ending, second.ending), (Ending::Published, Ending::Rejected));
    assert!(second.reason.as_ref().unwrap().contains("outsized"), "{second:?}");
    assert_eq!(seen.status.suspects, (1..=USERS).collect::<Vec<_>>());
    assert_eq!(seen.status.asked, Some(vec![1, 2, 3]), "as few as the floor allows");
    assert_eq!(aggregator.metrics.suspects.get(), i64::from(USERS));
    // the search is not lost in a restart
    aggregator.stop().await;
    let mut aggregator = Aggregator::start(&town, TcpListener::bind(address).await.unwrap()).await;
    let seen = aggregator.wait(|snapshot| snapshot.status.suspects == [SPOILER]).await;
    let rejected = seen.records.iter().filter(|record| record.ending == Ending::Rejected);
    assert!(rejected.clone().all(|record| record.participants.contains(&SPOILER)), "{:?}", seen.records);
    let spoiled = rejected.count();
    assert!(spoiled <= 6, "{spoiled} rounds were spoiled");
    // no sum of fewer users than the floor
    assert!(seen.records.iter().all(|record| record.participants.len() >= 3));
    // rounds go on without the user, who stays in the task
    let rounds = seen.records.len();
    let seen = aggregator
        .wait(|snapshot| {
            snapshot.records.iter().skip(rounds).any(|record| record.ending == Ending::Published)
        })
        .await;
    let published = seen.records.iter().skip(rounds).find(|record| record.ending == Ending::Published);
    assert!(!published.unwrap().participants.contains(&SPOILER), "{published:?}");
    // rejected sums were opened; no opening failed
    assert_eq!(generator.openings(Outcome::Failed), 0);
    assert!(generator.openings(Outcome::Released) >= rounds as u64);
    aggregator.stop().await;
    switch.stop();
}
