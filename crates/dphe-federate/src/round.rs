//! One round, as users and aggregators of a simulation and of a deployment compute it.
//!
//! A user's [`LocalRound`] trains [`LocalWeights`] from [`GlobalWeights`] and turns them into a [`dphe::Update`].
//! When the sum is opened, [`RoundRules::apply`] turns it into the next global weights. Sealing, adding and opening
//! lie between them and belong to [`dphe`].

use dphe::{PublicSupport, Round, TaskParams, WeightSum};
use dphe_learn::linear::{Schedule, Stable};
use dphe_learn::update::{Learner, LocalTrainer, Payload, Residual, RoundInput, UpdateKind, guarded_step};
use dphe_learn::{Dataset, Real, Seed};

use crate::average::{Scaling, ValueSum};
use crate::spec::check_server_step;
use crate::task::check_pair;
use crate::{Error, GlobalWeights, LocalWeights, PayloadName, Weighting};

/// How the rounds of a task are computed. All parties know it, and it is the same in a simulation and in a deployment.
#[derive(Clone, Debug)]
pub struct RoundRules {
    task: TaskParams,
    weighting: Weighting,
    trainer: LocalTrainer,
    server_step: f64,
    shrink_steps: bool,
}

impl RoundRules {
    /// Creates the rules of a task, with a server step of 1 and steps of `rotate` that shrink over rounds.
    ///
    /// # Errors
    /// If the fixed point of the task cannot represent the counts of the weighting.
    pub fn new(task: TaskParams, weighting: Weighting, trainer: LocalTrainer) -> Result<Self, Error> {
        weighting.check_task(&task)?;
        Ok(Self { task, weighting, trainer, server_step: 1.0, shrink_steps: true })
    }

    /// Multiplies the average of differences by this factor before it is added to the global weights. A factor above 1
    /// is shortened in rounds that it would make diverge (see [`guarded_step`]).
    ///
    /// # Errors
    /// If the factor is not positive.
    pub fn with_server_step(mut self, server_step: f64) -> Result<Self, Error> {
        check_server_step(server_step)?;
        self.server_step = server_step;
        Ok(self)
    }

    /// Sets whether `rotate` divides its steps by the number of passes over all features, so that rounds converge.
    #[must_use]
    pub fn with_shrinking_steps(self, shrink_steps: bool) -> Self {
        Self { shrink_steps, ..self }
    }

    /// Returns the same rules with another trainer.
    #[must_use]
    pub fn with_trainer(self, trainer: LocalTrainer) -> Self {
        Self { trainer, ..self }
    }

    /// Returns the task.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    /// Returns the trainer of the first round.
    pub fn trainer(&self) -> &LocalTrainer {
        &self.trainer
    }

    /// Fails unless the task was made for this model and the payload.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::Unsuited`].
    pub fn check(&self, global: &GlobalWeights) -> Result<(), Error> {
        let (task, payload) = (&self.task, self.trainer.payload());
        self.check_model(global)?;
        check_pair(task.profile(), payload)?;
        if payload == Payload::Rotating && task.block() != global.classes() {
            let (what, task, model) = ("weights of a position", task.block(), global.classes());
            return Err(Error::Shape { what, task, model });
        }
        let is_part = task.capacity() < task.positions() as usize;
        if !task.has_private_support() && payload != Payload::Rotating && is_part {
            return Err(Error::Unsuited {
                payload: PayloadName::of(payload),
                profile: task.profile(),
                remedy: "the task's updates carry a share of the features, so raise its capacity to all of them or \
                         use `rotate`",
            });
        }
        Ok(())
    }

    /// Fails unless the task has as many weights and dense values as the model needs.
    fn check_model(&self, global: &GlobalWeights) -> Result<(), Error> {
        let dense = global.classes() + self.weighting.values();
        // Tasks for sparsity by L1 may have one more dense value, the density.
        let with_density = self.trainer.payload().is_sparse_by_l1() && self.task.dense() == dense + 1;
        for (what, task, model) in [
            ("weights", self.task.dimension(), global.dimension()),
            ("dense values", self.task.dense(), dense + usize::from(with_density)),
        ] {
            if task != model {
                return Err(Error::Shape { what, task, model });
            }
        }
        Ok(())
    }

    /// Returns the trainer with the steps of a round.
    fn trainer_of(&self, round: Round) -> Result<LocalTrainer, Error> {
        let payload = self.trainer.payload();
        let Learner::Sgd(sgd) = self.trainer.learner() else { return Ok(self.trainer.clone()) };
        let mut params = sgd.params().clone();
        match params.schedule {
            Schedule::Stable(stable) if self.shrink_steps && payload == Payload::Rotating => {
                let shares = u64::from(self.task.positions()).div_ceil(self.task.capacity() as u64);
                let pass = (round.get() - 1) / shares;
                let step = stable.step / (1.0 + pass as f64);
                params.schedule = Schedule::Stable(Stable { step, ..stable });
                Ok(LocalTrainer::new(params.check()?, payload)?)
            }
            _ => Ok(self.trainer.clone()),
        }
    }

