//! All users, the aggregator and the key generator of a task in one process.

mod convergence;
mod steer;

use std::num::NonZeroUsize;

use dphe::{PublicSupport, Round};
use dphe_learn::dataset::shares;
use dphe_learn::update::{LocalTrainer, Payload};
use dphe_learn::{Dataset, Real, Seed, StrengthController, Verdict};

use self::convergence::Convergence;
use self::steer::Steering;
use crate::average::{check_floor, has_density};
use crate::spec::{Named as _, PayloadName};
use crate::{
    Average, Error, GlobalWeights, LocalRound, ModelSize, RoundReport, RoundResidual, RoundRules, Seconds,
    Stopwatch, UserUpdate,
};

/// Which users take part in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Participation {
    /// All users.
    #[default]
    Everyone,
    /// This many, drawn anew in each round.
    Some(usize),
}

/// The parameters of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulationParams {
    /// Which users take part.
    pub participation: Participation,
    /// The factor applied to the average of differences. It is 1 for few users, and larger if many users with few
    /// samples dilute each other; [`UserNumbers::server_step`] proposes it. Rounds shorten it when they would diverge.
    ///
    /// [`UserNumbers::server_step`]: dphe_learn::update::UserNumbers::server_step
    pub server_step: f64,
    /// Whether `rotate` divides its steps by the number of passes over all features, so that rounds converge.
    pub shrink_steps: bool,
    /// Threads for computing accuracies. Results do not depend on it.
    pub threads: NonZeroUsize,
}

impl Default for SimulationParams {
    fn default() -> Self {
        Self {
            participation: Participation::Everyone,
            server_step: 1.0,
            shrink_steps: true,
            threads: NonZeroUsize::MIN,
        }
    }
}

/// Users with their data, and the model they train. All results follow from the data, the seed and the average.
pub struct Simulation<A, T = f32> {
    users: Vec<Dataset<T>>,
    residuals: Vec<RoundResidual>,
    rules: RoundRules,
    average: A,
    params: SimulationParams,
    seed: Seed,
    round: Round,
    global: GlobalWeights,
    initial: Option<Convergence<T>>,
    held_out: Option<Dataset<T>>,
    steering: Option<Steering>,
}

impl<A: Average, T: Real> Simulation<A, T> {
    /// Starts with these global weights.
    ///
    /// # Errors
    /// If the task does not fit the model and the payload, a user's data do not fit the model, the server step is not
    /// positive, or there are fewer users than the task demands.
    pub fn new(
        users: Vec<Dataset<T>>,
        initial: impl Into<GlobalWeights>,
        trainer: LocalTrainer,
        average: A,
        params: SimulationParams,
        seed: Seed,
    ) -> Result<Self, Error> {
        let initial = initial.into();
        let rules = RoundRules::new(average.task().clone(), average.weighting(), trainer)?
            .with_server_step(params.server_step)?
            .with_shrinking_steps(params.shrink_steps);
        rules.check(&initial)?;
        let size = ModelSize::of(&initial);
        for (user, data) in users.iter().enumerate() {
            size.check_data(data).map_err(|source| Error::OfUser { user, source })?;
        }
        check_floor(average.task(), users.len(), users.len())?;
        Ok(Self {
            residuals: vec![RoundResidual::default(); users.len()],
            users,
            rules,
            average,
            params,
            seed,
            round: Round::FIRST,
            global: initial,
            initial: None,
            held_out: None,
            steering: None,
        })
    }

    /// Lets the guard observe the accuracy on the initial data, which are public.
    ///
    /// # Errors
    /// If they do not fit the model.
    pub fn with_initial_data(mut self, data: Dataset<T>) -> Result<Self, Error> {
        ModelSize::of(&self.global).check_data(&data)?;
        self.initial = Some(Convergence::new(&self.global, data, self.params.threads)?);
        Ok(self)
    }

    /// Reports the accuracy on these data. Nothing else depends on them.
    ///
    /// # Errors
    /// If they do not fit the model.
    pub fn with_held_out_data(mut self, data: Dataset<T>) -> Result<Self, Error> {
        ModelSize::of(&self.global).check_data(&data)?;
        self.held_out = Some(data);
        Ok(self)
    }

