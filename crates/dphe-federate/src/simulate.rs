//! N users, an average, and the public weights between them: what happens in a deployment, in one process.

mod steer;
mod watch;

use dphe::Round;
use dphe_learn::dataset::shares;
use dphe_learn::update::{LocalTrainer, Message, Residual, RoundInput};
use dphe_learn::{Dataset, Real, Seed, StrengthController, Threads, Verdict, Weights};

use self::steer::Steering;
use self::watch::{Watch, check_data};
use crate::average::{tells_density, trainer_of_round};
use crate::task::name;
use crate::{Average, Contribution, Error, RoundReport, Seconds, Stopwatch};

/// Who takes part in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Participation {
    /// Everybody.
    #[default]
    Everyone,
    /// This many, drawn anew each round.
    Some(usize),
}

/// How rounds are run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulationParams {
    /// Who takes part.
    pub participation: Participation,
    /// What the mean difference is multiplied by: 1, or more where many users with few samples dilute each other.
    pub server_step: f64,
    /// Whether `rotate` divides its steps by the number of passes over all features, so that rounds settle.
    pub shrink_steps: bool,
    /// Threads to compute accuracies with; results do not depend on it.
    pub threads: Threads,
}

impl Default for SimulationParams {
    fn default() -> Self {
        Self {
            participation: Participation::Everyone,
            server_step: 1.0,
            shrink_steps: true,
            threads: Threads::ONE,
        }
    }
}

/// Users with their data, and the model they share. Everything is a function of the data, the seed and the average.
pub struct Simulation<A, T = f32> {
    users: Vec<Dataset<T>>,
    residuals: Vec<Residual>,
    trainer: LocalTrainer,
    average: A,
    params: SimulationParams,
    seed: Seed,
    round: Round,
    global: Weights,
    initial: Option<Watch<T>>,
    held_out: Option<Dataset<T>>,
    steering: Option<Steering>,
}

