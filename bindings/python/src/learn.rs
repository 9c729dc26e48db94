//! Simulated rounds of federated learning: the functions that `dphe simulate` calls.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use dphe::{KeyGenerator, NoiseMode, Profile, Round, TaskConfig, TaskId, TaskParams, Threads};
use dphe_federate::{
    Average, Averaged, Cost, DpheAverage, EncryptionSpec, Error, LearnerSpec, ModelSize, Named, PayloadName,
    PlainAverage, RoundReport, ScenarioParams, Seconds, Simulation, SimulationParams, Split, Standardization,
    StartingPoint, Stopwatch, UserUpdate, Weighting,
};
use dphe_learn::dataset::{Dealing, shares};
use dphe_learn::linear::{Loss, Stable};
use dphe_learn::update::LocalTrainer;
use dphe_learn::{Dataset, Features, Labels, Seed, Standardizer, Verdict, Weights};
use dphe_paillier::{DecryptionKey, KeyBits, simple};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rand_core::CryptoRng;

use crate::convert::{self, Elements};
use crate::errors::{exception, invalid, learning};
use crate::interrupt::in_background;

/// The largest weight of a user who counts by its samples, as in `dphe simulate`.
const MOST_SAMPLES: u32 = 4096;

type Random = Box<dyn CryptoRng + Send>;

/// How users learn and what they send.
#[derive(Clone, FromPyObject)]
#[pyo3(from_item_all)]
struct Learning {
    payload: String,
    share: Option<f64>,
    capacity: Option<u32>,
    loss: String,
    strength: f64,
    l1_ratio: f64,
    epochs: usize,
    feedback: f64,
    step: f64,
    server_step: f64,
    weighted: bool,
    seed: u64,
    first_round: u64,
}

/// How sums are protected.
#[derive(Clone, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Protection {
    profile: Option<String>,
    key_bits: u32,
    noise: String,
    pub(crate) secure: bool,
}

impl Protection {
    /// Returns the specification, in this profile unless another one is named.
    pub(crate) fn spec(&self, default: Profile) -> PyResult<EncryptionSpec> {
        let profile = self.profile.as_deref().map(word).transpose()?.unwrap_or(default);
        Ok(EncryptionSpec::new(profile, self.key_bits, word::<NoiseMode>(&self.noise)?))
    }
}

/// Finds the value for a word.
fn word<T: Named>(name: &str) -> PyResult<T> {
    T::from_name(name).map_err(|error| invalid(error.to_string(), "parameter"))
}

/// All parties of a task in one process. A call that is interrupted leaves it without data.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct Federation(Mutex<Stage>);

enum Stage {
    /// It has the raw samples.
    Raw(Box<Parts>),
    /// The samples are standardised.
    Ready(Box<Parts>, Box<Standardization>),
    Running(Box<Running>),
    /// A call is at work, or was interrupted.
    Away,
}

/// What a task is made of.
struct Parts {
    users: Vec<Dataset>,
    initial: Option<Dataset>,
    spec: LearnerSpec,
    encryption: EncryptionSpec,
    secure: bool,
    weighting: Weighting,
    seed: u64,
    first: Round,
    threads: NonZeroUsize,
    clock: Instant,
}

struct Running {
    simulation: Option<Simulation<Sum>>,
    largest: f64,
    clock: Instant,
}

