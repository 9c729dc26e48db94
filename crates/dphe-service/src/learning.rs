//! Learning in the services. A user turns the global weights into an update, and the aggregator turns a sum into the
//! next global weights. [`dphe_federate`] does the computation. This module adds the file that keeps a user's residual.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dphe::{PublicSupport, Round, TaskParams, Threads, WeightSum};
use dphe_federate::vector::VectorRules;
use dphe_federate::{GlobalWeights, LocalRound, RoundResidual, RoundRules};
use dphe_learn::update::{Learner, LocalTrainer, Residual};
use dphe_learn::{Dataset, Real, Seed, all_cores};

use crate::task_file::{TaskFile, TensorSections, Trained};
use crate::{Error, files};

/// Makes a user's updates. It runs in its own thread and may take long.
pub trait Trainer: Send + 'static {
    /// Makes the update of a round. `support` is the round's public support, and `model` encodes the global weights.
    ///
    /// # Errors
    /// If training fails. The user then misses the round.
    fn make_update(
        &mut self,
        round: Round,
        support: &PublicSupport,
        model: &[u8],
    ) -> Result<dphe::Update, Error>;

    /// Notes that a round has ended. It is called for every round that ends, even if no update was made for it.
    /// `included` says whether the user's update is known to be in the sum.
    fn finished(&mut self, _round: Round, _included: bool) {}

    /// Returns what stops training from another thread, if the trainer can be stopped.
    fn stop(&self) -> Option<StopTraining> {
        None
    }
}

/// Stops the training of rounds that are over.
#[derive(Clone, Debug, Default)]
pub struct StopTraining(Arc<AtomicU64>);

impl StopTraining {
    /// Stops training for this round and earlier ones.
    pub fn up_to(&self, round: Round) {
        self.0.fetch_max(round.get(), Ordering::Relaxed);
    }

    /// Stops training for all rounds.
    pub fn all(&self) {
        self.0.store(u64::MAX, Ordering::Relaxed);
    }

    /// Returns whether training for this round has been stopped.
    pub fn is_stopped(&self, round: Round) -> bool {
        self.0.load(Ordering::Relaxed) >= round.get()
    }
}

/// Makes the aggregator's models.
pub trait ModelMaker: Send + 'static {
    /// Makes the next model from the sum of a round and the model that the round started from. The same input must give
    /// the same bytes, because the aggregator asks again after a crash.
    ///
    /// # Errors
    /// If the sum does not give a model. The round then ends with the model that it started from.
    fn next_model(&mut self, sum: &WeightSum, model: &[u8]) -> Result<Vec<u8>, Error>;

    /// Returns the accuracy of a model, from 0 to 1, if it can be measured.
    fn accuracy(&mut self, _model: &[u8]) -> Option<f64> {
        None
    }
}

impl<T: Trainer + ?Sized> Trainer for Box<T> {
    fn make_update(
        &mut self,
        round: Round,
        support: &PublicSupport,
        model: &[u8],
    ) -> Result<dphe::Update, Error> {
        (**self).make_update(round, support, model)
    }

    fn finished(&mut self, round: Round, included: bool) {
        (**self).finished(round, included);
    }

    fn stop(&self) -> Option<StopTraining> {
        (**self).stop()
    }
}

impl<M: ModelMaker + ?Sized> ModelMaker for Box<M> {
    fn next_model(&mut self, sum: &WeightSum, model: &[u8]) -> Result<Vec<u8>, Error> {
        (**self).next_model(sum, model)
    }

    fn accuracy(&mut self, model: &[u8]) -> Option<f64> {
        (**self).accuracy(model)
    }
}

/// Returns the model maker of a task, without held-out data.
///
/// # Errors
/// If a number of the task file is out of range.
pub fn model_maker(task_file: &TaskFile, task: TaskParams) -> Result<Box<dyn ModelMaker>, Error> {
    Ok(match &task_file.trained {
        Trained::Linear(_) => Box::new(LinearModelMaker::new(task_file, task)?),
        Trained::Tensors(_) => Box::new(TensorModelMaker::new(task_file, task)?),
    })
}

/// A maker that is used on threads for blocking work.
pub(crate) type SharedMaker = Arc<Mutex<Box<dyn ModelMaker>>>;