    /// Lets a controller adjust the strength of L1, for `w-l1` and `d-l1`. All users have the same strength. It follows
    /// from the average density of the users' local weights, which is summed in a dense value that [`propose`]
    /// adds to such tasks. Too strong a penalty ruins a model over rounds, so also call
    /// [`Simulation::with_initial_data`].
    ///
    /// [`propose`]: crate::propose
    ///
    /// # Errors
    /// If the strength has no influence on the payload, or the task has no value for the share.
    pub fn with_controller(mut self, controller: StrengthController) -> Result<Self, Error> {
        check_steered(self.rules.trainer())?;
        let task = self.average.task();
        if !has_density(task, self.average.weighting(), &self.global) {
            let (task, model) = (task.dense(), task.dense() + 1);
            return Err(Error::Shape { what: "dense values", task, model });
        }
        self.steering = Some(Steering::new(controller));
        Ok(self)
    }

    /// Continues a training whose earlier rounds are over: the next round has this number.
    #[must_use]
    pub fn starting_at(self, round: Round) -> Self {
        Self { round, ..self }
    }

    /// Returns the global weights.
    pub fn global(&self) -> &GlobalWeights {
        &self.global
    }

    /// Returns the next round.
    pub fn next_round(&self) -> Round {
        self.round
    }

    /// Returns the average.
    pub fn average(&self) -> &A {
        &self.average
    }

    /// Returns the average.
    pub fn into_average(self) -> A {
        self.average
    }

    /// Returns the classes of which no user has a sample. Their weights are learnt from counter-examples only. Only a
    /// simulation can know them.
    pub fn missing_classes(&self) -> Vec<usize> {
        let counts: Vec<_> = self.users.iter().map(|data| data.labels().counts()).collect();
        (0..self.global.classes())
            .filter(|&class| counts.iter().all(|counts| counts.get(class).is_none_or(|&n| n == 0)))
            .collect()
    }

    /// Changes the trainer from the next round on. A controller keeps its strength.
    ///
    /// # Errors
    /// If the payload does not fit the task or the controller.
    pub fn set_trainer(&mut self, trainer: LocalTrainer) -> Result<(), Error> {
        let rules = self.rules.clone().with_trainer(trainer);
        rules.check(&self.global)?;
        if self.steering.is_some() {
            check_steered(rules.trainer())?;
        }
        self.rules = rules;
        Ok(())
    }

    /// Runs up to this many rounds. Stops early if the guard finds that the weights have settled (except for `rotate`,
    /// whose rounds change only a share of them) or that they diverge. In the latter case the best weights so far are
    /// restored. With a controller, rounds then continue once at half the strength, which is not raised again. The
    /// second alarm stops them.
    ///
    /// # Errors
    /// As [`Simulation::round`].
    pub fn run(&mut self, rounds: usize, stopwatch: &mut Stopwatch) -> Result<Vec<RoundReport>, Error> {
        self.run_watched(rounds, stopwatch, |_| {})
    }

    /// As [`Simulation::run`], and calls `show` with every report as soon as it is complete.
    ///
    /// # Errors
    /// As [`Simulation::round`].
    pub fn run_watched(
        &mut self,
        rounds: usize,
        stopwatch: &mut Stopwatch,
        mut show: impl FnMut(&RoundReport),
    ) -> Result<Vec<RoundReport>, Error> {
        let mut reports = Vec::new();
        for _ in 0..rounds {
            let (report, next) = self.step(stopwatch)?;
            show(&report);
            reports.push(report);
            if !next {
                break;
            }
        }
        Ok(reports)
    }

    /// Runs one round, follows the verdict of the guard as [`Simulation::run`] does, and returns the report and whether
    /// another round should follow.
    ///
    /// # Errors
    /// As [`Simulation::round`].
    pub fn step(&mut self, stopwatch: &mut Stopwatch) -> Result<(RoundReport, bool), Error> {
        let report = self.round(stopwatch)?;
        let next = match report.verdict {
            Some(Verdict::Diverging) => {
                if let Some(watch) = &self.initial {
                    self.global = watch.best().clone().into();
                }
                // The residuals belong to the discarded weights.
                self.residuals.iter_mut().for_each(RoundResidual::reset);
                self.steering.as_mut().is_some_and(Steering::relent)
            }
            Some(Verdict::Settled) => self.rules.trainer().payload() == Payload::Rotating,
            _ => true,
        };
        Ok((report, next))
    }

    /// Runs one round.
    ///
    /// # Errors
    /// As [`Simulation::round_of`].
    pub fn round(&mut self, stopwatch: &mut Stopwatch) -> Result<RoundReport, Error> {
        let mut participants: Vec<usize> = (0..self.users.len()).collect();
        if let Participation::Some(count) = self.params.participation {
            let seed = self.seed.derive("participation", self.round.get());
            // One share of all users is all of them in random order.
            participants = shares(&participants, 1, &seed)?.swap_remove(0);
            participants.truncate(count);
            participants.sort_unstable();
        }
        self.round_of(&participants, stopwatch)
    }

