//! Tasks, users, the aggregator and the key generator. What passes between them is bytes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dphe::scheme::RoundParams;
use dphe::wire::{OpenedBytes, PublicSum, PublishedBytes, RoleKind, role_bytes_round, sealed_update_bytes};
use dphe::{
    AggregatorKeys, Blinds, ClipRule, Digest, Error, NoiseMode, Profile, Receipts, Round, SealedSum,
    SealedUpdate, SparseVector, TaskConfig, TaskId, TaskParams, Threads, Update, UserId, UserKeys, WeightSum,
};
use dphe_paillier::{hazmat, simple};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sha2::{Digest as _, Sha256};

use crate::convert::{self, Elements};
use crate::errors::{exception, invalid, protocol_exception};
use crate::interrupt::{next_size, uninterrupted};
use crate::paillier::{DecryptionKey, EncryptionKey};

/// How many plaintexts the first chunk of a sealed vector has.
const FIRST: usize = 64;

/// What is summed, and in which form.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct Task(TaskParams);

/// The parameters of a task that Python chooses.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct TaskOptions {
    id: [u8; 16],
    profile: String,
    noise: String,
    bound: bool,
    key_bits: u32,
    dimension: u32,
    dense: u32,
    block: u32,
    capacity: u32,
    shards: u32,
    scale_bits: u8,
    clip_exponent: i8,
    clip: bool,
    min_users: u32,
    max_users: u32,
}

#[pymethods]
impl Task {
    #[new]
    fn new(options: TaskOptions) -> PyResult<Self> {
        let profile: Profile = options.profile.parse().map_err(protocol_exception)?;
        let noise = NoiseMode::from_name(&options.noise)
            .ok_or_else(|| invalid(format!("the noise {:?} is unknown", options.noise), "noise"))?;
        let config = TaskConfig {
            noise,
            receipts: if options.bound { Receipts::of(profile) } else { Receipts::None },
            key_bits: options.key_bits,
            dimension: options.dimension,
            dense: options.dense,
            block: options.block,
            capacity: options.capacity,
            shards: options.shards,
            scale_bits: options.scale_bits,
            clip_exponent: options.clip_exponent,
            clip_rule: if options.clip { ClipRule::Clip } else { ClipRule::Refuse },
            min_users: options.min_users,
            ..TaskConfig::new(profile, 1, options.dimension, options.max_users)
        };
        let task = TaskParams::new(TaskId::from_bytes(options.id), config).map_err(protocol_exception)?;
        Ok(Self(task))
    }

    /// Reads a task that `to_bytes` wrote.
    #[staticmethod]
    fn from_bytes(data: &[u8]) -> PyResult<Self> {
        TaskParams::from_bytes(data).map(Self).map_err(protocol_exception)
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    #[getter]
    fn id(&self) -> [u8; 16] {
        *self.0.id().as_bytes()
    }

    #[getter]
    fn profile(&self) -> &'static str {
        self.0.profile().as_str()
    }

