//! What `deploy/` and docs/operations.md promise: units that systemd takes, options that exist, figures that are shown,
//! alarms that ring, certificates that change under a running task, and commands that do what the document says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use dphe::{Party, UserId};
use dphe_features::{FeatureTable, TableLabels, write_npz};
use dphe_node::certificates::{certificate_name, new_key, request};
use dphe_node::http::problem::HttpCode;
use dphe_node::kit::{Kit, hex};
use dphe_node::model::Model;
use dphe_node::service::aggregator::RoundEnding;
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

fn dphe(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dphe"))
        .args(args)
        .current_dir(folder)
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

/// Runs a command line without a kit: it must get as far as missing it.
fn options_exist(words: &[String]) {
    let nowhere = tempfile::tempdir().unwrap();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = dphe(nowhere.path(), &words);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {}", said(&output));
    assert!(said(&output).contains("is not a kit"), "{words:?}: {}", said(&output));
}

#[test]
fn units_start_the_program_with_options_it_has() {
    for unit in units() {
        let text = read(&unit);
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/dphe ")).unwrap();
        let words = line.split_whitespace().filter(|word| *word != "$DPHE_OPTIONS").map(|word| match word {
            "${DPHE_OBSERVE}" => "127.0.0.1:0".to_owned(),
            "$DPHE_STORE" => "--data=state".to_owned(),
            _ => word.replace("/etc/dphe", "./no-kit"),
        });
        options_exist(&words.collect::<Vec<_>>());
        // secrets are its own, and nothing is dumped
        for wanted in ["StateDirectoryMode=0700", "UMask=0077", "LimitCORE=0", "RestartPreventExitStatus=2"] {
            assert!(text.lines().any(|line| line == wanted), "{}: {wanted}", unit.display());
        }
        let user = text.lines().find_map(|line| line.strip_prefix("User=")).unwrap();
        assert!(read(&deploy("sysusers.conf")).contains(&format!("u {user} ")), "{user}");
    }
}

#[test]
fn units_are_what_systemd_takes_for_hardened() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("SKIPPED: systemd-analyze is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for unit in units() {
        let name = unit.file_name().unwrap().to_str().unwrap().replace("@.", "@main.");
        let copy = folder.path().join(&name);
        // the program is not installed here
        std::fs::write(&copy, read(&unit).replace("/usr/bin/dphe", env!("CARGO_BIN_EXE_dphe"))).unwrap();
        let analyze = |args: &[&str]| Command::new("systemd-analyze").args(args).arg(&copy).output().unwrap();
        let output = analyze(&["verify", "--man=no"]);
        // it says nothing of what is well; of units of the machine it may say something
        let about: Vec<String> =
            said(&output).lines().filter(|line| line.contains("dphe")).map(str::to_owned).collect();
        assert!(output.status.success() && about.is_empty(), "{name}: {}", said(&output));
        // tenths: below 2.0 is `OK`, and what is left is the network
        let output = analyze(&["security", "--offline=true", "--threshold=15", "--no-pager"]);
        if said(&output).contains("unrecognized option") {
            println!("SKIPPED: this systemd-analyze cannot judge a unit that is not installed");
        } else {
            assert!(output.status.success(), "{name}: {}", said(&output));
        }
    }
    // what it would refuse is refused
    let copy = folder.path().join("wrong.service");
    std::fs::write(&copy, "[Service]\nExecStart=/nowhere/dphe serve\n").unwrap();
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output().unwrap();
    assert!(!output.status.success());
}

/// The words of an instruction in exec form: `CMD ["a", "b"]`.
fn exec_form(text: &str, instruction: &str) -> Vec<String> {
    let line =
        text.lines().find_map(|line| line.trim_start().strip_prefix(instruction)?.trim().strip_prefix('['));
    serde_json::from_str(&format!("[{}", line.unwrap())).unwrap()
}

