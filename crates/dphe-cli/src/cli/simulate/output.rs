//! The results of a simulation as a table, as JSON, and as a page.

use std::path::Path;

use dphe::{Profile, TaskParams};
use dphe_federate::spec::named;
use dphe_federate::{PayloadName, RoundReport, Scenario, Seconds};
use dphe_learn::Verdict;
use dphe_service::chart::{Chart, Series, Unit};
use serde::Serialize;

use super::Simulate;
use crate::args::TableFormat;
use crate::cli::CliError;
use crate::files;
use crate::page::{Figure, Page};
use crate::samples::Samples;
use crate::terminal::{Tone, percent, print_rows, print_text};

/// Accuracies on the held-out samples of models that were trained without rounds.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Baselines {
    /// Of the initial weights.
    pub(super) initial: f64,
    /// Of the best user that continues from the initial weights alone.
    pub(super) best_user: f64,
    /// Of a model trained on all samples, without privacy.
    pub(super) pooled: f64,
}

/// The results of a simulation, including some that a deployment cannot measure.
#[derive(Serialize)]
pub(super) struct Outcome {
    samples: usize,
    features: usize,
    classes: usize,
    users: usize,
    held_out: usize,
    seed: u64,
    payload: PayloadName,
    share: f64,
    encrypted: bool,
    #[serde(with = "named")]
    profile: Profile,
    key_bits: u32,
    noise: &'static str,
    slot_bits: u32,
    /// The server step of the task. Rounds report theirs, which may be shorter.
    server_step: f64,
    baselines: Baselines,
    /// The accuracy of the final model.
    accuracy: f64,
    /// The number of rounds that were asked for.
    wanted_rounds: usize,
    rounds: Vec<RoundReport>,
}

impl Outcome {
    pub(super) fn new(
        args: &Simulate,
        samples: &Samples,
        scenario: &Scenario,
        task: &TaskParams,
        baselines: Baselines,
        rounds: Vec<RoundReport>,
        accuracy: f64,
    ) -> Self {
        Self {
            samples: samples.data.len(),
            features: samples.data.features().width(),
            classes: samples.classes.len(),
            users: args.users,
            held_out: scenario.held_out.len(),
            seed: args.seed,
            payload: args.learner.payload(),
            share: args.learner.spec(1.0).share_of(samples.data.features().width() * samples.classes.len()),
            encrypted: !args.plain,
            profile: task.profile(),
            key_bits: task.config().key_bits,
            noise: task.config().noise.name(),
            slot_bits: task.slot_bits(),
            server_step: 1.0,
            baselines,
            accuracy,
            wanted_rounds: args.rounds,
            rounds,
        }
    }

    /// Notes the server step of the task.
    pub(super) fn with_server_step(self, server_step: f64) -> Self {
        Self { server_step, ..self }
    }

    pub(super) fn print(&self, format: TableFormat) -> Result<(), CliError> {
        if format == TableFormat::Json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        print_text(&format!("{}\n{}\n", self.title(), self.subtitle()));
        print_rows(&ROUND_HEAD, &self.round_rows());
        println!();
        print_rows(&["accuracy on held-out samples", ""], &self.summary());
        for note in self.notes() {
            print_text(&format!("\n{note}"));
        }
        Ok(())
    }

    /// Writes the page and the JSON file.
    pub(super) fn write(&self, directory: &Path) -> Result<(), CliError> {
        let json = serde_json::to_string_pretty(self)?;
        for (name, text) in [("report.html", self.page()), ("report.json", json + "\n")] {
            let path = directory.join(name);
            files::replace(&path, text.as_bytes()).map_err(|source| CliError::Output { path, source })?;
        }
        Ok(())
    }

    fn title(&self) -> String {
        let how = match self.encrypted {
            true => format!("encrypted, {} bits, noise {}", self.key_bits, self.noise),
            false => "not encrypted".to_owned(),
        };
        format!("{} users, payload {}, profile {}, {how}", self.users, self.payload, self.profile)
    }

    fn subtitle(&self) -> String {
        format!(
            "{} samples, {} features, {} classes; {} samples held out",
            self.samples, self.features, self.classes, self.held_out
        )
    }

    fn summary(&self) -> Vec<Vec<String>> {
        let rows = [
            ("initial samples only", self.baselines.initial),
            ("best user alone", self.baselines.best_user),
            ("this simulation", self.accuracy),
            ("all samples together, without privacy", self.baselines.pooled),
        ];
        rows.into_iter().map(|(name, accuracy)| vec![name.to_owned(), percent(Some(accuracy))]).collect()
    }

    fn round_rows(&self) -> Vec<Vec<String>> {
        self.rounds
            .iter()
            .map(|report| {
                let Seconds { train, seal, aggregate, open } = report.seconds.unwrap_or_default();
                let mut row = vec![
                    report.round.to_string(),
                    percent(report.accuracy),
                    percent(Some(report.update_sparsity)),
                    percent(Some(report.average_sparsity)),
                    report.cost.ciphertexts.to_string(),
                    Unit::Bytes.write(report.cost.bytes as f64),
                    percent(report.cost.singles),
                ];
                row.extend([train, seal, aggregate, open].map(|seconds| Unit::Seconds.write(seconds)));
                row
            })
            .collect()
    }