    #[getter]
    fn noise(&self) -> &'static str {
        self.0.config().noise.name()
    }

    /// Whether sums are bound to their participants by masks or a check.
    #[getter]
    fn bound(&self) -> bool {
        self.0.receipts() != Receipts::None
    }

    #[getter]
    fn key_bits(&self) -> u32 {
        self.0.key_bits().get()
    }

    #[getter]
    fn dimension(&self) -> usize {
        self.0.dimension()
    }

    #[getter]
    fn dense(&self) -> usize {
        self.0.dense()
    }

    #[getter]
    fn block(&self) -> usize {
        self.0.block()
    }

    #[getter]
    fn positions(&self) -> u32 {
        self.0.positions()
    }

    #[getter]
    fn capacity(&self) -> usize {
        self.0.capacity()
    }

    #[getter]
    fn shards(&self) -> u32 {
        self.0.config().shards
    }

    #[getter]
    fn scale_bits(&self) -> u8 {
        self.0.config().scale_bits
    }

    #[getter]
    fn clip_exponent(&self) -> i8 {
        self.0.config().clip_exponent
    }

    #[getter]
    fn clip(&self) -> bool {
        self.0.config().clip_rule == ClipRule::Clip
    }

    #[getter]
    fn min_users(&self) -> u32 {
        self.0.config().min_users
    }

    #[getter]
    fn max_users(&self) -> usize {
        self.0.max_users()
    }

    #[getter]
    fn slot_bits(&self) -> u32 {
        self.0.slot_bits()
    }

    #[getter]
    fn slots(&self) -> usize {
        self.0.slots()
    }

    /// Returns the indices of a round's public support as 64-bit integers.
    fn support<'py>(&self, py: Python<'py>, round: u64) -> PyResult<Bound<'py, PyBytes>> {
        let params = self.params(py, round)?;
        let support = params.support();
        PyBytes::new_with(py, 8 * support.weights(), |bytes| {
            for (place, index) in bytes.as_chunks_mut().0.iter_mut().zip(support.indices()) {
                *place = (index as i64).to_ne_bytes();
            }
            Ok(())
        })
    }

    /// Returns the number of ciphertexts of an update of a round.
    fn ciphertexts(&self, py: Python<'_>, round: u64) -> PyResult<usize> {
        Ok(self.params(py, round)?.ciphertexts())
    }

    /// Returns the length of an update of a round.
    fn update_bytes(&self, py: Python<'_>, round: u64) -> PyResult<u64> {
        Ok(sealed_update_bytes(&self.params(py, round)?))
    }
}

impl Task {
    fn params(&self, py: Python<'_>, number: u64) -> PyResult<RoundParams> {
        let number = round(number)?;
        uninterrupted(py, || RoundParams::new(&self.0, number))
    }
}

/// A key generator. While it opens a sum, other calls wait.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct KeyGenerator(Mutex<GeneratorState>);

struct GeneratorState {
    generator: dphe::KeyGenerator,
    /// The hash of the last sum that was opened, and the answer. An exception, such as that of Ctrl-C, may keep the
    /// answer from the caller, and the round cannot be opened again.
    last: Option<([u8; 32], Vec<u8>)>,
    process: Process,
}

#[pymethods]
impl KeyGenerator {
    #[new]
    fn new(py: Python<'_>, task: &Task, key: &DecryptionKey) -> PyResult<Self> {
        let mut rng = simple::os_rng().map_err(exception)?;
        let key = copy(py, &key.0)?;
        let generator = dphe::KeyGenerator::with_key(task.0.clone(), key, &mut rng);
        generator.map(Self::of).map_err(protocol_exception)
    }

    /// Reads the seeds that `seeds` wrote.
    #[staticmethod]
    fn from_seeds(py: Python<'_>, seeds: &[u8], key: &DecryptionKey) -> PyResult<Self> {
        let key = copy(py, &key.0)?;
        let generator = dphe::KeyGenerator::from_secret_bytes(seeds, key);
        generator.map(Self::of).map_err(protocol_exception)
    }

