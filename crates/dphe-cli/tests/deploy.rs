//! Checks `deploy/` and docs/operations.md: systemd accepts the units, options and metrics exist, alerts fire,
//! and the documented commands work.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use dphe::ErrorCode;
use dphe::wire::Ending;
use dphe_features::{FeatureTable, TableLabels, write_npz};
use dphe_service::http::problem::HttpErrorCode;
use dphe_service::model::Model;
use support::{CLASSES, FEATURES, Plan, SEED, Town, samples, write_samples};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn deploy(name: &str) -> PathBuf {
    root().join("deploy").join(name)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

fn dphe(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dphe"))
        .args(args)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn units() -> Vec<PathBuf> {
    let all = std::fs::read_dir(root().join("deploy")).unwrap().map(|entry| entry.unwrap().path());
    let mut units: Vec<PathBuf> =
        all.filter(|path| path.extension().is_some_and(|end| end == "service")).collect();
    units.sort();
    assert_eq!(units.len(), 3);
    units
}

/// Runs a command line without a kit. It must fail only because the kit is missing.
fn options_exist(words: &[String]) {
    let nowhere = tempfile::tempdir().unwrap();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = dphe(nowhere.path(), &words);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {}", said(&output));
    assert!(said(&output).contains("is not a kit"), "{words:?}: {}", said(&output));
}

#[test]
fn units_use_options_that_exist() {
    for unit in units() {
        let text = read(&unit);
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/dphe ")).unwrap();
        let words = line.split_whitespace().filter(|word| *word != "$DPHE_OPTIONS").map(|word| match word {
            "${DPHE_OBSERVE}" => "127.0.0.1:0".to_owned(),
            "$DPHE_STORE" => "--data=state".to_owned(),
            _ => word.replace("/etc/dphe", "./no-kit"),
        });
        options_exist(&words.collect::<Vec<_>>());
        // files are private, and there are no core dumps
        for wanted in ["StateDirectoryMode=0700", "UMask=0077", "LimitCORE=0", "RestartPreventExitStatus=2"] {
            assert!(text.lines().any(|line| line == wanted), "{}: {wanted}", unit.display());
        }
        let user = text.lines().find_map(|line| line.strip_prefix("User=")).unwrap();
        assert!(read(&deploy("sysusers.conf")).contains(&format!("u {user} ")), "{user}");
    }
}

#[test]
fn systemd_accepts_the_units_and_rates_them_as_hardened() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("SKIPPED: systemd-analyze is not installed");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for unit in units() {
        let name = unit.file_name().unwrap().to_str().unwrap().replace("@.", "@main.");
        let copy = directory.path().join(&name);
        // the program is not installed on this machine
        std::fs::write(&copy, read(&unit).replace("/usr/bin/dphe", env!("CARGO_BIN_EXE_dphe"))).unwrap();
        let analyze = |args: &[&str]| Command::new("systemd-analyze").args(args).arg(&copy).output().unwrap();
        let output = analyze(&["verify", "--man=no"]);
        // silent if a unit is valid, except for messages about other units of the machine
        let about: Vec<String> =
            said(&output).lines().filter(|line| line.contains("dphe")).map(str::to_owned).collect();
        assert!(output.status.success() && about.is_empty(), "{name}: {}", said(&output));
        // below 2.0 is `OK`; the rest is due to the network
        let output = analyze(&["security", "--offline=true", "--threshold=15", "--no-pager"]);
        if said(&output).contains("unrecognized option") {
            println!("SKIPPED: this systemd-analyze cannot judge a unit that is not installed");
        } else {
            assert!(output.status.success(), "{name}: {}", said(&output));
        }
    }
    // the check would find an invalid unit
    let copy = directory.path().join("wrong.service");
    std::fs::write(&copy, "[Service]\nExecStart=/nowhere/dphe serve\n").unwrap();
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output().unwrap();
    assert!(!output.status.success());
}

/// Returns the words of an instruction in exec form, such as `CMD ["a", "b"]`.
fn exec_form(text: &str, instruction: &str) -> Vec<String> {
    let line =
        text.lines().find_map(|line| line.trim_start().strip_prefix(instruction)?.trim().strip_prefix('['));
    serde_json::from_str(&format!("[{}", line.unwrap())).unwrap()
}

#[test]
fn containerfile_copies_the_workspace_and_uses_options_that_exist() {
    let text = read(&deploy("Containerfile"));
    let joined = text.replace("\\\n", " ");
    let mut copied = Vec::new();
    for line in joined.lines().filter_map(|line| line.strip_prefix("COPY ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !words[0].starts_with("--from") {
            copied.extend(words[..words.len() - 1].iter().map(|word| (*word).to_owned()));
        }
    }
    assert!(copied.len() >= 5);
    for path in &copied {
        assert!(root().join(path).exists(), "{path}");
        assert!(!path.contains("kit") && !path.contains("key"), "{path}: nothing secret is baked in");
    }
    // every directory of the workspace is copied
    let manifest: toml::Value = toml::from_str(&read(&root().join("Cargo.toml"))).unwrap();
    for member in manifest["workspace"]["members"].as_array().unwrap() {
        let member = member.as_str().unwrap();
        assert!(copied.iter().any(|path| Path::new(member).starts_with(path)), "{member}");
    }
    let version = manifest["workspace"]["package"]["rust-version"].as_str().unwrap();
    assert!(text.contains(&format!("FROM rust:{version}-")), "the compiler of the manifest, {version}");
    // the last stage sets a user, and does not change it later
    let last = &text[text.rfind("\nFROM ").unwrap()..];
    let user = last.lines().filter_map(|line| line.strip_prefix("USER ")).next_back().unwrap();
    assert!(user.parse::<u32>().is_ok_and(|user| user > 0), "{user}");
    assert_eq!(exec_form(&text, "ENTRYPOINT"), ["dphe"]);
    // the last CMD is that of the image, the other one that of the health check
    let line = last.lines().filter_map(|line| line.strip_prefix("CMD ")).next_back().unwrap();
    let words: Vec<String> = serde_json::from_str(line).unwrap();
    let words = words.iter().map(|word| match word.as_str() {
        "/kit" => "./no-kit".to_owned(),
        _ => word.replace("127.0.0.1:9100", "127.0.0.1:0"),
    });
    options_exist(&words.collect::<Vec<_>>());
}

/// Returns the names of metrics in Prometheus expressions.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let ours = words.filter(|word| word.starts_with("dphe_") || word.starts_with("process_"));
    ours.map(str::to_owned).collect()
}

