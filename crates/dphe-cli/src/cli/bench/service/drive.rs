//! One run of a load: starts the services, uploads round after round, and adds up the measurements.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::load::{AbusiveClientCounts, AbusiveClients, LoadUsers, Pace, Poller, send};
use dphe::{PartyId, Roster, Round};
use dphe_service::party::party_name;
#[cfg(feature = "postgres")]
use dphe_service::store::postgres::{PgAddress, PgStore};
use tokio::time::{sleep, timeout};

use super::Service;
use super::resources::{ProcessUsage, Sampler, Target};
use super::setting::Setting;
#[cfg(not(feature = "postgres"))]
use crate::args::NO_DATABASE;
use crate::args::{Database, Storage};
use crate::cli::CliError;
use crate::processes::{PartyProcess, stopped};

/// How long one step may take before the run is aborted.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(900);
/// How long the run waits for abusive clients to connect.
const CONNECT_ALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval at which services are checked.
const TICK: Duration = Duration::from_millis(100);

/// The outcome of a run.
pub(super) struct Run {
    /// The size of the task's tables at the end, with a database.
    pub(super) database_bytes: Option<u64>,
    pub(super) users: u32,
    pub(super) kits_s: f64,
    pub(super) seal_s: f64,
    pub(super) load: Load,
    pub(super) processes: Vec<ProcessUsage>,
    pub(super) ciphertexts: u32,
    pub(super) body_bytes: usize,
}

/// The measurements of a run, over all rounds.
#[derive(Default)]
pub(super) struct Load {
    pub(super) acknowledged: usize,
    pub(super) counted: usize,
    pub(super) send_s: f64,
    /// The latencies of all uploads, sorted at the end.
    pub(super) latencies: Vec<f64>,
    pub(super) retries: BTreeMap<String, u64>,
    pub(super) duplicates: usize,
    pub(super) duplicates_acknowledged: usize,
    pub(super) duplicates_late: usize,
    /// One value per round.
    pub(super) close_s: Vec<f64>,
    pub(super) abusive_clients: Option<AbusiveClientCounts>,
    pub(super) problems: Vec<String>,
}

impl Service {
    /// Runs the load with this many users in a temporary directory.
    pub(super) fn run_with(&self, users: u32, stopped: &Arc<AtomicBool>) -> Result<Run, CliError> {
        let temporary = |source| CliError::Output { path: std::env::temp_dir(), source };
        let directory = tempfile::Builder::new().prefix("dphe-bench-").tempdir().map_err(temporary)?;
        let result = self.run_in(directory.path(), users, stopped);
        if result.is_err() && !stopped.load(Ordering::Relaxed) {
            // keep the logs, but not the large file of sealed updates
            let kept = directory.keep();
            let _ = std::fs::remove_file(kept.join("bodies.bin"));
            eprintln!("the logs of the services are in {}", kept.display());
        }
        result
    }

