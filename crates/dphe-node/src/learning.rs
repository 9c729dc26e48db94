//! What the parties' programs learn: a user turns a model into an update, the aggregator a sum into the next model.

use std::path::{Path, PathBuf};

use dphe::{PublicSupport, Round, TaskParams, WeightSum};
use dphe_federate::{Codec, Weighting, trainer_of_round};
use dphe_learn::update::{LocalTrainer, Residual, RoundInput};
use dphe_learn::{Dataset, Real, Seed, Threads, Weights};

use crate::task_file::TaskFile;
use crate::{Error, files};

/// A user's learner. It is called in a thread of its own and may take its time.
pub trait Trainer: Send + 'static {
    /// The update of a round, from the model that everybody starts from.
    ///
    /// # Errors
    /// If it cannot learn; the user then sits the round out.
    fn train(
        &mut self,
        round: Round,
        support: &PublicSupport,
        model: &[u8],
    ) -> Result<dphe::LocalUpdate, Error>;

    /// A round it trained for is over; `included` says whether its update is in the sum.
    fn finished(&mut self, _round: Round, _included: bool) {}
}

/// The aggregator's learner.
pub trait ModelMaker: Send + 'static {
    /// The next model, from the sum of a round and the model it started from. The same input must give the same
    /// bytes: after a crash it is asked again.
    ///
    /// # Errors
    /// If the sum makes no model; the round then ends with the model it began with.
    fn next_model(&mut self, round: Round, sum: &WeightSum, model: &[u8]) -> Result<Vec<u8>, Error>;

    /// How good a model is, from 0 to 1, if that can be told.
    fn accuracy(&mut self, _model: &[u8]) -> Option<f64> {
        None
    }
}

const MAGIC: &[u8; 8] = b"DPHEMDL1";
const HEADER: usize = 16;

/// A model as bytes: magic, features, classes, weights and intercepts. The same model has the same bytes everywhere.
pub fn model_to_bytes(model: &Weights) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    // more of either could not have been summed
    bytes.extend((model.features() as u32).to_be_bytes());
    bytes.extend((model.classes() as u32).to_be_bytes());
    for weight in model.flat().iter().chain(model.intercepts()) {
        bytes.extend(weight.to_be_bytes());
    }
    bytes
}

/// Reads a model.
///
/// # Errors
/// [`Error::Model`] if it is none.
pub fn model_from_bytes(bytes: &[u8]) -> Result<Weights, Error> {
    let error = |reason| Error::Model { reason };
    let (header, values) = bytes.split_at_checked(HEADER).ok_or(error("it is cut short"))?;
    let (magic, shape) = header.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(error("it does not begin like a model"));
    }
    let number = |at: usize| {
        let mut digits = [0; 4];
        digits.copy_from_slice(&shape[at..at + 4]);
        u32::from_be_bytes(digits) as u64
    };
    let (features, classes) = (number(0), number(4));
    let expected =
        features.checked_mul(classes).and_then(|n| n.checked_add(classes)).and_then(|n| n.checked_mul(8));
    if expected != Some(values.len() as u64) {
        return Err(error("its length is not that of its shape"));
    }
    let mut flat: Vec<f64> = values
        .chunks_exact(8)
        .map(|bytes| {
            let mut digits = [0; 8];
            digits.copy_from_slice(bytes);
            f64::from_be_bytes(digits)
        })
        .collect();
    // the whole is in memory, so its parts are no longer than an index
    let intercepts = flat.split_off((features * classes) as usize);
    Weights::new(features as usize, flat, intercepts).map_err(|_| error("a weight is not a number"))
}

/// A user with data, by the rules of the task: the same as in a simulation.
pub struct LinearTrainer<T = f32> {
    task: TaskParams,
    codec: Codec,
    trainer: LocalTrainer,
    data: Dataset<T>,
    seed: Seed,
    residual: Residual,
    /// What the residual becomes if the round counts.
    pending: Option<(Round, Residual)>,
    memory: Option<PathBuf>,
}

