//! Tasks of named tensors: users are processes that train with a program of their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dphe::{KeyLengths, PublicSupport, Round, TaskParams};
use dphe_federate::vector::VectorRules;
use dphe_federate::{RoundResidual, ValueSum};
use dphe_learn::Seed;
use dphe_service::kit::{KitPlan, Protection, make_kits};
use dphe_service::task_file::TaskFile;
use dphe_service::tensors::TensorModel;
use support::process::{Process, wait_until};
use support::{Plan, SEED, Town, key, rng};

const ROUNDS: u64 = 3;
/// The users whose trainers work. There is one more.
const GOOD: u32 = 3;
/// The fractional bits of differences.
const SCALE_BITS: i32 = 20;

fn dphe(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(directory).output().unwrap()
}

/// Runs a command that must succeed, and returns what it prints.
fn done(directory: &Path, args: &[&str]) -> String {
    let output = dphe(directory, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail, and returns its error.
fn refused(directory: &Path, args: &[&str]) -> String {
    let output = dphe(directory, args);
    assert!(!output.status.success(), "{args:?} was accepted");
    String::from_utf8(output.stderr).unwrap()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/trainer/train.py").canonicalize().unwrap()
}

/// The example needs Python, but no package.
fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        println!("SKIPPED: python3 is not installed");
    }
    found
}

