//! A replica: one of several aggregators of a task that share a database. Every replica serves users and accepts
//! uploads. The leader also runs the party and publishes snapshots for the others. A leader that loses contact with
//! the database becomes a follower.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dphe::party::{AggregatorParty, EndedRound, Intake, Time};
use dphe::wire::{Rosters, RoundTicket, Signed};
use dphe::{AggregatorKeys, Digest, Round};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::super::chunks::UploadChunks;
use super::super::dashboard::Dashboard;
use super::super::{BoxFuture, ServiceOptions};
use super::actor::{AggregatorActor, SharedRound, last_records};
use super::past_rounds::{PastRounds, Source};
use super::upload_batcher::UploadBatcher;
use super::{AggregatorStatus, Endpoint, Snapshot};
use crate::Error;
use crate::http::server::Shutdown;
use crate::kit::{Kit, Start};
use crate::learning::{ModelMaker, SharedMaker};
use crate::store::postgres::{LeaderLease, PgAddress, PgStore, RoundStore, SnapshotRow};
use crate::store::{AnyStore, StoreError};
use crate::telemetry::Metrics;
use crate::tensorboard::EventFile;

/// How often a replica reads the snapshot from the database.
const SNAPSHOT_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often a follower tries to become the leader.
const LEASE_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a replica until `shutdown`.
///
/// # Errors
/// If the database cannot be used at the start. Later failures are retried.
pub async fn run_replica(
    kit: &Kit,
    address: &PgAddress,
    maker: impl ModelMaker,
    options: ServiceOptions,
    listener: TcpListener,
    shutdown: Shutdown,
) -> Result<(), Error> {
    let maker: SharedMaker = Arc::new(Mutex::new(Box::new(maker)));
    run_boxed(kit, address, maker, options, listener, shutdown).await
}

fn run_boxed<'a>(
    kit: &'a Kit,
    address: &'a PgAddress,
    maker: SharedMaker,
    options: ServiceOptions,
    listener: TcpListener,
    shutdown: Shutdown,
) -> BoxFuture<'a, Result<(), Error>> {
    Box::pin(run_until(kit, address, maker, options, listener, shutdown))
}

async fn run_until(
    kit: &Kit,
    address: &PgAddress,
    maker: SharedMaker,
    mut options: ServiceOptions,
    listener: TcpListener,
    shutdown: Shutdown,
) -> Result<(), Error> {
    let (roster, metrics) = (kit.roster().clone(), options.metrics.clone());
    let mut store = PgStore::open(address, kit.rosters()).await?;
    let round_store = store.round_store();
    let keys = stored_keys(kit, &mut store, &options).await?;
    let intake = Intake::new(keys, kit.identities()?, kit.rosters().clone(), options.threads)?;
    let endpoint = Endpoint::new(kit)?;
    let (published, snapshot) = watch::channel(Arc::new(Snapshot::default()));
    let (sender, uploads) = mpsc::channel(1024);
    let limit = roster.task().max_users();
    let batcher = UploadBatcher {
        round_store: round_store.clone(),
        intake: Arc::new(intake),
        max_users: (roster.users().len() > limit).then_some(limit),
        threads: options.threads,
        snapshot: snapshot.clone(),
        metrics: metrics.clone(),
        round: Arc::default(),
    };
    batcher.start(uploads);
    let reader =
        follow_snapshot(store.clone(), kit.rosters().clone(), published, metrics.clone(), address.lease());
    let reader = tokio::spawn(reader);
    let (dashboard, key_generator) =
        (Dashboard::new(kit, metrics.clone())?, endpoint.key_generator.new_connection());
    let chunks = UploadChunks::Database(Box::new(round_store.clone()));
    let past = PastRounds::new(Source::Database(Box::new(store.clone())));
    let server =
        endpoint.serve(listener, dashboard, snapshot, sender, (chunks, past), &mut options, &shutdown);
    let server = tokio::spawn(server);
    tracing::info!("the aggregator replica is ready");
    let events = Arc::new(Mutex::new(options.events.take()));
    let mut stop = shutdown.clone();
    let result = loop {
        let lease = tokio::select! {
            () = stop.wait() => break Ok(()),
            lease = acquire_lease(address, kit.rosters()) => match lease {
                Ok(lease) => lease,
                // nobody else can run this replica with the latest roster
                Err(error) => break Err(error.into()),
            },
        };
        tracing::info!(epoch = lease.fencing_token().epoch, "this replica is the leader");
        metrics.leads.set(1);
        let led = store.with_lease(&lease);
        let shared = SharedRound::new(led.round_store(), options.threads);
        let (client, events) = (key_generator.new_connection(), events.clone());
        let ended = tokio::select! {
            () = lease.lost() => Err(StoreError::LeaseLost.into()),
            ended = run_leader(kit, led.clone(), shared, maker.clone(), events, &options, client, &shutdown) => ended,
        };
        metrics.leads.set(0);
        metrics.suspects.set(0);
        // only the leader knows the phase
        metrics.set_phase(None);
        match ended {
            Ok(()) => break Ok(()),
            // it is unknown whether the last write succeeded; the next leader recovers from the log
            Err(Error::Store(error)) => {
                tracing::warn!(%error, "this replica is a follower now");
            }
            Err(error) => match led.check_lease().await {
                Ok(()) => break Err(error),
                // the error may come from data that a new leader wrote
                Err(lost) => tracing::warn!(%error, %lost, "this replica is a follower now"),
            },
        }
        tokio::time::sleep(LEASE_RETRY_INTERVAL).await;
    };
    metrics.ready.set(0);
    reader.abort();
    if result.is_ok() {
        let _ = server.await;
    } else {
        server.abort();
    }
    result
}

