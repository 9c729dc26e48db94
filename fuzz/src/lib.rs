//! Valid tasks for all targets, with everything that their parties send and write in a round. The code is shared with
//! the tests of the protocol.

#[path = "../../crates/dphe/tests/support/mod.rs"]
mod support;

use std::sync::LazyLock;

pub use support::*;

use dphe::{Profile, PublicSupport, Round, SealedUpdate, Update};

/// A task with three users under a toy key, and everything that its parties wrote and sent in one round.
pub struct Task {
    pub parties: Parties,
    pub transcript: Transcript,
    /// The number of ciphertexts in an upload.
    pub ciphertexts: u32,
}

impl Task {
    fn new(profile: Profile) -> Self {
        let parties = Parties::new(config(profile), 3);
        let transcript = transcript(&parties, |user| update_of(&parties, user));
        let mut task = Self { parties, transcript, ciphertexts: 0 };
        task.ciphertexts = task.sealed_updates()[0].ciphertexts() as u32;
        task
    }

    /// What users 1 to 3 seal in the first round.
    pub fn sealed_updates(&self) -> Vec<SealedUpdate> {
        let mut random = rng(9);
        let seal = |user: u32| {
            let update = update_of(&self.parties, user);
            self.parties.roles.users[user as usize - 1].seal(Round::FIRST, &update, &mut random, ONE).unwrap()
        };
        (1..=3).map(seal).collect()
    }
}

/// An update within the public support, if there is one.
fn update_of(parties: &Parties, user: u32) -> Update {
    let weights = match PublicSupport::of(parties.roster.task(), Round::FIRST).indices().next() {
        None => vec![(user, 0.25), (20, 0.5)],
        Some(index) => vec![(index as u32, 0.5)],
    };
    update(24, &weights, &[1.0, -0.5])
}

/// A task whose sums are checked, and one whose sums are masked.
pub static TASKS: LazyLock<[Task; 2]> = LazyLock::new(|| [Profile::Sparse, Profile::Full].map(Task::new));

/// The parties of the task whose sums are checked.
pub static PARTIES: LazyLock<&'static Parties> = LazyLock::new(|| &TASKS[0].parties);

/// Writes inputs into the directory that `DPHE_FUZZ_SEEDS` names, if it is set. `scripts/fuzz` lets the fuzzer begin
/// with them, because it would not find an input of the right length by chance.
pub fn write_seeds(seeds: impl FnOnce() -> Vec<Vec<u8>>) {
    let Some(directory) = std::env::var_os("DPHE_FUZZ_SEEDS") else { return };
    let directory = std::path::PathBuf::from(directory);
    std::fs::create_dir_all(&directory).unwrap();
    for (n, seed) in seeds().into_iter().enumerate() {
        std::fs::write(directory.join(format!("seed-{n}")), seed).unwrap();
    }
}
