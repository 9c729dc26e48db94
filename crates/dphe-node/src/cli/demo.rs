//! `dphe demo`: seven processes on this machine learn to read digits together, encrypted, and say how it went.

mod output;
mod parties;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use dphe::{NoiseMode, Profile};
use dphe_features::{FeatureTable, TableLabels, write_npz};
use dphe_federate::{
    PlainAverage, RoundReport, Scenario, ScenarioParams, Simulation, SimulationParams, Stopwatch, Weighting,
};
use dphe_learn::linear::{Penalty, Schedule, SgdParams, Stable};
use dphe_learn::{Dataset, Seed, Threads, Weights};
use dphe_node::digits;
use dphe_node::kit::{KitPlan, Protection, make_kits};
use dphe_node::learning::model_from_bytes;
use dphe_node::model::{About, LabelKind, Model, Training, VERSION};
use dphe_node::task_file::TaskFile;

use self::output::{Outcome, ProfileOutcome};
use self::parties::{Parties, Published};
use super::key::generate;
use super::learner::ProfileName;
use super::processes::free_ports;
use super::{CliError, key_bits, os_rng};
use crate::files;

/// Epochs that the first weights are learnt for, on the few initial samples, and everything of one user alone.
const INITIAL_EPOCHS: usize = 20;
const EPOCHS: usize = 5;
const STRENGTH: f64 = 1e-3;
/// The demo is a function of its seed, but for keys.
const SEED: u64 = 0;

/// Learn to read digits together: everything a deployment has, on this machine
///
/// Starts a key generator, an aggregator and five users as processes of their own that talk over TLS on the loopback
/// interface. Each user has a fifth of the samples and sends encrypted updates of the model, nothing else of them.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// One profile only; without it, `sparse` and `full`, side by side
    #[arg(long, value_enum)]
    profile: Option<ProfileName>,
    /// How many rounds
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Bits of the encryption key
    #[arg(long, default_value_t = 3072)]
    bits: u32,
    /// Leave the page up at the end, until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Folder for everything the demo writes; must be new
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

/// Who learns what from which data: the same for every way of summing.
struct Setting {
    scenario: Scenario,
    raw: Dataset,
    initial: Weights,
    squared_radius: f64,
}

