//! `dphe extract`: photos to features.

use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use dphe_features::{Corpus, Extraction, FeatureModel, Interpolation, Preprocessing};
use indicatif::{ProgressBar, ProgressStyle};

use super::CliError;

/// Broken photos that are listed one by one.
const LISTED: usize = 20;

#[derive(Args)]
pub(crate) struct Extract {
    /// A folder with a folder for each class, a folder of photos, or a CSV file of path,label or path,attributes
    #[arg(value_name = "PHOTOS")]
    photos: PathBuf,
    /// The network, in ONNX
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Where the features go: a .npz file
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Photos worked on at once; without it, as many as there are cores
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Refuse if a photo cannot be read, instead of leaving it out
    #[arg(long)]
    strict: bool,
    /// Where features are kept for the next time; without it, a folder beside the output
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// The tensor of the network that holds the features; without it, the last global average pool
    #[arg(long, value_name = "NAME")]
    tensor: Option<String>,
    #[command(flatten)]
    preparation: Preparation,
    /// A table to read, or JSON
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// How photos are prepared; what is not given comes from a TOML file beside the model, or is ImageNet's.
#[derive(Args)]
struct Preparation {
    /// A TOML file with any of resize, crop, interpolation, mean, std; without it, MODEL.toml if there is one
    #[arg(long, value_name = "FILE")]
    preprocessing: Option<PathBuf>,
    /// Pixels of the shorter side [default: 256]
    #[arg(long, value_name = "PIXELS")]
    resize: Option<usize>,
    /// Pixels of each side of the centre that is kept [default: 224]
    #[arg(long, value_name = "PIXELS")]
    crop: Option<usize>,
    /// How pixels are weighted, always antialiased [default: bicubic]
    #[arg(long, value_enum)]
    interpolation: Option<Filter>,
    /// Mean of red, green and blue from 0 to 1 [default: 0.485,0.456,0.406]
    #[arg(long, value_delimiter = ',', value_name = "R,G,B")]
    mean: Option<Vec<f32>>,
    /// Standard deviation of red, green and blue [default: 0.229,0.224,0.225]
    #[arg(long, value_delimiter = ',', value_name = "R,G,B")]
    std: Option<Vec<f32>>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Table,
    Json,
}

#[derive(Clone, Copy, ValueEnum)]
enum Filter {
    Bilinear,
    Bicubic,
}

impl Extract {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let preprocessing = self.preparation.read(&self.model)?;
        refuse_unwritable(&self.out)?;
        let corpus = Corpus::find(&self.photos)?;
        let model = FeatureModel::load(&self.model, preprocessing.crop, self.tensor.as_deref())?;
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let extraction = Extraction {
            model: &model,
            preprocessing: &preprocessing,
            cache: self.cache.clone().unwrap_or_else(|| beside(&self.out)),
            threads: self.threads.unwrap_or(cores),
            strict: self.strict,
        };
        let bar = progress_bar(corpus.len());
        let start = Instant::now();
        let extracted = extraction.run(&corpus, &self.out, |progress| bar.set_position(progress.done as u64));
        bar.finish_and_clear();
        let (extracted, seconds) = (extracted?, start.elapsed().as_secs_f64());

        if self.format == Format::Json {
            let broken: Vec<_> = extracted
                .broken
                .iter()
                .map(|(file, why)| serde_json::json!({ "file": file, "why": why }))
                .collect();
            let report = serde_json::json!({
                "out": self.out.display().to_string(),
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
        println!("written      {}", self.out.display());
        println!("samples      {} of {} features", extracted.samples, model.width());
        println!("extracted    {}, {:.1} a second", extracted.computed, extracted.computed as f64 / seconds);
        println!("reused       {} from the cache", extracted.reused);
        println!("features     tensor {:?} of {}...", model.output(), &model.digest()[..16]);
        println!("left out     {}", extracted.broken.len());
        for (file, why) in extracted.broken.iter().take(LISTED) {
            println!("  {file}: {why}");
        }
        if extracted.broken.len() > LISTED {
            println!("  and {} more; --format json lists all", extracted.broken.len() - LISTED);
        }
        Ok(())
    }
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
                    what: format!("--{name} has {} numbers, not 3", given.len()),
                    hint: format!("--{name} 0.5,0.5,0.5"),
                })?;
            }
        }
        found.check()?;
        Ok(found)
    }
}

/// Says so before an hour of work whose result could not be stored.
fn refuse_unwritable(out: &Path) -> Result<(), CliError> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let wrong = if out.is_dir() {
        "is a folder"
    } else if !out.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npz")) {
        "does not end in .npz"
    } else if !folder.is_dir() {
        "would be in a folder that does not exist"
    } else {
        return Ok(());
    };
    Err(CliError::Data { what: format!("{} {wrong}", out.display()), hint: "-o features.npz".into() })
}

fn beside(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".cache");
    name.into()
}

pub(super) fn progress_bar(photos: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(photos as u64);
    // the template is a constant, so this cannot fail; without it the bar only looks plainer
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos} of {len} photos, {per_sec}, {eta} left") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
