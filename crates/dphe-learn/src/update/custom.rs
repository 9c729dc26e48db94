//! Learners from outside this crate.

use core::fmt;
use std::sync::Arc;

use super::RoundInput;
use crate::{Dataset, Error, Real, Seed, Weights};

/// A learner of your own. It trains the local weights of one user in one round, and everything else stays the same:
/// payloads, sealing, sums, simulations and services.
///
/// ```
/// use dphe_learn::update::{FitLocal, Learner, LocalTrainer, Payload, RoundInput};
/// use dphe_learn::{Dataset, Error, Real, Seed, Weights};
///
/// /// Learns how often each class occurs, and nothing from the features.
/// #[derive(Debug)]
/// struct Frequencies;
///
/// impl FitLocal for Frequencies {
///     fn fit_local<T: Real>(
///         &self,
///         round: RoundInput<'_>,
///         data: &Dataset<T>,
///         _seed: &Seed,
///     ) -> Result<Weights, Error> {
///         let counts = data.labels().counts();
///         let shares = counts.iter().map(|&count| count as f64 / data.len() as f64).collect();
///         Weights::new(round.global.features(), round.global.flat().to_vec(), shares)
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let trainer = LocalTrainer::new(Learner::custom(Frequencies), Payload::All)?;
/// # assert_eq!(trainer.payload(), Payload::All);
/// # Ok(())
/// # }
/// ```
pub trait FitLocal: fmt::Debug + Send + Sync + 'static {
    /// Trains local weights from `round.global`, which has the shape of the data. With [`Payload::Rotating`], only the
    /// weights of `round.features` and the intercepts reach the update. The same input should give the same weights, so
    /// take randomness from `seed` only.
    ///
    /// # Errors
    /// If training fails, for example with [`Error::custom`]. The user then misses the round.
    ///
    /// [`Payload::Rotating`]: super::Payload::Rotating
    fn fit_local<T: Real>(
        &self,
        round: RoundInput<'_>,
        data: &Dataset<T>,
        seed: &Seed,
    ) -> Result<Weights, Error>;
}

/// A [`FitLocal`] of any type. Two are equal if they are clones of each other.
#[derive(Clone)]
pub struct CustomLearner(Arc<dyn AnyLearner>);

impl CustomLearner {
    /// Wraps a learner.
    pub fn new(learner: impl FitLocal) -> Self {
        Self(Arc::new(learner))
    }

    pub(super) fn fit_local<T: Real>(
        &self,
        round: RoundInput<'_>,
        data: &Dataset<T>,
        seed: &Seed,
    ) -> Result<Weights, Error> {
        T::fit_any(&*self.0, round, data, seed)
    }
}

impl PartialEq for CustomLearner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for CustomLearner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// [`FitLocal`] with one method per type of features, because a trait object has no generic methods.
pub trait AnyLearner: fmt::Debug + Send + Sync {
    /// Trains on `f32`.
    fn fit_f32(&self, round: RoundInput<'_>, data: &Dataset<f32>, seed: &Seed) -> Result<Weights, Error>;
    /// Trains on `f64`.
    fn fit_f64(&self, round: RoundInput<'_>, data: &Dataset<f64>, seed: &Seed) -> Result<Weights, Error>;
}

impl<L: FitLocal> AnyLearner for L {
    fn fit_f32(&self, round: RoundInput<'_>, data: &Dataset<f32>, seed: &Seed) -> Result<Weights, Error> {
        self.fit_local(round, data, seed)
    }

    fn fit_f64(&self, round: RoundInput<'_>, data: &Dataset<f64>, seed: &Seed) -> Result<Weights, Error> {
        self.fit_local(round, data, seed)
    }
}
