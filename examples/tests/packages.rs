//! Checks that the crates are ready to be published: versions, metadata, and the minimum supported Rust version.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use serde_json::Value;

fn metadata(args: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(args)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().unwrap()
}

/// Returns the packages that `cargo publish` may upload.
fn published(metadata: &Value) -> Vec<&Value> {
    // an empty list means `publish = false`
    packages(metadata).iter().filter(|package| package["publish"].is_null()).collect()
}

#[test]
fn libraries_can_be_published_and_nothing_else() {
    let metadata = metadata(&["--no-deps"]);
    let mut names: Vec<&str> =
        published(&metadata).iter().map(|package| package["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let libraries = [
        "dphe",
        "dphe-features",
        "dphe-federate",
        "dphe-learn",
        "dphe-paillier",
        "dphe-reproduce",
        "dphe-service",
    ];
    assert_eq!(names, libraries);
}

#[test]
fn published_crates_have_metadata() {
    for package in published(&metadata(&["--no-deps"])) {
        let name = &package["name"];
        for field in ["description", "license", "readme", "rust_version"] {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        let count = |field: &str| package[field].as_array().unwrap().len();
        // crates.io accepts at most five of each
        assert!((1..=5).contains(&count("keywords")), "{name}: {} keywords", count("keywords"));
        assert!((1..=5).contains(&count("categories")), "{name}: {} categories", count("categories"));
        let keywords = package["keywords"].as_array().unwrap();
        assert!(keywords.iter().all(|word| word.as_str().unwrap().len() <= 20), "{name}: {keywords:?}");
    }
}

#[test]
fn crates_depend_on_each_other_by_the_current_version() {
    let metadata = metadata(&["--no-deps"]);
    let all = published(&metadata);
    let mut checked = 0;
    for package in &all {
        let dependencies = package["dependencies"].as_array().unwrap();
        for dependency in dependencies.iter().filter(|dependency| dependency["kind"] != "dev") {
            let Some(own) = all.iter().find(|package| package["name"] == dependency["name"]) else {
                continue;
            };
            let required = format!("^{}", own["version"].as_str().unwrap());
            assert_eq!(dependency["req"], *required, "{} in {}", dependency["name"], package["name"]);
            checked += 1;
        }
    }
    assert!(checked >= 8, "{checked} dependencies");
}

/// Returns the numbers of `1.91` or `1.91.0`.
fn version(text: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = text.split('.').map(|part| part.parse().unwrap()).collect();
    numbers.resize(3, 0);
    numbers
}

/// No dependency in the lock file needs a newer compiler than we promise. (What our own code uses of the standard
/// library is checked by clippy's `incompatible_msrv`.)
#[test]
fn dependencies_support_the_minimum_rust_version() {
    let metadata = metadata(&[]);
    let own = packages(&metadata).iter().find(|package| package["name"] == "dphe").unwrap();
    let ours = version(own["rust_version"].as_str().unwrap());
    let mut checked = 0;
    for package in packages(&metadata) {
        if let Some(needed) = package["rust_version"].as_str() {
            assert!(version(needed) <= ours, "{} needs Rust {needed}", package["name"]);
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked} versions");
}
