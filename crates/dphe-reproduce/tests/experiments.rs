//! Runs the quick form of every experiment on digits, and checks that it is deterministic and that its claims hold.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/digits.rs"]
mod digits;

use std::sync::Arc;

use dphe_federate::Stopwatch;
use dphe_learn::{Dataset, Labels};
use dphe_reproduce::experiments::{
    AttributeSource, AttributeSplit, AttributeTask, Encryption, Grid, Settings, Source, clustering, figure4,
    recognition, table1, table2, users,
};
use dphe_reproduce::{Cell, Error, Experiment, Findings, Measured, RunId};

fn source() -> Source {
    Source::digits(Arc::new(digits::load()))
}

fn settings() -> Settings {
    Settings { runs: 2, rounds: Some(3), encryption: Encryption::Nothing, ..Settings::quick() }
}

/// Measures all runs, and checks that findings are well formed and that a run is a function of its identifier.
fn measure(experiment: &dyn Experiment) -> (Measured, Findings) {
    let runs = experiment.runs();
    let mut names: Vec<&RunId> = runs.iter().collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), runs.len(), "run identifiers are unique");
    let mut measured = Measured::new();
    for run in &runs {
        let measurement = experiment.measure(run, &mut Stopwatch::none()).unwrap();
        assert!(measurement.values().all(|value| value.is_finite()), "{run:?} {measurement:?}");
        assert!(measurement.keys().all(|name| !name.ends_with("_s")), "times without a clock: {run:?}");
        measured.insert(run.clone(), measurement);
    }
    // the result does not depend on the order of runs
    for run in [runs.last().unwrap(), &runs[0]] {
        assert_eq!(experiment.measure(run, &mut Stopwatch::none()).unwrap(), measured[run], "{run:?}");
    }
    let unknown = RunId { what: "nothing".to_owned(), seed: 0 };
    let refused = experiment.measure(&unknown, &mut Stopwatch::none());
    assert!(matches!(refused, Err(Error::UnknownRun(_))));
    let findings = experiment.findings(&measured);
    for table in &findings.tables {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.title);
    }
    // there are findings before anything is measured
    let empty = experiment.findings(&Measured::new());
    assert_eq!(empty.title, findings.title);
    (measured, findings)
}

fn number(findings: &Findings, table: usize, row: &str, column: &str) -> f64 {
    let table = &findings.tables[table];
    let at = table.columns.iter().position(|c| c.key == column).unwrap();
    let row = table.rows.iter().find(|cells| cells.contains(&Cell::from(row))).unwrap();
    match row[at] {
        Cell::Number(number) => number,
        _ => panic!("{column} of {row:?} is not a number"),
    }
}

fn claim_holds(findings: &Findings, part: &str) -> bool {
    findings.claims.iter().find(|claim| claim.text.contains(part)).expect("such a claim").holds
}

#[test]
fn table1_ranks_methods_as_the_paper_does() {
    let settings = Settings { encryption: Encryption::First, ..settings() };
    let (_, findings) = measure(&table1(vec![source()], settings));
    let keys: Vec<&str> = findings.tables[0].columns.iter().map(|column| column.key.as_str()).collect();
    assert_eq!(keys[..6], ["dataset", "method", "mean", "std", "runs", "paper"]);
    assert_eq!(number(&findings, 0, "PRR10", "runs"), 2.0);
    assert!((number(&findings, 0, "RA12", "epsilon") - 40.0).abs() < 1e-9);
    assert!(claim_holds(&findings, "averages are better than RA12"));
    assert!(claim_holds(&findings, "RA12 is better than PRR10"));
    assert!(claim_holds(&findings, "bit for bit"));
    assert!(
        number(&findings, 0, "DPHE rotate", "ciphertexts") < number(&findings, 0, "DPHE w-l1", "ciphertexts")
    );
    // four noisy methods with five strengths each
    assert_eq!(findings.tables[1].rows.len(), 20);
}

#[test]
fn table2_sparsity_grows_with_the_fraction_of_l1() {
    struct WithoutTimes(Grid);
    impl Experiment for WithoutTimes {
        fn name(&self) -> &'static str {
            self.0.name()
        }
        fn settings(&self) -> Vec<(String, String)> {
            self.0.settings()
        }
        fn runs(&self) -> Vec<RunId> {
            self.0.runs().into_iter().filter(|run| !run.what.starts_with("time/")).collect()
        }
        fn measure(
            &self,
            run: &RunId,
            stopwatch: &mut Stopwatch,
        ) -> Result<dphe_reproduce::Measurement, Error> {
            self.0.measure(run, stopwatch)
        }
        fn findings(&self, measured: &Measured) -> Findings {
            self.0.findings(measured)
        }
    }
    let settings = Settings { runs: 1, ..settings() };
    let experiment = WithoutTimes(table2(source(), settings, Some(0.003)));
    let (measured, findings) = measure(&experiment);
    let sparsity = |ratio: &str| {
        let run = RunId { what: format!("w-l1 (solved)/{ratio}"), seed: 0 };
        measured[&run]["sparsity"]
    };
    assert!(sparsity("0") < 15.0 && sparsity("0.2") < sparsity("0.5") && sparsity("0.5") < sparsity("1"));
    assert!(claim_holds(&findings, "a tenth of the time"));
    // whole shards of 64 numbers at 3 ms each
    let shards = measured[&RunId { what: "w-l1 (solved)/0".to_owned(), seed: 0 }]["shards"];
    let seconds = number(&findings, 0, "w-l1 (solved)", "phe");
    assert!(shards > 8.0 && (seconds - shards * 64.0 * 0.003).abs() < 1e-9, "{shards} {seconds}");
}

