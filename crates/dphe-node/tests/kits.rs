//! From a task file to kits that work, by the program itself; and everything that is wrong with a kit, named.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::{Command, Output};

use dphe_node::kit::Kit;
use support::{Plan, Town};

fn dphe(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn done(folder: &Path, args: &[&str]) -> String {
    let output = dphe(folder, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Two lines: what happened, and what to try.
fn refused(folder: &Path, args: &[&str]) -> String {
    let output = dphe(folder, args);
    assert!(!output.status.success(), "{args:?} was accepted");
    text(&output.stderr)
}

/// A task with a key of 512 bits, for which the profile must be `paper`.
fn small_task(folder: &Path) {
    done(folder, &["init"]);
    let path = folder.join("task.toml");
    let mut file = std::fs::read_to_string(&path).unwrap();
    for (from, to) in [
        ("profile = \"full\"", "profile = \"paper\""),
        ("key_bits = 3072", "key_bits = 512"),
        ("message = \"rotate\"", "message = \"d-topk\""),
        ("users = 5 ", "users = 3 "),
        ("max = 5 }", "max = 3 }"),
    ] {
        assert!(file.contains(from));
        file = file.replace(from, to);
    }
    std::fs::write(path, file).unwrap();
}

#[test]
fn a_task_file_and_its_kits_are_made_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    small_task(folder);
    let before = std::fs::read(folder.join("task.toml")).unwrap();
    assert!(refused(folder, &["init"]).contains("exists already"));
    assert_eq!(std::fs::read(folder.join("task.toml")).unwrap(), before);

    // user 2 makes its keys at its own place
    let made = done(folder, &["keygen", "--request", "user-2", "--output", "own"]);
    assert!(made.contains("request.toml"), "{made}");
    let made = done(folder, &["keygen", "--with", "own/request.toml", "--no-passphrase"]);
    assert!(made.contains("protect nothing") && made.contains("has no passphrase"), "{made}");
    let error = refused(folder, &["keygen", "--no-passphrase"]);
    assert!(error.contains("kits exists already") && error.contains("try: "), "{error}");

    let kits = folder.join("kits");
    assert!(!kits.join("user-2/identity.key").exists() && !kits.join("user-2/tls.key").exists());
    assert!(Kit::read(&kits.join("user-2")).is_err());
    for name in ["identity.key", "tls.key"] {
        std::fs::copy(folder.join("own").join(name), kits.join("user-2").join(name)).unwrap();
    }
    for name in ["key-generator", "aggregator", "user-1", "user-2", "user-3"] {
        let kit = Kit::read(&kits.join(name)).unwrap();
        match name {
            "key-generator" => drop(kit.key_generator(b"").unwrap()),
            "aggregator" => drop((kit.aggregator_keys().unwrap(), kit.initial_model().unwrap())),
            _ => drop(kit.user_keys().unwrap()),
        }
        // nobody has what is another's
        assert_eq!(kits.join(name).join("paillier.key").exists(), name == "key-generator");
        assert_eq!(kits.join(name).join("authority.key").exists(), name == "key-generator");
    }
    // a request of another task, or for somebody who is not in it
    let other = folder.join("other");
    std::fs::create_dir(&other).unwrap();
    small_task(&other);
    let error = refused(&other, &["keygen", "--with", "../own/request.toml", "--no-passphrase"]);
    assert!(error.contains("another task"), "{error}");
    done(folder, &["keygen", "--request", "user-9", "--output", "nine"]);
    let error = refused(folder, &["keygen", "--with", "nine/request.toml", "--no-passphrase", "-o", "again"]);
    assert!(error.contains("no such party"), "{error}");
}

#[cfg(unix)]
#[test]
fn secrets_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let town = Town::on_free_ports(Plan::default());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for name in ["key-generator", "aggregator", "user-1"] {
        let kit = town.kit_folder(name);
        assert_eq!(mode(&kit), 0o700);
        for secret in ["identity.key", "tls.key", "seeds.bin"] {
            assert_eq!(mode(&kit.join(secret)), 0o600, "{name}/{secret}");
        }
    }
    // one that others can read is not used
    let kit = town.kit_folder("user-1");
    std::fs::set_permissions(kit.join("tls.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = Kit::read(&kit).unwrap_err();
    assert!(error.to_string().contains("others on this machine can read"), "{error}");
    assert!(error.hint().unwrap().contains("chmod 600"));
}

#[test]
fn a_kit_whose_files_do_not_belong_together_is_refused() {
    let town = Town::on_free_ports(Plan::default());
    let other = Town::on_free_ports(Plan::default());
    let (one, two) = (town.kit_folder("user-1"), town.kit_folder("user-2"));
    let foreign = other.kit_folder("user-1");
    let names = [
        "kit.toml",
        "task.toml",
        "roster.bin",
        "authority.pem",
        "certificate.pem",
        "tls.key",
        "identity.key",
        "seeds.bin",
    ];
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
        // of another user of the task, of the same user of another run, damaged, empty, too long, gone
        check(&std::fs::read(two.join(name)).unwrap(), "another user's");
        // addresses may differ from run to run; an authority is found out by the peer, in the handshake
        if !["task.toml", "authority.pem"].contains(&name) {
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
fn a_wrong_role_or_task_file_is_named() {
    let town = Town::on_free_ports(Plan::default());
    let folder = town.folder.path();
    let error = refused(folder, &["serve", "aggregator", "--kit", "kits/user-1", "--data", "d"]);
    assert!(error.contains("user-1") && error.contains("`dphe join`"), "{error}");
    let error = refused(folder, &["join", "--kit", "kits/aggregator", "--data", "d", "--features", "f"]);
    assert!(error.contains("the kit of aggregator") && error.contains("dphe serve aggregator"), "{error}");
    let error = refused(folder, &["serve", "aggregator", "--kit", "nowhere", "--data", "d"]);
    assert!(error.contains("not a kit") && error.contains("try: "), "{error}");
    std::fs::write(folder.join("wrong.toml"), "[task]\nname = \"x\"\nuzers = 3\n").unwrap();
    let error = refused(folder, &["keygen", "wrong.toml", "--no-passphrase", "-o", "never"]);
    assert!(error.contains("wrong.toml, line 3: unknown field `uzers`"), "{error}");
    assert!(!folder.join("never").exists());
}

#[test]
fn the_doctor_finds_what_is_wrong() {
    let town = Town::on_free_ports(Plan::default());
    let folder = town.folder.path();
    let well = done(folder, &["doctor", "--kit", "kits/key-generator", "--data", "d"]);
    assert!(
        well.contains("ok    kit") && well.contains("ok    certificate") && well.contains("is free"),
        "{well}"
    );
    assert!(well.contains("protected by its file's mode alone"), "{well}");
    // nobody is there yet
    let output = dphe(folder, &["doctor", "--kit", "kits/user-1", "--format", "json"]);
    assert!(!output.status.success());
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let peer = findings.as_array().unwrap().iter().find(|finding| finding["what"] == "peer").unwrap();
    assert_eq!(peer["health"], "bad");
    assert!(peer["hint"].as_str().unwrap().contains("start it first"));
    std::fs::remove_file(town.kit_folder("user-2").join("seeds.bin")).unwrap();
    let output = dphe(folder, &["doctor", "--kit", "kits/user-2"]);
    assert!(text(&output.stdout).contains("bad   keys"), "{}", text(&output.stdout));
}
