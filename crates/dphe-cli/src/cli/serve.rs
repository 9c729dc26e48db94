//! `dphe serve`: runs a service of a task.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Subcommand, ValueEnum};
use dphe::Profile;
use dphe_paillier::Threads;
use dphe_service::Error;
use dphe_service::http::open_files::{OTHER_FILES, raise_open_files};
use dphe_service::http::server::{Limits, Shutdown, shutdown};
use dphe_service::kit::Kit;
use dphe_service::learning::{LinearModelMaker, ModelMaker, model_maker};
use dphe_service::service::aggregator::AggregatorService;
#[cfg(feature = "postgres")]
use dphe_service::service::aggregator::run_replica;
use dphe_service::service::{ServiceOptions, key_generator};
use dphe_service::store::SqliteStore;
#[cfg(feature = "postgres")]
use dphe_service::store::postgres::PgAddress;
use dphe_service::task_file::{Milliseconds, is_local};
use dphe_service::telemetry::{LogOptions, start_logging};
use dphe_service::tensorboard::EventFile;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::CliError;
use super::key::prompt;
use super::samples::task_samples;
#[cfg(not(feature = "postgres"))]
use crate::args::NO_DATABASE;
use crate::args::{KitArgs, Storage, StorageArgs};
use crate::key_file;

/// Run a service of a task
#[derive(Subcommand)]
pub(crate) enum Serve {
    /// Hold the decryption key and open one sum per round
    KeyGenerator(ServeKeyGenerator),
    /// Collect updates, request their sum, and publish models
    Aggregator(ServeAggregator),
}

#[derive(Args)]
pub(super) struct ServiceArgs {
    #[command(flatten)]
    kit: KitArgs,
    /// The address for /healthz, /readyz, /metrics and the aggregator's dashboard, without TLS; use a loopback address
    #[arg(long, value_name = "ADDRESS")]
    observe: Option<SocketAddr>,
    /// The number of threads [default: all cores]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Log only errors
    #[arg(short, long)]
    quiet: bool,
    /// Log more; repeat to log everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// The format of the log
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
    common: ServiceArgs,
    /// The data directory, which only one process can use at a time
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The address to listen on [default: as in the task file]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Read the passphrase of the decryption key from the first line of this file
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct ServeAggregator {
    #[command(flatten)]
    common: ServiceArgs,
    #[command(flatten)]
    storage: StorageArgs,
    /// How long the leader may be disconnected from the database before another replica takes over
    #[arg(long, value_name = "TIME", default_value = "10s")]
    lease: Milliseconds,
    /// The address to listen on [default: as in the task file]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Held-out samples with labels, to measure the accuracy of each round's model
    #[arg(long, value_name = "FILE")]
    held_out: Option<PathBuf>,
    /// The directory for per-round metrics in TensorBoard's format
    #[arg(long, value_name = "DIR")]
    tensorboard: Option<PathBuf>,
}

impl ServiceArgs {
    pub(super) fn start(&self) -> Result<(Kit, tokio::runtime::Runtime), CliError> {
        start_logging(LogOptions::new(self.quiet, self.verbose, matches!(self.log_format, LogFormat::Json)));
        let kit = self.kit.read()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|source| CliError::Runtime { source })?;
        Ok((kit, runtime))
    }

    /// Fails if a task of the `paper` profile leaves this machine. That profile has short keys and fixed permutations.
    pub(super) fn check_paper(kit: &Kit, listen: Option<&String>) -> Result<(), CliError> {
        if kit.roster().task().profile() != Profile::Paper {
            return Ok(());
        }
        tracing::warn!(
            "the task uses the `paper` profile, which protects nothing; use it for reproduction only"
        );
        let parties = &kit.task_file().parties;
        for address in [&parties.aggregator, &parties.key_generator].into_iter().chain(listen) {
            if !is_local(address) {
                return Err(CliError::Data {
                    what: format!(
                        "a task with the `paper` profile must stay on this machine, but {address} is not on it"
                    ),
                    hint: "Set `profile = \"sparse\"` in the task file, or use addresses on localhost."
                        .into(),
                });
            }
        }
        Ok(())
    }

    pub(super) fn threads(&self) -> Threads {
        self.threads.map_or_else(Threads::all, |threads| Threads::new(threads.get()))
    }