impl<T: Real> LinearTrainer<T> {
    /// The user with these data. `seed` is its own: from it comes the order of samples.
    ///
    /// # Errors
    /// If the task file's learner cannot be, or the data do not have its shape.
    pub fn new(task_file: &TaskFile, task: TaskParams, data: Dataset<T>, seed: Seed) -> Result<Self, Error> {
        let trainer = task_file.trainer().map_err(dphe_federate::Error::Learn)?;
        for (what, expected, found) in [
            ("features", task_file.model.features as usize, data.features().width()),
            ("classes", task_file.model.classes as usize, data.labels().class_count()),
        ] {
            if expected != found {
                return Err(
                    dphe_federate::Error::Learn(dphe_learn::Error::Shape { what, expected, found }).into()
                );
            }
        }
        let codec = Codec::new(task.clone(), Weighting::Equal)?;
        Ok(Self { task, codec, trainer, data, seed, residual: Residual::new(), pending: None, memory: None })
    }

    /// Keeps what messages leave out in this file too, so that it outlives the process. What cannot be read is given up:
    /// it is learnt again, in time.
    #[must_use]
    pub fn with_memory(mut self, path: PathBuf) -> Self {
        if path.exists() {
            match read_memory(&path) {
                // of another task, it would stop every round of this one
                Some((residual, pending)) if self.fits(&residual, pending.as_ref()) => {
                    (self.residual, self.pending) = (residual, pending);
                }
                _ => {
                    tracing::warn!(file = %path.display(), "what was left to send cannot be read: begun anew")
                }
            }
        }
        self.memory = Some(path);
        self
    }

    fn fits(&self, settled: &Residual, pending: Option<&(Round, Residual)>) -> bool {
        let all = self.data.features().width() * self.data.labels().class_count();
        let mut residuals = [settled].into_iter().chain(pending.map(|(_, residual)| residual));
        residuals.all(|residual| [0, all].contains(&residual.values().len()))
    }

    fn remember(&self) {
        let Some(path) = &self.memory else { return };
        if let Err(error) = write_memory(path, &self.residual, self.pending.as_ref()) {
            tracing::warn!(file = %path.display(), %error, "what is left to send cannot be kept");
        }
    }
}

impl<T: Real> Trainer for LinearTrainer<T> {
    fn train(
        &mut self,
        round: Round,
        _support: &PublicSupport,
        model: &[u8],
    ) -> Result<dphe::LocalUpdate, Error> {
        let global = model_from_bytes(model)?;
        self.codec.check(&global, self.trainer.message())?;
        let features = self.codec.features(round, &global);
        let trainer = trainer_of_round(&self.trainer, &self.task, round)?;
        let mut residual = self.residual.clone();
        let input = RoundInput { global: &global, features: &features };
        let seed = self.seed.derive("round", round.get());
        let update =
            trainer.update(input, &self.data, &mut residual, &seed).map_err(dphe_federate::Error::Learn)?;
        self.pending = Some((round, residual));
        self.remember();
        Ok(self.codec.encode(&global, update, self.data.len())?)
    }

    fn finished(&mut self, round: Round, included: bool) {
        // what was not summed is still to be sent
        if let Some((of, residual)) = self.pending.take()
            && of == round
            && included
        {
            self.residual = residual;
        }
        self.remember();
    }
}

const MEMORY: &[u8; 8] = b"DPHERES1";

/// Magic, then what is settled, the round that is not (0 without one), and what will be if that counts.
fn write_memory(path: &Path, settled: &Residual, pending: Option<&(Round, Residual)>) -> std::io::Result<()> {
    let mut bytes = zeroize::Zeroizing::new(MEMORY.to_vec());
    let none = Residual::new();
    let (round, open) = pending.map_or((0, &none), |(round, residual)| (round.get(), residual));
    bytes.extend(round.to_be_bytes());
    for residual in [settled, open] {
        bytes.extend((residual.values().len() as u64).to_be_bytes());
        residual.values().iter().for_each(|value| bytes.extend(value.to_be_bytes()));
    }
    files::replace_private(path, &bytes)
}

/// No residual is longer.
const MAX_MEMORY: u64 = 1 << 30;

