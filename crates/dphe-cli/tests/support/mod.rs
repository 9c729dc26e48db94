//! The test support of the services, and processes of the program `dphe`.
#![allow(dead_code, unused_imports, unreachable_pub, reason = "every test program uses a part of it")]

pub mod middle;
pub mod process;
#[path = "../../../dphe-service/tests/support/mod.rs"]
mod services;

pub use services::*;
