//! `dphe init`: writes a task file.

use std::path::{Path, PathBuf};

use clap::Args;
use dphe::{Profile, TaskId, TaskParams};
use dphe_features::ReadOptions;
use dphe_federate::{Named as _, PayloadName};
use dphe_learn::linear::{Penalty, Schedule, SgdParams, Stable};
use dphe_learn::{Seed, Standardizer, Weights};
use dphe_service::model::{About, Model, Training, VERSION};
use dphe_service::samples::Samples;
use dphe_service::store::check_task;
use dphe_service::task_file::{TaskFile, template};
use rand_core::Rng as _;

use super::{CliError, os_rng};
use crate::args::one_of;
use crate::key_file;

/// Write a task file to edit
#[derive(Args)]
pub(crate) struct Init {
    /// The new task file
    #[arg(default_value = "task.toml")]
    file: PathBuf,
    /// A few public samples with labels; they define the classes and the standardisation, and are used to train the
    /// initial model, which is written to initial.safetensors next to the task file
    #[arg(long, value_name = "FEATURES")]
    public: Option<PathBuf>,
    /// The last model of another task to continue from, copied to initial.safetensors next to the task file
    #[arg(long, value_name = "MODEL", conflicts_with = "public")]
    start_from: Option<PathBuf>,
    /// The name of the task
    #[arg(long)]
    name: Option<String>,
    /// The number of users
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=65_536))]
    users: u32,
    /// The number of rounds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// The profile of the task
    #[arg(long, value_parser = one_of::<Profile>(), default_value = Profile::Full.as_str())]
    profile: Profile,
    /// The address at which users reach the aggregator
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:7100")]
    aggregator: String,
    /// The address at which the aggregator reaches the key generator
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:7200")]
    key_generator: String,
}

/// The number of epochs on the few public samples.
const EPOCHS: usize = 20;
const START: &str = "initial.safetensors";

impl Init {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let mut id = [0; 16];
        os_rng()?.fill_bytes(&mut id);
        let mut values = vec![
            ("users", self.users.to_string()),
            ("rounds", self.rounds.to_string()),
            ("aggregator", quoted(&self.aggregator)),
            ("key_generator", quoted(&self.key_generator)),
            ("profile", quoted(self.profile.as_str())),
            ("count", format!("{{ min = {}, max = {} }}", 3.max(self.users / 2 + 1), self.users)),
        ];
        values.extend(self.name.as_deref().map(|name| ("name", quoted(name))));
        if self.profile != Profile::Full {
            values.push(("payload", quoted(PayloadName::DBlock.as_str())));
        }
        let start = match (&self.public, &self.start_from) {
            (Some(samples), _) => Some(first_model(samples)?),
            (None, Some(model)) => Some(last_model(model)?),
            (None, None) => None,
        };
        if let Some((model, squared_radius)) = &start {
            values.push(("classes", model.weights.classes().to_string()));
            values.push(("features", model.weights.features().to_string()));
            values.push(("squared_radius", format!("{squared_radius:?}")));
            values.push(("initial", quoted(START)));
        }
        let text = filled(&template(TaskId::from_bytes(id)), &values);
        let model = self.file.parent().unwrap_or(Path::new("")).join(START);
        if start.is_some() && model.exists() {
            return Err(key_file::KeyFileError::Exists { path: model }.into());
        }
        // checked before writing, because existing files are never overwritten
        let file = TaskFile::parse(&text, &self.file).map_err(dphe_service::Error::from)?;
        check_size(&file, start.as_ref().map(|(model, _)| &model.weights))?;
        key_file::write_public(&self.file, text.as_bytes())?;
        println!("task file    {}", self.file.display());
        if let Some((start, _)) = start {
            start.write(&model)?;
            println!("model        {}: {}", model.display(), start.about.classes.join(", "));
        }
        let file = self.file.display();
        println!("next         Agree on the task file. Then each party runs");
        println!("             `dphe keygen {file} --request PARTY`.");
        Ok(())
    }
}

/// Refuses a task whose values would be too long for a store, before anybody agrees on it.
fn check_size(file: &TaskFile, weights: Option<&Weights>) -> Result<(), CliError> {
    let zeros = Weights::zeros(file.model.features as usize, file.model.classes as usize)?;
    let config = file.config(weights.unwrap_or(&zeros))?;
    let task = TaskParams::new(TaskId::from_bytes([0; 16]), config)?;
    Ok(check_task(&task).map_err(dphe_service::Error::from)?)
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Returns the template with other values and the same comments.
fn filled(template: &str, values: &[(&str, String)]) -> String {
    let mut out = String::new();
    for line in template.lines() {
        let name = line.trim_start_matches("# ").split(" = ").next().unwrap_or_default();
        match values.iter().find(|(known, _)| *known == name) {
            Some((name, value)) => {
                let comment = line.rsplit_once(" # ").map(|(_, comment)| format!("   # {comment}"));
                out.push_str(&format!("{name} = {value}{}", comment.unwrap_or_default()));
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// Reads the last model of another task. Also returns `1 + mean |x|^2` of standardised features.
fn last_model(path: &Path) -> Result<(Model, f64), CliError> {
    let model = Model::read(path)?;
    let squared_radius = 1.0 + model.weights.features() as f64;
    Ok((model, squared_radius))
}

/// Trains the initial model on public samples. Also returns `1 + mean |x|^2` of the samples.
fn first_model(path: &Path) -> Result<(Model, f64), CliError> {
    let samples = Samples::read(path, &ReadOptions::default())?;
    let standardizer = Standardizer::fit(samples.data.features());
    let data = samples.data.standardized(&standardizer)?;
    let stable = Stable::for_features(data.features());
    let params = SgdParams {
        penalty: Penalty::DEFAULT,
        epochs: EPOCHS,
        threads: dphe_learn::all_cores(),
        ..SgdParams::new(Schedule::Stable(stable))
    };
    let weights = params.check()?.fit(&data, &Seed::new(0))?;
    let about = About {
        version: VERSION,
        classes: samples.classes,
        labels: samples.kind,
        clip: standardizer.clip(),
        feature_model: samples.source.as_ref().map(|source| source.model_digest.clone()),
        preprocessing: samples.source.as_ref().map(|source| source.preprocessing.clone()),
        training: Training::default(),
    };
    Ok((Model { weights, standardizer, about }, stable.squared_radius))
}
