//! Linear classifiers: one linear function a class, learnt from labelled samples.
//!
//! For class `c` with targets `y = +1` (has it) or `-1`, the learners make
//!
//! ```text
//! J_c(w, b) = mean_i loss(y_i (w.x_i + b)) + strength (l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|_2^2)
//! ```
//!
//! small; intercepts are not penalised. [`Sgd`] goes sample by sample, [`Fista`] solves the squared hinge with
//! all samples at once.

mod compatible;
mod fista;
mod loss;
mod objective;
mod panel;
mod penalty;
mod schedule;
mod sgd;

pub use compatible::{sklearn_binary_seed, sklearn_class_seeds};
pub use fista::{Fista, FistaParams, KktResidual};
pub use loss::Loss;
pub use objective::objective;
pub use penalty::Penalty;
pub use schedule::{Schedule, Stable};
pub use sgd::{Sgd, SgdParams};

use crate::{Error, Features, Labels, Real, Weights};

/// What a learner learns from: samples, and what is added to their scores or weights from outside.
pub(crate) struct Problem<'a, T> {
    pub(crate) features: &'a Features<T>,
    pub(crate) labels: &'a Labels,
    /// A fixed part of every score, one row of classes a sample: what the features that are not trained contribute.
    pub(crate) offsets: Option<&'a [T]>,
    /// L1 pulls the weights towards the start instead of towards zero, so the *difference* becomes sparse.
    pub(crate) anchored: bool,
}

impl<'a, T: Real> Problem<'a, T> {
    pub(crate) fn new(data: &'a crate::Dataset<T>) -> Self {
        Self { features: data.features(), labels: data.labels(), offsets: None, anchored: false }
    }

    fn check(&self, start: &Weights) -> Result<(), Error> {
        start.check_shape(self.features.width(), self.labels.class_count())
    }
}
