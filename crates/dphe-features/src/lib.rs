#![doc = include_str!("../README.md")]

#[cfg(feature = "parquet")]
mod contained;
mod error;
mod file;
mod table;

pub use error::Error;
pub use file::{LabelColumn, ReadOptions, read_table, write_npz};
pub use table::{FeatureSource, FeatureTable, TableLabels};
