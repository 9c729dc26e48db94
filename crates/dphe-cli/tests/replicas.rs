//! Three aggregators share a database. In every round, one of them is killed and another one is disconnected from the
//! database. The rounds complete, and the weights are those of a simulation that counts every user once.
//!
//! `DPHE_REPLICA_ROUNDS` sets the number of rounds (default 4, 20 in the long run), `DPHE_REPLICA_SEED` the moments.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use dphe_federate::GlobalWeights;
use dphe_service::model::Model;
use rand_core::Rng as _;
use support::postgres::{Proxy, Server};
use support::process::{Process, setting, tail, users_with};
use support::{Plan, Town, rng};

/// A replica, and its proxy to the database.
struct Replica {
    process: Process,
    proxy: Proxy,
}

/// Starts three replicas behind one address.
fn replicas(town: &Town, server: &Server, more: &[&str]) -> (Vec<Replica>, Proxy) {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ports: Vec<SocketAddr> = (0..3).map(|_| free()).collect();
    let kit = town.kit_directory("aggregator").to_str().unwrap().to_owned();
    let start = |(n, port): (usize, &SocketAddr)| {
        let proxy = Proxy::to(vec![([127, 0, 0, 1], server.port).into()]);
        let (url, listen) = (server.url_at(proxy.address.port()), port.to_string());
        let args =
            ["serve", "aggregator", "--kit", &kit, "--database", &url, "--listen", &listen, "--lease", "1s"];
        Replica { process: Process::new(town, &format!("aggregator-{n}"), &[&args, more].concat()), proxy }
    };
    let all = ports.iter().enumerate().map(start).collect();
    let balancer = Proxy::at(TcpListener::bind(town.aggregator).unwrap(), ports);
    (all, balancer)
}

fn key_generator(town: &Town) -> Process {
    let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let (kit, data) = (text(town.kit_directory("key-generator")), text(town.data("key-generator")));
    Process::new(town, "key-generator", &["serve", "key-generator", "--kit", &kit, "--data", &data])
}

/// Returns the fencing token of the process's last leader lease.
fn epoch(process: &Process) -> i64 {
    process.events("this replica is the leader").last().and_then(|event| event["epoch"].as_i64()).unwrap_or(0)
}

/// Returns the current round from the database.
fn round(town: &Town, server: &Server) -> u64 {
    let task = town.kit("aggregator").roster().task().id();
    let rounds = server.sql(&format!("SELECT COALESCE(MAX(round), 0) FROM dphe_{task}.rounds"));
    rounds.parse().unwrap()
}

#[test]
fn killed_and_disconnected_replicas_count_every_user_once() {
    let Some(server) = Server::start() else { return };
    let rounds = setting("DPHE_REPLICA_ROUNDS", 4);
    // long enough for all users to take part, so that the sum is known
    let plan = Plan { users: 4, rounds, sparse: true, time: ("60s", "90s") };
    let town = Town::on_free_ports(plan);
    let mut moments = rng(setting("DPHE_REPLICA_SEED", 1));
    let mut below = |n: u64| moments.next_u64() % n;
    let (mut all, _balancer) = replicas(&town, &server, &[]);
    let _key_generator = key_generator(&town);
    let begin = Instant::now();
    while !all[0].process.text().contains("is ready") {
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", all[0].process.text());
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut users = users_with(&town, &[]);
    let (mut kills, mut cuts, mut leaders) = (0, 0, 0);
    let mut last = 0;
    while !users.iter_mut().all(|user| user.ended().is_some()) {
        let logs = || all.iter().map(|r| r.process.text()).collect::<Vec<_>>().join("\n");
        assert!(
            begin.elapsed() < Duration::from_secs(120 + 60 * rounds),
            "stuck: {}\n{}",
            tail(&users),
            logs()
        );
        std::thread::sleep(Duration::from_millis(20));
        let now = round(&town, &server);
        if now == last {
            continue;
        }
        last = now;
        // at a random moment of the round
        std::thread::sleep(Duration::from_millis(below(700)));
        let (mut victim, other) = (below(3) as usize, 1 + below(2) as usize);
        if kills % 2 == 0 {
            // the leader
            victim = (0..3).max_by_key(|&n| epoch(&all[n].process)).unwrap();
        }
        all[(victim + other) % 3].proxy.block();
        std::thread::sleep(Duration::from_millis(below(300)));
        all[victim].process.kill();
        (kills, cuts) = (kills + 1, cuts + 1);
        std::thread::sleep(Duration::from_millis(500 + below(2_500)));
        all[victim].process.start();
        all[(victim + other) % 3].proxy.unblock();
    }
    let elapsed = begin.elapsed();
    // all replicas started with one kit, whose seeds moved into the database
    assert!(town.kit("aggregator").moved_to().unwrap().is_some());
    assert!(users.iter_mut().all(|user| user.ended() == Some(true)), "{}", tail(&users));
    let expected = town.simulate(usize::try_from(rounds).unwrap());
    for name in town.users() {
        let model = Model::read(&town.path(&format!("{name}.model"))).unwrap();
        assert!(
            GlobalWeights::new(model.weights.clone()).to_bytes() == expected,
            "{name}: a user was counted twice or not at all"
        );
    }
    let mut acknowledged = Vec::new();
    for replica in &mut all {
        replica.process.kill();
        leaders += replica.process.events("this replica is the leader").len();
        acknowledged.push(replica.process.events("acknowledged").len());
    }
    println!(
        "{rounds} rounds in {elapsed:.1?}: {kills} replicas killed, {cuts} cut off; {leaders} times another one led; \
         acknowledged by each: {acknowledged:?}; the weights are the simulation's"
    );
    // a round that ended before the test saw it has no kill
    assert!(
        kills > rounds / 2 && leaders > 2 && acknowledged.iter().filter(|&&count| count > 0).count() >= 2
    );
}

/// The database stops during a round and starts again. The replicas wait for it, and nothing is lost.
#[test]
fn replicas_wait_for_a_database_that_restarts() {
    let Some(mut server) = Server::start() else { return };
    let plan = Plan { users: 3, rounds: 3, sparse: false, time: ("60s", "90s") };
    let town = Town::on_free_ports(plan);
    let (mut all, _balancer) = replicas(&town, &server, &[]);
    let _key_generator = key_generator(&town);
    let begin = Instant::now();
    while !all[0].process.text().contains("is ready") {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut users = users_with(&town, &[]);
    while round(&town, &server) < 2 {
        assert!(begin.elapsed() < Duration::from_secs(120), "{}", tail(&users));
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop();
    std::thread::sleep(Duration::from_secs(2));
    // a replica that starts meanwhile reports the error with a hint
    all[2].process.kill();
    all[2].process.start();
    let begin = Instant::now();
    while all[2].process.ended().is_none() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(all[2].process.ended(), Some(false));
    let text = all[2].process.text();
    assert!(text.contains("Check that the database runs"), "{text}");
    server.resume();
    all[2].process.start();
    while !users.iter_mut().all(|user| user.ended().is_some()) {
        assert!(begin.elapsed() < Duration::from_secs(180), "{}", tail(&users));
        std::thread::sleep(Duration::from_millis(50));
    }
    let expected = town.simulate(3);
    for name in town.users() {
        let model = Model::read(&town.path(&format!("{name}.model"))).unwrap();
        assert!(GlobalWeights::new(model.weights.clone()).to_bytes() == expected, "{name}");
    }
    assert!(all[..2].iter_mut().all(|replica| replica.process.ended().is_none()), "they waited");
}
