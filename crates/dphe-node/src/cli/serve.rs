//! `dphe serve` and `dphe join`: the parties as processes.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use dphe::{Party, Profile};
use dphe_features::ReadOptions;
use dphe_learn::{Dataset, Features, Seed, Standardizer, Weights};
use dphe_node::Error;
use dphe_node::http::open_files::{OTHER_FILES, raise_open_files};
use dphe_node::http::server::{Limits, Shutdown, shutdown};
use dphe_node::kit::Kit;
use dphe_node::learning::{LinearModelMaker, LinearTrainer, model_from_bytes};
use dphe_node::model::{About, LabelKind, Model, Training, VERSION};
use dphe_node::samples::Samples;
use dphe_node::service::aggregator::{AggregatorService, run_replica};
use dphe_node::service::{ServiceOptions, key_generator, user};
use dphe_node::store::SqliteStore;
use dphe_node::store::postgres::PgAddress;
use dphe_node::task_file::Milliseconds;
use dphe_node::telemetry::{LogOptions, Metrics, start_logging};
use dphe_node::tensorboard::EventFile;
use dphe_paillier::Threads;
use rand_core::Rng as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::key::prompt;
use super::place::{Place, PlaceArgs};
use super::{CliError, os_rng};
use crate::key_file;

/// Run a service of a task
#[derive(Subcommand)]
pub(crate) enum Serve {
    /// Hold the key that decrypts; open one sum a round
    KeyGenerator(ServeKeyGenerator),
    /// Collect updates, have their sum opened, publish models
    Aggregator(ServeAggregator),
}

#[derive(Args)]
struct Common {
    /// The start-up kit
    #[arg(long, value_name = "DIR")]
    kit: PathBuf,
    /// Show /healthz, /readyz, /metrics and the aggregator's page here, without TLS: for the own machine
    #[arg(long, value_name = "ADDRESS")]
    observe: Option<SocketAddr>,
    /// Threads to compute with; all unless told
    #[arg(long)]
    threads: Option<usize>,
    /// Log errors only
    #[arg(short, long)]
    quiet: bool,
    /// Log more; twice, everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// How to log
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Args)]
pub(crate) struct ServeKeyGenerator {
    #[command(flatten)]
    common: Common,
    /// Where the party keeps its state; one process a folder
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where to listen; as the task file says unless told
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Read the passphrase of the key from the first line of this file
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct ServeAggregator {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    place: PlaceArgs,
    /// How long a replica may be out of touch with the database before another does its work
    #[arg(long, value_name = "TIME", default_value = "10s")]
    lease: Milliseconds,
    /// Where to listen; as the task file says unless told
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Samples with labels that nobody trains on: how good each round's model is, in the log and on the page
    #[arg(long, value_name = "FILE")]
    held_out: Option<PathBuf>,
    /// Write figures of rounds into this folder, as TensorBoard reads them
    #[arg(long, value_name = "DIR")]
    tensorboard: Option<PathBuf>,
}

/// Take part in a task as a user
#[derive(Args)]
pub(crate) struct Join {
    #[command(flatten)]
    common: Common,
    /// Where the party keeps its state; one process a folder
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The samples: .npz, .npy, .csv, .svmlight or .parquet, with labels
    #[arg(long, value_name = "FILE")]
    features: PathBuf,
    /// Train reproducibly, as a simulation with this seed does
    #[arg(long)]
    seed: Option<u64>,
    /// Write the last model here
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Common {
    fn start(&self) -> Result<(Kit, tokio::runtime::Runtime), CliError> {
        start_logging(LogOptions::new(self.quiet, self.verbose, matches!(self.log_format, LogFormat::Json)));
        let kit = Kit::read(&self.kit)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|source| CliError::Runtime { source })?;
        Ok((kit, runtime))
    }