impl Demo {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let begin = Instant::now();
        // before anything takes long
        key_bits(self.bits, false)?;
        let folder = self.folder()?;
        let setting = Setting::new()?;
        println!(
            "{} people each hold about {} images of handwritten digits that they will not share.",
            setting.scenario.users.len(),
            setting.scenario.users[0].len()
        );
        println!(
            "Together they train one classifier: {} weights, {} rounds, every sum encrypted with {} bits.\n",
            setting.initial.dimension(),
            self.rounds,
            self.bits
        );
        let profiles = match self.profile {
            Some(profile) => vec![profile.into()],
            None => vec![Profile::Sparse, Profile::Full],
        };
        let last = profiles.last().copied().unwrap_or(Profile::Full);
        let mut outcomes = Vec::new();
        for profile in profiles {
            outcomes.push(self.train(profile, &setting, &folder.join(profile.name()))?);
        }
        let outcome = Outcome::new(&setting, self.bits, outcomes, begin.elapsed())?;
        outcome.print();
        let page = folder.join("report.html");
        files::replace(&page, outcome.page().as_bytes())
            .map_err(|source| CliError::Output { path: page.clone(), source })?;
        outcome.print_end(&folder, &page);
        if self.keep {
            Parties::keep(&folder.join(last.name()), last)?;
        }
        Ok(())
    }

    /// A new folder, for its owner alone: there are secret keys in it.
    fn folder(&self) -> Result<PathBuf, CliError> {
        let candidates = match &self.output {
            Some(folder) => vec![folder.clone()],
            None => (1..100)
                .map(|n| PathBuf::from(if n == 1 { "dphe-demo".into() } else { format!("dphe-demo-{n}") }))
                .collect(),
        };
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let mut last = (PathBuf::new(), std::io::Error::from(std::io::ErrorKind::AlreadyExists));
        for folder in candidates {
            match builder.create(&folder) {
                Ok(()) => return Ok(folder),
                Err(source) if source.kind() == std::io::ErrorKind::AlreadyExists => last = (folder, source),
                Err(source) => return Err(CliError::Output { path: folder, source }),
            }
        }
        Err(CliError::Output { path: last.0, source: last.1 })
    }

    /// One task from its file to its last round.
    fn train(&self, profile: Profile, setting: &Setting, folder: &Path) -> Result<ProfileOutcome, CliError> {
        let begin = Instant::now();
        std::fs::create_dir(folder).map_err(|source| CliError::Output { path: folder.into(), source })?;
        let task_file = folder.join("task.toml");
        setting.write(folder)?;
        let key = generate(key_bits(self.bits, false)?, NoiseMode::Secure, dphe::Threads::all())?;
        let made = begin.elapsed();
        // looked for last, so that nobody else takes them
        let ports = free_ports(3)?;
        let text = self.task_text(profile, setting, &ports)?;
        files::replace(&task_file, text.as_bytes())
            .map_err(|source| CliError::Output { path: task_file.clone(), source })?;
        let plan = KitPlan::new(&task_file, Vec::new())?;
        let task = plan.task().clone();
        make_kits(&plan, key, &folder.join("kits"), &Protection::FileMode, &mut os_rng()?)?;

        let users = setting.scenario.users.len();
        let parties = Parties::start(folder, users, SEED, self.rounds, profile, ports[2])?;
        let running = Instant::now();
        let Published { models, records } = parties.finish()?;
        let seconds = running.elapsed();
        let threads = Threads::all();
        let accuracies = models
            .iter()
            .map(|model| Ok(model_from_bytes(model)?.accuracy(&setting.scenario.held_out, threads)?))
            .collect::<Result<Vec<f64>, CliError>>()?;
        let file = TaskFile::read(&task_file).map_err(dphe_node::Error::from)?;
        let average = PlainAverage::new(task.clone(), Weighting::Equal, setting.scenario.users.len())?;
        let (plain, _) = self.control(average.clone(), &file, setting)?;
        // with its numbers rounded as encryption rounds them, one process must come to the same weights
        let (_, expected) = self.control(average.rounded(), &file, setting)?;
        match models.last().map(|model| model_from_bytes(model)).transpose()? {
            Some(found) if found == expected => {}
            _ => {
                return Err(CliError::Data {
                    what: "the services came to other weights than a simulation in one process".into(),
                    hint: format!("the logs in {} tell if a user missed a round", folder.display()),
                });
            }
        }
        Ok(ProfileOutcome::new(profile, &task, accuracies, &plain, records, made, seconds))
    }

    /// The same rounds in this process, without encryption.
    fn control(
        &self,
        average: PlainAverage,
        file: &TaskFile,
        setting: &Setting,
    ) -> Result<(Vec<RoundReport>, Weights), CliError> {
        let params = SimulationParams { threads: Threads::all(), ..SimulationParams::default() };
        let (users, initial) = (setting.scenario.users.clone(), setting.initial.clone());
        let mut simulation =
            Simulation::new(users, initial, file.trainer()?, average, params, Seed::new(SEED))?
                .with_held_out_data(setting.scenario.held_out.clone())?;
        // the number of rounds is small
        let reports = simulation.run(self.rounds as usize, &mut Stopwatch::none())?;
        Ok((reports, simulation.global().clone()))
    }

    fn task_text(&self, profile: Profile, setting: &Setting, ports: &[u16]) -> Result<String, CliError> {
        use rand_core::Rng as _;
        let mut id = [0; 16];
        os_rng()?.fill_bytes(&mut id);
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (classes, features) = (setting.initial.classes(), setting.initial.features());
        // a quarter of the features a round: these are few
        let (message, capacity) = match profile {
            Profile::Full => ("rotate", features.div_ceil(4)),
            Profile::Sparse => ("d-block", features.div_ceil(4)),
            Profile::Paper => ("d-topk", (features * classes).div_ceil(4)),
        };
        let (aggregator, key_generator) = (ports[0], ports[1]);
        let (users, rounds, bits) = (setting.scenario.users.len(), self.rounds, self.bits);
        let squared_radius = setting.squared_radius;
        Ok(format!(
            "# the task of a demonstration, all on one machine\n\n\
             [task]\nid = \"{id}\"\nname = \"demo\"\nusers = {users}\nrounds = {rounds}\nvalid_days = 1\n\n\
             [parties]\naggregator = \"localhost:{aggregator}\"\nkey_generator = \"localhost:{key_generator}\"\n\n\
             [model]\nclasses = {classes}\nfeatures = {features}\ninitial = \"initial.safetensors\"\n\n\
             [learner]\nmessage = \"{message}\"\ncapacity = {capacity}\nloss = \"hinge\"\nstrength = {STRENGTH:?}\n\
             epochs = {EPOCHS}\nsquared_radius = {squared_radius:?}\n\n\
             [policy]\nprofile = \"{profile}\"\nkey_bits = {bits}\nnoise = \"secure\"\n\n\
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

    /// What users and everybody have: one file of features a user, and the model that all start from.
    fn write(&self, folder: &Path) -> Result<(), CliError> {
        let scenario = &self.scenario;
        let users = scenario.shares.iter().enumerate();
        let users = users.map(|(user, share)| (format!("user-{}.npz", user + 1), share));
        for (name, share) in users.chain([("held-out.npz".to_owned(), &scenario.held_out_samples)]) {
            let part = self.raw.select(share)?;
            let labels = part.labels().as_classes("a file")?.iter().map(|&label| label as usize).collect();
            let table = FeatureTable::new(part.features().width(), part.features().values().to_vec())?
                .with_labels(TableLabels::Classes(labels), digits::names())?;
            write_npz(&folder.join(name), &table)?;
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
        Ok(model.write(&folder.join("initial.safetensors"))?)
    }

    /// The best that a user reaches without the others.
    fn best_alone(&self) -> Result<f64, CliError> {
        let learner = learner(Stable::new(self.squared_radius), INITIAL_EPOCHS)?;
        let mut best = 0.0f64;
        for data in &self.scenario.users {
            let alone = learner.fit_from(&self.initial, data, &Seed::new(SEED))?;
            best = best.max(alone.accuracy(&self.scenario.held_out, Threads::all())?);
        }
        Ok(best)
    }

    fn initial_accuracy(&self) -> Result<f64, CliError> {
        Ok(self.initial.accuracy(&self.scenario.held_out, Threads::all())?)
    }
}

fn learner(stable: Stable, epochs: usize) -> Result<dphe_learn::linear::Sgd, CliError> {
    let params =
        SgdParams { penalty: Penalty::l2(STRENGTH)?, epochs, ..SgdParams::new(Schedule::Stable(stable)) };
    Ok(params.check()?)
}

/// How long a round may take before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(300);
