//! `dphe evaluate`: how good a model is on labelled features.

use std::path::PathBuf;

use clap::Args;
use dphe_learn::metrics::{ConfusionMatrix, attribute_accuracy, mean_average_precision};
use dphe_learn::{Features, Labels, Scores, Threads};
use serde::Serialize;

use super::bench::Format;
use super::input::Input;
use super::table::print_rows;
use super::{CliError, table};
use crate::files;
use crate::model::Model;
use crate::report::{Page, Unit};

/// Pairs of classes that are taken for each other, as many as a reader wants to see.
const MOST_CONFUSED: usize = 10;

/// Say how good a model is on labelled features
#[derive(Args, Debug)]
pub(crate) struct Evaluate {
    /// A model file
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    #[command(flatten)]
    input: Input,
    /// A page with tables and the confusion matrix
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// A table to read, or JSON
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
struct Report {
    samples: usize,
    classes: Vec<ClassReport>,
    /// Of all samples, the share that is labelled right; of attributes, of all answers.
    accuracy: f64,
    /// The mean over classes.
    mean_per_class_accuracy: Option<f64>,
    /// Over the classes that occur.
    mean_average_precision: f64,
    /// A row for each class that was there, a column for each that was said.
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
        let samples = self.input.samples()?;
        model.check_classes(samples.kind, &samples.classes, &self.input.name())?;
        model.check_features(samples.data.features().width(), samples.source.as_ref(), &self.input.name())?;
        let features: Features<f32> = model.standardizer.apply(samples.data.features())?;
        let scores = model.weights.scores(&features, Threads::all())?;
        let report = Report::new(&model, samples.data.labels(), &scores)?;
        if let Some(path) = self.page {
            files::replace(&path, report.page().as_bytes())
                .map_err(|source| CliError::Output { path, source })?;
        }
        report.print(self.format)
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
                table::percent(class.accuracy),
                table::percent(class.average_precision),
            ]
        };
        self.classes.iter().map(row).collect()
    }

    /// The classes that are most often taken for another, with how often.
    fn confusions(&self) -> Vec<Vec<String>> {
        let mut pairs = Vec::new();
        for (truth, row) in self.confusion.iter().flatten().enumerate() {
            let wrong = row.iter().enumerate().filter(|&(said, &count)| said != truth && count > 0);
            pairs.extend(wrong.map(|(said, &count)| (count, truth, said)));
        }
        pairs.sort_by_key(|&(count, truth, said)| (core::cmp::Reverse(count), truth, said));
        pairs.truncate(MOST_CONFUSED);
        let name = |class: usize| self.classes[class].name.clone();
        pairs.into_iter().map(|(n, truth, said)| vec![name(truth), name(said), n.to_string()]).collect()
    }

    fn print(&self, format: Format) -> Result<(), CliError> {
        if format == Format::Json {
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
            page.heading("What was said of what").matrix(&names, confusion);
        }
        let confusions = self.confusions();
        if !confusions.is_empty() {
            page.heading("Most often confused").table(&CONFUSION_HEAD, &confusions);
        }
        page.heading("Classes").table(&CLASS_HEAD, &self.class_rows());
        page.html()
    }
}

const CLASS_HEAD: [&str; 4] = ["class", "samples", "accuracy", "average precision"];
const CONFUSION_HEAD: [&str; 3] = ["class", "taken for", "times"];
