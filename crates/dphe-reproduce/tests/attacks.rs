//! Runs the attacks at a small size, and at the paper's size with `--ignored`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/digits.rs"]
mod digits;

use dphe_federate::Stopwatch;
use dphe_reproduce::attacks::Attacks;
use dphe_reproduce::{Error, Experiment, Findings, Measured, RunId};

fn run(attacks: &Attacks) -> (Measured, Findings) {
    let mut measured = Measured::new();
    for run in attacks.runs() {
        let measurement = attacks.measure(&run, &mut Stopwatch::none()).unwrap();
        assert!(measurement.values().all(|value| value.is_finite()), "{run:?}");
        measured.insert(run, measurement);
    }
    let findings = attacks.findings(&measured);
    for table in &findings.tables {
        println!("{}", table.title);
        table.rows.iter().for_each(|row| println!("{row:?}"));
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    }
    for claim in &findings.claims {
        println!("{}: {} ({})", claim.holds, claim.text, claim.seen);
    }
    (measured, findings)
}

#[test]
fn claims_about_attacks_hold_at_a_small_size() {
    let attacks = Attacks::new(1).with_data("digits", digits::load()).quick();
    let (measured, findings) = run(&attacks);
    assert_eq!((findings.tables.len(), findings.plots.len(), findings.claims.len()), (4, 2, 16));
    for claim in &findings.claims {
        assert!(claim.holds, "{claim:?}");
    }
    assert!(findings.plots.iter().all(|plot| plot.series.len() <= 6));
    // the same seed gives the same numbers
    for number in [0, 1, 3, 4, 7, 9, 11] {
        let again = attacks.runs().remove(number);
        assert_eq!(attacks.measure(&again, &mut Stopwatch::none()).unwrap(), measured[&again]);
    }
}

#[test]
fn findings_omit_attacks_without_measurements() {
    let attacks = Attacks::new(1).quick();
    let findings = attacks.findings(&Measured::new());
    assert!(findings.claims.is_empty() && findings.tables.is_empty() && findings.plots.is_empty());
    assert_eq!(attacks.runs().len(), 11);
    let unknown = RunId { what: "singles/digits/w-l1".into(), seed: 0 };
    assert!(matches!(attacks.measure(&unknown, &mut Stopwatch::none()), Err(Error::UnknownRun(_))));
}

/// `cargo test --release -p dphe-reproduce --test attacks -- --ignored --nocapture`
#[test]
#[ignore = "the paper's size takes a minute"]
fn claims_hold_at_the_papers_size() {
    let (_, findings) = run(&Attacks::new(3).with_data("digits", digits::load()));
    for claim in &findings.claims {
        assert!(claim.holds, "{claim:?}");
    }
}