/// Returns the aggregator's keys. The first replica that starts moves the seeds into the database. Every replica
/// removes them from its own copy of the kit.
async fn stored_keys(
    kit: &Kit,
    store: &mut PgStore,
    options: &ServiceOptions,
) -> Result<AggregatorKeys, Error> {
    let start = Start::new(kit, store, options.roster.as_ref()).await?;
    let keys = start.aggregator_keys()?;
    // the party itself is started by the leader
    start.party::<AggregatorParty, _>(keys.clone(), store, options.threads, Time(0)).await?;
    Ok(keys)
}

/// Waits until this replica is the leader.
///
/// # Errors
/// [`StoreError::OtherRoster`] if the database has moved on to a roster that this replica does not have.
async fn acquire_lease(address: &PgAddress, rosters: &Rosters) -> Result<LeaderLease, StoreError> {
    let mut silent = false;
    loop {
        match LeaderLease::try_acquire(address, rosters).await {
            Ok(Some(lease)) => return Ok(lease),
            Err(error @ StoreError::OtherRoster { .. }) => return Err(error),
            Ok(None) => silent = false,
            Err(error) => {
                if !std::mem::replace(&mut silent, true) {
                    tracing::warn!(%error, "the database does not answer");
                }
            }
        }
        tokio::time::sleep(LEASE_RETRY_INTERVAL).await;
    }
}

/// Runs the party until the store fails.
#[allow(clippy::too_many_arguments, reason = "the parts of a party")]
async fn run_leader(
    kit: &Kit,
    store: PgStore,
    shared: SharedRound,
    maker: SharedMaker,
    events: Arc<Mutex<Option<EventFile>>>,
    options: &ServiceOptions,
    key_generator: crate::http::client::Client,
    shutdown: &Shutdown,
) -> Result<(), Error> {
    let (mut actor, commands) =
        AggregatorActor::start(kit, AnyStore::new(store), Some(shared), maker, events, options).await?;
    let outbox = tokio::spawn(actor.outbox.clone().run(key_generator, actor.commands.clone()));
    // stops the outbox when this future is dropped
    let _outbox = AbortOnDrop(outbox);
    // uploads reach the database through the `UploadBatcher`
    let (_sender, uploads) = mpsc::channel(1);
    actor.run(commands, uploads, None, shutdown.clone()).await
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps the snapshot of this replica up to date.
async fn follow_snapshot(
    mut store: PgStore,
    rosters: Rosters,
    published: watch::Sender<Arc<Snapshot>>,
    metrics: Arc<Metrics>,
    lease: Duration,
) {
    let (round_store, mut known, mut silent, mut last_contact) =
        (store.round_store(), (0, 0), false, Instant::now());
    loop {
        let reading =
            tokio::time::timeout(lease, read_snapshot(&mut store, &round_store, &rosters, known, &published));
        let result = reading.await.unwrap_or(Err(StoreError::Timeout { after: lease }.into()));
        match result {
            Ok(now) => {
                (known, last_contact) = (now, Instant::now());
                silent = false;
                metrics.ready.set(1);
            }
            Err(error) => {
                metrics.ready.set(0);
                if last_contact.elapsed() > lease && !published.borrow().stale {
                    let snapshot = Snapshot { stale: true, ..(**published.borrow()).clone() };
                    published.send_replace(Arc::new(snapshot));
                    // the whole snapshot is read again when the database answers
                    known = (0, 0);
                }
                if !std::mem::replace(&mut silent, true) {
                    tracing::warn!(%error, "the snapshot cannot be read");
                }
            }
        }
        tokio::time::sleep(SNAPSHOT_POLL_INTERVAL).await;
    }
}

async fn read_snapshot(
    store: &mut PgStore,
    round_store: &RoundStore,
    rosters: &Rosters,
    known: (i64, i64),
    published: &watch::Sender<Arc<Snapshot>>,
) -> Result<(i64, i64), Error> {
    let Some((version, status, row)) = round_store.snapshot(known).await? else { return Ok(known) };
    let damaged = |_| Error::Unexpected { what: "the snapshot in the database is invalid" };
    let status: AggregatorStatus = serde_json::from_str(&status).map_err(damaged)?;
    let old = published.borrow().clone();
    let snapshot = match row {
        None => Snapshot { status, stale: false, ..(*old).clone() },
        Some(row) => {
            let records = last_records(store, Round::new(status.round).unwrap_or(Round::FIRST)).await?;
            Snapshot { records: Arc::new(records), ..snapshot_of(row, status, rosters)? }
        }
    };
    published.send_replace(Arc::new(snapshot));
    Ok(version)
}

fn snapshot_of(row: SnapshotRow, status: AggregatorStatus, rosters: &Rosters) -> Result<Snapshot, Error> {
    let SnapshotRow { ended, ticket, model, .. } = row;
    let mut snapshot = Snapshot { status, ..Snapshot::default() };
    snapshot.ended =
        ended.map(|(_, bytes)| EndedRound::from_bytes(&bytes, rosters)).transpose()?.map(Arc::new);
    if let Some(ticket) = ticket {
        let hash = Signed::<RoundTicket>::decode(&ticket, rosters.latest())?.hash();
        snapshot.ticket = Some((hash, ticket.into()));
    }
    snapshot.model = model.map(|model| (Digest::of_model(&model), model.into()));
    Ok(snapshot)
}