    /// Returns the seeds, which are secret, without the decryption key.
    fn seeds<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let seeds = locked(py, &self.0, |state| state.generator.to_secret_bytes())?;
        Ok(PyBytes::new(py, &seeds))
    }

    fn enroll(&self, py: Python<'_>, user: u32) -> PyResult<UserKit> {
        let user = user_id(user)?;
        let mut rng = simple::os_rng().map_err(exception)?;
        let kit = locked(py, &self.0, |state| {
            state.process.check()?;
            let generator = &mut state.generator;
            if generator.users().any(|other| other == user) && !generator.has_kit(user) {
                return Err(Error::Order { state: RESTORED });
            }
            Ok(generator.enroll(user, &mut rng))
        })?;
        kit.map(UserKit).map_err(protocol_exception)
    }

    fn aggregator_kit(&self, py: Python<'_>) -> PyResult<AggregatorKit> {
        let kit = locked(py, &self.0, |GeneratorState { generator, .. }| {
            if generator.users().any(|user| !generator.has_kit(user)) {
                return Err(Error::Order { state: RESTORED });
            }
            Ok(generator.aggregator_keys())
        })?;
        kit.map(AggregatorKit).map_err(protocol_exception)
    }

    #[getter]
    fn task(&self, py: Python<'_>) -> PyResult<Task> {
        locked(py, &self.0, |state| Task(state.generator.task().clone()))
    }

    #[getter]
    fn encryption_key(&self, py: Python<'_>) -> PyResult<EncryptionKey> {
        locked(py, &self.0, |state| EncryptionKey(state.generator.encryption_key().clone()))
    }

    #[getter]
    fn users(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        locked(py, &self.0, |state| state.generator.users().map(UserId::get).collect())
    }

    #[getter]
    fn next_round(&self, py: Python<'_>) -> PyResult<u64> {
        locked(py, &self.0, |state| state.generator.next_round().get())
    }

    /// Opens a sealed sum, which ends its round. The sum that was opened last gives the same answer again.
    fn open<'py>(
        &self,
        py: Python<'py>,
        sum: &[u8],
        context: [u8; 32],
        threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let threads = convert::threads(threads)?;
        let mut rng = simple::os_rng().map_err(exception)?;
        let opened = locked(py, &self.0, |state| {
            state.process.check()?;
            let hash: [u8; 32] = Sha256::new().chain_update(context).chain_update(sum).finalize().into();
            if let Some((last, opened)) = &state.last
                && *last == hash
            {
                return Ok(opened.clone());
            }
            let sum = SealedSum::from_role_bytes(sum, state.generator.task())?;
            let sum = sum.with_ticket(Digest::from_bytes(context));
            let (params, users) = (Arc::clone(sum.params()), sum.users().to_vec());
            let sum = state.generator.open(sum, &mut rng, threads)?;
            let opened = OpenedBytes { users, sum }.to_role_bytes(&params);
            state.last = Some((hash, opened.clone()));
            Ok(opened)
        })?;
        Ok(PyBytes::new(py, &opened.map_err(protocol_exception)?))
    }
}

impl KeyGenerator {
    fn of(generator: dphe::KeyGenerator) -> Self {
        Self(Mutex::new(GeneratorState { generator, last: None, process: Process::current() }))
    }
}

/// What a key generator says that cannot make kits.
const RESTORED: &str = "this key generator was restored, and the seeds that users share with the aggregator are not \
                        stored; use the kits made before";

/// The process that made a party. After a fork, parent and child would both act as this party in a round.
#[derive(Clone, Copy)]
struct Process(u32);

impl Process {
    fn current() -> Self {
        Self(std::process::id())
    }

    fn check(self) -> Result<(), Error> {
        if self.0 == std::process::id() {
            return Ok(());
        }
        Err(Error::Order {
            state: "this party belongs to the process that made it; make it again from its kit, in one process only",
        })
    }
}

/// The keys of a user. They are secret.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct UserKit(UserKeys);

#[pymethods]
impl UserKit {
    #[staticmethod]
    fn from_secret_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        uninterrupted(py, || UserKeys::from_secret_bytes(data))?.map(Self).map_err(protocol_exception)
    }

    fn to_secret_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_secret_bytes())
    }

    #[getter]
    fn task(&self) -> Task {
        Task(self.0.task().clone())
    }

    #[getter]
    fn user(&self) -> u32 {
        self.0.user().get()
    }
}

/// The keys of the aggregator. They are secret.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct AggregatorKit(AggregatorKeys);

#[pymethods]
impl AggregatorKit {
    #[staticmethod]
    fn from_secret_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        uninterrupted(py, || AggregatorKeys::from_secret_bytes(data))?.map(Self).map_err(protocol_exception)
    }

    fn to_secret_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_secret_bytes())
    }

    #[getter]
    fn task(&self) -> Task {
        Task(self.0.task().clone())
    }
}

/// A user. Calls take a snapshot of its keys, so that they never wait for each other.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct User(Mutex<UserState>);

struct UserState {
    user: Arc<dphe::User>,
    /// The first round of which no update was sealed.
    next: Round,
    process: Process,
}

