//! `dphe bench service`: a small load with abusive clients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

fn dphe(directory: &std::path::Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_dphe"))
        .args(args)
        .env("TMPDIR", directory)
        .current_dir(directory)
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn load_with_abusive_clients_acknowledges_and_counts_every_upload() {
    let directory = tempfile::tempdir().unwrap();
    let load = "bench service --users 12,14 --dimension 64 --idle 5 --slow 2 --waiting 13 --duplicates 0.5 --rounds 2 \
                --rate 50 --format json --output figures";
    let (code, said, errors) = dphe(directory.path(), &load.split_whitespace().collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{said}\n{errors}");
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(report["key"].as_str().unwrap().starts_with("TEST KEY"), "{said}");
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for (run, users) in runs.iter().zip([12, 14]) {
        assert_eq!((&run["users"], &run["ok"]), (&users.into(), &true.into()), "{said}");
        // over both rounds
        assert_eq!((&run["acknowledged"], &run["counted"]), (&(2 * users).into(), &(2 * users).into()));
        assert_eq!(run["duplicates"], users);
        let answered = ["duplicates_acknowledged", "duplicates_late"].map(|name| run[name].as_u64().unwrap());
        assert_eq!(answered.iter().sum::<u64>(), users, "{said}");
        // on a slow machine, the service may have closed some, which reconnect
        let clients = |name: &str| run["abusive_clients"][name].as_u64().unwrap();
        assert!(clients("idle") + clients("idle_closed") >= 5, "{said}");
        assert!(clients("slow") + clients("slow_ended") >= 2, "{said}");
        assert_eq!(clients("waiting"), users.min(13), "{said}");
        assert!(run["latency_p50_s"].as_f64().unwrap() <= run["latency_max_s"].as_f64().unwrap());
        let names: Vec<&str> = run["processes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|process| process["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["key-generator", "aggregator"]);
        assert!(run["processes"][1]["disk_bytes"].as_u64().unwrap() > 0);
        if cfg!(target_os = "linux") {
            let peak = run["processes"][1]["peak_bytes"].as_u64().unwrap();
            assert!(peak >= run["processes"][1]["end_bytes"].as_u64().unwrap() && peak > 1 << 20, "{said}");
        }
    }
    let written = std::fs::read_to_string(directory.path().join("figures/service.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), report);
    assert!(directory.path().join("figures/service-time.svg").exists());
    // keys, data and sealed updates are deleted
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["figures"]);
}

#[test]
fn invalid_load_options_are_refused_before_anything_starts() {
    let directory = tempfile::tempdir().unwrap();
    for (wish, code, word) in [
        ("--users 2", 2, "2 is not in"),
        ("--duplicates 1.5", 1, "from 0 to 1"),
        ("--rate -1", 1, "uploads per second"),
        ("--replicas 2", 1, "--database"),
        ("--bits 1024", 1, "1024"),
    ] {
        let wish = wish.replacen("--rate ", "--rate=", 1);
        let args: Vec<&str> = ["bench", "service"].into_iter().chain(wish.split_whitespace()).collect();
        let (found, said, errors) = dphe(directory.path(), &args);
        assert_eq!(found, Some(code), "{wish}: {said}{errors}");
        assert!(errors.contains(word), "{wish}: {errors}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{wish}");
    }
}
