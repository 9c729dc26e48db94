//! Encrypted averages: the paper's messages and ours, on one scenario, encrypted or added in the clear with the same
//! rounded numbers.

mod keys;

pub use keys::Keys;

use chacha20::ChaCha20Rng;
use dphe::{KeyGenerator, NoiseMode, Profile, TaskConfig, TaskId, TaskParams};
use dphe_federate::{
    Average, DpheAverage, PlainAverage, RoundReport, Scenario, Simulation, SimulationParams, Stopwatch,
    Weighting, propose,
};
use dphe_learn::linear::{Fista, FistaParams, Penalty, Schedule};
use dphe_learn::update::{Learner, LocalTrainer, Message, Overflow};
use dphe_learn::{Seed, Sparsity, StrengthController, Threads, Weights, find_strength};
use rand_core::SeedableRng;

use super::baseline::{initial, sgd, stable};
use crate::Error;

/// What users learn and send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Whole classifiers made sparse by L1, by stochastic gradients with scikit-learn's steps (`w-l1`): the paper's
    /// form, read literally.
    SparseWeights,
    /// The same, but the L1 problem is solved with all samples at once.
    SolvedWeights,
    /// The largest differences, wherever they are (`d-topk`).
    LargestDifferences,
    /// The features whose weights differ most (`d-block`).
    LargestBlocks,
    /// Public features that rotate (`rotate`).
    Rotating,
}

impl Form {
    /// All.
    pub const ALL: [Self; 5] = [
        Self::SparseWeights,
        Self::SolvedWeights,
        Self::LargestDifferences,
        Self::LargestBlocks,
        Self::Rotating,
    ];

    /// The short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SparseWeights => "w-l1",
            Self::SolvedWeights => "w-l1 (solved)",
            Self::LargestDifferences => "d-topk",
            Self::LargestBlocks => "d-block",
            Self::Rotating => "rotate",
        }
    }

    /// The form that a profile was made for.
    pub fn of_profile(profile: Profile) -> Self {
        match profile {
            Profile::Paper => Self::SparseWeights,
            Profile::Sparse => Self::LargestBlocks,
            Profile::Full => Self::Rotating,
        }
    }

    /// The profile that it is sent by.
    pub fn profile(self) -> Profile {
        match self {
            Self::SparseWeights | Self::SolvedWeights => Profile::Paper,
            Self::LargestDifferences | Self::LargestBlocks => Profile::Sparse,
            Self::Rotating => Profile::Full,
        }
    }

    /// Rounds until it settles.
    pub fn rounds(self) -> usize {
        match self {
            Self::SparseWeights => 8,
            Self::SolvedWeights => 4,
            Self::LargestDifferences | Self::LargestBlocks => 10,
            Self::Rotating => 15,
        }
    }

    fn is_by_l1(self) -> bool {
        self.profile() == Profile::Paper
    }
}

/// A form with its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// What is sent.
    pub form: Form,
    /// How often.
    pub rounds: usize,
    /// The share of positions that a message, or a shard of one, holds.
    pub share: f64,
    /// The sparsity that L1 is steered to.
    pub sparsity: f64,
    /// The share of L1 in the penalty of the paper's forms.
    pub l1_ratio: f64,
    /// Do not steer, keep this strength of the penalty.
    pub strength: Option<f64>,
    /// What the mean difference is multiplied by.
    pub server_step: f64,
    /// Bits of the key.
    pub key_bits: u32,
}

impl Recipe {
    /// The defaults of a form: a tenth, 90 % sparse, 2048 bits.
    pub fn new(form: Form) -> Self {
        Self {
            form,
            rounds: form.rounds(),
            share: 0.1,
            sparsity: 0.9,
            l1_ratio: 0.5,
            strength: None,
            server_step: 1.0,
            key_bits: 2048,
        }
    }
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The last public classifier.
    pub weights: Weights,
    /// Round by round.
    pub reports: Vec<RoundReport>,
    /// Whether adding in the clear gave the same weights, bit for bit, if both were done.
    pub equal: Option<bool>,
}

impl Outcome {
    /// A number of every round, averaged.
    pub fn mean(&self, of: impl Fn(&RoundReport) -> f64) -> f64 {
        self.reports.iter().map(of).sum::<f64>() / self.reports.len().max(1) as f64
    }
}

/// A recipe on a scenario, ready to run.
#[derive(Debug)]
pub struct Dphe<'a> {
    scenario: &'a Scenario,
    recipe: Recipe,
    start: Weights,
    trainer: LocalTrainer,
    controller: Option<StrengthController>,
    seed: Seed,
    threads: Threads,
}

