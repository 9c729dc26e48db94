//! `dphe reproduce`: the paper's tables and figures, what its scheme leaks, and attacks on it.

mod memory;
mod output;
mod sources;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::digits;
use clap::{Args, ValueEnum};
use dphe::Profile;
use dphe_federate::Stopwatch;
use dphe_reproduce::attacks::Attacks;
use dphe_reproduce::experiments::{
    AttributeTask, Encryption, FIGURE4_USERS, Settings, USERS, clustering, figure4, recognition, table1,
    table2, users,
};
use dphe_reproduce::leaks::Leaks;
use dphe_reproduce::{Experiment, Measured};
use indicatif::{ProgressBar, ProgressStyle};

use self::memory::MeasurementStore;
use self::output::ExperimentReport;
use self::sources::Sources;
use super::CliError;
use crate::args::one_of;
use crate::terminal::{Tone, coloured, print_text};

/// Reproduce the paper's experiments, and measure what the scheme leaks
///
/// Without --data-sets, the experiments run on the bundled handwritten digits. With --output, measurements are stored,
/// and an interrupted run continues where it stopped.
#[derive(Args, Debug)]
pub(crate) struct Reproduce {
    /// The experiment
    #[arg(value_enum)]
    name: Name,
    /// A directory with data sets (caltech101, caltech256, celeba, lifelog, youtube8m, medical or
    /// chest-xray) or with features; see
    /// docs/reproduction.md
    #[arg(long, value_name = "DIR")]
    data_sets: Option<PathBuf>,
    /// Use few repetitions and rounds, to check that everything works
    #[arg(long)]
    quick: bool,
    /// The number of repetitions with different splits (10 in the paper)
    #[arg(long)]
    runs: Option<u64>,
    /// The number of users, in experiments that do not vary it
    #[arg(long)]
    users: Option<usize>,
    /// The random seed
    #[arg(long)]
    seed: Option<u64>,
    /// The key length in bits, for experiments that do not fix it
    #[arg(long)]
    bits: Option<u32>,
    /// The profile that experiments compare with the paper's
    #[arg(long, value_parser = one_of::<Profile>())]
    profile: Option<Profile>,
    /// Training samples per class, including public ones
    #[arg(long, value_name = "SAMPLES")]
    train_per_class: Option<usize>,
    /// The maximum number of held-out samples per class
    #[arg(long, value_name = "SAMPLES")]
    test_per_class: Option<usize>,
    /// The number of rounds [default: depends on the method]
    #[arg(long)]
    rounds: Option<usize>,
    /// Which sums are encrypted; others are computed in the clear with the same rounding and the same result
    #[arg(long, value_enum)]
    encrypt: Option<Encrypt>,
    /// Exit with code 3 if a claim does not hold
    #[arg(long)]
    check: bool,
    /// The directory for tables, plots, an HTML page and all measurements
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Object recognition: DPHE, PRR10, RA12, no privacy
    Table1,
    /// Sparsity, accuracy and encryption time
    Table2,
    /// The effect of the number of users
    Figure4,
    /// Many users, and users who differ, with every payload
    Users,
    /// Attributes of faces
    Celeba,
    /// Detection of sensitive places
    Lifelog,
    /// Attributes of videos
    Youtube8m,
    /// Medical images: hospitals together and alone
    Medical,
    /// Clustering with sparse centres
    Clustering,
    /// What a single plain update leaks
    Leaks,
    /// What the paper's scheme leaks over many rounds
    Attacks,
    /// All experiments
    All,
}

