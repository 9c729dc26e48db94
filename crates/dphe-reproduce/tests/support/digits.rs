//! The digits that come with the program: 1,797 images of 64 pixels.
#![allow(dead_code, reason = "every test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use dphe_federate::{Scenario, ScenarioParams};
use dphe_learn::{Dataset, Features, Labels, Seed};

/// Loads all samples, not standardised.
pub(crate) fn load() -> Dataset {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dphe-cli/data/digits.bin");
    let bytes = std::fs::read(path).unwrap();
    let labels = bytes.chunks_exact(65).map(|record| u32::from(record[0])).collect();
    let values =
        bytes.chunks_exact(65).flat_map(|record| &record[1..]).map(|&grey| f32::from(grey)).collect();
    Dataset::new(Features::new(64, values).unwrap(), Labels::classes(10, labels).unwrap()).unwrap()
}

/// Splits the digits among five users.
pub(crate) fn scenario(train_per_class: usize, seed: u64) -> Scenario {
    let params = ScenarioParams {
        initial_per_class: 6,
        train_per_class: Some(train_per_class),
        ..ScenarioParams::default()
    };
    Scenario::new(&load(), &params, &Seed::new(seed)).unwrap()
}
