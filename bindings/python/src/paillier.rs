//! Keys, ciphertexts and pools. Batches are flat: Python keeps their shapes.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use dphe_paillier::{
    BlindingPool, Ciphertext, Error, KeyBits, NoiseMode, PassphraseCost, Plaintext, SlotLayout, Threads,
    hazmat, simple,
};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};
use zeroize::Zeroizing;

use crate::convert::{self, Elements, Numbers};
use crate::errors::{bug, exception, invalid};
use crate::interrupt::{in_chunks, uninterrupted};

/// How many encryptions, sums or conversions the first chunk of a call has.
const FIRST: usize = 256;
/// The same for calls that raise ciphertexts to long powers, per thread.
const FIRST_SLOW: usize = 8;
/// How often the generation of a key looks for signals and reports.
const POLL: Duration = Duration::from_millis(50);

/// A public key.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct EncryptionKey(pub(crate) dphe_paillier::EncryptionKey);

#[pymethods]
impl EncryptionKey {
    /// Creates the key with this modulus (big-endian).
    #[staticmethod]
    fn from_modulus(py: Python<'_>, modulus: &[u8], noise: &str) -> PyResult<Self> {
        let mode = mode(noise)?;
        uninterrupted(py, || dphe_paillier::EncryptionKey::from_modulus(modulus, mode))?
            .map(Self)
            .map_err(exception)
    }

    /// Reads a key that `to_bytes` wrote.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        uninterrupted(py, || dphe_paillier::EncryptionKey::from_bytes(data))?.map(Self).map_err(exception)
    }

    /// Returns the key as bytes.
    fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }

    /// Returns the modulus, big-endian.
    fn modulus(&self) -> Vec<u8> {
        self.0.modulus_be_bytes()
    }

    #[getter]
    fn bits(&self) -> u32 {
        self.0.bits().get()
    }

    #[getter]
    fn id(&self) -> [u8; 32] {
        *self.0.id().as_bytes()
    }

    #[getter]
    fn noise(&self) -> &'static str {
        self.0.mode().name()
    }

    #[getter]
    fn backend(&self) -> &'static str {
        self.0.backend().name()
    }

    /// Encrypts numbers, each in a ciphertext of its own, with noise from a pool if one is given.
    fn encrypt(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        pool: Option<&Pool>,
        threads: Option<usize>,
    ) -> PyResult<Ciphertexts> {
        let (key, threads) = (&self.0, convert::threads(threads)?);
        let prepare = |range| numbers.plaintexts(range, key);
        self.encrypt_plaintexts(py, numbers.count(key), pool, threads, prepare)
    }

    /// Encrypts integers, many in a ciphertext.
    fn encrypt_packed(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        layout: &Layout,
        pool: Option<&Pool>,
        threads: Option<usize>,
    ) -> PyResult<Ciphertexts> {
        let (key, threads) = (&self.0, convert::threads(threads)?);
        let count = numbers.count(key);
        let prepare = |range| packed(key, &numbers, count, &layout.0, range);
        self.encrypt_plaintexts(py, layout.0.plaintexts(count), pool, threads, prepare)
    }

    /// Reads ciphertexts in wire form, and checks them.
    fn read_wire(&self, py: Python<'_>, data: &[u8], threads: Option<usize>) -> PyResult<Ciphertexts> {
        let (key, threads) = (&self.0, convert::threads(threads)?);
        let each = key.ciphertext_bytes();
        if !data.len().is_multiple_of(each) {
            return Err(exception(Error::CiphertextLength { expected: each, found: data.len() }));
        }
        let items = in_chunks(py, data.len() / each, FIRST, Ok, |range| {
            key.decode(&data[range.start * each..range.end * each], threads)
                .map_err(|error| later(error, range.start))
        })?;
        Ok(Ciphertexts { key: key.clone(), items })
    }

    /// Reads ciphertexts as integers (big-endian), and checks them.
    fn read_integers(
        &self,
        py: Python<'_>,
        integers: Vec<Vec<u8>>,
        threads: Option<usize>,
    ) -> PyResult<Ciphertexts> {
        let (key, threads) = (&self.0, convert::threads(threads)?);
        let items = in_chunks(py, integers.len(), FIRST, Ok, |range| {
            let integers: Vec<&[u8]> = integers[range.clone()].iter().map(|integer| &integer[..]).collect();
            key.from_integers(&integers, threads).map_err(|error| later(error, range.start))
        })?;
        Ok(Ciphertexts { key: key.clone(), items })
    }

    /// Returns `count` encryptions of zero without noise.
    fn zeros(&self, count: usize) -> Ciphertexts {
        Ciphertexts { key: self.0.clone(), items: vec![Ciphertext::neutral(&self.0); count] }
    }

    /// Encrypts one residue with the caller's random number, as python-paillier can.
    fn encrypt_with_nonce(&self, residue: &[u8], nonce: &[u8]) -> PyResult<Ciphertexts> {
        let plaintext = Plaintext::from_residue_bytes(&self.0, residue).map_err(exception)?;
        let item = hazmat::encrypt_with_nonce(&self.0, &plaintext, nonce).map_err(exception)?;
        Ok(Ciphertexts { key: self.0.clone(), items: vec![item] })
    }
}

