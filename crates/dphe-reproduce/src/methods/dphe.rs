//! Encrypted averages on one scenario, with the paper's payload and with this project's. Rounds are encrypted, or
//! summed in the clear with the same rounding.

mod keys;

pub use keys::Keys;

use std::num::NonZeroUsize;

use chacha20::ChaCha20Rng;
use dphe::{KeyGenerator, NoiseMode, Profile, Receipts, TaskConfig, TaskId, TaskParams};
use dphe_federate::spec::payload;
use dphe_federate::{
    Average, DpheAverage, LearnerSpec, ModelSize, Named as _, PayloadName, PayloadSize, PlainAverage,
    RoundReport, Scenario, Seconds, Simulation, SimulationParams, Stopwatch, Weighting, propose,
};
use dphe_learn::linear::{Fista, FistaParams, Penalty, Schedule};
use dphe_learn::update::{Learner, LocalTrainer, Payload};
use dphe_learn::{Seed, Sparsity, StrengthController, Weights, find_strength};
use rand_core::SeedableRng;

use super::baseline::{initial, sgd, stable};
use crate::{Error, Measurement};

/// What users train and send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DpheVariant {
    /// Whole classifiers that L1 makes sparse (`w-l1`), trained by stochastic gradient descent with scikit-learn's
    /// steps. This is the literal reading of the paper.
    SparseWeights,
    /// Whole classifiers that L1 makes sparse, with the L1 problem solved by a batch method.
    SolvedWeights,
    /// The largest weights of whole classifiers, without a penalty that shrinks them (`w-topk`).
    LargestWeights,
    /// The largest differences (`d-topk`).
    LargestDifferences,
    /// The features with the largest differences (`d-block`).
    LargestBlocks,
    /// Public features that change from round to round (`rotate`).
    Rotating,
}

impl DpheVariant {
    /// All variants.
    pub const ALL: [Self; 6] = [
        Self::SparseWeights,
        Self::SolvedWeights,
        Self::LargestWeights,
        Self::LargestDifferences,
        Self::LargestBlocks,
        Self::Rotating,
    ];

    /// Returns what users send.
    pub fn payload(self) -> PayloadName {
        match self {
            Self::SparseWeights | Self::SolvedWeights => PayloadName::WL1,
            Self::LargestWeights => PayloadName::WTopk,
            Self::LargestDifferences => PayloadName::DTopk,
            Self::LargestBlocks => PayloadName::DBlock,
            Self::Rotating => PayloadName::Rotate,
        }
    }

    /// Returns the short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SolvedWeights => "w-l1 (solved)",
            _ => self.payload().as_str(),
        }
    }

    /// Returns the variant that a profile was designed for.
    pub fn of_profile(profile: Profile) -> Self {
        match profile {
            Profile::Paper => Self::SparseWeights,
            Profile::Sparse => Self::LargestBlocks,
            Profile::Full => Self::Rotating,
        }
    }

    /// Returns the profile of its tasks.
    pub fn profile(self) -> Profile {
        match self {
            Self::SparseWeights | Self::SolvedWeights => Profile::Paper,
            Self::LargestWeights | Self::LargestDifferences | Self::LargestBlocks => Profile::Sparse,
            Self::Rotating => Profile::Full,
        }
    }

    /// Returns the number of rounds after which the accuracy no longer changes much.
    pub const fn rounds(self) -> usize {
        match self {
            Self::SparseWeights => 8,
            Self::SolvedWeights => 4,
            Self::LargestWeights | Self::LargestDifferences | Self::LargestBlocks => 10,
            Self::Rotating => 15,
        }
    }

    fn is_by_l1(self) -> bool {
        self.profile() == Profile::Paper
    }
}

/// A variant with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// What users train and send.
    pub variant: DpheVariant,
    /// The number of rounds.
    pub rounds: usize,
    /// The fraction of positions that a message, or a shard of it, holds.
    pub share: f64,
    /// The sparsity that the controller of L1 aims at.
    pub sparsity: f64,
    /// The fraction of L1 in the penalty of `w-l1`.
    pub l1_ratio: f64,
    /// A fixed strength of the penalty. Without it, a controller adjusts the strength.
    pub strength: Option<f64>,
    /// The factor of the mean difference. Without it, it follows from the numbers of users, samples and classes.
    pub server_step: Option<f64>,
    /// The number of bits of the key.
    pub key_bits: u32,
}

impl Recipe {
    /// Returns the defaults of a variant: a share of 0.1, 90 % sparsity, 2048 bits.
    pub const fn new(variant: DpheVariant) -> Self {
        Self {
            variant,
            rounds: variant.rounds(),
            share: 0.1,
            sparsity: 0.9,
            l1_ratio: 0.5,
            strength: None,
            server_step: None,
            key_bits: 2048,
        }
    }
}

