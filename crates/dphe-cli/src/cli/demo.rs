//! `dphe demo`: a complete deployment of seven processes on this machine, which trains a digit classifier.

mod output;
mod parties;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::digits;
use clap::Args;
use dphe::hazmat::paper_keys;
use dphe::{NoiseMode, Profile};
use dphe_features::{FeatureTable, TableLabels, write_npz};
use dphe_federate::{
    GlobalWeights, PayloadName, PlainAverage, RoundReport, Scenario, ScenarioParams, Simulation,
    SimulationParams, Stopwatch, Weighting,
};
use dphe_learn::linear::{Penalty, Schedule, SgdParams, Stable};
use dphe_learn::update::LocalTrainer;
use dphe_learn::{Dataset, Seed, Weights, all_cores};
use dphe_service::kit::{KitPlan, Protection, make_kits};
use dphe_service::model::{About, LabelKind, Model, Training, VERSION};
use dphe_service::task_file::TaskFile;

use self::output::{Outcome, ProfileOutcome};
use self::parties::{Parties, Published};
use super::key::generate_until;
use super::{CliError, key_bits, os_rng};
use crate::args::one_of;
use crate::files;
use crate::processes::{free_ports, stopped_by_signal};
use crate::terminal::print_text;

/// The number of epochs for the initial weights, and for a user that trains alone.
const INITIAL_EPOCHS: usize = 20;
const EPOCHS: usize = 5;
const STRENGTH: f64 = 1e-3;
/// The random seed of everything except keys.
const SEED: u64 = 0;

/// Train a digit classifier in a complete deployment on this machine
///
/// Starts a key generator, an aggregator and five users as separate processes that communicate over TLS on the loopback
/// interface. Each user has a fifth of the samples and sends only encrypted updates of the model.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// The profile [default: both sparse and full]
    #[arg(long, value_parser = one_of::<Profile>())]
    profile: Option<Profile>,
    /// The number of rounds
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// The key length in bits
    #[arg(long, default_value_t = 3072)]
    bits: u32,
    /// Keep the dashboard running at the end, until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// The directory for everything the demo writes; it must not exist [default: dphe-demo]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// The data and the learner, which are the same for every profile.
struct Setting {
    scenario: Scenario,
    raw: Dataset,
    initial: Weights,
    squared_radius: f64,
}