#[pymethods]
impl Federation {
    /// Takes each user's features (float32, row after row) and labels, and the initial samples if there are any.
    #[new]
    #[allow(clippy::too_many_arguments, reason = "Python passes flat arguments")]
    fn new(
        users: Vec<(Elements<f32>, Elements<u32>)>,
        width: usize,
        classes: usize,
        initial: Option<(Elements<f32>, Elements<u32>)>,
        learner: Learning,
        protection: Protection,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let samples = |(values, labels): (Elements<f32>, Elements<u32>)| {
            let labels = Labels::classes(classes, labels.into_vec())?;
            Dataset::new(Features::new(width, values.into_vec())?, labels)
        };
        let users = users
            .into_iter()
            .enumerate()
            .map(|(user, data)| samples(data).map_err(|source| learning(Error::OfUser { user, source })));
        let payload: PayloadName = word(&learner.payload)?;
        let spec = LearnerSpec {
            payload,
            share: learner.share,
            capacity: learner.capacity,
            feedback: learner.feedback,
            loss: word::<Loss>(&learner.loss)?,
            strength: learner.strength,
            l1_ratio: learner.l1_ratio,
            epochs: learner.epochs,
            squared_radius: 1.0,
            step: learner.step,
            server_step: learner.server_step,
        };
        let parts = Parts {
            users: users.collect::<PyResult<_>>()?,
            initial: initial.map(samples).transpose().map_err(|error| learning(error.into()))?,
            spec,
            encryption: protection.spec(payload.default_profile())?,
            secure: protection.secure,
            weighting: match learner.weighted {
                true => Weighting::Samples { most: MOST_SAMPLES },
                false => Weighting::Equal,
            },
            seed: learner.seed,
            first: Round::new(learner.first_round)
                .ok_or_else(|| invalid("rounds count from 1", "parameter"))?,
            threads: thread_count(threads)?,
            clock: Instant::now(),
        };
        Ok(Self(Mutex::new(Stage::Raw(Box::new(parts)))))
    }

    /// Standardises the samples: with the given means, deviations, bound and squared radius, by the initial samples, or
    /// by moments that are summed over the users. Writes the means and the deviations, and returns the bound and the
    /// squared radius.
    fn standardize(
        &self,
        py: Python<'_>,
        known: Option<(Elements<f64>, Elements<f64>, f64, f64)>,
        mean: PyBuffer<f64>,
        deviation: PyBuffer<f64>,
    ) -> PyResult<(f64, f64)> {
        let Stage::Raw(parts) = self.take()? else { return Err(invalid("it is standardised", "state")) };
        let known = known
            .map(|(mean, deviation, clip, squared_radius)| {
                let standardizer = Standardizer::from_parts(mean.into_vec(), deviation.into_vec(), clip)?;
                Ok(Standardization { standardizer, squared_radius, samples: 0.0 })
            })
            .transpose()
            .map_err(|error: dphe_learn::Error| learning(error.into()))?;
        let (parts, found) = in_background(py, move |cancelled| parts.standardized(known, cancelled))??;
        let standardizer = &found.standardizer;
        convert::write(py, &mean, standardizer.mean())?;
        convert::write(py, &deviation, standardizer.deviation())?;
        let result = (standardizer.clip(), found.squared_radius);
        self.put(Stage::Ready(parts, Box::new(found)));
        Ok(result)
    }

    /// Starts the rounds, from weights if they are given, otherwise from weights that the initial samples give, or from
    /// zero. The range of updates follows from `largest` if it is given, otherwise from the largest of these weights.
    /// Returns what the task is like.
    fn begin<'py>(
        &self,
        py: Python<'py>,
        start: Option<(Elements<f64>, Elements<f64>)>,
        largest: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let Stage::Ready(parts, found) = self.take()? else {
            return Err(invalid("it is not standardised yet, or has begun", "state"));
        };
        let weights = start
            .map(|(flat, intercepts)| {
                Weights::new(found.standardizer.mean().len(), flat.into_vec(), intercepts.into_vec())
            })
            .transpose()
            .map_err(|error| learning(error.into()))?;
        let running = in_background(py, move |cancelled| {
            parts.begin(weights, largest, found.squared_radius, cancelled)
        })??;
        let about = PyDict::new(py);
        if let Some(simulation) = &running.simulation {
            let task = simulation.average().task();
            about.set_item("task", task.id().to_string())?;
            about.set_item("profile", task.profile().as_str())?;
            about.set_item("slot_bits", task.slot_bits())?;
            about.set_item("largest_weight", running.largest)?;
        }
        self.put(Stage::Running(running));
        Ok(about)
    }

    /// Runs one round. Returns its report, and whether another round should follow.
    fn round<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, bool)> {
        let Stage::Running(mut running) = self.take()? else {
            return Err(invalid("it has not begun", "state"));
        };
        let (running, result) = in_background(py, move |_| {
            let clock = running.clock;
            let mut stopwatch = Stopwatch::new(move || clock.elapsed());
            let result = running.simulation.as_mut().map(|simulation| simulation.step(&mut stopwatch));
            (running, result)
        })?;
        self.put(Stage::Running(running));
        match result {
            Some(Ok((report, more))) => Ok((report_of(py, &report)?, more)),
            Some(Err(error)) => Err(learning(error)),
            None => Err(gone()),
        }
    }

    /// Writes the global weights (feature-major) and the intercepts.
    fn weights(&self, py: Python<'_>, flat: PyBuffer<f64>, intercepts: PyBuffer<f64>) -> PyResult<()> {
        let stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Stage::Running(running) = &*stage else { return Err(gone()) };
        let simulation = running.simulation.as_ref().ok_or_else(gone)?;
        let global = simulation.global();
        convert::write(py, &flat, global.flat())?;
        convert::write(py, &intercepts, global.intercepts())
    }
}