#[test]
fn table2_measures_encryption() {
    let experiment = table2(source(), settings(), None);
    let run = experiment.runs().into_iter().find(|run| run.what.starts_with("time/1024/")).unwrap();
    let start = std::time::Instant::now();
    let measurement = experiment.measure(&run, &mut Stopwatch::new(move || start.elapsed())).unwrap();
    assert!(measurement["secure_s"] > 1e-6 && measurement["secure_s"] < 0.1);
    assert_eq!(measurement["slots"], 56.0);
    let findings = experiment.findings(&Measured::from([(run, measurement)]));
    assert_eq!(number(&findings, 1, "one by one, dense: ten shards", "ciphertexts"), 640.0);
    assert!(
        number(&findings, 1, "packed, all", "seconds")
            < number(&findings, 1, "one by one, 95.6 % zeros: one shard", "seconds")
    );
}

#[test]
fn figure4_encrypts_runs_of_up_to_25_users() {
    let settings = Settings { runs: 1, encryption: Encryption::FirstPacked, ..settings() };
    let experiment = figure4(source(), settings, &[5, 10, 25, 50]);
    let (measured, findings) = measure(&experiment);
    assert_eq!(findings.plots.len(), 2);
    let points = |plot: usize| findings.plots[plot].series[1].1.clone();
    assert_eq!(points(0).iter().map(|(x, _)| *x).collect::<Vec<_>>(), [5.0, 10.0, 25.0, 50.0]);
    // the plain step is shown beside the chosen one only for users with few samples
    assert_eq!(findings.plots[0].series.len(), 2);
    assert_eq!(findings.plots[1].series[2].1.len(), 2);
    let encrypted = |users: u32| {
        measured.iter().any(|(run, m)| run.what.contains(&format!("/{users}/")) && m.contains_key("equal"))
    };
    assert!(encrypted(25) && !encrypted(50));
    assert!(claim_holds(&findings, "bit for bit"));
}

#[test]
fn users_who_differ_take_larger_server_steps() {
    let settings = Settings { runs: 1, rounds: Some(3), ..settings() };
    let (measured, findings) = measure(&users(source(), settings, &[5, 20]));
    assert_eq!(findings.plots.len(), 4);
    assert!(findings.plots.iter().all(|plot| plot.series.len() == 5));
    let step = |what: &str| measured[&RunId { what: what.to_owned(), seed: 0 }]["server_step"];
    assert_eq!(step("equal shares/5/DPHE rotate"), 1.0);
    assert!(step("by class/5/DPHE rotate") > 1.0);
    assert!(step("by class/20/DPHE rotate") > step("by class/5/DPHE rotate"));
    // averages of whole classifiers have no server step
    assert_eq!(step("by class/20/DPHE w-topk"), 1.0);
    assert_eq!(findings.claims.iter().filter(|claim| claim.text.contains("any number of users")).count(), 12);
}

#[test]
fn recognition_of_derived_attributes_beats_a_constant_answer() {
    for (task, floor) in [
        (AttributeTask::Faces, 80.0),
        (AttributeTask::Places, 0.9),
        (AttributeTask::Videos, 0.7),
        (AttributeTask::Medical, 0.95),
    ] {
        let source = AttributeSource::stand_in(source(), task);
        let (_, findings) = measure(&recognition(task, source, settings()));
        assert!(findings.notes[0].contains("attributes of the classes of digits"));
        let ours = number(&findings, 0, "DPHE d-block", "mean");
        let constant = number(&findings, 0, "always the same answer", "mean");
        assert!(ours > floor && ours > constant, "{task:?}: {ours} {constant}");
    }
}

#[test]
fn recognition_of_given_attributes() {
    let all = digits::load();
    let classes = all.labels().as_classes("").unwrap();
    let present = classes.iter().flat_map(|&class| [class % 2 == 0, class > 4]).collect();
    let all = Dataset::new(all.features().clone(), Labels::attributes(2, present).unwrap()).unwrap();
    let part = |range: std::ops::Range<usize>| Arc::new(all.select(&range.collect::<Vec<_>>()).unwrap());
    let split = AttributeSplit { initial: part(0..100), private: part(100..900), held_out: part(900..1797) };
    let settings = Settings { runs: 1, ..settings() };
    let experiment = recognition(AttributeTask::Faces, AttributeSource::given("parity", split), settings);
    let (_, findings) = measure(&experiment);
    assert!(!findings.notes[0].contains("missing"));
    assert!(number(&findings, 0, "DPHE d-block", "mean") > 80.0);
}

#[test]
fn clustering_by_counts_is_near_the_baseline() {
    let settings = Settings { rounds: None, ..settings() };
    let (_, findings) = measure(&clustering(vec![source()], settings));
    assert!(claim_holds(&findings, "DPHE by counts is within 0.02 of S10"));
    let sparsity = number(&findings, 0, "DPHE by counts", "sparsity");
    assert!((29.0..31.0).contains(&sparsity), "{sparsity}");
}
