//! `dphe export`: converts a model for other programs.

mod onnx;

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use dphe_features::{NpzArray, write_npz_arrays};
use serde::Serialize;

use super::{CliError, photos};
use crate::files;
use crate::model::{About, Model};

/// Convert a model to ONNX, NumPy or JSON
#[derive(Args, Debug)]
pub(crate) struct Export {
    /// The model file
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// The output file: .onnx, .npz or .json
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The feature network to include in an .onnx file, so that its input is a preprocessed image
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
}

/// The graph of a network that a model continues.
pub(super) struct NetworkGraph {
    /// The network's ONNX file without outputs. An appended `ModelProto` continues the graph.
    pub(super) bytes: Vec<u8>,
    /// The names that its tensors have.
    pub(super) tensors: HashSet<String>,
    /// The tensor that holds the features.
    pub(super) features: String,
    /// Whether that tensor has spatial axes, over which the mean is taken.
    pub(super) has_spatial_axes: bool,
}

/// A model as JSON.
#[derive(Serialize)]
struct Json<'a> {
    about: &'a About,
    /// One row per feature, one column per class.
    weights: Vec<&'a [f64]>,
    intercepts: &'a [f64],
    mean: &'a [f64],
    deviation: &'a [f64],
}

impl Export {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let model = Model::read(&self.model)?;
        let ending = self.output.extension().and_then(|ending| ending.to_str());
        if self.network.is_some() && ending != Some("onnx") {
            return Err(CliError::Data {
                what: "only an .onnx file can include a network".into(),
                hint: "Use `-o FILE.onnx`, or omit `--network`.".into(),
            });
        }
        match ending {
            Some("onnx") => {
                let network = self.network.as_ref().map(|path| photos::graph(&model, path)).transpose()?;
                let bytes = onnx::encode(&model, network)?;
                self.write(&bytes)?;
            }
            Some("npz") => self.write_npz(&model)?,
            Some("json") => {
                let weights = &model.weights;
                let json = Json {
                    about: &model.about,
                    weights: (0..weights.features()).map(|feature| weights.block(feature)).collect(),
                    intercepts: weights.intercepts(),
                    mean: model.standardizer.mean(),
                    deviation: model.standardizer.deviation(),
                };
                let text = serde_json::to_string(&json)?;
                self.write(text.as_bytes())?;
            }
            _ => {
                return Err(CliError::Data {
                    what: format!("{} has an unknown extension", self.output.display()),
                    hint: "Use the extension .onnx, .npz or .json.".into(),
                });
            }
        }
        println!("written      {}", self.output.display());
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> Result<(), CliError> {
        files::replace(&self.output, bytes)
            .map_err(|source| CliError::Output { path: self.output.clone(), source })
    }

    /// Writes the arrays that [`Model::read`] reads.
    fn write_npz(&self, model: &Model) -> Result<(), CliError> {
        let (features, classes) = (model.weights.features(), model.weights.classes());
        let arrays = [
            ("weights", NpzArray::Floats(&[features, classes], model.weights.flat())),
            ("intercepts", NpzArray::Floats(&[classes], model.weights.intercepts())),
            ("mean", NpzArray::Floats(&[features], model.standardizer.mean())),
            ("deviation", NpzArray::Floats(&[features], model.standardizer.deviation())),
            ("clip", NpzArray::Floats(&[1], &[model.standardizer.clip()])),
            ("classes", NpzArray::Texts(&model.about.classes)),
        ];
        Ok(write_npz_arrays(&self.output, &arrays)?)
    }
}
