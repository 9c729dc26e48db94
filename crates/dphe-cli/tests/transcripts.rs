//! Runs the transcripts in `tests/transcripts` and compares what the program prints.
//!
//! A transcript shows commands as a user sees them in a terminal of 80 columns: a line `$ dphe ...`, the output
//! (standard output, then standard error), and a line `[exit CODE]`. All commands of a transcript run in one new
//! directory. Fingerprints differ from run to run, so each is shown as the same one. `DPHE_UPDATE_TRANSCRIPTS=1 cargo
//! test -p dphe-cli --test transcripts` rewrites them with what the program prints now.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn transcripts_show_what_the_program_prints() {
    let update = std::env::var_os("DPHE_UPDATE_TRANSCRIPTS").is_some();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let expected = std::fs::read_to_string(&file).unwrap();
        let found = replay(&expected);
        if update {
            std::fs::write(&file, &found).unwrap();
        } else {
            for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
                assert_eq!(found, expected, "{}, line {}", file.display(), number + 1);
            }
            assert_eq!(found.len(), expected.len(), "{}", file.display());
        }
    }
}

/// Runs the commands of a transcript and returns the transcript of what they print.
fn replay(transcript: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut out = String::new();
    for line in transcript.lines() {
        if line.starts_with('#') {
            writeln!(out, "{line}").unwrap();
        }
        let Some(command) = line.strip_prefix("$ ") else { continue };
        let words = split(command);
        let (variables, words) = words.split_at(words.iter().position(|word| word == "dphe").unwrap());
        let output = Command::new(env!("CARGO_BIN_EXE_dphe"))
            .args(&words[1..])
            .envs(variables.iter().filter_map(|variable| variable.split_once('=')))
            .env("COLUMNS", "80")
            .env_remove("DPHE_DATABASE")
            .current_dir(directory.path())
            .output()
            .unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let text = mask_fingerprints(&text);
        // errors are not wrapped, because they contain paths and are searched for; clap does not wrap usage lines
        let wide: Vec<&str> =
            text.lines().filter(|line| line.chars().count() > 80 && !line.starts_with("Usage: ")).collect();
        assert!(!output.status.success() || wide.is_empty(), "{command}: wider than 80 columns: {wide:#?}");
        let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
        writeln!(out, "$ {command}\n{}", lines.join("\n")).unwrap();
        writeln!(out, "[exit {}]\n", output.status.code().unwrap()).unwrap();
    }
    format!("{}\n", out.trim_end())
}

/// Replaces every fingerprint by the same one.
fn mask_fingerprints(text: &str) -> String {
    const SHOWN: &str = "0123-4567-89ab-cdef-0123-4567-89ab-cdef-0123-4567";
    let is_group = |group: &str| group.len() == 4 && group.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_fingerprint = |word: &str| word.split('-').count() == 10 && word.split('-').all(is_group);
    let line = |line: &str| {
        let words = line.split(' ').map(|word| if is_fingerprint(word) { SHOWN } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Splits a command at spaces, except within double quotes.
fn split(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in command.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            _ => word.push(c),
        }
    }
    words.push(word);
    words
}
