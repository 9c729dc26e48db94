//! Trained models and their files: safetensors with metadata.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use dphe_features::{FeatureSource, NpzFloats, NpzReader};
use dphe_federate::PayloadName;
use dphe_learn::{Standardizer, Weights};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use crate::files;

/// The metadata key of [`About`].
const KEY: &str = "dphe";
/// The size limit for model files.
const MOST_BYTES: u64 = 8 << 30;

/// A linear classifier with everything needed to get from raw features to a label.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The weights.
    pub weights: Weights,
    /// The standardisation of raw features.
    pub standardizer: Standardizer,
    /// The metadata.
    pub about: About,
}

/// The metadata of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The version of this metadata.
    pub version: u32,
    /// The names of the classes or attributes.
    pub classes: Vec<String>,
    /// Whether a sample has one class or any number of attributes.
    pub labels: LabelKind,
    /// The limit at which standardised features are clipped.
    pub clip: f64,
    /// The SHA-256 of the network file that computed the features, if known.
    pub feature_model: Option<String>,
    /// The preprocessing of images, as JSON.
    pub preprocessing: Option<String>,
    /// How the model was trained.
    pub training: Training,
}

/// The kind of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelKind {
    /// One class per sample.
    Classes,
    /// Any number of attributes per sample.
    Attributes,
}

/// How a model was trained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// The task's id in hexadecimal digits, or `None` if nothing was encrypted.
    pub task: Option<String>,
    /// The profile of the task.
    pub profile: Option<String>,
    /// The payload of updates.
    #[serde(alias = "message")]
    pub payload: Option<PayloadName>,
    /// The length of the encryption key in bits.
    pub key_bits: Option<u32>,
    /// The number of rounds.
    pub rounds: u64,
    /// The number of users.
    pub users: usize,
}

/// The version of [`About`] that this program writes.
pub const VERSION: u32 = 1;

/// An error when reading, writing or using a model.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the fields")]
pub enum ModelError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    /// The file is not a model.
    #[error("{path} is not a model of dphe: {reason}")]
    Format { path: PathBuf, reason: String },
    /// The file was written by another version of this program.
    #[error("{path} is a model of version {version}, but this program reads version {VERSION}")]
    Version { path: PathBuf, version: u32 },
    /// The number of features differs.
    #[error("{path} has {found} features, but the model has {expected}")]
    Width { path: PathBuf, expected: usize, found: usize },
    /// The features were computed by another network.
    #[error("{path} contains features of a network that the model was not trained on")]
    OtherNetwork { path: PathBuf },
    /// The preprocessing of the photos is not that of the training data.
    #[error("the photos of {path} were not preprocessed like those that the model was trained on")]
    OtherPreparation { path: PathBuf },
    /// The file has classes and the model attributes, or the other way round.
    #[error("{path} has labels of kind {found:?}, but the model has {expected:?}")]
    OtherLabels { path: PathBuf, expected: LabelKind, found: LabelKind },
    /// The class names differ.
    #[error("the classes of {path} and the model differ: {difference}")]
    OtherClasses { path: PathBuf, difference: String },
}

impl ModelError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::File { .. } => "Check the path and its permissions.".into(),
            Self::Format { .. } => "Pass a complete model.safetensors file written by dphe, or an .npz file.".into(),
            Self::Version { .. } => "Use the version of dphe that wrote the model, or a newer one.".into(),
            Self::Width { .. } | Self::OtherNetwork { .. } | Self::OtherPreparation { .. } => {
                "Extract the features with the network and preprocessing that the model was trained on (`dphe extract`)."
                    .into()
            }
            Self::OtherLabels { .. } => {
                "Use features with the kind of labels that the model was trained on.".into()
            }
            Self::OtherClasses { .. } => {
                "Use features whose classes have the same names in the same order.".into()
            }
        })
    }
}

impl Model {
    /// Fails unless the model was trained on features of this width, network and preprocessing.
    ///
    /// # Errors
    /// Returns what differs.
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
            // features of unknown origin are accepted
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

    /// Fails unless these are the model's classes, with labels of its kind.
    ///
    /// # Errors
    /// Returns [`ModelError::OtherClasses`] or [`ModelError::OtherLabels`].
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