/// The result of a recipe.
#[derive(Clone, Debug)]
pub struct DpheRun {
    /// The global weights after the last round.
    pub weights: Weights,
    /// The reports of all rounds.
    pub reports: Vec<RoundReport>,
    /// Whether sums in the clear give the same weights, bit for bit. `None` if nothing was encrypted.
    pub equal: Option<bool>,
}

impl DpheRun {
    /// Returns the numbers of the run, except how good the classifier is. Times per user are included if a clock ran.
    pub(crate) fn measurement(&self, method: &Dphe<'_>, timed: bool) -> Result<Measurement, Error> {
        let mut measurement = Measurement::from([
            ("sparsity".to_owned(), 100.0 * self.mean(|report| report.update_sparsity)),
            ("shards".to_owned(), self.mean(|report| method.shards(report) as f64)),
            ("ciphertexts".to_owned(), method.ciphertexts(self)?),
            ("server_step".to_owned(), self.mean(|report| report.server_step)),
        ]);
        let mut put = |name: &str, value: Option<f64>| {
            measurement.extend(value.map(|value| (name.to_owned(), value)));
        };
        put("strength", self.reports.last().and_then(|report| report.strength));
        put("equal", self.equal.map(|equal| f64::from(u8::from(equal))));
        if timed {
            let users = method.scenario.users.len() as f64;
            let per_user = |of: fn(&Seconds) -> f64| {
                Some(self.mean(|report| report.seconds.as_ref().map_or(0.0, of)) / users)
            };
            put("train_s", per_user(|seconds| seconds.train));
            put("seal_s", per_user(|seconds| seconds.seal).filter(|_| self.equal.is_some()));
        }
        Ok(measurement)
    }

    /// Returns the mean of a number over all rounds.
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
    threads: NonZeroUsize,
}

impl Recipe {
    fn payload(&self, model: ModelSize, slots: usize) -> Payload {
        let (name, size) = (self.variant.payload(), PayloadSize::Share(self.share));
        payload(name, size, LearnerSpec::default_feedback(), self.variant.profile(), model, slots)
    }
}

impl<'a> Dphe<'a> {
    /// Trains the initial classifier and finds the strength of L1, both on public samples.
    ///
    /// # Errors
    /// Returns an error if the sparsity cannot be reached or the weights diverge.
    pub fn new(
        scenario: &'a Scenario,
        recipe: Recipe,
        seed: &Seed,
        threads: NonZeroUsize,
    ) -> Result<Self, Error> {
        let (features, labels) = (scenario.initial.features(), scenario.initial.labels());
        let start = Weights::zeros(features.width(), labels.class_count())?;
        // blocks hold all weights of a feature until the task says how many fit a ciphertext
        let payload = recipe.payload(ModelSize::of(&start), usize::MAX);
        let mut this = Self {
            scenario,
            recipe,
            start,
            trainer: LocalTrainer::new(sgd(stable(scenario), Penalty::DEFAULT, 5, threads)?, payload)?,
            controller: None,
            seed: *seed,
            threads,
        };
        if recipe.variant.is_by_l1() {
            this.begin_sparse(payload)?;
        } else {
            this.start = initial(scenario, seed, threads)?;
            this.fit_blocks()?;
        }
        Ok(this)
    }

    /// Returns the strength of the penalty in the first round.
    pub fn strength(&self) -> f64 {
        self.trainer.penalty().map_or(0.0, |penalty| penalty.strength())
    }

