//! The service of the aggregator. It collects uploads, has sums opened by the key generator, and publishes models.
//!
//! | module | content |
//! | --- | --- |
//! | `handlers` | HTTP: polls, uploads, models, status |
//! | `replies` | uploads that wait for their answers |
//! | `actor` | runs the party |
//! | `replica`, `upload_batcher` | several aggregators that share a database, and their uploads |
//! | `record` | records of rounds |
//! | `spoilers` | whom to ask for uploads after rounds that were spoiled |

mod actor;
mod handlers;
mod past_rounds;
mod record;
#[cfg(feature = "postgres")]
mod replica;
mod replies;
mod spoilers;
#[cfg(feature = "postgres")]
mod upload_batcher;

pub use record::RoundRecord;
#[cfg(feature = "postgres")]
pub use replica::run_replica;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actor::AggregatorActor;
use bytes::Bytes;
use dphe::party::{AggregatorPhase, EndedRound, IdentityKeys};
use dphe::wire::{Kind, Rosters};
use dphe::{Digest, PartyId, Roster, Round, UserId};
use past_rounds::{PastRounds, Source};
use replies::PendingUpload;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::chunks::{ChunkFiles, UploadChunks};
use super::dashboard::{Dashboard, DashboardServer};
use super::{BoxFuture, ServiceOptions, start_observing};
use crate::Error;
use crate::http::client::Client;
use crate::http::problem::Problem;
use crate::http::server::{BodyMemory, PartyPermits, Shutdown, serve_tls};
use crate::kit::Kit;
use crate::learning::{ModelMaker, SharedMaker};
use crate::store::{AnyStore, Archive, LogStore, StoreError};
use crate::tls::ServerTls;

/// The published state of a task, which handlers answer from.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The last round that ended.
    pub ended: Option<Arc<EndedRound>>,
    /// The hash of the current round's ticket, and the ticket.
    pub ticket: Option<(Digest, Bytes)>,
    /// The model that the current round starts from, with its digest.
    pub model: Option<(Digest, Bytes)>,
    /// The status.
    pub status: AggregatorStatus,
    /// The records of the last rounds.
    pub records: Arc<Vec<RoundRecord>>,
    /// True if this snapshot may be out of date because the database is unreachable.
    pub stale: bool,
}

/// The status of an aggregator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AggregatorStatus {
    /// `aggregator`.
    pub party: String,
    /// The identifier of the task.
    pub task: String,
    /// The current round, or the next one.
    pub round: u64,
    /// The number of rounds of the task. Rounds that were aborted do not count.
    pub rounds: u64,
    /// The number of rounds that were aborted.
    #[serde(default)]
    pub aborted: u64,
    /// The phase of the round. A replica that has not read the snapshot yet does not know it.
    #[serde(with = "crate::names::or_empty")]
    pub phase: Option<AggregatorPhase>,
    /// The users whose uploads are accepted.
    pub collected: Vec<u32>,
    /// While the round collects uploads, the users whose upload is missing.
    #[serde(default)]
    pub missing: Vec<u32>,
    /// The users who are asked for an upload in this round. Absent if all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Vec<u32>>,
    /// The users under suspicion of spoiling rounds.
    #[serde(default)]
    pub suspects: Vec<u32>,
    /// True if the aggregator asks fewer users, to find out who spoils rounds.
    #[serde(default)]
    pub searching: bool,
    /// The number of users in the roster.
    pub users: usize,
    /// True if all rounds are over.
    pub over: bool,
    /// The history of the task before the round, if a ticket or the end of a round has been received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
}

/// Says in words what an aggregator does in a phase.
pub fn phase_label(phase: AggregatorPhase) -> &'static str {
    match phase {
        AggregatorPhase::Idle => "waiting",
        AggregatorPhase::Announced => "requesting a ticket",
        AggregatorPhase::Collecting => "collecting updates",
        AggregatorPhase::Frozen => "freezing the participants",
        AggregatorPhase::Requested => "waiting for the sum",
        AggregatorPhase::Received => "computing the model",
    }
}

