//! Checks that what the project says about itself is true: paths, commands, sections and modules that documents name
//! exist, words follow the glossary, and rules of CONTRIBUTING.md hold.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod advisories;
mod code;
mod commands;
mod dependencies;
mod documents;
mod prose;

use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A text file of the repository.
struct File {
    /// Its path from the root, with `/`.
    path: String,
    text: String,
}

/// All files below `under` whose names end in one of `endings`, without build output.
fn files(under: &str, endings: &[&str]) -> Vec<File> {
    let root = root();
    let mut found = Vec::new();
    let mut directories = vec![root.join(under)];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                let skipped = name == "target" || name == "node_modules" || name.starts_with('.');
                if !skipped {
                    directories.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push(File { path: path.strip_prefix(&root).unwrap().to_string_lossy().into(), text });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

/// The sources of our crates, without tests and benches.
fn sources() -> Vec<File> {
    let mut found = files("crates", &[".rs"]);
    found.retain(|file| file.path.split('/').nth(2) == Some("src"));
    assert!(found.len() > 150, "{} sources", found.len());
    found
}

/// The documents that describe the present state. The changelog also describes the past.
fn documents() -> Vec<File> {
    let mut found = files("", &[".md"]);
    found.retain(|file| file.path != "CHANGELOG.md" && !file.path.starts_with("fuzz/"));
    assert!(found.len() > 40, "{} documents", found.len());
    found
}

/// Fails with all complaints, one per line.
#[track_caller]
fn none(complaints: Vec<String>, rule: &str) {
    assert!(complaints.is_empty(), "{rule}:\n{}", complaints.join("\n"));
}

/// The code spans (`` `...` ``) of a Markdown text outside code blocks.
fn code_spans(text: &str) -> Vec<&str> {
    let mut spans = Vec::new();
    for block in text.split("```").step_by(2) {
        spans.extend(block.split('`').skip(1).step_by(2));
    }
    spans
}