impl Federation {
    /// Takes the stage for a call. Another call meanwhile finds nothing.
    fn take(&self) -> PyResult<Stage> {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *stage, Stage::Away) {
            Stage::Away => Err(gone()),
            found => Ok(found),
        }
    }

    fn put(&self, stage: Stage) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }
}

pub(crate) fn gone() -> PyErr {
    invalid("the training is at work in another thread, or a call was interrupted or failed", "state")
}

impl Parts {
    /// Standardises all samples.
    fn standardized(
        self: Box<Self>,
        known: Option<Standardization>,
        cancelled: &AtomicBool,
    ) -> PyResult<(Box<Self>, Standardization)> {
        let found = match (known, &self.initial) {
            (Some(known), _) => known,
            (None, Some(initial)) => {
                let standardizer = Standardizer::fit(initial.features());
                Standardization { standardizer, squared_radius: f64::NAN, samples: 0.0 }
            }
            (None, None) => {
                let users: Vec<_> = self.users.iter().map(Dataset::features).collect();
                standardization(&users, &self.encryption, self.secure, self.seed, self.threads, cancelled)?
            }
        };
        let Self { users, initial, .. } = *self;
        let standardize = |data: Dataset| data.standardized(&found.standardizer);
        let users: Result<Vec<_>, _> = users.into_iter().map(standardize).collect();
        let users = users.map_err(|error| learning(error.into()))?;
        let initial = initial.map(standardize).transpose().map_err(|error| learning(error.into()))?;
        let mut found = found.clone();
        if let (true, Some(initial)) = (found.squared_radius.is_nan(), &initial) {
            found.squared_radius = Stable::for_features(initial.features()).squared_radius;
        }
        Ok((Box::new(Self { users, initial, ..*self }), found))
    }