    /// Computes the next global weights from the opened sum of a round. The same input gives the same bytes everywhere.
    ///
    /// # Errors
    /// If the sum does not fit the model, or the next weights are not finite.
    pub fn apply(&self, global: &GlobalWeights, sum: &WeightSum) -> Result<GlobalWeights, Error> {
        Ok(self.apply_values(sum.round(), global, &ValueSum::of(&self.task, sum))?.global)
    }

    /// As [`RoundRules::apply`], for a sum in floating point.
    ///
    /// # Errors
    /// As [`RoundRules::apply`].
    pub fn apply_values(
        &self,
        round: Round,
        global: &GlobalWeights,
        sum: &ValueSum,
    ) -> Result<Applied, Error> {
        self.check_model(global)?;
        let scaling = Scaling::of(&self.task, self.weighting, global)?;
        let (sum, density) = scaling.restore(self.trainer.payload().kind(), sum)?;
        let server_step = match sum.kind() {
            UpdateKind::Difference => {
                guarded_step(self.server_step, round.get(), sum.relative_length(global))
            }
            UpdateKind::Weights => 1.0,
        };
        Ok(Applied { global: sum.apply(global, server_step)?.into(), density, server_step })
    }
}

/// The result of applying a sum.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The next global weights.
    pub global: GlobalWeights,
    /// The average density of the users' local weights, if the task sums it.
    pub density: Option<f64>,
    /// The server step: that of the task, or less if it would have changed the weights too much.
    pub server_step: f64,
}

/// One user's part of a round.
#[derive(Debug)]
pub struct LocalRound<'a> {
    rules: &'a RoundRules,
    round: Round,
    global: &'a GlobalWeights,
    features: Vec<usize>,
    trainer: LocalTrainer,
}

impl<'a> LocalRound<'a> {
    /// Starts a round from these global weights. `support` is the round's public support.
    ///
    /// # Errors
    /// As [`RoundRules::check`].
    pub fn new(
        rules: &'a RoundRules,
        round: Round,
        support: &PublicSupport,
        global: &'a GlobalWeights,
    ) -> Result<Self, Error> {
        rules.check(global)?;
        let mut features: Vec<usize> = match rules.task.has_private_support() {
            true => (0..global.features()).collect(),
            false => support.indices().map(|index| index / global.classes()).collect(),
        };
        features.dedup();
        Ok(Self { rules, round, global, features, trainer: rules.trainer_of(round)? })
    }

    fn input(&self) -> RoundInput<'_> {
        RoundInput { global: self.global, features: &self.features }
    }

    /// Trains the local weights. `seed` is the user's own; the round is mixed in.
    ///
    /// # Errors
    /// If the data do not have the shape of the model, or the weights diverge.
    pub fn train<T: Real>(&self, data: &Dataset<T>, seed: &Seed) -> Result<LocalWeights, Error> {
        let seed = seed.derive("round", self.round.get());
        Ok(LocalWeights::new(self.trainer.train(self.input(), data, &seed)?))
    }

    /// Makes the update, ready to be sealed, from local weights that were trained on this many samples. They may come
    /// from any learner. What the update leaves out is added to `residual` once the update is known to be in the sum.
    ///
    /// # Errors
    /// If the weights do not fit the model or the task.
    pub fn update(
        &self,
        local: &LocalWeights,
        samples: usize,
        residual: &mut RoundResidual,
    ) -> Result<dphe::Update, Error> {
        let mut next = residual.settled.clone();
        let update = self.trainer.payload().update(self.input(), local.weights(), &mut next)?;
        let scaling = Scaling::of(&self.rules.task, self.rules.weighting, self.global)?;
        let update = scaling.scale(&update, samples)?;
        residual.await_end(self.round, next);
        Ok(update)
    }
}

/// A user's residual across rounds. An update's residual is pending until it is known whether the update is in the sum.
/// Secret.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundResidual {
    settled: Residual,
    pending: Option<(Round, Residual)>,
}

impl RoundResidual {
    /// Restores a stored residual. `pending` belongs to a round whose end is not known yet.
    pub fn from_parts(settled: Residual, pending: Option<(Round, Residual)>) -> Self {
        Self { settled, pending }
    }

    /// Returns what the updates that are in sums have left out.
    pub fn settled(&self) -> &Residual {
        &self.settled
    }

    /// Returns the round whose end is not known yet, and the residual that it leaves if its update is in the sum.
    pub fn pending(&self) -> Option<(Round, &Residual)> {
        self.pending.as_ref().map(|(round, residual)| (*round, residual))
    }

    /// Notes the residual that a round leaves if its update is in the sum.
    pub(crate) fn await_end(&mut self, round: Round, residual: Residual) {
        self.pending = Some((round, residual));
    }

    /// Ends a round. If the update is not in the sum, everything it carried is still to be sent.
    pub fn finish(&mut self, round: Round, included: bool) {
        if let Some((pending, residual)) = self.pending.take()
            && pending == round
            && included
        {
            self.settled = residual;
        }
    }

    /// Forgets everything, for a model that starts over.
    pub fn reset(&mut self) {
        self.settled.reset();
        self.pending = None;
    }

    /// Returns whether it can belong to a model with this many weights.
    pub fn fits(&self, dimension: usize) -> bool {
        let pending = self.pending.iter().map(|(_, residual)| residual);
        [&self.settled].into_iter().chain(pending).all(|r| [0, dimension].contains(&r.values().len()))
    }
}