/// Returns the values that a label is compared with in Prometheus expressions.
fn values_in(text: &str, label: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(label) {
        let begins = text[..at].ends_with(['{', ',', ' ']);
        let rest = &text[at + label.len()..];
        let rest = ["=~\"", "!~\"", "!=\"", "=\""].iter().find_map(|operator| rest.strip_prefix(operator));
        let Some((values, _)) = rest.filter(|_| begins).and_then(|rest| rest.split_once('"')) else {
            continue;
        };
        // skip variables of the dashboard
        found.extend(values.split('|').filter(|value| !value.starts_with('$')).map(str::to_owned));
    }
    found
}

#[test]
fn label_values_are_found_in_expressions() {
    let text = "a{code=\"one\",job=\"x\"} + b{job!=\"code\", code=~\"two|three\"} c{code=\"$code\"} sum by (code) (d)";
    assert_eq!(values_in(text, "code"), ["one", "two", "three"].map(str::to_owned).into());
    assert_eq!(values_in(text, "job"), ["x", "code"].map(str::to_owned).into());
    assert!(values_in(text, "ode").is_empty());
}

/// All error codes.
fn all_codes() -> BTreeSet<String> {
    let protocol = ErrorCode::ALL.iter().map(|code| code.as_str());
    protocol.chain(HttpErrorCode::ALL.iter().map(|code| code.as_str())).map(str::to_owned).collect()
}

/// Returns all expressions of the alerts and the dashboard as one text.
fn all_expressions() -> String {
    let mut texts = ["alerts.yml", "alerts_test.yml"].map(|name| read(&deploy(name))).to_vec();
    let dashboard = read(&deploy("grafana-dashboard.json"));
    expressions(&serde_json::from_str(&dashboard).unwrap(), &mut texts);
    texts.join("\n")
}

/// Collects all expressions in a dashboard.
fn expressions(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                if ["expr", "query", "definition"].contains(&name.as_str()) {
                    found.extend(value.as_str().map(str::to_owned));
                }
                expressions(value, found);
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

#[test]
fn grafana_dashboard_is_complete_and_consistent() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read(&deploy("grafana-dashboard.json"))).unwrap();
    assert_eq!(dashboard["uid"], "dphe");
    assert!(dashboard["id"].is_null(), "an id is a database's, and would overwrite another dashboard");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert_eq!(
        (variables[0]["name"].as_str(), variables[0]["type"].as_str()),
        (Some("datasource"), Some("datasource"))
    );
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 12);
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have one number");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24);
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(places.insert((x, y)), "{} covers another panel", panel["title"]);
            }
        }
        for target in panel["targets"].as_array().unwrap() {
            // replicas can be told apart and selected
            assert!(target["expr"].as_str().unwrap().contains("instance=~\"$instance\""), "{target}");
        }
    }
}