    /// Writes the model to a file. An existing file is replaced atomically.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ModelError> {
        let bytes = self.to_bytes().map_err(|reason| ModelError::Format { path: path.into(), reason })?;
        files::replace(path, &bytes).map_err(|source| ModelError::File { path: path.into(), source })
    }

    /// Reads a model file, or an `.npz` file that another program wrote. Such a file holds the arrays `weights`
    /// (features x classes) and `intercepts`, and may hold `mean`, `deviation`, `clip` and `classes`.
    ///
    /// # Errors
    /// If the file cannot be read or does not hold a model.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        if path.extension().is_some_and(|ending| ending == "npz") {
            return Self::read_npz(path).map_err(|error| error.of(path));
        }
        let bytes = files::read_at_most(path, MOST_BYTES)
            .map_err(|source| ModelError::File { path: path.into(), source })?;
        Self::from_bytes(&bytes).map_err(|error| error.of(path))
    }

    fn read_npz(path: &Path) -> Result<Self, BytesError> {
        let mut arrays = NpzReader::open(path).map_err(BytesError::new)?;
        let missing = |name: &str| BytesError::new(format!("there is no array `{name}`"));
        let weights = arrays.floats("weights").map_err(BytesError::new)?.ok_or_else(|| missing("weights"))?;
        let NpzFloats { shape, values } = weights;
        let &[features, classes] = &shape[..] else {
            return Err(BytesError::new(format!(
                "`weights` has the shape {shape:?}, not features x classes"
            )));
        };
        let flat = values.into_iter().map(f64::from).collect();
        let mut take = |name: &str| -> Result<Option<Vec<f64>>, BytesError> {
            let found = arrays.floats(name).map_err(BytesError::new)?;
            Ok(found.map(|array| array.values.into_iter().map(f64::from).collect()))
        };
        let intercepts = take("intercepts")?.ok_or_else(|| missing("intercepts"))?;
        let mean = take("mean")?.unwrap_or_else(|| vec![0.0; features]);
        let deviation = take("deviation")?.unwrap_or_else(|| vec![1.0; features]);
        let clip = take("clip")?.and_then(|clip| clip.first().copied()).unwrap_or(f64::from(f32::MAX));
        let about = About {
            version: VERSION,
            classes: arrays
                .texts("classes")
                .map_err(BytesError::new)?
                .unwrap_or_else(|| (0..classes).map(|class| class.to_string()).collect()),
            labels: LabelKind::Classes,
            clip,
            feature_model: None,
            preprocessing: None,
            training: Training::default(),
        };
        Self::from_arrays(&shape, flat, intercepts, mean, deviation, about)
    }

    fn from_arrays(
        shape: &[usize],
        flat: Vec<f64>,
        intercepts: Vec<f64>,
        mean: Vec<f64>,
        deviation: Vec<f64>,
        about: About,
    ) -> Result<Self, BytesError> {
        let &[features, classes] = shape else { return Err(BytesError::new("the weights are not a matrix")) };
        if classes != about.classes.len() {
            let names = about.classes.len();
            return Err(BytesError::new(format!("it has {classes} classes and {names} class names")));
        }
        if mean.len() != features || deviation.len() != features {
            return Err(BytesError::new(
                "the weights and the standardisation have different numbers of features",
            ));
        }
        Ok(Self {
            weights: Weights::new(features, flat, intercepts).map_err(BytesError::new)?,
            standardizer: Standardizer::from_parts(mean, deviation, about.clip).map_err(BytesError::new)?,
            about,
        })
    }

    /// Returns the contents of the model's file.
    ///
    /// # Errors
    /// Fails if the model cannot be serialised.
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
        // a single entry, because the order of several would vary
        let about = serde_json::to_string(&self.about).map_err(|error| error.to_string())?;
        safetensors::serialize(views, Some(HashMap::from([(KEY.to_owned(), about)])))
            .map_err(|error| error.to_string())
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, BytesError> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(BytesError::new)?;
        let about = metadata.metadata().as_ref().and_then(|entries| entries.get(KEY));
        let about = about.ok_or_else(|| BytesError::new("it has no metadata of dphe"))?;
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_str(about).map_err(BytesError::new)?;
        if version != VERSION {
            return Err(BytesError::Version(version));
        }
        let about: About = serde_json::from_str(about).map_err(BytesError::new)?;
        let tensors = SafeTensors::deserialize(bytes).map_err(BytesError::new)?;
        let take = |name: &str| -> Result<(Vec<usize>, Vec<f64>), BytesError> {
            let tensor = tensors.tensor(name).map_err(BytesError::new)?;
            let values = match tensor.dtype() {
                Dtype::F64 => tensor.data().as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
                Dtype::F32 => {
                    tensor.data().as_chunks().0.iter().map(|&b| f32::from_le_bytes(b).into()).collect()
                }
                other => {
                    return Err(BytesError::new(format!("tensor {name} has elements of type {other:?}")));
                }
            };
            Ok((tensor.shape().to_vec(), values))
        };
        let (shape, flat) = take("weights")?;
        let (intercepts, mean, deviation) = (take("intercepts")?.1, take("mean")?.1, take("deviation")?.1);
        Self::from_arrays(&shape, flat, intercepts, mean, deviation, about)
    }
}

/// An error in the bytes of a file whose path is not known yet.
enum BytesError {
    Version(u32),
    Reason(String),
}

impl BytesError {
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
    fn model_round_trips_and_its_file_is_deterministic() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.safetensors");
        model().write(&path).unwrap();
        assert_eq!(Model::read(&path).unwrap(), model());
        let first = std::fs::read(&path).unwrap();
        model().write(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn files_that_are_not_models_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.safetensors");
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
            (short.to_bytes().unwrap(), "2 classes and 1 class names"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let error = Model::read(&path).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("model.safetensors"), "{error}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            // must not panic
            let _ = Model::from_bytes(&bytes);
        }
    }
}