impl EncryptionKey {
    /// Encrypts the plaintexts that `prepare` makes of each range.
    fn encrypt_plaintexts(
        &self,
        py: Python<'_>,
        count: usize,
        pool: Option<&Pool>,
        threads: Threads,
        prepare: impl FnMut(std::ops::Range<usize>) -> PyResult<Vec<Plaintext>>,
    ) -> PyResult<Ciphertexts> {
        let key = &self.0;
        let items = match pool {
            None => {
                let mut rng = simple::os_rng().map_err(exception)?;
                in_chunks(py, count, first(key, threads), prepare, |plaintexts| {
                    key.encrypt_all(&plaintexts, &mut rng, threads)
                })?
            }
            Some(pool) => {
                // All blindings are taken at once, so that a pool that holds too few keeps them.
                let mut blindings = pool.take(key, count)?;
                in_chunks(py, count, FIRST, prepare, |plaintexts| {
                    let rest = blindings.split_off(plaintexts.len());
                    key.encrypt_with(&plaintexts, std::mem::replace(&mut blindings, rest), threads)
                })?
            }
        };
        Ok(Ciphertexts { key: key.clone(), items })
    }
}

/// How many numbers a plaintext packs.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct Layout(SlotLayout);

#[pymethods]
impl Layout {
    #[new]
    fn new(key: &EncryptionKey, value_bits: u32, terms: u64) -> PyResult<Self> {
        SlotLayout::new(&key.0, value_bits, terms).map(Self).map_err(exception)
    }

    #[getter]
    fn slot_bits(&self) -> u32 {
        self.0.slot_bits()
    }

    #[getter]
    fn slots(&self) -> usize {
        self.0.slots()
    }

    /// Returns how many plaintexts hold that many values.
    fn plaintexts(&self, values: usize) -> usize {
        self.0.plaintexts(values)
    }
}

/// A batch of ciphertexts of one key.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct Ciphertexts {
    key: dphe_paillier::EncryptionKey,
    items: Vec<Ciphertext>,
}

#[pymethods]
impl Ciphertexts {
    fn __len__(&self) -> usize {
        self.items.len()
    }

    /// Returns the sums with another batch of the same length.
    fn add(&self, py: Python<'_>, other: &Self, threads: Option<usize>) -> PyResult<Self> {
        let (key, threads) = (&self.key, convert::threads(threads)?);
        same_length(self.items.len(), other.items.len())?;
        let items = in_chunks(py, self.items.len(), FIRST, Ok, |range| {
            key.add(&self.items[range.clone()], &other.items[range], threads)
        })?;
        Ok(self.with(items))
    }

    /// Returns the sums with as many numbers.
    fn add_numbers(&self, py: Python<'_>, numbers: Numbers, threads: Option<usize>) -> PyResult<Self> {
        let (key, threads) = (&self.key, convert::threads(threads)?);
        same_length(self.items.len(), numbers.count(key))?;
        let prepare = |range: std::ops::Range<usize>| Ok((range.clone(), numbers.plaintexts(range, key)?));
        let items = in_chunks(py, self.items.len(), FIRST, prepare, |(range, plaintexts)| {
            key.add_plain(&self.items[range], &plaintexts, threads)
        })?;
        Ok(self.with(items))
    }

