//! The parties of the demo as child processes.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dphe::hazmat::{open_upload, paper_keys};
use dphe::party::log::Log;
use dphe::wire::{Signed, Upload};
use dphe::{PartyId, Profile, Round, UserId};
use dphe_service::kit::Kit;
use dphe_service::learning::LinearModelMaker;
use dphe_service::party::party_name;
use dphe_service::store::{Archive as _, LogStore as _, SqliteStore};
use dphe_service::verify::{Replay, replay_models};
use indicatif::{ProgressBar, ProgressStyle};

use super::ROUND_TIMEOUT;
use crate::args::Storage;
use crate::cli::CliError;
use crate::processes::{PartyProcess, stopped};

/// The interval at which progress is checked.
const TICK: Duration = Duration::from_millis(50);

/// The models and round records of the aggregator.
pub(super) struct Published {
    pub(super) models: Vec<Vec<u8>>,
    pub(super) records: Vec<serde_json::Value>,
    pub(super) uploads: Uploads,
}

/// The sealed updates of a round, as the aggregator holds them while it waits for the others.
#[derive(Default)]
pub(super) struct Uploads {
    pub(super) round: Option<Round>,
    /// The content of each user's upload, without the encryption to the aggregator.
    pub(super) by_user: Vec<Vec<u8>>,
}

/// Reads sealed updates from the aggregator's log, from which they are erased after each round.
struct Watcher {
    runtime: tokio::runtime::Runtime,
    kit: Kit,
    data: PathBuf,
    users: usize,
    uploads: Uploads,
}

impl Watcher {
    fn new(directory: &Path, users: usize) -> Result<Self, CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self {
            runtime: runtime.map_err(|source| CliError::Runtime { source })?,
            kit: Kit::read_with(&directory.join("kits/aggregator"), paper_keys())?,
            data: directory.join("data/aggregator"),
            users,
            uploads: Uploads::default(),
        })
    }

    /// Looks for the updates of all users. Does nothing once they are found.
    fn look(&mut self) {
        if self.uploads.by_user.len() < self.users
            && let Some(uploads) = self.collected()
            && uploads.by_user.len() == self.users
        {
            self.uploads = uploads;
        }
    }

    /// Returns the updates that the aggregator has collected, or `None` if its log cannot be read at the moment.
    fn collected(&self) -> Option<Uploads> {
        let log = self.runtime.block_on(async {
            let mut store = SqliteStore::open_read_only(&self.data).await.ok()?;
            store.load().await.ok()
        })?;
        let (roster, key) = (self.kit.roster(), self.kit.identity().ok()?.agreement_key());
        let recovered = Log::recover(PartyId::Aggregator, roster, &log).ok()?;
        let mut found = Vec::new();
        for record in recovered.records {
            // a record has a tag of one byte, and its messages follow their lengths of eight bytes
            let Some(Ok(upload)) = record.get(9..).map(|message| Signed::<Upload>::decode(message, roster))
            else {
                continue;
            };
            found.push((upload.from(), upload.round(), open_upload(&key, roster, &upload).ok()?));
        }
        found.sort_by_key(|(from, ..)| *from);
        let round = found.first().map(|(_, round, _)| *round);
        Some(Uploads { round, by_user: found.into_iter().map(|(.., content)| content).collect() })
    }
}

pub(super) struct Parties {
    directory: PathBuf,
    services: Vec<PartyProcess>,
    users: Vec<PartyProcess>,
    watcher: Option<Watcher>,
    observe: SocketAddr,
    rounds: u64,
    stopped: Arc<AtomicBool>,
}

impl Parties {
    /// Prepares parties from the kits in a directory. `port` is the port of the dashboard, and `stopped` is set when
    /// the demo should end.
    pub(super) fn new(directory: &Path, port: u16, stopped: &Arc<AtomicBool>) -> Self {
        Self {
            directory: directory.into(),
            services: Vec::new(),
            users: Vec::new(),
            watcher: None,
            observe: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            rounds: 0,
            stopped: stopped.clone(),
        }
    }

    /// Starts all parties.
    pub(super) fn start(self, users: usize, seed: u64, rounds: u64) -> Result<Self, CliError> {
        let mut parties = Self { rounds, ..self };
        let directory = parties.directory.clone();
        parties.watcher = Some(Watcher::new(&directory, users)?);
        let key_generator = parties.spawn(PartyId::KeyGenerator, &[])?;
        parties.services.push(key_generator);
        let aggregator = parties.spawn_aggregator()?;
        parties.services.push(aggregator);
        if let Some(address) = parties.page()? {
            // on its own line, because terminals break long addresses
            println!("dashboard of this run:\n  {address}");
        }
        for user in (1..).filter_map(UserId::new).take(users) {
            let features = directory.join(format!("user-{user}.npz")).display().to_string();
            let seed = seed.to_string();
            let mut more = vec!["--features".to_owned(), features, "--seed".to_owned(), seed];
            if user.get() == 1 {
                more.extend([
                    "--output".to_owned(),
                    directory.join("model.safetensors").display().to_string(),
                ]);
            }
            let user = parties.spawn(PartyId::User(user), &more)?;
            parties.users.push(user);
        }
        Ok(parties)
    }