#[test]
fn alert_rules_pass_their_tests() {
    let promtool = std::env::var("DPHE_TEST_PROMTOOL").unwrap_or_else(|_| "promtool".into());
    if Command::new(&promtool).arg("--version").output().is_err() {
        println!("SKIPPED: promtool is not installed; run scripts/setup promtool");
        return;
    }
    for args in [&["check", "config", "prometheus.yml"][..], &["test", "rules", "alerts_test.yml"][..]] {
        let output = Command::new(&promtool).args(args).current_dir(root().join("deploy")).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }
}

/// A party as a process. It is killed when this is dropped.
struct Process {
    args: Vec<String>,
    directory: PathBuf,
    log: PathBuf,
    child: Child,
}

impl Process {
    fn new(directory: &Path, log: PathBuf, args: &[&str]) -> Self {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let child = Self::spawn(directory, &log, &args);
        Self { args, directory: directory.into(), log, child }
    }

    fn spawn(directory: &Path, log: &Path, args: &[String]) -> Child {
        let log = File::options().create(true).append(true).open(log).unwrap();
        Command::new(env!("CARGO_BIN_EXE_dphe"))
            .args(args)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    fn ended(&mut self) -> Option<bool> {
        self.child.try_wait().unwrap().map(|status| status.success())
    }

    /// SIGTERM, and the same again.
    fn restart(&mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success(), "{}", read(&self.log));
        self.child = Self::spawn(&self.directory, &self.log, &self.args);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(what: &str, log: &Path, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}:\n{}", read(log));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Returns the value of a metric without labels.
fn metric(address: &str, name: &str) -> Option<f64> {
    let text = get(address, "/metrics")?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Restarts parties during a task, and checks that all metrics of alerts and dashboard exist.
#[test]
fn metrics_of_alerts_and_dashboard_are_exported_during_rounds() {
    let town = Town::on_free_ports(Plan { rounds: 6, time: ("30s", "60s"), ..Plan::default() });
    let here = town.directory.path();
    let observe = [free_address(), free_address(), free_address()];
    let start = |party: &str, command: &[&str], observe: &str| {
        let (kit, data) = (format!("kits/{party}"), format!("data/{party}"));
        let args =
            [command, &["--kit", &kit, "--data", &data, "--observe", observe, "--threads", "1"]].concat();
        Process::new(here, town.path(&format!("{party}.log")), &args)
    };
    let mut aggregator = start("aggregator", &["serve", "aggregator"], &observe[0]);
    let mut generator = start("key-generator", &["serve", "key-generator"], &observe[1]);
    let user = |n: usize, observe: &str| {
        let (name, file) = (format!("user-{}", n + 1), format!("user-{}.csv", n + 1));
        write_samples(n, &town.path(&file));
        let (output, seed) = (format!("{name}.model"), SEED.to_string());
        start(&name, &["join", "--features", &file, "--seed", &seed, "--output", &output], observe)
    };
    let mut first = user(0, &observe[2]);
    let second = user(1, "127.0.0.1:0");
    let log = aggregator.log.clone();
    let round = || metric(&observe[0], "dphe_round").unwrap_or(0.0) as u64;
    // the third user joins at the end, and rounds wait for it
    wait("they begin", &log, || round() == 1 && metric(&observe[2], "dphe_ready") == Some(1.0));

    aggregator.restart();
    wait("the aggregator is back", &log, || metric(&observe[0], "dphe_ready") == Some(1.0));
    let mut third = user(2, "127.0.0.1:0");
    wait("the round continues", &log, || round() >= 2);
    generator.restart();
    if first.ended().is_none() {
        first.restart();
    }

    // metrics, during the last rounds or after them
    let looked_for = all_expressions();
    let used = metrics_in(&looked_for);
    assert!(used.len() >= 14, "{used:?}");
    wait("the task ends", &log, || third.ended().is_some());
    let text = get(&observe[0], "/metrics").unwrap();
    let shown: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for name in &used {
        assert!(shown.contains(name.as_str()), "{name} is not shown:\n{text}");
    }
    assert!(text.contains("dphe_phase{phase=\"idle\"} 1"), "{text}");
    // codes, phases and endings in the expressions exist
    let phases = text.lines().filter(|line| line.starts_with("dphe_phase{"));
    for (label, known) in [
        ("code", all_codes()),
        ("phase", phases.flat_map(|line| values_in(line, "phase")).collect()),
        ("ending", Ending::ALL.iter().map(|ending| ending.to_string()).collect()),
    ] {
        let values = values_in(&looked_for, label);
        assert!(!values.is_empty() && values.is_subset(&known), "{label}: {values:?}, of {known:?}");
    }
    let codes = values_in(&read(&deploy("alerts.yml")), "code");
    for code in ["rollback", "not_mine", "storage"] {
        assert!(codes.contains(code), "{code} is worth an alarm, docs/operations.md says");
    }

    // the health check of the container
    let health = exec_form(&read(&deploy("Containerfile")), "CMD");
    let ask = |address: &str| {
        let port = address.rsplit(':').next().unwrap();
        let script = health[2].replace("9100", port);
        Command::new(&health[0]).args([&health[1], &script]).output().unwrap().status.success()
    };
    assert!(ask(&observe[0]));
    assert!(!ask(&free_address()), "nothing listens there");

    // all rounds include all users
    let expected = dphe_federate::GlobalWeights::from_bytes(&town.simulate(6)).unwrap();
    let kept = Model::read(&town.path("user-3.model")).unwrap();
    assert!(kept.weights == *expected, "the weights of the simulation");
    drop(second);
}

/// Returns the commands of a document in order.
fn commands(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ");
    let lines = text.lines().filter(|line| line.starts_with("    "));
    let lines = lines.filter_map(|line| line.trim_start().strip_prefix("dphe "));
    let words = |line: &str| line.split('#').next().unwrap().split_whitespace().map(str::to_owned).collect();
    lines.map(words).collect()
}

fn write_table(user: usize, path: &Path) {
    let data = samples(user);
    let labels = data.labels().as_classes("a file").unwrap();
    let labels = labels.iter().map(|&label| label as usize).collect();
    let values = data.features().rows().flatten().copied().collect();
    let names = (0..CLASSES).map(|class| format!("class {class}")).collect();
    let table = FeatureTable::new(FEATURES, values).unwrap();
    write_npz(path, &table.with_labels(TableLabels::Classes(labels), names).unwrap()).unwrap();
}

/// Runs the commands of docs/operations.md as readers do, each party in its own directory.
#[test]
fn commands_of_the_operations_guide_work() {
    let text = read(&root().join("docs/operations.md"));
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (aggregator, generator) = (free_address(), free_address());
    write_table(7, &here.join("samples.npz"));
    let mut running: Vec<Process> = Vec::new();
    let mut ran = 0;
    // the hash that `dphe keygen` prints
    let mut roster = String::new();
    for words in commands(&text) {
        let line = words.join(" ");
        let mut args: Vec<String> = words
            .iter()
            .map(|word| {
                word.replace("a.example.org:7100", &aggregator)
                    .replace("g.example.org:7200", &generator)
                    .replace("HASH", &roster)
            })
            .collect();
        // the party that runs the command
        let kit = words.iter().position(|word| word == "--kit").map(|at| words[at + 1].clone());
        let place = |party: &str| here.join("places").join(party);
        let at = kit.as_deref().map_or_else(|| here.to_path_buf(), place);
        let run = |at: &Path, args: &[String]| dphe(at, &args.iter().map(String::as_str).collect::<Vec<_>>());
        let succeed = |at: &Path, args: &[String]| {
            let output = run(at, args);
            assert!(output.status.success(), "{line}: {}", said(&output));
        };
        let verb: Vec<&str> = line.split(' ').take(2).collect();
        match verb[..] {
            ["init", "task.toml"] => {
                succeed(&at, &args);
                // smaller keys and fewer rounds, to save time
                let mut task = read(&here.join("task.toml"));
                for (from, to) in [
                    ("profile = \"full\"", "profile = \"paper\""),
                    ("key_bits = 3072", "key_bits = 512"),
                    ("payload = \"rotate\"", "payload = \"d-topk\""),
                    ("rounds = 15", "rounds = 2"),
                    ("30s", "20s"),
                ] {
                    assert!(task.contains(from), "{from}");
                    task = task.replace(from, to);
                }
                std::fs::write(here.join("task.toml"), task).unwrap();
            }
            ["keygen", "task.toml"] if words.contains(&"--request".to_owned()) => {
                // the document shows the request of a user first, then that of the aggregator
                if here.join("requests").exists() {
                    continue;
                }
                std::fs::create_dir(here.join("requests")).unwrap();
                // every party in its own directory, not only the one in the document
                for party in ["aggregator", "user-1", "user-2", "user-3"] {
                    let place = place(party);
                    std::fs::create_dir_all(&place).unwrap();
                    std::fs::copy(here.join("task.toml"), place.join("task.toml")).unwrap();
                    let args: Vec<String> = args.iter().map(|arg| arg.replace("user-3", party)).collect();
                    succeed(&place, &args);
                    let request = format!("{party}-request.toml");
                    std::fs::copy(place.join("my-keys").join(&request), here.join("requests").join(&request))
                        .unwrap();
                }
            }
            ["keygen", "task.toml"] => {
                // there is no terminal to type a passphrase
                args.push("--no-passphrase".into());
                let output = run(&at, &args);
                assert!(output.status.success(), "{line}: {}", said(&output));
                let printed = said(&output);
                let hash = printed.lines().find_map(|line| line.strip_prefix("roster       ")).unwrap();
                roster = hash.to_owned();
                for (n, party) in
                    ["user-1", "user-2", "user-3", "aggregator", "key-generator"].iter().enumerate()
                {
                    std::fs::create_dir_all(place(party)).unwrap();
                    std::fs::rename(here.join("kits").join(party), place(party).join(party)).unwrap();
                    write_table(n, &place(party).join("features.npz"));
                }
            }
            ["doctor", "--kit"] => {
                // no party runs yet, which is reported
                let output = run(&at, &args);
                assert_eq!(output.status.code(), Some(3), "{}", said(&output));
                assert!(said(&output).contains("bad   peer"), "{}", said(&output));
            }
            // there is no database here, which is reported
            ["serve", _] | ["verify", _] if line.contains("--database") => {
                let local = args.iter().map(|arg| arg.replace("0.0.0.0:7101", "127.0.0.1:0"));
                let nowhere = free_address();
                let local: Vec<String> = local.map(|arg| arg.replace("db.example.org", &nowhere)).collect();
                let output = run(&at, &local);
                assert_eq!(output.status.code(), Some(1), "{line}: {}", said(&output));
                // a build without PostgreSQL names the build that has it
                let expected = if cfg!(feature = "postgres") {
                    "Check that the database runs"
                } else {
                    "--features postgres"
                };
                assert!(said(&output).contains(expected), "{line}: {}", said(&output));
            }
            ["serve", _] | ["join", _] => {
                let parties = match kit.as_deref().unwrap() {
                    "user-3" => vec!["user-1", "user-2", "user-3"],
                    other => vec![other],
                };
                for party in parties {
                    let args: Vec<&str> =
                        args.iter().map(|arg| if arg == "user-3" { party } else { arg }).collect();
                    running.push(Process::new(&place(party), place(party).join("log"), &args));
                }
            }
            ["status", "--kit"] => {
                let log = running[1].log.clone();
                wait("it is up", &log, || run(&at, &args).status.success());
                // the other commands are run during the task or after it
                for user in &mut running[2..] {
                    let log = user.log.clone();
                    wait("the task ends", &log, || user.ended() == Some(true));
                }
            }
            ["backup", "--kit"] => succeed(&at, &args),
            ["verify", "--kit"] => {
                let kit = kit.as_deref().unwrap();
                if line.contains("copy-of-state") && !at.join("copy-of-state").exists() {
                    let backup = ["backup", "--kit", kit, "--data", "state", "--output", "copy-of-state"];
                    succeed(&at, &backup.map(str::to_owned));
                }
                if line.contains("--compare") {
                    std::fs::copy(place("user-3").join("three.json"), at.join("three.json")).unwrap();
                }
                succeed(&at, &args);
            }
            // the service runs, and nobody has asked for a change
            ["roster", _] => assert_eq!(run(&at, &args).status.code(), Some(1), "{line}"),
            ["init", "next.toml"] => {
                succeed(&place("user-3"), &args);
                let next = read(&place("user-3/next.toml"));
                assert!(next.contains("initial = \"initial.safetensors\""), "{next}");
                let (old, new) = (place("user-3/model.safetensors"), place("user-3/initial.safetensors"));
                let (old, new) = (Model::read(&old).unwrap(), Model::read(&new).unwrap());
                assert!(old.weights == new.weights && old.about.classes == new.about.classes);
            }
            ["completions", _] => succeed(&at, &args),
            _ => panic!("`dphe {line}` is new in the document: say here what it should do"),
        }
        ran += 1;
    }
    assert!(ran >= 13, "{ran} commands");
    // every command within a sentence exists
    for name in text.split("`dphe ").skip(1).map(|rest| rest.split(['`', ' ']).next().unwrap()) {
        let output = dphe(here, &[name, "--help"]);
        assert!(output.status.success(), "dphe {name}");
    }
}
