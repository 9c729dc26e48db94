//! `dphe predict`: predicts labels of photos or features.

mod sheet;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use dphe_features::{FeatureTable, ReadOptions, TableParts, read_table};
use dphe_learn::{Features, all_cores};
use serde::Serialize;

use super::{CliError, photos};
use crate::files;
use crate::model::{LabelKind, Model};
use crate::terminal::print_columns;

/// Predict labels of photos or features
///
/// Photos are preprocessed as recorded in the model, and their features are computed with the network that the model
/// was trained on.
#[derive(Args, Debug)]
pub(crate) struct Predict {
    /// A photo, a directory of photos, a CSV file of paths, or a feature file
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// The model file
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// The ONNX network, for photos
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    /// The number of labels per sample, best first
    #[arg(long, default_value_t = 3)]
    top: usize,
    /// Write an HTML page with the photos and their labels
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// The number of threads [default: all cores]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// The output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Csv,
    Json,
}

#[derive(Serialize)]
struct Prediction {
    file: String,
    labels: Vec<Scored>,
}

#[derive(Serialize)]
struct Scored {
    label: String,
    score: f64,
}

impl Predict {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let model = Model::read(&self.model)?;
        let photos =
            self.input.is_dir() && !self.input.join("features.npy").is_file() || self.network.is_some();
        let (table, root) = if photos { self.extract(&model)? } else { (self.read()?, PathBuf::new()) };
        model.check_features(table.width(), table.source(), &self.input)?;
        let TableParts { width, values, files, .. } = table.into_parts();
        let features = model.standardizer.apply(Features::new(width, values)?)?;
        let scores = model.weights.scores(&features, all_cores())?;
        let predictions: Vec<Prediction> = scores
            .rows()
            .enumerate()
            .map(|(sample, scores)| Prediction {
                file: files.get(sample).cloned().unwrap_or_else(|| format!("sample {sample}")),
                labels: best(&model, scores, self.top),
            })
            .collect();
        if let Some(path) = &self.page {
            let page = sheet::page(&predictions, &model.about.classes, &root, path);
            files::replace(path, page.as_bytes())
                .map_err(|source| CliError::Output { path: path.clone(), source })?;
        }
        print(&predictions, self.format)
    }

    fn read(&self) -> Result<FeatureTable, CliError> {
        Ok(read_table(&self.input, &ReadOptions::default())?)
    }

    /// Computes features of photos in the same way as the model's training features.
    fn extract(&self, model: &Model) -> Result<(FeatureTable, PathBuf), CliError> {
        let Some(network) = &self.network else {
            return Err(CliError::Data {
                what: format!("{} contains photos, but no network was given", self.input.display()),
                hint: "Pass the network that the model was trained on, with `--network FILE.onnx`.".into(),
            });
        };
        photos::features(model, network, &self.input, self.threads)
    }
}

/// Returns the labels with the highest scores. Attributes need a positive score, except the best one.
fn best(model: &Model, scores: &[f32], top: usize) -> Vec<Scored> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    let present = order.iter().take_while(|&&class| scores[class] > 0.0).count();
    let count = match model.about.labels {
        LabelKind::Classes => top,
        LabelKind::Attributes => top.min(present.max(1)),
    };
    let scored =
        |class: usize| Scored { label: model.about.classes[class].clone(), score: scores[class].into() };
    order.into_iter().take(count).map(scored).collect()
}

fn print(predictions: &[Prediction], format: Format) -> Result<(), CliError> {
    match format {
        Format::Json => println!("{}", serde_json::to_string_pretty(predictions)?),
        Format::Csv => {
            println!("file,rank,label,score");
            for prediction in predictions {
                for (rank, scored) in prediction.labels.iter().enumerate() {
                    println!(
                        "{},{},{},{}",
                        quoted(&prediction.file),
                        rank + 1,
                        quoted(&scored.label),
                        scored.score
                    );
                }
            }
        }
        Format::Table => {
            let row = |prediction: &Prediction| {
                let labels = prediction.labels.iter();
                let labels: Vec<String> =
                    labels.map(|scored| format!("{} ({:.2})", scored.label, scored.score)).collect();
                vec![prediction.file.clone(), labels.join(", ")]
            };
            print_columns(
                &["file", "labels (scores)"],
                &predictions.iter().map(row).collect::<Vec<_>>(),
                |_| true,
            );
        }
    }
    Ok(())
}

/// Quotes a cell of a CSV file if necessary.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

/// Returns the path of a photo relative to a page, if possible.
fn seen_from(page: &Path, photo: &Path) -> String {
    let directory = page.parent().unwrap_or(Path::new(""));
    match photo.strip_prefix(directory) {
        Ok(relative) if !directory.as_os_str().is_empty() => relative.display().to_string(),
        _ => std::path::absolute(photo).unwrap_or_else(|_| photo.to_owned()).display().to_string(),
    }
}
