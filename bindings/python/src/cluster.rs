//! Simulated rounds of federated clustering.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use dphe::{Profile, Round};
use dphe_federate::{
    Clustering, ClusteringParams, ClusteringReport, EncryptionSpec, Error, Standardization, Stopwatch,
    Weighting,
};
use dphe_learn::kmeans::{Centroids, plus_plus};
use dphe_learn::{Features, Seed, Standardizer};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{self, Elements};
use crate::errors::{invalid, learning};
use crate::interrupt::in_background;
use crate::learn::{Protection, Sum, gone, set_cost, standardization, thread_count};

/// All parties of a clustering in one process. A call that is interrupted leaves it without data.
#[pyclass(frozen, module = "dphe._core")]
pub(crate) struct Clusters(Mutex<Stage>);

enum Stage {
    Raw(Box<Parts>),
    Ready(Box<Parts>),
    Running(Box<Running>),
    /// A call is at work, or was interrupted.
    Away,
}

struct Parts {
    users: Vec<Features>,
    initial: Option<Features>,
    params: ClusteringParams,
    encryption: EncryptionSpec,
    secure: bool,
    seed: u64,
}

struct Running {
    clustering: Option<Clustering<Sum>>,
    clock: Instant,
}

#[pymethods]
impl Clusters {
    /// Takes each user's features (float32, row after row), and the initial samples if there are any.
    #[new]
    #[allow(clippy::too_many_arguments, reason = "Python passes flat arguments")]
    fn new(
        users: Vec<Elements<f32>>,
        width: usize,
        initial: Option<Elements<f32>>,
        clusters: usize,
        batch: Option<usize>,
        capacity: Option<usize>,
        seed: u64,
        protection: Protection,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let features = |values: Elements<f32>| Features::new(width, values.into_vec());
        let users = users.into_iter().enumerate().map(|(user, values)| {
            features(values).map_err(|source| learning(Error::OfUser { user, source }))
        });
        let parts = Parts {
            users: users.collect::<PyResult<_>>()?,
            initial: initial.map(features).transpose().map_err(|error| learning(error.into()))?,
            params: ClusteringParams { clusters, batch, capacity, threads: thread_count(threads)? },
            encryption: protection.spec(match capacity {
                None => Profile::Full,
                Some(_) => Profile::Sparse,
            })?,
            secure: protection.secure,
            seed,
        };
        Ok(Self(Mutex::new(Stage::Raw(Box::new(parts)))))
    }

    /// Standardises the samples: with the given means, deviations and bound, by the initial samples, or by moments that
    /// are summed over the users. Writes the means and the deviations, and returns the bound.
    fn standardize(
        &self,
        py: Python<'_>,
        known: Option<(Elements<f64>, Elements<f64>, f64)>,
        mean: PyBuffer<f64>,
        deviation: PyBuffer<f64>,
    ) -> PyResult<f64> {
        let Stage::Raw(parts) = self.take()? else { return Err(invalid("it is standardised", "state")) };
        let known = known
            .map(|(mean, deviation, clip)| {
                Standardizer::from_parts(mean.into_vec(), deviation.into_vec(), clip)
            })
            .transpose()
            .map_err(|error| learning(error.into()))?;
        let (parts, standardizer) =
            in_background(py, move |cancelled| parts.standardized(known, cancelled))??;
        convert::write(py, &mean, standardizer.mean())?;
        convert::write(py, &deviation, standardizer.deviation())?;
        self.put(Stage::Ready(Box::new(parts)));
        Ok(standardizer.clip())
    }

    /// Starts the rounds, from centroids if they are given, otherwise from centroids that the initial samples give, or
    /// from one. `seen` says how many samples each centroid has seen in earlier batches.
    fn begin(
        &self,
        py: Python<'_>,
        start: Option<(Elements<f64>, Elements<f64>)>,
        first_round: u64,
    ) -> PyResult<()> {
        let Stage::Ready(parts) = self.take()? else {
            return Err(invalid("it is not standardised yet, or has begun", "state"));
        };
        let first = Round::new(first_round).ok_or_else(|| invalid("rounds count from 1", "parameter"))?;
        let start = start.map(|(centroids, seen)| (centroids.into_vec(), seen.into_vec()));
        let running = in_background(py, move |cancelled| parts.begin(start, first, cancelled))??;
        self.put(Stage::Running(running));
        Ok(())
    }

