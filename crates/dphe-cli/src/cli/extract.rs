//! `dphe extract`: computes features of photos. Its options exist in every build, so that `--help` shows them.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{CliError, photos};
use crate::args::TableFormat;

/// Compute features of photos with an ONNX network
#[derive(Args)]
#[cfg_attr(not(feature = "photos"), allow(dead_code, reason = "the options are only read with photos"))]
pub(crate) struct Extract {
    /// A directory with one subdirectory per class, a directory of photos, or a CSV file of path,label or
    /// path,attributes
    #[arg(value_name = "PHOTOS")]
    pub(super) photos: PathBuf,
    /// The ONNX network
    #[arg(long, value_name = "FILE")]
    pub(super) network: PathBuf,
    /// The output file, .npz
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: PathBuf,
    /// The number of threads [default: all cores]
    #[arg(long)]
    pub(super) threads: Option<NonZeroUsize>,
    /// Fail if a photo cannot be read, instead of skipping it
    #[arg(long)]
    pub(super) strict: bool,
    /// The cache directory, for later runs [default: OUTPUT.cache]
    #[arg(long, value_name = "DIR")]
    pub(super) cache: Option<PathBuf>,
    /// The tensor that holds the features [default: the last global average pool]
    #[arg(long, value_name = "NAME")]
    pub(super) tensor: Option<String>,
    #[command(flatten)]
    pub(super) preparation: Preparation,
    /// The output format
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    pub(super) format: TableFormat,
}

/// The preprocessing of photos. The defaults come from a TOML file next to the network, or are those of ImageNet.
#[derive(Args)]
#[cfg_attr(not(feature = "photos"), allow(dead_code, reason = "the options are only read with photos"))]
pub(super) struct Preparation {
    /// A TOML file with any of resize, crop, interpolation, mean, std [default: NETWORK.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(super) preprocessing: Option<PathBuf>,
    /// The length of the shorter side after resizing [default: 256]
    #[arg(long, value_name = "PIXELS")]
    pub(super) resize: Option<usize>,
    /// The side of the square that is cropped from the centre [default: 224]
    #[arg(long, value_name = "PIXELS")]
    pub(super) crop: Option<usize>,
    /// The interpolation, always antialiased [default: bicubic]
    #[arg(long, value_enum)]
    pub(super) interpolation: Option<Filter>,
    /// The mean of red, green and blue, from 0 to 1 [default: 0.485,0.456,0.406]
    #[arg(long, value_delimiter = ',', value_name = "R,G,B")]
    pub(super) mean: Option<Vec<f32>>,
    /// The standard deviation of red, green and blue [default: 0.229,0.224,0.225]
    #[arg(long, value_delimiter = ',', value_name = "R,G,B")]
    pub(super) std: Option<Vec<f32>>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Filter {
    Bilinear,
    Bicubic,
}

impl Extract {
    pub(crate) fn run(self) -> Result<(), CliError> {
        photos::extract(&self)
    }
}
