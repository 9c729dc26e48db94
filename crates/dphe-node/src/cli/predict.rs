//! `dphe predict`: labels for photos or features.

mod sheet;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use dphe_features::{
    Corpus, Extraction, FeatureModel, FeatureSource, FeatureTable, Preprocessing, ReadOptions, read_table,
};
use dphe_learn::{Features, Threads};
use serde::Serialize;

use super::CliError;
use super::table::print_rows;
use crate::files;
use crate::model::{LabelKind, Model};

/// Give labels to photos or features
///
/// Photos go through the network that the model's features come from, prepared as they were then.
#[derive(Args, Debug)]
pub(crate) struct Predict {
    /// A photo, a folder of photos, a CSV file of paths, or a file of features
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// A model file
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// The network for photos, in ONNX
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    /// How many labels for each, the best first
    #[arg(long, default_value_t = 3)]
    top: usize,
    /// A page with the photos and their labels
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Photos worked on at once; without it, as many as there are cores
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// A table to read, CSV or JSON
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
        let features: Features<f32> = Features::new(table.width(), table.values().to_vec())?;
        let features: Features<f32> = model.standardizer.apply(&features)?;
        let scores = model.weights.scores(&features, Threads::all())?;
        let predictions: Vec<Prediction> = scores
            .rows()
            .enumerate()
            .map(|(sample, scores)| Prediction {
                file: table.files().get(sample).cloned().unwrap_or_else(|| format!("sample {sample}")),
                labels: best(&model, scores, self.top),
            })
            .collect();
        if let Some(path) = &self.page {
            let page = sheet::page(&predictions, &root, path);
            files::replace(path, page.as_bytes())
                .map_err(|source| CliError::Output { path: path.clone(), source })?;
        }
        print(&predictions, self.format)
    }

    fn read(&self) -> Result<FeatureTable, CliError> {
        Ok(read_table(&self.input, &ReadOptions::default())?)
    }

    /// Features of photos, as the model's were made.
    fn extract(&self, model: &Model) -> Result<(FeatureTable, PathBuf), CliError> {
        let Some(network) = &self.network else {
            return Err(CliError::Data {
                what: format!("{} holds photos, and no network is named", self.input.display()),
                hint: "--network FILE.onnx, the one that the model's features come from".into(),
            });
        };
        let source = match (&model.about.feature_model, &model.about.preprocessing) {
            (Some(digest), Some(preprocessing)) => {
                FeatureSource { model_digest: digest.clone(), preprocessing: preprocessing.clone() }
            }
            _ => {
                return Err(CliError::Data {
                    what: format!("{} does not say how photos become features", self.model.display()),
                    hint: "a model trained on features that `dphe extract` made".into(),
                });
            }
        };
        let (preprocessing, tensor) = Preprocessing::of_source(&source)?;
        let corpus = Corpus::find(&self.input)?;
        let network = FeatureModel::load(network, preprocessing.crop, Some(&tensor))?;
        // before anything takes long
        let found = FeatureSource { model_digest: network.digest().into(), ..source };
        model.check_features(network.width(), Some(&found), &self.input)?;
        let folder =
            tempfile::tempdir().map_err(|source| CliError::Output { path: std::env::temp_dir(), source })?;
        let extraction = Extraction {
            model: &network,
            preprocessing: &preprocessing,
            cache: folder.path().join("cache"),
            threads: self
                .threads
                .or_else(|| std::thread::available_parallelism().ok())
                .unwrap_or(NonZeroUsize::MIN),
            strict: false,
        };
        let bar = super::extract::progress_bar(corpus.len());
        let output = folder.path().join("features.npz");
        let extracted = extraction.run(&corpus, &output, |progress| bar.set_position(progress.done as u64));
        bar.finish_and_clear();
        for (file, why) in &extracted?.broken {
            eprintln!("left out: {file}: {why}");
        }
        Ok((read_table(&output, &ReadOptions::default())?, corpus.root().to_owned()))
    }
}

/// The labels with the highest scores; of attributes, those that are there, or the likeliest if none is.
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
            print_rows(&["file", "labels (scores)"], &predictions.iter().map(row).collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// A cell of a CSV file.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

/// Where a photo is, seen from a page.
fn seen_from(page: &Path, photo: &Path) -> String {
    let folder = page.parent().unwrap_or(Path::new(""));
    match photo.strip_prefix(folder) {
        Ok(relative) if !folder.as_os_str().is_empty() => relative.display().to_string(),
        _ => std::path::absolute(photo).unwrap_or_else(|_| photo.to_owned()).display().to_string(),
    }
}
