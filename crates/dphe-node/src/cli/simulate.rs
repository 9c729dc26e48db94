//! `dphe simulate`: users, aggregator and key generator in one process, on any file of features.

mod output;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use dphe::{Profile, TaskConfig, TaskId, TaskParams};
use dphe_federate::{
    Average, DpheAverage, Participation, PlainAverage, RoundReport, Scenario, ScenarioParams, Simulation,
    SimulationParams, Stopwatch, Weighting, propose,
};
use dphe_learn::dataset::Dealing;
use dphe_learn::update::{LocalTrainer, Message};
use dphe_learn::{Seed, Threads, Weights};
use indicatif::{ProgressBar, ProgressStyle};

use self::output::{Baselines, Outcome};
use super::bench::Format;
use super::input::Input;
use super::key::Mode;
use super::learner::{LearnerArgs, Start, at_most};
use super::{CliError, os_rng};
use crate::model::{About, Model, Training, VERSION};
use crate::samples::Samples;

/// Users count by at most this many samples.
const MOST_SAMPLES: u32 = 4096;

/// Train as users, aggregator and key generator would, in one process
///
/// Deals the samples out, learns round after round with every sum encrypted, and says what came of it. With --plain sums
/// are not encrypted: the control.
#[derive(Args, Debug)]
pub(crate) struct Simulate {
    #[command(flatten)]
    input: Input,
    /// How many users share the samples
    #[arg(long, default_value_t = 5, value_parser = at_most(100_000))]
    users: usize,
    /// Samples of a class that are public from the beginning
    #[arg(long, default_value_t = 3, value_parser = at_most(1_000_000))]
    initial_per_class: usize,
    /// Samples of a class to learn from; all that are not held out, if not given
    #[arg(long, value_parser = at_most(1_000_000_000))]
    train_per_class: Option<usize>,
    /// Samples of a class to hold out, at most
    #[arg(long, default_value_t = 50, value_parser = at_most(1_000_000_000))]
    test_per_class: usize,
    /// Who gets what
    #[arg(long, value_enum, default_value_t = SplitName::Disjoint)]
    split: SplitName,
    /// With --split duplicated, how many users hold a sample; with by-class, pieces a user gets
    #[arg(long, default_value_t = 2, value_parser = at_most(100_000))]
    pieces: usize,
    /// How many rounds
    #[arg(long, default_value_t = 15, value_parser = at_most(1_000_000))]
    rounds: usize,
    /// Users of a round, drawn anew each time; everybody, if not given
    #[arg(long)]
    participants: Option<usize>,
    /// Let users count by their samples, which stay encrypted
    #[arg(long)]
    weighted: bool,
    /// What the mean difference is multiplied by; more than 1 where many users have few samples
    #[arg(long, default_value_t = 1.0)]
    server_step: f64,
    #[command(flatten)]
    learner: LearnerArgs,
    /// Bits of the encryption key
    #[arg(long, default_value_t = 3072)]
    bits: u32,
    /// How noise is drawn
    #[arg(long, value_enum, default_value_t = Mode::Secure)]
    noise: Mode,
    /// Do not encrypt: the control
    #[arg(long)]
    plain: bool,
    /// Everything but the encryption follows from it
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads; all cores, if not given
    #[arg(long)]
    threads: Option<usize>,
    /// Folder for report.html, report.json and model.safetensors
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// A table to read, or JSON
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SplitName {
    /// Equal shares at random
    Disjoint,
    /// Several users hold each sample
    Duplicated,
    /// Users see few classes
    ByClass,
}

impl Simulate {
    pub(crate) fn run(self) -> Result<(), CliError> {
        if let Some(folder) = &self.output {
            // before anything takes long
            std::fs::create_dir_all(folder)
                .map_err(|source| CliError::Output { path: folder.clone(), source })?;
        }
        let samples = self.input.samples()?;
        let seed = Seed::new(self.seed);
        let scenario = Scenario::new(&samples.data, &self.scenario(), &seed)?;
        let threads = self.threads();
        let start = self.learner.start(&scenario.initial, &seed, threads)?;
        let weighting = match self.weighted {
            true => Weighting::Samples { most: MOST_SAMPLES },
            false => Weighting::Equal,
        };
        let (task, message) = self.task(&start.weights, weighting)?;
        let baselines = self.baselines(&scenario, &start.weights, &seed)?;

        let (reports, weights) = if self.plain {
            let average = PlainAverage::new(task.clone(), weighting, self.users)?;
            self.rounds(average, &scenario, start, message, &seed)?
        } else {
            let note = format!("making a {}-bit key", self.bits);
            let waiting = spinner(note);
            let encryption = dphe::Threads::new(threads.get());
            let average = DpheAverage::new(task.clone(), weighting, self.users, os_rng()?, encryption)?;
            waiting.finish_and_clear();
            self.rounds(average, &scenario, start, message, &seed)?
        };
        let model = self.model(&samples, &scenario, weights, &task, reports.len());
        let reached = model.weights.accuracy(&scenario.held_out, threads)?;
        let outcome = Outcome::new(&self, &samples, &scenario, &task, baselines, reports, reached);
        outcome.print(self.format)?;
        if let Some(folder) = &self.output {
            outcome.write(folder)?;
            model.write(&folder.join("model.safetensors"))?;
            if self.format == Format::Table {
                println!("\nreport, numbers and model: {}", folder.display());
            }
        } else if self.format == Format::Table {
            println!("\nnothing was kept; `-o FOLDER` writes a report and the model");
        }
        Ok(())
    }