impl<'a> Dphe<'a> {
    /// Learns the initial classifier and chooses the strength of L1, all from public samples.
    ///
    /// # Errors
    /// If the wanted sparsity is out of reach or the weights diverge.
    pub fn new(scenario: &'a Scenario, recipe: Recipe, seed: &Seed, threads: Threads) -> Result<Self, Error> {
        let (dimension, classes) = {
            let (features, labels) = (scenario.initial.features(), scenario.initial.labels());
            (features.width() * labels.class_count(), labels.class_count())
        };
        let part = |positions: usize| ((positions as f64 * recipe.share).ceil() as usize).clamp(1, positions);
        let message = match recipe.form {
            Form::SparseWeights | Form::SolvedWeights => {
                Message::SparseWeights { capacity: part(dimension), overflow: Overflow::Shard }
            }
            Form::LargestDifferences => {
                Message::LargestDifferences { capacity: part(dimension), feedback: 0.9 }
            }
            // as many as there are features; the task may cut blocks to what fits a ciphertext
            Form::LargestBlocks => {
                Message::LargestBlocks { width: classes, capacity: part(dimension / classes), feedback: 0.9 }
            }
            Form::Rotating => Message::Rotating,
        };
        let mut this = Self {
            scenario,
            recipe,
            start: Weights::zeros(scenario.initial.features().width(), classes)?,
            trainer: LocalTrainer::new(sgd(stable(scenario), Penalty::DEFAULT, 5, threads)?, message)?,
            controller: None,
            seed: *seed,
            threads,
        };
        if recipe.form.is_by_l1() {
            this.begin_sparse(message)?;
        } else {
            this.start = initial(scenario, seed, threads)?;
            this.fit_blocks()?;
        }
        Ok(this)
    }

    /// The strength of the penalty that rounds begin with.
    pub fn strength(&self) -> f64 {
        self.trainer.penalty().strength()
    }

    fn begin_sparse(&mut self, message: Message) -> Result<(), Error> {
        let Recipe { form, l1_ratio, sparsity, strength, .. } = self.recipe;
        let (threads, scenario, seed) = (self.threads, self.scenario, self.seed);
        let penalty = |strength| Penalty::elastic_net(strength, l1_ratio);
        let fista = |strength, iterations| -> Result<Fista, dphe_learn::Error> {
            FistaParams { penalty: penalty(strength)?, iterations, grouped: false, threads }.check()
        };
        let zeros = self.start.clone();
        let first = |strength: f64| -> Result<Weights, dphe_learn::Error> {
            match form {
                Form::SolvedWeights => fista(strength, 60)?.fit_from(&zeros, &scenario.initial),
                _ => {
                    let params = dphe_learn::linear::SgdParams {
                        penalty: penalty(strength)?,
                        epochs: 20,
                        threads,
                        ..dphe_learn::linear::SgdParams::new(Schedule::Optimal)
                    };
                    params.check()?.fit(&scenario.initial, &seed)
                }
            }
        };
        let target = Sparsity::new(sparsity)?;
        let found = match strength {
            Some(strength) => strength,
            None => find_strength(target, |strength| Ok(first(strength)?.sparsity()))?,
        };
        let learner: Learner = match form {
            Form::SolvedWeights => fista(found, 60)?.into(),
            _ => sgd(Schedule::Optimal, penalty(found)?, 5, threads)?.into(),
        };
        self.start = first(found)?;
        self.trainer = LocalTrainer::new(learner, message)?;
        if strength.is_none() {
            self.controller = Some(StrengthController::new(found, target)?);
        }
        Ok(())
    }

    /// Cuts blocks so that one ciphertext holds one.
    fn fit_blocks(&mut self) -> Result<(), Error> {
        let Message::LargestBlocks { width, feedback, .. } = self.trainer.message() else { return Ok(()) };
        let config = self.config()?;
        let users = 32 - config.max_users.saturating_sub(1).leading_zeros() as i32;
        let slot = i32::from(config.scale_bits) + i32::from(config.clip_exponent) + 1 + users;
        let slots = (config.key_bits.saturating_sub(2) / slot.max(1) as u32).max(1) as usize;
        let width = width.div_ceil(width.div_ceil(slots));
        let blocks = self.start.dimension().div_ceil(width);
        let capacity = ((blocks as f64 * self.recipe.share).ceil() as usize).clamp(1, blocks);
        let message = Message::LargestBlocks { width, capacity, feedback };
        self.trainer = LocalTrainer::new(self.trainer.learner().clone(), message)?;
        Ok(())
    }