/// A user with data that trains linear models.
pub struct LinearTrainer<T = f32> {
    rules: RoundRules,
    data: Dataset<T>,
    seed: Seed,
    residual: StoredResidual,
}

impl<T: Real> LinearTrainer<T> {
    /// Creates the trainer of a user with these data. The order of samples follows from `seed`, the user's own.
    ///
    /// # Errors
    /// If a number of the task file's learner is out of range, or the data do not have the shape of its model.
    pub fn new(task_file: &TaskFile, task: TaskParams, data: Dataset<T>, seed: Seed) -> Result<Self, Error> {
        let linear = task_file.linear()?;
        let rules = linear.rules(task)?;
        linear.model_size().check_data(&data).map_err(dphe_federate::Error::from)?;
        Ok(Self { rules, data, seed, residual: StoredResidual::default() })
    }

    /// Trains with another learner, such as [`Learner::custom`]. The payload stays the task's.
    ///
    /// # Errors
    /// If the learner cannot fill the payload.
    pub fn with_learner(mut self, learner: impl Into<Learner>) -> Result<Self, Error> {
        let trainer =
            LocalTrainer::new(learner, self.rules.trainer().payload()).map_err(dphe_federate::Error::from)?;
        self.rules = self.rules.with_trainer(trainer);
        Ok(self)
    }

    /// Trains on this many threads. Updates do not depend on it.
    ///
    /// # Errors
    /// As [`LocalTrainer::with_threads`].
    pub fn with_threads(mut self, threads: Threads) -> Result<Self, Error> {
        let threads = NonZeroUsize::new(threads.get()).unwrap_or(NonZeroUsize::MIN);
        let trainer = self.rules.trainer().with_threads(threads).map_err(dphe_federate::Error::from)?;
        self.rules = self.rules.with_trainer(trainer);
        Ok(self)
    }

    /// Keeps the residual in this file, so that it outlives the process. A file that cannot be read is ignored:
    /// later rounds learn the lost differences again.
    #[must_use]
    pub fn with_residual_file(mut self, path: PathBuf) -> Self {
        self.residual = StoredResidual::open(path, self.rules.task().dimension());
        self
    }
}

impl<T: Real> Trainer for LinearTrainer<T> {
    fn make_update(
        &mut self,
        round: Round,
        support: &PublicSupport,
        model: &[u8],
    ) -> Result<dphe::Update, Error> {
        let global = GlobalWeights::from_bytes(model)?;
        let round = LocalRound::new(&self.rules, round, support, &global)?;
        let local = round.train(&self.data, &self.seed)?;
        let update = round.update(&local, self.data.len(), self.residual.get_mut())?;
        self.residual.store();
        Ok(update)
    }

    fn finished(&mut self, round: Round, included: bool) {
        self.residual.get_mut().finish(round, included);
        self.residual.store();
    }
}

/// A user's residual, and the file that it is kept in.
#[derive(Default)]
pub(crate) struct StoredResidual {
    residual: RoundResidual,
    file: Option<PathBuf>,
}

impl StoredResidual {
    /// Reads the residual of a task with this many weights, if there is one.
    pub(crate) fn open(file: PathBuf, dimension: usize) -> Self {
        let mut residual = RoundResidual::default();
        if file.exists() {
            match read_residual(&file, dimension) {
                Some(read) => residual = read,
                None => {
                    tracing::warn!(file = %file.display(), "the residual cannot be read and is reset");
                }
            }
        }
        Self { residual, file: Some(file) }
    }

    pub(crate) fn get_mut(&mut self) -> &mut RoundResidual {
        &mut self.residual
    }

    pub(crate) fn store(&self) {
        let Some(path) = &self.file else { return };
        if let Err(error) = write_residual(path, &self.residual) {
            tracing::warn!(file = %path.display(), %error, "the residual cannot be written");
        }
    }
}

const RESIDUAL_MAGIC: &[u8; 8] = b"DPHERES1";

/// Writes the magic number, the pending round (0 if there is none), the settled residual and the pending one.
fn write_residual(path: &Path, residual: &RoundResidual) -> std::io::Result<()> {
    let mut bytes = zeroize::Zeroizing::new(RESIDUAL_MAGIC.to_vec());
    let none = Residual::new();
    let (round, pending) = residual.pending().map_or((0, &none), |(round, pending)| (round.get(), pending));
    bytes.extend(round.to_be_bytes());
    for part in [residual.settled(), pending] {
        bytes.extend((part.values().len() as u64).to_be_bytes());
        part.values().iter().for_each(|value| bytes.extend(value.to_be_bytes()));
    }
    files::replace_private(path, &bytes)
}

