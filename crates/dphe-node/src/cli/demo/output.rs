//! What the demo shows at the end.

use std::path::Path;
use std::time::Duration;

use dphe::{Profile, TaskParams, max_body_bytes, max_ciphertexts};
use dphe_federate::RoundReport;

use super::Setting;
use crate::cli::CliError;
use crate::cli::table::{percent, print_rows};
use crate::report::{Chart, Page, Series, Unit};

/// One task of the demo.
pub(super) struct ProfileOutcome {
    profile: Profile,
    accuracies: Vec<f64>,
    plain: Vec<f64>,
    message_sparsity: f64,
    average_sparsity: f64,
    singles: Option<f64>,
    ciphertexts: u64,
    bytes: u64,
    key: Duration,
    rounds: Duration,
    round: Vec<f64>,
}

impl ProfileOutcome {
    pub(super) fn new(
        profile: Profile,
        task: &TaskParams,
        accuracies: Vec<f64>,
        plain: &[RoundReport],
        records: Vec<serde_json::Value>,
        key: Duration,
        rounds: Duration,
    ) -> Self {
        let numbers = |name: &str| -> Vec<f64> { records.iter().filter_map(|r| r[name].as_f64()).collect() };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let singles = numbers("singles");
        Self {
            profile,
            accuracies,
            plain: plain.iter().filter_map(|report| report.accuracy).collect(),
            message_sparsity: mean(&plain.iter().map(|r| r.message_sparsity).collect::<Vec<_>>()),
            average_sparsity: mean(&plain.iter().map(|r| r.average_sparsity).collect::<Vec<_>>()),
            singles: (!singles.is_empty()).then(|| mean(&singles)),
            ciphertexts: max_ciphertexts(task),
            bytes: max_body_bytes(task),
            key,
            rounds,
            round: numbers("seconds"),
        }
    }

    fn last(values: &[f64]) -> Option<f64> {
        values.last().copied()
    }
}

pub(super) struct Outcome {
    bits: u32,
    users: usize,
    held_out: usize,
    initial: f64,
    best_alone: f64,
    profiles: Vec<ProfileOutcome>,
    total: Duration,
}

impl Outcome {
    pub(super) fn new(
        setting: &Setting,
        bits: u32,
        profiles: Vec<ProfileOutcome>,
        total: Duration,
    ) -> Result<Self, CliError> {
        Ok(Self {
            bits,
            users: setting.scenario.users.len(),
            held_out: setting.scenario.held_out.len(),
            initial: setting.initial_accuracy()?,
            best_alone: setting.best_alone()?,
            profiles,
            total,
        })
    }

    fn rounds(&self) -> usize {
        self.profiles.iter().map(|outcome| outcome.accuracies.len()).max().unwrap_or(0)
    }

    fn accuracy_head(&self) -> Vec<String> {
        let mut head = vec!["accuracy after round".to_owned()];
        for outcome in &self.profiles {
            head.extend([format!("{}, encrypted", outcome.profile), "in the clear".to_owned()]);
        }
        head
    }

    fn accuracy_rows(&self) -> Vec<Vec<String>> {
        (0..self.rounds())
            .map(|round| {
                let mut row = vec![(round + 1).to_string()];
                for outcome in &self.profiles {
                    let at = |values: &[f64]| percent(values.get(round).copied());
                    row.extend([at(&outcome.accuracies), at(&outcome.plain)]);
                }
                row
            })
            .collect()
    }

    fn cost_head(&self) -> Vec<String> {
        let names = self.profiles.iter().map(|outcome| outcome.profile.name().to_owned());
        [String::new()].into_iter().chain(names).collect()
    }

