//! A user of a task inside a program of your own. `join` is what such a program needs. The rest of this file plays the
//! other parties, so that the example runs by itself: a key generator, an aggregator, and two more users.

use std::path::{Path, PathBuf};

use dphe_examples::digits;
use dphe_learn::{Dataset, Seed};
use dphe_service::Error;
use dphe_service::http::server::Shutdown;
use dphe_service::kit::Kit;
use dphe_service::learning::{LinearModelMaker, LinearTrainer};
use dphe_service::service::user::{self, UserSummary};
use dphe_service::service::{ServiceOptions, os_rng};
use dphe_service::store::SqliteStore;
use rand_core::Rng as _;

/// Takes part in a task until its last round or `stop`. `kit` is the directory that the key generator handed over,
/// `state` is a directory for this user's log, and `data` are the user's samples.
async fn join(kit: &Path, state: &Path, data: Dataset, stop: Shutdown) -> Result<UserSummary, Error> {
    let kit = Kit::read(kit)?;
    let mut seed = [0; 32];
    os_rng()?.fill_bytes(&mut seed); // the order of samples should be unknown to others
    let (task_file, task) = (kit.task_file(), kit.roster().task().clone());
    // For a learner of your own, add `.with_learner(Learner::custom(..))`, or implement `Trainer`.
    let maker = LinearModelMaker::new(task_file, task.clone())?;
    let trainer = LinearTrainer::new(task_file, task, data, Seed::from_bytes(seed))?
        .with_residual_file(state.join("residual.bin"));
    let store = SqliteStore::open(state).await?;
    // A real user sets `ServiceOptions::roster` at the first start, to the hash that the parties have compared.
    user::run(&kit, store, trainer, maker, ServiceOptions::default(), stop).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let begin = std::time::Instant::now();
    let task = others::Task::start().await?;
    println!("the services are ready after {:.1?}", begin.elapsed());

    // The digits are dealt to three users. A twentieth of them is held out.
    let all = digits()?;
    let part = |n: usize, of: usize| all.select(&(0..all.len()).filter(|i| i % of == n).collect::<Vec<_>>());
    let standardizer = dphe_learn::Standardizer::fit(part(0, 20)?.features());
    let mut users = Vec::new();
    for number in 1..=3 {
        let data = part(number, 4)?.standardized(&standardizer)?;
        let (kit, state) = (task.kit(number), task.state(number));
        let stop = task.stop.clone();
        users.push(tokio::spawn(async move { join(&kit, &state, data, stop).await }));
    }
    let mut models = Vec::new();
    for user in users {
        let summary = user.await??;
        println!("rounds {}, with this user's update {}", summary.rounds, summary.included);
        assert!(summary.over && summary.included == summary.rounds);
        models.push(summary.model.ok_or("no model was published")?);
    }
    assert!(models.windows(2).all(|pair| pair[0] == pair[1]), "every user has the same model");
    let model = dphe_federate::GlobalWeights::from_bytes(&models[0])?;
    let accuracy = model.accuracy(&part(0, 20)?.standardized(&standardizer)?, dphe_learn::all_cores())?;
    println!("{:.1} % of held-out digits after {:.1?}", 100.0 * accuracy, begin.elapsed());
    assert!(accuracy > 0.7, "{accuracy}");
    task.end().await
}

/// The parties that a user talks to, and the kits that the key generator hands out.
mod others {
    use dphe::{KeyLengths, NoiseMode, TaskId};
    use dphe_paillier::{DecryptionKey, KeyBits, Threads};
    use dphe_service::http::server::{ShutdownSwitch, shutdown};
    use dphe_service::kit::{KitPlan, Protection, make_kits};
    use dphe_service::service::aggregator::AggregatorService;
    use dphe_service::service::key_generator;
    use dphe_service::task_file::template;
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    use super::*;

    /// A task whose services run in this process.
    pub(super) struct Task {
        folder: tempfile::TempDir,
        switch: ShutdownSwitch,
        pub(super) stop: Shutdown,
        services: Vec<JoinHandle<Result<(), Error>>>,
    }

    impl Task {
        /// Makes the keys and kits of a task, and starts its services.
        pub(super) async fn start() -> Result<Self, Box<dyn std::error::Error>> {
            let a = TcpListener::bind("127.0.0.1:0").await?;
            let g = TcpListener::bind("127.0.0.1:0").await?;
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("task.toml");
            let mut text = template(TaskId::from_bytes([3; 16]));
            for (from, to) in [
                ("users = 5 ", "users = 3 ".to_owned()),
                ("rounds = 20", "rounds = 10".to_owned()),
                ("localhost:7100", a.local_addr()?.to_string()),
                ("localhost:7200", g.local_addr()?.to_string()),
                ("key_bits = 3072", "key_bits = 2048".to_owned()),
                ("max = 5 }", "max = 3 }".to_owned()),
            ] {
                text = text.replacen(from, &to, 1);
            }
            std::fs::write(&file, text)?;
            let plan = KitPlan::for_all_parties(&file, Vec::new(), KeyLengths::default())?;
            let (mut rng, threads) = (os_rng()?, Threads::all());
            let key = DecryptionKey::generate(KeyBits::B2048, NoiseMode::Secure, &mut rng, threads)?;
            make_kits(&plan, key, &folder.path().join("kits"), &Protection::FileMode, &mut rng)?;

            let (switch, stop) = shutdown();
            let kit = Kit::read(&folder.path().join("kits/key-generator"))?;
            let store = SqliteStore::open(&folder.path().join("key-generator")).await?;
            let until = stop.clone();
            let generator = tokio::spawn(async move {
                key_generator::run(&kit, b"", store, g, ServiceOptions::default(), until).await
            });
            let kit = Kit::read(&folder.path().join("kits/aggregator"))?;
            let data = folder.path().join("aggregator");
            let store = SqliteStore::open(&data).await?;
            let maker = LinearModelMaker::new(kit.task_file(), kit.roster().task().clone())?;
            let service =
                AggregatorService::start(&kit, store, &data, maker, ServiceOptions::default()).await?;
            let aggregator = tokio::spawn(service.run(a, stop.clone()));
            Ok(Self { folder, switch, stop, services: vec![generator, aggregator] })
        }

        pub(super) fn kit(&self, user: usize) -> PathBuf {
            self.folder.path().join(format!("kits/user-{user}"))
        }

        pub(super) fn state(&self, user: usize) -> PathBuf {
            self.folder.path().join(format!("user-{user}"))
        }

        /// Stops the services.
        pub(super) async fn end(self) -> Result<(), Box<dyn std::error::Error>> {
            self.switch.stop();
            for service in self.services {
                service.await??;
            }
            Ok(())
        }
    }
}
