//! `dphe simulate`: users, aggregator and key generator in one process.

mod output;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use dphe::{NoiseMode, TaskParams};
use dphe_federate::{
    Average, DpheAverage, EncryptionSpec, LearnerSpec, ModelSize, Participation, PlainAverage, RoundReport,
    Scenario, ScenarioParams, Simulation, SimulationParams, StartingPoint, Stopwatch, Weighting,
};
use dphe_learn::dataset::Dealing;
use dphe_learn::update::{LocalTrainer, Payload};
use dphe_learn::{Seed, Weights, all_cores};
use indicatif::{ProgressBar, ProgressStyle};

use self::output::{Baselines, Outcome};
use super::init::{AGGREGATOR, KEY_GENERATOR, NewTask, NewTrained, START};
use super::{CliError, os_rng};
use crate::args::FeatureArgs;
use crate::args::TableFormat;
use crate::args::one_of;
use crate::args::{LearnerArgs, at_most, between};
use crate::files;
use crate::model::{About, Model, Training, VERSION};
use crate::samples::Samples;
use crate::terminal::{print_text, spinner};

/// The largest weight of a user with `--weighted`.
const MOST_SAMPLES: u32 = 4096;

/// Simulate users, aggregator and key generator in one process
///
/// Distributes the samples to users, trains round after round with encrypted sums, and prints the results. With
/// --plain, sums are not encrypted, for comparison.
#[derive(Args, Debug)]
pub(crate) struct Simulate {
    #[command(flatten)]
    input: FeatureArgs,
    /// The number of users
    #[arg(long, default_value_t = 5, value_parser = between(3, 100_000))]
    users: usize,
    /// Public samples per class, for the initial model
    #[arg(long, default_value_t = 3, value_parser = at_most(1_000_000))]
    initial_per_class: usize,
    /// Training samples per class [default: all that are not held out]
    #[arg(long, value_parser = at_most(1_000_000_000))]
    train_per_class: Option<usize>,
    /// The maximum number of held-out samples per class
    #[arg(long, default_value_t = 50, value_parser = at_most(1_000_000_000))]
    test_per_class: usize,
    /// How samples are distributed to users
    #[arg(long, value_enum, default_value_t = SplitName::Disjoint)]
    split: SplitName,
    /// With --split duplicated, the number of users per sample; with by-class, the number of pieces per user
    #[arg(long, default_value_t = 2, value_parser = at_most(100_000))]
    pieces: usize,
    /// With --split dirichlet, how alike users are: 100 is almost alike, and at 0.1 most users have few classes
    #[arg(long, default_value_t = 0.5)]
    alpha: f64,
    /// With --split by-amount, how many times as many samples the last user has as the first
    #[arg(long, default_value_t = 100.0)]
    ratio: f64,
    /// The number of rounds
    #[arg(long, default_value_t = 15, value_parser = between(1, 1_000_000))]
    rounds: usize,
    /// The number of users per round, drawn at random each time [default: all]
    #[arg(long, value_parser = between(3, 100_000))]
    participants: Option<usize>,
    /// Weight users by their number of samples, which stays encrypted
    #[arg(long)]
    weighted: bool,
    /// The server step, which is shortened in rounds that it would make diverge [default: chosen by the numbers of
    /// users, samples per user and classes per user]
    #[arg(long)]
    server_step: Option<f64>,
    #[command(flatten)]
    learner: LearnerArgs,
    /// The key length in bits
    #[arg(long, default_value_t = 3072)]
    bits: u32,
    /// How noise is generated
    #[arg(long, value_parser = one_of::<NoiseMode>(), default_value = NoiseMode::Secure.name())]
    noise: NoiseMode,
    /// Do not encrypt, for comparison
    #[arg(long)]
    plain: bool,
    /// The random seed of everything except the encryption
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The number of threads [default: all cores]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// The directory for report.html, report.json, model.safetensors, and the task file of a deployment that does the
    /// same (task.toml, initial.safetensors)
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The output format
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SplitName {
    /// Equal shares at random
    Disjoint,
    /// Each sample goes to several users
    Duplicated,
    /// Each user has few classes
    ByClass,
    /// All samples of a class go to one user
    WholeClasses,
    /// Users differ in classes and in numbers of samples, by a Dirichlet distribution
    Dirichlet,
    /// Users differ in numbers of samples
    ByAmount,
}

impl Simulate {
    pub(crate) fn run(self) -> Result<(), CliError> {
        if let Some(participants) = self.participants.filter(|&participants| participants > self.users) {
            return Err(CliError::Data {
                what: format!("{participants} participants cannot be drawn from {} users", self.users),
                hint: "Lower `--participants`, or raise `--users`.".into(),
            });
        }
        if let Some(directory) = &self.output {
            // created first, so that an error does not come after a long run
            std::fs::create_dir_all(directory)
                .map_err(|source| CliError::Output { path: directory.clone(), source })?;
        }
        let waiting = spinner("reading the samples");
        let samples = self.input.samples()?;
        let seed = Seed::new(self.seed);
        let scenario = Scenario::new(&samples.data, &self.scenario(), &seed)?;
        let threads = self.threads();
        waiting.set_message("training the initial model, and each user alone for comparison");
        let mut start = self.learner.start(&scenario.initial, &seed, threads)?;
        let users = self.participants.unwrap_or(self.users);
        start.spec.server_step =
            self.server_step.unwrap_or_else(|| scenario.user_numbers(users).server_step());
        let weighting = match self.weighted {
            true => Weighting::Samples { most: MOST_SAMPLES },
            false => Weighting::Equal,
        };
        let (task, payload) = self.task(&start.spec, &start.weights, weighting)?;
        let baselines = self.baselines(&scenario, &start.weights, &seed)?;
        let (initial, spec) = (start.weights.clone(), start.spec.clone());
        waiting.finish_and_clear();

        let (reports, weights) = if self.plain {
            let average = PlainAverage::new(task.clone(), weighting, self.users)?;
            self.rounds(average, &scenario, start, payload, &seed)?
        } else {
            let note = format!("generating a {}-bit key", self.bits);
            let waiting = spinner(&note);
            let encryption = dphe::Threads::new(threads.get());
            let average = DpheAverage::new(task.clone(), weighting, self.users, os_rng()?, encryption)?;
            waiting.finish_and_clear();
            self.rounds(average, &scenario, start, payload, &seed)?
        };
        let deployed = self.deployed(&samples, &scenario, &initial, &spec, &task);
        let model = self.model(&samples, &scenario, weights, &task, reports.len());
        let reached = model.weights.accuracy(&scenario.held_out, threads)?;
        let outcome = Outcome::new(&self, &samples, &scenario, &task, baselines, reports, reached)
            .with_server_step(spec.server_step);
        outcome.print(self.format)?;
        if let Some(directory) = &self.output {
            outcome.write(directory)?;
            model.write(&directory.join("model.safetensors"))?;
            let written = self.write_task(directory, deployed)?;
            if self.format == TableFormat::Table {
                println!(
                    "\nreport, model{}: {}",
                    if written { ", task file" } else { "" },
                    directory.display()
                );
                print_text(self.task_note());
            }
        } else if self.format == TableFormat::Table {
            println!("\nNothing was saved. Use `-o DIR` to write a report and the model.");
        }
        Ok(())
    }

