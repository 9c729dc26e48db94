//! The bytes of `docs/protocol.md`, one module per part of it.

pub mod derive;
pub mod fixed;
pub mod log;
pub mod message;
pub mod seal;
pub mod task;
