//! `dphe demo`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

#[test]
fn demo_succeeds_and_writes_a_report_and_a_model() {
    let directory = tempfile::tempdir().unwrap();
    let dphe = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_dphe"))
            .args(args)
            .current_dir(directory.path())
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (ok, said, errors) = dphe(&["demo", "--rounds=3", "--bits=2048"]);
    assert!(ok, "{said}\n{errors}");
    for words in ["best user alone", "sparse, encrypted", "full, encrypted", "bit for bit", "report ", "next"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    // one row per round: encrypted and in the clear, for both profiles
    let rows: Vec<Vec<f64>> = said
        .lines()
        .filter(|line| line.starts_with(['1', '2', '3']) && line.matches('%').count() == 4)
        .map(|line| line.split_whitespace().skip(1).filter_map(|cell| cell.parse().ok()).collect())
        .collect();
    assert_eq!(rows.len(), 3, "{said}");
    for row in &rows {
        assert!((row[0] - row[1]).abs() <= 0.5 && (row[2] - row[3]).abs() <= 0.5, "{said}");
    }
    let page = std::fs::read_to_string(directory.path().join("dphe-demo/report.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
    let model = "--model=dphe-demo/full/model.safetensors";
    let held_out = "dphe-demo/full/held-out.npz";
    let recommended = format!("dphe evaluate --model dphe-demo/full/model.safetensors {held_out}");
    assert!(said.replace(" \\\n      ", " ").contains(&recommended), "{said}");
    let wide: Vec<&str> = said.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "wider than 80 columns: {wide:#?}");
    let (ok, report, errors) = dphe(&["evaluate", model, held_out, "--format=json"]);
    assert!(ok, "{errors}");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["accuracy"].as_f64().unwrap() > 0.85, "{report}");
    let kit = ["--kit=dphe-demo/sparse/kits/aggregator", "--data=dphe-demo/sparse/data/aggregator"];
    let (ok, said, errors) = dphe(&["verify", kit[0], kit[1]]);
    assert!(ok && said.contains("round 3"), "{said}{errors}");

    // nothing is overwritten, and bad options are refused before anything starts
    let (ok, _, errors) = dphe(&["demo", "-o", "dphe-demo"]);
    assert!(!ok && errors.contains("dphe-demo") && errors.contains("hint: "), "{errors}");
    let (ok, _, errors) = dphe(&["demo", "--bits=1024"]);
    assert!(!ok && errors.contains("1024"), "{errors}");
    assert!(!directory.path().join("dphe-demo-2").exists());
}

/// Starts a demo in a process group of its own, as a shell does.
fn start_demo(directory: &std::path::Path, more: &[&str]) -> std::process::Child {
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
