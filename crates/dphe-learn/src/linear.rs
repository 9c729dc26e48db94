//! Linear classifiers with one linear function per class.
//!
//! For class `c` with targets `y = +1` (the sample has the class) or `-1`, the learners minimise
//!
//! ```text
//! J_c(w, b) = mean_i loss(y_i (w.x_i + b)) + strength (l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|_2^2)
//! ```
//!
//! Intercepts are not penalised. [`Sgd`] is stochastic, one sample at a time. [`Fista`] minimises the squared hinge
//! loss with full gradients.

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

/// The input of a learner: samples, and optional offsets of scores or weights.
pub(crate) struct Problem<'a, T> {
    pub(crate) features: &'a Features<T>,
    pub(crate) labels: &'a Labels,
    /// A constant added to every score, with one row of classes per sample. It holds the contribution of features
    /// that are not trained.
    pub(crate) offsets: Option<&'a [T]>,
    /// Whether L1 pulls the weights towards the start instead of zero, so that the *difference* becomes sparse.
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
