//! A member leaves a running task and another one gets a new identity, with real processes, disks and TLS.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use dphe::wire::{Freeze, Kind, Signed};
use dphe::{PartyId, Round, UserId};
use dphe_service::kit::{Fingerprint, Kit};
use dphe_service::model::Model;
use dphe_service::store::{Archive as _, SqliteStore};
use support::process::{Process, processes_with, tail, wait_until};
use support::{Plan, SEED, Town};

fn dphe(town: &Town, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(town.directory.path()).output().unwrap()
}

fn done(town: &Town, args: &[&str]) -> String {
    let output = dphe(town, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must fail, and returns its error and hint.
fn refused(town: &Town, args: &[&str]) -> String {
    let output = dphe(town, args);
    assert!(!output.status.success(), "{args:?} was accepted");
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Makes a change with the key generator's kit and data. The key generator must be stopped.
fn change<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let command = ["roster", "change", "--kit", "kits/key-generator", "--data", "data/key-generator"];
    [&command, more].concat()
}

fn apply(town: &Town, change: &str, party: &str) -> String {
    let kit = format!("kits/{party}");
    done(town, &["roster", "apply", change, "--kit", &kit])
}

#[test]
fn task_continues_after_a_member_left_and_another_one_got_a_new_identity() {
    let plan = Plan { users: 5, rounds: 7, sparse: true, time: ("1s", "30s") };
    let town = Town::on_free_ports(plan);
    let mut all = processes_with(&town, &[]);
    let over = |process: &Process, round: u64| {
        process.events("the round is over").iter().any(|event| event["round"].as_u64() >= Some(round))
    };
    wait_until(&mut all[..1], "two rounds end", |aggregator| over(aggregator, 2));

    // a running key generator has the data directory
    let error = refused(&town, &change(&["--remove", "user-4", "--output", "early"]));
    assert!(error.contains("in use by another process"), "{error}");
    all[1].kill();
    let error = refused(&town, &change(&["--remove", "user-6", "--output", "none"]));
    assert!(error.contains("user 6 is not in the roster"), "{error}");
    let three = ["--remove", "user-1", "--remove", "user-2", "--remove", "user-3", "--output", "few"];
    let error = refused(&town, &change(&three));
    assert!(error.contains("2 users would be left, and the task needs 3"), "{error}");
    // user 5 makes a new key, because its old one was stolen
    done(&town, &["keygen", "task.toml", "--request", "user-5", "-o", "new"]);
    let both = ["--remove", "user-4", "--with", "new/user-5-request.toml", "--output", "change"];
    let said = done(&town, &change(&both));
    let first = said.lines().find_map(|line| line.strip_prefix("first round")).unwrap();
    let first: u64 = first.trim().parse().unwrap();
    assert!(
        first >= 3 && said.contains("change/roster-2.change") && said.contains("change/user-5"),
        "{said}"
    );
    let file = "change/roster-2.change";

    // the aggregator does not have the change yet: it ends the running round, and is refused from then on
    all[1].start();
    wait_until(&mut all[..1], "the old roster is refused", |aggregator| {
        aggregator.events("the key generator refused a message").iter().any(|event| event["code"] == "roster")
    });
    all[0].kill();
    let said = apply(&town, file, "aggregator");
    assert!(said.contains("removed      user-4") && said.contains("replaced     user-5"), "{said}");
    all[0].start();
    // users without it refuse the ticket
    wait_until(&mut all[2..3], "a user lacks the change", |user| {
        user.events("refused").iter().any(|event| event["code"] == "roster")
    });
    for n in [1, 2, 3] {
        all[1 + n].kill();
        apply(&town, file, &format!("user-{n}"));
        all[1 + n].start();
    }
    let error = refused(&town, &["roster", "apply", file, "--kit", "kits/user-1"]);
    assert!(error.contains("does not follow roster 2"), "{error}");
    let error = refused(&town, &["roster", "apply", file, "--kit", "kits/user-4"]);
    assert!(error.contains("user-4 is not in the new roster"), "{error}");
    let error = refused(&town, &["roster", "apply", file, "--kit", "kits/user-5"]);
    assert!(error.contains("replaces the identity of user-5") && error.contains("new kit"), "{error}");

    // user 5 starts with its new kit; the thief of the old one goes on with the old data
    std::fs::copy(town.path("new/identity.key"), town.path("change/user-5/identity.key")).unwrap();
    let (kit, data) = (text(&town.path("change/user-5")), text(&town.data("user-5-new")));
    let (file, model) = (text(&town.path("user-5.csv")), text(&town.path("user-5-new.model")));
    let seed = SEED.to_string();
    // it compares the hash of the new roster with the others
    let new = Kit::read(&town.path("change/user-5")).unwrap();
    let roster = Fingerprint::of_roster(new.roster()).to_string();
    let args = ["join", "--kit", &kit, "--data", &data, "--features", &file, "--seed", &seed, "-o", &model];
    let args = [&args[..], &["--roster", &roster]].concat();
    let mut fifth = [Process::new(&town, "user-5-new", &args)];
    wait_until(&mut all[2..5], "the task ends for users 1 to 3", |user| user.ended().is_some());
    wait_until(&mut fifth, "the task ends for user 5", |user| user.ended().is_some());
    assert!(all[2..5].iter_mut().chain(&mut fifth).all(|user| user.ended() == Some(true)), "{}", tail(&all));
    // the others are still waiting for a service that does not talk to them any more
    for (gone, name) in [(5, "user-4"), (6, "user-5")] {
        assert_eq!(all[gone].ended(), None, "{}", tail(&all[gone..=gone]));
        let error = refused(&town, &["status", "--kit", &format!("kits/{name}")]);
        println!("{name} with its old kit: {}", error.trim());
    }
    check(&town, first);
    all[..2].iter_mut().for_each(Process::kill);
    for party in ["aggregator", "key-generator", "user-1"] {
        let (kit, data) = (format!("kits/{party}"), format!("data/{party}"));
        let said = done(&town, &["verify", "--kit", &kit, "--data", &data]);
        assert_eq!(said.contains("ok    round 7"), party != "key-generator", "{said}");
    }
}

/// Checks that sums have the users of the roster of their rounds, and that all users have the aggregator's model.
#[tokio::main(flavor = "current_thread")]
async fn check(town: &Town, first: u64) {
    let kit = Kit::read(&town.kit_directory("aggregator")).unwrap();
    let mut store = SqliteStore::open_read_only(&town.data("aggregator")).await.unwrap();
    let mut participants: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let mut published = Vec::new();
    for (round, kind, bytes) in store.messages(Round::FIRST).await.unwrap() {
        match Kind::from_number(kind).unwrap() {
            Kind::Freeze => {
                let freeze: Signed<Freeze> = Signed::decode(&bytes, kit.rosters().at(round)).unwrap();
                let users = freeze.message().users.iter().map(|one| one.user.get()).collect();
                participants.insert(round.get(), users);
            }
            Kind::Publish => published.push(round.get()),
            _ => {}
        }
    }
    let under_the_new = published.iter().filter(|&&round| round >= first);
    let sums: Vec<&Vec<u32>> = under_the_new.map(|round| &participants[round]).collect();
    assert!(sums.len() >= 2, "{published:?}");
    assert!(sums.iter().all(|users| !users.contains(&4)), "{participants:?}");
    assert!(sums.iter().any(|users| **users == [1, 2, 3, 5]), "{participants:?}");
    // the fifth user's upload was signed with its new identity
    let fifth = PartyId::User(UserId::new(5).unwrap());
    let new = Kit::read(&town.path("change/user-5")).unwrap().identity().unwrap().identity();
    assert_eq!(kit.rosters().latest().identity(fifth).unwrap(), new);
    let models = ["user-1", "user-2", "user-3", "user-5-new"];
    let models = models.map(|user| Model::read(&town.path(&format!("{user}.model"))).unwrap().weights);
    assert!(models.windows(2).all(|pair| pair[0] == pair[1]));
}
