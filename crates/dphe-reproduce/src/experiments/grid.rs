//! Experiments as data: a grid of cells, each of them a method on one data set with one way to split it.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use dphe_federate::{Scenario, Stopwatch};
use dphe_learn::{Dataset, Seed, Weights};

use super::results::Results;
use super::settings::{DataSource, Split};
use super::table2::timing;
use super::{Encryption, Settings};
use crate::methods::accuracy;
use crate::methods::baseline::{self, PooledSteps};
use crate::methods::clusters::{self, ClusterMethod};
use crate::methods::dphe::{Dphe, DpheVariant, Keys, Recipe};
use crate::methods::noisy::{self, NoisyMethod, NoisyScenario, Norm};
use crate::{Error, Experiment, Findings, Measured, Measurement, RunId};

/// One of the paper's tables or figures: every cell of a grid is measured on every split.
pub struct Grid {
    pub(super) spec: GridSpec,
    scenario: Memo<(usize, Split, u64), Scenario>,
    strength: Memo<(DpheVariant, u64), f64>,
    keys: Keys,
}

/// The data that define an experiment.
pub(super) struct GridSpec {
    /// The name on the command line.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) notes: Vec<String>,
    pub(super) sources: Vec<Box<dyn DataSource>>,
    pub(super) settings: Settings,
    /// Settings that only this experiment has.
    pub(super) own_settings: Vec<(&'static str, String)>,
    pub(super) cells: Vec<GridCell>,
    /// The measurement that classifiers are compared by.
    pub(super) main: &'static str,
    pub(super) judge: Judge,
    /// Whether noisy methods report every strength, and the result without noise.
    pub(super) reports_strengths: bool,
    pub(super) summarize: Summarize,
}

/// Measures how good a classifier is on some samples. It may use the scenario that the classifier was trained in.
pub(super) type Judge =
    Box<dyn Fn(&Weights, &Dataset, &Scenario, NonZeroUsize) -> Result<Measurement, Error>>;

/// Derives the tables, plots and claims of an experiment from its results.
pub(super) type Summarize = Box<dyn Fn(&Results<'_>) -> Findings>;

/// A method on one data set, split in one way.
#[derive(Clone, Debug)]
pub(super) struct GridCell {
    /// The name of its runs.
    pub(super) what: String,
    /// The name of the method in tables.
    pub(super) label: String,
    /// Its position among the sources.
    pub(super) source: usize,
    pub(super) split: Split,
    pub(super) method: Method,
    /// Which runs are encrypted, if the method is DPHE.
    pub(super) encryption: Encryption,
    /// The recipe whose rounds find the strength of the penalty, if DPHE does not find it during its own rounds.
    pub(super) strength_from: Option<Recipe>,
    /// The numbers in the paper, in the order of the table's columns.
    pub(super) printed: &'static [f64],
    /// A word about the method's privacy for the table.
    pub(super) privacy: &'static str,
}

/// What a cell measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Method {
    /// The most frequent answer for every sample.
    Constant,
    /// All data in one place.
    Pooled(PooledSteps),
    /// The public samples only.
    Initial,
    /// The mean over users who train alone.
    Alone,
    Noisy(NoisyMethod, Norm),
    Dphe(Recipe),
    Clusters {
        method: ClusterMethod,
        /// The fraction of the centroids' numbers that a message carries.
        share: f64,
    },
    /// The time to encrypt under a key of this many bits. It does not depend on the data and is measured once.
    EncryptionTime(u32),
}

impl Method {
    pub(super) fn name(self) -> String {
        match self {
            Self::Constant => "always the same answer".to_owned(),
            Self::Pooled(PooledSteps::Optimal) => "No-PP".to_owned(),
            Self::Pooled(PooledSteps::Stable) => "No-PP (stable steps)".to_owned(),
            Self::Initial => "public samples alone".to_owned(),
            Self::Alone => "every user alone".to_owned(),
            Self::Noisy(NoisyMethod::Prr10, Norm::None) => "PRR10".to_owned(),
            Self::Noisy(NoisyMethod::Prr10, Norm::Unit) => "PRR10 (unit norm)".to_owned(),
            Self::Noisy(NoisyMethod::Ra12, Norm::None) => "RA12".to_owned(),
            Self::Noisy(NoisyMethod::Ra12, Norm::Unit) => "RA12 (unit norm)".to_owned(),
            Self::Dphe(recipe) => match recipe.server_step {
                None => format!("DPHE {}", recipe.variant.name()),
                Some(step) => format!("DPHE {}, step {step}", recipe.variant.name()),
            },
            Self::Clusters { method, .. } => method.name().to_owned(),
            Self::EncryptionTime(bits) => timing::name(bits),
        }
    }

