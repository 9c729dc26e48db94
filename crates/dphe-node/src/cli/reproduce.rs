//! `dphe reproduce`: the paper's tables and figures, its leaks, and attacks on it, on real data or on what is at hand.

mod memory;
mod output;
mod sources;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use dphe_federate::Stopwatch;
use dphe_node::digits;
use dphe_reproduce::attacks::Attacks;
use dphe_reproduce::experiments::{
    Clustering, Encryption, Figure4, Recognition, Settings, Table1, Table2, Task,
};
use dphe_reproduce::leaks::Leaks;
use dphe_reproduce::{Experiment, Measured};
use indicatif::{ProgressBar, ProgressStyle};

use self::memory::Memory;
use self::output::Found;
use self::sources::Sources;
use super::CliError;
use super::learner::ProfileName;

/// Repeat the paper's experiments, and those about it
///
/// Without --data everything runs on the handwritten digits that come with the program, and says so. With --out nothing
/// is measured twice: an interrupted run goes on where it was.
#[derive(Args, Debug)]
pub(crate) struct Reproduce {
    /// Which experiment
    #[arg(value_enum)]
    name: Name,
    /// Data sets: DIR/caltech101, DIR/caltech256, DIR/celeba, DIR/lifelog, DIR/youtube8m, or one folder of features
    /// (docs/reproduction.md)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Few repetitions and rounds: to see that everything works
    #[arg(long)]
    quick: bool,
    /// Repetitions, each with another split; the paper has 10
    #[arg(long)]
    runs: Option<u64>,
    /// Users, where their number is not what is varied
    #[arg(long)]
    users: Option<usize>,
    /// What chance depends on
    #[arg(long)]
    seed: Option<u64>,
    /// Bits of keys, where they are not the paper's
    #[arg(long)]
    bits: Option<u32>,
    /// Whose form of message is taken where there is but one besides the paper's
    #[arg(long, value_enum)]
    profile: Option<ProfileName>,
    /// Samples of each class to learn from, public ones included
    #[arg(long, value_name = "SAMPLES")]
    train_per_class: Option<usize>,
    /// Samples of each class to hold out, at most
    #[arg(long, value_name = "SAMPLES")]
    test_per_class: Option<usize>,
    /// Rounds, if not each method's own number
    #[arg(long)]
    rounds: Option<usize>,
    /// What is really encrypted; the rest is summed in the clear with the same rounding, to the same bits
    #[arg(long, value_enum)]
    encrypt: Option<Encrypt>,
    /// Exit with 3 if a claim does not hold
    #[arg(long)]
    check: bool,
    /// Put tables, plots, a page and everything measured here
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Object recognition: DPHE, PRR10, RA12, no privacy
    Table1,
    /// Sparsity, accuracy, and how long encryption takes
    Table2,
    /// The number of users
    Figure4,
    /// Attributes of faces
    Celeba,
    /// Detecting sensitive places
    Lifelog,
    /// Attributes of videos
    Youtube8m,
    /// Sparse centres of clusters
    Clustering,
    /// What one plain update gives away
    Leaks,
    /// What the paper's scheme gives away over rounds
    Attacks,
    /// All of them
    All,
}