impl Name {
    const EACH: [Self; 11] = [
        Self::Table1,
        Self::Table2,
        Self::Figure4,
        Self::Users,
        Self::Celeba,
        Self::Lifelog,
        Self::Youtube8m,
        Self::Medical,
        Self::Clustering,
        Self::Leaks,
        Self::Attacks,
    ];
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Encrypt {
    /// Nothing
    Nothing,
    /// Packed updates in the first repetition
    FirstPacked,
    /// Everything in the first repetition
    First,
    /// Everything in every repetition, which takes hours
    Everything,
}

impl From<Encrypt> for Encryption {
    fn from(encrypt: Encrypt) -> Self {
        match encrypt {
            Encrypt::Nothing => Self::Nothing,
            Encrypt::FirstPacked => Self::FirstPacked,
            Encrypt::First => Self::First,
            Encrypt::Everything => Self::Everything,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for people
    Table,
    /// The main table as a JSON list of objects; with `all`, an object of such lists
    Json,
    /// Markdown
    Markdown,
}

impl Reproduce {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let settings = self.settings()?;
        let mut store = MeasurementStore::open(self.output.as_deref())?;
        let mut sources = Sources::new(self.data_sets.clone())?;
        let names = match self.name {
            Name::All => Name::EACH.to_vec(),
            name => vec![name],
        };
        let mut experiments = Vec::new();
        for name in names {
            experiments.extend(self.experiment(name, &mut sources, settings)?);
        }
        let mut results = Vec::new();
        let bar = bar(&experiments);
        for experiment in &experiments {
            let begin = Instant::now();
            let measured = measure(experiment.as_ref(), &mut store, &bar)?;
            let findings = experiment.findings(&measured);
            let result = ExperimentReport::new(experiment.as_ref(), findings, begin.elapsed());
            if self.format == Format::Table {
                bar.suspend(|| result.print());
            }
            if let Some(directory) = &self.output {
                result.write(directory)?;
            }
            results.push(result);
        }
        bar.finish_and_clear();
        match self.format {
            Format::Table => {}
            Format::Json => output::print_json(&results, self.name == Name::All)?,
            Format::Markdown => results.iter().for_each(|result| println!("{}", result.markdown())),
        }
        if let Some(directory) = &self.output {
            let page = output::write_page(directory, &results, self.quick)?;
            if self.format == Format::Table {
                println!("\nreport       {}", page.display());
            }
        }
        if self.format == Format::Table {
            let (all, hold) = results
                .iter()
                .map(ExperimentReport::claims)
                .fold((0, 0), |(all, hold), one| (all + one.0, hold + one.1));
            let tone = if hold == all { Tone::Good } else { Tone::Bad };
            println!("\n{}", coloured(&format!("{hold} of {all} claims hold"), tone));
            if self.output.is_none() {
                print_text(
                    "Nothing was saved. With `-o DIR`, an interrupted run continues where it stopped.",
                );
            }
        }
        match self.check && !results.iter().all(ExperimentReport::holds) {
            true => Err(CliError::Claims),
            false => Ok(()),
        }
    }

    fn settings(&self) -> Result<Settings, CliError> {
        let base = if self.quick { Settings::quick() } else { Settings::default() };
        for (name, number) in [
            ("--runs", self.runs.map(|n| n as usize)),
            ("--users", self.users),
            ("--rounds", self.rounds),
            ("--train-per-class", self.train_per_class),
            ("--test-per-class", self.test_per_class),
        ] {
            if number == Some(0) {
                let what = format!("`{name}` must be at least 1");
                return Err(CliError::Data { what, hint: format!("Use `{name} 1` or more.") });
            }
        }
        if let Some(bits) = self.bits {
            super::key_bits(bits, false)?;
        }
        Ok(Settings {
            users: self.users.unwrap_or(base.users),
            runs: self.runs.unwrap_or(base.runs),
            seed: self.seed.unwrap_or(base.seed),
            key_bits: self.bits.unwrap_or(base.key_bits),
            profile: self.profile.unwrap_or(base.profile),
            train_per_class: self.train_per_class,
            test_per_class: self.test_per_class,
            rounds: self.rounds.or(base.rounds),
            encryption: self.encrypt.map_or(base.encryption, Into::into),
            ..base
        })
    }

    fn experiment(
        &self,
        name: Name,
        sources: &mut Sources,
        settings: Settings,
    ) -> Result<Option<Box<dyn Experiment>>, CliError> {
        let experiment: Box<dyn Experiment> = match name {
            Name::Table1 => Box::new(table1(sources.objects()?, settings)),
            Name::Table2 => Box::new(table2(sources.main()?, settings, sources::phe_seconds())),
            Name::Figure4 => {
                let users = if self.quick { &FIGURE4_USERS[..3] } else { &FIGURE4_USERS };
                Box::new(figure4(sources.main()?, settings, users))
            }
            Name::Users => {
                let numbers = if self.quick { &USERS[..2] } else { &USERS };
                Box::new(users(sources.main()?, settings, numbers))
            }
            Name::Celeba => Box::new(recognition(AttributeTask::Faces, sources.faces()?, settings)),
            Name::Lifelog => Box::new(recognition(AttributeTask::Places, sources.places()?, settings)),
            Name::Youtube8m => Box::new(recognition(AttributeTask::Videos, sources.videos()?, settings)),
            Name::Medical => Box::new(recognition(AttributeTask::Medical, sources.medical()?, settings)),
            Name::Clustering => Box::new(clustering(sources.objects()?, settings)),
            Name::Leaks => {
                let leaks = Leaks::new("digits", digits::digits()?, settings.runs).with_pictures(8, 16.0);
                Box::new(if self.quick { leaks.quick() } else { leaks })
            }
            Name::Attacks => {
                let attacks = Attacks::new(settings.runs).with_data("digits", digits::digits()?);
                Box::new(if self.quick { attacks.quick() } else { attacks })
            }
            // not an experiment
            Name::All => return Ok(None),
        };
        Ok(Some(experiment))
    }
}

/// Creates a progress bar over all runs, weighted by how long they take.
fn bar(experiments: &[Box<dyn Experiment>]) -> ProgressBar {
    let all: f64 = experiments.iter().flat_map(|e| e.runs().into_iter().map(|run| e.weight(&run))).sum();
    let bar = ProgressBar::new((all * STEPS) as u64);
    let template = "{prefix:>10} [{bar:20}] {percent:>3} % {elapsed}, {eta} left {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Steps of the progress bar per unit of weight.
const STEPS: f64 = 1000.0;

fn measure(
    experiment: &dyn Experiment,
    store: &mut MeasurementStore,
    bar: &ProgressBar,
) -> Result<Measured, CliError> {
    let mut measured = store.recall(experiment)?;
    bar.set_prefix(experiment.name());
    let start = Instant::now();
    let mut stopwatch = Stopwatch::new(move || start.elapsed());
    for run in experiment.runs() {
        bar.set_message(format!("{} (seed {})", run.what, run.seed));
        if !measured.contains_key(&run) {
            let measurement = experiment.measure(&run, &mut stopwatch)?;
            store.keep(experiment, &run, &measurement)?;
            measured.insert(run.clone(), measurement);
        }
        bar.inc((experiment.weight(&run) * STEPS) as u64);
    }
    Ok(measured)
}
