//! A user's update as the protocol takes it, and the opened sum as the learner takes it: what a simulation and parties
//! on different machines share, so that both come to the same weights.

use dphe::{PublicSupport, Round, SparseVector, TaskParams, WeightSum};
use dphe_learn::Weights;
use dphe_learn::linear::{Schedule, Stable};
use dphe_learn::update::{Learner, LocalTrainer, LocalUpdate, Message, UpdateKind};

use super::numbers::{Form, Numbers};
use super::{Averaged, Contribution, Weighting, check_message, check_model, check_update, check_weighting};
use crate::Error;

/// How numbers travel in a task.
#[derive(Clone, Debug)]
pub struct Codec {
    task: TaskParams,
    weighting: Weighting,
}

impl Codec {
    /// The codec of a task.
    ///
    /// # Errors
    /// If the task cannot hold the counts of the weighting.
    pub fn new(task: TaskParams, weighting: Weighting) -> Result<Self, Error> {
        check_weighting(&task, weighting)?;
        Ok(Self { task, weighting })
    }

    /// Fails unless the task was made for this model and this message.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::Unsuited`].
    pub fn check(&self, global: &Weights, message: Message) -> Result<(), Error> {
        check_message(&self.task, self.weighting, global, message)
    }

    /// What one user sends: its update from these public weights, learnt from this many samples.
    ///
    /// # Errors
    /// If the update does not fit the model or the task.
    pub fn encode(
        &self,
        global: &Weights,
        update: LocalUpdate,
        samples: usize,
    ) -> Result<dphe::LocalUpdate, Error> {
        check_model(&self.task, self.weighting, global, true)?;
        check_update(global, &update)?;
        let form = Form::of(&self.task, self.weighting, global);
        encode(&self.task, &form, &Contribution { user: 0, update, samples })
    }

    /// What the opened sum of updates of one kind from these public weights says.
    ///
    /// # Errors
    /// If the sum does not fit the model.
    pub fn decode(&self, global: &Weights, kind: UpdateKind, sum: &WeightSum) -> Result<Averaged, Error> {
        check_model(&self.task, self.weighting, global, true)?;
        decode(&self.task, &Form::of(&self.task, self.weighting, global), kind, sum)
    }

    /// The features that everybody trains in a round; all, where the task has private supports.
    pub fn features(&self, round: Round, global: &Weights) -> Vec<usize> {
        features(&self.task, round, global)
    }
}

pub(super) fn features(task: &TaskParams, round: Round, global: &Weights) -> Vec<usize> {
    if task.has_private_support() {
        return (0..global.features()).collect();
    }
    let mut features: Vec<usize> =
        PublicSupport::of(task, round).indices().map(|i| i / global.classes()).collect();
    features.dedup();
    features
}

pub(super) fn encode(
    task: &TaskParams,
    form: &Form,
    contribution: &Contribution,
) -> Result<dphe::LocalUpdate, Error> {
    let Numbers { indices, values, dense } = form.numbers(contribution);
    // below the dimension, which is below 2^30
    let indices = indices.into_iter().map(|index| index as u32).collect();
    Ok(dphe::LocalUpdate::new(SparseVector::new(task.dimension(), indices, values)?).with_dense(dense))
}

pub(super) fn decode(
    task: &TaskParams,
    form: &Form,
    kind: UpdateKind,
    sum: &WeightSum,
) -> Result<Averaged, Error> {
    let (flat, dense) = sums(task, sum);
    form.averaged(kind, sum.users(), flat, dense)
}

/// The exact sums as floating point: dividing by a power of two loses nothing below 2^53.
fn sums(task: &TaskParams, sum: &WeightSum) -> (Vec<f64>, Vec<f64>) {
    let scale = 2f64.powi(task.config().scale_bits.into());
    let decode = |&integer: &i64| integer as f64 / scale;
    let dense = sum.dense().iter().map(decode).collect();
    let Some(support) = sum.support() else {
        return (sum.weights().iter().map(decode).collect(), dense);
    };
    let mut flat = vec![0.0; task.dimension()];
    for (index, integer) in support.indices().zip(sum.weights()) {
        flat[index] = decode(integer);
    }
    (flat, dense)
}

/// The trainer with the steps of a round: `rotate` divides them by the number of passes over all features, so that
/// rounds settle; others keep theirs.
///
/// # Errors
/// None for a trainer that was checked.
pub fn trainer_of_round(
    trainer: &LocalTrainer,
    task: &TaskParams,
    round: Round,
) -> Result<LocalTrainer, Error> {
    let Learner::Sgd(sgd) = trainer.learner() else { return Ok(trainer.clone()) };
    let mut params = sgd.params().clone();
    let Schedule::Stable(stable) = params.schedule else { return Ok(trainer.clone()) };
    if trainer.message() != Message::Rotating {
        return Ok(trainer.clone());
    }
    let shares = u64::from(task.positions()).div_ceil(task.capacity() as u64);
    let pass = (round.get() - 1) / shares;
    params.schedule = Schedule::Stable(Stable { step: stable.step / (1.0 + pass as f64), ..stable });
    Ok(LocalTrainer::new(params.check()?, Message::Rotating)?)
}
