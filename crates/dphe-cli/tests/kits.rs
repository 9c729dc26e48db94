//! `dphe init`, `dphe keygen` and `dphe doctor`: from a task file to working kits, errors in kits, and the first start
//! of a party with its kit.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use dphe_service::kit::{Fingerprint, Kit};
use dphe_service::store::{LogStore as _, SqliteStore};
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

/// Returns output as one line. In a terminal, it is wrapped by words.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Writes a task file with a key of 512 bits, which needs the profile `paper`.
fn small_task(directory: &Path) {
    done(directory, &["init"]);
    let edits = [
        ("profile = \"full\"", "profile = \"paper\""),
        ("key_bits = 3072", "key_bits = 512"),
        ("payload = \"rotate\"", "payload = \"d-topk\""),
        ("users = 5 ", "users = 3 "),
        ("max = 5 }", "max = 3 }"),
    ];
    edit_task(directory, &edits);
}

/// Replaces text in the task file.
fn edit_task(directory: &Path, edits: &[(&str, &str)]) {
    let path = directory.join("task.toml");
    let mut file = std::fs::read_to_string(&path).unwrap();
    for (from, to) in edits {
        assert!(file.contains(from), "{from}");
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
    let made = done(
        directory,
        &["keygen", "--with", "own/user-2-request.toml", "--for-all-parties", "--no-passphrase"],
    );
    assert!(made.contains("protects nothing") && made.contains("has no passphrase"), "{made}");
    let error = refused(directory, &["keygen", "--for-all-parties", "--no-passphrase"]);
    assert!(error.contains("kits already exists") && error.contains("hint: "), "{error}");

    let kits = directory.join("kits");
    assert!(!kits.join("user-2/identity.key").exists());
    assert!(Kit::read(&kits.join("user-2")).is_err());
    std::fs::copy(directory.join("own/identity.key"), kits.join("user-2/identity.key")).unwrap();
    for (name, start) in [
        ("key-generator", "dphe serve key-generator --kit . --data DATA"),
        ("user-1", "dphe join --kit . --data DATA --roster HASH"),
        ("user-2", "dphe join --kit . --identity FILE --data DATA --roster HASH"),
    ] {
        let instructions = std::fs::read_to_string(kits.join(name).join("README.txt")).unwrap();
        assert!(instructions.contains(start), "{instructions}");
    }
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
    let error = refused(&other, &["keygen", "--with", "../own/user-2-request.toml", "--no-passphrase"]);
    assert!(error.contains("another task"), "{error}");
    done(directory, &["keygen", "--request", "user-9", "--output", "nine"]);
    let error = refused(
        directory,
        &["keygen", "--with", "nine/user-9-request.toml", "--no-passphrase", "-o", "again"],
    );
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
fn damaged_files_of_a_kit_are_named_with_the_cure() {
    let town = Town::on_free_ports(Plan::default());
    let kit = town.kit_directory("user-1");
    let doctor =
        || unwrapped(&text(&dphe(town.directory.path(), &["doctor", "--kit", "kits/user-1"]).stdout));
    assert!(doctor().contains("ok model"), "{}", doctor());
    for name in ["roster.bin", "identity.key", "seeds.bin", "initial.model"] {
        let path = kit.join(name);
        let good = std::fs::read(&path).unwrap();
        let mut damaged = good.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x10;
        for bytes in [&damaged[..], &good[..middle]] {
            std::fs::write(&path, bytes).unwrap();
            let found = doctor();
            // a damaged identity may be the key of nobody
            let named = found.contains(&format!("{name} is damaged")) || found.contains("another identity");
            assert!(named && found.contains(name), "{name}: {found}");
            let cure = ["backup", "Copy the whole kit"].iter().any(|cure| found.contains(cure));
            assert!(cure, "{name}: {found}");
        }
        std::fs::write(&path, good).unwrap();
    }
    assert!(doctor().contains("ok model"), "{}", doctor());
}

#[cfg(unix)]
#[test]
fn kit_that_lost_its_file_modes_is_repaired_by_one_command() {
    use std::os::unix::fs::PermissionsExt as _;
    let town = Town::on_free_ports(Plan::default());
    let path = town.kit_directory("user-1").join("seeds.bin");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let found = unwrapped(&text(&dphe(town.directory.path(), &["doctor", "--kit", "kits/user-1"]).stdout));
    assert!(found.contains("Run `chmod -R go= kits/user-1`"), "{found}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn doctor_checks_that_samples_fit_the_task() {
    let town = Town::on_free_ports(Plan::default());
    let directory = town.directory.path();
    support::write_samples(0, &town.path("mine.csv"));
    let doctor = |file: &str| {
        unwrapped(&text(&dphe(directory, &["doctor", "--kit", "kits/user-1", "--features", file]).stdout))
    };
    let found = doctor("mine.csv");
    assert!(found.contains("ok features mine.csv: 24 samples of 3 of the 3 classes"), "{found}");
    std::fs::write(town.path("other.csv"), "a,label\n1,0\n2,9\n").unwrap();
    let found = doctor("other.csv");
    assert!(found.contains("bad features"), "{found}");
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
    assert!(error.contains("`dphe init --model`") && !error.contains("Set `--kit`"), "{error}");
}

/// A kit of a new task, and the data directory of a task that the first version of the protocol started.
#[tokio::test(flavor = "current_thread")]
async fn data_directory_of_version_1_is_refused_with_a_remedy() {
    let town = Town::on_free_ports(Plan::default());
    let data = town.data("aggregator");
    let mut store = SqliteStore::open(&data).await.unwrap();
    store.append(&[&b"DPHELOG1"[..], &[1; 300]].concat()).await.unwrap();
    store.close().await.unwrap();
    let (kit, data) = ("kits/aggregator", data.to_str().unwrap());
    let error = refused(town.directory.path(), &["serve", "aggregator", "--kit", kit, "--data", data]);
    let error = unwrapped(&error);
    assert!(error.contains("the log was written by version 1 of the protocol"), "{error}");
    assert!(error.contains("start a new task from its last model with `dphe init --model`"), "{error}");
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
    assert!(unwrapped(&well).contains("only its file mode protects the decryption key"), "{well}");
    // no peer is running yet
    let output = dphe(directory, &["doctor", "--kit", "kits/user-1", "--format", "json"]);
    assert!(!output.status.success());
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let peer = findings.as_array().unwrap().iter().find(|finding| finding["what"] == "peer").unwrap();
    assert_eq!(peer["health"], "bad");
    assert!(peer["hint"].as_str().unwrap().contains("Start the aggregator"));
    std::fs::remove_file(town.kit_directory("user-2").join("seeds.bin")).unwrap();
    let output = dphe(directory, &["doctor", "--kit", "kits/user-2"]);
    assert!(text(&output.stdout).contains("bad   keys"), "{}", text(&output.stdout));
}

/// Makes the request of a party in a directory of its own, and puts it into `requests`. Returns the fingerprint.
fn request(directory: &Path, party: &str) -> String {
    let output = format!("keys/{party}");
    let made = done(directory, &["keygen", "--request", party, "-o", &output]);
    let name = format!("{party}-request.toml");
    std::fs::copy(directory.join(output).join(&name), directory.join("requests").join(name)).unwrap();
    let fingerprint = made.lines().find_map(|line| line.strip_prefix("fingerprint  ")).unwrap();
    fingerprint.to_owned()
}

const REQUESTING: [&str; 4] = ["aggregator", "user-1", "user-2", "user-3"];

/// Creates the kits of a task from the requests of all parties. Returns the hash of the roster, as printed.
fn kits_from_requests(directory: &Path) -> String {
    small_task(directory);
    kits_of(directory)
}

/// Makes the kits of the task in a directory, and returns the hash of the roster.
fn kits_of(directory: &Path) -> String {
    for name in ["requests", "keys"] {
        std::fs::create_dir(directory.join(name)).unwrap();
    }
    for party in REQUESTING {
        request(directory, party);
    }
    let made = done(directory, &["keygen", "--with", "requests", "--no-passphrase"]);
    made.lines().find_map(|line| line.strip_prefix("roster       ")).unwrap().to_owned()
}

#[test]
fn kits_need_a_request_of_every_party() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    small_task(directory);
    for name in ["requests", "keys"] {
        std::fs::create_dir(directory.join(name)).unwrap();
    }
    let error = refused(directory, &["keygen", "--no-passphrase"]);
    assert!(error.contains("sent no request: aggregator, user-1, user-2, user-3"), "{error}");
    assert!(error.contains("--request PARTY") && error.contains("--for-all-parties"), "{error}");
    let fingerprints = REQUESTING.map(|party| request(directory, party));
    let requests = directory.join("requests");
    let keygen = ["keygen", "--with", "requests", "--no-passphrase"];

    std::fs::rename(requests.join("user-2-request.toml"), directory.join("late.toml")).unwrap();
    let error = refused(directory, &keygen);
    assert!(error.contains("sent no request: user-2\n"), "{error}");
    std::fs::copy(requests.join("user-1-request.toml"), requests.join("again.toml")).unwrap();
    let error = refused(directory, &keygen);
    assert!(error.contains("two requests of this party") && error.contains("user-1"), "{error}");
    std::fs::write(requests.join("again.toml"), "format = ").unwrap();
    let error = refused(directory, &keygen);
    assert!(error.contains("again.toml"), "{error}");
    std::fs::remove_file(requests.join("again.toml")).unwrap();
    let error = refused(directory, &["keygen", "--with", "nowhere", "--no-passphrase"]);
    assert!(error.contains("nowhere"), "{error}");
    assert!(!directory.join("kits").exists(), "no kit was made");

    // a file and a directory; other files in the directory are ignored
    std::fs::write(requests.join("notes.txt"), "received on Monday").unwrap();
    let made = done(directory, &[&keygen[..], &["--with", "late.toml"]].concat());
    for (party, fingerprint) in REQUESTING.iter().zip(&fingerprints) {
        let line = made.lines().find(|line| line.starts_with("request ") && line.contains(party)).unwrap();
        assert!(line.ends_with(fingerprint.as_str()), "{line}: {fingerprint}");
        assert_eq!(fingerprint.len(), 49, "40 digits in ten groups");
        // the key stays with its party, which passes it at the first start
        let kit = directory.join("kits").join(party);
        let key = directory.join("keys").join(party).join("identity.key");
        let error = Kit::read_with(&kit, dphe::hazmat::paper_keys()).unwrap_err();
        assert!(error.to_string().contains("has no identity.key"), "{error}");
        assert!(error.hint().unwrap().contains("--identity"));
        let kit = Kit::read_with_identity(&kit, Some(&key), dphe::hazmat::paper_keys()).unwrap();
        assert_eq!(kit.fingerprint().unwrap().to_string(), *fingerprint);
        let roster = Fingerprint::of_roster(kit.roster());
        assert!(made.contains(&format!("roster       {roster}\n")), "{made}");
    }
    // the key of another party
    let (kit, key) = (directory.join("kits/user-1"), directory.join("keys/user-2/identity.key"));
    let error = Kit::read_with_identity(&kit, Some(&key), dphe::hazmat::paper_keys()).unwrap_err();
    assert!(error.to_string().contains("another identity for this party"), "{error}");
    // a kit that came with a key of somebody else's choice
    std::fs::copy(&key, kit.join("identity.key")).unwrap();
    let own = directory.join("keys/user-1/identity.key");
    let error = Kit::read_with_identity(&kit, Some(&own), dphe::hazmat::paper_keys()).unwrap_err();
    assert!(error.to_string().contains("another key than the one given"), "{error}");
}

#[test]
fn short_passphrases_are_refused_for_new_keys() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    small_task(directory);
    let keygen = ["keygen", "--for-all-parties", "--passphrase-file", "words"];
    for short in ["", "\n", "elevenchars", "\u{e9}l\u{e8}ve\u{e9}l\u{e8}ve\u{e9}\n"] {
        std::fs::write(directory.join("words"), short).unwrap();
        let error = refused(directory, &keygen);
        assert!(error.contains("shorter than 12 characters") && error.contains("hint: "), "{error}");
        let error = refused(
            directory,
            &["key", "new", "--paper", "--bits", "512", "-o", "k", "--passphrase-file", "words"],
        );
        assert!(error.contains("shorter than 12 characters"), "{error}");
    }
    assert!(!directory.join("kits").exists());
    std::fs::write(directory.join("words"), "twelve chars").unwrap();
    done(directory, &keygen);
}

/// A service that a test starts and kills.
struct Service {
    child: Child,
    log: PathBuf,
}

impl Service {
    fn start(directory: &Path, args: &[&str], log: &str) -> Self {
        let log = directory.join(log);
        let file = File::create(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_dphe"))
            .args(args)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the service is ready or has ended, and returns whether it is ready.
    fn is_ready(&mut self) -> bool {
        let begin = Instant::now();
        loop {
            if self.text().contains("is ready") {
                return true;
            }
            if self.child.try_wait().unwrap().is_some() {
                return self.text().contains("is ready");
            }
            assert!(begin.elapsed() < Duration::from_secs(120), "{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a service, which must become ready, and kills it. Returns its log.
fn runs(directory: &Path, args: &[&str]) -> String {
    let mut service = Service::start(directory, args, "service.log");
    assert!(service.is_ready(), "{args:?}: {}", service.text());
    service.text()
}

const GENERATOR: [&str; 6] =
    ["serve", "key-generator", "--listen", "127.0.0.1:0", "--kit", "kits/key-generator"];
const AGGREGATOR: [&str; 6] = ["serve", "aggregator", "--listen", "127.0.0.1:0", "--kit", "kits/aggregator"];

fn generator_with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&GENERATOR[..], &["--data", "data"], more].concat()
}

fn aggregator_with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&AGGREGATOR[..], &["--data", "aggregator"], more].concat()
}

#[test]
fn roster_is_compared_at_the_first_start_and_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let roster = kits_from_requests(directory);

    let error = refused(directory, &generator_with(&[]));
    assert!(error.contains("nobody has confirmed its hash"), "{error}");
    assert!(error.contains("`dphe doctor`") && error.contains("--roster HASH"), "{error}");
    std::fs::remove_dir_all(directory.join("data")).unwrap();
    let wrong = format!("{}{}", if roster.starts_with('0') { "1" } else { "0" }, &roster[1..]);
    let error = refused(directory, &generator_with(&["--roster", &wrong]));
    assert!(error.contains(&format!("has the hash {roster}, not {wrong}")), "{error}");
    assert!(!directory.join("data").exists(), "refused before anything else");
    for malformed in [&roster[..28], "", "1f2e-3d4c-5b6a-7988-0011-aabb-ccdd-eeff-0011-223g"] {
        let output = dphe(directory, &generator_with(&["--roster", malformed]));
        assert_eq!(output.status.code(), Some(2), "{malformed}");
    }
    let doctor = ["doctor", "--kit", "kits/key-generator"];
    // long lines are wrapped
    let words = |said: String| said.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = words(done(directory, &doctor));
    assert!(said.contains(&format!("note roster hash {roster}, not compared yet")), "{said}");
    let said = words(done(directory, &[&doctor[..], &["--roster", &roster]].concat()));
    assert!(said.contains(&format!("ok roster hash {roster}, as compared")), "{said}");
    let output = dphe(directory, &[&doctor[..], &["--roster", &wrong]].concat());
    assert_eq!(output.status.code(), Some(3));

    let log = runs(directory, &generator_with(&["--roster", &roster]));
    assert!(log.contains(&roster), "{log}");
    runs(directory, &generator_with(&[]));

    // the aggregator's own key is passed once, and then in its kit
    let error = refused(directory, &aggregator_with(&["--roster", &roster]));
    assert!(error.contains("has no identity.key") && error.contains("--identity FILE"), "{error}");
    let own = ["--identity", "keys/aggregator/identity.key", "--roster", &roster];
    let log = runs(directory, &aggregator_with(&own));
    let key = Kit::read_with(&directory.join("kits/aggregator"), dphe::hazmat::paper_keys()).unwrap();
    assert!(log.contains(&key.fingerprint().unwrap().to_string()), "{log}");
    runs(directory, &aggregator_with(&[]));

    // the kit of another task on data that was used
    let other = directory.join("other");
    std::fs::create_dir(&other).unwrap();
    let theirs = kits_from_requests(&other);
    let error = refused(&other, &[&GENERATOR[..], &["--data", "../data", "--roster", &theirs]].concat());
    assert!(error.contains(&format!("whose roster has the hash {roster}")), "{error}");
    assert!(error.contains(&theirs) && error.contains("new data directory"), "{error}");
    assert!(std::fs::read(other.join("kits/key-generator/seeds.bin")).unwrap().starts_with(b"DPHEKIT"));
}

/// Makes a change that removes nobody but gives user 3 a new identity, and returns the hash of the new roster.
fn change_roster(directory: &Path) -> String {
    done(directory, &["keygen", "--request", "user-3", "-o", "new"]);
    let change = ["roster", "change", "--kit", "kits/key-generator", "--data", "data"];
    let made = ["--with", "new/user-3-request.toml", "-o", "change"];
    let said = done(directory, &[&change[..], &made].concat());
    said.lines().find_map(|line| line.strip_prefix("roster       ")).unwrap().to_owned()
}

#[test]
fn changed_roster_is_compared_too_and_hidden_changes_in_kits_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    small_task(directory);
    edit_task(
        directory,
        &[
            ("profile = \"paper\"", "profile = \"full\""),
            ("payload = \"d-topk\"", "payload = \"rotate\""),
            ("key_bits = 512", "key_bits = 2048"),
        ],
    );
    let first = kits_of(directory);
    runs(directory, &generator_with(&["--roster", &first]));
    let own = ["--identity", "keys/aggregator/identity.key"];
    runs(directory, &[&aggregator_with(&own)[..], &["--roster", &first]].concat());
    let second = change_roster(directory);
    assert_ne!(first, second);
    // the key generator made the roster and need not compare it
    runs(directory, &generator_with(&[]));

    // a party that has run
    done(directory, &["roster", "apply", "change/roster-2.change", "--kit", "kits/aggregator"]);
    let error = refused(directory, &aggregator_with(&[]));
    assert!(error.contains("nobody has confirmed its hash") && error.contains("--roster HASH"), "{error}");
    let error = refused(directory, &aggregator_with(&["--roster", &first]));
    assert!(error.contains(&format!("has the hash {second}, not {first}")), "{error}");
    runs(directory, &aggregator_with(&["--roster", &second]));
    runs(directory, &aggregator_with(&[]));

    // a party that has never run, whose kit came with the change
    std::fs::copy(directory.join("change/roster-2.change"), directory.join("kits/user-1/roster-2.change"))
        .unwrap();
    let user = ["--kit", "kits/user-1", "--identity", "keys/user-1/identity.key"];
    let said = dphe(directory, &[&["doctor"], &user[..], &["--roster", &first]].concat());
    assert_eq!(said.status.code(), Some(3));
    let join = ["join", "--data", "user", "--features", "none.csv"];
    let error = refused(directory, &[&join[..], &user, &["--roster", &first]].concat());
    assert!(error.contains(&format!("has the hash {second}, not {first}")), "{error}");
}

#[test]
fn maker_of_a_kit_cannot_switch_the_comparison_off() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    small_task(directory);
    done(directory, &["keygen", "--for-all-parties", "--no-passphrase"]);
    runs(directory, &[&GENERATOR[..], &["--data", "data"]].concat());
    // the same kits for a task whose aggregator is elsewhere
    let elsewhere = directory.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    done(&elsewhere, &["init", "--aggregator", "a.example.org:7100"]);
    let path = elsewhere.join("task.toml");
    let task = std::fs::read_to_string(&path).unwrap().replace("key_bits = 3072", "key_bits = 2048");
    std::fs::write(&path, task).unwrap();
    done(&elsewhere, &["keygen", "--for-all-parties", "--no-passphrase"]);
    let error = refused(&elsewhere, &[&GENERATOR[..], &["--data", "data"]].concat());
    assert!(error.contains("nobody has confirmed its hash"), "{error}");
}