    fn notes(&self) -> impl Iterator<Item = String> {
        self.ending().into_iter().chain(self.step()).chain(self.note().map(str::to_owned))
    }

    /// Says which server step was taken, if it was not 1.
    fn step(&self) -> Option<String> {
        let step = self.server_step;
        let shortened = self.rounds.iter().filter(|report| report.server_step < step).count();
        let differences = self.rounds.iter().any(|report| report.server_step != 1.0);
        (step != 1.0 && (differences || shortened == 0)).then(|| match shortened {
            0 => format!("The server step was {step}."),
            _ => format!(
                "The server step was {step}. {shortened} of {} rounds shortened it, because it would have changed the \
                 weights too much.",
                self.rounds.len()
            ),
        })
    }

    /// Explains why there are fewer rounds than asked for.
    fn ending(&self) -> Option<String> {
        let last = self.rounds.last().filter(|_| self.rounds.len() < self.wanted_rounds)?;
        Some(match last.verdict {
            Some(Verdict::Diverging) => format!(
                "Stopped after round {} because the accuracy on the initial samples fell. The best earlier weights were kept.",
                last.round
            ),
            _ => format!("Stopped after round {} because the weights hardly change any more.", last.round),
        })
    }

    /// Explains the numbers.
    fn note(&self) -> Option<&'static str> {
        if !self.encrypted {
            return Some("Nothing was encrypted in this run.");
        }
        match self.profile {
            Profile::Sparse => Some(
                "Singles are occupied positions that only one user occupied. At such a position, the sum reveals that \
                 user's number, so a smaller share is better. The profile `full` has no singles.",
            ),
            Profile::Paper => Some(
                "This is the paper's scheme for reproduction. Its permutations are fixed, so the positions are \
                 revealed within tens of rounds.",
            ),
            Profile::Full => None,
        }
    }

    fn page(&self) -> String {
        let mut page = Page::new(&format!("Simulation of {} users", self.users));
        page.lead(&format!("{}. {}.", capitalised(&self.title()), self.subtitle()));
        let Baselines { initial, best_user, pooled } = self.baselines;
        let figure = |name: &str, accuracy: f64, note: &str| Figure::new(name, percent(Some(accuracy)), note);
        let points = |from: f64, to: f64| format!("{:+.1} points", 100.0 * (to - from));
        let tone = if self.accuracy >= best_user { Tone::Good } else { Tone::Bad };
        page.figures(&[
            figure("public samples only", initial, "before the first round"),
            figure("best user alone", best_user, "without the others"),
            figure("this simulation", self.accuracy, &points(best_user, self.accuracy)).toned(tone),
            figure("all samples in one place", pooled, &points(self.accuracy, pooled)),
        ]);
        page.paragraph(&format!("Accuracy on {} held-out samples.", self.held_out));
        let over = |value: fn(&RoundReport) -> f64| self.rounds.iter().map(value).collect::<Vec<f64>>();
        let accuracy = [
            Series::new("simulation", over(|r| r.accuracy.unwrap_or(f64::NAN))),
            Series::new("all samples", vec![self.baselines.pooled]),
            Series::new("best user alone", vec![self.baselines.best_user]),
            Series::new("initial samples", vec![self.baselines.initial]),
        ];
        let sparsity = [
            Series::new("in an update", over(|r| r.update_sparsity)),
            Series::new("in the average", over(|r| r.average_sparsity)),
        ];
        let bytes = [Series::new("per user", over(|r| r.cost.bytes as f64))];
        let step = |pick: fn(Seconds) -> f64| {
            self.rounds.iter().map(|r| pick(r.seconds.unwrap_or_default())).collect::<Vec<f64>>()
        };
        let seconds = [
            Series::new("users train", step(|s| s.train)),
            Series::new("users encrypt", step(|s| s.seal)),
            Series::new("aggregator adds", step(|s| s.aggregate)),
            Series::new("key generator opens", step(|s| s.open)),
        ];
        let plot = |title, unit, series: &[Series], from_zero| {
            (title, Chart { title, unit, series, from_zero, first: 1 }.svg())
        };
        page.heading("Rounds").plots(&[
            plot("Accuracy on held-out samples", Unit::Percent, &accuracy, false),
            plot("Zeros", Unit::Percent, &sparsity, false),
            plot("Bytes per update", Unit::Bytes, &bytes, true),
            plot("Time per step, over all users", Unit::Seconds, &seconds, true),
        ]);
        page.heading("All rounds").table(&ROUND_HEAD, &self.round_rows());
        for note in self.notes() {
            page.paragraph(&note);
        }
        page.paragraph(
            "Accuracies are means over classes. Times are of one machine that runs all parties. A deployment does not \
             know how sparse single updates are.",
        );
        page.html()
    }
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

const ROUND_HEAD: [&str; 11] = [
    "round",
    "accuracy",
    "zeros sent",
    "zeros in avg",
    "ciphertexts",
    "bytes",
    "singles",
    "train",
    "seal",
    "add",
    "open",
];