    /// Returns the sums of packed ciphertexts with as many numbers as they hold.
    fn add_packed(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        layout: &Layout,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let (key, threads) = (&self.key, convert::threads(threads)?);
        let count = numbers.count(key);
        same_length(self.items.len(), layout.0.plaintexts(count))?;
        let prepare = |range: std::ops::Range<usize>| {
            Ok((range.clone(), packed(key, &numbers, count, &layout.0, range)?))
        };
        let items = in_chunks(py, self.items.len(), FIRST, prepare, |(range, plaintexts)| {
            key.add_plain(&self.items[range], &plaintexts, threads)
        })?;
        Ok(self.with(items))
    }

    /// Returns the products with as many small public integers.
    fn mul_small(&self, py: Python<'_>, factors: Elements<i64>, threads: Option<usize>) -> PyResult<Self> {
        let (key, threads) = (&self.key, convert::threads(threads)?);
        same_length(self.items.len(), factors.len())?;
        let items = in_chunks(py, self.items.len(), 16 * threads.get(), Ok, |range| {
            key.mul_small_vartime(&self.items[range.clone()], &factors[range], threads)
        })?;
        Ok(self.with(items))
    }

    /// Returns the products with as many public integers, each given by whether it is negative and by its magnitude
    /// (big-endian).
    fn mul_large(
        &self,
        py: Python<'_>,
        factors: Vec<(bool, Vec<u8>)>,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let (key, threads) = (&self.key, convert::threads(threads)?);
        same_length(self.items.len(), factors.len())?;
        let items = in_chunks(py, self.items.len(), FIRST_SLOW * threads.get(), Ok, |range| {
            let factors: Vec<(bool, &[u8])> =
                factors[range.clone()].iter().map(|(negative, bytes)| (*negative, &bytes[..])).collect();
            key.mul_vartime(&self.items[range], &factors, threads)
        })?;
        Ok(self.with(items))
    }

    /// Returns the negated ciphertexts.
    fn negate(&self, py: Python<'_>, threads: Option<usize>) -> PyResult<Self> {
        let (key, threads) = (&self.key, convert::threads(threads)?);
        let items = in_chunks(py, self.items.len(), 16 * threads.get(), Ok, |range| {
            key.negate_vartime(&self.items[range], threads)
        })?;
        Ok(self.with(items))
    }

    /// Returns the ciphertexts with fresh noise.
    fn rerandomize(&self, py: Python<'_>, threads: Option<usize>) -> PyResult<Self> {
        let (key, threads) = (&self.key, convert::threads(threads)?);
        let mut rng = simple::os_rng().map_err(exception)?;
        let items = in_chunks(py, self.items.len(), first(key, threads), Ok, |range| {
            let mut fresh = self.items[range].to_vec();
            key.rerandomize(&mut fresh, &mut rng, threads)?;
            Ok(fresh)
        })?;
        Ok(self.with(items))
    }

    /// Returns the sum of each `length` consecutive ciphertexts.
    fn sum_rows(&self, py: Python<'_>, rows: usize, length: usize, threads: Option<usize>) -> PyResult<Self> {
        let (key, threads) = (&self.key, convert::threads(threads)?);
        same_length(self.items.len(), rows.saturating_mul(length))?;
        let items = in_chunks(py, rows, (1024 / length.max(1)).max(1), Ok, |range| {
            range.map(|row| key.sum(&self.items[row * length..][..length], threads)).collect()
        })?;
        Ok(self.with(items))
    }

    /// Returns the ciphertexts with these indices.
    fn take(&self, indices: Elements<i64>) -> PyResult<Self> {
        let item = |index: i64| {
            let index = usize::try_from(index).ok();
            index.and_then(|index| self.items.get(index)).cloned()
        };
        let items = indices.iter().map(|&index| item(index)).collect::<Option<_>>();
        Ok(self.with(items.ok_or_else(|| invalid("an index is out of range", "position"))?))
    }

    /// Returns the ciphertexts of several batches as one batch of a key of the same modulus.
    #[staticmethod]
    fn join(py: Python<'_>, key: &EncryptionKey, parts: Vec<Py<Self>>) -> PyResult<Self> {
        let mut items = Vec::with_capacity(parts.len());
        for part in &parts {
            for item in &part.borrow(py).items {
                items.push(item.for_key(&key.0).map_err(exception)?);
            }
        }
        Ok(Self { key: key.0.clone(), items })
    }

