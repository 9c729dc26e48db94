//! `dphe join`: takes part in a task as a user.

use std::path::PathBuf;

use clap::Args;
use dphe_federate::GlobalWeights;
use dphe_learn::{Seed, Standardizer, Weights};
use dphe_service::Error;
use dphe_service::kit::Kit;
use dphe_service::learning::{LinearModelMaker, LinearTrainer};
use dphe_service::model::{About, LabelKind, Model, Training, VERSION};
use dphe_service::service::user;
use dphe_service::store::SqliteStore;
use rand_core::Rng as _;

use super::samples::task_samples;
use super::serve::{ServiceArgs, on_signal};
use super::{CliError, os_rng};

/// Take part in a task as a user
#[derive(Args)]
pub(crate) struct Join {
    #[command(flatten)]
    common: ServiceArgs,
    /// The data directory, which only one process can use at a time
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The user's samples with labels: a .npz, .npy, .csv, .svmlight or .parquet file
    #[arg(long, value_name = "FILE")]
    features: PathBuf,
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
        let id = kit.user()?;
        let (file, task) = (kit.task_file(), kit.roster().task());
        let data = task_samples(&kit, &self.features)?;
        let seed = match self.seed {
            Some(seed) => Seed::new(seed).derive("user", u64::from(id.get()) - 1),
            None => {
                let mut bytes = [0; 32];
                os_rng()?.fill_bytes(&mut bytes);
                Seed::from_bytes(bytes)
            }
        };
        let trainer =
            LinearTrainer::new(file, task.clone(), data, seed)?.with_threads(self.common.threads())?;
        let maker = LinearModelMaker::new(file, task.clone())?;
        let summary = runtime.block_on(async {
            let stop = on_signal()?;
            let store = SqliteStore::open(&self.data).await.map_err(Error::from)?;
            // the directory is locked now
            let trainer = trainer.with_residual_file(self.data.join("residual.bin"));
            let options = self.common.options().await?;
            Ok::<_, CliError>(user::run(&kit, store, trainer, maker, options, stop).await?)
        })?;
        println!("rounds       {}, of which {} include this user's update", summary.rounds, summary.included);
        println!("history      round {}, history {:.16}", summary.round, summary.history);
        match (&self.output, &summary.model) {
            (Some(path), Some(bytes)) => {
                let weights = GlobalWeights::from_bytes(bytes)?.into_weights();
                self.model(&kit, weights, summary.rounds)?.write(path)?;
                println!("model        {}", path.display());
            }
            (Some(_), None) => println!("model        no model was published"),
            (None, _) => {}
        }
        Ok(())
    }

    /// Returns the last model with its metadata.
    fn model(&self, kit: &Kit, weights: Weights, rounds: u64) -> Result<Model, CliError> {
        let task = kit.roster().task();
        let training = Training {
            task: Some(task.id().to_string()),
            profile: Some(task.profile().as_str().to_owned()),
            payload: Some(kit.task_file().learner.payload),
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
}
