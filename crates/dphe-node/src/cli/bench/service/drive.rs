//! One run: services are started, the crowd uploads round after round, and what it took is added up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dphe::{Roster, Round};
use dphe_node::load::{Crowd, NuisanceCounts, Nuisances, Pace, Watcher, send};
use dphe_node::store::postgres::{PgAddress, PgStore};
use tokio::time::{sleep, timeout};

use super::Service;
use super::figures::{ProcessFigures, Sampler, Watched};
use super::setting::Setting;
use crate::cli::CliError;
use crate::cli::place::Place;
use crate::cli::processes::{Party, stopped};

/// How long anything may take before the run is given up.
const PATIENCE: Duration = Duration::from_secs(900);
/// How long slow and silent connections are waited for.
const SETTLE: Duration = Duration::from_secs(60);
/// How often it is looked whether services are still there.
const TICK: Duration = Duration::from_millis(100);

/// What came of a run.
pub(super) struct Run {
    /// Of the task's tables at the end, where there is a database.
    pub(super) database_bytes: Option<u64>,
    pub(super) users: u32,
    pub(super) kits_s: f64,
    pub(super) seal_s: f64,
    pub(super) load: Load,
    pub(super) processes: Vec<ProcessFigures>,
    pub(super) ciphertexts: u32,
    pub(super) body_bytes: usize,
}

/// The rounds of a run, added up.
#[derive(Default)]
pub(super) struct Load {
    pub(super) acknowledged: usize,
    pub(super) counted: usize,
    pub(super) send_s: f64,
    /// All of them, sorted at the end.
    pub(super) latencies: Vec<f64>,
    pub(super) retries: BTreeMap<String, u64>,
    pub(super) duplicates: usize,
    pub(super) duplicates_acknowledged: usize,
    pub(super) duplicates_late: usize,
    /// One a round.
    pub(super) close_s: Vec<f64>,
    pub(super) nuisances: Option<NuisanceCounts>,
    pub(super) problems: Vec<String>,
}

impl Service {
    /// One run with this many users, in a folder that goes away.
    pub(super) fn run_with(&self, users: u32, stopped: &Arc<AtomicBool>) -> Result<Run, CliError> {
        let temporary = |source| CliError::Output { path: std::env::temp_dir(), source };
        let folder = tempfile::Builder::new().prefix("dphe-bench-").tempdir().map_err(temporary)?;
        let result = self.run_in(folder.path(), users, stopped);
        if result.is_err() && !stopped.load(Ordering::Relaxed) {
            // the logs tell why; what was sealed is only large
            let kept = folder.keep();
            let _ = std::fs::remove_file(kept.join("bodies.bin"));
            eprintln!("what the services said is in {}", kept.display());
        }
        result
    }

