//! `dphe data`: inspects and splits feature files.

mod split;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dphe_features::{FeatureTable, Summary, TableLabels, read_table};

use super::CliError;
use crate::args::{ReadArgs, TableFormat};
use crate::terminal::print_entry;

/// The number of classes that are listed.
const LISTED: usize = 12;

/// Inspect and split feature files
#[derive(Subcommand)]
pub(crate) enum DataCommand {
    /// Show the shape, classes, balance and scale of a file, and possible problems
    Inspect(Inspect),
    /// Split a file at random into initial data, test data and one file per user
    Split(split::Split),
}

impl DataCommand {
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Inspect(command) => command.run(),
            Self::Split(command) => command.run(),
        }
    }
}

/// A feature file, and how to read it.
#[derive(Args)]
struct Input {
    /// A .npz, .npy, .csv, .tsv, .svmlight or .parquet file, or a directory with features.npy and labels.npy
    #[arg(value_name = "FEATURES")]
    path: PathBuf,
    #[command(flatten)]
    read: ReadArgs,
}

impl Input {
    fn read(&self) -> Result<FeatureTable, CliError> {
        Ok(read_table(&self.path, &self.read.options())?)
    }
}

#[derive(Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    input: Input,
    /// The output format
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
}

impl Inspect {
    fn run(self) -> Result<(), CliError> {
        let table = self.input.read()?;
        let summary = table.summary();
        if self.format == TableFormat::Json {
            println!("{}", serde_json::to_string_pretty(&json(&table, &summary))?);
        } else {
            print(&table, &summary);
        }
        Ok(())
    }
}

fn kind(table: &FeatureTable) -> &'static str {
    match table.labels() {
        None => "none",
        Some(TableLabels::Classes(_)) => "classes",
        Some(TableLabels::Attributes(_)) => "attributes",
    }
}

fn json(table: &FeatureTable, summary: &Summary) -> serde_json::Value {
    let classes: Vec<_> = table
        .classes()
        .iter()
        .zip(&summary.class_counts)
        .map(|(name, count)| serde_json::json!({ "name": name, "samples": count }))
        .collect();
    serde_json::json!({
        "samples": table.samples(),
        "features": table.width(),
        "labels": kind(table),
        "classes": classes,
        "files": table.files().len(),
        "model_digest": table.source().map(|source| &source.model_digest),
        "preprocessing": table.source().map(|source| &source.preprocessing),
        "nan": summary.nan,
        "infinite": summary.infinite,
        "samples_not_finite": summary.samples_not_finite,
        "duplicates": summary.duplicates,
        "contradictions": summary.contradictions,
        "constant_features": summary.constant_features,
        "zeros": summary.zeros,
        "min": summary.min,
        "max": summary.max,
        "mean": summary.mean,
        "deviations": summary.deviations,
    })
}

fn print(table: &FeatureTable, summary: &Summary) {
    println!("samples      {} of {} features", table.samples(), table.width());
    let counts = &summary.class_counts;
    println!("labels       {}", kind(table));
    if let (Some(least), Some(most)) = (counts.iter().min(), counts.iter().max()) {
        println!("classes      {}, with {least} to {most} samples", counts.len());
        for (name, count) in table.classes().iter().zip(counts).take(LISTED) {
            println!("  {count:>8}   {name}");
        }
        if counts.len() > LISTED {
            println!("             and {} more (`--format json` lists all)", counts.len() - LISTED);
        }
    }
    if let Some(source) = table.source() {
        println!("network      {}", source.model_digest);
        // spaces, so that the line can be wrapped
        print_entry("prepared", &source.preprocessing.replace(",\"", ", \""));
    }
    println!(
        "not finite   {} NaN, {} infinite, in {} samples",
        summary.nan, summary.infinite, summary.samples_not_finite
    );
    println!(
        "duplicates   {} samples, {} of them with another label",
        summary.duplicates, summary.contradictions
    );
    println!("constant     {} features", summary.constant_features);
    println!(
        "values       {} to {}, mean {:.4}, {:.1} % zeros",
        summary.min,
        summary.max,
        summary.mean,
        summary.zeros * 100.0
    );
    let [least, middle, most] = summary.deviations;
    println!("deviations   {least:.4} to {most:.4}, median {middle:.4}");
    if kind(table) == "classes" && counts.len() == 1 {
        print_entry("note", "There is only one class. A classifier needs at least two.");
    }
}