    fn weight(self) -> f64 {
        match self {
            Self::Dphe(recipe) if recipe.variant == DpheVariant::SolvedWeights => 20.0,
            Self::Noisy(..) | Self::Dphe(_) => 10.0,
            _ => 1.0,
        }
    }
}

impl GridSpec {
    /// An experiment without cells, judged by accuracy.
    pub(super) fn new(
        name: &'static str,
        title: &'static str,
        settings: Settings,
        sources: Vec<Box<dyn DataSource>>,
    ) -> Self {
        Self {
            name,
            title,
            notes: Vec::new(),
            sources,
            settings,
            own_settings: Vec::new(),
            cells: Vec::new(),
            main: "accuracy",
            judge: Box::new(|weights, data, _, threads| {
                Ok(Measurement::from([("accuracy".to_owned(), accuracy(weights, data, threads)?)]))
            }),
            reports_strengths: false,
            summarize: Box::new(|_| Findings::default()),
        }
    }
}

impl GridCell {
    /// A cell whose samples are dealt to users without overlap.
    pub(super) fn new(what: String, source: usize, method: Method, settings: &Settings) -> Self {
        Self {
            what,
            label: method.name(),
            source,
            split: Split::disjoint(settings.users),
            method,
            encryption: settings.encryption,
            strength_from: None,
            printed: &[],
            privacy: "",
        }
    }
}

impl Grid {
    pub(super) fn new(spec: GridSpec) -> Self {
        Self { spec, scenario: Memo::default(), strength: Memo::default(), keys: Keys::default() }
    }

    fn cell(&self, run: &RunId) -> Result<&GridCell, Error> {
        let found = self.spec.cells.iter().find(|cell| cell.what == run.what);
        found.ok_or_else(|| Error::UnknownRun(run.what.clone()))
    }

    fn measure_on(
        &self,
        scenario: &Scenario,
        cell: &GridCell,
        seed: u64,
        stopwatch: &mut Stopwatch,
    ) -> Result<Measurement, Error> {
        let GridSpec { main, judge, reports_strengths, settings, .. } = &self.spec;
        let Settings { rounds, threads, .. } = *settings;
        let held_out = |weights: &Weights| judge(weights, &scenario.held_out, scenario, threads);
        let at = Seed::new(seed);
        match cell.method {
            Method::Constant => held_out(&baseline::constant(scenario)?),
            Method::Pooled(steps) => held_out(&baseline::pooled(scenario, steps, &at, threads)?),
            Method::Initial => held_out(&baseline::initial(scenario, &at, threads)?),
            Method::Alone => {
                let each = baseline::alone(scenario, &at, threads)?;
                let each = each.iter().map(held_out).collect::<Result<Vec<_>, _>>()?;
                let mut mean = Measurement::new();
                for (name, value) in each.iter().flatten() {
                    *mean.entry(name.clone()).or_default() += value / each.len() as f64;
                    let best = mean.entry(format!("best {name}")).or_insert(f64::NEG_INFINITY);
                    *best = best.max(*value);
                }
                Ok(mean)
            }
            Method::Noisy(method, norm) => {
                let data = NoisyScenario::new(scenario, norm)?;
                let on = |weights: &Weights, on: &Dataset| judge(weights, on, scenario, threads);
                noisy::measure(method, &data, (main, &on), *reports_strengths, &at, threads)
            }
            Method::Dphe(mut recipe) => {
                if let Some(first) = cell.strength_from {
                    recipe.strength = Some(self.strength(scenario, first, seed)?);
                }
                let (weights, mut measurement) =
                    self.measure_dphe(scenario, recipe, cell.encryption, seed, stopwatch)?;
                measurement.extend(held_out(&weights)?);
                Ok(measurement)
            }
            Method::Clusters { method, share } => {
                clusters::measure(scenario, method, rounds, share, &at, threads)
            }
            Method::EncryptionTime(bits) => timing::measure(bits, threads, stopwatch),
        }
    }

