//! Parties that wait for others, or that others wait for: what they say, and how the task goes on.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dphe_service::model::Model;
use support::process::{Process, processes_with, tail, user_with, wait_until};
use support::{Plan, Town, write_samples};

const WAITING: &str = "waiting for a peer that does not answer";

fn dphe(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dphe")).args(args).current_dir(directory).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Starts a service of a task.
fn service(town: &Town, name: &str) -> Process {
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let (kit, data) = (text(town.kit_directory(name)), text(town.data(name)));
    Process::new(town, name, &["serve", name, "--kit", &kit, "--data", &data])
}

/// Waits for an event, and returns the first one.
fn first_event(process: &mut Process, message: &str) -> serde_json::Value {
    wait_until(std::slice::from_mut(process), message, |process| !process.events(message).is_empty());
    process.events(message).remove(0)
}

#[test]
fn parties_say_which_peer_does_not_answer_and_what_to_do() {
    let town = Town::on_free_ports(Plan { rounds: 1, ..Plan::default() });
    let mut user = user_with(&town, 0, &[]);
    let warning = first_event(&mut user, WAITING);
    assert_eq!((warning["level"].as_str(), warning["peer"].as_str()), (Some("WARN"), Some("aggregator")));
    assert!(warning["reason"].as_str().unwrap().contains("cannot be reached"), "{warning}");
    assert!(warning["hint"].as_str().unwrap().starts_with("Start the aggregator"), "{warning}");
    let mut aggregator = service(&town, "aggregator");
    let warning = first_event(&mut aggregator, WAITING);
    assert_eq!(warning["peer"], "key-generator");
    // the user hears that its own peer is there
    first_event(&mut user, "the peer answers again");
    assert_eq!(user.events(WAITING).len(), 1, "one warning per minute: {}", tail(&[user]));
}

#[test]
fn kit_of_another_run_is_named_on_both_sides() {
    let town = Town::on_free_ports(Plan { rounds: 1, ..Plan::default() });
    let directory = town.directory.path();
    let again = ["keygen", "task.toml", "-o", "again", "--for-all-parties", "--no-passphrase"];
    let made = dphe(directory, &again);
    assert!(made.status.success(), "{}", errors(&made));
    let mut aggregator = service(&town, "aggregator");
    first_event(&mut aggregator, "the aggregator is ready");
    write_samples(0, &town.path("user-1.csv"));
    let text = |name: &str| town.path(name).to_str().unwrap().to_owned();
    let (kit, data, file) = (text("again/user-1"), text("data/user-1"), text("user-1.csv"));
    let join = ["join", "--kit", &kit, "--data", &data, "--features", &file];
    let mut user = Process::new(&town, "user-1", &join);
    let warning = first_event(&mut user, WAITING);
    assert!(warning["reason"].as_str().unwrap().contains("another identity"), "{warning}");
    assert!(warning["hint"].as_str().unwrap().contains("dphe keygen"), "{warning}");
    let refused = first_event(&mut aggregator, "a connection was refused");
    assert_eq!(refused["level"], "WARN");
    assert!(refused["hint"].as_str().unwrap().contains("hash of the roster"), "{refused}");
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(aggregator.events("a connection was refused").len(), 1, "{}", aggregator.text());
    // doctor gives the same advice
    let output = dphe(directory, &["doctor", "--kit", "again/user-1"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("another identity") && text.contains("another run of"), "{text}");
}

#[test]
fn aborted_rounds_do_not_use_up_a_task_and_the_missing_user_is_named() {
    let plan = Plan { rounds: 2, time: ("0s", "1500ms"), ..Plan::default() };
    let town = Town::on_free_ports(plan);
    let mut all = vec![service(&town, "aggregator"), service(&town, "key-generator")];
    all.extend([user_with(&town, 0, &[]), user_with(&town, 1, &[])]);
    let aborted = "the round is over without a model";
    wait_until(&mut all[..1], "as many rounds are aborted as the task has", |aggregator| {
        aggregator.events(aborted).len() >= 3
    });
    let reason = all[0].events(aborted)[0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("2 of at least 3 users") && reason.ends_with("missing: user 3"), "{reason}");
    let status = dphe(town.directory.path(), &["status", "--kit", "kits/user-1"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        status.contains("0 of 2 rounds done") && status.contains("aborted rounds not counted"),
        "{status}"
    );
    // a restart does not forget how many rounds were aborted
    all[0].kill();
    all[0].start();
    all.push(user_with(&town, 2, &[]));
    wait_until(&mut all[2..], "the task ends", |user| user.ended().is_some());
    let mut models = Vec::new();
    for (n, user) in all[2..].iter_mut().enumerate() {
        assert_eq!(user.ended(), Some(true), "{}", user.text());
        let path = town.path(&format!("user-{}.model", n + 1));
        assert_eq!(Model::read(&path).unwrap().about.training.rounds, 2, "published rounds");
        models.push(std::fs::read(path).unwrap());
    }
    assert!(models.iter().all(|model| *model == models[0]), "all users write the same file");
}

#[test]
fn join_that_saves_no_model_says_so_and_fails_where_it_should() {
    let town = Town::on_free_ports(Plan { rounds: 1, ..Plan::default() });
    let directory = town.directory.path();
    write_samples(0, &town.path("user-1.csv"));
    let join = ["join", "--kit", "kits/user-1", "--data", "data/user-1", "--features", "user-1.csv"];
    // a file that cannot be written is refused before the task
    let refused = dphe(directory, &[&join[..], &["-o", "nowhere/model"]].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("nowhere/model cannot be written"), "{}", errors(&refused));
    assert!(!town.data("user-1").exists(), "nothing has started");
    // Ctrl-C before the end
    let mut user = user_with(&town, 1, &[]);
    first_event(&mut user, "the user is ready");
    let child = user.child.as_mut().unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(user.text().contains("Run the same command again"), "{}", user.text());
    // the whole task, and a user without `-o`
    let mut all = processes_with(&town, &[]);
    wait_until(&mut all[2..], "the task ends", |user| user.ended().is_some());
    let again = dphe(directory, &join);
    assert!(again.status.success(), "{}", errors(&again));
    let said = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(said.contains("1 published") && said.contains("again with `-o FILE`"), "{said}");
}
