//! Models of named tensors: safetensors files whose floating-point tensors are trained as one vector.
//!
//! A model of this kind is the whole file. Rounds change the values of its trained tensors in place. Its header, its
//! metadata and all other tensors stay as they were, so that equal sums give equal bytes everywhere.

use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, Metadata, SafeTensors};
use sha2::{Digest as _, Sha256};

use crate::{files, hex};

/// The longest file that is read. A model in a store is shorter.
const MAX_BYTES: u64 = 1 << 31;
/// The longest vector of a task.
const MAX_VALUES: usize = 1 << 30;

/// A safetensors file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The bytes are not a safetensors file.
    #[error("it is not a safetensors file: {reason}")]
    Format {
        /// What is wrong.
        reason: String,
    },
    /// There is no tensor of this name.
    #[error("the tensor {name:?} is missing")]
    Missing {
        /// The name.
        name: String,
    },
    /// There is a tensor that the task does not have.
    #[error("the task has no tensor {name:?}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// A tensor has another shape or type of values.
    #[error("the tensor {name:?} has {what} {found} instead of {expected}")]
    Other {
        /// The tensor.
        name: String,
        /// What differs.
        what: &'static str,
        /// What it has.
        found: String,
        /// What the task has.
        expected: String,
    },
    /// The values are too coarse or of an unknown kind.
    #[error("the tensor {name:?} has values of type {dtype}, which cannot be trained")]
    Untrainable {
        /// The tensor.
        name: String,
        /// The type of its values.
        dtype: String,
    },
    /// A value is not a number or infinite.
    #[error("the tensor {name:?} has a value that is not a finite number, at index {index}")]
    NotFinite {
        /// The tensor.
        name: String,
        /// The index in it.
        index: usize,
    },
    /// Nothing is trained, or too much.
    #[error("it has {values} values to train, but a task has from 1 to {MAX_VALUES}")]
    Size {
        /// The number of values.
        values: usize,
    },
    /// The layout is not the one of the task.
    #[error("its tensors have the layout {found:.16}, but the task has {expected:.16}")]
    Layout {
        /// The digest of its layout.
        found: String,
        /// The digest of the task's.
        expected: String,
    },
}

impl TensorError {
    /// Returns what to do next.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::File { .. } => "Check the path and its permissions.".into(),
            Self::Format { .. } => "Write the file with a library for safetensors.".into(),
            Self::Untrainable { name, .. } => {
                format!(
                    "Convert the tensor to 32-bit floating point, or leave it as it is with `--keep {name}`."
                )
            }
            Self::Size { .. } => "Use a model with floating-point tensors that are not kept.".into(),
            Self::Missing { .. } | Self::Unknown { .. } | Self::Other { .. } => {
                "Write the same names, shapes and types of values as in the file of the global model.".into()
            }
            Self::NotFinite { .. } => "If training diverged, use smaller steps.".into(),
            Self::Layout { .. } => {
                "Use the model that the task was made from with `dphe init --tensors`.".into()
            }
        })
    }
}

/// The type of trained values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Float {
    Single,
    Double,
}

impl Float {
    fn name(self) -> &'static str {
        match self {
            Self::Single => "float32",
            Self::Double => "float64",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Single => 4,
            Self::Double => 8,
        }
    }
}

/// A trained tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tensor {
    name: String,
    shape: Vec<usize>,
    float: Float,
    /// Where its values begin in the file.
    start: usize,
    values: usize,
}

impl Tensor {
    fn decode(&self, file: &[u8]) -> Vec<f64> {
        let bytes = &file[self.start..][..self.values * self.float.bytes()];
        match self.float {
            Float::Single => bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b).into()).collect(),
            Float::Double => bytes.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
        }
    }
}

/// A model of named tensors, with the order in which its values are one vector.
#[derive(Clone, PartialEq, Eq)]
pub struct TensorModel {
    file: Vec<u8>,
    /// In the order of their names.
    trained: Vec<Tensor>,
    /// The names of the tensors that are not trained, in order.
    skipped: Vec<String>,
}

impl TensorModel {
    /// Reads a file. The tensors named by `keep` are not trained, and neither are integers and truth values.
    ///
    /// # Errors
    /// As [`TensorModel::new`]. Fails too if the file cannot be read.
    pub fn read(path: &Path, keep: &[String]) -> Result<Self, TensorError> {
        let file = files::read_at_most(path, MAX_BYTES);
        Self::new(file.map_err(|source| TensorError::File { path: path.into(), source })?, keep)
    }