#[pymethods]
impl User {
    #[new]
    fn new(kit: &UserKit) -> PyResult<Self> {
        let user = Arc::new(dphe::User::new(kit.0.clone()).map_err(protocol_exception)?);
        Ok(Self(Mutex::new(UserState { user, next: Round::FIRST, process: Process::current() })))
    }

    /// Returns the keys with the seeds that are left.
    fn kit(&self) -> UserKit {
        UserKit(self.user().keys().clone())
    }

    #[getter]
    fn next_round(&self) -> u64 {
        self.state(|state| state.next.get())
    }

    /// Seals a vector with a public support. `part(start, stop)` returns the numbers `start..stop` of the support, so
    /// that Python converts a long vector in parts. Returns the update and how many values were clipped.
    fn seal_dense<'py>(
        &self,
        py: Python<'py>,
        round_id: (u64, [u8; 32]),
        part: Bound<'py, PyAny>,
        dense: Elements<f64>,
        threads: Option<usize>,
    ) -> PyResult<(Bound<'py, PyBytes>, usize)> {
        let (number, context, threads) = (round(round_id.0)?, round_id.1, convert::threads(threads)?);
        self.once(py, number, |user| {
            let params = round_params(py, user.task(), number, context)?;
            update_bytes(py, &seal_in_parts(py, user, &params, &part, &dense, threads)?)
        })
    }

    /// Seals a vector given by its entries.
    fn seal_sparse<'py>(
        &self,
        py: Python<'py>,
        round_id: (u64, [u8; 32]),
        entries: (Elements<u32>, Elements<f64>),
        dense: Elements<f64>,
        threads: Option<usize>,
    ) -> PyResult<(Bound<'py, PyBytes>, usize)> {
        let (number, context, threads) = (round(round_id.0)?, round_id.1, convert::threads(threads)?);
        self.once(py, number, |user| {
            let (indices, values) = (entries.0.to_vec(), entries.1.to_vec());
            let vector = SparseVector::new(user.task().dimension(), indices, values);
            let params = round_params(py, user.task(), number, context)?;
            let sealed = seal(py, user, &params, vector.map_err(protocol_exception)?, &dense, threads)?;
            update_bytes(py, &sealed)
        })
    }

    /// Checks a published sum and returns it.
    fn check(&self, py: Python<'_>, sum: &[u8], context: [u8; 32]) -> PyResult<Sum> {
        let (user, next) = self.state(|state| (Arc::clone(&state.user), state.next));
        let checked = uninterrupted(py, || {
            let round = role_bytes_round(sum, RoleKind::PublishedSum, user.task())?;
            let params = RoundParams::new(user.task(), round).with_ticket(Digest::from_bytes(context));
            let params = Arc::new(params);
            let published = PublishedBytes::from_role_bytes(sum, &params, user.keys().encryption_key())?;
            // Nothing tells that it was opened in this round, and checking it forgets all rounds up to it.
            let next = next.max(user.first_round());
            if matches!(published.sum, PublicSum::Clear(_)) && round > next {
                return Err(Error::Future { round, current: next });
            }
            let sum = published.check(&user)?;
            Ok(Sum { users: published.users, sum })
        })?;
        checked.map_err(protocol_exception)
    }

    /// Forgets the seeds of all rounds before this one, which can then be neither sealed nor checked.
    fn advance(&self, py: Python<'_>, number: u64) -> PyResult<()> {
        let number = round(number)?;
        let advanced = locked(py, &self.0, |state| {
            if number > state.user.first_round() {
                state.user.check_round(number)?;
                let mut user = dphe::User::new(state.user.keys().clone())?;
                user.advance(number);
                state.user = Arc::new(user);
            }
            state.next = state.next.max(number);
            Ok(())
        })?;
        advanced.map_err(protocol_exception)
    }
}

