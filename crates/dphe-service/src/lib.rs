#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | content |
//! | --- | --- |
//! | [`task_file`], [`kit`], [`party`], [`tls`], [`key_file`] | task files, kits, and a party's keys and connections |
//! | [`store`] | durable logs and archives: SQLite and PostgreSQL |
//! | [`http`] | server, client, middleware, problems and limits |
//! | [`service`] | the three parties as services, and the aggregator's dashboard |
//! | [`learning`] | calls [`dphe_federate`] to train and to compute models, and stores the user's residual |
//! | [`tensors`], [`command_trainer`] | models of named tensors, and programs that train them |
//! | [`samples`], [`model`] | labelled samples and trained models as files |
//! | [`doctor`], [`verify`], [`backup`] | checks before and after a task, and backups |
//! | [`telemetry`], [`tensorboard`], `reminder` | log output, metrics, and warnings that are repeated |
//! | [`chart`], [`html`], [`hex`], [`files`] | SVG charts, HTML, hexadecimal text, files that are written atomically |
//! | `error`, `names` | [`Error`]; enums as names in JSON |

pub mod backup;
pub mod chart;
pub mod command_trainer;
pub mod doctor;
mod error;
pub mod files;
pub mod hex;
pub mod html;
pub mod http;
pub mod key_file;
pub mod kit;
pub mod learning;
pub mod model;
mod names;
pub mod party;
mod reminder;
pub mod samples;
pub mod service;
pub mod store;
pub mod task_file;
pub mod telemetry;
pub mod tensorboard;
pub mod tensors;
pub mod tls;
pub mod verify;

pub use error::Error;
