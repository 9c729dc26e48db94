//! Stands in for `photos.rs` in builds without the feature `photos`. Every call says which command to run instead.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use dphe_features::FeatureTable;

use super::CliError;
use super::export::NetworkGraph;
use super::extract::Extract;
use crate::model::Model;

const MISSING: CliError =
    CliError::MissingFeature { what: "read photos or ONNX networks", feature: "photos" };

pub(super) fn extract(_: &Extract) -> Result<(), CliError> {
    Err(MISSING)
}

pub(super) fn features(
    _: &Model,
    _: &Path,
    _: &Path,
    _: Option<NonZeroUsize>,
) -> Result<(FeatureTable, PathBuf), CliError> {
    Err(MISSING)
}

pub(super) fn graph(_: &Model, _: &Path) -> Result<NetworkGraph, CliError> {
    Err(MISSING)
}
