//! Support for tests of the services: kits and data of a small task, and the simulation to compare with.
#![allow(dead_code, unreachable_pub, reason = "every test program uses a part of it")]

pub mod conformance;
pub mod postgres;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chacha20::ChaCha20Rng;
use dphe::{KeyGenerator, KeyLengths, NoiseMode};
use dphe_federate::{DpheAverage, Simulation, SimulationParams, Stopwatch, Weighting};
use dphe_learn::{Dataset, Features, Labels, Seed, Weights};
use dphe_paillier::{DecryptionKey, Threads};
use dphe_service::kit::{Kit, KitPlan, Protection, make_kits};
use dphe_service::learning::LinearModelMaker;
use dphe_service::task_file::{TaskFile, template};
use rand_core::{Rng as _, SeedableRng as _};
use tempfile::TempDir;

/// Safe primes of 1024 bits for tests only: they are public.
const P: &str = "ce1bebc43443505b80bf6a442a6c1771b829b6882a3b630ee06ffae7fa9d68e39a62f5f526f011233634f9b4d6689fc4\
                 c5e66d236eab234f5b5c1b94596457f294d1adf26a92a3378eb016ad1fe61f112bae52120e7f7f91c59fa0692c216e5e\
                 90089ae6245b821b9409a732dc87ec976544d02f119e480381162fa5425fc3e7";
const Q: &str = "d6d04aa475c21d6e0adf332956b7f6e515b5e9dcc006f4866fc6d059952b77cd827c4b77ee73c31410d0cd64fb9e8d2c\
                 39e18328ecb106cd4cc2eebe9a4e044b1b6cf2cdd3d367b58e19282db25afa652b5ce7314ac51baa7dc47dc0071eb538\
                 5b005e59d2d00cbc5c173f35f45a79a8673d5c3a32f7b220761be8bdeb73cb0f";

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

pub fn key() -> DecryptionKey {
    dphe_paillier::hazmat::decryption_key(&unhex(P), &unhex(Q), NoiseMode::Fast).unwrap()
}

pub fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

pub const CLASSES: usize = 3;
pub const FEATURES: usize = 12;
/// The seed of training in simulations and services.
pub const SEED: u64 = 77;

/// The parameters of a test task.
#[derive(Clone, Copy)]
pub struct Plan {
    pub users: u32,
    pub rounds: u64,
    /// True for payload `d-block` in profile `sparse`, false for `rotate` in `full`.
    pub sparse: bool,
    /// The shortest and longest collection time.
    pub time: (&'static str, &'static str),
}

impl Default for Plan {
    fn default() -> Self {
        Self { users: 3, rounds: 3, sparse: false, time: ("20s", "40s") }
    }
}

/// The kits of a test task, in a directory that is deleted on drop.
pub struct Town {
    pub directory: TempDir,
    pub plan: Plan,
    pub aggregator: SocketAddr,
    pub key_generator: SocketAddr,
}

impl Town {
    /// Creates the kits of a task whose services listen on these addresses.
    pub fn new(plan: Plan, aggregator: SocketAddr, key_generator: SocketAddr) -> Self {
        Self::edited(plan, aggregator, key_generator, |text| text)
    }

    /// As [`Town::new`], with a task file that was changed.
    pub fn edited(
        plan: Plan,
        aggregator: SocketAddr,
        key_generator: SocketAddr,
        edit: impl FnOnce(String) -> String,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("task.toml");
        std::fs::write(&path, edit(task_text(plan, 1, aggregator, key_generator))).unwrap();
        let kits = KitPlan::for_all_parties(&path, Vec::new(), KeyLengths::default()).unwrap();
        make_kits(&kits, key(), &directory.path().join("kits"), &Protection::FileMode, &mut rng(5)).unwrap();
        Self { directory, plan, aggregator, key_generator }
    }

