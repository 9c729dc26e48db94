//! `dphe demo`: a complete deployment of seven processes on this machine. Users with pictures of different clothes
//! train one classifier, and an attack shows what their updates would give away without encryption.

mod attack;
mod drawing;
mod output;
mod parties;
mod users;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use dphe::hazmat::paper_keys;
use dphe::{NoiseMode, Profile, Round};
use dphe_federate::{
    GlobalWeights, PayloadName, PlainAverage, RoundReport, Simulation, SimulationParams, Stopwatch, Weighting,
};
use dphe_learn::update::LocalTrainer;
use dphe_learn::{Seed, all_cores};
use dphe_service::kit::{KitPlan, Protection, make_kits};
use dphe_service::task_file::TaskFile;

use self::output::{Outcome, Run};
use self::parties::{Parties, Published};
use self::users::{EPOCHS, SQUARED_RADIUS, STEP, STRENGTH, Setting, USERS};
use super::key::generate_until;
use super::{CliError, key_bits, os_rng};
use crate::args::one_of;
use crate::files;
use crate::processes::{free_ports, stopped_by_signal};
use crate::terminal::spinner;

/// The random seed of everything except keys.
const SEED: u64 = 0;

/// Train a classifier of clothes with seven processes, and attack it
///
/// Starts a key generator, an aggregator and five users as separate processes that communicate over TLS on the
/// loopback interface. Each user has pictures of different kinds of clothes and sends only encrypted updates of the
/// model. At the end, the demo shows which pictures the updates would have given away without encryption.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// The profile
    #[arg(long, default_value = Profile::Full.as_str(), value_parser = one_of::<Profile>())]
    profile: Profile,
    /// The number of rounds
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=1000))]
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

