//! The parties of the demo: processes of this program, watched until they have done their part.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dphe::message::{Message as _, Publish, Signed};
use dphe::{Profile, Round};
use dphe_node::kit::Kit;
use dphe_node::store::{Archive as _, SqliteStore};
use indicatif::{ProgressBar, ProgressStyle};

use super::PATIENCE;
use crate::cli::CliError;
use crate::cli::place::Place;
use crate::cli::processes::{Party, free_ports, stopped, stopped_by_signal};

/// How often progress is looked at.
const TICK: Duration = Duration::from_millis(50);

/// What the aggregator published and wrote down, round after round.
pub(super) struct Published {
    pub(super) models: Vec<Vec<u8>>,
    pub(super) records: Vec<serde_json::Value>,
}

pub(super) struct Parties {
    folder: PathBuf,
    services: Vec<Party>,
    users: Vec<Party>,
    observe: SocketAddr,
    rounds: u64,
    profile: Profile,
    stopped: Arc<AtomicBool>,
}

impl Parties {
    /// Starts everybody from the kits in a folder.
    pub(super) fn start(
        folder: &Path,
        users: usize,
        seed: u64,
        rounds: u64,
        profile: Profile,
        port: u16,
    ) -> Result<Self, CliError> {
        let stopped = stopped_by_signal()?;
        let observe = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut parties = Self {
            folder: folder.into(),
            services: Vec::new(),
            users: Vec::new(),
            observe,
            rounds,
            profile,
            stopped,
        };
        let key_generator = parties.spawn("key-generator", &["serve", "key-generator"], &[])?;
        parties.services.push(key_generator);
        let aggregator = parties.spawn_aggregator()?;
        parties.services.push(aggregator);
        if let Some(address) = parties.page()? {
            println!("{:>8}  watch it at {address}", profile.name());
        }
        for user in 1..=users {
            let features = folder.join(format!("user-{user}.npz")).display().to_string();
            let seed = seed.to_string();
            let mut more = vec!["--features".to_owned(), features, "--seed".to_owned(), seed];
            if user == 1 {
                more.extend(["--output".to_owned(), folder.join("model.safetensors").display().to_string()]);
            }
            let user = parties.spawn(&format!("user-{user}"), &["join"], &more)?;
            parties.users.push(user);
        }
        Ok(parties)
    }

    /// Starts the aggregator of a task that is over, so that its page can be looked at, until a signal comes.
    pub(super) fn keep(folder: &Path, profile: Profile) -> Result<(), CliError> {
        let observe = SocketAddr::from((Ipv4Addr::LOCALHOST, free_ports(1)?[0]));
        let stopped = stopped_by_signal()?;
        let (folder, services, users) = (folder.into(), Vec::new(), Vec::new());
        let parties = Self { folder, services, users, observe, rounds: 0, profile, stopped };
        let mut aggregator = parties.spawn_aggregator()?;
        if let Some(address) = parties.page()? {
            println!("\nthe page of {profile} is up until you press Ctrl-C:\n  {address}");
        }
        while !parties.stopped.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
            if aggregator.ended()?.is_some() {
                return Err(aggregator.failed());
            }
        }
        Ok(())
    }

    fn spawn_aggregator(&self) -> Result<Party, CliError> {
        let held_out = self.folder.join("held-out.npz").display().to_string();
        let more = ["--observe".to_owned(), self.observe.to_string(), "--held-out".to_owned(), held_out];
        self.spawn("aggregator", &["serve", "aggregator"], &more)
    }

    /// Where to watch; browsers tell nobody what stands behind the #.
    fn page(&self) -> Result<Option<String>, CliError> {
        let token = Kit::read(&self.folder.join("kits/aggregator"))?.watch_token()?;
        Ok(token.map(|token| format!("http://{}/#token={}", self.observe, *token)))
    }

    fn spawn(&self, name: &str, command: &[&str], more: &[String]) -> Result<Party, CliError> {
        let (kit, data) = (self.folder.join("kits").join(name), self.folder.join("data").join(name));
        let log = self.folder.join(format!("{name}.log"));
        let more = [more, &["--threads".to_owned(), "1".to_owned()]].concat();
        Party::spawn(name, command, &kit, &Place::Folder(data), &more, log)
    }

    /// Waits until all users have heard of the last round, then lets the services end.
    pub(super) fn finish(mut self) -> Result<Published, CliError> {
        let bar = progress(self.rounds, self.profile);
        let (mut progressed, mut published) = (Instant::now(), 0);
        let mut waiting: Vec<Party> = std::mem::take(&mut self.users);
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
            for service in &mut self.services {
                if service.ended()?.is_some() {
                    return Err(service.failed());
                }
            }
            let mut still = Vec::new();
            for mut user in waiting {
                match user.ended()? {
                    None => still.push(user),
                    Some(true) => {}
                    Some(false) => return Err(user.failed()),
                }
            }
            waiting = still;
            if progressed.elapsed() > PATIENCE {
                let what = "a round takes longer than five minutes".to_owned();
                let hint =
                    format!("the logs in {} tell why; fewer --rounds or --bits 2048", self.folder.display());
                return Err(CliError::Data { what, hint });
            }
        }
        bar.finish_and_clear();
        // the data folder is free once its process is gone
        for service in &mut self.services {
            service.stop();
        }
        self.read()
    }

    /// What is in the aggregator's archive.
    fn read(&self) -> Result<Published, CliError> {
        let kit = Kit::read(&self.folder.join("kits/aggregator"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| CliError::Runtime { source })?;
        let (messages, reports) = runtime.block_on(async {
            let mut store = SqliteStore::open_read_only(&self.folder.join("data/aggregator")).await?;
            Ok::<_, dphe_node::Error>((
                store.messages(Round::FIRST).await?,
                store.reports(Round::FIRST).await?,
            ))
        })?;
        let mut models = Vec::new();
        for (_, kind, message) in messages {
            if kind == Publish::KIND {
                let publish: Signed<Publish> = Signed::decode(&message, kit.roster())?;
                models.push(publish.body().to_vec());
            }
        }
        let records = reports.iter().map(|(_, json)| serde_json::from_str(json)).collect::<Result<_, _>>()?;
        Ok(Published { models, records })
    }

    /// Rounds that the aggregator says it published; what cannot be read counts as none.
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
    bar.set_prefix(profile.name());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