impl Demo {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let begin = Instant::now();
        let stopped = stopped_by_signal()?;
        // created first, so that an error does not come after a long run
        key_bits(self.bits, false)?;
        let directory = self.directory()?;
        let setting = Setting::new()?;
        print_text(&format!(
            "{} users each hold about {} images of handwritten digits that they do not share. Together they train a \
             classifier with {} weights in {} rounds. Updates are encrypted with a {}-bit key. Only the sum of each \
             round is decrypted.\n",
            setting.scenario.users.len(),
            setting.scenario.users[0].len(),
            setting.initial.dimension(),
            self.rounds,
            self.bits
        ));
        let profiles = match self.profile {
            Some(profile) => vec![profile],
            None => vec![Profile::Sparse, Profile::Full],
        };
        let last = profiles.last().copied().unwrap_or(Profile::Full);
        let (mut outcomes, mut page_port) = (Vec::new(), 0);
        for profile in profiles {
            let (outcome, port) =
                self.train(profile, &setting, &directory.join(profile.as_str()), &stopped)?;
            outcomes.push(outcome);
            page_port = port;
        }
        let outcome = Outcome::new(&setting, self.bits, outcomes, begin.elapsed())?;
        outcome.print();
        let page = directory.join("report.html");
        files::replace(&page, outcome.page().as_bytes())
            .map_err(|source| CliError::Output { path: page.clone(), source })?;
        outcome.print_end(&directory, &page);
        if self.keep {
            Parties::keep(&directory.join(last.as_str()), last, page_port, stopped)?;
        }
        Ok(())
    }

    /// Creates the output directory. Only its owner can access it, because it contains secret keys.
    fn directory(&self) -> Result<PathBuf, CliError> {
        let candidates = match &self.output {
            Some(directory) => vec![directory.clone()],
            None => (1..100)
                .map(|n| PathBuf::from(if n == 1 { "dphe-demo".into() } else { format!("dphe-demo-{n}") }))
                .collect(),
        };
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let mut last = (PathBuf::new(), std::io::Error::from(std::io::ErrorKind::AlreadyExists));
        for directory in candidates {
            match builder.create(&directory) {
                Ok(()) => return Ok(directory),
                Err(source) if source.kind() == std::io::ErrorKind::AlreadyExists => {
                    last = (directory, source)
                }
                Err(source) => return Err(CliError::Output { path: directory, source }),
            }
        }
        Err(CliError::Output { path: last.0, source: last.1 })
    }

    /// Runs one task from its task file to its last round. Also returns the port of the dashboard.
    fn train(
        &self,
        profile: Profile,
        setting: &Setting,
        directory: &Path,
        stopped: &Arc<AtomicBool>,
    ) -> Result<(ProfileOutcome, u16), CliError> {
        let begin = Instant::now();
        std::fs::create_dir(directory)
            .map_err(|source| CliError::Output { path: directory.into(), source })?;
        let task_file = directory.join("task.toml");
        setting.write(directory)?;
        let bits = key_bits(self.bits, false)?;
        let key = generate_until(stopped, bits, NoiseMode::Secure, dphe::Threads::all())?;
        let made = begin.elapsed();
        // chosen last, so that no other process takes them meanwhile
        let ports = free_ports(3)?;
        let text = self.task_text(profile, setting, &ports)?;
        files::replace(&task_file, text.as_bytes())
            .map_err(|source| CliError::Output { path: task_file.clone(), source })?;
        let plan = KitPlan::for_all_parties(&task_file, Vec::new(), paper_keys())?;
        let task = plan.task().clone();
        make_kits(&plan, key, &directory.join("kits"), &Protection::FileMode, &mut os_rng()?)?;

        let users = setting.scenario.users.len();
        let parties = Parties::new(directory, profile, ports[2], stopped).start(users, SEED, self.rounds)?;
        let running = Instant::now();
        let Published { models, records } = parties.finish()?;
        let seconds = running.elapsed();
        let threads = all_cores();
        let accuracies = models
            .iter()
            .map(|model| Ok(GlobalWeights::from_bytes(model)?.accuracy(&setting.scenario.held_out, threads)?))
            .collect::<Result<Vec<f64>, CliError>>()?;
        let trainer = TaskFile::read(&task_file).map_err(dphe_service::Error::from)?.trainer(&task)?;
        let average = PlainAverage::new(task.clone(), Weighting::Equal, setting.scenario.users.len())?;
        let (plain, _) = self.control(average.clone(), trainer.clone(), setting)?;
        // a simulation with the same rounding must arrive at the same weights
        let (_, expected) = self.control(average.rounded(), trainer, setting)?;
        match models.last().map(|model| GlobalWeights::from_bytes(model)).transpose()? {
            Some(found) if found == expected => {}
            _ => {
                return Err(CliError::Data {
                    what: "the services and a simulation arrived at different weights".into(),
                    hint: format!("See the logs in {}. A user may have missed a round.", directory.display()),
                });
            }
        }
        let outcome = ProfileOutcome::new(profile, &task, accuracies, &plain, records, made, seconds);
        Ok((outcome, ports[2]))
    }

    /// Runs the same rounds in this process without encryption.
    fn control(
        &self,
        average: PlainAverage,
        trainer: LocalTrainer,
        setting: &Setting,
    ) -> Result<(Vec<RoundReport>, GlobalWeights), CliError> {
        let params = SimulationParams { threads: all_cores(), ..SimulationParams::default() };
        let (users, initial) = (setting.scenario.users.clone(), setting.initial.clone());
        let mut simulation = Simulation::new(users, initial, trainer, average, params, Seed::new(SEED))?
            .with_held_out_data(setting.scenario.held_out.clone())?;
        // the number of rounds is small
        let reports = simulation.run(self.rounds as usize, &mut Stopwatch::none())?;
        Ok((reports, simulation.global().clone()))
    }

    fn task_text(&self, profile: Profile, setting: &Setting, ports: &[u16]) -> Result<String, CliError> {
        use rand_core::Rng as _;
        let mut id = [0; 16];
        os_rng()?.fill_bytes(&mut id);
        let id = dphe::TaskId::from_bytes(id);
        let (classes, features) = (setting.initial.classes(), setting.initial.features());
        // a quarter of the features per round, because there are few
        let (payload, capacity) = match profile {
            Profile::Full => (PayloadName::Rotate, features.div_ceil(4)),
            Profile::Sparse => (PayloadName::DBlock, features.div_ceil(4)),
            Profile::Paper => (PayloadName::DTopk, (features * classes).div_ceil(4)),
        };
        let (aggregator, key_generator) = (ports[0], ports[1]);
        let (users, rounds, bits) = (setting.scenario.users.len(), self.rounds, self.bits);
        let squared_radius = setting.squared_radius;
        Ok(format!(
            "# the task of a demonstration, all on one machine\n\n\
             [task]\nid = \"{id}\"\nname = \"demo\"\nusers = {users}\nrounds = {rounds}\n\n\
             [parties]\naggregator = \"localhost:{aggregator}\"\nkey_generator = \"localhost:{key_generator}\"\n\n\
             [model]\nclasses = {classes}\nfeatures = {features}\ninitial = \"initial.safetensors\"\n\n\
             [learner]\npayload = \"{payload}\"\ncapacity = {capacity}\nloss = \"hinge\"\nstrength = {STRENGTH:?}\n\
             epochs = {EPOCHS}\nsquared_radius = {squared_radius:?}\n\n\
             [encryption]\nprofile = \"{profile}\"\nkey_bits = {bits}\nnoise = \"secure\"\n\n\
             [collect]\ncount = {{ min = {users}, max = {users} }}\ntime = {{ min = \"1s\", max = \"60s\" }}\n"
        ))
    }
}