impl AggregatorStatus {
    /// Returns whether a user is asked for an upload in this round.
    fn asks(&self, user: UserId) -> bool {
        self.asked.as_ref().is_none_or(|asked| asked.binary_search(&user.get()).is_ok())
    }

    /// Returns the users whose upload is missing, while the round collects uploads.
    pub(crate) fn missing_of(&self, users: impl Iterator<Item = UserId>) -> Vec<u32> {
        if self.phase != Some(AggregatorPhase::Collecting) {
            return Vec::new();
        }
        let collected: HashSet<u32> = self.collected.iter().copied().collect();
        let asked = users.filter(|&user| self.asks(user)).map(UserId::get);
        asked.filter(|user| !collected.contains(user)).collect()
    }

    /// Returns what waiting users are woken for; a new upload alone does not change it.
    fn state(&self) -> (u64, Option<AggregatorPhase>, bool) {
        (self.round, self.phase, self.over)
    }
}

/// An event for the actor.
pub(super) enum AggregatorCommand {
    /// The key generator answered a message.
    Answered(Bytes),
    /// The key generator refused a message.
    Refused { message: Bytes, problem: Box<Problem> },
    /// A user is behind and asks for a round that ended earlier.
    PastRound { round: Round, reply: oneshot::Sender<Option<Arc<EndedRound>>> },
    /// A member verifies a round that ended earlier and asks for its messages.
    PastMessages { round: Round, reply: oneshot::Sender<Vec<Bytes>> },
    /// The next model was computed.
    ModelMade { round: Round, model: Result<NewModel, Error> },
}

/// A new model, and its accuracy if it can be measured.
pub(super) struct NewModel {
    model: Vec<u8>,
    accuracy: Option<f64>,
}

/// An aggregator that is ready to run.
pub struct AggregatorService {
    actor: AggregatorActor,
    commands: mpsc::Receiver<AggregatorCommand>,
    chunk_files: ChunkFiles,
    endpoint: Endpoint,
    dashboard: Option<Dashboard>,
    options: ServiceOptions,
}

impl AggregatorService {
    /// Recovers from the log. `data` is the directory for upload chunks.
    ///
    /// # Errors
    /// If the kit or the log is invalid, or the store fails.
    pub async fn start(
        kit: &Kit,
        store: impl LogStore + Archive,
        data: &std::path::Path,
        maker: impl ModelMaker,
        options: ServiceOptions,
    ) -> Result<Self, Error> {
        let maker: SharedMaker = Arc::new(Mutex::new(Box::new(maker)));
        Self::start_boxed(kit, AnyStore::new(store), data, maker, options).await
    }