impl Demo {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let begin = Instant::now();
        let stopped = stopped_by_signal()?;
        // created first, so that an error does not come after a long run
        key_bits(self.bits, false)?;
        let directory = self.directory()?;
        let bar = spinner("every user trains alone, for comparison");
        let setting = Setting::new()?;
        bar.finish_and_clear();
        output::print_beginning(&setting, self.bits);
        let run = self.train(&setting, &directory.join(self.profile.as_str()), &stopped)?;
        let port = run.page_port;
        let outcome = Outcome { setting: &setting, bits: self.bits, run, total: begin.elapsed() };
        outcome.write(&directory)?;
        outcome.print(&directory);
        if self.keep {
            Parties::keep(&directory.join(self.profile.as_str()), self.profile, port, stopped)?;
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

    /// Runs the task from its task file to its last round.
    fn train(&self, setting: &Setting, directory: &Path, stopped: &Arc<AtomicBool>) -> Result<Run, CliError> {
        let begin = Instant::now();
        std::fs::create_dir(directory)
            .map_err(|source| CliError::Output { path: directory.into(), source })?;
        let task_file = directory.join("task.toml");
        setting.write(directory)?;
        let bits = key_bits(self.bits, false)?;
        let key = generate_until(stopped, bits, NoiseMode::Secure, dphe::Threads::all())?;
        let key_time = begin.elapsed();
        // chosen last, so that no other process takes them meanwhile
        let ports = free_ports(3)?;
        let text = self.task_text(setting, &ports)?;
        files::replace(&task_file, text.as_bytes())
            .map_err(|source| CliError::Output { path: task_file.clone(), source })?;
        let plan = KitPlan::for_all_parties(&task_file, Vec::new(), paper_keys())?;
        let task = plan.task().clone();
        make_kits(&plan, key, &directory.join("kits"), &Protection::FileMode, &mut os_rng()?)?;

        let parties = Parties::new(directory, ports[2], stopped);
        let running = Instant::now();
        let Published { models, records, uploads } = parties.start(USERS, SEED, self.rounds)?.finish()?;
        let rounds_time = running.elapsed();
        let models =
            models.iter().map(|model| GlobalWeights::from_bytes(model)).collect::<Result<Vec<_>, _>>()?;
        let accuracies = models
            .iter()
            .map(|model| Ok(model.accuracy(&setting.held_out, all_cores())?))
            .collect::<Result<Vec<f64>, CliError>>()?;
        let trainer = TaskFile::read(&task_file).map_err(dphe_service::Error::from)?;
        let trainer = trainer.linear().map_err(dphe_service::Error::from)?.trainer(&task)?;
        let average = PlainAverage::new(task.clone(), Weighting::Equal, USERS)?;
        let bar = spinner("the same rounds without encryption, to compare every bit");
        // a simulation with the same rounding must arrive at the same weights
        let rounded = average.clone().rounded();
        let (plain, expected) = std::thread::scope(|scope| {
            let expected = scope.spawn(|| self.control(rounded, trainer.clone(), setting));
            let plain = self.control(average, trainer.clone(), setting);
            // a panic of the other thread goes on in this one
            (plain, expected.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let ((plain, _), (_, expected)) = (plain?, expected?);
        bar.finish_and_clear();
        if models.last() != Some(&expected) {
            return Err(CliError::Data {
                what: "the services and a simulation arrived at different weights".into(),
                hint: format!("See the logs in {}. A user may have missed a round.", directory.display()),
            });
        }
        let start = match uploads.round {
            Some(round) if round != Round::FIRST => models.get(round.get() as usize - 2).cloned(),
            _ => None,
        };
        let start = start.unwrap_or_else(|| setting.initial.clone().into());
        // elsewhere, an update of a later round also carries what earlier ones have left out
        let is_exact = self.profile == Profile::Full || uploads.round == Some(Round::FIRST);
        let leaks = match is_exact {
            true => attack::leaks(setting, &task, trainer, &start, &uploads)?,
            false => Vec::new(),
        };
        Ok(Run {
            profile: self.profile,
            ciphertexts: dphe::scheme::max_ciphertexts(&task),
            bytes: dphe::wire::max_upload_bytes(&task),
            weights: task.dimension(),
            accuracies,
            plain: plain.iter().filter_map(|report| report.accuracy).collect(),
            singles: numbers(&records, "singles").last().copied(),
            round_seconds: numbers(&records, "seconds"),
            attacked_round: uploads.round.map(Round::get),
            leaks,
            key_time,
            rounds_time,
            page_port: ports[2],
        })
    }

    /// Runs the same rounds in this process without encryption.
    fn control(
        &self,
        average: PlainAverage,
        trainer: LocalTrainer,
        setting: &Setting,
    ) -> Result<(Vec<RoundReport>, GlobalWeights), CliError> {
        let params = SimulationParams { threads: all_cores(), ..SimulationParams::default() };
        let (users, initial) = (setting.data(), setting.initial.clone());
        let mut simulation = Simulation::new(users, initial, trainer, average, params, Seed::new(SEED))?
            .with_held_out_data(setting.held_out.clone())?;
        // the number of rounds is small
        let reports = simulation.run(self.rounds as usize, &mut Stopwatch::none())?;
        Ok((reports, simulation.global().clone()))
    }

    fn task_text(&self, setting: &Setting, ports: &[u16]) -> Result<String, CliError> {
        use rand_core::Rng as _;
        let mut id = [0; 16];
        os_rng()?.fill_bytes(&mut id);
        let id = dphe::TaskId::from_bytes(id);
        let (classes, features) = (setting.initial.classes(), setting.initial.features());
        // In `full`, everything is sent: pictures have few features, and updates are small anyway.
        let (payload, size) = match self.profile {
            Profile::Full => (PayloadName::All, String::new()),
            Profile::Sparse => (PayloadName::DBlock, format!("capacity = {}\n", features.div_ceil(4))),
            Profile::Paper => {
                (PayloadName::DTopk, format!("capacity = {}\n", (features * classes).div_ceil(4)))
            }
        };
        let (aggregator, key_generator) = (ports[0], ports[1]);
        let (profile, rounds, bits) = (self.profile, self.rounds, self.bits);
        Ok(format!(
            "# the task of a demonstration, all on one machine\n\n\
             [task]\nid = \"{id}\"\nname = \"demo\"\nusers = {USERS}\nrounds = {rounds}\n\n\
             [parties]\naggregator = \"localhost:{aggregator}\"\nkey_generator = \"localhost:{key_generator}\"\n\n\
             [model]\nclasses = {classes}\nfeatures = {features}\ninitial = \"initial.safetensors\"\n\n\
             [learner]\npayload = \"{payload}\"\n{size}loss = \"hinge\"\nstrength = {STRENGTH:?}\n\
             epochs = {EPOCHS}\nsquared_radius = {SQUARED_RADIUS:?}\nstep = {STEP:?}\n\n\
             [encryption]\nprofile = \"{profile}\"\nkey_bits = {bits}\nnoise = \"secure\"\n\n\
             [collect]\ncount = {{ min = {USERS}, max = {USERS} }}\ntime = {{ min = \"1s\", max = \"60s\" }}\n"
        ))
    }
}

/// Returns a number from each round record that has it.
fn numbers(records: &[serde_json::Value], name: &str) -> Vec<f64> {
    records.iter().filter_map(|record| record[name].as_f64()).collect()
}

/// How long a round may take before the demo is aborted.
const ROUND_TIMEOUT: Duration = Duration::from_secs(300);
