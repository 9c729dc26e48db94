//! `dphe evaluate`: measures the accuracy of a model.

use std::path::PathBuf;

use clap::Args;
use dphe_learn::metrics::{ConfusionMatrix, attribute_accuracy, mean_average_precision};
use dphe_learn::{Labels, Scores, all_cores};
use dphe_service::chart::Unit;
use serde::Serialize;

use super::CliError;
use crate::args::FeatureArgs;
use crate::args::TableFormat;
use crate::digits;
use crate::files;
use crate::model::Model;
use crate::page::Page;
use crate::terminal::{percent, print_rows};

/// The number of confused pairs of classes that are listed.
const MOST_CONFUSED: usize = 10;

/// Measure the accuracy of a model on labelled features
///
/// Use samples that the model was not trained on. Without FEATURES, these are the digits that `dphe demo` and `dphe
/// simulate` hold out by default.
#[derive(Args, Debug)]
pub(crate) struct Evaluate {
    /// The model file
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    #[command(flatten)]
    input: FeatureArgs,
    /// Write an HTML page with tables and the confusion matrix
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// The output format
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
}

#[derive(Serialize)]
struct Report {
    samples: usize,
    classes: Vec<ClassReport>,
    /// The fraction of samples, or of attribute answers, that are correct.
    accuracy: f64,
    /// The mean of the classes' accuracies.
    mean_per_class_accuracy: Option<f64>,
    /// The mean over the classes that occur.
    mean_average_precision: f64,
    /// One row per true class, one column per predicted class.
    confusion: Option<Vec<Vec<u64>>>,
}

#[derive(Serialize)]
struct ClassReport {
    name: String,
    samples: usize,
    accuracy: Option<f64>,
    average_precision: Option<f64>,
}

impl Evaluate {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let model = Model::read(&self.model)?;
        let samples = if self.input.is_bundled() { digits::held_out()? } else { self.input.samples()? };
        model.check_classes(samples.kind, &samples.classes, &self.input.name())?;
        model.check_features(samples.data.features().width(), samples.source.as_ref(), &self.input.name())?;
        let (features, labels) = samples.data.standardized(&model.standardizer)?.into_parts();
        let scores = model.weights.scores(&features, all_cores())?;
        let report = Report::new(&model, &labels, &scores)?;
        if let Some(path) = self.page {
            files::replace(&path, report.page().as_bytes())
                .map_err(|source| CliError::Output { path, source })?;
        }
        report.print(self.format)?;
        if self.input.is_bundled() && self.format == TableFormat::Table {
            println!("\nThese are the digits that `dphe demo` and `dphe simulate` hold out by default.");
        }
        Ok(())
    }
}

impl Report {
    fn new(model: &Model, labels: &Labels, scores: &Scores) -> Result<Self, CliError> {
        let all: Vec<usize> = (0..labels.class_count()).collect();
        let precision = mean_average_precision(labels, scores, &all)?;
        let counts = labels.counts();
        let (accuracy, confusion) = match labels.as_classes("accuracy") {
            Ok(truth) => {
                let matrix = ConfusionMatrix::new(labels.class_count(), truth, &scores.best())?;
                (matrix.accuracy(), Some(matrix))
            }
            Err(_) => (attribute_accuracy(labels, scores)?, None),
        };
        let of_class = confusion.as_ref().map(ConfusionMatrix::per_class_accuracy);
        let classes = model.about.classes.iter().enumerate().map(|(class, name)| ClassReport {
            name: name.clone(),
            samples: counts[class],
            accuracy: of_class.as_ref().and_then(|accuracies| accuracies[class]),
            average_precision: precision.each[class],
        });
        Ok(Self {
            samples: labels.len(),
            classes: classes.collect(),
            accuracy,
            mean_per_class_accuracy: confusion.as_ref().map(ConfusionMatrix::mean_per_class_accuracy),
            mean_average_precision: precision.mean,
            confusion: confusion
                .as_ref()
                .map(|matrix| (0..matrix.classes()).map(|class| matrix.row(class).to_vec()).collect()),
        })
    }

    fn summary(&self) -> Vec<Vec<String>> {
        let mut rows = vec![vec!["accuracy".to_owned(), Unit::Percent.write(self.accuracy)]];
        if let Some(mean) = self.mean_per_class_accuracy {
            rows.push(vec!["accuracy, mean over classes".to_owned(), Unit::Percent.write(mean)]);
        }
        rows.push(vec![
            "average precision, mean over classes".to_owned(),
            Unit::Percent.write(self.mean_average_precision),
        ]);
        rows
    }

    fn class_rows(&self) -> Vec<Vec<String>> {
        let row = |class: &ClassReport| {
            vec![
                class.name.clone(),
                class.samples.to_string(),
                percent(class.accuracy),
                percent(class.average_precision),
            ]
        };
        self.classes.iter().map(row).collect()
    }

    /// Returns the most frequent confusions with their counts.
    fn confusions(&self) -> Vec<Vec<String>> {
        let mut pairs = Vec::new();
        for (truth, row) in self.confusion.iter().flatten().enumerate() {
            let wrong = row.iter().enumerate().filter(|&(predicted, &count)| predicted != truth && count > 0);
            pairs.extend(wrong.map(|(predicted, &count)| (count, truth, predicted)));
        }
        pairs.sort_by_key(|&(count, truth, predicted)| (core::cmp::Reverse(count), truth, predicted));
        pairs.truncate(MOST_CONFUSED);
        let name = |class: usize| self.classes[class].name.clone();
        pairs
            .into_iter()
            .map(|(n, truth, predicted)| vec![name(truth), name(predicted), n.to_string()])
            .collect()
    }

    fn print(&self, format: TableFormat) -> Result<(), CliError> {
        if format == TableFormat::Json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        println!("{} samples, {} classes\n", self.samples, self.classes.len());
        print_rows(&CLASS_HEAD, &self.class_rows());
        println!();
        print_rows(&["all", ""], &self.summary());
        let confusions = self.confusions();
        if !confusions.is_empty() {
            println!();
            print_rows(&CONFUSION_HEAD, &confusions);
        }
        Ok(())
    }

    fn page(&self) -> String {
        let mut page = Page::new("Evaluation");
        page.paragraph(&format!("{} samples, {} classes.", self.samples, self.classes.len()));
        page.table(&["all", ""], &self.summary());
        if let Some(confusion) = &self.confusion {
            let names: Vec<&str> = self.classes.iter().map(|class| class.name.as_str()).collect();
            page.heading("Confusion matrix").matrix(&names, confusion);
        }
        let confusions = self.confusions();
        if !confusions.is_empty() {
            page.heading("Most frequent confusions").table(&CONFUSION_HEAD, &confusions);
        }
        page.heading("Classes").table(&CLASS_HEAD, &self.class_rows());
        page.html()
    }
}

const CLASS_HEAD: [&str; 4] = ["class", "samples", "accuracy", "average precision"];
const CONFUSION_HEAD: [&str; 3] = ["class", "predicted as", "samples"];
