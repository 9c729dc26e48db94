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
    let (ok, report, errors) = dphe(&["evaluate", model, "--format=json"]);
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