impl User {
    /// Nobody holds the lock while it waits for the interpreter.
    fn state<T>(&self, work: impl FnOnce(&mut UserState) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn user(&self) -> Arc<dphe::User> {
        self.state(|state| Arc::clone(&state.user))
    }

    /// Seals an update of a round of which none was sealed before. Two would reveal the support, or the difference of
    /// two vectors. If sealing fails, nothing was handed out, and the round can be sealed again.
    fn once<T>(
        &self,
        py: Python<'_>,
        number: Round,
        seal: impl FnOnce(&dphe::User) -> PyResult<T>,
    ) -> PyResult<T> {
        let (user, before) = self
            .state(|state| {
                state.process.check()?;
                if number < state.next {
                    return Err(Error::Conflict { what: "update of this round, or of a later one," });
                }
                // Without masks and a check, nothing else refuses a round that cannot be opened.
                state.user.check_round(number)?;
                let before = std::mem::replace(&mut state.next, number.next());
                Ok((Arc::clone(&state.user), before))
            })
            .map_err(protocol_exception)?;
        // A signal that came meanwhile would keep the update from the caller.
        let sealed = seal(&user).and_then(|sealed| py.check_signals().map(|()| sealed));
        if sealed.is_err() {
            self.state(|state| {
                if state.next == number.next() {
                    state.next = before;
                }
            });
        }
        sealed
    }
}

/// An aggregator.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct Aggregator(Mutex<dphe::Aggregator>);

#[pymethods]
impl Aggregator {
    #[new]
    fn new(kit: &AggregatorKit) -> PyResult<Self> {
        let aggregator = dphe::Aggregator::new(kit.0.clone());
        aggregator.map(|aggregator| Self(Mutex::new(aggregator))).map_err(protocol_exception)
    }

    /// Returns the keys with the seeds that are left.
    fn kit(&self, py: Python<'_>) -> PyResult<AggregatorKit> {
        locked(py, &self.0, |aggregator| AggregatorKit(aggregator.keys().clone()))
    }

    #[getter]
    fn enrolled(&self, py: Python<'_>) -> PyResult<usize> {
        locked(py, &self.0, |aggregator| aggregator.enrolled())
    }

    /// Starts to collect the updates of a round.
    fn begin(&self, py: Python<'_>, number: u64, context: [u8; 32]) -> PyResult<Collecting> {
        let number = round(number)?;
        locked(py, &self.0, |aggregator| {
            let params = RoundParams::new(aggregator.task(), number).with_ticket(Digest::from_bytes(context));
            let collecting = aggregator.begin_in(Arc::new(params));
            Collecting {
                // The seeds of the round are forgotten with `collecting`.
                aggregator: aggregator.without_seeds(),
                params: Arc::clone(collecting.params()),
                phase: Mutex::new(Phase::Collecting(Box::new(collecting))),
            }
        })
    }

    fn advance(&self, py: Python<'_>, number: u64) -> PyResult<()> {
        let number = round(number)?;
        let advanced = locked(py, &self.0, |aggregator| match aggregator.check_round(number) {
            // the seeds of later rounds stay
            Ok(()) | Err(Error::Stale { .. }) => {
                aggregator.advance(number);
                Ok(())
            }
            Err(error) => Err(error),
        })?;
        advanced.map_err(protocol_exception)
    }
}

/// A round of an aggregator: first it collects updates, then it has the sum.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct Collecting {
    aggregator: dphe::Aggregator,
    params: Arc<RoundParams>,
    phase: Mutex<Phase>,
}

enum Phase {
    Collecting(Box<dphe::Collecting>),
    Finished {
        users: Vec<UserId>,
        blinds: Blinds,
        /// The sealed sum, which is given again if an exception kept it from the caller.
        sum: Vec<u8>,
    },
}

#[pymethods]
impl Collecting {
    #[getter]
    fn round(&self) -> u64 {
        self.params.round().get()
    }

    /// Returns the users whose updates were accepted.
    #[getter]
    fn users(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        locked(py, &self.phase, |phase| match phase {
            Phase::Collecting(collecting) => collecting.users().map(UserId::get).collect(),
            Phase::Finished { users, .. } => users.iter().map(|user| user.get()).collect(),
        })
    }

