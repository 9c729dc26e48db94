//! `dphe demo`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

/// Runs the program in a directory. Returns whether it succeeded, its output and its errors.
fn dphe(directory: &Path, args: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(directory).output().unwrap();
    (
        output.status.success(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// Reads the report of a demo, and checks that encryption changed no accuracy by more than a point. The demo itself
/// checks that it changes nothing but the rounding, which decides in training which samples are learnt from.
fn report(directory: &Path, rounds: usize) -> serde_json::Value {
    let text = std::fs::read_to_string(directory.join("dphe-demo/report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let reports = report["rounds"].as_array().unwrap();
    assert_eq!(reports.len(), rounds, "{report}");
    for round in reports {
        let of = |name: &str| round[name].as_f64().unwrap();
        assert!((of("accuracy") - of("accuracy_without_encryption")).abs() <= 0.01, "{round}");
    }
    report
}

#[test]
fn demo_succeeds_and_writes_a_report_and_a_model() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (ok, said, errors) = dphe(directory, &["demo", "--bits=2048"]);
    assert!(ok, "{said}\n{errors}");
    for words in ["best user alone", "together, sealed", "in one place", "bit for bit", "report ", "next"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let wide: Vec<&str> = said.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "wider than 80 columns: {wide:#?}");

    let report = report(directory, 12);
    let of = |name: &str| report["accuracy"][name].as_f64().unwrap();
    assert!(of("together") >= of("best_alone") + 0.15, "{report}");
    assert!((of("together") - of("one_place")).abs() <= 0.02, "{report}");
    let users = report["users"].as_array().unwrap();
    assert_eq!(users.len(), 5);
    for user in users {
        let similarity = |name: &str| user["similarity"][name].as_f64().unwrap();
        assert!(similarity("plain") > 0.5, "the plain update shows the picture: {user}");
        assert!(similarity("sealed").abs() < 0.2, "the sealed update is noise: {user}");
    }
    let page = std::fs::read_to_string(directory.join("dphe-demo/report.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
    // three pictures per attack, and five examples per user
    assert_eq!(page.matches("src=\"data:image/png").count(), 5 * 3 + 5 * 5);

    let model = "--model=dphe-demo/full/model.safetensors";
    let held_out = "dphe-demo/full/held-out.npz";
    let recommended = format!("dphe evaluate --model dphe-demo/full/model.safetensors {held_out}");
    assert!(said.replace(" \\\n            ", " ").contains(&recommended), "{said}");
    let (ok, evaluated, errors) = dphe(directory, &["evaluate", model, held_out, "--format=json"]);
    assert!(ok, "{errors}");
    let evaluated: serde_json::Value = serde_json::from_str(&evaluated).unwrap();
    assert!((evaluated["accuracy"].as_f64().unwrap() - of("together")).abs() < 1e-9, "{evaluated}");

    // nothing is overwritten, and bad options are refused before anything starts
    let (ok, _, errors) = dphe(directory, &["demo", "-o", "dphe-demo"]);
    assert!(!ok && errors.contains("dphe-demo") && errors.contains("hint: "), "{errors}");
    let (ok, _, errors) = dphe(directory, &["demo", "--bits=1024"]);
    assert!(!ok && errors.contains("1024"), "{errors}");
    assert!(!directory.join("dphe-demo-2").exists());
}

#[test]
fn demo_with_private_positions_can_be_verified() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (ok, said, errors) = dphe(directory, &["demo", "--profile=sparse", "--rounds=3", "--bits=2048"]);
    assert!(ok && said.contains("bit for bit"), "{said}\n{errors}");
    assert_eq!(report(directory, 3)["profile"], "sparse");
    let kit = ["--kit=dphe-demo/sparse/kits/aggregator", "--data=dphe-demo/sparse/data/aggregator"];
    let (ok, said, errors) = dphe(directory, &["verify", kit[0], kit[1]]);
    assert!(ok && said.contains("round 3"), "{said}{errors}");
}

/// Starts a demo in a process group of its own, as a shell does.
fn start_demo(directory: &Path, more: &[&str]) -> std::process::Child {
    use std::os::unix::process::CommandExt as _;
    Command::new(env!("CARGO_BIN_EXE_dphe"))
        .args(["demo", "--profile=full", "--bits=2048"])
        .args(more)
        .current_dir(directory)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap()
}

/// Sends SIGINT to a process group, as Ctrl-C in a terminal does.
fn press_ctrl_c(child: &std::process::Child) {
    let sent = Command::new("kill").args(["-INT", "--", &format!("-{}", child.id())]).status().unwrap();
    assert!(sent.success());
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !done() {
        assert!(begin.elapsed().as_secs() < 120, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn demo_interrupted_in_a_round_says_so_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let child = start_demo(directory.path(), &["--rounds=1000"]);
    let log = directory.path().join("dphe-demo/full/aggregator.log");
    wait_for("the first round ends", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("the round is over"))
    });
    press_ctrl_c(&child);
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{errors}");
    assert!(errors.starts_with("error: interrupted\nhint: "), "{errors}");
}

#[test]
fn demo_keeps_its_dashboard_on_the_same_port_until_ctrl_c() {
    use std::io::{BufRead as _, BufReader};
    let directory = tempfile::tempdir().unwrap();
    let mut child = start_demo(directory.path(), &["--rounds=1", "--keep"]);
    let mut addresses = Vec::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while addresses.len() < 2 {
        let line = lines.next().unwrap().unwrap();
        addresses.extend(line.trim().starts_with("http://").then(|| line.trim().to_owned()));
    }
    assert_eq!(addresses[0], addresses[1]);
    press_ctrl_c(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