    /// The paper's parameters are for reproduction: short keys, permutations that are kept.
    fn check_paper(kit: &Kit, listen: Option<&String>) -> Result<(), CliError> {
        if kit.roster().task().profile() != Profile::Paper {
            return Ok(());
        }
        tracing::warn!("the task has the paper's parameters, which protect nobody: for reproduction only");
        let parties = &kit.task_file().parties;
        for address in [&parties.aggregator, &parties.key_generator].into_iter().chain(listen) {
            let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
            let host = host.trim_matches(['[', ']']);
            let local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
            if !local {
                return Err(CliError::Data {
                    what: format!(
                        "a task with the paper's parameters does not leave this machine, and {address} is not on it"
                    ),
                    hint: "profile = \"sparse\" in the task file, or addresses on localhost".into(),
                });
            }
        }
        Ok(())
    }

    async fn options(&self, kit: &Kit) -> Result<ServiceOptions, Error> {
        let observe = match self.observe {
            Some(address) => Some(listen(&address.to_string()).await?),
            None => None,
        };
        let threads = self.threads.map_or_else(Threads::all, Threads::new);
        let metrics = Arc::new(Metrics::default());
        if let Some(validity) = kit.tls().validity() {
            metrics.certificate_end.set(validity.to.unix_timestamp());
        }
        Ok(ServiceOptions { threads, observe, metrics, ..ServiceOptions::default() })
    }
}

/// Every connection is an open file.
fn make_room_for_connections() {
    let wanted = Limits::default().connections as u64 + OTHER_FILES;
    match raise_open_files() {
        Some(limit) if limit < wanted => {
            tracing::warn!(
                limit,
                wanted,
                "too few open files are allowed for all connections; raise `ulimit -Hn`"
            );
        }
        _ => {}
    }
}

async fn listen(address: &str) -> Result<TcpListener, Error> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|source| Error::Listen { address: address.to_owned(), source })?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "listening");
    }
    Ok(listener)
}

/// SIGTERM or SIGINT: what is under way may end, nothing new begins.
fn on_signal() -> Result<Shutdown, CliError> {
    let (switch, stop) = shutdown();
    let runtime = |source| CliError::Runtime { source };
    let mut terminate = signal(SignalKind::terminate()).map_err(runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(runtime)?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        switch.stop();
        // a second signal ends it at once
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(130);
    });
    Ok(stop)
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self {
            Self::KeyGenerator(serve) => serve.run(),
            Self::Aggregator(serve) => serve.run(),
        }
    }
}

impl ServeKeyGenerator {
    fn run(self) -> Result<(), CliError> {
        let (kit, runtime) = self.common.start()?;
        Common::check_paper(&kit, self.listen.as_ref())?;
        make_room_for_connections();
        let passphrase = match &self.passphrase_file {
            Some(file) => key_file::read_passphrase(file)?,
            None if kit.needs_passphrase() => prompt("Passphrase of the key that decrypts: ")?,
            None => Default::default(),
        };
        let address = self.listen.clone().unwrap_or_else(|| kit.task_file().parties.key_generator.clone());
        runtime.block_on(async {
            let stop = on_signal()?;
            let store = SqliteStore::open(&self.data).await.map_err(Error::from)?;
            let (options, listener) = (self.common.options(&kit).await?, listen(&address).await?);
            Ok(key_generator::run(&kit, &passphrase, store, listener, options, stop).await?)
        })
    }
}

/// What an aggregator keeps its state with.
enum Store {
    Folder(Box<SqliteStore>, PathBuf),
    Database(Box<PgAddress>),
}