    /// Adds a sealed update, and returns its user.
    fn accept(&self, py: Python<'_>, update: &[u8], threads: Option<usize>) -> PyResult<u32> {
        let threads = convert::threads(threads)?;
        let accepted = locked(py, &self.phase, |phase| {
            let Phase::Collecting(collecting) = phase else {
                return Err(Error::Late { round: self.params.round() });
            };
            let update = SealedUpdate::from_role_bytes(update, &self.params)?;
            let user = update.user();
            collecting.accept(update, threads)?;
            Ok(user.get())
        })?;
        accepted.map_err(protocol_exception)
    }

    /// Returns the sealed sum, the same one at every call. No further update is accepted.
    fn finish<'py>(&self, py: Python<'py>, threads: Option<usize>) -> PyResult<Bound<'py, PyBytes>> {
        let threads = convert::threads(threads)?;
        let finished = locked(py, &self.phase, |phase| {
            let empty = Phase::Finished { users: Vec::new(), blinds: Blinds::default(), sum: Vec::new() };
            let collecting = match std::mem::replace(phase, empty) {
                Phase::Collecting(collecting) => collecting,
                Phase::Finished { users, blinds, sum } => {
                    let again = sum.clone();
                    *phase = Phase::Finished { users, blinds, sum };
                    return Ok(again);
                }
            };
            match collecting.finish(threads) {
                Ok(mut sum) => {
                    let (users, blinds) = (sum.users().to_vec(), sum.take_blinds());
                    let sum = sum.to_role_bytes();
                    *phase = Phase::Finished { users, blinds, sum: sum.clone() };
                    Ok(sum)
                }
                Err(still) => {
                    *phase = Phase::Collecting(still.collecting);
                    Err(still.error)
                }
            }
        })?;
        Ok(PyBytes::new(py, &finished.map_err(protocol_exception)?))
    }

    /// Removes the aggregator's masks from an opened sum, and returns what users get.
    fn publish<'py>(&self, py: Python<'py>, opened: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let published = locked(py, &self.phase, |phase| {
            let Phase::Finished { users, blinds, .. } = phase else {
                return Err(Error::Order { state: "the sum of this round is not finished" });
            };
            let key = self.aggregator.keys().encryption_key();
            let opened = OpenedBytes::from_role_bytes(opened, &self.params, key)?;
            if opened.users != *users {
                return Err(Error::Conflict { what: "set of participants" });
            }
            Ok(opened.unmask(&self.aggregator, blinds)?.to_role_bytes(&self.params))
        })?;
        Ok(PyBytes::new(py, &published.map_err(protocol_exception)?))
    }

    /// Decodes a published sum, which the aggregator cannot check.
    fn decode(&self, py: Python<'_>, published: &[u8]) -> PyResult<Sum> {
        let decoded = uninterrupted(py, || {
            let key = self.aggregator.keys().encryption_key();
            let published = PublishedBytes::from_role_bytes(published, &self.params, key)?;
            let sum = published.decode_unchecked(&self.aggregator)?;
            Ok(Sum { users: published.users, sum })
        })?;
        decoded.map_err(protocol_exception)
    }
}

/// The opened sum of a round.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct Sum {
    users: Vec<UserId>,
    sum: WeightSum,
}

#[pymethods]
impl Sum {
    #[getter]
    fn round(&self) -> u64 {
        self.sum.round().get()
    }

    #[getter]
    fn users(&self) -> Vec<u32> {
        self.users.iter().map(|user| user.get()).collect()
    }

    /// Writes the sums of all weights, which are zero outside a public support.
    fn weights(&self, py: Python<'_>, out: PyBuffer<f64>) -> PyResult<()> {
        let weights = uninterrupted(py, || self.sum.decode_weights())?;
        convert::write(py, &out, &weights)
    }

    /// Writes the sums of the dense values.
    fn dense(&self, py: Python<'_>, out: PyBuffer<f64>) -> PyResult<()> {
        convert::write(py, &out, &self.sum.decode_dense())
    }

    /// Returns how many sums in fixed point there are, without the dense values.
    #[getter]
    fn count(&self) -> usize {
        self.sum.weights().len()
    }

    /// Writes the sums in fixed point: all of them, or those of a public support.
    fn integers(&self, py: Python<'_>, out: PyBuffer<i64>) -> PyResult<()> {
        convert::write(py, &out, self.sum.weights())
    }
}

