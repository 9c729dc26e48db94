//! `dphe export`: a model in the formats of others.

use std::path::PathBuf;

use clap::Args;
use dphe_features::{FeatureModel, FeatureSource, Preprocessing};
use serde::Serialize;

use super::CliError;
use crate::files;
use crate::model::{About, Model};

/// Write a model in a format that other programs read
#[derive(Args, Debug)]
pub(crate) struct Export {
    /// A model file
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Where it goes: .onnx, .npz or .json
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// For .onnx: the network before the classifier, so that the graph takes prepared pictures
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
}

/// A model as JSON.
#[derive(Serialize)]
struct Json<'a> {
    about: &'a About,
    /// Features x classes.
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
                what: "a network can only be put into an .onnx file".into(),
                hint: "-o FILE.onnx, or no --network".into(),
            });
        }
        match ending {
            Some("onnx") => {
                let network = self.network(&model)?;
                model.classifier().write_onnx(&self.output, network.as_ref())?;
            }
            Some("npz") => model.classifier().write_npz(&self.output)?,
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
                files::replace(&self.output, text.as_bytes())
                    .map_err(|source| CliError::Output { path: self.output.clone(), source })?;
            }
            _ => {
                return Err(CliError::Data {
                    what: format!("{} has no ending that says what it is", self.output.display()),
                    hint: ".onnx, .npz or .json".into(),
                });
            }
        }
        println!("written      {}", self.output.display());
        Ok(())
    }

    /// The network, which must be the one that the features came from.
    fn network(&self, model: &Model) -> Result<Option<FeatureModel>, CliError> {
        let Some(path) = &self.network else { return Ok(None) };
        let (Some(digest), Some(preprocessing)) = (&model.about.feature_model, &model.about.preprocessing)
        else {
            return Err(CliError::Data {
                what: format!("{} does not say which network its features come from", self.model.display()),
                hint: "a model trained on features that `dphe extract` made, or no --network".into(),
            });
        };
        let source = FeatureSource { model_digest: digest.clone(), preprocessing: preprocessing.clone() };
        let (preprocessing, tensor) = Preprocessing::of_source(&source)?;
        let network = FeatureModel::load(path, preprocessing.crop, Some(&tensor))?;
        let found = FeatureSource { model_digest: network.digest().into(), ..source };
        model.check_features(network.width(), Some(&found), path)?;
        Ok(Some(network))
    }
}
