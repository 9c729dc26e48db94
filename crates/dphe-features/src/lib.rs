#![doc = include_str!("../README.md")]

mod classifier;
#[cfg(any(feature = "parquet", feature = "extract"))]
mod contained;
#[cfg(feature = "extract")]
mod depthwise;
mod error;
#[cfg(feature = "extract")]
mod extract;
mod file;
#[cfg(feature = "extract")]
mod model;
#[cfg(feature = "extract")]
mod onnx;
#[cfg(feature = "extract")]
mod picture;
#[cfg(feature = "extract")]
mod preprocess;
#[cfg(feature = "extract")]
mod resample;
mod summary;
mod table;

pub use classifier::Classifier;
pub use error::Error;
#[cfg(feature = "extract")]
pub use extract::{Corpus, Extracted, Extraction, Progress};
pub use file::{LabelColumn, ReadOptions, read_table, write_npz};
pub use summary::Summary;
pub use table::{FeatureSource, FeatureTable, TableLabels};
#[cfg(feature = "extract")]
pub use {model::FeatureModel, preprocess::Preprocessing, resample::Interpolation};
