//! A trained model and the file it lives in: safetensors, with what a reader must know beside the numbers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use dphe_features::{Classifier, FeatureSource};
use dphe_learn::{Standardizer, Weights};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use crate::files;

/// The name our description has among the metadata.
const KEY: &str = "dphe";
/// Larger files are not models of ours.
const MOST_BYTES: u64 = 8 << 30;

/// A linear classifier with everything between raw features and a label.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The linear functions.
    pub weights: Weights,
    /// What raw features go through first.
    pub standardizer: Standardizer,
    /// What it is of.
    pub about: About,
}

/// What a model is of, and how it came to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// Of this description.
    pub version: u32,
    /// Names of the classes or attributes.
    pub classes: Vec<String>,
    /// One of the classes a sample, or each of them or not.
    pub labels: LabelKind,
    /// Standardised features are cut off there.
    pub clip: f64,
    /// The network that the features come from, if that is known: SHA-256 of its file.
    pub feature_model: Option<String>,
    /// What was done to images before it, as JSON.
    pub preprocessing: Option<String>,
    /// How it was trained.
    pub training: Training,
}

/// What is known of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelKind {
    /// One of the classes a sample.
    Classes,
    /// Each of them or not.
    Attributes,
}

/// How a model was trained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// The task, in hexadecimal digits; none if nothing was encrypted.
    pub task: Option<String>,
    /// What was hidden, and how.
    pub profile: Option<String>,
    /// What users sent.
    pub message: Option<String>,
    /// Bits of the encryption key.
    pub key_bits: Option<u32>,
    /// Rounds that it went through.
    pub rounds: u64,
    /// Users of the task.
    pub users: usize,
}

/// The version of [`About`] that this program writes.
pub const VERSION: u32 = 1;

/// Why a model cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are those of the messages")]
pub enum ModelError {
    /// A file that cannot be read or written.
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    /// Not a model.
    #[error("{path} is not a model of dphe: {reason}")]
    Format { path: PathBuf, reason: String },
    /// A model of another version of this program.
    #[error("{path} is a model of version {version}; this program knows version {VERSION}")]
    Version { path: PathBuf, version: u32 },
    /// Features of another width.
    #[error("{path} has {found} features and the model {expected}")]
    Width { path: PathBuf, expected: usize, found: usize },
    /// Features of another network.
    #[error("{path} holds features of another network than the model was trained on")]
    OtherNetwork { path: PathBuf },
    /// Features of photos that were prepared in another way.
    #[error("{path} holds features of photos that were prepared in another way than the model's")]
    OtherPreparation { path: PathBuf },
    /// Classes for attributes, or the other way round.
    #[error("{path} has {found:?} as labels, and the model {expected:?}")]
    OtherLabels { path: PathBuf, expected: LabelKind, found: LabelKind },
    /// Labels of other classes.
    #[error("{path} has other classes than the model: {difference}")]
    OtherClasses { path: PathBuf, difference: String },
}

impl ModelError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::File { .. } => "check the path, and that you may read or write there".into(),
            Self::Format { .. } => "a model.safetensors that dphe wrote, whole".into(),
            Self::Version { .. } => "the version of dphe that wrote it, or a newer one".into(),
            Self::Width { .. } | Self::OtherNetwork { .. } | Self::OtherPreparation { .. } => {
                "extract the features with the network and the preparation that the model was trained on"
                    .into()
            }
            Self::OtherLabels { .. } => {
                "features with labels of the kind that the model was trained on".into()
            }
            Self::OtherClasses { .. } => {
                "features whose classes have the same names in the same order".into()
            }
        })
    }
}

impl Model {
    /// Fails unless features of this width and origin are what the model was trained on.
    pub fn check_features(
        &self,
        width: usize,
        source: Option<&FeatureSource>,
        path: &Path,
    ) -> Result<(), ModelError> {
        if width != self.weights.features() {
            let (expected, found) = (self.weights.features(), width);
            return Err(ModelError::Width { path: path.into(), expected, found });
        }
        match (&self.about.feature_model, source) {
            // of features whose origin nobody wrote down nothing can be said
            (Some(known), Some(source)) if *known != source.model_digest => {
                Err(ModelError::OtherNetwork { path: path.into() })
            }
            (Some(_), Some(source))
                if self.about.preprocessing.as_ref().is_some_and(|known| *known != source.preprocessing) =>
            {
                Err(ModelError::OtherPreparation { path: path.into() })
            }
            _ => Ok(()),
        }
    }