    /// Parses the bytes of a file, as [`TensorModel::read`].
    ///
    /// # Errors
    /// If the bytes are not a safetensors file, a kept tensor does not exist, or a trained value is not a finite number
    /// of 32 or 64 bits.
    pub fn new(file: Vec<u8>, keep: &[String]) -> Result<Self, TensorError> {
        let (start, metadata) = header(&file)?;
        if let Some(name) = keep.iter().find(|name| metadata.info(name).is_none()) {
            return Err(TensorError::Missing { name: name.clone() });
        }
        let (mut trained, mut skipped) = (Vec::new(), Vec::new());
        for (name, info) in metadata.tensors() {
            let float = match info.dtype {
                _ if keep.contains(&name) => None,
                Dtype::F32 => Some(Float::Single),
                Dtype::F64 => Some(Float::Double),
                Dtype::BOOL
                | Dtype::U8
                | Dtype::I8
                | Dtype::U16
                | Dtype::I16
                | Dtype::U32
                | Dtype::I32
                | Dtype::U64
                | Dtype::I64 => None,
                other => return Err(TensorError::Untrainable { name, dtype: format!("{other:?}") }),
            };
            match float {
                None => skipped.push(name),
                Some(float) => {
                    let (begin, end) = info.data_offsets;
                    let values = (end - begin) / float.bytes();
                    trained.push(Tensor {
                        name,
                        shape: info.shape.clone(),
                        float,
                        start: start + begin,
                        values,
                    });
                }
            }
        }
        trained.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        skipped.sort_unstable();
        let model = Self { file, trained, skipped };
        match model.len() {
            1..=MAX_VALUES => {}
            values => return Err(TensorError::Size { values }),
        }
        model.check_finite()?;
        Ok(model)
    }

    fn check_finite(&self) -> Result<(), TensorError> {
        for tensor in &self.trained {
            let values = tensor.decode(&self.file);
            if let Some(index) = values.iter().position(|value| !value.is_finite()) {
                return Err(TensorError::NotFinite { name: tensor.name.clone(), index });
            }
        }
        Ok(())
    }

    /// Fails unless the model has the layout with this digest.
    ///
    /// # Errors
    /// [`TensorError::Layout`].
    pub fn check_layout(&self, expected: &str) -> Result<(), TensorError> {
        let found = self.digest();
        if found == expected {
            return Ok(());
        }
        Err(TensorError::Layout { found, expected: expected.to_owned() })
    }

    /// Returns the number of values in the vector.
    pub fn len(&self) -> usize {
        self.trained.iter().map(|tensor| tensor.values).sum()
    }

    /// Returns whether the vector is empty, which it never is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of trained tensors, and of the others.
    pub fn tensors(&self) -> (usize, usize) {
        (self.trained.len(), self.skipped.len())
    }