/// Reads the file with the seeds of the key generator.
fn seeds(directory: &Path) -> Vec<u8> {
    std::fs::read(directory.join("kits/key-generator/seeds.bin")).unwrap()
}

/// Returns whether a file of a directory contains these bytes.
fn holds(directory: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        let content = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        content.windows(bytes.len()).any(|window| window == bytes)
    })
}

#[test]
fn seeds_move_into_the_data_directory_at_the_first_start() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    small_task(directory);
    done(directory, &["keygen", "--for-all-parties", "--no-passphrase"]);
    let (before, kit) = (seeds(directory), directory.join("kits/key-generator"));
    // the mask seed of the last user, before the checksum
    let secret = &before[before.len() - 64..before.len() - 32];
    let generator = |data: &'static str| [&GENERATOR[..], &["--data", data]].concat();
    assert!(holds(&kit, secret));
    runs(directory, &generator("data"));
    assert!(!holds(&kit, secret) && holds(&directory.join("data"), secret));
    let moved = text(&seeds(directory));
    assert!(moved.contains("This file contains no secret."), "{moved}");
    let id = Kit::read_with(&kit, dphe::hazmat::paper_keys()).unwrap().moved_to().unwrap().unwrap();
    assert!(moved.contains(&id.to_string()), "{moved}");
    runs(directory, &generator("data"));

    // without the data there are no seeds
    let error = refused(directory, &generator("empty"));
    assert!(error.contains("has no seeds any more") && error.contains(&id.to_string()), "{error}");
    assert!(error.contains("data directory or database of its first start"), "{error}");
    let output = dphe(directory, &["doctor", "--kit", "kits/key-generator", "--data", "empty"]);
    assert!(text(&output.stdout).contains("bad   data"), "{}", text(&output.stdout));
    done(directory, &["doctor", "--kit", "kits/key-generator", "--data", "data"]);
    // a backup is the same data, and has no file of the kit
    done(directory, &["backup", "--kit", "kits/key-generator", "--data", "data", "--output", "copy"]);
    runs(directory, &generator("copy"));
    let names: Vec<_> =
        std::fs::read_dir(directory.join("copy")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name == "seeds.bin"), "{names:?}");

    // a crash after the log was stored and before the seeds were removed
    std::fs::write(kit.join("seeds.bin"), &before).unwrap();
    runs(directory, &generator("data"));
    assert_eq!(text(&seeds(directory)), moved);
    // a crash before the log was stored
    std::fs::write(kit.join("seeds.bin"), &before).unwrap();
    runs(directory, &generator("fresh"));
    assert_ne!(text(&seeds(directory)), moved);
    // a damaged note
    for damaged in [&b""[..], b"moved_to = \"12\"", b"moved_to = \"00\"\nmore = 1", &[0xff; 40]] {
        std::fs::write(kit.join("seeds.bin"), damaged).unwrap();
        let error = refused(directory, &generator("fresh"));
        assert!(error.contains("seeds.bin is damaged") && error.contains("from a backup"), "{error}");
    }
}

#[test]
fn of_two_processes_that_first_start_with_one_kit_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    small_task(directory);
    done(directory, &["keygen", "--for-all-parties", "--no-passphrase"]);
    let start = |data: &str| {
        Service::start(directory, &[&GENERATOR[..], &["--data", data]].concat(), &format!("{data}.log"))
    };
    let mut both = [start("one"), start("two")];
    let ready = both.each_mut().map(Service::is_ready);
    assert!(ready[0] != ready[1], "{ready:?}\n{}\n{}", both[0].text(), both[1].text());
    let refused = &both[usize::from(ready[0])];
    assert!(refused.text().contains("has no seeds any more"), "{}", refused.text());
}
