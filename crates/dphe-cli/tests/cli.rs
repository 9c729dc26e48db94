//! The program's output, files and errors.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

fn dphe(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must fail, and returns its error.
fn refused(directory: &Path, args: &[&str]) -> String {
    let output = dphe(directory, args);
    assert!(!output.status.success(), "{args:?} was accepted");
    assert!(output.stdout.is_empty(), "{args:?} printed a result: {}", text(&output.stdout));
    text(&output.stderr)
}

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("passphrase"), "correct horse\nignored\n").unwrap();
    std::fs::write(directory.path().join("wrong"), "wrong horse\n").unwrap();
    directory
}

const NEW: [&str; 9] =
    ["key", "new", "--paper", "--bits", "512", "-o", "test.key", "--passphrase-file", "passphrase"];

#[test]
fn help_lists_the_commands_in_groups() {
    let output = dphe(Path::new("."), &["--help"]);
    assert!(output.status.success());
    let help = text(&output.stdout);
    assert!(!help.contains('\x1b'), "escape sequences are for terminals: {help:?}");
    let at = |part: &str| help.find(part).unwrap_or_else(|| panic!("no {part:?}: {help}"));
    let (data, extract, task, join) =
        (at("\n Prepare your data\n"), at("\n  extract "), at("\n Run a task\n"), at("\n  join "));
    assert!(data < extract && extract < task && task < join, "{help}");
    // the parser's own list would have an entry for every command
    let parser = text(&dphe(Path::new("."), &["completions", "fish"]).stdout);
    let names = parser.lines().filter_map(|line| {
        line.strip_prefix("complete -c dphe -n \"__fish_dphe_needs_command\" -f -a \"")?.split('"').next()
    });
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 20, "{parser}");
    for name in names {
        assert_eq!(help.matches(&format!("\n  {name} ")).count(), 1, "{name}: {help}");
    }
}

#[test]
fn key_is_created_shown_and_never_overwritten() {
    let directory = directory();
    let made = dphe(directory.path(), &NEW);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let made = text(&made.stdout);
    assert!(made.contains("noise        secure") && made.contains("protects nothing"), "{made}");

    let public = text(&dphe(directory.path(), &["key", "show", "test.key.pub"]).stdout);
    let secret = dphe(directory.path(), &["key", "show", "test.key", "--passphrase-file", "passphrase"]);
    let secret = text(&secret.stdout);
    let id = |shown: &str| shown.lines().find(|l| l.starts_with("id")).unwrap().to_owned();
    assert_eq!(id(&public), id(&secret));

    let before = std::fs::read(directory.path().join("test.key")).unwrap();
    let error = refused(directory.path(), &NEW);
    assert!(error.contains("already exists") && error.contains("hint: "), "{error}");
    assert_eq!(std::fs::read(directory.path().join("test.key")).unwrap(), before);
}

#[cfg(unix)]
#[test]
fn secret_key_file_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let directory = directory();
    assert!(dphe(directory.path(), &NEW).status.success());
    let file = directory.path().join("test.key");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    for mode in [0o644, 0o640, 0o604] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let error =
            refused(directory.path(), &["key", "show", "test.key", "--passphrase-file", "passphrase"]);
        assert!(error.contains("others on this machine can read") && error.contains("chmod 600"), "{error}");
    }
}

