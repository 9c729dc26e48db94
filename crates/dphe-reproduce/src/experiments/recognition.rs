//! Attributes of faces (Table 3), sensitive places (Table 4) and videos (Table 5): several labels a sample, or one rare
//! one.

use dphe_federate::{Scenario, Stopwatch};
use dphe_learn::metrics::{average_precision, mean_average_precision};
use dphe_learn::{Dataset, Seed, Weights};

use super::shared::{Memo, Repeated, equality, measure_dphe, recipe, runs};
use super::{AttributeSource, Settings};
use crate::methods::baseline::{self, Steps};
use crate::methods::dphe::{Form, Keys};
use crate::methods::prr10::Prr10;
use crate::methods::ra12::Ra12;
use crate::methods::{NoisyScenario, Norm, Privacy, STRENGTHS, accuracy};
use crate::{Cell, Claim, Column, Error, Experiment, Findings, Measured, Measurement, Run, Table, Unit};

/// Which of the paper's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Forty attributes of faces: mean accuracy.
    Faces,
    /// Whether a picture shows a sensitive place: average precision.
    Places,
    /// The most frequent attributes of videos: mean average precision.
    Videos,
}

/// Numbers of most frequent attributes that videos are judged by.
const MOST_FREQUENT: [usize; 3] = [10, 50, 100];

impl Task {
    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Faces => "celeba",
            Self::Places => "lifelog",
            Self::Videos => "youtube8m",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Faces => "Table 3: face attributes",
            Self::Places => "Table 4: sensitive places",
            Self::Videos => "Supplement, Table 1: video attributes",
        }
    }

    /// How sparse the paper's classifiers were.
    fn sparsity(self) -> f64 {
        match self {
            Self::Faces => 0.75,
            Self::Places => 0.95,
            Self::Videos => 0.65,
        }
    }

    /// The measures, the main one first: name, title, unit.
    fn measures(self) -> &'static [(&'static str, &'static str, Unit)] {
        match self {
            Self::Faces => {
                &[("accuracy", "mean accuracy, %", Unit::Percent), ("balanced", "balanced, %", Unit::Percent)]
            }
            Self::Places => &[("ap", "average precision", Unit::Plain)],
            Self::Videos => &[
                ("map10", "mAP of 10", Unit::Plain),
                ("map50", "mAP of 50", Unit::Plain),
                ("map100", "mAP of 100", Unit::Plain),
            ],
        }
    }

    fn main(self) -> &'static str {
        self.measures().first().map_or("", |(name, ..)| name)
    }

    /// How good a classifier is on some samples. The frequencies are those of all that is learnt from.
    fn judge(
        self,
        weights: &Weights,
        data: &Dataset,
        scenario: &Scenario,
        settings: &Settings,
    ) -> Result<Measurement, Error> {
        let scores = weights.scores(data.features(), settings.threads)?;
        let labels = data.labels();
        let mut measurement = Measurement::new();
        match self {
            Self::Faces => {
                measurement.insert("accuracy".to_owned(), accuracy(weights, data, settings.threads)?);
                measurement.insert("balanced".to_owned(), balanced(data, &scores.above_zero()));
            }
            Self::Places => {
                let positive: Vec<bool> = (0..data.len()).map(|i| labels.is_positive(i, 0)).collect();
                let scores: Vec<f64> = scores.class(0).map(f64::from).collect();
                measurement.insert("ap".to_owned(), average_precision(&positive, &scores)?.unwrap_or(0.0));
            }
            Self::Videos => {
                let counts = scenario.pooled.labels().counts();
                let mut order: Vec<usize> = (0..counts.len()).collect();
                // stable: of equals the first
                order.sort_by_key(|&attribute| core::cmp::Reverse(counts[attribute]));
                for most in MOST_FREQUENT {
                    let found = mean_average_precision(labels, &scores, &order[..most.min(order.len())])?;
                    measurement.insert(format!("map{most}"), found.mean);
                }
            }
        }
        Ok(measurement)
    }

    fn printed(self, method: Method) -> &'static [f64] {
        let papers = Method::Dphe(Form::SparseWeights);
        match (self, method) {
            (Self::Faces, Method::Prr10(Norm::None)) => &[78.0],
            (Self::Faces, Method::Ra12(Norm::None)) => &[64.0],
            (Self::Faces, found) if found == papers => &[84.0],
            (Self::Places, Method::Prr10(Norm::None)) => &[0.546],
            (Self::Places, Method::Ra12(Norm::None)) => &[0.704],
            (Self::Places, found) if found == papers => &[0.729],
            (Self::Videos, Method::Prr10(Norm::None)) => &[0.62, 0.45, 0.38],
            (Self::Videos, Method::Ra12(Norm::None)) => &[0.60, 0.45, 0.37],
            (Self::Videos, Method::Pooled) => &[0.70, 0.55, 0.48],
            (Self::Videos, found) if found == papers => &[0.70, 0.53, 0.47],
            _ => &[],
        }
    }
}

