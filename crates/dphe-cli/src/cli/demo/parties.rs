//! The parties of the demo as child processes.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dphe::hazmat::paper_keys;
use dphe::{PartyId, Profile, Round, UserId};
use dphe_service::kit::Kit;
use dphe_service::learning::LinearModelMaker;
use dphe_service::party::party_name;
use dphe_service::store::{Archive as _, SqliteStore};
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
}

pub(super) struct Parties {
    directory: PathBuf,
    services: Vec<PartyProcess>,
    users: Vec<PartyProcess>,
    observe: SocketAddr,
    rounds: u64,
    profile: Profile,
    stopped: Arc<AtomicBool>,
}

impl Parties {
    /// Prepares parties from the kits in a directory. `port` is the port of the dashboard, and `stopped` is set when
    /// the demo should end.
    pub(super) fn new(directory: &Path, profile: Profile, port: u16, stopped: &Arc<AtomicBool>) -> Self {
        Self {
            directory: directory.into(),
            services: Vec::new(),
            users: Vec::new(),
            observe: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            rounds: 0,
            profile,
            stopped: stopped.clone(),
        }
    }

    /// Starts all parties.
    pub(super) fn start(self, users: usize, seed: u64, rounds: u64) -> Result<Self, CliError> {
        let mut parties = Self { rounds, ..self };
        let directory = parties.directory.clone();
        let key_generator = parties.spawn(PartyId::KeyGenerator, &[])?;
        parties.services.push(key_generator);
        let aggregator = parties.spawn_aggregator()?;
        parties.services.push(aggregator);
        if let Some(address) = parties.page()? {
            // on its own line, because terminals break long addresses
            println!("{:>8}  dashboard:\n  {address}", parties.profile.as_str());
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
        let parties = Self::new(directory, profile, port, &stopped);
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
        let bar = progress(self.rounds, self.profile);
        let (mut progressed, mut published) = (Instant::now(), 0);
        let mut waiting: Vec<PartyProcess> = std::mem::take(&mut self.users);
        while !waiting.is_empty() {
            std::thread::sleep(TICK);
            if self.stopped.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            let now = self.published();
            if now > published {
                (progressed, published) = (Instant::now(), now);
            }
            bar.set_position(published.min(self.rounds));
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
        self.read()
    }

    /// Reads the aggregator's archive.
    fn read(&self) -> Result<Published, CliError> {
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
        Ok(Published { models, records })
    }

    /// Returns the number of published rounds from the aggregator's metrics, or 0 if they cannot be read.
    fn published(&self) -> u64 {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&self.observe, TICK)?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.take(1 << 20).read_to_string(&mut text)?;
            Ok(text)
        };
        let text = ask().unwrap_or_default();
        let mut lines = text.lines();
        lines
            .find_map(|line| line.strip_prefix("dphe_rounds_total{ending=\"published\"} "))
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0)
    }
}

fn progress(rounds: u64, profile: Profile) -> ProgressBar {
    let bar = ProgressBar::new(rounds);
    let template = "{prefix:>8}  round {pos}/{len} [{bar:30}] {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(profile.as_str());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