#[test]
fn the_container_is_made_of_what_is_here() {
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
    // all that the workspace is made of
    let manifest: toml::Value = toml::from_str(&read(&root().join("Cargo.toml"))).unwrap();
    for member in manifest["workspace"]["members"].as_array().unwrap() {
        let member = member.as_str().unwrap();
        assert!(copied.iter().any(|path| Path::new(member).starts_with(path)), "{member}");
    }
    let version = manifest["workspace"]["package"]["rust-version"].as_str().unwrap();
    assert!(text.contains(&format!("FROM rust:{version}-")), "the compiler of the manifest, {version}");
    // the last stage runs as somebody, after whom nothing else is said of users
    let last = &text[text.rfind("\nFROM ").unwrap()..];
    let user = last.lines().filter_map(|line| line.strip_prefix("USER ")).next_back().unwrap();
    assert!(user.parse::<u32>().is_ok_and(|user| user > 0), "{user}");
    assert_eq!(exec_form(&text, "ENTRYPOINT"), ["dphe"]);
    // the last one is the image's; the other one is the health check's
    let line = last.lines().filter_map(|line| line.strip_prefix("CMD ")).next_back().unwrap();
    let words: Vec<String> = serde_json::from_str(line).unwrap();
    let words = words.iter().map(|word| match word.as_str() {
        "/kit" => "./no-kit".to_owned(),
        _ => word.replace("127.0.0.1:9100", "127.0.0.1:0"),
    });
    options_exist(&words.collect::<Vec<_>>());
}

/// Names of figures in a text of Prometheus' language.
fn figures_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let ours = words.filter(|word| word.starts_with("dphe_") || word.starts_with("process_"));
    ours.map(str::to_owned).collect()
}

/// The values that a label is compared with in a text of Prometheus' language.
fn values_in(text: &str, label: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(label) {
        let begins = text[..at].ends_with(['{', ',', ' ']);
        let rest = &text[at + label.len()..];
        let rest = ["=~\"", "!~\"", "!=\"", "=\""].iter().find_map(|operator| rest.strip_prefix(operator));
        let Some((values, _)) = rest.filter(|_| begins).and_then(|rest| rest.split_once('"')) else {
            continue;
        };
        // a variable of the dashboard is no value
        found.extend(values.split('|').filter(|value| !value.starts_with('$')).map(str::to_owned));
    }
    found
}

#[test]
fn values_of_labels_are_found() {
    let text = "a{code=\"one\",job=\"x\"} + b{job!=\"code\", code=~\"two|three\"} c{code=\"$code\"} sum by (code) (d)";
    assert_eq!(values_in(text, "code"), ["one", "two", "three"].map(str::to_owned).into());
    assert_eq!(values_in(text, "job"), ["x", "code"].map(str::to_owned).into());
    assert!(values_in(text, "ode").is_empty());
}

/// All codes that something can be refused with, from the places where they are chosen.
fn all_codes() -> BTreeSet<String> {
    let source = include_str!("../../dphe/src/error.rs");
    let source = source.split("pub fn code(&self)").nth(1).unwrap().split("pub fn ").next().unwrap();
    let protocol = source.split("=> \"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let of_http = HttpCode::ALL.iter().map(|code| code.parts().0);
    protocol.chain(of_http).map(str::to_owned).collect()
}

/// What the alarms and the dashboard look for, as one text.
fn looked_for() -> String {
    let mut texts = ["alerts.yml", "alerts_test.yml"].map(|name| read(&deploy(name))).to_vec();
    let dashboard = read(&deploy("grafana-dashboard.json"));
    expressions(&serde_json::from_str(&dashboard).unwrap(), &mut texts);
    texts.join("\n")
}

/// All expressions in a dashboard.
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
fn the_dashboard_can_be_imported() {
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
            // several replicas are told apart, and can be chosen
            assert!(target["expr"].as_str().unwrap().contains("instance=~\"$instance\""), "{target}");
        }
    }
}

