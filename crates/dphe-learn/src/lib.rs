#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | content |
//! | --- | --- |
//! | [`dataset`] | [`Features`], [`Labels`], [`Dataset`], and splits of samples |
//! | `standardize` | [`Standardizer`]: features with mean 0 and deviation 1 |
//! | `weights` | [`Weights`] of a linear classifier, and [`Scores`] |
//! | [`linear`] | the learners: losses, penalties, schedules, SGD and FISTA |
//! | [`select`] | the largest numbers or blocks of a vector |
//! | [`update`] | from local training to an update, and from a sum to new weights |
//! | `sparsity` | [`Sparsity`], and the L1 strength that reaches it |
//! | `guard` | [`Guard`]: when to stop |
//! | [`kmeans`] | clustering, plain and in rounds |
//! | [`metrics`] | accuracy, average precision, adjusted mutual information |
//! | `seed` | [`Seed`]: reproducible randomness |
//! | `real` | [`Real`]: `f32` or `f64` |
//! | `threads` | [`all_cores`], and the parallel map |
//! | `error` | [`Error`] |

pub mod dataset;
mod error;
mod guard;
pub mod kmeans;
pub mod linear;
pub mod metrics;
mod real;
mod seed;
pub mod select;
mod sparsity;
mod standardize;
mod threads;
pub mod update;
mod weights;

pub use dataset::{Dataset, Features, Labels};
pub use error::Error;
pub use guard::{Guard, Verdict};
pub use real::Real;
pub use seed::Seed;
pub use sparsity::{Sparsity, StrengthController, find_strength};
pub use standardize::{Moments, Standardizer};
pub use threads::all_cores;
pub use weights::{Scores, Weights};
