//! `dphe join`: takes part in a task as a user.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use dphe_federate::GlobalWeights;
use dphe_learn::{Seed, Standardizer, Weights};
use dphe_service::Error;
use dphe_service::command_trainer::{CommandTrainer, TrainerCommand};
use dphe_service::kit::Kit;
use dphe_service::learning::{LinearTrainer, Trainer, model_maker};
use dphe_service::model::{About, LabelKind, Model, Training, VERSION};
use dphe_service::service::user::{self, UserSummary};
use dphe_service::store::SqliteStore;
use dphe_service::task_file::{LinearSections, Milliseconds, Trained};
use rand_core::Rng as _;

use super::samples::task_samples;
use super::serve::{ServiceArgs, on_signal_noting};
use super::{CliError, os_rng};
use crate::files;

/// Take part in a task as a user
#[derive(Args)]
pub(crate) struct Join {
    #[command(flatten)]
    common: ServiceArgs,
    /// The data directory, which only one process can use at a time
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The user's samples with labels: a .npz, .npy, .csv, .svmlight or .parquet file
    #[arg(long, value_name = "FILE", required_unless_present = "trainer")]
    features: Option<PathBuf>,
    /// The program that trains the tensors of the task, with its arguments. It runs once per round and without a shell;
    /// docs/trainers.md describes its files
    #[arg(long, value_name = "COMMAND", conflicts_with = "features")]
    trainer: Option<String>,
    /// How long the trainer may run per round
    #[arg(long, value_name = "TIME", default_value = "1h", requires = "trainer")]
    trainer_time: Milliseconds,
    /// Stop after this many rounds in a row in which the trainer failed
    #[arg(long, value_name = "COUNT", default_value = "3", requires = "trainer")]
    trainer_failures: NonZeroU32,
    /// The random seed; training is the same as in a simulation with the same task, data, initial model and seed
    #[arg(long)]
    seed: Option<u64>,
    /// The file for the last model
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Join {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let (kit, runtime) = self.common.start()?;
        ServiceArgs::check_paper(&kit, None)?;
        if let Some(path) = &self.output {
            check_output(path)?;
        }
        let id = kit.user()?;
        let (file, task) = (kit.task_file(), kit.roster().task());
        let seed = match self.seed {
            Some(seed) => Seed::new(seed).derive("user", u64::from(id.get()) - 1),
            None => {
                let mut bytes = [0; 32];
                os_rng()?.fill_bytes(&mut bytes);
                Seed::from_bytes(bytes)
            }
        };
        let trainer = self.new_trainer(&kit, seed)?;
        let maker = model_maker(file, task.clone())?;
        let interrupted = Arc::new(AtomicBool::new(false));
        let summary = runtime.block_on(async {
            let stop = on_signal_noting(interrupted.clone())?;
            let store = SqliteStore::open(&self.data).await.map_err(Error::from)?;
            // the directory is locked now
            files::remove_incomplete(&self.data)
                .map_err(|source| CliError::Output { path: self.data.clone(), source })?;
            let trainer: Box<dyn Trainer> = match trainer {
                NewTrainer::Linear(trainer) => {
                    Box::new(trainer.with_residual_file(self.data.join("residual.bin")))
                }
                NewTrainer::Command(command) => {
                    Box::new(CommandTrainer::new(file, task.clone(), id, command, &self.data, seed)?)
                }
            };
            let mut options = self.common.options().await?;
            options.max_failed_trainings = self.trainer.as_ref().map(|_| self.trainer_failures);
            Ok::<_, CliError>(user::run(&kit, store, trainer, maker, options, stop).await?)
        })?;
        let UserSummary { rounds, included, published, .. } = summary;
        println!("rounds       {published} published; took part in {included} of {rounds} since the start");
        println!("history      round {}, history {:.16}", summary.round, summary.history);
        match (&self.output, &summary.model) {
            (Some(path), Some(bytes)) if published > 0 => {
                match &file.trained {
                    Trained::Linear(linear) => {
                        let weights = GlobalWeights::from_bytes(bytes)?.into_weights();
                        model(&kit, linear, weights, published)?.write(path)?;
                    }
                    // the model is a safetensors file
                    Trained::Tensors(_) => files::replace(path, bytes)
                        .map_err(|source| CliError::Output { path: path.clone(), source })?,
                }
                println!("model        {}", path.display());
            }
            (None, Some(_)) if published > 0 => {
                println!("model        not saved: run the same command again with `-o FILE`");
            }
            _ => println!("model        none yet: no round was published"),
        }
        match (summary.over, interrupted.load(Ordering::Relaxed)) {
            (true, _) if published == 0 => Err(CliError::Data {
                what: "the task is over, and none of its rounds was published".into(),
                hint:
                    "Ask the operator of the aggregator why: its log output names the reason of every round."
                        .into(),
            }),
            (false, true) => Err(CliError::Interrupted {
                hint: "The task is not over. Run the same command again to go on.".into(),
            }),
            // SIGTERM is how a service manager stops a service
            (true, _) | (false, false) => Ok(()),
        }
    }

    /// Reads the samples or finds the program, as the task needs it.
    fn new_trainer(&self, kit: &Kit, seed: Seed) -> Result<NewTrainer, CliError> {
        let file = kit.task_file();
        if let Some(command) = &self.trainer {
            file.tensors().map_err(Error::from)?;
            let command = TrainerCommand::parse(command, self.trainer_time).map_err(Error::from)?;
            return Ok(NewTrainer::Command(command));
        }
        file.linear().map_err(Error::from)?;
        // the command line has one of the two
        let data = task_samples(kit, self.features.as_deref().unwrap_or(Path::new("")))?;
        let trainer = LinearTrainer::new(file, kit.roster().task().clone(), data, seed)?;
        Ok(NewTrainer::Linear(Box::new(trainer.with_threads(self.common.threads())?)))
    }
}

/// A trainer without its place in the data directory, which is opened later.
enum NewTrainer {
    Linear(Box<LinearTrainer>),
    Command(TrainerCommand),
}

/// Returns the last linear model with its metadata.
fn model(kit: &Kit, linear: &LinearSections, weights: Weights, rounds: u64) -> Result<Model, CliError> {
    let task = kit.roster().task();
    let training = Training {
        task: Some(task.id().to_string()),
        profile: Some(task.profile().as_str().to_owned()),
        payload: Some(linear.learner.payload),
        key_bits: Some(task.key_bits().get()),
        rounds,
        users: kit.task_file().task.users as usize,
    };
    if let Some(start) = kit.start()? {
        return Ok(Model { weights, about: About { training, ..start.about }, ..start });
    }
    let width = weights.features();
    let standardizer = Standardizer::from_parts(vec![0.0; width], vec![1.0; width], f64::from(f32::MAX))?;
    let about = About {
        version: VERSION,
        classes: (0..weights.classes()).map(|class| class.to_string()).collect(),
        labels: LabelKind::Classes,
        clip: standardizer.clip(),
        feature_model: None,
        preprocessing: None,
        training,
    };
    Ok(Model { weights, standardizer, about })
}

/// Fails if a file cannot be written at this path, so that the error does not come after the last round.
fn check_output(path: &Path) -> Result<(), CliError> {
    let output = |source| CliError::Output { path: path.into(), source };
    if path.is_dir() {
        return Err(output(std::io::ErrorKind::IsADirectory.into()));
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::tempfile_in(directory).map(drop).map_err(output)
}
