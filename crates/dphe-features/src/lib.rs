#![cfg_attr(feature = "extract", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "extract"), doc = "Feature tables and their files. Enable `extract` for photos.")]
//!
//! # Modules
//!
//! | module | content |
//! | --- | --- |
//! | [`table`] | [`FeatureTable`]: features, labels, class names, file names, origin |
//! | [`summary`] | [`Summary`]: statistics of a table |
//! | [`file`](mod@file) | [`read_table`] and [`write_npz`], one submodule per file format |
//! | [`tfrecord`] | TFRecord files |
//! | `extract` | from photos to a feature file: the corpus, the cache, videos |
//! | `picture`, `preprocess`, `resample` | decoding, preparing and resizing pictures |
//! | `model`, `depthwise` | running an ONNX network, and a faster depthwise convolution |
//! | `catch_panic` | turns panics of third-party decoders into errors |
//! | `error` | [`Error`] |

#[cfg(any(feature = "parquet", feature = "extract"))]
mod catch_panic;
#[cfg(feature = "extract")]
mod depthwise;
mod error;
#[cfg(feature = "extract")]
pub mod extract;
pub mod file;
#[cfg(feature = "extract")]
pub mod model;
#[cfg(feature = "extract")]
mod picture;
#[cfg(feature = "extract")]
pub mod preprocess;
#[cfg(feature = "extract")]
mod resample;
pub mod summary;
pub mod table;
pub mod tfrecord;

pub use error::Error;
#[cfg(feature = "extract")]
pub use extract::{Corpus, Extracted, Extraction, ExtractionProgress};
pub use file::{
    LabelColumn, NpzArray, NpzFloats, NpzReader, ReadOptions, read_table, write_npz, write_npz_arrays,
};
pub use summary::Summary;
pub use table::{FeatureSource, FeatureTable, TableLabels, TableParts};
#[cfg(feature = "extract")]
pub use {
    model::{FeatureModel, OnnxNetwork},
    preprocess::Preprocessing,
    resample::Interpolation,
};