#[allow(clippy::type_complexity, reason = "what the trainer keeps")]
fn read_memory(path: &Path) -> Option<(Residual, Option<(Round, Residual)>)> {
    let bytes = zeroize::Zeroizing::new(files::read_at_most(path, MAX_MEMORY).ok()?);
    let mut words = bytes.strip_prefix(MEMORY)?.as_chunks::<8>().0.iter().copied();
    let round = u64::from_be_bytes(words.next()?);
    let mut residual = || {
        let count = usize::try_from(u64::from_be_bytes(words.next()?)).ok()?;
        let values: Vec<f64> = words.by_ref().take(count).map(f64::from_be_bytes).collect();
        (values.len() == count).then(|| Residual::from_values(values).ok())?
    };
    let (settled, open) = (residual()?, residual()?);
    Some((settled, Round::new(round).map(|round| (round, open))))
}

/// The aggregator's part of linear models.
pub struct LinearModelMaker {
    codec: Codec,
    trainer: LocalTrainer,
    server_step: f64,
    held_out: Option<Dataset>,
}

impl LinearModelMaker {
    /// By the rules of the task.
    ///
    /// # Errors
    /// If the task file's learner cannot be.
    pub fn new(task_file: &TaskFile, task: TaskParams) -> Result<Self, Error> {
        let trainer = task_file.trainer().map_err(dphe_federate::Error::Learn)?;
        let codec = Codec::new(task, Weighting::Equal)?;
        Ok(Self { codec, trainer, server_step: task_file.learner.server_step, held_out: None })
    }

    /// Tells how good models are on these samples, standardised as everybody's are.
    #[must_use]
    pub fn with_held_out_data(mut self, data: Dataset) -> Self {
        self.held_out = Some(data);
        self
    }
}

impl ModelMaker for LinearModelMaker {
    fn next_model(&mut self, _round: Round, sum: &WeightSum, model: &[u8]) -> Result<Vec<u8>, Error> {
        let global = model_from_bytes(model)?;
        let averaged = self.codec.decode(&global, self.trainer.message().kind(), sum)?;
        let next = averaged.sum.apply(&global, self.server_step).map_err(dphe_federate::Error::Learn)?;
        Ok(model_to_bytes(&next))
    }

    fn accuracy(&mut self, model: &[u8]) -> Option<f64> {
        let held_out = self.held_out.as_ref()?;
        model_from_bytes(model).ok()?.accuracy(held_out, Threads::all()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_to_send_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("residual.bin");
        let of = |values: &[f64]| Residual::from_values(values.to_vec()).unwrap();
        let (settled, open) = (of(&[0.5, -1e-9]), of(&[0.25, 3.0]));
        let round = Round::new(7).unwrap();
        write_memory(&path, &settled, Some(&(round, open.clone()))).unwrap();
        let (first, pending) = read_memory(&path).unwrap();
        assert_eq!((first.values(), pending.unwrap().1.values()), (settled.values(), open.values()));
        write_memory(&path, &settled, None).unwrap();
        assert!(read_memory(&path).unwrap().1.is_none());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        // cut anywhere, or with a number that is none, it is not taken
        let bytes = std::fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            assert!(read_memory(&path).is_none(), "{length}");
        }
        let mut infinite = bytes.clone();
        infinite[24..32].copy_from_slice(&f64::INFINITY.to_be_bytes());
        std::fs::write(&path, &infinite).unwrap();
        assert!(read_memory(&path).is_none());
    }

    #[test]
    fn models_are_canonical_and_bounded() {
        let model = Weights::new(2, vec![0.5, -1.0, 0.0, 3.0, 1e-300, 2.0], vec![1.0, 2.0, 3.0]).unwrap();
        let bytes = model_to_bytes(&model);
        let again = model_from_bytes(&bytes).unwrap();
        assert_eq!((&again, model_to_bytes(&again)), (&model, bytes.clone()));
        for length in 0..bytes.len() {
            assert!(model_from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        let changed = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            model_from_bytes(&bytes)
        };
        // a lie about the shape, another file, a weight that is infinite
        assert!(changed(8, 255).is_err() && changed(15, 0).is_err() && changed(0, b'x').is_err());
        let mut infinite = bytes.clone();
        infinite[HEADER..HEADER + 8].copy_from_slice(&f64::INFINITY.to_be_bytes());
        assert!(model_from_bytes(&infinite).is_err());
    }
}
