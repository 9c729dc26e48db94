//! Global weights, which are public, and local weights, which are not.

use core::fmt;
use core::ops::Deref;

use dphe::Digest;
use dphe_learn::Weights;

use crate::Error;

/// The public weights that a round starts from, or that it ends with.
#[derive(Clone, Debug, PartialEq)]
pub struct GlobalWeights(Weights);

const MAGIC: &[u8; 8] = b"DPHEMDL1";
const HEADER: usize = 16;

impl GlobalWeights {
    /// Makes these weights the global ones.
    pub fn new(weights: Weights) -> Self {
        Self(weights)
    }

    /// Returns the weights.
    pub fn weights(&self) -> &Weights {
        &self.0
    }

    /// Returns the weights.
    pub fn into_weights(self) -> Weights {
        self.0
    }

    /// Encodes the weights. Equal weights have equal bytes: a magic number, the numbers of features and classes, the
    /// weights in feature-major order and the intercepts, all in big-endian order.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        // A task has fewer than 2^30 weights.
        bytes.extend((self.features() as u32).to_be_bytes());
        bytes.extend((self.classes() as u32).to_be_bytes());
        for weight in self.flat().iter().chain(self.intercepts()) {
            bytes.extend(weight.to_be_bytes());
        }
        bytes
    }

    /// Decodes weights.
    ///
    /// # Errors
    /// [`Error::Model`] if the bytes are not those of a model.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let error = |reason| Error::Model { reason };
        let (header, values) = bytes.split_at_checked(HEADER).ok_or(error("the header is truncated"))?;
        let (magic, shape) = header.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(error("the magic number is wrong"));
        }
        let (shape, _) = shape.as_chunks::<4>();
        let [features, classes] = [shape[0], shape[1]].map(|bytes| u64::from(u32::from_be_bytes(bytes)));
        let expected =
            features.checked_mul(classes).and_then(|n| n.checked_add(classes)).and_then(|n| n.checked_mul(8));
        if expected != Some(values.len() as u64) {
            return Err(error("the length does not match the numbers of features and classes"));
        }
        let mut flat: Vec<f64> = values.as_chunks::<8>().0.iter().copied().map(f64::from_be_bytes).collect();
        // All values are in memory, so the number of weights fits an index.
        let intercepts = flat.split_off((features * classes) as usize);
        let weights = Weights::new(features as usize, flat, intercepts);
        weights.map(Self).map_err(|_| error("it has no weights, or one that is not finite"))
    }

    /// Returns the digest by which messages name the model.
    pub fn digest(&self) -> Digest {
        Digest::of_model(&self.to_bytes())
    }
}

impl Deref for GlobalWeights {
    type Target = Weights;
    fn deref(&self) -> &Weights {
        &self.0
    }
}

impl From<Weights> for GlobalWeights {
    fn from(weights: Weights) -> Self {
        Self(weights)
    }
}

/// The weights that one user trained in a round. Secret: they cannot be serialised, and `Debug` shows nothing.
#[derive(Clone)]
pub struct LocalWeights(Weights);

impl LocalWeights {
    /// Takes weights that a user trained, by whatever learner.
    pub fn new(weights: Weights) -> Self {
        Self(weights)
    }

    pub(crate) fn weights(&self) -> &Weights {
        &self.0
    }
}

impl fmt::Debug for LocalWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalWeights(<redacted>)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn global_weights_have_canonical_bytes_and_bad_bytes_are_refused() {
        let weights = Weights::new(2, vec![0.5, -1.0, 0.0, 3.0, 1e-300, 2.0], vec![1.0, 2.0, 3.0]).unwrap();
        let model = GlobalWeights::new(weights);
        let bytes = model.to_bytes();
        let again = GlobalWeights::from_bytes(&bytes).unwrap();
        assert_eq!((&again, again.to_bytes()), (&model, bytes.clone()));
        assert_eq!(again.digest(), Digest::of_model(&bytes));
        for length in 0..bytes.len() {
            assert!(GlobalWeights::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        let changed = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            GlobalWeights::from_bytes(&bytes)
        };
        // A wrong shape, and a wrong magic number.
        assert!(changed(8, 255).is_err() && changed(15, 0).is_err() && changed(0, b'x').is_err());
        let mut infinite = bytes.clone();
        infinite[HEADER..HEADER + 8].copy_from_slice(&f64::INFINITY.to_be_bytes());
        assert!(GlobalWeights::from_bytes(&infinite).is_err());
    }

    #[test]
    fn local_weights_are_not_shown() {
        let local = LocalWeights::new(Weights::new(1, vec![0.5], vec![2.0]).unwrap());
        assert_eq!(format!("{local:?}"), "LocalWeights(<redacted>)");
    }
}