    /// Makes the task, the key and the parties.
    fn begin(
        self: Box<Self>,
        weights: Option<Weights>,
        largest: Option<f64>,
        squared_radius: f64,
        cancelled: &AtomicBool,
    ) -> PyResult<Box<Running>> {
        let seed = Seed::new(self.seed);
        let spec = LearnerSpec { squared_radius, ..self.spec };
        let Some(first) = self.users.first() else { return Err(learning(no_users())) };
        let start = match (weights, &self.initial) {
            (Some(weights), _) => StartingPoint::from_weights(spec, weights, self.threads),
            (None, Some(initial)) => StartingPoint::train(spec, initial, &seed, self.threads),
            (None, None) => Weights::zeros(first.features().width(), first.labels().class_count())
                .map_err(Error::from)
                .and_then(|weights| StartingPoint::from_weights(spec, weights, self.threads)),
        }
        .map_err(learning)?;
        let (mut size, users) = (ModelSize::of(&start.weights), self.users.len());
        size.largest_weight = largest.unwrap_or(size.largest_weight);
        let (id, config, payload) = start
            .spec
            .simulated_task(&self.encryption, size, users, self.weighting, self.seed)
            .map_err(learning)?;
        let sum = Sum::new(id, config, self.weighting, users, self.secure, self.threads, cancelled)?;
        let params = SimulationParams {
            server_step: start.spec.server_step,
            threads: self.threads,
            ..SimulationParams::default()
        };
        let trainer = LocalTrainer::new(start.learner, payload).map_err(|error| learning(error.into()))?;
        let mut simulation = Simulation::new(self.users, start.weights, trainer, sum, params, seed)
            .map_err(learning)?
            .starting_at(self.first);
        if let (Some(controller), Some(initial)) = (start.controller, self.initial) {
            simulation = simulation
                .with_initial_data(initial)
                .and_then(|simulation| simulation.with_controller(controller))
                .map_err(learning)?;
        }
        Ok(Box::new(Running {
            simulation: Some(simulation),
            largest: size.largest_weight,
            clock: self.clock,
        }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(simulation) = self.simulation.take() {
            simulation.into_average().keep_key();
        }
    }
}

fn no_users() -> Error {
    Error::TooFewUsers { users: 0, needed: 3 }
}

/// Sums the users' moments.
pub(crate) fn standardization(
    users: &[&Features],
    encryption: &EncryptionSpec,
    secure: bool,
    seed: u64,
    threads: NonZeroUsize,
    cancelled: &AtomicBool,
) -> PyResult<Standardization> {
    let width = users.first().ok_or_else(|| learning(no_users()))?.width();
    let (id, config) = Standardization::task(encryption, width, users.len(), seed).map_err(learning)?;
    let mut sum = Sum::new(id, config, Weighting::Equal, users.len(), secure, threads, cancelled)?;
    let found = Standardization::of(&mut sum, users);
    sum.keep_key();
    found.map_err(learning)
}

/// The sums of a task, encrypted or rounded in the same way without encryption.
pub(crate) enum Sum {
    Encrypted(Box<DpheAverage<Random>>),
    Plain(PlainAverage),
}

impl Sum {
    /// Makes the parties of a task, with a key.
    pub(crate) fn new(
        id: TaskId,
        config: TaskConfig,
        weighting: Weighting,
        users: usize,
        secure: bool,
        threads: NonZeroUsize,
        cancelled: &AtomicBool,
    ) -> PyResult<Self> {
        let task = TaskParams::new(id, config).map_err(|error| learning(error.into()))?;
        if !secure {
            return Ok(Self::Plain(PlainAverage::new(task, weighting, users).map_err(learning)?.rounded()));
        }
        let threads = Threads::new(threads.get());
        let mut rng: Random = Box::new(simple::os_rng().map_err(exception)?);
        let key = simulation_key(task.key_bits(), task.config().noise, &mut rng, threads, cancelled)?;
        KeyGenerator::with_key(task, key, &mut rng)
            .map_err(Error::from)
            .and_then(|generator| DpheAverage::with_key_generator(generator, weighting, users, rng, threads))
            .map(|average| Self::Encrypted(Box::new(average)))
            .map_err(learning)
    }

    /// Keeps the key for the next simulation.
    pub(crate) fn keep_key(self) {
        if let Self::Encrypted(average) = self
            && let Ok(mut keys) = KEYS.try_lock()
        {
            let key = average.into_key_generator().into_key();
            let same = |kept: &DecryptionKey| {
                same_kind(kept, key.encryption_key().bits(), key.encryption_key().mode())
            };
            if !keys.iter().any(same) {
                keys.push(key);
            }
        }
    }
}

impl Average for Sum {
    fn task(&self) -> &TaskParams {
        match self {
            Self::Encrypted(average) => average.task(),
            Self::Plain(average) => average.task(),
        }
    }

    fn weighting(&self) -> Weighting {
        match self {
            Self::Encrypted(average) => average.weighting(),
            Self::Plain(average) => average.weighting(),
        }
    }

    fn average(
        &mut self,
        round: Round,
        updates: &[UserUpdate],
        stopwatch: &mut Stopwatch,
    ) -> Result<Averaged, Error> {
        match self {
            Self::Encrypted(average) => average.average(round, updates, stopwatch),
            Self::Plain(average) => average.average(round, updates, stopwatch),
        }
    }
}

/// One key of each kind for all simulations of the process, because generating one takes seconds and a simulation has
/// no secrets: it knows all data.
static KEYS: Mutex<Vec<DecryptionKey>> = Mutex::new(Vec::new());

fn same_kind(key: &DecryptionKey, bits: KeyBits, noise: NoiseMode) -> bool {
    key.encryption_key().bits() == bits && key.encryption_key().mode() == noise
}

/// Takes the key of this kind, or generates one.
fn simulation_key(
    bits: KeyBits,
    noise: NoiseMode,
    rng: &mut Random,
    threads: Threads,
    cancelled: &AtomicBool,
) -> PyResult<DecryptionKey> {
    if let Ok(mut keys) = KEYS.try_lock()
        && let Some(at) = keys.iter().position(|key| same_kind(key, bits, noise))
    {
        return Ok(keys.swap_remove(at));
    }
    let report = |_| match cancelled.load(Ordering::Relaxed) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    DecryptionKey::generate_with_progress(bits, noise, rng, threads, &report).map_err(exception)
}

/// Returns the number of threads that Python asks for.
pub(crate) fn thread_count(threads: Option<usize>) -> PyResult<NonZeroUsize> {
    let count = convert::threads(threads)?.get();
    NonZeroUsize::new(count).ok_or_else(|| invalid("a call needs at least one thread", "threads"))
}

/// Returns a report as a dictionary.
fn report_of<'py>(py: Python<'py>, report: &RoundReport) -> PyResult<Bound<'py, PyDict>> {
    let RoundReport {
        round, users, relative_change, update_sparsity, average_sparsity, clipped, cost, ..
    } = report;
    let dict = PyDict::new(py);
    dict.set_item("round", round)?;
    dict.set_item("users", users)?;
    dict.set_item("relative_change", relative_change)?;
    dict.set_item("update_sparsity", update_sparsity)?;
    dict.set_item("average_sparsity", average_sparsity)?;
    dict.set_item("clipped", clipped)?;
    set_cost(&dict, cost, report.seconds.as_ref())?;
    if let Some(accuracy) = report.initial_accuracy {
        dict.set_item("initial_accuracy", accuracy)?;
    }
    if let Some(strength) = report.strength {
        dict.set_item("strength", strength)?;
    }
    if report.verdict == Some(Verdict::Diverging) {
        dict.set_item("diverging", true)?;
    }
    Ok(dict)
}