/// Computes the parameters of a round in which masks and checks depend on `context`, or on nothing if it is zero.
fn round_params(
    py: Python<'_>,
    task: &TaskParams,
    number: Round,
    context: [u8; 32],
) -> PyResult<RoundParams> {
    uninterrupted(py, || RoundParams::new(task, number).with_ticket(Digest::from_bytes(context)))
}

/// Seals a sparse vector.
fn seal(
    py: Python<'_>,
    user: &dphe::User,
    params: &RoundParams,
    vector: SparseVector,
    dense: &[f64],
    threads: Threads,
) -> PyResult<SealedUpdate> {
    let mut rng = simple::os_rng().map_err(exception)?;
    let update = Update::new(vector).with_dense(dense.to_vec());
    uninterrupted(py, || user.seal_in(params, &update, &mut rng, threads))?.map_err(protocol_exception)
}

/// Seals a vector with a public support in chunks, between which Python handles signals.
fn seal_in_parts(
    py: Python<'_>,
    user: &dphe::User,
    params: &RoundParams,
    part: &Bound<'_, PyAny>,
    dense: &[f64],
    threads: Threads,
) -> PyResult<SealedUpdate> {
    let mut rng = simple::os_rng().map_err(exception)?;
    let mut sealing = uninterrupted(py, || user.begin_seal(params, &mut rng))?.map_err(protocol_exception)?;
    let count = sealing.missing().saturating_sub(dense.len());
    let (mut start, mut size) = (0, FIRST);
    while start < count {
        let stop = count.min(start + size * user.task().slots());
        let numbers: Elements<f64> = part.call1((start, stop))?.extract()?;
        check_length("numbers of a part", stop - start, numbers.len())?;
        let began = Instant::now();
        uninterrupted(py, || sealing.push(&numbers, &mut rng, threads))?.map_err(protocol_exception)?;
        py.check_signals()?;
        (start, size) = (stop, next_size(size, began.elapsed()));
    }
    uninterrupted(py, || {
        sealing.push(dense, &mut rng, threads)?;
        sealing.finish(&mut rng, threads)
    })?
    .map_err(protocol_exception)
}

/// Returns an update as bytes, with one copy of the ciphertexts.
fn update_bytes<'py>(py: Python<'py>, sealed: &SealedUpdate) -> PyResult<(Bound<'py, PyBytes>, usize)> {
    let (start, end) = sealed.role_parts();
    let bytes = PyBytes::new_with(py, start.len() + end.len(), |bytes| {
        let (first, second) = bytes.split_at_mut(start.len());
        first.copy_from_slice(&start);
        second.copy_from_slice(end);
        Ok(())
    })?;
    Ok((bytes, sealed.clipped()))
}

/// Runs `work` on what a lock guards. The interpreter is released first, because a thread that has the lock may wait
/// for it.
fn locked<T: Send, R: Send>(
    py: Python<'_>,
    lock: &Mutex<T>,
    work: impl FnOnce(&mut T) -> R + Send,
) -> PyResult<R> {
    uninterrupted(py, || work(&mut lock.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Copies a decryption key, which Rust does not copy by accident.
fn copy(py: Python<'_>, key: &dphe_paillier::DecryptionKey) -> PyResult<dphe_paillier::DecryptionKey> {
    let mode = key.encryption_key().mode();
    uninterrupted(py, || {
        let [p, q] = hazmat::factors(key);
        hazmat::decryption_key(&p, &q, mode)
    })?
    .map_err(exception)
}

fn check_length(what: &'static str, expected: usize, found: usize) -> PyResult<()> {
    if expected == found {
        return Ok(());
    }
    Err(protocol_exception(Error::Dimension { what, expected, found }))
}

fn round(number: u64) -> PyResult<Round> {
    Round::new(number).ok_or_else(|| invalid("rounds are numbered from 1", "encoding"))
}

fn user_id(number: u32) -> PyResult<UserId> {
    UserId::try_from(number).map_err(protocol_exception)
}
