//! The aggregator's service: users ask and upload, it asks the key generator, and makes the next model.

mod actor;
mod collector;
mod front;
mod record;
mod replica;

pub use record::{RoundEnding, RoundRecord};
pub use replica::run_replica;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actor::Actor;
use bytes::Bytes;
use dphe::message::RoundResult;
use dphe::{Digest, Party, Roster, Round, UserId};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::uploads::{Pieces, Uploads};
use super::watch::{Watch, WatchPage};
use super::{ServiceOptions, start_observing};
use crate::Error;
use crate::certificates::server_name;
use crate::http::client::Client;
use crate::http::max_message_bytes;
use crate::http::problem::Problem;
use crate::http::server::{PlaceOfParty, Places, Shutdown, serve_tls};
use crate::kit::Kit;
use crate::learning::ModelMaker;
use crate::store::{Archive, LogStore, StoreError};

/// What users and watchers can see: how the last round ended, the ticket of the one at hand, the model it starts from.
#[derive(Clone, Debug, Default)]
pub struct Board {
    /// The last round that is over, with the list of its closing messages.
    pub ended: Option<(Round, Bytes)>,
    /// The ticket of the round at hand, with its hash, as a list.
    pub ticket: Option<(Digest, Bytes)>,
    /// Both lists in one: made once for all who ask.
    pub news: Bytes,
    /// The model that the round at hand starts from.
    pub model: Option<(Digest, Bytes)>,
    /// How it stands.
    pub status: Status,
    /// What is told of the last rounds.
    pub records: Arc<Vec<RoundRecord>>,
    /// Whether nobody knows if it still stands so: the database does not answer.
    pub stale: bool,
}

impl Board {
    fn gather_news(&mut self) {
        let lists = [self.ended.as_ref().map(|(_, list)| list), self.ticket.as_ref().map(|(_, list)| list)];
        self.news = lists.into_iter().flatten().map(AsRef::as_ref).collect::<Vec<&[u8]>>().concat().into();
    }
}

/// How the aggregator stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The party.
    pub party: String,
    /// The task.
    pub task: String,
    /// The round at hand, or the next one.
    pub round: u64,
    /// How many there will be.
    pub rounds: u64,
    /// Where the round stands.
    pub phase: String,
    /// Whose updates are in.
    pub collected: Vec<u32>,
    /// How many users are enrolled.
    pub users: usize,
    /// Whether all rounds are over.
    pub over: bool,
}

/// A whole upload, and where its answer goes.
pub(super) struct Arrived {
    user: UserId,
    message: Bytes,
    reply: oneshot::Sender<Result<Vec<u8>, Problem>>,
    /// Its places, given back when it is gone: also if whoever sent it hung up long before.
    _places: (PlaceOfParty, OwnedSemaphorePermit),
}

/// What the actor is told.
pub(super) enum Command {
    /// The key generator answered.
    Answered(Bytes),
    /// The key generator refused.
    Refused { message: Bytes, problem: Box<Problem> },
    /// The next model was made.
    Made { round: Round, model: Result<Made, Error> },
}

/// A new model, and how good it is, if that can be told.
pub(super) struct Made {
    model: Vec<u8>,
    accuracy: Option<f64>,
}

/// The aggregator, ready to run.
pub struct AggregatorService<S, M> {
    actor: Actor<S, M>,
    commands: mpsc::Receiver<Command>,
    uploads: Uploads,
    door: Door,
    page: Option<WatchPage>,
    options: ServiceOptions,
}

impl<S: LogStore + Archive, M: ModelMaker> AggregatorService<S, M> {
    /// Takes up where its log ends. `data` is where pieces of uploads are put.
    ///
    /// # Errors
    /// If it cannot start from its kit and its log.
    pub async fn start(
        kit: &Kit,
        store: S,
        data: &std::path::Path,
        maker: M,
        mut options: ServiceOptions,
    ) -> Result<Self, Error> {
        let maker = Arc::new(Mutex::new(maker));
        let events = Arc::new(Mutex::new(options.events.take()));
        let (actor, commands) = Actor::start(kit, store, None, maker, events, &options).await?;
        let uploads = Uploads::new(data)
            .map_err(|source| StoreError::Folder { folder: data.join("uploads"), source })?;
        let page = WatchPage::new(kit, options.metrics.clone())?;
        Ok(Self { actor, commands, uploads, door: Door::new(kit)?, page, options })
    }

    /// What users and watchers can see, and when it changes.
    pub fn board(&self) -> watch::Receiver<Arc<Board>> {
        self.actor.board.subscribe()
    }

    /// Runs until told to stop. After the last round users can still fetch its model.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn run(self, listener: TcpListener, shutdown: Shutdown) -> Result<(), Error> {
        let Self { mut actor, commands, uploads, door, page, mut options } = self;
        let metrics = options.metrics.clone();
        let (sender, arrivals) = mpsc::channel(1024);
        let pieces = Pieces::Files(uploads.clone());
        let board = actor.board.subscribe();
        let key_generator = door.key_generator.again();
        let server = door.serve(listener, page, board, sender, pieces, &mut options, &shutdown);
        let courier = tokio::spawn(actor.courier.clone().run(key_generator, actor.commands.clone()));
        metrics.ready.set(1);
        metrics.leads.set(1);
        tracing::info!("the aggregator is ready");
        let server = tokio::spawn(server);
        let result = actor.run(commands, arrivals, Some(uploads), shutdown).await;
        metrics.ready.set(0);
        metrics.leads.set(0);
        courier.abort();
        if result.is_ok() {
            let _ = server.await;
        } else {
            server.abort();
        }
        result
    }
}

/// What an aggregator needs to be reached, and to reach the key generator.
struct Door {
    roster: Arc<Roster>,
    tls: Arc<rustls::ServerConfig>,
    key_generator: Client,
}

impl Door {
    fn new(kit: &Kit) -> Result<Self, Error> {
        let roster = kit.roster().clone();
        let (address, name) =
            (kit.task_file().parties.key_generator.clone(), server_name(&roster, Party::KeyGenerator)?);
        let most = max_message_bytes::<RoundResult>(&roster);
        let key_generator = Client::new(address, name, kit.tls().client()?, most);
        Ok(Self { tls: kit.tls().server(roster.clone(), |_| true)?, roster, key_generator })
    }

    /// Serves users until told to stop, and those who watch.
    #[allow(clippy::too_many_arguments, reason = "everything that meets here")]
    fn serve(
        self,
        listener: TcpListener,
        page: Option<WatchPage>,
        board: watch::Receiver<Arc<Board>>,
        arrivals: mpsc::Sender<Arrived>,
        pieces: Pieces,
        options: &mut ServiceOptions,
        shutdown: &Shutdown,
    ) -> impl Future<Output = ()> + Send + 'static {
        let limits = options.limits;
        let page = page.map(|page| Watch::new(page, board.clone(), limits, shutdown.clone()).router());
        start_observing(options, page, shutdown);
        let front = front::Front {
            roster: self.roster,
            arrivals,
            board,
            pieces,
            limits,
            metrics: options.metrics.clone(),
            shutdown: shutdown.clone(),
            room: Arc::new(Semaphore::new(front::BODIES_AT_ONCE)),
            bodies: Places::new(front::BODIES_OF_ONE),
        };
        let (router, metrics) = (front::router(front), options.metrics.clone());
        serve_tls(listener, self.tls, router, limits, metrics, shutdown.clone())
    }
}

/// How long users are kept waiting for news before they ask again.
const LONGEST_POLL: Duration = Duration::from_secs(50);
