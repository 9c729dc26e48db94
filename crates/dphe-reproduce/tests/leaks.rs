//! Runs the leaks on the digits that come with the program.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/caltech101.rs"]
mod caltech101;
#[path = "support/digits.rs"]
mod digits;

use dphe_federate::Stopwatch;
use dphe_reproduce::data::caltech;
use dphe_reproduce::leaks::Leaks;
use dphe_reproduce::{Error, Experiment, Findings, Measured, RunId};

fn run(leaks: &Leaks) -> (Measured, Findings) {
    let mut measured = Measured::new();
    for run in leaks.runs() {
        let measurement = leaks.measure(&run, &mut Stopwatch::none()).unwrap();
        assert!(measurement.values().all(|value| value.is_finite()), "{run:?}");
        measured.insert(run, measurement);
    }
    let findings = leaks.findings(&measured);
    (measured, findings)
}

#[test]
fn leaks_recover_digits_from_plain_updates_but_not_from_sealed_ones() {
    let data = digits::load();
    let leaks = Leaks::new("digits", data, 2).with_pictures(8, 16.0).quick();
    let (measured, findings) = run(&leaks);
    for claim in &findings.claims {
        println!("{}: {} ({})", claim.holds, claim.text, claim.seen);
    }
    assert_eq!(findings.claims.len(), 7);
    for claim in &findings.claims {
        assert!(claim.holds, "{claim:?}");
    }
    for table in &findings.tables {
        println!("{}", table.title);
        table.rows.iter().for_each(|row| println!("{row:?}"));
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    }
    assert_eq!((findings.tables.len(), findings.plots.len()), (2, 1));

    // both halves of an image agree, except if the step was sealed, if L1 hid a pixel, or if the wrong one of two
    // lengths was nearer to the expected one
    assert_eq!(findings.pictures.len(), 11);
    for picture in &findings.pictures {
        assert_eq!((picture.width, picture.grey.len()), (17, 17 * 8));
        let off = picture.grey.chunks(17).flat_map(|row| (0..8).map(|i| row[i].abs_diff(row[i + 9])));
        let wrong = off.filter(|&off| off > 1).count();
        match picture.lines[0].as_str() {
            "the same step, sealed" => assert!(wrong > 20, "{wrong}"),
            "hinge, one step with L1" => assert!(wrong < 60, "{wrong}"),
            "logistic, one step, model of 5 epochs" => {}
            other => assert_eq!(wrong, 0, "{other}"),
        }
    }

    // the same seed gives the same numbers
    let again = leaks.runs().remove(7);
    assert_eq!(leaks.measure(&again, &mut Stopwatch::none()).unwrap(), measured[&again]);
    let unknown = RunId { what: "digits/else".into(), seed: 0 };
    assert!(matches!(leaks.measure(&unknown, &mut Stopwatch::none()), Err(Error::UnknownRun(_))));
}

#[test]
fn findings_omit_leaks_without_measurements() {
    let data = digits::load();
    let leaks = Leaks::new("digits", data, 1).quick();
    let findings = leaks.findings(&Measured::new());
    assert!(findings.claims.is_empty() && findings.tables.is_empty() && findings.pictures.is_empty());
    let run = leaks.runs().remove(0);
    let measurement = leaks.measure(&run, &mut Stopwatch::none()).unwrap();
    // no images are kept if features are not pixels
    assert!(measurement.keys().all(|name| !name.starts_with("picture")));
    let findings = leaks.findings(&Measured::from([(run, measurement)]));
    assert_eq!((findings.claims.len(), findings.tables[0].rows.len()), (1, 1));
}

/// Uses all private samples of ten splits: `cargo test --release -p dphe-reproduce --test leaks -- --ignored
/// --nocapture`
#[test]
#[ignore = "takes a minute"]
fn leaks_recover_every_private_digit() {
    let leaks = Leaks::new("digits", digits::load(), 10).with_pictures(8, 16.0);
    let (_, findings) = run(&leaks);
    for table in &findings.tables {
        println!("{}", table.title);
        table.rows.iter().for_each(|row| println!("{row:?}"));
    }
    for claim in &findings.claims {
        println!("{}: {} ({})", claim.holds, claim.text, claim.seen);
    }
    assert!(findings.claims.iter().all(|claim| claim.holds));
}

/// Uses features of a network instead of pixels, so there are no images.
#[test]
#[ignore = "takes a minute"]
fn leaks_recover_features_of_photos() {
    let Some(directory) = caltech101::directory() else { return };
    let (_, findings) = run(&Leaks::new("caltech101", caltech(&directory).unwrap().data, 1).quick());
    assert!(findings.pictures.is_empty());
    for claim in &findings.claims {
        println!("{}: {} ({})", claim.holds, claim.text, claim.seen);
        // the expected length depends on the features
        assert!(claim.holds || claim.text.starts_with("Of two candidates"), "{claim:?}");
    }
}
