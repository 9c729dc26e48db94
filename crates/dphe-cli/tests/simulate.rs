//! `dphe simulate`, `dphe plan`, `dphe evaluate` and `dphe bench learn` on generated data.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use core::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

fn dphe(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(directory: &Path, args: &[&str]) -> serde_json::Value {
    let output = dphe(directory, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a command that must fail, and returns its error and hint.
fn refused(directory: &Path, args: &[&str]) -> String {
    let output = dphe(directory, args);
    assert!(!output.status.success(), "{args:?} was accepted");
    assert!(output.stdout.is_empty(), "{args:?} printed a result: {}", text(&output.stdout));
    let said = text(&output.stderr);
    assert!(said.starts_with("error: ") && !said.contains("panicked"), "{said}");
    said
}

const CLASSES: usize = 4;
const FEATURES: usize = 12;

/// Returns samples around one point per class, with so much noise that a few samples are not enough.
fn csv(per_class: usize) -> String {
    let mut state = 7u64;
    let mut noise = move || {
        // Knuth's generator; the sum of four draws is roughly normal
        (0..4)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f64 / (1u64 << 24) as f64 - 0.5
            })
            .sum::<f64>()
    };
    let mut out = (0..FEATURES).map(|j| format!("f{j},")).collect::<String>() + "label\n";
    for i in 0..per_class * CLASSES {
        let class = i % CLASSES;
        for j in 0..FEATURES {
            let centre = if j % CLASSES == class { 1.0 } else { 0.0 };
            write!(out, "{:.4},", centre + 1.3 * noise()).unwrap();
        }
        writeln!(out, "class-{class}").unwrap();
    }
    out
}

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("data.csv"), csv(60)).unwrap();
    directory
}

const QUICK: [&str; 9] =
    ["simulate", "data.csv", "--bits", "2048", "--noise", "fast", "--rounds", "6", "--format=json"];