    fn config(&self) -> Result<TaskConfig, Error> {
        let users = self.scenario.users.len().next_power_of_two().max(8) as u32;
        let profile = self.recipe.form.profile();
        let mut config = propose(profile, self.trainer.message(), &self.start, users, Weighting::Equal)?;
        config.key_bits = self.recipe.key_bits;
        config.noise = NoiseMode::Fast;
        if profile == Profile::Paper {
            // whole classifiers are refused beyond the range, and one number a ciphertext leaves room for any
            config.clip_exponent = config.clip_exponent.saturating_add(6);
        }
        if self.recipe.form == Form::Rotating {
            let positions = config.positions();
            config.capacity = ((f64::from(positions) * self.recipe.share).ceil() as u32).clamp(1, positions);
        }
        Ok(config)
    }

    /// The task that sums are made in.
    ///
    /// # Errors
    /// If the model does not fit a task.
    pub fn task(&self) -> Result<TaskParams, Error> {
        let id = &self.seed.derive("task", 0).to_bytes()[..16];
        let mut bytes = [0; 16];
        bytes.copy_from_slice(id);
        Ok(TaskParams::new(TaskId::from_bytes(bytes), self.config()?)?)
    }

    /// Ciphertexts of a mean message, whether they were made or not.
    ///
    /// # Errors
    /// If the model does not fit a task.
    pub fn ciphertexts(&self, outcome: &Outcome) -> Result<f64, Error> {
        let task = self.task()?;
        if !task.has_private_support() {
            return Ok((task.capacity() * task.block() + task.dense()).div_ceil(task.slots()) as f64);
        }
        let shards = outcome.mean(|report| self.shards(report) as f64);
        Ok(shards * task.capacity() as f64 + task.dense().div_ceil(task.slots()) as f64)
    }

    /// Shards of a mean message of a round.
    pub fn shards(&self, report: &RoundReport) -> usize {
        let Message::SparseWeights { capacity, .. } = self.trainer.message() else { return 1 };
        let nonzeros = (1.0 - report.message_sparsity) * self.start.dimension() as f64;
        (nonzeros.round() as usize).div_ceil(capacity).max(1)
    }

    /// Runs in the clear, with numbers rounded as encryption would.
    ///
    /// # Errors
    /// If a round fails.
    pub fn plain(&self, stopwatch: &mut Stopwatch) -> Result<Outcome, Error> {
        let average = PlainAverage::new(self.task()?, Weighting::Equal, self.scenario.users.len())?.rounded();
        let (simulation, reports) = self.simulate(average, stopwatch)?;
        Ok(Outcome { weights: simulation.global().clone(), reports, equal: None })
    }

    /// Runs encrypted, and once more in the clear to compare.
    ///
    /// # Errors
    /// If a round fails.
    pub fn encrypted(&self, keys: &Keys, stopwatch: &mut Stopwatch) -> Result<Outcome, Error> {
        let task = self.task()?;
        let threads = dphe::Threads::new(self.threads.get());
        let mut rng = ChaCha20Rng::from_seed(self.seed.derive("encryption", 0).to_bytes());
        let key = keys.take(task.key_bits(), task.config().noise, threads)?;
        let generator = KeyGenerator::with_key(task, key, &mut rng)?;
        let users = self.scenario.users.len();
        let average = DpheAverage::with_key_generator(generator, Weighting::Equal, users, rng, threads)?;
        let (simulation, reports) = self.simulate(average, stopwatch)?;
        let weights = simulation.global().clone();
        keys.put(simulation.into_average().into_key_generator().into_key());
        let equal = Some(self.plain(&mut Stopwatch::none())?.weights == weights);
        Ok(Outcome { weights, reports, equal })
    }

    fn simulate<A: Average>(
        &self,
        average: A,
        stopwatch: &mut Stopwatch,
    ) -> Result<(Simulation<A>, Vec<RoundReport>), Error> {
        let params = SimulationParams {
            threads: self.threads,
            server_step: self.recipe.server_step,
            ..SimulationParams::default()
        };
        let (users, start, trainer) = (self.scenario.users.clone(), self.start.clone(), self.trainer.clone());
        let mut simulation = Simulation::new(users, start, trainer, average, params, self.seed)?;
        if let Some(controller) = self.controller {
            simulation = simulation.with_controller(controller)?;
        }
        let reports = simulation.run(self.recipe.rounds, stopwatch)?;
        Ok((simulation, reports))
    }
}