    /// Runs one round of these users.
    ///
    /// # Errors
    /// If they are too few, too many or unknown, or one of them cannot train or send its update. Nothing has changed
    /// then. If the new weights are not finite, the round is over but the weights stay the same.
    pub fn round_of(
        &mut self,
        participants: &[usize],
        stopwatch: &mut Stopwatch,
    ) -> Result<RoundReport, Error> {
        let users = participants.len();
        // Training takes long, so check first.
        check_floor(self.average.task(), users, self.users.len())?;
        let mut train = Seconds::default();
        let updates = stopwatch.time(&mut train.train, || self.train(participants))?;
        let averaged = self.average.average(self.round, &updates, stopwatch)?;
        let round = self.round;
        // The sum has been opened, and a round is opened only once.
        self.round = round.next();
        let applied = self.rules.apply_values(round, &self.global, &averaged.sum)?;
        let (next, strength) = (applied.global, self.steering.map(|steering| steering.strength()));
        if let (Some(steering), Some(density)) = (&mut self.steering, applied.density) {
            steering.observe(density)?;
        }

        let relative_change = next.relative_change(&self.global)?;
        let held_out = self.held_out.as_ref();
        let held_out = held_out.map(|data| next.accuracy(data, self.params.threads)).transpose()?;
        let watched = self.initial.as_mut();
        let watched = watched.map(|w| w.observe(&next, relative_change, self.params.threads)).transpose()?;
        let sent: usize =
            updates.iter().map(|update| update.entries().filter(|&(_, value)| value != 0.0).count()).sum();
        let report = RoundReport {
            round: round.get(),
            users,
            accuracy: held_out,
            initial_accuracy: watched.map(|(accuracy, _)| accuracy),
            verdict: watched.map(|(_, verdict)| verdict),
            relative_change,
            update_sparsity: 1.0 - sent as f64 / (users * next.dimension()) as f64,
            average_sparsity: averaged.sum.sparsity(),
            strength,
            server_step: applied.server_step,
            clipped: averaged.clipped,
            cost: averaged.cost,
            seconds: stopwatch.runs().then_some(Seconds { train: train.train, ..averaged.seconds }),
        };
        for &user in participants {
            self.residuals[user].finish(round, true);
        }
        self.global = next;
        Ok(report)
    }

    /// Trains the participants and makes their updates. Their residuals are pending until the round counts.
    fn train(&mut self, participants: &[usize]) -> Result<Vec<UserUpdate>, Error> {
        let mut rules = self.rules.clone();
        if let Some(steering) = &self.steering {
            let trainer = rules.trainer().with_strength(steering.strength())?;
            rules = rules.with_trainer(trainer);
        }
        let support = PublicSupport::of(rules.task(), self.round);
        let round = LocalRound::new(&rules, self.round, &support, &self.global)?;
        let count = self.users.len();
        participants
            .iter()
            .map(|&user| {
                let (Some(data), Some(residual)) = (self.users.get(user), self.residuals.get_mut(user))
                else {
                    return Err(Error::Participant { user, reason: "does not exist", users: count });
                };
                let seed = self.seed.derive("user", user as u64);
                let update = round
                    .train(data, &seed)
                    .and_then(|local| round.update(&local, data.len(), residual))
                    .map_err(|error| match error {
                        Error::Learn(source) => Error::OfUser { user, source },
                        other => other,
                    })?;
                Ok(UserUpdate { user, update })
            })
            .collect()
    }
}

/// Fails unless the strength decides how much the payload carries.
fn check_steered(trainer: &LocalTrainer) -> Result<(), Error> {
    let by_l1 = trainer.payload().is_sparse_by_l1();
    let l1_ratio = trainer.penalty().map(|penalty| penalty.l1_ratio());
    let found = match l1_ratio {
        Some(ratio) if by_l1 && ratio > 0.0 => return Ok(()),
        Some(_) if by_l1 => "L2 alone",
        None if by_l1 => "a custom learner",
        _ => PayloadName::of(trainer.payload()).as_str(),
    };
    let (what, needed) = ("a strength controller", "`w-l1` or `d-l1` with some L1");
    Err(Error::Learn(dphe_learn::Error::Unsuited { what, needed, found }))
}

impl<A: core::fmt::Debug, T> core::fmt::Debug for Simulation<A, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Simulation")
            .field("users", &self.users.len())
            .field("round", &self.round)
            .field("average", &self.average)
            .finish_non_exhaustive()
    }
}