    fn run_in(&self, folder: &Path, users: u32, stopped: &Arc<AtomicBool>) -> Result<Run, CliError> {
        eprintln!("{users} users: making keys and certificates, sealing updates ...");
        let Setting { crowd, ports, kits_s, seal_s } = Setting::new(self, users, folder)?;
        eprintln!("{users} users: made in {kits_s:.1} s, sealed in {seal_s:.1} s; starting the services ...");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|source| CliError::Runtime { source })?;
        let mut services = self.start(folder, &ports)?;
        let addresses: Vec<String> = ports[1..].iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let watched: Vec<Watched> =
            services.iter().map(|party| Watched::new(party, data(folder, party.name()))).collect();
        let driven = runtime.block_on(async {
            let mut sampler = None;
            let load = tokio::select! {
                load = self.drive(&crowd, &addresses, || sampler = Some(Sampler::start(watched))) => load?,
                ended = look_after(&mut services, stopped) => return Err(ended),
            };
            Ok::<_, CliError>((load, sampler.map(Sampler::finish).unwrap_or_default()))
        });
        // also of a run that failed, nothing stays in the database
        drop(services);
        let cleaned = self.clean_up(crowd.roster(), &runtime);
        let ((load, processes), database_bytes) = (driven?, cleaned?);
        let (body_bytes, ciphertexts) = crowd.body_size().unwrap_or_default();
        Ok(Run { database_bytes, users, kits_s, seal_s, load, processes, ciphertexts, body_bytes })
    }

    /// What the task takes in the database, which is then as it was before.
    fn clean_up(&self, roster: &Roster, runtime: &tokio::runtime::Runtime) -> Result<Option<u64>, CliError> {
        let Some(url) = &self.database else { return Ok(None) };
        let bytes = runtime.block_on(async {
            let address = PgAddress::new(url, roster, Duration::from_secs(10))?;
            let store = PgStore::open(&address, roster).await?;
            let bytes = store.tally().disk_bytes().await?;
            store.remove(roster).await?;
            Ok::<_, dphe_node::Error>(bytes)
        })?;
        Ok(Some(bytes))
    }

    fn start(&self, folder: &Path, ports: &[u16]) -> Result<Vec<Party>, CliError> {
        let log = |name: &str| folder.join(format!("{name}.log"));
        let spawn = |name: &str, role: &str, more: &[String]| {
            let place = match &self.database {
                Some(url) if role == "aggregator" => Place::Database(url.clone()),
                _ => Place::Folder(data(folder, name)),
            };
            Party::spawn(name, &["serve", role], &folder.join("kits").join(role), &place, more, log(name))
        };
        let mut services = vec![spawn("key-generator", "key-generator", &[])?];
        for (at, port) in ports[1..].iter().enumerate() {
            let more = ["--listen".to_owned(), format!("127.0.0.1:{port}")];
            let name =
                if self.replicas == 1 { "aggregator".into() } else { format!("aggregator-{}", at + 1) };
            services.push(spawn(&name, "aggregator", &more)?);
        }
        Ok(services)
    }

    /// All rounds. `ready` is called when services are up and nobody has uploaded.
    async fn drive(
        &self,
        crowd: &Arc<Crowd>,
        addresses: &[String],
        ready: impl FnOnce(),
    ) -> Result<Load, CliError> {
        let mut load = Load::default();
        let mut watcher = Watcher::new(crowd, &addresses[0])?;
        let pace = Pace {
            rate: self.rate,
            in_flight: self.in_flight as usize,
            duplicates: self.duplicates,
            patience: PATIENCE,
        };
        let first = in_time(watcher.ticket(Round::FIRST)).await??;
        ready();
        let beside = self.beside(crowd.honest() as u32);
        let nuisances = Nuisances::start(crowd, addresses, &first, beside)?;
        nuisances.settle(SETTLE).await;
        let mut ticket = Arc::new(first);
        loop {
            let round = ticket.round();
            nuisances.begin(&ticket);
            // every round adds the same to a model that began with zeros
            let weights: Vec<f64> = crowd.weights().iter().map(|w| w * round.get() as f64).collect();
            let (of, users) = (Arc::clone(&ticket), crowd.honest());
            let end = tokio::spawn(async move {
                let end = watcher.end(&of, users, &weights).await;
                (watcher, end)
            });
            let sent = send(crowd, addresses, &ticket, pace).await?;
            let complete = sent.acknowledged == users;
            load.acknowledged += sent.acknowledged;
            load.send_s += sent.took.as_secs_f64();
            load.latencies.extend(&sent.latencies);
            for (code, count) in sent.retries {
                *load.retries.entry(code).or_default() += count;
            }
            load.duplicates += sent.duplicates;
            load.duplicates_acknowledged += sent.duplicates_acknowledged;
            load.duplicates_late += sent.duplicates_late;
            load.problems.extend(sent.problems);
            if !complete {
                // nobody will close the round
                end.abort();
                let acknowledged = sent.acknowledged;
                load.problems.push(format!("round {round}: {acknowledged} of {users} were acknowledged"));
                break;
            }
            let panicked =
                |_| CliError::Data { what: "a watcher panicked".into(), hint: "run it again".into() };
            let (listener, published) = in_time(end).await?.map_err(panicked)?;
            watcher = listener;
            let published = published?;
            load.close_s.push(published.heard.saturating_duration_since(sent.last.into_std()).as_secs_f64());
            load.counted += published.counted;
            load.problems.extend(published.problems);
            if round.get() >= self.rounds {
                break;
            }
            ticket = Arc::new(in_time(watcher.ticket(round.next())).await??);
        }
        load.nuisances = Some(nuisances.counts());
        load.latencies.sort_by(f64::total_cmp);
        Ok(load)
    }
}

fn data(folder: &Path, name: &str) -> PathBuf {
    folder.join("data").join(name)
}

async fn in_time<R>(work: impl Future<Output = R>) -> Result<R, CliError> {
    let begin = Instant::now();
    timeout(PATIENCE, work).await.map_err(|_| CliError::Data {
        what: format!("the services said nothing for {} s", begin.elapsed().as_secs()),
        hint: "their logs tell why; fewer --users, --slow or --idle".into(),
    })
}

/// Ends when a service does, or when somebody wants it all to end.
async fn look_after(services: &mut [Party], stop: &AtomicBool) -> CliError {
    loop {
        if stop.load(Ordering::Relaxed) {
            return stopped();
        }
        for service in &mut *services {
            match service.ended() {
                Ok(None) => {}
                Ok(Some(_)) => return service.failed(),
                Err(error) => return error,
            }
        }
        sleep(TICK).await;
    }
}
