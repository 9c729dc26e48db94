//! `dphe init`, `dphe keygen` and `dphe doctor`: from a task file to working kits, and errors in kits.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::{Command, Output};

use dphe_service::kit::Kit;
use support::{Plan, Town};

fn dphe(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn done(directory: &Path, args: &[&str]) -> String {
    let output = dphe(directory, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs a command that must fail, and returns its error and hint.
fn refused(directory: &Path, args: &[&str]) -> String {
    let output = dphe(directory, args);
    assert!(!output.status.success(), "{args:?} was accepted");
    text(&output.stderr)
}

/// Writes a task file with a key of 512 bits, which needs the profile `paper`.
fn small_task(directory: &Path) {
    done(directory, &["init"]);
    let path = directory.join("task.toml");
    let mut file = std::fs::read_to_string(&path).unwrap();
    for (from, to) in [
        ("profile = \"full\"", "profile = \"paper\""),
        ("key_bits = 3072", "key_bits = 512"),
        ("payload = \"rotate\"", "payload = \"d-topk\""),
        ("users = 5 ", "users = 3 "),
        ("max = 5 }", "max = 3 }"),
    ] {
        assert!(file.contains(from));
        file = file.replace(from, to);
    }
    std::fs::write(path, file).unwrap();
}

#[test]
fn task_file_and_kits_are_created_and_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    small_task(directory);
    let before = std::fs::read(directory.join("task.toml")).unwrap();
    assert!(refused(directory, &["init"]).contains("already exists"));
    assert_eq!(std::fs::read(directory.join("task.toml")).unwrap(), before);

    // user 2 creates its own keys
    let made = done(directory, &["keygen", "--request", "user-2", "--output", "own"]);
    assert!(made.contains("request.toml"), "{made}");
    let made = done(directory, &["keygen", "--with", "own/request.toml", "--no-passphrase"]);
    assert!(made.contains("protects nothing") && made.contains("has no passphrase"), "{made}");
    let error = refused(directory, &["keygen", "--no-passphrase"]);
    assert!(error.contains("kits already exists") && error.contains("hint: "), "{error}");

    let kits = directory.join("kits");
    assert!(!kits.join("user-2/identity.key").exists());
    assert!(Kit::read(&kits.join("user-2")).is_err());
    std::fs::copy(directory.join("own/identity.key"), kits.join("user-2/identity.key")).unwrap();
    for name in ["key-generator", "aggregator", "user-1", "user-2", "user-3"] {
        // short keys are accepted only by callers that ask for them
        assert!(Kit::read(&kits.join(name)).is_err());
        let kit = Kit::read_with(&kits.join(name), dphe::hazmat::paper_keys()).unwrap();
        match name {
            "key-generator" => drop(kit.key_generator(b"").unwrap()),
            "aggregator" => drop((kit.aggregator_keys().unwrap(), kit.initial_model().unwrap())),
            _ => drop(kit.user_keys().unwrap()),
        }
        // no kit has the secrets of another party
        assert_eq!(kits.join(name).join("paillier.key").exists(), name == "key-generator");
    }
    // a request for another task, or for an unknown user
    let other = directory.join("other");
    std::fs::create_dir(&other).unwrap();
    small_task(&other);
    let error = refused(&other, &["keygen", "--with", "../own/request.toml", "--no-passphrase"]);
    assert!(error.contains("another task"), "{error}");
    done(directory, &["keygen", "--request", "user-9", "--output", "nine"]);
    let error =
        refused(directory, &["keygen", "--with", "nine/request.toml", "--no-passphrase", "-o", "again"]);
    assert!(error.contains("no such party"), "{error}");
}

#[cfg(unix)]
#[test]
fn secret_files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let town = Town::on_free_ports(Plan::default());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for name in ["key-generator", "aggregator", "user-1"] {
        let kit = town.kit_directory(name);
        assert_eq!(mode(&kit), 0o700);
        for secret in ["identity.key", "seeds.bin"] {
            assert_eq!(mode(&kit.join(secret)), 0o600, "{name}/{secret}");
        }
    }
    // a secret that others can read is refused
    let kit = town.kit_directory("user-1");
    std::fs::set_permissions(kit.join("identity.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = Kit::read(&kit).unwrap_err();
    assert!(error.to_string().contains("others on this machine can read"), "{error}");
    assert!(error.hint().unwrap().contains("chmod 600"));
}

#[test]
fn kit_with_files_of_another_kit_is_refused() {
    let town = Town::on_free_ports(Plan::default());
    let other = Town::on_free_ports(Plan::default());
    let (one, two) = (town.kit_directory("user-1"), town.kit_directory("user-2"));
    let foreign = other.kit_directory("user-1");
    let names = ["kit.toml", "task.toml", "roster.bin", "identity.key", "seeds.bin"];
    let usable = || Kit::read(&one).and_then(|kit| kit.user_keys().map(drop));
    usable().unwrap();
    for name in names {
        let good = std::fs::read(one.join(name)).unwrap();
        let check = |bytes: &[u8], what: &str| {
            if bytes != good {
                std::fs::write(one.join(name), bytes).unwrap();
                assert!(usable().is_err(), "{name}: {what}");
            }
        };
        // from another user, from another run, damaged, empty, too long, missing
        check(&std::fs::read(two.join(name)).unwrap(), "another user's");
        // addresses may differ from run to run
        if name != "task.toml" {
            check(&std::fs::read(foreign.join(name)).unwrap(), "another run's");
        }
        check(b"", "empty");
        check(&[0xff; 100], "garbage");
        check(&vec![b'#'; 5 << 20], "too long");
        std::fs::remove_file(one.join(name)).unwrap();
        assert!(usable().is_err(), "{name} is gone");
        std::fs::write(one.join(name), &good).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(one.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        usable().unwrap();
    }
}

#[test]
fn kit_of_an_older_format_is_refused_with_a_remedy() {
    let town = Town::on_free_ports(Plan::default());
    let path = town.kit_directory("user-1").join("kit.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("format = 3"), "{text}");
    std::fs::write(&path, text.replace("format = 3", "format = 2")).unwrap();
    let join = ["join", "--kit", "kits/user-1", "--data", "d", "--features", "f"];
    let error = refused(town.directory.path(), &join);
    assert!(error.contains("format 2") && error.contains("make new kits with `dphe keygen`"), "{error}");
}

#[test]
fn wrong_role_and_invalid_task_file_are_reported() {
    let town = Town::on_free_ports(Plan::default());
    let directory = town.directory.path();
    let error = refused(directory, &["serve", "aggregator", "--kit", "kits/user-1", "--data", "d"]);
    assert!(error.contains("user-1") && error.contains("`dphe join`"), "{error}");
    let error = refused(directory, &["join", "--kit", "kits/aggregator", "--data", "d", "--features", "f"]);
    assert!(error.contains("belongs to aggregator") && error.contains("dphe serve aggregator"), "{error}");
    let error = refused(directory, &["serve", "aggregator", "--kit", "nowhere", "--data", "d"]);
    assert!(error.contains("not a kit") && error.contains("hint: "), "{error}");
    std::fs::write(directory.join("wrong.toml"), "[task]\nname = \"x\"\nuzers = 3\n").unwrap();
    let error = refused(directory, &["keygen", "wrong.toml", "--no-passphrase", "-o", "never"]);
    assert!(error.contains("wrong.toml, line 3: unknown field `uzers`"), "{error}");
    assert!(!directory.join("never").exists());
}

#[test]
fn doctor_reports_unreachable_peers_and_bad_kits() {
    let town = Town::on_free_ports(Plan::default());
    let directory = town.directory.path();
    let well = done(directory, &["doctor", "--kit", "kits/key-generator", "--data", "d"]);
    assert!(well.contains("ok    kit") && well.contains("ok    mode") && well.contains("is free"), "{well}");
    assert!(well.contains("only its file mode protects the decryption key"), "{well}");
    // no peer is running yet
    let output = dphe(directory, &["doctor", "--kit", "kits/user-1", "--format", "json"]);
    assert!(!output.status.success());
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let peer = findings.as_array().unwrap().iter().find(|finding| finding["what"] == "peer").unwrap();
    assert_eq!(peer["health"], "bad");
    assert!(peer["hint"].as_str().unwrap().contains("Start the peer"));
    std::fs::remove_file(town.kit_directory("user-2").join("seeds.bin")).unwrap();
    let output = dphe(directory, &["doctor", "--kit", "kits/user-2"]);
    assert!(text(&output.stdout).contains("bad   keys"), "{}", text(&output.stdout));
}