    /// Creates the kits of a task on ports that are free at this moment.
    pub fn on_free_ports(plan: Plan) -> Self {
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (a, b) = (free(), free());
        Self::new(plan, a.local_addr().unwrap(), b.local_addr().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn kit_directory(&self, party: &str) -> PathBuf {
        self.path("kits").join(party)
    }

    pub fn kit(&self, party: &str) -> Arc<Kit> {
        Arc::new(Kit::read(&self.kit_directory(party)).unwrap())
    }

    pub fn data(&self, party: &str) -> PathBuf {
        self.path("data").join(party)
    }

    pub fn users(&self) -> Vec<String> {
        (1..=self.plan.users).map(|n| format!("user-{n}")).collect()
    }

    pub fn task_file(&self) -> TaskFile {
        TaskFile::read(&self.path("task.toml")).unwrap()
    }

    /// Simulates rounds of all users, and returns the model.
    pub fn simulate(&self, rounds: usize) -> Vec<u8> {
        let file = self.task_file();
        let task = self.kit("aggregator").roster().task().clone();
        let trainer = file.linear().unwrap().trainer(&task).unwrap();
        let keys = KeyGenerator::with_key(task, key(), &mut rng(9)).unwrap();
        let users = self.plan.users as usize;
        let average =
            DpheAverage::with_key_generator(keys, Weighting::Equal, users, rng(10), Threads::all()).unwrap();
        let mut simulation = Simulation::new(
            (0..users).map(samples).collect(),
            Weights::zeros(FEATURES, CLASSES).unwrap(),
            trainer,
            average,
            SimulationParams::default(),
            Seed::new(SEED),
        )
        .unwrap();
        for _ in 0..rounds {
            simulation.round(&mut Stopwatch::none()).unwrap();
        }
        simulation.global().to_bytes()
    }
}

/// Returns the text of the task file.
pub fn task_text(plan: Plan, id: u8, aggregator: SocketAddr, key_generator: SocketAddr) -> String {
    let Plan { users, rounds, sparse, time: (least, most) } = plan;
    let (payload, profile) = if sparse { ("d-block", "sparse") } else { ("rotate", "full") };
    let mut text = template(dphe::TaskId::from_bytes([id; 16]));
    for (from, to) in [
        ("users = 5 ", format!("users = {users} ")),
        ("rounds = 20", format!("rounds = {rounds}")),
        ("localhost:7100", aggregator.to_string()),
        ("localhost:7200", key_generator.to_string()),
        ("classes = 10", format!("classes = {CLASSES}")),
        ("features = 64", format!("features = {FEATURES}")),
        ("payload = \"rotate\"", format!("payload = \"{payload}\"\ncapacity = 5")),
        ("squared_radius = 65.0", "squared_radius = 13.0".into()),
        ("profile = \"full\"", format!("profile = \"{profile}\"")),
        ("key_bits = 3072", "key_bits = 2048".into()),
        ("noise = \"secure\"", "noise = \"fast\"".into()),
        ("max = 5 }", format!("max = {users} }}")),
        ("min = \"30s\", max = \"10m\"", format!("min = \"{least}\", max = \"{most}\"")),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, &to, 1);
    }
    text
}

/// Returns the samples of a user, numbered from 0. Classes differ in one feature each, with much noise.
pub fn samples(user: usize) -> Dataset<f32> {
    let mut rng = rng(1000 + user as u64);
    let mut noise = || (rng.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0;
    let count = 24 + user;
    let labels: Vec<u32> = (0..count).map(|sample| (sample % CLASSES) as u32).collect();
    let values = labels
        .iter()
        .flat_map(|&label| (0..FEATURES).map(move |feature| (label, feature)))
        .map(|(label, feature)| noise() + if feature % CLASSES == label as usize { 1.0 } else { 0.0 })
        .collect();
    Dataset::new(Features::new(FEATURES, values).unwrap(), Labels::classes(CLASSES, labels).unwrap()).unwrap()
}

/// Writes the samples of a user to a file without loss of precision.
pub fn write_samples(user: usize, path: &Path) {
    let data = samples(user);
    let labels = data.labels().as_classes("a file").unwrap();
    let lines: Vec<String> = data
        .features()
        .rows()
        .zip(labels)
        .map(|(row, label)| {
            let row: Vec<String> = row.iter().map(|value| format!("{value:?}")).collect();
            format!("{},{label}", row.join(","))
        })
        .collect();
    let names: Vec<String> = (0..data.features().width()).map(|feature| format!("f{feature}")).collect();
    let text = names.join(",") + ",label\n" + &lines.join("\n") + "\n";
    std::fs::write(path, text).unwrap();
}

/// Computes the models of a task.
pub fn model_maker(kit: &Kit) -> LinearModelMaker {
    LinearModelMaker::new(kit.task_file(), kit.roster().task().clone()).unwrap()
}
