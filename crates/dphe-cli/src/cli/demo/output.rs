//! The results of the demo, as text and as a page.

use std::path::Path;
use std::time::Duration;

use dphe::scheme::max_ciphertexts;
use dphe::wire::max_upload_bytes;
use dphe::{Profile, TaskParams};
use dphe_federate::RoundReport;
use dphe_service::chart::{Chart, Series, Unit};

use super::Setting;
use crate::cli::CliError;
use crate::page::Page;
use crate::terminal::{percent, print_rows};

/// The results of one profile.
pub(super) struct ProfileOutcome {
    profile: Profile,
    accuracies: Vec<f64>,
    plain: Vec<f64>,
    update_sparsity: f64,
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
            update_sparsity: mean(&plain.iter().map(|r| r.update_sparsity).collect::<Vec<_>>()),
            average_sparsity: mean(&plain.iter().map(|r| r.average_sparsity).collect::<Vec<_>>()),
            singles: (!singles.is_empty()).then(|| mean(&singles)),
            ciphertexts: max_ciphertexts(task),
            bytes: max_upload_bytes(task),
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
        let mut head = vec!["round".to_owned()];
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
        let names = self.profiles.iter().map(|outcome| outcome.profile.as_str().to_owned());
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
            row("ciphertexts per user and round", &|o| o.ciphertexts.to_string()),
            row("bytes per user and round", &|o| Unit::Bytes.write(o.bytes as f64)),
            row("zeros in an update", &|o| percent(Some(o.update_sparsity))),
            row("zeros in the average", &|o| percent(Some(o.average_sparsity))),
            row("positions that only one user occupied", &|o| {
                o.singles.map_or_else(|| "all are public".to_owned(), |share| percent(Some(share)))
            }),
            row("time to generate the key", &|o| seconds(o.key)),
            row("time per round, over all parties", &|o| {
                Unit::Seconds.write(o.round.iter().sum::<f64>() / o.round.len().max(1) as f64)
            }),
            row("time of all rounds, including start-up", &|o| seconds(o.rounds)),
        ]
    }

    pub(super) fn print(&self) {
        println!("accuracy after each round");
        let head = self.accuracy_head();
        print_rows(&head.iter().map(String::as_str).collect::<Vec<_>>(), &self.accuracy_rows());
        println!();
        println!("before the first round      {}", percent(Some(self.initial)));
        println!("best user alone             {}", percent(Some(self.best_alone)));
        println!("(mean over classes, on {} held-out digits)", self.held_out);
        println!("The weights are bit for bit those of a simulation without encryption.\n");
        let head = self.cost_head();
        print_rows(&head.iter().map(String::as_str).collect::<Vec<_>>(), &self.cost_rows());
    }

    pub(super) fn print_end(&self, directory: &Path, page: &Path) {
        let name = self.profiles.last().map_or("full", |outcome| outcome.profile.as_str());
        println!("\ntotal time   {:.0} s", self.total.as_secs_f64());
        println!("report       {}", page.display());
        println!("model        {}", directory.join(name).join("model.safetensors").display());
        println!("logs, kits   {}", directory.join(name).display());
        println!("\nnext:");
        let directory = directory.join(name);
        // on two lines each, so that a terminal does not break them in the middle of a path
        let directory = directory.display();
        println!("  dphe evaluate --model {directory}/model.safetensors \\\n      {directory}/held-out.npz");
        println!(
            "  dphe verify --kit {directory}/kits/aggregator \\\n      --data {directory}/data/aggregator"
        );
        println!("  dphe simulate FEATURES      to simulate with your own features");
        println!("  dphe init                   to set up a task on several machines");
    }

    pub(super) fn page(&self) -> String {
        let mut page = Page::new("Five users, one classifier, no shared images");
        page.paragraph(&format!(
            "{} users, an aggregator and a key generator ran as separate processes, communicated over TLS and trained \
             a classifier of handwritten digits. Every sum was encrypted with a {}-bit key.",
            self.users, self.bits
        ));
        let mut series = Vec::new();
        for outcome in &self.profiles {
            series.push(Series::new(format!("{}, encrypted", outcome.profile), outcome.accuracies.clone()));
        }
        series.push(Series::new("best user alone", vec![self.best_alone]));
        series.push(Series::new("before round 1", vec![self.initial]));
        let seconds: Vec<Series> = self
            .profiles
            .iter()
            .map(|outcome| Series::new(outcome.profile.as_str(), outcome.round.clone()))
            .collect();
        let accuracy =
            Chart { title: "Accuracy", unit: Unit::Percent, series: &series, from_zero: false, first: 1 }
                .svg();
        let time = Chart {
            title: "Time per round",
            unit: Unit::Seconds,
            series: &seconds,
            from_zero: true,
            first: 1,
        }
        .svg();
        page.heading("Rounds").plots(&[("Accuracy on held-out digits", accuracy), ("Time per round", time)]);
        let (head, costs) = (self.accuracy_head(), self.cost_head());
        page.table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &self.accuracy_rows());
        page.paragraph(
            "\"In the clear\" means the same rounds without encryption and without rounding. With rounding, the weights \
             are bit for bit the same as with encryption.",
        );
        page.heading("Costs").table(&costs.iter().map(String::as_str).collect::<Vec<_>>(), &self.cost_rows());
        page.paragraph(
            "In the profile sparse, users send the blocks that changed most. Two permutations hide their positions \
             within a round from a semi-honest aggregator that colludes with no user. Where only one user occupied a \
             position, the sum reveals that user's numbers. In the profile full, all users send the same public \
             positions, which reveal nothing.",
        );
        page.paragraph(
            "If the aggregator and the key generator collude, they can read every update. This report was made by a \
             program that saw all data, for comparison.",
        );
        page.html()
    }
}