/// Reads a residual. One of another task would make every round fail, so it is not returned.
fn read_residual(path: &Path, dimension: usize) -> Option<RoundResidual> {
    // the magic number, the round, and two lists with their lengths
    let most = 32 + 16 * dimension as u64;
    let bytes = zeroize::Zeroizing::new(files::read_at_most(path, most).ok()?);
    let mut words = bytes.strip_prefix(RESIDUAL_MAGIC)?.as_chunks::<8>().0.iter().copied();
    let round = u64::from_be_bytes(words.next()?);
    let mut residual = || {
        let count = usize::try_from(u64::from_be_bytes(words.next()?)).ok()?;
        let values: Vec<f64> = words.by_ref().take(count).map(f64::from_be_bytes).collect();
        (values.len() == count).then(|| Residual::from_values(values).ok())?
    };
    let (settled, pending) = (residual()?, residual()?);
    let both = RoundResidual::from_parts(settled, Round::new(round).map(|round| (round, pending)));
    both.fits(dimension).then_some(both)
}

/// Makes the aggregator's linear models.
pub struct LinearModelMaker {
    rules: RoundRules,
    held_out: Option<Dataset>,
}

impl LinearModelMaker {
    /// Creates the model maker of a task.
    ///
    /// # Errors
    /// If a number of the task file's learner is out of range.
    pub fn new(task_file: &TaskFile, task: TaskParams) -> Result<Self, Error> {
        Ok(Self { rules: task_file.linear()?.rules(task)?, held_out: None })
    }

    /// Measures accuracies on these samples, which are standardised like the users'.
    #[must_use]
    pub fn with_held_out_data(mut self, data: Dataset) -> Self {
        self.held_out = Some(data);
        self
    }
}

impl ModelMaker for LinearModelMaker {
    fn next_model(&mut self, sum: &WeightSum, model: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.rules.apply(&GlobalWeights::from_bytes(model)?, sum)?.to_bytes())
    }

    fn accuracy(&mut self, model: &[u8]) -> Option<f64> {
        let held_out = self.held_out.as_ref()?;
        GlobalWeights::from_bytes(model).ok()?.accuracy(held_out, all_cores()).ok()
    }
}

/// Makes the aggregator's models of named tensors.
pub struct TensorModelMaker {
    sections: TensorSections,
    rules: VectorRules,
}

impl TensorModelMaker {
    /// Creates the model maker of a task.
    ///
    /// # Errors
    /// If the task trains no tensors, or a number of the task file is out of range.
    pub fn new(task_file: &TaskFile, task: TaskParams) -> Result<Self, Error> {
        let sections = task_file.tensors()?.clone();
        Ok(Self { rules: sections.rules(task)?, sections })
    }
}

impl ModelMaker for TensorModelMaker {
    fn next_model(&mut self, sum: &WeightSum, model: &[u8]) -> Result<Vec<u8>, Error> {
        let model = self.sections.model(model.to_vec())?;
        Ok(model.with_step(&self.rules.step(sum)?)?.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residual_file_is_private_and_truncated_or_infinite_ones_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("residual.bin");
        let of = |values: &[f64]| Residual::from_values(values.to_vec()).unwrap();
        let (settled, pending) = (of(&[0.5, -1e-9]), of(&[0.25, 3.0]));
        let both = RoundResidual::from_parts(settled.clone(), Some((Round::new(7).unwrap(), pending)));
        write_residual(&path, &both).unwrap();
        assert_eq!(read_residual(&path, 2).unwrap(), both);
        assert!(read_residual(&path, 3).is_none());
        let alone = RoundResidual::from_parts(settled, None);
        write_residual(&path, &alone).unwrap();
        assert_eq!(read_residual(&path, 2).unwrap(), alone);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        let bytes = std::fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            assert!(read_residual(&path, 2).is_none(), "{length}");
        }
        let mut infinite = bytes.clone();
        infinite[24..32].copy_from_slice(&f64::INFINITY.to_be_bytes());
        std::fs::write(&path, &infinite).unwrap();
        assert!(read_residual(&path, 2).is_none());
    }
}