    fn run_in(&self, directory: &Path, users: u32, stopped: &Arc<AtomicBool>) -> Result<Run, CliError> {
        eprintln!("{users} users: creating keys, sealing updates ...");
        let Setting { load_users, ports, kits_s, seal_s } = Setting::new(self, users, directory)?;
        eprintln!("{users} users: keys took {kits_s:.1} s, sealing {seal_s:.1} s; starting the services ...");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|source| CliError::Runtime { source })?;
        let mut services = self.start(directory, &ports)?;
        let addresses: Vec<String> = ports[1..].iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let targets: Vec<Target> =
            services.iter().map(|party| Target::new(party, data(directory, party.name()))).collect();
        let driven = runtime.block_on(async {
            let mut sampler = None;
            let load = tokio::select! {
                load = self.drive(&load_users, &addresses, || sampler = Some(Sampler::start(targets))) => load?,
                ended = look_after(&mut services, stopped) => return Err(ended),
            };
            Ok::<_, CliError>((load, sampler.map(Sampler::finish).unwrap_or_default()))
        });
        // clean the database up even if the run failed
        drop(services);
        let cleaned = self.clean_up(load_users.roster(), &runtime);
        let ((load, processes), database_bytes) = (driven?, cleaned?);
        let (body_bytes, ciphertexts) = load_users.body_size().unwrap_or_default();
        Ok(Run { database_bytes, users, kits_s, seal_s, load, processes, ciphertexts, body_bytes })
    }

    #[cfg(not(feature = "postgres"))]
    fn clean_up(&self, _: &Roster, _: &tokio::runtime::Runtime) -> Result<Option<u64>, CliError> {
        self.database.as_ref().map_or(Ok(None), |_| Err(NO_DATABASE))
    }

    /// Returns the size of the task in the database, and removes the task.
    #[cfg(feature = "postgres")]
    fn clean_up(&self, roster: &Roster, runtime: &tokio::runtime::Runtime) -> Result<Option<u64>, CliError> {
        let Some(url) = &self.database else { return Ok(None) };
        let bytes = runtime.block_on(async {
            let address = PgAddress::new(url, roster, Duration::from_secs(10))?;
            let store = PgStore::open(&address, roster).await?;
            let bytes = store.round_store().disk_bytes().await?;
            store.remove(roster).await?;
            Ok::<_, dphe_service::Error>(bytes)
        })?;
        Ok(Some(bytes))
    }

    fn start(&self, directory: &Path, ports: &[u16]) -> Result<Vec<PartyProcess>, CliError> {
        let log = |name: &str| directory.join(format!("{name}.log"));
        let spawn = |name: &str, party: PartyId, more: &[String]| {
            let storage = match &self.database {
                Some(url) if party == PartyId::Aggregator => {
                    Storage::Database(Database { url: url.clone(), insecure: false })
                }
                _ => Storage::Directory(data(directory, name)),
            };
            let kit = directory.join("kits").join(party_name(party));
            PartyProcess::spawn(name, party, &kit, &storage, more, log(name))
        };
        let mut services = vec![spawn(&party_name(PartyId::KeyGenerator), PartyId::KeyGenerator, &[])?];
        for (at, port) in ports[1..].iter().enumerate() {
            let more = ["--listen".to_owned(), format!("127.0.0.1:{port}")];
            let party = PartyId::Aggregator;
            let name = party_name(party);
            let name = if self.replicas == 1 { name } else { format!("{name}-{}", at + 1) };
            services.push(spawn(&name, party, &more)?);
        }
        Ok(services)
    }

    /// Runs all rounds. `ready` is called when the services have started, before the first upload.
    async fn drive(
        &self,
        load_users: &Arc<LoadUsers>,
        addresses: &[String],
        ready: impl FnOnce(),
    ) -> Result<Load, CliError> {
        let mut load = Load::default();
        let mut poller = Poller::new(load_users, &addresses[0])?;
        let pace = Pace {
            rate: self.rate,
            in_flight: self.in_flight as usize,
            duplicates: self.duplicates,
            timeout_after: SERVICE_TIMEOUT,
        };
        let first = in_time(poller.ticket(Round::FIRST)).await??;
        ready();
        let plan = self.abusive_clients(load_users.honest() as u32);
        let abusive_clients = AbusiveClients::start(load_users, addresses, &first, plan)?;
        abusive_clients.wait_until_connected(CONNECT_ALL_TIMEOUT).await;
        let mut ticket = Arc::new(first);
        loop {
            let round = ticket.round();
            abusive_clients.begin(&ticket);
            // every round adds the same update to a model that started at zero
            let weights: Vec<f64> = load_users.weights().iter().map(|w| w * round.get() as f64).collect();
            let (of, users) = (Arc::clone(&ticket), load_users.honest());
            let end = tokio::spawn(async move {
                let end = poller.end(&of, users, &weights).await;
                (poller, end)
            });
            let sent = send(load_users, addresses, &ticket, pace).await?;
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
                // the round will not end
                end.abort();
                let acknowledged = sent.acknowledged;
                load.problems.push(format!("round {round}: {acknowledged} of {users} were acknowledged"));
                break;
            }
            let panicked = |_| CliError::Data {
                what: "the poller panicked".into(),
                hint: "Run the command again.".into(),
            };
            let (listener, published) = in_time(end).await?.map_err(panicked)?;
            poller = listener;
            let published = published?;
            load.close_s.push(published.heard.saturating_duration_since(sent.last.into_std()).as_secs_f64());
            load.counted += published.counted;
            load.problems.extend(published.problems);
            if round.get() >= self.rounds {
                break;
            }
            ticket = Arc::new(in_time(poller.ticket(round.next())).await??);
        }
        load.abusive_clients = Some(abusive_clients.counts());
        load.latencies.sort_by(f64::total_cmp);
        Ok(load)
    }
}

fn data(directory: &Path, name: &str) -> PathBuf {
    directory.join("data").join(name)
}

async fn in_time<R>(work: impl Future<Output = R>) -> Result<R, CliError> {
    let begin = Instant::now();
    timeout(SERVICE_TIMEOUT, work).await.map_err(|_| CliError::Data {
        what: format!("the services did not answer for {} s", begin.elapsed().as_secs()),
        hint: "See their logs, and use fewer `--users`, `--slow` or `--idle`.".into(),
    })
}

/// Returns when a service ends or when this process is told to stop.
async fn look_after(services: &mut [PartyProcess], stop: &AtomicBool) -> CliError {
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