    /// Fails unless these are the model's classes, and labels of its kind.
    ///
    /// # Errors
    /// [`ModelError::OtherClasses`] or [`ModelError::OtherLabels`].
    pub fn check_classes(&self, kind: LabelKind, classes: &[String], path: &Path) -> Result<(), ModelError> {
        if kind != self.about.labels {
            let (expected, found) = (self.about.labels, kind);
            return Err(ModelError::OtherLabels { path: path.into(), expected, found });
        }
        let ours = &self.about.classes;
        let difference = if classes.len() != ours.len() {
            format!("{} instead of {}", classes.len(), ours.len())
        } else if let Some((theirs, ours)) = classes.iter().zip(ours).find(|(a, b)| a != b) {
            format!("{theirs:?} where the model has {ours:?}")
        } else {
            return Ok(());
        };
        Err(ModelError::OtherClasses { path: path.into(), difference })
    }

    /// The same for other programs.
    pub fn classifier(&self) -> Classifier {
        Classifier {
            classes: self.about.classes.clone(),
            weights: self.weights.flat().to_vec(),
            intercepts: self.weights.intercepts().to_vec(),
            mean: self.standardizer.mean().to_vec(),
            deviation: self.standardizer.deviation().to_vec(),
            clip: self.standardizer.clip(),
            attributes: self.about.labels == LabelKind::Attributes,
        }
    }

    /// Writes it beside the old file and then in its place, so that there is always a whole one.
    pub fn write(&self, path: &Path) -> Result<(), ModelError> {
        let bytes = self.to_bytes().map_err(|reason| ModelError::Format { path: path.into(), reason })?;
        files::replace(path, &bytes).map_err(|source| ModelError::File { path: path.into(), source })
    }