    pub(super) async fn options(&self) -> Result<ServiceOptions, Error> {
        let observe = match self.observe {
            Some(address) => Some(listen(&address.to_string()).await?),
            None => None,
        };
        let (threads, roster) = (self.threads(), self.kit.roster.clone());
        Ok(ServiceOptions { threads, observe, roster, ..ServiceOptions::default() })
    }
}

/// Raises the limit of open files, because every connection needs one.
fn raise_file_limit() {
    let wanted = Limits::default().connections as u64 + OTHER_FILES;
    match raise_open_files() {
        Some(limit) if limit < wanted => {
            tracing::warn!(
                limit,
                wanted,
                "the limit on open files is too low for all connections; raise it with `ulimit -Hn`"
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

/// Returns a handle that SIGTERM and SIGINT trigger. The service then finishes running requests and accepts no new
/// ones.
pub(super) fn on_signal() -> Result<Shutdown, CliError> {
    on_signal_noting(Arc::default())
}

/// As [`on_signal`], and sets the flag if the signal is SIGINT, which a person sends with Ctrl-C.
pub(super) fn on_signal_noting(interrupted: Arc<AtomicBool>) -> Result<Shutdown, CliError> {
    let (switch, stop) = shutdown();
    let runtime = |source| CliError::Runtime { source };
    let mut terminate = signal(SignalKind::terminate()).map_err(runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(runtime)?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => interrupted.store(true, Ordering::Relaxed),
        }
        tracing::info!("stopping");
        switch.stop();
        // a second signal exits at once
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
        ServiceArgs::check_paper(&kit, self.listen.as_ref())?;
        raise_file_limit();
        let passphrase = match &self.passphrase_file {
            Some(file) => key_file::read_passphrase(file)?,
            None if kit.needs_passphrase() => prompt("Passphrase of the decryption key: ")?,
            None => Default::default(),
        };
        let address = self.listen.clone().unwrap_or_else(|| kit.task_file().parties.key_generator.clone());
        runtime.block_on(async {
            let stop = on_signal()?;
            let store = SqliteStore::open(&self.data).await.map_err(Error::from)?;
            let (options, listener) = (self.common.options().await?, listen(&address).await?);
            Ok(key_generator::run(&kit, &passphrase, store, listener, options, stop).await?)
        })
    }
}

/// The opened storage of an aggregator.
enum Store {
    Directory(Box<SqliteStore>, PathBuf),
    #[cfg(feature = "postgres")]
    Database(Box<PgAddress>),
}

impl ServeAggregator {
    fn run(self) -> Result<(), CliError> {
        let storage = self.storage.storage()?;
        let (kit, runtime) = self.common.start()?;
        ServiceArgs::check_paper(&kit, self.listen.as_ref())?;
        raise_file_limit();
        let address = self.listen.clone().unwrap_or_else(|| kit.task_file().parties.aggregator.clone());
        runtime.block_on(async {
            let stop = on_signal()?;
            // opened first, because the directory may be in use by another process
            let store = match storage {
                Storage::Directory(data) => {
                    Store::Directory(Box::new(SqliteStore::open(&data).await.map_err(Error::from)?), data)
                }
                #[cfg(not(feature = "postgres"))]
                Storage::Database(_) => return Err(NO_DATABASE),
                #[cfg(feature = "postgres")]
                Storage::Database(database) => {
                    let lease = std::time::Duration::from_millis(self.lease.0);
                    let address = database.address(kit.roster(), lease)?;
                    Store::Database(Box::new(address))
                }
            };
            let (mut options, listener) = (self.common.options().await?, listen(&address).await?);
            if let Some(directory) = &self.tensorboard {
                let output = |source| CliError::Output { path: directory.clone(), source };
                options.events = Some(EventFile::create(directory).map_err(output)?);
            }
            let (task_file, task) = (kit.task_file(), kit.roster().task().clone());
            let maker: Box<dyn ModelMaker> = match &self.held_out {
                None => model_maker(task_file, task)?,
                Some(file) => {
                    let maker = LinearModelMaker::new(task_file, task)?;
                    Box::new(maker.with_held_out_data(task_samples(&kit, file)?))
                }
            };
            match store {
                #[cfg(feature = "postgres")]
                Store::Database(address) => {
                    Ok(run_replica(&kit, &address, maker, options, listener, stop).await?)
                }
                Store::Directory(store, data) => {
                    let service = AggregatorService::start(&kit, *store, &data, maker, options).await?;
                    Ok(service.run(listener, stop).await?)
                }
            }
        })
    }
}