    fn threads(&self) -> NonZeroUsize {
        self.threads.unwrap_or_else(all_cores)
    }

    fn scenario(&self) -> ScenarioParams {
        let dealing = match self.split {
            SplitName::Disjoint => Dealing::Disjoint,
            SplitName::Duplicated => Dealing::Duplicated { copies: self.pieces },
            SplitName::ByClass => Dealing::ByClass { pieces: self.pieces },
            SplitName::WholeClasses => Dealing::WholeClasses,
            SplitName::Dirichlet => Dealing::Dirichlet { alpha: self.alpha },
            SplitName::ByAmount => Dealing::ByAmount { ratio: self.ratio },
        };
        ScenarioParams {
            users: self.users,
            initial_per_class: self.initial_per_class,
            train_per_class: self.train_per_class,
            test_per_class: self.test_per_class,
            dealing,
        }
    }

    /// Returns the initial model and the learner of a deployment that does the same as this simulation, if a deployment
    /// can.
    fn deployed(
        &self,
        samples: &Samples,
        scenario: &Scenario,
        initial: &Weights,
        spec: &LearnerSpec,
        task: &TaskParams,
    ) -> Option<(Model, LearnerSpec)> {
        let everybody = self.participants.is_none_or(|participants| participants == self.users);
        if self.weighted || !everybody {
            return None;
        }
        let mut model = self.model(samples, scenario, initial.clone(), task, 0);
        model.about.training = Training::default();
        Some((model, spec.clone()))
    }

    /// Writes the task file and the initial model. Returns whether there is one.
    fn write_task(&self, directory: &Path, deployed: Option<(Model, LearnerSpec)>) -> Result<bool, CliError> {
        let Some((model, spec)) = deployed else { return Ok(false) };
        let task = NewTask {
            name: None,
            users: u32::try_from(self.users).unwrap_or(u32::MAX),
            rounds: self.rounds as u64,
            aggregator: AGGREGATOR,
            key_generator: KEY_GENERATOR,
            trained: NewTrained::Linear { spec: &spec, model: Some(&model) },
            profile: self.learner.profile(),
            bits: self.bits,
            noise: self.noise,
        };
        let path = directory.join("task.toml");
        files::replace(&path, task.text()?.as_bytes()).map_err(|source| CliError::Output { path, source })?;
        model.write(&directory.join(START))?;
        Ok(true)
    }

