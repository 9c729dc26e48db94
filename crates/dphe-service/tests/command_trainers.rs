//! Users whose programs train named tensors: the services with them, and programs that train badly. Each of these costs
//! its user one round, and leaves nothing behind.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use dphe::{KeyLengths, PublicSupport, Round, TaskId, TaskParams, Update, UserId};
use dphe_federate::{RoundResidual, ValueSum};
use dphe_learn::Seed;
use dphe_service::Error;
use dphe_service::command_trainer::{CommandTrainer, TrainerCommand, TrainerError};
use dphe_service::http::server::shutdown;
use dphe_service::kit::{KitPlan, Protection, make_kits};
use dphe_service::learning::{Trainer as _, model_maker};
use dphe_service::service::aggregator::AggregatorService;
use dphe_service::service::{ServiceOptions, key_generator, user};
use dphe_service::store::{Archive as _, SqliteStore};
use dphe_service::task_file::{Milliseconds, TaskFile, tensor_template};
use dphe_service::tensors::{TensorError, TensorModel};
use dphe_service::verify::{MessageSource, Replay, check_rounds};
use rand_core::Rng as _;
use safetensors::tensor::{Dtype, TensorView};
use support::{Plan, Town, key, rng};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::timeout;

fn tensors(entries: &[(&str, Dtype, &[usize], Vec<u8>)]) -> Vec<u8> {
    let views = entries
        .iter()
        .map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn model(values: &[f32]) -> Vec<u8> {
    tensors(&[("steps", Dtype::I64, &[], vec![7; 8]), ("weight", Dtype::F32, &[2, 2], floats(values))])
}

struct Lab {
    directory: TempDir,
    file: TaskFile,
    task: TaskParams,
    global: Vec<u8>,
}

impl Lab {
    fn new() -> Self {
        let global = model(&[0.0, 1.0, 2.0, 3.0]);
        let parsed = TensorModel::new(global.clone(), &[]).unwrap();
        let text = tensor_template(TaskId::from_bytes([1; 16]))
            .replacen(&"0".repeat(64), &parsed.digest(), 1)
            .replacen("dimension = 1", "dimension = 4", 1)
            .replacen("\"rotate\"", "\"all\"", 1);
        let file = TaskFile::parse(&text, Path::new("task.toml")).unwrap();
        let task = TaskParams::new(file.id().unwrap(), file.tensor_config(&parsed).unwrap()).unwrap();
        Self { directory: tempfile::tempdir().unwrap(), file, task, global }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn data(&self) -> PathBuf {
        let data = self.directory.path().join("data");
        std::fs::create_dir_all(&data).unwrap();
        data
    }

    /// Makes the trainer that runs this line in a shell.
    fn trainer(&self, line: &str, limit: u64) -> CommandTrainer {
        let script = self.write("train.sh", line.as_bytes());
        let command = TrainerCommand::parse(&format!("sh {script}"), Milliseconds(limit)).unwrap();
        let user = UserId::new(2).unwrap();
        CommandTrainer::new(&self.file, self.task.clone(), user, command, &self.data(), Seed::new(1)).unwrap()
    }

    fn train(&self, trainer: &mut CommandTrainer) -> Result<Update, Error> {
        let support = PublicSupport::of(&self.task, Round::FIRST);
        let update = trainer.make_update(Round::FIRST, &support, &self.global);
        assert!(!self.data().join("trainer").exists(), "files of the round are left");
        update
    }

    fn error(&self, line: &str) -> TrainerError {
        match self.train(&mut self.trainer(line, 60_000)) {
            Err(Error::Trainer(error)) => error,
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn a_program_gets_its_files_and_variables_and_nothing_else_of_ours() {
    let lab = Lab::new();
    let good = lab.write("good", &model(&[0.5, 1.0, 2.0, 2.75]));
    let seen = lab.directory.path().join("seen");
    let line = format!(
        "env | grep ^DPHE_ | sort > {0}; ls -ld $(dirname $DPHE_GLOBAL) >> {0}; cat $DPHE_GLOBAL > {0}.model\n\
         read line && echo stdin >> {0}; cp {good} $DPHE_LOCAL",
        seen.display()
    );
    let mut trainer = lab.trainer(&line, 60_000);
    let update = lab.train(&mut trainer).unwrap();
    assert_eq!(update.weights().indices(), [0, 1, 2, 3]);
    assert_eq!(update.weights().values(), [0.5, 0.0, 0.0, -0.25]);

    let text = std::fs::read_to_string(&seen).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let directory = std::path::absolute(lab.data()).unwrap().join("trainer");
    let path = |name: &str, file: &str| format!("{name}={}", directory.join(file).display());
    assert_eq!(lines.len(), 7, "{text}");
    assert_eq!(lines[0], path("DPHE_GLOBAL", "global.safetensors"));
    assert_eq!(lines[1], path("DPHE_LOCAL", "local.safetensors"));
    assert_eq!(lines[2], "DPHE_ROUND=1");
    assert!(lines[3].strip_prefix("DPHE_SEED=").unwrap().parse::<u32>().is_ok());
    assert_eq!(lines[4], format!("DPHE_TASK={}", TaskId::from_bytes([1; 16])));
    assert_eq!(lines[5], "DPHE_USER=2");
    assert!(lines[6].starts_with("drwx------"), "others can read the directory: {}", lines[6]);
    assert_eq!(std::fs::read(seen.with_extension("model")).unwrap(), lab.global);
}

#[test]
fn results_that_cannot_be_used_are_refused_with_the_reason() {
    let lab = Lab::new();
    let result = |name: &str, bytes: &[u8]| {
        let file = lab.write(name, bytes);
        match lab.error(&format!("cp {file} $DPHE_LOCAL")) {
            TrainerError::Result(error) => error,
            other => panic!("{name}: {other}"),
        }
    };
    let nan = result("nan", &model(&[0.0, f32::NAN, 0.0, 0.0]));
    assert!(matches!(nan, TensorError::NotFinite { index: 1, .. }), "{nan}");
    let flat = tensors(&[("weight", Dtype::F32, &[4], floats(&[0.0; 4]))]);
    assert!(matches!(result("flat", &flat), TensorError::Other { what: "the shape", .. }));
    let other = tensors(&[("weights", Dtype::F32, &[2, 2], floats(&[0.0; 4]))]);
    assert!(matches!(result("other", &other), TensorError::Unknown { .. }));
    let none = tensors(&[("steps", Dtype::I64, &[], vec![0; 8])]);
    assert!(matches!(result("none", &none), TensorError::Missing { .. }));
    assert!(matches!(result("short", &lab.global[..lab.global.len() - 1]), TensorError::Format { .. }));
    assert!(matches!(result("empty", b""), TensorError::Format { .. }));

    assert!(matches!(lab.error("true"), TrainerError::NoResult));
    assert!(matches!(lab.error("mkfifo $DPHE_LOCAL"), TrainerError::Read { .. }));
    assert!(matches!(lab.error("mkdir $DPHE_LOCAL"), TrainerError::Read { .. }));
    let link = format!("ln -s {} $DPHE_LOCAL", lab.write("target", &lab.global));
    assert!(matches!(lab.error(&link), TrainerError::Read { .. }));
    let failed = lab.error("cp $DPHE_GLOBAL $DPHE_LOCAL; exit 9").to_string();
    assert_eq!(failed, "the trainer failed: exit status: 9");
    assert!(lab.error("kill -SEGV $$").to_string().contains("signal: 11"));
}

#[test]
fn programs_that_never_end_or_write_without_end_are_killed_with_their_children() {
    let lab = Lab::new();
    let pids = lab.directory.path().join("pids");
    let hang = format!("sleep 1000 & echo $$ $! > {}; wait", pids.display());
    let error = lab.train(&mut lab.trainer(&hang, 500)).unwrap_err();
    assert!(matches!(error, Error::Trainer(TrainerError::TooSlow { .. })), "{error}");
    assert_eq!(error.to_string(), "the trainer did not end within 500ms, and was killed");
    ended(&pids);

    assert!(matches!(lab.error("cat /dev/zero > $DPHE_LOCAL"), TrainerError::TooLong { .. }));
    // a program that ends before it is looked at is found out, too
    assert!(matches!(lab.error("head -c 2000000 /dev/zero > $DPHE_LOCAL"), TrainerError::TooLong { .. }));
    // output that nobody reads would stop the program
    assert!(matches!(
        lab.error("head -c 5000000 /dev/zero; yes | head -n 99999 >&2"),
        TrainerError::NoResult
    ));

    // what a program leaves behind does not hold up the round, and ends with it
    let left = format!("sleep 1000 & echo $! > {}; cp $DPHE_GLOBAL $DPHE_LOCAL", pids.display());
    lab.train(&mut lab.trainer(&left, 60_000)).unwrap();
    ended(&pids);

    // the round is over: another thread stops the program
    let mut trainer = lab.trainer("sleep 1000", 60_000);
    let stop = trainer.stop().unwrap();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        stop.up_to(Round::FIRST);
    });
    let error = lab.train(&mut trainer).unwrap_err();
    assert!(matches!(error, Error::Trainer(TrainerError::Stopped)), "{error}");
    other.join().unwrap();
}

/// Waits until the processes with these ids have ended. One that nobody has waited for is a zombie.
fn ended(pids: &Path) {
    for pid in std::fs::read_to_string(pids).unwrap().split_whitespace() {
        let runs = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            state.is_some_and(|state| state != 'Z' && state != 'X')
        };
        let mut tries = 0;
        while runs() {
            tries += 1;
            assert!(tries < 500, "process {pid} still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn what_a_failed_round_has_not_sent_is_not_lost() {
    let lab = Lab::new();
    // the range is 1, so 4 of the difference of 5 stay, of which the next update gets nine tenths
    let most = 1.0 - 2f64.powi(-20);
    let far = lab.write("far", &model(&[5.0, 1.0, 2.0, 3.0]));
    let near = lab.write("near", &lab.global);
    let line =
        format!("case $DPHE_ROUND in 1) cp {far} $DPHE_LOCAL;; 2) exit 1;; *) cp {near} $DPHE_LOCAL;; esac");
    let round = |number| Round::new(number).unwrap();
    let make = |trainer: &mut CommandTrainer, number| {
        let support = PublicSupport::of(&lab.task, round(number));
        trainer.make_update(round(number), &support, &lab.global)
    };
    let mut trainer = lab.trainer(&line, 60_000);
    assert_eq!(make(&mut trainer, 1).unwrap().weights().values()[0], most);
    trainer.finished(round(1), true);
    assert!(make(&mut trainer, 2).is_err());
    trainer.finished(round(2), false);
    // another process goes on with the same residual
    drop(trainer);
    let mut trainer = lab.trainer(&line, 60_000);
    assert_eq!(make(&mut trainer, 3).unwrap().weights().values(), [most, 0.0, 0.0, 0.0]);
    trainer.finished(round(3), true);
    assert_eq!(make(&mut trainer, 4).unwrap().weights().values(), [most, 0.0, 0.0, 0.0]);
}

const ROUNDS: u64 = 4;
const USERS: u32 = 3;

/// A model of 40 single and two double values.
fn wide(seed: u64) -> Vec<u8> {
    let mut rng = rng(seed);
    let mut number = || f64::from(rng.next_u32()) / f64::from(u32::MAX) - 0.5;
    let weights: Vec<f32> = (0..40).map(|_| number() as f32).collect();
    let scale: Vec<u8> = (0..2).flat_map(|_| number().to_le_bytes()).collect();
    tensors(&[
        ("scale", Dtype::F64, &[2], scale),
        ("seen", Dtype::U8, &[3], vec![1, 2, 3]),
        ("weight", Dtype::F32, &[5, 8], floats(&weights)),
    ])
}

/// What a user trains in a round, whatever the global model is.
fn local(user: u32, round: u64) -> Vec<u8> {
    wide(100 * u64::from(user) + round)
}

fn town(payload: &str, profile: &str, aggregator: &TcpListener, key_generator: &TcpListener) -> Town {
    let directory = tempfile::tempdir().unwrap();
    let initial = wide(1);
    std::fs::write(directory.path().join("initial.safetensors"), &initial).unwrap();
    let (a, g) = (aggregator.local_addr().unwrap(), key_generator.local_addr().unwrap());
    let mut text = tensor_template(TaskId::from_bytes([9; 16]));
    for (from, to) in [
        ("users = 5 ", format!("users = {USERS} ")),
        ("rounds = 20", format!("rounds = {ROUNDS}")),
        ("localhost:7100", a.to_string()),
        ("localhost:7200", g.to_string()),
        (&*"0".repeat(64), TensorModel::new(initial, &[]).unwrap().digest()),
        ("dimension = 1 ", "dimension = 42 ".into()),
        ("\"rotate\"", format!("\"{payload}\"")),
        ("# share = 0.1", "share = 0.3".into()),
        ("\"full\"", format!("\"{profile}\"")),
        ("key_bits = 3072", "key_bits = 2048".into()),
        ("noise = \"secure\"", "noise = \"fast\"".into()),
        ("max = 5 }", format!("max = {USERS} }}")),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, &to, 1);
    }
    let path = directory.path().join("task.toml");
    std::fs::write(&path, text).unwrap();
    let plan = KitPlan::for_all_parties(&path, Vec::new(), KeyLengths::default()).unwrap();
    make_kits(&plan, key(), &directory.path().join("kits"), &Protection::FileMode, &mut rng(5)).unwrap();
    let plan = Plan { users: USERS, rounds: ROUNDS, ..Plan::default() };
    Town { directory, plan, aggregator: a, key_generator: g }
}

/// Computes all rounds without encryption: with the rounding of the task, or without.
fn in_the_clear(town: &Town, rounded: bool) -> TensorModel {
    let file = town.task_file();
    let mut model = TensorModel::new(wide(1), &[]).unwrap();
    let task = town.kit("aggregator").roster().task().clone();
    let rules = file.tensors().unwrap().rules(task.clone()).unwrap();
    let scale = 2f64.powi(task.config().scale_bits.into());
    let mut residuals = vec![RoundResidual::default(); USERS as usize];
    for round in (1..=ROUNDS).map(|round| Round::new(round).unwrap()) {
        let support = PublicSupport::of(&task, round);
        let mut sum = ValueSum { users: USERS as usize, weights: vec![0.0; model.len()], dense: Vec::new() };
        for (user, residual) in (1..=USERS).zip(&mut residuals) {
            let differences = model.differences(&local(user, round.get())).unwrap();
            let update = rules.update(round, &support, differences, residual).unwrap().update;
            residual.finish(round, true);
            for (&index, &value) in update.weights().indices().iter().zip(update.weights().values()) {
                let value = if rounded { (value * scale).round_ties_even() / scale } else { value };
                sum.weights[index as usize] += value;
            }
        }
        model = model.with_step(&rules.step_of(&sum).unwrap()).unwrap();
    }
    model
}

async fn services_equal_rounds_in_the_clear(payload: &str, profile: &str) {
    let a = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let g = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let town = town(payload, profile, &a, &g);
    let (switch, stop) = shutdown();
    let kit = town.kit("key-generator");
    let store = SqliteStore::open(&town.data("key-generator")).await.unwrap();
    let until = stop.clone();
    let generator = tokio::spawn(async move {
        key_generator::run(&kit, b"", store, g, ServiceOptions::default(), until).await
    });
    let kit = town.kit("aggregator");
    let store = SqliteStore::open(&town.data("aggregator")).await.unwrap();
    let maker = model_maker(kit.task_file(), kit.roster().task().clone()).unwrap();
    let (data, options) = (town.data("aggregator"), ServiceOptions::default());
    let service = AggregatorService::start(&kit, store, &data, maker, options).await.unwrap();
    let aggregator = tokio::spawn(service.run(a, stop.clone()));

    for (user, round) in (1..=USERS).flat_map(|user| (1..=ROUNDS).map(move |round| (user, round))) {
        std::fs::write(town.path(&format!("local-{user}-{round}")), local(user, round)).unwrap();
    }
    let line = format!("cp {}/local-$DPHE_USER-$DPHE_ROUND $DPHE_LOCAL", town.directory.path().display());
    let users: Vec<_> = (1..=USERS)
        .map(|n| {
            let name = format!("user-{n}");
            let (kit, data, stop) = (town.kit(&name), town.data(&name), stop.clone());
            let command = TrainerCommand::parse(&format!("sh -c '{line}'"), Milliseconds(60_000)).unwrap();
            tokio::spawn(async move {
                let store = SqliteStore::open(&data).await.unwrap();
                let (file, task) = (kit.task_file(), kit.roster().task().clone());
                let maker = model_maker(file, task.clone()).unwrap();
                let user = UserId::new(n).unwrap();
                let trainer = CommandTrainer::new(file, task, user, command, &data, Seed::new(1)).unwrap();
                user::run(&kit, store, trainer, maker, ServiceOptions::default(), stop).await.unwrap()
            })
        })
        .collect();
    let expected = in_the_clear(&town, true);
    for user in users {
        let summary = timeout(Duration::from_secs(300), user).await.expect("the task ends").unwrap();
        assert_eq!((summary.over, summary.included), (true, ROUNDS));
        assert!(summary.model.as_deref() == Some(expected.as_bytes()), "the same tensors, bit for bit");
    }
    switch.stop();
    timeout(Duration::from_secs(60), aggregator).await.expect("A stops").unwrap().unwrap();
    timeout(Duration::from_secs(60), generator).await.expect("G stops").unwrap().unwrap();

    // a round moves a value by at most half a step of rounding more or less; the residual carries it on
    let exact = in_the_clear(&town, false).values();
    let farthest = expected.values().iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let step = 2f64.powi(-i32::from(town.kit("aggregator").roster().task().config().scale_bits));
    println!("{payload}: at most {farthest:.2e} from unrounded rounds, and the step is {step:.2e}");
    assert!(farthest > 0.0 && farthest <= ROUNDS as f64 * step, "{farthest}");

    let kit = town.kit("aggregator");
    let mut store = SqliteStore::open(&town.data("aggregator")).await.unwrap();
    let messages = store.messages(Round::FIRST).await.unwrap();
    let mut maker = model_maker(kit.task_file(), kit.roster().task().clone()).unwrap();
    let (model, key) = (kit.initial_model().unwrap(), kit.encryption_key().unwrap());
    let replay = Replay { model, key, maker: &mut *maker, users: Vec::new() };
    let rounds = check_rounds(kit.rosters(), MessageSource::Archive, messages, Some(replay));
    assert_eq!(rounds.len() as u64, ROUNDS);
    assert!(rounds.iter().all(|round| round.findings.is_empty()), "{rounds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotating_share_of_tensors_equals_rounds_in_the_clear() {
    services_equal_rounds_in_the_clear("rotate", "full").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_values_of_tensors_equal_rounds_in_the_clear() {
    services_equal_rounds_in_the_clear("d-topk", "sparse").await;
}