    /// Returns each ciphertext as a batch of its own.
    fn split(&self) -> Vec<Self> {
        self.items.iter().map(|item| self.with(vec![item.clone()])).collect()
    }

    /// Returns whether all ciphertexts are equal to those of another batch.
    fn equals(&self, other: &Self) -> bool {
        self.items == other.items
    }

    /// Returns the wire form.
    fn to_wire<'py>(&self, py: Python<'py>, threads: Option<usize>) -> PyResult<Bound<'py, PyBytes>> {
        let (key, threads) = (&self.key, convert::threads(threads)?);
        let bytes =
            in_chunks(py, self.items.len(), FIRST, Ok, |range| key.encode(&self.items[range], threads))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Returns the ciphertexts as integers, big-endian.
    fn to_integers<'py>(
        &self,
        py: Python<'py>,
        threads: Option<usize>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let (key, threads) = (&self.key, convert::threads(threads)?);
        let all =
            in_chunks(py, self.items.len(), FIRST, Ok, |range| key.to_integers(&self.items[range], threads))?;
        Ok(all.iter().map(|integer| PyBytes::new(py, integer)).collect())
    }
}

impl Ciphertexts {
    fn with(&self, items: Vec<Ciphertext>) -> Self {
        Self { key: self.key.clone(), items }
    }
}

/// Noise that is made ahead of time. It belongs to the process that made it: a forked child starts with an empty pool.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct Pool {
    key: dphe_paillier::EncryptionKey,
    content: Mutex<Content>,
}

struct Content {
    pool: BlindingPool,
    process: u32,
}

#[pymethods]
impl Pool {
    #[new]
    fn new(key: &EncryptionKey) -> Self {
        let content = Content { pool: BlindingPool::new(&key.0), process: std::process::id() };
        Self { key: key.0.clone(), content: Mutex::new(content) }
    }

    /// Adds noise for `count` ciphertexts.
    fn refill(&self, py: Python<'_>, count: usize, threads: Option<usize>) -> PyResult<()> {
        let threads = convert::threads(threads)?;
        let mut rng = simple::os_rng().map_err(exception)?;
        let mut fresh = BlindingPool::new(&self.key);
        in_chunks::<_, ()>(py, count, first(&self.key, threads), Ok, |range| {
            fresh.refill(range.len(), &mut rng, threads);
            Ok(Vec::new())
        })?;
        let fresh = fresh.take(count).map_err(exception)?;
        self.content()?.pool.put(fresh).map_err(exception)
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.content()?.pool.len())
    }

    /// Throws all noise away.
    fn clear(&self) -> PyResult<()> {
        self.content()?.pool = BlindingPool::new(&self.key);
        Ok(())
    }
}

impl Pool {
    fn take(
        &self,
        key: &dphe_paillier::EncryptionKey,
        count: usize,
    ) -> PyResult<Vec<dphe_paillier::Blinding>> {
        if *key != self.key {
            return Err(exception(Error::KeyMismatch));
        }
        self.content()?.pool.take(count).map_err(exception)
    }

    /// Returns the content, which is emptied first if another process made it. Nobody holds the lock for longer than it
    /// takes to move blindings, so a lock that stays taken was taken by a thread that a fork left behind.
    fn content(&self) -> PyResult<MutexGuard<'_, Content>> {
        let mut content = loop {
            match self.content.try_lock() {
                Ok(content) => break content,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        };
        if content.process != std::process::id() {
            content.pool = BlindingPool::new(&self.key);
            content.process = std::process::id();
        }
        Ok(content)
    }
}

/// A secret key.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct DecryptionKey(pub(crate) dphe_paillier::DecryptionKey);

