//! Figure 4: more and more users, with as many samples each, or with ever fewer.

use dphe_federate::{Scenario, Stopwatch};
use dphe_learn::dataset::Dealing;

use super::shared::{Memo, Repeated, equality, measure_dphe, recipe, runs};
use super::{Encryption, Settings, Source};
use crate::methods::accuracy;
use crate::methods::dphe::{Form, Keys};
use crate::{
    Cell, Claim, Column, Error, Experiment, Findings, Measured, Measurement, Plot, Run, Table, Unit,
};

/// The experiment.
#[derive(Debug)]
pub struct Figure4 {
    source: Source,
    settings: Settings,
    users: Vec<usize>,
    scenario: Memo<(bool, usize, u64), Scenario>,
    keys: Keys,
}

/// Beyond this many users only sums in the clear are made.
const MOST_ENCRYPTED: usize = 25;
/// Users among whom the samples are dealt once.
const SHARES: usize = 5;
/// A mean of many small differences is small: larger steps of the public weights make up for it.
const LARGE_STEP: f64 = 4.0;

/// A line of the figure.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    form: Form,
    step: f64,
}

impl Line {
    fn name(self) -> String {
        match self.step == 1.0 {
            true => format!("DPHE {}", self.form.name()),
            false => format!("DPHE {}, step {}", self.form.name(), self.step),
        }
    }
}

/// A point of the figure.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    duplicated: bool,
    users: usize,
    line: Line,
}

impl Point {
    fn name(self) -> String {
        format!("{}/{}/{}", side(self.duplicated), self.users, self.line.name())
    }
}

fn side(duplicated: bool) -> &'static str {
    if duplicated { "duplicated" } else { "disjoint" }
}

impl Figure4 {
    /// The paper's numbers of users: 5, 10, 25, 50, 100.
    pub fn new(source: Source, settings: Settings) -> Self {
        Self::with_users(source, settings, vec![5, 10, 25, 50, 100])
    }

    /// Other numbers of users, all multiples of 5, ascending.
    pub fn with_users(source: Source, settings: Settings, users: Vec<usize>) -> Self {
        Self { source, settings, users, scenario: Memo::default(), keys: Keys::default() }
    }

    fn lines(&self) -> Vec<Line> {
        let ours = match Form::of_profile(self.settings.profile) {
            Form::SparseWeights => Form::SolvedWeights,
            form => form,
        };
        let papers = Line { form: Form::SparseWeights, step: 1.0 };
        vec![papers, Line { form: ours, step: 1.0 }, Line { form: ours, step: LARGE_STEP }]
    }

    fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for duplicated in [true, false] {
            for &users in &self.users {
                for line in self.lines() {
                    // larger steps are for users with few samples, and the paper's form has none
                    let small = !duplicated && users >= MOST_ENCRYPTED;
                    if line.step == 1.0 || (small && line.form.profile() != dphe::Profile::Paper) {
                        points.push(Point { duplicated, users, line });
                    }
                }
            }
        }
        points
    }

    fn mean(&self, measured: &Measured, point: Point) -> Option<f64> {
        Repeated::of(measured, &point.name(), "accuracy").mean()
    }

    fn claims(&self, measured: &Measured) -> Vec<Claim> {
        let mut claims = Vec::new();
        for line in self.lines().into_iter().filter(|line| line.step == 1.0) {
            let on = |duplicated: bool| -> Vec<f64> {
                let at = |&users: &usize| self.mean(measured, Point { duplicated, users, line });
                self.users.iter().filter_map(at).collect()
            };
            let list =
                |values: &[f64]| values.iter().map(|v| format!("{v:.1}")).collect::<Vec<_>>().join(", ");
            let (left, right) = (on(true), on(false));
            if left.len() < 2 || right.len() < 2 {
                continue;
            }
            let (least, most) = left.iter().fold((f64::MAX, f64::MIN), |(l, m), &v| (l.min(v), m.max(v)));
            claims.push(Claim {
                text: format!("{}: more users with as many samples change little", line.name()),
                holds: most - least <= 3.0,
                seen: list(&left),
            });
            claims.push(Claim {
                text: format!("{}: more users with fewer samples lose accuracy", line.name()),
                holds: right.last() < right.first(),
                seen: list(&right),
            });
        }
        claims.extend(equality(measured));
        claims
    }
}

