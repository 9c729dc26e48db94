//! The features of Caltech-101, which are not part of the repository.

use std::path::{Path, PathBuf};

/// Finds the features, or says that a test is skipped.
pub(crate) fn directory() -> Option<PathBuf> {
    let given = std::env::var_os("DPHE_DATA").map(|data| Path::new(&data).join("caltech101"));
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|up| up.join("shared/data/caltech101"));
    let found = given.into_iter().chain(above).find(|directory| directory.join("features.npy").is_file());
    if found.is_none() {
        println!(
            "SKIPPED: no Caltech-101 features; set DPHE_DATA to the directory that holds caltech101/features.npy"
        );
    }
    found
}
