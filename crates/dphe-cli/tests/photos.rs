//! From photos to labels: extract, simulate, predict labels of held-out photos, and compare with the exported graph in
//! onnxruntime. Needs the network and the photos of `DPHE_DATA`, and is skipped with a message without them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn data() -> Option<PathBuf> {
    let found = match std::env::var_os("DPHE_DATA") {
        Some(data) => vec![PathBuf::from(data)],
        None => Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|up| up.join("shared/data")).collect(),
    };
    let found = found.into_iter().find(|directory| directory.join("photos").is_dir());
    if found.is_none() {
        println!("SKIPPED: no photos; set DPHE_DATA to the directory that holds photos/ and models/");
    }
    found
}

fn dphe(directory: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Creates a directory of links to some photos of each class.
fn link(from: &Path, to: &Path, pick: impl Fn(usize) -> bool) -> usize {
    let mut count = 0;
    for class in std::fs::read_dir(from).unwrap() {
        let class = class.unwrap().path();
        let there = to.join(class.file_name().unwrap());
        std::fs::create_dir_all(&there).unwrap();
        let mut photos: Vec<PathBuf> =
            std::fs::read_dir(&class).unwrap().map(|p| p.unwrap().path()).collect();
        photos.sort();
        for (_, photo) in photos.iter().enumerate().filter(|&(i, _)| pick(i)) {
            std::os::unix::fs::symlink(photo, there.join(photo.file_name().unwrap())).unwrap();
            count += 1;
        }
    }
    count
}

#[test]
fn held_out_photos_are_predicted_and_onnxruntime_agrees() {
    let Some(data) = data() else { return };
    let network = data.join("models/mobilenetv2_pool1280.onnx");
    let network = network.to_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    // every fourth photo is held out
    let seen = link(&data.join("photos"), &at.join("seen"), |i| i % 4 != 0);
    let unseen = link(&data.join("photos"), &at.join("unseen"), |i| i % 4 == 0);

    dphe(at, &["extract", "--network", network, "seen", "-o", "seen.npz"]);
    let args =
        ["simulate", "seen.npz", "--users=3", "--bits=2048", "--noise=fast", "--rounds=8", "-o", "run"];
    dphe(at, &args);
    let model = "--model=run/model.safetensors";
    let page = "--page=labels.html";
    let said =
        dphe(at, &["predict", model, "--network", network, "unseen", "--top=2", "--format=json", page]);
    let said: Vec<serde_json::Value> = serde_json::from_str(&said).unwrap();
    assert_eq!(said.len(), unseen);
    let labels: HashMap<&str, &str> = said
        .iter()
        .map(|p| (p["file"].as_str().unwrap(), p["labels"][0]["label"].as_str().unwrap()))
        .collect();
    let right = labels.iter().filter(|(file, label)| file.split('/').next() == Some(**label)).count();
    println!("{seen} photos learnt from; {right} of {unseen} held-out photos labelled right");
    assert!(right * 100 >= unseen * 95);
    let html = std::fs::read_to_string(at.join("labels.html")).unwrap();
    assert_eq!(html.matches("<img").count(), unseen);

    // a single photo and a feature file give the same predictions
    let (file, label) = labels.iter().next().unwrap();
    let one = dphe(at, &["predict", model, "--network", network, &format!("unseen/{file}"), "--format=csv"]);
    assert!(one.lines().nth(1).unwrap().contains(label), "{one}");
    dphe(at, &["extract", "--network", network, "unseen", "-o", "unseen.npz"]);
    let table = dphe(at, &["predict", model, "unseen.npz", "--top=1"]);
    assert_eq!(table.lines().count(), unseen + 1);
    let report = dphe(at, &["evaluate", model, "unseen.npz", "--format=json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!((report["accuracy"].as_f64().unwrap() - right as f64 / unseen as f64).abs() < 1e-9);

    // photos without a network or with another one are refused
    let refused = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(at).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["predict", model, "unseen"]).contains("no network was given"));
    let mut other = std::fs::read(network).unwrap();
    // an unknown field is ignored, so this is the same network with another digest
    other.extend([0xfa, 0x3f, 1, 0]);
    std::fs::write(at.join("other.onnx"), other).unwrap();
    let said = refused(&["predict", model, "--network=other.onnx", "unseen"]);
    assert!(said.contains("a network that the model was not trained on"), "{said}");

    dphe(at, &["export", model, "-o", "alone.onnx"]);
    dphe(at, &["export", model, "--network", network, "-o", "whole.onnx"]);
    dphe(at, &["export", model, "-o", "model.npz"]);
    dphe(at, &["export", model, "-o", "model.json"]);
    let Ok(python) = std::env::var("DPHE_TEST_PYTHON") else {
        println!("SKIPPED: DPHE_TEST_PYTHON names no Python that has onnxruntime; run scripts/setup python");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exported.py");
    let answer = Command::new(python).arg(script).current_dir(at).output().unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    let mut compared = 0;
    for graph in ["alone", "whole", "npz"] {
        for (file, label) in answer[graph].as_object().unwrap() {
            assert_eq!(label.as_str().unwrap(), labels[file.as_str()], "{graph}: {file}");
            compared += 1;
        }
    }
    println!("{compared} labels of exported graphs are the same in onnxruntime");
    assert_eq!(compared, 3 * unseen);
}
