#![doc = include_str!("../README.md")]

pub mod dataset;
mod error;
pub mod linear;
pub mod metrics;
mod real;
mod seed;
mod standardize;
mod threads;
mod weights;

pub use dataset::{Dataset, Features, Labels};
pub use error::Error;
pub use real::Real;
pub use seed::Seed;
pub use standardize::{Moments, Standardizer};
pub use threads::Threads;
pub use weights::{Scores, Weights};