/// The mean over attributes of the mean share of right answers among those that have it and those that do not; in per
/// cent. Attributes that all or none have are left out.
fn balanced(data: &Dataset, predicted: &[bool]) -> f64 {
    let attributes = data.labels().class_count();
    let mut shares = Vec::new();
    for attribute in 0..attributes {
        let (mut right, mut all) = ([0usize; 2], [0usize; 2]);
        for sample in 0..data.len() {
            let truth = data.labels().is_positive(sample, attribute);
            all[usize::from(truth)] += 1;
            right[usize::from(truth)] += usize::from(predicted[sample * attributes + attribute] == truth);
        }
        if all.iter().all(|&count| count > 0) {
            shares.push((right[0] as f64 / all[0] as f64 + right[1] as f64 / all[1] as f64) / 2.0);
        }
    }
    100.0 * shares.iter().sum::<f64>() / shares.len().max(1) as f64
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Method {
    Constant,
    Pooled,
    Prr10(Norm),
    Ra12(Norm),
    Dphe(Form),
    Initial,
}

impl Method {
    fn name(self) -> String {
        match self {
            Self::Constant => "always the same answer".to_owned(),
            Self::Pooled => "No-PP".to_owned(),
            Self::Prr10(Norm::None) => "PRR10".to_owned(),
            Self::Prr10(Norm::Unit) => "PRR10 (unit norm)".to_owned(),
            Self::Ra12(Norm::None) => "RA12".to_owned(),
            Self::Ra12(Norm::Unit) => "RA12 (unit norm)".to_owned(),
            Self::Dphe(form) => format!("DPHE {}", form.name()),
            Self::Initial => "public samples alone".to_owned(),
        }
    }
}

/// One of the three experiments.
#[derive(Debug)]
pub struct Recognition {
    task: Task,
    source: AttributeSource,
    settings: Settings,
    scenario: Memo<u64, Scenario>,
    keys: Keys,
}

impl Recognition {
    /// A task over data with attributes.
    pub fn new(task: Task, source: AttributeSource, settings: Settings) -> Self {
        Self { task, source, settings, scenario: Memo::default(), keys: Keys::default() }
    }

    fn methods(&self) -> Vec<Method> {
        let ours = match Form::of_profile(self.settings.profile) {
            Form::SparseWeights => Form::SolvedWeights,
            form => form,
        };
        vec![
            Method::Constant,
            Method::Pooled,
            Method::Prr10(Norm::None),
            Method::Prr10(Norm::Unit),
            Method::Ra12(Norm::None),
            Method::Ra12(Norm::Unit),
            Method::Dphe(Form::SparseWeights),
            Method::Dphe(ours),
            Method::Initial,
        ]
    }

    /// The answer that is most often right, whatever the sample.
    fn constant(&self, scenario: &Scenario) -> Result<Weights, Error> {
        let (labels, half) = (scenario.pooled.labels(), scenario.pooled.len() / 2);
        let intercepts: Vec<f64> =
            labels.counts().into_iter().map(|count| if count > half { 1.0 } else { -1.0 }).collect();
        let width = scenario.pooled.features().width();
        Ok(Weights::new(width, vec![0.0; width * intercepts.len()], intercepts)?)
    }

    /// The best classifier of a noisy method by the task's measure on the public samples.
    fn noisy(
        &self,
        method: Method,
        scenario: &Scenario,
        norm: Norm,
        seed: u64,
    ) -> Result<Measurement, Error> {
        let data = NoisyScenario::new(scenario, norm)?;
        let (threads, seed) = (self.settings.threads, Seed::new(seed));
        let judge = |weights: &Weights, on: &Dataset| self.task.judge(weights, on, scenario, &self.settings);
        let main = |found: &Measurement| found.get(self.task.main()).copied().unwrap_or(0.0);
        let mut best: Option<(f64, f64, Weights)> = None;
        let prr10 = matches!(method, Method::Prr10(_)).then(|| Prr10::new(&data, threads)).transpose()?;
        let ra12 = matches!(method, Method::Ra12(_)).then(|| Ra12::new(&data, threads)).transpose()?;
        for strength in STRENGTHS {
            let mut trials = Vec::new();
            if let Some(prr10) = &prr10 {
                trials.push(prr10.release(&prr10.mean(strength)?, strength, Privacy::PAPER, &seed)?);
            }
            if let Some(ra12) = &ra12 {
                trials.push(ra12.run(strength, Ra12::ITERATIONS, Some(Privacy::PAPER), &seed)?);
            }
            for trial in trials {
                let found = main(&judge(&trial.weights, &data.initial)?);
                if best.as_ref().is_none_or(|(most, ..)| found > *most) {
                    best = Some((found, strength, trial.weights));
                }
            }
        }
        let Some((_, strength, weights)) = best else { return Ok(Measurement::new()) };
        let mut measurement = judge(&weights, &data.held_out)?;
        measurement.insert("strength".to_owned(), strength);
        Ok(measurement)
    }

    fn claims(&self, measured: &Measured) -> Vec<Claim> {
        let mean = |method: Method| Repeated::of(measured, &method.name(), self.task.main()).mean();
        let mut claims = Vec::new();
        for form in [Form::SparseWeights, Form::of_profile(self.settings.profile)] {
            let ours = Method::Dphe(form);
            for other in [Method::Prr10(Norm::None), Method::Ra12(Norm::None)] {
                let (Some(a), Some(b)) = (mean(ours), mean(other)) else { continue };
                let claim = Claim {
                    text: format!("{} is better than {}", ours.name(), other.name()),
                    holds: a > b,
                    seen: format!("{a:.3} against {b:.3}"),
                };
                if !claims.contains(&claim) {
                    claims.push(claim);
                }
            }
        }
        claims.extend(equality(measured));
        claims
    }
}

impl Experiment for Recognition {
    fn name(&self) -> &'static str {
        self.task.name()
    }

    fn settings(&self) -> Vec<(String, String)> {
        let kind = if self.source.is_stand_in() { "derived from classes" } else { "given" };
        let mut lines = self.settings.lines([self.source.described()]);
        lines.push(("attributes".to_owned(), kind.to_owned()));
        lines
    }

    fn runs(&self) -> Vec<Run> {
        let names: Vec<String> = self.methods().into_iter().map(Method::name).collect();
        runs(&self.settings, &names)
    }

    fn weight(&self, run: &Run) -> f64 {
        if run.what.contains("PRR10") || run.what.contains("RA12") { 5.0 } else { 1.0 }
    }

    fn measure(&self, run: &Run, stopwatch: &mut Stopwatch) -> Result<Measurement, Error> {
        let found = self.methods().into_iter().find(|method| method.name() == run.what);
        let method = found.ok_or_else(|| Error::UnknownRun(run.what.clone()))?;
        let scenario = self.scenario.get(run.seed, || self.source.scenario(&self.settings, run.seed))?;
        let (seed, threads) = (Seed::new(run.seed), self.settings.threads);
        let judge =
            |weights: &Weights| self.task.judge(weights, &scenario.held_out, &scenario, &self.settings);
        match method {
            Method::Constant => judge(&self.constant(&scenario)?),
            Method::Pooled => judge(&baseline::pooled(&scenario, Steps::Stable, &seed, threads)?),
            Method::Initial => judge(&baseline::initial(&scenario, &seed, threads)?),
            Method::Prr10(norm) | Method::Ra12(norm) => self.noisy(method, &scenario, norm, run.seed),
            Method::Dphe(form) => {
                let sparsity = match form {
                    Form::SparseWeights | Form::SolvedWeights => self.task.sparsity(),
                    _ => 0.9,
                };
                let mut recipe = recipe(form, &self.settings, sparsity);
                // the paper's capacity, whatever the sparsity
                recipe.share = if self.source.name == "digits" { 0.4 } else { 0.1 };
                let (weights, mut measurement) =
                    measure_dphe(&scenario, recipe, &self.settings, run.seed, &self.keys, stopwatch)?;
                measurement.extend(judge(&weights)?);
                Ok(measurement)
            }
        }
    }

    fn findings(&self, measured: &Measured) -> Findings {
        let mut columns = vec![
            Column::new("dataset", "data", Unit::Text),
            Column::new("method", "method", Unit::Text),
            Column::new("mean", self.task.measures()[0].1, self.task.measures()[0].2),
            Column::new("std", "±", self.task.measures()[0].2),
            Column::new("runs", "runs", Unit::Count),
            Column::new("paper", "paper", self.task.measures()[0].2),
        ];
        for &(name, title, unit) in &self.task.measures()[1..] {
            columns.push(Column::new(name, title, unit));
            columns.push(Column::new(&format!("paper_{name}"), "paper", unit));
        }
        columns.push(Column::new("sparsity", "zeros in a message, %", Unit::Percent));
        columns.push(Column::new("ciphertexts", "ciphertexts a message", Unit::Count));
        let mut rows = Vec::new();
        for method in self.methods() {
            let of = |name: &str| Repeated::of(measured, &method.name(), name);
            let found = of(self.task.main());
            if found.0.is_empty() {
                continue;
            }
            let printed = |index: usize| Cell::from(self.task.printed(method).get(index).copied());
            let mut row = vec![
                self.source.name.as_str().into(),
                method.name().into(),
                found.mean().into(),
                found.deviation().into(),
                found.count(),
                printed(0),
            ];
            for (index, (name, ..)) in self.task.measures().iter().enumerate().skip(1) {
                row.push(of(name).mean().into());
                row.push(printed(index));
            }
            row.push(of("sparsity").mean().into());
            row.push(of("ciphertexts").mean().into());
            rows.push(row);
        }
        let mut notes = Vec::new();
        if self.source.is_stand_in() {
            notes.push(format!(
                "The paper's data are not there: these are attributes of the classes of {}, so the paper's numbers \
                 beside them only show what it found elsewhere.",
                self.source.name
            ));
        }
        notes.push(format!(
            "Messages of the paper's form are to have {:.0} % zeros, as in the paper.",
            100.0 * self.task.sparsity()
        ));
        notes.push("The answer that is always the same is what any method must beat.".to_owned());
        Findings {
            title: self.task.title().to_owned(),
            notes,
            tables: vec![Table { title: self.source.name.clone(), columns, rows }],
            plots: Vec::new(),
            pictures: Vec::new(),
            claims: self.claims(measured),
        }
    }
}