#[test]
fn alarms_ring() {
    let promtool = std::env::var("DPHE_TEST_PROMTOOL").unwrap_or_else(|_| "promtool".into());
    if Command::new(&promtool).arg("--version").output().is_err() {
        println!("SKIPPED: promtool is not installed (Debian has it in prometheus)");
        return;
    }
    for args in [&["check", "config", "prometheus.yml"][..], &["test", "rules", "alerts_test.yml"][..]] {
        let output = Command::new(&promtool).args(args).current_dir(root().join("deploy")).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }
}

/// A party as a process, ended with this.
struct Process {
    args: Vec<String>,
    folder: PathBuf,
    log: PathBuf,
    child: Child,
}

impl Process {
    fn new(folder: &Path, log: PathBuf, args: &[&str]) -> Self {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let child = Self::spawn(folder, &log, &args);
        Self { args, folder: folder.into(), log, child }
    }

    fn spawn(folder: &Path, log: &Path, args: &[String]) -> Child {
        let log = File::options().create(true).append(true).open(log).unwrap();
        Command::new(env!("CARGO_BIN_EXE_dphe"))
            .args(args)
            .current_dir(folder)
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
        self.child = Self::spawn(&self.folder, &self.log, &self.args);
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

/// A figure without labels.
fn figure(address: &str, name: &str) -> Option<f64> {
    let text = get(address, "/metrics")?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// What the party of this kit would send to get a certificate of this user's, for a key of its own.
fn forged(kit: &Kit, user: u32, signed: bool) -> String {
    let (task, party) = (kit.roster().task().id(), Party::User(UserId::new(user).unwrap()));
    let identity = kit.roster().identity(party).unwrap();
    let pem = request(&certificate_name(task, party, &identity), &new_key().unwrap()).unwrap();
    let pem = pem.replace('\r', "");
    let signature = hex(&kit.identity().unwrap().sign_certificate_request(task, pem.as_bytes()));
    let mut text = format!(
        "format = 1\nparty = \"user-{user}\"\ntask_id = \"{task}\"\nidentity = \"{}\"\nrequest = '''\n{pem}'''\n",
        hex(&identity.to_bytes())
    );
    if signed {
        text += &format!("signature = \"{signature}\"\n");
    }
    text
}

/// A machine that stops between the two writes of `dphe certificate install` leaves a kit that is refused, and is whole
/// after the same command again.
#[test]
fn a_certificate_is_put_in_again_after_a_crash() {
    let town = Town::on_free_ports(Plan::default());
    let here = town.folder.path();
    let run = |args: &[&str]| {
        let output = dphe(here, args);
        (output.status.success(), said(&output))
    };
    let (done, told) = run(&["certificate", "issue", "--kit", "kits/key-generator", "--party", "user-1"]);
    assert!(done, "{told}");
    let new =
        ["--certificate", "certificates/user-1/certificate.pem", "--key", "certificates/user-1/tls.key"];
    let install = || run(&[&["certificate", "install", "--kit", "kits/user-1"], &new[..]].concat());
    let kit = town.path("kits/user-1");
    let file = |name: &str| std::fs::read(kit.join(name)).unwrap();
    let copy = |from: &str, to: &str| std::fs::copy(kit.join(from), kit.join(to)).unwrap();
    let before = (file("certificate.pem"), file("tls.key"));

    // the new key is there, and the certificate is not
    std::fs::copy(town.path("certificates/user-1/tls.key"), kit.join("tls.key")).unwrap();
    let (done, told) = install();
    assert!(!done && told.contains("certificates: "), "without the old pair, it says what is wrong: {told}");
    std::fs::write(kit.join("tls.key"), &before.1).unwrap();
    copy("certificate.pem", "certificate.pem.old");
    copy("tls.key", "tls.key.old");
    std::fs::copy(town.path("certificates/user-1/tls.key"), kit.join("tls.key")).unwrap();
    assert!(Kit::read(&kit).is_err());
    let (done, told) = install();
    assert!(done, "{told}");
    assert_eq!(Kit::read(&kit).unwrap().party(), Party::User(UserId::new(1).unwrap()));
    let wanted = |name: &str| std::fs::read(town.path("certificates/user-1").join(name)).unwrap();
    assert_eq!((file("certificate.pem"), file("tls.key")), (wanted("certificate.pem"), wanted("tls.key")));
    assert_eq!((file("certificate.pem.old"), file("tls.key.old")), before);

    // a kit with another fault keeps the pair it has
    std::fs::write(kit.join("roster.bin"), "no roster").unwrap();
    assert!(!install().0);
    assert_eq!((file("certificate.pem"), file("tls.key")), (wanted("certificate.pem"), wanted("tls.key")));
}

/// One party after the other gets a new certificate while the task goes on; then what the watchers look for is there.
#[test]
fn certificates_change_and_figures_are_shown_while_rounds_go_on() {
    let town = Town::on_free_ports(Plan { rounds: 6, time: ("30s", "60s"), ..Plan::default() });
    let here = town.folder.path();
    let done = |args: &[&str]| {
        let output = dphe(here, args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        said(&output)
    };
    let refused = |args: &[&str]| {
        let output = dphe(here, args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", said(&output));
        said(&output)
    };
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
    let round = || figure(&observe[0], "dphe_round").unwrap_or(0.0) as u64;
    // the third user comes when all is done: rounds wait for it
    wait("they begin", &log, || round() == 1 && figure(&observe[2], "dphe_ready") == Some(1.0));

    // with a key of the key generator's making, for the aggregator and for itself
    let end = |n: usize| figure(&observe[n], "dphe_certificate_end_timestamp_seconds");
    let before = end(0).unwrap();
    done(&[
        "certificate",
        "issue",
        "--kit",
        "kits/key-generator",
        "--party",
        "aggregator",
        "--party",
        "key-generator",
        "--days",
        "30",
    ]);
    let install = |party: &str, from: &str| {
        let (kit, from) = (format!("kits/{party}"), format!("{from}/"));
        done(&[
            "certificate",
            "install",
            "--kit",
            &kit,
            "--certificate",
            &format!("{from}certificate.pem"),
            "--key",
            &format!("{from}tls.key"),
        ])
    };
    for party in ["aggregator", "key-generator"] {
        install(party, &format!("certificates/{party}"));
    }
    aggregator.restart();
    wait("the aggregator is back", &log, || end(0).is_some_and(|end| end < before - 300.0 * 86_400.0));
    // the others run on, with the certificates they had
    let mut third = user(2, "127.0.0.1:0");
    wait("a round goes on", &log, || round() >= 2);
    generator.restart();
    // and with its own, after a request
    done(&["certificate", "request", "--kit", "kits/user-1", "--output", "new"]);
    done(&[
        "certificate",
        "issue",
        "--kit",
        "kits/key-generator",
        "--with",
        "new/request.toml",
        "--output",
        "answer",
    ]);
    assert!(!town.path("answer/user-1/tls.key").exists(), "the key stays where it was made");
    std::fs::copy(town.path("answer/user-1/certificate.pem"), town.path("new/certificate.pem")).unwrap();
    install("user-1", "new");
    if first.ended().is_none() {
        first.restart();
    }

    // what does not belong together is not put in, and nothing is changed
    let kit = |file: &str| std::fs::read(town.path("kits/user-2").join(file)).unwrap();
    let as_it_was = (kit("certificate.pem"), kit("tls.key"));
    let into = |certificate: &str, key: &str| {
        refused(&[
            "certificate",
            "install",
            "--kit",
            "kits/user-2",
            "--certificate",
            certificate,
            "--key",
            key,
        ])
    };
    let error = into("new/certificate.pem", "new/tls.key");
    assert!(error.contains("another party or task"), "{error}");
    let error = into("kits/user-2/certificate.pem", "new/tls.key");
    assert!(error.contains("certificates: "), "{error}");
    assert_eq!((kit("certificate.pem"), kit("tls.key")), as_it_was);
    // a request in another's name, a party that is not there, a kit that makes no certificates
    let request = read(&town.path("new/request.toml")).replace("user-1", "user-2");
    std::fs::write(town.path("forged.toml"), request).unwrap();
    let issue = ["certificate", "issue", "--kit", "kits/key-generator", "--output", "never"];
    let error = refused(&[&issue[..], &["--with", "forged.toml"]].concat());
    assert!(error.contains("another identity"), "{error}");
    // all of another's request that is public, with a key of one's own: not signed, or by oneself
    for (signed, why) in
        [(false, "it is not signed"), (true, "its signature is not that of the party's identity")]
    {
        std::fs::write(town.path("forged.toml"), forged(&town.kit("user-1"), 2, signed)).unwrap();
        let error = refused(&[&issue[..], &["--with", "forged.toml"]].concat());
        assert!(error.contains("the request of user-2") && error.contains(why), "{error}");
    }
    assert!(refused(&[&issue[..], &["--party", "user-9"]].concat()).contains("no party"));
    let error = refused(&["certificate", "issue", "--kit", "kits/user-1", "--output", "never"]);
    assert!(error.contains("this is the kit of user-1"), "{error}");
    assert!(!town.path("never").exists());

    // figures, while the last rounds go on or after them
    let looked_for = looked_for();
    let used = figures_in(&looked_for);
    assert!(used.len() >= 14, "{used:?}");
    wait("the task ends", &log, || third.ended().is_some());
    let text = get(&observe[0], "/metrics").unwrap();
    let shown: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for name in &used {
        assert!(shown.contains(name.as_str()), "{name} is not shown:\n{text}");
    }
    assert!(text.contains("dphe_phase{phase=\"idle\"} 1"), "{text}");
    // codes, phases and endings that are looked for exist
    let endings = [RoundEnding::Published, RoundEnding::Failed, RoundEnding::Aborted];
    let phases = text.lines().filter(|line| line.starts_with("dphe_phase{"));
    for (label, known) in [
        ("code", all_codes()),
        ("phase", phases.flat_map(|line| values_in(line, "phase")).collect()),
        ("ending", endings.map(|ending| ending.name().to_owned()).into()),
    ] {
        let values = values_in(&looked_for, label);
        assert!(!values.is_empty() && values.is_subset(&known), "{label}: {values:?}, of {known:?}");
    }
    let codes = values_in(&read(&deploy("alerts.yml")), "code");
    for code in ["rollback", "not_mine", "storage"] {
        assert!(codes.contains(code), "{code} is worth an alarm, docs/operations.md says");
    }

    // the container's way of asking whether a party is well
    let health = exec_form(&read(&deploy("Containerfile")), "CMD");
    let ask = |address: &str| {
        let port = address.rsplit(':').next().unwrap();
        let script = health[2].replace("9100", port);
        Command::new(&health[0]).args([&health[1], &script]).output().unwrap().status.success()
    };
    assert!(ask(&observe[0]));
    assert!(!ask(&free_address()), "nobody is there");

    // all rounds with all users, as if nothing had happened
    let expected = dphe_node::learning::model_from_bytes(&town.simulate(6)).unwrap();
    let kept = Model::read(&town.path("user-3.model")).unwrap();
    assert!(kept.weights == expected, "the weights of the simulation");
    drop(second);
}

/// The commands of a document, in its order.
fn commands(text: &str) -> Vec<Vec<String>> {
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

/// Goes through docs/operations.md as its readers do, each party at its own place.
#[test]
fn the_document_does_what_it_says() {
    let text = read(&root().join("docs/operations.md"));
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let (aggregator, generator) = (free_address(), free_address());
    write_table(7, &here.join("samples.npz"));
    let mut running: Vec<Process> = Vec::new();
    let mut ran = 0;
    for words in commands(&text) {
        let line = words.join(" ");
        let mut args: Vec<String> = words
            .iter()
            .map(|word| {
                word.replace("a.example.org:7100", &aggregator).replace("g.example.org:7200", &generator)
            })
            .collect();
        // whose place it is
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
                // keys that do not take minutes, and fewer rounds
                let mut task = read(&here.join("task.toml"));
                for (from, to) in [
                    ("profile = \"full\"", "profile = \"paper\""),
                    ("key_bits = 3072", "key_bits = 512"),
                    ("message = \"rotate\"", "message = \"d-topk\""),
                    ("rounds = 20", "rounds = 2"),
                    ("30s", "20s"),
                ] {
                    assert!(task.contains(from), "{from}");
                    task = task.replace(from, to);
                }
                std::fs::write(here.join("task.toml"), task).unwrap();
            }
            ["keygen", "task.toml"] if words.contains(&"--request".to_owned()) => {
                succeed(&at, &args);
                std::fs::copy(here.join("my-keys/request.toml"), here.join("user-3-request.toml")).unwrap();
            }
            ["keygen", "task.toml"] => {
                // nobody is there to type one
                args.push("--no-passphrase".into());
                succeed(&at, &args);
                for (n, party) in
                    ["user-1", "user-2", "user-3", "aggregator", "key-generator"].iter().enumerate()
                {
                    std::fs::create_dir_all(place(party)).unwrap();
                    std::fs::rename(here.join("kits").join(party), place(party).join(party)).unwrap();
                    write_table(n, &place(party).join("features.npz"));
                }
                for name in ["identity.key", "tls.key"] {
                    std::fs::rename(here.join("my-keys").join(name), place("user-3/user-3").join(name))
                        .unwrap();
                }
            }
            ["doctor", "--kit"] => {
                // nobody is up yet, and it says so
                let output = run(&at, &args);
                assert_eq!(output.status.code(), Some(3), "{}", said(&output));
                assert!(said(&output).contains("bad   peer"), "{}", said(&output));
            }
            // nobody has a database here, and it says so
            ["serve", _] | ["verify", _] if line.contains("--database") => {
                let local = args.iter().map(|arg| arg.replace("0.0.0.0:7101", "127.0.0.1:0"));
                let nowhere = free_address();
                let local: Vec<String> = local.map(|arg| arg.replace("db.example.org", &nowhere)).collect();
                let output = run(&at, &local);
                assert_eq!(output.status.code(), Some(1), "{line}: {}", said(&output));
                assert!(said(&output).contains("see that the database runs"), "{line}: {}", said(&output));
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
                // the rest is done in the midst of a task, or after it
                for user in &mut running[2..] {
                    let log = user.log.clone();
                    wait("the task ends", &log, || user.ended() == Some(true));
                }
            }
            ["backup", "--kit"] | ["verify", "--kit"] => succeed(&at, &args),
            ["certificate", "issue"] => {
                if line.contains("--with") {
                    std::fs::copy(place("user-3/new/request.toml"), at.join("user-3-request.toml")).unwrap();
                }
                succeed(&at, &args);
            }
            ["certificate", "request"] => succeed(&at, &args),
            ["certificate", "install"] => {
                let made = place("key-generator");
                std::fs::rename(made.join("certificates/aggregator"), at.join("new")).unwrap();
                succeed(&at, &args);
                let answer = made.join("for-user-3/user-3/certificate.pem");
                std::fs::rename(answer, place("user-3/new/certificate.pem")).unwrap();
                let args: Vec<String> = args.iter().map(|arg| arg.replace("aggregator", "user-3")).collect();
                succeed(&place("user-3"), &args);
            }
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
    assert!(ran >= 14, "{ran} commands");
    // every one that stands in the midst of a sentence exists
    for name in text.split("`dphe ").skip(1).map(|rest| rest.split(['`', ' ']).next().unwrap()) {
        let output = dphe(here, &[name, "--help"]);
        assert!(output.status.success(), "dphe {name}");
    }
}
