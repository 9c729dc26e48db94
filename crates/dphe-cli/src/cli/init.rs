//! `dphe init`: writes a task file.

use std::path::{Path, PathBuf};

use clap::Args;
use dphe::wire::max_upload_bytes;
use dphe::{NoiseMode, Profile, TaskId, TaskParams};
use dphe_features::ReadOptions;
use dphe_federate::vector::VectorSpec;
use dphe_federate::{LearnerSpec, Named as _};
use dphe_learn::update::UserNumbers;
use dphe_learn::{Seed, Standardizer, Weights, all_cores};
use dphe_service::chart::Unit;
use dphe_service::model::{About, LabelKind, Model, Training, VERSION};
use dphe_service::samples::Samples;
use dphe_service::store::check_task;
use dphe_service::task_file::{TaskFile, template, tensor_template};
use dphe_service::tensors::TensorModel;
use rand_core::Rng as _;

use super::{CliError, os_rng};
use crate::args::{LearnerArgs, TensorArgs, one_of};
use crate::key_file;
use crate::terminal::print_entry;

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
    #[arg(long, value_name = "FILE", conflicts_with = "public")]
    model: Option<PathBuf>,
    /// The name of the task
    #[arg(long)]
    name: Option<String>,
    /// The number of users
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=65_536))]
    users: u32,
    /// The number of rounds
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    #[command(flatten)]
    learner: LearnerArgs,
    /// The server step [default: chosen by the numbers of users, samples per user and classes per user]
    #[arg(long, conflicts_with = "tensors")]
    server_step: Option<f64>,
    /// How many samples a typical user has, to choose the server step [default: enough for a server step of 1]
    #[arg(
        long,
        value_name = "SAMPLES",
        conflicts_with = "tensors",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    samples_per_user: Option<u32>,
    /// Of how many classes a typical user has samples, to choose the server step [default: as many as a random share]
    #[arg(
        long,
        value_name = "CLASSES",
        requires = "samples_per_user",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    classes_per_user: Option<u32>,
    #[command(flatten)]
    tensors: TensorArgs,
    /// The key length in bits
    #[arg(long, default_value_t = 3072)]
    bits: u32,
    /// How noise is generated
    #[arg(long, value_parser = one_of::<NoiseMode>(), default_value = NoiseMode::Secure.name())]
    noise: NoiseMode,
    /// The address at which users reach the aggregator
    #[arg(long, value_name = "HOST:PORT", default_value = AGGREGATOR)]
    aggregator: String,
    /// The address at which the aggregator reaches the key generator
    #[arg(long, value_name = "HOST:PORT", default_value = KEY_GENERATOR)]
    key_generator: String,
}

pub(super) const AGGREGATOR: &str = "localhost:7100";
pub(super) const KEY_GENERATOR: &str = "localhost:7200";
/// The name of the initial model, beside the task file.
pub(super) const START: &str = "initial.safetensors";
/// The number of classes in a task file that nobody has edited.
const TEMPLATE_CLASSES: usize = 10;

impl Init {
    pub(crate) fn run(self) -> Result<(), CliError> {
        if let Some(path) = &self.tensors.tensors {
            return self.tensor_task(path);
        }
        let start = match (&self.public, &self.model) {
            (Some(samples), _) => Some(self.first_model(samples)?),
            (None, Some(model)) => Some(self.last_model(model)?),
            (None, None) if self.learner.payload().is_sparse_by_l1() => {
                return Err(CliError::Data {
                    what: format!(
                        "the payload {} finds its strength on public samples",
                        self.learner.payload()
                    ),
                    hint: "Pass a few labelled samples with `--public`, or choose another payload.".into(),
                });
            }
            (None, None) => None,
        };
        // without a model, the template's number of features decides the size of steps
        let spec = start.as_ref().map_or_else(|| self.learner.spec(f64::NAN), |(_, spec)| spec.clone());
        let model = start.map(|(model, _)| model);
        let spec = LearnerSpec { server_step: self.server_step(model.as_ref()), ..spec };
        // here, because a text cannot hold all numbers
        spec.check()?;
        let text = self.text(NewTrained::Linear { spec: &spec, model: model.as_ref() })?;
        let start = self.file.parent().unwrap_or(Path::new("")).join(START);
        if model.is_some() && start.exists() {
            return Err(key_file::KeyFileError::Exists { path: start }.into());
        }
        // checked before writing, because existing files are never overwritten
        let file = TaskFile::parse(&text, &self.file).map_err(dphe_service::Error::from)?;
        check_size(&file, model.as_ref().map(|model| &model.weights))?;
        key_file::write_public(&self.file, text.as_bytes())?;
        println!("task file    {}", self.file.display());
        if let Some(model) = model {
            model.write(&start)?;
            print_entry("model", &format!("{}: {}", start.display(), model.about.classes.join(", ")));
        }
        self.print_next(&file);
        Ok(())
    }