    /// Returns the bytes of the file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.file
    }

    /// Returns the bytes of the file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.file
    }

    /// Returns the layout as JSON, with the bytes of `dphe.Layout.to_bytes` in Python: the names, shapes and types of
    /// values of the trained tensors with a scale of 1, and the names of the others.
    pub fn layout(&self) -> String {
        let list = |items: Vec<String>| format!("[{}]", items.join(","));
        let arrays = self.trained.iter().map(|Tensor { name, shape, float, .. }| {
            let shape = list(shape.iter().map(ToString::to_string).collect());
            format!("[{},{shape},\"{}\",1.0]", quoted(name), float.name())
        });
        let skipped = list(self.skipped.iter().map(|name| quoted(name)).collect());
        format!("{{\"arrays\":{},\"skipped\":{skipped},\"version\":1}}", list(arrays.collect()))
    }

    /// Returns the SHA-256 of the layout in hexadecimal.
    pub fn digest(&self) -> String {
        let digest: [u8; 32] = Sha256::digest(self.layout()).into();
        hex::encode(&digest)
    }

    /// Returns the trained values as one vector: tensors in the order of their names, each in row-major order.
    pub fn values(&self) -> Vec<f64> {
        self.trained.iter().flat_map(|tensor| tensor.decode(&self.file)).collect()
    }

    /// Adds a step to the trained values. Each sum is rounded to the type of its tensor.
    ///
    /// # Errors
    /// [`TensorError::Size`] if the step has another length, [`TensorError::NotFinite`] if a sum is too large.
    pub fn with_step(mut self, step: &[f64]) -> Result<Self, TensorError> {
        if step.len() != self.len() {
            return Err(TensorError::Size { values: step.len() });
        }
        let mut rest = step;
        for tensor in &self.trained {
            let (step, later) = rest.split_at(tensor.values);
            rest = later;
            let bytes = &mut self.file[tensor.start..][..tensor.values * tensor.float.bytes()];
            match tensor.float {
                Float::Single => {
                    for (bytes, step) in bytes.as_chunks_mut().0.iter_mut().zip(step) {
                        *bytes = ((f64::from(f32::from_le_bytes(*bytes)) + step) as f32).to_le_bytes();
                    }
                }
                Float::Double => {
                    for (bytes, step) in bytes.as_chunks_mut().0.iter_mut().zip(step) {
                        *bytes = (f64::from_le_bytes(*bytes) + step).to_le_bytes();
                    }
                }
            }
        }
        self.check_finite()?;
        Ok(self)
    }

    /// Returns how far the trained tensors of another file are from this model. The other file may contain the tensors
    /// that are not trained; they are ignored.
    ///
    /// # Errors
    /// If the bytes are not a safetensors file, or its names, shapes, types of values or values are not as they should
    /// be.
    pub fn differences(&self, other: &[u8]) -> Result<Vec<f64>, TensorError> {
        let (start, metadata) = header(other)?;
        let is_known = |name: &String| {
            let trained = self.trained.binary_search_by(|tensor| tensor.name.cmp(name)).is_ok();
            trained || self.skipped.binary_search(name).is_ok()
        };
        if let Some(name) = metadata.offset_keys().into_iter().find(|name| !is_known(name)) {
            return Err(TensorError::Unknown { name });
        }
        let mut differences = Vec::with_capacity(self.len());
        for tensor in &self.trained {
            let name = || tensor.name.clone();
            let info = metadata.info(&tensor.name).ok_or_else(|| TensorError::Missing { name: name() })?;
            let dtype = match tensor.float {
                Float::Single => Dtype::F32,
                Float::Double => Dtype::F64,
            };
            if info.dtype != dtype {
                let (found, expected) = (format!("{:?}", info.dtype), format!("{dtype:?}"));
                return Err(TensorError::Other { name: name(), what: "values of type", found, expected });
            }
            if info.shape != tensor.shape {
                let (found, expected) = (format!("{:?}", info.shape), format!("{:?}", tensor.shape));
                return Err(TensorError::Other { name: name(), what: "the shape", found, expected });
            }
            let local = Tensor { start: start + info.data_offsets.0, ..tensor.clone() }.decode(other);
            if let Some(index) = local.iter().position(|value| !value.is_finite()) {
                return Err(TensorError::NotFinite { name: name(), index });
            }
            let global = tensor.decode(&self.file);
            differences.extend(local.iter().zip(&global).map(|(local, global)| local - global));
        }
        Ok(differences)
    }
}

impl std::fmt::Debug for TensorModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TensorModel({} values, layout {:.16})", self.len(), self.digest())
    }
}

/// Returns where the values begin, and the header. Offsets, shapes and types of values have been checked against each
/// other and against the length.
fn header(file: &[u8]) -> Result<(usize, Metadata), TensorError> {
    let (length, metadata) = SafeTensors::read_metadata(file)
        .map_err(|error| TensorError::Format { reason: error.to_string() })?;
    // the length of the header precedes it in eight bytes
    Ok((8 + length, metadata))
}

