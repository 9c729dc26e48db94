//! Runs scikit-learn with the Python in `DPHE_TEST_PYTHON`, which `scripts/setup` installs and
//! `scripts/test` sets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a script of `tests/` with this input. Prints a line and returns `None` if Python is missing.
pub(crate) fn ask(script: &str, arguments: &[&str], input: &str) -> Option<String> {
    let Ok(python) = std::env::var("DPHE_TEST_PYTHON") else {
        println!("SKIPPED: DPHE_TEST_PYTHON names no Python that has scikit-learn; run scripts/setup python");
        return None;
    };
    let mut child = Command::new(python)
        .arg(format!("{}/tests/{script}", env!("CARGO_MANIFEST_DIR")))
        .args(arguments)
        // one core, so that times are comparable
        .env("OMP_NUM_THREADS", "1")
        .env("OPENBLAS_NUM_THREADS", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the Python of DPHE_TEST_PYTHON starts");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{script} failed: see its message above");
    Some(String::from_utf8(output.stdout).unwrap())
}