#[test]
fn damaged_and_foreign_key_files_are_refused() {
    let directory = directory();
    assert!(dphe(directory.path(), &NEW).status.success());
    let show = |file: &str, passphrase: &str| {
        refused(directory.path(), &["key", "show", file, "--passphrase-file", passphrase])
    };
    assert!(show("test.key", "wrong").contains("passphrase is wrong or the file is damaged"));
    assert!(show("absent.key", "wrong").contains("cannot be read"));
    assert!(show("passphrase", "wrong").contains("the key file cannot be read"));
    let file = directory.path().join("test.key");
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
fn short_keys_need_the_paper_flag() {
    let error = refused(Path::new("."), &["key", "new", "--bits", "1024", "-o", "never.key"]);
    assert!(error.contains("1024 bits are not supported") && error.contains("--paper"), "{error}");
}

#[test]
fn unavailable_back_end_is_refused() {
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
fn benchmarks_print_json() {
    let args = [
        "bench",
        "paillier",
        "--bits",
        "512",
        "--paper",
        "--noise",
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
fn completions_are_printed_for_shells() {
    let here = directory();
    for shell in ["bash", "zsh", "fish"] {
        let output = dphe(here.path(), &["completions", shell]);
        assert!(output.status.success());
        let script = text(&output.stdout);
        assert!(script.contains("reproduce") && script.contains("key-generator"), "{shell}");
    }
}

#[test]
fn man_pages_are_written_for_every_command() {
    let here = directory();
    let output = dphe(here.path(), &["man", "share/man1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = |name: &str| std::fs::read_to_string(here.path().join("share/man1").join(name)).unwrap();
    let program = page("dphe.1");
    assert!(program.contains(".SH NAME") && program.contains("dphe\\-reproduce(1)"), "{program}");
    let aggregator = page("dphe-serve-aggregator.1");
    assert!(aggregator.contains(".SH NAME") && aggregator.contains("\\-\\-held\\-out"), "{aggregator}");
    // the help of the program has a line per command, with two spaces before its name
    let help = text(&dphe(here.path(), &["--help"]).stdout);
    let commands = help.split("\nCommands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names =
        commands.lines().filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    for name in names.map(|line| line.split(' ').next().unwrap()).filter(|name| *name != "help") {
        assert!(page(&format!("dphe-{name}.1")).contains(".SH NAME"), "{name}");
    }
    // a second version replaces them
    assert!(dphe(here.path(), &["man", "share/man1"]).status.success());
    let error = refused(here.path(), &["man", "passphrase"]);
    assert!(error.contains("passphrase cannot be written"), "{error}");
}

#[test]
fn init_creates_a_task_from_public_samples() {
    let here = directory();
    let rows = ["0.1,2,cat", "0.2,2.1,cat", "3,-1,dog", "3.1,-1.2,dog"];
    std::fs::write(here.path().join("public.csv"), format!("a,b,label\n{}\n", rows.join("\n"))).unwrap();
    let init = ["init", "task.toml", "--public", "public.csv", "--users", "4", "--name", "pets \"at\" home"];
    let output = dphe(here.path(), &init);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("cat, dog"), "{}", text(&output.stdout));
    let task = dphe_service::task_file::TaskFile::read(&here.path().join("task.toml")).unwrap();
    let model = &task.linear().unwrap().model;
    assert_eq!((model.classes, model.features, task.task.users), (2, 2, 4));
    assert_eq!(task.task.name, "pets \"at\" home");
    let model = dphe_service::model::Model::read(&here.path().join("initial.safetensors")).unwrap();
    assert_eq!(model.about.classes, ["cat", "dog"]);
    // nothing is overwritten
    let error = refused(here.path(), &init);
    assert!(error.contains("exists"), "{error}");
    let error = refused(here.path(), &["init", "other.toml", "--public", "none.npz"]);
    assert!(error.contains("none.npz"), "{error}");
    assert!(!here.path().join("other.toml").exists());
}

#[test]
fn reproduce_stores_measurements_and_continues_from_them() {
    let here = directory();
    let args =
        ["reproduce", "leaks", "--quick", "--runs", "1", "--output", "found", "--format", "json", "--check"];
    let first = dphe(here.path(), &args);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    assert!(rows.as_array().unwrap().len() > 3, "{rows}");
    let found = here.path().join("found");
    for name in ["leaks.md", "leaks.json", "report.html", "measured/leaks.jsonl"] {
        assert!(found.join(name).metadata().unwrap().len() > 500, "{name}");
    }
    // stored measurements are not repeated, even if the last line is incomplete
    let measured = std::fs::read_to_string(found.join("measured/leaks.jsonl")).unwrap();
    let cut = &measured[..measured.len() - 20];
    std::fs::write(found.join("measured/leaks.jsonl"), cut).unwrap();
    let again = dphe(here.path(), &args);
    assert_eq!(text(&again.stdout), text(&first.stdout), "the same numbers");
    let longer = std::fs::read_to_string(found.join("measured/leaks.jsonl")).unwrap();
    assert!(longer.starts_with(cut) && longer.len() > measured.len());
    let error = refused(here.path(), &["reproduce", "table1", "--data-sets", "nowhere"]);
    assert!(error.contains("nowhere") && error.contains("docs/reproduction.md"), "{error}");
    std::fs::create_dir(here.path().join("nowhere")).unwrap();
    let error = refused(here.path(), &["reproduce", "table1", "--data-sets", "nowhere"]);
    assert!(error.contains("no known data set"), "{error}");
}
