#![doc = include_str!("../README.md")]

pub mod attacks;
pub mod data;
mod error;
mod experiment;
pub mod experiments;
mod findings;
pub mod leaks;
pub mod methods;

pub use error::Error;
pub use experiment::{Experiment, Measured, Measurement, RunId};
pub use findings::{Cell, Claim, Column, Findings, GreyImage, Plot, Table, ValueUnit};
