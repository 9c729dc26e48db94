//! `dphe evaluate`: measures the accuracy of a model.

use std::path::{Path, PathBuf};

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
use crate::page::{Figure, Page};
use crate::terminal::{counted, percent, print_columns, print_rows};

/// The number of confused pairs of classes that are listed.
const MOST_CONFUSED: usize = 10;

/// Measure the accuracy of a model on labelled features
///
/// Use samples that the model was not trained on. Without FEATURES, these are the digits that `dphe simulate`
/// holds out by default.
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
            files::replace(&path, report.page(&self.input.name()).as_bytes())
                .map_err(|source| CliError::Output { path, source })?;
        }
        report.print(self.format)?;
        if self.input.is_bundled() && self.format == TableFormat::Table {
            println!("\nThese are the digits that `dphe simulate` holds out by default.");
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
        println!("{} samples, {}\n", self.samples, counted(self.classes.len(), "class", "classes"));
        print_rows(&CLASS_HEAD, &self.class_rows());
        println!();
        print_rows(&["all", ""], &self.summary());
        let confusions = self.confusions();
        if !confusions.is_empty() {
            println!();
            print_columns(&CONFUSION_HEAD, &confusions, |column| column < 2);
        }
        Ok(())
    }

    fn page(&self, data: &Path) -> String {
        let mut page = Page::new("How good the classifier is");
        page.lead(&format!(
            "{} samples of {} in {}.",
            self.samples,
            counted(self.classes.len(), "class", "classes"),
            data.display()
        ));
        let (low, high) = interval(self.accuracy, self.samples);
        let range = format!(
            "From {} to {} with a confidence of 95 %.",
            Unit::Percent.write(low),
            Unit::Percent.write(high)
        );
        let mut figures = vec![Figure::new("accuracy", Unit::Percent.write(self.accuracy), &range)];
        if let Some(mean) = self.mean_per_class_accuracy {
            figures.push(Figure::new(
                "mean over classes",
                Unit::Percent.write(mean),
                "Each class counts equally.",
            ));
        }
        let precision = Unit::Percent.write(self.mean_average_precision);
        figures.push(Figure::new("average precision", precision, "The mean over classes."));
        page.figures(&figures);
        if let Some(confusion) = &self.confusion {
            let names: Vec<&str> = self.classes.iter().map(|class| class.name.as_str()).collect();
            page.heading("Confusion matrix").matrix(&names, confusion);
        }
        let confusions = self.confusions();
        if !confusions.is_empty() {
            page.heading("Most frequent confusions")
                .columns(&CONFUSION_HEAD, &confusions, |column| column < 2);
        }
        page.heading("Classes, the worst first").table(&CLASS_HEAD, &self.worst_first());
        page.html()
    }

    fn worst_first(&self) -> Vec<Vec<String>> {
        let mut order: Vec<usize> = (0..self.classes.len()).collect();
        let quality =
            |class: &ClassReport| class.accuracy.or(class.average_precision).unwrap_or(f64::INFINITY);
        order.sort_by(|&a, &b| quality(&self.classes[a]).total_cmp(&quality(&self.classes[b])));
        let rows = self.class_rows();
        order.into_iter().map(|class| rows[class].clone()).collect()
    }
}

/// Returns the interval that contains the true share with a confidence of 95 % (Wilson's).
fn interval(share: f64, samples: usize) -> (f64, f64) {
    const Z: f64 = 1.96;
    let (n, squared) = (samples.max(1) as f64, Z * Z);
    let middle = (share + squared / (2.0 * n)) / (1.0 + squared / n);
    let half = Z / (1.0 + squared / n) * (share * (1.0 - share) / n + squared / (4.0 * n * n)).sqrt();
    (middle - half, middle + half)
}

const CLASS_HEAD: [&str; 4] = ["class", "samples", "accuracy", "average precision"];
const CONFUSION_HEAD: [&str; 3] = ["class", "predicted as", "samples"];

#[cfg(test)]
mod tests {
    use super::interval;

    #[test]
    fn intervals_contain_the_share_and_shrink_with_samples() {
        let (low, high) = interval(0.9, 100);
        // published values of Wilson's interval for 90 of 100
        assert!((low - 0.8256).abs() < 1e-3 && (high - 0.9448).abs() < 1e-3, "{low} {high}");
        let (nearer, _) = interval(0.9, 10_000);
        assert!(nearer > low);
        assert!(interval(1.0, 10).1 <= 1.0 + 1e-12);
    }
}
