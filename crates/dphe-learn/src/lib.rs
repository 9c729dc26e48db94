#![doc = include_str!("../README.md")]

pub mod dataset;
mod error;
mod guard;
pub mod kmeans;
pub mod linear;
pub mod metrics;
mod real;
mod seed;
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
pub use threads::Threads;
pub use weights::{Scores, Weights};
