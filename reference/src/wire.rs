//! The bytes of `docs/protocol.md`, one module per part of it.

pub mod change;
pub mod derive;
pub mod fixed;
pub mod hpke;
pub mod kit;
pub mod log;
pub mod mask;
pub mod message;
pub mod participants;
pub mod seal;
pub mod task;
