//! What a simulation came to: as a table, as JSON, as a page.

use std::path::Path;

use dphe::TaskParams;
use dphe_federate::{RoundReport, Scenario, Seconds};
use dphe_learn::Verdict;
use serde::Serialize;

use super::Simulate;
use crate::cli::CliError;
use crate::cli::bench::Format;
use crate::cli::table::{percent, print_rows};
use crate::files;
use crate::report::{Chart, Page, Series, Unit};
use crate::samples::Samples;

/// Accuracies on the held-out samples without rounds.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Baselines {
    /// Of the weights learnt from the initial samples.
    pub(super) initial: f64,
    /// Of the best among users who learn on from there, each alone.
    pub(super) best_user: f64,
    /// Of all samples in one place: no privacy.
    pub(super) pooled: f64,
}

/// A run. It holds more than a deployment would show: the accuracy of the best user alone, to compare with.
#[derive(Serialize)]
pub(super) struct Outcome {
    samples: usize,
    features: usize,
    classes: usize,
    users: usize,
    held_out: usize,
    seed: u64,
    message: String,
    share: f64,
    encrypted: bool,
    profile: &'static str,
    key_bits: u32,
    noise: &'static str,
    slot_bits: u32,
    baselines: Baselines,
    /// Of the model that comes out.
    accuracy: f64,
    /// How many were asked for.
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
            message: args.learner.message.name(),
            share: args.learner.share,
            encrypted: !args.plain,
            profile: task.profile().name(),
            key_bits: task.config().key_bits,
            noise: task.config().noise.name(),
            slot_bits: task.slot_bits(),
            baselines,
            accuracy,
            wanted_rounds: args.rounds,
            rounds,
        }
    }

    pub(super) fn print(&self, format: Format) -> Result<(), CliError> {
        if format == Format::Json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        println!("{}\n{}\n", self.title(), self.subtitle());
        print_rows(&ROUND_HEAD, &self.round_rows());
        println!();
        print_rows(&["accuracy on held-out samples", ""], &self.summary());
        for note in self.ending().iter().map(String::as_str).chain(self.note()) {
            println!("\n{note}");
        }
        Ok(())
    }

    /// Writes the page and the numbers.
    pub(super) fn write(&self, folder: &Path) -> Result<(), CliError> {
        let json = serde_json::to_string_pretty(self)?;
        for (name, text) in [("report.html", self.page()), ("report.json", json + "\n")] {
            let path = folder.join(name);
            files::replace(&path, text.as_bytes()).map_err(|source| CliError::Output { path, source })?;
        }
        Ok(())
    }

    fn title(&self) -> String {
        let how = match self.encrypted {
            true => format!("encrypted, {} bits, noise {}", self.key_bits, self.noise),
            false => "not encrypted".to_owned(),
        };
        format!("{} users, message {}, profile {}, {how}", self.users, self.message, self.profile)
    }

    fn subtitle(&self) -> String {
        format!(
            "{} samples, {} features, {} classes; {} samples held out",
            self.samples, self.features, self.classes, self.held_out
        )
    }

    fn summary(&self) -> Vec<Vec<String>> {
        let rows = [
            ("initial samples alone", self.baselines.initial),
            ("best single user alone", self.baselines.best_user),
            ("these rounds", self.accuracy),
            ("all samples in one place, no privacy", self.baselines.pooled),
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
                    percent(Some(report.message_sparsity)),
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

    /// Why there are fewer rounds than wanted.
    fn ending(&self) -> Option<String> {
        let last = self.rounds.last().filter(|_| self.rounds.len() < self.wanted_rounds)?;
        Some(match last.verdict {
            Some(Verdict::Diverging) => format!(
                "Ended after round {}: the accuracy on the initial samples fell. The best weights before were kept.",
                last.round
            ),
            _ => format!("Ended after round {}: the weights hardly change any more.", last.round),
        })
    }

    /// What a reader of the numbers should know.
    fn note(&self) -> Option<&'static str> {
        if !self.encrypted {
            return Some("Nothing was encrypted: this run is a control.");
        }
        match self.profile {
            "sparse" => Some(
                "Singles: the share of occupied positions that one user alone occupied. There the sum shows that \
                 user's number; a smaller share is better, and `full` has none.",
            ),
            "paper" => Some(
                "The paper's scheme to the letter, for reproduction: its permutations are kept, and the supports \
                 come out in tens of rounds.",
            ),
            _ => None,
        }
    }

    fn page(&self) -> String {
        let mut page = Page::new(&self.title());
        page.paragraph(&self.subtitle());
        page.table(&["accuracy on held-out samples", ""], &self.summary());
        let over = |value: fn(&RoundReport) -> f64| self.rounds.iter().map(value).collect::<Vec<f64>>();
        let accuracy = [
            Series::new("these rounds", over(|r| r.accuracy.unwrap_or(f64::NAN))),
            Series::new("all in one place", vec![self.baselines.pooled]),
            Series::new("best single user", vec![self.baselines.best_user]),
            Series::new("initial samples", vec![self.baselines.initial]),
        ];
        let sparsity = [
            Series::new("of a message", over(|r| r.message_sparsity)),
            Series::new("of the average", over(|r| r.average_sparsity)),
        ];
        let bytes = [Series::new("a user sends", over(|r| r.cost.bytes as f64))];
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
            plot("Bytes of a message", Unit::Bytes, &bytes, true),
            plot("Time of a step, all who take it", Unit::Seconds, &seconds, true),
        ]);
        page.heading("Numbers").table(&ROUND_HEAD, &self.round_rows());
        for note in self.ending().iter().map(String::as_str).chain(self.note()) {
            page.paragraph(note);
        }
        page.paragraph(
            "Accuracies are means over classes. Times are those of one machine that plays every role. A deployment \
             does not see the accuracy on held-out samples, nor how sparse single messages are.",
        );
        page.html()
    }
}

const ROUND_HEAD: [&str; 11] = [
    "round",
    "accuracy",
    "zeros sent",
    "zeros in mean",
    "ciphertexts",
    "bytes",
    "singles",
    "train",
    "seal",
    "add",
    "open",
];