/// Quotes a string as JSON in ASCII.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;

    type Entry<'a> = (&'a str, Dtype, Vec<usize>, Vec<u8>);

    fn file(entries: &[Entry<'_>]) -> Vec<u8> {
        let views = entries.iter().map(|(name, dtype, shape, bytes)| {
            (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }

    fn single(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn double(values: &[f64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn entries() -> Vec<Entry<'static>> {
        vec![
            ("weight", Dtype::F32, vec![2, 2], single(&[1.0, 2.0, 3.0, 4.0])),
            ("bias", Dtype::F64, vec![2], double(&[0.5, -0.5])),
            ("steps", Dtype::I64, vec![], 7i64.to_le_bytes().to_vec()),
        ]
    }

    fn model() -> TensorModel {
        TensorModel::new(file(&entries()), &[]).unwrap()
    }

    #[test]
    fn the_layout_and_its_digest_are_those_of_python() {
        let model = model();
        assert_eq!(
            model.layout(),
            r#"{"arrays":[["bias",[2],"float64",1.0],["weight",[2,2],"float32",1.0]],"skipped":["steps"],"version":1}"#
        );
        assert_eq!(model.digest(), "97fa023b473f6c93a0798594b3ca56e686e485c0e01b79432b1b62106b127fa5");
        // json.dumps("a\"\\\n\x01é😀\x7f")
        assert_eq!(quoted("a\"\\\n\u{1}é😀\u{7f}"), r#""a\"\\\n\u0001\u00e9\ud83d\ude00\u007f""#);
    }

    #[test]
    fn values_are_in_the_order_of_names_and_steps_change_nothing_else() {
        let model = model();
        assert_eq!(model.values(), [0.5, -0.5, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!((model.len(), model.tensors()), (6, (2, 1)));
        let step = [0.25, 0.0, 1e-9, -2.0, 0.0, 1.0];
        let next = model.clone().with_step(&step).unwrap();
        // the third value is single precision, which has no 1 + 1e-9
        assert_eq!(next.values(), [0.75, -0.5, 1.0, 0.0, 3.0, 5.0]);
        let mut expected = entries();
        expected[0].3 = single(&[1.0, 0.0, 3.0, 5.0]);
        expected[1].3 = double(&[0.75, -0.5]);
        assert_eq!(next.as_bytes(), file(&expected));
        assert!(model.clone().with_step(&step[1..]).is_err());
        let infinite = model.with_step(&[0.0, 0.0, 0.0, 1e300, 0.0, 0.0]);
        assert!(matches!(infinite, Err(TensorError::NotFinite { index: 1, .. })));
    }

    #[test]
    fn kept_tensors_are_not_in_the_vector() {
        let model = TensorModel::new(file(&entries()), &["weight".into()]).unwrap();
        assert_eq!(model.values(), [0.5, -0.5]);
        assert_ne!(model.digest(), self::model().digest());
        let none = TensorModel::new(file(&entries()), &["weight".into(), "bias".into()]);
        assert!(matches!(none, Err(TensorError::Size { values: 0 })));
        let missing = TensorModel::new(file(&entries()), &["wieght".into()]);
        assert!(matches!(missing, Err(TensorError::Missing { .. })));
    }

    #[test]
    fn differences_need_the_same_tensors_but_only_the_trained_ones() {
        let model = model();
        let mut local = entries();
        local[0].3 = single(&[1.5, 2.0, 3.0, 3.0]);
        assert_eq!(model.differences(&file(&local)).unwrap(), [0.0, 0.0, 0.5, 0.0, 0.0, -1.0]);
        assert_eq!(model.differences(&file(&local[..2])).unwrap().len(), 6);

        let error = |change: fn(&mut Vec<Entry<'_>>)| {
            let mut local = entries();
            change(&mut local);
            model.differences(&file(&local)).unwrap_err().to_string()
        };
        assert_eq!(error(|local| drop(local.remove(1))), "the tensor \"bias\" is missing");
        assert_eq!(error(|local| local[2].0 = "other"), "the task has no tensor \"other\"");
        assert_eq!(
            error(|local| local[0].2 = vec![4]),
            "the tensor \"weight\" has the shape [4] instead of [2, 2]"
        );
        assert_eq!(
            error(|local| local[1] = ("bias", Dtype::F32, vec![2], single(&[0.0, 0.0]))),
            "the tensor \"bias\" has values of type F32 instead of F64"
        );
        assert_eq!(
            error(|local| local[0].3 = single(&[0.0, 0.0, f32::NAN, 0.0])),
            "the tensor \"weight\" has a value that is not a finite number, at index 2"
        );
    }

    #[test]
    fn damaged_and_coarse_files_are_refused() {
        let whole = file(&entries());
        for length in 0..whole.len() {
            assert!(TensorModel::new(whole[..length].to_vec(), &[]).is_err(), "{length}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            // must not panic
            let _ = TensorModel::new(bytes.clone(), &[]);
            let _ = model().differences(&bytes);
        }
        let half = [("x", Dtype::BF16, vec![1], vec![0; 2])];
        let error = TensorModel::new(file(&half), &[]).unwrap_err();
        assert_eq!(error.to_string(), "the tensor \"x\" has values of type BF16, which cannot be trained");
        assert!(error.hint().unwrap().contains("--keep x"));
        assert!(TensorModel::new(file(&half), &["x".into()]).is_err());
        let infinite = [("x", Dtype::F32, vec![1], single(&[f32::INFINITY]))];
        assert!(TensorModel::new(file(&infinite), &[]).is_err());
    }
}
