//! Table 1: recognising objects, with and without privacy.

use dphe_federate::{Scenario, Stopwatch};
use dphe_learn::dataset::Dealing;
use dphe_learn::{Seed, Weights};

use super::shared::{Memo, Repeated, equality, measure_dphe, recipe, runs};
use super::{Settings, Source};
use crate::methods::baseline::{self, Steps};
use crate::methods::dphe::{Form, Keys};
use crate::methods::prr10::{self, Prr10};
use crate::methods::ra12::{self, Ra12};
use crate::methods::{Budget, NoisyScenario, Norm, Privacy, STRENGTHS, Trial, accuracy, best};
use crate::{Claim, Column, Error, Experiment, Findings, Measured, Measurement, Run, Table, Unit};

/// The experiment.
#[derive(Debug)]
pub struct Table1 {
    sources: Vec<Source>,
    settings: Settings,
    scenario: Memo<(usize, u64), Scenario>,
    keys: Keys,
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Method {
    Pooled(Steps),
    Prr10(Norm),
    Ra12(Norm),
    Dphe(Form),
    Initial,
    Alone,
}

const METHODS: [Method; 13] = [
    Method::Pooled(Steps::Optimal),
    Method::Pooled(Steps::Stable),
    Method::Prr10(Norm::None),
    Method::Prr10(Norm::Unit),
    Method::Ra12(Norm::None),
    Method::Ra12(Norm::Unit),
    Method::Dphe(Form::SparseWeights),
    Method::Dphe(Form::SolvedWeights),
    Method::Dphe(Form::LargestDifferences),
    Method::Dphe(Form::LargestBlocks),
    Method::Dphe(Form::Rotating),
    Method::Initial,
    Method::Alone,
];

impl Method {
    fn name(self) -> String {
        match self {
            Self::Pooled(Steps::Optimal) => "No-PP".to_owned(),
            Self::Pooled(Steps::Stable) => "No-PP (stable steps)".to_owned(),
            Self::Prr10(Norm::None) => "PRR10".to_owned(),
            Self::Prr10(Norm::Unit) => "PRR10 (unit norm)".to_owned(),
            Self::Ra12(Norm::None) => "RA12".to_owned(),
            Self::Ra12(Norm::Unit) => "RA12 (unit norm)".to_owned(),
            Self::Dphe(form) => format!("DPHE {}", form.name()),
            Self::Initial => "public samples alone".to_owned(),
            Self::Alone => "every user alone".to_owned(),
        }
    }

    /// What the paper printed: mean and deviation.
    fn printed(self, source: &str) -> Option<(f64, f64)> {
        match (self, source) {
            (Self::Dphe(Form::SparseWeights), "caltech101") => Some((89.3, 0.8)),
            (Self::Dphe(Form::SparseWeights), "caltech256") => Some((74.7, 0.4)),
            (Self::Prr10(Norm::None), "caltech101") => Some((41.6, 1.2)),
            (Self::Prr10(Norm::None), "caltech256") => Some((55.9, 0.5)),
            (Self::Ra12(Norm::None), "caltech101") => Some((83.8, 1.1)),
            (Self::Ra12(Norm::None), "caltech256") => Some((68.0, 0.3)),
            _ => None,
        }
    }

    fn budget(self, classes: usize) -> Option<Budget> {
        match self {
            Self::Prr10(_) => Some(prr10::budget(Privacy::PAPER, classes)),
            Self::Ra12(_) => Some(ra12::budget(Privacy::PAPER, classes, Ra12::ITERATIONS)),
            _ => None,
        }
    }

    fn privacy(self) -> &'static str {
        match self {
            Self::Pooled(_) => "none",
            Self::Prr10(Norm::None) | Self::Ra12(Norm::None) => "noise, too little for these samples",
            Self::Prr10(Norm::Unit) | Self::Ra12(Norm::Unit) => "noise",
            Self::Dphe(_) => "encryption",
            Self::Initial | Self::Alone => "nothing is sent",
        }
    }
}

impl Table1 {
    /// Over these data sets.
    pub fn new(sources: Vec<Source>, settings: Settings) -> Self {
        Self { sources, settings, scenario: Memo::default(), keys: Keys::default() }
    }

    fn name_of(source: &Source, method: Method) -> String {
        format!("{}/{}", source.name, method.name())
    }

    fn parse(&self, run: &Run) -> Result<(usize, Method), Error> {
        for (index, source) in self.sources.iter().enumerate() {
            for method in METHODS {
                if Self::name_of(source, method) == run.what {
                    return Ok((index, method));
                }
            }
        }
        Err(Error::UnknownRun(run.what.clone()))
    }

    fn measure_prr10(&self, scenario: &NoisyScenario, seed: &Seed) -> Result<Measurement, Error> {
        let threads = self.settings.threads;
        let method = Prr10::new(scenario, threads)?;
        let (mut measurement, mut trials) = (Measurement::new(), Vec::new());
        for strength in STRENGTHS {
            let mean = method.mean(strength)?;
            let quiet = accuracy(&mean, &scenario.held_out, threads)?;
            measurement.insert(format!("quiet at {strength}"), quiet);
            trials.push(method.release(&mean, strength, Privacy::PAPER, seed)?);
        }
        self.put_trials(&mut measurement, &trials, scenario)?;
        Ok(measurement)
    }