#[pymethods]
impl DecryptionKey {
    /// Generates a key. `progress` is called with the intervals searched and the number expected.
    #[staticmethod]
    fn generate(
        py: Python<'_>,
        bits: u32,
        noise: &str,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let (bits, mode) = (KeyBits::new(bits).map_err(exception)?, mode(noise)?);
        let threads = convert::threads(threads)?;
        let mut rng = simple::os_rng().map_err(exception)?;
        let state = Search::default();
        let waiting = std::thread::current();
        // The search runs in a thread of its own, so that this one can look for signals.
        std::thread::scope(|scope| {
            let search = scope.spawn(|| {
                let report = |progress| state.report(progress);
                let key = dphe_paillier::DecryptionKey::generate_with_progress(
                    bits, mode, &mut rng, threads, &report,
                );
                waiting.unpark();
                key
            });
            let waited = loop {
                py.detach(|| std::thread::park_timeout(POLL));
                if search.is_finished() {
                    break Ok(());
                }
                if let Err(error) = state.tell(py, progress.as_ref()) {
                    state.cancelled.store(true, Ordering::Relaxed);
                    break Err(error);
                }
            };
            let key = py.detach(|| search.join()).map_err(|_| bug())?;
            waited?;
            key.map(Self).map_err(exception)
        })
    }

    /// Creates the key with these factors (big-endian), as python-paillier can.
    #[staticmethod]
    fn from_factors(py: Python<'_>, p: &[u8], q: &[u8], noise: &str) -> PyResult<Self> {
        let mode = mode(noise)?;
        uninterrupted(py, || hazmat::decryption_key(p, q, mode))?.map(Self).map_err(exception)
    }

    /// Returns the factors, big-endian.
    fn factors<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let [p, q] = hazmat::factors(&self.0);
        (PyBytes::new(py, &p), PyBytes::new(py, &q))
    }

    /// Reads a key that `seal` wrote.
    #[staticmethod]
    fn open(py: Python<'_>, data: &[u8], passphrase: &Bound<'_, PyAny>) -> PyResult<Self> {
        let passphrase = secret_bytes(passphrase)?;
        uninterrupted(py, || dphe_paillier::DecryptionKey::from_encrypted_bytes(data, &passphrase))?
            .map(Self)
            .map_err(exception)
    }

    /// Returns the key, encrypted under a passphrase.
    fn seal<'py>(&self, py: Python<'py>, passphrase: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let passphrase = secret_bytes(passphrase)?;
        let mut rng = simple::os_rng().map_err(exception)?;
        let sealed =
            uninterrupted(py, || self.0.to_encrypted_bytes(&passphrase, PassphraseCost::STANDARD, &mut rng))?;
        Ok(PyBytes::new(py, &sealed.map_err(exception)?))
    }

    #[getter]
    fn encryption_key(&self) -> EncryptionKey {
        EncryptionKey(self.0.encryption_key().clone())
    }

    /// Decrypts integers into a buffer.
    fn decrypt_integers(
        &self,
        py: Python<'_>,
        ciphertexts: &Ciphertexts,
        out: PyBuffer<i64>,
        threads: Option<usize>,
    ) -> PyResult<()> {
        let integers = self.decrypt_each(py, ciphertexts, threads, |index, plaintext| {
            plaintext.to_i64().ok_or(Error::Number { index, reason: "does not fit into 64 bits" })
        })?;
        convert::write(py, &out, &integers)
    }

    /// Decrypts fixed-point fractions into a buffer.
    fn decrypt_fractions(
        &self,
        py: Python<'_>,
        ciphertexts: &Ciphertexts,
        out: PyBuffer<f64>,
        scale_bits: u32,
        threads: Option<usize>,
    ) -> PyResult<()> {
        let fractions = self.decrypt_each(py, ciphertexts, threads, |index, plaintext| {
            simple::fraction(index, plaintext, scale_bits)
        })?;
        convert::write(py, &out, &fractions)
    }

    /// Decrypts packed integers into a buffer, whose length says how many there are.
    fn decrypt_packed(
        &self,
        py: Python<'_>,
        ciphertexts: &Ciphertexts,
        out: PyBuffer<i64>,
        layout: &Layout,
        threads: Option<usize>,
    ) -> PyResult<()> {
        let plaintexts = self.decrypt_each(py, ciphertexts, threads, |_, plaintext| Ok(plaintext.clone()))?;
        let count = out.item_count();
        let integers = uninterrupted(py, || layout.0.unpack(&plaintexts, count))?.map_err(exception)?;
        convert::write(py, &out, &integers)
    }

    /// Decrypts residues modulo `n`: big-endian, each in as many bytes as `n` has.
    fn decrypt_residues<'py>(
        &self,
        py: Python<'py>,
        ciphertexts: &Ciphertexts,
        threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        let residues =
            self.decrypt_each(py, ciphertexts, threads, |_, plaintext| Ok(plaintext.to_residue_bytes()))?;
        let all =
            Zeroizing::new(residues.iter().flat_map(|residue| residue.iter().copied()).collect::<Vec<u8>>());
        Ok(PyByteArray::new(py, &all))
    }
}

