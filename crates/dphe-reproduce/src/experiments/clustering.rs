//! Clustering: sparse centres, averaged, against mini-batches over everything.

use dphe_federate::{Scenario, Stopwatch};
use dphe_learn::Seed;
use dphe_learn::dataset::Dealing;

use super::shared::{Memo, Repeated, runs};
use super::{Settings, Source};
use crate::methods::clusters::{Method, agreement, agreement_held_out, find, private};
use crate::{Cell, Claim, Column, Error, Experiment, Findings, Measured, Measurement, Run, Table, Unit};

/// The experiment.
#[derive(Debug)]
pub struct Clustering {
    sources: Vec<Source>,
    settings: Settings,
    scenario: Memo<(usize, u64), Scenario>,
}

const ROUNDS: usize = 6;

/// What the paper printed.
fn printed(method: Method, source: &str) -> Option<f64> {
    match (method, source) {
        (Method::S10, "caltech101") => Some(0.733),
        (Method::S10, "caltech256") => Some(0.630),
        (Method::DualAveraging, "caltech101") => Some(0.753),
        (Method::DualAveraging, "caltech256") => Some(0.614),
        _ => None,
    }
}

impl Clustering {
    /// Over these data sets.
    pub fn new(sources: Vec<Source>, settings: Settings) -> Self {
        Self { sources, settings, scenario: Memo::default() }
    }

    fn name_of(source: &Source, method: Method) -> String {
        format!("{}/{}", source.name, method.name())
    }

    fn claims(&self, measured: &Measured) -> Vec<Claim> {
        let mut claims = Vec::new();
        for source in &self.sources {
            let mean = |method, name| Repeated::of(measured, &Self::name_of(source, method), name).mean();
            for (name, how) in [("arithmetic", "mean"), ("max", "largest")] {
                for method in [Method::PlainMean, Method::Counted] {
                    let (Some(ours), Some(s10)) = (mean(method, name), mean(Method::S10, name)) else {
                        continue;
                    };
                    claims.push(Claim {
                        text: format!(
                            "{}: {} is within 0.02 of S10 or above (normalised by the {how} entropy)",
                            source.name,
                            method.name()
                        ),
                        holds: ours >= s10 - 0.02,
                        seen: format!("{ours:.3}, S10 {s10:.3}"),
                    });
                }
            }
        }
        claims
    }
}

impl Experiment for Clustering {
    fn name(&self) -> &'static str {
        "clustering"
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.settings.lines(self.sources.iter().map(Source::described))
    }

    fn runs(&self) -> Vec<Run> {
        let names: Vec<String> = self
            .sources
            .iter()
            .flat_map(|source| Method::ALL.map(|method| Self::name_of(source, method)))
            .collect();
        runs(&self.settings, &names)
    }

    fn measure(&self, run: &Run, _stopwatch: &mut Stopwatch) -> Result<Measurement, Error> {
        let all = self.sources.iter().enumerate().flat_map(|(i, s)| Method::ALL.map(|m| (i, s, m)));
        let found = all.into_iter().find(|(_, source, method)| Self::name_of(source, *method) == run.what);
        let (index, source, method) = found.ok_or_else(|| Error::UnknownRun(run.what.clone()))?;
        let Settings { users, threads, rounds, .. } = self.settings;
        let scenario = self
            .scenario
            .get((index, run.seed), || source.scenario(&self.settings, users, Dealing::Disjoint, run.seed))?;
        let rounds = rounds.unwrap_or(ROUNDS);
        let share = 1.0 - source.centre_sparsity;
        let found = find(&scenario, method, rounds, share, &Seed::new(run.seed), threads)?;
        let (features, truth) = private(&scenario)?;
        let inside = agreement(&found.centroids, &features, &truth, threads)?;
        let outside = agreement_held_out(&found.centroids, &scenario.held_out, threads)?;
        let mut measurement = Measurement::from([
            ("arithmetic".to_owned(), inside.arithmetic),
            ("max".to_owned(), inside.max),
            ("held-out arithmetic".to_owned(), outside.arithmetic),
            ("held-out max".to_owned(), outside.max),
        ]);
        if let Some(sparsity) = found.sparsity {
            measurement.insert("sparsity".to_owned(), 100.0 * sparsity);
        }
        Ok(measurement)
    }

    fn findings(&self, measured: &Measured) -> Findings {
        let columns = [
            ("dataset", "data", Unit::Text),
            ("method", "method", Unit::Text),
            ("mean", "AMI (mean entropy)", Unit::Plain),
            ("std", "±", Unit::Plain),
            ("runs", "runs", Unit::Count),
            ("paper", "paper", Unit::Plain),
            ("max", "AMI (largest entropy)", Unit::Plain),
            ("max_std", "±", Unit::Plain),
            ("held_out", "held out, mean entropy", Unit::Plain),
            ("held_out_max", "held out, largest entropy", Unit::Plain),
            ("sparsity", "zeros in a message, %", Unit::Percent),
            ("private", "samples stay", Unit::Text),
        ];
        let mut rows = Vec::new();
        for source in &self.sources {
            for method in Method::ALL {
                let what = Self::name_of(source, method);
                let of = |name: &str| Repeated::of(measured, &what, name);
                let found = of("arithmetic");
                if found.0.is_empty() {
                    continue;
                }
                rows.push(vec![
                    Cell::from(source.name.as_str()),
                    method.name().into(),
                    found.mean().into(),
                    found.deviation().into(),
                    found.count(),
                    printed(method, &source.name).into(),
                    of("max").mean().into(),
                    of("max").deviation().into(),
                    of("held-out arithmetic").mean().into(),
                    of("held-out max").mean().into(),
                    of("sparsity").mean().into(),
                    if method.is_private() { "yes" } else { "no" }.into(),
                ]);
            }
        }
        let columns = columns.map(|(key, title, unit)| Column::new(key, title, unit)).to_vec();
        Findings {
            title: "Clustering: adjusted mutual information with the classes".to_owned(),
            notes: Source::stand_in_note(&self.sources).into_iter().chain([
                "The paper does not say which entropy it divides by; in 2017 the usual library took the largest."
                    .to_owned(),
                "Rounds go over all samples at each turn, mini-batches about six times over them in all: compare \
                 rounds with full passes too."
                    .to_owned(),
                "Sums are made in the clear here: they are sums of sparse numbers like any other.".to_owned(),
            ]).collect(),
            tables: vec![Table { title: "Clusters found".to_owned(), columns, rows }],
            plots: Vec::new(),
            pictures: Vec::new(),
            claims: self.claims(measured),
        }
    }
}
