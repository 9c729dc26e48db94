//! Runs an experiment on Caltech101 and prints what it finds, with the time of each run.
//!
//! `cargo run --release -p dphe-reproduce --example measure -- table1 3`, with `digits` in place of the number of runs
//! to see the quick form; a third argument is a part of the names of runs to measure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a program to measure with")]

#[path = "../../dphe-learn/tests/support/caltech.rs"]
mod caltech;
#[path = "../tests/support/digits.rs"]
mod digits;

use std::sync::Arc;
use std::time::Instant;

use dphe_federate::Stopwatch;
use dphe_reproduce::experiments::{
    AttributeSource, Clustering, Figure4, Recognition, Settings, Source, Table1, Table2, Task,
};
use dphe_reproduce::{Cell, Experiment, Measured, Unit};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |i: usize| arguments.get(i).map_or("", String::as_str);
    let (source, settings) = match argument(1) {
        "digits" => (Source::digits(Arc::new(digits::load())), Settings::quick()),
        runs => {
            let Some(folder) = caltech::folder() else { return };
            let names = std::fs::read_to_string(folder.join("classes.json")).unwrap();
            let names = names.split('"').skip(1).step_by(2).map(str::to_owned).collect();
            let source = Source::caltech101(Arc::new(caltech::load(&folder)), names);
            (source, Settings { runs: runs.parse().unwrap_or(1), ..Settings::default() })
        }
    };
    let attributes = |task| Recognition::new(task, AttributeSource::stand_in(source.clone(), task), settings);
    let experiment: Box<dyn Experiment> = match argument(0) {
        "table1" => Box::new(Table1::new(vec![source], settings)),
        "table2" => Box::new(Table2::new(source, settings)),
        "figure4" => Box::new(Figure4::new(source, settings)),
        "celeba" => Box::new(attributes(Task::Faces)),
        "lifelog" => Box::new(attributes(Task::Places)),
        "youtube8m" => Box::new(attributes(Task::Videos)),
        "clustering" => Box::new(Clustering::new(vec![source], settings)),
        other => panic!("no experiment {other:?}"),
    };
    let start = Instant::now();
    let mut stopwatch = Stopwatch::new(move || start.elapsed());
    let mut measured = Measured::new();
    for run in experiment.runs().into_iter().filter(|run| run.what.contains(argument(2))) {
        let before = start.elapsed();
        let measurement = experiment.measure(&run, &mut stopwatch).unwrap();
        let seconds = (start.elapsed() - before).as_secs_f64();
        let accuracy = measurement.get("accuracy").or(measurement.get("arithmetic"));
        println!("{seconds:7.2} s  {} (seed {}) {:.2?}", run.what, run.seed, accuracy.unwrap_or(&f64::NAN));
        measured.insert(run, measurement);
    }
    let findings = experiment.findings(&measured);
    println!("\n{}", findings.title);
    findings.notes.iter().for_each(|note| println!("- {note}"));
    for table in &findings.tables {
        println!("\n{}", table.title);
        let titles: Vec<&str> = table.columns.iter().map(|column| column.title.as_str()).collect();
        println!("{}", titles.join(" | "));
        for row in &table.rows {
            let cells: Vec<String> =
                row.iter().zip(&table.columns).map(|(cell, column)| text(cell, column.unit)).collect();
            println!("{}", cells.join(" | "));
        }
    }
    for claim in &findings.claims {
        println!("{} {}: {}", if claim.holds { "[x]" } else { "[ ]" }, claim.text, claim.seen);
    }
    println!("{:.1} s in all", start.elapsed().as_secs_f64());
}

fn text(cell: &Cell, unit: Unit) -> String {
    match (cell, unit) {
        (Cell::Number(number), Unit::Count) => format!("{number:.0}"),
        (Cell::Number(number), Unit::Percent) => format!("{number:.2}"),
        (Cell::Number(number), _) => format!("{number:.4}"),
        (Cell::Text(text), _) => text.clone(),
        (Cell::Empty(_), _) => "-".to_owned(),
    }
}