    fn cost_rows(&self) -> Vec<Vec<String>> {
        let row = |name: &str, cell: &dyn Fn(&ProfileOutcome) -> String| {
            [name.to_owned()].into_iter().chain(self.profiles.iter().map(cell)).collect::<Vec<_>>()
        };
        let seconds = |duration: Duration| Unit::Seconds.write(duration.as_secs_f64());
        vec![
            row("accuracy, encrypted", &|o| percent(ProfileOutcome::last(&o.accuracies))),
            row("accuracy, in the clear", &|o| percent(ProfileOutcome::last(&o.plain))),
            row("ciphertexts a user sends in a round", &|o| o.ciphertexts.to_string()),
            row("bytes a user sends in a round", &|o| Unit::Bytes.write(o.bytes as f64)),
            row("zeros in what a user sends", &|o| percent(Some(o.message_sparsity))),
            row("zeros in the average", &|o| percent(Some(o.average_sparsity))),
            row("positions that one user alone filled", &|o| {
                o.singles.map_or_else(|| "none: all are public".to_owned(), |share| percent(Some(share)))
            }),
            row("time to make the key", &|o| seconds(o.key)),
            row("time of a round, everybody together", &|o| {
                Unit::Seconds.write(o.round.iter().sum::<f64>() / o.round.len().max(1) as f64)
            }),
            row("time of all rounds, processes started", &|o| seconds(o.rounds)),
        ]
    }

    pub(super) fn print(&self) {
        let head = self.accuracy_head();
        print_rows(&head.iter().map(String::as_str).collect::<Vec<_>>(), &self.accuracy_rows());
        println!();
        println!("before the first round      {}", percent(Some(self.initial)));
        println!("best single user, alone     {}", percent(Some(self.best_alone)));
        println!("(mean over classes, {} digits that nobody learnt from)", self.held_out);
        println!(
            "the weights equal, bit for bit, those of the same rounds in one process without encryption\n"
        );
        let head = self.cost_head();
        print_rows(&head.iter().map(String::as_str).collect::<Vec<_>>(), &self.cost_rows());
    }

    pub(super) fn print_end(&self, folder: &Path, page: &Path) {
        let name = self.profiles.last().map_or("full", |outcome| outcome.profile.name());
        println!("\n{:.0} s in all.", self.total.as_secs_f64());
        println!("report       {}", page.display());
        println!("model        {}", folder.join(name).join("model.safetensors").display());
        println!("logs, kits   {}", folder.join(name).display());
        println!("\nnext");
        println!("  dphe evaluate --model {}", folder.join(name).join("model.safetensors").display());
        println!(
            "  dphe verify --kit {0}/kits/aggregator --data {0}/data/aggregator",
            folder.join(name).display()
        );
        println!("  dphe simulate FEATURES      your own features, in one process");
        println!("  dphe init                   a task for people on different machines");
    }

    pub(super) fn page(&self) -> String {
        let mut page = Page::new("Five people, one classifier, no shared image");
        page.paragraph(&format!(
            "{} users, an aggregator and a key generator, each a process of its own, talked over TLS and trained a \
             classifier of handwritten digits. Every sum was encrypted with {} bits.",
            self.users, self.bits
        ));
        let mut series = Vec::new();
        for outcome in &self.profiles {
            series.push(Series::new(format!("{}, encrypted", outcome.profile), outcome.accuracies.clone()));
        }
        series.push(Series::new("best single user", vec![self.best_alone]));
        series.push(Series::new("before round 1", vec![self.initial]));
        let seconds: Vec<Series> = self
            .profiles
            .iter()
            .map(|outcome| Series::new(outcome.profile.name(), outcome.round.clone()))
            .collect();
        let accuracy =
            Chart { title: "Accuracy", unit: Unit::Percent, series: &series, from_zero: false, first: 1 }
                .svg();
        let time = Chart {
            title: "Time of a round",
            unit: Unit::Seconds,
            series: &seconds,
            from_zero: true,
            first: 1,
        }
        .svg();
        page.heading("Rounds")
            .plots(&[("Accuracy on digits nobody learnt from", accuracy), ("Time of a round", time)]);
        let (head, costs) = (self.accuracy_head(), self.cost_head());
        page.table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &self.accuracy_rows());
        page.paragraph(
            "In the clear: the same rounds without encryption and without rounding. With rounding, the weights are \
             the same, bit for bit.",
        );
        page.heading("What it cost")
            .table(&costs.iter().map(String::as_str).collect::<Vec<_>>(), &self.cost_rows());
        page.paragraph(
            "sparse: users send the blocks that changed most. Two permutations hide where these are, one round at a \
             time, from an aggregator that plays by the rules and colludes with no user. Where one user alone filled a \
             position, the sum shows that user's numbers. full: everybody sends the same public positions, which \
             therefore tell nothing.",
        );
        page.paragraph(
            "What nobody is protected from: aggregator and key generator together read every update. The report was \
             made by a program that saw all data, to be able to compare.",
        );
        page.html()
    }
}
