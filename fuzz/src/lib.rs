//! A valid task for all targets, shared with the tests of the protocol.

#[path = "../../crates/dphe/tests/support/mod.rs"]
mod support;

use std::sync::LazyLock;

pub use support::*;

use dphe::Profile;

/// A task with three users under a toy key.
pub static PARTIES: LazyLock<Parties> = LazyLock::new(|| Parties::new(config(Profile::Sparse), 3));

/// Everything that its parties wrote and sent in one round.
pub static TRANSCRIPT: LazyLock<Transcript> =
    LazyLock::new(|| transcript(&PARTIES, |user| update(24, &[(user, 0.25), (20, 0.5)], &[1.0, -0.5])));