    /// Reads one; from `.npz`, one that another program made, with the arrays that
    /// [`Classifier::read_npz`] looks for.
    ///
    /// # Errors
    /// If there is none.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        if path.extension().is_some_and(|ending| ending == "npz") {
            let format = |reason: String| ModelError::Format { path: path.into(), reason };
            let classifier = Classifier::read_npz(path).map_err(|error| format(error.to_string()))?;
            return Self::import(classifier).map_err(|error| format(error.to_string()));
        }
        let bytes = files::read_at_most(path, MOST_BYTES)
            .map_err(|source| ModelError::File { path: path.into(), source })?;
        Self::from_bytes(&bytes).map_err(|error| error.of(path))
    }

    fn import(classifier: Classifier) -> Result<Self, dphe_learn::Error> {
        let Classifier { classes, weights, intercepts, mean, deviation, clip, attributes } = classifier;
        let about = About {
            version: VERSION,
            classes,
            labels: if attributes { LabelKind::Attributes } else { LabelKind::Classes },
            clip,
            feature_model: None,
            preprocessing: None,
            training: Training::default(),
        };
        let weights = Weights::new(mean.len(), weights, intercepts)?;
        Ok(Self { weights, standardizer: Standardizer::from_parts(mean, deviation, clip)?, about })
    }

    /// The bytes of its file.
    ///
    /// # Errors
    /// What cannot be written down.
    pub fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let (features, classes) = (self.weights.features(), self.weights.classes());
        let tensors = [
            ("weights", vec![features, classes], self.weights.flat()),
            ("intercepts", vec![classes], self.weights.intercepts()),
            ("mean", vec![features], self.standardizer.mean()),
            ("deviation", vec![features], self.standardizer.deviation()),
        ];
        let bytes: Vec<Vec<u8>> = tensors.iter().map(|(.., values)| little_endian(values)).collect();
        let views = tensors
            .into_iter()
            .zip(&bytes)
            .map(|((name, shape, _), bytes)| Ok((name, TensorView::new(Dtype::F64, shape, bytes)?)))
            .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
            .map_err(|error| error.to_string())?;
        // one entry: two would be written in any order
        let about = serde_json::to_string(&self.about).map_err(|error| error.to_string())?;
        safetensors::serialize(views, Some(HashMap::from([(KEY.to_owned(), about)])))
            .map_err(|error| error.to_string())
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Bad> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(Bad::new)?;
        let about = metadata.metadata().as_ref().and_then(|entries| entries.get(KEY));
        let about = about.ok_or_else(|| Bad::new("it has no description by dphe"))?;
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_str(about).map_err(Bad::new)?;
        if version != VERSION {
            return Err(Bad::Version(version));
        }
        let about: About = serde_json::from_str(about).map_err(Bad::new)?;
        let tensors = SafeTensors::deserialize(bytes).map_err(Bad::new)?;
        let take = |name: &str| -> Result<(Vec<usize>, Vec<f64>), Bad> {
            let tensor = tensors.tensor(name).map_err(Bad::new)?;
            let values = match tensor.dtype() {
                Dtype::F64 => tensor.data().as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
                Dtype::F32 => {
                    tensor.data().as_chunks().0.iter().map(|&b| f32::from_le_bytes(b).into()).collect()
                }
                other => return Err(Bad::new(format!("{name} has elements of type {other:?}"))),
            };
            Ok((tensor.shape().to_vec(), values))
        };
        let (shape, flat) = take("weights")?;
        let &[features, classes] = &shape[..] else { return Err(Bad::new("weights are not a matrix")) };
        if classes != about.classes.len() {
            let names = about.classes.len();
            return Err(Bad::new(format!("it has {classes} classes and {names} names for them")));
        }
        let (mean, deviation) = (take("mean")?.1, take("deviation")?.1);
        if mean.len() != features || deviation.len() != features {
            return Err(Bad::new("the standardisation is of another number of features"));
        }
        Ok(Self {
            weights: Weights::new(features, flat, take("intercepts")?.1).map_err(Bad::new)?,
            standardizer: Standardizer::from_parts(mean, deviation, about.clip).map_err(Bad::new)?,
            about,
        })
    }
}

/// What is wrong with a file whose name is not known here.
enum Bad {
    Version(u32),
    Reason(String),
}

impl Bad {
    fn new(reason: impl ToString) -> Self {
        Self::Reason(reason.to_string())
    }

    fn of(self, path: &Path) -> ModelError {
        let path = path.to_owned();
        match self {
            Self::Version(version) => ModelError::Version { path, version },
            Self::Reason(reason) => ModelError::Format { path, reason },
        }
    }
}

fn little_endian(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        Model {
            weights: Weights::new(3, vec![0.5, -1.0, 0.0, 0.25, 1e-9, 3.0], vec![0.125, -2.0]).unwrap(),
            standardizer: Standardizer::from_parts(vec![1.0, 2.0, 3.0], vec![0.5, 1.0, 2.0], 6.0).unwrap(),
            about: About {
                version: VERSION,
                classes: vec!["cat".into(), "dog \"x\"".into()],
                labels: LabelKind::Classes,
                clip: 6.0,
                feature_model: Some("00ff".into()),
                preprocessing: None,
                training: Training { rounds: 4, users: 5, ..Training::default() },
            },
        }
    }

    #[test]
    fn a_model_comes_back_and_is_written_the_same_way_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        model().write(&path).unwrap();
        assert_eq!(Model::read(&path).unwrap(), model());
        let first = std::fs::read(&path).unwrap();
        model().write(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn other_files_are_refused_with_their_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let whole = model().to_bytes().unwrap();
        let mut later = model();
        later.about.version = 2;
        let mut short = model();
        short.about.classes.pop();
        for (bytes, expected) in [
            (vec![], "not a model"),
            (whole[..whole.len() - 1].to_vec(), "not a model"),
            (vec![0xff; 100], "not a model"),
            (later.to_bytes().unwrap(), "version 2"),
            (short.to_bytes().unwrap(), "2 classes and 1 names"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let error = Model::read(&path).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("model.safetensors"), "{error}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            // any answer but a panic
            let _ = Model::from_bytes(&bytes);
        }
    }
}