    /// Runs a recipe, encrypted if the run is one of those to encrypt. Measures everything except the classifier's
    /// quality.
    fn measure_dphe(
        &self,
        scenario: &Scenario,
        recipe: Recipe,
        encryption: Encryption,
        seed: u64,
        stopwatch: &mut Stopwatch,
    ) -> Result<(Weights, Measurement), Error> {
        let settings = Settings { encryption, ..self.spec.settings };
        let method = Dphe::new(scenario, recipe, &Seed::new(seed), settings.threads)?;
        let packed = matches!(recipe.variant, DpheVariant::LargestBlocks | DpheVariant::Rotating);
        let found = match settings.encrypts(seed, packed) {
            true => method.encrypted(&self.keys, stopwatch)?,
            false => method.plain(stopwatch)?,
        };
        let measurement = found.measurement(&method, stopwatch.runs())?;
        Ok((found.weights, measurement))
    }

    /// Returns the strength of the penalty that the controller reaches with a recipe.
    fn strength(&self, scenario: &Scenario, recipe: Recipe, seed: u64) -> Result<f64, Error> {
        let found = self.strength.get((recipe.variant, seed), || {
            let (_, measurement) =
                self.measure_dphe(scenario, recipe, Encryption::Nothing, seed, &mut Stopwatch::none())?;
            Ok(measurement.get("strength").copied().unwrap_or(0.0))
        })?;
        Ok(*found)
    }
}

impl Experiment for Grid {
    fn name(&self) -> &'static str {
        self.spec.name
    }

    fn settings(&self) -> Vec<(String, String)> {
        let own = self.spec.own_settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let mut lines = self.spec.settings.lines(self.spec.sources.iter().map(|source| source.described()));
        lines.extend(own);
        lines
    }

    fn runs(&self) -> Vec<RunId> {
        let run = |cell: &GridCell, seed| RunId { what: cell.what.clone(), seed };
        let (once, repeated): (Vec<_>, Vec<_>) =
            self.spec.cells.iter().partition(|cell| matches!(cell.method, Method::EncryptionTime(_)));
        let once = once.into_iter().map(|cell| run(cell, self.spec.settings.seed));
        // split by split, so that an interrupted experiment has whole repetitions
        let seeds = self.spec.settings.seeds();
        once.chain(seeds.flat_map(|seed| repeated.iter().map(move |cell| run(cell, seed)))).collect()
    }

    fn weight(&self, run: &RunId) -> f64 {
        self.cell(run).map_or(1.0, |cell| cell.method.weight() * cell.split.copies() as f64)
    }

    fn measure(&self, run: &RunId, stopwatch: &mut Stopwatch) -> Result<Measurement, Error> {
        let cell = self.cell(run)?;
        let source = &self.spec.sources[cell.source];
        let scenario = self.scenario.get((cell.source, cell.split, run.seed), || {
            source.scenario(&self.spec.settings, cell.split, run.seed)
        })?;
        self.measure_on(&scenario, cell, run.seed, stopwatch)
    }

    fn findings(&self, measured: &Measured) -> Findings {
        let results = Results { spec: &self.spec, measured };
        let mut findings = (self.spec.summarize)(&results);
        self.spec.title.clone_into(&mut findings.title);
        findings.notes.clone_from(&self.spec.notes);
        findings.claims.extend(results.equality());
        findings
    }
}

impl core::fmt::Debug for Grid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Grid").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

/// The last value that was made. The next run often needs it again.
#[derive(Debug)]
struct Memo<K, V>(Mutex<Option<(K, Arc<V>)>>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<K: PartialEq, V> Memo<K, V> {
    fn get(&self, key: K, make: impl FnOnce() -> Result<V, Error>) -> Result<Arc<V>, Error> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, value)) = &*last
            && *known == key
        {
            return Ok(value.clone());
        }
        // two large splits at once would not fit into memory
        *last = None;
        let value = Arc::new(make()?);
        *last = Some((key, value.clone()));
        Ok(value)
    }
}
