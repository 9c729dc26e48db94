//! The program as a person meets it: what it prints, what it leaves on disk, how it says no.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

fn dphe(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must fail, and returns what it said.
fn refused(folder: &Path, args: &[&str]) -> String {
    let output = dphe(folder, args);
    assert!(!output.status.success(), "{args:?} was accepted");
    assert!(output.stdout.is_empty(), "{args:?} printed a result: {}", text(&output.stdout));
    text(&output.stderr)
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("passphrase"), "correct horse\nignored\n").unwrap();
    std::fs::write(folder.path().join("wrong"), "wrong horse\n").unwrap();
    folder
}

const NEW: [&str; 9] =
    ["key", "new", "--paper", "--bits", "512", "-o", "test.key", "--passphrase-file", "passphrase"];

#[test]
fn help_names_the_commands() {
    let output = dphe(Path::new("."), &["--help"]);
    assert!(output.status.success());
    let help = text(&output.stdout);
    assert!(help.contains("key") && help.contains("bench"), "{help}");
}

#[test]
fn a_key_is_made_shown_and_never_overwritten() {
    let folder = folder();
    let made = dphe(folder.path(), &NEW);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let made = text(&made.stdout);
    assert!(made.contains("noise        secure") && made.contains("protect nothing"), "{made}");

    let public = text(&dphe(folder.path(), &["key", "show", "test.key.pub"]).stdout);
    let secret = dphe(folder.path(), &["key", "show", "test.key", "--passphrase-file", "passphrase"]);
    let secret = text(&secret.stdout);
    let id = |shown: &str| shown.lines().find(|l| l.starts_with("id")).unwrap().to_owned();
    assert_eq!(id(&public), id(&secret));

    let before = std::fs::read(folder.path().join("test.key")).unwrap();
    let error = refused(folder.path(), &NEW);
    assert!(error.contains("exists already") && error.contains("try: "), "{error}");
    assert_eq!(std::fs::read(folder.path().join("test.key")).unwrap(), before);
}

#[cfg(unix)]
#[test]
fn a_secret_key_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    assert!(dphe(folder.path(), &NEW).status.success());
    let file = folder.path().join("test.key");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    for mode in [0o644, 0o640, 0o604] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = refused(folder.path(), &["key", "show", "test.key", "--passphrase-file", "passphrase"]);
        assert!(error.contains("others on this machine can read") && error.contains("chmod 600"), "{error}");
    }
}

#[test]
fn damaged_and_foreign_key_files_are_refused() {
    let folder = folder();
    assert!(dphe(folder.path(), &NEW).status.success());
    let show = |file: &str, passphrase: &str| {
        refused(folder.path(), &["key", "show", file, "--passphrase-file", passphrase])
    };
    assert!(show("test.key", "wrong").contains("passphrase is wrong or the file is damaged"));
    assert!(show("absent.key", "wrong").contains("could not be read"));
    assert!(show("passphrase", "wrong").contains("not a key"));
    let file = folder.path().join("test.key");
    let whole = std::fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(&file, &flipped).unwrap();
    assert!(show("test.key", "passphrase").contains("damaged"));
    std::fs::write(&file, &whole[..whole.len() - 5]).unwrap();
    assert!(show("test.key", "passphrase").contains("length is wrong"));
    std::fs::write(&file, vec![0; 1 << 20]).unwrap();
    assert!(show("test.key", "passphrase").contains("too large"));
}

#[test]
fn short_keys_need_to_be_asked_for() {
    let error = refused(Path::new("."), &["key", "new", "--bits", "1024", "-o", "never.key"]);
    assert!(error.contains("1024 bits is not supported") && error.contains("--paper"), "{error}");
}

#[test]
fn a_back_end_that_cannot_run_is_an_error() {
    let run = |name: &str| {
        Command::new(env!("CARGO_BIN_EXE_dphe"))
            .args(["bench", "kernel", "--bits", "512", "--paper"])
            .env("DPHE_BACKEND", name)
            .output()
            .unwrap()
    };
    let output = run("quantum");
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("portable"), "{}", text(&output.stderr));
    let portable = run("portable");
    assert!(text(&portable.stdout).contains("back end portable"), "{}", text(&portable.stdout));
}