    fn start_boxed<'a>(
        kit: &'a Kit,
        store: AnyStore,
        data: &'a std::path::Path,
        maker: SharedMaker,
        options: ServiceOptions,
    ) -> BoxFuture<'a, Result<Self, Error>> {
        Box::pin(Self::start_with(kit, store, data, maker, options))
    }

    async fn start_with(
        kit: &Kit,
        store: AnyStore,
        data: &std::path::Path,
        maker: SharedMaker,
        mut options: ServiceOptions,
    ) -> Result<Self, Error> {
        let events = Arc::new(Mutex::new(options.events.take()));
        let (actor, commands) = AggregatorActor::start(kit, store, None, maker, events, &options).await?;
        let chunk_files = ChunkFiles::new(data)
            .map_err(|source| StoreError::Directory { directory: data.join("uploads"), source })?;
        let dashboard = Dashboard::new(kit, options.metrics.clone())?;
        Ok(Self { actor, commands, chunk_files, endpoint: Endpoint::new(kit)?, dashboard, options })
    }

    /// Returns the published state and its changes.
    pub fn snapshot(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.actor.snapshot.subscribe()
    }

    /// Runs until `shutdown`. After the last round users can still fetch its model.
    ///
    /// # Errors
    /// If the store fails.
    pub fn run(self, listener: TcpListener, shutdown: Shutdown) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(self.run_until(listener, shutdown))
    }

    async fn run_until(self, listener: TcpListener, shutdown: Shutdown) -> Result<(), Error> {
        let Self { mut actor, commands, chunk_files, endpoint, dashboard, mut options } = self;
        let metrics = options.metrics.clone();
        let (sender, uploads) = mpsc::channel(1024);
        let chunks = UploadChunks::Files(chunk_files.clone());
        let snapshot = actor.snapshot.subscribe();
        let key_generator = endpoint.key_generator.new_connection();
        let past = PastRounds::new(Source::Actor(actor.commands.clone()));
        let server =
            endpoint.serve(listener, dashboard, snapshot, sender, (chunks, past), &mut options, &shutdown);
        let outbox = tokio::spawn(actor.outbox.clone().run(key_generator, actor.commands.clone()));
        metrics.ready.set(1);
        metrics.leads.set(1);
        tracing::info!("the aggregator is ready");
        let server = tokio::spawn(server);
        let result = actor.run(commands, uploads, Some(chunk_files), shutdown).await;
        metrics.ready.set(0);
        metrics.leads.set(0);
        outbox.abort();
        if result.is_ok() {
            let _ = server.await;
        } else {
            server.abort();
        }
        result
    }
}

/// The HTTP endpoint of an aggregator, and its client of the key generator.
struct Endpoint {
    roster: Arc<Roster>,
    rosters: Arc<Rosters>,
    tls: ServerTls,
    identities: Arc<IdentityKeys>,
    key_generator: Client,
}

impl Endpoint {
    fn new(kit: &Kit) -> Result<Self, Error> {
        let roster = kit.roster().clone();
        let address = kit.task_file().parties.key_generator.clone();
        let max_response = Kind::RoundResult.max_message_bytes(&roster);
        let key_generator = Client::new(address, kit.tls().client(PartyId::KeyGenerator)?, max_response);
        let (identities, rosters) = (Arc::new(kit.identities()?), Arc::new(kit.rosters().clone()));
        Ok(Self { tls: kit.tls().server(|_| true)?, identities, roster, rosters, key_generator })
    }

    /// Serves users and the dashboard until `shutdown`.
    #[allow(clippy::too_many_arguments, reason = "the parts of an endpoint")]
    fn serve(
        self,
        listener: TcpListener,
        dashboard: Option<Dashboard>,
        snapshot: watch::Receiver<Arc<Snapshot>>,
        uploads: mpsc::Sender<PendingUpload>,
        (chunks, past): (UploadChunks, PastRounds),
        options: &mut ServiceOptions,
        shutdown: &Shutdown,
    ) -> impl Future<Output = ()> + Send + 'static {
        let limits = options.limits;
        let dashboard = dashboard.map(|dashboard| {
            DashboardServer::new(dashboard, snapshot.clone(), limits, shutdown.clone()).router()
        });
        start_observing(options, dashboard, shutdown);
        let api = handlers::AggregatorApi {
            roster: self.roster,
            rosters: self.rosters,
            uploads,
            snapshot,
            chunks,
            past,
            identities: self.identities,
            limits,
            metrics: options.metrics.clone(),
            shutdown: shutdown.clone(),
            permits: Arc::new(Semaphore::new(handlers::MAX_BODIES)),
            user_permits: PartyPermits::new(handlers::MAX_BODIES_PER_USER),
            memory: BodyMemory::new(options.message_memory),
            past_permits: Arc::new(Semaphore::new(handlers::MAX_PAST_ROUNDS)),
        };
        let (router, metrics) = (handlers::router(api), options.metrics.clone());
        serve_tls(listener, self.tls, router, limits, metrics, shutdown.clone())
    }
}

/// The longest time that a poll is held open.
const MAX_POLL: Duration = Duration::from_secs(50);