impl DecryptionKey {
    /// Decrypts a batch and reads each plaintext.
    fn decrypt_each<T: Send>(
        &self,
        py: Python<'_>,
        ciphertexts: &Ciphertexts,
        threads: Option<usize>,
        read: impl Fn(usize, &Plaintext) -> Result<T, Error> + Sync,
    ) -> PyResult<Vec<T>> {
        let threads = convert::threads(threads)?;
        let mut rng = simple::os_rng().map_err(exception)?;
        in_chunks(py, ciphertexts.items.len(), 2 * FIRST_SLOW * threads.get(), Ok, |range| {
            let plaintexts = self.0.decrypt_all(&ciphertexts.items[range.clone()], &mut rng, threads)?;
            range.zip(&plaintexts).map(|(index, plaintext)| read(index, plaintext)).collect()
        })
    }
}

/// The state of a search for primes, which its threads and Python's thread share.
#[derive(Default)]
struct Search {
    searched: AtomicU64,
    expected: AtomicU64,
    cancelled: AtomicBool,
}

impl Search {
    /// Notes how far the search has come, and answers whether it goes on.
    fn report(&self, progress: dphe_paillier::Progress) -> ControlFlow<()> {
        self.searched.store(progress.searched, Ordering::Relaxed);
        self.expected.store(progress.expected.ceil() as u64, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Handles signals and tells Python how far the search has come.
    fn tell(&self, py: Python<'_>, progress: Option<&Py<PyAny>>) -> PyResult<()> {
        py.check_signals()?;
        let Some(progress) = progress else { return Ok(()) };
        progress.call1(py, (self.searched.load(Ordering::Relaxed), self.expected.load(Ordering::Relaxed)))?;
        Ok(())
    }
}

/// Packs the integers of the plaintexts `range`, of `count` integers in all.
fn packed(
    key: &dphe_paillier::EncryptionKey,
    numbers: &Numbers,
    count: usize,
    layout: &SlotLayout,
    range: std::ops::Range<usize>,
) -> PyResult<Vec<Plaintext>> {
    let start = range.start * layout.slots();
    let integers = numbers.integers(start..count.min(range.end * layout.slots())).map_err(exception)?;
    let overflow = |index| exception(Error::SlotOverflow { index: start + index, bound: layout.bound() });
    let integers: Zeroizing<Vec<i64>> = Zeroizing::new(
        integers
            .iter()
            .enumerate()
            .map(|(index, &integer)| i64::try_from(integer).map_err(|_| overflow(index)))
            .collect::<PyResult<_>>()?,
    );
    layout.pack(key, &integers).map_err(|error| match error {
        Error::SlotOverflow { index, .. } => overflow(index),
        error => exception(error),
    })
}

/// How many encryptions the first chunk of a call has.
fn first(key: &dphe_paillier::EncryptionKey, threads: Threads) -> usize {
    match key.mode() {
        NoiseMode::Secure | NoiseMode::Fast => FIRST,
        NoiseMode::Textbook => FIRST_SLOW * threads.get(),
    }
}

/// Returns an error of a chunk with the index of the whole batch.
fn later(error: Error, start: usize) -> Error {
    match error {
        Error::CiphertextRange { index } => Error::CiphertextRange { index: start + index },
        Error::CiphertextUnit { index } => Error::CiphertextUnit { index: start + index },
        error => error,
    }
}

fn same_length(expected: usize, found: usize) -> PyResult<()> {
    if expected == found { Ok(()) } else { Err(exception(Error::Length { expected, found })) }
}

/// Returns the noise mode with that name.
fn mode(name: &str) -> PyResult<NoiseMode> {
    NoiseMode::from_name(name).ok_or_else(|| {
        invalid(format!("the noise {name:?} is unknown; use secure, fast or textbook"), "noise")
    })
}

/// Copies a passphrase from `bytes` or a `bytearray`. The copy is wiped after use.
fn secret_bytes(passphrase: &Bound<'_, PyAny>) -> PyResult<Zeroizing<Vec<u8>>> {
    passphrase.extract().map(Zeroizing::new)
}