    /// Runs the aggregator of a finished task until a signal comes, so that its dashboard can be seen. The port is the
    /// one of the training, so that an open page goes on.
    pub(super) fn keep(
        directory: &Path,
        profile: Profile,
        port: u16,
        stopped: Arc<AtomicBool>,
    ) -> Result<(), CliError> {
        let parties = Self::new(directory, port, &stopped);
        let mut aggregator = parties.spawn_aggregator()?;
        if let Some(address) = parties.page()? {
            println!("\nThe dashboard of {profile} runs until you press Ctrl-C:\n  {address}");
        }
        while !parties.stopped.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
            if aggregator.ended()?.is_some() {
                return Err(aggregator.failed());
            }
        }
        Ok(())
    }

    fn spawn_aggregator(&self) -> Result<PartyProcess, CliError> {
        let held_out = self.directory.join("held-out.npz").display().to_string();
        let more = ["--observe".to_owned(), self.observe.to_string(), "--held-out".to_owned(), held_out];
        self.spawn(PartyId::Aggregator, &more)
    }

    /// Returns the address of the dashboard. Browsers do not send the part after `#` to any server.
    fn page(&self) -> Result<Option<String>, CliError> {
        let token =
            Kit::read_with(&self.directory.join("kits/aggregator"), paper_keys())?.dashboard_token()?;
        Ok(token.map(|token| format!("http://{}/#token={}", self.observe, *token)))
    }

    fn spawn(&self, party: PartyId, more: &[String]) -> Result<PartyProcess, CliError> {
        let name = &party_name(party);
        let (kit, data) = (self.directory.join("kits").join(name), self.directory.join("data").join(name));
        let log = self.directory.join(format!("{name}.log"));
        let more = [more, &["--threads".to_owned(), "1".to_owned()]].concat();
        PartyProcess::spawn(name, party, &kit, &Storage::Directory(data), &more, log)
    }

    /// Waits until all users have finished, then stops the services.
    pub(super) fn finish(mut self) -> Result<Published, CliError> {
        let bar = progress(self.rounds);
        let mut watcher = self.watcher.take();
        let (mut progressed, mut published) = (Instant::now(), 0);
        let mut waiting: Vec<PartyProcess> = std::mem::take(&mut self.users);
        while !waiting.is_empty() {
            std::thread::sleep(TICK);
            if self.stopped.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            if let Some(watcher) = &mut watcher {
                watcher.look();
            }
            let metrics = self.metrics();
            let now = metric(&metrics, "dphe_rounds_total{ending=\"published\"}").unwrap_or(0.0) as u64;
            if now > published {
                (progressed, published) = (Instant::now(), now);
            }
            bar.set_position(published.min(self.rounds));
            if let Some(accuracy) = metric(&metrics, "dphe_accuracy") {
                bar.set_message(format!("together {:.1} %", 100.0 * accuracy));
            }
            // a signal may have reached the parties, too
            let failed = |party: &PartyProcess| match self.stopped.load(Ordering::Relaxed) {
                true => stopped(),
                false => party.failed(),
            };
            for service in &mut self.services {
                if service.ended()?.is_some() {
                    return Err(failed(service));
                }
            }
            let mut still = Vec::new();
            for mut user in waiting {
                match user.ended()? {
                    None => still.push(user),
                    Some(true) => {}
                    Some(false) => return Err(failed(&user)),
                }
            }
            waiting = still;
            if progressed.elapsed() > ROUND_TIMEOUT {
                let what = "a round took longer than five minutes".to_owned();
                let hint = format!("See the logs in {}, or use `--bits 2048`.", self.directory.display());
                return Err(CliError::Data { what, hint });
            }
        }
        bar.finish_and_clear();
        // the data directory is unlocked when its process has ended
        for service in &mut self.services {
            service.stop();
        }
        self.read(watcher.map(|watcher| watcher.uploads).unwrap_or_default())
    }

    /// Reads the aggregator's archive.
    fn read(&self, uploads: Uploads) -> Result<Published, CliError> {
        let kit = Kit::read_with(&self.directory.join("kits/aggregator"), paper_keys())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| CliError::Runtime { source })?;
        let (messages, reports) = runtime.block_on(async {
            let mut store = SqliteStore::open_read_only(&self.directory.join("data/aggregator")).await?;
            Ok::<_, dphe_service::Error>((
                store.messages(Round::FIRST).await?,
                store.round_records(Round::FIRST).await?,
            ))
        })?;
        let mut maker = LinearModelMaker::new(kit.task_file(), kit.roster().task().clone())?;
        let key = kit.encryption_key()?;
        let replay = Replay { model: kit.initial_model()?, key, maker: &mut maker, users: Vec::new() };
        let models = replay_models(kit.rosters(), messages, replay)?;
        let records = reports.iter().map(|(_, json)| serde_json::from_str(json)).collect::<Result<_, _>>()?;
        Ok(Published { models, records, uploads })
    }

    /// Returns the aggregator's metrics, or nothing if they cannot be read.
    fn metrics(&self) -> String {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&self.observe, TICK)?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.take(1 << 20).read_to_string(&mut text)?;
            Ok(text)
        };
        ask().unwrap_or_default()
    }
}

/// Returns the value of a metric.
fn metric(metrics: &str, name: &str) -> Option<f64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    metrics.lines().find_map(value)
}

fn progress(rounds: u64) -> ProgressBar {
    let bar = ProgressBar::new(rounds);
    let template = "round {pos}/{len} [{bar:30}] {msg}  {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message("starting seven processes");
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