impl Setting {
    fn new() -> Result<Self, CliError> {
        let raw = digits::digits()?;
        let seed = Seed::new(SEED);
        let scenario = Scenario::new(&raw, &ScenarioParams::default(), &seed)?;
        let stable = Stable::for_features(scenario.initial.features());
        let initial = learner(stable, INITIAL_EPOCHS)?.fit(&scenario.initial, &seed)?;
        Ok(Self { scenario, raw, initial, squared_radius: stable.squared_radius })
    }

    /// Writes one feature file per user, the held-out samples, and the initial model.
    fn write(&self, directory: &Path) -> Result<(), CliError> {
        let scenario = &self.scenario;
        let users = scenario.shares.iter().enumerate();
        let users = users.map(|(user, share)| (format!("user-{}.npz", user + 1), share));
        for (name, share) in users.chain([("held-out.npz".to_owned(), &scenario.held_out_samples)]) {
            let (features, labels) = self.raw.select(share)?.into_parts();
            let labels = labels.as_classes("a file")?.iter().map(|&label| label as usize).collect();
            let table = FeatureTable::new(features.width(), features.into_values())?
                .with_labels(TableLabels::Classes(labels), digits::names())?;
            write_npz(&directory.join(name), &table)?;
        }
        let standardizer = self.scenario.standardizer.clone();
        let about = About {
            version: VERSION,
            classes: digits::names(),
            labels: LabelKind::Classes,
            clip: standardizer.clip(),
            feature_model: None,
            preprocessing: None,
            training: Training::default(),
        };
        let model = Model { weights: self.initial.clone(), standardizer, about };
        Ok(model.write(&directory.join("initial.safetensors"))?)
    }

    /// Returns the best accuracy that a user reaches alone.
    fn best_alone(&self) -> Result<f64, CliError> {
        let learner = learner(Stable::new(self.squared_radius), INITIAL_EPOCHS)?;
        let mut best = 0.0f64;
        for data in &self.scenario.users {
            let alone = learner.fit_from(&self.initial, data, &Seed::new(SEED))?;
            best = best.max(alone.accuracy(&self.scenario.held_out, all_cores())?);
        }
        Ok(best)
    }

    fn initial_accuracy(&self) -> Result<f64, CliError> {
        Ok(self.initial.accuracy(&self.scenario.held_out, all_cores())?)
    }
}

fn learner(stable: Stable, epochs: usize) -> Result<dphe_learn::linear::Sgd, CliError> {
    let params =
        SgdParams { penalty: Penalty::l2(STRENGTH)?, epochs, ..SgdParams::new(Schedule::Stable(stable)) };
    Ok(params.check()?)
}

/// How long a round may take before the demo is aborted.
const ROUND_TIMEOUT: Duration = Duration::from_secs(300);