    fn threads(&self) -> Threads {
        self.threads.map_or_else(Threads::all, Threads::new)
    }

    fn scenario(&self) -> ScenarioParams {
        let dealing = match self.split {
            SplitName::Disjoint => Dealing::Disjoint,
            SplitName::Duplicated => Dealing::Duplicated { copies: self.pieces },
            SplitName::ByClass => Dealing::ByClass { pieces: self.pieces },
        };
        ScenarioParams {
            users: self.users,
            initial_per_class: self.initial_per_class,
            train_per_class: self.train_per_class,
            test_per_class: self.test_per_class,
            dealing,
        }
    }

    /// The task for this model, and the message that fits it.
    fn task(&self, weights: &Weights, weighting: Weighting) -> Result<(TaskParams, Message), CliError> {
        let profile = self.learner.profile();
        // a task for fewer than three cannot be; that there are too few users is said later, by whoever needs them
        let most = u32::try_from(self.users.next_power_of_two().max(4)).unwrap_or(u32::MAX);
        let propose = |message| -> Result<TaskConfig, CliError> {
            let mut config = propose(profile, message, weights, most, weighting)?;
            config.key_bits = self.bits;
            config.noise = self.noise.into();
            if message == Message::Rotating {
                config.capacity = (f64::from(config.positions()) * self.learner.share).ceil() as u32;
            }
            Ok(config)
        };
        // the public order of features follows from the task's name, and everything here from the seed
        let mut id = *b"simulate\0\0\0\0\0\0\0\0";
        id[8..].copy_from_slice(&self.seed.to_be_bytes());
        let check = |config| match profile {
            // the paper's key is for reproduction, and only with the paper's scheme
            Profile::Paper => dphe::hazmat::task_params(TaskId::from_bytes(id), config),
            _ => TaskParams::new(TaskId::from_bytes(id), config),
        };
        // how many numbers a ciphertext holds does not depend on what is sent
        let probe = check(propose(self.learner.message_for(weights, 1))?)?;
        let message = self.learner.message_for(weights, probe.slots());
        Ok((check(propose(message)?)?, message))
    }

    /// What one would get without rounds: from the initial samples, from one user's, and from all in one place.
    fn baselines(&self, scenario: &Scenario, initial: &Weights, seed: &Seed) -> Result<Baselines, CliError> {
        let threads = self.threads();
        let accuracy = |weights: &Weights| weights.accuracy(&scenario.held_out, threads);
        let pooled = self.learner.alone(&scenario.initial, None, &scenario.pooled, seed, threads)?;
        let mut best_user = f64::NEG_INFINITY;
        for data in &scenario.users {
            let alone = self.learner.alone(&scenario.initial, Some(initial), data, seed, threads)?;
            best_user = best_user.max(accuracy(&alone)?);
        }
        Ok(Baselines { initial: accuracy(initial)?, best_user, pooled: accuracy(&pooled)? })
    }

    fn rounds<A: Average>(
        &self,
        average: A,
        scenario: &Scenario,
        start: Start,
        message: Message,
        seed: &Seed,
    ) -> Result<(Vec<RoundReport>, Weights), CliError> {
        let trainer = LocalTrainer::new(start.learner, message)?;
        let params = SimulationParams {
            participation: self.participants.map_or(Participation::Everyone, Participation::Some),
            server_step: self.server_step,
            threads: self.threads(),
            ..SimulationParams::default()
        };
        let mut simulation =
            Simulation::new(scenario.users.clone(), start.weights, trainer, average, params, *seed)?
                .with_held_out_data(scenario.held_out.clone())?;
        if let Some(controller) = start.controller {
            // too strong an L1 ruins a model; without one, the few initial samples would give false alarms
            simulation =
                simulation.with_initial_data(scenario.initial.clone())?.with_controller(controller)?;
        }
        let bar = progress(self.rounds);
        let clock = Instant::now();
        let mut stopwatch = Stopwatch::new(move || clock.elapsed());
        let reports = simulation.run_watched(self.rounds, &mut stopwatch, |report| {
            bar.inc(1);
            if let Some(accuracy) = report.accuracy {
                bar.set_message(format!("accuracy {:.1} %", 100.0 * accuracy));
            }
        })?;
        bar.finish_and_clear();
        Ok((reports, simulation.global().clone()))
    }

    fn model(
        &self,
        samples: &Samples,
        scenario: &Scenario,
        weights: Weights,
        task: &TaskParams,
        rounds: usize,
    ) -> Model {
        let encrypted = !self.plain;
        let training = Training {
            task: encrypted.then(|| task.id().to_string()),
            profile: encrypted.then(|| task.profile().name().to_owned()),
            message: Some(self.learner.message.name()),
            key_bits: encrypted.then_some(self.bits),
            rounds: rounds as u64,
            users: self.users,
        };
        let about = About {
            version: VERSION,
            classes: samples.classes.clone(),
            labels: samples.kind,
            clip: scenario.standardizer.clip(),
            feature_model: samples.source.as_ref().map(|source| source.model_digest.clone()),
            preprocessing: samples.source.as_ref().map(|source| source.preprocessing.clone()),
            training,
        };
        Model { weights, standardizer: scenario.standardizer.clone(), about }
    }
}

/// The mean over classes, or over attributes.
/// A line that shows that something is going on.
fn spinner(note: String) -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    spinner.set_message(note);
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}

fn progress(rounds: usize) -> ProgressBar {
    let bar = ProgressBar::new(rounds as u64);
    if let Ok(style) = ProgressStyle::with_template("round {pos}/{len} [{bar:30}] {msg} (about {eta} left)") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
