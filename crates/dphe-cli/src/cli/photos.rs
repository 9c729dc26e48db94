//! The parts of commands that read photos or ONNX networks. They need the feature `photos`.

use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dphe_features::{
    Corpus, Extraction, FeatureModel, FeatureSource, FeatureTable, Interpolation, OnnxNetwork, Preprocessing,
    ReadOptions, read_table,
};
use dphe_learn::all_cores;
use indicatif::{ProgressBar, ProgressStyle};

use super::CliError;
use super::export::NetworkGraph;
use super::extract::{Extract, Filter, Preparation};
use crate::args::TableFormat;
use crate::model::Model;

/// The number of unreadable photos that are listed.
const LISTED: usize = 20;

/// Computes features of photos and writes them to a file.
pub(super) fn extract(options: &Extract) -> Result<(), CliError> {
    let preprocessing = options.preparation.read(&options.network)?;
    refuse_unwritable(&options.output)?;
    let corpus = Corpus::find(&options.photos)?;
    let model = FeatureModel::load(&options.network, preprocessing.crop, options.tensor.as_deref())?;
    let extraction = Extraction {
        model: &model,
        preprocessing: &preprocessing,
        cache: options.cache.clone().unwrap_or_else(|| beside(&options.output)),
        threads: options.threads.unwrap_or_else(all_cores),
        strict: options.strict,
    };
    let bar = progress_bar(corpus.len());
    let start = Instant::now();
    let extracted =
        extraction.run(&corpus, &options.output, |progress| bar.set_position(progress.done as u64));
    bar.finish_and_clear();
    let (extracted, seconds) = (extracted?, start.elapsed().as_secs_f64());

    if options.format == TableFormat::Json {
        let broken: Vec<_> = extracted
            .broken
            .iter()
            .map(|(file, why)| serde_json::json!({ "file": file, "why": why }))
            .collect();
        let report = serde_json::json!({
            "out": options.output.display().to_string(),
            "samples": extracted.samples,
            "width": model.width(),
            "computed": extracted.computed,
            "reused": extracted.reused,
            "broken": broken,
            "seconds": seconds,
            "model_digest": model.digest(),
            "tensor": model.output(),
        });
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    println!("written      {}", options.output.display());
    println!("samples      {} of {} features", extracted.samples, model.width());
    println!("extracted    {}, {:.1} per second", extracted.computed, extracted.computed as f64 / seconds);
    println!("reused       {} from the cache", extracted.reused);
    println!("features     tensor {:?} of {}...", model.output(), &model.digest()[..16]);
    println!("skipped      {}", extracted.broken.len());
    for (file, why) in extracted.broken.iter().take(LISTED) {
        println!("  {file}: {why}");
    }
    if extracted.broken.len() > LISTED {
        println!("  and {} more (`--format json` lists all)", extracted.broken.len() - LISTED);
    }
    Ok(())
}

/// Computes features of photos in the same way as the model's training features. Returns them with the directory that
/// their file names are relative to.
pub(super) fn features(
    model: &Model,
    network: &Path,
    photos: &Path,
    threads: Option<NonZeroUsize>,
) -> Result<(FeatureTable, PathBuf), CliError> {
    let corpus = Corpus::find(photos)?;
    let (network, preprocessing) = load(model, network)?;
    let directory =
        tempfile::tempdir().map_err(|source| CliError::Output { path: std::env::temp_dir(), source })?;
    let extraction = Extraction {
        model: &network,
        preprocessing: &preprocessing,
        cache: directory.path().join("cache"),
        threads: threads.unwrap_or_else(all_cores),
        strict: false,
    };
    let bar = progress_bar(corpus.len());
    let output = directory.path().join("features.npz");
    let extracted = extraction.run(&corpus, &output, |progress| bar.set_position(progress.done as u64));
    bar.finish_and_clear();
    for (file, why) in &extracted?.broken {
        eprintln!("skipped: {file}: {why}");
    }
    Ok((read_table(&output, &ReadOptions::default())?, corpus.root().to_owned()))
}

/// Reads the network that computed the model's features, for a graph that continues it.
pub(super) fn graph(model: &Model, network: &Path) -> Result<NetworkGraph, CliError> {
    let (network, _) = load(model, network)?;
    let OnnxNetwork { bytes, tensors } = network.to_onnx()?;
    let has_spatial_axes = network.has_spatial_axes();
    Ok(NetworkGraph { bytes, tensors, features: network.output().to_owned(), has_spatial_axes })
}

/// Loads a network and checks that it computed the model's features.
fn load(model: &Model, path: &Path) -> Result<(FeatureModel, Preprocessing), CliError> {
    let (Some(digest), Some(preprocessing)) = (&model.about.feature_model, &model.about.preprocessing) else {
        return Err(CliError::Data {
            what: "the model does not record which network computed its features".into(),
            hint: "Use a model trained on features of `dphe extract`, or omit `--network`.".into(),
        });
    };
    let source = FeatureSource { model_digest: digest.clone(), preprocessing: preprocessing.clone() };
    let (preprocessing, tensor) = Preprocessing::of_source(&source)?;
    let network = FeatureModel::load(path, preprocessing.crop, Some(&tensor))?;
    let found = FeatureSource { model_digest: network.digest().into(), ..source };
    model.check_features(network.width(), Some(&found), path)?;
    Ok((network, preprocessing))
}

impl Preparation {
    fn read(&self, model: &Path) -> Result<Preprocessing, CliError> {
        let beside = model.with_extension("toml");
        let mut found = match &self.preprocessing {
            Some(path) => Preprocessing::read(path)?,
            None if beside.is_file() => Preprocessing::read(&beside)?,
            None => Preprocessing::default(),
        };
        found.resize = self.resize.unwrap_or(found.resize);
        found.crop = self.crop.unwrap_or(found.crop);
        match self.interpolation {
            Some(Filter::Bilinear) => found.interpolation = Interpolation::Bilinear,
            Some(Filter::Bicubic) => found.interpolation = Interpolation::Bicubic,
            None => (),
        }
        for (name, given, field) in
            [("mean", &self.mean, &mut found.mean), ("std", &self.std, &mut found.std)]
        {
            if let Some(given) = given {
                *field = given[..].try_into().map_err(|_| CliError::Data {
                    what: format!("`--{name}` has {} numbers instead of 3", given.len()),
                    hint: format!("Pass three numbers, such as `--{name} 0.5,0.5,0.5`."),
                })?;
            }
        }
        found.check()?;
        Ok(found)
    }
}

/// Fails early if the output cannot be written, because extraction may take hours.
fn refuse_unwritable(out: &Path) -> Result<(), CliError> {
    let directory =
        out.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let wrong = if out.is_dir() {
        "is a directory"
    } else if !out.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npz")) {
        "does not end in .npz"
    } else if !directory.is_dir() {
        "is in a directory that does not exist"
    } else {
        return Ok(());
    };
    Err(CliError::Data {
        what: format!("{} {wrong}", out.display()),
        hint: "Pass an output file such as `-o features.npz`.".into(),
    })
}

fn beside(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".cache");
    name.into()
}

fn progress_bar(photos: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(photos as u64);
    // the template is constant and valid; without it, the bar would only look plainer
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos} of {len} photos, {eta} left") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