impl Name {
    const EACH: [Self; 9] = [
        Self::Table1,
        Self::Table2,
        Self::Figure4,
        Self::Celeba,
        Self::Lifelog,
        Self::Youtube8m,
        Self::Clustering,
        Self::Leaks,
        Self::Attacks,
    ];
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Encrypt {
    /// Nothing
    Nothing,
    /// Packed messages, in the first repetition
    FirstPacked,
    /// Everything, in the first repetition
    First,
    /// Everything, always: hours
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
    /// Tables to read
    Table,
    /// The main table as a list of objects; with `all`, an object of such lists
    Json,
    /// Markdown
    Markdown,
}

impl Reproduce {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let settings = self.settings()?;
        let mut memory = Memory::open(self.out.as_deref())?;
        let mut sources = Sources::new(self.data.clone())?;
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
            let measured = measure(experiment.as_ref(), &mut memory, &bar)?;
            let findings = experiment.findings(&measured);
            let result = Found::new(experiment.as_ref(), findings, begin.elapsed());
            if self.format == Format::Table {
                bar.suspend(|| result.print());
            }
            if let Some(folder) = &self.out {
                result.write(folder)?;
            }
            results.push(result);
        }
        bar.finish_and_clear();
        match self.format {
            Format::Table => {}
            Format::Json => output::print_json(&results, self.name == Name::All)?,
            Format::Markdown => results.iter().for_each(|result| println!("{}", result.markdown())),
        }
        if let Some(folder) = &self.out {
            let page = output::write_page(folder, &results, self.quick)?;
            if self.format == Format::Table {
                println!("\nreport       {}", page.display());
            }
        }
        match self.check && !results.iter().all(Found::holds) {
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
                let what = format!("{name} is 0, and nothing would be measured");
                return Err(CliError::Data { what, hint: "at least 1".into() });
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
            profile: self.profile.map_or(base.profile, Into::into),
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
            Name::Table1 => Box::new(Table1::new(sources.objects()?, settings)),
            Name::Table2 => {
                let phe = sources::phe_seconds();
                Box::new(Table2::new(sources.main()?, settings).with_phe(phe))
            }
            Name::Figure4 if self.quick => {
                Box::new(Figure4::with_users(sources.main()?, settings, vec![5, 10, 25]))
            }
            Name::Figure4 => Box::new(Figure4::new(sources.main()?, settings)),
            Name::Celeba => Box::new(Recognition::new(Task::Faces, sources.faces()?, settings)),
            Name::Lifelog => Box::new(Recognition::new(Task::Places, sources.places()?, settings)),
            Name::Youtube8m => Box::new(Recognition::new(Task::Videos, sources.videos()?, settings)),
            Name::Clustering => Box::new(Clustering::new(sources.objects()?, settings)),
            Name::Leaks => {
                let leaks = Leaks::new("digits", digits::digits()?, settings.runs).with_pictures(8, 16.0);
                Box::new(if self.quick { leaks.quick() } else { leaks })
            }
            Name::Attacks => {
                let attacks = Attacks::new(settings.runs).with_data("digits", digits::digits()?);
                Box::new(if self.quick { attacks.quick() } else { attacks })
            }
            // no experiment of its own
            Name::All => return Ok(None),
        };
        Ok(Some(experiment))
    }
}

/// Progress over all runs of all experiments, by how long they take.
fn bar(experiments: &[Box<dyn Experiment>]) -> ProgressBar {
    let all: f64 = experiments.iter().flat_map(|e| e.runs().into_iter().map(|run| e.weight(&run))).sum();
    let bar = ProgressBar::new((all * STEPS) as u64);
    let template = "{prefix:>10} [{bar:30}] {percent:>3} %  {elapsed} elapsed, {eta} left  {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Of a weight of one.
const STEPS: f64 = 1000.0;

fn measure(
    experiment: &dyn Experiment,
    memory: &mut Memory,
    bar: &ProgressBar,
) -> Result<Measured, CliError> {
    let mut measured = memory.recall(experiment)?;
    bar.set_prefix(experiment.name());
    let start = Instant::now();
    let mut stopwatch = Stopwatch::new(move || start.elapsed());
    for run in experiment.runs() {
        bar.set_message(format!("{} (seed {})", run.what, run.seed));
        if !measured.contains_key(&run) {
            let measurement = experiment.measure(&run, &mut stopwatch)?;
            memory.keep(experiment, &run, &measurement)?;
            measured.insert(run.clone(), measurement);
        }
        bar.inc((experiment.weight(&run) * STEPS) as u64);
    }
    Ok(measured)
}
