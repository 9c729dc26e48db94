//! The aggregator's memory grows with the number of positions. Each user adds only a few bytes per ciphertext.
//!
//! The kernel counts the peak memory of a whole process, so each measurement runs this program again in a process
//! of its own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use dphe::scheme::RoundParams;
use dphe::wire::{DecodeWith as _, UploadParams};
use dphe::{Profile, Round, SealedUpdate, TaskConfig, Threads};
use rand_core::Rng as _;
use support::{choose, config, rng, roles, user_id};

const USERS: &str = "DPHE_MEMORY_USERS";

/// Collects updates of full size from this many users. They are not encrypted, because any unit is a valid ciphertext.
fn collect(config: &TaskConfig, users: u32) {
    let (capacity, positions) = (config.capacity as usize, config.positions() as usize);
    let roles = roles(config.clone(), users, 1);
    let mut rng = rng(2);
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    let half = config.key_bits as usize / 8;
    for user in 1..=users {
        let mut body: Vec<u8> = choose(&mut rng, capacity, positions)
            .iter()
            .flat_map(|&slot| (slot as u32).to_be_bytes())
            .collect();
        let slots = body.len();
        // the last one is the check
        body.resize(slots + (capacity + 1) * 2 * half, 0);
        rng.fill_bytes(&mut body[slots..]);
        // both halves are below the modulus, whose first bit is set
        body[slots..].chunks_exact_mut(half).for_each(|half| half[0] >>= 1);
        let update = SealedUpdate::from_bytes(
            &body,
            &UploadParams {
                params: &RoundParams::new(roles.aggregator.task(), Round::FIRST),
                user: user_id(user),
                count: capacity as u32 + 1,
                salt: [user as u8; 16],
            },
        );
        collecting.accept(update.unwrap(), Threads::all()).unwrap();
    }
    assert_eq!(collecting.users().len(), users as usize);
}

/// Returns the peak memory of this process in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
}

/// Returns the peak memory of a process that runs this test with this many users.
fn measure(test: &str, users: u32) -> usize {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(USERS, users.to_string())
        // the allocator must return freed memory, so that the peak is what the program needs
        .env("MALLOC_MMAP_THRESHOLD_", "65536")
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text.lines().find_map(|line| line.split_once("peak ")).unwrap().1.trim().parse().unwrap()
}

fn check(test: &str, config: &TaskConfig) {
    if let Ok(users) = std::env::var(USERS) {
        collect(config, users.parse().unwrap());
        println!("\npeak {}", peak());
        return;
    }
    let [few, many] = [50, 200].map(|users| (users, measure(test, users)));
    let own = |(users, peak): (u32, usize)| peak - 24 * users as usize * config.capacity as usize;
    let megabytes = |bytes: usize| bytes as f64 / 1e6;
    for at in [few, many] {
        let (users, peak) = at;
        println!(
            "{users} users: {:.1} MB, without fingerprints {:.1} MB",
            megabytes(peak),
            megabytes(own(at))
        );
    }
    let ratio = own(many) as f64 / own(few) as f64;
    assert!(ratio < 1.1, "four times the users took {ratio} times the memory");
}

fn task(features: u32) -> TaskConfig {
    let dimension = 101 * features;
    let capacity = dimension.div_ceil(10);
    let max_users = 200;
    TaskConfig {
        key_bits: 2048,
        dimension,
        capacity,
        max_users,
        block: 1,
        shards: 1,
        dense: 0,
        ..config(Profile::Sparse)
    }
}

#[test]
fn memory_grows_with_positions() {
    check("memory_grows_with_positions", &task(198));
}

#[test]
#[ignore = "takes minutes and 600 MB"]
fn memory_grows_with_positions_at_full_size() {
    check("memory_grows_with_positions_at_full_size", &task(2048));
}
