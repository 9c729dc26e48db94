//! `dphe init` and `dphe keygen`: from an idea to a kit for each party.

use std::path::{Path, PathBuf};

use clap::Args;
use dphe::{Profile, TaskId};
use dphe_features::ReadOptions;
use dphe_learn::linear::{Penalty, Schedule, SgdParams, Stable};
use dphe_learn::{Features, Seed, Standardizer};
use dphe_node::certificates::party_of;
use dphe_node::kit::{KitPlan, Protection, Request, make_kits, make_request};
use dphe_node::model::{About, Model, Training, VERSION};
use dphe_node::samples::Samples;
use dphe_node::task_file::{TaskFile, template};
use dphe_paillier::Threads;
use rand_core::Rng as _;

use super::key::{ask_passphrase, generate};
use super::learner::ProfileName;
use super::{CliError, os_rng};
use crate::key_file;

/// Write a task file to be changed
#[derive(Args)]
pub(crate) struct Init {
    /// Where to write it; nothing is overwritten
    #[arg(default_value = "task.toml")]
    file: PathBuf,
    /// A few samples with labels that everybody may see: they name the classes, fix how features are standardised, and
    /// make the first weights, in initial.safetensors beside the task file
    #[arg(long, value_name = "FEATURES")]
    public: Option<PathBuf>,
    /// Start where another task ended: with its last model, copied to initial.safetensors beside the task file
    #[arg(long, value_name = "MODEL", conflicts_with = "public")]
    start_from: Option<PathBuf>,
    /// What the task is called
    #[arg(long)]
    name: Option<String>,
    /// How many users are enrolled
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=65_536))]
    users: u32,
    /// How many rounds there are
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// What a round hides, and how
    #[arg(long, value_enum, default_value_t = ProfileName::Full)]
    profile: ProfileName,
    /// Host and port of the aggregator, as the others reach it
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:7100")]
    aggregator: String,
    /// Host and port of the key generator, as the aggregator reaches it
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:7200")]
    key_generator: String,
}

