//! What several experiments do: remember a split, run an encrypted average, sum up repetitions.

use std::sync::{Arc, Mutex, PoisonError};

use dphe_federate::{RoundReport, Scenario, Stopwatch};
use dphe_learn::{Seed, Weights};

use super::Settings;
use crate::methods::dphe::{Dphe, Form, Keys, Outcome, Recipe};
use crate::{Cell, Claim, Error, Measured, Measurement, Run};

/// The last thing made, in case the next run wants it too.
#[derive(Debug)]
pub(crate) struct Memo<K, V>(Mutex<Option<(K, Arc<V>)>>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<K: PartialEq, V> Memo<K, V> {
    pub(crate) fn get(&self, key: K, make: impl FnOnce() -> Result<V, Error>) -> Result<Arc<V>, Error> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, value)) = &*last
            && *known == key
        {
            return Ok(value.clone());
        }
        // not two large splits at once
        *last = None;
        let value = Arc::new(make()?);
        *last = Some((key, value.clone()));
        Ok(value)
    }
}

/// A recipe with the settings' numbers.
pub(crate) fn recipe(form: Form, settings: &Settings, sparsity: f64) -> Recipe {
    let defaults = Recipe::new(form);
    Recipe {
        rounds: settings.rounds.map_or(defaults.rounds, |rounds| rounds.min(defaults.rounds)),
        share: (1.0 - sparsity).max(0.01),
        sparsity,
        key_bits: settings.key_bits,
        ..defaults
    }
}

/// Runs a recipe, encrypted if the settings say so, and measures all but how good the classifier is.
pub(crate) fn measure_dphe(
    scenario: &Scenario,
    recipe: Recipe,
    settings: &Settings,
    seed: u64,
    keys: &Keys,
    stopwatch: &mut Stopwatch,
) -> Result<(Weights, Measurement), Error> {
    let method = Dphe::new(scenario, recipe, &Seed::new(seed), settings.threads)?;
    let packed = matches!(recipe.form, Form::LargestBlocks | Form::Rotating);
    let outcome: Outcome = match settings.encrypts(seed, packed) {
        true => method.encrypted(keys, stopwatch)?,
        false => method.plain(stopwatch)?,
    };
    let mut measurement = Measurement::from([
        ("sparsity".to_owned(), 100.0 * outcome.mean(|report| report.message_sparsity)),
        ("shards".to_owned(), outcome.mean(|report| method.shards(report) as f64)),
        ("ciphertexts".to_owned(), method.ciphertexts(&outcome)?),
    ]);
    if let Some(strength) = outcome.reports.last().and_then(|report| report.strength) {
        measurement.insert("strength".to_owned(), strength);
    }
    if let Some(equal) = outcome.equal {
        measurement.insert("equal".to_owned(), f64::from(u8::from(equal)));
    }
    if stopwatch.runs() {
        let users = scenario.users.len() as f64;
        let mut time = |name: &str, of: fn(&RoundReport) -> f64| {
            measurement.insert(name.to_owned(), outcome.mean(of) / users);
        };
        time("train_s", |report| report.seconds.map_or(0.0, |seconds| seconds.train));
        if outcome.equal.is_some() {
            time("seal_s", |report| report.seconds.map_or(0.0, |seconds| seconds.seal));
        }
    }
    Ok((outcome.weights, measurement))
}

/// All repetitions of something.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Repeated(pub(crate) Vec<f64>);

impl Repeated {
    pub(crate) fn of(measured: &Measured, what: &str, name: &str) -> Self {
        let found = measured.iter().filter(|(run, _)| run.what == what);
        Self(found.filter_map(|(_, measurement)| measurement.get(name).copied()).collect())
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.iter().sum::<f64>() / self.0.len() as f64)
    }

    /// Of these repetitions, not of all that could be: as numpy does, and so probably the paper.
    pub(crate) fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares: f64 = self.0.iter().map(|v| (v - mean) * (v - mean)).sum();
        Some((squares / self.0.len() as f64).sqrt())
    }

    /// Of all that could be, estimated.
    pub(crate) fn sample_deviation(&self) -> Option<f64> {
        let count = self.0.len() as f64;
        (count > 1.0).then(|| self.deviation().map(|d| d * (count / (count - 1.0)).sqrt())).flatten()
    }

    pub(crate) fn count(&self) -> Cell {
        Cell::Number(self.0.len() as f64)
    }
}

/// Whether encryption gave what sums in the clear gave, wherever both were done.
pub(crate) fn equality(measured: &Measured) -> Option<Claim> {
    let checked: Vec<f64> = measured.values().filter_map(|m| m.get("equal").copied()).collect();
    let equal = checked.iter().filter(|&&equal| equal == 1.0).count();
    (!checked.is_empty()).then(|| Claim {
        text: "Encrypted rounds give the same weights as rounds in the clear, bit for bit".to_owned(),
        holds: equal == checked.len(),
        seen: format!("{equal} of {} encrypted runs", checked.len()),
    })
}

/// Every name with every seed, repetition after repetition: whoever stops early has whole repetitions.
pub(crate) fn runs(settings: &Settings, names: &[String]) -> Vec<Run> {
    settings.seeds().flat_map(|seed| names.iter().map(move |what| Run { what: what.clone(), seed })).collect()
}