/// Adds the cost of a round to its report.
pub(crate) fn set_cost(dict: &Bound<'_, PyDict>, cost: &Cost, seconds: Option<&Seconds>) -> PyResult<()> {
    dict.set_item("ciphertexts", cost.ciphertexts)?;
    dict.set_item("bytes", cost.bytes)?;
    if let Some(seconds) = seconds {
        dict.set_item("train_seconds", seconds.train)?;
        dict.set_item("seal_seconds", seconds.seal)?;
        dict.set_item("aggregate_seconds", seconds.aggregate)?;
        dict.set_item("open_seconds", seconds.open)?;
    }
    Ok(())
}

/// Splits samples as `dphe simulate` does. Returns the indices of the initial samples, of each user's and of those held
/// out.
#[pyfunction]
#[allow(clippy::type_complexity, reason = "Python gets lists")]
pub(crate) fn split_samples(
    labels: Elements<u32>,
    classes: usize,
    users: usize,
    initial_per_class: usize,
    train_per_class: Option<usize>,
    test_per_class: usize,
    seed: u64,
) -> PyResult<(Vec<usize>, Vec<Vec<usize>>, Vec<usize>)> {
    let labels = Labels::classes(classes, labels.into_vec()).map_err(|error| learning(error.into()))?;
    let dealing = Dealing::Disjoint;
    let params = ScenarioParams { users, initial_per_class, train_per_class, test_per_class, dealing };
    let split = Split::of(&labels, &params, &Seed::new(seed)).map_err(learning)?;
    Ok((split.initial, split.users, split.held_out))
}

/// Deals this many samples to users at random.
#[pyfunction]
pub(crate) fn deal_samples(samples: usize, users: usize, seed: u64) -> PyResult<Vec<Vec<usize>>> {
    let samples: Vec<usize> = (0..samples).collect();
    shares(&samples, users, &Seed::new(seed)).map_err(|error| learning(error.into()))
}