impl Experiment for Figure4 {
    fn name(&self) -> &'static str {
        "figure4"
    }

    fn settings(&self) -> Vec<(String, String)> {
        let numbers: Vec<String> = self.users.iter().map(ToString::to_string).collect();
        let mut lines = self.settings.lines([self.source.described()]);
        lines.push(("numbers of users".to_owned(), numbers.join(", ")));
        lines
    }

    fn runs(&self) -> Vec<Run> {
        let names: Vec<String> = self.points().into_iter().map(Point::name).collect();
        runs(&self.settings, &names)
    }

    fn weight(&self, run: &Run) -> f64 {
        let point = self.points().into_iter().find(|point| point.name() == run.what);
        // everybody trains; disjoint shares are the same samples whatever the number of users
        point.map_or(1.0, |p| if p.duplicated { p.users as f64 / SHARES as f64 } else { 1.0 })
    }

    fn measure(&self, run: &Run, stopwatch: &mut Stopwatch) -> Result<Measurement, Error> {
        let found = self.points().into_iter().find(|point| point.name() == run.what);
        let Point { duplicated, users, line } = found.ok_or_else(|| Error::UnknownRun(run.what.clone()))?;
        let scenario = self.scenario.get((duplicated, users, run.seed), || {
            let copies = (users / SHARES).max(1);
            let dealing = if duplicated { Dealing::Duplicated { copies } } else { Dealing::Disjoint };
            self.source.scenario(&self.settings, users, dealing, run.seed)
        })?;
        let mut settings = self.settings;
        if users > MOST_ENCRYPTED {
            settings.encryption = Encryption::Nothing;
        }
        let mut recipe = recipe(line.form, &settings, self.source.sparsity);
        recipe.server_step = line.step;
        let (weights, mut measurement) =
            measure_dphe(&scenario, recipe, &settings, run.seed, &self.keys, stopwatch)?;
        measurement.insert("accuracy".to_owned(), accuracy(&weights, &scenario.held_out, settings.threads)?);
        let samples: usize = scenario.users.iter().map(|user| user.len()).sum();
        measurement.insert("samples".to_owned(), samples as f64 / users as f64);
        Ok(measurement)
    }

    fn findings(&self, measured: &Measured) -> Findings {
        let columns = [
            ("side", "samples", Unit::Text),
            ("users", "users", Unit::Count),
            ("method", "method", Unit::Text),
            ("mean", "accuracy, %", Unit::Percent),
            ("std", "±", Unit::Percent),
            ("runs", "runs", Unit::Count),
            ("samples", "samples a user", Unit::Count),
            ("sparsity", "zeros in a message, %", Unit::Percent),
            ("ciphertexts", "ciphertexts a message", Unit::Count),
            ("encrypted", "encrypted runs, equal", Unit::Count),
        ];
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        for point in self.points() {
            let of = |name: &str| Repeated::of(measured, &point.name(), name);
            let found = of("accuracy");
            if found.0.is_empty() {
                continue;
            }
            rows.push(vec![
                side(point.duplicated).into(),
                (point.users as f64).into(),
                point.line.name().into(),
                found.mean().into(),
                found.deviation().into(),
                found.count(),
                of("samples").mean().into(),
                of("sparsity").mean().into(),
                of("ciphertexts").mean().into(),
                (of("equal").0.iter().filter(|&&equal| equal == 1.0).count() as f64).into(),
            ]);
        }
        let plot = |duplicated: bool, title: &str| {
            let mut series = Vec::new();
            for line in self.lines() {
                let at = |&users: &usize| {
                    let mean = self.mean(measured, Point { duplicated, users, line })?;
                    Some((users as f64, mean))
                };
                let points: Vec<(f64, f64)> = self.users.iter().filter_map(at).collect();
                if !points.is_empty() {
                    series.push((line.name(), points));
                }
            }
            Plot {
                title: title.to_owned(),
                x: "users".to_owned(),
                logarithmic: true,
                y: "accuracy, %".to_owned(),
                unit: Unit::Percent,
                series,
            }
        };
        let columns = columns.map(|(key, title, unit)| Column::new(key, title, unit)).to_vec();
        Findings {
            title: "Figure 4: the number of users".to_owned(),
            notes: Source::stand_in_note([&self.source]).into_iter().chain([
                format!(
                    "Up to {MOST_ENCRYPTED} users, messages are really encrypted where the settings say so and the \
                     result is compared with sums in the clear; beyond, only these are made."
                ),
                "The paper draws its values and prints none; it says that the left hardly changes and the right \
                 falls."
                    .to_owned(),
            ]).collect(),
            tables: vec![Table { title: format!("Accuracy on {}", self.source.name), columns, rows }],
            plots: vec![
                plot(true, "As many samples each, some twice"),
                plot(false, "The same samples among more users"),
            ],
            pictures: Vec::new(),
            claims: self.claims(measured),
        }
    }
}
