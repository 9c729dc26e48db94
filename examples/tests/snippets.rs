//! Compiles the Rust snippets of all READMEs as a reader sees them: each one becomes the `main.rs` of an empty project
//! whose dependencies are the lines of the README above it. Hidden lines and lines that only rustdoc understands fail.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A Rust snippet of a README.
struct Snippet {
    /// The README and the line of the snippet.
    place: String,
    code: String,
    /// The last `[dependencies]` above it.
    dependencies: String,
}

impl Snippet {
    /// Returns whether it needs minutes to compile: the services with SQLite, or the ONNX runtime.
    fn is_heavy(&self) -> bool {
        ["dphe-service", "extract"].iter().any(|part| self.dependencies.contains(part))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Returns the directories of the crates.
fn crates() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("crates")).unwrap();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Returns the Rust snippets of the READMEs.
fn snippets() -> Vec<Snippet> {
    let mut found = Vec::new();
    for directory in std::iter::once(root()).chain(crates()) {
        let path = directory.join("README.md");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let (mut dependencies, mut block) = (String::new(), None);
        for (number, line) in (1..).zip(text.lines()) {
            match (&mut block, line.strip_prefix("```")) {
                (None, Some(language)) => block = Some((language.to_owned(), number, String::new())),
                (Some((_, _, code)), None) => *code += &format!("{line}\n"),
                (None, None) => {}
                (Some((language, number, code)), Some(_)) => {
                    if language == "toml" && code.starts_with("[dependencies]") {
                        dependencies = std::mem::take(code);
                    } else if language.split(',').next() == Some("rust") {
                        let (place, code) = (format!("{name}:{number}"), std::mem::take(code));
                        found.push(Snippet { place, code, dependencies: dependencies.clone() });
                    }
                    block = None;
                }
            }
        }
    }
    found
}

/// Compiles snippets. All share one directory for what cargo builds.
fn compile(snippets: &[&Snippet]) {
    let folder = std::env::temp_dir().join(format!("dphe-snippets-{}", std::process::id()));
    let mut failures = Vec::new();
    // Before the crates are published, their versions come from the repository.
    let mut patch = String::from("[patch.crates-io]\n");
    for directory in crates() {
        let name = directory.file_name().unwrap().to_string_lossy();
        patch += &format!("{name} = {{ path = {directory:?} }}\n");
    }
    for snippet in snippets {
        let project = folder.join("snippet");
        std::fs::create_dir_all(project.join("src")).unwrap();
        let package = "[package]\nname = \"snippet\"\nversion = \"0.0.0\"\nedition = \"2024\"\n";
        std::fs::write(project.join("Cargo.toml"), format!("{package}\n{}", snippet.dependencies)).unwrap();
        std::fs::write(project.join("src/main.rs"), &snippet.code).unwrap();
        std::fs::write(folder.join("patch.toml"), &patch).unwrap();
        // the versions that the other tests use
        std::fs::copy(root().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
        let output = Command::new(env!("CARGO"))
            .args(["check", "--quiet", "--config"])
            .arg(folder.join("patch.toml"))
            .arg("--target-dir")
            .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("snippets"))
            .current_dir(&project)
            .env("RUSTFLAGS", "-D warnings")
            .output()
            .unwrap();
        println!("{}: {}", snippet.place, if output.status.success() { "ok" } else { "failed" });
        if !output.status.success() {
            failures.push(format!("{}:\n{}", snippet.place, String::from_utf8_lossy(&output.stderr)));
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(failures.is_empty(), "snippets do not compile as rendered:\n{}", failures.join("\n"));
}

#[test]
fn snippets_compile_as_rendered() {
    let all = snippets();
    let light: Vec<_> = all.iter().filter(|snippet| !snippet.is_heavy()).collect();
    assert!(light.len() >= 5, "only {} snippets were found", light.len());
    compile(&light);
}

#[test]
#[ignore = "compiles the services and the ONNX runtime, which takes minutes"]
fn heavy_snippets_compile_as_rendered() {
    let all = snippets();
    let heavy: Vec<_> = all.iter().filter(|snippet| snippet.is_heavy()).collect();
    assert!(heavy.len() >= 2, "only {} snippets were found", heavy.len());
    compile(&heavy);
}

#[test]
fn every_library_shows_how_to_depend_on_it() {
    for directory in crates().iter().filter(|directory| directory.join("src/lib.rs").exists()) {
        let name = directory.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(directory.join("README.md")).unwrap();
        let blocks: Vec<&str> = text.split("```").skip(1).step_by(2).collect();
        let shown = |block: &str| {
            block.starts_with("toml\n[dependencies]\n") && block.contains(&format!("\n{name} = "))
        };
        assert!(blocks.iter().any(|block| shown(block)), "{name}: no lines for Cargo.toml");
        assert!(blocks.iter().any(|block| block.starts_with("rust")), "{name}: no example");
        let has_table = text.contains("| feature | default |");
        assert!(has_table || text.contains("no optional features"), "{name}: no table of features");
        for part in ["minimum supported Rust version", "What to read next"] {
            assert!(text.contains(part), "{name}: the README lacks `{part}`");
        }
    }
}