impl<A: Average, T: Real> Simulation<A, T> {
    /// Begins with these public weights.
    ///
    /// # Errors
    /// If the average's task does not go with the model and the message, a user's data not with the model, the step is
    /// not positive, or there are fewer users than the task demands.
    pub fn new(
        users: Vec<Dataset<T>>,
        initial: Weights,
        trainer: LocalTrainer,
        average: A,
        params: SimulationParams,
        seed: Seed,
    ) -> Result<Self, Error> {
        average.check(&initial, trainer.message())?;
        if !(params.server_step > 0.0 && params.server_step.is_finite()) {
            return Err(Error::Parameter {
                name: "server step",
                value: params.server_step,
                remedy: "use a positive number, normally 1",
            });
        }
        for (user, data) in users.iter().enumerate() {
            check_data(&initial, data).map_err(|source| Error::OfUser { user, source })?;
        }
        let (count, needed) = (users.len(), average.task().floor(users.len()));
        if count < needed {
            return Err(Error::TooFewUsers { users: count, needed });
        }
        Ok(Self {
            residuals: vec![Residual::new(); count],
            users,
            trainer,
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

    /// Lets the guard watch the accuracy on the initial data, which are public.
    ///
    /// # Errors
    /// If they do not go with the model.
    pub fn with_initial_data(mut self, data: Dataset<T>) -> Result<Self, Error> {
        check_data(&self.global, &data)?;
        self.initial = Some(Watch::new(&self.global, data, self.params.threads)?);
        Ok(self)
    }

    /// Reports the accuracy on these data, which nothing else depends on.
    ///
    /// # Errors
    /// If they do not go with the model.
    pub fn with_held_out_data(mut self, data: Dataset<T>) -> Result<Self, Error> {
        check_data(&self.global, &data)?;
        self.held_out = Some(data);
        Ok(self)
    }

    /// Lets a controller steer the strength of L1, for `w-l1` and `d-l1`: one strength for everybody, from the mean
    /// share of weights that L1 left to users. That share is summed encrypted, in a dense value that [`propose`] puts
    /// into such tasks. Too strong an L1 ruins a model over rounds, so give the guard something to look at too,
    /// [`Simulation::with_initial_data`].
    ///
    /// [`propose`]: crate::propose
    ///
    /// # Errors
    /// If strength has nothing to do with what the message holds, or the task has no value for the share.
    pub fn with_controller(mut self, controller: StrengthController) -> Result<Self, Error> {
        check_steered(&self.trainer)?;
        let task = self.average.task();
        if !tells_density(task, self.average.weighting(), &self.global) {
            let (task, model) = (task.dense(), task.dense() + 1);
            return Err(Error::Shape { what: "dense values", task, model });
        }
        self.steering = Some(Steering::new(controller));
        Ok(self)
    }

    /// The public weights.
    pub fn global(&self) -> &Weights {
        &self.global
    }

    /// The round to come.
    pub fn next_round(&self) -> Round {
        self.round
    }

    /// The average.
    pub fn average(&self) -> &A {
        &self.average
    }

    /// The average, to go on with.
    pub fn into_average(self) -> A {
        self.average
    }

    /// Classes that no user has a sample of: their weights are learnt from counter-examples alone. Only a simulation
    /// can know.
    pub fn missing_classes(&self) -> Vec<usize> {
        let counts: Vec<_> = self.users.iter().map(|data| data.labels().counts()).collect();
        (0..self.global.classes())
            .filter(|&class| counts.iter().all(|counts| counts.get(class).is_none_or(|&n| n == 0)))
            .collect()
    }

    /// Learns differently from the next round on. A controller stays and keeps its strength.
    ///
    /// # Errors
    /// If the task does not go with the message, or the controller not with it.
    pub fn set_trainer(&mut self, trainer: LocalTrainer) -> Result<(), Error> {
        self.average.check(&self.global, trainer.message())?;
        if self.steering.is_some() {
            check_steered(&trainer)?;
        }
        self.trainer = trainer;
        Ok(())
    }

    /// Up to this many rounds. Ends before if the guard says that the weights settled (not for `rotate`, whose rounds
    /// change only a share of them) or that they diverge; then the best weights so far are put back. With a
    /// controller, rounds go on from there once, at half the strength, which is not raised again; the second alarm
    /// ends them.
    ///
    /// # Errors
    /// As [`Simulation::round`].
    pub fn run(&mut self, rounds: usize, stopwatch: &mut Stopwatch) -> Result<Vec<RoundReport>, Error> {
        self.run_watched(rounds, stopwatch, |_| {})
    }

    /// As [`Simulation::run`], with every report shown as soon as it is there.
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
            let report = self.round(stopwatch)?;
            show(&report);
            let verdict = report.verdict;
            reports.push(report);
            match verdict {
                Some(Verdict::Diverging) => {
                    if let Some(watch) = &self.initial {
                        self.global = watch.best().clone();
                    }
                    // they belong to the weights that were given up
                    self.residuals.iter_mut().for_each(Residual::reset);
                    if !self.steering.as_mut().is_some_and(Steering::relent) {
                        break;
                    }
                }
                Some(Verdict::Settled) if self.trainer.message() != Message::Rotating => break,
                _ => {}
            }
        }
        Ok(reports)
    }

    /// One round of those whose turn it is.
    ///
    /// # Errors
    /// As [`Simulation::round_of`].
    pub fn round(&mut self, stopwatch: &mut Stopwatch) -> Result<RoundReport, Error> {
        let mut participants: Vec<usize> = (0..self.users.len()).collect();
        if let Participation::Some(count) = self.params.participation {
            let seed = self.seed.derive("participation", self.round.get());
            // one share of all is all of them in random order
            participants = shares(&participants, 1, &seed)?.swap_remove(0);
            participants.truncate(count);
            participants.sort_unstable();
        }
        self.round_of(&participants, stopwatch)
    }

    /// One round of these users.
    ///
    /// # Errors
    /// If they are too few, too many or unknown, if one cannot learn, or its update cannot be summed. Nothing has
    /// changed then; if the new weights are not finite, only the round is over.
    pub fn round_of(
        &mut self,
        participants: &[usize],
        stopwatch: &mut Stopwatch,
    ) -> Result<RoundReport, Error> {
        let (users, needed) = (participants.len(), self.average.task().floor(self.users.len()));
        // before anybody learns in vain
        if users < needed {
            return Err(Error::TooFewUsers { users, needed });
        }
        let mut seconds = Seconds::default();
        let mut residuals = self.residuals.clone();
        let contributions =
            stopwatch.time(&mut seconds.train, || self.train(participants, &mut residuals))?;
        let averaged =
            self.average.average(self.round, &self.global, &contributions, stopwatch, &mut seconds)?;
        let round = self.round;
        // opened: whatever happens now, it cannot be opened again
        self.round = round.next();
        let strength = self.steering.map(|steering| steering.strength());
        if let (Some(steering), Some(density)) = (&mut self.steering, averaged.density) {
            steering.observe(density)?;
        }
        let next = averaged.sum.apply(&self.global, self.params.server_step)?;

        let relative_change = next.relative_change(&self.global)?;
        let held_out = self.held_out.as_ref();
        let held_out = held_out.map(|data| next.accuracy(data, self.params.threads)).transpose()?;
        let watched = self.initial.as_mut();
        let watched = watched.map(|w| w.observe(&next, relative_change, self.params.threads)).transpose()?;
        let sent: usize = contributions.iter().map(|c| c.update.nonzeros()).sum();
        let report = RoundReport {
            round: round.get(),
            users,
            accuracy: held_out,
            initial_accuracy: watched.map(|(accuracy, _)| accuracy),
            verdict: watched.map(|(_, verdict)| verdict),
            relative_change,
            message_sparsity: 1.0 - sent as f64 / (users * next.dimension()) as f64,
            average_sparsity: averaged.sparsity,
            strength,
            clipped: averaged.clipped,
            cost: averaged.cost,
            seconds: stopwatch.runs().then_some(seconds),
        };
        self.residuals = residuals;
        self.global = next;
        Ok(report)
    }

    fn train(&self, participants: &[usize], residuals: &mut [Residual]) -> Result<Vec<Contribution>, Error> {
        let features = self.average.features(self.round, &self.global);
        let trainer = self.trainer_of_round()?;
        let input = RoundInput { global: &self.global, features: &features };
        participants
            .iter()
            .map(|&user| {
                let (Some(data), Some(residual)) = (self.users.get(user), residuals.get_mut(user)) else {
                    let users = self.users.len();
                    return Err(Error::Participant { user, reason: "does not exist", users });
                };
                let seed = self.seed.derive("user", user as u64).derive("round", self.round.get());
                let update = trainer.update(input, data, residual, &seed);
                let update = update.map_err(|source| Error::OfUser { user, source })?;
                Ok(Contribution { user, update, samples: data.len() })
            })
            .collect()
    }

    /// The trainer, with the steps or the strength of this round.
    fn trainer_of_round(&self) -> Result<LocalTrainer, Error> {
        if let Some(steering) = &self.steering {
            return Ok(self.trainer.with_strength(steering.strength())?);
        }
        if !self.params.shrink_steps {
            return Ok(self.trainer.clone());
        }
        trainer_of_round(&self.trainer, self.average.task(), self.round)
    }
}

/// Fails unless strength decides how much the message holds.
fn check_steered(trainer: &LocalTrainer) -> Result<(), Error> {
    let by_l1 = trainer.message().is_sparse_by_l1();
    if by_l1 && trainer.penalty().l1_ratio() > 0.0 {
        return Ok(());
    }
    let found = if by_l1 { "L2 alone" } else { name(trainer.message()) };
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