/// Epochs that the first weights are learnt for, on few samples.
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
            ("profile", quoted(Profile::from(self.profile).name())),
            ("count", format!("{{ min = {}, max = {} }}", 3.max(self.users / 2 + 1), self.users)),
        ];
        values.extend(self.name.as_deref().map(|name| ("name", quoted(name))));
        if Profile::from(self.profile) != Profile::Full {
            values.push(("message", quoted("d-block")));
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
        // before it is written: what is no task would stand in the way of the next try
        TaskFile::parse(&text, &self.file).map_err(dphe_node::Error::from)?;
        key_file::write_public(&self.file, text.as_bytes())?;
        println!("task file    {}", self.file.display());
        if let Some((start, _)) = start {
            start.write(&model)?;
            println!("first model  {}: {}", model.display(), start.about.classes.join(", "));
        }
        println!("next         agree on it with everybody, then: dphe keygen {}", self.file.display());
        Ok(())
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// The template with other values, comments kept.
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

/// What another task ended with; and `1 + mean |x|^2`, if features are standardised.
fn last_model(path: &Path) -> Result<(Model, f64), CliError> {
    let model = Model::read(path)?;
    let squared_radius = 1.0 + model.weights.features() as f64;
    Ok((model, squared_radius))
}

/// What rounds start from, learnt from samples that everybody may see; and `1 + mean |x|^2` of them.
fn first_model(path: &Path) -> Result<(Model, f64), CliError> {
    let samples = Samples::read(path, &ReadOptions::default())?;
    let standardizer = Standardizer::fit(samples.data.features());
    let features: Features<f32> = standardizer.apply(samples.data.features())?;
    let data = samples.data.with_features(features)?;
    let stable = Stable::for_features(data.features());
    let params = SgdParams {
        penalty: Penalty::DEFAULT,
        epochs: EPOCHS,
        threads: dphe_learn::Threads::all(),
        ..SgdParams::new(Schedule::Stable(stable))
    };
    let weights = params.check()?.fit(&data, &Seed::new(0))?;
    let about = About {
        version: VERSION,
        classes: samples.classes.clone(),
        labels: samples.kind,
        clip: standardizer.clip(),
        feature_model: samples.source.as_ref().map(|source| source.model_digest.clone()),
        preprocessing: samples.source.as_ref().map(|source| source.preprocessing.clone()),
        training: Training::default(),
    };
    Ok((Model { weights, standardizer, about }, stable.squared_radius))
}

/// Make the keys of a task, and a start-up kit for each party
#[derive(Args)]
pub(crate) struct Keygen {
    /// The task file
    #[arg(default_value = "task.toml")]
    task: PathBuf,
    /// The folder of the kits, or of the keys made for a request; it must not exist
    #[arg(short, long, default_value = "kits")]
    output: PathBuf,
    /// Make the identity and TLS keys of this party here (user-3, aggregator), and a request.toml to send to whoever
    /// makes the kits
    #[arg(long, value_name = "PARTY", conflicts_with_all = ["with", "passphrase_file", "no_passphrase"])]
    request: Option<String>,
    /// Make the kit of a party that sent this request, without its secret keys
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// Read the passphrase of the key that decrypts from the first line of this file
    #[arg(long, value_name = "FILE", conflicts_with = "no_passphrase")]
    passphrase_file: Option<PathBuf>,
    /// Protect the key that decrypts by its file's mode alone: for a service that starts unattended. Whoever can read
    /// the disk or a backup of it can decrypt
    #[arg(long)]
    no_passphrase: bool,
}

impl Keygen {
    pub(crate) fn run(self) -> Result<(), CliError> {
        if let Some(party) = &self.request {
            return ask(&self.task, party, &self.output);
        }
        let requests = self.with.iter().map(|file| Request::read(file)).collect::<Result<_, _>>()?;
        let plan = KitPlan::new(&self.task, requests)?;
        if self.output.exists() {
            return Err(
                dphe_node::Error::from(dphe_node::kit::KitError::Exists { folder: self.output }).into()
            );
        }
        let protection = match &self.passphrase_file {
            _ if self.no_passphrase => Protection::FileMode,
            Some(file) => Protection::Passphrase(key_file::read_passphrase(file)?),
            None => Protection::Passphrase(ask_passphrase()?),
        };
        if matches!(&protection, Protection::Passphrase(words) if words.is_empty()) {
            return Err(CliError::PassphraseEmpty);
        }
        let task = plan.task();
        let key = generate(task.key_bits(), task.config().noise, Threads::all())?;
        let id = key.encryption_key().id();
        let (bits, profile) = (task.key_bits(), task.profile());
        let folders = make_kits(&plan, key, &self.output, &protection, &mut os_rng()?)?;
        println!("task         {}", task.id());
        println!("key          {id} ({} bits, profile {profile})", bits.get());
        if !bits.is_secure() {
            println!("warning      {} bits protect nothing today", bits.get());
        }
        for folder in folders {
            println!("kit          {}", folder.display());
        }
        if self.no_passphrase {
            println!(
                "note         the key that decrypts has no passphrase: its file's mode is all that protects it"
            );
        }
        println!(
            "next         hand each party its kit, by a way that nobody else can read; then: dphe doctor --kit DIR"
        );
        Ok(())
    }
}

fn ask(task: &Path, party: &str, folder: &Path) -> Result<(), CliError> {
    let file = TaskFile::read(task).map_err(dphe_node::Error::from)?;
    let party = party_of(party).ok_or_else(|| CliError::UnknownParty { name: party.to_owned() })?;
    make_request(&file, party, folder, &mut os_rng()?)?;
    println!("secret keys  {0}/identity.key, {0}/tls.key: they stay here", folder.display());
    println!("request      {}/request.toml: send it to whoever makes the kits", folder.display());
    println!("next         put both keys into the kit you get back; then: dphe doctor --kit DIR");
    Ok(())
}