    /// Runs one round. Returns its report, and whether there are still fewer clusters than asked for.
    fn round<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, bool)> {
        let Stage::Running(mut running) = self.take()? else {
            return Err(invalid("it has not begun", "state"));
        };
        let (running, result) = in_background(py, move |_| {
            let clock = running.clock;
            let mut stopwatch = Stopwatch::new(move || clock.elapsed());
            let result = running.clustering.as_mut().map(|clustering| {
                clustering.round(&mut stopwatch).map(|report| (report, clustering.is_growing()))
            });
            (running, result)
        })?;
        self.put(Stage::Running(running));
        match result {
            Some(Ok((report, growing))) => Ok((report_of(py, &report)?, growing)),
            Some(Err(error)) => Err(learning(error)),
            None => Err(gone()),
        }
    }

    /// Returns the centroids, one after the other, and how many samples each has seen in batches.
    fn centroids(&self) -> PyResult<(Vec<f64>, Vec<f64>)> {
        let stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Stage::Running(running) = &*stage else { return Err(gone()) };
        let clustering = running.clustering.as_ref().ok_or_else(gone)?;
        Ok((clustering.centroids().flat().to_vec(), clustering.seen().to_vec()))
    }
}

impl Clusters {
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

impl Parts {
    fn standardized(
        self,
        known: Option<Standardizer>,
        cancelled: &AtomicBool,
    ) -> PyResult<(Self, Standardizer)> {
        let standardizer = match (known, &self.initial) {
            (Some(known), _) => known,
            (None, Some(initial)) => Standardizer::fit(initial),
            (None, None) => {
                let Standardization { standardizer, .. } = standardization(
                    &self.users.iter().collect::<Vec<_>>(),
                    &self.encryption,
                    self.secure,
                    self.seed,
                    self.params.threads,
                    cancelled,
                )?;
                standardizer
            }
        };
        let Self { users, initial, .. } = self;
        let standardize = |features| standardizer.apply(features);
        let users: Result<Vec<_>, _> = users.into_iter().map(standardize).collect();
        let users = users.map_err(|error| learning(error.into()))?;
        let initial = initial.map(standardize).transpose().map_err(|error| learning(error.into()))?;
        Ok((Self { users, initial, ..self }, standardizer))
    }

    fn begin(
        self,
        start: Option<(Vec<f64>, Vec<f64>)>,
        first: Round,
        cancelled: &AtomicBool,
    ) -> PyResult<Box<Running>> {
        let (seed, users) = (Seed::new(self.seed), self.users.len());
        let width = self.users.first().map_or(0, Features::width);
        let (start, seen) = match (start, &self.initial) {
            (Some((flat, seen)), _) => (Some(Centroids::new(width, flat)), Some(seen)),
            (None, Some(initial)) => (Some(plus_plus(initial, self.params.clusters, &seed)), None),
            (None, None) => (None, None),
        };
        let start = start.transpose().map_err(|error| learning(error.into()))?;
        let largest = |samples: usize| self.params.batch.map_or(samples, |batch| batch.min(samples));
        let samples: usize = self.users.iter().map(|features| largest(features.len())).sum();
        let (id, config) =
            self.params.task(&self.encryption, width, users, samples as f64, self.seed).map_err(learning)?;
        let threads: NonZeroUsize = self.params.threads;
        let sum = Sum::new(id, config, Weighting::Equal, users, self.secure, threads, cancelled)?;
        let mut clustering = Clustering::new(self.users, start, sum, self.params, seed).map_err(learning)?;
        if let Some(seen) = seen {
            clustering = clustering.starting_at(first, seen).map_err(learning)?;
        }
        Ok(Box::new(Running { clustering: Some(clustering), clock: Instant::now() }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(clustering) = self.clustering.take() {
            clustering.into_average().keep_key();
        }
    }
}

fn report_of<'py>(py: Python<'py>, report: &ClusteringReport) -> PyResult<Bound<'py, PyDict>> {
    let ClusteringReport { round, clusters, relative_change, update_sparsity, cost, seconds } = report;
    let dict = PyDict::new(py);
    dict.set_item("round", round)?;
    dict.set_item("clusters", clusters)?;
    dict.set_item("relative_change", relative_change)?;
    dict.set_item("update_sparsity", update_sparsity)?;
    set_cost(&dict, cost, seconds.as_ref())?;
    Ok(dict)
}