    /// Says how the task file relates to this simulation.
    fn task_note(&self) -> &'static str {
        let everybody = self.participants.is_none_or(|participants| participants == self.users);
        if self.weighted || !everybody {
            "There is no task file: in a deployment, users count equally and all of them are asked."
        } else if self.learner.payload().is_sparse_by_l1() {
            "The task file keeps the first strength. This simulation adjusts it from round to round."
        } else {
            "The task file describes a deployment that does the same. Set its addresses, then run `dphe keygen`."
        }
    }

    /// Returns the task for this model, and the payload that fits it.
    fn task(
        &self,
        spec: &LearnerSpec,
        weights: &Weights,
        weighting: Weighting,
    ) -> Result<(TaskParams, Payload), CliError> {
        let encryption = EncryptionSpec::new(self.learner.profile(), self.bits, self.noise);
        let model = ModelSize::of(weights);
        let (id, config, payload) =
            spec.simulated_task(&encryption, model, self.users, weighting, self.seed)?;
        // Short keys are for reproduction, and only with the paper's scheme.
        Ok((TaskParams::new_with(id, config, dphe::hazmat::paper_keys())?, payload))
    }

    /// Trains without rounds for comparison: on the initial samples, on each user's samples, and on all samples.
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
        start: StartingPoint,
        payload: Payload,
        seed: &Seed,
    ) -> Result<(Vec<RoundReport>, Weights), CliError> {
        let trainer = LocalTrainer::new(start.learner, payload)?;
        let params = SimulationParams {
            participation: self.participants.map_or(Participation::Everyone, Participation::Some),
            server_step: start.spec.server_step,
            threads: self.threads(),
            ..SimulationParams::default()
        };
        let mut simulation =
            Simulation::new(scenario.users.clone(), start.weights, trainer, average, params, *seed)?
                .with_held_out_data(scenario.held_out.clone())?;
        if let Some(controller) = start.controller {
            // too much L1 can ruin a model, which the initial samples show; without L1 they would give false alarms
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
        Ok((reports, simulation.global().weights().clone()))
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
            profile: encrypted.then(|| task.profile().as_str().to_owned()),
            payload: Some(self.learner.payload()),
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

fn progress(rounds: usize) -> ProgressBar {
    let bar = ProgressBar::new(rounds as u64);
    if let Ok(style) = ProgressStyle::with_template("round {pos}/{len} [{bar:30}] {msg} (about {eta} left)") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;
    use dphe::{TaskConfig, TaskId};
    use dphe_federate::{Named as _, PayloadName};
    use dphe_learn::Standardizer;
    use dphe_service::model::LabelKind;
    use dphe_service::task_file::{TaskFile, template};

    use dphe::Profile;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        simulate: Simulate,
    }

    const USERS: u32 = 5;
    const CLASSES: usize = 150;
    const FEATURES: usize = 30;

    /// The task that `dphe simulate` makes for these words.
    fn simulated(flag: &str, payload: &str, profile: &str, size: &[&str]) -> Result<TaskConfig, String> {
        let args = ["simulate", "data.csv", flag, payload, "--profile", profile, "--bits", "2048"];
        let program = Program::try_parse_from(args.iter().chain(size)).map_err(|error| error.to_string())?;
        let (simulate, spec) = (&program.simulate, program.simulate.learner.spec(65.0));
        let task = simulate.task(&spec, &model(), Weighting::Equal).map_err(|error| error.to_string())?.0;
        Ok(task.config().clone())
    }

    /// The task of a task file with the same words.
    fn written(key: &str, payload: &str, profile: &str, size: &str) -> Result<TaskConfig, String> {
        let text = template(TaskId::from_bytes([1; 16]))
            .replace("payload = \"rotate\"", &format!("{key} = \"{payload}\"\n{size}"))
            .replace("profile = \"full\"", &format!("profile = \"{profile}\""))
            .replace("classes = 10", &format!("classes = {CLASSES}"))
            .replace("features = 64", &format!("features = {FEATURES}"))
            .replace("key_bits = 3072", "key_bits = 2048")
            .replace("max = 5 }", &format!("max = {USERS} }}"));
        let file = TaskFile::parse(&text, Path::new("task.toml")).map_err(|error| error.to_string())?;
        let mut config = file.config(&model()).map_err(|error| error.to_string())?;
        // only a deployment limits the number of rounds
        config.rounds = TaskConfig::MOST_ROUNDS;
        let id = TaskId::from_bytes([1; 16]);
        Ok(TaskParams::new(id, config).map_err(|error| error.to_string())?.config().clone())
    }

    fn model() -> Weights {
        let weights = (0..FEATURES * CLASSES).map(|i| i as f64 / 1e5).collect();
        Weights::new(FEATURES, weights, vec![0.5; CLASSES]).unwrap()
    }

    #[test]
    fn simulate_and_task_file_give_the_same_task_for_all_payloads_and_profiles() {
        let sizes: [(&[&str], &str); 3] =
            [(&[], ""), (&["--share", "0.25"], "share = 0.25"), (&["--capacity", "7"], "capacity = 7")];
        let mut refused = Vec::new();
        for &payload in PayloadName::ALL {
            for &profile in Profile::ALL {
                let (payload, profile) = (payload.as_str(), profile.as_str());
                for (args, line) in sizes {
                    let one = simulated("--payload", payload, profile, args);
                    assert_eq!(one, written("payload", payload, profile, line), "{payload} {profile} {line}");
                    assert_eq!(one, written("message", payload, profile, line));
                    if line.is_empty() && one.is_err() {
                        refused.push(format!("{payload} {profile}"));
                    }
                }
            }
        }
        assert_eq!(refused, ["rotate sparse", "rotate paper", "all sparse"]);
    }

    #[test]
    fn written_task_file_gives_the_task_of_the_simulation() {
        for &payload in PayloadName::ALL {
            let args =
                ["simulate", "data.csv", "--payload", payload.as_str(), "--bits", "2048", "--share", "0.2"];
            let program = Program::try_parse_from(args).unwrap();
            let simulate = &program.simulate;
            let spec = LearnerSpec { server_step: 1.5, ..simulate.learner.spec(31.0) };
            let expected = simulate.task(&spec, &model(), Weighting::Equal).unwrap().0;
            let start = Model {
                weights: model(),
                standardizer: Standardizer::from_parts(vec![0.0; FEATURES], vec![1.0; FEATURES], 5.0)
                    .unwrap(),
                about: About {
                    version: VERSION,
                    classes: (0..CLASSES).map(|class| class.to_string()).collect(),
                    labels: LabelKind::Classes,
                    clip: 5.0,
                    feature_model: None,
                    preprocessing: None,
                    training: Training::default(),
                },
            };
            let task = NewTask {
                name: None,
                users: USERS,
                rounds: 7,
                aggregator: AGGREGATOR,
                key_generator: KEY_GENERATOR,
                trained: NewTrained::Linear { spec: &spec, model: Some(&start) },
                profile: simulate.learner.profile(),
                bits: simulate.bits,
                noise: simulate.noise,
            };
            let file = TaskFile::parse(&task.text().unwrap(), Path::new("task.toml")).unwrap();
            assert_eq!((file.task.users, file.task.rounds), (USERS, 7));
            let mut config = file.config(&model()).unwrap();
            // only a deployment limits the number of rounds
            config.rounds = TaskConfig::MOST_ROUNDS;
            assert_eq!(&config, expected.config(), "{payload}");
            let learner = &file.linear().unwrap().learner;
            assert_eq!((learner.server_step, learner.squared_radius), (1.5, 31.0));
            assert_eq!(learner.loss, spec.loss);
        }
    }

    #[test]
    fn blocks_that_do_not_fit_a_plaintext_are_cut_in_both_places() {
        let config = written("payload", PayloadName::DBlock.as_str(), "sparse", "").unwrap();
        assert_eq!((config.block, config.positions(), config.capacity), (75, 60, 6));
    }

    #[test]
    fn unknown_words_are_refused_with_the_list_of_known_ones() {
        for error in [
            simulated("--payload", "d-best", "full", &[]).unwrap_err(),
            written("payload", "d-best", "full", "").unwrap_err(),
        ] {
            for &payload in PayloadName::ALL {
                assert!(error.contains(payload.as_str()), "{error}");
            }
        }
        for error in [
            simulated("--payload", "rotate", "fool", &[]).unwrap_err(),
            written("payload", "rotate", "fool", "").unwrap_err(),
        ] {
            assert!(Profile::ALL.iter().all(|profile| error.contains(profile.as_str())), "{error}");
        }
        assert!(simulated("--payload", "rotate", "full", &["--share", "0.1", "--capacity", "3"]).is_err());
        assert!(written("payload", "rotate", "full", "share = 0.1\ncapacity = 3").is_err());
        assert!(written("payload", "rotate", "full", "share = 1.5").is_err());
    }
}
