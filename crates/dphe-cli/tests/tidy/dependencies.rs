//! Rules about dependencies.

use super::root;
use std::process::Command;

fn metadata(args: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(args)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn dependencies_have_permissive_licences() {
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
        // used at build time on other platforms; its author waived all rights
        "CC0-1.0",
        "ISC",
    ];
    let metadata = metadata(&[]);
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 10);
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none");
        // one alternative of an OR is enough; all parts of an AND are needed
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
fn cargo_run_starts_the_program() {
    let metadata = metadata(&["--no-deps"]);
    let default = metadata["workspace_default_members"].as_array().unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let programs: Vec<&str> = packages
        .filter(|package| default.contains(&package["id"]))
        .flat_map(|package| package["targets"].as_array().unwrap())
        .filter(|target| target["kind"][0] == "bin")
        .map(|target| target["name"].as_str().unwrap())
        .collect();
    // with two programs, `cargo run -- demo` would ask which one to run
    assert_eq!(programs, ["dphe"]);
}