    fn begin_sparse(&mut self, payload: Payload) -> Result<(), Error> {
        let Recipe { variant, l1_ratio, sparsity, strength, .. } = self.recipe;
        let (threads, scenario, seed) = (self.threads, self.scenario, self.seed);
        let penalty = |strength| Penalty::elastic_net(strength, l1_ratio);
        let fista = |strength, iterations| -> Result<Fista, dphe_learn::Error> {
            FistaParams { penalty: penalty(strength)?, iterations, grouped: false, threads }.check()
        };
        let zeros = self.start.clone();
        let first = |strength: f64| -> Result<Weights, dphe_learn::Error> {
            match variant {
                DpheVariant::SolvedWeights => fista(strength, 60)?.fit_from(&zeros, &scenario.initial),
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
        let learner: Learner = match variant {
            DpheVariant::SolvedWeights => fista(found, 60)?.into(),
            _ => sgd(Schedule::Optimal, penalty(found)?, 5, threads)?.into(),
        };
        self.start = first(found)?;
        self.trainer = LocalTrainer::new(learner, payload)?;
        if strength.is_none() {
            self.controller = Some(StrengthController::new(found, target)?);
        }
        Ok(())
    }

    /// Cuts blocks so that each fits one ciphertext.
    fn fit_blocks(&mut self) -> Result<(), Error> {
        let slots = self.config()?.slots() as usize;
        let payload = self.recipe.payload(ModelSize::of(&self.start), slots);
        self.trainer = LocalTrainer::new(self.trainer.learner().clone(), payload)?;
        Ok(())
    }

    fn config(&self) -> Result<TaskConfig, Error> {
        let users = self.scenario.users.len().next_power_of_two().max(8) as u32;
        let profile = self.recipe.variant.profile();
        let mut config = propose(profile, self.trainer.payload(), &self.start, users, Weighting::Equal)?;
        config.key_bits = self.recipe.key_bits;
        config.noise = NoiseMode::Fast;
        if profile == Profile::Paper {
            // values beyond the range are refused, and a ciphertext with a single number has room for a larger range
            config.clip_exponent = config.clip_exponent.saturating_add(6);
        }
        if self.recipe.variant == DpheVariant::Rotating {
            config.capacity = PayloadSize::Share(self.recipe.share).of(config.positions() as usize) as u32;
        }
        Ok(config)
    }

    /// Returns the task that updates are summed in.
    ///
    /// # Errors
    /// Returns an error if the model does not fit a task.
    pub fn task(&self) -> Result<TaskParams, Error> {
        let id = &self.seed.derive("task", 0).to_bytes()[..16];
        let mut bytes = [0; 16];
        bytes.copy_from_slice(id);
        Ok(TaskParams::new_with(TaskId::from_bytes(bytes), self.config()?, dphe::hazmat::paper_keys())?)
    }

    /// Returns the mean number of ciphertexts in a message, even if nothing was encrypted.
    ///
    /// # Errors
    /// Returns an error if the model does not fit a task.
    pub fn ciphertexts(&self, run: &DpheRun) -> Result<f64, Error> {
        let task = self.task()?;
        let check = usize::from(task.receipts() != Receipts::None);
        if !task.has_private_support() {
            let packed = (task.capacity() * task.block() + task.dense()).div_ceil(task.slots());
            return Ok((packed + check) as f64);
        }
        let shards = run.mean(|report| self.shards(report) as f64);
        Ok(shards * task.capacity() as f64 + (task.dense().div_ceil(task.slots()) + check) as f64)
    }

    /// Returns the number of shards of an average message in a round.
    pub fn shards(&self, report: &RoundReport) -> usize {
        let Payload::SparseWeights { weights: capacity, .. } = self.trainer.payload() else { return 1 };
        let nonzeros = (1.0 - report.update_sparsity) * self.start.dimension() as f64;
        (nonzeros.round() as usize).div_ceil(capacity).max(1)
    }

    /// Runs in the clear, with the rounding of encrypted rounds.
    ///
    /// # Errors
    /// Returns an error if a round fails.
    pub fn plain(&self, stopwatch: &mut Stopwatch) -> Result<DpheRun, Error> {
        let average = PlainAverage::new(self.task()?, Weighting::Equal, self.scenario.users.len())?.rounded();
        let (simulation, reports) = self.simulate(average, stopwatch)?;
        Ok(DpheRun { weights: simulation.global().weights().clone(), reports, equal: None })
    }

    /// Runs encrypted, and again in the clear to compare.
    ///
    /// # Errors
    /// Returns an error if a round fails.
    pub fn encrypted(&self, keys: &Keys, stopwatch: &mut Stopwatch) -> Result<DpheRun, Error> {
        let task = self.task()?;
        let threads = dphe::Threads::new(self.threads.get());
        let mut rng = ChaCha20Rng::from_seed(self.seed.derive("encryption", 0).to_bytes());
        let key = keys.take(task.key_bits(), task.config().noise, threads)?;
        let generator = KeyGenerator::with_key(task, key, &mut rng)?;
        let users = self.scenario.users.len();
        let average = DpheAverage::with_key_generator(generator, Weighting::Equal, users, rng, threads)?;
        let (simulation, reports) = self.simulate(average, stopwatch)?;
        let weights = simulation.global().weights().clone();
        keys.put(simulation.into_average().into_key_generator().into_key());
        let equal = Some(self.plain(&mut Stopwatch::none())?.weights == weights);
        Ok(DpheRun { weights, reports, equal })
    }

    fn simulate<A: Average>(
        &self,
        average: A,
        stopwatch: &mut Stopwatch,
    ) -> Result<(Simulation<A>, Vec<RoundReport>), Error> {
        let params = SimulationParams {
            threads: self.threads,
            server_step: self.recipe.server_step.unwrap_or_else(|| {
                let users = self.scenario.users.len();
                self.scenario.user_numbers(users).server_step()
            }),
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
