//! The parties as processes: task files, start-up kits, storage, services over TLS, and the user's client. The program
//! `dphe` is a command line in front of this; tests start services in-process.

pub mod backup;
pub mod certificates;
pub mod digits;
pub mod doctor;
mod error;
pub mod files;
pub mod http;
pub mod key_file;
pub mod kit;
pub mod learning;
pub mod load;
pub mod model;
pub mod report;
pub mod samples;
pub mod service;
pub mod store;
pub mod task_file;
pub mod telemetry;
pub mod tensorboard;
pub mod verify;

pub use error::Error;
