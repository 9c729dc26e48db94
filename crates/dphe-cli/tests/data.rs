//! `dphe data`: summaries and splits. Also what a build says that lacks a feature.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use dphe_features::{FeatureTable, ReadOptions, TableLabels, read_table, write_npz};

fn dphe(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dphe"));
    command.args(args).current_dir(directory);
    command
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a command that must fail without output, and returns its error and hint.
fn refused(directory: &Path, args: &[&str]) -> String {
    let output = dphe(directory, args).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{args:?} was accepted");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: ") && said.contains("\nhint: "), "{said}");
    said
}

/// Returns a table with 4 classes of 30 samples.
fn table() -> FeatureTable {
    let classes = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
    FeatureTable::new(2, (0..240).map(|i| (i * 7 % 101) as f32).collect())
        .unwrap()
        .with_labels(TableLabels::Classes((0..120).map(|i| i % 4).collect()), classes)
        .unwrap()
        .with_files((0..120).map(|i| format!("{i}.jpg")).collect())
        .unwrap()
}

#[test]
fn data_inspect_describes_a_file() {
    let directory = tempfile::tempdir().unwrap();
    write_npz(&directory.path().join("table.npz"), &table()).unwrap();
    let found = json(
        &dphe(directory.path(), &["data", "inspect", "table.npz", "--format", "json"]).output().unwrap(),
    );
    assert_eq!(
        (&found["samples"], &found["features"], &found["labels"]),
        (&120.into(), &2.into(), &"classes".into())
    );
    assert_eq!(found["classes"][3], serde_json::json!({ "name": "d", "samples": 30 }));
    assert_eq!(found["nan"], 0);
    fs::write(directory.path().join("table.csv"), "f0,f1,label\n1,nan,x\n1,2,y\n1,2,x\n").unwrap();
    let output = dphe(directory.path(), &["data", "inspect", "table.csv"]).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    for part in
        ["3 of 2 features", "1 NaN, 0 infinite, in 1 samples", "1 samples, 1 of them with another label"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    fs::write(directory.path().join("bad.npz"), "no zip").unwrap();
    assert!(refused(directory.path(), &["data", "inspect", "bad.npz"]).contains("bad.npz"));
}

#[test]
fn data_splits_are_disjoint_or_duplicated_and_reproducible() {
    let directory = tempfile::tempdir().unwrap();
    write_npz(&directory.path().join("table.npz"), &table()).unwrap();
    let split_by = |seed: &str, out: &str, more: &[&str]| {
        let args = [
            "data",
            "split",
            "table.npz",
            "--users",
            "3",
            "--initial-per-class",
            "2",
            "--test-per-class",
            "5",
            "--seed",
            seed,
            "-o",
            out,
            "--format",
            "json",
        ];
        let written = json(&dphe(directory.path(), &[&args[..], more].concat()).output().unwrap());
        assert_eq!(written.as_array().unwrap().len(), 5);
        ["initial", "test", "user-1", "user-2", "user-3"].map(|name| {
            let path = directory.path().join(out).join(format!("{name}.npz"));
            read_table(&path, &ReadOptions::default()).unwrap()
        })
    };
    let split = |out: &str, more: &[&str]| split_by("9", out, more);
    let sizes = |parts: &[FeatureTable; 5]| parts.each_ref().map(FeatureTable::samples);
    let files = |parts: &[FeatureTable]| parts.iter().flat_map(|p| p.files().to_vec()).collect::<Vec<_>>();
    let distinct = |mut files: Vec<String>| {
        files.sort_unstable();
        files.dedup();
        files.len()
    };

    let parts = split("one", &[]);
    assert_eq!(sizes(&parts), [8, 20, 31, 31, 30]);
    assert_eq!(distinct(files(&parts)), 120, "every sample once");
    assert_eq!(parts[0].summary().class_counts, [2; 4]);
    assert_eq!(parts[1].summary().class_counts, [5; 4]);
    split("two", &[]);
    for name in ["initial", "test", "user-1", "user-3"] {
        let bytes = |out: &str| fs::read(directory.path().join(out).join(format!("{name}.npz"))).unwrap();
        assert_eq!(bytes("one"), bytes("two"));
    }
    assert_ne!(files(&parts), files(&split_by("8", "three", &[])));

    let parts = split("four", &["--train-per-class", "20", "--split", "by-class"]);
    assert_eq!(sizes(&parts), [8, 20, 24, 24, 24]);
    assert_eq!(distinct(files(&parts)), 100);
    let classes =
        |part: &FeatureTable| part.summary().class_counts.iter().filter(|&&count| count > 0).count();
    assert!(parts[2..].iter().all(|part| classes(part) == 2), "72 samples of 4 classes in 3 runs");

    let parts = split("five", &["--split", "duplicated", "--per-user", "60"]);
    assert_eq!(sizes(&parts)[2..], [60; 3]);
    assert!(distinct(files(&parts[2..])) <= 92, "180 of 92: some are shared");
    assert_eq!(sizes(&split("six", &["--split", "duplicated"]))[2..], [19; 3], "a fifth");

    // shares of another split do not stay beside new ones
    let fewer = ["data", "split", "table.npz", "--users", "2", "-o", "one"];
    let error = refused(directory.path(), &fewer);
    assert!(error.contains("one has user-3.npz of another split") && error.contains("hint: "), "{error}");
    // the defaults leave samples for users, however few there are
    let few: Vec<usize> = (0..120).filter(|sample| sample % 3 == 0).collect();
    write_npz(&directory.path().join("few.npz"), &table().select(&few).unwrap()).unwrap();
    let default = ["data", "split", "few.npz", "--users", "3", "-o", "few"];
    assert!(dphe(directory.path(), &default).output().unwrap().status.success());

    let args = ["data", "split", "table.npz", "--users", "3", "-o", "bad", "--initial-per-class"];
    assert!(
        String::from_utf8(dphe(directory.path(), &[&args[..], &["31"]].concat()).output().unwrap().stderr)
            .unwrap()
            .contains("31")
    );
    let unlabelled = FeatureTable::new(1, vec![1.0, 2.0]).unwrap();
    write_npz(&directory.path().join("table.npz"), &unlabelled).unwrap();
    assert!(refused(directory.path(), &[&args[..], &["1"]].concat()).contains("no labels"));
}

/// A build without photos names the command that runs with them, with the same arguments.
#[cfg(not(feature = "photos"))]
#[test]
fn commands_that_need_photos_name_the_build_that_has_them() {
    let directory = tempfile::tempdir().unwrap();
    let said = refused(directory.path(), &["extract", "my photos", "--network", "n.onnx", "-o", "f.npz"]);
    assert!(said.contains("this build of dphe cannot read photos"), "{said}");
    let command = "`cargo run --release --features photos -- extract 'my photos' --network n.onnx -o f.npz`";
    assert!(said.contains(command), "{said}");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn parquet_files_name_the_build_that_reads_them() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("table.parquet"), "PAR1").unwrap();
    let said = refused(directory.path(), &["data", "inspect", "table.parquet"]);
    assert!(said.contains("cannot read Parquet") && said.contains("--features parquet"), "{said}");
}

#[cfg(not(feature = "postgres"))]
#[test]
fn databases_name_the_build_that_uses_them() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["verify", "--kit", "kit", "--database", "postgres://localhost/dphe"];
    let said = refused(directory.path(), &args);
    assert!(
        said.contains("cannot use a PostgreSQL database") && said.contains("--features postgres"),
        "{said}"
    );
}