    fn measure_ra12(&self, scenario: &NoisyScenario, seed: &Seed) -> Result<Measurement, Error> {
        let method = Ra12::new(scenario, self.settings.threads)?;
        let mut measurement = Measurement::new();
        let run = |strength, privacy| method.run(strength, Ra12::ITERATIONS, privacy, seed);
        let trials: Vec<Trial> = STRENGTHS
            .iter()
            .map(|&strength| run(strength, Some(Privacy::PAPER)))
            .collect::<Result<_, _>>()?;
        let chosen = self.put_trials(&mut measurement, &trials, scenario)?;
        let quiet = run(chosen, None)?.weights;
        let quiet = accuracy(&quiet, &scenario.held_out, self.settings.threads)?;
        measurement.insert(format!("quiet at {chosen}"), quiet);
        Ok(measurement)
    }

    fn put_trials(
        &self,
        measurement: &mut Measurement,
        trials: &[Trial],
        scenario: &NoisyScenario,
    ) -> Result<f64, Error> {
        let Some(chosen) = best(trials).map(|trial| trial.strength) else { return Ok(0.0) };
        for Trial { strength, weights, initial } in trials {
            let found = accuracy(weights, &scenario.held_out, self.settings.threads)?;
            measurement.insert(format!("accuracy at {strength}"), found);
            measurement.insert(format!("public at {strength}"), *initial);
            if *strength == chosen {
                measurement.insert("accuracy".to_owned(), found);
            }
        }
        measurement.insert("strength".to_owned(), chosen);
        Ok(chosen)
    }

    fn table(&self, measured: &Measured) -> Table {
        let columns = [
            ("dataset", "data", Unit::Text),
            ("method", "method", Unit::Text),
            ("mean", "accuracy, %", Unit::Percent),
            ("std", "±", Unit::Percent),
            ("runs", "runs", Unit::Count),
            ("paper", "paper, %", Unit::Percent),
            ("paper_std", "paper ±", Unit::Percent),
            ("std1", "± of all splits", Unit::Percent),
            ("sparsity", "zeros in a message, %", Unit::Percent),
            ("shards", "shards", Unit::Plain),
            ("ciphertexts", "ciphertexts a message", Unit::Count),
            ("seal_s", "sealing a message, s", Unit::Seconds),
            ("epsilon", "total ε", Unit::Plain),
            ("private", "privacy by", Unit::Text),
        ];
        let mut rows = Vec::new();
        for source in &self.sources {
            for method in METHODS {
                let what = Self::name_of(source, method);
                let of = |name: &str| Repeated::of(measured, &what, name);
                let found = of("accuracy");
                if found.0.is_empty() {
                    continue;
                }
                let printed = method.printed(&source.name);
                let budget = method.budget(source.data.labels().class_count());
                rows.push(vec![
                    source.name.as_str().into(),
                    method.name().into(),
                    found.mean().into(),
                    found.deviation().into(),
                    found.count(),
                    printed.map(|(mean, _)| mean).into(),
                    printed.map(|(_, deviation)| deviation).into(),
                    found.sample_deviation().into(),
                    of("sparsity").mean().into(),
                    of("shards").mean().into(),
                    of("ciphertexts").mean().into(),
                    of("seal_s").mean().into(),
                    budget.map(|budget| budget.total_epsilon()).into(),
                    method.privacy().into(),
                ]);
            }
        }
        let columns = columns.map(|(key, title, unit)| Column::new(key, title, unit)).to_vec();
        Table { title: "Mean accuracy over classes".to_owned(), columns, rows }
    }

    fn sweep(&self, measured: &Measured) -> Table {
        let columns = [
            ("dataset", "data", Unit::Text),
            ("method", "method", Unit::Text),
            ("strength", "λ", Unit::Plain),
            ("mean", "accuracy, %", Unit::Percent),
            ("quiet", "without noise, %", Unit::Percent),
            ("public", "on public samples, %", Unit::Percent),
            ("chosen", "chosen, times", Unit::Count),
        ];
        let mut rows = Vec::new();
        for source in &self.sources {
            for method in METHODS.into_iter().filter(|m| matches!(m, Method::Prr10(_) | Method::Ra12(_))) {
                let what = Self::name_of(source, method);
                let chosen = Repeated::of(measured, &what, "strength").0;
                for strength in STRENGTHS {
                    let of =
                        |name: &str| Repeated::of(measured, &what, &format!("{name} at {strength}")).mean();
                    let Some(found) = of("accuracy") else { continue };
                    rows.push(vec![
                        source.name.as_str().into(),
                        method.name().into(),
                        strength.into(),
                        found.into(),
                        of("quiet").into(),
                        of("public").into(),
                        (chosen.iter().filter(|&&c| c == strength).count() as f64).into(),
                    ]);
                }
            }
        }
        let columns = columns.map(|(key, title, unit)| Column::new(key, title, unit)).to_vec();
        Table { title: "Strength of the penalty, which decides what noise costs".to_owned(), columns, rows }
    }

