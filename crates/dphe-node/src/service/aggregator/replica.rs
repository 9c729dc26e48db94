//! One of several aggregators of a task, which share a database. Every one serves users and takes uploads. One of them
//! leads: it runs the party, and shows the others what to serve. Whoever loses touch with the database leads no more.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dphe::message::{Message as _, RoundTicket, Signed, kind};
use dphe::party::Intake;
use dphe::{Digest, Roster, Round};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::super::ServiceOptions;
use super::super::uploads::Pieces;
use super::super::watch::WatchPage;
use super::actor::{Actor, Shared, last_records};
use super::collector::Collector;
use super::{Board, Door, Status};
use crate::Error;
use crate::http::read_list;
use crate::http::server::Shutdown;
use crate::kit::Kit;
use crate::learning::ModelMaker;
use crate::store::StoreError;
use crate::store::postgres::{BoardRow, Lead, PgAddress, PgStore, Tally};
use crate::telemetry::Metrics;
use crate::tensorboard::EventFile;

/// How often a replica looks what there is to serve.
const LOOK: Duration = Duration::from_millis(200);
/// How often it looks whether nobody leads.
const SEEK: Duration = Duration::from_secs(1);

/// Runs a replica until told to stop.
///
/// # Errors
/// If the database cannot be used at the start. Later it is waited for.
pub async fn run_replica<M: ModelMaker>(
    kit: &Kit,
    address: &PgAddress,
    maker: M,
    mut options: ServiceOptions,
    listener: TcpListener,
    shutdown: Shutdown,
) -> Result<(), Error> {
    let (roster, metrics) = (kit.roster().clone(), options.metrics.clone());
    let store = PgStore::open(address, &roster).await?;
    let tally = store.tally();
    let intake = Intake::new(kit.aggregator_keys()?, kit.identity()?, (*roster).clone(), options.threads)?;
    let door = Door::new(kit)?;
    let (shown, board) = watch::channel(Arc::new(Board::default()));
    let (arrivals, arrived) = mpsc::channel(1024);
    let limit = roster.task().max_users();
    let collector = Collector {
        tally: tally.clone(),
        intake: Arc::new(intake),
        most: (roster.users().len() > limit).then_some(limit),
        threads: options.threads,
        board: board.clone(),
        metrics: metrics.clone(),
        round: Arc::default(),
    };
    collector.start(arrived);
    let reader = read_board(store.clone(), roster.clone(), shown, metrics.clone(), address.lease());
    let reader = tokio::spawn(reader);
    let (page, key_generator) = (WatchPage::new(kit, metrics.clone())?, door.key_generator.again());
    let pieces = Pieces::Rows(Box::new(tally.clone()));
    let server = door.serve(listener, page, board, arrivals, pieces, &mut options, &shutdown);
    let server = tokio::spawn(server);
    tracing::info!("the aggregator is ready, one of several");
    let (maker, events) = (Arc::new(Mutex::new(maker)), Arc::new(Mutex::new(options.events.take())));
    let mut stop = shutdown.clone();
    let result = loop {
        let lead = tokio::select! {
            () = stop.wait() => break Ok(()),
            lead = seek(address, &roster) => lead,
        };
        tracing::info!(epoch = lead.mark().epoch, "this replica leads");
        metrics.leads.set(1);
        let led = store.led_by(&lead);
        let shared = Shared::new(led.tally(), options.threads);
        let (client, events) = (key_generator.again(), events.clone());
        let ended = tokio::select! {
            () = lead.lost() => Err(StoreError::Deposed.into()),
            ended = lead_on(kit, led.clone(), shared, maker.clone(), events, &options, client, &shutdown) => ended,
        };
        metrics.leads.set(0);
        // whoever leads tells how the round stands
        metrics.stands("");
        match ended {
            Ok(()) => break Ok(()),
            // what was about to be stored is, or is not: whoever leads next finds out
            Err(Error::Store(error)) => {
                tracing::warn!(%error, "this replica leads no more");
            }
            Err(error) => match led.still_leads().await {
                Ok(()) => break Err(error),
                // what it read was written by another one
                Err(lost) => tracing::warn!(%error, %lost, "this replica leads no more"),
            },
        }
        tokio::time::sleep(SEEK).await;
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

/// Waits until this replica leads.
async fn seek(address: &PgAddress, roster: &Roster) -> Lead {
    let mut silent = false;
    loop {
        match Lead::seek(address, roster).await {
            Ok(Some(lead)) => return lead,
            Ok(None) => silent = false,
            Err(error) => {
                if !std::mem::replace(&mut silent, true) {
                    tracing::warn!(%error, "the database does not answer");
                }
            }
        }
        tokio::time::sleep(SEEK).await;
    }
}

/// Runs the party as long as the store lets it.
#[allow(clippy::too_many_arguments, reason = "what a party needs")]
async fn lead_on<M: ModelMaker>(
    kit: &Kit,
    store: PgStore,
    shared: Shared,
    maker: Arc<Mutex<M>>,
    events: Arc<Mutex<Option<EventFile>>>,
    options: &ServiceOptions,
    key_generator: crate::http::client::Client,
    shutdown: &Shutdown,
) -> Result<(), Error> {
    let (mut actor, commands) = Actor::start(kit, store, Some(shared), maker, events, options).await?;
    let courier = tokio::spawn(actor.courier.clone().run(key_generator, actor.commands.clone()));
    // also when this is dropped in the midst
    let _courier = AbortOnDrop(courier);
    // uploads do not come this way
    let (_nobody, arrivals) = mpsc::channel(1);
    actor.run(commands, arrivals, None, shutdown.clone()).await
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps up with what the one who leads shows.
async fn read_board(
    mut store: PgStore,
    roster: Arc<Roster>,
    shown: watch::Sender<Arc<Board>>,
    metrics: Arc<Metrics>,
    lease: Duration,
) {
    let (tally, mut known, mut silent, mut heard) = (store.tally(), (0, 0), false, Instant::now());
    loop {
        let looked = tokio::time::timeout(lease, look(&mut store, &tally, &roster, known, &shown));
        let looked = looked.await.unwrap_or(Err(StoreError::Silent { patience: lease }.into()));
        match looked {
            Ok(now) => {
                (known, heard) = (now, Instant::now());
                silent = false;
                metrics.ready.set(1);
            }
            Err(error) => {
                metrics.ready.set(0);
                if heard.elapsed() > lease && !shown.borrow().stale {
                    let board = Board { stale: true, ..(**shown.borrow()).clone() };
                    shown.send_replace(Arc::new(board));
                    // all of it is read when there is an answer again
                    known = (0, 0);
                }
                if !std::mem::replace(&mut silent, true) {
                    tracing::warn!(%error, "what to serve cannot be read");
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn look(
    store: &mut PgStore,
    tally: &Tally,
    roster: &Roster,
    known: (i64, i64),
    shown: &watch::Sender<Arc<Board>>,
) -> Result<(i64, i64), Error> {
    let Some((version, status, row)) = tally.board(known).await? else { return Ok(known) };
    let damaged = |_| Error::Unexpected { what: "a board that cannot be read" };
    let status: Status = serde_json::from_str(&status).map_err(damaged)?;
    let old = shown.borrow().clone();
    let board = match row {
        None => Board { status, stale: false, ..(*old).clone() },
        Some(row) => {
            let records = last_records(store, Round::new(status.round).unwrap_or(Round::FIRST)).await?;
            Board { records: Arc::new(records), ..pages(row, status, roster)? }
        }
    };
    shown.send_replace(Arc::new(board));
    Ok(version)
}

fn pages(row: BoardRow, status: Status, roster: &Roster) -> Result<Board, Error> {
    let BoardRow { ended, ticket, model, .. } = row;
    let mut board = Board { status, ..Board::default() };
    board.ended = ended.map(|(round, list)| (round, list.into()));
    if let Some(list) = ticket {
        let message = read_list(&list).and_then(|list| list.first().copied()).unwrap_or_default();
        if kind(message)? != RoundTicket::KIND {
            return Err(Error::Unexpected { what: "a ticket that is none" });
        }
        let hash = Signed::<RoundTicket>::decode(message, roster)?.hash();
        board.ticket = Some((hash, list.into()));
    }
    board.model = model.map(|model| (Digest::of_model(&model), model.into()));
    board.gather_news();
    Ok(board)
}