/// Runs the example as the services do.
fn train(directory: &Path, args: &[&str], variables: &[(&str, String)]) -> String {
    let mut command = Command::new("python3");
    command.arg(script()).args(args).current_dir(directory).envs(variables.iter().cloned());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Writes samples of three classes, which lie around three corners of a cube.
fn write_samples(directory: &Path, user: u32) {
    use rand_core::Rng as _;
    let mut rng = rng(user.into());
    let mut noise = || f64::from(rng.next_u32()) / f64::from(u32::MAX) - 0.5;
    let line = |sample: usize| {
        let label = sample % 3;
        let mut value = |input| format!("{:.4}", noise() + if input == label { 1.0 } else { 0.0 });
        format!("{},{},{},{label}\n", value(0), value(1), value(2))
    };
    let text: String = (0..30).map(line).collect();
    std::fs::write(directory.join(format!("user-{user}.csv")), text).unwrap();
}

/// Creates a task from the example's network, with the kits of all parties.
fn town(options: &[&str]) -> Town {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let free = || -> SocketAddr { TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
    let (aggregator, key_generator) = (free(), free());
    train(here, &["--new", "3", "3", "network.safetensors"], &[]);
    let (users, rounds) = ((GOOD + 1).to_string(), ROUNDS.to_string());
    let (a, g) = (aggregator.to_string(), key_generator.to_string());
    let mut init = vec!["init", "task.toml", "--tensors", "network.safetensors", "--users", &users];
    init.extend(["--rounds", &rounds, "--aggregator", &a, "--key-generator", &g]);
    init.extend(["--bits", "2048", "--noise", "fast"]);
    init.extend(options);
    let printed = done(here, &init);
    assert!(printed.contains("59 values in 4 of 5 tensors are trained"), "{printed}");
    let path = here.join("task.toml");
    // long enough for three trainers, and short enough for rounds without the fourth user
    let text = std::fs::read_to_string(&path).unwrap().replacen("min = \"30s\"", "min = \"2s\"", 1);
    std::fs::write(&path, text).unwrap();
    let plan = KitPlan::for_all_parties(&path, Vec::new(), KeyLengths::default()).unwrap();
    make_kits(&plan, key(), &here.join("kits"), &Protection::FileMode, &mut rng(5)).unwrap();
    let plan = Plan { users: GOOD + 1, rounds: ROUNDS, ..Plan::default() };
    (1..=GOOD).for_each(|user| write_samples(here, user));
    Town { directory, plan, aggregator, key_generator }
}

/// Trains all rounds without encryption, but with the rounding of the task if `rounded`.
fn in_the_clear(town: &Town, rounded: bool) -> TensorModel {
    let (file, here) = (TaskFile::read(&town.path("task.toml")).unwrap(), town.directory.path());
    let sections = file.tensors().unwrap();
    let mut model = TensorModel::read(&here.join("initial.safetensors"), &[]).unwrap();
    let task = TaskParams::new(file.id().unwrap(), file.tensor_config(&model).unwrap()).unwrap();
    let rules: VectorRules = sections.rules(task.clone()).unwrap();
    let mut residuals = vec![RoundResidual::default(); GOOD as usize];
    let (global, local) = (here.join("clear-global"), here.join("clear-local"));
    for round in (1..=ROUNDS).map(|round| Round::new(round).unwrap()) {
        std::fs::write(&global, model.as_bytes()).unwrap();
        let mut sum = ValueSum { users: GOOD as usize, weights: vec![0.0; model.len()], dense: Vec::new() };
        for (user, residual) in (1..=GOOD).zip(&mut residuals) {
            let seed = Seed::new(SEED).derive("user", u64::from(user) - 1).derive("trainer", round.get());
            let seed = u32::from_le_bytes(seed.to_bytes()[..4].try_into().unwrap());
            let path = |path: &Path| path.to_str().unwrap().to_owned();
            let variables = [
                ("DPHE_ROUND", round.get().to_string()),
                ("DPHE_SEED", seed.to_string()),
                ("DPHE_GLOBAL", path(&global)),
                ("DPHE_LOCAL", path(&local)),
            ];
            train(here, &[&format!("user-{user}.csv")], &variables);
            let differences = model.differences(&std::fs::read(&local).unwrap()).unwrap();
            let support = PublicSupport::of(&task, round);
            let update = rules.update(round, &support, differences, residual).unwrap().update;
            residual.finish(round, true);
            let scale = 2f64.powi(SCALE_BITS);
            for (&index, &value) in update.weights().indices().iter().zip(update.weights().values()) {
                sum.weights[index as usize] +=
                    if rounded { (value * scale).round_ties_even() / scale } else { value };
            }
        }
        model = model.with_step(&rules.step_of(&sum).unwrap()).unwrap();
    }
    model
}

/// Starts the services and the users, the last of whom has this trainer.
fn start(town: &Town, bad: &str) -> Vec<Process> {
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let mut all: Vec<Process> = Vec::new();
    for name in ["aggregator", "key-generator"] {
        let (kit, data) = (text(town.kit_directory(name)), text(town.data(name)));
        all.push(Process::new(town, name, &["serve", name, "--kit", &kit, "--data", &data]));
    }
    for (n, name) in town.users().iter().enumerate() {
        let (kit, data) = (text(town.kit_directory(name)), text(town.data(name)));
        let (seed, output) = (SEED.to_string(), text(town.path(&format!("{name}.safetensors"))));
        let samples = text(town.path(&format!("{name}.csv")));
        let good = format!("python3 '{}' '{samples}'", script().display());
        let trainer = if n < GOOD as usize { &good } else { bad };
        let mut args = vec!["join", "--kit", &kit, "--data", &data, "--seed", &seed, "--output", &output];
        args.extend(["--trainer", trainer, "--trainer-failures", "2"]);
        all.push(Process::new(town, name, &args));
    }
    all
}

fn weights_are_those_in_the_clear(options: &[&str]) {
    let town = town(options);
    let here = town.directory.path();
    for party in ["aggregator", "user-1"] {
        // it complains that no service runs yet
        let output = dphe(here, &["doctor", "--kit", &format!("kits/{party}")]);
        let doctor = String::from_utf8(output.stdout).unwrap();
        assert!(doctor.contains("the initial model can be read"), "{doctor}");
    }
    let mut all = start(&town, "sh -c 'echo no samples today >&2; exit 3'");
    wait_until(&mut all[2..], "the task ends", |user| user.ended().is_some());

    let expected = in_the_clear(&town, true);
    let initial = std::fs::read(here.join("initial.safetensors")).unwrap();
    assert_ne!(expected.as_bytes(), initial);
    for user in 1..=GOOD {
        let written = std::fs::read(here.join(format!("user-{user}.safetensors"))).unwrap();
        assert!(written == expected.as_bytes(), "user {user} has other tensors");
    }
    // without rounding, sums differ by half a step per user, which training hardly amplifies
    let exact = in_the_clear(&town, false).values();
    let farthest = expected.values().iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    println!(
        "{options:?}: at most {farthest:.2e} from unrounded rounds, the step is {:.2e}",
        2f64.powi(-SCALE_BITS)
    );
    assert!(farthest > 0.0 && farthest < 64.0 * 2f64.powi(-SCALE_BITS), "{farthest}");
    let accuracy = train(here, &["--test", "user-1.safetensors", "user-1.csv"], &[]);
    println!("{}", accuracy.trim());

    // the fourth user said why, and stopped after two rounds
    let bad = all.last_mut().unwrap();
    assert_eq!(bad.ended(), Some(false));
    assert_eq!(bad.events("training failed; this user skips the round").len(), 2, "{}", bad.text());
    let text = bad.text();
    assert!(
        text.contains("the trainer failed: exit status: 3") && text.contains("no samples today"),
        "{text}"
    );
    for name in town.users() {
        let data = town.data(&name);
        assert!(!data.join("trainer").exists(), "{name} leaves the files of a round");
    }
    let lines = all[2].events("the trainer wrote");
    assert!(lines.iter().any(|line| line["text"].as_str().unwrap().starts_with("round 1: loss")));

    // stop the aggregator, and compute every model again
    all[0].kill();
    let data = town.data("aggregator");
    let verified = done(here, &["verify", "--kit", "kits/aggregator", "--data", data.to_str().unwrap()]);
    assert_eq!(verified.matches("published, 3 users").count(), ROUNDS as usize, "{verified}");
    assert!(!verified.contains("bad  "), "{verified}");
}

#[test]
fn tensors_trained_by_programs_equal_rounds_in_the_clear() {
    if has_python() {
        weights_are_those_in_the_clear(&["--share", "0.5"]);
    }
}

#[test]
fn largest_values_of_private_positions_equal_rounds_in_the_clear() {
    if has_python() {
        weights_are_those_in_the_clear(&["--payload", "d-topk", "--share", "0.25", "--profile", "sparse"]);
    }
}

#[test]
fn commands_for_another_kind_of_task_say_so() {
    if !has_python() {
        return;
    }
    let town = town(&[]);
    let here = town.directory.path();
    let join = ["join", "--kit", "kits/user-1", "--data", "data"];
    let with = |more: &[&str]| refused(here, &[&join, more].concat());
    let error = with(&["--features", "user-1.csv"]);
    assert!(error.contains("this task trains named tensors") && error.contains("--trainer"), "{error}");
    let error = with(&["--trainer", "./no-such-program"]);
    assert!(error.contains("the trainer ./no-such-program cannot be started"), "{error}");
    assert!(with(&[]).contains("--features"));
    assert!(with(&["--features", "user-1.csv", "--trainer", "true"]).contains("cannot be used with"));
    let serve =
        ["serve", "aggregator", "--kit", "kits/aggregator", "--data", "data", "--held-out", "user-1.csv"];
    assert!(refused(here, &serve).contains("this task trains named tensors"));
    assert!(
        refused(here, &["evaluate", "user-1.csv", "--model", "initial.safetensors"]).contains("not a model")
    );

    let plan =
        ["plan", "--tensors", "network.safetensors", "--users", "3", "--bits", "2048", "--format", "json"];
    let plan: serde_json::Value = serde_json::from_str(&done(here, &plan)).unwrap();
    assert_eq!((plan["values"].as_u64(), plan["ways"].as_array().unwrap().len()), (Some(59), 4), "{plan}");

    let init = ["init", "other.toml", "--tensors", "network.safetensors"];
    let with = |more: &[&str]| refused(here, &[&init, more].concat());
    assert!(with(&["--payload", "w-l1"]).contains("for linear models"));
    assert!(with(&["--capacity", "7"]).contains("for linear models"));
    assert!(with(&["--loss", "hinge"]).contains("cannot be used with"));
    assert!(with(&["--keep", "no.such.tensor"]).contains("\"no.such.tensor\" is missing"));
    assert!(with(&["--clip", "0.3"]).contains("a power of two"));
    // the directory has another initial model already
    assert!(with(&[]).contains("initial.safetensors already exists"));
    assert!(!here.join("other.toml").exists());

    // a kit cannot be made from another model
    train(here, &["--new", "4", "3", "initial.safetensors"], &[]);
    let keygen = ["keygen", "--for-all-parties", "--no-passphrase", "--output", "more-kits"];
    assert!(refused(here, &keygen).contains("have the layout"), "the shapes differ");
}