    fn text(&self, trained: NewTrained<'_>) -> Result<String, CliError> {
        let task = NewTask {
            name: self.name.as_deref(),
            users: self.users,
            rounds: self.rounds,
            aggregator: &self.aggregator,
            key_generator: &self.key_generator,
            trained,
            profile: self.learner.profile(),
            bits: self.bits,
            noise: self.noise,
        };
        task.text()
    }

    fn print_next(&self, file: &TaskFile) {
        print_entry("rounds", &floor_note(file));
        let file = self.file.display();
        print_entry(
            "next",
            &format!("Agree on the task file. Then each party runs\n`dphe keygen {file} --request PARTY`."),
        );
    }

    /// Writes a task whose users train named tensors with their own programs.
    fn tensor_task(&self, path: &Path) -> Result<(), CliError> {
        if self.learner.has_capacity() {
            return Err(CliError::Data {
                what: "`--capacity` is for linear models".into(),
                hint: "Pass `--share` to say how much of the tensors an update carries.".into(),
            });
        }
        let model = TensorModel::read(path, &self.tensors.keep).map_err(dphe_service::Error::from)?;
        let update = VectorSpec {
            share: self.learner.share(),
            block: self.tensors.block,
            ..VectorSpec::new(self.learner.payload())
        };
        let text = self.text(NewTrained::Tensors { model: &model, update: &update, args: &self.tensors })?;
        let file = TaskFile::parse(&text, &self.file).map_err(dphe_service::Error::from)?;
        let config = file.tensor_config(&model)?;
        let task = TaskParams::new_with(TaskId::from_bytes([0; 16]), config, dphe::hazmat::paper_keys())?;
        check_task(&task).map_err(dphe_service::Error::from)?;
        let start = self.file.parent().unwrap_or(Path::new("")).join(START);
        // the model may already have the name and the place of the copy
        let is_there = match (start.canonicalize(), path.canonicalize()) {
            (Ok(start), Ok(path)) => start == path,
            _ => false,
        };
        if start.exists() && !is_there {
            return Err(key_file::KeyFileError::Exists { path: start }.into());
        }
        key_file::write_public(&self.file, text.as_bytes())?;
        if !is_there {
            key_file::write_public(&start, model.as_bytes())?;
        }
        println!("task file    {}", self.file.display());
        let (trained, others) = model.tensors();
        let (values, all) = (model.len(), trained + others);
        let about = format!("{values} values in {trained} of {all} tensors are trained");
        print_entry("model", &format!("{}: {about}", start.display()));
        println!("layout       {}", model.digest());
        let bytes = Unit::Bytes.write(max_upload_bytes(&task) as f64);
        println!("upload       {bytes} per user and round");
        self.print_next(&file);
        Ok(())
    }

    /// Chooses the server step by what is stated about users, all of whom are expected to take part.
    fn server_step(&self, model: Option<&Model>) -> f64 {
        let proposed = || {
            let classes = model.map_or(TEMPLATE_CLASSES, |model| match model.about.labels {
                LabelKind::Classes => model.weights.classes(),
                // A sample says something about every attribute.
                LabelKind::Attributes => 1,
            });
            let numbers = UserNumbers {
                users: self.users as usize,
                classes,
                samples_per_user: self.samples_per_user.map_or(f64::INFINITY, f64::from),
                classes_per_user: self.classes_per_user.map(f64::from),
            };
            numbers.server_step()
        };
        self.server_step.unwrap_or_else(proposed)
    }

    /// Reads the last model of another task, from which this one continues.
    fn last_model(&self, path: &Path) -> Result<(Model, LearnerSpec), CliError> {
        let model = Model::read(path)?;
        // `1 + mean |x|^2` of standardised features
        let squared_radius = 1.0 + model.weights.features() as f64;
        Ok((model, self.learner.spec(squared_radius)))
    }

    /// Trains the initial model on public samples, as `dphe simulate` does.
    fn first_model(&self, path: &Path) -> Result<(Model, LearnerSpec), CliError> {
        let samples = Samples::read(path, &ReadOptions::default())?;
        let standardizer = Standardizer::fit(samples.data.features());
        let data = samples.data.standardized(&standardizer)?;
        let start = self.learner.start(&data, &Seed::new(0), all_cores())?;
        let about = About {
            version: VERSION,
            classes: samples.classes,
            labels: samples.kind,
            clip: standardizer.clip(),
            feature_model: samples.source.as_ref().map(|source| source.model_digest.clone()),
            preprocessing: samples.source.as_ref().map(|source| source.preprocessing.clone()),
            training: Training::default(),
        };
        Ok((Model { weights: start.weights, standardizer, about }, start.spec))
    }
}

/// A task file to be written.
pub(super) struct NewTask<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) users: u32,
    pub(super) rounds: u64,
    pub(super) aggregator: &'a str,
    pub(super) key_generator: &'a str,
    pub(super) trained: NewTrained<'a>,
    pub(super) profile: Profile,
    pub(super) bits: u32,
    pub(super) noise: NoiseMode,
}