impl ServeAggregator {
    fn run(self) -> Result<(), CliError> {
        let place = self.place.place();
        let (kit, runtime) = self.common.start()?;
        Common::check_paper(&kit, self.listen.as_ref())?;
        make_room_for_connections();
        let address = self.listen.clone().unwrap_or_else(|| kit.task_file().parties.aggregator.clone());
        runtime.block_on(async {
            let stop = on_signal()?;
            // before anything is seen of it: a folder in use is another process's
            let store = match place {
                Place::Folder(data) => {
                    Store::Folder(Box::new(SqliteStore::open(&data).await.map_err(Error::from)?), data)
                }
                Place::Database(url) => {
                    let lease = Duration::from_millis(self.lease.0);
                    let address = PgAddress::new(&url, kit.roster(), lease).map_err(Error::from)?;
                    Store::Database(Box::new(address))
                }
            };
            let (mut options, listener) = (self.common.options(&kit).await?, listen(&address).await?);
            if let Some(folder) = &self.tensorboard {
                let output = |source| CliError::Output { path: folder.clone(), source };
                options.events = Some(EventFile::create(folder).map_err(output)?);
            }
            let mut maker = LinearModelMaker::new(kit.task_file(), kit.roster().task().clone())?;
            if let Some(file) = &self.held_out {
                maker = maker.with_held_out_data(samples(&kit, file)?);
            }
            match store {
                Store::Database(address) => {
                    Ok(run_replica(&kit, &address, maker, options, listener, stop).await?)
                }
                Store::Folder(store, data) => {
                    let service = AggregatorService::start(&kit, *store, &data, maker, options).await?;
                    Ok(service.run(listener, stop).await?)
                }
            }
        })
    }
}

/// Samples of a file, with the task's classes, standardised as everybody does.
fn samples(kit: &Kit, file: &Path) -> Result<Dataset, CliError> {
    let samples = Samples::read(file, &ReadOptions::default())?;
    let Some(start) = kit.start()? else {
        let classes = kit.task_file().model.classes;
        let numbers: Vec<String> = (0..classes).map(|class| class.to_string()).collect();
        return Ok(samples.in_classes(&numbers, file)?);
    };
    start.check_features(samples.data.features().width(), samples.source.as_ref(), file)?;
    let data = samples.in_classes(&start.about.classes, file)?;
    let features: Features<f32> = start.standardizer.apply(data.features())?;
    Ok(data.with_features(features)?)
}

impl Join {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let (kit, runtime) = self.common.start()?;
        Common::check_paper(&kit, None)?;
        let Party::User(id) = kit.party() else {
            // says whose kit it is
            return Err(kit.user_keys().err().map_or(CliError::Backwards, CliError::from));
        };
        let (file, task) = (kit.task_file(), kit.roster().task());
        let data = samples(&kit, &self.features)?;
        let seed = match self.seed {
            Some(seed) => Seed::new(seed).derive("user", u64::from(id.get()) - 1),
            None => {
                let mut bytes = [0; 32];
                os_rng()?.fill_bytes(&mut bytes);
                Seed::from_bytes(bytes)
            }
        };
        let trainer = LinearTrainer::new(file, task.clone(), data, seed)?;
        let summary = runtime.block_on(async {
            let stop = on_signal()?;
            let store = SqliteStore::open(&self.data).await.map_err(Error::from)?;
            // nobody else has the folder now
            let trainer = trainer.with_memory(self.data.join("residual.bin"));
            let options = self.common.options(&kit).await?;
            Ok::<_, CliError>(user::run(&kit, store, trainer, options, stop).await?)
        })?;
        println!("rounds       {} heard of, {} with this user's update", summary.rounds, summary.included);
        match (&self.output, &summary.model) {
            (Some(path), Some(bytes)) => {
                self.model(&kit, model_from_bytes(bytes)?, summary.rounds)?.write(path)?;
                println!("model        {}", path.display());
            }
            (Some(_), None) => println!("model        none was published"),
            (None, _) => {}
        }
        Ok(())
    }

    /// The last model, with what else is known of the task.
    fn model(&self, kit: &Kit, weights: Weights, rounds: u64) -> Result<Model, CliError> {
        let task = kit.roster().task();
        let training = Training {
            task: Some(task.id().to_string()),
            profile: Some(task.profile().name().to_owned()),
            message: None,
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
