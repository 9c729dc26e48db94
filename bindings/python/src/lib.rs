//! The native part of the Python package `dphe`. Python checks shapes and types, and calls what is here with flat
//! buffers. Nothing here has an algorithm of its own.
//!
//! * `paillier`: keys, ciphertexts and pools
//! * `learn`: simulated rounds of federated learning
//! * `cluster`: simulated rounds of federated clustering
//! * `roles`: tasks, users, the aggregator and the key generator over bytes
//! * `vectors`: what part of a vector an update carries
//! * `convert`: buffers, threads and factors from Python
//! * `errors`: Rust's errors as the exceptions of `dphe.errors`
//! * `interrupt`: long work in chunks, between which Python handles signals

mod cluster;
mod convert;
mod errors;
mod interrupt;
mod learn;
mod paillier;
mod roles;
mod vectors;

use pyo3::prelude::*;

/// The native part of the package.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::cluster::Clusters;
    #[pymodule_export]
    use super::learn::{Federation, deal_samples, split_samples};
    #[pymodule_export]
    use super::paillier::{Ciphertexts, DecryptionKey, EncryptionKey, Layout, Pool};
    #[pymodule_export]
    use super::roles::{Aggregator, AggregatorKit, Collecting, KeyGenerator, Sum, Task, User, UserKit};
    #[pymodule_export]
    use super::vectors::{largest, largest_blocks};
    #[pymodule_export]
    use super::{panic_for_test, version};
}

/// Returns the version of the package.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Panics, so that a test can see which exception Python gets.
#[pyfunction]
#[allow(clippy::panic, reason = "the test of panics needs one")]
fn panic_for_test(py: Python<'_>) -> PyResult<()> {
    interrupt::uninterrupted(py, || panic!("asked for by a test"))
}