/// What a new task trains.
pub(super) enum NewTrained<'a> {
    Linear {
        /// How users learn. The size of steps is not a number if the template's is to be kept.
        spec: &'a LearnerSpec,
        /// The initial model, which is written beside the task file.
        model: Option<&'a Model>,
    },
    Tensors {
        model: &'a TensorModel,
        update: &'a VectorSpec,
        args: &'a TensorArgs,
    },
}

impl NewTask<'_> {
    /// Returns the text of the file, with a new id and the comments of the template.
    pub(super) fn text(&self) -> Result<String, CliError> {
        let mut id = [0; 16];
        os_rng()?.fill_bytes(&mut id);
        let id = TaskId::from_bytes(id);
        let floor = 3.max(self.users / 2 + 1);
        let mut values = vec![
            ("users", self.users.to_string()),
            ("rounds", self.rounds.to_string()),
            ("aggregator", quoted(self.aggregator)),
            ("key_generator", quoted(self.key_generator)),
            ("profile", quoted(self.profile.as_str())),
            ("key_bits", self.bits.to_string()),
            ("noise", quoted(self.noise.name())),
            ("count", format!("{{ min = {floor}, max = {} }}", self.users)),
        ];
        values.extend(self.name.map(|name| ("name", quoted(name))));
        match self.trained {
            NewTrained::Linear { spec, model } => {
                values.extend(linear_values(spec, model));
                Ok(filled(&template(id), &values))
            }
            NewTrained::Tensors { model, update, args } => {
                values.extend(tensor_values(model, update, args));
                Ok(filled(&tensor_template(id), &values))
            }
        }
    }
}

/// A name of the task file and its value.
type NamedValue = (&'static str, String);

fn linear_values(spec: &LearnerSpec, model: Option<&Model>) -> Vec<NamedValue> {
    let mut values = vec![
        ("payload", quoted(spec.payload.as_str())),
        ("loss", quoted(spec.loss.as_str())),
        ("strength", format!("{:?}", spec.strength)),
        ("l1_ratio", format!("{:?}", spec.l1_ratio)),
        ("epochs", spec.epochs.to_string()),
    ];
    values.extend(spec.share.map(|share| ("share", format!("{share:?}"))));
    values.extend(spec.capacity.map(|capacity| ("capacity", capacity.to_string())));
    if spec.server_step != 1.0 {
        values.push(("server_step", format!("{:?}", spec.server_step)));
    }
    if spec.squared_radius.is_finite() {
        values.push(("squared_radius", format!("{:?}", spec.squared_radius)));
    }
    if let Some(model) = model {
        values.push(("classes", model.weights.classes().to_string()));
        values.push(("features", model.weights.features().to_string()));
        values.push(("initial", quoted(START)));
    }
    values
}

fn tensor_values(model: &TensorModel, update: &VectorSpec, args: &TensorArgs) -> Vec<NamedValue> {
    let mut values = vec![
        ("initial", quoted(START)),
        ("layout", quoted(&model.digest())),
        ("dimension", model.len().to_string()),
        ("payload", quoted(update.payload.as_str())),
    ];
    if !args.keep.is_empty() {
        values.push(("keep", toml::Value::from(args.keep.clone()).to_string()));
    }
    values.extend(update.share.map(|share| ("share", format!("{share:?}"))));
    values.extend(update.block.map(|block| ("block", block.to_string())));
    values.extend(args.scale_bits.map(|bits| ("scale_bits", bits.to_string())));
    values.extend(args.clip.map(|exponent| ("clip_exponent", exponent.to_string())));
    values
}

/// Says how many users a round needs, and what happens with fewer.
fn floor_note(file: &TaskFile) -> String {
    let (rounds, users, floor) = (file.task.rounds, file.task.users, file.collect.count.min);
    if floor >= users {
        return format!(
            "{rounds}, each of all {users} users. Nobody may be missing: a round without one of them is aborted after \
             {}, and another one starts. Aborted rounds do not count.",
            file.collect.time.max
        );
    }
    format!(
        "{rounds}, each of at least {floor} of {users} users. A round that fewer users have joined after {} is \
         aborted, and another one starts. Aborted rounds do not count.",
        file.collect.time.max
    )
}

/// Refuses a task whose values would be too long for a store, before anybody agrees on it.
fn check_size(file: &TaskFile, weights: Option<&Weights>) -> Result<(), CliError> {
    let size = file.linear().map_err(dphe_service::Error::from)?.model_size();
    let zeros = Weights::zeros(size.features, size.classes)?;
    let config = file.config(weights.unwrap_or(&zeros))?;
    let task = TaskParams::new_with(TaskId::from_bytes([0; 16]), config, dphe::hazmat::paper_keys())?;
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
