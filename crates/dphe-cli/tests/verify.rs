//! `dphe verify` for members: a whole task from the aggregator, what a user keeps, and exports of two users.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::process::{Command, Output};

use dphe::party::{Party as _, PartyContext, Time, UserParty};
use dphe::wire::Kind;
use dphe::{KeyLengths, Round, Threads, User, UserKeys};
use dphe_service::kit::Kit;
use dphe_service::store::{Archive as _, LogStore as _, SqliteStore};
use dphe_service::verify::{CheckedRound, MessageSource, Replay, SumCheck, check_against_user, check_rounds};
use serde_json::Value;
use support::process::{Process, processes_with, wait_until};
use support::{Plan, Town, model_maker};

/// Copies kits before their seeds move into logs.
fn keep_unused_kits(town: &Town) {
    for name in ["user-2", "user-3"] {
        let (from, to) = (town.kit_directory(name), town.path("unused").join(name));
        std::fs::create_dir_all(&to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

fn dphe(town: &Town, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(town.directory.path()).output().unwrap()
}

fn said(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}

/// Runs a command that must succeed, and returns what it prints.
fn done(town: &Town, args: &[&str]) -> String {
    let output = dphe(town, args);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn members_verify_a_task_from_the_aggregator_and_from_what_they_keep() {
    for sparse in [false, true] {
        let rounds = 3;
        let town = Town::on_free_ports(Plan { rounds, sparse, ..Plan::default() });
        keep_unused_kits(&town);
        let mut all = processes_with(&town, &[]);
        wait_until(&mut all[2..], "the task ends", |user| user.ended().is_some());
        // the seeds of a user who has taken part are forgotten, and a masked sum cannot be checked without them
        let sum = if sparse { "sum checked" } else { "sum only chained" };

        // all parties show the same history of the same rounds
        let status = |kit| -> Value {
            serde_json::from_str(&done(&town, &["status", "--kit", kit, "--format", "json"])).unwrap()
        };
        // the key generator learns of the end after the users
        let mut services = status("kits/aggregator");
        while services[1]["round"] != 4 {
            services = status("kits/aggregator");
        }
        let history = services[0]["history"].as_str().unwrap().to_owned();
        assert_eq!((history.len(), &services[1]["history"]), (64, &services[0]["history"]));
        assert_eq!((services[0]["round"].as_u64(), services[1]["round"].as_u64()), (Some(4), Some(4)));
        let short = format!("history {:.16}", history);
        let shown = done(&town, &["status", "--kit", "kits/user-1"]);
        assert!(shown.contains(&format!("round 4, {short}")), "{shown}");
        for user in &all[2..] {
            assert!(user.text().contains(&format!("round 4, {short}")), "{}", user.text());
        }

        // a member without any data verifies everything
        let text = done(&town, &["verify", "--kit", "unused/user-3", "--from-aggregator"]);
        for round in 1..=rounds {
            assert!(
                text.contains(&format!("ok    round {round}      published, 3 users, sum checked")),
                "{text}"
            );
        }
        assert!(text.contains(&short) && !text.contains("chained"), "{text}");
        // with its data, it compares its own log too, and writes what others compare
        let fetch = ["verify", "--kit", "kits/user-3", "--from-aggregator"];
        let own = [&fetch[..], &["--data", "data/user-3", "--export", "three.json"]].concat();
        let text = done(&town, &own);
        assert!(
            text.contains("ok    own log      this user has the same history and model after round 3"),
            "{text}"
        );
        // from what the user keeps
        let text = done(
            &town,
            &["verify", "--kit", "kits/user-1", "--data", "data/user-1", "--compare", "three.json"],
        );
        assert!(text.contains(&format!("ok    round 3      published, 3 users, {sum}")), "{text}");
        assert!(text.contains("ok    compared     user-3 was told the same, rounds compared: 3"), "{text}");
        let json = done(
            &town,
            &["verify", "--kit", "kits/aggregator", "--data", "data/aggregator", "--format", "json"],
        );
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["rounds"][2]["head"]["history"], history);
        assert_eq!(json["rounds"][2]["sum"], if sparse { "checked" } else { "read" });

        // another member with another model in round 2
        let path = town.path("three.json");
        let mut other: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        other["rounds"][1]["model"] = "00".into();
        std::fs::write(&path, other.to_string()).unwrap();
        let compare = ["verify", "--kit", "kits/user-1", "--data", "data/user-1", "--compare", "three.json"];
        let output = dphe(&town, &compare);
        assert_eq!(output.status.code(), Some(3));
        assert!(
            said(&output).contains("bad   compared     user-3 has another round 2: model"),
            "{}",
            said(&output)
        );
        all[..2].iter_mut().for_each(Process::kill);
        only_old_rounds_are_chained(&town, sparse);
        changes_are_found(&town);
    }
}

/// Prints how long a user takes to verify a round of 206,848 weights, of which a tenth is sent.
#[test]
#[ignore = "takes a minute; prints figures for documents"]
fn time_of_verifying_a_large_task() {
    const ROUNDS: u64 = 5;
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let plan = Plan { rounds: ROUNDS, time: ("60s", "600s"), ..Plan::default() };
    let town = Town::edited(plan, free(), free(), |text| {
        let text = text.replace("classes = 3", "classes = 101").replace("features = 12", "features = 2048");
        text.replace("capacity = 5", "share = 0.1").replace("epochs = 5", "epochs = 1")
    });
    assert_eq!(town.kit("user-1").roster().task().dimension(), 206_848);
    let users = town.users().into_iter().map(|name| {
        let file = town.path(&format!("{name}.csv"));
        let row = |label: usize| {
            let values: Vec<String> = (0..2048).map(|at| ((label * 31 + at * 17) % 97).to_string()).collect();
            format!("{},{label}", values.join(","))
        };
        let names: Vec<String> = (0..2048).map(|at| format!("f{at}")).collect();
        let rows: Vec<String> = (0..101).map(row).collect();
        std::fs::write(&file, format!("{},label\n{}\n", names.join(","), rows.join("\n"))).unwrap();
        let (kit, data) = (format!("kits/{name}"), format!("data/{name}"));
        let paths = [kit, data].map(|path| town.path(&path).to_str().unwrap().to_owned());
        let args = ["join", "--kit", &paths[0], "--data", &paths[1], "--features", file.to_str().unwrap()];
        Process::new(&town, &name, &args)
    });
    keep_unused_kits(&town);
    let mut users: Vec<Process> = users.collect();
    let _services = ["aggregator", "key-generator"].map(|name| {
        let paths = [town.kit_directory(name), town.data(name)].map(|path| path.to_str().unwrap().to_owned());
        Process::new(&town, name, &["serve", name, "--kit", &paths[0], "--data", &paths[1]])
    });
    wait_until(&mut users, "the task ends", |user| user.ended().is_some());
    assert!(users.iter_mut().all(|user| user.ended() == Some(true)));
    let (_, messages) = read(&town);
    for kind in [Kind::RoundTicket, Kind::Publish] {
        let of_kind = messages.iter().find(|(_, number, _)| *number == kind.number()).unwrap();
        println!("{kind}: {} bytes", of_kind.2.len());
    }
    let begin = std::time::Instant::now();
    let rounds = kept(&town, |_| (), true);
    let took = begin.elapsed();
    assert!(rounds.iter().all(|round| round.sum == SumCheck::Checked && round.findings.is_empty()));
    println!("{} rounds verified in {took:.1?}", rounds.len());
    let begin = std::time::Instant::now();
    let text = done(&town, &["verify", "--kit", "unused/user-3", "--from-aggregator"]);
    println!("from the aggregator in {:.1?}\n{text}", begin.elapsed());
}

/// The messages of all rounds.
type StoredMessages = Vec<(Round, u8, Vec<u8>)>;

/// Verifies what a user keeps, with the seeds of its log and not those of its kit.
fn kept(town: &Town, change: impl FnOnce(&mut StoredMessages), with_kit: bool) -> Vec<CheckedRound> {
    let kit = town.kit("user-2");
    let (log, mut messages) = read(town);
    change(&mut messages);
    let party = party(town, &log);
    let unused = Kit::read_with(&town.path("unused/user-2"), KeyLengths::default()).unwrap();
    let from_kit = User::new(unused.user_keys().unwrap()).unwrap();
    let users = if with_kit { vec![party.user(), &from_kit] } else { vec![party.user()] };
    let (key, model) = (kit.encryption_key().unwrap(), kit.initial_model().unwrap());
    let mut maker = model_maker(&kit);
    let replay = Replay { model, key, maker: &mut maker, users };
    let rounds = check_rounds(kit.rosters(), MessageSource::User, messages, Some(replay));
    // the last round is there in all cases
    assert_eq!(check_against_user(&party, kit.rosters(), &rounds), Vec::<String>::new(), "{rounds:#?}");
    rounds
}

#[tokio::main(flavor = "current_thread")]
async fn read(town: &Town) -> (Vec<u8>, StoredMessages) {
    let mut store = SqliteStore::open(&town.data("user-2")).await.unwrap();
    (store.load().await.unwrap().to_vec(), store.messages(Round::FIRST).await.unwrap())
}

fn party(town: &Town, log: &[u8]) -> UserParty {
    let kit = town.kit("user-2");
    let (identity, rosters) = (kit.identities().unwrap(), kit.rosters().clone());
    let keys = UserKeys::from_log(log, kit.user().unwrap(), kit.encryption_key().unwrap(), &rosters).unwrap();
    let context = PartyContext { identity, rosters, log, threads: Threads::ONE };
    UserParty::start(keys, context, Time(0)).unwrap().0
}

fn only_old_rounds_are_chained(town: &Town, sparse: bool) {
    // the key generator's signature is the check of a task without masks
    let old = if sparse { SumCheck::Checked } else { SumCheck::Chained };
    assert!(kept(town, |_| (), false).iter().all(|round| round.sum == old && round.findings.is_empty()));
    assert!(kept(town, |_| (), true).iter().all(|round| round.sum == SumCheck::Checked));
}

/// What follows in the chain shows that an earlier round was changed, even if its sum cannot be checked any more.
fn changes_are_found(town: &Town) {
    let bad = |rounds: &[CheckedRound]| -> Vec<u64> {
        rounds.iter().filter(|round| !round.findings.is_empty()).map(|round| round.round).collect()
    };
    let is = |round: u64, kind: Kind| {
        move |message: &&mut (Round, u8, Vec<u8>)| message.0.get() == round && message.1 == kind.number()
    };
    for with_kit in [false, true] {
        // a byte of the sum
        let flip = |messages: &mut StoredMessages| {
            *messages.iter_mut().find(is(2, Kind::Publish)).unwrap().2.last_mut().unwrap() ^= 1;
        };
        assert_eq!(bad(&kept(town, flip, with_kit)), [2]);
        // a round that is gone
        let drop = |messages: &mut StoredMessages| messages.retain(|(round, ..)| round.get() != 2);
        assert_eq!(bad(&kept(town, drop, with_kit)), [3]);
        // a round without its publication
        let hide = |messages: &mut StoredMessages| {
            messages.retain(|(round, kind, _)| round.get() != 2 || *kind != Kind::Publish.number());
        };
        assert_eq!(bad(&kept(town, hide, with_kit)), [3]);
    }
}