#[test]
fn the_benchmark_answers_in_json() {
    let args = [
        "bench",
        "paillier",
        "--bits",
        "512",
        "--paper",
        "--mode",
        "fast",
        "--threads",
        "1",
        "--format",
        "json",
    ];
    let output = dphe(Path::new("."), &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["mode"], "fast");
    assert_eq!(report["bits"], 512);
    assert_eq!(report["threads"], 1);
    for key in ["keygen_s", "encrypt_us", "encrypt_pooled_us", "add_us", "mul_us", "pack_us", "decrypt_us"] {
        assert!(report[key].as_f64().unwrap() > 0.0, "{key}");
    }
    let args = ["bench", "packing", "--bits", "512", "--paper", "--values", "1000", "--format", "json"];
    let report: serde_json::Value = serde_json::from_slice(&dphe(Path::new("."), &args).stdout).unwrap();
    // 15 slots of 32 bits in 510 bits
    assert_eq!((report["slots"].as_u64(), report["ciphertexts"].as_u64()), (Some(15), Some(67)));
    assert_eq!(report["bytes"].as_u64(), Some(67 * 128));
}

#[test]
fn shells_are_told_how_to_complete() {
    let here = folder();
    for shell in ["bash", "zsh", "fish"] {
        let output = dphe(here.path(), &["completions", shell]);
        assert!(output.status.success());
        let script = text(&output.stdout);
        assert!(script.contains("reproduce") && script.contains("key-generator"), "{shell}");
    }
}

#[test]
fn a_task_is_made_from_a_few_public_samples() {
    let here = folder();
    let rows = ["0.1,2,cat", "0.2,2.1,cat", "3,-1,dog", "3.1,-1.2,dog"];
    std::fs::write(here.path().join("public.csv"), format!("a,b,label\n{}\n", rows.join("\n"))).unwrap();
    let init = ["init", "task.toml", "--public", "public.csv", "--users", "4", "--name", "pets \"at\" home"];
    let output = dphe(here.path(), &init);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("cat, dog"), "{}", text(&output.stdout));
    let task = dphe_node::task_file::TaskFile::read(&here.path().join("task.toml")).unwrap();
    assert_eq!((task.model.classes, task.model.features, task.task.users), (2, 2, 4));
    assert_eq!(task.task.name, "pets \"at\" home");
    let model = dphe_node::model::Model::read(&here.path().join("initial.safetensors")).unwrap();
    assert_eq!(model.about.classes, ["cat", "dog"]);
    // nothing is overwritten
    let error = refused(here.path(), &init);
    assert!(error.contains("exists"), "{error}");
    let error = refused(here.path(), &["init", "other.toml", "--public", "none.npz"]);
    assert!(error.contains("none.npz"), "{error}");
    assert!(!here.path().join("other.toml").exists());
}

#[test]
fn experiments_are_repeated_and_remembered() {
    let here = folder();
    let args =
        ["reproduce", "leaks", "--quick", "--runs", "1", "--out", "found", "--format", "json", "--check"];
    let first = dphe(here.path(), &args);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    assert!(rows.as_array().unwrap().len() > 3, "{rows}");
    let found = here.path().join("found");
    for name in ["leaks.md", "leaks.json", "report.html", "measured/leaks.jsonl"] {
        assert!(found.join(name).metadata().unwrap().len() > 500, "{name}");
    }
    // what was measured is not measured again, also when the last line was cut off
    let measured = std::fs::read_to_string(found.join("measured/leaks.jsonl")).unwrap();
    let cut = &measured[..measured.len() - 20];
    std::fs::write(found.join("measured/leaks.jsonl"), cut).unwrap();
    let again = dphe(here.path(), &args);
    assert_eq!(text(&again.stdout), text(&first.stdout), "the same numbers");
    let longer = std::fs::read_to_string(found.join("measured/leaks.jsonl")).unwrap();
    assert!(longer.starts_with(cut) && longer.len() > measured.len());
    let error = refused(here.path(), &["reproduce", "table1", "--data", "nowhere"]);
    assert!(error.contains("nowhere") && error.contains("docs/reproduction.md"), "{error}");
    std::fs::create_dir(here.path().join("nowhere")).unwrap();
    let error = refused(here.path(), &["reproduce", "table1", "--data", "nowhere"]);
    assert!(error.contains("no data set"), "{error}");
}