    fn claims(&self, measured: &Measured) -> Vec<Claim> {
        let mut claims = Vec::new();
        for source in &self.sources {
            let mean = |method| Repeated::of(measured, &Self::name_of(source, method), "accuracy").mean();
            let mut compare = |text: &str, high: Method, low: Method, slack: f64| {
                let (Some(a), Some(b)) = (mean(high), mean(low)) else { return };
                let seen = format!("{} {a:.1}, {} {b:.1}", high.name(), low.name());
                claims.push(Claim { text: format!("{}: {text}", source.name), holds: a > b - slack, seen });
            };
            let ours = Method::Dphe(Form::LargestDifferences);
            let papers = Method::Dphe(Form::SparseWeights);
            let (ra12, prr10) = (Method::Ra12(Norm::None), Method::Prr10(Norm::None));
            compare("encrypted averages are better than RA12", ours, ra12, 0.0);
            compare("RA12 is better than PRR10", ra12, prr10, 0.0);
            compare("so are averages in the paper's form, read literally", papers, ra12, 0.0);
            compare("and in the paper's form, solved", Method::Dphe(Form::SolvedWeights), ra12, 0.0);
            for pooled in [Steps::Optimal, Steps::Stable] {
                let text = "encrypted averages are within a point of all data in one place";
                compare(text, ours, Method::Pooled(pooled), 1.0);
            }
            let text = "with samples of length 1, noise leaves less than public samples give";
            compare(text, Method::Initial, Method::Ra12(Norm::Unit), 0.0);
        }
        claims.extend(equality(measured));
        claims
    }
}

impl Experiment for Table1 {
    fn name(&self) -> &'static str {
        "table1"
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.settings.lines(self.sources.iter().map(Source::described))
    }

    fn runs(&self) -> Vec<Run> {
        let names: Vec<String> = self
            .sources
            .iter()
            .flat_map(|source| METHODS.map(|method| Self::name_of(source, method)))
            .collect();
        runs(&self.settings, &names)
    }

    fn weight(&self, run: &Run) -> f64 {
        match self.parse(run) {
            Ok((_, Method::Prr10(_) | Method::Ra12(_) | Method::Dphe(_))) => 10.0,
            _ => 1.0,
        }
    }

    fn measure(&self, run: &Run, stopwatch: &mut Stopwatch) -> Result<Measurement, Error> {
        let (index, method) = self.parse(run)?;
        let Settings { users, threads, .. } = self.settings;
        let source = &self.sources[index];
        let scenario = self
            .scenario
            .get((index, run.seed), || source.scenario(&self.settings, users, Dealing::Disjoint, run.seed))?;
        let seed = Seed::new(run.seed);
        let measured = |weights: &Weights| -> Result<Measurement, Error> {
            let found = accuracy(weights, &scenario.held_out, threads)?;
            Ok(Measurement::from([("accuracy".to_owned(), found)]))
        };
        match method {
            Method::Pooled(steps) => measured(&baseline::pooled(&scenario, steps, &seed, threads)?),
            Method::Initial => measured(&baseline::initial(&scenario, &seed, threads)?),
            Method::Alone => {
                let found = baseline::alone(&scenario, &seed, threads)?;
                Ok(Measurement::from([("accuracy".to_owned(), found)]))
            }
            Method::Prr10(norm) => self.measure_prr10(&NoisyScenario::new(&scenario, norm)?, &seed),
            Method::Ra12(norm) => self.measure_ra12(&NoisyScenario::new(&scenario, norm)?, &seed),
            Method::Dphe(form) => {
                let recipe = recipe(form, &self.settings, source.sparsity);
                let (weights, mut measurement) =
                    measure_dphe(&scenario, recipe, &self.settings, run.seed, &self.keys, stopwatch)?;
                measurement.extend(measured(&weights)?);
                Ok(measurement)
            }
        }
    }

    fn findings(&self, measured: &Measured) -> Findings {
        Findings {
            title: "Table 1: visual object recognition".to_owned(),
            notes: Source::stand_in_note(&self.sources).into_iter().chain([
                "The paper's features (ResNet-152) are not these: compare methods with each other, not with its \
                 numbers."
                    .to_owned(),
                format!(
                    "Noise as in the paper: ε = {}, δ = {}, for one classifier of one class. The total adds up all \
                     classes, and in RA12 {} iterations; five strengths are tried, which is not counted.",
                    Privacy::PAPER.epsilon,
                    Privacy::PAPER.delta,
                    Ra12::ITERATIONS
                ),
                "Noise protects samples of length 1. Standardised ones are about as long as the square root of \
                 their number of features, and the published accuracies look like those."
                    .to_owned(),
                "The strength λ is the one whose noisy classifier is best on the public samples.".to_owned(),
            ]).collect(),
            tables: vec![self.table(measured), self.sweep(measured)],
            plots: Vec::new(),
            pictures: Vec::new(),
            claims: self.claims(measured),
        }
    }
}
