//! Rules about the project itself that a reader should be able to rely on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All Rust files of the crates.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().unwrap() != "target" {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn unsafe_code_is_in_the_arithmetic_and_explained() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    assert!(files.len() > 20);
    for file in files.iter().filter(|file| !file.ends_with("tests/tidy.rs")) {
        let text = std::fs::read_to_string(file).unwrap();
        let uses =
            text.lines().filter(|line| line.contains("unsafe {") || line.contains("unsafe fn")).count();
        let arithmetic =
            file.components().any(|part| part.as_os_str() == "arith") || file.ends_with("src/arith.rs");
        assert!(uses == 0 || arithmetic, "unsafe code outside the arithmetic: {}", file.display());
        // clippy checks every block; this checks that nobody silenced it
        assert!(!text.contains("allow(clippy::undocumented_unsafe_blocks"), "{}", file.display());
    }
}

#[test]
fn dependencies_have_permissive_licences() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let allowed = [
        "MIT",
        "Apache-2.0",
        "BSD-3-Clause",
        "Unicode-3.0",
        "Zlib",
        "MIT-0",
        "Unlicense",
        "BSL-1.0",
        "0BSD",
        // a build-time dependency on other platforms only; its author gave up all rights
        "CC0-1.0",
        "ISC",
    ];
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 10);
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none");
        // one alternative of an "or" is enough; all parts of an "and" are needed
        let ok = licence.replace('/', " OR ").split(" OR ").any(|alternative| {
            alternative
                .split(" AND ")
                .map(|part| part.trim_matches(['(', ')', ' ']))
                .all(|part| allowed.contains(&part) || part == "Apache-2.0 WITH LLVM-exception")
        });
        assert!(ok, "{} is under {licence}", package["name"]);
    }
}

#[test]
fn every_command_of_the_readme_exists() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let mut checked = 0;
    for line in readme.lines() {
        let Some(rest) = line.strip_prefix("cargo run --release -- ") else { continue };
        let words: Vec<&str> =
            rest.split('#').next().unwrap().split_whitespace().take_while(|w| !w.starts_with('-')).collect();
        let output = Command::new(env!("CARGO_BIN_EXE_dphe")).args(&words).arg("--help").output().unwrap();
        assert!(output.status.success(), "`{line}` does not exist");
        checked += 1;
    }
    assert!(checked >= 3, "the README shows how to start");
}

#[test]
fn cargo_run_starts_the_program() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let default = metadata["workspace_default_members"].as_array().unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let programs: Vec<&str> = packages
        .filter(|package| default.contains(&package["id"]))
        .flat_map(|package| package["targets"].as_array().unwrap())
        .filter(|target| target["kind"][0] == "bin")
        .map(|target| target["name"].as_str().unwrap())
        .collect();
    // with two, `cargo run -- demo` would ask which
    assert_eq!(programs, ["dphe"]);
}