#[test]
fn encrypted_and_plain_simulations_agree_and_write_report_and_model() {
    let directory = directory();
    let with = |more: &[&'static str]| -> Vec<&str> { QUICK.iter().chain(more).copied().collect() };
    let encrypted = json(directory.path(), &with(&["--share", "0.34", "-o", "out/run"]));
    let plain = json(directory.path(), &with(&["--share", "0.34", "--plain"]));
    let accuracy = |run: &serde_json::Value| run["accuracy"].as_f64().unwrap();
    assert!((accuracy(&encrypted) - accuracy(&plain)).abs() <= 0.005, "{encrypted} {plain}");
    let baseline = |name: &str| encrypted["baselines"][name].as_f64().unwrap();
    assert!(accuracy(&encrypted) > baseline("initial"), "{encrypted}");
    assert!(accuracy(&encrypted) > baseline("pooled") - 0.05, "{encrypted}");
    let rounds = encrypted["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 6);
    assert!(rounds.iter().all(|round| round["ciphertexts"].as_u64().unwrap() >= 1));
    assert!(rounds.iter().all(|round| round["seconds"]["seal"].as_f64().unwrap() > 0.0));
    assert!(plain["rounds"][0]["ciphertexts"].as_u64() == Some(0));

    let written = |name: &str| directory.path().join("out/run").join(name);
    let page = std::fs::read_to_string(written("report.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 4);
    assert!(page.contains("key generator opens") && page.ends_with("</html>\n"));
    let numbers: serde_json::Value =
        serde_json::from_slice(&std::fs::read(written("report.json")).unwrap()).unwrap();
    assert_eq!(numbers, encrypted);
    let model = std::fs::read(written("model.safetensors")).unwrap();
    assert!(text(&model[..2000.min(model.len())]).contains("class-3"));
}

#[test]
fn simulate_without_a_file_uses_the_digits() {
    let directory = directory();
    let run = json(directory.path(), &["simulate", "--plain", "--rounds=5", "--format=json"]);
    assert_eq!((run["samples"].as_u64(), run["features"].as_u64()), (Some(1797), Some(64)));
    assert!(run["accuracy"].as_f64().unwrap() > 0.9, "{run}");
    assert_eq!(run["rounds"].as_array().unwrap().len(), 5);
}

#[test]
fn every_payload_and_split_runs() {
    let directory = directory();
    for message in ["rotate", "d-block", "d-topk", "d-l1", "w-topk", "w-l1", "all"] {
        let run = json(
            directory.path(),
            &[
                "simulate",
                "data.csv",
                "--plain",
                "--rounds=3",
                "--payload",
                message,
                "--share=0.5",
                "--format=json",
            ],
        );
        assert_eq!(run["payload"], message);
        assert!(run["accuracy"].as_f64().unwrap() > 0.5, "{run}");
    }
    for split in [["--split=duplicated", "--users=6"], ["--split=by-class", "--users=4"]] {
        let args = ["simulate", "data.csv", "--plain", "--rounds=2", "--weighted", "--format=json"];
        let args: Vec<&str> = args.into_iter().chain(split).collect();
        assert!(json(directory.path(), &args)["accuracy"].as_f64().unwrap() > 0.4);
    }
    let table = dphe(directory.path(), &["simulate", "data.csv", "--plain", "--rounds=2"]);
    let table = text(&table.stdout);
    for word in ["round", "initial samples only", "all samples together", "Nothing was encrypted"] {
        assert!(table.contains(word), "{table}");
    }
}

#[test]
fn results_depend_on_the_seed_only() {
    let directory = directory();
    let run = |seed: &str| {
        let threads = if seed == "--seed=3" { "--threads=1" } else { "--threads=2" };
        let args =
            ["simulate", "data.csv", "--plain", "--rounds=2", "-o", "run", seed, threads, "--format=json"];
        json(directory.path(), &args);
        std::fs::read(directory.path().join("run/model.safetensors")).unwrap()
    };
    let first = run("--seed=3");
    assert!(first != run("--seed=4"), "another seed, the same model");
    assert!(first == run("--seed=3"), "the same seed, another model");
}

#[test]
fn bad_input_is_refused_with_an_error_and_a_hint() {
    let directory = directory();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("one.csv", "a,b,label\n1,2,x\n3,4,x\n5,6,x\n");
    write("broken.npz", "not an archive");
    let mut with_nan = csv(20);
    let first = with_nan.find('\n').unwrap() + 1;
    let comma = with_nan[first..].find(',').unwrap() + first;
    with_nan.replace_range(first..comma, "NaN");
    write("nan.csv", &with_nan);
    let simulate = |file: &str, more: &[&str]| {
        let args: Vec<&str> =
            ["simulate", file, "--plain", "--rounds=1"].into_iter().chain(more.iter().copied()).collect();
        refused(directory.path(), &args)
    };
    assert!(simulate("missing.npz", &[]).contains("missing.npz"));
    assert!(simulate("broken.npz", &[]).contains("broken.npz"));
    let nan = simulate("nan.csv", &[]);
    assert!(nan.contains("nan.csv") && nan.contains("finite"), "{nan}");
    assert!(simulate("one.csv", &[]).contains("try") || simulate("one.csv", &[]).contains("need"));
    assert!(simulate("data.csv", &["--users=2"]).contains("from 3 to"));
    assert!(simulate("data.csv", &["--users=1000"]).contains("samples"));
    assert!(simulate("data.csv", &["--share=0"]).contains("share"));
    assert!(simulate("data.csv", &["--strength=-1"]).contains("strength"));
    assert!(simulate("data.csv", &["--epochs=0"]).contains("epochs"));
    assert!(simulate("data.csv", &["--payload=rotate", "--profile=sparse"]).contains("rotate"));
    assert!(simulate("data.csv", &["--bits=1024"]).contains("1024"));
    assert!(simulate("data.csv", &["-o", "data.csv"]).contains("data.csv"));
}

#[test]
fn plan_estimates_costs_and_recommends_a_profile() {
    let directory = directory();
    let plan = json(
        directory.path(),
        &["plan", "--class-count=10", "--feature-count=200", "--bits=2048", "--noise=fast", "--format=json"],
    );
    let way = |message: &str| {
        plan["ways"].as_array().unwrap().iter().find(|way| way["payload"] == message).unwrap().clone()
    };
    assert_eq!(plan["better"], "full");
    assert!(way("rotate")["ciphertexts"].as_u64() < way("d-topk")["ciphertexts"].as_u64());
    assert_eq!(way("d-topk")["ciphertexts"], 202);
    assert!(way("all")["expected_singles"].is_null());
    assert!((way("d-block")["expected_singles"].as_f64().unwrap() - 0.801).abs() < 0.01);
    for key in ["seal_s", "aggregate_s", "open_s", "bytes"] {
        assert!(way("rotate")[key].as_f64().unwrap() > 0.0, "{key}");
    }
    let shape = json(directory.path(), &["plan", "data.csv", "--bits=2048", "--noise=fast", "--format=json"]);
    assert_eq!((shape["classes"].as_u64(), shape["features"].as_u64()), (Some(4), Some(12)));
    assert!(!dphe(directory.path(), &["plan"]).status.success());
}

#[test]
fn bench_learn_prints_four_numbers() {
    let directory = directory();
    let fit = json(
        directory.path(),
        &[
            "bench",
            "learn",
            "--features",
            "data.csv",
            "--penalty=elasticnet",
            "--strength=0.01",
            "--format=json",
        ],
    );
    assert_eq!(fit["samples"], 30 * CLASSES);
    assert!(fit["fit_s"].as_f64().unwrap() > 0.0 && fit["objective"].as_f64().unwrap() > 0.0);
    assert!(fit["accuracy"].as_f64().unwrap() > 0.6 && fit["sparsity"].as_f64().unwrap() >= 0.0);
}

#[test]
fn evaluate_accepts_only_features_of_the_model() {
    let directory = directory();
    let run = json(
        directory.path(),
        &["simulate", "data.csv", "--plain", "--rounds=3", "-o", "run", "--format=json"],
    );
    let model = "--model=run/model.safetensors";
    let report =
        json(directory.path(), &["evaluate", model, "data.csv", "--format=json", "--page", "page.html"]);
    assert_eq!(report["samples"], 60 * CLASSES);
    // most of the samples were trained on
    assert!(report["accuracy"].as_f64().unwrap() > run["accuracy"].as_f64().unwrap() - 0.1);
    let sum: u64 = report["confusion"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|row| row.as_array().unwrap())
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(sum, 60 * CLASSES as u64);
    assert!(std::fs::read_to_string(directory.path().join("page.html")).unwrap().contains("class-2"));
    let table = text(&dphe(directory.path(), &["evaluate", model, "data.csv"]).stdout);
    assert!(table.contains("average precision") && table.contains("predicted as"), "{table}");

    let other = csv(10).replace("class-3", "class-9");
    std::fs::write(directory.path().join("other.csv"), other).unwrap();
    assert!(refused(directory.path(), &["evaluate", model, "other.csv"]).contains("class-9"));
    let narrow =
        csv(10).lines().map(|line| line.split_once(',').unwrap().1.to_owned() + "\n").collect::<String>();
    std::fs::write(directory.path().join("narrow.csv"), narrow).unwrap();
    assert!(refused(directory.path(), &["evaluate", model, "narrow.csv"]).contains("11 features"));
    assert!(refused(directory.path(), &["evaluate", "--model=data.csv", "data.csv"]).contains("not a model"));
}
